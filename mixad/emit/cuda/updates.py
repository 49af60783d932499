"""Sums, minima and maxima at indices, in an order that does not depend on when threads run.

*Copies.*  Where arrays are small, each block changes a copy in shared memory.  Threads have as many
indices and values at a time, and several may have the same index.  They put them down beside each
other, and every thread goes through all of them, in order, and changes the elements that are its
own: those whose number it is, up to a multiple of the number of threads.  So no element is changed
by two threads.  It takes a thread `threads` reads of shared memory, which a warp shares.

*Pairs.*  Where arrays are large, a kernel leaves pairs of element and value, in the order of the
broadcast: it is launched to count what each of the broadcast's elements changes, and again to store
that where it belongs.  They are sorted by element, stably, and a warp combines those of an element.
"""

from __future__ import annotations

from mixad.emit.cuda.instructions import PRELUDE, op_expression
from mixad.emit.cuda.text import c_type, literal
from mixad.scalar.ir import Const, UpdateKind
from mixad.scalar.types import ScalarType
from mixad.scalar.updates import neutral

__all__ = ["MAX_ELEMENTS", "PAIRS", "begin_copy", "change_function", "emit_segments", "leave_copy",
           "segment_blocks", "start_of", "to_bits", "update_expression"]  # fmt: skip

MAX_ELEMENTS = 4096
"""Elements of 8 bytes that a block has in shared memory at most: 32 of the 48 KiB that every device
has for a block."""


def update_expression(update: UpdateKind, type: ScalarType, old: str, new: str) -> str:
    """Return what becomes of an element; nan where one is, and of equal numbers the first."""
    if update == "add":
        return op_expression("add", [old, new], [type, type], type)
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
      elements[place] = {update_expression(update, type, "old", "own")};
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


# -- pairs -----------------------------------------------------------------------------------------

PAIRS = """
// What an element of the broadcast changes, from a place on; without an address it is counted only.
struct Pairs {
  long long at, *elements, *values;
  __device__ __forceinline__ void put(long long element, long long value) {
    if (elements) {
      elements[at] = element;
      values[at] = value;
    }
    at++;
  }
};
"""


def to_bits(type: ScalarType, value: str) -> str:
    """Return a value as 64 bits."""
    return f"from_bits<long long>({value})" if type.is_float else f"(long long){value}"


def emit_segments(update: UpdateKind, type: ScalarType, entry: str) -> str:
    """Return a kernel that combines the values of each element, by a warp.

    Its argument is six words: the address of the array; those of elements and values of pairs,
    sorted by element; how many pairs there are; the array's first element, and how many it has.
    Lanes take the values of an element by turns, then combine what they have by halves.
    """
    t = c_type(type)
    of_bits = "from_bits<double>({})" if type.is_float else f"({t}){{}}"
    return f"""{PRELUDE}
struct Arguments {{ long long word[6]; }};
// How many pairs are of elements before one.
static __device__ long long pairs_before(const long long *elements, long long all, long long one) {{
  long long low = 0, high = all;
  while (low < high) {{
    const long long middle = low + (high - low) / 2;
    if (elements[middle] < one) low = middle + 1;
    else high = middle;
  }}
  return low;
}}
extern "C" __global__ void __launch_bounds__({_WARP * _WARPS}) {entry}(const Arguments a) {{
  {t} *array = ({t} *)in_memory(a.word[0]);
  const long long *elements = (const long long *)in_memory(a.word[1]);
  const long long *values = (const long long *)in_memory(a.word[2]);
  const long long count = a.word[3], first = a.word[4], size = a.word[5];
  const unsigned warp = threadIdx.x / {_WARP}, lane = threadIdx.x % {_WARP};
  const long long apart = gridDim.x * {_WARPS}ll;
  for (long long k = blockIdx.x * {_WARPS}ll + warp; k < size; k += apart) {{
    const long long from = pairs_before(elements, count, first + k);
    const long long to = from + pairs_before(elements + from, count - from, first + k + 1);
    {t} total = {start_of(update, type)};
    #pragma unroll 4
    for (long long at = from + lane; at < to; at += {_WARP}) {{
      const {t} own = {of_bits.format("values[at]")};
      total = {update_expression(update, type, "total", "own")};
    }}
    for (unsigned half = to - from > 1 ? {_WARP // 2} : 0; half > 0; half /= 2) {{
      const {t} other = __shfl_xor_sync(0xffffffffu, total, half);
      total = {update_expression(update, type, "total", "other")};
    }}
    if (lane == 0) array[k] = total;
  }}
}}
"""


_WARP, _WARPS = 32, 8
"""Threads of a warp; warps of a block that combines values."""


def segment_blocks(size: int) -> tuple[int, int]:
    """Return how many blocks combine the values of an array's elements, and their threads."""
    return -(-size // _WARPS), _WARP * _WARPS
