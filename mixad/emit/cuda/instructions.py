"""How CUDA C++ spells each instruction-level op and each libm op: one table, keyed by op and kind.

Compiled with ``--fmad=false`` and without fast maths, each is the IEEE operation that the
interpreter carries out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from mixad.emit.cuda import narrow
from mixad.emit.cuda.text import c_type
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ScalarType

__all__ = ["FORMATS", "IN_MEMORY", "PRELUDE", "SPECIAL", "native", "op_expression"]

IN_MEMORY = """
// In the device's memory, not in shared or local memory: said, so that loads need not find it out.
static __device__ __forceinline__ void *in_memory(long long address) {
  return __cvta_global_to_generic((size_t)address);
}
"""
"""What an address points to."""

PRELUDE = """
template <class To, class From> static __device__ __forceinline__ To from_bits(From x) {
  static_assert(sizeof(To) == sizeof(From), "as many bits");
  union { From from; To to; } both;
  both.from = x;
  return both.to;
}

// Towards zero, to the nearest end where that is outside; nan gives 0.
template <class To, class From>
static __device__ __forceinline__ To saturated(From x, From low, From beyond, To least, To most) {
  return x != x ? (To)0 : x < low ? least : x >= beyond ? most : (To)x;
}

// 1 / x for x from 1 to 2: what CUDA makes of a division, without its branch for special values.
static __device__ __forceinline__ float bounded_reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float near;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(near) : "f"(x));
  return fmaf(near, fmaf(-x, near, 1.0f), near);
#else
  return 1.0f / x;
#endif
}
static __device__ __forceinline__ double bounded_reciprocal(double x) { return 1.0 / x; }

// Quotient and remainder rounded down; divisors 0 give 0, and -1 does not overflow.
template <class T, class U> static __device__ __forceinline__ T floor_divided(T x, T y) {
  if (y == 0) return 0;
  if (y == (T)-1 && (T)-1 < (T)0) return (T)((U)0 - (U)x);
  const T quotient = x / y, remainder = x % y;
  return quotient - (remainder != 0 && (remainder < 0) != (y < 0));
}
template <class T> static __device__ __forceinline__ T floor_modulo(T x, T y) {
  if (y == 0 || (y == (T)-1 && (T)-1 < (T)0)) return 0;
  const T remainder = x % y;
  return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
}
"""
PRELUDE += IN_MEMORY + narrow.PRELUDE
"""What the spellings call."""

_FLOAT = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "bounded_reciprocal": "bounded_reciprocal({0})",
    "abs": "fabs{f}({0})", "sqrt": "sqrt{f}({0})", "fma": "fma{f}({0}, {1}, {2})",
    "copysign": "copysign{f}({0}, {1})", "floor": "floor{f}({0})", "ceil": "ceil{f}({0})",
    "trunc": "trunc{f}({0})", "rint": "rint{f}({0})", "signbit": "from_bits<{I}>({0}) < 0",
}  # fmt: skip
# In unsigned arithmetic, which wraps; {U} has 32 bits at least, so that nothing is promoted to int.
_INTEGER = {
    "add": "({T})(({U}){0} + ({U}){1})", "sub": "({T})(({U}){0} - ({U}){1})",
    "mul": "({T})(({U}){0} * ({U}){1})", "neg": "({T})(({U})0 - ({U}){0})",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "floordiv": "floor_divided<{T}, {U}>({0}, {1})", "mod": "floor_modulo<{T}>({0}, {1})",
    "abs": "({T})({0} < ({T})0 ? ({U})0 - ({U}){0} : ({U}){0})", "not": "({T})~{0}",
    "shl": "({N}){1} < {bits} ? ({T})(({U}){0} << {1}) : ({T})0",
}  # fmt: skip
_BITS = {
    "and": "({T})({0} & {1})", "or": "({T})({0} | {1})", "xor": "({T})({0} ^ {1})",
    "eq": "{0} == {1}", "ne": "{0} != {1}",
}  # fmt: skip

FORMATS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "float": _FLOAT,
        "int": {**_INTEGER, **_BITS, "shr": "({T})({0} >> (({N}){1} < {bits} ? {1} : {bits} - 1))"},
        "uint": {**_INTEGER, **_BITS, "shr": "({N}){1} < {bits} ? ({T})({0} >> {1}) : ({T})0"},
        "bool": {**_BITS, "not": "!{0}"},
    }
)
"""Kind of the arguments → op → expression.

{0}, {1}, {2} are the arguments, {T} the type of the first, {U} its unsigned type of 32 bits or
more, {N} its unsigned type, {I} the integer of its width, {f} what ends names of float functions.
"""


def native(op: str, type: ScalarType) -> bool:
    """Whether CUDA's own function is taken where the core has a program.

    In float32, sine and cosine of any argument are within 2 ulp there too (CUDA C++ Programming
    Guide, mathematical functions), and need float64, which is slow on most devices, only beyond
    10⁵.
    """
    return op in ("sin", "cos") and type.bits == 32


def op_expression(
    name: str, args: Sequence[str], types: Sequence[ScalarType], type: ScalarType
) -> str:
    """Return the expression of an op that is `native`, or no ``"program"`` for these types."""
    if name in SPECIAL:
        return SPECIAL[name](args, types[0], type)
    first = types[0]
    f = "f" if first.bits == 32 else ""
    if name not in FORMATS[first.kind]:
        return f"{BY_NAME[name].c}{f}({', '.join(args)})"
    return FORMATS[first.kind][name].format(
        *args,
        T=c_type(first),
        U=c_type(ScalarType("uint", max(first.bits, 32))),
        N=c_type(ScalarType("uint", first.bits)),
        I=c_type(ScalarType("int", first.bits)),
        bits=first.bits,
        f=f,
    )


def _where(args: Sequence[str], old: ScalarType, new: ScalarType) -> str:
    cond, yes, no = args
    return f"{cond} ? {yes} : {no}"


def _bitcast(args: Sequence[str], old: ScalarType, new: ScalarType) -> str:
    return f"from_bits<{c_type(new)}>({args[0]})"


def _convert(args: Sequence[str], old: ScalarType, new: ScalarType) -> str:
    (x,) = args
    if old.is_narrow or new.is_narrow:  # float32 at the other end: see mixad.scalar.widen
        return narrow.from_memory(x, old) if old.is_narrow else narrow.to_memory(x, new)
    if new.is_bool:
        return f"{x} != 0"
    if old.is_float and new.is_integer:
        return _saturate(x, old, new)
    return f"({c_type(new)}){x}"


def _saturate(x: str, old: ScalarType, new: ScalarType) -> str:
    """Float to integer; both ends of the range are powers of two or zero, so floats have them."""
    signed = new.kind == "int"
    high = 1 << (new.bits - signed)
    low = -high if signed else 0
    ends = [float(low).hex(), float(high).hex()]
    if old.bits == 32:
        ends = [f"{end}f" for end in ends]
    suffix = "ll" if signed else "ull"
    least = f"({low + 1}{suffix} - 1)" if signed else f"0{suffix}"
    to = c_type(new)
    return (
        f"saturated<{to}, {c_type(old)}>"
        f"({x}, {ends[0]}, {ends[1]}, ({to}){least}, ({to}){high - 1}{suffix})"
    )


SPECIAL: Mapping[str, Callable[[Sequence[str], ScalarType, ScalarType], str]] = MappingProxyType(
    {"where": _where, "bitcast": _bitcast, "convert": _convert}
)
"""Ops whose spelling depends on more than the type of the first argument."""
