"""What blocks hold, against a look through everything inside each of them."""

import pytest
from hypothesis import given, settings

from mixad.kernel import block_summary, cost, order
from mixad.kernel.block_summary import summarize_blocks
from mixad.scalar.build import Builder
from mixad.scalar.ir import Var, While, nested_blocks, read_atoms, walk_statements, written_vars
from mixad.scalar.types import F64
from mixad.testing import Recipe, programs

EXAMPLES = 200


def blocks_in(block):
    yield block
    for s in walk_statements(block):
        yield from nested_blocks(s)


def reads_from_around(block):
    inside = list(walk_statements(block))
    atoms = [a for b in blocks_in(block) for a in b.results]
    atoms += [a for s in inside for a in read_atoms(s)]
    written = {v for s in inside for v in (*written_vars(s), *getattr(s, "carries", ()))}
    return {a for a in atoms if isinstance(a, Var)} - written


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(programs(Recipe(statements=6, depth=4, iterations=2, arrays=True)))
def test_contents_are_what_a_look_through_each_block_finds(program):
    found = summarize_blocks(program)
    for block in blocks_in(program.body):
        own = found[id(block)]
        assert own.reads == reads_from_around(block)
        assert own.cost == cost.block_cost(block)
        assert own.has_loop == any(isinstance(s, While) for s in walk_statements(block))


def chain_of_conditions(length):
    b = Builder("chain")
    x = b.param("x", F64)

    def side(k):
        if k == length:
            return (x,)
        limit = b.const(float(k), F64)
        return b.if_(b.op("lt", x, limit), lambda: (b.op("sqrt", x),), lambda: side(k + 1))

    return b.finish(side(0))


@pytest.mark.parametrize("length", [10, 80])
def test_each_statement_of_a_long_chain_is_looked_at_once(monkeypatch, length):
    program = chain_of_conditions(length)
    looked_at = []

    def statement_cost(statement, inside):
        looked_at.append(statement)
        return cost.statement_cost(statement, inside)

    for module in (block_summary, order):
        monkeypatch.setattr(module, "statement_cost", statement_cost)
    order.order_by_height(program)
    assert len(looked_at) == 2 * 3 * length  # a comparison, a root and a condition; in two passes
