"""Arithmetic and comparisons of numbers: which op, in which type."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from mixad.scalar import interpret
from mixad.scalar.ir import Atom, Const
from mixad.scalar.ops import BY_NAME
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.integers import OPS, Formula, compute, fits, integer_text
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values.value import Scalar
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import BOOL, I32, I64, U64, ScalarType

__all__ = ["apply", "arithmetic", "compare", "power", "python_integer", "stop_gradient", "unary",
           "whole"]  # fmt: skip

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "mod",
}  # fmt: skip
_BITS: dict[type[ast.operator], str] = {
    ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor", ast.LShift: "shl", ast.RShift: "shr",
}  # fmt: skip
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne",
}  # fmt: skip

_SYMBOLS = {
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>", "not": "~",
    "powi": "**", "add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "neg": "-",
    "pos": "+",
}  # fmt: skip

_FLOAT_BITS = 1024  # of the largest integers that are floats

# x ** n becomes multiplications up to this n: their error stays within pow's own.
_MAX_FACTORS = 8


def arithmetic(frame: Frame, node: Located, op: ast.operator, x: Scalar, y: Scalar) -> Scalar:
    """Return the value of ``x op y`` for numbers."""
    kind = type(op)
    if kind in _ARITHMETIC:
        return apply(frame, node, _ARITHMETIC[kind], (x, y))
    if kind is ast.Div:
        return divide(frame, node, x, y)
    if kind is ast.Pow:
        return power(frame, node, x, y)
    if kind in _BITS:
        return apply(frame, node, _BITS[kind], (x, y))
    raise frame.error(node, "`@` works on arrays, a kernel on their elements", "write a * b")


def join(frame: Frame, node: Located, scalars: Sequence[Scalar]) -> Typed:
    """Return the common type of several numbers."""
    typed = scalars[0].typed
    for other in scalars[1:]:
        found = typed if typed == other.typed else frame.context.rules.join(typed, other.typed)
        if found is None:
            raise frame.type_error(
                node,
                f"{typed} and {other.typed} do not mix here",
                "convert one of them, for instance with float(...)",
            )
        typed = found
    return typed


def in_type(frame: Frame, node: Located, scalars: Sequence[Scalar], typed: Typed) -> list[Atom]:
    """Return numbers in one type; a Python integer that does not fit is refused."""
    return [frame.adopt(s, typed.type, node) for s in scalars]


def apply(frame: Frame, node: Located, name: str, scalars: Sequence[Scalar]) -> Scalar:
    """Return ``name(*scalars)`` for an op of the table, in the type that promotion gives."""
    if name == "where":
        return _where(frame, node, scalars)
    op = BY_NAME[name]
    typed = join(frame, node, scalars)
    if op.domain == "float":
        typed = _floating_type(frame, node, name, scalars, typed)
    elif op.domain in ("number", "integer", "bits") and typed.type.is_bool and op.domain != "bits":
        typed = _count_booleans(frame, node, name, typed)
    if op.domain in ("integer", "bits") and typed.type.is_float:
        raise frame.type_error(
            node, f"`{_op_text(node, name)}` takes integers, not {typed}", "convert with int(...)"
        )
    if typed.weak and typed.type == I64 and name in OPS:
        return python_integer(frame, node, name, scalars)
    atoms = in_type(frame, node, scalars, typed)
    if op.lowering != "instruction" and all(isinstance(a, Const) for a in atoms):
        return _fold_constants(frame, name, atoms, typed)
    return Scalar(frame.builder.op(name, *atoms), typed.weak)


def python_integer(
    frame: Frame, node: Located, name: str, scalars: Sequence[Scalar], result: Atom | None = None
) -> Scalar:
    """Return an op of Python integers: of constants computed now, else checked at every call."""
    value = compute(name, [s.constant for s in scalars])
    if value is not None:
        return whole(frame, node, value)
    if result is None:
        result = frame.builder.op(name, *in_type(frame, node, scalars, Typed(I64, True)))
    text = ast.unparse(node) if isinstance(node, ast.expr) else name
    frame.formula(result, Formula(name, tuple(s.atom for s in scalars), text), node)
    return Scalar(result, True)


def _fold_constants(frame: Frame, name: str, atoms: Sequence[Atom], typed: Typed) -> Scalar:
    """Compute a function of constants (``math.log(2.0)``) now, as Python would."""
    numbers = tuple(a.type.arithmetic.dtype.type(a.value) for a in atoms if isinstance(a, Const))
    type_ = BOOL if BY_NAME[name].result == "bool" else typed.type
    return Scalar(
        frame.builder.const(interpret.apply(name, numbers, type_).item(), type_), typed.weak
    )


def _where(frame: Frame, node: Located, scalars: Sequence[Scalar]) -> Scalar:
    cond, *choices = scalars
    typed = join(frame, node, choices)
    atoms = in_type(frame, node, choices, typed)
    weak = typed.weak if typed.weak or cond.weak is not False else False  # a condition has axes
    return Scalar(frame.builder.op("where", cond.truth(frame), *atoms), weak)


def _floating_type(
    frame: Frame, node: Located, name: str, scalars: Sequence[Scalar], typed: Typed
) -> Typed:
    """Return the float type of a function of numbers whose common type is ``typed``.

    Several integers become floats one by one: int16 and uint16 fit float32, as NumPy has it.
    """
    rules = frame.context.rules
    strong = [s.typed for s in scalars if not s.weak]
    found = rules.floating(typed)
    if len(strong) > 1 and not any(s.atom.type.is_float for s in scalars):
        known = [f for f in map(rules.floating, strong) if f is not None]
        found = max(known, key=lambda f: f.type.bits, default=None)
    if found is None:
        raise frame.type_error(
            node,
            f"`{name}` takes floats here, not {typed}",
            "convert first, for instance with np.float32(...)",
        )
    return found


def floating(
    frame: Frame, node: Located, name: str, scalars: Sequence[Scalar]
) -> tuple[Scalar, ...]:
    """Return numbers as the floats in which ``name`` computes."""
    typed = _floating_type(frame, node, name, scalars, join(frame, node, scalars))
    return tuple(Scalar(a, typed.weak) for a in in_type(frame, node, scalars, typed))


def plus(frame: Frame, node: Located, x: Scalar) -> Scalar:
    """Return ``+x``."""
    return (
        frame.convert(x, _count_booleans(frame, node, "pos", x.typed))
        if x.typed.type.is_bool
        else x
    )


def _count_booleans(frame: Frame, node: Located, name: str, typed: Typed) -> Typed:
    """Comparisons take booleans as 0 and 1; Python's count as integers, arrays' are refused."""
    if typed.weak or (name in BY_NAME and BY_NAME[name].result == "bool"):
        return Typed(I64, typed.weak)
    raise frame.type_error(
        node,
        f"`{_op_text(node, name)}` of booleans: libraries disagree about its type",
        "use int(...), or `and`, `or`, `not`",
    )


def _op_text(node: Located, name: str) -> str:
    """Return how the user writes an op."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else _SYMBOLS.get(name, name)


def divide(frame: Frame, node: Located, x: Scalar, y: Scalar) -> Scalar:
    """Return the true quotient."""
    typed = join(frame, node, (x, y))
    found = frame.context.rules.quotient_type(typed)
    if found is None:
        raise frame.type_error(
            node, f"`/` takes floats here, not {typed}", "convert first, or use //"
        )
    return Scalar(frame.builder.op("div", *in_type(frame, node, (x, y), found)), found.weak)


def unary(frame: Frame, node: ast.UnaryOp, x: Scalar) -> Scalar:
    """Return the value of ``-x``, ``+x`` or ``~x`` of a number."""
    if isinstance(node.op, ast.Invert):
        is_python_bool = x.weak and x.atom.type.is_bool  # ~True is -2, ~ of arrays is not
        x = frame.convert(x, Typed(I64, True)) if is_python_bool else x
        return apply(frame, node, "not", (x,))
    if isinstance(node.op, ast.USub):
        return apply(frame, node, "neg", (x,))
    return plus(frame, node, x)


def whole(frame: Frame, node: Located, value: int) -> Scalar:
    """Return the number that a literal is."""
    if fits(value, I64):
        return frame.constant(value)
    unsigned = f"np.uint64({value}), or " if fits(value, U64) else ""
    hint = f"{unsigned}write it as a float"
    if value.bit_length() > _FLOAT_BITS:
        hint = "a number that floats hold: those up to 1.8e308"
    text = ast.unparse(node) if isinstance(node, ast.expr) else "this integer"
    raise frame.type_error(node, f"{integer_text(value, text)} does not fit into int64", hint)


def compare(frame: Frame, node: Located, op: ast.cmpop, x: Scalar, y: Scalar) -> Scalar:
    """Return the truth of one comparison; it is weak where both sides are."""
    name = _COMPARISONS[type(op)]
    typed = join(frame, node, (x, y))
    if typed.type.is_bool and name not in ("eq", "ne"):
        typed = Typed(I64, typed.weak)
    kinds = {x.atom.type.kind, y.atom.type.kind}
    if typed.type.is_float and kinds == {"int", "uint"}:
        raise frame.type_error(
            node,
            "u64 and signed integers would be compared as floats, which loses digits",
            "convert one of them, for instance with np.int64(...)",
        )
    if typed.type.is_integer:
        return Scalar(_of_integers(frame, name, x, y, typed.type), typed.weak)
    return Scalar(frame.builder.op(name, *in_type(frame, node, (x, y), typed)), typed.weak)


def _of_integers(frame: Frame, name: str, x: Scalar, y: Scalar, type_: ScalarType) -> Atom:
    """Compare integers by value; a Python integer may be one that the other's type does not hold.

    A literal that it does not hold has been compared when the function is compiled.
    """
    builder = frame.builder

    def compare_as(common: ScalarType) -> Atom:
        return builder.op(name, *(builder.convert(s.atom, common) for s in (x, y)))

    weak = x if x.weak else y
    if bool(x.weak) == bool(y.weak) or weak.atom.type.is_bool:
        return compare_as(type_)
    if isinstance(weak.atom, Const):
        if fits(int(weak.atom.value), type_):
            return compare_as(type_)
        return builder.const(_beside(name, less=(weak.atom.value > 0) == (weak is y)), BOOL)
    if type_ != U64:
        return compare_as(I64)
    negative = builder.op("lt", weak.atom, builder.const(0, I64))
    return builder.op(
        "where", negative, builder.const(_beside(name, less=weak is x), BOOL), compare_as(U64)
    )


def _beside(name: str, *, less: bool) -> bool:
    """Return what a comparison gives where its left side is less than the right, or greater."""
    return name in (("lt", "le", "ne") if less else ("gt", "ge", "ne"))


def power(frame: Frame, node: Located, x: Scalar, y: Scalar) -> Scalar:
    """Return ``x ** y``; small constant exponents become what the base libraries compute.

    0, 1, 2 and -1 are exact as in NumPy; 0.5 is sqrt as in NumPy and PyTorch (so -0.0 stays -0.0
    and -inf gives nan, where pow gives 0.0 and inf); 3 to 8 are products.
    """
    exponent = y.constant
    typed = join(frame, node, (x, y))
    if _is_square_of_bool(node, x, y):
        _count_booleans(frame, node, "powi", x.typed)
    if typed.type.is_bool:
        typed = _count_booleans(frame, node, "powi", typed)
    if not typed.type.is_float:
        return _integer_power(frame, node, x, y, typed)
    (base,) = in_type(frame, node, (x,), typed)
    builder = frame.builder
    if exponent is not None and float(exponent).is_integer() and 0 <= exponent <= _MAX_FACTORS:
        return Scalar(_product(frame, base, int(exponent)), typed.weak)
    if exponent == -1:
        return Scalar(builder.op("div", builder.const(1, typed.type), base), typed.weak)
    if exponent == 0.5:
        return Scalar(builder.op("sqrt", base), typed.weak)
    return apply(frame, node, "pow", (x, y))


def _is_square_of_bool(node: Located, x: Scalar, y: Scalar) -> bool:
    """Whether this is, or may be, ``b ** 2`` of an array, which NumPy takes for ``square``.

    It is an int8 then, where other exponents and ``np.power(b, 2)`` give the default integer.
    """
    is_two = y.constant in (None, 2)
    is_number = bool(y.weak) and not y.atom.type.is_float
    return x.atom.type.is_bool and is_number and is_two and not isinstance(node, ast.Call)


def _product(frame: Frame, base: Atom, exponent: int) -> Atom:
    """Return ``base ** exponent`` by squaring."""
    if exponent == 0:
        return frame.builder.const(1, base.type)
    half = _product(frame, base, exponent // 2) if exponent > 1 else None
    if half is None:
        return base
    square = frame.builder.op("mul", half, half)
    return frame.builder.op("mul", square, base) if exponent % 2 else square


def _integer_power(frame: Frame, node: Located, x: Scalar, y: Scalar, typed: Typed) -> Scalar:
    exponent = None if y.constant is None else int(y.constant)
    if exponent is not None and exponent < 0:
        if typed.weak:
            return apply(frame, node, "pow", (frame.convert(x, Typed(_weak_float(frame), True)), y))
        raise frame.type_error(
            node, "an integer to a negative power is not an integer", "convert the base: float(...)"
        )
    (base,) = in_type(frame, node, (x,), typed)
    if exponent is None or exponent > _MAX_FACTORS:
        return apply(frame, node, "powi", (x, y))
    if typed.weak:
        return python_integer(frame, node, "powi", (x, y), _product(frame, base, exponent))
    return Scalar(_product(frame, base, exponent), typed.weak)


def _weak_float(frame: Frame) -> ScalarType:
    return frame.constant(0.0).atom.type


def stop_gradient(frame: Frame, x: Scalar) -> Scalar:
    """Return a number as a constant of derivatives: a float goes through its bits."""
    type_ = x.atom.type
    if not type_.is_float:
        return x
    wide = frame.builder.convert(x.atom, type_.arithmetic)
    bits = frame.builder.op("bitcast", wide, type=I64 if type_.bits == I64.bits else I32)
    same = frame.builder.op("bitcast", bits, type=wide.type)
    return Scalar(frame.builder.convert(same, type_), x.weak)
