"""Value and cotangents of one kernel by one launch: what was recorded is not recorded again."""

from __future__ import annotations

import numpy as np
import pytest

import mixad
from mixad.errors import KernelTypeError, TracerError
from mixad.transforms import gradients

X = np.linspace(-1.0, 2.0, 12).reshape(3, 4)
W = np.array([0.5, -1.5, 2.0, 0.25])
G = np.cos(X)


@mixad.broadcast
def scaled(w, x):
    return w * x * x if x > 0.0 else w * x


@pytest.fixture
def recorded(monkeypatch):
    """Return the list that every recording of a function joins."""
    found, own = [], gradients._pulled_back
    count = lambda *given: found.append(given) or own(*given)  # noqa: E731
    monkeypatch.setattr(gradients, "_pulled_back", count)
    return found


def by_hand(w, x, g):
    partial_x = np.where(x > 0, 2 * w * x, np.broadcast_to(w, x.shape))
    partial_w = np.where(x > 0, x * x, x)
    return np.where(x > 0, w * x * x, w * x), (partial_w * g).sum(0), partial_x * g


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_later_calls_give_the_same_and_record_nothing(dtype, recorded):
    w, x, g = (a.astype(dtype) for a in (W, X, G))
    kernel = mixad.broadcast(scaled.__wrapped__)
    results = [mixad.value_and_vjp(kernel, (w, x), g) for _ in range(4)]
    assert len(recorded) == 2  # the second is compared with what comes later
    for value, (of_w, of_x) in results:
        for found, expected in zip((value, of_w, of_x), by_hand(w, x, g), strict=True):
            assert found.dtype == dtype
            np.testing.assert_allclose(found, expected, rtol=50 * np.finfo(dtype).eps)
    for value, pulled in results[1:]:
        for found, first in zip((value, *pulled), (results[0][0], *results[0][1]), strict=True):
            assert found.tobytes() == first.tobytes()
            assert found.flags.writeable
            assert not any(np.shares_memory(found, a) for a in (w, x, g))


def test_other_values_and_other_layouts_are_their_own(recorded):
    kernel = mixad.broadcast(scaled.__wrapped__)
    for w, x, g in ((W, X, G), (2 * W, -X, G + 1), (W, X.T.copy().T, G), (W[:3, None], X, G)):
        for _ in range(3):
            value, (of_w, of_x) = mixad.value_and_vjp(kernel, (w, x), g)
            expected = by_hand(w, x, g)
            np.testing.assert_allclose(value, expected[0], rtol=1e-14)
            np.testing.assert_allclose(of_x, expected[2], rtol=1e-14)
            whole = np.where(x > 0, x * x, x) * g
            own = whole.sum(0) if w.shape == (4,) else whole.sum(1, keepdims=True)
            np.testing.assert_allclose(of_w, own, rtol=1e-13)
    assert len(recorded) == 6  # two of each layout: the second has the first one's


FACTOR = 3.0


def test_what_a_kernel_reads_from_outside_is_read_anew(recorded, monkeypatch):
    kernel = mixad.broadcast(lambda x: FACTOR * x * x)
    for factor in (3.0, 3.0, 5.0):
        monkeypatch.setitem(globals(), "FACTOR", factor)
        _, (found,) = mixad.value_and_vjp(kernel, (W,), np.ones(4))
        np.testing.assert_array_equal(found, 2 * factor * W)
    assert len(recorded) == 3


def test_a_function_that_is_no_kernel_is_recorded(recorded):
    for _ in range(3):
        mixad.value_and_vjp(lambda x: scaled(x, x), (W,), W)
    assert len(recorded) == 3


@pytest.mark.parametrize("primals", [(2.0, 3.0), (np.float64(2.0), np.asarray(3.0))], ids=str)
def test_numbers_are_recorded(primals, recorded):
    for _ in range(3):
        value, (of_w, of_x) = mixad.value_and_vjp(scaled, primals, 1.0)
        assert (value, of_w, of_x) == (18.0, 9.0, 12.0)
    assert len(recorded) == 3


def test_every_call_is_recorded_where_everything_is_checked(recorded, monkeypatch):
    monkeypatch.setenv("MIXAD_CHECK", "full")
    for _ in range(3):
        mixad.value_and_vjp(scaled, (W, X), G)
    assert len(recorded) == 3


def test_what_was_refused_is_refused_again():
    kernel = mixad.broadcast(scaled.__wrapped__)
    for _ in range(3):
        mixad.value_and_vjp(kernel, (W, X), G)
        with pytest.raises(TracerError, match="int64"):
            mixad.value_and_vjp(kernel, (W, np.arange(4)), W)
        with pytest.raises(TracerError, match="shape"):
            mixad.value_and_vjp(kernel, (W, X), W)
        with pytest.raises((KernelTypeError, TracerError)):
            mixad.value_and_vjp(kernel, (W, X), np.ones((3, 4), np.float32))


def test_inside_of_another_transform_it_is_recorded():
    kernel = mixad.broadcast(scaled.__wrapped__)
    for _ in range(3):
        mixad.value_and_vjp(kernel, (W, W), np.ones(4))

    def slope(w):
        return mixad.value_and_vjp(kernel, (w, W), np.ones(4))[1][1].sum()

    expected = np.where(W > 0, 2 * W, 1.0)
    np.testing.assert_allclose(mixad.grad(slope)(W), expected)


@pytest.mark.parametrize("options", [{"placement": "forward"}, {"strategy": "reverse"}], ids=str)
def test_options_are_kept(options):
    kernel = mixad.broadcast(scaled.__wrapped__, **options)
    first, *_, later = [mixad.value_and_vjp(kernel, (W, X), G) for _ in range(3)]
    np.testing.assert_array_equal(first[1][0], later[1][0])
    np.testing.assert_allclose(later[1][0], by_hand(W, X, G)[1], rtol=1e-14)


def test_arrays_that_are_read_by_index_complex_ones_and_narrow_ones_are_right_each_time():
    def read(table: mixad.Array, k, x):
        return table[k] * x

    k, cotangent = np.array([2.0, 0.0, 2.0]), np.array([1.0, 10.0, 100.0])
    by_index = mixad.broadcast(lambda t, x: t * x + 0.0)
    whole = mixad.broadcast(read)
    for _ in range(4):
        table = np.array([3.0, 4.0, 5.0])
        _, (of_table,) = mixad.value_and_vjp(
            lambda t: whole(t, k.astype(int), cotangent), (table,), np.ones(3)
        )
        np.testing.assert_array_equal(of_table, [10.0, 0.0, 101.0])
        z = table * (1 + 2j)
        value, (of_z, _) = mixad.value_and_vjp(by_index, (z, z), np.ones(3) + 0j)
        np.testing.assert_allclose(value, z * z)
        np.testing.assert_allclose(of_z, np.conj(z), rtol=1e-14)
        half = table.astype(np.float16)
        _, (of_half, _) = mixad.value_and_vjp(by_index, (half, half), half)
        np.testing.assert_array_equal(of_half, half * half)
