"""The kernels that a function needs for whatever extents and strides.

Extents and strides decide the loop nest, and with it how outputs are summed: which of the two
innermost axes, and which of those that make a folded row.  Everything else (more axes around, how
far neighbours are apart) is words of the argument block.  So there is a kernel for each way to sum,
at the full rank: axes of extent 1 stand for those that are merged or missing.  `plan.c` makes the
nest of a call and takes the first kernel that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, permutations
from typing import Literal, TypeAlias

from mixad.export.kernels import Function
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.spec import Indexed, KernelSpec, Launch, Operand, Output, StrideKind

__all__ = ["Variant", "rank_of", "variant_for", "variants_of"]

_ALL_ORDERS = 3
"""Axes of which every order is a loop nest that sums are exported for."""

Combine: TypeAlias = Literal["STORED", "COLUMNS", "ROW", "TILE", "WIDE"]


@dataclass(frozen=True)
class Variant:
    """A kernel at the full rank, and what `plan.c` must know of it."""

    spec: KernelSpec
    # What it does with each output: stores it, sums it over the innermost axes, or stores it in the
    # type of sums, since outer axes are summed.
    combines: tuple[Combine, ...]

    @property
    def segments(self) -> tuple[int, ...]:
        """For each output a set of bits: the axes of a row that are summed in every row."""
        return tuple(sum(1 << i for i, f in enumerate(o.segments) if f) for o in self.spec.outputs)

    @property
    def steps(self) -> tuple[str, ...]:
        """How it reads each param."""
        return tuple(
            _STEPS[o.step] if isinstance(o, Operand) else "ANY" for o in self.spec.operands
        )

    @property
    def at(self) -> tuple[int, ...]:
        """Words of params, of outputs, of the elements of a folded row, and behind all others."""
        block = ArgumentLayout(self.spec)
        return (*block.params[:-1], *block.outputs, block.length, block.words)


_STEPS: dict[StrideKind, str] = {"zero": "ZERO", "unit": "UNIT", "any": "ANY", "tile": "BY_TILE",
                           "row": "BY_ROW", "column": "BY_COLUMN"}  # fmt: skip
"""How `plan.c` calls ways to read a param."""


def rank_of(function: Function) -> int:
    """Return how many axes a function's loops have: one where it has numbers only."""
    return max(1, len(function.results[0].own))


def variants_of(
    function: Function, orders: Iterable[Sequence[int]], *, folds: bool
) -> tuple[Variant, ...]:
    """Return the kernels of a function: those that read packed arrays first.

    ``orders`` are those of the axes, outermost loop first, in which packed arrays are walked.
    Sums are exported for every order of up to `_ALL_ORDERS` axes; others are asked to be in one of
    ``orders``.
    """
    axes, likely = range(len(function.results[0].own)), [tuple(order) for order in orders]
    sums = not all(all(r.own) for r in function.results)
    more = list(permutations(axes)) if sums and len(axes) <= _ALL_ORDERS else likely
    found: dict[Variant, None] = {}
    for is_packed, some in ((True, likely), (False, more)):
        for nest in dict.fromkeys(nest for order in some for nest in _nests(order)):
            found[_unfolded_variant(function, nest, is_packed=is_packed)] = None
            if folds and (sums or is_packed):
                found |= dict.fromkeys(_folded_variants(function, nest, is_packed=is_packed))
    return tuple(found)


def variant_for(variants: Iterable[Variant], launch: Launch) -> Variant:
    """Return the first kernel that does what a launch does."""
    spec, folded = launch.spec, launch.spec.folded
    combines = tuple(_combine(o.reduced) for o in spec.outputs)

    def fits(v: Variant) -> bool:
        pads = (False,) * (v.spec.folded - folded)
        segments = (o.segments and (o.segments[0], *pads, *o.segments[1:]) for o in spec.outputs)
        pairs = zip(v.spec.operands, spec.operands, strict=True)
        return (
            (v.spec.folded > 0, v.spec.is_split) == (folded > 0, spec.is_split)
            and v.combines == combines
            and tuple(segments) == tuple(o.segments for o in v.spec.outputs)
            and all(
                not isinstance(own, Operand)
                or own.step in ("any", "row", "column", "tile")
                or (isinstance(o, Operand) and own.step == o.step)
                for own, o in pairs
            )
        )

    return next(filter(fits, variants))


def _nests(order: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the loop nests that an order leaves where some axes have one element, or are merged."""
    for count in range(len(order) + 1):
        yield from combinations(order, count)


def _unfolded_variant(function: Function, nest: tuple[int, ...], *, is_packed: bool) -> Variant:
    sums = [[not r.own[axis] for axis in nest] for r in function.results]

    def step(own: tuple[bool, ...]) -> StrideKind:
        if not nest or not own[nest[-1]]:
            return "zero"
        return "unit" if is_packed else "any"

    return _variant(function, sums, [()] * len(sums), step)


def _folded_variants(
    function: Function, nest: tuple[int, ...], *, is_packed: bool
) -> Iterator[Variant]:
    """Yield the kernels of a nest whose last axes make a row."""
    rank = rank_of(function)
    for count in range(2, len(nest) + 1):
        outer, row = nest[:-count], nest[-count:]
        own_flags = [[not r.own[axis] for axis in row] for r in function.results]

        for is_split in (True, False) if outer else (True,):
            step = partial(_row_step, row, row[0] if is_split else outer[-1], is_packed)
            sums, segments = [], []
            for r, flags in zip(function.results, own_flags, strict=True):
                split = [flags[0]] if is_split else []
                sums.append([*(not r.own[axis] for axis in outer), *split, all(flags)])
                is_part = any(flags) and not all(flags) and _combine(sums[-1]) != "COLUMNS"
                pads = (False,) * (rank - count)
                segments.append((flags[0], *pads, *flags[1:]) if is_part else ())
            yield _variant(function, sums, segments, step, rank, is_split=is_split)


def _row_step(
    row: tuple[int, ...], around: int, is_packed: bool, own: tuple[bool, ...]
) -> StrideKind:
    """Return how a row of some axes is read of an array; its neighbours are along another axis."""
    first, *others = [own[axis] for axis in row]
    if not (first or any(others)):
        return "zero"
    if is_packed and first and all(others):
        return "unit"
    if not own[around]:
        return "tile"
    return "row" if any(others) else "column"


def _combine(sums: Sequence[bool]) -> Combine:
    """Return what a kernel does with an output that is summed over these axes of its nest."""
    row, run = any(sums[-1:]), any(sums[-2:-1])
    if row:
        return "TILE" if run else "ROW"
    if run:
        return "COLUMNS"
    return "WIDE" if any(sums) else "STORED"


def _variant(
    function: Function,
    sums: Sequence[Sequence[bool]],
    segments: Sequence[tuple[bool, ...]],
    step: Callable[[tuple[bool, ...]], StrideKind],
    folded: int = 0,
    *,
    is_split: bool = False,
) -> Variant:
    rank, combines = rank_of(function), tuple(map(_combine, sums))
    outputs = tuple(
        Output(r.type, r.source, _reduced_axes(combine, rank), segments=own)
        for r, combine, own in zip(function.results, combines, segments, strict=True)
    )
    operands: list[Operand | Indexed | None] = []
    for at in function.params:
        a = function.arguments[at]
        if a.kind == "array":
            operands.append(Indexed(a.type, len(a.shape)))
        else:
            operands.append(Operand(a.type, step(a.own)) if a.kind == "lane" else None)
    spec = KernelSpec(
        function.passes, tuple(operands), outputs, rank, folded=folded, is_split=is_split
    )
    return Variant(spec, combines)


def _reduced_axes(combine: Combine, rank: int) -> tuple[bool, ...]:
    """Return axes of the nest that stand for a combine: around the innermost two any will do."""
    row, run = combine in ("ROW", "TILE"), combine in ("COLUMNS", "TILE")
    last = [combine == "WIDE", *[False] * (rank - 3)] if rank > 2 else []
    return (*last, *((run, row) if rank > 1 else (row,)))
