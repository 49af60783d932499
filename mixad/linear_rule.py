"""Whether a rule, of which the other mode takes the transpose, is linear.

The transpose of what is not linear depends on the tangents at which it was recorded, and no
cotangent knows these.  So a rule is tried at tangents t and u that are fixed and look random, and
at t + u: of a linear one the results are f(t + u) = f(t) + f(u), and <g, f(t)> = <Jᵀg, t> with the
Jᵀ of f at t.  A rule for cotangents is tried in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.scalar.dtypes import element_type_of
from mixad.tape.cell import Cell

__all__ = ["TRIALS", "check_additive", "check_transpose", "trial"]

TRIALS = range(3)
"""Of `trial`: at t, at u, and at their sum."""

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def trial(cell: Cell, number: int, which: int) -> Array:
    """Return a tangent, or a cotangent, at which a rule is tried.

    Those of t are positive, those of u of both signs.

    Parameters
    ----------
    cell : Cell
        That of the argument, or of the result.
    number : int
        Which argument it is: each has other tangents.
    which : int
        Which of `TRIALS`.
    """
    size = math.prod(cell.shape)
    t, u = (_spread(size, number + start, cell.type.is_complex) for start in (0.0, 0.25))
    elements = (t, 2.0 * u - 2.0, t + (2.0 * u - 2.0))[which]
    return cell.library.asarray(elements.reshape(cell.shape), cell.type, cell.device)


def _spread(size: int, start: float, is_complex: bool) -> np.ndarray[Any, Any]:
    """Return numbers between 1/2 and 3/2 in no apparent order: multiples of the golden ratio."""
    steps = (np.arange(1.0, size + 1) + math.sqrt(2.0) * start) * _GOLDEN
    found = 0.5 + steps - np.floor(steps)
    return found + 1j * _spread(size, start + 0.5, False) if is_complex else found


def check_additive(name: str, what: str, tried: Sequence[Sequence[Any]]) -> None:
    """Refuse a rule whose result at a sum is not the sum of its results.

    Parameters
    ----------
    name : str
        The function that the rule is of.
    what : str
        What the rule takes and how to mend it, for messages.
    tried : sequence of sequence of (array or None)
        For each of `TRIALS`, what the rule gave; None where it is zero.
    """
    for results in zip(*tried, strict=True):
        given = [(_wide(each), sign) for each, sign in zip(results, (1, 1, -1), strict=True)
                 if each is not None]  # fmt: skip
        if given and math.prod(given[0][0].shape):
            with np.errstate(invalid="ignore"):  # of inf and -inf
                rest = sum((sign * each for each, sign in given[1:]), given[0][1] * given[0][0])
            is_finite = library_of(rest).xp.isfinite(rest)
            whole = max(_largest(each, is_finite) for each, _ in given)
            _check(name, what, _largest(rest, is_finite), whole, rest)


def _largest(array: Array, counted: Array) -> float:
    xp = library_of(array).xp
    magnitudes = xp.abs(array)
    return float(xp.max(xp.where(counted, magnitudes, xp.zeros_like(magnitudes))))


def check_transpose(
    name: str,
    what: str,
    forward: Sequence[tuple[Any, Any]],
    backward: Sequence[tuple[Any, Any]],
) -> None:
    """Refuse a rule whose transpose does not belong to what the rule gave.

    Parameters
    ----------
    name, what : str
        As for `check_additive`.
    forward : sequence of (array, array)
        Cotangents of the results, and what the rule gave.
    backward : sequence of (array, array)
        What was pulled back, and the trial tangents.
    """
    one, size = _product(forward)
    other, more = _product(backward)
    like = next((b for _, b in (*forward, *backward)), None)
    if like is not None and math.isfinite(one - other) and math.isfinite(size + more):
        _check(name, what, abs(one - other), size + more, _wide(like))


def _product(pairs: Sequence[tuple[Any, Any]]) -> tuple[float, float]:
    """Return the real inner product of arrays, and that of their magnitudes."""
    found = [_inner(_wide(a), _wide(b)) for a, b in pairs]
    return math.fsum(p for p, _ in found), math.fsum(s for _, s in found)


def _inner(a: Array, b: Array) -> tuple[float, float]:
    xp = library_of(b).xp
    is_complex = element_type_of(b.dtype).is_complex
    product = xp.real(xp.conj(a) * b) if is_complex else a * b
    return float(xp.sum(product)), float(xp.sum(xp.abs(product)))


def _wide(array: Array) -> Array:
    """Return an array in the type in which its elements are computed."""
    library, type = library_of(array), element_type_of(array.dtype)
    return library.xp.astype(array, library.dtype_of(type.arithmetic)) if type.is_narrow else array


def _check(name: str, what: str, rest: float, whole: float, like: Array) -> None:
    """Refuse what is no rounding: two thirds of the digits may be lost in a rule's arithmetic."""
    is_single = element_type_of(like.dtype).name in ("f32", "c64")
    eps = float(np.finfo(np.float32 if is_single else np.float64).eps)
    if rest > eps ** (1 / 3) * whole:
        raise TracerError(f"{name}: {what}")
