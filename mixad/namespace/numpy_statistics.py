"""NumPy's statistics: weighted means and counts, covariances."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mixad.backends.arrays import library_of
from mixad.namespace.array_likes import arrays_of
from mixad.namespace.complex_numbers import conj, imag, is_complex, real
from mixad.namespace.data_types import astype, in_doubles, of_one_type
from mixad.namespace.elementwise import array_beside, elementwise, where
from mixad.namespace.indexing import getitem, scatter_add
from mixad.namespace.joining import broadcast_to, concat
from mixad.namespace.linear_algebra import diagonal, matmul
from mixad.namespace.manipulation import (
    matrix_transpose,
    normalized_axes,
    permute_dims,
    reshape,
    squeeze,
)
from mixad.namespace.masked_reductions import (
    nancumprod,
    nancumsum,
    nanmax,
    nanmean,
    nanmin,
    nanprod,
    nanstd,
    nansum,
    nanvar,
)
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import mean, total
from mixad.scalar.dtypes import element_type_of
from mixad.tape.memory import unshared
from mixad.tape.node import library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["NUMPY_STATISTICS"]

Axis = int | Sequence[int] | None


def bincount(places: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Return for each place the sum of its weights, in 64 bits."""
    if weights is None:  # floats, which NumPy refuses
        return np.bincount(primal_value(places), None, minlength)
    places, library = primal_value(places), library_of_value(weights)
    xp = library.xp
    nothing = xp.zeros(tuple(weights.shape), dtype=weights.dtype, device=weights.device)
    counts = np.bincount(places, nothing, minlength)  # of the library, which may refuse
    library_of(counts)  # raises where that leaves open how many there are
    integer = library.widest("int64")  # booleans are whole numbers here
    at = xp.asarray(places, dtype=integer, copy=True)
    return scatter_add(in_doubles(weights), counts.shape, at)


def average(
    x: Any, axis: Axis = None, weights: Any = None, returned: bool = False, *,
    keepdims: bool = False,
) -> Any:  # fmt: skip
    """Return the weighted mean over axes, with the sum of weights if ``returned``."""
    if weights is None:
        found = mean(x, axis, keepdims=keepdims)
        count = math.prod(x.shape[a] for a in normalized_axes(axis, x.ndim))
        scale: Any = library_of_value(x).xp.full_like(primal_value(found), count)[()]
    else:
        x, weights = arrays_of(x, weights)
        found, scale = _weighted_mean(x, axis, weights, keepdims=keepdims)
    return (found, scale) if returned else found


def _weighted_mean(x: Any, axis: Axis, weights: Any, *, keepdims: bool) -> tuple[Any, Any]:
    if not element_type_of(x.dtype).is_inexact:
        x = in_doubles(x)
    x, weights = of_one_type("average", (x, _weights_along(x, axis, weights)))
    scale = total(weights, axis, keepdims=keepdims)
    library = library_of_value(x)
    if not library.is_lazy and bool(library.xp.any(primal_value(scale) == 0)):
        raise ZeroDivisionError("average() with weights that sum to zero")
    products = total(elementwise("mul", x, weights), axis, keepdims=keepdims)
    found = elementwise("div", products, scale)
    return found, unshared(broadcast_to(scale, tuple(found.shape)))


def _weights_along(x: Any, axis: Axis, weights: Any) -> Any:
    """Return weights of the elements, or of their places along axes, so that they broadcast."""
    shape = tuple(weights.shape)
    if shape == tuple(x.shape):
        return weights
    if axis is None:
        raise TypeError(f"average() of shape {tuple(x.shape)} with weights of {shape}: name axis=")
    axes = normalized_axes(axis, x.ndim)
    if shape != tuple(x.shape[a] for a in axes):
        raise ValueError(
            f"average(axis={axis}) of shape {tuple(x.shape)} with weights of shape {shape}: they "
            "take the shape of these axes, or that of the array"
        )
    weights = permute_dims(weights, sorted(range(len(axes)), key=axes.__getitem__))
    return reshape(weights, [n if a in axes else 1 for a, n in enumerate(x.shape)])


# -- covariances -----------------------------------------------------------------------------------


def cov(
    x: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: int | None = None,
    fweights: Any = None, aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    """Return the covariances of variables, the rows of a matrix or its columns."""
    x = _variables(x, y, rowvar, dtype)
    if not x.shape[0]:
        return library_of_value(x).xp.zeros((0, 0), dtype=x.dtype)
    ddof = int(not bias) if ddof is None else ddof
    frequencies, weights = _frequencies(x, fweights), _weights(x, aweights)
    factors = _product(frequencies, weights)
    center, scale = average(x, 1, factors, True)
    rest = getitem(real(scale), 0)
    if weights is None:
        rest = elementwise("sub", rest, ddof)
    elif ddof:
        squares = total(elementwise("mul", factors, weights))
        rest = elementwise("sub", rest, elementwise("div", elementwise("mul", squares, ddof), rest))
    # Where it is negative the quotients are inf or nan, as NumPy's are.
    rest = where(primal_value(rest) <= 0, 0.0, rest)
    distances = elementwise("sub", x, reshape(center, (-1, 1)))
    others = distances if factors is None else elementwise("mul", distances, factors)
    found = matmul(distances, conj(matrix_transpose(others)))
    return squeeze(elementwise("mul", found, elementwise("div", 1.0, rest)))


def _variables(x: Any, y: Any, rowvar: bool, dtype: Any) -> Any:
    """Return the variables as rows of one matrix."""
    given = arrays_of(*(v for v in (x, y) if v is not None))
    for v in given:
        if v.ndim > 2:
            raise ValueError(f"cov() takes one axis or two, this array has shape {tuple(v.shape)}")
    floats = [in_doubles(v) if dtype is None else astype(v, dtype) for v in given]
    rows = [v if v.ndim == 2 else reshape(v, (1, -1)) for v in of_one_type("cov", floats)]
    if not rowvar:
        turned = [x.ndim == 2, *(row.shape[0] != 1 for row in rows[1:])]
        pairs = zip(rows, turned, strict=True)
        rows = [matrix_transpose(row) if is_turned else row for row, is_turned in pairs]
    return concat(rows, axis=0) if len(rows) > 1 else rows[0]


def _weights(x: Any, weights: Any) -> Any:
    """Return weights of observations as floats."""
    if weights is None:
        return None
    weights = in_doubles(array_beside(weights, x))
    if weights.ndim != 1 or weights.shape[0] != x.shape[1]:
        raise RuntimeError(
            f"cov() of {x.shape[1]} observations with weights of shape {tuple(weights.shape)}"
        )
    if bool(library_of_value(x).xp.any(primal_value(weights) < 0)):
        raise ValueError("cov() takes no negative weights")
    return weights


def _frequencies(x: Any, weights: Any) -> Any:
    found, xp = primal_value(_weights(x, primal_value(weights))), library_of_value(x).xp
    if found is not None and bool(xp.any(found != xp.round(found))):
        raise TypeError("cov() takes fweights that are whole numbers")
    return found


def _product(frequencies: Any, weights: Any) -> Any:
    if frequencies is None or weights is None:
        return weights if frequencies is None else frequencies
    return elementwise("mul", frequencies, weights)


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """Return the correlations of variables: see `cov`.

    Values are clipped to 1 and -1 against rounding; the clip is not differentiated and has no
    corners.
    """
    found = cov(x, y, rowvar, dtype=dtype)
    if not found.ndim:
        return elementwise("div", found, found)
    spread = elementwise("sqrt", real(diagonal(found)))
    found = elementwise("div", elementwise("div", found, reshape(spread, (-1, 1))), spread)
    return elementwise("add", found, _beyond_one(primal_value(found)))


def _beyond_one(x: Any) -> Any:
    """Return the correction that clips the parts of numbers to at most 1."""
    if is_complex(x):
        return _beyond_one(real(x)) + 1j * _beyond_one(imag(x))
    return library_of_value(x).xp.clip(x, -1.0, 1.0) - x


NUMPY_STATISTICS: Mapping[str, BoundFunction] = {
    "bincount": function_of(bincount, "x=places / weights minlength"),
    "average": function_of(average, "a axis weights returned * keepdims"),
    "cov": function_of(cov, "m=x y rowvar bias ddof fweights aweights * dtype"),
    "corrcoef": function_of(corrcoef, "x y rowvar * dtype"),
    "nansum": function_of(nansum, "a axis dtype out keepdims initial where"),
    "nanprod": function_of(nanprod, "a axis dtype out keepdims initial where"),
    "nancumsum": function_of(nancumsum, "a axis dtype out"),
    "nancumprod": function_of(nancumprod, "a axis dtype out"),
    "nanmax": function_of(nanmax, "a axis out keepdims initial where"),
    "nanmin": function_of(nanmin, "a axis out keepdims initial where"),
    "nanmean": function_of(nanmean, "a axis dtype out keepdims * where"),
    "nanvar": function_of(
        nanvar, "a axis dtype out ddof=correction keepdims * where mean correction"
    ),
    "nanstd": function_of(
        nanstd, "a axis dtype out ddof=correction keepdims * where mean correction"
    ),
}
