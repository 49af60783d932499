"""Arrays of Cubed: values and gradients are those of formulas, and nothing is computed early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.backends.chunked import backend
from mixad.errors import KernelTypeError, TracerError

cubed = pytest.importorskip("cubed")

RNG = np.random.default_rng(0)
X = RNG.random((12, 8)) * 3
W = np.linspace(0.7, 1.3, 8)
DIRECTION = np.linspace(-1.0, 2.0, 8)
INTEGERS = RNG.integers(0, 8, 12)


@pytest.fixture(autouse=True)
def nothing_is_computed() -> Iterator[None]:
    """Let Cubed raise wherever it is asked to compute by another than `_computed`."""
    with cubed.config.set({"executor_name": "raise-if-computes"}):
        yield


def _computed(*arrays: Any, executor: str = "single-threaded") -> tuple[Any, ...]:
    with cubed.config.set({"executor_name": executor}):
        return cubed.compute(*arrays)


def _lazy(array: Any = X, chunks: Any = (5, 3)) -> Any:
    return cubed.from_array(array, chunks=chunks)


@mixad.broadcast
def model(x, a, b, s):
    r = (x - a) / s
    if r > 2.0:
        return b * (2.0 * r - 2.0)
    return 0.5 * b * r * r + np.exp(-r * r)


@mixad.broadcast
def looked_up(i, table: mixad.Array):
    return table[i] * 2.0


def by_hand(x: Any, a: Any, b: Any, s: Any) -> tuple[Any, list[Any]]:
    """Return the elements of `model`, and the gradients of their sum, by formulas."""
    r = (x - a) / s
    outer = r > 2.0
    value = np.where(outer, b * (2.0 * r - 2.0), 0.5 * b * r * r + np.exp(-r * r))
    by_r = np.where(outer, 2.0 * b, b * r - 2.0 * r * np.exp(-r * r))
    parts = [by_r / s, -by_r / s, np.where(outer, 2.0 * r - 2.0, 0.5 * r * r), -by_r * r / s]
    return value, [_summed(g, np.shape(z)) for g, z in zip(parts, (x, a, b, s), strict=True)]


def _summed(g: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient summed over the axes that its argument lacks or has with extent 1."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    return g.sum(axis=tuple(a for a, n in enumerate(shape) if n == 1), keepdims=True)


def _loss(x: Any, a: Any, b: Any, s: Any) -> Any:
    return np.sum(model(x, a, b, s))


CUTS = {"one": (12, 8), "rows": (4, 8), "uneven": (5, 3)}
SHAPES: list[tuple[int, ...]] = [(), (8,), (1, 8), (12, 1), (12, 8), (1, 1)]


@pytest.mark.rows("shape", SHAPES)
@pytest.mark.rows("cut", CUTS, slow="rows uneven")
def test_a_kernel_and_its_gradients_are_those_of_formulas(shape: tuple[int, ...], cut: str) -> None:
    a, b, s = (np.random.default_rng(k).random(shape) * 0.2 + c for k, c in enumerate((0.1, 1, 1)))
    x = _lazy(chunks=CUTS[cut])
    every = mixad.value_and_grad(_loss, argnums=(0, 1, 2, 3))
    value, gradients = every(x, a, _lazy(b, chunks=-1), s)
    elements = model(x, a, b, s)
    assert gradients[0].chunks == x.chunks
    wanted, slopes = by_hand(X, a, b, s)
    found = _computed(value, elements, *gradients)
    for got, want in zip(found, (wanted.sum(), wanted, *slopes), strict=True):
        assert got.dtype == float
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_one_task_a_block_computes_a_value_and_all_gradients(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known, found = backend.kernel_for, []

    def kernel_for(passes: Any, requests: Any) -> Any:
        found.append(len(requests))
        return known(passes, requests)

    monkeypatch.setattr(backend, "kernel_for", kernel_for)
    value, gradients = mixad.value_and_grad(_loss, argnums=(1, 2, 3))(_lazy(), W, 1.0, W)
    assert found == []
    _computed(value, *gradients)
    assert found == [4] * 9


@pytest.mark.slow
def test_a_tree_of_several_levels_adds_up_many_blocks() -> None:
    x = np.random.default_rng(1).random(300)
    value, slope = mixad.value_and_grad(lambda w: ((_lazy(x, chunks=1) * w) ** 2).sum())(1.5)
    value, slope = _computed(value, slope)
    np.testing.assert_allclose([value, slope], [2.25 * (x**2).sum(), 3 * (x**2).sum()], rtol=1e-13)


@pytest.mark.slow
def test_bits_do_not_depend_on_what_computes() -> None:
    value, gradients = mixad.value_and_grad(_loss, argnums=(0, 1))(_lazy(), W, 1.0, 0.9)
    wanted, *others = (
        [r.tobytes() for r in _computed(value, *gradients, executor=name)]
        for name in ("single-threaded", "threads", "processes")
    )
    assert others == [wanted] * 2


@pytest.mark.slow
def test_data_are_larger_than_the_memory_that_is_allowed() -> None:
    with cubed.config.set({"spec.allowed_mem": "2MB", "spec.reserved_mem": 0}):
        x = cubed.random.random((1000, 800), chunks=(100, 200))  # 6.4 MB
        loss = mixad.value_and_grad(lambda w: ((x * w - 1.0) ** 2).sum())
        value, slope = loss(np.ones(800))
        data, value, slope = _computed(x, value, slope)
    np.testing.assert_allclose(value, ((data - 1.0) ** 2).sum(), rtol=1e-12)
    np.testing.assert_allclose(slope, (2 * (data - 1.0) * data).sum(axis=0), rtol=1e-12)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "elements": lambda w, x: ((x[:, 0] * w[0] + x[:, 1] * w[1] + w[2]) ** 2).sum(),
    "linear": lambda w, x: ((x @ w) ** 2).sum(),
    "penalty": lambda w, x: (x * np.exp(w)).sum() + np.sum(w**2),
    "axis": lambda w, x: (np.sum(model(x, w, 1.0, 0.9), axis=0) ** 2).sum(),
    "mean": lambda w, x: np.mean(x * w) + np.std(x * w),
    "largest": lambda w, x: np.maximum(x, w).sum() + np.max(x * w, axis=0).sum(),
    "choice": lambda w, x: np.where(x > w, x * w, w**2).sum(),
    "transposed": lambda w, x: ((w @ x.T) ** 2).sum(),
    "sums": lambda w, x: (np.cumsum(x * w, axis=0) ** 2).sum(),
    "joined": lambda w, x: (np.concatenate([x * w, x]) ** 2).sum(),
    "stacked": lambda w, x: (np.stack([w, x[0]]) ** 3).sum(),
    "einsum": lambda w, x: np.einsum("ij,j->i", x, w).sum(),
    "broadcast": lambda w, x: (np.broadcast_to(x * w, (3, 12, 8)) ** 2).sum(),
    "slices": lambda w, x: ((x * w)[1:4, 0] ** 2).sum() + ((x * w)[-1] ** 3)[None, 2:].sum(),
    "single": lambda w, x: (x * w.astype("f4")).sum(),
    "unused": lambda w, x: (x * 2.0 * w[1]).sum() + 0.0 * w[0],
}

TRANSFORMS: dict[str, Callable[..., Any]] = {
    "value_and_grad": lambda f: mixad.value_and_grad(f)(W),
    "jvp": lambda f: mixad.jvp(f, (W,), (DIRECTION,)),
    "hvp": lambda f: mixad.hvp(f, (W,), (DIRECTION,)),
}


@pytest.mark.rows("transform", TRANSFORMS, slow="jvp hvp")
@pytest.mark.rows("program", PROGRAMS, slow=" ".join(PROGRAMS.keys() - {"linear"}))
def test_programs_are_numpys_and_lazy(transform: str, program: str) -> None:
    f, of = PROGRAMS[program], TRANSFORMS[transform]
    found = mixad.pytree.leaves(of(lambda w: f(w, _lazy())))
    assert {type(leaf) for leaf in found} == {cubed.Array}
    rtol = 1e-6 if program == "single" else 1e-11
    wanted = mixad.pytree.leaves(of(lambda w: f(w, X)))
    for lazy, want in zip(_computed(*found), wanted, strict=True):
        assert lazy.shape == np.shape(want)
        np.testing.assert_allclose(lazy, want, rtol=rtol, atol=1e-12)


@pytest.mark.slow
def test_a_hessian_is_numpys() -> None:
    (found,) = _computed(mixad.hessian(lambda w: _loss(_lazy(), w, 1.0, 0.9))(W))
    np.testing.assert_allclose(found, mixad.hessian(lambda w: _loss(X, w, 1.0, 0.9))(W), rtol=1e-11)


OF_DATA: dict[str, Callable[[Any], Any]] = {
    "kernel": lambda x: (model(x, 0.1, 1.0, 0.9) * x).sum(),
    "slices": lambda x: (x[1:4, 0] ** 2).sum() + (x[-1] ** 3).sum() + (x[None, ..., 3:] ** 3).sum(),
    "steps": lambda x: (x[::2, 1] ** 2).sum(),
    "positions": lambda x: (x[np.asarray([0, 0, 3])] ** 2).sum(),
    "reshaped": lambda x: (np.reshape(x, (96,)) ** 2)[5:].sum(),
    "product": lambda x: (x.T @ x).sum(),
}


@pytest.mark.rows("program", OF_DATA, slow="slices steps positions reshaped product")
def test_gradients_of_the_data_are_numpys(program: str) -> None:
    f = OF_DATA[program]
    (found,) = _computed(mixad.grad(f)(_lazy(chunks=(4, 8))))
    np.testing.assert_allclose(found, mixad.grad(f)(X), rtol=1e-12)


def test_pullbacks_take_numpys_cotangents_and_lazy_ones() -> None:
    value, pullback = mixad.vjp(lambda x: model(x, 0.1, 1.0, 0.9), _lazy())
    wanted, slopes = by_hand(X, 0.1, 1.0, 0.9)
    found = _computed(value, pullback(X)[0], pullback(_lazy())[0])
    for got, want in zip(found, (wanted, X * slopes[0], X * slopes[0]), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12)


def test_arrays_that_kernels_index_go_to_every_block() -> None:
    table = np.linspace(1.0, 2.0, 8)
    found = looked_up(_lazy(INTEGERS, chunks=5), _lazy(table, chunks=3))
    np.testing.assert_array_equal(_computed(found)[0], table[INTEGERS] * 2.0)


DTYPES = {"f4": 1e-6, "c16": 1e-12, "i8": 1e-12}


@pytest.mark.rows("dtype", DTYPES, slow="c16 i8")
def test_dtypes_are_numpys(dtype: str) -> None:
    data = (X * (1 + 2j) if dtype == "c16" else X * 3).astype(dtype)
    loss = lambda w, x: (abs(x * w) ** 2).sum()  # noqa: E731
    w = np.float32(1.5) if dtype == "f4" else 1.5
    value, slope = mixad.value_and_grad(lambda w: loss(w, _lazy(data)))(w)
    wanted, steep = 2.25 * (abs(data) ** 2).sum(), 3.0 * (abs(data) ** 2).sum()
    for got, want in zip(_computed(value, slope), (wanted, steep), strict=True):
        np.testing.assert_allclose(got, want, rtol=DTYPES[dtype])


def _written(x: Any) -> Any:
    x[0] = 1.0
    return x.sum()


@pytest.mark.slow
@pytest.mark.rows("first", [(12, 3), (1, 3), (5, 8), (7, 8)])
@pytest.mark.rows("second", [(12, 3), (1, 3), (5, 8)])
def test_arrays_that_are_cut_otherwise_are_joined(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    # cubed.concat of chunks of 12 and of 1 rows repeats the first of these
    x, y = _lazy(chunks=first), _lazy(X + 1.0, chunks=second)
    (found,) = _computed(mixad.vjp(lambda x: np.concatenate([x, y]), x)[0])
    np.testing.assert_array_equal(found, np.concatenate([X, X + 1.0]))


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "writes": (_written, r"arrays of cubed cannot be written to.*where\(\), concat\(\) or stack"),
    "bool": (lambda x: x.sum() if x.sum() > 0 else 0.0 * x.sum(), "would compute all"),
    "float": (lambda x: float(x.sum()) * x.sum(), "would lose its derivative"),
    "NumPy": (lambda x: np.asarray(x).sum(), "would|conversion"),
    "indices": (lambda x: x[_lazy(INTEGERS, 5)].sum(), r"as indices.*pass i\.compute\(\)"),
}


@pytest.mark.rows("name", REFUSED)
def test_what_would_compute_or_write_is_refused(name: str) -> None:
    f, why = REFUSED[name]
    with pytest.raises(TracerError, match=why):
        mixad.grad(f)(_lazy())


def test_an_array_with_a_specification_of_its_own_is_refused_by_what_to_write() -> None:
    x = cubed.from_array(X, chunks=4, spec=cubed.Spec(allowed_mem="50MB"))
    for call in (lambda: model(x, 0.1, 1.0, 0.9), lambda: mixad.grad(lambda x: x.sum())(x)):
        with pytest.raises(KernelTypeError, match=r"specification.*\n.*cubed\.config\.set"):
            call()
    with cubed.config.set({"spec.allowed_mem": "150MB"}):
        x = _lazy(chunks=4)
        (found,) = _computed(mixad.grad(lambda x: (x**2).sum())(x))
    np.testing.assert_array_equal(found, 2 * X)
