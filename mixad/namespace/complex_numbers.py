"""Elementwise functions of complex arrays: one table of them, with their derivatives.

Kernels compute with real numbers, so these are rules: the library's own function, and what its
cotangents are.  The cotangent of z = x + iy is ∂x + i∂y of a real loss.  Then that of a holomorphic
function f is the cotangent of its value times conj f'(z); other functions have a formula of their
own.  Operands are converted to one complex type first, which is linear: the cotangent of a real
operand is the real part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import device

from mixad.backends.arrays import Array, Library, default_dtypes, is_number
from mixad.errors import KernelTypeError
from mixad.scalar.dtypes import element_type_of, is_complex_dtype
from mixad.scalar.types import COMPLEX_TYPES, ScalarType
from mixad.tape.broadcasting import sum_to
from mixad.tape.cell import Cell
from mixad.tape.memory import gives_views, share
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, check_mode, primal_value

__all__ = ["as_complex", "common_type", "complex_elementwise", "complex_type_of", "conj", "imag",
           "is_complex", "real", "select"]  # fmt: skip


def is_complex(operand: Any) -> bool:
    """Whether an operand is a complex number, or an array of such."""
    if isinstance(operand, Tracer):
        return operand.kind.type.is_complex
    if is_number(operand):
        return isinstance(operand, complex)
    return is_complex_dtype(operand.dtype)


def complex_elementwise(op: str, library: Library, operands: Sequence[Any]) -> Any:
    """Apply an op to operands, one of which is complex; KernelTypeError for other ops."""
    if op in _OF_BOOLEANS:
        return getattr(library.xp, op)(*map(primal_value, operands))
    rule = _RULES.get(op)
    if rule is None:
        raise KernelTypeError(
            f"{op} of complex numbers is not defined, or its derivative is not available",
            hint="compute with real numbers: x.real, x.imag, abs(x)",
        )
    return _apply(rule, library, operands)


def select(library: Library, condition: Array, x: Any, y: Any) -> Any:
    """Return elements of ``x`` where a condition holds, of ``y`` elsewhere; one is complex."""
    own = library.xp.asarray(condition, copy=True)
    return _apply(_SELECT, library, (x, y), condition=own)


def _apply(rule: Rule, library: Library, operands: Sequence[Any], **static: Any) -> Any:
    common = common_type(library, operands)
    home = _device_of_numbers(operands, library)
    found = apply_rule(rule, *[_operand(o, common, library, home) for o in operands], **static)
    return _weak(found) if isinstance(found, Tracer) and all(map(_is_weak, operands)) else found


def _device_of_numbers(operands: Sequence[Any], library: Library) -> Any:
    """Return the device for numbers beside operands: that of these; JAX moves numbers itself."""
    if library.name == "jax":
        return None
    return next((getattr(o, "device", None) for o in operands if not _is_weak(o)), None)


def _weak(x: Tracer) -> Tracer:
    """Return the result of Python numbers alone as such a number, which adapts to arrays."""
    cell = Cell.of(x.cell.array, check_mode(x.origin.levels), weak=True)
    return type(x)(cell, x.origin)


def _is_weak(operand: Any) -> bool:
    return operand.weak if isinstance(operand, Tracer) else is_number(operand)


def _operand(operand: Any, common: ScalarType, library: Library, device: Any) -> Any:
    if is_number(operand):
        return library.asarray(operand, common, device)
    return as_complex(operand, common)


# -- types -----------------------------------------------------------------------------------------


def common_type(library: Library, operands: Sequence[Any]) -> ScalarType:
    """Return the type to which a library promotes operands, one of which is complex."""
    return _common_type(library, default_dtypes(), tuple(map(_operand_type, operands)))


_Operand = type | tuple[ScalarType, bool]
"""The type of a Python number; for an array its elements' type, and whether it has axes."""


def _operand_type(operand: Any) -> _Operand:
    if is_number(operand):
        return type(operand)
    if isinstance(operand, Tracer) and operand.weak:
        return complex if operand.kind.type.is_complex else float
    return element_type_of(operand.dtype), operand.ndim > 0


@cache
def _common_type(library: Library, default: object, operands: tuple[_Operand, ...]) -> ScalarType:
    """Ask the library, with the smallest of such operands."""
    samples = [
        o(1) if isinstance(o, type) else _sample(library, *o) for o in sorted(operands, key=_rank)
    ]
    total = samples[0]
    for sample in samples[1:]:
        total = total + sample
    return COMPLEX_TYPES[-1] if is_number(total) else element_type_of(total.dtype)


def _rank(operand: _Operand) -> bool:
    """Arrays come first: their operators take Python numbers."""
    return isinstance(operand, type)


def _sample(library: Library, type: ScalarType, has_axes: bool) -> Array:
    return library.xp.ones((1,) * has_axes, dtype=library.dtype_of(type))


def complex_type_of(x: Any) -> ScalarType:
    """Return the type of complex numbers with parts of an array's real type."""
    bits = 2 * element_type_of(x.dtype).bits
    return next(t for t in COMPLEX_TYPES if t.bits == bits)


def as_complex(x: Any, type: ScalarType) -> Any:
    """Return an array or a tracer with elements of a complex type."""
    if element_type_of(x.dtype) == type and not (isinstance(x, Tracer) and x.weak):
        return x
    return apply_rule(_ASTYPE, x, dtype=library_of_value(x).dtype_of(type))


def _convert_cotangent(g: Any, x: Any, dtype: Any) -> Any:
    part = g if is_complex_dtype(x.dtype) else real(g)
    return part if part.dtype == x.dtype else apply_rule(_ASTYPE, part, dtype=x.dtype)


_ASTYPE = Rule(
    "astype",
    lambda xp, x, dtype: xp.astype(x, dtype),
    (_convert_cotangent,),
    linear="each",
)
"""From real or complex numbers to complex ones, from real to real ones."""


# -- real and imaginary part -----------------------------------------------------------------------


@gives_views
def real(x: Any) -> Any:
    """Return the real part; real numbers unchanged."""
    return apply_rule(_REAL, x) if is_complex(x) else x


@gives_views
def imag(x: Any) -> Any:
    """Return the imaginary part; for real numbers zeros without a derivative."""
    return (
        apply_rule(_IMAG, x)
        if is_complex(x)
        else library_of_value(x).xp.zeros_like(primal_value(x))
    )


def conj(x: Any) -> Any:
    """Return the complex conjugate; real numbers unchanged."""
    if not is_complex(x):
        return x
    found = apply_rule(_CONJ, x)
    return share(found, x) if library_of_value(x).name == "torch" else found


def _conjugate(xp: Any, x: Any) -> Any:
    """Return the conjugate: torch's default is a view with a mark that NumPy cannot read."""
    return getattr(xp, "conj_physical", xp.conj)(x)


_REAL = Rule(
    "real",
    lambda xp, x: xp.real(x),
    (lambda g, x: apply_rule(_ASTYPE, g, dtype=x.dtype),),
    linear="each",
)
_IMAG = Rule("imag", lambda xp, x: xp.imag(x), (lambda g, x: _of_imag(g, x),), linear="each")
_CONJ = Rule("conj", _conjugate, (lambda g, x: conj(g),), linear="each")


def _of_imag(g: Any, x: Any) -> Any:
    return apply_rule(_ASTYPE, g, dtype=x.dtype) * 1j


# -- products --------------------------------------------------------------------------------------


def _times(xp: Any, g: Array, factor: Array) -> Array:
    """Return a product that is 0 where the first factor is, be the other one inf or nan."""
    with np.errstate(all="ignore"):
        product = g * factor
        return xp.where(g == 0, xp.zeros_like(product), product)


_TIMES = Rule(
    "the cotangent of a function of complex numbers",
    _times,
    (
        lambda g, x, y: sum_to(_times_conj(g, y), tuple(x.shape)),
        lambda g, x, y: sum_to(_times_conj(g, x), tuple(y.shape)),
    ),
    reads=((1,), (0,)),
    linear="each",
)


_TIMES_CONJ = Rule(
    "the cotangent of a function of complex numbers",
    lambda xp, g, factor: _times(xp, g, xp.conj(factor)),
    (
        lambda h, g, factor: sum_to(apply_rule(_TIMES, h, factor), tuple(g.shape)),
        lambda h, g, factor: sum_to(_times_conj(g, h), tuple(factor.shape)),
    ),
    reads=((1,), (0,)),
    linear="each",
)


def _times_conj(g: Any, factor: Any) -> Any:
    """Return a cotangent times a conjugated derivative."""
    return apply_rule(_TIMES_CONJ if is_complex(factor) else _TIMES, g, factor)


# -- the table -------------------------------------------------------------------------------------


def _value(function: str) -> Callable[..., Array]:
    """Return the evaluator of a library's function, without warnings, as kernels do."""

    def evaluate(xp: Any, *zs: Any) -> Array:
        with np.errstate(all="ignore"):
            return getattr(xp, function)(*zs)

    return evaluate


def _holomorphic(
    function: str, *derivatives: Callable[..., Any], value: Callable[..., Array] | None = None
) -> Rule:
    """Return the rule of a function with this derivative with respect to each argument."""

    def cotangent(index: int) -> Callable[..., Any]:
        def of_argument(g: Any, *zs: Any) -> Any:
            with np.errstate(all="ignore"):
                slope = derivatives[index](*zs)
            return sum_to(_times_conj(g, slope), tuple(zs[index].shape))

        return of_argument

    count = len(derivatives)
    return Rule(
        function,
        value or _value(function),
        tuple(map(cotangent, range(count))),
        reads=(tuple(range(count)),) * count,
    )


def _linear(function: str, *cotangents: Callable[..., Any], **options: Any) -> Rule:
    return Rule(function, _value(function), cotangents, **options)


def _sign(z: Any) -> Any:
    return apply_rule(_RULES["sign"], z)


def _size(z: Any) -> Any:
    """Return magnitudes to divide by; 1 for 0."""
    size = apply_rule(_RULES["abs"], z)
    xp = library_of_value(z).xp
    ones = xp.astype(primal_value(size) == 0, size.dtype)
    return size + ones


def _of_sign(g: Any, z: Any) -> Any:
    """A change of the angle turns the sign: ds = is Im(conj(s) dz) / |z|."""
    sign = _sign(z)
    return _product(sign, _product(imag(_product(conj(sign), g)), 1.0 / _size(z))) * 1j


def _product(x: Any, y: Any) -> Any:
    """Multiply a traced value from either side, which not every library's arrays leave to it."""
    return y * x if isinstance(y, Tracer) else x * y


def _function(op: str) -> Callable[[Any], Any]:
    return lambda z: apply_rule(_RULES[op], z)


_exp, _log, _sqrt, _sin, _cos, _sinh, _cosh, _tanh = map(
    _function, "exp log sqrt sin cos sinh cosh tanh".split()
)


def _div(x: Any, y: Any) -> Any:
    return apply_rule(_RULES["div"], x, y)


def _pow(x: Any, y: Any) -> Any:
    return apply_rule(_RULES["pow"], x, y)


def _of_base(x: Any, y: Any) -> Any:
    """y x^(y - 1), which is 0 for y = 0, also at x = 0."""
    return apply_rule(_TIMES, y, _pow(x, y - 1))


def _of_exponent(x: Any, y: Any) -> Any:
    """x^y log x, which is 0 at x = 0."""
    return apply_rule(_TIMES, _pow(x, y), _log(x + _one_at_zero(x)))


def _one_at_zero(x: Any) -> Array:
    xp = library_of_value(x).xp
    return xp.astype(primal_value(x) == 0, x.dtype)


def _secant(xp: Any, z: Array) -> Array:
    """1 / cosh z, by e^-z to the right of 1 and of its mirror image: nothing overflows there."""
    with np.errstate(all="ignore"):
        w = xp.where(xp.real(z) < 0, -z, z)
        decay, is_far = xp.exp(-w), xp.real(w) > 1
        near = 1 / xp.cosh(xp.where(is_far, xp.zeros_like(w), w))
        return xp.where(is_far, 2 * decay / (1 + decay * decay), near)


def _of_tanh(z: Any) -> Any:
    """1 / cosh² z: 1 - tanh² z loses all digits where it is small."""
    secant = apply_rule(_SECANT, z)
    return secant * secant


_RULES: dict[str, Rule] = {
    "add": _linear(
        "add",
        lambda g, x, y: sum_to(g, tuple(x.shape)),
        lambda g, x, y: sum_to(g, tuple(y.shape)),
        linear="all",
    ),
    "sub": _linear(
        "subtract",
        lambda g, x, y: sum_to(g, tuple(x.shape)),
        lambda g, x, y: sum_to(-g, tuple(y.shape)),
        linear="all",
    ),
    "neg": _linear("negative", lambda g, x: -g, linear="each"),
    "mul": _linear(
        "multiply",
        lambda g, x, y: sum_to(_times_conj(g, y), tuple(x.shape)),
        lambda g, x, y: sum_to(_times_conj(g, x), tuple(y.shape)),
        reads=((1,), (0,)),
        linear="each",
    ),
    "div": _holomorphic("divide", lambda x, y: 1 / y, lambda x, y: -_div(_div(x, y), y)),
    "pow": _holomorphic("pow", _of_base, _of_exponent),
    "sqrt": _holomorphic("sqrt", lambda z: 0.5 / _sqrt(z)),
    "exp": _holomorphic("exp", _exp),
    "exp2": _holomorphic("exp2", lambda z: math.log(2) * apply_rule(_RULES["exp2"], z)),
    "expm1": _holomorphic("expm1", _exp),
    "log": _holomorphic("log", lambda z: 1 / z),
    "log2": _holomorphic("log2", lambda z: (1 / math.log(2)) / z),
    "log10": _holomorphic("log10", lambda z: (1 / math.log(10)) / z),
    "log1p": _holomorphic("log1p", lambda z: 1 / (1 + z)),
    "sin": _holomorphic("sin", _cos),
    "cos": _holomorphic("cos", lambda z: -_sin(z)),
    "tan": _holomorphic("tan", lambda z: _of_tanh(z * 1j)),
    "asin": _holomorphic("asin", lambda z: 1 / (_sqrt(1 - z) * _sqrt(1 + z))),
    "acos": _holomorphic("acos", lambda z: -1 / (_sqrt(1 - z) * _sqrt(1 + z))),
    "atan": _holomorphic("atan", lambda z: (1 / (1 + z * 1j)) * (1 / (1 - z * 1j))),
    "sinh": _holomorphic("sinh", _cosh),
    "cosh": _holomorphic("cosh", _sinh),
    "tanh": _holomorphic("tanh", _of_tanh),
    "asinh": _holomorphic("asinh", lambda z: 1 / (_sqrt(1 + z * 1j) * _sqrt(1 - z * 1j))),
    "acosh": _holomorphic("acosh", lambda z: 1 / (_sqrt(z - 1) * _sqrt(z + 1))),
    "atanh": _holomorphic("atanh", lambda z: (1 / (1 - z)) * (1 / (1 + z))),
    "abs": _linear("abs", lambda g, z: _product(g, _sign(z)), reads=((0,),)),
    "sign": _linear("sign", _of_sign, reads=((0,),)),
    "rint": _linear("round", lambda g, z: None),
}
"""By name in the table of scalar ops: the library's function, and its cotangents."""

_SECANT: Rule = _holomorphic(
    "1 / cosh", lambda z: -_tanh(z) * apply_rule(_SECANT, z), value=_secant
)

_OF_BOOLEANS = frozenset(("isnan", "isinf", "isfinite"))
"""Ops whose results have no derivative."""


def _choose(xp: Any, x: Array, y: Array, condition: Array) -> Array:
    return xp.where(condition, x, y)


def _part(g: Any, of: Any, condition: Array, index: int) -> Any:
    zero = library_of_value(g).xp.zeros((), dtype=g.dtype, device=device(g))
    pair = (g, zero) if index == 0 else (zero, g)
    return sum_to(apply_rule(_SELECT, *pair, condition=condition), tuple(of.shape))


_SELECT = Rule(
    "where",
    _choose,
    (
        lambda g, x, y, condition: _part(g, x, condition, 0),
        lambda g, x, y, condition: _part(g, y, condition, 1),
    ),
    linear="all",
)
