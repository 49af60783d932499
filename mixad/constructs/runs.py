"""Reductions and scans of arrays, by kernels over runs of their axis.

The combinations of the elements of all runs are an array again, so that what is between runs is the
same once more, of fewer elements.  Of a scan (Blelloch: "Prefix Sums and Their Applications", 1990)
the prefixes at the ends of runs are the scan of these.  Its cotangents,

    rᵢ = ȳᵢ + cᵢ₊₁ᵀ rᵢ₊₁,   cᵢ₊₁ = ∂(yᵢ ∘ xᵢ₊₁)/∂yᵢ,   x̄ᵢ = (∂(yᵢ₋₁ ∘ xᵢ)/∂xᵢ)ᵀ rᵢ,

go from run to run by ∂(L ∘ P)/∂L, the product of the c of a run, of the prefix L before it and its
combination P: the equation of the ends of runs is that of their scan.  (Rules: Schenck, Rønning,
Henriksen, Oancea: "AD for an Array Language with Nested Parallelism", SC22.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mixad.backends.arrays import library_of
from mixad.backends.execute import Kernel, kernel_for
from mixad.constructs.leaves import (
    join_numbers,
    places_along,
    split_elements,
    without_element,
)
from mixad.constructs.run_programs import (
    Operator,
    fold_program,
    fold_pullback_program,
    local_cotangents_program,
    scan_cotangents_program,
    scan_program,
    scan_pullback_program,
)
from mixad.errors import KernelIndexError
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import GANG
from mixad.scalar.ir import Program
from mixad.tape.kernel_call import kernel_values

__all__ = ["pull_fold", "pull_scan", "run_fold", "run_scan"]

_Arrays = Sequence[Any]

_RUN = 120
"""Elements of a run: few enough that what a gang walks through stays in the cache, and no power of
two, which would put all lanes into the same lines of it."""


_SHORT = 1024
"""Elements that one lane goes through in less time than several launches take."""


_LONG = 1 << 14
"""Elements that a lane goes through at most: nobody can interrupt it."""


@dataclass(frozen=True)
class _Runs:
    """How an axis is cut: the first ``more`` of ``count`` runs have one element more."""

    shape: tuple[int, int, int]
    count: int
    length: int
    more: int

    @classmethod
    def of(cls, shape: tuple[int, ...], *, is_whole: bool = False) -> _Runs:
        """Cut the second axis, unless it is short and a gang has nothing else to do."""
        before, extent, after = shape[:3]
        is_short = extent <= _SHORT and before * after < GANG
        count = 1 if is_whole or is_short else -(-extent // _RUN)
        return cls((before, extent, after), count, extent // count, extent % count)

    def run(self, program: Program, shapes: Sequence[tuple[int, ...] | None], arrays: _Arrays,
            captured: _Arrays) -> list[Any]:  # fmt: skip
        """Run a program over runs; ``shapes`` are those of outputs, None of what each lane has."""
        library = library_of(arrays[0])
        device = getattr(arrays[0], "device", None)
        places = places_along((self.shape[0], self.count, self.shape[2]), library, device)
        values: Sequence[Any] = [*arrays, *places, self.length, self.more, *captured]
        if captured:
            values = kernel_values(program, values)
        try:
            return list(_kernel(program, tuple(shapes))(values))
        except KernelIndexError as error:  # which run it was in tells nothing
            raise without_element(error) from None


@lru_cache(maxsize=256)
def _kernel(program: Program, shapes: tuple[tuple[int, ...] | None, ...]) -> Kernel:
    """Return the kernel of a program whose outputs have some shapes."""
    requests = [OutputRequest(0, k, shape) for k, shape in enumerate(shapes)]
    return kernel_for((program,), tuple(requests))


def run_fold(operator: Operator, leaves: _Arrays, captured: _Arrays) -> tuple[list[Any], list[Any]]:
    """Combine the elements along the second axis of arrays, which stays with one element.

    Returned are arrays, and, if there are several runs, the numbers of their combinations.
    """
    runs = _Runs.of(leaves[0].shape)
    totals = runs.run(fold_program(operator), [None] * operator.size, leaves, captured)
    found = totals
    while found[0].shape[1] > 1:
        inner = _Runs.of(found[0].shape)
        program = fold_program(operator.of_numbers)
        found = inner.run(program, [None] * operator.size, found, captured)
    return join_numbers(operator, found), totals if runs.count > 1 else []


def run_scan(operator: Operator, leaves: _Arrays, captured: _Arrays) -> tuple[list[Any], list[Any]]:
    """Return the prefixes along the second axis of arrays.

    Returned are arrays, and, if there are several runs, the numbers of their combinations.
    """
    runs = _scan_runs(leaves)
    shapes = [tuple(leaf.shape) for leaf in leaves]
    if runs.count == 1:
        return runs.run(scan_program(operator, False), shapes, leaves, captured), []
    totals = runs.run(fold_program(operator), [None] * operator.size, leaves, captured)
    prefixes = run_scan(operator.of_numbers, totals, captured)[0]
    program = scan_program(operator, True)
    return runs.run(program, shapes, [*leaves, *prefixes], captured), totals


def _scan_runs(leaves: _Arrays) -> _Runs:
    """Cut an axis, unless what is beside it keeps gangs busy: then elements are read once."""
    _, extent, after = leaves[0].shape[:3]
    return _Runs.of(leaves[0].shape, is_whole=after >= 4 * GANG and extent <= _LONG)


def pull_scan(
    operator: Operator,
    leaves: _Arrays,
    ys: _Arrays,
    totals: _Arrays,
    gs: _Arrays,
    captured: _Arrays,
    wanted: tuple[int, ...],
) -> list[Any]:
    """Return the cotangents of elements and of the ``wanted`` captured values, given ``gs``, those
    of prefixes: both for each array of floats."""
    runs = _scan_runs(leaves)
    later = _later(operator, leaves, ys, totals, gs, captured) if runs.count > 1 else []
    program = scan_pullback_program(operator, runs.count > 1, wanted)
    shapes = [tuple(g.shape) for g in gs] + [tuple(captured[at].shape) for at in wanted]
    return runs.run(program, shapes, [*leaves, *ys, *gs, *later], captured)


def _later(
    operator: Operator,
    leaves: _Arrays,
    ys: _Arrays,
    totals: _Arrays,
    gs: _Arrays,
    captured: _Arrays,
) -> list[Any]:
    """Return, for the end of each run, what later runs give to the cotangent of the prefix."""
    runs, count = _scan_runs(leaves), len(operator.floats)
    program = local_cotangents_program(operator)
    local = runs.run(program, [None] * count, [*leaves, *ys, *gs], captured)
    xp = library_of(local[0]).xp
    shifted = [xp.concat([g[:, 1:, :], xp.zeros_like(g[:, :1, :])], axis=1) for g in local]
    prefixes = run_scan(operator.of_numbers, totals, captured)[0]
    return _scan_cotangents(operator.of_numbers, totals, prefixes, shifted, captured)


def _scan_cotangents(
    operator: Operator, xs: _Arrays, ys: _Arrays, gs: _Arrays, captured: _Arrays
) -> list[Any]:
    """Return the cotangents of prefixes, each with what later ones give to it."""
    runs, later = _scan_runs(xs), list[Any]()
    if runs.count > 1:
        totals = runs.run(fold_program(operator), [None] * operator.size, xs, captured)
        later = _later(operator, xs, ys, totals, gs, captured)
    program = scan_cotangents_program(operator, runs.count > 1)
    return runs.run(program, [tuple(g.shape) for g in gs], [*xs, *ys, *gs, *later], captured)


def pull_fold(
    operator: Operator,
    leaves: _Arrays,
    totals: _Arrays,
    gs: _Arrays,
    captured: _Arrays,
    wanted: tuple[int, ...],
) -> list[Any]:
    """Return the cotangents of elements and of the ``wanted`` captured values, given ``gs``, those
    of the combination: both for each array of floats."""
    runs = _Runs.of(leaves[0].shape)
    later = split_elements(operator, dict(zip(operator.float_leaves, gs, strict=True)))
    prefixes = list[Any]()
    if runs.count > 1:
        inner = operator.of_numbers
        prefixes = run_scan(inner, totals, captured)[0]
        xp = library_of(leaves[0]).xp
        ends = [xp.zeros_like(totals[n]) for n in operator.floats]
        own = [xp.concat([end[:, :-1, :], g], axis=1) for end, g in zip(ends, later, strict=True)]
        later = _scan_cotangents(inner, totals, prefixes, own, captured)
    program = fold_pullback_program(operator, runs.count > 1, wanted)
    shapes = [tuple(leaf.shape) for leaf in leaves] + [tuple(captured[at].shape) for at in wanted]
    found = runs.run(program, shapes, [*leaves, *prefixes, *later], captured)
    return [found[at] for at in operator.float_leaves] + found[len(leaves) :]
