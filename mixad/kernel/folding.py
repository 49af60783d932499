"""Short rows: where axes cannot be merged, several rows go through a kernel as one.

An operand that repeats along outer axes, or a sum that keeps some, keeps axes apart, and with an
innermost axis of three elements a gang has three.  So the innermost axes are *folded*: a row of the
kernel is made of some of the outermost of them, with all of the others.  Operands that lie in
memory as such a row does are read where they are, others are copied in its order to the stack
first, once for a tile if they repeat from row to row.  Sums over the outermost axis are taken for
each element of a row, and folded afterwards; those over others, from what the row has left on the
stack.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from mixad.kernel.cost import block_cost, statement_cost
from mixad.kernel.nest import Nest
from mixad.kernel.spec import Fold, StrideKind
from mixad.kernel.tiling import GANG, combine_of, partial_shape
from mixad.kernel.varying import varying_vars
from mixad.scalar.ir import Program, written_vars

__all__ = ["COPY_COST", "END_COST", "FOLDED", "GANG_COST", "MAX_COPIES", "SHORT", "SUM_COST",
           "copy_step", "fold_of", "partial_sum_shape"]  # fmt: skip

FOLDED = 512
"""Most elements of a folded row: its copies stay in the first-level cache. Where axes around it are
summed, a row may have all of the folded axes and `BLOCK` elements."""

SHORT = FOLDED // 2
"""Axes are folded until they have so many elements together."""

MAX_COPIES = 16
"""Operands and outputs of which a kernel keeps a row on the stack: 256 KiB at most."""

# Measured, in the units of `mixad.kernel.cost`, about a cycle; of elements in tenths of these.
# Integers, so that C decides alike (`mixad/export/plan.c`).
END_COST = 16
"""What the end of a row costs for each array, where it is no whole gang."""

COPY_COST: Mapping[StrideKind, int] = MappingProxyType({"row": 18, "column": 4, "tile": 0})
"""What an element costs of an operand that is copied, in tenths."""

SUM_COST = 8
"""What an element costs of an output that is summed within a row, in tenths."""

GANG_COST = 2
"""What an operation costs for a gang, where one for a whole row would do."""


def partial_sum_shape(
    fold: Fold, output: int, rows: int
) -> tuple[tuple[int, ...], tuple[bool, ...]]:
    """Return the shape that tiles leave of an output, and which of its axes are still to sum.

    ``rows`` is the number of rows in a run.
    """
    summed = fold.summed[output]
    if combine_of(summed) != "store":
        return partial_shape(fold.extents, rows, summed), summed
    outer = len(summed) - (2 if fold.is_split else 1)
    gone = [n for n, is_sum in zip(fold.axes, fold.segments[output], strict=False) if is_sum]
    kept = fold.length // math.prod(gone)
    return (*fold.extents[:outer], kept), (*summed[:outer], False)


def copy_step(fold: Fold, param: int) -> StrideKind | None:
    """Return how a param is copied before it is read; None if it is not copied."""
    strides, copied = fold.strides[param], fold.copy_strides[param]
    if strides is None or copied is None:
        return None
    if not any(strides[-2:-1]):
        return "tile"
    return "row" if any(copied[1:]) else "column"


def fold_of(nest: Nest, passes: Sequence[Program], longest: int) -> Fold | None:
    """Return a loop nest with its innermost axes folded; None where that is no gain.

    A row of the folded axes has at most ``longest`` elements, and at most `BLOCK`.
    """
    count = _axes_to_fold(nest.extents)
    if count < 2 or nest.extents[-1] % GANG == 0:
        return None
    if any(any(s) and not _is_one_run(s[-count:], nest.extents[-count:]) for s in nest.steps):
        return None
    fold = _pack_rows(nest, count, longest)
    return fold if _saves(nest, fold, passes) else None


def _axes_to_fold(extents: tuple[int, ...]) -> int:
    """Return how many axes make a long one; 0 for no folding."""
    if 0 in extents:
        return 0
    size = 1
    for count, extent in enumerate(reversed(extents), 1):
        size *= extent
        if size >= SHORT:
            return count
    return len(extents)


def _pack_rows(nest: Nest, count: int, longest: int) -> Fold:
    """Return a nest with its innermost ``count`` axes folded.

    They are split where no axis is around them: kernels do not tell one row from many.
    """
    outer, own = nest.extents[:-count], nest.extents[-count:]
    inner = math.prod(own[1:])
    length = own[0] * inner
    is_split = not outer or length > longest
    rows = min(own[0], _rows(inner)) if is_split else own[0]

    def pack_strides(strides: tuple[int, ...]) -> tuple[int, ...]:
        inside = strides[-count:]
        from_row_to_row = (inside[0] * rows,) if is_split else ()
        return (*strides[:-count], *from_row_to_row, inside[-1] if _is_one_run(inside, own) else 0)

    def pack_flags(flags: tuple[bool, ...]) -> tuple[bool, ...]:
        first, *_ = inside = flags[-count:]
        return (*flags[:-count], *((first,) if is_split else ()), all(inside))

    sums = tuple(map(pack_flags, nest.summed))
    some = [f[-count:] if any(f[-count:]) and not all(f[-count:]) else () for f in nest.summed]
    by_columns = [combine_of(flags) == "columns" for flags in sums]
    return Fold(
        axes=(rows, *own[1:]),
        length=length,
        is_split=is_split,
        extents=(*outer, *((-(-own[0] // rows),) if is_split else ()), rows * inner),
        strides=tuple(None if s is None else pack_strides(s) for s in nest.strides),
        copy_strides=tuple(
            None if s is None or _is_one_run(s[-count:], own) else s[-count:] for s in nest.strides
        ),
        summed=sums,
        segments=tuple(() if by else flags for flags, by in zip(some, by_columns, strict=True)),
        columns=tuple(flags if by else () for flags, by in zip(some, by_columns, strict=True)),
        steps=tuple(map(pack_strides, nest.steps)),
    )


def _rows(inner: int) -> int:
    """Return how many rows of ``inner`` elements to fold: whole gangs, if they fit."""
    whole = GANG // math.gcd(GANG, inner)
    return FOLDED // (whole * inner) * whole or FOLDED // inner


def _is_one_run(strides: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether one stride walks axes, outermost first."""
    pairs = zip(strides[:-1], strides[1:], extents[1:], strict=True)
    return all(outer == inner * extent for outer, inner, extent in pairs)


def _saves(nest: Nest, fold: Fold, passes: Sequence[Program]) -> bool:
    """Whether the end of a short row costs more than folding does.

    What is uniform along a row is computed once for it, but for every gang of a folded one.
    """
    extent = nest.extents[-1]
    moving = [k for k, s in enumerate(nest.strides) if s is not None and s[-1]]
    copies = [step for k in range(len(fold.strides)) if (step := copy_step(fold, k)) is not None]
    sums = sum(map(bool, fold.segments))
    if len(copies) + sums > MAX_COPIES:
        return False
    uniform = sum(_uniform_cost(p, moving) for p in passes)
    varying = sum(block_cost(p.body) for p in passes) - uniform
    missing = -extent % GANG
    saved = END_COST * GANG * (len(moving) + len(fold.summed)) + missing * varying
    by_element = sum(COPY_COST[step] for step in copies) + SUM_COST * sums
    by_gang = (GANG_COST * extent - GANG) * uniform
    return 10 * saved > GANG * extent * by_element + 10 * by_gang


def _uniform_cost(program: Program, moving: Sequence[int]) -> int:
    """Return the cost of what is uniform along a row."""
    varying = varying_vars(program, moving)
    return sum(
        statement_cost(s) for s in program.body.statements if varying.isdisjoint(written_vars(s))
    )
