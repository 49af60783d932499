"""Writes to traced arrays by strands: as NumPy has them, or refused."""

from __future__ import annotations

import math
import operator
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.backends.fifo_cache import FifoCache
from mixad.errors import TracerError
from mixad.tape import operations
from mixad.tape.strand import Strand
from mixad.transforms import strand_history

from .test_inner_strands import by_nodes
from .test_strands import EXAMPLES

pytestmark = pytest.mark.usefixtures("fresh")

X = np.linspace(0.3, 1.7, 6)
KEYS = [
    *(0, -1, slice(1, 4), slice(None, None, 2), slice(None), slice(0, 0), (Ellipsis,), [0, 3]),
    *([2, 2, 1], np.array([1, 4]), np.array([True, False, True, True, False, False])),
    (None, slice(2, 5)),
]
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
}


LENGTH = len(X)


def change_part(known: list[Any], a: Any, key: int, change: str, other: int) -> None:
    value = known[other % len(known)].sum()
    a[KEYS[key]] = CHANGES[change](a[KEYS[key]], value)


def change(known: list[Any], a: Any, name: str, other: int) -> None:
    at = next(k for k, each in enumerate(known) if each is a)
    known[at] = CHANGES[name](a, known[other % len(known)].sum())


def put(known: list[Any], a: Any, key: int, other: int, is_squared: bool) -> None:
    value = known[other % len(known)]
    a[KEYS[key]] = (value * value).sum() if is_squared else np.sum(value)


NEW: dict[str, Callable[..., Any]] = {
    "new": lambda a, factor: a * a + factor * a,
    "zeros": np.zeros_like,
    "part": lambda a, key: a[KEYS[key]] if np.shape(a) == (LENGTH,) else a,
    "reversed": lambda a: a[::-1] if np.ndim(a) else a,
    "copy": lambda a: a.copy(),
}
WRITES: dict[str, Callable[..., None]] = {
    "put": put,
    "number": lambda known, a, key, number: a.__setitem__(KEYS[key], number),
    "change": change,
    "change part": change_part,
}


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any], Any]:
    """Programs that write to arrays, parts of them and views, and read some of what they have."""
    index, key = st.integers(0, 40), st.integers(0, len(KEYS) - 1)
    changes = st.sampled_from(sorted(CHANGES))
    step = st.one_of(
        st.tuples(st.just("new"), index, st.sampled_from([1.5, -0.5])),
        st.tuples(st.sampled_from(["zeros", "reversed", "copy"]), index),
        st.tuples(st.just("part"), index, key),
        st.tuples(st.just("put"), index, key, index, st.booleans()),
        st.tuples(st.just("number"), index, key, st.sampled_from([0.0, 2.5, 3])),
        st.tuples(st.just("change"), index, changes, index),
        st.tuples(st.just("change part"), index, key, changes, index),
    )
    steps = draw(st.lists(step, min_size=2, max_size=9))
    read = draw(st.lists(index, min_size=1, max_size=3))

    def program(x: Any) -> Any:
        known = [x * 1.0, x * 2.0]
        for name, at, *rest in steps:
            a = known[at % len(known)]
            if name in NEW:
                known.append(NEW[name](a, *rest))
            elif np.shape(a) == (LENGTH,):
                WRITES[name](known, a, *rest)
        return sum(((known[at % len(known)] ** 2).sum() for at in read), x[0] * 1.0)

    program.__name__ = repr((steps, read))  # what failed is shown so
    return program


def expected(f: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return value and gradient by NumPy, with complex steps."""
    units = 1e-30j * np.eye(len(X))
    return f(X.copy()), np.array([f(X + unit).imag * 1e30 for unit in units])


def outcome(f: Callable[[Any], Any]) -> Any:
    """Return value and gradient, or why they are refused."""
    try:
        return mixad.value_and_grad(f)(X)
    except TracerError as error:
        return str(error)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, deadline=None)
@given(programs())
def test_written_arrays_have_numpys_values_or_are_refused(f: Callable[[Any], Any]) -> None:
    with np.errstate(all="ignore"):
        value, gradient = expected(f)
    if not (np.all(np.isfinite(gradient)) and math.isfinite(value)):
        return
    strand_history._HISTORIES.clear()
    plain = by_nodes(outcome, f)
    for _ in range(3):
        found = outcome(f)
        if isinstance(found, str):
            assert found == plain
            assert "shares memory" in found
        else:
            np.testing.assert_allclose(found[0], value, rtol=1e-12)
            scale = 1e-11 * max(1.0, float(np.max(np.abs(gradient))))
            np.testing.assert_allclose(found[1], gradient, rtol=1e-11, atol=scale)


# -- what an attacker found ------------------------------------------------------------------------

SHARES = "shares memory"


def looked_at(x: Any) -> Any:
    """End a segment: what follows is told by stand-ins."""
    return x if x.sum() > 0 else -x


VIEWS: dict[str, Callable[[Any], Any]] = {
    "diagonal": lambda y: np.diagonal(np.reshape(y, (2, 3))),
    "broadcast_to": lambda y: np.broadcast_to(y, (2, LENGTH)),
    "windows": lambda y: np.lib.stride_tricks.sliding_window_view(y, 2),
    "reshaped": lambda y: y.reshape(2, 3),
    "real": lambda y: y.real,
    "the same array": lambda y: np.broadcast_arrays(y, y)[0],
    "at least one axis": lambda y: np.atleast_1d(y, y)[1],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("turns", [0, 100])
@pytest.mark.parametrize("write", ["element", "all"])
@pytest.mark.parametrize("ends", [False, True])
def test_views_of_every_kind_are_not_read_after_a_write(
    name: str, turns: int, write: str, ends: bool
) -> None:
    def f(x: Any) -> Any:
        y = (looked_at(x) if ends else x) * 2.0
        view, z = VIEWS[name](y), x
        for _ in range(turns):
            z = z * 0.99 + 0.1
        if write == "element":
            y[0] = 5.0
        else:
            y *= 3.0
        return (view * view).sum() + z.sum()

    for _ in range(3):
        if "array" in name or "axis" in name:  # it is, so it has been written to as well
            np.testing.assert_allclose(mixad.value_and_grad(f)(X)[0], f(X))
        else:
            with pytest.raises(TracerError, match=SHARES):
                mixad.value_and_grad(f)(X)


@pytest.mark.parametrize("value", [[1.0, 2.0, 3.0], np.ones(3), "a", X])
def test_a_write_that_fails_changes_nothing(value: Any) -> None:
    def f(x: Any) -> Any:
        y = x * 2.0
        with pytest.raises(ValueError, match=r"could not|cannot"):
            y[:2] = value
        return (y * y).sum()

    for _ in range(4):
        found, gradient = mixad.value_and_grad(f)(X)
        np.testing.assert_allclose(found, 4.0 * (X * X).sum())
        np.testing.assert_allclose(gradient, 8.0 * X)


def test_a_part_is_written_back_though_its_call_has_been_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operations, "_CALLS", FifoCache(8))

    def f(x: Any) -> Any:
        y = x * 2.0
        y[1:3] += sum(x[k : k + 2].sum() for k in range(5)) + sum(x[k:].sum() for k in range(5))
        return (y * y).sum()

    expected = [f(X + 1e-30j * unit).imag * 1e30 for unit in np.eye(LENGTH)]
    for _ in range(4):
        np.testing.assert_allclose(mixad.grad(f)(X), expected, rtol=1e-13)


def test_a_write_goes_on_where_another_thread_asks_for_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    retire, asked = Strand._retire_others, []

    def interrupted(self: Strand, tracer: Any, result: Any) -> None:
        retire(self, tracer, result)
        thread = threading.Thread(target=lambda: other[0].cell)
        thread.start()
        thread.join(0.05)  # it waits
        asked.append(thread)

    monkeypatch.setattr(Strand, "_retire_others", interrupted)
    other: list[Any] = []

    def f(x: Any) -> Any:
        y, z = x * 1.0, x * 3.0
        other[:] = [z]
        y[0] = x[1] * 10.0
        for thread in asked:
            thread.join()
        return (y * y).sum() + z.sum()

    expected = [f(X + 1e-30j * unit).imag * 1e30 for unit in np.eye(LENGTH)]
    for _ in range(4):
        np.testing.assert_allclose(mixad.grad(f)(X), expected, rtol=1e-13)
    assert asked
