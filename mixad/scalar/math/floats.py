"""What the programs of this package share: a float type's layout, and ops spelled as functions.

Programs are written once for both float types; `format_of` gives what differs between them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from mixad.scalar.expression import Operand, Term, call
from mixad.scalar.math import coefficients
from mixad.scalar.types import F32, F64, U32, U64, ScalarType

__all__ = ["Format", "Pair", "at_least", "at_most", "copysign", "fast_sum", "fma", "format_of",
           "if_else", "pair_product", "polynomial", "rint", "where", "while_"]  # fmt: skip


Pair: TypeAlias = tuple[Term, Term]
"""An unevaluated sum of a float and its small remainder."""


@dataclass(frozen=True)
class Format:
    """Layout of a float type (IEEE 754-2019, §3.4), and its coefficient tables.

    ``fraction`` is the number of stored bits of the significand, ``bias`` what is added to the
    exponent in the bit pattern.
    """

    type: ScalarType
    unsigned: ScalarType  # unsigned integers of its width
    fraction: int  # stored bits of the significand
    bias: int  # added to the exponent in the bit pattern
    tables: Mapping[str, tuple[float, ...]]  # `mixad.scalar.math.coefficients` for this type

    @cached_property
    def shifter(self) -> float:
        """1.5·2^fraction: adding it rounds to a whole number, left in the low bits of the sum."""
        return 1.5 * 2.0**self.fraction

    @cached_property
    def smallest_normal(self) -> float:
        """The smallest positive number with full precision."""
        return 2.0 ** (1 - self.bias)

    @cached_property
    def sign_bit(self) -> int:
        """The bit pattern of -0.0."""
        return 1 << (self.type.bits - 1)

    @cached_property
    def fraction_mask(self) -> int:
        """The bits of the significand."""
        return (1 << self.fraction) - 1

    def pattern(self, value: float) -> int:
        """Return the bits of a number as an integer."""
        code, whole = ("<f", "<I") if self.type == F32 else ("<d", "<Q")
        return int(struct.unpack(whole, struct.pack(code, value))[0])

    def bits(self, x: Term) -> Term:
        """Return the bits of a value of this type."""
        return x.bitcast(self.unsigned)

    def value(self, bits: Term) -> Term:
        """Return the value that has these bits."""
        return bits.bitcast(self.type)


_FORMATS = {
    F32: Format(F32, U32, 23, 127, coefficients.F32),
    F64: Format(F64, U64, 52, 1023, coefficients.F64),
}


def format_of(x: Term) -> Format:
    """Return the layout of a term's type."""
    return _FORMATS[x.type]


def fma(x: Operand, y: Operand, z: Operand) -> Term:
    """Return x·y + z, rounded once."""
    return call("fma", x, y, z)


def where(cond: Term, x: Operand, y: Operand, type: ScalarType | None = None) -> Term:
    """Return x where ``cond`` holds, else y; ``type`` is theirs if both are numbers."""
    return call("where", cond, x, y, type=type)


def copysign(x: Operand, y: Term) -> Term:
    """Return x with the sign of y."""
    return call("copysign", x, y)


def rint(x: Term) -> Term:
    """Return the nearest whole number."""
    return call("rint", x)


def at_least(x: Term, bound: float) -> Term:
    """Return x or, if it is smaller, the bound; nan stays nan."""
    return where(x < bound, bound, x)


def at_most(x: Term, bound: float) -> Term:
    """Return x or, if it is larger, the bound; nan stays nan."""
    return where(x > bound, bound, x)


def fast_sum(x: Term, y: Term) -> Pair:
    """Return x + y as a pair, exactly, for |x| >= |y| or x = 0 (Dekker, Numer. Math. 18, 1971)."""
    total = x + y
    return total, (x - total) + y


def pair_product(x: Pair, y: Pair) -> Pair:
    """Return the product of two pairs but for the product of their low parts."""
    high = x[0] * y[0]
    return high, fma(x[0], y[1], fma(x[1], y[0], fma(x[0], y[0], -high)))


def polynomial(x: Term, coefficients: Sequence[float]) -> Term:
    """Return Σ cᵢ xⁱ by Horner's rule in fma: the fewest operations; lanes hide its latency."""
    *rest, last = coefficients
    total: Operand = last
    for c in reversed(rest):
        total = fma(total, x, c)
    return total if isinstance(total, Term) else x.const(total)


def if_else(
    cond: Term, then: Callable[[], Sequence[Term]], orelse: Callable[[], Sequence[Term]]
) -> tuple[Term, ...]:
    """Return the results of one of two blocks; the other is skipped where no lane needs it."""
    b = cond.builder
    results = b.if_(cond.atom, lambda: [t.atom for t in then()], lambda: [t.atom for t in orelse()])
    return tuple(Term(b, atom) for atom in results)


def while_(
    inits: Sequence[Term],
    cond: Callable[..., Term],
    body: Callable[..., Sequence[Term]],
) -> tuple[Term, ...]:
    """Return the carries of a loop after its last iteration."""
    b = inits[0].builder
    results = b.while_(
        [t.atom for t in inits],
        lambda *carries: cond(*(Term(b, c) for c in carries)).atom,
        lambda *carries: [t.atom for t in body(*(Term(b, c) for c in carries))],
    )
    return tuple(Term(b, atom) for atom in results)
