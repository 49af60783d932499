"""CUDA C++: one thread for a few elements, tiles shared out among blocks."""

from mixad.emit.cuda.kernel import Dialect, emit_kernel, entries, for_threads, packed_types
from mixad.emit.cuda.sums import THREADS, accumulator, axis_sum, emit_axis_sum
from mixad.emit.cuda.updates import MAX_ELEMENTS, emit_segments, segment_blocks

__all__ = ["MAX_ELEMENTS", "THREADS", "Dialect", "accumulator", "axis_sum", "emit_axis_sum",
           "emit_kernel", "emit_segments", "entries", "for_threads", "packed_types",
           "segment_blocks"]  # fmt: skip
