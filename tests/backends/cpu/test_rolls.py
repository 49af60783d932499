"""Kernels over arrays whose elements are moved on around, against `numpy.roll`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixad.backends.execute import Kernel
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import Program
from mixad.scalar.types import F32, F64, I16, ScalarType

EXAMPLES = 100

BOTH = (OutputRequest(0, 0), OutputRequest(0, 1))


def sum_and_product(type: ScalarType) -> Program:
    b = Builder("sum_and_product")
    x, y, k = b.param("x", type), b.param("y", type), b.param("k", type, "uniform")
    return b.finish([b.op("add", x, b.op("mul", y, k)), b.op("mul", x, y)])


def launched(kernel: Kernel, arguments: Any, shifts: Any) -> list[Any] | None:
    """Return the results of a kernel over boxes, computed twice; None if it is not launched so."""
    launch = kernel.in_boxes(arguments, shifts)
    if launch is None:
        return None
    count = len(arguments)
    reads, writes = range(count), range(count, count + len(kernel.requests))
    step = launch.launch(reads, writes, {})
    assert step is not None
    registers = [*arguments, *[None for _ in writes]]
    for _ in range(2):
        step(registers)
    return registers[count:]


@st.composite
def arrays(draw: Any) -> tuple[Any, ...]:
    """Draw two arrays, one of which may have fewer axes or another order, and shifts of both."""
    shape = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 17, 40)), min_size=1, max_size=3)))
    type = draw(st.sampled_from((F32, F64, I16)))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x, y = (rng.integers(-9, 9, shape).astype(type.dtype) for _ in range(2))
    steps = st.tuples(*[st.integers(-2 * n, 2 * n) for n in shape])
    shifts = [draw(steps), draw(st.none() | steps)]
    if shifts[1] is None:
        fewer = (y[..., :1], np.asarray(y[0]), np.asarray(y.flat[0]))
        y = draw(st.sampled_from((y, np.flip(y), np.asfortranarray(y), *fewer)))
    return type, x, y, shifts


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(arrays())
def test_results_are_those_of_arrays_that_are_moved_before(drawn: tuple[Any, ...]) -> None:
    type, x, y, shifts = drawn
    found = launched(Kernel((sum_and_product(type),), BOTH), [x, y, 3], [*shifts, None])
    axes = tuple(range(x.ndim))
    x, y = (a if s is None else np.roll(a, s, axes) for a, s in zip((x, y), shifts, strict=True))
    if found is not None:
        np.testing.assert_array_equal(found[0], x + 3 * y)
        np.testing.assert_array_equal(found[1], x * y)


@pytest.mark.parametrize(
    ("shape", "shift", "boxes"),
    [
        ((40,), (3,), 2),
        ((20, 30), (1, 0), 2),
        ((20, 30), (0, -1), 2),
        ((20, 30), (1, -1), 4),
        ((4, 20, 30), (0, 1, 0), 2),
        ((20, 30), (20, 60), 1),
    ],
)
def test_there_are_as_few_boxes_as_can_be(shape: Any, shift: Any, boxes: int) -> None:
    kernel = Kernel((sum_and_product(F64),), BOTH)
    x = np.random.default_rng(0).normal(size=shape)
    launch: Any = kernel.in_boxes([x, x, 2.0], [shift, None, None])
    assert len(launch.boxes) == boxes
    moved = np.roll(x, shift, tuple(range(x.ndim)))
    found = launched(kernel, [x, x, 2.0], [shift, None, None])
    assert found is not None
    np.testing.assert_array_equal(found[1], moved * x)


def test_many_boxes_and_sums_are_not_launched() -> None:
    x = np.ones((40, 40))
    shifts = [(k, k) for k in range(1, 9)]
    b = Builder("sum")
    total: Any = b.param("x0", F64)
    for k in range(1, 8):
        total = b.op("add", total, b.param(f"x{k}", F64))
    program = b.finish([total])
    assert Kernel((program,), BOTH[:1]).in_boxes([x] * 8, shifts) is None
    assert Kernel((program,), BOTH[:1]).in_boxes([x] * 8, [shifts[0]] * 8) is not None
    assert Kernel((program,), (OutputRequest(0, 0, ()),)).in_boxes([x] * 8, shifts[:1] * 8) is None


def test_large_arrays_are_computed_by_all_threads() -> None:
    x = np.random.default_rng(0).normal(size=(400, 500))
    kernel = Kernel((sum_and_product(F64),), BOTH)
    found = launched(kernel, [x, x, 2.0], [(1, -1), (-1, 0), None])
    assert found is not None
    up, down = np.roll(x, (1, -1), (0, 1)), np.roll(x, -1, 0)
    np.testing.assert_array_equal(found[0], up + 2.0 * down)
