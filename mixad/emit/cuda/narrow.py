"""Floats of 16 bits: memory holds them as unsigned integers, threads compute in float32.

The conversions are arithmetic on bits, so that the text includes nothing and means the same to
every compiler (Giesen: "Float->half variants", 2012, round to nearest even).
"""

from __future__ import annotations

from mixad.scalar.types import ScalarType

__all__ = ["PRELUDE", "from_memory", "to_memory"]

PRELUDE = """
// 2^112 takes exponents from the one bias to the other, those of subnormal numbers too.
static __device__ __forceinline__ float from_half(unsigned short x) {
  const float moved = from_bits<float>((unsigned)(x & 0x7fff) << 13) * 0x1p112f;
  const unsigned beyond = moved >= 0x1p16f ? 0x7f800000u : 0u;
  const unsigned bits = from_bits<unsigned>(moved) | beyond | (unsigned)(x & 0x8000) << 16;
  return from_bits<float>(bits);
}
static __device__ __forceinline__ unsigned short to_half(float x) {
  const unsigned all = from_bits<unsigned>(x), sign = all & 0x80000000u, bits = all ^ sign;
  unsigned near;
  if (bits >= 0x47800000u) near = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
  else if (bits < 0x38800000u)  // subnormal: adding 1/2 leaves the bits at the end, rounded
    near = from_bits<unsigned>(from_bits<float>(bits) + 0.5f) - 0x3f000000u;
  else near = (bits + 0xc8000fffu + (bits >> 13 & 1u)) >> 13;
  return (unsigned short)(near | sign >> 16);
}
static __device__ __forceinline__ float from_bfloat(unsigned short x) {
  return from_bits<float>((unsigned)x << 16);
}
static __device__ __forceinline__ unsigned short to_bfloat(float x) {
  const unsigned bits = from_bits<unsigned>(x), halfway = 0x7fffu + (bits >> 16 & 1u);
  return (unsigned short)((x != x ? bits | 0x400000u : bits + halfway) >> 16);
}
"""
"""What the spellings call; it takes ``from_bits`` from `mixad.emit.cuda.instructions`."""


def from_memory(expression: str, type: ScalarType) -> str:
    """Return what memory holds as what is computed with."""
    return f"from_{_name(type)}({expression})" if type.is_narrow else expression


def to_memory(expression: str, type: ScalarType) -> str:
    """Return what was computed as memory holds it."""
    return f"to_{_name(type)}({expression})" if type.is_narrow else expression


def _name(type: ScalarType) -> str:
    return "bfloat" if type.brain else "half"
