"""Several results of an element side by side in memory: the blocks of a Jacobian.

A thread has the results of an element, which are neighbours in memory.  Were it to store one after
another, the threads of a warp would write far apart at a time, each into a sector of its own.  So
the warp puts them down in shared memory, and stores them in the order of addresses.  Long spans of
neighbours are cut, so that this takes a bounded part of shared memory however many results there
are; the cache puts sectors at the cuts together before it writes them back.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, pairwise
from typing import NamedTuple

from mixad.kernel.spec import KernelSpec, Output

__all__ = ["STORE_APART", "Span", "is_stored_at_once", "spans_of", "store_together"]

_MAX_BYTES = 128
"""So many bytes of a thread are stored at a time, at most."""

_WARP = 32


class Span(NamedTuple):
    """Neighbours in memory among the results of an element."""

    first: int  # its place in the element
    results: tuple[int, ...]  # which outputs of the pass they are


def is_stored_at_once(output: Output, number: int, vector: int) -> bool:
    """Whether a pass stores the results of all elements of a thread at a time, as one span."""
    size = vector * len(output.sources) * output.type.itemsize
    return size <= _MAX_BYTES and all(at == number for at, _ in output.sources)


def spans_of(output: Output, number: int) -> list[Span]:
    """Return what a pass stores of an element, in spans that are stored at a time."""
    own = {place: result for place, (at, result) in enumerate(output.sources) if at == number}
    most, spans = _MAX_BYTES // output.type.itemsize, []
    for begin in (place for place in own if place - 1 not in own):
        end = next(place for place in count(begin) if place not in own)
        pieces = -(-(end - begin) // most)
        cuts = [begin + (end - begin) * k // pieces for k in range(pieces + 1)]
        spans += [Span(a, tuple(own[p] for p in range(a, b))) for a, b in pairwise(cuts)]
    return spans


STORE_APART = """
// Stores values that a thread has for an address.
template <class T, int count> static __device__ __forceinline__
void store_together(const T (&own)[count], long long address, unsigned mask) {
  #pragma unroll
  for (int k = 0; k < count; k++) *(T *)in_memory(address + k * (int)sizeof(T)) = own[k];
}
"""
"""The function ``store_together`` where the warp has no shared memory for it."""


def store_together(spec: KernelSpec, vector: int, threads: int) -> str:
    """Return the function ``store_together`` for blocks of some threads.

    The threads of a mask, all of one warp, call it with as many values each.
    """
    most = max(
        -(-(values | 1) * output.type.itemsize // 8) * 8
        for output in spec.outputs
        if output.beside
        for values in _stored_at_a_time(output, vector)
    )
    bytes_ = _WARP * (8 + most)  # of a warp: addresses, then values
    return f"""
// Stores values that threads of a warp, those of a mask, have for an address each: neighbours in
// memory by neighbouring threads.  The first ones of threads are odd numbers of values apart in
// shared memory, so that they are in different banks.
__shared__ __align__(8) char of_warps_together[{threads // _WARP * bytes_}];
template <class T, int count> static __device__ __forceinline__
void store_together(const T (&own)[count], long long address, unsigned mask) {{
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int all = __popc(mask), mine = __popc(mask & ((1u << thread % {_WARP}) - 1));
  long long *const starts = (long long *)(of_warps_together + thread / {_WARP} * {bytes_});
  T *const values = (T *)(starts + {_WARP});
  starts[mine] = address - mine * count * (int)sizeof(T);
  #pragma unroll
  for (int k = 0; k < count; k++) values[mine * (count | 1) + k] = own[k];
  __syncwarp(mask);
  #pragma unroll 8
  for (int i = 0; i < count; i++) {{
    const int k = i * all + mine, owner = k / count;
    const T value = values[k + owner * ((count | 1) - count)];
    *(T *)in_memory(starts[owner] + k * (int)sizeof(T)) = value;
  }}
  __syncwarp(mask);
}}
"""


def _stored_at_a_time(output: Output, vector: int) -> Iterator[int]:
    """Yield how many values of a thread are stored at a time."""
    for number in {at for at, _ in output.sources}:
        if is_stored_at_once(output, number, vector):
            yield vector * len(output.sources)
        else:
            yield from (len(span.results) for span in spans_of(output, number))
