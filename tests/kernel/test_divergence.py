"""Flattened conditions: the same values, shared work once, dear conditions left alone."""

import math
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixad.kernel import divergence
from mixad.kernel.cost import BRANCH_COST
from mixad.kernel.divergence import flatten_divergence
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import ArrayType, Equation, If, Load, While, walk_statements
from mixad.scalar.math import expand
from mixad.scalar.types import BOOL, F64, I32
from mixad.scalar.verify import verify
from mixad.testing import ALL_OPS, Recipe, programs, random_arguments, same_bits

EXAMPLES = 200
ELEMENTS = 6

# The sign of a nan is nobody's promise: x - y and x + (-y) may differ in it.
OPS = tuple(name for name in ALL_OPS if name not in ("signbit", "copysign"))
BRANCHING = Recipe(ops=OPS, statements=6, depth=4, iterations=2, arrays=True)


def moving_params(program):
    return [k for k, p in enumerate(program.params) if p.kind == "lane"]


def flattened(program, moving=None):
    return flatten_divergence(program, moving_params(program) if moving is None else moving)


def op_counts(block):
    """Count the equations of a block and of the blocks inside it, by op."""
    return Counter(s.op for s in walk_statements(block) if isinstance(s, Equation))


def outermost_ops(program):
    return Counter(s.op for s in program.body.statements if isinstance(s, Equation))


def conditions(block):
    return [s for s in walk_statements(block) if isinstance(s, If)]


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(BRANCHING), st.integers(0, 2**20))
def test_flattened_program_computes_the_same_bits(program, seed):
    flat = verify(flattened(program))
    assert [p.kind for p in flat.params] == [p.kind for p in program.params]
    arguments = random_arguments(program, seed, ELEMENTS)
    for i in range(ELEMENTS):
        pairs = zip(arguments, program.params, strict=True)
        element = [a[i] if p.kind == "lane" else a for a, p in pairs]
        expected, got = interpret(program, element), interpret(flat, element)
        assert all(same_bits(a, b) for a, b in zip(expected, got, strict=True)), str(program)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(BRANCHING))
def test_flattening_repeats_no_equation(program):
    before, after = op_counts(program.body), op_counts(flattened(program).body)
    selections_and_guards = {"where", "and", "or", "not"}
    for name in set(after) - selections_and_guards:
        assert after[name] <= before[name]


# -- the HM-LSTM cell ------------------------------------------------------------------------------


def cell():
    """Return the update of the hierarchical multiscale LSTM's cell (Chung, Ahn, Bengio, 2016)."""
    b = Builder("cell_update")
    z, zb, c, f, i, g = (b.param(name, F64) for name in ("z", "zb", "c", "f", "i", "g"))

    def fresh():
        return b.op("mul", b.op("sigmoid", i), b.op("tanh", g))

    def update():
        return [b.op("add", b.op("mul", b.op("sigmoid", f), c), fresh())]

    def copy_or_update():
        return b.if_(b.op("eq", zb, b.const(0.0, F64)), lambda: [c], update)

    return b.finish(b.if_(b.op("eq", z, b.const(1.0, F64)), lambda: [fresh()], copy_or_update))


def test_cell_does_the_work_of_its_branches_once():
    before, after = op_counts(cell().body), op_counts(flattened(cell()).body)
    assert (before["sigmoid"], before["tanh"]) == (3, 2)
    assert (after["sigmoid"], after["tanh"]) == (2, 1)


def test_cell_skips_what_no_lane_needs():
    flat = flattened(cell())
    assert not {"sigmoid", "tanh"} & set(outermost_ops(flat))
    guarded = [op_counts(s.then) for s in conditions(flat.body)]
    assert sorted(sum(c[name] for name in ("sigmoid", "tanh")) for c in guarded) == [1, 2]


def test_lesser_work_inside_a_skipped_run_goes_with_it():
    """Two exponentials are FLUSH's and UPDATE's, the third is UPDATE's alone: one condition."""
    flat = flattened(expand(cell()))
    (guard,) = conditions(flat.body)
    assert op_counts(guard.then)["bounded_reciprocal"] == 3
    assert "bounded_reciprocal" not in outermost_ops(flat)


@pytest.mark.parametrize(("inner", "count"), [(BRANCH_COST, 1), (3 * BRANCH_COST, 2)])
def test_dearer_work_inside_a_run_keeps_a_condition_of_its_own(inner, count):
    b = Builder("inner")
    c, d, x = b.param("c", BOOL), b.param("d", BOOL), b.param("x", F64)

    def outer():
        y = added(b, x, 2 * BRANCH_COST)
        return b.if_(d, lambda: [added(b, y, inner)], lambda: [y])

    flat = flattened(b.finish(b.if_(c, outer, lambda: [x])))
    assert len(conditions(flat.body)) == count


def test_only_conditions_that_vary_are_flattened():
    flags = [0, 1]
    everything_but_flags = [k for k in range(6) if k not in flags]
    uniform = flattened(cell(), everything_but_flags)
    assert op_counts(uniform.body) == op_counts(cell().body)
    assert len(conditions(uniform.body)) == 2


def test_condition_inside_a_uniform_one_is_flattened():
    half = flattened(cell(), [1, 2, 3, 4, 5])  # z is uniform
    (outer,) = (s for s in half.body.statements if isinstance(s, If))
    assert op_counts(outer.orelse)["sigmoid"] == 2
    assert len(conditions(outer.orelse)) == 1


# -- what is left where it is ----------------------------------------------------------------------


def dear(b, x, count):
    """Compute a boolean with this many library calls."""
    for _ in range(count):
        x = b.op("tan", x)
    return b.op("lt", x, b.const(0.5, F64))


def added(b, x, count):
    """Add so many numbers to x, one after the other."""
    for k in range(count):
        x = b.op("add", x, b.const(float(k + 1), F64))
    return x


def with_inner_condition(calls):
    """Return a condition inside a condition; the inner one costs this many library calls."""
    b = Builder("inner")
    outer, x = b.param("outer", BOOL), b.param("x", F64)

    def inner():
        return b.if_(dear(b, x, calls), lambda: [b.op("add", x, x)], lambda: [b.op("mul", x, x)])

    return b.finish(b.if_(outer, inner, lambda: [x]))


def test_cheap_condition_becomes_selections():
    flat = flattened(with_inner_condition(calls=0))
    assert conditions(flat.body) == []
    assert outermost_ops(flat)["where"] == 2


def test_dear_condition_is_not_computed_for_every_lane():
    flat = flattened(with_inner_condition(calls=3))
    (outer,) = conditions(flat.body)
    assert op_counts(outer.then)["tan"] == 3
    assert "tan" not in outermost_ops(flat)


def test_cheap_sides_are_computed_without_asking():
    b = Builder("cheap")
    c, x = b.param("c", BOOL), b.param("x", F64)
    out = b.if_(c, lambda: [b.op("div", x, b.const(3.0, F64))], lambda: [x])
    flat = flattened(b.finish(out))
    assert conditions(flat.body) == []


def test_dear_sides_keep_a_condition_of_their_own():
    b = Builder("dear")
    c, x = b.param("c", BOOL), b.param("x", F64)
    (out,) = b.if_(c, lambda: [b.op("tan", x)], lambda: [b.op("asin", x)])
    flat = flattened(b.finish([out]))
    assert [set(op_counts(s.then)) for s in conditions(flat.body)] == [{"tan"}, {"asin"}]


def test_many_cheap_equations_are_worth_a_condition():
    b = Builder("many")
    c, x = b.param("c", BOOL), b.param("x", F64)

    flat = flattened(b.finish(b.if_(c, lambda: [added(b, x, BRANCH_COST + 1)], lambda: [x])))
    (guard,) = conditions(flat.body)
    assert op_counts(guard.then)["add"] == BRANCH_COST + 1


@pytest.mark.parametrize("statement", [Load, While])
def test_loads_and_loops_stay_under_their_condition(statement):
    b = Builder("stays")
    c, n = b.param("c", BOOL), b.param("n", I32)
    array = b.array_param("a", ArrayType(I32, 1))

    def load():
        return [b.load(array, n)]

    def loop():
        return b.while_([n], lambda i: b.op("gt", i, b.const(9, I32)),
                        lambda i: [b.op("floordiv", i, b.const(2, I32))])  # fmt: skip

    out = b.if_(c, {Load: load, While: loop}[statement], lambda: [n])
    flat = flattened(b.finish(out))
    (kept,) = conditions(flat.body)
    assert any(isinstance(s, statement) for s in walk_statements(kept.then))
    assert not any(isinstance(s, statement) for s in flat.body.statements)


# -- long chains -----------------------------------------------------------------------------------


def chain_of_sines(arms):
    """Return ``if x < 0: sin(1.5x) elif x < 1: sin(2.5x) …``, whose sines hold conditions too."""
    b = Builder("chain")
    x = b.param("x", F64)

    def rest(k):
        if k == arms:
            return [x]
        return b.if_(
            b.op("lt", x, b.const(float(k), F64)),
            lambda: [b.op("sin", b.op("mul", x, b.const(k + 1.5, F64)))],
            lambda: rest(k + 1),
        )

    return expand(b.finish(rest(0)))


@pytest.mark.slow
def test_a_long_chain_is_right_in_each_arm():
    flat = verify(flattened(chain_of_sines(40)))
    for k in range(40):
        (got,) = interpret(flat, [k - 0.5])
        assert got == pytest.approx(math.sin((k - 0.5) * (k + 1.5)), abs=4e-16)
    assert interpret(flat, [40.5]) == (40.5,)


@pytest.mark.slow
def test_work_grows_with_the_length_of_a_chain_not_with_its_square(monkeypatch):
    met = Counter()
    node = divergence._Tree.node

    def counted(tree, *arguments):
        met[arms] += 1
        return node(tree, *arguments)

    monkeypatch.setattr(divergence._Tree, "node", counted)
    for arms in (30, 60):
        flattened(chain_of_sines(arms))
    assert met[60] < 2.5 * met[30]


# -- determinism -----------------------------------------------------------------------------------

SEEDS = range(40)
_PRINT_FLATTENED = f"""
from mixad.kernel.divergence import flatten_divergence
from mixad.testing import Recipe, random_program

for seed in {SEEDS!r}:
    program = random_program(seed, Recipe(statements=6, depth=4))
    print(flatten_divergence(program, range(len(program.params))))
"""


@pytest.mark.slow
def test_processes_that_hash_differently_flatten_alike():
    texts = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_FLATTENED],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (0, 1, 2)
    ]
    assert "where" in texts[0]
    assert len(set(texts)) == 1
