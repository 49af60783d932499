"""How each instruction-level op and each libm op is spelled: one table, keyed by op and kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from mixad.emit.llvm.narrow import from_narrow, to_narrow
from mixad.emit.llvm.text import GANG, Dialect, Text, Value, literal, llvm_type
from mixad.scalar.ir import Const
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import BOOL, ScalarType, integer_bounds

__all__ = ["FORMATS", "INTRINSICS", "SPECIAL", "emit_op"]

_FLOAT = {
    "add": "fadd {T} {0}, {1}", "sub": "fsub {T} {0}, {1}", "mul": "fmul {T} {0}, {1}",
    "div": "fdiv {T} {0}, {1}", "neg": "fneg {T} {0}",
    "lt": "fcmp olt {T} {0}, {1}", "le": "fcmp ole {T} {0}, {1}", "gt": "fcmp ogt {T} {0}, {1}",
    "ge": "fcmp oge {T} {0}, {1}", "eq": "fcmp oeq {T} {0}, {1}", "ne": "fcmp une {T} {0}, {1}",
}  # fmt: skip
_INTEGER = {
    "add": "add {T} {0}, {1}", "sub": "sub {T} {0}, {1}", "mul": "mul {T} {0}, {1}",
    "neg": "sub {T} zeroinitializer, {0}",
}  # fmt: skip
_BITS = {
    "and": "and {T} {0}, {1}", "or": "or {T} {0}, {1}", "xor": "xor {T} {0}, {1}",
    "eq": "icmp eq {T} {0}, {1}", "ne": "icmp ne {T} {0}, {1}",
}  # fmt: skip


def _order_formats(sign: str) -> dict[str, str]:
    return {name: f"icmp {sign}{name} {{T}} {{0}}, {{1}}" for name in ("lt", "le", "gt", "ge")}


FORMATS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "float": _FLOAT,
        "int": {**_INTEGER, **_BITS, **_order_formats("s")},
        "uint": {**_INTEGER, **_BITS, **_order_formats("u")},
        "bool": _BITS,
    }
)
"""Kind of the arguments → op → instruction, with {T} their LLVM type and {0}, {1} their text."""

INTRINSICS: Mapping[str, str] = MappingProxyType({
    "abs": "fabs", "sqrt": "sqrt", "fma": "fma", "copysign": "copysign",
    "floor": "floor", "ceil": "ceil", "trunc": "trunc", "rint": "roundeven",
})  # fmt: skip
"""Float ops that LLVM has as intrinsics."""


def emit_op(
    text: Text, dialect: Dialect, name: str, args: tuple[Value, ...], type: ScalarType
) -> Value:
    """Add one op; its result has lanes if an argument has."""
    lanes = any(a.lanes for a in args)
    if lanes:
        args = tuple(map(text.splat, args))
    if name == "convert" and (args[0].type.is_narrow or type.is_narrow):
        return _through_memory(text, dialect, args[0], type)
    if BY_NAME[name].lowering == "libm":
        return _libm(text, dialect, name, args, type, lanes)
    kind = args[0].type.kind
    pattern = FORMATS[kind].get(name)
    if pattern is not None:
        zero_for = "0" if not lanes else "zeroinitializer"
        pattern = pattern.replace("zeroinitializer", zero_for)
        return text.value(pattern.format(*(a.text for a in args), T=args[0].llvm), type, lanes)
    if kind == "float" and name in INTRINSICS:
        return _intrinsic(text, INTRINSICS[name], args, type, lanes)
    return SPECIAL[name](text, args, type, lanes)


def _through_memory(text: Text, dialect: Dialect, x: Value, type: ScalarType) -> Value:
    """Convert between float32 and a 16-bit float where there is no instruction."""
    if x.type.is_narrow:
        return from_narrow(text, dialect, x)
    return to_narrow(text, dialect, x, type)


def _suffix(type: ScalarType, lanes: bool) -> str:
    letter = "f" if type.is_float else "i"
    return f"{f'v{GANG}' if lanes else ''}{letter}{type.bits}"


def _intrinsic(
    text: Text, name: str, args: tuple[Value, ...], type: ScalarType, lanes: bool
) -> Value:
    llvm = llvm_type(type, lanes)
    function = text.declare(
        f"llvm.{name}.{_suffix(type, lanes)}", f"{llvm} {{}}({', '.join([llvm] * len(args))})"
    )
    return text.value(f"call {llvm} {function}({', '.join(map(str, args))})", type, lanes)


def _const(text: Text, number: int, like: Value) -> Value:
    scalar = Value(str(number), like.type, False)
    return text.splat(scalar) if like.lanes else scalar


def _compare(text: Text, predicate: str, a: Value, b: Value) -> Value:
    return text.value(f"{predicate} {a}, {b.text}", BOOL, a.lanes)


def _abs(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    """Magnitude of an integer; the most negative one wraps to itself."""
    (x,) = args
    if type.kind == "uint":
        return x
    function = text.declare(f"llvm.abs.{_suffix(type, lanes)}", f"{x.llvm} {{}}({x.llvm}, i1)")
    return text.value(f"call {x.llvm} {function}({x}, i1 false)", type, lanes)


def _reciprocal(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    (x,) = args
    one = Value(literal(Const(1.0, type)), type, False)
    return text.value(f"fdiv {text.splat(one) if lanes else one}, {x.text}", type, lanes)


def _signbit(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    (x,) = args
    bits = ScalarType("int", x.type.bits)
    return _compare(
        text, "icmp slt", _bitcast(text, args, bits, lanes), _const(text, 0, Value("", bits, lanes))
    )


def _bitcast(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    return text.value(f"bitcast {args[0]} to {llvm_type(type, lanes)}", type, lanes)


def _emit_not(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    (x,) = args
    ones = "true" if type.is_bool else "-1"
    ones = f"splat ({llvm_type(type, False)} {ones})" if lanes else ones
    return text.value(f"xor {x}, {ones}", type, lanes)


def _where(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    return text.select(*args)


def _in_width(text: Text, count: Value) -> Value:
    """Whether a shift count is from 0 to the width less one."""
    return _compare(text, "icmp ult", count, _const(text, count.type.bits, count))


def _shl(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    x, count = args
    zero = _const(text, 0, count)
    fits = _in_width(text, count)
    shifted = text.value(f"shl {x}, {text.select(fits, count, zero).text}", type, lanes)
    return text.select(fits, shifted, zero)


def _shr(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    x, count = args
    zero, last = _const(text, 0, count), _const(text, type.bits - 1, count)
    fits = _in_width(text, count)
    kept = text.select(fits, count, last)
    if type.kind == "int":
        return text.value(f"ashr {x}, {kept.text}", type, lanes)
    return text.select(fits, text.value(f"lshr {x}, {kept.text}", type, lanes), zero)


def _emit_division(
    text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool
) -> tuple[Value, Value, Value]:
    """Return quotient and remainder rounded down, and whether the divisor is zero.

    The divisors 0 and -1 trap or overflow in hardware: both are replaced by 1, and the callers'
    ``_negated`` handles -1.
    """
    x, y = args
    zero, one = _const(text, 0, y), _const(text, 1, y)
    by_zero = _compare(text, "icmp eq", y, zero)
    divisor = text.select(by_zero, one, y)
    if type.kind == "uint":
        quotient = text.value(f"udiv {x}, {divisor.text}", type, lanes)
        return quotient, text.value(f"urem {x}, {divisor.text}", type, lanes), by_zero
    minus_one = _compare(text, "icmp eq", y, _const(text, -1, y))
    divisor = text.select(minus_one, one, divisor)
    quotient = text.value(f"sdiv {x}, {divisor.text}", type, lanes)
    remainder = text.value(f"srem {x}, {divisor.text}", type, lanes)
    signs = text.value(f"xor {remainder}, {divisor.text}", type, lanes)
    differ = _compare(text, "icmp slt", signs, zero)
    inexact = _compare(text, "icmp ne", remainder, zero)
    down = (
        text.both(differ, inexact)
        if lanes
        else text.value(f"and {differ}, {inexact.text}", BOOL, False)
    )
    lower = text.value(f"sub {quotient}, {one.text}", type, lanes)
    raised = text.value(f"add {remainder}, {divisor.text}", type, lanes)
    negated = text.value(f"sub {x.llvm} {zero.text}, {x.text}", type, lanes)
    quotient = text.select(minus_one, negated, text.select(down, lower, quotient))
    return quotient, text.select(down, raised, remainder), by_zero


def _floordiv(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    quotient, _, by_zero = _emit_division(text, args, type, lanes)
    return text.select(by_zero, _const(text, 0, args[0]), quotient)


def _mod(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    _, remainder, by_zero = _emit_division(text, args, type, lanes)
    return text.select(by_zero, _const(text, 0, args[0]), remainder)


def _convert(text: Text, args: tuple[Value, ...], type: ScalarType, lanes: bool) -> Value:
    (x,) = args
    if type.is_bool:
        zero = "zeroinitializer" if lanes else ("0.0" if x.type.is_float else "0")
        return text.value(
            f"{'fcmp une' if x.type.is_float else 'icmp ne'} {x}, {zero}", BOOL, lanes
        )
    if x.type.is_float and type.is_integer:
        return _emit_saturation(text, x, type)
    instruction = _conversion(x.type, type)
    if instruction is None:
        return Value(x.text, type, lanes)
    return text.value(f"{instruction} {x} to {llvm_type(type, lanes)}", type, lanes)


def _conversion(old: ScalarType, new: ScalarType) -> str | None:
    """Return the instruction between two types; None where the bits stay."""
    if new.is_float:
        if old.is_float:
            return "fpext" if new.bits > old.bits else "fptrunc"
        return "sitofp" if old.kind == "int" else "uitofp"
    if old.is_bool:
        return "zext"
    if new.bits == old.bits:
        return None
    if new.bits < old.bits:
        return "trunc"
    return "sext" if old.kind == "int" else "zext"


def _emit_saturation(text: Text, x: Value, type: ScalarType) -> Value:
    """Float to integer, clamped to the range; nan gives 0."""
    if x.lanes and type.bits == 64:
        return _saturated_lanes(text, x, type)
    name = "fptosi" if type.kind == "int" else "fptoui"
    llvm = llvm_type(type, x.lanes)
    full = f"llvm.{name}.sat.{_suffix(type, x.lanes)}.{_suffix(x.type, x.lanes)}"
    function = text.declare(full, f"{llvm} {{}}({x.llvm})")
    return text.value(f"call {llvm} {function}({x})", type, x.lanes)


def _saturated_lanes(text: Text, x: Value, type: ScalarType) -> Value:
    """Saturate to 64 bits by a plain conversion, of which LLVM makes a vector's.

    Of the intrinsic it makes scalar code. A value that does not fit is converted as 0 and replaced.
    """
    is_signed = type.kind == "int"
    low, high = integer_bounds(type)
    beyond, least = float(high + 1), float(low) if is_signed else -1.0

    def compare_with(predicate: str, limit: float) -> Value:
        other = text.splat(text.const(Const(limit, x.type)))
        return text.value(f"fcmp {predicate} {x}, {other.text}", BOOL, True)

    fits = text.both(
        compare_with("oge" if is_signed else "ogt", least), compare_with("olt", beyond)
    )
    taken = text.select(fits, x, text.const(Const(0.0, x.type)))
    llvm = llvm_type(type, True)
    found = text.value(f"fpto{'si' if is_signed else 'ui'} {taken} to {llvm}", type, True)
    found = text.select(compare_with("oge", beyond), text.const(Const(high, type)), found)
    if is_signed:
        found = text.select(compare_with("olt", least), text.const(Const(low, type)), found)
    return found


_Spelling: TypeAlias = Callable[[Text, tuple[Value, ...], ScalarType, bool], Value]

SPECIAL: Mapping[str, _Spelling] = MappingProxyType({
    "abs": _abs, "bounded_reciprocal": _reciprocal, "floordiv": _floordiv, "mod": _mod,
    "signbit": _signbit, "where": _where, "not": _emit_not, "shl": _shl, "shr": _shr,
    "convert": _convert, "bitcast": _bitcast,
})  # fmt: skip
"""Ops that take more than one instruction."""


# -- the maths library ---------------------------------------------------------------------------

_MANGLED = MappingProxyType({128: ("b", 16), 256: ("d", 32), 512: ("e", 64)})
"""Vector width → letter and bytes in the names of libmvec."""


def _libm(
    text: Text, dialect: Dialect, name: str, args: tuple[Value, ...], type: ScalarType, lanes: bool
) -> Value:
    """Call a function of libm: the vector one where there is one, whose last bits differ."""
    scalar = f"{BY_NAME[name].c}{'f' if type.bits == 32 else ''}"
    letter, width = _MANGLED[dialect.vector_bits]
    count = min(width // type.itemsize, GANG)
    vector = f"_ZGV{letter}N{count}{'v' * len(args)}_{scalar}"
    if vector in dialect.vector_functions:
        by = _by_parts if lanes else _in_one_part
        return by(text, vector, args, type, count)
    if not lanes:
        return _call(text, scalar, args, llvm_type(type, False), type, lanes=False)
    return _call(
        text,
        _lane_loop(text, scalar, len(args), type),
        args,
        llvm_type(type, True),
        type,
        lanes=True,
    )


def _call(
    text: Text, name: str, args: tuple[Value, ...], llvm: str, type: ScalarType, *, lanes: bool
) -> Value:
    _declare(text, name, len(args), llvm)
    return text.value(f"call {llvm} @{name}({', '.join(map(str, args))})", type, lanes)


def _declare(text: Text, name: str, count: int, llvm: str) -> None:
    """Declare a function of ``count`` arguments, all of its result's type."""
    if name not in text.declarations:
        arguments = ", ".join([llvm] * count)
        text.declare(name, f"{llvm} {{}}({arguments}) nounwind willreturn memory(none)")


def _in_one_part(
    text: Text, name: str, args: tuple[Value, ...], type: ScalarType, count: int
) -> Value:
    """Call a function of ``count`` lanes on a uniform value, for the bits that lanes have."""
    part = f"<{count} x {llvm_type(type, False)}>"
    _declare(text, name, len(args), part)
    given = []
    for arg in args:
        one = text.let(f"insertelement {part} poison, {arg}, i32 0")
        same = f"<{count} x i32> zeroinitializer"
        given.append(text.let(f"shufflevector {part} {one}, {part} poison, {same}"))
    called = text.let(f"call {part} @{name}({', '.join(f'{part} {v}' for v in given)})")
    return text.value(f"extractelement {part} {called}, i32 0", type, False)


def _by_parts(
    text: Text, name: str, args: tuple[Value, ...], type: ScalarType, count: int
) -> Value:
    """Call a function of ``count`` lanes on each part of the gang and join the results."""
    element = llvm_type(type, False)
    part = f"<{count} x {element}>"
    if count == GANG:
        return _call(text, name, args, part, type, lanes=True)
    _declare(text, name, len(args), part)
    parts = []
    for start in range(0, GANG, count):
        indices = _shuffle(range(start, start + count))
        pieces = (text.let(f"shufflevector {a}, {a.llvm} poison, {indices}") for a in args)
        parts.append(text.let(f"call {part} @{name}({', '.join(f'{part} {p}' for p in pieces)})"))
    while len(parts) > 1:
        width = GANG // len(parts)
        joined = _shuffle(range(2 * width))
        half = f"<{width} x {element}>"
        parts = [
            text.let(f"shufflevector {half} {a}, {half} {b}, {joined}")
            for a, b in zip(parts[::2], parts[1::2], strict=True)
        ]
    return Value(parts[0], type, True)


def _shuffle(indices: range) -> str:
    return f"<{len(indices)} x i32> <{', '.join(f'i32 {i}' for i in indices)}>"


def _lane_loop(text: Text, scalar: str, arity: int, type: ScalarType) -> str:
    """Define, once, a function that calls a scalar function for every lane; return its name."""
    name = f"lanes.{scalar}"
    element, vector = llvm_type(type, False), llvm_type(type, True)
    text.declare(
        scalar, f"{element} {{}}({', '.join([element] * arity)}) nounwind willreturn memory(none)"
    )
    params = ", ".join(f"{vector} %a{k}" for k in range(arity))
    takes = "\n".join(f"  %e{k} = extractelement {vector} %a{k}, i64 %i" for k in range(arity))
    passed = ", ".join(f"{element} %e{k}" for k in range(arity))
    text.declarations[name] = f"""define internal {vector} @{name}({params}) noinline nounwind #0 {{
entry:
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %lane ]
  %done = phi {vector} [ zeroinitializer, %entry ], [ %more, %lane ]
{takes}
  %r = call {element} @{scalar}({passed})
  %more = insertelement {vector} %done, {element} %r, i64 %i
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, {GANG}
  br i1 %again, label %lane, label %exit
exit:
  ret {vector} %more
}}"""
    return name
