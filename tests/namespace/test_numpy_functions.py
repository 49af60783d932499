"""NumPy's functions that the standard does not have: values are NumPy's, gradients differences."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest
from derivatives import parts_of

import mixad
from mixad.errors import TracerError
from mixad.namespace.numpy_functions import NUMPY_FUNCTIONS

RNG = np.random.default_rng(11)
X, Y, V = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 4)), RNG.normal(size=5)
T, S = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(4, 4))
SYMMETRIC = S + S.T

CASES: dict[str, tuple[Any, ...]] = {
    "append": (lambda x, v: [np.append(x, v), np.append(x, x * x, 0), np.append(v, [1.0, 2.0])],
               X, V),
    "array_split": (lambda x: [p * p for p in np.array_split(x, 3, axis=1)]
                    + np.array_split(x, [1, 1, 3], 1), X),
    "atleast_1d": (lambda x: np.atleast_1d(x[0, 0]) * np.atleast_1d(x), X),
    "atleast_2d": (lambda x, v: [*np.atleast_2d(v * v, x), np.atleast_2d(v[0])], X, V),
    "atleast_3d": (lambda x, v: [*np.atleast_3d(v * v, x), np.atleast_3d(v[0])], X, V),
    "block": (lambda x, v: np.block([[x, x * x], [v, x[0, :3]]]), X, V),
    "broadcast_arrays": (lambda x, v: [a * a for a in np.broadcast_arrays(x[:, :1], v)], X, V),
    "column_stack": (lambda x, v: np.column_stack([v[:3], x * x, [1.0, 2.0, 3.0]]), X, V),
    "cross": (lambda x, y: [np.cross(x, y[:, 1:]) ** 2,
                            np.cross(x, y[:, :3], axisa=0, axisb=1, axisc=0)], X[:, :3], X + 1),
    "deg2rad": (lambda x: np.deg2rad(x) * np.sin(x), X),
    "degrees": (lambda x: np.degrees(x) * x, X),
    "diag": (lambda s, v: [np.diag(s, 1) ** 2, np.diag(v * v), np.diag(v, -2)], S, V),
    "diagonal": (lambda t: [np.diagonal(t) ** 2, np.diagonal(t, 1, 1, 2) ** 2], T),
    "dsplit": (lambda t: [p * p for p in np.dsplit(t, 2)], T),
    "dstack": (lambda x, v: [np.dstack([x, x * x]), np.dstack([v, v])], X, V),
    "einsum": (lambda x, y: [np.einsum("ij,ij->i", x, y), np.einsum("ij,kj", x, y),
                             np.einsum(x, [0, 1], y, [2, 1], [2, 0])], X, Y),
    "fft.fft2": (lambda x: np.real(np.fft.fft2(x)) ** 2, X),
    "fft.ifft2": (lambda x: np.imag(np.fft.ifft2(x, (4, 4))) ** 2, X),
    "fft.irfft2": (lambda x: np.fft.irfft2(x * x), X),
    "fft.rfft2": (lambda x: np.imag(np.fft.rfft2(x, axes=(1, 0), norm="ortho")) ** 2, X),
    "fix": (lambda x: np.fix(3 * x) * x, X),
    "fliplr": (lambda x: np.fliplr(x) * x, X),
    "flipud": (lambda x: np.flipud(x) * x, X),
    "fmax": (lambda x, y: np.fmax(x, y) * np.fmax(x, 0.1), X, Y),
    "fmin": (lambda x, y: np.fmin(x, y) * np.fmin(0.1, x), X, Y),
    "gradient": (lambda x, v: [g * g for g in np.gradient(x)]
                 + [np.gradient(v, 0.5) ** 2, np.gradient(x, axis=1)], X, V),
    "heaviside": (lambda x: np.heaviside(x, 0.5) * x, X),
    "hsplit": (lambda x, v: [p * p for p in (*np.hsplit(x, 2), *np.hsplit(v, [2]))], X, V),
    "hstack": (lambda x, v: [np.hstack([x, x * x]), np.hstack([v, 2.0])], X, V),
    "i0": (lambda x: np.i0(x) * np.i0(9 * x), X),
    "inner": (lambda x, y, v: [np.inner(x, y), np.inner(v, v), np.inner(v, 2.0)], X, Y, V),
    "kron": (lambda x, v: [np.kron(x, v), np.kron(x, x[:2, :2])], X, V),
    "linalg.eigh": (lambda s: np.linalg.eigh(0.5 * (s + s.T), "U")[0], SYMMETRIC),
    "linalg.eigvalsh": (lambda s: np.linalg.eigvalsh(0.5 * (s + s.T), UPLO="L"), SYMMETRIC),
    "linalg.qr": (lambda t: [np.linalg.qr(t, "r"), *np.linalg.qr(t, mode="reduced"),
                             np.linalg.qr(t[:, :3], "complete")[1]], T.transpose(0, 2, 1)),
    "linalg.svd": (lambda x: np.linalg.svd(x, compute_uv=False), X),
    "linspace": (lambda v: [np.linspace(v[0], v[1], 4) ** 2, np.linspace(v, 2 * v, 3, axis=1) ** 2,
                            np.linspace(0.0, v[2] ** 2, 3, endpoint=False)], V),
    "logaddexp2": (lambda x, y: np.logaddexp2(x, y) * np.logaddexp2(1.0, x), X, Y),
    "meshgrid": (lambda x, v: [g * g for g in np.meshgrid(x[0], v, x[1, :2])], X, V),
    "nan_to_num": (lambda x: np.nan_to_num(x / np.where(X > 1, np.inf, 1)) * x, X),
    "outer": (lambda x, v: [np.outer(x, v), np.outer(v, v), np.outer(v[0], v)], X, V),
    "pad": (lambda x: [np.pad(x, 1) ** 2, np.pad(x, ((0, 1), (2, 0)), "wrap") ** 2,
                       np.pad(x, 1, "constant", constant_values=2.0) ** 2], X),
    "partition": (lambda x: np.partition(x, 1) ** 2, X),
    "ptp": (lambda x, t: [np.ptp(x) ** 2, np.ptp(t, (0, 2)), np.ptp(t, -1, keepdims=True)], X, T),
    "rad2deg": (lambda x: np.rad2deg(x) * x, X),
    "radians": (lambda x: np.radians(x) * x, X),
    "ravel": (lambda x: np.ravel(x) ** 2, X),
    "real_if_close": (lambda x: np.real_if_close(x * (1 + 0j)) ** 2, X),
    "rollaxis": (lambda t: [np.rollaxis(t, 2) ** 2, np.rollaxis(t, 0, 3), np.rollaxis(t, -2, -1)],
                 T),
    "rot90": (lambda t: [np.rot90(t) ** 2, np.rot90(t, -1, (1, 2))], T),
    "sort": (lambda x: [np.sort(x, 0, "heapsort") ** 2, np.sort(x, None, stable=True) ** 2], X),
    "select": (lambda x, y: np.select([X > 0.5, X > 0], [x * x, y], x), X, Y),
    "sinc": (lambda x: np.sinc(x) * np.sinc(0 * x), X),
    "split": (lambda x: [p * p for p in np.split(x, 2, axis=1)] + np.split(x, [1], 0), X),
    "swapaxes": (lambda t: [np.swapaxes(t, 0, -1) ** 2, np.swapaxes(t, 1, 1)], T),
    "trace": (lambda x, t: [np.trace(x) ** 2, np.trace(t, 1, 1, 2), np.trace(t, axis1=2, axis2=0)],
              X, T),
    "vdot": (lambda x, y, v: [np.vdot(x, y) ** 2, np.vdot(v, v), np.vdot(2.0, v[0])], X, Y, V),
    "vsplit": (lambda x: [p * p for p in np.vsplit(x, [1, 2])], X),
    "vstack": (lambda x, v: [np.vstack([x, x * x]), np.vstack((v, v))], X, V),
}  # fmt: skip


def check(f: Any, *arrays: Any) -> None:
    """Compare values with NumPy's, and derivatives in both modes with differences."""
    value, _ = mixad.vjp(f, *arrays)
    for found, wanted in zip(parts_of(value), parts_of(f(*arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, strict=True)
    mixad.check_grads(f, arrays, order=2)


def test_every_function_has_a_case() -> None:
    assert sorted(NUMPY_FUNCTIONS) == sorted(CASES)


@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_numpy(name: str) -> None:
    function, *arrays = CASES[name]
    check(function, *arrays)


@pytest.mark.parametrize("name", CASES)
def test_dtypes_are_those_of_numpy(name: str) -> None:
    function, *arrays = CASES[name]
    arrays = [x.astype("f4") if x.dtype.kind == "f" else x for x in arrays]
    value, _ = mixad.vjp(function, *arrays)
    for found, wanted in zip(parts_of(value), parts_of(function(*arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, strict=True)


NUMPYS_NUMBERS: dict[str, Any] = {
    "roll": lambda x: np.roll(x, np.int64(1)),
    "roll by an array": lambda x: np.roll(x, np.asarray([1, 2]), axis=(0, 1)),
    "tensordot": lambda x: np.tensordot(x, S, axes=np.int64(1)),
    "tensordot of arrays": lambda x: np.tensordot(x, S, axes=(np.asarray([1]), np.int64(0))),
    "broadcast_to": lambda x: np.broadcast_to(x, np.asarray([2, *X.shape])),
    "tile": lambda x: np.tile(x, np.asarray([2, 1])) + np.tile(x, np.int32(1))[:1],
    "reshape": lambda x: np.reshape(x, np.asarray(X.shape[::-1])),
    "sum": lambda x: np.sum(x, axis=np.int64(1)),
    "linspace": lambda x: np.linspace(x[0], np.float64(5.0), np.int64(4)),
    "pad": lambda x: np.pad(x, np.int64(1), constant_values=np.float64(2.0)),
    "gradient": lambda x: np.gradient(x, np.int64(2), axis=np.int64(1)),
    "diff": lambda x: np.diff(x, prepend=0.0, append=np.float64(1.0)),
    "diff along the first axis": lambda x: np.diff(x, axis=0, append=x[0, 0]),
    "inner": lambda x: np.inner(x, 2.0) + np.inner(np.float64(3.0), x),
    "outer": lambda x: np.outer(2.0, x) + np.outer(x[0, 0], x),
    "qr": lambda x: np.linalg.qr(x.T @ x + np.eye(X.shape[1]), "r"),
}


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", NUMPYS_NUMBERS)
def test_numbers_are_taken_as_numpy_takes_them(name: str, dtype: str) -> None:
    function, x = NUMPYS_NUMBERS[name], X.astype(dtype)
    if dtype == "f8":
        check(lambda x: function(x * x), x)
    value, _ = mixad.vjp(function, x)
    np.testing.assert_allclose(value, function(x), rtol=1e-4, atol=1e-5, strict=True)


@pytest.mark.parametrize("name", ["pad", "linspace", "outer"])
def test_arrays_of_other_libraries_are_not_mixed_with_numpys(name: str) -> None:
    function = {
        "pad": lambda x: np.pad(x, 1),
        "linspace": lambda x: np.linspace(x[0, :], 5.0, 4),
        "outer": lambda x: np.outer(x[0, :], x[1, :]),
    }[name]
    value, pullback = mixad.vjp(function, array_api_strict.asarray(X))
    wanted, theirs = mixad.vjp(function, X)
    np.testing.assert_allclose(np.asarray(value), wanted, rtol=1e-13)
    (found,) = pullback(array_api_strict.asarray(np.cos(wanted)))
    np.testing.assert_allclose(np.asarray(found), theirs(np.cos(wanted))[0], rtol=1e-13)


EINSUMS = {
    "ij->ji": (X,),
    "ii->i": (S,),
    "ii": (S,),
    "ij,jk->ik": (X, S),
    "...ij,...jk->...ik": (T, S),
    "k,nk->": (V[:4], X),
    "...k,...nk->...": (X, T[:, :, None, :]),
    "ijk,lji,lli->lki": (T.transpose(1, 2, 0), RNG.normal(size=(2, 4, 3)), T[:, :2, :3]),
    "ij,k": (X, V),
    "bij,bjk,bk->bi": (T, RNG.normal(size=(1, 4, 2)), RNG.normal(size=(2, 2))),
    "a,b->ba": (V, V[:2]),
    "abb->a": (RNG.normal(size=(2, 3, 3)),),
    "ij, ij -> ": (X, Y),
}  # fmt: skip


@pytest.mark.parametrize("subscripts", EINSUMS)
def test_sums_of_products(subscripts: str) -> None:
    arrays = EINSUMS[subscripts]
    check(lambda *x: np.einsum(subscripts, *x, optimize=True) ** 2, *arrays)


@pytest.mark.parametrize(
    ("operands", "match"),
    [(("ij,jk", X), "one group of labels"), (("ijk", X), "axes"), (("ij,ij->i", X, S), "elements")],
)
def test_labels_that_do_not_fit_are_refused(operands: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        mixad.grad(lambda x: np.einsum(operands[0], x, *operands[2:]).sum())(operands[1])


def test_tuples_select_as_lists_do() -> None:
    check(lambda x: x[(0, 2, 0), (1, 1, 3)] ** 2, X)


def test_functions_of_numpy_take_traced_values_of_every_library() -> None:
    x = array_api_strict.asarray(X)
    found = mixad.grad(lambda x: np.sum(np.diag(np.rot90(x)) ** 2))(x)
    assert type(found) is type(x)
    wanted = mixad.grad(lambda x: np.sum(np.diag(np.rot90(x)) ** 2))(X)
    np.testing.assert_allclose(np.from_dlpack(found), wanted)


@pytest.mark.parametrize("name", ["ravel", "swapaxes", "fliplr", "atleast_2d"])
def test_what_is_a_view_in_numpy_is_not_used_after_a_write(name: str) -> None:
    def loss(x: Any) -> Any:
        x = x * 1.0
        view = getattr(np, name)(x, *((0, 1) if name == "swapaxes" else ()))
        x[0, 0] = 2.0
        return view.sum()

    with pytest.raises(TracerError):
        mixad.grad(loss)(X)
