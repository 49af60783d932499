"""Functions of JAX in mixad's transforms, against JAX's own transforms and mixad's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mixad_jax
import numpy as np
import pytest

import mixad
from mixad.errors import TracerError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from mixad_jax import borrowed  # noqa: E402

pytestmark = pytest.mark.usefixtures("integration")

X = np.asarray([[3.0, 4.0, 0.5], [1.0, -2.0, 2.5]])


def mixed(x: Any, y: Any) -> Any:
    return jnp.linalg.norm(jnp.outer(x[0], y) + x[1]) ** 3 / (1.0 + jnp.sum(y**2))


def several(tree: Any, scale: Any = 1.0) -> Any:
    a, b = tree["a"], tree["b"]
    return {"product": a * b * scale, "places": jnp.argsort(a), "sum": (a.sum(), None)}


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "norm": lambda x: jnp.linalg.norm(x) ** 3,
    "logsumexp": lambda x: jax.nn.logsumexp(x * x, axis=0).sum(),
    "convolution": lambda x: (jnp.convolve(x[0], x[1], mode="same") ** 3).sum(),
    "scan": lambda x: jax.lax.scan(lambda c, row: (jnp.sin(c * row), c.sum()), x[0], x)[1].sum(),
    "jit": jax.jit(lambda x: (x[0] * jnp.sin(x[1])).sum()),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_jaxs(name: str) -> None:
    theirs = FUNCTIONS[name]
    ours, x = mixad_jax.borrow(theirs), jnp.asarray(X)
    for found, expected in (
        (mixad.grad(ours)(x), jax.grad(theirs)(x)),
        (mixad.value_and_grad(ours)(x)[0], theirs(x)),
        (mixad.jvp(ours, (x,), (x**2,)), jax.jvp(theirs, (x,), (x**2,))),
        (mixad.hessian(ours)(x), jax.hessian(theirs)(x)),
        (
            mixad.jvp(mixad.grad(ours), (x,), (x,))[1],
            jax.jvp(jax.grad(theirs), (x,), (x,))[1],
        ),
        (
            mixad.grad(lambda x: mixad.jvp(ours, (x,), (x * x,))[1])(x),
            jax.grad(lambda x: jax.jvp(theirs, (x,), (x * x,))[1])(x),
        ),
        (
            mixad.grad(lambda x: (mixad.grad(ours)(x) ** 2).sum())(x),
            jax.grad(lambda x: (jax.grad(theirs)(x) ** 2).sum())(x),
        ),
    ):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_between_functions_and_kernels_of_mixad() -> None:
    gate = mixad.broadcast(lambda x, w: x * w if x > 0.0 else w)
    own, x = mixad_jax.borrow(mixed), jnp.asarray(X)
    found = mixad.grad(lambda x: own(gate(x, 2.0), gate(x[0], x[1])) * x[0, 0])(x)
    expected = jax.grad(
        lambda x: (
            mixed(jnp.where(x > 0, 2.0 * x, 2.0), jnp.where(x[0] > 0, x[0] * x[1], x[1])) * x[0, 0]
        )
    )(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_kernels_inside_of_what_is_borrowed() -> None:
    cubed = mixad.broadcast(lambda x: x * x * x)
    x = jnp.asarray(X)
    curved = mixad.hessian(mixad_jax.borrow(lambda x: jnp.sum(cubed(x))))(x[0])
    np.testing.assert_allclose(curved, np.diag(6.0 * X[0]), rtol=1e-12)


def test_trees_whole_numbers_and_keywords() -> None:
    own, x = mixad_jax.borrow(several), jnp.asarray(X)

    def loss(a: Any) -> Any:
        found = own({"a": a, "b": jnp.asarray(X[1])}, scale=2.5)
        assert found["places"].tolist() == [2, 0, 1]
        assert found["sum"][1] is None
        return found["product"].sum() + found["sum"][0]

    np.testing.assert_allclose(mixad.grad(loss)(x[0]), 2.5 * X[1] + 1.0, rtol=1e-12)
    total = mixad_jax.borrow(jnp.sum)
    found = mixad.grad(lambda x: (total(x, axis=0) ** 2).sum())(x)
    np.testing.assert_allclose(found, np.broadcast_to(2 * X.sum(0), X.shape), rtol=1e-12)
    assert mixad.grad(lambda x: total(x, axis=1)[0])(x)[1].tolist() == [0.0] * 3


def test_random_numbers_are_those_of_the_key() -> None:
    def dropped(x: Any, key: Any) -> Any:
        return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x * x, 0.0).sum()

    key, x = jax.random.key(3), jnp.arange(1.0, 50.0)
    found = mixad.grad(mixad_jax.borrow(dropped))(x, key)
    assert (found == jax.grad(dropped)(x, key)).all()
    assert 0 < (found == 0.0).sum() < 49


def test_complex_numbers_have_the_gradients_that_mixad_gives_them() -> None:
    z = jnp.asarray([1 + 2j, 3 - 1j])
    own = mixad_jax.borrow(lambda z: z * z * (1 - 2j))
    found = mixad.grad(lambda z: abs(own(z)).sum())(z)
    expected = mixad.grad(lambda z: abs(z * z * (1 - 2j)).sum())(z)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    along = mixad.jvp(own, (z,), (z * 1j,))[1]
    np.testing.assert_allclose(along, 2j * z * z * (1 - 2j), rtol=1e-12)


def test_arrays_of_numpy_are_copied() -> None:
    weights = np.ones(3)
    own = mixad_jax.borrow(lambda x, w: (x * x * w).sum())

    def loss(x: Any) -> Any:
        found = own(x, weights)
        weights[:] = 7.0  # the pullback is of what was there
        return found

    assert mixad.grad(loss)(jnp.ones(3)).tolist() == [2.0, 2.0, 2.0]


def test_a_function_is_compiled_once_for_each_structure() -> None:
    traced = []

    def function(x: Any, power: int) -> Any:
        traced.append(power)
        return (x**power).sum()

    own = mixad_jax.borrow(function)
    for power in (2, 3, 2, 3, 2):
        mixad.grad(lambda x, p=power: mixad_jax.borrow(function)(x, p))(jnp.ones(3))
        mixad.grad(lambda x, p=power: own(x, p))(jnp.ones(3))
    assert traced == [2, 3]
    mixad.grad(lambda x: own(x, 2))(jnp.ones(4))
    assert traced == [2, 3, 2]


def test_without_a_transform_it_is_the_function() -> None:
    own = mixad_jax.borrow(jnp.cumsum)
    assert own.__name__ == "cumsum"
    assert own(jnp.ones(3)).tolist() == [1.0, 2.0, 3.0]
    assert isinstance(own, borrowed.Borrowed)


def test_recordings_say_whose_derivative_it_is() -> None:
    own = mixad_jax.borrow(jnp.cumsum)
    assert "borrowed from jax" in str(mixad.tape(lambda x: own(x).sum())(jnp.ones(3)))


def test_refusals() -> None:
    for value in (jnp.ones(3), [jnp.sin]):
        with pytest.raises(TracerError, match=r"write borrow\(g\)\(x\)"):
            mixad_jax.borrow(value)
    with pytest.raises(TracerError, match=r"norm\(\) is JAX's.*of numpy: pass arrays of jax.numpy"):
        mixad.grad(mixad_jax.borrow(jnp.linalg.norm))(np.ones(3))
    with pytest.raises(TracerError, match="is JAX's"):
        mixad.grad(mixad_jax.borrow(jnp.sin))(2.0)
    with pytest.raises(Exception, match=r"mixad_jax\.borrow"):
        mixad.grad(lambda x: jax.nn.softplus(x).sum())(jnp.ones(3))
    with pytest.raises(Exception, match=r"mixad_jax\.borrow"):
        mixad.grad(lambda x: jax.jit(lambda x: x.sum())(x))(jnp.ones(3))
