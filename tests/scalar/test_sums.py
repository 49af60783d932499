"""Which carries of loops are sums: whatever is read of them has the derivative 1."""

import pytest

from mixad.scalar.build import Builder
from mixad.scalar.ir import While
from mixad.scalar.sums import is_sum
from mixad.scalar.types import BOOL, F64, I64


def carries(iteration, test=None):
    """Return which carries, s or t, of a loop are sums; ``iteration`` computes the next ones."""
    b = Builder("f")
    x, n = b.param("x", F64), b.param("n", I64)
    step = lambda k, s, t: [b.op("add", k, b.const(1, I64)), *iteration(b, s, t, x)]  # noqa: E731
    test = test or (lambda b, s, t: b.const(True, BOOL))
    cond = lambda k, s, t: b.op("and", b.op("lt", k, n), test(b, s, t))  # noqa: E731
    outs = b.while_([b.const(0, I64), x, x], cond, step)
    program = b.finish(outs)
    (loop,) = (s for s in program.body.statements if isinstance(s, While))
    return tuple(name for i, name in ((1, "s"), (2, "t")) if is_sum(loop, i))


def plus(b, s, x):
    return b.op("add", s, x)


def either(b, cond, then, orelse):
    return b.if_(cond, lambda: [then()], lambda: [orelse()])[0]


def inner(b, s, x, add):
    """Return what a loop inside makes of a value."""
    return b.while_(
        [b.const(0, I64), s],
        lambda k, s: b.op("lt", k, b.const(3, I64)),
        lambda k, s: [b.op("add", k, b.const(1, I64)), add(s)],
    )[1]


def positive(b, x):
    return b.op("gt", x, b.const(0.0, F64))


CASES = {
    "kept": (lambda b, s, t, x: [s, t], ("s", "t")),
    "added to": (lambda b, s, t, x: [plus(b, s, x), b.op("sub", t, x)], ("s", "t")),
    "subtracted from": (lambda b, s, t, x: [b.op("sub", x, s), t], ("t",)),
    "doubled": (lambda b, s, t, x: [plus(b, s, s), t], ("t",)),
    "multiplied": (lambda b, s, t, x: [b.op("mul", s, x), t], ("t",)),
    "added by fma": (lambda b, s, t, x: [b.op("fma", x, x, s), b.op("fma", t, x, x)], ("s",)),
    "added to another": (lambda b, s, t, x: [plus(b, s, x), plus(b, t, s)], ("t",)),
    "exchanged": (lambda b, s, t, x: [t, s], ()),
    "in a branch": (
        lambda b, s, t, x: [
            either(b, positive(b, x), lambda: plus(b, s, x), lambda: s),
            either(b, positive(b, x), lambda: plus(b, t, x), lambda: x),
        ],
        ("s",),
    ),
    "chosen": (
        lambda b, s, t, x: [
            b.op("where", positive(b, x), plus(b, s, x), s),
            b.op("where", positive(b, x), t, x),
        ],
        ("s",),
    ),
    "compared": (
        lambda b, s, t, x: [b.op("where", positive(b, s), plus(b, s, x), s), t],
        ("s", "t"),
    ),
    "rounded beside": (
        lambda b, s, t, x: [plus(b, s, x), plus(b, t, b.op("floor", s))],
        ("s", "t"),
    ),
    "in a loop": (
        lambda b, s, t, x: [
            inner(b, s, x, lambda s: plus(b, s, x)),
            inner(b, t, x, lambda t: b.op("mul", t, x)),
        ],
        ("s",),
    ),
    "as the start of another": (
        lambda b, s, t, x: [plus(b, s, inner(b, t, x, lambda t: plus(b, t, x))), t],
        ("s",),
    ),
}


@pytest.mark.rows("name", CASES)
def test_sums_are_only_added_to_and_compared(name):
    iteration, expected = CASES[name]
    assert carries(iteration) == expected


def test_a_test_may_compare_a_sum():
    found = carries(
        lambda b, s, t, x: [plus(b, s, x), t], lambda b, s, t: b.op("lt", s, b.const(9.0, F64))
    )
    assert found == ("s", "t")
