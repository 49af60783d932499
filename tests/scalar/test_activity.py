"""Which variables depend on which inputs."""

import pytest

from mixad.scalar.activity import active_arguments, activity
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, If, Var, While
from mixad.scalar.ops import TABLE
from mixad.scalar.types import BOOL, F32, F64, I32


def slots_of_outputs(builder, outputs, seeds):
    program = builder.finish(outputs)
    found = activity(program, {index: [slot] for index, slot in seeds.items()})
    return [
        set(found.get(atom, ())) if isinstance(atom, Var) else set() for atom in program.outputs
    ]


def floats(builder, count):
    return [builder.param(f"x{i}", F64) for i in range(count)]


def test_an_equation_depends_on_what_its_arguments_depend_on():
    b = Builder("f")
    x, y, z = floats(b, 3)
    product = b.op("mul", x, y)
    assert slots_of_outputs(b, [product, b.op("sin", z)], {0: 0, 1: 1}) == [{0, 1}, set()]


def test_slots_are_named_by_the_seeds_and_not_by_the_position_of_the_param():
    b = Builder("f")
    x, y = floats(b, 2)
    assert slots_of_outputs(b, [b.op("add", x, y)], {1: 7}) == [{7}]


@pytest.mark.rows("name", [op.name for op in TABLE if op.partials])
def test_an_argument_with_static_zero_partial_passes_nothing_on(name):
    partials = next(op.partials for op in TABLE if op.name == name)
    assert active_arguments[name] == tuple(i for i, p in enumerate(partials) if p != "0")


def test_selections_pass_on_both_values_but_not_the_condition():
    assert active_arguments["where"] == (1, 2)
    assert active_arguments["minimum"] == active_arguments["maximum"] == (0, 1)
    assert active_arguments["relu"] == (0,)
    assert active_arguments["lt"] == active_arguments["bitcast"] == ()


def test_integers_and_booleans_in_between_end_the_dependence():
    b = Builder("f")
    (x,) = floats(b, 1)
    whole = b.convert(b.convert(x, I32), F64)
    truth = b.convert(b.op("lt", x, b.const(0.0, F64)), F64)
    narrow = b.convert(b.convert(x, F32), F64)
    assert slots_of_outputs(b, [whole, truth, narrow], {0: 0}) == [set(), set(), {0}]


def test_a_branch_depends_on_the_union_of_both_sides_and_not_on_its_condition():
    b = Builder("f")
    x, y, z = floats(b, 3)
    cond = b.op("lt", z, b.const(0.0, F64))
    mixed, constant = b.if_(
        cond,
        lambda: [b.op("sin", x), b.const(1.0, F64)],
        lambda: [b.op("cos", y), b.const(2.0, F64)],
    )
    assert isinstance(mixed, Var)
    assert slots_of_outputs(b, [mixed, constant], {0: 0, 1: 1, 2: 2}) == [{0, 1}, set()]


def test_carries_reach_a_fixpoint_however_long_the_chain():
    """a <- b <- c <- d <- x: what d receives reaches a after four iterations."""
    b = Builder("f")
    (x,) = floats(b, 1)
    zero, limit = b.const(0.0, F64), b.const(9, I32)
    n, *carries = b.while_(
        [b.const(0, I32), zero, zero, zero, zero, zero],
        lambda n, *_: b.op("lt", n, limit),
        lambda n, p, q, r, s, idle: [b.op("add", n, b.const(1, I32)), q, r, s, x, idle],
    )
    assert slots_of_outputs(b, [n, *carries], {0: 0}) == [set(), {0}, {0}, {0}, {0}, set()]


def test_an_inner_loop_feeds_the_outer_carries():
    b = Builder("f")
    x, y = floats(b, 2)
    one, limit = b.const(1, I32), b.const(3, I32)

    def inner(total):
        return b.while_(
            [b.const(0, I32), total],
            lambda m, _: b.op("lt", m, limit),
            lambda m, t: [b.op("add", m, one), b.op("add", t, y)],
        )[1]

    _, total, start = b.while_(
        [b.const(0, I32), b.const(0.0, F64), x],
        lambda n, *_: b.op("lt", n, limit),
        lambda n, total, start: [b.op("add", n, one), inner(total), total],
    )
    assert slots_of_outputs(b, [total, start], {0: 0, 1: 1}) == [{1}, {0, 1}]


def test_variables_inside_nested_blocks_are_found_too():
    b = Builder("f")
    (x,) = floats(b, 1)
    b.if_(b.param("c", BOOL), lambda: [b.op("sin", x)], lambda: [b.op("cos", x)])
    program = b.finish([x])
    (branch,) = program.body.statements
    assert isinstance(branch, If)
    found = activity(program, {0: [0]})
    assert {found[s.out] for s in (*branch.then.statements, *branch.orelse.statements)} == {
        frozenset({0})
    }


def test_a_loop_that_does_not_touch_the_seed_is_inactive():
    b = Builder("f")
    x, y = floats(b, 2)
    b.while_([y], lambda t: b.op("lt", t, x), lambda t: [b.op("add", t, b.const(1.0, F64))])
    program = b.finish([x])
    (loop,) = program.body.statements
    assert isinstance(loop, While)
    assert loop.outs[0] not in activity(program, {0: [0]})  # x is in the test only


@pytest.mark.parametrize("type", [I32, BOOL])
def test_a_seed_that_is_no_float_is_refused(type):
    b = Builder("f")
    x = b.param("count", type)
    with pytest.raises(ValueError, match=rf"'count' of type {type} cannot carry a derivative"):
        activity(b.finish([x]), {0: [0]})


def test_what_is_read_of_an_array_depends_on_it_or_on_itself():
    b = Builder("f")
    array = b.array_param("table", ArrayType(F64, 1))
    first, second = (b.load(array, b.const(i, I32)) for i in range(2))
    program = b.finish([first, second])
    active = activity(program, {0: [0]}, {second: frozenset({1})})
    assert (active[first], active[second]) == ({0}, {0, 1})


def test_an_accumulator_depends_on_what_is_added():
    b = Builder("f")
    x, y, sums = b.param("x", F64), b.param("y", F64), b.accumulator("sums", ArrayType(F64, 1))
    for value in (x, y):
        b.update(sums, b.const(0, I32), value=value)
    assert activity(b.finish([sums]), {0: [0], 1: [1]})[sums] == {0, 1}
