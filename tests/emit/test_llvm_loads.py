"""Elements that the program itself indexes are those that NumPy's indexing gives."""

import numpy as np
import pytest
from kernel_runner import run
from numpy.lib.stride_tricks import as_strided

from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import ALL_TYPES, BOOL, F64, I8, I32, I64, U8, U32, U64
from mixad.testing import special_values

INDEX_TYPES = [t for t in ALL_TYPES if t.is_integer]
COUNT = 21  # a gang and a remainder


def loading(element, rank, index=I64):
    """Return the program that reads an element at indices that are its arguments."""
    b = Builder("loading")
    array = b.array_param("table", ArrayType(element, rank))
    indices = [b.param(f"i{k}", index) for k in range(rank)]
    return b.finish([b.load(array, *indices)])


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_elements_of_every_type(type):
    table = np.resize(np.array(special_values(type), type.dtype), 9)
    at = np.arange(COUNT) % 9
    (got,) = run(loading(type, 1), [table, at])
    assert got.dtype == type.dtype
    np.testing.assert_array_equal(got, table[at])


@pytest.mark.rows("index", INDEX_TYPES, ids=str)
def test_indices_of_every_type(index):
    table = np.arange(7.0)
    at = (np.arange(COUNT) % 7).astype(index.dtype)
    (got,) = run(loading(F64, 1, index), [table, at])
    np.testing.assert_array_equal(got, table[at])


@pytest.mark.parametrize("index", [t for t in INDEX_TYPES if t.kind == "int"], ids=str)
def test_negative_indices_count_from_the_end(index):
    table = np.arange(7.0)
    at = (np.arange(COUNT) % 14 - 7).astype(index.dtype)
    (got,) = run(loading(F64, 1, index), [table, at])
    np.testing.assert_array_equal(got, table[at])


TABLES = {
    "contiguous": np.arange(12.0).reshape(3, 4),
    "Fortran order": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "transposed": np.arange(12.0).reshape(4, 3).T,
    "every other": np.arange(96.0).reshape(6, 16)[::2, ::4],
    "reversed": np.arange(12.0).reshape(3, 4)[::-1, ::-1],
    "repeated": np.broadcast_to(np.arange(4.0), (3, 4)),
    "single": np.arange(1.0).reshape(1, 1),
}


@pytest.mark.rows("table", TABLES.values(), ids=TABLES)
def test_tables_of_every_layout(table):
    at = [np.resize(np.arange(-n, n), (5, COUNT)) for n in table.shape]
    (got,) = run(loading(F64, 2), [table, *at])
    np.testing.assert_array_equal(got, table[tuple(at)])


@pytest.mark.parametrize("still", [(True, False), (False, True), (True, True)])
def test_one_index_for_the_gang_beside_one_for_each_lane(still):
    """Where both stand still, one element is read for the whole gang."""
    table, rows = TABLES["contiguous"], 3
    everywhere = np.arange(rows)[:, None], np.arange(rows * COUNT).reshape(rows, COUNT) % 4
    at = [
        i[:, :1] if s else np.broadcast_to(i, (rows, COUNT)).copy()
        for i, s in zip(everywhere, still, strict=True)
    ]
    b = Builder("beside")
    array = b.array_param("table", ArrayType(F64, 2))
    i, j, x = b.param("i", I64), b.param("j", I64), b.param("x", F64)
    program = b.finish([b.op("add", b.load(array, i, j), x)])
    (got,) = run(program, [table, *at, np.zeros((1, COUNT))])
    np.testing.assert_array_equal(got, np.broadcast_to(table[tuple(at)], (rows, COUNT)))


# -- indices outside -------------------------------------------------------------------------------

OUTSIDE = {
    "at the end": (I64, 7), "far": (I64, 2**62), "before the start": (I64, -8),
    "most negative": (I64, -(2**63)), "byte": (I8, -128), "unsigned byte": (U8, 255),
    "unsigned": (U32, 2**32 - 1), "wide unsigned": (U64, 2**64 - 1),
    "wide unsigned, beyond signed": (U64, 2**63),
}  # fmt: skip


@pytest.mark.rows("still", [False, True])
@pytest.mark.rows(("index", "wrong"), OUTSIDE.values(), ids=OUTSIDE)
def test_index_outside_is_an_index_error(index, wrong, still):
    at = np.zeros((2, COUNT), index.dtype)
    at[1, 0 if still else COUNT - 2] = wrong
    moving = at[:, :1] if still else at
    b = Builder("lookup")
    array = b.array_param("table", ArrayType(F64, 1))
    i, x = b.param("i", index), b.param("x", F64)
    program = b.finish([b.op("add", b.load(array, i), x)])
    arguments = [np.arange(7.0), moving, np.zeros((1, COUNT))]
    with pytest.raises(IndexError, match=r"lookup: 'table' of shape \(7,\) is indexed outside"):
        run(program, arguments)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)])
def test_array_without_elements_is_indexed_outside_whatever_the_index(shape):
    """And is not read where its strides lead: they may be those of an array that has elements."""
    table = as_strided(np.zeros(1, "i1"), shape, (2**40, 2**41))
    last = [np.full(COUNT, max(n - 1, 0)) for n in shape]
    with pytest.raises(IndexError):
        run(loading(I8, 2), [table, *last])


def test_error_names_the_array_that_is_indexed_outside():
    b = Builder("two")
    first, second = (b.array_param(name, ArrayType(F64, 1)) for name in ("first", "second"))
    i, j = b.param("i", I32), b.param("j", I32)
    program = b.finish([b.op("add", b.load(first, i), b.load(second, j))])
    good, bad = np.zeros(COUNT, "i4"), np.full(COUNT, 9, "i4")
    with pytest.raises(IndexError, match="'first'"):
        run(program, [np.ones(5), np.ones(6), bad, good])
    with pytest.raises(IndexError, match="'second'"):
        run(program, [np.ones(5), np.ones(6), good, bad])


def guarded(b, cond, load):
    """Load under a condition; elsewhere take -1."""
    return b.if_(cond, load, lambda: [b.const(-1.0, F64)])


@pytest.mark.parametrize("loops", [False, True])
def test_lanes_that_are_switched_off_may_point_anywhere(loops):
    b = Builder("guarded")
    array = b.array_param("table", ArrayType(F64, 1))
    i, size = b.param("i", I64), b.param("size", I64)
    inside = b.op("and", b.op("ge", i, b.const(0, I64)), b.op("lt", i, size))

    def load():
        return [b.load(array, i)]

    if loops:  # one turn for the lanes inside
        _, out = b.while_(
            [inside, b.const(-1.0, F64)],
            lambda go, _: go,
            lambda *_: [b.const(False, BOOL), *load()],
        )
        program = b.finish([out])
    else:
        program = b.finish(guarded(b, inside, load))
    table = np.arange(7.0)
    at = np.array([0, 6, 7, -1, 3, 2**62, -(2**62), *range(20)])
    expected = np.where((at >= 0) & (at < 7), table[np.clip(at, 0, 6)], -1.0)
    (got,) = run(program, [table, at, np.full(at.shape, 7)])
    np.testing.assert_array_equal(got, expected)
