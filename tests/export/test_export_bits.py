"""Exported functions compute the bits that mixad does, for extents and strides of any kind."""

from __future__ import annotations

import shutil
import threading
from ctypes import byref, c_int64
from itertools import pairwise

import numpy as np
import pytest
from c_calls import Exported, Plan
from exported_kernels import (
    constant,
    divided,
    dot,
    endless,
    four,
    halves,
    looked_up,
    model,
    product,
    scaled,
    three,
    two,
    whole,
)

import mixad

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"),
]

SHAPES = [(1000, 300), (1, 1), (1, 7), (5, 1), (3, 3), (2000, 5), (700, 31), (33, 255), (40, 4096),
          (3, 20000), (0, 4), (4, 0), (5000, 16), (20000, 3)]  # fmt: skip
"""Rows that are folded and split, gangs that are not full, tiles of several rows, blocks."""


def drawn(rng, shape, dtype="float32"):
    return np.asarray(rng.uniform(-1, 1, shape), dtype)


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Return what exports a kernel once, and loads it."""
    known = {}

    def export(name, kernel, *example, **options):
        if name not in known:
            folder = tmp_path_factory.mktemp("export") / name
            kernel.export(folder, *example, **options)
            known[name] = Exported(folder)
        return known[name]

    return export


def same(found, expected):
    """Whether arrays have the same bits, nan and the sign of zero too."""
    pairs = list(zip(found, expected, strict=True))
    return all(
        a.dtype == np.asarray(b).dtype
        and a.shape == np.shape(b)
        and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
        for a, b in pairs
    )


def strided(rng, shape, dtype, kind):
    """Return an array of a shape in an order of memory."""
    if kind == "every second":
        return drawn(rng, [2 * n for n in shape], dtype)[tuple(slice(None, None, 2) for _ in shape)]
    if kind == "reversed":
        return drawn(rng, shape, dtype)[(slice(None, None, -1),) * len(shape)]
    return np.array(drawn(rng, shape, dtype), order=kind)


@pytest.mark.parametrize("kind", ["C", "F", "every second", "reversed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_values_and_gradients_have_the_bits_of_mixad(exported, dtype, kind):
    rng = np.random.default_rng(1)
    example = [drawn(rng, s, dtype) for s in ((30, 20), (20,), (20,))]
    c = exported(f"model_{dtype}", model, *example)
    for shape in SHAPES:
        x = strided(rng, shape, dtype, kind)
        a, b = (strided(rng, shape[1:], dtype, kind) for _ in range(2))
        cotangent = drawn(rng, shape, dtype)
        tangents = [drawn(rng, v.shape, dtype) for v in (x, a, b)]
        assert same(c("value", x, a, b), [model(x, a, b)]), shape
        value, gradients = mixad.value_and_vjp(model, (x, a, b), cotangent)
        assert same(c("pullback", x, a, b, cotangent), [value, *gradients]), shape
        expected = mixad.jvp(model, (x, a, b), tuple(tangents))
        assert same(c("pushforward", x, a, b, *tangents), expected), shape


EXTENTS = [1, 2, 3, 4, 5, 7, 13, 16, 17, 31, 33, 64, 100, 255, 300]
LAYOUTS = 60
"""Draws of extents and strides."""


def in_some_order(rng, shape, dtype="float32"):
    """Return an array whose axes are in any order of memory, or one of every second element."""
    order = rng.permutation(len(shape))
    values = drawn(rng, [shape[i] for i in order], dtype).transpose(np.argsort(order))
    if shape and rng.random() < 0.3:
        values = strided(rng, shape, dtype, "every second")
    return values


def test_sums_over_axes_of_any_order_have_the_bits_of_mixad(exported):
    rng = np.random.default_rng(2)

    def shapes(n):
        return n, n[2:], (n[1], 1), (n[0], 1, 1)

    c = exported("three", three, *(drawn(rng, s) for s in shapes((4, 5, 6))), what="pullback")
    for _ in range(LAYOUTS):
        n = tuple(map(int, rng.choice(EXTENTS, 3)))
        arguments = [in_some_order(rng, s) for s in shapes(n)]
        cotangent = in_some_order(rng, n)
        value, gradients = mixad.value_and_vjp(three, tuple(arguments), cotangent)
        found = c("pullback", *arguments, cotangent)
        assert same(found, [value, *gradients]), (n, [a.strides for a in arguments])


PATTERNS = [
    [(0, 1, 2), (1, None), (2,), ()],
    [(0, 1, 2), (0, None, 2), (None, 2), (1, None)],
    [(0, 1), (None, 1), (0, None), (None, None)],
]
"""For each argument its axes: those of the broadcast shape, None where it broadcasts."""


@pytest.mark.parametrize("patterns", PATTERNS)
def test_patterns_of_broadcasting_and_types_may_be_mixed(exported, patterns):
    rng, rank = np.random.default_rng(12), len(patterns[0])
    types = ("float32", "float64", "float32", "float64")

    def arguments(n, make):
        shapes = [tuple(1 if axis is None else n[axis] for axis in own) for own in patterns]
        return [make(rng, shape, type) for shape, type in zip(shapes, types, strict=True)]

    name = f"two_{PATTERNS.index(patterns)}"
    c = exported(name, two, *arguments((4, 5, 6)[:rank], drawn), what="pullback")
    for turn in range(LAYOUTS // 2):
        n = tuple(map(int, rng.choice(EXTENTS, rank)))
        given = arguments(n, in_some_order if turn % 2 else drawn)
        cotangents = [drawn(rng, out.shape, out.dtype) for out in two(*given)]
        values, gradients = mixad.value_and_vjp(two, tuple(given), tuple(cotangents))
        assert same(c("pullback", *given, *cotangents), [*values, *gradients]), n


def test_sums_over_four_axes_are_exported_for_the_order_of_the_example(exported):
    rng = np.random.default_rng(3)

    def shapes(n):
        return n, (n[0], 1, n[2], 1), (n[1], 1, n[3])

    c = exported("four", four, *(drawn(rng, s) for s in shapes((2, 3, 4, 5))), what="pullback")
    for n in [(2, 3, 4, 5), (7, 1, 20, 3), (1, 40, 1, 60), (9, 8, 7, 16), (3, 2, 5, 300)]:
        arguments = [drawn(rng, s) for s in shapes(n)]
        cotangent = drawn(rng, n)
        value, gradients = mixad.value_and_vjp(four, tuple(arguments), cotangent)
        assert same(c("pullback", *arguments, cotangent), [value, *gradients]), n
    arguments[0] = np.array(arguments[0], order="F")
    given = [*arguments, np.array(cotangent, order="F")]
    assert c.status("pullback", given, c.results("pullback", given, n)) == 2  # it says so


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_arguments_and_their_gradients_are_summed(exported, dtype):
    rng = np.random.default_rng(4)
    names = ("x", "factor")
    c = exported(f"scaled_{dtype}", scaled, drawn(rng, (20, 30), dtype), 0.5, 3, wrt=names)
    x, factor, n = drawn(rng, (70, 9), dtype), 0.25, 40
    assert same(c("value", x, factor, n), scaled(x, factor, n))
    cotangent = drawn(rng, x.shape, dtype)
    expected = mixad.value_and_vjp(
        lambda x, factor: scaled(x, factor, n)[0], (x, factor), cotangent
    )
    value, is_large, dx, dfactor = c("pullback", x, factor, n, cotangent)
    assert same([value, is_large, dx], [*scaled(x, factor, n), expected[1][0]])
    np.testing.assert_allclose(dfactor, expected[1][1], rtol=1e-6)
    np.testing.assert_allclose(dfactor, np.sum(cotangent * x, dtype="f8"), rtol=1e-5)
    tangent = c("pushforward", x, factor, n, np.ones_like(x), 2.0)[2]
    np.testing.assert_allclose(tangent, factor + 2.0 * x, rtol=1e-6)


def test_loops_have_the_turns_of_each_element(exported):
    rng = np.random.default_rng(5)
    c = exported("halves", halves, np.ones(3))
    x = rng.uniform(0, 1e6, 1001)
    assert same(c("value", x), halves(x))
    cotangent, tangent = rng.random(1001), rng.random(1001)
    values, turns = halves(x)
    _, (dx,) = mixad.value_and_vjp(lambda x: halves(x)[0], (x,), cotangent)
    assert same(c("pullback", x, cotangent), [values, turns, dx])
    np.testing.assert_array_equal(c("pushforward", x, tangent)[2], tangent * 0.5**turns)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_integers_wrap_as_they_do_in_mixad(exported, dtype):
    rng, bounds = np.random.default_rng(6), np.iinfo(dtype)
    c = exported(f"whole_{dtype}", whole, np.ones((2, 3), dtype), np.ones(3, dtype), what="value")
    a, b = (rng.integers(bounds.min, bounds.max, s, dtype, endpoint=True) for s in ((50, 9), 9))
    assert same(c("value", a, b), [whole(a, b)])
    assert same(c("value", a, b), [a * 3 + (b << 2) - (a & b)])


def test_arrays_are_read_by_index_with_strides_and_checked(exported):
    c = exported("looked_up", looked_up, np.ones(5), np.array([1, 2]), np.ones(2), what="value")
    t, i = np.arange(20.0)[::2], np.array([0, 9, 3])
    x = np.array([1.0, 2.0, 3.0])
    assert same(c("value", t, i, x, shape=(3,)), [t[i] * x])
    outside = [t, np.array([0, 10, 3]), x]
    assert c.status("value", outside, c.results("value", outside, (3,))) == 4
    empty = [t[:0], i, x]
    assert c.status("value", empty, c.results("value", empty, (3,))) == 4


def test_elements_of_a_core_are_arguments_with_names_of_c(exported):
    rng = np.random.default_rng(7)
    c = exported("dot", dot, np.ones((4, 3)), np.ones(3))
    assert [a["c"] for a in c.functions["value"]["arguments"]] == [
        "a_0", "a_1", "a_2", "b_0", "b_1", "b_2",
    ]  # fmt: skip
    a, b, cotangent = rng.random((40, 3)), rng.random(3), rng.random(40)
    elements = [*(a[:, k] for k in range(3)), *(b[..., k] for k in range(3))]
    elements = [np.asarray(e) for e in elements]
    assert same(c("value", *elements), [dot(a, b)])
    value, (da, db) = mixad.value_and_vjp(dot, (a, b), cotangent)
    expected = [value, *(da[:, k] for k in range(3)), *(db[..., k] for k in range(3))]
    assert same(c("pullback", *elements, cotangent), expected)


def test_parts_of_complex_numbers_are_arguments_and_results(exported):
    rng = np.random.default_rng(8)
    z, w = (rng.random((5, 7)) + 1j * rng.random((5, 7)) for _ in range(2))
    c = exported("product", product, z, w, what=("value", "pullback"))
    assert [r["name"] for r in c.functions["value"]["results"]] == [
        "value 0.real", "value 0.imag", "value 1",
    ]  # fmt: skip
    parts = [z.real, z.imag, w.real, w.imag]
    real, imag, own = c("value", *parts)
    assert same([real + 1j * imag, own], product(z, w))
    ones, zeros = np.ones(z.shape), np.zeros(z.shape)
    gradients = c("pullback", *parts, ones, zeros, zeros)[3:]  # of the real part of z w
    for found, expected in zip(gradients, (w.real, -w.imag, z.real, -z.imag), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_results_that_are_zero_are_left_out(exported):
    x = np.array([1.0, -2.0])
    c = exported("constant", constant, x, x, what=("pushforward", "pullback"))
    assert c.functions["pullback"]["zeros"] == ["gradient y"]
    assert same(c("pullback", x, x, np.ones(2)), [constant(x, x), np.array([2.0, 1.0])])


def test_functions_of_libm_have_the_bits_of_mixad(exported):
    c = exported("divided", divided, np.ones(3), what=("value", "pullback"))
    x = np.linspace(0.1, 9, 1003)
    value, gradients = mixad.value_and_vjp(divided, (x,), np.ones(1003))
    assert same(c("pullback", x, np.ones(1003)), [value, *gradients])


@pytest.mark.parametrize("options", [{"chunk": 1}, {"strategy": "reverse"}])
def test_gradients_are_computed_as_options_say(exported, options):
    rng, kernel = np.random.default_rng(11), model.with_options(**options)
    example = [drawn(rng, s) for s in ((30, 20), 20, 20)]
    name = "_".join(map(str, options))
    c = exported(f"model_{name}", kernel, *example, what="pullback")
    for shape in [(500, 37), (40, 300), (3000, 5)]:
        x, a, b = (drawn(rng, s) for s in (shape, shape[1:], shape[1:]))
        cotangent = drawn(rng, shape)
        value, gradients = mixad.value_and_vjp(kernel, (x, a, b), cotangent)
        assert same(c("pullback", x, a, b, cotangent), [value, *gradients]), shape


def test_fixed_extents_need_not_be_told(exported):
    rng = np.random.default_rng(9)
    example = [drawn(rng, s, "f8") for s in ((300, 20), 20, 20)]
    c = exported("fixed", model, *example, dynamic=False)
    x, a, b = (drawn(rng, v.shape, "f8") for v in example)
    cotangent = drawn(rng, x.shape, "f8")
    value, gradients = mixad.value_and_vjp(model, (x, a, b), cotangent)
    assert same(c("pullback", x, a, b, cotangent, strides=False), [value, *gradients])
    given = [x[:200], a, b]
    assert c.status("value", given, c.results("value", given, (200, 20))) == 1
    given = [np.array(x, order="F"), a, b]
    assert c.status("value", given, c.results("value", given, x.shape)) == 1


@pytest.mark.parametrize("cpu", ["x86-64-v2", "x86-64-v3"])
def test_other_processors_compute_the_same_bits(exported, cpu):
    host = mixad.backends.cpu.host.detect()
    if not host.triple.startswith("x86_64") or host.vector_bits < 256:
        pytest.skip("kernels for this processor do not run here")
    rng = np.random.default_rng(10)
    example = [drawn(rng, s) for s in ((30, 20), 20, 20)]
    c = exported(f"model_{cpu}", model, *example, what="pullback", cpu=cpu)
    x, a, b = (drawn(rng, s) for s in ((500, 37), 37, 37))
    cotangent = drawn(rng, x.shape)
    value, gradients = mixad.value_and_vjp(model, (x, a, b), cotangent)
    assert same(c("pullback", x, a, b, cotangent), [value, *gradients])


# -- how functions are called ----------------------------------------------------------------------


@pytest.fixture
def calls(exported):
    """Return an export and arguments for its pullback, with what mixad makes of them."""
    rng = np.random.default_rng(1)
    example = [drawn(rng, s, "f8") for s in ((30, 20), (20,), (20,))]
    c = exported("model_float64", model, *example)
    x, a, b = (drawn(rng, s, "f8") for s in ((4000, 300), 300, 300))
    cotangent = drawn(rng, x.shape, "f8")
    value, gradients = mixad.value_and_vjp(model, (x, a, b), cotangent)
    return c, [x, a, b, cotangent], [value, *gradients]


def test_threads_of_the_caller_share_out_tiles(calls):
    c, arguments, expected = calls
    results = c.results("pullback", arguments, arguments[0].shape)
    plan, given = Plan(), c.given("pullback", arguments, results)
    assert c.library.model_pullback_bind(byref(plan), *given) == 0
    assert plan.tiles > 8
    bounds = [c_int64(plan.tiles * k // 4) for k in range(5)]
    threads = [
        threading.Thread(target=c.library.model_run, args=(byref(plan), *pair))
        for pair in pairwise(bounds)
    ]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join()
    assert c.library.model_finish(byref(plan)) == 0
    assert same(results, expected)


def test_results_may_be_strided_and_may_be_left_out(calls):
    c, arguments, expected = calls
    results = c.results("pullback", arguments, arguments[0].shape, order="F")
    assert c.status("pullback", arguments, results) == 0
    assert same(results, expected)
    some = [None, results[1], None, results[3][::-1]]
    assert c.status("pullback", arguments, some) == 0
    assert same([some[1], some[3]], [expected[1], expected[3]])


def test_extents_that_do_not_fit_are_refused(calls):
    c, (x, a, b, cotangent), _ = calls
    for given in ([x, a[:-1], b, cotangent], [x, a, b, cotangent[1:]], [x[:, :1], a, b, cotangent]):
        results = c.results("pullback", [x, a, b, cotangent], x.shape)
        assert c.status("pullback", given, results) == 1
    results = [r[1:] for r in c.results("pullback", [x, a, b, cotangent], x.shape)]
    assert c.status("pullback", [x, a, b, cotangent], results) == 1


def test_a_loop_without_an_end_is_stopped_by_another_thread(exported):
    c = exported("endless", endless, np.ones(3), what="value")
    x, result, plan = np.ones(40), np.zeros(40), Plan()
    assert c.library.endless_value_bind(byref(plan), *c.given("value", [x], [result])) == 0
    one, tiles = c_int64(0), c_int64(plan.tiles)
    worker = threading.Thread(target=c.library.endless_run, args=(byref(plan), one, tiles))
    worker.start()
    worker.join(0.2)
    assert worker.is_alive()
    plan.stop = 1
    worker.join(10)
    assert not worker.is_alive()
    assert c.library.endless_finish(byref(plan)) == 5
