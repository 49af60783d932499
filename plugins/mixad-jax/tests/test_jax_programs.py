"""Random programs in JAX's transforms: values, and derivatives by several ways that must agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mixad.errors import KernelGradientError
from mixad.kernel.options import DEFAULT_OPTIONS
from mixad.scalar.types import F64
from mixad.tape.named_call import name_call
from mixad.testing import ARRAY_EXTENT, Recipe, random_program

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

pytestmark = [
    pytest.mark.slow,  # XLA compiles every program
    pytest.mark.usefixtures("integration"),
]

SEEDS = range(24)
MOST_LEFT_OUT = 0.6

RECIPE = Recipe(types=(F64,), statements=6, depth=2, arrays=True)


def _argument(param: Any, rng: np.random.Generator) -> Any:
    """Return a random argument: lanes have several shapes, uniform params none."""
    if param.array is not None:
        shape: tuple[int, ...] = (ARRAY_EXTENT,) * param.array.rank
    else:
        shapes = [(5,), (3, 1), ()] if param.kind == "lane" else [()]
        shape = shapes[rng.integers(len(shapes))]
    type = param.var.type
    drawn = rng.uniform(0.5, 2.0, shape) if type.is_float else rng.integers(0, 2, shape)
    return np.asarray(drawn, type.dtype)


def test_random_programs(integration: Any) -> None:
    left_out = 0
    for seed in SEEDS:
        left_out += not _has_derivatives_that_agree(integration, seed)
    assert left_out <= MOST_LEFT_OUT * len(SEEDS)


def _has_derivatives_that_agree(integration: Any, seed: int) -> bool:
    """Compare what a program gives; return whether there was something to compare."""
    program, rng = random_program(seed, RECIPE), np.random.default_rng(seed)
    given = [_argument(param, rng) for param in program.params]
    plain = [
        a.item() if param.kind == "uniform" else a
        for a, param in zip(given, program.params, strict=True)
    ]
    found = jax.jit(lambda *x: integration.call(program, x, DEFAULT_OPTIONS))(*given)
    for a, b in zip(found, name_call(program, DEFAULT_OPTIONS).launch(plain), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), seed
    wrt = [k for k, param in enumerate(program.params) if param.var.type.is_float]
    floats = [k for k, output in enumerate(program.outputs) if output.type.is_float]
    if not (wrt and floats):
        return False
    cotangents = {k: jnp.asarray(rng.standard_normal(found[k].shape)) for k in floats}
    along = [jnp.asarray(rng.standard_normal(given[k].shape)) for k in wrt]

    def loss(x: Any) -> Any:
        values = [x[wrt.index(k)] if k in wrt else jnp.asarray(a) for k, a in enumerate(given)]
        outputs = integration.call(program, values, DEFAULT_OPTIONS)
        return sum((c * outputs[k]).sum() for k, c in cotangents.items())

    try:
        ways = jax.jit(lambda x: _all_ways(loss, x, along))([jnp.asarray(given[k]) for k in wrt])
    except KernelGradientError:  # of an array that a loop reads
        return False
    return _agree(seed, *ways)


def _all_ways(loss: Any, x: Any, along: Any) -> Any:
    """Return a derivative along a direction by both modes, and its gradient by three ways."""

    def slope(x: Any) -> Any:
        return jax.jvp(loss, (x,), (along,))[1]

    def dot(x: Any) -> Any:
        pairs = zip(jax.grad(loss)(x), along, strict=True)
        return sum((g * t).sum() for g, t in pairs)

    forward_over_reverse = jax.jvp(jax.grad(loss), (x,), (along,))[1]
    return slope(x), dot(x), forward_over_reverse, jax.grad(dot)(x), jax.grad(slope)(x)


def _agree(seed: int, forward: Any, reverse: Any, first: Any, *others: Any) -> bool:
    """Compare derivatives; return whether they are numbers."""
    leaves = jax.tree.leaves((forward, reverse, first, others))
    if not all(np.isfinite(leaf).all() for leaf in leaves):
        return False
    np.testing.assert_allclose(forward, reverse, rtol=1e-8, atol=1e-8, err_msg=str(seed))
    scale = max(1.0, *(float(abs(leaf).max()) for leaf in first))
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=0.0, atol=1e-7 * scale, err_msg=str(seed))
    return True
