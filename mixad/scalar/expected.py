"""The interpreter's results for one element, and how exactly a backend must agree.

Ops that have one right result are compared bit for bit. The others may differ by a few units in the
last place, and then a comparison may go the other way and everything after it be different. So the
interpreter runs such a program several times, with the results of inexact ops displaced by more
than the tolerance: where that changes a decision, or makes results scatter, the result is not
*determined*; where it does not, the scatter is the tolerance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from mixad.scalar.interpret import interpreter, is_exact
from mixad.scalar.ir import Equation, Program, walk_statements

__all__ = ["agrees", "known_results", "same_bits"]

Scalar: TypeAlias = Any

DISPLACEMENT = 16
"""Units in the last place by which results of inexact ops are displaced."""

PATTERNS = 5
"""Runs with displaced results: all up, all down, and each by an amount of its own.

With equal amounts only, displacements can cancel: in L/(L/x) the errors of L do not."""

MAX_SCATTER = {32: 1e-3, 64: 1e-9}
"""By width: elements whose results scatter more than this, relatively, are undetermined."""

_CANCELLING = {"lgamma", "digamma", "polygamma", "logaddexp"}
"""Inexact ops that are accurate in units of max(|x|, 1): they have roots where digits cancel."""


def known_results(
    program: Program, *, max_iterations: int
) -> Callable[[Sequence[Any]], list[tuple[Scalar, float, bool]]]:
    """Return the function that tells an element's results, and how exactly they are known.

    It takes arguments as `interpret` does; for each output it returns the value, the tolerance (0
    for the same bits, else four times the scatter of displaced runs), and whether it is determined.
    """
    names = {s.op for s in walk_statements(program.body) if isinstance(s, Equation)}
    if all(map(is_exact, names)):
        run = interpreter(program, max_iterations=max_iterations)
        return lambda arguments: [(v, 0.0, True) for v in run(arguments)]
    witness = _Witness()
    watched = interpreter(program, max_iterations=max_iterations, watch=witness)

    def results_with_bounds(arguments: Sequence[Any]) -> list[tuple[Scalar, float, bool]]:
        witness.start(lambda: 0)
        values, decisions = watched(arguments), witness.decisions
        spread = [0.0] * len(values)
        for pattern in range(PATTERNS):
            witness.start(_amounts(pattern))
            displaced = watched(arguments)
            if witness.decisions != decisions:
                return [(v, 0.0, False) for v in values]
            apart = map(_distance, values, displaced)
            spread = [max(pair) for pair in zip(spread, apart, strict=True)]
        return [(v, 4.0 * s, _is_small(s, v)) for s, v in zip(spread, values, strict=True)]

    return results_with_bounds


def _amounts(pattern: int) -> Callable[[], int]:
    if pattern < 2:
        return lambda: (DISPLACEMENT, -DISPLACEMENT)[pattern]
    source = random.Random(pattern)
    return lambda: source.randint(-DISPLACEMENT, DISPLACEMENT)


class _Witness:
    """Displaces results of inexact ops, and records decisions on floats, in each run."""

    def start(self, amount: Callable[[], int]) -> None:
        """Begin a run; ``amount`` returns by how many units to displace the next result."""
        self.amount = amount
        self.decisions: list[object] = []

    def __call__(self, equation: Equation, result: Scalar) -> Scalar:
        if equation.args[-1].type.is_float and not equation.out.type.is_float:
            self.decisions.append(result.item())
        if is_exact(equation.op):
            return result
        return _displace(equation.op, result, self.amount())


def _displace(name: str, value: Scalar, units: int) -> Scalar:
    """Move a value by units in the last place; what has no neighbours stays.

    The sign of a nan, which `signbit` and `copysign` read, is the processor's or the library's.
    """
    if np.isnan(value) and units:
        return np.copysign(value, value.dtype.type(units))
    if not np.isfinite(value) or (value == 0 and name not in _CANCELLING):
        return value
    size = np.maximum(abs(value), value.dtype.type(1)) if name in _CANCELLING else abs(value)
    return value + value.dtype.type(units) * np.spacing(size)


def _distance(a: Scalar, b: Scalar) -> float:
    """Tell how far values are apart; no tolerance brings zeros of two signs together."""
    if same_bits(a, b):
        return 0.0
    distance = abs(float(a) - float(b)) if a.dtype.kind == "f" else math.inf
    return distance if distance > 0 else math.inf


def _is_small(spread: float, value: Scalar) -> bool:
    if value.dtype.kind != "f" or spread == 0:
        return spread == 0
    return spread <= MAX_SCATTER[8 * value.dtype.itemsize] * abs(float(value))


def same_bits(a: Any, b: Any) -> Any:
    """Whether values are the same bit for bit; any nan is the same as any other.

    Parameters
    ----------
    a, b : NumPy arrays or scalars
        Of one dtype; otherwise they are different.

    Returns
    -------
    bool or array of bool
        Element by element.
    """
    if a.dtype != b.dtype:
        return np.zeros(np.broadcast_shapes(a.shape, b.shape), bool)[()]
    equal = a == b
    if a.dtype.kind != "f":
        return equal
    return (equal & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def agrees(values: Any, got: Any, tolerance: Any) -> Any:
    """Whether results are as expected; a tolerance of 0 asks for the same bits."""
    with np.errstate(all="ignore"):
        near = np.abs(values.astype("f8") - got.astype("f8")) <= tolerance
        return same_bits(values, got) | ((tolerance > 0) & near)
