"""What is called uniform is the same in every lane; what cannot differ is called uniform."""

import random
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixad.kernel.varying import varying_vars
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import ArrayType, If, Program, Var, While, nested_blocks, written_vars
from mixad.scalar.types import BOOL, F64, I32
from mixad.testing import Recipe, programs, random_arguments, same_bits

EXAMPLES = 100
LANES = 5
RECIPE = Recipe(arrays=True, outputs=1)


def lanes_of(program, moving, seed):
    """Return arguments for each lane; lane params that do not move are the same in all of them."""
    arguments = random_arguments(program, seed, LANES)

    def at(lane):
        return [
            a if p.kind != "lane" else a[lane if k in moving else 0]
            for k, (p, a) in enumerate(zip(program.params, arguments, strict=True))
        ]

    return [at(lane) for lane in range(LANES)]


def everything_out(program):
    """Return the program with all variables of its outermost block as outputs."""
    variables = [v for s in program.body.statements for v in written_vars(s)]
    body = type(program.body)(program.body.statements, tuple(variables))
    return Program(program.name, program.params, body)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(RECIPE), st.integers(0, 2**20))
def test_uniform_results_are_equal_in_all_lanes(program, seed):
    program = everything_out(program)
    lane_params = [k for k, p in enumerate(program.params) if p.kind == "lane"]
    moving = set(random.Random(seed).sample(lane_params, k=len(lane_params) // 2))
    varying = varying_vars(program, moving)
    first, *others = (interpret(program, lane) for lane in lanes_of(program, moving, seed))
    for k, var in enumerate(program.outputs):
        if var not in varying:
            assert all(same_bits(first[k], other[k]) for other in others), (
                f"{var} differs between lanes in\n{program}"
            )


def equations_of(program, varying):
    """Return, for each equation's variable, whether all lanes compute it the same number of times,
    and whether it is outside all loops."""
    found = {}

    def visit(block, together, once):
        for s in block.statements:
            found.update((v, (together, once)) for v in written_vars(s))
            for inner in nested_blocks(s):
                visit(inner, together and not splits(s), once and not isinstance(s, While))

    def splits(s):
        test = s.cond if isinstance(s, If) else s.cond.results[0]
        return test in varying

    visit(program.body, True, True)
    return found


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(RECIPE), st.integers(0, 2**20))
def test_uniform_equations_inside_conditions_and_loops_are_equal_in_all_lanes(program, seed):
    lane_params = [k for k, p in enumerate(program.params) if p.kind == "lane"]
    moving = set(random.Random(seed).sample(lane_params, k=len(lane_params) // 2))
    varying = varying_vars(program, moving)
    histories = []
    for lane in lanes_of(program, moving, seed):
        history = defaultdict(list)

        def watch(equation, result, history=history):
            history[equation.out].append(result)
            return result

        interpret(program, lane, watch=watch)
        histories.append(history)
    for var, (together, once) in equations_of(program, varying).items():
        if var in varying:
            continue
        seen = [history[var] for history in histories if together or (once and history[var])]
        for other in seen[1:]:
            assert len(seen[0]) == len(other)
            assert all(same_bits(a, b) for a, b in zip(seen[0], other, strict=True))


@pytest.mark.slow
@given(programs(RECIPE))
def test_nothing_varies_where_no_param_does(program):
    assert varying_vars(program, ()) == frozenset()


@pytest.mark.slow
@given(programs(RECIPE))
def test_more_varying_params_make_more_variables_vary(program):
    lane_params = [k for k, p in enumerate(program.params) if p.kind == "lane"]
    for k in range(len(lane_params)):
        fewer = varying_vars(program, lane_params[:k])
        assert fewer <= varying_vars(program, lane_params[: k + 1])


# -- loops, by hand --------------------------------------------------------------------------------


@pytest.fixture
def loop():
    """Return a function that builds a counting loop: how its variables vary with its params."""

    def build(moving):
        b = Builder("loop")
        bound, start, step = (b.param(name, I32) for name in ("bound", "start", "step"))
        count, total = b.while_(
            [b.const(0, I32), start],
            lambda i, _: b.op("lt", i, bound),
            lambda i, t: (b.op("add", i, b.const(1, I32)), b.op("add", t, step)),
        )
        program = b.finish([count, total])
        names = ("bound", "start", "step")
        varying = varying_vars(program, [names.index(name) for name in moving])
        return [v in varying for v in (count, total)]

    return build


def test_carries_vary_as_they_start_and_as_they_go_on(loop):
    assert loop([]) == [False, False]
    assert loop(["start"]) == [False, True]
    assert loop(["step"]) == [False, True]


def test_all_carries_vary_where_lanes_leave_apart(loop):
    assert loop(["bound"]) == [True, True]


def test_variation_travels_through_carries_turn_by_turn():
    b = Builder("shift")
    x, n = b.param("x", F64), b.param("n", I32)
    zero = b.const(0.0, F64)
    outs = b.while_(
        [b.const(0, I32), x, zero, zero, zero],
        lambda i, *_: b.op("lt", i, n),
        lambda i, first, second, third, _: (
            b.op("add", i, b.const(1, I32)), zero, first, second, third,
        ),
    )  # fmt: skip
    varying = varying_vars(b.finish(outs), [0])
    assert [v in varying for v in outs] == [False, True, True, True, True]


def test_results_vary_with_the_condition_that_chose_them():
    b = Builder("choice")
    x, c = b.param("x", F64), b.param("c", BOOL)

    def side(name):
        return lambda: [b.op(name, b.op("sqrt", x), x)]

    (chosen,) = b.if_(c, side("add"), side("mul"))
    program = b.finish([chosen])
    assert isinstance(chosen, Var)
    assert chosen in varying_vars(program, [1])
    inside = {v for s in program.body.statements[0].then.statements for v in written_vars(s)}
    assert not inside & varying_vars(program, [1])


def test_loads_vary_with_their_indices_not_with_the_array():
    b = Builder("load")
    array = b.array_param("a", ArrayType(F64, 1))
    i, j = b.param("i", I32), b.param("j", I32)
    at_i, at_j = b.load(array, i), b.load(array, j)
    varying = varying_vars(b.finish([at_i, at_j]), [1])
    assert at_i in varying
    assert at_j not in varying
