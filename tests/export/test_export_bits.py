"""Exported functions compute the bits that mixad does, for extents and strides of any kind."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from c_calls import Exported
from exported_kernels import model

import mixad

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler"
)

SHAPES = [(1000, 300), (1, 1), (1, 7), (5, 1), (3, 3), (2000, 5), (700, 31), (33, 255), (40, 4096),
          (3, 20000), (0, 4), (4, 0), (5000, 16), (20000, 3)]  # fmt: skip
"""Rows that are folded and split, gangs that are not full, tiles of several rows, blocks."""


def drawn(rng, shape, dtype):
    return rng.uniform(-1, 1, shape).astype(dtype)


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


@pytest.mark.slow
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
