"""What memory holds, and where: floats of 16 bits, and parts of larger arrays."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from cuda_emulator import emulated

import mixad
from mixad.backends.arrays import layout_of
from mixad.backends.execute import Kernel
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.narrow import from_memory, to_memory
from mixad.scalar.types import BF16, F16, F32, U16

pytestmark = pytest.mark.slow  # every kernel is compiled by g++

BACKEND = emulated()
PATTERNS = np.arange(1 << 16, dtype="u2")


def run(program, arguments, *requests):
    """Return outputs of a program; by default its first one, stored."""
    shape = np.broadcast_shapes(*(a.shape for a in arguments))
    launch = plan(
        (program,), requests or [OutputRequest(0, 0)], list(map(layout_of, arguments)), shape,
        1 << 40,
    )  # fmt: skip
    return BACKEND.launch(BACKEND.bind(BACKEND.compile(launch.spec), launch), arguments)


# -- floats of 16 bits -----------------------------------------------------------------------------


@pytest.mark.parametrize("type", [F16, BF16], ids=str)
def test_every_number_of_16_bits_is_read_as_it_is(type):
    b = Builder("read")
    held = b.op("bitcast", b.param("bits", U16), type=type)
    (got,) = run(b.finish([b.convert(held, F32)]), [PATTERNS])
    np.testing.assert_array_equal(got, from_memory(PATTERNS.view(type.dtype), type))


@pytest.mark.parametrize("type", [F16, BF16], ids=str)
def test_float32_is_rounded_to_nearest_and_even(type):
    exact = from_memory(PATTERNS.view(type.dtype), type)
    with np.errstate(all="ignore"):
        halfway = ((exact[:-1].astype("f8") + exact[1:]) / 2).astype("f4")
        beside = [np.nextafter(halfway, np.float32(s)) for s in (np.inf, -np.inf)]
    random = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype="u4").view("f4")
    special = np.asarray([65504, 65519.99, 65520, 3.4e38, 1e-45, np.inf, -np.inf, np.nan], "f4")
    x = np.concatenate([exact, halfway, *beside, random, special])
    b = Builder("written")
    held = b.round_to_storage(b.convert(b.param("x", F32), type))
    (got,) = run(b.finish([b.convert(held, F32)]), [x])
    np.testing.assert_array_equal(got, from_memory(to_memory(x, type), type))


@pytest.mark.parametrize("columns", [64, 67])  # packs of four, and one by one
def test_float16_is_loaded_stored_indexed_and_summed_once_rounded(columns):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(0.5, 2, s).astype("f2") for s in ((50, columns), (columns,)))
    table = rng.uniform(0.5, 2, 20).astype("f2")
    k = rng.integers(0, 20, columns)

    def looked_up(x, y, k):
        return x * y + table[k]

    kernel = mixad.broadcast(looked_up)
    on_device = kernel.with_options(backend="emulated")
    np.testing.assert_array_equal(on_device(x, y, k), kernel(x, y, k))
    wanted = (x.astype("f4") * y + table[k]).astype("f2")
    np.testing.assert_array_equal(on_device(x, y, k), wanted)
    got = mixad.grad(lambda y: on_device(x, y, k).sum())(y)
    assert got.dtype == "f2"
    np.testing.assert_array_equal(got, x.astype("f8").sum(axis=0).astype("f2"))


def test_a_uniform_of_16_bits_is_rounded():
    kernel = mixad.broadcast(lambda x, y: x * y, backend="emulated")
    x = np.arange(8, dtype="f2")
    np.testing.assert_array_equal(kernel(x, 0.1), x * np.float16(0.1))


# -- parts of larger arrays ------------------------------------------------------------------------

PARTS = [
    ((40,), (42,), (1,)),
    ((64,), (80,), (16,)),  # aligned: in packs
    ((64,), (80,), (2,)),
    ((5, 64), (7, 128), (1, 32)),
    ((5, 64), (7, 127), (1, 32)),
    ((3, 4, 33), (3, 6, 40), (0, 1, 7)),
    ((3, 0), (5, 2), (1, 1)),
]


@pytest.mark.rows("type", [F16, F32], ids=str)
@pytest.mark.rows(("shape", "whole", "starts"), PARTS)
def test_a_part_is_written_beside_other_results_and_the_rest_is_zero(shape, whole, starts, type):
    b = Builder("sum_and_product")
    x, y = b.param("x", type), b.param("y", type)
    program = b.finish([b.op("add", x, y), b.op("mul", x, y)])
    rng = np.random.default_rng(0)
    for order, is_broadcast in itertools.product("CF", (False, True)):
        x, y = (rng.integers(-9, 9, shape).astype(type.dtype, order=order) for _ in range(2))
        y = y[..., :1] if is_broadcast else y
        part = SubBox(whole, starts)
        requests = (OutputRequest(0, 0, part=part), OutputRequest(0, 1), OutputRequest(0, 1, ()))
        placed, product, total = Kernel((program,), requests)((x, y), "emulated")
        wanted = np.zeros(whole, type.dtype)
        wanted[tuple(slice(s, s + n) for s, n in zip(starts, shape, strict=True))] = x + y
        np.testing.assert_array_equal(placed, wanted)
        np.testing.assert_array_equal(product, x * y)
        assert total == (x * y).astype("f8").sum()


def test_gradient_of_a_slice_is_written_in_place():
    x = np.random.default_rng(0).random((6, 40))
    square = mixad.broadcast(lambda x: x * x * x, backend="emulated")
    got = mixad.grad(lambda x: square(x[1:4, 8:]).sum())(x)
    wanted = np.zeros_like(x)
    wanted[1:4, 8:] = 3 * x[1:4, 8:] ** 2
    np.testing.assert_allclose(got, wanted, rtol=1e-14)
