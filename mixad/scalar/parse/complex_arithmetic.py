"""Arithmetic and comparisons of complex numbers: what becomes of their parts (record 0016).

Two complex numbers give the bits that NumPy's scalars give.  A real number beside a complex one
stays real, as Annex G of the C standard and Python 3.14 have it: it has no imaginary part, so no
zero is multiplied by an infinity, or added to a negative zero.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType

from mixad.errors import KernelError
from mixad.scalar.parse import operators
from mixad.scalar.parse.complex_library import (
    power_of_complex,
    power_of_real,
    power_of_whole,
    square_root,
    with_derivatives_of,
)
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.inlining import call_own_function
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values.complex import Complex
from mixad.scalar.parse.values.value import Number, Scalar, parts_type

__all__ = ["arithmetic", "as_complex", "compare", "complex_of_parts", "conjugate", "in_common_type",
           "of_one_type", "unary", "where"]  # fmt: skip

_MAX_FACTORS = 100
"""``z ** n`` is a product for whole ``n`` below this, as in NumPy."""


def arithmetic(frame: Frame, node: Located, op: ast.operator, x: Number, y: Number) -> Number:
    """Return the value of ``x op y`` for numbers."""
    if x.im is None and y.im is None:
        return operators.arithmetic(frame, node, op, x.re, y.re)
    if isinstance(op, ast.Pow):
        return _power(frame, node, x, y)
    compute = _OPERATORS.get(type(op))
    if compute is None:
        symbol = _SYMBOLS[type(op)]
        instead = "abs(z), z.real and z.imag are real numbers"
        hint = "z / w" if isinstance(op, ast.FloorDiv) else instead
        raise frame.type_error(node, f"`{symbol}` of complex numbers is not defined", hint)
    return compute(_Parts(frame, node), *of_one_type(frame, node, (x, y)))


def unary(frame: Frame, node: ast.UnaryOp, z: Number) -> Number:
    """Return the value of ``-z``, ``+z``, ``~z`` or ``not z``."""
    if isinstance(node.op, ast.Not):
        return Scalar(frame.builder.op("not", z.truth(frame)), z.typed.weak)
    if z.im is None:
        return operators.unary(frame, node, z.re)
    if isinstance(node.op, ast.Invert):
        raise frame.type_error(
            node, "`~` of complex numbers is not defined", "z.conjugate() is the conjugate"
        )
    if isinstance(node.op, ast.UAdd):
        return z
    op = _Parts(frame, node)
    return Complex(op("neg", z.re), op("neg", z.im))


def compare(frame: Frame, node: Located, op: ast.cmpop, x: Number, y: Number) -> Scalar:
    """Return the truth of one comparison."""
    if x.im is None and y.im is None:
        return operators.compare(frame, node, op, x.re, y.re)
    if not isinstance(op, ast.Eq | ast.NotEq):
        raise _order_error(frame, node, op)
    a, b = (as_complex(frame, node, v) for v in of_one_type(frame, node, (x, y)))
    equal = [
        operators.compare(frame, node, ast.Eq(), s, t) for s, t in ((a.re, b.re), (a.im, b.im))
    ]
    both = operators.apply(frame, node, "and", equal)
    if isinstance(op, ast.Eq):
        return both
    return Scalar(frame.builder.op("not", both.atom), both.weak)


def where(frame: Frame, node: ast.expr, condition: Number, x: Number, y: Number) -> Number:
    """Return one of two numbers: of complex ones both parts are chosen."""
    if not any(n.is_complex for n in (condition, x, y)):
        return operators.apply(frame, node, "where", (condition.re, x.re, y.re))
    truth = condition.truth(frame)
    like = x.prototype().join(frame.context.rules, y.prototype())
    pairs = zip(x.atoms(frame, like, node), y.atoms(frame, like, node), strict=True)
    chosen = (frame.builder.op("where", truth, a, b) for a, b in pairs)
    return like.rebuilt(chosen)


def _order_error(frame: Frame, node: Located, op: ast.cmpop) -> KernelError:
    return frame.type_error(
        node,
        f"`{_SYMBOLS[type(op)]}` of complex numbers: they have no order",
        f"compare sizes, abs(z) {_SYMBOLS[type(op)]} abs(w), or a part, such as z.real",
    )


_SYMBOLS: Mapping[type[ast.operator | ast.cmpop], str] = MappingProxyType({
    ast.FloorDiv: "//", ast.Mod: "%", ast.MatMult: "@", ast.BitAnd: "&", ast.BitOr: "|",
    ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>",
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
})  # fmt: skip


# -- types -----------------------------------------------------------------------------------------


def of_one_type(frame: Frame, node: Located, numbers: Sequence[Number]) -> list[Number]:
    """Return numbers, one of which is complex, with parts of one type; real ones stay real."""
    parts = parts_type(frame.context.rules, numbers)
    if parts is None:
        names = " and ".join(n.describe() for n in numbers)
        raise frame.type_error(
            node, f"{names} do not mix here", "convert one, such as with float(...)"
        )

    def in_type(x: Scalar) -> Scalar:
        return Scalar(frame.adopt(x, parts.type, node), parts.weak)

    return [
        in_type(n.re) if n.im is None else Complex(in_type(n.re), in_type(n.im)) for n in numbers
    ]


def in_common_type(frame: Frame, node: Located, numbers: Sequence[Number]) -> list[Number]:
    """Return numbers in their common type, all complex if one is."""
    if any(n.is_complex for n in numbers):
        return [as_complex(frame, node, n) for n in of_one_type(frame, node, numbers)]
    scalars = [n.re for n in numbers]
    typed = operators.join(frame, node, scalars)
    return [frame.convert(s, typed) for s in scalars]


def as_complex(frame: Frame, node: Located, number: Number) -> Complex:
    """Return a number as a complex one; the imaginary part of a real number is zero."""
    re, im = number.re, number.im
    return complex_of_parts(frame, node, re, frame.constant(0.0)) if im is None else Complex(re, im)


def complex_of_parts(frame: Frame, node: Located, re: Scalar, im: Scalar) -> Complex:
    """Return the complex number with these parts."""
    half = frame.constant(0.0)
    numbers = of_one_type(frame, node, (Complex(half, half), re, im))
    return Complex(numbers[1].re, numbers[2].re)


# -- operators -------------------------------------------------------------------------------------


class _Parts:
    """Arithmetic of parts, which have one type, at a place of the user's function."""

    def __init__(self, frame: Frame, node: Located) -> None:
        self.frame = frame
        self.node = node

    def __call__(self, name: str, *parts: Scalar) -> Scalar:
        """Return an op of the table of some parts."""
        return operators.apply(self.frame, self.node, name, parts)

    def constant(self, value: float, like: Scalar) -> Scalar:
        """Return a number in the type of a part."""
        return Scalar(self.frame.builder.const(value, like.atom.type), like.weak)

    def stop_gradient(self, x: Scalar) -> Scalar:
        """Return a part as a constant of derivatives, to be compared: no result jumps there."""
        return operators.stop_gradient(self.frame, x)


_Operator = Callable[[_Parts, Number, Number], Complex]


def _sum(op: _Parts, x: Number, y: Number) -> Complex:
    re = op("add", x.re, y.re)
    im = op("add", x.im, y.im) if x.im and y.im else x.im or y.im
    assert im is not None
    return Complex(re, im)


def _difference(op: _Parts, x: Number, y: Number) -> Complex:
    re = op("sub", x.re, y.re)
    if y.im is None:
        assert x.im is not None
        return Complex(re, x.im)
    return Complex(re, op("neg", y.im) if x.im is None else op("sub", x.im, y.im))


def conjugate(frame: Frame, node: Located, z: Number) -> Number:
    """Return the conjugate of a number; a real one is its own."""
    return z if z.im is None else Complex(z.re, _Parts(frame, node)("neg", z.im))


def _product(op: _Parts, x: Number, y: Number) -> Complex:
    if x.im and y.im:
        re = op("sub", op("mul", x.re, y.re), op("mul", x.im, y.im))
        return Complex(re, op("add", op("mul", x.re, y.im), op("mul", x.im, y.re)))
    z, real = (x, y) if y.im is None else (y, x)
    assert z.im is not None
    return Complex(op("mul", z.re, real.re), op("mul", z.im, real.re))


def _quotient(op: _Parts, x: Number, y: Number) -> Complex:
    """Divide as NumPy does: Smith, "Algorithm 116: Complex division" (1962).

    ``p`` is the part of the divisor that is larger in size, ``q`` the other one; ``u`` and ``v``
    are the dividend's parts in that order.
    """
    if y.im is None:
        assert x.im is not None
        return Complex(op("div", x.re, y.re), op("div", x.im, y.re))
    c, d = (op("abs", op.stop_gradient(part)) for part in (y.re, y.im))
    is_first = op("ge", c, d)
    p, q = op("where", is_first, y.re, y.im), op("where", is_first, y.im, y.re)
    zero = op.constant(0.0, p)
    is_zero = op("eq", op("add", c, d), zero)

    def times_ratio(z: Scalar) -> Scalar:
        return op("where", is_zero, zero, op("mul", z, op("div", q, p)))

    size = op("where", is_zero, zero, op("add", p, op("mul", q, op("div", q, p))))
    scale = op("div", op.constant(1.0, p), size)
    if x.im is None:
        small = times_ratio(x.re)
        re = op("mul", op("where", is_first, x.re, small), scale)
        return Complex(re, op("neg", op("mul", op("where", is_first, small, x.re), scale)))
    u, v = op("where", is_first, x.re, x.im), op("where", is_first, x.im, x.re)
    re = op("mul", op("add", u, times_ratio(v)), scale)
    small = times_ratio(u)
    im = op("where", is_first, op("sub", v, small), op("sub", small, v))
    return Complex(re, op("mul", im, scale))


_OPERATORS: Mapping[type[ast.operator], _Operator] = MappingProxyType({
    ast.Add: _sum, ast.Sub: _difference, ast.Mult: _product, ast.Div: _quotient,
})  # fmt: skip


# -- powers ----------------------------------------------------------------------------------------


def _power(frame: Frame, node: Located, x: Number, y: Number) -> Number:
    """Return ``x ** y``: products for whole constant ``y``, else by logarithm and exponential."""
    exponent = None if y.is_complex else y.re.constant
    if exponent is not None and float(exponent).is_integer() and abs(exponent) < _MAX_FACTORS:
        base, _ = of_one_type(frame, node, (x, y))
        return _whole_power(frame, node, as_complex(frame, node, base), int(exponent))
    base, power = of_one_type(frame, node, (x, y))
    z = as_complex(frame, node, base)
    if y.typed.type.is_integer:
        return call_own_function(frame, node, power_of_whole, (z, y))
    if exponent == 0.5:
        return call_own_function(frame, node, square_root, (z,))
    function = power_of_complex if power.is_complex else power_of_real
    return call_own_function(frame, node, function, (z, power))


def _whole_power(frame: Frame, node: Located, z: Complex, exponent: int) -> Number:
    """Return ``z ** exponent``, 1/zⁿ as NumPy has it; as (1/z)ⁿ its derivatives stay in range."""
    op = _Parts(frame, node)
    one = op.constant(1.0, z.re)
    if exponent >= -1:
        return _power_by_squaring(op, z, exponent) if exponent >= 0 else _quotient(op, one, z)
    value = _quotient(op, one, _power_by_squaring(op, z, -exponent))
    power = _power_by_squaring(op, _quotient(op, one, z), -exponent)
    return call_own_function(frame, node, with_derivatives_of, (value, power))


def _power_by_squaring(op: _Parts, z: Complex, exponent: int) -> Complex:
    """Return ``z ** exponent`` by squaring, in the order of NumPy."""
    if exponent == 0:
        return Complex(op.constant(1.0, z.re), op.constant(0.0, z.re))
    square, factors = z, []
    for place, digit in enumerate(reversed(f"{exponent:b}")):
        square = _product(op, square, square) if place else z
        factors += [square] if digit == "1" else []
    return reduce(partial(_product, op), factors)
