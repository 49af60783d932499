"""Whether a user's rule is linear: in tangents, or in cotangents.

What a rule that is not linear gives is no derivative, and its transpose depends on where it was
recorded.  So a rule is tried at tangents t that are fixed and look random, and at -t: of a linear
one the results are f(-t) = -f(t), and <g, f(t)> = <Jᵀg, t> with the Jᵀ of f at t.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from mixad.backends.arrays import Array, library_of
from mixad.errors import TracerError
from mixad.lifting import entered
from mixad.returning import owned
from mixad.scalar.dtypes import element_type_of
from mixad.tape.cell import Cell
from mixad.tape.tracer import Level, Tracer, plain

__all__ = ["check_odd", "check_transpose", "pairs_of", "plain_values", "trial",
           "trial_tracer"]  # fmt: skip

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def trial_tracer(cell: Cell, own: Level, number: int, sign: int) -> Tracer:
    """Return the tangent at which a rule is tried as an input of a level.

    Parameters
    ----------
    cell : Cell
        That of the argument.
    own : Level
        The level.
    number : int
        Which argument it is: each has other tangents.
    sign : int
        1 or -1: positive numbers, or their negatives.  Where the library is lazy, zeros.
    """
    tangent = owned(cell, None) if cell.library.is_lazy else trial(cell, number, sign)
    return entered(tangent, own, weak=cell.kind.weak)


def trial(cell: Cell, number: int, sign: int) -> Array:
    """Return numbers at which a rule is tried, as `trial_tracer` does."""
    size = math.prod(cell.shape)
    parts = [_spread(size, number), _spread(size, number + 0.5)]
    elements = parts[0] + 1j * parts[1] if cell.type.is_complex else parts[0]
    return cell.library.asarray(sign * elements.reshape(cell.shape), cell.type, cell.device)


def plain_values(tangents: Iterable[Any]) -> list[Any]:
    """Return arrays in place of tracers, None where a tangent is zero."""
    return [None if tangent is None else plain(tangent) for tangent in tangents]


def pairs_of(some: Iterable[Any], others: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return the arrays of two sequences, where neither is zero."""
    pairs = zip(plain_values(some), plain_values(others), strict=True)
    return [(a, b) for a, b in pairs if a is not None and b is not None]


def _spread(size: int, start: float) -> np.ndarray[Any, Any]:
    """Return numbers between 1/2 and 3/2 in no apparent order: multiples of the golden ratio."""
    steps = (np.arange(1.0, size + 1) + math.sqrt(2.0) * start) * _GOLDEN
    return 0.5 + steps - np.floor(steps)


def check_odd(refusal: str, there: Iterable[Any], back: Iterable[Any]) -> None:
    """Refuse a rule whose results do not change their signs with the tangents.

    Parameters
    ----------
    refusal : str
        What is said of a rule that is not linear.
    there, back : iterable of (array or None)
        What the rule gave at the trial tangents and at their negatives; None where it is zero.
    """
    for one, other in zip(there, back, strict=True):
        given = [_wide(each) for each in (one, other) if each is not None]
        if given and math.prod(given[0].shape):
            with np.errstate(invalid="ignore"):  # of inf and -inf
                rest = sum(given[1:], given[0])
            is_finite = library_of(rest).xp.isfinite(rest)
            _check(refusal, _largest(rest, is_finite), _largest(given[0], is_finite), rest)


def _largest(array: Array, counted: Array) -> float:
    xp = library_of(array).xp
    magnitudes = xp.abs(array)
    return float(xp.max(xp.where(counted, magnitudes, xp.zeros_like(magnitudes))))


def check_transpose(
    refusal: str, forward: Sequence[tuple[Any, Any]], backward: Sequence[tuple[Any, Any]]
) -> None:
    """Refuse a rule whose transpose does not belong to what the rule gave.

    Parameters
    ----------
    refusal : str
        What is said of a rule that is not linear.
    forward : sequence of (array, array)
        Cotangents of the results, and what the rule gave.
    backward : sequence of (array, array)
        What was pulled back, and the trial tangents.
    """
    one, size = _product(forward)
    other, more = _product(backward)
    like = next((b for _, b in (*forward, *backward)), None)
    if like is not None and math.isfinite(one - other) and math.isfinite(size + more):
        _check(refusal, abs(one - other), size + more, _wide(like))


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


def _check(refusal: str, rest: float, whole: float, like: Array) -> None:
    """Refuse what is no rounding: two thirds of the digits may be lost in a rule's arithmetic."""
    is_single = element_type_of(like.dtype).name in ("f32", "c64")
    eps = float(np.finfo(np.float32 if is_single else np.float64).eps)
    if rest > eps ** (1 / 3) * whole:
        raise TracerError(refusal)
