"""The argument block: where a kernel finds addresses, strides, extents and scalars of a call."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from mixad.kernel.spec import Indexed, KernelSpec, Operand

__all__ = ["ArgumentLayout"]


@dataclass(frozen=True)
class ArgumentLayout:
    """Positions of a kernel's arguments in a block of 64-bit words.

    ::

        stop  outside  innermost extent  blocks a row  rows a tile  runs  outer extents...
        if rows are folded: elements of all folded axes, extents of those that make a row...
        per operand: address, outer strides..., innermost stride if its step is "any", strides
                     along the axes that make a row if it is "row", "column" or "tile"
        per uniform: its bits
        per indexed array: address, extents..., strides...
        per output:  address of contiguous memory, in the order of the loops; for a sum, of what
                     each tile leaves of it (`mixad.kernel.tiling.partial_shape`); for a part of a
                     larger array, of its first element, then outer strides...; for an accumulator,
                     of the first slab's copy of it, contiguous, then extents...
        if an output is an accumulator: tiles, and how many of them make a slab
    """

    spec: KernelSpec

    STOP = 0
    """Address of a 32-bit word; kernels end early once it is not zero."""
    OUTSIDE = 1
    """Address of a 32-bit word that becomes 1 + the index of an array read outside its extents;
    outputs that are accumulators come after the params."""
    EXTENT = 2
    BLOCKS = 3
    ROWS = 4
    RUNS = 5
    OUTER_EXTENTS = 6

    @cached_property
    def params(self) -> tuple[int, ...]:
        """For each param, the position of its address or bits."""
        positions, at = [], self.folded_extents + self.spec.folded
        for operand in self.spec.operands:
            positions.append(at)
            match operand:
                case None:
                    at += 1
                case Indexed():
                    at += 1 + 2 * operand.rank
                case Operand():
                    at += self.spec.rank + self._inner_strides(operand)
        return (*positions, at)

    def _inner_strides(self, operand: Operand) -> int:
        if operand.step in ("row", "column", "tile"):
            return self.spec.folded
        return 1 if operand.step == "any" else 0

    @property
    def length(self) -> int:
        """The position of the number of elements of all folded axes."""
        return self.OUTER_EXTENTS + self.spec.rank - 1

    @property
    def folded_extents(self) -> int:
        """The position of the first extent of the axes that make a row."""
        return self.length + (self.spec.folded > 0)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        """For each output, the position of its address."""
        return self._outputs[:-1]

    @property
    def words(self) -> int:
        """Length of the block."""
        return self._outputs[-1] + 2 * self.spec.accumulates

    @cached_property
    def _outputs(self) -> tuple[int, ...]:
        sizes = [
            self.spec.rank if output.is_part else 1 + (output.accumulated or 0)
            for output in self.spec.outputs
        ]
        return tuple(accumulate(sizes, initial=self.params[-1]))

    @property
    def tiles(self) -> int:
        """The position of the number of tiles, where an output is an accumulator."""
        return self._outputs[-1]

    @property
    def slab(self) -> int:
        """The position of the number of tiles in a slab."""
        return self._outputs[-1] + 1

    def accumulator_extent(self, output: int, axis: int) -> int:
        """Return the position of an accumulator's extent along one of its axes."""
        return self.outputs[output] + 1 + axis

    def part_stride(self, output: int, axis: int) -> int:
        """Return the position of the stride of the array that an output is a slice of."""
        return self.outputs[output] + 1 + axis

    def indexed_extent(self, param: int, axis: int) -> int:
        """Return the position of an indexed array's extent along one of its axes."""
        return self.params[param] + 1 + axis

    def indexed_stride(self, param: int, axis: int) -> int:
        """Return the position of an indexed array's stride along one of its axes."""
        operand = self.spec.operands[param]
        assert isinstance(operand, Indexed)
        return self.params[param] + 1 + operand.rank + axis

    def outer_stride(self, param: int, axis: int) -> int:
        """Return the position of a param's stride along an outer axis."""
        return self.params[param] + 1 + axis

    def inner_stride(self, param: int) -> int:
        """Return the position of a param's stride along the innermost axis, for step "any".

        For steps "row", "column" and "tile" it is that along the first axis that makes a row.
        """
        return self.params[param] + self.spec.rank
