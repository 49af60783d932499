"""Whether an operator is associative, tried at some places of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad.constructs.operators import Combination
from mixad.errors import KernelError
from mixad.tape.tracer import primal_value

__all__ = ["check_elements"]

_TRIALS = 64
"""Places to try."""

_ROUNDING = 1e5
"""Largest difference of two results, in spacings of the largest number beside them."""


def check_elements(
    name: str, combination: Combination, leaves: Sequence[Any], shape: tuple[int, ...], axis: int
) -> None:
    """Raise if an operator is not associative at some places of an axis of arrays.

    ``shape`` is that of the arrays without the axes of an element.
    """
    last = shape[axis] - 2
    places = range(0, last, max(1, -(-last // _TRIALS)))
    if not places or 0 in shape:
        return
    key = (slice(None),) * axis
    parts = (slice(k, k + last, places.step) for k in range(3))
    a, b, c = ([primal_value(leaf)[(*key, part, ...)] for leaf in leaves] for part in parts)
    combine = combination.combine
    results = combine(combine(a, b), c), combine(a, combine(b, c))
    tried = [[np.asarray(primal_value(leaf)) for leaf in each] for each in (a, b, c, *results)]
    sizes = _sizes(tried, len(shape))
    for one, other in zip(*tried[3:], strict=True):
        wrong = ~_are_close(one, other, sizes)
        if wrong.any():
            place = tuple(int(i[0]) for i in np.nonzero(wrong))[: len(shape)]
            raise _not_associative(name, combination, tried, place)


def _sizes(elements: Sequence[Sequence[Any]], count: int) -> Any:
    """Return the largest finite number at each place of elements; a place has some axes."""
    sizes: Any = 0.0
    for leaf in (leaf for each in elements for leaf in each):
        if leaf.dtype.kind == "f":
            finite = np.where(np.isfinite(leaf), np.abs(leaf), 0.0)
            own = tuple(range(count, finite.ndim))
            sizes = np.maximum(sizes, np.max(finite, axis=own, keepdims=True))
    return sizes


def _are_close(one: Any, other: Any, sizes: Any) -> Any:
    """Return where two results agree up to rounding of numbers of some sizes."""
    if one.dtype.kind != "f":
        return one == other
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= _ROUNDING * np.finfo(one.dtype).eps * sizes
    return near | (one == other) | (np.isnan(one) & np.isnan(other))


def _not_associative(
    name: str, combination: Combination, elements: Sequence[Sequence[Any]], place: tuple[int, ...]
) -> KernelError:
    shown = [", ".join(str(leaf[place].tolist()) for leaf in each) for each in elements]
    a, b, c, left, right = (f"({text})" if len(elements[0]) > 1 else text for text in shown)
    return KernelError.at(
        combination.place,
        f"mixad.{name}: {combination.name} is not associative: with a = {a}, b = {b}, c = {c}, "
        f"(a∘b)∘c is {left} and a∘(b∘c) is {right}",
        "an operator for which these are one, or mixad.scan, which takes steps in order",
    )
