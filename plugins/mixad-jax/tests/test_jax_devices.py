"""Kernels on arrays that lie on two devices, against the same functions of jax.numpy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError
from mixad.special import sin

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

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


X = np.linspace(0.1, 1.0, 8)
ROWS = np.stack([X, 2 * X, 0.5 * X, X + 0.1])
W = np.linspace(1.0, 2.0, 8)


def _mesh(kind: AxisType) -> jax.sharding.Mesh:
    return jax.make_mesh((2,), ("i",), axis_types=(kind,))


def _agree(found: Any, expected: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


MAPS: dict[str, Callable[[Function, Callable[..., Function]], Any]] = {
    "values": lambda f, mapped: jax.jit(mapped(f, (P("i"), P("i")), P("i")))(X, W),
    "gradient of what is the same everywhere": lambda f, mapped: jax.jit(
        jax.grad(lambda c: mapped(f, (P("i"), P()), P("i"))(X, c).sum())
    )(1.5),
    "not compiled": lambda f, mapped: jax.grad(
        lambda c: mapped(f, (P("i"), P()), P("i"))(X, c).sum()
    )(1.5),
    "second derivative": lambda f, mapped: jax.jit(
        jax.hessian(lambda c: mapped(f, (P("i"), P()), P("i"))(X, c).sum())
    )(1.5),
    "tangent": lambda f, mapped: jax.jvp(
        lambda c: mapped(f, (P("i"), P()), P("i"))(X, c), (1.5,), (1.0,)
    ),
    "gradient inside": lambda f, mapped: jax.jit(
        mapped(
            jax.grad(lambda a, b: jax.lax.psum(f(a, b).sum(), "i"), argnums=1),
            (P("i"), P()),
            P(),
        )
    )(X, 1.5),
    "vmap inside": lambda f, mapped: jax.jit(
        mapped(jax.vmap(lambda a: f(a, W.sum())), (P("i"),), P("i"))
    )(ROWS),
    "scan inside": lambda f, mapped: jax.jit(
        jax.grad(
            lambda c: mapped(
                lambda a, c: jax.lax.scan(lambda s, _: (f(s, c), None), a, None, length=3)[0],
                (P("i"), P()),
                P("i"),
            )(X, c).sum()
        )
    )(1.5),
}


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", MAPS)
def test_shard_map(name: str, check: bool) -> None:
    mesh = _mesh(AxisType.Auto)

    def mapped(f: Function, in_specs: Any, out_specs: Any) -> Function:
        return jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check)

    _agree(MAPS[name](gated, mapped), MAPS[name](gated_by_jax, mapped))


def _loss(f: Function) -> Function:
    return lambda x, w: (f(x, w) ** 2).sum()


@pytest.mark.parametrize("spec", [P("i"), P(None, "i")])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_jit_of_arrays_on_two_devices(kind: AxisType, spec: P) -> None:
    x, w = jax.device_put(ROWS, NamedSharding(_mesh(kind), spec)), jnp.asarray(W)
    for program in (
        jax.jit,
        lambda f: jax.jit(jax.grad(_loss(f), (0, 1))),
        lambda f: jax.jit(lambda x, w: jax.jvp(partial(f, x), (w,), (w,))),
        lambda f: jax.jit(jax.hessian(_loss(f), 1)),
        lambda f: jax.jit(jax.vmap(f, (0, None))),
    ):
        _agree(program(gated)(x, w), program(gated_by_jax)(ROWS, W))


def test_arrays_stay_on_their_devices() -> None:
    sharding = NamedSharding(_mesh(AxisType.Auto), P("i"))
    x, w = jax.device_put(ROWS, sharding), jnp.asarray(W)
    compiled = jax.jit(gated).lower(x, w).compile()
    assert "all-gather" not in compiled.as_text()
    assert compiled.output_shardings.is_equivalent_to(sharding, 2)
    both = jax.jit(jax.grad(_loss(gated), (0, 1))).lower(x, w).compile()
    assert "all-gather" not in both.as_text()
    assert "all-reduce" in both.as_text()  # of the gradient of what was broadcast
    assert both.output_shardings[0].is_equivalent_to(sharding, 2)


def test_calls_outside_of_jit() -> None:
    mesh = _mesh(AxisType.Auto)
    x = jax.device_put(ROWS, NamedSharding(mesh, P("i")))
    w = jax.device_put(W, NamedSharding(mesh, P()))
    found = gated(x, w)
    assert len(found.devices()) == 2
    _agree(found, gated_by_jax(ROWS, W))


def test_sums_over_axes_that_do_not_divide() -> None:
    x = jax.device_put(ROWS, NamedSharding(_mesh(AxisType.Auto), P("i")))
    for f in (gated, gated_by_jax):
        found = jax.jit(jax.grad(lambda w, f=f: _loss(f)(x[:3, :7], w)))(W[:7])
        expected = jax.grad(lambda w: _loss(gated_by_jax)(ROWS[:3, :7], w))(W[:7])
        _agree(found, expected)


def test_tables_are_gathered() -> None:
    @mixad.broadcast
    def look(i, table: mixad.Array):
        return table[i] * table[i]

    mesh = _mesh(AxisType.Auto)
    table = jax.device_put(W, NamedSharding(mesh, P("i")))
    places = jax.device_put(jnp.asarray([0, 7, 3, 3]), NamedSharding(mesh, P("i")))
    found = jax.jit(jax.grad(lambda table: look(places, table).sum()))(table)
    expected = np.zeros(8)
    np.add.at(expected, np.asarray(places), 2 * W[np.asarray(places)])
    _agree(found, expected)


def test_maps_of_some_axes_are_refused() -> None:
    mesh = jax.make_mesh((2, 1), ("i", "j"), axis_types=(AxisType.Auto,) * 2)
    some = jax.shard_map(
        gated, mesh=mesh, in_specs=(P("i"), P("i")), out_specs=P("i"), axis_names={"i"}
    )
    with pytest.raises(TracerError, match="leave axis_names out"):
        jax.jit(some)(X, W)


def test_sums_that_have_yet_to_be_taken_are_refused() -> None:
    mesh = _mesh(AxisType.Explicit)
    x = jax.device_put(X, NamedSharding(mesh, P("i")))

    def dot(x: Any) -> Any:
        part = jnp.einsum("a,a->", x, x, out_sharding=NamedSharding(mesh, P(unreduced={"i"})))
        return gated(part, 2.0)

    with pytest.raises(TracerError, match="yet to be taken"):
        jax.jit(dot)(x)


def test_arrays_that_are_split_in_two_ways_are_refused() -> None:
    mesh = jax.make_mesh((2, 1), ("i", "j"), axis_types=(AxisType.Explicit,) * 2)
    x = jax.device_put(ROWS, NamedSharding(mesh, P("i")))
    y = jax.device_put(ROWS, NamedSharding(mesh, P("j")))
    with pytest.raises(TracerError, match="reshard them alike"):
        jax.jit(gated)(x, y)
