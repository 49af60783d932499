"""Small vectors as arguments and results: against formulas and the same function of scalars."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import ConfigurationError, KernelGradientError, KernelTypeError

EXAMPLES = 40

RNG = np.random.default_rng(0)


def rotated(r1, r2, r3, x, y, z):
    angle = math.sqrt(r1 * r1 + r2 * r2 + r3 * r3)
    c, s = math.cos(angle), math.sin(angle)
    a1, a2, a3 = r1 / angle, r2 / angle, r3 / angle
    along = (a1 * x + a2 * y + a3 * z) * (1.0 - c)
    return (
        x * c + (a2 * z - a3 * y) * s + a1 * along,
        y * c + (a3 * x - a1 * z) * s + a2 * along,
        z * c + (a1 * y - a2 * x) * s + a3 * along,
    )


@mixad.broadcast
def pixels_of_scalars(r1, r2, r3, t1, t2, t3, f, k1, k2, u0, v0, x, y, z, weight, u, v):
    px, py, pz = rotated(r1, r2, r3, x, y, z)
    px, py = -(px + t1) / (pz + t3), -(py + t2) / (pz + t3)
    n = px * px + py * py
    scale = f * (1.0 + n * (k1 + k2 * n))
    return weight * (scale * px + u0 - u), weight * (scale * py + v0 - v)


@mixad.broadcast(signature="(11),(3),(),(2)->(2)")
def pixels(camera, point, weight, seen):
    out = [0.0] * 2
    turned = list(rotated(*camera[:3], *point))
    for i in range(3):
        turned[i] += camera[3 + i]
    k1, k2 = camera[7], camera[8]
    p = [-turned[0] / turned[2], -turned[1] / turned[2]]
    n = p[0] * p[0] + p[1] * p[1]
    scale = camera[6] * (1.0 + n * (k1 + k2 * n))
    for i in range(len(out)):
        out[i] = weight * (scale * p[i] + camera[-2:][i] - seen[i])
    return out


def bundle(dtype=np.float64, count=40):
    shapes = ((count, 11), (count, 3), (), (count, 2))
    camera, point, weight, seen = (RNG.uniform(0.5, 1.5, s).astype(dtype) for s in shapes)
    return camera, point, weight, seen


def columns(camera, point, weight, seen):
    return [*camera.T.copy(), *point.T.copy(), weight, *seen.T.copy()]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_are_those_of_the_same_function_of_scalars_bit_for_bit(dtype):
    arguments = bundle(dtype)
    wanted = np.stack(pixels_of_scalars(*columns(*arguments)), axis=-1)
    got = pixels(*arguments)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [None, 4])
def test_gradients_are_those_of_the_same_function_of_scalars_bit_for_bit(chunk):
    camera, point, weight, seen = bundle()
    options = {"strategy": "forward", "chunk": chunk}
    g = RNG.normal(size=(40, 2))
    _, got = mixad.value_and_vjp(pixels.with_options(**options), (camera, point, weight, seen), g)
    scalars = pixels_of_scalars.with_options(**options)
    _, wanted = mixad.value_and_vjp(
        scalars, tuple(columns(camera, point, weight, seen)), (g[:, 0].copy(), g[:, 1].copy())
    )
    np.testing.assert_array_equal(got[0], np.stack(wanted[:11], axis=-1))
    np.testing.assert_array_equal(got[1], np.stack(wanted[11:14], axis=-1))
    np.testing.assert_array_equal(got[2], wanted[14])
    np.testing.assert_array_equal(got[3], np.stack(wanted[15:], axis=-1))


def test_gradient_is_that_of_finite_differences():
    camera, point, weight, seen = bundle(count=3)

    def loss(camera):
        return (pixels(camera, point, weight, seen) ** 2).sum()

    got = mixad.grad(loss)(camera)
    for at in np.ndindex(camera.shape):
        step = np.zeros_like(camera)
        step[at] = 1e-6
        wanted = (loss(camera + step) - loss(camera - step)) / 2e-6
        assert got[at] == pytest.approx(wanted, rel=1e-5, abs=1e-7)


@mixad.broadcast(signature="(m,n),(n)->(m)")
def product(a, v):
    out = [0.0] * len(a)
    for i in range(len(a)):
        for j in range(len(v)):
            out[i] += a[i, j] * v[j]
    return out


LENGTHS = st.integers(1, 4)
SHAPES = st.sampled_from([((), ()), ((3,), ()), ((3,), (3,)), ((2, 3), (3,)), ((2, 1), (1, 3))])
LAYOUTS = st.sampled_from(["packed", "fortran", "reversed", "stepped", "read-only"])


def laid_out(array, layout):
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "reversed":
        return array[..., ::-1].copy()[..., ::-1]
    if layout == "stepped":
        return np.repeat(array, 2, axis=-1)[..., ::2]
    if layout == "read-only":
        array.flags.writeable = False
    return array


@pytest.mark.slow
@settings(deadline=None, max_examples=EXAMPLES)
@given(LENGTHS, LENGTHS, SHAPES, LAYOUTS, LAYOUTS)
def test_matrix_times_vector_of_any_layout(m, n, shapes, first, second):
    a = laid_out(RNG.normal(size=(*shapes[0], m, n)), first)
    v = laid_out(RNG.normal(size=(*shapes[1], n)), second)
    np.testing.assert_allclose(product(a, v), np.einsum("...ij,...j->...i", a, v), rtol=1e-13)
    ga, gv = mixad.grad(lambda a, v: (product(a, v) ** 2).sum(), (0, 1))(a, v)
    r = 2.0 * np.einsum("...ij,...j->...i", a, v)
    assert (ga.shape, gv.shape) == (a.shape, v.shape)
    of_a, of_v = r[..., :, None] * v[..., None, :], (r[..., :, None] * a).sum(axis=-2)
    np.testing.assert_allclose(ga, summed_to(of_a, a.shape), rtol=1e-12)
    np.testing.assert_allclose(gv, summed_to(of_v, v.shape), rtol=1e-12, atol=1e-13)


def summed_to(array, shape):
    extra = array.ndim - len(shape)
    array = array.sum(axis=tuple(range(extra)))
    kept = tuple(i for i, n in enumerate(shape) if n == 1 and array.shape[i] > 1)
    return array.sum(axis=kept, keepdims=True)


@pytest.mark.slow
def test_second_derivatives_and_forward_mode():
    a, v = RNG.normal(size=(5, 3, 3)), RNG.normal(size=3)

    def loss(v):
        return (product(a, v) ** 2).sum()

    want = 2.0 * np.einsum("nij,nik->jk", a, a)
    np.testing.assert_allclose(mixad.hessian(loss)(v), want, rtol=1e-12)
    np.testing.assert_allclose(mixad.hvp(loss, (v,), (v,)), want @ v, rtol=1e-12)
    _, tangent = mixad.jvp(lambda v: product(a, v), (v,), (v,))
    np.testing.assert_allclose(tangent, a @ v, rtol=1e-13)
    np.testing.assert_allclose(mixad.jacobian(lambda v: product(a, v))(v), a, rtol=1e-13)


def test_partials_have_the_cores_as_last_axes():
    a, v = RNG.normal(size=(5, 2, 3)), RNG.normal(size=3)
    dual = product.duals(a, v)
    np.testing.assert_allclose(dual.partials["v"], a, rtol=1e-15)
    want = np.broadcast_to(np.einsum("ij,k->ijk", np.eye(2), v), (5, 2, 2, 3))
    np.testing.assert_array_equal(dual.partials["a"], want)
    one = product.duals(a, v, wrt=("v[1]",))
    np.testing.assert_array_equal(one.partials["v[1]"], a[..., 1])


def test_jacobian_counts_elements():
    a, v = RNG.normal(size=(5, 2, 3)), RNG.normal(size=3)
    value, blocks = product.value_and_jacobian(a, v)
    np.testing.assert_allclose(value, a @ v, rtol=1e-14)
    want = np.einsum("ij,k->ijk", np.eye(2), v).reshape(2, 6)
    np.testing.assert_array_equal(blocks[..., :6], np.broadcast_to(want, (5, 2, 6)))
    np.testing.assert_array_equal(blocks[..., 6:], a)


def test_sequences_of_numbers_stand_for_arrays():
    a = RNG.normal(size=(2, 3))
    np.testing.assert_allclose(product(a.tolist(), [1.0, 2.0, 3.0]), a @ [1.0, 2.0, 3.0])
    np.testing.assert_allclose(product(a, (1.0, 2.0, 3.0)), a @ [1.0, 2.0, 3.0])
    small = a.astype(np.float32)
    assert product(small, (1.0, 2.0, 3.0)).dtype == np.float32
    gradient = mixad.grad(lambda v: product(a, v).sum())((1.0, 2.0, 3.0))
    np.testing.assert_allclose(gradient, a.sum(axis=0))
    assert isinstance(gradient, tuple)


def test_index_known_at_run_time_selects_exactly():
    @mixad.broadcast(signature="(4),()->()")
    def first_large(v, limit):
        i = 0
        while v[i] < limit:
            i += 1
        return v[i] * limit

    v = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, np.nan, np.inf, 0.0]])
    limit = np.array([2.5, 3.0])
    np.testing.assert_array_equal(first_large(v, limit), [7.5, 12.0])
    gradient = mixad.grad(lambda v: first_large(v, limit).sum())(v)
    np.testing.assert_array_equal(gradient, [[0.0, 0.0, 2.5, 0.0], [3.0, 0.0, 0.0, 0.0]])
    with pytest.raises(IndexError):
        mixad.broadcast(lambda v, i: v[i]).with_options(signature="(4),()->()")(v, 4)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_loop_whose_index_leaves_a_vector_ends_with_its_line(backend):
    @mixad.broadcast(signature="(4),()->()", backend=backend)
    def first_large(v, limit):
        i = 0
        while v[i] < limit:
            i += 1
        return v[i] * limit

    v, limit = np.arange(1.0, 5.0), np.repeat([3.5, 4.5, 2.0], [20, 1, 20])
    for call in (
        lambda: first_large(v, limit),
        lambda: first_large(v, 4.5),
        lambda: first_large.duals(v, limit),
        lambda: mixad.grad(lambda v: first_large(v, limit).sum())(v),
    ):
        with pytest.raises(IndexError, match=r"index 4 is outside 'v' of shape \(4,\)") as caught:
            call()
        assert "while v[i] < limit" in str(caught.value)


def test_several_results_of_several_shapes():
    @mixad.broadcast(signature="(3),(3)->(3),(),(2,2)")
    def several(a, b):
        cross = np.array([a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], 0.0])
        cross[2] = a[0] * b[1] - a[1] * b[0]
        return cross, max(a), ((a[0], 1), (len(b), b[2]))

    a, b = RNG.normal(size=(2, 6, 3))
    cross, largest, matrix = several(a, b)
    np.testing.assert_allclose(cross, np.cross(a, b), rtol=1e-13)
    np.testing.assert_array_equal(largest, a.max(axis=-1))
    assert matrix.shape == (6, 2, 2)
    np.testing.assert_array_equal(matrix[:, 0], np.stack([a[:, 0], np.ones(6)], -1))
    weights = RNG.normal(size=(6, 3))
    gradient = mixad.grad(lambda a: (several(a, b)[0] * weights).sum())(a)
    np.testing.assert_allclose(gradient, np.cross(b, weights), rtol=1e-13)


def test_whole_numbers_and_empty_loops():
    @mixad.broadcast(signature="(2)->(2)")
    def swapped(v):
        return v[1], v[0]

    assert swapped(np.array([[1, 2]])).dtype == np.int64
    assert swapped(np.zeros((0, 2))).shape == (0, 2)


def test_vectors_of_complex_numbers():
    @mixad.broadcast(signature="(2),()->(2)")
    def turned(z, w):
        return z[0] * w, z[1] * w + z[0]

    z, w = RNG.normal(size=(4, 2)) + 1j, np.exp(0.5j)
    np.testing.assert_allclose(turned(z, w), np.stack([z[:, 0] * w, z[:, 1] * w + z[:, 0]], -1))


def test_constants_of_a_namespace_stay_constants():
    a, v = RNG.normal(size=(4, 3, 3)), RNG.normal(size=3)

    def loss(v):
        xp = v.__array_namespace__()
        return (product(xp.asarray(a), v) * product(xp.asarray(a), xp.ones(3))).sum()

    np.testing.assert_allclose(mixad.grad(loss)(v), np.einsum("nij,ni->j", a, a.sum(-1)))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("placement", ["forward", "reverse"])
def test_backends_and_placements_agree(backend, placement):
    arguments = bundle(count=7)
    options = {"backend": backend, "placement": placement}
    loss = [lambda *xs, k=k: (k(*xs) ** 2).sum() for k in (pixels.with_options(**options), pixels)]
    got, wanted = (mixad.grad(f, (0, 1, 2, 3))(*arguments) for f in loss)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-9, atol=1e-9)


def test_methods_take_vectors():
    class Lens:
        def __init__(self, strength):
            self.strength = strength

        @mixad.broadcast(signature="(),(2)->(2)")
        def bent(self, ray):
            return ray[0], ray[1] - self.strength * ray[0]

    with pytest.raises(ConfigurationError, match="has 2 arguments, bent has 1 parameters"):
        Lens(2.0).bent(np.ones(2))
    bound = Lens(2.0).bent.with_options(signature="(2)->(2)")
    np.testing.assert_array_equal(bound(np.ones((3, 2))), [[1.0, -1.0]] * 3)


def test_source_and_kinks_name_elements():
    @mixad.broadcast(signature="(2)->()")
    def largest(v):
        return max(v[0], v[1])

    v = np.array([[1.0, 1.0], [1.0, 2.0]])
    assert "%0 v[0]: f64 lane, %1 v[1]: f64 lane" in largest.source(v)
    assert "1 of 2 elements" in str(largest.kinks(v))
    assert largest.explain(v).chunks == (2,)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.rows(
    ("signature", "message"),
    [
        ("(3)", "is none"), ("3->()", "is none"), ("(3)->", "is none"),
        ("(0)->()", "'0' is no length"), ("(n?)->()", r"'n\?' is no length"),
        ("(3)->(n)", "no argument has the length 'n'"),
    ],
)  # fmt: skip
def test_signatures_that_are_none(signature, message):
    with pytest.raises(ConfigurationError, match=message):
        mixad.broadcast(signature=signature)
    with pytest.raises(ValueError, match=message):
        product.with_options(signature=signature)


def test_arguments_that_do_not_fit_the_signature():
    a, v = np.ones((4, 2, 3)), np.ones(3)
    with pytest.raises(KernelTypeError, match=r"'v' has shape \(2,\), .* \(n\), where n is 3"):
        product(a, np.ones(2))
    with pytest.raises(KernelTypeError, match=r"'v' has shape \(\), .* last axis as \(n\)"):
        product(a, 1.0)
    with pytest.raises(KernelTypeError, match="rows of several lengths"):
        product([[1.0, 2.0], [3.0]], v)
    with pytest.raises(KernelTypeError, match=r"a sequence stands for an array of the core \(n\)"):
        product(a, [[1.0], [2.0], [3.0]])
    with pytest.raises(KernelTypeError, match="read by index, as its core is too long"):
        product(np.ones((8, 8)), np.ones(8))
    with pytest.raises(KernelTypeError, match="broadcast"):
        product(np.ones((4, 2, 3)), np.ones((3, 3)))
    with pytest.raises(KernelTypeError, match="returns a tuple of 2 where 3 are needed"):
        mixad.broadcast(
            lambda v: (v[0], v[1]),
        ).with_options(signature="(n)->(3)")(v)
    with pytest.raises(KernelTypeError, match="has 2 results, the function returns a tuple of 3"):
        mixad.broadcast(lambda v: tuple(v)).with_options(signature="(n)->(),()")(v)
    with pytest.raises(ConfigurationError, match="has 1 arguments, product has 2 parameters"):
        product.with_options(signature="(3)->()")(a, v)


def test_duals_with_respect_to_what_is_not_there():
    with pytest.raises(
        KernelGradientError,
        match=r"wrt names 'b'(.|\n)*name some of 'a', 'v', or parts of them, such as 'a\[0\]\[0\]'",
    ):
        product.duals(np.ones((2, 2)), np.ones(2), wrt="b")


def test_partials_of_complex_vectors_are_those_of_the_parts_that_the_refusal_names():
    squared = mixad.broadcast(signature="(2)->()")(lambda z: (z[0] * z[1]).real)
    z = np.array([1 + 2j, 3 - 1j])
    with pytest.raises(KernelGradientError, match=r"'z\[0\].real' and 'z\[0\].imag', and so on"):
        squared.jacobian(z)
    np.testing.assert_allclose(squared.jacobian(z, wrt=("z[0].real", "z[0].imag")), [3.0, 1.0])


def pivot(m, k):
    """Return the row with the largest element of a column, from the diagonal down."""
    p = k
    for i in range(k + 1, 3):
        if abs(m[i][k]) > abs(m[p][k]):
            p = i
    return p


@mixad.broadcast(signature="(3,3),(3)->(3)")
def solved(a, b):
    """Solve a linear system by elimination with pivots."""
    m, x = np.zeros((3, 4)), np.zeros(3)
    for i in range(3):
        m[i, 3] = b[i]
        for j in range(3):
            m[i, j] = a[i, j]
    for k in range(3):
        p = pivot(m, k)
        for j in range(4):
            t = m[k, j]
            m[k, j] = m[p, j]
            m[p, j] = t
        for i in range(k + 1, 3):
            factor = m[i, k] / m[k, k]
            for j in range(4):
                m[i, j] -= factor * m[k, j]
    for i in range(2, -1, -1):
        x[i] = m[i, 3]
        for j in range(i + 1, 3):
            x[i] -= m[i, j] * x[j]
        x[i] /= m[i, i]
    return x


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_rows_are_exchanged_at_indices_known_at_run_time(backend):
    rng = np.random.default_rng(5)
    a, b, weights = rng.normal(size=(6, 3, 3)), rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    kernel = solved.with_options(backend=backend)
    found = kernel(a, b)
    np.testing.assert_allclose(found, np.linalg.solve(a, b[..., None])[..., 0], rtol=1e-11)
    da, db = mixad.grad(lambda a, b: (kernel(a, b) * weights).sum(), argnums=(0, 1))(a, b)
    adjoint = np.linalg.solve(np.swapaxes(a, 1, 2), weights[..., None])
    np.testing.assert_allclose(db, adjoint[..., 0], rtol=1e-10)
    np.testing.assert_allclose(da, -adjoint * found[:, None, :], rtol=1e-10)
