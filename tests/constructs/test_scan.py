"""Loops of steps: values are those of the loop in Python, derivatives those of what ran."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mixad
from mixad.constructs import loop as loops
from mixad.errors import TracerError


def by_python(f, init, xs, *, reverse=False):
    """Return what a loop gives that is written in Python."""
    carry, ys, n = init, [None] * len(xs), len(xs)
    for at in reversed(range(n)) if reverse else range(n):
        carry, ys[at] = f(carry, xs[at])
    return carry, np.stack(ys)


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def loss_of(scan, f):
    def loss(init, xs):
        carry, ys = scan(f, init, xs)
        return (carry * carry).sum() + (ys * ys * ys).sum()

    return loss


def close(one, other, tolerance=1e-13):
    one, other = np.asarray(one), np.asarray(other)
    assert one.shape == other.shape
    assert np.abs(one - other).max(initial=0.0) <= tolerance * (
        1.0 + np.abs(other).max(initial=0.0)
    )


@mixad.broadcast
def settle(x, y):
    for _ in range(3):
        x = x * 0.5 + y * y if x > y else x + y * 0.1
    return x


WEIGHTS = drawn(4, 4, seed=5) * 0.3
WIDE = drawn(2, 4, seed=6) * 0.3

BODIES = {
    "elementwise": lambda c, x: (np.sin(c) * 0.9 + x, c * x),
    "a kernel": lambda c, x: (settle(c, x), c),
    "a sum": lambda c, x: (c * 0.5 + c.sum() * x * 0.1, c),
    "a matrix product": lambda c, x: (WEIGHTS @ c + x, c @ WEIGHTS),
    "products of flat matrices": lambda c, x: (
        WIDE.T @ (WIDE * c) @ x + x[:, None] @ c[None] @ c,
        c,
    ),
    "a solution": lambda c, x: (np.linalg.solve(np.eye(4) * 3.0 + np.outer(x, x), c), c),
    "views": lambda c, x: (np.concatenate([c[1:], c[:1]]) * 0.9 + x[::-1], c[::2] * 2.0),
    "a written element": lambda c, x: (with_first(c * 1.0, x), c),
    "a gradient": lambda c, x: (c - 0.1 * mixad.grad(lambda z: ((z * z - x) ** 2).sum())(c), c),
    "a loop": lambda c, x: (mixad.scan(lambda d, y: (d * 0.9 + y * c, None), c, WEIGHTS)[0] + x, c),
    "a checkpoint": lambda c, x: (mixad.checkpoint(lambda z: np.tanh(z) * 0.9)(c) + x, c),
    "what is handed on": lambda c, x: (c, x),
    "a constant": lambda c, x: (c * 0.9, np.ones(4)),
    "a mask": lambda c, x: (np.where((c > 0.0) & ~(x > 0.5), np.sin(c) + x, c * 0.5), c * (c > 0)),
    "an order": lambda c, x: (np.sort(c * 0.5 + x), c[np.argsort(x)]),
    "the largest": lambda c, x: (c * 0.5 + x * c.max(), c[np.argmax(x)] * x),
    "an unknown place": lambda c, x: (with_at(c * 1.0, np.argmin(x), x), c),
    "a median": lambda c, x: (c * 0.9 + np.median(c) * x, c),
    "interpolation": lambda c, x: (
        c * 0.9 + np.interp(c, [-1.0, 0.0, 1.0], [0.0, 2.0, 1.0]) * x,
        c,
    ),
    "whole numbers": lambda c, x: (c * 0.9 + x * (c * 10.0).astype(int) * 0.01, c),
    "no derivative": lambda c, x: (c * 0.9 * mixad.stop_gradient(x) + x, c),
    "a norm": lambda c, x: (c / np.linalg.norm(c) + x * 0.1, c),
    "a rule of the user's": lambda c, x: (clipped(c) + x, c),
}


def with_first(array, x):
    array[0] = x[1] * array[1]
    return array


def with_at(array, at, x):
    array[at] = x[0] * array[1]
    return array


@mixad.custom_vjp
def clipped(x):
    return np.clip(x, -1.0, 1.0)


clipped.defvjp(lambda x: (np.clip(x, -1.0, 1.0), None), lambda _, g: (g * 0.5,))


@pytest.mark.parametrize("name", BODIES)
def test_values_and_derivatives_are_those_of_the_loop_in_python(name):
    f, init, xs = BODIES[name], drawn(4), drawn(7, 4, seed=1)
    for one, other in zip(mixad.scan(f, init, xs), by_python(f, init, xs), strict=True):
        close(one, other)
    loss, expected = loss_of(mixad.scan, f), loss_of(by_python, f)
    for argnums in (0, (0, 1)):
        found = mixad.grad(loss, argnums=argnums)(init, xs)
        wanted = mixad.grad(expected, argnums=argnums)(init, xs)
        for one, other in zip(found, wanted, strict=True):
            close(one, other)


@pytest.mark.parametrize("name", sorted(set(BODIES) - {"a rule of the user's"}))
def test_second_derivatives_and_tangents(name):
    f, init, xs, along = BODIES[name], drawn(4), drawn(5, 4, seed=1), drawn(4, seed=2)

    def loss(init):
        return loss_of(mixad.scan, f)(init, xs)

    def expected(init):
        return loss_of(by_python, f)(init, xs)

    _, tangent = mixad.jvp(loss, (init,), (along,))
    close(tangent, (mixad.grad(expected)(init) * along).sum(), 1e-11)
    wanted = mixad.hvp(expected, (init,), (along,))
    close(mixad.hvp(loss, (init,), (along,)), wanted, 1e-11)
    found = mixad.grad(lambda init: (mixad.grad(loss)(init) * along).sum())(init)
    close(found, wanted, 1e-11)


@pytest.mark.parametrize("name", BODIES)
def test_steps_of_a_backend_have_the_bits_of_python_steps(name, monkeypatch):
    f, init, xs = BODIES[name], drawn(4), drawn(7, 4, seed=1)

    def run():
        return (
            *mixad.scan(f, init, xs),
            *mixad.scan(f, init, xs, reverse=True),
            *mixad.grad(loss_of(mixad.scan, f), argnums=(0, 1))(init, xs),
        )

    found = run()
    monkeypatch.setattr(loops, "_run_natively", lambda *_: False)
    for one, other in zip(found, run(), strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("inner", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("side", [1, 4])
def test_products_of_flat_matrices_are_steps_of_a_backend(side, inner, monkeypatch):
    def refuse(*_):
        raise AssertionError("Python takes the steps")

    monkeypatch.setattr(loops, "_run_by_python", refuse)
    tall, flat = drawn(side, inner) * 0.3, drawn(inner, side, seed=1) * 0.3
    found, _ = mixad.scan(lambda c, _: (tall @ (flat @ c), None), np.eye(side), length=20)
    close(found, np.linalg.matrix_power(tall @ flat, 20))


def test_a_recurrent_network_by_hand():
    steps, n = 50, 16
    weights, xs, h0 = drawn(n, n) * 0.2, drawn(steps, n, seed=1), drawn(n, seed=2)

    def loss(weights, h0, xs):
        h, _ = mixad.scan(lambda h, x: (np.tanh(weights @ h + x), None), h0, xs)
        return (h * h).sum()

    hs = [h0]
    for x in xs:
        hs.append(np.tanh(weights @ hs[-1] + x))
    g, of_weights, of_xs = 2.0 * hs[-1], np.zeros((n, n)), np.zeros((steps, n))
    for at in reversed(range(steps)):
        of_xs[at] = g * (1.0 - hs[at + 1] ** 2)
        of_weights += np.outer(of_xs[at], hs[at])
        g = weights.T @ of_xs[at]
    found = mixad.grad(loss, argnums=(0, 1, 2))(weights, h0, xs)
    for one, other in zip(found, (of_weights, g, of_xs), strict=True):
        close(one, other)


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 1000])
def test_numbers_of_steps(steps):
    f, init, xs = BODIES["elementwise"], drawn(3), drawn(steps, 3, seed=1)
    carry, ys = mixad.scan(f, init, xs)
    assert ys.shape == (steps, 3)
    expected = init
    for x in xs:
        expected = np.asarray(f(expected, x)[0])
    close(carry, expected)
    g, of_xs = mixad.grad(lambda c, xs: mixad.scan(f, c, xs)[0].sum(), argnums=(0, 1))(init, xs)
    assert g.shape == (3,)
    assert of_xs.shape == (steps, 3)
    if not steps:
        assert carry is not init
        assert g.tolist() == [1.0, 1.0, 1.0]


def test_a_thousand_steps_of_arithmetic_have_the_bits_of_python():
    x = np.linspace(0.1, 0.9, 16)
    carry, _ = mixad.scan(lambda c, _: (3.1 * c * (1.0 - c), None), x, length=1000)
    for _ in range(1000):
        x = 3.1 * x * (1.0 - x)
    assert carry.tobytes() == x.tobytes()


def test_the_last_part_may_be_taken_first():
    f, init, xs = BODIES["elementwise"], drawn(4), drawn(7, 4, seed=1)

    def backwards(f, init, xs):
        return mixad.scan(f, init, xs, reverse=True)

    def expected(f, init, xs):
        return by_python(f, init, xs, reverse=True)

    for one, other in zip(backwards(f, init, xs), expected(f, init, xs), strict=True):
        close(one, other)
    found = mixad.grad(loss_of(backwards, f), argnums=(0, 1))(init, xs)
    for one, other in zip(
        found, mixad.grad(loss_of(expected, f), argnums=(0, 1))(init, xs), strict=True
    ):
        close(one, other)


def test_trees_of_carries_and_parts():
    def f(carry, x):
        (a, n), left = carry["pair"], x["left"]
        a = a * left + x["right"][0]
        return {"pair": (a, n + 1)}, (a, {"count": n})

    xs = {"left": drawn(5, 3), "right": [drawn(5, 3, seed=1)]}
    init = {"pair": (np.ones(3), 0)}
    carry, (ys, counts) = mixad.scan(f, init, xs)
    assert carry["pair"][1] == 5
    assert counts["count"].tolist() == [0, 1, 2, 3, 4]
    close(carry["pair"][0], ys[-1])
    g = mixad.grad(lambda xs: mixad.scan(f, init, xs)[0]["pair"][0].sum())(xs)
    close(g["right"][0][-1], np.ones(3))
    close(g["left"][-1], ys[-2])


def test_carries_that_change_places():
    def f(c, x):
        return ((c[1], c[0] * x, c[2]), c[1])

    init, xs = (drawn(3), drawn(3, seed=1), drawn(2, seed=2)), drawn(5, seed=3)
    carry, ys = mixad.scan(f, init, xs)
    a, b, kept = init
    for x, y in zip(xs, ys, strict=True):
        close(y, b)
        a, b = b, a * x
    for one, other in zip(carry, (a, b, kept), strict=True):
        close(one, other)


def test_whole_numbers_from_a_loop_over_numbers():
    assert mixad.fori_loop(1, 6, lambda i, x: x * i, 1.0) == 120.0
    assert mixad.fori_loop(3, 3, lambda i, x: x * i, 2.0) == 2.0
    table = np.arange(10.0)

    def horner(x):
        return mixad.fori_loop(0, 10, lambda i, s: s * x + table[i], 0.0)

    close(mixad.grad(horner)(0.9), np.polyval(np.polyder(np.poly1d(table)), 0.9))


def test_an_array_is_filled_at_the_number_of_the_step():
    def powers(x):
        def body(i, out):
            out = out * 1.0
            out[i] = out[i - 1] * x
            return out

        return mixad.fori_loop(1, 6, body, np.ones(6)).sum()

    value, g = mixad.value_and_grad(powers)(1.5)
    close(value, sum(1.5**k for k in range(6)))
    close(g, sum(k * 1.5 ** (k - 1) for k in range(1, 6)))


def test_each_part_is_mapped():
    rows = drawn(6, 3)
    close(mixad.map(lambda row: (row @ row, row[0]), rows)[0], (rows * rows).sum(axis=1))
    g = mixad.grad(lambda rows: mixad.map(lambda row: row @ row, rows).sum())(rows)
    close(g, 2.0 * rows)


def test_captured_numbers_adapt_and_have_gradients():
    x = drawn(4).astype(np.float32)

    def f(rate):
        return mixad.scan(lambda c, _: (c * rate, None), x, length=3)[0]

    assert f(0.5).dtype == np.float32
    value, g = mixad.value_and_grad(lambda rate: f(rate).sum())(0.5)
    assert value.dtype == np.float32
    close(g, 3 * 0.5**2 * x.sum(), 1e-6)


def test_a_body_is_recorded_anew_for_other_values_shapes_and_types():
    for scale in (2.0, 3.0):
        for n in (2, 3):
            for dtype in (np.float32, np.float64):
                init = np.ones(n, dtype)
                carry, _ = mixad.scan(lambda c, _, by=scale: (c * by, None), init, length=2)
                assert carry.dtype == dtype
                assert carry.tolist() == [scale**2] * n


def test_a_python_number_takes_the_type_that_a_step_gives_it():
    xs = np.ones(3, np.float32)
    carry, _ = mixad.scan(lambda c, x: (c + x, None), 0, xs)
    assert carry.dtype == np.float32
    assert carry == 3.0


def test_results_are_the_callers_own():
    init, xs = np.ones(2), np.ones((2, 2))
    carry, ys = mixad.scan(lambda c, x: (c, x), init, xs)
    carry[...], ys[...] = 7.0, 7.0
    assert init.tolist() == [1.0, 1.0]
    assert xs.tolist() == [[1.0, 1.0], [1.0, 1.0]]


STEPS = {
    "sin": lambda a, c, x: np.sin(a),
    "mask": lambda a, c, x: np.where(a > c, a, c * 0.3),
    "add": lambda a, c, x: a + x * c,
    "mul": lambda a, c, x: a * 0.7,
    "roll": lambda a, c, x: np.roll(a, 1),
    "sum": lambda a, c, x: a - a.sum() * 0.1,
    "order": lambda a, c, x: a[np.argsort(c)],
}


@pytest.mark.slow
@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=6), st.integers(1, 6), st.booleans())
def test_random_bodies(names, steps, reverse):
    def f(c, x):
        a = c * 0.5 + x
        for name in names:
            a = STEPS[name](a, c, x)
        return a, a * x

    def scan(f, init, xs):
        return mixad.scan(f, init, xs, reverse=reverse)

    def unrolled(f, init, xs):
        return by_python(f, init, xs, reverse=reverse)

    init, xs = drawn(3), drawn(steps, 3, seed=1)
    found = mixad.value_and_grad(loss_of(scan, f), argnums=(0, 1))(init, xs)
    wanted = mixad.value_and_grad(loss_of(unrolled, f), argnums=(0, 1))(init, xs)
    close(found[0], wanted[0], 1e-12)
    for one, other in zip(found[1], wanted[1], strict=True):
        close(one, other, 1e-11)


XS = np.array([3.0, 1.5, 2.0])


def test_what_is_returned_as_it_is_captured_is_told_by_type_and_shape():
    for value in (1, 0.5, True, np.ones(2), np.ones((2, 2), np.float32)):
        carry, ys = mixad.scan(lambda c, x, value=value: (c + x, value), 0.0, XS)
        assert carry == 6.5
        assert ys.dtype == np.asarray(value).dtype
        assert ys.tolist() == [np.asarray(value).tolist()] * 3


def test_what_is_stopped_and_returned_has_no_derivative():
    stopped = mixad.grad(lambda a: mixad.fori_loop(0, 2, lambda i, c: mixad.stop_gradient(c), a))
    assert stopped(1.5) == 0.0
    ys = mixad.grad(lambda xs: mixad.map(mixad.stop_gradient, xs).sum())
    assert ys(XS).tolist() == [0.0] * 3


def test_a_body_that_writes_to_what_it_captures_writes_in_each_step():
    seen = np.zeros(3)

    def noting(i, c):
        seen[i] = c
        return c + 1.0

    assert mixad.fori_loop(0, 3, noting, 1.0) == 4.0
    assert seen.tolist() == [1.0, 2.0, 3.0]

    def loss(w):
        o = w * 1.0
        mixad.fori_loop(0, 3, lambda i, z: (o.__imul__(2.0), z)[1], w[0])
        return (o * o).sum()

    value, g = mixad.value_and_grad(loss)(np.array([1.5, 2.0]))
    assert value == 400.0
    assert g.tolist() == [192.0, 256.0]


def test_views_of_whole_numbers_are_written_through():
    def body(n):
        n = n * 1
        v = n[1:]
        v[0] = 7
        return n

    assert mixad.map(body, np.array([[1, 2, 3], [4, 5, 6]])).tolist() == [[1, 7, 3], [4, 7, 6]]


def test_whole_numbers_are_numpys():
    assert mixad.map(lambda n: n**2.0, np.array([2**40])).tolist() == [2.0**80]
    assert mixad.map(lambda n: n >= 256, np.array([3, 200], np.uint8)).tolist() == [False, False]
    assert mixad.map(lambda n: n < 300, np.array([3, 100], np.int8)).tolist() == [True, True]
    with pytest.raises(OverflowError):
        mixad.map(lambda n: n + 300, np.array([3], np.int8))


def test_second_derivatives_beside_whole_numbers_and_flags():
    def cubed(x):
        def step(s, _):
            return ((np.where(s[2], s[0] * s[0], s[0]), s[1] + 1, s[0] > 0.0), None)

        return mixad.scan(step, (x, 0, True), length=3)[0][0]

    assert mixad.grad(mixad.grad(cubed))(1.5) == pytest.approx(56 * 1.5**6)
    assert mixad.hvp(cubed, (1.5,), (1.0,)) == pytest.approx(56 * 1.5**6)


def test_loops_without_carries_or_parts():
    assert mixad.scan(lambda c, x: (c, 1.0), None, length=3)[1].tolist() == [1.0] * 3


def test_scalars_of_numpy_are_carried():
    assert mixad.scan(lambda c, x: (c + x, c), XS.sum(), XS)[0] == 13.0


def test_traced_values_are_written_to_a_copy():
    def filled(w):
        def body(i, c):
            out = c * 1.0
            out[i] = w[0]
            out[0] = w[1]
            return out

        return mixad.fori_loop(0, 3, body, np.zeros(3)).sum()

    assert mixad.grad(filled)(np.array([2.0, 3.0])).tolist() == [2.0, 1.0]


def test_numbers_do_not_lose_digits_beside_a_narrower_type():
    with pytest.raises(TracerError, match=r"float64 becomes one of .* int64"):
        mixad.scan(lambda c, x: (x, c), 0.5, np.arange(3))
    carry, ys = mixad.scan(lambda c, x: (x, c * 1), 0, np.arange(3.0))
    assert (carry.dtype, ys.tolist()) == (np.float64, [0.0, 0.0, 1.0])


VIEWS = {
    "reshape": lambda k: np.reshape(k, (2, 2)),
    "atleast_3d": np.atleast_3d,
    "a slice": lambda k: k[1:],
    "T": lambda k: k.reshape(2, 2).T,
}


@pytest.mark.parametrize("written", ["the array", "the view"])
@pytest.mark.parametrize("name", VIEWS)
def test_whole_numbers_are_written_through_views(name, written):
    def step(k, x):
        k = k + 1
        view = VIEWS[name](k)
        (k if written == "the array" else view)[0] = 7
        return k, view

    ks, ys = mixad.scan(step, np.arange(4), np.arange(3))
    expected, views = np.arange(4), []
    for x in range(3):
        expected, view = step(expected, x)
        views.append(view)
    np.testing.assert_array_equal(ks, expected)
    np.testing.assert_array_equal(ys, np.stack(views))


def test_steps_in_python_write_to_nothing_of_the_caller():
    init, xs = np.arange(2), np.ones((3, 2), int)

    def step(k, x):
        before = k
        k += 1  # whole numbers: by Python
        x *= k
        return k, (before, x)

    k, (before, products) = mixad.scan(step, init, xs)
    assert init.tolist() == [0, 1]
    np.testing.assert_array_equal(xs, np.ones((3, 2)))
    assert k.tolist() == [3, 4]
    np.testing.assert_array_equal(before, [[1, 2], [2, 3], [3, 4]])
    np.testing.assert_array_equal(products, before)

    def halve(k):
        k //= 2
        return k

    init = np.asarray([9])
    assert mixad.while_loop(lambda k: k[0] > 1, halve, init).tolist() == [1]
    assert init.tolist() == [9]


def test_no_steps_in_python():
    def body(i, k):
        k += i
        return k

    assert mixad.fori_loop(0, 0, body, np.arange(3)).tolist() == [0, 1, 2]


# -- what is refused -------------------------------------------------------------------------------

CALLS = []
OTHERS = iter(range(100))


def caught(c):
    try:
        return c * float(c[0] > 0.0)
    except TypeError:
        return c


def counting(c, x):
    CALLS.append(None)
    return c * float(len(CALLS)), x


COUNT = np.zeros(1)


def counting_in_an_array(c, x):
    COUNT[0] += 1.0
    return c + COUNT[0:1], x


def counting_in_place(c, x):
    COUNT[:] += 1.0
    return c + COUNT, x


REFUSED = {
    "a counter in an array": (counting_in_an_array, "something else"),
    "a counter in an array that is captured": (counting_in_place, "something else"),
    "bool": (lambda c, x: (c if c[0] > 0 else -c, x), "mixad.cond"),
    "int": (lambda c, x: (c * int(c[0] > 0), x), r"int\(\)"),
    "range": (lambda c, x: (c * len(range(np.argmax(c))), x), "a whole number"),
    "structure": (lambda c, x: ((c, c), x), "structure"),
    "shape": (lambda c, x: (c[1:], x), r"shape \(2,\).*becomes|becomes one of shape \(1,\)"),
    "dtype": (lambda c, x: (c.astype(np.float32), x), "float32"),
    "no pair": (lambda c, x: c, "pair"),
    "random numbers": (lambda c, x: (c * np.random.rand(2), x), "something else"),
    "a counter": (counting, "something else"),
    "text": (lambda c, x: ("text", x), "str"),
    "a refusal that is caught": (lambda c, x: (caught(c), x), r"float\(\)"),
    "another cell each time": (lambda c, x: (c * next(OTHERS), x), "something else"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_body_that_cannot_be_run_again_is_refused(name):
    f, message = REFUSED[name]
    with pytest.raises(TracerError, match=message):
        mixad.scan(f, np.ones(2), np.ones((3, 2)))


def test_arguments_that_do_not_fit():
    def f(c, x):
        return (c, x)

    with pytest.raises(TracerError, match="3 and 2 steps"):
        mixad.scan(f, 0.0, (np.ones(3), np.ones(2)))
    with pytest.raises(TracerError, match="3 and 4 steps"):
        mixad.scan(f, 0.0, np.ones(3), length=4)
    with pytest.raises(TracerError, match="pass xs or length"):
        mixad.scan(f, 0.0)
    with pytest.raises(TracerError, match="number"):
        mixad.scan(f, 0.0, np.ones(()))
    with pytest.raises(TracerError, match="pass a whole number"):
        mixad.fori_loop(0, 2.5, lambda i, x: x, 0.0)
    with pytest.raises(TypeError):
        mixad.scan(f, 0.0, np.ones(3), unroll=2)


SHAPED = {
    "a selection": lambda n: n + n[n > 1.0].sum(),
    "its size": lambda n: n * n[n > 1.0].size,
    "its places": lambda n: n * len(np.flatnonzero(n > 1.0)),
    "different ones": lambda n: n * np.unique(n).size,
    "a test of it": lambda n: -n if n[n < 0.0].size else n,
}


@pytest.mark.parametrize("name", SHAPED)
def test_what_has_shapes_that_depend_on_elements_runs_in_python(name):
    xs = np.array([[1.0, 2.0], [-1.0, 1.0], [3.0, 3.0]])
    expected = np.stack([SHAPED[name](x) for x in xs])
    assert mixad.map(SHAPED[name], xs).tolist() == expected.tolist()
