"""Loops over arrays of other libraries, and of two types of floats."""

import numpy as np
import pytest

import mixad

X = np.random.default_rng(0).standard_normal((6, 4))


def by_python(f, carry, xs, stack):
    ys = []
    for x in xs:
        carry, y = f(carry, x)
        ys.append(y)
    return carry, stack(ys)


def check(f, init, xs, stack):
    """Compare values and gradients with those of the loop in Python."""
    for one, other in zip(mixad.scan(f, init, xs), by_python(f, init, xs, stack), strict=True):
        assert type(one) is type(other)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-13)

    def loss_of(scan):
        def loss(init, xs):
            carry, ys = scan(f, init, xs)
            return (carry * carry).sum() + (ys * ys * ys).sum()

        return loss

    found = mixad.grad(loss_of(mixad.scan), (0, 1))(init, xs)
    wanted = mixad.grad(loss_of(lambda *a: by_python(*a, stack)), (0, 1))(init, xs)
    for one, other in zip(found, wanted, strict=True):
        assert type(one) is type(other)
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-12, atol=1e-14)


TORCH = {
    "elementwise": lambda t, c, x: (t.sin(c) * 0.9 + x, c * x),
    "a mask": lambda t, c, x: (t.where(c > 0.0, t.sin(c) + x, c * 0.5), c * (x > 0.0)),
    "a product": lambda t, c, x: (t.tanh(t.outer(x, x) @ c + x), c),
    "the largest": lambda t, c, x: (c * 0.5 + x * c.max(), c[t.argmax(x)] * x),
    "an order": lambda t, c, x: (t.sort(c).values * 0.5 + x, c),
    "bounds": lambda t, c, x: (t.clamp(c, -0.5, 0.5) + x, t.relu(c)),
}


@pytest.mark.parametrize("name", TORCH)
def test_tensors(name):
    torch = pytest.importorskip("torch")
    xs = torch.asarray(X)
    check(lambda c, x: TORCH[name](torch, c, x), xs[0] * 0.5, xs, torch.stack)


def test_numbers_beside_tensors_that_are_captured():
    torch = pytest.importorskip("torch")
    xs = torch.asarray(X)
    total = mixad.fori_loop(0, 6, lambda k, total: total + xs[k].sum(), 0.0)
    assert isinstance(total, torch.Tensor)
    assert float(total) == pytest.approx(X.sum())


def test_arrays_of_jax():
    jnp = pytest.importorskip("jax.numpy")
    xs = jnp.asarray(X)
    carry, _ = mixad.scan(lambda c, x: (jnp.sin(c) + x, None), xs[0], xs)
    expected = X[0]
    for x in X:
        expected = np.sin(expected) + x
    np.testing.assert_allclose(np.asarray(carry), expected, rtol=1e-5)
    g = mixad.grad(lambda c: mixad.scan(lambda c, x: (c * c * 0.1 + x, c), c, xs)[0].sum())(xs[0])
    assert type(g) is type(xs)


def test_strict_arrays():
    xp = pytest.importorskip("array_api_strict")
    xs = xp.asarray(X)

    def last(init):
        return mixad.scan(lambda c, x: (c * c * 0.1 + x, None), init, xs)[0]

    g = mixad.grad(lambda init: last(init).sum())(xs[0, ...])
    init, slope = X[0], np.ones(4)
    for x in X:
        init, slope = init * init * 0.1 + x, slope * 0.2 * init
    np.testing.assert_allclose(np.asarray(g), slope, rtol=1e-12)


def test_lazy_arrays():
    da = pytest.importorskip("dask.array")
    xs = da.asarray(X, chunks=2)
    carry, ys = mixad.scan(lambda c, x: (c * 0.5 + x, c), xs[0], xs)
    assert isinstance(carry, da.Array)
    expected = by_python(lambda c, x: (c * 0.5 + x, c), X[0], X, np.stack)
    np.testing.assert_allclose(carry.compute(), expected[0])
    np.testing.assert_allclose(ys.compute(), expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_short_floats(dtype):
    xs = X.astype(dtype)
    carry, ys = mixad.scan(lambda c, x: (np.tanh(c) + x, c.sum()), xs[0], xs)
    assert carry.dtype == ys.dtype == dtype
    expected = X[0]
    for x in X:
        expected = np.tanh(expected) + x
    tolerance = 50 * float(np.finfo(dtype).eps)
    np.testing.assert_allclose(carry, expected, rtol=tolerance, atol=tolerance)

    def loss(init):
        return mixad.scan(lambda c, x: (np.tanh(c) + x, None), init, xs)[0].sum()

    slope, c = np.ones(4), X[0]
    for x in X:
        slope, c = slope / np.cosh(c) ** 2, np.tanh(c) + x
    g = mixad.grad(loss)(xs[0])
    assert g.dtype == dtype
    np.testing.assert_allclose(g, slope, rtol=tolerance, atol=tolerance)
