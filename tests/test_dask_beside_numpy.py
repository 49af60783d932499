"""Parameters of NumPy and numbers of Python beside data of Dask: nothing is computed on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import BackendError, TracerError

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

X = np.random.default_rng(0).random((12, 3)) * 3
Y = np.random.default_rng(1).random(12)
PLACES = np.random.default_rng(2).integers(0, 3, 12)
W = np.asarray([0.7, 1.1, 1.3])
DIRECTION = np.asarray([1.0, 2.0, -1.0])


@pytest.fixture
def computed() -> Iterator[list[Any]]:
    """What Dask was asked to compute."""
    callbacks = pytest.importorskip("dask.callbacks")
    found: list[Any] = []
    with callbacks.Callback(start=found.append), dask.config.set(scheduler="synchronous"):
        yield found


def _lazy() -> tuple[Any, Any, Any]:
    return (
        da.from_array(X, chunks=(5, 2)),
        da.from_array(Y, chunks=5),
        da.from_array(PLACES, chunks=7),
    )


@mixad.broadcast
def huber(x, a, b, s):
    r = (x - a) / s
    if r > 2.0:
        return b * (2.0 * r - 2.0)
    return 0.5 * b * r * r + np.exp(-r * r)


@mixad.broadcast
def looked_up(i, table: mixad.Array):
    return table[i] * 2.0


@mixad.custom_vjp
def cubed(x: Any) -> Any:
    return x**3


cubed.defvjp(lambda x: (x**3, x), lambda x, g: (3 * x**2 * g,))


def _written(w: Any, x: Any) -> Any:
    y = w * 1.0
    y[0] = w[1] ** 2
    y[1:] += w[:2]
    return (x * y).sum()


def _loop(w: Any, x: Any) -> Any:
    total = 0.0
    for i in range(3):
        total = total + (x[:, i] * w[i]).sum()
    return total


def _matrix(w: Any) -> Any:
    return np.outer(w, w) + np.diag([1.0, 2.0, 3.0])


PROGRAMS: dict[str, Callable[..., Any]] = {
    "linear": lambda w, x, y, i: ((x @ w - y) ** 2).sum(),
    "elements": lambda w, x, y, i: ((x[:, 0] * w[0] + x[:, 1] * w[1] + w[2] - y) ** 2).sum(),
    "kernel": lambda w, x, y, i: huber(x[:, 0], w[0], w[1], w[2]).sum(),
    "unpacked": lambda w, x, y, i: huber(x[:, 0], *w).sum(),
    "duals": lambda w, x, y, i: huber.duals(y, *w, wrt="a").partials["a"].sum(),
    "before": lambda w, x, y, i: (x * np.exp(w)).sum(),
    "penalty": lambda w, x, y, i: (x * np.exp(w)).sum() + np.sum(w**2),
    "penalty before": lambda w, x, y, i: np.sum(w**2) + (x * w[0]).sum() + (x * w[1:2]).sum(),
    "parts": lambda w, x, y, i: (x[:, :2] * w[:2]).sum() + (w[1:] ** 2).sum(),
    "written": lambda w, x, y, i: _written(w, x),
    "loop": lambda w, x, y, i: _loop(w, x),
    "norm": lambda w, x, y, i: (x * (w / np.linalg.norm(w))).sum(),
    "matrix": lambda w, x, y, i: ((x @ np.linalg.inv(_matrix(w))) ** 2).sum(),
    "solve": lambda w, x, y, i: (x * np.linalg.solve(_matrix(w), w)).sum(),
    "cholesky": lambda w, x, y, i: (x @ np.linalg.cholesky(_matrix(w))).sum(),
    "determinant": lambda w, x, y, i: (x * np.linalg.det(_matrix(w))).sum(),
    "joined": lambda w, x, y, i: (np.concatenate([w, x[0]]) ** 2).sum(),
    "stacked": lambda w, x, y, i: (np.stack([w, x[0]]) ** 3).sum(),
    "own stack": lambda w, x, y, i: (x * np.stack([w[0], w[1], w[2]])).sum(),
    "choice": lambda w, x, y, i: np.where(x > w, x * w, w**2).sum(),
    "largest": lambda w, x, y, i: np.maximum(x, w).sum() + (x * w).max(axis=0).sum(),
    "variance": lambda w, x, y, i: np.var(x * w, axis=0).sum() + (x * w).std(),
    "reshaped": lambda w, x, y, i: (x * w[None, :].squeeze()).sum(),
    "sorted": lambda w, x, y, i: (x * np.sort(w) * np.arange(3)).sum(),
    "sums": lambda w, x, y, i: (x * np.cumsum(w)).sum(),
    "einsum": lambda w, x, y, i: np.einsum("ij,j->i", x, w).sum(),
    "row": lambda w, x, y, i: ((w @ x.T) ** 2).sum(),
    "whole": lambda w, x, y, i: (np.broadcast_to(w, (12, 3)) * x).sum(),
    "gathered": lambda w, x, y, i: (x * w[np.asarray([0, 0, 1])]).sum(),
    "lazy places": lambda w, x, y, i: (w[i] * y).sum() + (np.take(w, i) * y).sum(),
    "interpolated": lambda w, x, y, i: np.interp(y, np.asarray([0.0, 0.4, 1.0]), w).sum(),
    "checkpoint": lambda w, x, y, i: mixad.checkpoint(lambda w: (x * np.exp(w)).sum())(w),
    "stopped": lambda w, x, y, i: (x * mixad.stop_gradient(w) * w).sum(),
    "rule": lambda w, x, y, i: cubed(x * w).sum(),
    "single": lambda w, x, y, i: (x * w.astype("f4")).sum(),
    "complex": lambda w, x, y, i: (abs(x * w * 1j + w) ** 2).sum(),
    "spectrum": lambda w, x, y, i: (x * np.fft.fft(w).real).sum(),
    "convolved": lambda w, x, y, i: (x * np.convolve(w, w)[:3]).sum(),
    "power": lambda w, x, y, i: (x**w).sum(),
    "zeros": lambda w, x, y, i: (x * 0.0).sum() + 0.0 * w[0],
}

CALLS = 3
"""A function that leaves what is known of it twice is recorded in another way from then on."""

TRANSFORMS: dict[str, Callable[..., Any]] = {
    "value_and_grad": lambda f: mixad.value_and_grad(f)(W),
    "jvp": lambda f: mixad.jvp(f, (W,), (DIRECTION,)),
    "hvp": lambda f: mixad.hvp(f, (W,), (DIRECTION,)),
    "hessian": lambda f: mixad.hessian(f)(W),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows("transform", TRANSFORMS, slow="jvp hvp hessian")
@pytest.mark.rows("program", PROGRAMS, slow="determinant convolved cholesky")
def test_programs_are_numpys_and_lazy(transform: str, program: str, computed: list[Any]) -> None:
    if program == "rule" and transform != "value_and_grad":
        pytest.skip("a rule for cotangents alone")
    f, of = PROGRAMS[program], TRANSFORMS[transform]
    want = mixad.pytree.leaves(of(lambda w: f(w, X, Y, PLACES)))
    computed.clear()
    for _ in range(CALLS):
        found = mixad.pytree.leaves(of(lambda w: f(w, *_lazy())))
    assert not computed
    for lazy, array in zip(found, want, strict=True):
        assert isinstance(lazy, da.Array)
        assert lazy.dtype == array.dtype
        np.testing.assert_allclose(lazy.compute(), array, rtol=1e-10, atol=1e-12)


def _formulas() -> list[Any]:
    """Return the sum of `huber` of X and W[0], W[1], W[2] and its gradient, by hand."""
    a, b, s = W
    r = (X - a) / s
    outer = r > 2.0
    by_r = np.where(outer, 2.0 * b, b * r - 2.0 * r * np.exp(-r * r))
    value = np.where(outer, b * (2.0 * r - 2.0), 0.5 * b * r * r + np.exp(-r * r))
    by_b = np.where(outer, 2.0 * r - 2.0, 0.5 * r * r)
    return [value.sum(), -by_r.sum() / s, by_b.sum(), -(by_r * r).sum() / s]


def _loss(x: Any, a: Any, b: Any, s: Any) -> Any:
    return np.sum(huber(x, a, b, s))


KINDS: dict[str, Callable[[Any], Any]] = {
    "float": float,
    "NumPy's scalar": np.float64,
    "array without axes": np.asarray,
    "array": lambda w: np.full(3, w) if w == W[0] else np.asarray([w]),
    "Dask's": da.asarray,
}


@pytest.mark.rows("kind", KINDS)
@pytest.mark.rows("way", ["closed over", "arguments", "list", "dict"])
def test_parameters_of_every_kind_have_the_gradients_of_formulas(
    kind: str, way: str, computed: list[Any]
) -> None:
    x = _lazy()[0]
    computed.clear()
    parameters = [KINDS[kind](w) for w in W]
    if way == "closed over":
        call = mixad.value_and_grad(lambda a, b, s: _loss(x, a, b, s), argnums=(0, 1, 2))
        value, gradients = call(*parameters)
    elif way == "arguments":
        value, gradients = mixad.value_and_grad(_loss, argnums=(1, 2, 3))(x, *parameters)
    elif way == "list":
        value, gradients = mixad.value_and_grad(lambda p: _loss(x, *p))(parameters)
        assert isinstance(gradients, list)
    else:
        named = dict(zip("abs", parameters, strict=True))
        value, named = mixad.value_and_grad(lambda p: _loss(x, p["a"], p["b"], p["s"]))(named)
        gradients = [named[name] for name in "abs"]
    assert not computed
    for gradient, parameter in zip(gradients, parameters, strict=True):
        assert gradient.shape == np.shape(parameter)
        assert gradient.numblocks == (1,) * gradient.ndim
    found = dask.compute(value, *gradients)
    assert len(computed) == 1
    np.testing.assert_allclose([np.sum(each) for each in found], _formulas(), rtol=1e-12)


OF_STRUCTURES: dict[str, Callable[[Any], Any]] = {
    "Jacobian by a number": lambda x: mixad.jacobian(lambda a: (x * a).sum())(2.0),
    "of a vector": lambda x: mixad.jacobian(lambda a: (x * a**2).sum(axis=0))(2.0),
    "by two": lambda x: mixad.jacobian(lambda a, b: (x * a * b).sum(axis=0), argnums=(0, 1))(
        W, 2.0
    ),
    "Hessian by a number": lambda x: mixad.hessian(lambda a: (x * a**3).sum())(2.0),
    "by NumPy's scalar": lambda x: mixad.hessian(lambda a: (x * a**3).sum())(np.float64(2.0)),
    "by a list": lambda x: mixad.hessian(lambda p: (x * p[0] ** 2 * p[1] ** 3).sum())([2.0, W]),
    "gradient of a gradient": lambda x: mixad.value_and_grad(
        mixad.grad(lambda a: (x * a**3).sum())
    )(2.0),
    "of the data's": lambda x: mixad.grad(
        lambda w: mixad.grad(lambda x: (x * x * w).sum())(x).sum()
    )(W),
    "by data and a number": lambda x: mixad.grad(lambda x, a: (x * a).sum(), argnums=(0, 1))(
        x, 2.0
    ),
    "with aux": lambda x: mixad.value_and_grad(lambda a: ((x * a).sum(), x * a), has_aux=True)(2.0),
    "of a choice": lambda x: mixad.grad(lambda a: (x * a * (a if a > 1 else 3.0)).sum())(2.0),
    "linearize": lambda x: mixad.linearize(lambda a: (x * a * a).sum(), W)[1](W),
}


@pytest.mark.rows("program", OF_STRUCTURES)
def test_derivatives_by_numbers_and_structures_are_lazy(program: str, computed: list[Any]) -> None:
    want = mixad.pytree.leaves(OF_STRUCTURES[program](X))
    computed.clear()
    for _ in range(CALLS):
        found = mixad.pytree.leaves(OF_STRUCTURES[program](_lazy()[0]))
    assert not computed
    for lazy, array in zip(found, want, strict=True):
        assert isinstance(lazy, da.Array)
        assert lazy.shape == np.shape(array)
        np.testing.assert_allclose(lazy.compute(), array, rtol=1e-12)


def test_data_keep_their_chunks_beside_parameters_of_numpy() -> None:
    """Also where the gradient reads the parameter alone: it is made in bounded chunks."""
    x = _lazy()[0]
    for loss in (lambda x: (x * W).sum(), lambda x: (x * x * W).sum(), lambda x: x.sum()):
        gradient = mixad.grad(loss)(x)
        assert isinstance(gradient, da.Array)
        assert gradient.chunks == x.chunks
        np.testing.assert_allclose(gradient.compute(), mixad.grad(loss)(X), rtol=1e-15)
    large = da.ones((1 << 20, 64), chunks=(1 << 14, 64))
    graph = mixad.grad(lambda x: (x * np.ones(64)).sum())(large).__dask_graph__()
    made = [layer for name, layer in graph.layers.items() if name.startswith("broadcast_to")]
    assert made
    assert all(len(layer) > 1 for layer in made)


def test_kernels_take_numpys_arrays_beside_dasks(computed: list[Any]) -> None:
    x, _, places = _lazy()
    computed.clear()
    table = np.asarray([3.0, 5.0, 7.0])
    found = [huber(x, W, 1.0, W[:1]), looked_up(places, table), huber(x, [0.7, 1.1, 1.3], 1.0, 0.7)]
    changed = W.copy()
    found.append(huber(x, changed, 1.0, 0.7))
    changed[:] = 0.0
    assert not computed
    want = [huber(X, W, 1.0, W[:1]), 2.0 * table[PLACES], huber(X, W, 1.0, 0.7)]
    for lazy, array in zip(found, [*want, want[-1]], strict=True):
        np.testing.assert_array_equal(lazy.compute(), array)


def test_dtypes_are_those_of_dask() -> None:
    """NumPy's scalars do not adapt, numbers of Python do."""
    x = da.ones(3, dtype="f4")
    kernel = mixad.broadcast(lambda x, y: x * y)
    for number in (2.0, np.float64(2.0), np.float32(2.0), np.ones(3), np.ones(3, "f4")):
        dtype = (x * number).dtype
        assert kernel(x, number).dtype == dtype
        assert mixad.value_and_grad(lambda x, y=number: (x * y).sum())(x)[0].dtype == dtype
        value, gradient = mixad.value_and_grad(lambda w: (x * w).sum())(number)
        assert value.dtype == dtype
        assert gradient.dtype == np.asarray(number).dtype


def test_cotangents_of_lazy_values_may_be_numpys(computed: list[Any]) -> None:
    x = _lazy()[0]
    computed.clear()
    _, pullback = mixad.vjp(lambda w: x * w, W)
    (found,) = pullback(np.ones((12, 3)))
    assert not computed
    np.testing.assert_allclose(found.compute(), X.sum(axis=0), rtol=1e-14)


@pytest.mark.filterwarnings("ignore:.*does not depend")
def test_what_the_value_does_not_depend_on_stays_numpys() -> None:
    x = _lazy()[0]
    unused = mixad.grad(lambda w, v: (x * w).sum(), argnums=1)
    assert type(unused(W, W)) is np.ndarray
    assert unused(W, 2.0) == 0.0


REFUSED: dict[str, Callable[[Any, Any], Any]] = {
    "written into NumPy's": lambda w, x: _assigned(w * 1.0, x.sum()),
    "written into Dask's": lambda w, x: _assigned(x[0] * 1.0, w[0]),
    "steps": lambda w, x: (x * mixad.scan(lambda c, a: (c * a, c * a), np.ones(()), w)[1]).sum(),
    "map": lambda w, x: (x * mixad.map(lambda a: a * a, w)).sum(),
    "scan": lambda w, x: (x * mixad.associative_scan(lambda a, b: a * b, w)).sum(),
}


def _assigned(x: Any, value: Any) -> Any:
    x[0] = value
    return x.sum()


_WAYS = r"mixes arrays|backend 'dask'|would lose its derivative"


@pytest.mark.rows("program", REFUSED)
def test_what_would_compute_is_refused(program: str, computed: list[Any]) -> None:
    x = _lazy()[0]
    computed.clear()
    for transform in (mixad.grad, mixad.hessian):
        with pytest.raises((TracerError, BackendError), match=_WAYS):
            transform(lambda w: REFUSED[program](w, x))(W)
        assert not computed
