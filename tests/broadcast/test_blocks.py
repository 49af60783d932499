"""Jacobian blocks of kernels: every partial at its place, however the kernel comes by it."""

from __future__ import annotations

import importlib.util
import math

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.backends import registry
from mixad.backends.execute import Kernel, capability_beside
from mixad.broadcast import blocks, duals
from mixad.errors import KernelGradientError, ZeroDerivativeWarning
from mixad.kernel.spec import OutputRequest

RNG = np.random.default_rng(0)
HAS_TORCH = importlib.util.find_spec("torch") is not None


@mixad.broadcast
def polar(r, angle):
    return r * math.cos(angle), r * math.sin(angle)


def polar_by_hand(r, angle):
    r, angle = np.broadcast_arrays(r, angle)
    rows = ([np.cos(angle), -r * np.sin(angle)], [np.sin(angle), r * np.cos(angle)])
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


@mixad.broadcast
def wide(a, b, c, d, e, f, g, h, i, j, k, m):
    """Twelve inputs, three values, one partial of each kind: varying, constant, zero."""
    return a * b * c + d * d, e * f + math.sin(g) * h, i * j - k


def wide_by_hand(x):
    a, b, c, d, e, f, g, h, i, j, k, _ = x
    found = np.zeros((*a.shape, 3, 12))
    for at, partial in enumerate((b * c, a * c, a * b, 2 * d)):
        found[..., 0, at] = partial
    for at, partial in enumerate((f, e, np.cos(g) * h, np.sin(g)), 4):
        found[..., 1, at] = partial
    for at, partial in enumerate((j, i, -np.ones_like(k)), 8):
        found[..., 2, at] = partial
    return found


STRATEGIES = [
    {},
    {"strategy": "forward"},
    {"strategy": "reverse"},
    {"chunk": 5},
    {"chunk": 1},
    {"backend": "reference"},
]
ALL = pytest.mark.parametrize("options", STRATEGIES, ids=str)


@pytest.mark.rows("count", [0, 1, 2, 15, 16, 17, 31, 32, 33, 2048, 2049, 5003])
def test_blocks_of_any_length(count):
    r, angle = RNG.uniform(1, 2, count), RNG.uniform(0, 6, count)
    found = polar.jacobian(r, angle)
    assert found.shape == (count, 2, 2)
    assert found.flags.c_contiguous
    np.testing.assert_allclose(found, polar_by_hand(r, angle), rtol=1e-14, atol=1e-15)


@ALL
@pytest.mark.rows("count", [5, 50, 4099])
def test_more_inputs_than_a_dual_chunk_carries(count, options):
    x = RNG.uniform(0.5, 2, (12, count))
    found = wide.with_options(**options).jacobian(*x)
    np.testing.assert_allclose(found, wide_by_hand(x), rtol=1e-14, atol=1e-15)


@ALL
def test_values_beside_the_blocks_are_those_of_a_call(options):
    x = RNG.uniform(0.5, 2, (12, 100))
    kernel = wide.with_options(**options)
    values, blocks = kernel.value_and_jacobian(*x)
    for found, wanted in zip(values, kernel(*x), strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(blocks, kernel.jacobian(*x))


@pytest.mark.parametrize("options", [{"strategy": "reverse"}, {"chunk": 5}], ids=str)
def test_blocks_larger_than_the_cache(options):
    # one pass puts whole lines together and stores them past the cache; several do not
    count = registry.capability("cpu").cache_bytes // (36 * 8) + 3001
    x = RNG.uniform(0.5, 2, (12, count))
    found = wide.with_options(**options).jacobian(*x)
    few = np.r_[:40, count // 2 : count // 2 + 40, count - 40 : count]
    np.testing.assert_allclose(found[few], wide_by_hand(x[:, few]), rtol=1e-14, atol=1e-15)
    np.testing.assert_array_equal(found[:, 1, 4], x[5])


@pytest.mark.rows(
    "shapes",
    [((3, 50), (50,)), ((50, 1), (1, 40)), ((4, 1, 7), (3, 1)), ((200, 3), (3,)), ((), (5,)),
     ((0, 3), (3,)), ((), ()), ((3000, 2), (3000, 1))],
)  # fmt: skip
def test_blocks_follow_the_broadcast_shape(shapes):
    r, angle = (RNG.uniform(1, 2, shape) for shape in shapes)
    wanted = polar_by_hand(r, angle)
    found = polar.jacobian(r, angle, wrt=("r", "angle"))
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("view", [np.asfortranarray, lambda x: x[::-1, ::2], lambda x: x.T])
def test_layouts_of_inputs_do_not_matter(view):
    r, angle = (view(RNG.uniform(1, 2, (60, 40))) for _ in range(2))
    wanted = polar_by_hand(r, angle)
    np.testing.assert_allclose(polar.jacobian(r, angle), wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_blocks_have_the_dtype_of_the_values(dtype):
    r, angle = (RNG.uniform(1, 2, 100).astype(dtype) for _ in range(2))
    found = polar.jacobian(r, angle)
    assert found.dtype == dtype
    wanted = polar_by_hand(r.astype("f8"), angle.astype("f8"))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=8 * np.finfo(dtype).eps)


@pytest.mark.slow
def test_bits_are_those_of_duals():
    x = RNG.uniform(0.5, 2, (12, 500))
    names = list("abcdefghij")
    found = wide.jacobian(*x, wrt=names)
    chunks = wide.duals(*x, wrt=names)
    for row, chunk in enumerate(chunks):
        for column, name in enumerate(names):
            np.testing.assert_array_equal(found[:, row, column], chunk.partials[name])


def test_one_value_has_no_axis_and_wrt_orders_the_columns():
    kernel = mixad.broadcast(lambda x, y: x * y * y)
    x, y = RNG.uniform(1, 2, (2, 20))
    assert kernel.jacobian(x, y).shape == (20, 2)
    np.testing.assert_allclose(kernel.jacobian(x, y, wrt=("y", "x"))[:, 0], 2 * x * y)
    np.testing.assert_array_equal(kernel.jacobian(x, y, wrt="x"), (y * y)[:, None])


def test_partials_by_numbers_have_the_broadcast_shape():
    x = RNG.uniform(1, 2, 30)
    found = mixad.broadcast(lambda x, scale: x * scale).jacobian(x, 3.0, wrt=("scale", "x"))
    np.testing.assert_array_equal(found, np.stack([x, np.full(30, 3.0)], axis=1))


def test_numbers_alone_give_one_block():
    found = polar.jacobian(2.0, 0.5)
    assert found.shape == (2, 2)
    np.testing.assert_allclose(found, polar_by_hand(2.0, 0.5))


def test_inputs_without_influence_have_the_shape_of_the_call():
    # nothing that depends on y is computed, but y says how many blocks there are
    found = mixad.broadcast(lambda x, y: (x * x, 3.0 * x)).jacobian(2.0, np.ones(5), wrt="x")
    np.testing.assert_array_equal(found, np.full((5, 2, 1), [[4.0], [3.0]]))


def test_loops_and_branches_keep_dual_numbers():
    @mixad.broadcast
    def power(x, y, n):
        out = 1.0
        for _ in range(n):
            out = out * (x if out < 50.0 else y)
        return out, x + y

    x, y, n = np.array([2.0, 3.0, 2.5]), np.array([5.0, 7.0, 1.5]), np.array([3, 5, 0])
    found = power.jacobian(x, y, n, wrt=("x", "y"))
    wanted = [[[12, 0], [1, 1]], [[4 * 27 * 7, 81], [1, 1]], [[0, 0], [1, 1]]]
    np.testing.assert_array_equal(found, wanted)


def test_blocks_are_differentiated_again():
    r, angle = RNG.uniform(1, 2, (2, 30))
    weights = RNG.standard_normal((30, 2, 2))

    def total(r, angle):
        return (weights * polar.jacobian(r, angle)).sum()

    by_r, by_angle = mixad.grad(total, argnums=(0, 1))(r, angle)
    c, s = np.cos(angle), np.sin(angle)
    w = weights
    np.testing.assert_allclose(by_r, -w[:, 0, 1] * s + w[:, 1, 1] * c, rtol=1e-12, atol=1e-13)
    wanted = -w[:, 0, 0] * s - w[:, 0, 1] * r * c + w[:, 1, 0] * c - w[:, 1, 1] * r * s
    np.testing.assert_allclose(by_angle, wanted, rtol=1e-12, atol=1e-13)


@pytest.mark.slow
def test_more_partials_than_a_launch_stores_side_by_side():
    @mixad.broadcast
    def many(a, b, c, d, e, f, g, h, i, j, k, m):
        total = a * b + c * d + e * f + g * h + i * j + k * m
        return (total, 2.0 * total, 3.0 * total, 4.0 * total, 5.0 * total, 6.0 * total,
                7.0 * total, 8.0 * total, 9.0 * total, 10.0 * total, 11.0 * total)  # fmt: skip

    x = RNG.uniform(1, 2, (12, 40))
    wanted = x[[1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]].T[:, None] * np.arange(1, 12)[:, None]
    np.testing.assert_allclose(many.jacobian(*x), wanted, rtol=1e-15)


def test_methods_have_blocks_of_their_own_instance():
    class Scale:
        by = 3.0

        @mixad.broadcast
        def scaled(self, x):
            return x * self.by

    x = np.ones(4)
    np.testing.assert_array_equal(Scale().scaled.jacobian(x), np.full((4, 1), 3.0))
    np.testing.assert_array_equal(Scale.scaled.jacobian(Scale(), x), np.full((4, 1), 3.0))
    value, _ = Scale.scaled.value_and_jacobian(Scale(), x)
    np.testing.assert_array_equal(value, np.full(4, 3.0))


def test_other_libraries_get_their_own_arrays():
    r, angle = RNG.uniform(1, 2, (2, 30))
    xp = array_api_strict
    found = polar.jacobian(xp.asarray(r), xp.asarray(angle))
    assert type(found) is type(xp.asarray(r))
    np.testing.assert_allclose(np.asarray(found), polar_by_hand(r, angle), rtol=1e-13)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torch_tensors_give_a_tensor():
    import torch

    r, angle = RNG.uniform(1, 2, (2, 300))
    found = polar.jacobian(torch.from_numpy(r), torch.from_numpy(angle))
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.numpy(), polar_by_hand(r, angle), rtol=1e-13)


def test_an_audit_looks_at_every_partial(monkeypatch):
    monkeypatch.setenv("MIXAD_AUDIT", "1")
    x = RNG.uniform(0.5, 2, (12, 6))
    found = wide.with_options(chunk=4).jacobian(*x)
    np.testing.assert_allclose(found, wide_by_hand(x), rtol=1e-14, atol=1e-15)


def test_side_by_side_is_for_backends_that_say_so():
    program = polar._specialiser.bind_call((np.ones(3), np.ones(3)), {})[0].found.parsed.program
    assert capability_beside(program, np.ones(3)).stores_beside
    assert not capability_beside(program, np.ones(3), "reference").stores_beside
    kernel = Kernel((program,), (OutputRequest(0, 1, beside=((0, 0), (0, 1))),))
    (found,) = kernel([np.full(20, 2.0), np.zeros(20)])
    np.testing.assert_array_equal(found, np.full((20, 3), [0.0, 2.0, 0.0]))


# --- refusals


def test_values_that_are_no_floats_of_one_type_are_refused():
    x = np.ones(3)
    with pytest.raises(KernelGradientError, match=r"float64, bool.*one array takes"):
        mixad.broadcast(lambda x: (x, x > 0.0)).jacobian(x)
    with pytest.raises(KernelGradientError, match="results of float64, float32"):
        mixad.broadcast(lambda x, y: (x, y)).jacobian(x, x.astype("f4"))


def test_a_jacobian_by_nothing_is_refused():
    with pytest.raises(KernelGradientError, match="with respect to no inputs"):
        mixad.broadcast(lambda n: n * 1.5).jacobian(np.arange(3))
    with pytest.raises(KernelGradientError, match="with respect to no inputs"):
        polar.jacobian(np.ones(3), np.ones(3), wrt=())
    with pytest.raises(KernelGradientError, match="wrt names 'q'"):
        polar.jacobian(np.ones(3), np.ones(3), wrt="q")


def test_a_loop_decided_by_comparisons_alone_is_warned_of():
    @mixad.broadcast
    def bisected(a):
        low, high = 0.0, 4.0
        while high - low > 1e-6:
            middle = 0.5 * (low + high)
            if middle * middle > a:
                high = middle
            else:
                low = middle
        return low

    with pytest.warns(ZeroDerivativeWarning, match="low"):
        found = bisected.jacobian(np.array([2.0, 3.0]))
    np.testing.assert_array_equal(found, np.zeros((2, 1)))


def test_derivatives_are_taken_once_however_often_they_are_called(monkeypatch):
    taken = []

    def counted(transform):
        def of_program(*args, **kwargs):
            taken.append(transform.__name__)
            return transform(*args, **kwargs)

        return of_program

    monkeypatch.setattr(duals, "pushforward", counted(duals.pushforward))
    monkeypatch.setattr(blocks, "dual_partials", counted(blocks.dual_partials))
    kernel = mixad.broadcast(lambda x, y: x * x * y + 17.25)
    for _ in range(3):
        kernel.duals(np.ones(3), 2.0)
        kernel.jacobian(np.ones(3), 2.0)
    assert taken == ["pushforward", "dual_partials"]


def test_complex_numbers_are_refused_but_their_parts_taken():
    z = np.array([1.0 + 2.0j, 3.0 - 1.0j])
    square = mixad.broadcast(lambda z: z.real * z.real - z.imag)
    with pytest.raises(KernelGradientError, match="partials with respect to 'z', which is complex"):
        square.jacobian(z)
    found = square.jacobian(z, wrt=("z.real", "z.imag"))
    np.testing.assert_array_equal(found, [[2.0, -1.0], [6.0, -1.0]])
    with pytest.raises(KernelGradientError, match="partials of complex values"):
        mixad.broadcast(lambda z: z * z).jacobian(z, wrt="z.real")
