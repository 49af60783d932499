"""NumPy's functions that the standard does not have: values are NumPy's, gradients differences."""

from __future__ import annotations

import functools
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
KNOTS = [-1.5, -0.7, 0.0, 0.4, 1.2]
HOLES = np.where(np.abs(X) < 0.4, np.nan, 1.0)
MODES = ("full", "same", "valid")
METHODS = ("linear", "lower", "higher", "midpoint")


windows = np.lib.stride_tricks.sliding_window_view


def without_nans(function: Any, x: Any) -> list[Any]:
    x = x * HOLES
    return [function(x) ** 2, function(x, 0), function(x, axis=(0, 1), keepdims=True)]


CASES: dict[str, tuple[Any, ...]] = {
    "add.accumulate": (lambda x: [np.add.accumulate(x) ** 2, np.add.accumulate(x, axis=1)], X),
    "add.outer": (lambda x, v: [np.add.outer(x, v) ** 2, np.add.outer(v, 2.0)], X, V),
    "add.reduce": (lambda x: [np.add.reduce(x) ** 2, np.add.reduce(x, None),
                              np.add.reduce(x, 1, keepdims=True, initial=2.0, where=X > 0)], X),
    "append": (lambda x, v: [np.append(x, v), np.append(x, x * x, 0), np.append(v, [1.0, 2.0])],
               X, V),
    "average": (lambda x, y, v: [np.average(x), np.average(x, 1, keepdims=True) ** 2,
                                 np.average(x, weights=y * y), *np.average(x, 0, v[:3] ** 2, True),
                                 np.average(x, axis=-1, weights=[1, 2, 3, 4]),
                                 *np.average(x[:, :, None] * v, (2, 0), (v[:, None] * v[:3]) ** 2,
                                             returned=True)], X, Y, V),
    "array_split": (lambda x: [p * p for p in np.array_split(x, 3, axis=1)]
                    + np.array_split(x, [1, 1, 3], 1), X),
    "atleast_1d": (lambda x: np.atleast_1d(x[0, 0]) * np.atleast_1d(x), X),
    "atleast_2d": (lambda x, v: [*np.atleast_2d(v * v, x), np.atleast_2d(v[0])], X, V),
    "atleast_3d": (lambda x, v: [*np.atleast_3d(v * v, x), np.atleast_3d(v[0])], X, V),
    "bincount": (lambda x, v: [np.bincount([3, 0, 3, 5, 0], v) ** 2,
                               np.bincount([1, 1, 0, 2], weights=x[0], minlength=5),
                               np.bincount([True, False, True, True], x[1])], X, V),
    "block": (lambda x, v: np.block([[x, x * x], [v, x[0, :3]]]), X, V),
    "broadcast_arrays": (lambda x, v: [a * a for a in np.broadcast_arrays(x[:, :1], v)], X, V),
    "diagflat": (lambda x, v: [np.diagflat(x[:2]) * 2, np.diagflat(v[:2], -1)], X, V),
    "extract": (lambda x: [np.extract(X > 0, x) ** 2, np.extract([1, 0, 1], x)], X),
    "where": (lambda x, v: [np.where(X > 0, x * x, v[:4]), np.where([1, 0, 1, 0], 2.0, v[:4]),
                            np.where(X > 0, x, 0.5)], X, V),
    "vander": (lambda v: [np.vander(v), np.vander(v, 3), np.vander(v - V, increasing=True),
                          np.vander(v, 1), np.vander(v, N=0)], V),
    "column_stack": (lambda x, v: np.column_stack([v[:3], x * x, [1.0, 2.0, 3.0]]), X, V),
    "compress": (lambda x: [np.compress([True, False, True], x, axis=0) ** 2,
                            np.compress(X[0] > 0, x, 1), x.compress([False, True])], X),
    "convolve": (lambda x, v: [np.convolve(v * v, x[0]), np.convolve(x[0], v, "same"),
                               np.convolve(x[1], v, mode="valid"), np.convolve([1.0, 2.0], v),
                               np.convolve(v, v), np.convolve(v[0], v)], X, V),
    "corrcoef": (lambda x, y: [np.corrcoef(x), np.corrcoef(x, y, rowvar=False),
                               np.corrcoef(x[0], y[0]), np.corrcoef(x[:2, :2])], X, Y),
    "correlate": (lambda x, v: [np.correlate(v * v, x[0], mode) for mode in MODES]
                  + [np.correlate(x[0], v, mode) for mode in MODES]
                  + [np.correlate(x[0], v[:3], mode) for mode in MODES], X, V),
    "cov": (lambda x, y, v: [np.cov(x), np.cov(x, y, False), np.cov(x, bias=True), np.cov(v),
                             np.cov(x, ddof=2), np.cov(x, aweights=v[:4] ** 2),
                             np.cov(x[0], y[0], fweights=[1, 2, 3, 1], aweights=v[:4] ** 2),
                             np.cov(x, fweights=[1, 2, 3, 1]), np.cov(v, x[0, 0] * v, False)],
            X, Y, V),
    "cross": (lambda x, y: [np.cross(x, y[:, 1:]) ** 2,
                            np.cross(x, y[:, :3], axisa=0, axisb=1, axisc=0)], X[:, :3], X + 1),
    "deg2rad": (lambda x: np.deg2rad(x) * np.sin(x), X),
    "degrees": (lambda x: np.degrees(x) * x, X),
    "delete": (lambda x: [np.delete(x, 1, 0) ** 2, np.delete(x, [0, -1]), np.delete(x, X[0] > 0, 1),
                          np.delete(x, slice(1, None, 2), -1)], X),
    "diag": (lambda s, v: [np.diag(s, 1) ** 2, np.diag(v * v), np.diag(v, -2)], S, V),
    "diagonal": (lambda t: [np.diagonal(t) ** 2, np.diagonal(t, 1, 1, 2) ** 2], T),
    "dot": (lambda x, s, v: [np.dot(x, s), np.dot(v, v), np.dot(2.0, x), np.dot(x, v[0])], X, S, V),
    "dsplit": (lambda t: [p * p for p in np.dsplit(t, 2)], T),
    "divide.outer": (lambda x, v: np.divide.outer(x, v), X, V),
    "dstack": (lambda x, v: [np.dstack([x, x * x]), np.dstack([v, v])], X, V),
    "einsum": (lambda x, y: [np.einsum("ij,ij->i", x, y), np.einsum("ij,kj", x, y),
                             np.einsum(x, [0, 1], y, [2, 1], [2, 0]), np.einsum(x, [0, 30]),
                             np.einsum(x, [51, 25], y, [51, 26])], X, Y),
    "fft.fft2": (lambda x: np.real(np.fft.fft2(x)) ** 2, X),
    "fft.ifft2": (lambda x: np.imag(np.fft.ifft2(x, (4, 4))) ** 2, X),
    "fft.irfft2": (lambda x: np.fft.irfft2(x * x), X),
    "fft.rfft2": (lambda x: np.imag(np.fft.rfft2(x, axes=(1, 0), norm="ortho")) ** 2, X),
    "fix": (lambda x: np.fix(3 * x) * x, X),
    "fliplr": (lambda x: np.fliplr(x) * x, X),
    "flipud": (lambda x: np.flipud(x) * x, X),
    "float_power": (lambda x, y: [np.float_power(x * x, y), np.float_power(2, x)], X, Y),
    "fmax": (lambda x, y: np.fmax(x, y) * np.fmax(x, 0.1), X, Y),
    "fmin": (lambda x, y: np.fmin(x, y) * np.fmin(0.1, x), X, Y),
    "gradient": (lambda x, v: [g * g for g in np.gradient(x)]
                 + [np.gradient(v, 0.5) ** 2, np.gradient(x, axis=1), np.gradient(v, edge_order=2),
                    np.gradient(x * x, 2.0, [0.0, 1.0, 1.5, 4.0])[1],
                    np.gradient(v, v[0], edge_order=2), np.gradient(x, np.exp(v[:4]), axis=1),
                    np.gradient(v, np.exp(v), edge_order=2), np.gradient(X, np.exp(v[:3]), axis=0)],
                 X, V),
    "heaviside": (lambda x: np.heaviside(x, 0.5) * x, X),
    "hsplit": (lambda x, v: [p * p for p in (*np.hsplit(x, 2), *np.hsplit(v, [2]))], X, V),
    "hstack": (lambda x, v: [np.hstack([x, x * x]), np.hstack([v, 2.0])], X, V),
    "i0": (lambda x: np.i0(x) * np.i0(9 * x), X),
    "inner": (lambda x, y, v: [np.inner(x, y), np.inner(v, v), np.inner(v, 2.0)], X, Y, V),
    "insert": (lambda x, v: [np.insert(x, 1, v[:4] ** 2, axis=0), np.insert(x, [0, 3], v[:2]),
                             np.insert(x, [1, 2], v[:3, None], 1), np.insert(X, 1, v[0], -1),
                             np.insert(v, 2, 3.0)], X, V),
    "interp": (lambda x, v: [np.interp(x, KNOTS, v), np.interp(0.3, KNOTS, v * v),
                             np.interp(v, np.sort(x[0]), x[1] ** 2, left=-1.0, right=v[0]),
                             np.interp(X, KNOTS, np.exp(1j * v)).real,
                             np.interp(v, x[0, :1], v[:1]),
                             np.interp(x, v, v * v, period=1.5)], X, V),
    "kron": (lambda x, v: [np.kron(x, v), np.kron(x, x[:2, :2])], X, V),
    "linalg.cond": (lambda s, x: [np.linalg.cond(s), np.linalg.cond(x, -2), np.linalg.cond(x)]
                    + [np.linalg.cond(s, p) for p in ("fro", "nuc", 1, -1, np.inf, -np.inf)], S, X),
    "linalg.eigh": (lambda s: np.linalg.eigh(0.5 * (s + s.T), "U")[0], SYMMETRIC),
    "linalg.eigvalsh": (lambda s: np.linalg.eigvalsh(0.5 * (s + s.T), UPLO="L"), SYMMETRIC),
    "linalg.lstsq": (lambda x, v: [p for p in np.linalg.lstsq(x.T, v[:4]) if np.size(p) > 1]
                     + [np.linalg.lstsq(x, x * x)[0], *np.linalg.lstsq(x.T, x.T ** 2)[:2],
                        np.linalg.lstsq(S, v[:4], rcond=None)[0]], X, V),
    "linalg.multi_dot": (lambda x, y, v: [np.linalg.multi_dot([x, y.T, x]),
                                          np.linalg.multi_dot([v[:3], x, y.T, x, v[:4]]),
                                          np.linalg.multi_dot([v[:4], v[:4]])], X, Y, V),
    "linalg.qr": (lambda t: [np.linalg.qr(t, "r"), *np.linalg.qr(t, mode="reduced"),
                             np.linalg.qr(t[:, :3], "complete")[1]], T.transpose(0, 2, 1)),
    "linalg.svd": (lambda x: np.linalg.svd(x, compute_uv=False), X),
    "lib.stride_tricks.sliding_window_view": (
        lambda x, v: [windows(v, 4) ** 2, windows(x, (2, 3)), windows(x, (2, 2), (1, 1)),
                      windows(x, 2, axis=-1, writeable=False)], X, V),
    "linspace": (lambda v: [np.linspace(v[0], v[1], 4) ** 2, np.linspace(v, 2 * v, 3, axis=1) ** 2,
                            np.linspace(0.0, v[2] ** 2, 3, endpoint=False)], V),
    "logaddexp2": (lambda x, y: np.logaddexp2(x, y) * np.logaddexp2(1.0, x), X, Y),
    "matvec": (lambda x, t, v: [np.matvec(x, v[:4]) ** 2, np.matvec(t, x[:2, None]) ** 2,
                                np.matvec(T, v[:4]), np.matvec(x, T), np.matvec(x[:, :0], v[:0])],
               X, T, V),
    "maximum.outer": (lambda x, v: np.maximum.outer(x, v) ** 2, X, V),
    "maximum.reduce": (lambda x: [np.maximum.reduce(x) ** 2, np.maximum.reduce(x, 1, initial=0.2),
                                  np.maximum.reduce(x, axis=(0, 1), keepdims=True)], X),
    "median": (lambda x, t: [np.median(x) ** 2, np.median(x, 0), np.median(x, -1, keepdims=True),
                             np.median(t, (0, 2)), np.median(t, (0, 1), keepdims=True)], X, T),
    "meshgrid": (lambda x, v: [g * g for g in np.meshgrid(x[0], v, x[1, :2])], X, V),
    "minimum.outer": (lambda x, v: np.minimum.outer(x, v) ** 2, X, V),
    "minimum.reduce": (lambda x: np.minimum.reduce(x, 1, initial=0.2, where=X > -0.5) ** 2, X),
    "modf": (lambda x: [p * x for p in np.modf(3 * x)], X),
    "multiply.accumulate": (lambda x: np.multiply.accumulate(x, 1) ** 2, X),
    "multiply.outer": (lambda x, v: np.multiply.outer(x, v) ** 2, X, V),
    "multiply.reduce": (lambda x: [np.multiply.reduce(x) ** 2,
                                   np.multiply.reduce(x, 1, initial=3.0, where=X > -0.5)], X),
    **{f"nan{name}": (functools.partial(without_nans, getattr(np, f"nan{name}")), X)
       for name in ("sum", "prod", "mean", "max", "min", "var", "std")},
    "nancumprod": (lambda x: [np.nancumprod(x * HOLES) ** 2, np.nancumprod(x * HOLES, axis=1)], X),
    "nancumsum": (lambda x: [np.nancumsum(x * HOLES) ** 2, np.nancumsum(x * HOLES, 0)], X),
    "nanmedian": (lambda x, t: [*without_nans(np.nanmedian, x), np.nanmedian(t, 1)], X, T),
    "nanpercentile": (lambda x, t: [np.nanpercentile(x * HOLES, [37, 80.0], 0, keepdims=True) ** 2,
                                    np.nanpercentile(t, 12.5, axis=(0, -1))], X, T),
    "nanquantile": (lambda x, t: [np.nanquantile(x * HOLES, q) ** 2 for q in (0, 0.2, 0.75, 1)]
                    + [np.nanquantile(t, [[0.1, 0.5], [0.0, 1.0]], axis=1),
                       np.nanquantile(x * HOLES, np.asarray([0.35, 0.4]), 1, keepdims=True)]
                    + [np.nanquantile(x * HOLES, [0.5, 0.62], 0, method=m) for m in METHODS],
                    X, T),
    "nan_to_num": (lambda x: np.nan_to_num(x / np.where(X > 1, np.inf, 1)) * x, X),
    "outer": (lambda x, v: [np.outer(x, v), np.outer(v, v), np.outer(v[0], v)], X, V),
    "pad": (lambda x: [np.pad(x, 1) ** 2, np.pad(x, ((0, 1), (2, 0)), "wrap") ** 2,
                       np.pad(x, 1, "constant", constant_values=2.0) ** 2,
                       np.pad(x[:0], 1) + np.pad(x[:0] * x[:0], 1, constant_values=2.0)], X),
    "partition": (lambda x: np.partition(x, 1) ** 2, X),
    "percentile": (lambda x: [np.percentile(x, 30) ** 2, np.percentile(x, [10, 55.0], axis=0),
                              np.percentile(x, 100, 1, keepdims=True)], X),
    "piecewise": (lambda x: [
        np.piecewise(x, [X < 0, X > 0.5], [lambda v: v * v, 2.0, np.exp]),
        np.piecewise(x, [X < 0.3, X < 0], [lambda v, a: a * v, lambda v, a: v[:1] * a], 3.0),
        np.piecewise(x[0], X[0] < 0, [-1, lambda v: v ** 3]),
        np.piecewise(x[0, 0], True, [np.sin])], X),
    "polyval": (lambda x, v: [np.polyval(v, x), np.polyval([1.0, 2.0, 3.0], x), np.polyval(v, 2.0),
                              np.polyval(x, v[0])], X, V),
    "power.outer": (lambda x, v: np.power.outer(x * x, v), X, V),
    "ptp": (lambda x, t: [np.ptp(x) ** 2, np.ptp(t, (0, 2)), np.ptp(t, -1, keepdims=True)], X, T),
    "quantile": (lambda x, t: [np.quantile(x, q) ** 2 for q in (0, 0.0, 0.2, 0.75, 1, 1.0)]
                 + [np.quantile(t, [[0.1, 0.5], [0.0, 1.0]], axis=(0, -1)),
                    np.quantile(t, np.asarray([0.35, 0.4]), 1, keepdims=True)]
                 + [np.quantile(x, [0.5, 0.62], 0, method=m) for m in METHODS], X, T),
    "rad2deg": (lambda x: np.rad2deg(x) * x, X),
    "radians": (lambda x: np.radians(x) * x, X),
    "ravel": (lambda x: np.ravel(x) ** 2, X),
    "real_if_close": (lambda x: np.real_if_close(x * (1 + 0j)) ** 2, X),
    "resize": (lambda x: [np.resize(x, (5, 3)) ** 2, np.resize(x, 4), np.resize(x[:0], 2)], X),
    "rollaxis": (lambda t: [np.rollaxis(t, 2) ** 2, np.rollaxis(t, 0, 3), np.rollaxis(t, -2, -1)],
                 T),
    "rot90": (lambda t: [np.rot90(t) ** 2, np.rot90(t, -1, (1, 2))], T),
    "sort": (lambda x: [np.sort(x, 0, "heapsort") ** 2, np.sort(x, None, stable=True) ** 2], X),
    "select": (lambda x, y: np.select([X > 0.5, X > 0], [x * x, y], x), X, Y),
    "sinc": (lambda x: np.sinc(x) * np.sinc(0 * x), X),
    "split": (lambda x: [p * p for p in np.split(x, 2, axis=1)] + np.split(x, [1], 0), X),
    "subtract.outer": (lambda x, v: np.subtract.outer(x, v) ** 2, X, V),
    "swapaxes": (lambda t: [np.swapaxes(t, 0, -1) ** 2, np.swapaxes(t, 1, 1)], T),
    "trace": (lambda x, t: [np.trace(x) ** 2, np.trace(t, 1, 1, 2), np.trace(t, axis1=2, axis2=0)],
              X, T),
    "tensordot": (lambda x, t, s: [np.tensordot(x, s, 1), np.tensordot(t, x, ([1, 2], [0, 1])) ** 2,
                                   np.tensordot(x, 2.0, 0)], X, T, S),
    "linalg.tensordot": (lambda x, s: [np.linalg.tensordot(x, s, axes=1) ** 2,
                                       np.linalg.tensordot(x, 2.0, axes=0)], X, S),
    "trapezoid": (lambda x, y, v: [np.trapezoid(x), np.trapezoid(x * x, dx=v[0], axis=0),
                                   np.trapezoid(x, dx=[0.5, 1, 2]), np.trapezoid(x, v[:4] ** 3),
                                   np.trapezoid(x, y, axis=0),
                                   np.trapezoid([1.0, 2.0, 4.0], v[:3]),
                                   np.trapezoid(x, T * y, axis=-1), np.trapezoid(T * x, y, axis=-2),
                                   np.trapezoid(y, v[:3], axis=-2)], X, Y, V),
    "tril": (lambda x, v: [np.tril(x, 1) ** 2, np.tril(v) ** 2, np.tril(v, -1)], X, V),
    "triu": (lambda x, v: [np.triu(x, -1) ** 2, np.triu(v) ** 2, np.triu(v, k=1)], X, V),
    "unwrap": (lambda x, v: [np.unwrap(9 * v) ** 2, np.unwrap(9 * x, axis=0, period=3.0)], X, V),
    "vdot": (lambda x, y, v: [np.vdot(x, y) ** 2, np.vdot(v, v), np.vdot(2.0, v[0])], X, Y, V),
    "vecmat": (lambda x, t, v: [np.vecmat(v[:3], x) ** 2, np.vecmat(x[:2, None, :3], t) ** 2,
                                np.vecmat(v[:3], T), np.vecmat(T[..., 0], x),
                                np.vecmat(v[:0], x[:0])], X, T, V),
    "vsplit": (lambda x: [p * p for p in np.vsplit(x, [1, 2])], X),
    "vstack": (lambda x, v: [np.vstack([x, x * x]), np.vstack((v, v))], X, V),
}  # fmt: skip


def check(f: Any, *arrays: Any) -> None:
    """Compare values with NumPy's, and derivatives in both modes with differences."""
    value, _ = mixad.vjp(f, *arrays)
    for found, wanted in zip(parts_of(value), parts_of(f(*arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, strict=True)
    mixad.check_grads(f, arrays, order=2)


COMPLEX: dict[str, Any] = {
    "average": lambda z: np.average(z * z, 0, [1.0, 2.0, 3.0]),
    "convolve": lambda z: np.convolve(z[0], z[1, :3], "same"),
    "corrcoef": lambda z: np.corrcoef(z)[0],
    "correlate": lambda z: np.correlate(z[0, :3], z[1], "full"),
    "cov": lambda z: np.cov(z, aweights=[1.0, 2.0, 3.0, 1.0]),
    "delete": lambda z: np.delete(z, 1, 0) ** 2,
    "float_power": lambda z: np.float_power(z, 2 + z),
    "gradient": lambda z: np.gradient(z, [0.0, 1.0, 3.0, 3.5], axis=1, edge_order=2) ** 2,
    "interp": lambda z: np.interp(z[0].real, KNOTS[:4], z[1] * z[2]),
    "linalg.cond": lambda z: [np.linalg.cond(z), np.linalg.cond(z[:, :3], "fro")],
    "linalg.lstsq": lambda z: [
        *np.linalg.lstsq(z.T, z[0] ** 2)[:2],
        np.linalg.lstsq(z, z[:, :1] ** 2)[0],
    ],
    "linalg.multi_dot": lambda z: np.linalg.multi_dot([z, z.T, z]),
    "matvec": lambda z: [np.matvec(z, z[1]), np.matvec(z, z[:, None]), np.matvec(X, z[0] ** 2)],
    "multiply.outer": lambda z: np.multiply.outer(z, z[0]),
    "nanprod": lambda z: np.nanprod(z * HOLES, 0),
    "nanstd": lambda z: np.nanstd(z * HOLES, 0),
    "polyval": lambda z: np.polyval(z[0], z[1:]),
    "sum": lambda z: np.sum(z, 1, where=X > 0, initial=2.0) ** 2,
    "trapezoid": lambda z: np.trapezoid(z * z, z[0]),
    "vecmat": lambda z: [np.vecmat(z[:, 1], z), np.vecmat(z.T[:, None], z), np.vecmat(z[:, 0], X),
                         np.vecmat([1, 2j, 3], z)],
}  # fmt: skip


@pytest.mark.rows("name", COMPLEX, slow="nanstd")
def test_complex_values_and_derivatives_are_those_of_numpy(name: str) -> None:
    def parts(x: Any, y: Any) -> list[Any]:
        found = parts_of(COMPLEX[name](x + 1j * y))
        return [part for z in found for part in (np.real(z), np.imag(z))]

    check(parts, X, Y)


def test_every_function_has_a_case() -> None:
    assert sorted(NUMPY_FUNCTIONS) == sorted(CASES)


@pytest.mark.rows(
    "name",
    CASES,
    slow="average block corrcoef cov deg2rad divide.outer float_power fmax gradient i0 interp "
    "kron linalg.cond linalg.lstsq logaddexp2 maximum.outer multiply.reduce nanmax "
    "nanmedian nanprod nanquantile nanstd nanvar percentile piecewise polyval power.outer "
    "quantile sinc subtract.outer trapezoid",
)
def test_values_and_derivatives_are_those_of_numpy(name: str) -> None:
    function, *arrays = CASES[name]
    check(function, *arrays)


@pytest.mark.rows("name", CASES)
def test_dtypes_are_those_of_numpy(name: str) -> None:
    function, *arrays = CASES[name]
    arrays = [x.astype("f4") if x.dtype.kind == "f" else x for x in arrays]
    value, _ = mixad.vjp(function, *arrays)
    for found, wanted in zip(parts_of(value), parts_of(function(*arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, strict=True)


@pytest.mark.rows(
    "function",
    [
        lambda x, v: np.vecdot(x, v[:3], axis=0) ** 2,
        lambda x, v: np.vecdot(v[:4], x.T, axis=0),
        lambda x, v: np.vecdot(v[:2, None, None] * x, x.T, axis=1),
        lambda x, v: np.vecdot((1 + 2j) * x, v[:3] - 1j * x[0, :3], axis=0).imag,
        lambda x, v: np.linalg.cross(x[:, :2], v[:3], axis=0) ** 2,
        lambda x, v: np.linalg.cross(v[:3], x[:, :3], axis=0) * x[:, :3].T,
    ],
    slow="<lambda>2 <lambda>4 <lambda>5",
)
def test_an_axis_is_that_of_each_array_before_they_broadcast(function: Any) -> None:
    check(function, X, V)


@pytest.mark.parametrize("shapes", [((4,), (4, 3), -2), ((4,), (3, 4), 1), ((), (2,), -1)])
def test_an_axis_that_an_array_lacks_is_refused_as_by_numpy(shapes: Any) -> None:
    y, x, axis = np.ones(shapes[0]), np.ones(shapes[1]), shapes[2]
    with pytest.raises(IndexError):
        np.trapezoid(y, x, axis=axis)
    with pytest.raises(IndexError):
        mixad.vjp(lambda y: np.trapezoid(y, x, axis=axis), y)


@pytest.mark.rows(
    ("function", "shapes"),
    [
        (np.matvec, ((3, 4), (3,))),
        (np.matvec, ((3, 4), ())),
        (np.matvec, ((4,), (4,))),
        (np.matvec, ((3, 4), (2, 1, 3))),
        (np.vecmat, ((4,), (3, 4))),
        (np.vecmat, ((), (3, 4))),
        (np.vecmat, ((4,), (4,))),
    ],
)
def test_vectors_that_do_not_fit_matrices_are_refused_as_by_numpy(
    function: Any, shapes: Any
) -> None:
    x, y = map(np.ones, shapes)
    with pytest.raises(ValueError, match=function.__name__):
        function(x, y)
    with pytest.raises(
        ValueError, match=rf"^{function.__name__}\(\) of arrays of shape .* it takes"
    ):
        mixad.vjp(function, x, y)


@pytest.mark.rows(
    ("function", "matrix"), [(np.matvec, X.T + 1j), (lambda x, y: np.vecmat(y, x), X - 1j * Y)]
)
def test_products_with_vectors_over_another_library(function: Any, matrix: Any) -> None:
    given = matrix, V[:3] - 2j
    want, pullback = mixad.vjp(function, *given)
    found, theirs = mixad.vjp(function, *map(array_api_strict.asarray, given))
    for x, y in zip((found, *theirs(found)), (want, *pullback(want)), strict=True):
        assert isinstance(x, type(found))
        np.testing.assert_allclose(np.asarray(x), y, rtol=1e-14)


def test_a_vector_that_is_not_traced_may_change_between_calls() -> None:
    vector = np.asarray([1j, 2.0, 3.0])
    gradient = mixad.grad(lambda z: np.vecmat(vector, z).real.sum())
    for number in (1.0, 2j, 3.0, 4j):
        vector[1] = number
        np.testing.assert_array_equal(gradient(X + 0j), np.broadcast_to(vector[:, None], X.shape))


BESIDE: dict[str, Any] = {"dot": np.dot, "inner": np.inner, "outer": np.outer, "kron": np.kron,
                          "tensordot": functools.partial(np.tensordot, axes=0)}  # fmt: skip


@pytest.mark.rows("number", [2, 2.5, 2j, np.float64(2.5), np.complex64(2j)])
@pytest.mark.rows("name", BESIDE)
def test_products_with_numbers_over_other_libraries(name: str, number: Any) -> None:
    product, x = BESIDE[name], np.asarray([0.5, -1.5])
    for function in (lambda x: product(x, number), lambda x: product(number, x)):
        value, pullback = mixad.vjp(function, array_api_strict.asarray(x))
        np.testing.assert_allclose(np.asarray(value), function(x), rtol=1e-15)
        (found,) = pullback(value)
        np.testing.assert_allclose(np.asarray(found), abs(number) ** 2 * x, rtol=1e-15)
    value, pullback = mixad.vjp(lambda number: product(array_api_strict.asarray(x), number), 2.5)
    np.testing.assert_allclose(np.asarray(value), product(x, 2.5), rtol=1e-15)
    np.testing.assert_allclose(pullback(value)[0], 2.5 * (x @ x), rtol=1e-15)


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
    "dot": lambda x: np.dot(x, 2.0) + x.dot(3),
    "kron": lambda x: np.kron(x, 2.0) + np.kron(np.float32(3.0), x),
    "einsum": lambda x: np.einsum("ij,", x, 2.0) + np.einsum(3, [], x, [0, 1]),
    "tensordot of a number": lambda x: np.tensordot(x, 2.0, 0) + np.tensordot(3, x, 0),
    "broadcast_arrays": lambda x: sum(np.broadcast_arrays(1.0, x, 2)),
    "outer": lambda x: np.outer(2.0, x) + np.outer(x[0, 0], x),
    "qr": lambda x: np.linalg.qr(x.T @ x + np.eye(X.shape[1]), "r"),
}


@pytest.mark.rows("dtype", ["f4", "f8"])
@pytest.mark.rows("name", NUMPYS_NUMBERS)
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


@pytest.mark.rows("subscripts", EINSUMS)
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


@pytest.mark.parametrize("label", [-1, 52])
def test_labels_by_number_are_those_that_numpy_takes(label: int) -> None:
    with pytest.raises(ValueError, match="range"):
        np.einsum(X, [label, 0])
    with pytest.raises(ValueError, match=f"label {label} is not between 0 and 51"):
        mixad.grad(lambda x: np.einsum(x, [label, 0]).sum())(X)


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


@pytest.mark.parametrize(
    "condition", [[1, 0, 2], [[True, False, True]], np.array([0.0, np.nan, -0.0]), 1, 0.0, "x"]
)
def test_conditions_of_where_are_what_numpy_takes_for_true(condition: Any) -> None:
    x = np.array([0.0, 1.0, 2.0])

    def f(x: Any) -> Any:
        return np.where(x if isinstance(condition, str) else condition, x * x, 3 * x)

    given = x if isinstance(condition, str) else condition
    np.testing.assert_array_equal(mixad.vjp(f, x)[0], f(x))
    np.testing.assert_array_equal(
        mixad.vjp(f, x)[1](np.ones_like(f(x)))[0], np.where(given, 2 * x, 3.0).reshape(x.shape)
    )
