"""Arrays that are recorded as read cannot be written to while the function runs."""

from __future__ import annotations

import ctypes
import mmap
import threading
import traceback
from typing import Any

import numpy as np
import pytest
from scipy import optimize

import mixad
from mixad.errors import TracerError
from mixad.tape import locks

X = np.arange(1000.0)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    yield
    assert not locks._LOCKED


def test_a_buffer_that_is_filled_anew_is_refused_at_the_line() -> None:
    buffer = np.zeros(1000)

    def f(x: Any) -> Any:
        total = 0.0
        for i in range(3):
            buffer[300 * i] = 1.0  # here
            total = total + (x * buffer).sum()
        return total

    with pytest.raises(TracerError, match="changed in place") as caught:
        mixad.value_and_grad(f)(X)
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert traceback.extract_tb(cause.__traceback__)[-1].line == "buffer[300 * i] = 1.0  # here"
    buffer[0] = 2.0  # as it was


@pytest.mark.parametrize("what", ["array", "view", "base", "input", "row"])
def test_whichever_name_it_has(what: str) -> None:
    base = np.ones((2, 1000))
    view = base[1]
    x = X.copy()
    targets = {"array": view, "view": view, "base": base, "input": x, "row": base[1]}

    def f(t: Any) -> Any:
        y = t * (base[1] if what == "row" else view)
        if what == "row":
            targets["row"] = base[1]  # a view made while the array is locked
        targets[what][..., 7] = 5.0
        return y.sum()

    with pytest.raises((TracerError, ValueError), match=r"read-only|changed in place"):
        mixad.grad(f)(x)
    base[1, 0] = view[1] = x[2] = 3.0


def test_arrays_are_writable_again_after_errors_and_results() -> None:
    a, b = np.ones(1000), np.ones(1000)

    def f(x: Any) -> Any:
        y = x * a * b
        if x[0] > 0:
            raise RuntimeError("stop")
        return y.sum()

    mixad.grad(f)(X)
    a[0] = 2.0
    with pytest.raises(RuntimeError, match="stop"):
        mixad.grad(f)(X + 1)
    b[0] = 2.0
    value, pullback = mixad.vjp(lambda x: x * a, X)
    np.add(value, 1.0, out=value)
    a_was = a.copy()
    a += 0.0  # the same elements
    np.testing.assert_array_equal(pullback(np.ones(1000))[0], a_was)


def test_what_was_read_only_stays_so() -> None:
    a = np.ones(1000)
    a.flags.writeable = False
    mixad.grad(lambda x: (x * a).sum())(X)
    assert not a.flags.writeable


def test_a_writable_view_of_a_read_only_array() -> None:
    """NumPy would not make it writable again: it is watched, not locked, and nothing else is."""
    base, other = np.ones(1000), np.ones(1000)
    view = base[:]
    base.flags.writeable = False
    np.testing.assert_array_equal(mixad.grad(lambda x: (x * view * other).sum())(X), np.ones(1000))
    assert (base.flags.writeable, view.flags.writeable, other.flags.writeable) == (0, 1, 1)

    def f(x: Any) -> Any:
        y = x * view
        view[:] = 5.0
        return y.sum()

    with pytest.raises(TracerError, match="changed in place"):
        mixad.grad(f)(X)


class Subclass(np.ndarray[Any, Any]):
    pass


def test_views_of_views_of_another_class() -> None:
    """Whose base is a view, not the array that owns the memory."""
    owner = np.ones(1000)
    view = np.asarray(owner.view(Subclass)[:])[:]
    assert view.base is not owner

    def f(x: Any) -> Any:
        inner = mixad.grad(lambda y: (y * view).sum())(X)
        assert view.flags.writeable  # that was of the inner transform
        y = x * owner
        assert not owner.flags.writeable
        mixad.grad(lambda y: (y * view).sum())(X)
        assert not owner.flags.writeable
        return y.sum() + inner.sum()

    mixad.grad(f)(X)
    assert owner.flags.writeable
    assert view.flags.writeable


def test_the_outermost_transform_holds_the_lock() -> None:
    a = np.ones(1000)

    def outer(x: Any) -> Any:
        inner = mixad.grad(lambda y: (y * a * x).sum())(x)
        assert not a.flags.writeable
        return inner.sum()

    mixad.grad(outer)(X)
    assert a.flags.writeable


def test_threads_share_a_lock() -> None:
    a = np.ones(1000)
    entered, left = threading.Barrier(2), threading.Barrier(2)
    seen: list[bool] = []

    def f(first: bool) -> Any:
        def loss(x: Any) -> Any:
            y = x * a
            entered.wait(10)
            if not first:
                left.wait(10)  # the other transform is over
                seen.append(a.flags.writeable)
            return y.sum()

        return loss

    def run(first: bool) -> None:
        mixad.grad(f(first))(X)
        if first:
            left.wait(10)

    threads = [threading.Thread(target=run, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [False]
    assert a.flags.writeable


def test_nothing_is_locked_where_nothing_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIXAD_CHECK", "off")
    a = np.ones(1000)

    def f(x: Any) -> Any:
        y = x * a
        assert a.flags.writeable
        return y.sum()

    mixad.grad(f)(X)


class _OtherFlags(np.ndarray[Any, Any]):
    """What a library may make of ``setflags``."""

    def setflags(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("not of this array")


class _Interface:
    """Memory that NumPy finds by ``__array_interface__``."""

    def __init__(self) -> None:
        self._memory = np.ones(8)
        self.__array_interface__ = self._memory.__array_interface__


def _mapped() -> np.ndarray[Any, Any]:
    array = np.frombuffer(mmap.mmap(-1, 64))
    array[:] = 1.0
    return array


def _foreign() -> dict[str, np.ndarray[Any, Any]]:
    """Return arrays of eight ones over memory that is not NumPy's."""
    ones = np.ones(8).tobytes()
    arrays = {
        "ctypes": np.ctypeslib.as_array((ctypes.c_double * 8)(*[1.0] * 8)),
        "mmap": _mapped(),
        "bytearray": np.frombuffer(bytearray(ones)),
        "bytes": np.frombuffer(ones),
        "memoryview": np.asarray(memoryview(bytearray(ones)).cast("d")),
        "a buffer with an offset": np.ndarray(8, buffer=bytearray(8) + ones, offset=8),
        "__array_interface__": np.asarray(_Interface()),
        "DLPack": np.from_dlpack(np.ones(8)),
        "strides of its own": np.lib.stride_tricks.as_strided(np.ones(8)),
        "another class": np.asarray(_OtherFlags(8)),
        "a kernel's result": mixad.broadcast(lambda x: x + 1.0)(np.zeros(8)),
    }
    arrays["another class"][:] = 1.0
    views = {f"a view of {name}": array.view() for name, array in arrays.items()}
    return arrays | views


def test_arrays_over_foreign_memory_are_as_they_were() -> None:
    wrong = {}
    for name, array in _foreign().items():
        was = array.flags.writeable
        captured = mixad.grad(lambda x, array=array: (x * x * array).sum())(np.full(8, 3.0))
        own = mixad.jacobian(lambda x, array=array: x**3 * array)(array)
        expected = np.array_equal(captured, np.full(8, 6.0)), np.array_equal(own, 3 * np.eye(8))
        if not all(expected) or array.flags.writeable != was:
            wrong[name] = captured, own, array.flags.writeable
    assert not wrong


def test_a_write_to_foreign_memory_is_refused() -> None:
    found = {}
    for name, array in _foreign().items():
        if not array.flags.writeable:
            continue

        def f(x: Any, array: Any = array) -> Any:
            y = x * x * array
            array[3] += 1.0
            return y.sum()

        try:
            found[name] = mixad.grad(f)(np.full(8, 3.0))
        except TracerError as error:
            found[name] = "changed in place" in str(error)
    assert [name for name, refused in found.items() if refused is not True] == []


@pytest.mark.torch
def test_memory_of_a_tensor_is_as_it_was() -> None:
    torch = pytest.importorskip("torch")
    array = torch.ones(8, dtype=torch.float64).numpy()
    assert mixad.jacobian(lambda x: x**3 * array)(array)[2, 2] == 3.0
    assert array.flags.writeable


@pytest.mark.slow
@pytest.mark.parametrize("size", [8, 1000])
def test_memory_that_a_compiled_solver_lends_to_a_callback(size: int) -> None:
    """A C array of MINPACK: NumPy takes no write flag back for what has no owner that it knows."""
    roots = np.linspace(0.5, 2.0, size)
    lent, writable = [], []

    def slopes(x: np.ndarray[Any, Any]) -> Any:
        lent.append(x.base is None and not x.flags.owndata)
        found = mixad.grad(lambda t: (t**3 * x).sum() / 4)(x)  # an argument, and captured
        writable.append(x.flags.writeable)
        return np.diag(found * 4)

    found = optimize.fsolve(lambda x: x**4 - roots**4, np.full(size, 2.0), fprime=slopes)
    np.testing.assert_allclose(found, roots, rtol=1e-6)
    assert any(lent)  # SciPy calls it itself first
    assert all(writable)


def test_what_kernels_made_is_read_again_and_stays_writable() -> None:
    """Its memory is lent by a pool; NumPy would not let it be unlocked."""

    def f(x: Any) -> Any:
        row = (x * 1.0)[0]
        return (row * row).sum() if row[0] > 0 else row.sum()

    x = np.ones((4, 100_000))
    assert mixad.jvp(f, (x,), (x,)) == (100_000.0, 200_000.0)
    made = mixad.grad(lambda x: (x * x).sum())(x)
    mixad.grad(lambda x: (made * x).sum())(x)
    made[0, 0] = 3.0
    assert made[0, 0] == 3.0
