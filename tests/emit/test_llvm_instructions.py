"""Every instruction-level op, bit for bit what `mixad.scalar.evaluate` defines, at special values.

The ops of a type go into one kernel, which is run on all combinations of special values: as lanes,
as one value for the whole gang (the emitter spells scalars there), mixed, and under a mask.
"""

import itertools
from functools import cache

import numpy as np
import pytest
from kernel_runner import WIDTHS, run

from mixad.scalar.build import Builder
from mixad.scalar.evaluate import evaluate
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64
from mixad.scalar.verify import VerificationError, result_type
from mixad.testing import same_bits, special_values

INSTRUCTIONS = [op.name for op in TABLE if op.lowering == "instruction"]
NARROWER = {
    F32: (I8, I16, I32, I64, U8, U16, U32, U64),
    F64: (I8, I16, I32, I64, U8, U16, U32, U64),
}
MOVING = 3
"""Elements along the axis on which uniform operands do not move."""


def edges(type):
    """Return special values; for floats also those around the limits of the integers."""
    values = list(special_values(type))
    if type.is_float:
        limits = [float(np.iinfo(t.dtype).max) for t in NARROWER[type]]
        limits += [float(np.iinfo(t.dtype).min) for t in NARROWER[type]]
        near = [f(x, x * s) for x in limits for s in (0.0, 2.0) for f in (np.nextafter,)]
        values += [*limits, *(v + d for v in limits for d in (-1.0, -0.5, 0.5, 1.0)), *near]
    if type.is_integer:  # shift counts at and beyond the width
        values += [type.bits - 1, type.bits, min(type.bits + 1, 127)]
    with np.errstate(over="ignore"):
        array = np.array(values, type.dtype)
    kept = {v.tobytes(): v for v in array}
    return np.array(list(kept.values()))


def calls(type, arity):
    """Return the ops that take this many arguments of a type, with the types of their results."""
    found = []
    for name in INSTRUCTIONS:
        op = BY_NAME[name]
        if op.arity != arity or name == "where":
            continue
        for stated in ALL_TYPES if op.result == "stated" else (None,):
            if stated == type:
                continue
            try:
                found.append((name, result_type(name, (type,) * arity, stated)))
            except VerificationError:
                continue
    return found


def points(type, arity):
    """Return all combinations of special values, one array for each argument."""
    values = edges(type) if arity < 3 else np.array(special_values(type), type.dtype)[::3]
    return [
        np.array(column) for column in zip(*itertools.product(values, repeat=arity), strict=True)
    ]


@cache
def expected(type, arity):
    """Return the results of all ops at all points."""
    rows = list(zip(*points(type, arity), strict=True))
    return [
        np.array([evaluate(name, row, out) for row in rows], out.dtype)
        for name, out in calls(type, arity)
    ]


def ops_of(b, type, params):
    return [b.op(name, *params, type=out) for name, out in calls(type, len(params))]


def assert_same(type, arity, results):
    for (name, out), wanted, got in zip(
        calls(type, arity), expected(type, arity), results, strict=True
    ):
        wrong = ~same_bits(wanted, got)
        if wrong.any():
            k = int(np.argmax(wrong))
            args = ", ".join(repr(p[k]) for p in points(type, arity))
            raise AssertionError(f"{name}({args}) to {out} is {got[k]!r}, not {wanted[k]!r}")


SIGNATURES = [(t, n) for t in ALL_TYPES for n in (1, 2, 3) if calls(t, n)]
each_signature = pytest.mark.parametrize(
    ("type", "arity"), SIGNATURES, ids=[f"{t}-{n}" for t, n in SIGNATURES]
)


def test_every_instruction_is_tested():
    tested = {name for type, arity in SIGNATURES for name, _ in calls(type, arity)}
    assert tested == set(INSTRUCTIONS) - {"where"}


@pytest.mark.rows("bits", WIDTHS)
@each_signature
def test_lanes(type, arity, bits):
    b = Builder("lanes")
    params = [b.param(f"x{k}", type) for k in range(arity)]
    assert_same(type, arity, run(b.finish(ops_of(b, type, params)), points(type, arity), bits))


@pytest.mark.slow
@each_signature
def test_one_value_for_the_whole_gang(type, arity):
    b = Builder("uniform")
    params = [b.param(f"x{k}", type) for k in range(arity)]
    b.param("moving", BOOL)
    program = b.finish(ops_of(b, type, params))
    columns = [p[:, None] for p in points(type, arity)]
    results = run(program, [*columns, np.ones((1, MOVING), bool)])
    for k in range(MOVING):
        assert_same(type, arity, [r[:, k] for r in results])


@pytest.mark.rows("moving", [0, 1])
@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_one_value_beside_lanes(type, moving):
    """The one value is made as wide as the gang."""
    b = Builder("mixed")
    params = [b.param(name, type) for name in ("x", "y")]
    values = edges(type)
    arguments = [values[:, None], values[None, :]]
    results = run(b.finish(ops_of(b, type, params)), arguments if moving else arguments[::-1])
    rows = [r if moving else r.T for r in results]
    assert_same(type, 2, [r.ravel() for r in rows])


@each_signature
def test_under_a_mask(type, arity):
    """A loop of one turn for some lanes and of none for the others, which keep what they had."""
    b = Builder("masked")
    params = [b.param(f"x{k}", type) for k in range(arity)]
    enters = b.param("enters", BOOL)
    zeros = [b.const(0, out) for _, out in calls(type, arity)]
    _, *outs = b.while_(
        [enters, *zeros],
        lambda enters, *_: enters,
        lambda *_: [b.const(False, BOOL), *ops_of(b, type, params)],
    )
    arguments = points(type, arity)
    enters_here = np.arange(len(arguments[0])) % 3 != 0
    results = run(b.finish(outs), [*arguments, enters_here])
    for wanted, got in zip(expected(type, arity), results, strict=True):
        np.testing.assert_array_equal(got[~enters_here], np.zeros_like(wanted)[~enters_here])
    assert_same(
        type, arity,
        [np.where(enters_here, g, w) for g, w in zip(results, expected(type, arity), strict=True)],
    )  # fmt: skip


@pytest.mark.rows("type", [t for t in ALL_TYPES if t.is_integer], ids=str)
def test_shifts_are_numpys(type):
    """Where NumPy defines them: by any count that is not negative."""
    x, count = points(type, 2)
    defined = count >= 0
    for name, numpys in (("shl", np.left_shift), ("shr", np.right_shift)):
        b = Builder(name)
        program = b.finish([b.op(name, b.param("x", type), b.param("count", type))])
        (got,) = run(program, [x, count])
        np.testing.assert_array_equal(got[defined], numpys(x, count)[defined])


@pytest.mark.rows("shapes", [((4,), (4,)), ((4, 1), (1, 4)), ((1, 4), (4, 1))])
@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_where_selects_bits(type, shapes):
    """Both arguments and the condition as lanes and as one value."""
    b = Builder("where")
    cond, x, y = b.param("cond", BOOL), b.param("x", type), b.param("y", type)
    program = b.finish([b.op("where", cond, x, y)])
    values = np.resize(edges(type), 4)
    conds = np.array([True, False, False, True])
    arguments = [
        conds.reshape(shapes[0]),
        values.reshape(shapes[1]),
        values[::-1].reshape(shapes[1]),
    ]
    (got,) = run(program, arguments)
    assert same_bits(np.where(*arguments), got).all()


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_uniform_params(type):
    """Scalars of the call take another way in than arrays do."""
    b = Builder("scalars")
    x, moving = b.param("x", type, "uniform"), b.param("moving", BOOL)
    program = b.finish([b.op("where", moving, x, x), b.op("where", moving, x, b.const(0, type))])
    for value in edges(type):
        same, selected = run(program, [value, np.array([True, False])])
        assert same_bits(np.full(2, value), same).all()
        assert same_bits(np.array([value, type.dtype.type(0)]), selected).all()
