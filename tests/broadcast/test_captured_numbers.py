"""Numbers from outside, by every way to them: another value does not compile, and is used."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixad
from mixad.backends import execute
from mixad.backends.cpu.backend import CpuBackend
from mixad.call.specialise import Specialiser
from mixad.errors import KernelOverflowError

X = np.linspace(0.5, 1.5, 5)


class Pair(NamedTuple):
    first: Any
    second: Any


class Settings:
    gain: Any
    table: Any


def by_name(c: Any) -> Any:
    return lambda x: x * c


def by_item(c: Any) -> Any:
    t = (c, 2.0)
    return lambda x: x * t[0] + t[1] * c


def by_item_from_the_end(c: Any) -> Any:
    t = (1.0, c)
    return lambda x: x * t[-1]


def by_nested_item(c: Any) -> Any:
    t = ((1.0, c), (c, (c, 2.0)))
    return lambda x: x * t[0][1] + t[1][1][0]


def by_unpacking(c: Any) -> Any:
    t = (c, (2.0, c))

    def f(x: Any) -> Any:
        a, (b, d) = t
        return x * a + b * d

    return f


def by_loop(c: Any) -> Any:
    t = ((c, 1.0), (2.0, c))

    def f(x: Any) -> Any:
        total = 0.0 * x
        for weight, power in t:
            total = total + weight * x**2 + power
        return total

    return f


def by_sum(c: Any) -> Any:
    t = (c, 2.0, c)
    return lambda x: x * sum(t) + max(t)


def by_run_time_index(c: Any) -> Any:
    t = (c, 2.0 * c, 3.0)
    return lambda x: x * t[int(x > 1.0)]


def by_named_tuple(c: Any) -> Any:
    t = Pair(c, (c, 1.0))
    return lambda x: x * t.first + t[0] * t.second[0]


def by_attribute(c: Any) -> Any:
    o = Settings()
    o.gain, o.table = c, (1.0, (c, 2.0))
    return lambda x: x * o.gain + o.table[1][0]


def by_class_attribute(c: Any) -> Any:
    Settings.gain, Settings.table = c, (c, 1.0)
    return lambda x: x * Settings.gain + Settings.table[0]


def by_default(c: Any) -> Any:
    def f(x: Any, a: Any = c) -> Any:
        return x * a

    return f


def by_default_of_a_helper(c: Any) -> Any:
    def helper(x: Any, a: Any = (c, 2.0), *, b: Any = c) -> Any:
        return x * a[0] + a[1] * b

    return lambda x: helper(x)


def by_slice(c: Any) -> Any:
    t = (1.0, c, c)
    return lambda x: x * sum(t[1:]) + sum((*t, c))


def by_method(c: Any) -> Any:
    class Model:
        def __init__(self) -> None:
            self.t = (c, 2.0)

        def step(self, x: Any) -> Any:
            return x * self.t[0] + self.t[1]

    return Model().step


def beside_other_things(c: Any) -> Any:
    t = (c, "text", None, X * c, lambda x: x * c)
    return lambda x: t[4](x) * t[0] + (t[3] if t[1] == "text" else 0.0)


def by_list(c: Any) -> Any:
    t = [c, [1.0, (c, 2.0)]]
    return lambda x: x * t[0] + t[1][1][0] + sum(t[1][1])


def by_attribute_that_is_a_list(c: Any) -> Any:
    o = Settings()
    o.table = [2.0, c]

    def f(x: Any) -> Any:
        for factor in o.table:
            x = x * factor
        return x + o.table[-1] + o.table[int(x > 1.0)]

    return f


def by_long_tuple(c: Any) -> Any:
    t = (*(0.5 * c * k for k in range(70)), (c, 7))

    def f(x: Any) -> Any:
        total = 0.0 * x
        for coefficient in t[:-1]:
            total = 0.5 * total + coefficient
        return total * t[3] + t[-1][0] + t[-1][1] * sum(t[60:70])

    return f


def by_long_list_at_a_run_time_index(c: Any) -> Any:
    t = [2.0 * c * k for k in range(100)]
    rows = tuple([(float(k), [k * c, c]) for k in range(50)])

    def f(x: Any) -> Any:
        i = int(20.0 * x)
        a, (b, d) = rows[i]
        return t[i] * x + t[-i] + a * b + d

    return f


def by_long_named_tuple(c: Any) -> Any:
    t = Pair(tuple(c * k for k in range(80)), c)
    return lambda x: x * t.first[int(50.0 * x)] + t.second


WAYS: dict[str, Callable[[Any], Any]] = {
    name: made for name, made in globals().items() if name.startswith(("by_", "beside_"))
}
VALUES = {
    "float": (2.0, -0.5, 7.25),
    "int": (2, -3, 11),
    "bool": (True, False, True),
    "float32": tuple(map(np.float32, (2.0, -0.5, 7.25))),
    "int64": tuple(map(np.int64, (2, -3, 11))),
}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []
    plain = CpuBackend.compile

    def compile(self: CpuBackend, spec: Any) -> Any:
        found.append(spec)
        return plain(self, spec)

    monkeypatch.setattr(CpuBackend, "compile", compile)
    return found


@pytest.mark.slow
def test_another_value_does_not_compile_and_is_computed_with(compiled: list[Any]) -> None:
    wrong = []
    for way, make in WAYS.items():
        for kind, values in VALUES.items():
            for iteration, value in enumerate(values):
                before = len(compiled)
                got = mixad.broadcast(make(value))(X)
                wanted = np.array([_at(make(value), k) for k in range(len(X))])
                if not np.allclose(got, wanted, rtol=1e-5):
                    wrong.append((way, kind, value, got, wanted))
                if iteration and len(compiled) > before:
                    wrong.append((way, kind, value, "compiled"))
    assert not wrong


def _at(function: Callable[[Any], Any], k: int) -> Any:
    """Return what plain Python gives for one element; an array stands for its element there."""
    value = np.asarray(function(X[k]))
    return value if value.ndim == 0 else value[k]


WEIGHTS = (1.0, 20.0, 300.0, 4000.0, 50000.0)


def needed_by_an_index(n: int) -> Any:
    t = (n, 1)
    return lambda x: (x > 0) * WEIGHTS[t[0]] + WEIGHTS[t[0] - t[1]]


def needed_by_a_slice(n: int) -> Any:
    t = (n, 1)
    return lambda x: x * sum(WEIGHTS[t[1] : t[0]]) + len(WEIGHTS[: 2 * t[0] - t[0]])


def needed_by_a_shape(n: int) -> Any:
    t = (n,)
    return lambda x: x * len(np.zeros(t[0])) + len([0.0] * t[0])


def needed_by_a_range(n: int) -> Any:
    t = (n,)

    def f(x: Any) -> Any:
        total = 0.0 * x
        for i in range(t[0]):
            total = total + WEIGHTS[i] * x
        return total + sum(range(t[0]))

    return f


def needed_by_an_exponent(n: int) -> Any:
    t = (n, 2)
    return lambda x: x ** t[0] + x ** (t[0] - t[1])


def needed_by_name(n: int) -> Any:
    def f(x: Any) -> Any:
        out = [0.0 * x] * n
        for i in range(n):
            out[i] = out[i] + WEIGHTS[i] * x
        return sum(out) + sum(WEIGHTS[1:n]) + PIECES[n - 1](x)

    return f


def needed_by_attribute(n: int) -> Any:
    o = Settings()
    o.gain, o.table = n, [n]
    return lambda x: sum(WEIGHTS[: o.gain]) * x + PIECES[o.table[0] - 1](x)


PIECES = [lambda x: x, lambda x: 2.0 * x, lambda x: x * x, lambda x: -x]
NEEDED = {name: made for name, made in globals().items() if name.startswith("needed_")}


@pytest.mark.slow
def test_integers_in_tuples_that_are_needed_when_a_kernel_is_compiled_are_known_then() -> None:
    wrong = []
    for way, make in NEEDED.items():
        for n in (2, 4, 1, 2, 3, 4):
            got = mixad.broadcast(make(n))(X)
            wanted = [make(n)(float(x)) for x in X]
            if not np.allclose(got, wanted, rtol=1e-14):
                wrong.append((way, n, got, wanted))
    assert not wrong


def test_integers_from_outside_are_parameters_where_a_kernel_can_be_written_without_them(
    compiled: list[Any],
) -> None:
    """Whatever name they go by: as an exponent, as an index of numbers, as the end of a loop."""

    def make(n: int) -> Any:
        t, o = (n, [n]), Settings()
        o.gain = n
        ends = WEIGHTS[n] + WEIGHTS[t[0]] if n < 5 else 0.0

        def f(x: Any) -> Any:
            total = x**n + x ** t[0] - x ** t[1][0] + x**o.gain
            for _ in range(t[0]):
                total = total + x
            for _ in range(o.gain):
                total = total - 0.5 * x
            return total + WEIGHTS[n] + WEIGHTS[t[0]]

        return f, lambda x: 2 * x**n + 0.5 * n * x + ends

    for n in (2, 3, 0, 4, 1):
        before = len(compiled)
        f, wanted = make(n)
        np.testing.assert_allclose(mixad.broadcast(f)(X), wanted(X), rtol=1e-14)
        slope = mixad.grad(lambda x: mixad.broadcast(f)(x).sum())(X)  # noqa: B023
        np.testing.assert_allclose(slope, 2 * n * X ** (n - 1) + 0.5 * n, rtol=1e-13)
        assert len(compiled) == before + 2 * (n == 2), n


def test_a_list_is_read_anew_at_each_call_and_its_length_is_fixed_for_it(
    compiled: list[Any],
) -> None:
    numbers = [1.0, 2.0]
    f = mixad.broadcast(lambda x: x * sum(numbers) + len(numbers))
    for change in (None, lambda: numbers.reverse(), lambda: numbers.__setitem__(0, 5.0)):
        if change is not None:
            change()
        np.testing.assert_allclose(f(X), X * sum(numbers) + 2, rtol=1e-14)
    assert len(compiled) == 1
    for _ in range(2):
        numbers.append(3.0)
        np.testing.assert_allclose(f(X), X * sum(numbers) + len(numbers), rtol=1e-14)
    assert len(compiled) == 3


@pytest.mark.parametrize("change", [list.clear, list.pop, lambda each: each.append(7)])
def test_a_list_that_another_thread_changes_during_a_call_is_read_once(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, inner, many, other = [1.0, 2.0], [3.0, 4.0], [0.5] * 100, [5.0, 6.0]
    pair, holder = (2.0, inner), types.SimpleNamespace(other=other)

    def helper(x: Any) -> Any:
        return x * len(numbers) + sum(numbers)

    def f(x: Any) -> Any:
        return helper(x) + sum(numbers) * x + sum(pair[1]) + many[3] + holder.other[0]

    kernel, bound, left = mixad.broadcast(f), Specialiser._find_program, [True]

    def bound_late(self: Any, args: Any, kwargs: Any, snapshot: Any) -> Any:
        if left:
            left.pop()
            for each in (numbers, inner, many, other):
                change(each)
        return bound(self, args, kwargs, snapshot)

    monkeypatch.setattr(Specialiser, "_find_program", bound_late)
    want = f(X)
    np.testing.assert_allclose(kernel(X), want, rtol=1e-14)
    for each in (numbers, inner, many, other):
        each[:] = [*each, 8.0, 9.0, 10.0, 11.0]
    np.testing.assert_allclose(kernel(X), f(X), rtol=1e-14)


@pytest.mark.parametrize("library", ["torch", "array_api_strict"])
def test_long_tuples_beside_arrays_of_other_libraries(library: str) -> None:
    xp = pytest.importorskip(library)
    t = tuple([np.float32(0.1 * k) for k in range(70)])
    f = mixad.broadcast(lambda x: x * t[int(40.0 * x)] + t[3])
    x = xp.asarray(X)
    wanted = [v * float(t[int(40 * v)]) + float(t[3]) for v in X.tolist()]
    np.testing.assert_allclose(np.asarray(f(x)), wanted, rtol=1e-14)
    slope = mixad.grad(lambda x: f(x).sum())(x)
    np.testing.assert_allclose(np.asarray(slope), [float(t[int(40 * v)]) for v in X], rtol=1e-14)


def test_long_tuples_of_complex_numbers() -> None:
    t = [*(complex(k, -k / 2) for k in range(70)), np.complex64(1 + 2j)]

    def f(x: Any) -> Any:
        z = t[int(40.0 * x)] * t[1] + t[70]
        return z.real * x + z.imag

    np.testing.assert_allclose(mixad.broadcast(f)(X), [f(x) for x in X.tolist()], rtol=1e-14)


def test_integers_in_long_tuples_must_fit_as_others() -> None:
    def make(n: int) -> Any:
        t = (*range(70), n)
        return mixad.broadcast(lambda x: x + t[70] * 2 - t[70])

    x = np.arange(3, dtype="i1")
    np.testing.assert_array_equal(make(60)(x), x + 60)
    with pytest.raises(KernelOverflowError, match=r"200, the value of 't\[70\] \* 2'[^$]*int8"):
        make(100)(x)
    with pytest.raises(KernelOverflowError, match=r"'t', a value from outside, [^$]*int64"):
        make(1 << 70)(x)


def test_launches_of_kernels_that_read_a_shape_are_evicted_as_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execute, "_LAUNCHES", execute.FifoCache(4))
    alive = []
    for n in range(3, 13):
        c = np.arange(float(n))
        f = mixad.broadcast(lambda x: x * c[1] + c.shape[0])  # noqa: B023
        np.testing.assert_array_equal(f(X), X + n)
        alive.append(weakref.ref(next(reversed(execute._LAUNCHES._known.values()))[1].bound))
    del f
    gc.collect()
    assert len(execute._LAUNCHES) == 4
    assert [ref() is not None for ref in alive] == [False] * 6 + [True] * 4


def test_gradients_follow_numbers_in_tuples() -> None:
    def make(t: Any) -> Any:
        return mixad.broadcast(lambda x: t[0] * x ** t[1] + t[2][0] / x)

    for a, n, b in [(2.0, 3, 0.5), (-1.0, 3, 4.0), (2.0, 2, 0.5), (2.0, 20, 0.5), (1.0, 21, 0.5)]:
        got = mixad.grad(lambda x: make((a, n, (b,)))(x).sum())(X)  # noqa: B023
        np.testing.assert_allclose(got, a * n * X ** (n - 1) - b / X**2, rtol=1e-13)


def test_large_integers_in_tuples_share_a_program(compiled: list[Any]) -> None:
    def make(n: int) -> Any:
        t = (n,)

        def f(x: Any) -> Any:
            total = 0.0 * x
            for i in range(t[0]):
                total = total + TABLE[i] * x
            return total + x ** t[0]

        return f

    for n in (100, 200, 3, 101, 250, 300):
        before = len(compiled)
        got = mixad.broadcast(make(n))(X)
        np.testing.assert_allclose(got, TABLE[:n].sum() * X + X**n, rtol=1e-12)
        assert len(compiled) == before + (n in (100, 3)), n


TABLE = np.arange(400.0)


def test_lengths_of_captured_arrays_share_a_program(compiled: list[Any]) -> None:
    for n in (50, 60, 70, 80):
        before = len(compiled)
        c = np.arange(float(n))

        def f(x: Any) -> Any:
            total = 0.0 * x
            for i in range(c.shape[0]):  # noqa: B023
                total = total + c[i] * x  # noqa: B023
            return total / c.shape[0]  # noqa: B023

        np.testing.assert_allclose(mixad.broadcast(f)(X), c.mean() * X, rtol=1e-14)
        assert len(compiled) == before + (n == 50)


def test_rules_read_numbers_in_tuples() -> None:
    def make(t: Any) -> Any:
        @mixad.scalar_rule(lambda x: t[0] + t[-1])  # not the derivative: so the rule is seen
        def scaled(x: Any) -> Any:
            return t[0] * x

        return scaled

    long = (1.5, *[0.0] * 70, 4.0)
    for t in [(2.0, 1.0), (3.0, 5.0), long, tuple(2 * v for v in long)]:
        scaled = make(t)
        f = mixad.broadcast(lambda x: scaled(x))  # noqa: B023
        np.testing.assert_allclose(f(X), t[0] * X, rtol=1e-14)
        got = mixad.grad(lambda x: f(x).sum())(X)  # noqa: B023
        np.testing.assert_allclose(got, [sum(t)] * 5, rtol=1e-14)


def test_programs_of_long_lists_are_forgotten_by_how_many_numbers_they_read() -> None:
    def reading(count: int) -> Any:
        c = list(map(float, range(count)))
        return lambda x, j: x * c[j]

    found = [mixad.broadcast(reading(4000 + i))(X, np.asarray(i)) for i in range(12)]
    np.testing.assert_array_equal(found, [X * i for i in range(12)])
    assert len(Specialiser(reading(1))._known) == 8  # of 256, a list weighs 32
