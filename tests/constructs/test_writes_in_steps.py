"""Writes into arrays that loops hand on: `out[i] = y`, by a backend, in the memory of the carry."""

from __future__ import annotations

import numpy as np
import pytest

import mixad
from mixad.constructs import loop as loops
from mixad.constructs import while_loop_rule
from mixad.tape.native_steps import NativeLaunch, NativeSteps, changed_register

RNG = np.random.default_rng(20)
ROWS, COLUMNS = 8, 3
OUT = RNG.normal(size=(ROWS, COLUMNS))
A = RNG.normal(size=COLUMNS)
TINY = 1e-30
"""Step of complex differences."""


def element(i, out, y, a):
    y = np.sin(y * a)
    out[i, 1] = y[0] * y[1]
    return out, y


def row(i, out, y, a):
    out[i] = np.sin(out[i - 1]) * a + y
    return out, y * 0.9


def column(i, out, y, a):
    out[:, i % COLUMNS] = out[:, 0] * a[i % COLUMNS]
    return out, y


def from_the_end(i, out, y, a):
    out[-i] = out[-i - 1] * a + y
    return out, out[-i] * y


def two_rows(i, out, y, a):
    out[i] = y * out[i - 1]
    out[i - 1] = out[i] * a + out[0]
    return out, y + out[i - 1]


def one_place_twice(i, out, y, a):
    out[i] = y * a
    out[i] = out[i] * out[i] + out[0]
    out[i % 2] = out[i] * y
    return out, y


def added(i, out, y, a):
    out[i] += y * a
    out[i - 1] *= out[i]
    return out, y


def number(i, out, y, a):
    out[i] = 2.0
    out[i, 0] = 0.5
    return out, y * out[i] * a


def whole_read_before(i, out, y, a):
    total = (out * out).sum()
    out[i] = np.cos(total) * a
    return out, y


def whole_read_after(i, out, y, a):
    out[i] = y * a
    return out, np.sin(out).sum(0) * a


def both_versions(i, out, y, a):
    before = out * a
    out[i] = y + before[i - 1]
    return out, y + (out * before).sum(0)


def made_anew(i, out, y, a):
    new = out * a
    new[i] = y * new[i - 1]
    return new, y


def handed_through(i, out, y, a):
    return out, y * np.sin(out[i]) * a


def first_and_last(i, out, y, a):
    out[0] = out[i] * a + y
    out[-1, 1:] = np.sin(out[0, :2])
    out[::3, 0] = 2.0
    return out, y


def several_rows(i, out, y, a):
    out[(i + np.arange(2)) % ROWS] = np.sin(y) * a
    return out, out[0] * y


def repeated_rows(i, out, y, a):
    rows = i * np.ones(3, dtype=int)
    out[rows] = np.stack([y, y * a, out[i - 1] * a])
    return out, y * a


NATIVE = [element, row, column, from_the_end, two_rows, one_place_twice, added, number,
          whole_read_before, whole_read_after, both_versions, made_anew,
          handed_through, first_and_last]  # fmt: skip


def in_order(i, out, y, a):
    out[np.argsort(y)] = out[i - 1] * a
    out[i] = y
    return out, y * out[0]


def several_flags(i, out, y, a):
    out[np.arange(ROWS) == i] = 0.25
    out[i - 1] = y * a
    return out, y * out[i]


BY_PYTHON = [several_rows, repeated_rows, in_order, several_flags]
BODIES = NATIVE + BY_PYTHON


def by_python(body, out, a, *, steps=range(1, ROWS)):
    """Take the steps on NumPy's arrays, of any dtype."""
    out, y = out.astype(np.result_type(out, a)), a * 1.0
    for i in steps:
        out, y = body(i, out.copy(), y, a)
    return out, y


def by_fori_loop(body, out, a, memory=None):
    return mixad.fori_loop(1, ROWS, lambda i, c: body(i, *c, a), (out, a * 1.0), memory=memory)


def by_scan(body, out, a, memory=None):
    def step(c, _):
        i, *c = c
        return (i + 1, *body(i, *c, a)), None

    init = np.asarray(1), out, a * 1.0
    return mixad.scan(step, init, length=ROWS - 1, memory=memory)[0][1:]


def by_reverse_scan(body, out, a, memory=None):
    def step(c, i):
        return body(i, *c, a), c[1]

    numbers = np.arange(1, ROWS)[::-1].copy()
    return mixad.scan(step, (out, a * 1.0), numbers, reverse=True, memory=memory)[0]


def by_while_loop(body, out, a, memory=None):
    def step(c):
        i, *c = c
        return (i + 1, *body(i, *c, a))

    init = np.asarray(1), out, a * 1.0
    return mixad.while_loop(lambda c: c[0] < ROWS, step, init, memory=memory)[1:]


SLOW = [pytest.param(run, marks=pytest.mark.slow) for run in (by_scan, by_reverse_scan)]
LOOPS = [by_fori_loop, by_while_loop, *SLOW]


def loss(run, body, out, a, **options):
    out, y = run(body, out, a, **options)
    return (out * out).sum() + (y * y * y).sum()


def along(body, out, a, directions):
    """Return the derivative along directions, by complex steps."""
    moved = [x + 1j * TINY * d for x, d in zip((out, a), directions, strict=True)]
    return loss(by_python, body, *moved).imag / TINY


@pytest.fixture
def native(native, monkeypatch):
    """Let Python take no step, of loops with a test neither."""
    run = while_loop_rule._run_natively

    def run_natively(*arguments):
        found = run(*arguments)
        assert found is not None, "Python takes the steps"
        return found

    monkeypatch.setattr(while_loop_rule, "_run_natively", run_natively)


def of_name(function):
    return function.__name__


@pytest.mark.parametrize("run", LOOPS, ids=of_name)
@pytest.mark.parametrize("body", NATIVE, ids=of_name)
def test_values_and_gradients_without_python(run, body, native):
    check(run, body)


@pytest.mark.parametrize("run", LOOPS, ids=of_name)
@pytest.mark.parametrize("body", BY_PYTHON, ids=of_name)
def test_values_and_gradients_where_python_finds_positions(run, body):
    check(run, body)


def check(run, body):
    given = OUT.copy()
    for one, other in zip(run(body, given, A), by_python(body, OUT, A), strict=True):
        np.testing.assert_allclose(one, other, 1e-10, 1e-11)
    value, gradients = mixad.value_and_grad(lambda *x: loss(run, body, *x), argnums=(0, 1))(
        given, A
    )
    np.testing.assert_array_equal(given, OUT)
    np.testing.assert_allclose(value, loss(by_python, body, OUT, A), 1e-12)
    directions = RNG.normal(size=OUT.shape), RNG.normal(size=A.shape)
    wanted = along(body, OUT, A, directions)
    found = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    np.testing.assert_allclose(found, wanted, 1e-10)
    _, tangent = mixad.jvp(lambda *x: loss(run, body, *x), (OUT, A), directions)
    np.testing.assert_allclose(tangent, wanted, 1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("run", [by_fori_loop, by_while_loop], ids=of_name)
@pytest.mark.parametrize("body", [row, two_rows, one_place_twice, repeated_rows], ids=of_name)
def test_second_derivatives(run, body):
    directions, size = (RNG.normal(size=OUT.shape), RNG.normal(size=A.shape)), 1e-6

    def gradient(*x):
        return mixad.grad(lambda *x: loss(run, body, *x), argnums=(0, 1))(*x)

    ends = [
        gradient(*[x + sign * size * d for x, d in zip((OUT, A), directions, strict=True)])
        for sign in (1.0, -1.0)
    ]
    wanted = [(one - other) / (2.0 * size) for one, other in zip(*ends, strict=True)]

    def slope(*x):
        return sum((g * d).sum() for g, d in zip(gradient(*x), directions, strict=True))

    twice = mixad.grad(slope, argnums=(0, 1))(OUT, A)
    forward = mixad.hvp(lambda *x: loss(run, body, *x), (OUT, A), directions)
    for found in (twice, forward):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-6, 1e-7)


@pytest.mark.parametrize("run", LOOPS, ids=of_name)
@pytest.mark.parametrize("body", [row, two_rows, whole_read_before, made_anew], ids=of_name)
def test_gradients_do_not_depend_on_memory(run, body):
    carry = OUT.nbytes + A.nbytes + (8 if run in (by_scan, by_while_loop) else 0)

    def gradient(memory):
        return mixad.grad(lambda *x: loss(run, body, *x, memory=memory), argnums=(0, 1))(OUT, A)

    wanted = gradient(None)
    for count in (2, 3, 5):
        for one, other in zip(gradient(count * carry), wanted, strict=True):
            assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int16, bool])
def test_dtypes(dtype, native):
    """Whole numbers and flags have no derivative, and are written in the same way."""

    def step(i, c):
        out, x = c
        out[i] = out[i - 1]
        out[i // 2, 1] = out[i, 0]
        return out, x * 0.5

    def run(x, loop):
        out, x = loop(1, ROWS, step, ((OUT * 3.0).astype(dtype), x))
        return out, x

    out, _ = run(np.float64(2.0), mixad.fori_loop)

    def in_python(lower, upper, step, c):
        for i in range(lower, upper):
            c = step(i, c)
        return c

    wanted, _ = run(np.float64(2.0), in_python)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_allclose(mixad.grad(lambda x: run(x, mixad.fori_loop)[1])(2.0), 0.5**7)


# -- what a step costs -----------------------------------------------------------------------------


@pytest.fixture
def bytes_a_step(monkeypatch):
    """A list with how many bytes each loop's steps make or copy."""
    found = []
    copy, add = NativeSteps._copy, NativeSteps.add

    def counting_copy(self, size, *places):
        found[-1] += size
        copy(self, size, *places)

    def counting_add(self, plan, order, *arguments):
        launches = [each for each in order.natives if isinstance(each, NativeLaunch)]
        made = [sum(each.sizes) for each in launches if changed_register(each) is None]
        found.append(sum(made))
        return add(self, plan, order, *arguments)

    monkeypatch.setattr(NativeSteps, "_copy", counting_copy)
    monkeypatch.setattr(NativeSteps, "add", counting_add)
    return found


def table(a, count, loop):
    """A table each of whose elements is made of the two before."""

    def step(i, out):
        out[i] = np.sin(out[i - 1] * a) + out[i - 2] * out[i - 1]
        return out

    start = np.ones(count) * a
    if loop == "fori_loop":
        return mixad.fori_loop(2, count, step, start).sum()

    def counted(c):
        return c[0] + 1, step(*c)

    return mixad.while_loop(lambda c: c[0] < count, counted, (np.asarray(2), start))[1].sum()


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["fori_loop", "while_loop"])
def test_steps_cost_what_they_write(loop, bytes_a_step, native):
    """Neither the loop, nor its derivatives of both modes, copy the array, whatever its length."""

    def of(count):
        bytes_a_step.clear()
        f = lambda a: table(a, count, loop)  # noqa: E731
        f(0.3), mixad.grad(f)(0.3), mixad.jvp(f, (0.3,), (1.0,))
        return list(bytes_a_step)

    assert of(40) == of(4000)
    assert max(of(4000)) < 300


@pytest.mark.parametrize("loop", ["fori_loop", "while_loop"])
def test_no_version_of_the_array_is_kept(loop, monkeypatch):
    """What a gradient stores is a few numbers for each step."""
    stored, stacked = [], loops._stacked

    def counting(result, length):
        found = stacked(result, length)
        stored.append(found.nbytes)
        return found

    monkeypatch.setattr(loops, "_stacked", counting)
    count = 2000
    mixad.grad(lambda a: table(a, count, loop))(0.3)
    assert sum(stored) < 100 * count


def test_the_tape_says_what_python_calls():
    def described(body):
        return str(mixad.tape(lambda a: loss(by_fori_loop, body, OUT, a))(A))

    assert "Python" not in described(two_rows)
    assert "argsort called from Python" in described(in_order)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("outside", [ROWS, -ROWS - 1, 1 << 40, -(1 << 62)])
@pytest.mark.parametrize("mode", ["value", "grad", "jvp"])
def test_an_index_outside_raises_what_numpy_raises(outside, mode):
    numbers, given = np.arange(ROWS), OUT.copy()
    numbers[5] = outside

    def f(a):
        def step(out, i):
            out[i] = a
            return out, None

        return mixad.scan(step, given, numbers)[0].sum()

    calls = {"value": f, "grad": mixad.grad(f), "jvp": lambda a: mixad.jvp(f, (a,), (a,))}
    with pytest.raises(IndexError, match=rf"index {outside} is out of bounds for axis 0"):
        calls[mode](A)
    np.testing.assert_array_equal(given, OUT)


def test_a_value_of_another_shape_is_refused():
    def step(i, out):
        out[i] = out[:2, 0]
        return out

    with pytest.raises(ValueError, match="broadcast"):
        mixad.fori_loop(0, ROWS, step, OUT)


# -- loops in loops --------------------------------------------------------------------------------


def test_an_inner_loop_writes_into_the_array_of_the_outer():
    def f(a, fori_loop):
        def outer(i, out):
            def inner(j, out):
                out[i, j] = np.sin(out[i - 1, j] * a) + out[i, j - 1]
                return out

            return fori_loop(1, COLUMNS, inner, out)

        out = fori_loop(1, ROWS, outer, OUT * a)
        return (out * out).sum()

    def in_python(lower, upper, step, out):
        out = out.copy()
        for i in range(lower, upper):
            out = step(i, out)
        return out

    value, gradient = mixad.value_and_grad(lambda a: f(a, mixad.fori_loop))(0.7)
    np.testing.assert_allclose(value, f(0.7, in_python), 1e-12)
    wanted = (f(0.7 + 1j * TINY, in_python)).imag / TINY
    np.testing.assert_allclose(gradient, wanted, 1e-10)


def test_arrays_that_change_places():
    def f(out, a, fori_loop):
        def step(i, c):
            one, other = c
            one[i] = other[i - 1] * a
            return other, one

        one, other = fori_loop(1, ROWS, step, (out, out * 2.0))
        return (one * other).sum() + (one * one).sum()

    def in_python(lower, upper, step, c):
        for i in range(lower, upper):
            c = step(i, [each.copy() for each in c])
        return c

    value, gradient = mixad.value_and_grad(lambda a: f(OUT, a, mixad.fori_loop))(A)
    np.testing.assert_allclose(value, f(OUT, A, in_python), 1e-12)
    direction = RNG.normal(size=A.shape)
    wanted = f(OUT + 0j, A + 1j * TINY * direction, in_python).imag / TINY
    np.testing.assert_allclose((gradient * direction).sum(), wanted, 1e-10)


def test_the_array_of_each_step_is_a_result():
    def step(out, i):
        out[i] = out[i - 1] + i
        return out, out

    last, ys = mixad.scan(step, OUT, np.arange(1, ROWS))
    wanted = OUT.copy()
    for number, i in enumerate(range(1, ROWS)):
        wanted[i] = wanted[i - 1] + i
        np.testing.assert_array_equal(ys[number], wanted)
    np.testing.assert_array_equal(last, wanted)


@pytest.mark.slow
def test_gradients_are_those_of_jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    xp = jax.numpy

    def by_jax(a):
        def step(out, i):
            return out.at[i].set(xp.sin(out[i - 1] * a) + out[i - 2] * out[i - 1]), None

        return jax.lax.scan(step, xp.ones(40) * a, xp.arange(2, 40))[0].sum()

    found = mixad.value_and_grad(lambda a: table(a, 40, "fori_loop"))(0.3)
    np.testing.assert_allclose(found, jax.value_and_grad(by_jax)(0.3), 1e-12)
