"""Reductions and scans of arrays, by kernels over blocks of their axis.

The combinations of the elements of all blocks are an array again, so that what is between blocks is
the same once more, of fewer elements.  Of a scan (Blelloch: "Prefix Sums and Their Applications",
1990) the prefixes at the ends of blocks are the scan of these.  Its cotangents,

    rᵢ = ȳᵢ + cᵢ₊₁ᵀ rᵢ₊₁,   cᵢ₊₁ = ∂(yᵢ ∘ xᵢ₊₁)/∂yᵢ,   x̄ᵢ = (∂(yᵢ₋₁ ∘ xᵢ)/∂xᵢ)ᵀ rᵢ,

go from block to block by ∂(L ∘ P)/∂L, the product of the c of a block, of the prefix L before it
and its combination P: the equation of the ends of blocks is that of their scan.  (Rules: Schenck,
Rønning, Henriksen, Oancea: "AD for an Array Language with Nested Parallelism", SC22.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from mixad.backends.arrays import library_of
from mixad.backends.execute import Kernel, kernel_for
from mixad.call.arguments import places_along
from mixad.constructs.block_programs import (
    Operator,
    fold_program,
    fold_pullback_program,
    local_cotangents_program,
    scan_cotangents_program,
    scan_program,
    scan_pullback_program,
)
from mixad.constructs.leaves import (
    join_numbers,
    split_elements,
    without_element,
)
from mixad.errors import KernelIndexError
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import GANG
from mixad.scalar.ir import Program
from mixad.tape.kernel_call import kernel_values

__all__ = ["Scan", "fold", "pull_fold"]

_Arrays = Sequence[Any]

_BLOCK = 120
"""Elements of a block: few enough that a gang's blocks stay in the cache, and no power of two,
which would put all lanes into the same cache lines."""


_SHORT = 1024
"""Elements that one lane walks through in less time than several launches take."""


_LONG = 1 << 14
"""Elements that a lane walks through at most: nobody can interrupt it."""


@dataclass(frozen=True)
class _Blocks:
    """How an axis is cut: the first ``more`` of ``count`` blocks have one element more."""

    shape: tuple[int, int, int]
    count: int
    length: int
    more: int

    @classmethod
    def of(cls, shape: tuple[int, ...], *, is_whole: bool = False) -> _Blocks:
        """Cut the second axis, unless it is short and a gang has nothing else to do."""
        before, extent, after = shape[:3]
        is_short = extent <= _SHORT and before * after < GANG
        count = 1 if is_whole or is_short else -(-extent // _BLOCK)
        return cls((before, extent, after), count, extent // count, extent % count)

    def launch(self, program: Program, shapes: Sequence[tuple[int, ...] | None], arrays: _Arrays,
               captured: _Arrays) -> list[Any]:  # fmt: skip
        """Return the outputs of a program over blocks; a shape is None for one value per lane."""
        library = library_of(arrays[0])
        device = getattr(arrays[0], "device", None)
        places = places_along((self.shape[0], self.count, self.shape[2]), library, device)
        values: Sequence[Any] = [*arrays, *places, self.length, self.more, *captured]
        if captured:
            values = kernel_values(program, values)
        try:
            return list(_kernel(program, tuple(shapes))(values))
        except KernelIndexError as error:  # which block it was in tells nothing
            raise without_element(error) from None


@lru_cache(maxsize=256)
def _kernel(program: Program, shapes: tuple[tuple[int, ...] | None, ...]) -> Kernel:
    """Return the kernel of a program whose outputs have some shapes."""
    requests = [OutputRequest(0, k, shape) for k, shape in enumerate(shapes)]
    return kernel_for((program,), tuple(requests))


def fold(operator: Operator, xs: _Arrays, captured: _Arrays) -> tuple[list[Any], list[Any]]:
    """Combine the elements along the second axis of arrays, which stays with one element.

    Return arrays, and, if there are several blocks, the numbers of their combinations.
    """
    blocks = _Blocks.of(xs[0].shape)
    totals = _totals(blocks, operator, xs, captured)
    found = totals
    while found[0].shape[1] > 1:
        found = _totals(_Blocks.of(found[0].shape), operator.of_numbers, found, captured)
    return join_numbers(operator, found), totals if blocks.count > 1 else []


def _totals(blocks: _Blocks, operator: Operator, xs: _Arrays, captured: _Arrays) -> list[Any]:
    """Return the combination of the elements of each block, an array for each number."""
    return blocks.launch(fold_program(operator), [None] * operator.size, xs, captured)


def pull_fold(
    operator: Operator,
    xs: _Arrays,
    captured: _Arrays,
    totals: _Arrays,
    gs: _Arrays,
    wanted: tuple[int, ...],
) -> list[Any]:
    """Return the cotangents of elements, then of the ``wanted`` captured values.

    ``gs`` are those of the combination; both have one for each array of floats.
    """
    blocks = _Blocks.of(xs[0].shape)
    later = split_elements(operator, dict(zip(operator.float_leaves, gs, strict=True)))
    prefixes: _Arrays = []
    if blocks.count > 1:
        between = Scan.of(operator.of_numbers, totals, captured)
        prefixes, xp = between.ys, library_of(xs[0]).xp
        ends = [xp.zeros_like(totals[n]) for n in operator.floats]
        own = [xp.concat([end[:, :-1, :], g], axis=1) for end, g in zip(ends, later, strict=True)]
        later = between.cotangents(own)
    program = fold_pullback_program(operator, blocks.count > 1, wanted)
    shapes = [tuple(x.shape) for x in xs] + [tuple(captured[at].shape) for at in wanted]
    found = blocks.launch(program, shapes, [*xs, *prefixes, *later], captured)
    return [found[at] for at in operator.float_leaves] + found[len(xs) :]


class Scan(NamedTuple):
    """A scan along the second axis of arrays."""

    operator: Operator
    xs: _Arrays
    captured: _Arrays
    ys: _Arrays  # the arrays of prefixes
    totals: _Arrays  # numbers of the blocks' combinations, if several

    @classmethod
    def of(cls, operator: Operator, xs: _Arrays, captured: _Arrays) -> Scan:
        """Scan arrays."""
        blocks, totals, prefixes = _blocks_of_scan(xs), list[Any](), list[Any]()
        if blocks.count > 1:
            totals = _totals(blocks, operator, xs, captured)
            prefixes = [*cls.of(operator.of_numbers, totals, captured).ys]
        program = scan_program(operator, blocks.count > 1)
        shapes = [tuple(x.shape) for x in xs]
        ys = blocks.launch(program, shapes, [*xs, *prefixes], captured)
        return cls(operator, xs, captured, ys, totals)

    def cotangents(self, gs: _Arrays) -> list[Any]:
        """Return the cotangents of prefixes, each with what later ones add to it."""
        blocks, arrays = self._read_back(gs)
        program = scan_cotangents_program(self.operator, blocks.count > 1)
        return blocks.launch(program, [tuple(g.shape) for g in gs], arrays, self.captured)

    def pull(self, gs: _Arrays, wanted: tuple[int, ...]) -> list[Any]:
        """Return the cotangents of elements, then of the ``wanted`` captured values.

        ``gs`` are those of prefixes; both have one for each array of floats.
        """
        blocks, arrays = self._read_back(gs)
        program = scan_pullback_program(self.operator, blocks.count > 1, wanted)
        shapes = [tuple(x.shape) for x in (*gs, *[self.captured[at] for at in wanted])]
        return blocks.launch(program, shapes, arrays, self.captured)

    def _read_back(self, gs: _Arrays) -> tuple[_Blocks, list[Any]]:
        """Return the blocks, and what the walk back reads.

        If there are several blocks, that has what later blocks add to the cotangent of the prefix
        at the end of each.
        """
        blocks, arrays = _blocks_of_scan(self.xs), [*self.xs, *self.ys, *gs]
        if blocks.count == 1:
            return blocks, arrays
        program, count = local_cotangents_program(self.operator), len(self.operator.floats)
        local = blocks.launch(program, [None] * count, arrays, self.captured)
        xp = library_of(local[0]).xp
        shifted = [xp.concat([g[:, 1:, :], xp.zeros_like(g[:, :1, :])], axis=1) for g in local]
        between = Scan.of(self.operator.of_numbers, self.totals, self.captured)
        return blocks, [*arrays, *between.cotangents(shifted)]


def _blocks_of_scan(xs: _Arrays) -> _Blocks:
    """Cut an axis, unless other axes keep gangs busy: then elements are read once."""
    _, extent, after = xs[0].shape[:3]
    return _Blocks.of(xs[0].shape, is_whole=after >= 4 * GANG and extent <= _LONG)
