"""Floats of 16 bits: from the bits in memory to float32 and back.

No target is left to LLVM: where it has no instruction it calls functions that kernels may not
call, and AVX-512's for bfloat16 flushes subnormal numbers.  Registers hold the bits as i16.  Both
ways nan stays nan: quiet, with its sign and the upper bits of its payload.
"""

from __future__ import annotations

from mixad.emit.llvm.text import GANG, Dialect, Text, Value
from mixad.scalar.types import BF16, BOOL, F16, F32, U32, ScalarType

__all__ = ["from_narrow", "to_narrow"]


def from_narrow(text: Text, dialect: Dialect, x: Value) -> Value:
    """Emit a 16-bit float as float32, which holds all of them."""
    if x.type == BF16:
        return _Bits(text, x.lanes).from_bfloat16(x)
    if dialect.has_half:
        half = text.let(f"bitcast {x} to {_half(x.lanes)}")
        return text.value(f"fpext {_half(x.lanes)} {half} to {_F32[x.lanes]}", F32, x.lanes)
    return _Bits(text, x.lanes).from_float16(x)


def to_narrow(text: Text, dialect: Dialect, x: Value, type: ScalarType) -> Value:
    """Emit float32 rounded to a 16-bit float: to nearest, halves to even."""
    if type == BF16:
        return _Bits(text, x.lanes).to_bfloat16(x)
    if dialect.has_half:
        half = text.let(f"fptrunc {x} to {_half(x.lanes)}")
        return text.value(f"bitcast {_half(x.lanes)} {half} to {_I16[x.lanes]}", F16, x.lanes)
    return _Bits(text, x.lanes).to_float16(x)


_F32 = ("float", f"<{GANG} x float>")
_I16 = ("i16", f"<{GANG} x i16>")
_I32 = ("i32", f"<{GANG} x i32>")


def _half(lanes: bool) -> str:
    return f"<{GANG} x half>" if lanes else "half"


class _Bits:
    """Arithmetic on the bits of a float or of a gang of them."""

    def __init__(self, text: Text, lanes: bool) -> None:
        self.text = text
        self.lanes = lanes

    def from_bfloat16(self, x: Value) -> Value:
        """Put zeros below; a nan becomes quiet as by any other conversion."""
        bits = self.op("shl", self.widen(x), 16)
        is_nan = self.compare("ugt", self.op("and", bits, _MAGNITUDE), _INF)
        return self.as_float(self.select(is_nan, self.op("or", bits, _QUIET), bits))

    def to_bfloat16(self, x: Value) -> Value:
        """Add half of a last place, less a bit where the last place is even; cut off the rest."""
        bits = self.as_bits(x)
        is_nan = self.compare("ugt", self.op("and", bits, _MAGNITUDE), _INF)
        odd = self.op("and", self.op("lshr", bits, 16), 1)
        near = self.plus(self.op("add", bits, 0x7FFF), odd)
        return self.cut(self.op("lshr", self.select(is_nan, self.op("or", bits, _QUIET), near), 16),
                        BF16)  # fmt: skip

    def from_float16(self, x: Value) -> Value:
        """Move the fields into place; a product with 2^112 corrects the bias, of subnormals too."""
        bits = self.widen(x)
        sign = self.op("shl", self.op("and", bits, 0x8000), 16)
        moved = self.op("shl", self.op("and", bits, 0x7FFF), 13)
        scaled = self.as_bits(self.float("fmul", self.as_float(moved), _TWO_TO_112))
        is_special = self.compare("uge", moved, 0x7C00 << 13)
        is_nan = self.compare("ugt", moved, 0x7C00 << 13)
        special = self.op("or", moved, _INF)
        special = self.select(is_nan, self.op("or", special, _QUIET), special)
        return self.as_float(self.both("or", self.select(is_special, special, scaled), sign))

    def to_float16(self, x: Value) -> Value:
        """Round in three ranges: normal, subnormal and beyond.

        Giesen, "half to float done quic", 2012.
        """
        bits = self.as_bits(x)
        size = self.op("and", bits, _MAGNITUDE)
        odd = self.op("and", self.op("lshr", size, 13), 1)
        # The exponent's bias from 127 to 15, half of a last place less a bit, the bit if it is odd.
        normal = self.op("lshr", self.plus(self.op("add", size, 0xC8000FFF - (1 << 32)), odd), 13)
        # Beside 1/2 a float32 has its last place where the smallest subnormal number is.
        beside = self.as_bits(self.float("fadd", self.as_float(size), 0.5))
        small = self.op("sub", beside, 0x3F000000)
        payload = self.op("or", self.op("and", self.op("lshr", size, 13), 0x3FF), 0x7E00)
        beyond = self.select(self.compare("ugt", size, _INF), payload, self.number(0x7C00))
        found = self.select(self.compare("ult", size, 0x38800000), small, normal)
        found = self.select(self.compare("uge", size, 0x47800000), beyond, found)
        sign = self.op("and", self.op("lshr", bits, 16), 0x8000)
        return self.cut(self.both("or", found, sign), F16)

    # -- words -------------------------------------------------------------------------------------

    def number(self, value: int) -> Value:
        scalar = Value(str(value), U32, False)
        return self.text.splat(scalar) if self.lanes else scalar

    def op(self, instruction: str, a: Value, b: int) -> Value:
        return self.both(instruction, a, self.number(b))

    def both(self, instruction: str, a: Value, b: Value) -> Value:
        return self.text.value(f"{instruction} {a}, {b.text}", U32, self.lanes)

    def plus(self, a: Value, b: Value) -> Value:
        return self.both("add", a, b)

    def compare(self, predicate: str, a: Value, b: int) -> Value:
        return self.text.value(f"icmp {predicate} {a}, {self.number(b).text}", BOOL, self.lanes)

    def select(self, cond: Value, yes: Value, no: Value) -> Value:
        return self.text.select(cond, yes, no)

    def float(self, instruction: str, a: Value, b: float) -> Value:
        number = f"splat (float {b:.1f})" if self.lanes else f"{b:.1f}"
        return self.text.value(f"{instruction} {a}, {number}", F32, self.lanes)

    def widen(self, x: Value) -> Value:
        return self.text.value(f"zext {x} to {_I32[self.lanes]}", U32, self.lanes)

    def cut(self, x: Value, type: ScalarType) -> Value:
        return self.text.value(f"trunc {x} to {_I16[self.lanes]}", type, self.lanes)

    def as_bits(self, x: Value) -> Value:
        return self.text.value(f"bitcast {x} to {_I32[self.lanes]}", U32, self.lanes)

    def as_float(self, x: Value) -> Value:
        return self.text.value(f"bitcast {x} to {_F32[self.lanes]}", F32, self.lanes)


_MAGNITUDE = 0x7FFFFFFF
_INF = 0x7F800000
_QUIET = 0x00400000
_TWO_TO_112 = 2.0**112
