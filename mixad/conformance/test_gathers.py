"""Arrays that programs index or add to: negative and unsigned indices, strides, indices outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mixad.conformance.subject import Subject
from mixad.errors import KernelIndexError
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, Atom, Program, UpdateKind
from mixad.scalar.types import F64, I32, I64, U8, U64, ScalarType
from mixad.scalar.updates import OPS, neutral

TABLE = np.arange(24.0).reshape(4, 6)


def lookup_program(type: ScalarType) -> Program:
    """Return the program table[i, j]."""
    b = Builder("looked_up")
    table = b.array_param("table", ArrayType(F64, 2))
    return b.finish([b.load(table, b.param("i", type), b.param("j", type))])


def guarded_lookup_program() -> Program:
    """Return the program table[i, 0] where i < 4, else -1."""
    b = Builder("guarded")
    table, i = b.array_param("table", ArrayType(F64, 2)), b.param("i", I64)
    inside = b.op("lt", i, b.const(4, I64))
    (out,) = b.if_(
        inside,
        lambda: [b.load(table, i, b.const(0, I64))],
        lambda: [b.const(-1.0, F64)],
    )
    return b.finish([out])


@pytest.mark.parametrize("type", [I32, I64, U8, U64], ids=str)
def test_elements_are_read_where_indices_say(subject: Subject, type: ScalarType) -> None:
    """Negative ones count from the end."""
    subject.need(F64, type)
    i = np.array([0, 3, 1, 2, 3, 0, 2] * 5).astype(type.dtype)
    j = np.array([5, 0, 4, 4, 1, 0, 3] * 5).astype(type.dtype)
    if type.kind == "int":
        i, j = np.where(i > 1, i - 4, i).astype(type.dtype), -1 - j
    (output,) = subject.run(lookup_program(type), [TABLE, i, j])
    subject.same(output, TABLE[i, j])


def test_indexed_arrays_are_read_by_their_strides(subject: Subject) -> None:
    """A view of the library's array is indexed as what it shows."""
    subject.need(F64, I64)
    view = subject.arrays.to_library(TABLE)[1:, ::2]
    i, j = np.array([0, 2, -1]), np.array([2, 0, -3])
    (output,) = subject.run(lookup_program(I64), [view, i, j])
    subject.same(output, TABLE[1:, ::2][i, j])


def search_program() -> Program:
    """Return the program that looks for the first element of a row that is not below a limit."""
    b = Builder("sought")
    table, limit = b.array_param("table", ArrayType(F64, 2)), b.param("limit", F64)
    zero, one = b.const(0, I64), b.const(1, I64)
    (j,) = b.while_(
        [zero],
        lambda j: b.op("lt", b.load(table, zero, j), limit),
        lambda j: [b.op("add", j, one)],
    )
    return b.finish([b.load(table, zero, j)])


OUTSIDE = [(4, 0, I64), (0, 6, I64), (-5, 0, I64), (0, -7, I64), (0, 2**63, U64), (255, 0, U8)]


@pytest.mark.parametrize(("i", "j", "type"), OUTSIDE, ids=str)
def test_an_index_outside_is_an_error(subject: Subject, i: int, j: int, type: ScalarType) -> None:
    """Whichever element has it; the next call is right again."""
    subject.need(F64, type)
    for at in (0, 18, 36):
        rows, columns = np.zeros(37, type.dtype), np.zeros(37, type.dtype)
        rows[at], columns[at] = i, j
        with pytest.raises(KernelIndexError):
            subject.run(lookup_program(type), [TABLE, rows, columns])
    rows, columns = np.ones(37, type.dtype), np.ones(37, type.dtype)
    (output,) = subject.run(lookup_program(type), [TABLE, rows, columns])
    subject.same(output, np.full(37, TABLE[1, 1]))


def test_a_loop_that_leaves_an_array_ends_with_an_error(subject: Subject) -> None:
    """What it looks for is in no element; the others have found theirs."""
    subject.need(F64, I64)
    limits = np.linspace(0.0, 5.0, 37)
    (output,) = subject.run(search_program(), [TABLE, limits])
    subject.same(output, np.ceil(limits))
    for at in (0, 18, 36):
        beyond = limits.copy()
        beyond[at] = 5.5
        with pytest.raises(KernelIndexError):
            subject.run(search_program(), [TABLE, beyond])


def test_an_index_of_a_branch_not_taken_is_none(subject: Subject) -> None:
    """Nothing is read there, and nothing is raised."""
    subject.need(F64, I64)
    i = np.array([0, 100, 3, -(2**40), 2**40, 1] * 7)
    i[i < 0] = 2**62
    (output,) = subject.run(guarded_lookup_program(), [TABLE, i])
    subject.same(output, np.where(i < 4, TABLE[np.minimum(i, 3), 0], -1.0))


def test_an_array_without_elements_has_nothing_inside(subject: Subject) -> None:
    """Reading it is an error; not reading it is none."""
    subject.need(F64, I64)
    nothing = np.zeros((0, 6))
    with pytest.raises(KernelIndexError):
        subject.run(lookup_program(I64), [nothing, np.zeros(3, "i8"), np.zeros(3, "i8")])
    (output,) = subject.run(lookup_program(I64), [nothing, np.zeros(0, "i8"), np.zeros(0, "i8")])
    subject.same(output, np.zeros(0))


# -- sums into arrays: of backends that say that they accumulate -----------------------------------


def addition_program(type: ScalarType) -> Program:
    """Return the program sums[i, j] += w where w > 0, which returns the sums."""
    b = Builder("added")
    w, i, j = b.param("w", F64), b.param("i", type), b.param("j", type)
    sums = b.accumulator("sums", ArrayType(F64, 2))

    def run() -> list[Atom]:
        b.update(sums, i, j, value=w)
        return []

    b.if_(b.op("gt", w, b.const(0.0, F64)), run, list)
    return b.finish([sums])


@pytest.fixture
def accumulating(subject: Subject) -> Subject:
    """Return the backend; skip where it adds to no array."""
    if "add" not in subject.spec.capability.accumulates:
        pytest.skip("the backend does not accumulate")
    return subject


def sum_updates(subject: Subject, type: ScalarType, *arguments: np.ndarray[Any, Any]) -> Any:
    """Return the sums of the backend, in an array like the table."""
    request = OutputRequest(0, 0, TABLE.shape)
    return subject.run(addition_program(type), list(arguments), [request])[0]


@pytest.mark.parametrize("type", [I32, I64, U8], ids=str)
@pytest.mark.parametrize("count", [0, 1, 37, 5000])
def test_values_are_added_where_indices_say(
    accumulating: Subject, type: ScalarType, count: int
) -> None:
    """Repeated ones, and those that count from the end; the order of additions is free."""
    accumulating.need(F64, type)
    rng = np.random.default_rng(count)
    least = -1 if type.kind == "int" else 0
    i = rng.integers(least * TABLE.shape[0], TABLE.shape[0], count).astype(type.dtype)
    j = rng.integers(least * TABLE.shape[1], TABLE.shape[1], count).astype(type.dtype)
    w = rng.integers(-3, 9, count).astype(float)
    expected = np.zeros_like(TABLE)
    np.add.at(expected, (i, j), np.maximum(w, 0.0))
    accumulating.same(sum_updates(accumulating, type, w, i, j), expected)


def test_sums_are_the_same_bits_each_time(accumulating: Subject) -> None:
    """Whatever ran at the same time."""
    accumulating.need(F64, I64)
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 4, 20_000), rng.integers(0, 6, 20_000)
    w = rng.standard_normal(20_000)
    first = sum_updates(accumulating, I64, w, i, j)
    for _ in range(5):
        accumulating.same(sum_updates(accumulating, I64, w, i, j), first)


def update_program(update: UpdateKind) -> Program:
    """Return the program that updates an array by a number at an index, and returns the array."""
    b = Builder("updated")
    w, i = b.param("w", F64), b.param("i", I64)
    array = b.accumulator("array", ArrayType(F64, 1), update)
    b.update(array, i, value=w)
    return b.finish([array])


@pytest.mark.parametrize("update", OPS)
@pytest.mark.parametrize("extent", [3, 20_000])
def test_small_and_large_arrays_are_updated(
    subject: Subject, update: UpdateKind, extent: int
) -> None:
    """By sums, minima and maxima, of which none has elements everywhere."""
    if update not in subject.spec.capability.accumulates:
        pytest.skip(f"the backend does not update arrays by {update!r}")
    subject.need(F64, I64)
    rng = np.random.default_rng(extent)
    w, i = rng.integers(-9, 9, 3000).astype(float), rng.integers(1, extent, 3000)
    expected = np.full(extent, float(neutral(update, F64)))
    getattr(np, OPS[update]).at(expected, i, w)
    request = OutputRequest(0, 0, (extent,))
    subject.same(subject.run(update_program(update), [w, i], [request])[0], expected)


@pytest.mark.parametrize(("i", "j", "type"), OUTSIDE, ids=str)
def test_adding_outside_is_an_error(
    accumulating: Subject, i: int, j: int, type: ScalarType
) -> None:
    """Where the branch is taken; elsewhere nothing is added."""
    accumulating.need(F64, type)
    for at in (0, 18, 36):
        rows, columns, w = np.zeros(37, type.dtype), np.zeros(37, type.dtype), np.ones(37)
        rows[at], columns[at] = i, j
        with pytest.raises(KernelIndexError):
            sum_updates(accumulating, type, w, rows, columns)
        w[at] = -1.0
        expected = np.zeros_like(TABLE)
        expected[0, 0] = 36.0
        accumulating.same(sum_updates(accumulating, type, w, rows, columns), expected)
