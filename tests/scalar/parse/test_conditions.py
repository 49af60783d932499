"""What Python does not compute is not computed: it may have no end, or read outside an array."""

import numpy as np
import pytest
from parse_compiled import from_source, op_names, parsed, run

import mixad
from mixad.errors import KernelSyntaxError

TABLE = np.asarray([5.0, 6.0, 7.0])


def steps(n):
    """Count down to 1: from below there is no end."""
    count = 0.0
    while n != 1.0:
        n = n - 1.0
        count = count + 1.0
    return count


def after_break(x):
    n = x
    while steps(n) >= 0.0:
        n = n - 1.0
        if n < 1.0:
            break
    return n


def after_return(x):
    n = x
    while TABLE[int(n)] > steps(n):
        n = n - 1.0
        if n < 1.0:
            return n
    return 0.5


def after_break_of_a_chain(x):
    n = x
    while 0.0 <= steps(n) < 9.0:
        n = n - 1.0
        if n < 1.0:
            break
    else:
        n = 7.0
    return n


def chain_of_a_loop(x):
    return 1.0 if 1.0 <= x < 1.0 + steps(x) else 0.0


def chain_of_an_index(x):
    return 1.0 if 0 <= x < 3 < TABLE[int(x)] else 0.0


def chain_of_many(x):
    return 1.0 if 0 <= x < 3 < TABLE[int(x)] <= 6.0 + TABLE[int(x) - 1 if x >= 1 else 0] else 0.0


def chain_in_a_chain(x):
    return 1.0 if (1 <= x < 9) == (1 <= x < steps(x) + 2) else 0.0


def operand_once(x):
    return 1.0 if 0.0 < steps(abs(x) + 1.0 - abs(x) % 1) < 4.0 < 9.0 - x else 0.0


def chain_of_known(x):
    return 1.0 if 3 < 2 < steps(x) else x


CASES = {
    after_break: (1.0, 2.0, 5.0),
    after_return: (1.0, 2.0),
    after_break_of_a_chain: (1.0, 2.0, 12.0),
    chain_of_a_loop: (1.0, 2.0, 0.5, -3.0),
    chain_of_an_index: (0.0, 2.0, 7.0, -9.0),
    chain_of_many: (0.0, 1.0, 2.0, 7.0, -9.0),
    chain_in_a_chain: (0.0, 0.5, 1.0, 3.0, 12.0),
    operand_once: (0.5, 2.0, -3.0, 7.0),
    chain_of_known: (0.5, 2.0),
}


@pytest.mark.rows(("function", "values"), CASES.items(), ids=[f.__name__ for f in CASES])
def test_what_python_does_not_compute_is_not_computed(function, values):
    expected = [function(x) for x in values]
    assert [run(function, x) for x in values] == expected
    assert mixad.broadcast(function)(np.asarray(values)).tolist() == expected


def test_an_operand_of_a_chain_is_computed_once():
    result, _ = parsed(from_source("import math\ndef f(x):\n    return 0 < math.sin(x) < 1\n"))
    assert op_names(result.program).count("sin") == 1


@pytest.mark.parametrize("text", [
    " if x < 0 else ".join(map(str, range(150))),
    "1.0 if " + " < ".join(f"(x > {k})" for k in range(200)) + " else 0.0",
])  # fmt: skip
def test_too_many_conditions_in_an_expression_are_refused(text):
    with pytest.raises(KernelSyntaxError, match="nested 120 deep"):
        run(from_source(f"def f(x):\n    return {text}\n"), 1.0)
