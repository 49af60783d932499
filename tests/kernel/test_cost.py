"""The cost model keeps the order that choices depend on."""

from mixad.kernel.cost import BRANCH_COST, block_cost, flops, statement_cost
from mixad.scalar.build import Builder
from mixad.scalar.ops import TABLE
from mixad.scalar.types import BOOL, F64, I64


def cost_of(name):
    """Return the cost of one equation, with doubles (or booleans) for arguments."""
    op = next(op for op in TABLE if op.name == name)
    b = Builder(name)
    params = [b.param(f"x{k}", BOOL if op.domain == "bool" else F64) for k in range(op.arity)]
    return statement_cost(b.finish([b.op(name, *params)]).body.statements[0])


def test_arithmetic_is_cheaper_than_division_than_a_library_call():
    assert cost_of("add") == cost_of("mul") == 1
    assert cost_of("add") < cost_of("div") < cost_of("sqrt") < cost_of("tan")


def test_a_library_call_is_worth_a_branch():
    for op in TABLE:
        if op.domain == "float" and op.lowering == "libm":
            assert cost_of(op.name) >= BRANCH_COST


def test_an_instruction_is_not_worth_a_branch():
    for op in TABLE:
        if op.domain == "float" and op.lowering == "instruction":
            assert cost_of(op.name) < BRANCH_COST


def nested(outer):
    """Return the costs of a block, and of a statement that holds it once or more often."""
    b = Builder("nested")
    x = b.param("x", F64)

    def block(*_):
        return [b.op("sqrt", x)]

    if outer == "if":
        b.if_(b.param("c", BOOL), block, lambda: [x])
    else:
        b.while_([x], lambda v: b.op("lt", v, x), block)
    statement = b.finish([]).body.statements[0]
    inner = statement.then if outer == "if" else statement.body
    return block_cost(inner), statement_cost(statement)


def test_condition_costs_both_sides():
    inner, whole = nested("if")
    assert whole > inner


def test_loop_costs_several_turns():
    inner, whole = nested("while")
    assert whole > 2 * inner


def test_block_costs_the_sum_of_its_statements():
    b = Builder("two")
    x = b.param("x", F64)
    block = b.finish([b.op("sqrt", b.op("div", x, b.param("y", F64)))]).body
    assert block_cost(block) == cost_of("sqrt") + cost_of("div")


def test_flops_of_each_kind_of_statement():
    b = Builder("all")
    x, y, c = b.param("x", F64), b.param("y", F64), b.param("c", BOOL)
    b.op("fma", x, y, x)  # 2
    b.op("neg", b.op("where", c, b.op("div", x, y), y))  # 1
    b.op("lt", x, y)
    b.op("add", b.convert(x, I64), b.convert(y, I64))  # of integers
    b.if_(c, lambda: [b.op("mul", x, y)], lambda: [b.op("sub", x, y)])  # 1 + 1
    b.while_([x], lambda v: b.op("lt", v, y), lambda v: [b.op("add", v, y)])  # 1 a turn
    turns = 8
    assert flops(b.finish([]).body) == 2 + 1 + 2 + turns


def test_flops_of_a_library_call_are_more_than_of_any_instruction():
    def of(name, arity):
        b = Builder(name)
        x = b.param("x", F64)
        return flops(b.finish([b.op(name, *[x] * arity)]).body)

    assert of("tan", 1) > of("fma", 3) > of("sqrt", 1) > of("abs", 1) == 0
