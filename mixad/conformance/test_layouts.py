"""Shapes and strides: broadcasting, views, sums to smaller shapes, no elements at all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mixad.conformance.subject import Subject
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.ir import Program
from mixad.scalar.types import F16, F32, F64, I32, ScalarType

FLOATS = (F32, F64)

PATTERNS = [
    ((7,), (7,), [(1,), ()]),
    ((2500,), (1,), [(1,), None]),
    ((), (), [()]),
    ((), (5,), [(), (1,)]),
    ((6, 33), (33,), [(33,), (6, 1), (1, 33)]),
    ((33, 6), (33, 1), [(1, 6), (33, 1), ()]),
    ((257, 5), (1, 5), [(1, 5), (257, 1)]),
    ((3, 1, 70), (1, 40, 1), [(3, 1, 70), (1, 40, 1), (40, 70), (1, 1, 70), (3, 40, 1)]),
    ((2, 3, 4, 5), (3, 1, 5), [(3, 1, 5), (2, 1, 4, 1), (2, 3, 4, 1), (5,)]),
    ((1, 1), (1, 1), [(1, 1), (1,)]),
    ((1, 9, 1), (4, 1, 1), [(4, 1, 1), (9, 1)]),
    ((0,), (1,), [(1,), ()]),
    ((0, 3), (3,), [(3,), (1, 3), (1, 1)]),
    ((4, 0), (4, 1), [(4, 1), ()]),
]
"""Shapes of x and y, and shapes that the product is summed to."""


def product(type: ScalarType) -> Program:
    """Return the program x · y."""
    b = Builder("product")
    return b.finish([b.op("mul", b.param("x", type), b.param("y", type))])


def whole(shape: tuple[int, ...], type: ScalarType, seed: int) -> Any:
    """Return small whole numbers: sums of their products are exact in any order."""
    rng = np.random.default_rng(seed)
    return rng.integers(-8, 9, shape).astype(type.dtype)


def sum_to_shape(values: Any, shape: tuple[int, ...] | None) -> Any:
    """Return values summed to a shape that broadcasts to theirs."""
    if shape is None:
        return values
    padded = (1,) * (values.ndim - len(shape)) + shape
    pairs = enumerate(zip(values.shape, padded, strict=True))
    axes = tuple(axis for axis, (n, m) in pairs if n != m)
    return values.sum(axis=axes, keepdims=True, dtype=values.dtype).reshape(shape)


@pytest.mark.parametrize("type", FLOATS, ids=str)
@pytest.mark.parametrize(("x_shape", "y_shape", "results"), PATTERNS, ids=str)
def test_results_are_broadcast_and_summed(
    subject: Subject,
    x_shape: tuple[int, ...],
    y_shape: tuple[int, ...],
    results: list[tuple[int, ...] | None],
    type: ScalarType,
) -> None:
    """Stored and summed results of one kernel, of all these shapes, are NumPy's."""
    subject.need(type)
    x, y = whole(x_shape, type, 0), whole(y_shape, type, 1)
    kept = x.copy(), y.copy()
    wanted = [None, *results]
    outputs = subject.run(product(type), [x, y], [OutputRequest(0, 0, s) for s in wanted])
    for output, shape in zip(outputs, wanted, strict=True):
        subject.same(output, sum_to_shape(np.asarray(x * y), shape))
    np.testing.assert_array_equal(x, kept[0])
    np.testing.assert_array_equal(y, kept[1])


VIEWS = {
    "every other": lambda a: a[::2, ::3],
    "transposed": lambda a: a.T,
    "a box": lambda a: a[1:-1, 2:-3],
    "rows reversed": lambda a: a[::-1, :],
    "columns reversed": lambda a: a[:, ::-1],
    "both reversed by two": lambda a: a[::-2, ::-2],
    "one column": lambda a: a[:, 4:5],
    "no rows": lambda a: a[3:3, :],
}


@pytest.mark.parametrize("type", [F32, F64, I32], ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_arguments_are_read_by_their_strides(subject: Subject, name: str, type: ScalarType) -> None:
    """A view of the library's array is read in place, beside one in C order."""
    subject.need(type)
    base = whole((11, 14), type, 2)
    wanted = VIEWS[name](base)
    try:
        view = VIEWS[name](subject.arrays.to_library(base))
    except (ValueError, IndexError, TypeError) as error:
        pytest.skip(f"{subject.arrays.name} have no such views: {error}")
    y = whole(wanted.shape, type, 3)
    shapes = (None, (1, wanted.shape[1])) if type.is_float else (None,)
    outputs = subject.run(product(type), [view, y], [OutputRequest(0, 0, s) for s in shapes])
    for output, shape in zip(outputs, shapes, strict=True):
        subject.same(output, sum_to_shape(wanted * y, shape))


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_long_sums_keep_their_digits(subject: Subject, type: ScalarType) -> None:
    """The error grows by far less than the number of terms, along either axis."""
    subject.need(type)
    x = np.random.default_rng(4).random((300, 1001)).astype(type.dtype)
    one = np.ones((), type.dtype)
    shapes: list[tuple[int, ...]] = [(), (300, 1), (1, 1001)]
    outputs = subject.run(product(type), [x, one], [OutputRequest(0, 0, s) for s in shapes])
    for output, shape in zip(outputs, shapes, strict=True):
        exact = sum_to_shape(x.astype(np.longdouble), shape)
        assert np.max(np.abs(output - exact) / exact) < 40 * np.finfo(type.dtype).eps
        subject.counts["results"] += output.size


def test_sixteen_bits_are_summed_in_more(subject: Subject) -> None:
    """In float16 itself, a sum of ones would stay at 2048."""
    subject.need(F16)
    ones = np.ones((5000,), F16.dtype)
    (total,) = subject.run(product(F16), [ones, ones], [OutputRequest(0, 0, ())])
    subject.same(total, np.asarray(5000, F16.dtype))


def test_results_are_new_arrays(subject: Subject) -> None:
    """Writing to a result of a program that returns its argument changes no argument."""
    subject.need(F64)
    b = Builder("same")
    program = b.finish([b.param("x", F64)])
    x = np.arange(6.0)
    (output,) = subject.run(program, [x])
    subject.same(output, x)
    assert not np.shares_memory(output, x)


def test_parts_of_larger_arrays_are_written(subject: Subject) -> None:
    """The box has the values, the rest is zero."""
    subject.need(F64)
    if not subject.spec.capability.writes_parts:
        pytest.skip("the backend does not declare writes_parts")
    x, y = whole((3, 4), F64, 5), whole((4,), F64, 6)
    request = OutputRequest(0, 0, None, SubBox((5, 7), (1, 2)))
    wanted = np.zeros((5, 7))
    wanted[1:4, 2:6] = x * y
    (output,) = subject.run(product(F64), [x, y], [request])
    subject.same(output, wanted)


def test_results_are_stored_side_by_side(subject: Subject) -> None:
    """Each element has its results in the order that was asked for, along a last axis."""
    subject.need(F64)
    if not subject.spec.capability.stores_beside:
        pytest.skip("the backend does not declare stores_beside")
    b = Builder("both")
    u, v = b.param("x", F64), b.param("y", F64)
    program = b.finish([b.op("add", u, v), b.op("mul", u, v)])
    x, y = whole((5, 41), F64, 5), whole((41,), F64, 6)
    request = OutputRequest(0, 1, beside=((0, 0), (0, 1)))
    (output,) = subject.run(program, [x, y], [request])
    subject.same(output, np.stack([x * y, x + y, x * y], axis=-1))
