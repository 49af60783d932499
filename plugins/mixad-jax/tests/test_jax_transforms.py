"""Kernels in JAX's transforms, against the same functions written with jax.numpy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

import mixad
from mixad.backends import registry
from mixad.errors import (
    KernelGradientError,
    KernelShapeError,
    KernelTypeError,
    TracerError,
    ZeroDerivativeWarning,
)
from mixad.special import sin, tanh

jax = pytest.importorskip("jax")
jnp = pytest.importorskip("jax.numpy")

pytestmark = [
    pytest.mark.slow,  # XLA compiles every operation
    pytest.mark.usefixtures("integration"),
]

Function = Callable[..., Any]


@mixad.broadcast
def gated(x, w):
    if x > 0.5:
        return sin(x) * w
    return x * w * w


def gated_by_jax(x: Any, w: Any) -> Any:
    return jnp.where(x > 0.5, jnp.sin(x) * w, x * w * w)


X = np.linspace(0.1, 1.0, 12).reshape(3, 4)
W = np.linspace(1.0, 2.0, 4)


def _loss(f: Function) -> Function:
    return lambda x, w: (f(x, w) ** 2).sum()


def _three_times(f: Function) -> Function:
    def run(x: Any, w: Any) -> Any:
        return jax.lax.scan(lambda c, _: (f(c, w), c.sum()), x, None, length=3)

    return run


PROGRAMS: dict[str, Callable[[Function, Any, Any], Any]] = {
    "jit": lambda f, x, w: jax.jit(f)(x, w),
    "grad": lambda f, x, w: jax.grad(_loss(f), (0, 1))(x, w),
    "jit of grad": lambda f, x, w: jax.jit(jax.grad(_loss(f), (0, 1)))(x, w),
    "grad of jit": lambda f, x, w: jax.grad(jax.jit(_loss(f)), (0, 1))(x, w),
    "jvp": lambda f, x, w: jax.jvp(f, (x, w), (w + x, w)),
    "jvp of one": lambda f, x, w: jax.jvp(lambda x: f(x, w), (x,), (x,)),
    "vjp of part": lambda f, x, w: jax.grad(lambda x: f(x, w)[0, 1])(x),
    "hessian": lambda f, x, w: jax.hessian(_loss(f), (0, 1))(x, w),
    "forward twice": lambda f, x, w: jax.jacfwd(jax.jacfwd(_loss(f), (0, 1)), (0, 1))(x, w),
    "reverse twice": lambda f, x, w: jax.jacrev(jax.jacrev(_loss(f), (0, 1)), (0, 1))(x, w),
    "reverse over forward": lambda f, x, w: jax.jacrev(jax.jacfwd(_loss(f), 1), (0, 1))(x, w),
    "third": lambda f, x, w: jax.jacfwd(jax.jacrev(jax.jacrev(lambda w: f(x, w).sum())))(w),
    "jacobian of vjp by its cotangent": lambda f, x, w: jax.jacfwd(
        lambda c: jax.vjp(f, x, w)[1](c)
    )(0 * x),
    "gradient of vjp by its cotangent": lambda f, x, w: jax.grad(
        lambda c: sum((g**2).sum() for g in jax.vjp(f, x, w)[1](c))
    )(x),
    "vmap": lambda f, x, w: jax.vmap(f, (0, None))(x, w),
    "vmap of ranks that differ": lambda f, x, w: jax.vmap(f)(x, w[:3]),
    "vmap of another axis": lambda f, x, w: jax.vmap(f, (1, None), 1)(x, w[:3]),
    "vmap of vmap": lambda f, x, w: jax.vmap(jax.vmap(f, (0, 0)), (0, None))(x, w),
    "vmap of grad": lambda f, x, w: jax.vmap(jax.grad(_loss(f), (0, 1)), (0, None))(x, w),
    "grad of vmap": lambda f, x, w: jax.grad(_loss(jax.vmap(f, (0, None))), (0, 1))(x, w),
    "vmap with psum": lambda f, x, w: jax.vmap(lambda x: jax.lax.psum(f(x, w), "i"), axis_name="i")(
        x
    ),
    "scan": lambda f, x, w: _three_times(f)(x, w),
    "grad of scan": lambda f, x, w: jax.grad(lambda w: _three_times(f)(x, w)[0].sum())(w),
    "jit of hessian of scan": lambda f, x, w: jax.jit(
        jax.hessian(lambda w: _three_times(f)(x, w)[0].sum())
    )(w),
    "vmap of scan": lambda f, x, w: jax.vmap(_three_times(f), (None, 0))(x, jnp.stack([w, 2 * w])),
    "fori_loop forward": lambda f, x, w: jax.jvp(
        lambda x: jax.lax.fori_loop(0, 3, lambda i, c: f(c, w), x), (x,), (x,)
    ),
    "cond": lambda f, x, w: jax.grad(
        lambda x: jax.lax.cond(x[0, 0] > 0, lambda a: f(a, w), lambda a: a, x).sum()
    )(x),
    "vmap of cond": lambda f, x, w: jax.vmap(
        lambda p, a: jax.lax.cond(p > 0.2, lambda a: f(a, 2.0), lambda a: a, a)
    )(x[:, 0], x),
    "checkpoint": lambda f, x, w: jax.grad(jax.checkpoint(_loss(f)), (0, 1))(x, w),
    "checkpoint with a policy": lambda f, x, w: jax.jit(
        jax.grad(jax.checkpoint(_loss(f), policy=jax.checkpoint_policies.dots_saveable))
    )(x, w),
    "linearize": lambda f, x, w: jax.linearize(f, x, w)[1](x, w),
    "linear_transpose": lambda f, x, w: jax.linear_transpose(
        lambda t: jax.jvp(f, (x, w), (t, 0 * w))[1], x
    )(x),
    "integers": lambda f, x, w: jax.grad(lambda w: f(jnp.arange(4), w).sum())(w),
    "numbers": lambda f, x, w: jax.grad(lambda w: f(0.7, w).sum())(w),
    "scalars": lambda f, x, w: jax.jit(jax.value_and_grad(f))(x[0, 0], w[0]),
    "donated": lambda f, x, w: jax.jit(f, donate_argnums=0)(x + 0.0, w),
    "eval_shape": lambda f, x, w: jnp.zeros(jax.eval_shape(f, x, w).shape),
    "custom_jvp around": lambda f, x, w: jax.grad(lambda w: _custom(f)(x, w).sum())(w),
    "nothing": lambda f, x, w: jax.jit(jax.grad(_loss(f), (0, 1)))(x[:0], w),
    "no-op cotangent": lambda f, x, w: jax.grad(lambda w: 0.0 * f(x, w).sum())(w),
}


ONE_BY_ONE = (
    "grad",
    "jvp",
    "vmap",
    "vmap of grad",
    "reverse twice",
    "scan",
    "donated",
    "eval_shape",
)
"""Programs that are not compiled as a whole."""


def _custom(f: Function) -> Function:
    g = jax.custom_jvp(f)
    g.defjvp(lambda primals, tangents: jax.jvp(f, primals, tangents))
    return g


def _agree(found: Any, expected: Any, rtol: float) -> None:
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms(name: str) -> None:
    x, w = jnp.asarray(X), jnp.asarray(W)
    found, expected = (partial(PROGRAMS[name], f) for f in (gated, gated_by_jax))
    if name not in ONE_BY_ONE:  # compiling each operation takes long
        found, expected = jax.jit(found), jax.jit(expected)
    _agree(found(x, w), expected(x, w), 1e-12)


@pytest.mark.parametrize(
    "name",
    ["jit of grad", "hessian", "jvp", "vmap of grad", "grad of scan", "numbers", "vmap of cond"],
)
def test_transforms_in_float32(name: str) -> None:
    with jax.enable_x64(False):
        x, w = jnp.asarray(X, "float32"), jnp.asarray(W, "float32")
        found, expected = (jax.jit(partial(PROGRAMS[name], f))(x, w) for f in (gated, gated_by_jax))
        _agree(found, expected, 2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_floats_of_16_bits(dtype: str) -> None:
    x, w = jnp.asarray(X, dtype), jnp.asarray(W, dtype)
    value, gradient = jax.jit(jax.value_and_grad(lambda w: gated(x, w).astype("float32").sum()))(w)
    assert gradient.dtype == dtype
    wide = [v.astype("float32") for v in (x, w)]
    expected = jax.value_and_grad(lambda w: gated_by_jax(wide[0], w).sum())(wide[1])
    np.testing.assert_allclose(value, expected[0], rtol=1e-2)
    np.testing.assert_allclose(gradient.astype("float32"), expected[1], rtol=2e-2)


@pytest.mark.parametrize("shape", [(), (1,), (7,), (2, 3, 5), (64, 100), (1000, 257)])
def test_gradients_are_summed_to_the_shapes_of_what_was_broadcast(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.random(shape))
    weights = [rng.random(shape[k:]) for k in range(len(shape) + 1)]
    weights += [rng.random((*shape[:-1], 1))] if shape else []
    for w in map(jnp.asarray, weights):
        found, expected = (jax.jit(jax.grad(_loss(f), (0, 1)))(x, w) for f in (gated, gated_by_jax))
        _agree(found, expected, 1e-11)


def test_values_have_the_bits_of_a_call_outside_of_jit() -> None:
    x, w = jnp.asarray(np.random.default_rng(1).random((300, 70))), jnp.asarray(np.ones(70))
    assert (jax.jit(gated)(x, w) == gated(x, w)).all()


def test_axes_in_other_orders() -> None:
    x, w = jnp.asarray(np.random.default_rng(2).random((5, 6, 7))), jnp.asarray(np.ones((6, 1)))
    for program in (PROGRAMS["jit of grad"], PROGRAMS["jit"]):
        _agree(program(gated, x, w), program(gated_by_jax, x, w), 1e-12)
        swapped = jnp.swapaxes(x, 1, 2)
        _agree(program(gated, swapped, w[:, 0]), program(gated_by_jax, swapped, w[:, 0]), 1e-12)


def test_zero_cotangents_of_infinite_partials() -> None:
    root = mixad.broadcast(lambda x: x**0.5)
    x = jnp.asarray([0.0, 4.0])
    gradient = jax.grad(lambda x: (root(x) * jnp.asarray([0.0, 1.0])).sum())(x)
    assert gradient.tolist() == [0.0, 0.25]


# -- kernels of all kinds --------------------------------------------------------------------------


@mixad.broadcast
def twice(x, y):
    return x * y, tanh(x) - y, x > y


def test_several_outputs_some_of_them_no_floats() -> None:
    def theirs(x: Any, y: Any) -> Any:
        return x * y, jnp.tanh(x) - y, x > y

    x, y = jnp.asarray(X), jnp.asarray(W)
    _agree(jax.jit(twice)(x, y), jax.jit(theirs)(x, y), 1e-12)
    for f in (lambda g: g[0].sum(), lambda g: (g[0] * g[1]).sum(), lambda g: g[1][0, 0]):
        found, expected = (
            jax.jit(jax.hessian(lambda x, y, f=f, k=k: f(k(x, y)), (0, 1)))(x, y)
            for k in (twice, theirs)
        )
        _agree(found, expected, 1e-11)


@mixad.broadcast
def newton(a, start):
    x = start
    for _ in range(40):
        step = 0.5 * (x - a / x)
        x = x - step
        if abs(step) < 1e-14:
            break
    return x


def test_loops() -> None:
    a = jnp.asarray([2.0, 9.0, 30.0])
    found = jax.jit(jax.vmap(jax.value_and_grad(newton)))(a, jnp.ones(3))[1]
    np.testing.assert_allclose(found, 0.5 / np.sqrt(a), rtol=1e-10)
    curved = jax.vmap(jax.grad(jax.grad(newton)))(a, jnp.ones(3))
    np.testing.assert_allclose(curved, -0.25 * np.asarray(a) ** -1.5, rtol=1e-8)


def test_results_that_are_decided_by_comparisons_alone_warn() -> None:
    @mixad.broadcast
    def root(c):
        low, high = 0.0, 4.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            if middle * middle < c:
                low = middle
            else:
                high = middle
        return low

    with pytest.warns(ZeroDerivativeWarning, match="root"):
        assert jax.grad(root)(9.0) == 0.0


@pytest.mark.parametrize("is_double", [False, True])
def test_numbers_are_read_as_programs_take_them(is_double: bool) -> None:
    """Python's are of 64 bits, which JAX makes 32 of unless it is told otherwise."""
    with jax.enable_x64(is_double):
        x = jnp.asarray([0.25, 0.75], "float32")
        for number in (2.5, 2, True, np.float32(2.5), np.float64(2.5), np.int64(2)):
            if is_double or not isinstance(number, np.generic):
                found = jax.jit(lambda x, n=number: gated(x, n))(x)
                assert (found == gated(x, number)).all()
                assert found.dtype == gated(x, number).dtype


def test_calls_that_are_made_one_by_one() -> None:
    with jax.disable_jit():
        assert jax.jit(jax.grad(lambda x: gated(x, 2.0)))(0.25) == 4.0


def test_methods_and_constants() -> None:
    class Scale:
        weight = 3.0

        @mixad.broadcast
        def __call__(self, x):
            return x * self.weight

    assert jax.jit(jax.grad(Scale()))(2.0) == 3.0
    one = mixad.broadcast(lambda x: 1.0)
    assert jax.jit(jax.value_and_grad(one))(2.0) == (1.0, 0.0)


def test_tables_from_outside() -> None:
    places = jnp.asarray([0, 2, 1, 2])

    def loss(table: Any) -> Any:
        return mixad.broadcast(lambda i: table[i] * table[i])(places).sum()

    assert jax.jit(jax.grad(loss))(jnp.asarray([1.0, 2.0, 3.0])).tolist() == [2.0, 4.0, 12.0]


def test_tangents_of_integers() -> None:
    i, w = jnp.arange(3), jnp.asarray(2.0)
    nothing = np.zeros(3, jax.dtypes.float0)
    assert jax.jvp(gated, (i, w), (nothing, w))[1].shape == (3,)


@mixad.broadcast
def interpolated(t, table: mixad.Array):
    i = int(t)
    return table[i] * (1.0 - (t - i)) + table[i + 1] * (t - i)


def interpolated_by_jax(t: Any, table: Any) -> Any:
    i = t.astype(int)
    return table[i] * (1.0 - (t - i)) + table[i + 1] * (t - i)


GATHERS: dict[str, Callable[[Function, Any, Any], Any]] = {
    "jit": lambda f, t, table: jax.jit(f)(t, table),
    "jvp": lambda f, t, table: jax.jvp(f, (t, table), (t, table**2)),
    "grad": lambda f, t, table: jax.jit(jax.grad(_loss(f), (0, 1)))(t, table),
    "hessian": lambda f, t, table: jax.hessian(_loss(f), (0, 1))(t, table),
    "reverse twice": lambda f, t, table: jax.jacrev(jax.jacrev(_loss(f), (0, 1)), (0, 1))(t, table),
    "vmap of places": lambda f, t, table: jax.vmap(f, (0, None))(t.reshape(2, 3), table),
    "vmap of tables": lambda f, t, table: jax.vmap(f, (None, 0))(t, jnp.stack([table, table**2])),
    "vmap of both, reverse twice": lambda f, t, table: jax.vmap(
        jax.jacrev(jax.grad(_loss(f), 1), 1)
    )(t.reshape(2, 3), jnp.stack([table, table**2])),
    "vmap of both, grad": lambda f, t, table: jax.vmap(jax.grad(_loss(f), (0, 1)))(
        t.reshape(2, 3), jnp.stack([table, table**2])
    ),
}


@pytest.mark.parametrize("name", GATHERS)
def test_arrays_that_are_read_by_index(name: str) -> None:
    t = jnp.asarray([0.25, 0.75, 3.5, 1.25, 0.5, 2.75])
    table = jnp.asarray([1.0, 3.0, 2.0, 5.0, 4.0])
    found, expected = (
        jax.jit(partial(GATHERS[name], f))(t, table) for f in (interpolated, interpolated_by_jax)
    )
    _agree(found, expected, 1e-12)


def test_an_index_outside_is_an_error_of_the_program() -> None:
    t, table = jnp.asarray([0.5, 7.0]), jnp.arange(4.0)
    with pytest.raises(
        Exception, match=r"interpolated: 'table' of shape \(4,\) is indexed outside"
    ):
        jax.block_until_ready(jax.jit(interpolated)(t, table))
    with pytest.raises(Exception, match=r"'table' of shape \(0,\) is indexed outside"):
        jax.block_until_ready(jax.jit(interpolated)(t, table[:0]))


def test_forward_mode_where_there_is_no_gradient() -> None:
    @mixad.broadcast
    def product(n, table: mixad.Array):
        p, i = 1.0, 0
        while i < n:
            p = p * table[i]
            i = i + 1
        return p

    n, table = jnp.asarray([1, 2, 3]), jnp.asarray([2.0, 3.0, 4.0])
    found = jax.jvp(lambda t: product(n, t), (table,), (table,))[1]
    assert found.tolist() == [2.0, 12.0, 72.0]
    with pytest.raises(KernelGradientError, match="gradient of the array 'table' is not available"):
        jax.grad(lambda t: product(n, t).sum())(table)


def test_complex_numbers() -> None:
    squared = mixad.broadcast(lambda z, w: z * z * w)
    z, w = jnp.asarray([1 + 2j, 0.5 - 1j]), jnp.asarray([2.0, 3.0])
    found, expected = (
        jax.jit(jax.value_and_grad(lambda z, w, f=f: jnp.abs(f(z, w)).sum(), (0, 1)))(z, w)
        for f in (squared, lambda z, w: z * z * w)
    )
    _agree(found, expected, 1e-12)


class State(NamedTuple):
    x: Any
    v: Any


def test_structures() -> None:
    @mixad.broadcast
    def step(state, dt):
        return State(state.x + dt * state.v, state.v - dt * state.x)

    def run(dt: Any) -> Any:
        state = State(jnp.ones(3), jnp.zeros(3))
        end, _ = jax.lax.scan(lambda s, _: (step(s, dt), None), state, None, length=5)
        return end.x.sum()

    def theirs(dt: Any) -> Any:
        state = (jnp.ones(3), jnp.zeros(3))
        for _ in range(5):
            state = (state[0] + dt * state[1], state[1] - dt * state[0])
        return state[0].sum()

    np.testing.assert_allclose(jax.grad(run)(0.1), jax.grad(theirs)(0.1), rtol=1e-12)


def test_values_from_outside_are_differentiated() -> None:
    def loss(w: Any) -> Any:
        return mixad.broadcast(lambda x: x * w + 1.0)(jnp.asarray([1.0, 2.0])).sum()

    assert jax.grad(loss)(3.0) == 3.0


def test_more_inputs_than_one_pass_holds() -> None:
    @mixad.broadcast(signature="(12)->()")
    def product(x):
        p = 1.0
        for i in range(12):
            p = p * (x[i] + 1.0)
        return p

    x = jnp.asarray(np.random.default_rng(3).random((4, 12)))

    def theirs(x: Any) -> Any:
        return jnp.prod(x + 1.0, axis=-1)

    for derivative in (jax.grad, jax.hessian):
        found, expected = (
            jax.jit(derivative(lambda x, f=f: f(x).sum()))(x) for f in (product, theirs)
        )
        _agree(found, expected, 1e-11)


def test_large_results_that_are_written_past_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(registry.capability("cpu"), cache_bytes=1)
    monkeypatch.setattr(registry, "capability", {"cpu": small}.__getitem__)
    x = jnp.asarray(np.random.default_rng(4).random((200, 333)))
    w = jnp.asarray(np.ones(333))
    found, expected = (
        jax.jit(jax.value_and_grad(_loss(f), (0, 1)))(x, w) for f in (gated, gated_by_jax)
    )
    _agree(found, expected, 1e-11)


# -- what is refused -------------------------------------------------------------------------------


def test_refusals() -> None:
    x, w = jnp.asarray(X), jnp.asarray(W)
    with pytest.raises(KernelTypeError, match=r"'w' is an array of numpy[\s\S]*jax.numpy.asarray"):
        jax.jit(lambda x: gated(x, W))(x)
    with pytest.raises(
        KernelTypeError, match="'w' is 1180591620717411303424, which int64 does not"
    ):
        jax.jit(lambda x: gated(x, 2**70))(x)
    with pytest.raises(KernelShapeError, match="do not broadcast"):
        jax.jit(gated)(x, w[:3])
    n = jax.export.symbolic_shape("n")
    with pytest.raises(TracerError, match="symbolic"):
        jax.export.export(jax.jit(gated))(jax.ShapeDtypeStruct(n, x.dtype), x[0, 0])
    with pytest.raises(TracerError, match="backend 'reference' computes nothing in programs"):
        jax.jit(gated.with_options(backend="reference"))(x, w)
    with pytest.raises(TracerError, match="not known to be"):
        jax.linear_transpose(lambda x: gated(x, w), x)(x)
    from jax.experimental.jet import jet

    with pytest.raises(TracerError, match=r"nest jax\.jvp"):
        jet(lambda x: gated(x, w), (x,), ((x,),))


def test_transforms_of_mixad_refuse_what_jax_follows() -> None:
    x = jnp.asarray(X)
    with pytest.raises(TracerError, match="transforms of jax"):
        jax.jit(lambda x: mixad.grad(lambda x: gated(x, 2.0).sum())(x))(x)
    with pytest.raises(TracerError, match="transforms of jax"):
        jax.jit(lambda w: mixad.grad(lambda x: gated(x, w).sum())(x))(2.0)
    with pytest.raises(TracerError, match="transforms of jax"):
        jax.jit(lambda w: gated.duals(x, w).primal)(2.0)


def test_a_linear_kernel_is_transposed() -> None:
    scaled = mixad.broadcast(lambda x, w: 3.0 * x * w)
    x, w = jnp.asarray(X), jnp.asarray(W)
    (found,) = jax.linear_transpose(lambda x: scaled(x, w), x)(x)
    np.testing.assert_allclose(found, 3.0 * X * W, rtol=1e-15)


def test_rules_of_the_users_own_refuse_what_jax_follows() -> None:
    x = jnp.asarray(X)
    ruled = mixad.custom_vjp(lambda x: x * 1.0)
    ruled.defvjp(lambda x: (x, None), lambda _, g: (7.0 * g,))
    along = mixad.custom_jvp(lambda x: x * 1.0)
    along.defjvp(lambda primals, tangents: (primals[0], 7.0 * tangents[0]))
    for f in (ruled, along, mixad.stop_gradient):
        with pytest.raises(TracerError, match="transforms of jax"):
            jax.grad(lambda x, f=f: f(x).sum())(x)


def test_functions_of_mixad_refuse_what_jax_follows() -> None:
    def refused(f: Function) -> None:
        with pytest.raises(TracerError, match="transforms of jax"):
            jax.jit(jax.grad(lambda x: f(x).sum()))(jnp.asarray([0.3, 0.5, 2.0]))

    def times(a: Any, b: Any) -> Any:
        return a * b

    refused(lambda x: mixad.reduce(times, x))
    refused(lambda x: mixad.associative_scan(times, x))
    refused(lambda x: mixad.scan(lambda c, y: (c + y, c), jnp.zeros(()), x)[0])
    refused(lambda x: mixad.namespace_of(jnp).exp(x))
    refused(lambda x: mixad.jvp(lambda x: x, (x,), (x,))[1])
    refused(lambda x: mixad.grad(lambda y: (y * x).sum())(jnp.ones(3)))
    refused(lambda x: gated.jacobian(x, 2.0))
    refused(lambda x: gated.explain(x, 2.0))
