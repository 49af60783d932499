"""What graphs of Dask cost: tasks and evaluations for a chunk, and chunks of gradients."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.backends import dask_blocks
from mixad.backends.chunked import backend

da = pytest.importorskip("dask.array")
dask = pytest.importorskip("dask")

TASKS = 2.2
"""Most tasks a chunk for the data, a value and three gradients, the tree of sums among them."""

MANY = 256
"""Chunks, among which what does not grow with them is little."""


@pytest.fixture
def graphs() -> Iterator[list[Any]]:
    """The graphs that Dask was asked to compute."""
    callbacks = pytest.importorskip("dask.callbacks")
    found: list[Any] = []
    with callbacks.Callback(start=found.append), dask.config.set(scheduler="synchronous"):
        yield found


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results each kernel on a block has given."""
    found: list[int] = []

    def kernel_for(passes: Any, requests: Any) -> Callable[[Any], Any]:
        found.append(len(requests))
        return known(passes, requests)

    known = backend.kernel_for
    monkeypatch.setattr(backend, "kernel_for", kernel_for)
    return found


@mixad.broadcast
def model(x, a, b, s):
    r = (x - a) / s
    if r > 2.0:
        return b * (2.0 * r - 2.0)
    return 0.5 * b * r * r + np.exp(-r * r)


def by_hand(x: Any, a: Any, b: Any, s: Any) -> tuple[Any, list[Any]]:
    """Return the sum of `model` and its gradients, by formulas."""
    r = (x - a) / s
    outer = r > 2.0
    value = np.where(outer, b * (2.0 * r - 2.0), 0.5 * b * r * r + np.exp(-r * r))
    by_r = np.where(outer, 2.0 * b, b * r - 2.0 * r * np.exp(-r * r))
    parts = [
        by_r / s,
        -by_r / s,
        np.where(outer, 2.0 * r - 2.0, 0.5 * r * r),
        -by_r * r / s,
    ]
    return value.sum(), [_summed(g, np.shape(z)) for g, z in zip(parts, (x, a, b, s), strict=True)]


def _summed(g: Any, shape: tuple[int, ...]) -> Any:
    """Return a gradient summed over the axes that its argument lacks or has with extent 1."""
    g = g.sum(axis=tuple(range(g.ndim - len(shape))))
    short = tuple(axis for axis, extent in enumerate(shape) if extent == 1)
    return g.sum(axis=short, keepdims=True)


def _data(rows: int = 12, columns: int = 8) -> Any:
    return np.random.default_rng(0).random((rows, columns)) * 3


def _parameters(shape: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(1)
    return [rng.random(shape) * 0.2 + center for center in (0.1, 1.0, 0.9)]


def _loss(x: Any, a: Any, b: Any, s: Any) -> Any:
    return np.sum(model(x, a, b, s))


def test_a_value_and_three_gradients_take_one_task_a_chunk_and_a_tree(
    graphs: list[Any], blocks: list[int]
) -> None:
    x = da.from_array(_data(2 * MANY), chunks=(2, 8))
    parameters = [da.from_array(p, chunks=-1) for p in _parameters((8,))]
    found = mixad.value_and_grad(_loss, argnums=(1, 2, 3))(x, *parameters)
    dask.compute(found)
    assert len(graphs[0]) <= TASKS * MANY
    assert blocks == [4] * MANY


def test_a_value_and_the_gradient_of_the_data_are_one_evaluation(
    graphs: list[Any], blocks: list[int]
) -> None:
    x = da.from_array(_data(2 * MANY), chunks=(2, 8))
    dask.compute(mixad.value_and_grad(lambda x: _loss(x, 0.1, 1.0, 0.9))(x))
    assert len(graphs[0]) <= 5.2 * MANY  # the data, looked at, the kernel, its two results
    assert blocks == [2] * MANY


SHAPES = [(), (8,), (1, 8), (12, 1), (12, 8), (1, 1)]


@pytest.mark.rows("shape", SHAPES)
@pytest.mark.rows("cut", [(12, 8), (4, 8), (5, 3), (1, 8), (12, 1)])
def test_sums_over_blocks_are_those_of_formulas(
    shape: tuple[int, ...], cut: tuple[int, int]
) -> None:
    """Results are summed over both axes, one of them or none, by trees of their own."""
    x, parameters = _data(), _parameters(shape)
    lazy = [da.from_array(p, chunks=tuple(max(1, n // 2) for n in shape)) for p in parameters]
    value, gradients = mixad.value_and_grad(_loss, argnums=(0, 1, 2, 3))(
        da.from_array(x, chunks=cut), *lazy
    )
    want, wanted = by_hand(x, *parameters)
    np.testing.assert_allclose(value.compute(), want, rtol=1e-12)
    for found, expected, argument in zip(gradients, wanted, (x, *parameters), strict=True):
        assert found.dtype == np.float64
        assert found.shape == np.shape(argument)
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-12, atol=1e-12)


def test_gradients_have_the_chunks_of_what_they_are_gradients_of() -> None:
    x = da.from_array(_data(), chunks=(5, 3))
    others = [da.from_array(p, chunks=c) for p, c in zip(_parameters((8,)), (8, 2, 3), strict=True)]
    for given in ([x, *others], [x, x.rechunk((4, 4)), *others[1:]]):
        gradients = mixad.grad(_loss, argnums=(0, 1, 2, 3))(*given)
        for gradient, argument in zip(gradients, given, strict=True):
            assert gradient.chunks == argument.chunks


def test_the_largest_array_keeps_its_chunks(graphs: list[Any], blocks: list[int]) -> None:
    """A parameter that is cut finer is put together; the data are not cut again."""
    x = da.from_array(_data(64), chunks=(2, 8))
    parameters = [da.from_array(p, chunks=2) for p in _parameters((8,))]
    assert model(x, *parameters).chunks == x.chunks
    dask.compute(mixad.value_and_grad(_loss, argnums=(1, 2, 3))(x, *parameters))
    assert blocks == [4] * 32


def test_blocks_without_elements_add_nothing() -> None:
    x, parameters = _data(), _parameters((8,))
    want, wanted = by_hand(x, *parameters)
    cut = da.from_array(x, chunks=((0, 5, 0, 7), (8,)))
    value, gradients = mixad.value_and_grad(_loss, argnums=(1, 2, 3))(
        cut, *map(da.from_array, parameters)
    )
    np.testing.assert_allclose(value.compute(), want, rtol=1e-12)
    for found, expected in zip(gradients, wanted[1:], strict=True):
        np.testing.assert_allclose(found.compute(), expected, rtol=1e-12)
    gradient = mixad.grad(_loss, argnums=1)(cut[:0], *map(da.from_array, parameters))
    np.testing.assert_array_equal(gradient.compute(), np.zeros(8))


def test_sums_are_the_same_bits_whichever_scheduler_adds_them_up() -> None:
    x = da.from_array(_data(256), chunks=(8, 3))
    parameters = [da.from_array(p, chunks=-1) for p in _parameters((8,))]
    found = mixad.value_and_grad(_loss, argnums=(1, 2, 3))(x, *parameters)
    results = [
        dask.compute(*mixad.pytree.leaves(found), scheduler=scheduler)
        for scheduler in ("synchronous", "threads", "threads")
    ]
    for each in results[1:]:
        assert [r.tobytes() for r in each] == [r.tobytes() for r in results[0]]


def test_sums_are_added_up_as_dask_is_configured(graphs: list[Any]) -> None:
    x = da.from_array(_data(64), chunks=(2, 8))
    sizes = []
    for every in (2, 32):
        with dask.config.set(split_every=every):
            found = mixad.value_and_grad(_loss)(x, 0.1, 1.0, 0.9)[0]
        found.compute()
        sizes.append(len(graphs[-1]))
    assert sizes[0] - sizes[1] == 30  # 16 + 8 + 4 + 2 sums before the last one


@mixad.broadcast
def looked_up(i, table: mixad.Array):
    return table[i] * 2.0


def test_source_travels_only_where_an_error_may_name_it() -> None:
    x = da.from_array(_data(), chunks=4)
    found = mixad.value_and_grad(_loss, argnums=(1, 2, 3))(x, 0.1, 1.0, 0.9)
    graph = pickle.dumps(found)
    assert b"model" in graph
    assert b"return b * (2.0" not in graph
    assert b"test_dask_graphs" not in graph.replace(__name__.encode(), b"")
    places = da.from_array(np.asarray([0, 1, 7]), chunks=2)
    lazy = looked_up(places, np.ones(3))
    assert b"return table[i] * 2.0" in pickle.dumps(lazy)
    with pytest.raises(IndexError, match=r"table\[i\] \* 2\.0"):
        lazy.compute()


LIMITS = ("MIXAD_NUM_THREADS", "MIXAD_POOL_BYTES")


@pytest.mark.rows(
    ("nanny", "memory", "given", "want"),
    [
        ("tcp://host:1", 800, None, ("3", "100")),
        ("tcp://host:1", None, None, ("3", None)),
        ("tcp://host:1", 800, "7", ("7", "7")),
        (None, 800, None, (None, None)),
    ],
)
def test_kernels_fit_into_processes_that_dask_has_started(
    nanny: Any, memory: Any, given: Any, want: Any
) -> None:
    distributed = pytest.importorskip("distributed")
    worker = SimpleNamespace(
        nanny=nanny,
        state=SimpleNamespace(nthreads=3),
        memory_manager=SimpleNamespace(memory_limit=memory),
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in LIMITS:
            patch.setenv(name, "0")
            patch.delenv(name) if given is None else patch.setenv(name, given)
        patch.setattr(distributed, "get_worker", lambda: worker)
        dask_blocks._fit_into_worker.__wrapped__()
        assert tuple(map(os.environ.get, LIMITS)) == want
