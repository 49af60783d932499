"""Small linear systems as straight-line code: Gaussian elimination with partial pivoting.

Rows are exchanged by selects, so the code is the same whatever the numbers are, and derivatives of
it are those of the solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from mixad.scalar.expression import Term, call
from mixad.scalar.ir import Const

__all__ = ["Solved", "solve_system"]

_LOST = 8.0
"""A smaller pivot, in units in the last place of the terms of its difference, is none."""


@dataclass(frozen=True, slots=True)
class Solved:
    """The solution of a system."""

    columns: tuple[tuple[Term, ...], ...]  # for each unknown, its value for each right-hand side
    # Whether the matrix is regular as far as the working precision tells; elsewhere the solution
    # is not to be believed.
    is_regular: Term


@dataclass(slots=True)
class _Row:
    """A row: entries, bounds of the terms of their differences, right-hand sides."""

    entries: list[Term]
    sizes: list[Term]
    sides: list[Term]

    def choose(self, swap: Term, other: _Row) -> _Row:
        """Return the other row where they are exchanged, else this one."""
        pairs = zip(self.parts, other.parts, strict=True)
        return _Row(*([call("where", swap, b, a) for a, b in zip(*p, strict=True)] for p in pairs))

    @property
    def parts(self) -> tuple[list[Term], list[Term], list[Term]]:
        return self.entries, self.sizes, self.sides


def solve_system(
    matrix: Sequence[Sequence[Term]],
    sizes: Sequence[Sequence[Term]],
    sides: Sequence[Sequence[Term]],
) -> Solved:
    """Solve a linear system: for each row its entries, and its right-hand sides.

    ``sizes`` has each entry's sum of magnitudes before cancellation. A nan in a side reaches only
    the unknowns that depend on it, for that side; one in the matrix may reach all.
    """
    rows = [_Row(*map(list, parts)) for parts in zip(matrix, sizes, sides, strict=True)]
    tests = [_eliminate(rows, k) for k in range(len(rows))]
    return Solved(_back_substitute(rows), reduce(lambda a, b: a & b, tests))


def _eliminate(rows: list[_Row], k: int) -> Term:
    """Eliminate an unknown from the rows below; return whether it has a pivot."""
    for i in range(k + 1, len(rows)):
        if not _is_zero(rows[i].entries[k]):
            swap = abs(rows[i].entries[k]) > abs(rows[k].entries[k])
            rows[k], rows[i] = rows[k].choose(swap, rows[i]), rows[i].choose(swap, rows[k])
    pivot = rows[k].entries[k]
    for row in rows[k + 1 :]:
        if not _is_zero(row.entries[k]):
            _subtract_multiple(row, rows[k], row.entries[k] / pivot, k)
    lost = _LOST * float(np.finfo(pivot.type.arithmetic.dtype).eps)
    return abs(pivot) > rows[k].sizes[k] * lost


def _subtract_multiple(row: _Row, by: _Row, factor: Term, k: int) -> None:
    """Subtract a multiple of another row to the right of a column."""
    for j in range(k + 1, len(row.entries)):
        if not _is_zero(by.entries[j]):
            row.entries[j] = row.entries[j] - factor * by.entries[j]
            row.sizes[j] = row.sizes[j] + abs(factor) * by.sizes[j]
    row.sides[:] = [
        a if _is_zero(b) else a - call("mul_zero", factor, b)
        for a, b in zip(row.sides, by.sides, strict=True)
    ]


def _back_substitute(rows: Sequence[_Row]) -> tuple[tuple[Term, ...], ...]:
    """Return the unknowns of a triangular system, the last one found first."""
    found: list[tuple[Term, ...]] = []
    for k in reversed(range(len(rows))):
        sides = rows[k].sides
        for entry, known in zip(reversed(rows[k].entries[k + 1 :]), found, strict=True):
            if not _is_zero(entry):
                pairs = zip(sides, known, strict=True)
                sides = [a - call("mul_zero", entry, x) for a, x in pairs]
        found.append(tuple(a / rows[k].entries[k] for a in sides))
    return tuple(reversed(found))


def _is_zero(term: Term) -> bool:
    return isinstance(term.atom, Const) and term.atom.value == 0
