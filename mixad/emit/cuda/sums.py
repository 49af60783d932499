"""Sums over the threads of a block, in an order that only the block's shape decides.

A block has ``blockDim.x`` threads along a row, a power of two, and ``blockDim.y`` along rows.  All
of them call these functions, with 0 where they have nothing to add.
"""

from __future__ import annotations

from dataclasses import dataclass

from mixad.emit.cuda.instructions import PRELUDE
from mixad.emit.cuda.text import c_type
from mixad.emit.cuda.updates import start_of, update_expression
from mixad.kernel.tiling import BLOCK
from mixad.scalar.ir import UpdateKind
from mixad.scalar.types import ScalarType

__all__ = [
    "FEW",
    "PER_THREAD",
    "THREADS",
    "WARP",
    "AxisSum",
    "accumulator",
    "axis_sum",
    "block_sums",
    "emit_axis_sum",
]

THREADS = 256
"""Threads of a block, at most."""

WARP = 32


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
  __shared__ {t} of_warps[{threads // WARP}];
  const unsigned width = blockDim.x < {WARP} ? blockDim.x : {WARP};
  for (unsigned apart = width / 2; apart > 0; apart /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, apart);
  if (blockDim.x <= {WARP}) return value;
  const unsigned warps = blockDim.x / {WARP};
  const unsigned mine = threadIdx.y * warps + threadIdx.x / {WARP};
  if (threadIdx.x % {WARP} == 0) of_warps[mine] = value;
  __syncthreads();
  {t} total = of_warps[threadIdx.y * warps];
  for (unsigned k = 1; k < warps; k++) total += of_warps[threadIdx.y * warps + k];
  __syncthreads();
  return total;
}}
{_along_rows(type, threads, "add")}"""


def _along_rows(type: ScalarType, threads: int, update: UpdateKind) -> str:
    """Return ``sum_along_rows``, or the same for minima or maxima."""
    t = c_type(type)
    return f"""
static __device__ {t} sum_along_rows({t} value) {{
  __shared__ {t} of_threads[{threads}];
  if (blockDim.y == 1) return value;
  const unsigned mine = threadIdx.y * blockDim.x + threadIdx.x;
  of_threads[mine] = value;
  __syncthreads();
  for (unsigned apart = blockDim.y / 2; apart > 0; apart /= 2) {{
    if (threadIdx.y < apart) {{
      const {t} other = of_threads[mine + apart * blockDim.x];
      of_threads[mine] = value = {update_expression(update, type, "value", "other")};
    }}
    __syncthreads();
  }}
  value = of_threads[mine];
  __syncthreads();
  return value;
}}
"""


@dataclass(frozen=True)
class AxisSum:
    """How values of shape (outer, count, inner) are summed over the middle axis, in runs."""

    # Of a block: along the sums, outer times inner, and along the values of each.
    threads: tuple[int, int]
    run: int  # values of a sum that one block adds up
    runs: int  # of a sum, which are left if there are several
    blocks: int  # of the launch


_UNROLLED, PER_THREAD = 8, 32
"""Values that a thread loads before it adds the first; those it adds up, as a rule."""


def axis_sum(outer: int, count: int, inner: int) -> AxisSum:
    """Return how values are summed: by their numbers alone, so that the bits are the same again.

    Neighbouring threads read neighbouring values: sums where there are several side by side, else
    values of one.
    """
    if inner > 1:
        along = THREADS // min(WARP, _power_of_two(inner))
    else:
        along = min(THREADS, _power_of_two(-(-count // FEW)))
    across = THREADS // along
    run = along * PER_THREAD
    runs = -(-count // run)
    return AxisSum((across, along), run, runs, -(-outer * inner // across) * runs)


FEW = 4
"""Values of a sum that a thread adds up before others help it."""


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def emit_axis_sum(update: UpdateKind, type: ScalarType, entry: str) -> str:
    """Return a kernel that sums contiguous values of shape (outer, count, inner) over the middle.

    Or takes minima or maxima.  Its argument is seven words: addresses of sums and values, the
    extents, ``run`` and ``runs`` of an `AxisSum`.  The sums have the shape (outer, runs, inner).
    """
    t, several = c_type(type), ", ".join([start_of(update, type)] * _UNROLLED)
    return f"""{PRELUDE}{_along_rows(type, THREADS, update)}
struct Arguments {{ long long word[7]; }};
extern "C" __global__ void __launch_bounds__({THREADS}) {entry}(const Arguments a) {{
  {t} *sums = ({t} *)in_memory(a.word[0]);
  const {t} *values = (const {t} *)in_memory(a.word[1]);
  const long long outer = a.word[2], count = a.word[3], inner = a.word[4];
  const long long run = a.word[5], runs = a.word[6], all = outer * inner;
  const long long groups = (all + blockDim.x - 1) / blockDim.x * runs;
  for (long long group = blockIdx.x; group < groups; group += gridDim.x) {{
    const long long part = group % runs, at = group / runs * blockDim.x + threadIdx.x;
    const long long row = at / inner, column = at % inner;
    const long long last = (part + 1) * run < count ? (part + 1) * run : count;
    const {t} *from = values + row * count * inner + column;
    {t} several[{_UNROLLED}] = {{{several}}};
    if (at < all)
      for (long long k = part * run + threadIdx.y; k < last; k += blockDim.y * {_UNROLLED})
        #pragma unroll
        for (int j = 0; j < {_UNROLLED}; j++)
          if (k + j * blockDim.y < last) {{
            const {t} old = several[j], own = from[(k + j * blockDim.y) * inner];
            several[j] = {update_expression(update, type, "old", "own")};
          }}
    #pragma unroll
    for (int apart = {_UNROLLED} / 2; apart > 0; apart /= 2)
      #pragma unroll
      for (int j = 0; j < apart; j++) {{
        const {t} old = several[j], own = several[j + apart];
        several[j] = {update_expression(update, type, "old", "own")};
      }}
    const {t} total = sum_along_rows(several[0]);
    if (at < all && threadIdx.y == 0) sums[(row * runs + part) * inner + column] = total;
  }}
}}
"""


assert BLOCK % THREADS == 0
