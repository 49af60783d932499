"""Objects with labels around arrays, and lazy arrays of libraries that nobody knows: refused.

xarray and pandas are not among the packages for tests: pandas alone is larger than all that
mixad requires. Where they are installed, what the messages say is tried with them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelTypeError, TracerError

X = np.asarray([[0.1, 0.5, 2.0], [0.2, 0.4, 3.0]])


@mixad.broadcast
def folded(x, y):
    return x * y if x > 0.3 else x + y


def by_hand(x: Any, y: Any) -> tuple[Any, Any]:
    """Return values and derivatives with respect to the first argument."""
    return np.where(x > 0.3, x * y, x + y), np.where(x > 0.3, y, 1.0)


def _kind(module: str, name: str, **attributes: Any) -> Any:
    return type(name, (), {"__module__": module, **attributes})()


KINDS = {
    "xarray.DataArray": (_kind("xarray.core.dataarray", "DataArray"), "apply_ufunc"),
    "xarray.Dataset": (_kind("xarray.core.dataset", "Dataset", data_vars={}), '"name"].data'),
    "pandas.Series": (_kind("pandas", "Series"), "pass x.to_numpy()"),
    "pandas.DataFrame": (_kind("pandas", "DataFrame", columns=[]), '"name"].to_numpy()'),
    "polars.Series": (_kind("polars.series.series", "Series"), "pass x.to_numpy()"),
}


@pytest.mark.rows("kind", KINDS)
def test_objects_with_labels_are_refused_with_a_way_to_their_arrays(kind: str) -> None:
    value, way = KINDS[kind]
    name = f"is a {type(value).__name__}\n.*{re.escape(way)}"
    with pytest.raises(KernelTypeError, match=name):
        folded(value, 1.0)
    with pytest.raises(TracerError, match=f"contains a {type(value).__name__}.*{re.escape(way)}"):
        mixad.grad(lambda x: x.sum())(value)


def test_results_with_labels_are_refused_with_a_way_to_their_arrays() -> None:
    result = _kind("xarray.core.dataarray", "DataArray", data=X)
    with pytest.raises(TracerError, match=r"returned a DataArray.*return x\.data"):
        mixad.grad(lambda x: result)(2.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows("dask", ["allowed", "parallelized"])
def test_apply_ufunc_calls_kernels_on_arrays_of_xarray(dask: str) -> None:
    xr = pytest.importorskip("xarray")
    labelled = xr.DataArray(X, dims=("row", "column"), coords={"row": [10, 20]})
    found = xr.apply_ufunc(folded, labelled, 2.0)
    np.testing.assert_array_equal(found.values, by_hand(X, 2.0)[0])
    np.testing.assert_array_equal(found.row, [10, 20])
    slope = mixad.grad(lambda x: folded(x, 2.0).sum())
    np.testing.assert_array_equal(xr.apply_ufunc(slope, labelled).values, by_hand(X, 2.0)[1])
    chunked = labelled.chunk({"row": 1})
    types = {"output_dtypes": [float]} if dask == "parallelized" else {}
    for f, want in ((lambda x: folded(x, 2.0), 0), (slope, 1)):
        lazy = xr.apply_ufunc(f, chunked, dask=dask, **types)
        assert lazy.chunks == chunked.chunks
        np.testing.assert_array_equal(lazy.compute().values, by_hand(X, 2.0)[want])


@pytest.mark.filterwarnings("ignore")
def test_arrays_of_xarray_inside_of_transforms() -> None:
    xr = pytest.importorskip("xarray")
    labelled = xr.DataArray(X, dims=("row", "column"))
    want = np.where(X > 0.3, X, 1.0).sum()
    for data in (labelled, labelled.chunk({"row": 1})):
        loss = lambda w: xr.apply_ufunc(folded, data, w, dask="allowed").data.sum()  # noqa: B023, E731
        np.testing.assert_allclose(np.asarray(mixad.grad(loss)(2.0)), want, rtol=1e-15)
        loss = lambda w: folded(data.data, w).sum()  # noqa: B023, E731
        np.testing.assert_allclose(np.asarray(mixad.grad(loss)(2.0)), want, rtol=1e-15)
    with pytest.raises(TracerError, match=r"returned a DataArray.*return x\.data"):
        mixad.grad(lambda w: (labelled * w).sum())(2.0)
    with pytest.raises(KernelTypeError, match="apply_ufunc"):
        folded(labelled, 2.0)


def test_columns_of_pandas_as_arrays() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=list("abc"))
    for value, way in ((frame["a"], "to_numpy"), (frame, "columns"), (frame.index, "to_numpy")):
        with pytest.raises(KernelTypeError, match=way):
            folded(value, 2.0)
    found = mixad.grad(lambda x: folded(x, 2.0).sum())(frame["b"].to_numpy())
    np.testing.assert_array_equal(found, by_hand(X[:, 1], 2.0)[1])


class Later:
    """An array whose elements are not there, of a library that nobody knows."""

    shape, ndim, dtype, size = (3,), 1, np.dtype(float), 3

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        return np

    def compute(self) -> Any:
        raise AssertionError


def test_lazy_arrays_of_other_libraries_are_refused_by_name() -> None:
    calls: list[Callable[[], Any]] = [
        lambda: folded(Later(), 2.0),
        lambda: mixad.grad(lambda x: x.sum())(Later()),
    ]
    for call in calls:
        with pytest.raises(KernelTypeError, match=r"Later is not supported: its.*\n.*map_blocks"):
            call()
