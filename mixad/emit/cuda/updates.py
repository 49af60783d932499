"""Sums, minima and maxima at indices: each block changes a copy of the array in shared memory.

Threads have as many indices and values at a time, and several may have the same index.  They put
them down beside each other, and every thread goes through all of them, in order, and changes the
elements that are its own: those whose number it is, up to a multiple of the number of threads.  So
no element is changed by two threads, and the order is that of elements of the broadcast.

It takes a thread `threads` reads of shared memory, which all threads of a warp share.
"""

from __future__ import annotations

from mixad.emit.cuda.instructions import spelled
from mixad.emit.cuda.text import c_type, literal
from mixad.scalar.ir import Const, UpdateKind
from mixad.scalar.types import ScalarType
from mixad.scalar.updates import neutral

__all__ = ["MAX_ELEMENTS", "begin_copy", "change_function", "changed", "leave_copy", "start_of"]

MAX_ELEMENTS = 4096
"""Elements of 8 bytes that a block has in shared memory at most: 32 of the 48 KiB that every device
has for a block."""


def changed(update: UpdateKind, type: ScalarType, old: str, new: str) -> str:
    """Return what becomes of an element; nan where one is, and of equal numbers the first."""
    if update == "add":
        return spelled("add", [old, new], [type, type], type)
    beyond = f"{new} {'<' if update == 'min' else '>'} {old}"
    taken = f"{beyond} || {new} != {new}" if type.is_float else beyond
    return f"{taken} ? {new} : {old}"


def start_of(update: UpdateKind, type: ScalarType) -> str:
    """Return what an element begins as."""
    return literal(Const(neutral(update, type), type))


def change_function(update: UpdateKind, type: ScalarType, threads: int) -> str:
    """Return the function by which all threads of a block change elements of an array.

    Each has the number of an element, -1 for none, and a value.
    """
    t = c_type(type)
    return f"""
static __device__ void change_{update}({t} *elements, int at, {t} value) {{
  __shared__ __align__(16) int places[{threads}];
  __shared__ {t} values[{threads}];
  const int me = threadIdx.y * blockDim.x + threadIdx.x;
  places[me] = at;
  values[me] = value;
  if (!__syncthreads_or(at >= 0)) return;
  #pragma unroll 4
  for (int k = 0; k < {threads}; k++) {{
    const int place = places[k];
    if (place >= 0 && place % {threads} == me) {{
      const {t} old = elements[place], own = values[k];
      elements[place] = {changed(update, type, "old", "own")};
    }}
  }}
  __syncthreads();
}}
"""


def begin_copy(update: UpdateKind, type: ScalarType, copy: str, count: str, threads: int) -> str:
    """Return what lets a block's copy begin: each thread has elements of its own."""
    return _for_own(count, threads, f"{copy}[k] = {start_of(update, type)};")


def leave_copy(type: ScalarType, copy: str, count: str, address: str, threads: int) -> str:
    """Return what stores a block's copy at an address."""
    return _for_own(count, threads, f"(({c_type(type)} *)in_memory({address}))[k] = {copy}[k];")


def _for_own(count: str, threads: int, statement: str) -> str:
    first = "(int)(threadIdx.y * blockDim.x + threadIdx.x)"
    return f"for (int k = {first}; k < {count}; k += {threads}) {statement}"
