"""Sums over the threads of a block, in an order that only the block's shape decides.

A block has ``blockDim.x`` threads along a row, a power of two, and ``blockDim.y`` along rows.  All
of them call these functions, with 0 where they have nothing to add.
"""

from __future__ import annotations

from mixad.emit.cuda.instructions import IN_MEMORY
from mixad.emit.cuda.text import c_type
from mixad.kernel.tiling import BLOCK
from mixad.scalar.types import ScalarType

__all__ = ["THREADS", "accumulator", "block_sums", "emit_axis_sum"]

THREADS = 256
"""Threads of a block, at most."""

_WARP = 32


def accumulator(type: ScalarType) -> ScalarType:
    """Return the type in which values of a type are summed: the one that they are computed in.

    Runs are short (a tile's share of one thread, then trees), and float64 is slow on most devices.
    """
    return type.arithmetic


def block_sums(type: ScalarType, threads: int) -> str:
    """Return the functions ``sum_along_row`` and ``sum_along_rows`` for blocks of some threads.

    The first gives every thread the sum over its row, in a tree of exchanges within a warp and
    then warp by warp; the second gives the threads of the first row the sums of their columns.
    """
    t = c_type(type)
    return f"""
static __device__ {t} sum_along_row({t} value) {{
  __shared__ {t} of_warps[{threads // _WARP}];
  const unsigned width = blockDim.x < {_WARP} ? blockDim.x : {_WARP};
  for (unsigned apart = width / 2; apart > 0; apart /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, apart);
  if (blockDim.x <= {_WARP}) return value;
  const unsigned warps = blockDim.x / {_WARP};
  const unsigned mine = threadIdx.y * warps + threadIdx.x / {_WARP};
  if (threadIdx.x % {_WARP} == 0) of_warps[mine] = value;
  __syncthreads();
  {t} total = of_warps[threadIdx.y * warps];
  for (unsigned k = 1; k < warps; k++) total += of_warps[threadIdx.y * warps + k];
  __syncthreads();
  return total;
}}
static __device__ {t} sum_along_rows({t} value) {{
  __shared__ {t} of_threads[{threads}];
  if (blockDim.y == 1) return value;
  const unsigned mine = threadIdx.y * blockDim.x + threadIdx.x;
  of_threads[mine] = value;
  __syncthreads();
  for (unsigned apart = blockDim.y / 2; apart > 0; apart /= 2) {{
    if (threadIdx.y < apart) of_threads[mine] += of_threads[mine + apart * blockDim.x];
    __syncthreads();
  }}
  value = of_threads[mine];
  __syncthreads();
  return value;
}}
"""


def emit_axis_sum(type: ScalarType, entry: str) -> str:
    """Return a kernel that sums contiguous values of shape (outer, count, inner) over the middle.

    Parameters
    ----------
    type : ScalarType
        Of the values and of the sums.
    entry : str
        Its symbol.  Its argument is five words: addresses of sums and values, then the extents.
        Each block takes ``blockDim.x`` neighbours along ``inner`` of one ``outer`` at a time.
    """
    t = c_type(type)
    return f"""{IN_MEMORY}{block_sums(type, THREADS)}
struct Arguments {{ long long word[5]; }};
extern "C" __global__ void __launch_bounds__({THREADS}) {entry}(const Arguments a) {{
  {t} *sums = ({t} *)in_memory(a.word[0]);
  const {t} *values = (const {t} *)in_memory(a.word[1]);
  const long long outer = a.word[2], count = a.word[3], inner = a.word[4];
  const long long groups = (inner + blockDim.x - 1) / blockDim.x;
  for (long long group = blockIdx.x; group < outer * groups; group += gridDim.x) {{
    const long long at = group / groups, column = group % groups * blockDim.x + threadIdx.x;
    {t} total = 0;
    if (column < inner)
      for (long long k = threadIdx.y; k < count; k += blockDim.y)
        total += values[(at * count + k) * inner + column];
    total = sum_along_rows(total);
    if (column < inner && threadIdx.y == 0) sums[at * inner + column] = total;
  }}
}}
"""


assert BLOCK % THREADS == 0
