"""Elements combined by operators: what an attack found, each as a test."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import mixad

A = np.asarray
TABLE = A([1.0])


def joined(p: Any, q: Any) -> Any:
    """Combine ranges that follow one another: the table is read where they meet."""
    return p[0], q[1], (p[2] + q[2]) * TABLE[q[0] - p[1] - 1]


def across(p: Any, q: Any) -> Any:
    """Count from the end of one range to the beginning of the next: others never meet."""
    k, count = p[1], 0.0
    while k != q[0]:
        k, count = k + 1, count + 1.0
    return p[0], q[1], p[2] + q[2] + count


def largest(p: Any, q: Any) -> Any:
    return (q[0], q[1]) if q[0] > p[0] else (p[0], p[1])


@pytest.mark.parametrize("n", [5, 121, 250])
def test_only_elements_that_follow_one_another_are_combined(n: int) -> None:
    at, v = np.arange(n), np.ones(n)
    assert mixad.associative_scan(joined, (at, at, v))[2][-1] == n
    of_all = mixad.grad(lambda v: mixad.associative_scan(joined, (at, at, v))[2].sum())(v)
    np.testing.assert_array_equal(of_all, np.arange(n, 0, -1))
    of_last = mixad.grad(lambda v: mixad.reduce(joined, (at, at, v))[2])(v)
    np.testing.assert_array_equal(of_last, np.ones(n))
    mixad.check_associative(joined, (at, at, v))
    found = mixad.associative_scan(across, (2 * at, 2 * at + 1, v))[2][-1]
    assert found == 2 * n - 1


def test_lanes_beyond_the_end_are_elements_whatever_strides_arguments_have() -> None:
    q = np.arange(60)[2::3][:5]
    kernel = mixad.broadcast(lambda p, q: TABLE[q - p - 1])
    np.testing.assert_array_equal(kernel(np.ascontiguousarray(q - 1), q), np.ones(5))


def test_whole_numbers_of_traced_elements_have_no_derivative() -> None:
    x, at = A([0.5, 0.7, 0.2]), A([1, 2, 3])

    def mixed(x: Any) -> Any:
        value, place = mixad.reduce(largest, (x, at))
        return value + 0.1 * place

    expected = [0.0, 1.0, 0.0]
    np.testing.assert_array_equal(mixad.grad(mixed)(x), expected)
    twice = lambda x: mixad.reduce(largest, mixad.associative_scan(largest, (x, at)))[0]  # noqa: E731
    np.testing.assert_array_equal(mixad.grad(twice)(x), expected)
    begun = lambda x: mixad.reduce(largest, (x, at), initial=(0.0, 0))[0]  # noqa: E731
    np.testing.assert_array_equal(mixad.grad(begun)(x), expected)

    def looped(x: Any) -> Any:
        def body(_: Any, c: Any) -> Any:
            value, place = mixad.reduce(largest, (x * c, at))
            return c * 1.5 + value * c + 0.1 * place

        return mixad.fori_loop(0, 3, body, 1.0)

    step = 1e-6 * A(expected)
    slope = (looped(x + step) - looped(x - step)) / 2e-6
    np.testing.assert_allclose(mixad.grad(looped)(x), A(expected) * slope, rtol=1e-6)


def test_an_operator_keeps_nothing_alive_that_it_captured() -> None:
    def captured() -> Any:
        table = np.ones(3)
        mixad.reduce(lambda a, b: a + b + table[1] * a * b, A([0.1, 0.2]))
        return weakref.ref(table)

    known = captured()
    gc.collect()
    assert known() is None


def test_an_operator_keeps_nothing_alive_that_a_keyword_stands_for() -> None:
    def captured() -> Any:
        table = np.ones(3)

        def op(a: Any, b: Any, *, table: mixad.Array = table) -> Any:
            return a + b + table[1] * a * b

        assert mixad.reduce(op, A([0.5, 0.25])) == 0.875
        return weakref.ref(table)

    known = captured()
    gc.collect()
    assert known() is None


def test_results_share_no_memory_with_arguments() -> None:
    ones, row = np.ones(1), np.ones(3)
    found = [
        mixad.reduce(lambda a, b: a + b, ones, keepdims=True),
        mixad.reduce(lambda a, b: a * b, np.zeros((0, 3)), initial=row),
        mixad.reduce(lambda a, b: a * b, np.zeros((0, 3)), initial=1.0),
    ]
    for each in found:
        each[0] = 7.0
    assert ones[0] == row[0] == 1.0


@pytest.mark.parametrize(("shape", "axis"), [((5, 0), 0), ((0, 5), 1), ((2, 0, 3), 2)])
def test_places_beside_the_axis_may_be_none(shape: tuple[int, ...], axis: int) -> None:
    x = np.zeros(shape)
    assert mixad.reduce(lambda a, b: a * b, x, axis).shape == x.sum(axis).shape
    assert mixad.associative_scan(lambda a, b: a * b, x, axis, initial=1.0).shape == shape


def test_initial_is_an_element_of_each_place() -> None:
    x, begin = np.full((3, 5), 2.0), A([1.0, 2.0, 3.0])
    scanned = mixad.associative_scan(lambda a, b: a * b, x, 1, initial=begin)
    np.testing.assert_array_equal(scanned, begin[:, None] * 2.0 ** np.arange(1, 6))
    reduced = mixad.reduce(lambda a, b: a * b, x, 1, initial=begin, keepdims=True)
    np.testing.assert_array_equal(reduced, scanned[:, -1:])
    half = np.ones(3, "f2")
    assert mixad.reduce(lambda a, b: a * b, half, initial=half[0]).dtype == np.float16
    assert (
        mixad.grad(lambda i: mixad.reduce(lambda a, b: a * b, A([2.0], "f4"), initial=i))(3.0)
        == 2.0
    )


def test_no_elements_are_what_changes_nothing() -> None:
    none = np.zeros((0, 2))
    np.testing.assert_array_equal(mixad.reduce(lambda a, b: a * b, none), [1.0, 1.0])
    np.testing.assert_array_equal(mixad.reduce(lambda a, b: a + b, none), [0.0, 0.0])
    assert mixad.reduce(lambda a, b: a & b, np.zeros(0, bool))
    assert mixad.reduce(lambda a, b: a & b, np.zeros(0, int)) == -1
    assert mixad.reduce(lambda a, b: a * b, np.ones((2, 3)), None, keepdims=True).shape == (1, 1)


def test_elements_that_are_tuples_may_be_returned_as_they_are() -> None:
    def after_flag(a: Any, b: Any) -> Any:
        if b[1]:
            return b
        return (a[0] * b[0], a[1])

    x, begins = A([2.0, 3.0, 4.0, 5.0]), A([True, False, True, False])
    scanned = lambda x: mixad.associative_scan(after_flag, (x, begins))[0]  # noqa: E731
    np.testing.assert_array_equal(scanned(x), [2.0, 6.0, 4.0, 20.0])
    np.testing.assert_array_equal(mixad.grad(lambda x: scanned(x).sum())(x), [4.0, 2.0, 6.0, 4.0])


def test_one_large_number_hides_no_operator_that_is_not_associative() -> None:
    x = np.append(np.arange(1.0, 130.0), 1e13)
    with pytest.raises(mixad.errors.KernelError, match="is not associative"):
        mixad.check_associative(lambda a, b: a * 0.9 + b, x)


def test_an_index_outside_is_told_without_the_place_of_a_kernel() -> None:
    at = np.where(np.arange(1000) == 777, 5, 0)
    op = lambda a, b: (a[0], (a[1] + b[1]) * TABLE[b[0]])  # noqa: E731
    with pytest.raises(IndexError, match=r"index 5 is outside") as caught:
        mixad.associative_scan(op, (at, np.ones(1000)))
    assert "element (" not in str(caught.value)


@pytest.mark.parametrize(
    "key", [([0, 1, 1], [1, 2, 2]), (slice(1, 3), 0), ([True, False, True, False],)]
)
def test_products_at_any_key(key: Any) -> None:
    x = np.arange(1.0, 17.0).reshape(4, 4)

    def at_key(x: Any) -> Any:
        y = x * 1.0
        np.multiply.at(y, key, 3.0)
        return (y * y).sum()

    value, of_x = mixad.value_and_grad(at_key)(x)
    assert value == at_key(x)
    factor = np.ones((4, 4))
    np.multiply.at(factor, key, 3.0)
    np.testing.assert_allclose(of_x, 2.0 * x * factor**2)


def test_reductions_of_ufuncs_take_several_axes_and_none() -> None:
    x = np.sin(np.arange(24.0)).reshape(2, 3, 4)

    def loss(x: Any) -> Any:
        kept = np.logaddexp.reduce(x, axis=(0, 2), keepdims=True)
        return (kept * np.fmax.reduce(x, axis=None)).sum()

    value, of_x = mixad.value_and_grad(loss)(x)
    assert np.isclose(value, loss(x))
    step = 1e-6 * np.cos(np.arange(24.0)).reshape(x.shape)
    slope = (loss(x + step) - loss(x - step)) / 2
    assert np.isclose((of_x * step).sum(), slope, rtol=1e-6)
    none = mixad.vjp(lambda x: np.logaddexp.reduce(x[:0]) + x[0], x[0, 0])[0]
    assert none == -np.inf


def test_elements_may_be_several_small_arrays() -> None:
    rng = np.random.default_rng(0)
    slopes, shifts = np.eye(2) + 0.1 * rng.normal(size=(130, 2, 2)), rng.normal(size=(130, 2, 2))

    def after(f: Any, g: Any) -> Any:
        slope, shift = np.zeros((2, 2)), np.zeros((2, 2))
        for i in range(2):
            for j in range(2):
                shift[i, j] = g[1][i, j]
                for k in range(2):
                    slope[i, j] += g[0][i, k] * f[0][k, j]
                    shift[i, j] += g[0][i, k] * f[1][k, j]
        return slope, shift

    def scanned(slopes: Any, shifts: Any) -> Any:
        return mixad.associative_scan(after, (slopes, shifts), signature="(2,2)")

    a, b = slopes[0], shifts[0]
    for k in range(1, 130):
        a, b = slopes[k] @ a, shifts[k] + slopes[k] @ b
    found = scanned(slopes, shifts)
    np.testing.assert_allclose([found[0][-1], found[1][-1]], [a, b], rtol=1e-11)
    reduced = mixad.reduce(after, (slopes, shifts), signature="(2,2)")
    np.testing.assert_allclose(reduced, [a, b], rtol=1e-11)
    along = rng.normal(size=(2, 130, 2, 2))
    values, pull = mixad.vjp(scanned, slopes, shifts)
    _, tangents = mixad.jvp(scanned, (slopes, shifts), tuple(along))
    cotangents = tuple(rng.normal(size=(130, 2, 2)) for _ in values)
    forward = sum((g * t).sum() for g, t in zip(cotangents, tangents, strict=True))
    backward = sum((g * v).sum() for g, v in zip(pull(cotangents), along, strict=True))
    assert np.isclose(forward, backward, rtol=1e-10)
    above, below = (scanned(slopes + s * along[0], shifts + s * along[1]) for s in (1e-6, -1e-6))
    for one, other, tangent in zip(above, below, tangents, strict=True):
        np.testing.assert_allclose(tangent, (one - other) / 2e-6, rtol=1e-5, atol=1e-7)


def test_an_operator_whose_code_is_replaced_is_read_anew():
    def op(a, b):
        return a + b

    xs = np.asarray([2.0, 3.0, 4.0])
    assert mixad.reduce(op, xs) == 9.0
    op.__code__ = (lambda a, b: a * b).__code__
    assert mixad.reduce(op, xs) == 24.0
    np.testing.assert_array_equal(mixad.associative_scan(op, xs), [2.0, 6.0, 24.0])
