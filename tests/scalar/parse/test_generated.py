"""Random functions: compiled and interpreted they give what Python gives."""

import math
import operator
from dataclasses import dataclass

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from parse_compiled import from_source, parsed, run

from mixad.scalar.interpret import interpret
from mixad.scalar.pushforward import pushforward

EXAMPLES = 200
DERIVATIVE_EXAMPLES = 100
NAMES = ("x", "y", "a", "b", "n")
FLOATS = ("x", "y", "a", "b")


@st.composite
def expressions(draw, depth=0):
    kind = draw(st.integers(0, 8 if depth < 2 else 2))
    if kind <= 1:
        return draw(st.sampled_from(NAMES))
    if kind == 2:
        return draw(st.sampled_from(["0.5", "-1.25", "3.0", "2", "-1", "0"]))
    left, right = draw(expressions(depth + 1)), draw(expressions(depth + 1))
    if kind <= 5:
        return f"({left} {draw(st.sampled_from('+-*'))} {right})"
    if kind == 6:
        return f"({left} if {draw(conditions(depth + 1))} else {right})"
    if kind == 7:
        return f"helper({left}, {right})"
    return f"({left} + abs({right}))"


@st.composite
def conditions(draw, depth=0):
    compare = draw(st.sampled_from(["<", "<=", ">", ">=", "==", "!="]))
    simple = f"{draw(expressions(depth + 1))} {compare} {draw(expressions(depth + 1))}"
    if draw(st.integers(0, 3)) == 0:
        simple += f" {draw(st.sampled_from(['<', '>=', '!=']))} {draw(expressions(depth + 1))}"
    if depth or draw(st.booleans()):
        return simple
    joiner = draw(st.sampled_from(["and", "or", "and not"]))
    return f"({simple}) {joiner} ({draw(conditions(1))})"


@st.composite
def statements(draw, depth, in_loop):
    kinds = ["assign", "assign", "augment", "count"]
    if depth < 3:
        kinds += ["if", "if", "for", "while", "unrolled"]
    kinds += ["return"] if depth else []
    kinds += ["break", "continue"] if in_loop else []
    kind = draw(st.sampled_from(kinds))
    if kind == "assign":
        return [f"{draw(st.sampled_from(FLOATS))} = 1.0 * {draw(expressions())}"]
    if kind == "augment":
        return [
            f"{draw(st.sampled_from(FLOATS))} {draw(st.sampled_from('+-*'))}= {draw(expressions())}"
        ]
    if kind == "count":
        return ["n = (n + 1) % 7"]
    if kind == "return":
        return [f"return {draw(expressions())}, {draw(expressions())}"]
    if kind in ("break", "continue"):
        return [f"if {draw(conditions())}:", f"    {kind}"] if draw(st.booleans()) else [kind]
    if kind == "if":
        return draw(branches(depth, in_loop))
    return draw(loops(kind, depth, in_loop))


@st.composite
def blocks(draw, depth, in_loop):
    parts = draw(st.lists(statements(depth, in_loop), min_size=1, max_size=3))
    return [f"    {line}" for part in parts for line in part]


@st.composite
def branches(draw, depth, in_loop):
    lines = [f"if {draw(conditions())}:", *draw(blocks(depth + 1, in_loop))]
    if draw(st.booleans()):
        lines += [f"elif {draw(conditions())}:", *draw(blocks(depth + 1, in_loop))]
    if draw(st.booleans()):
        lines += ["else:", *draw(blocks(depth + 1, in_loop))]
    return lines


@st.composite
def loops(draw, kind, depth, in_loop):
    head = {
        "for": f"for i{depth} in range({draw(st.sampled_from(['3', 'n', 'n, 0, -2', '1, 4']))}):",
        "unrolled": f"for i{depth} in (1.5, -2, 0.25):",
        "while": f"while t{depth} < 3:",
    }[kind]
    before = [f"t{depth} = 0"] if kind == "while" else []
    first = f"    t{depth} += 1" if kind == "while" else f"    a += i{depth}"
    lines = [*before, head, first, *draw(blocks(depth + 1, True))]
    if draw(st.integers(0, 3)) == 0:
        lines += ["else:", *draw(blocks(depth + 1, in_loop))]
    return lines


@st.composite
def functions(draw):
    body = draw(blocks(0, False)) + draw(blocks(0, False)) + draw(blocks(0, False))
    helper = ["def helper(x, y):", *draw(helper_bodies())]
    head = ["def f(x, y):", "    a, b, n = x + y, 1.0 * y, 3"]
    return "\n".join([*helper, *head, *body, f"    return {draw(expressions())}, n", ""])


@st.composite
def helper_bodies(draw):
    return draw(st.sampled_from([
        ["    return x - y"],
        ["    if x < y:", "        return x", "    return y * 0.5"],
        ["    for k in range(3):", "        x += k", "        if x > y: return x", "    return y"],
    ]))  # fmt: skip


FINITE = st.floats(-4, 4) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0])
VALUES = FINITE | st.just(math.inf)


MAX_DISCARDED = 0.1
"""Share of points at which Python itself gives up, so that nothing is compared."""


def compare_at_most_points(check, values, examples):
    """Run a check on random functions and points; it returns whether it compared something."""
    outcomes = []

    @settings(max_examples=examples)
    @given(functions(), st.lists(st.tuples(values, values), min_size=3, max_size=3))
    def run_on_examples(text, points):
        note(text)
        function = from_source(text)
        outcomes.extend(check(function, x, y) for x, y in points)

    run_on_examples()
    assert outcomes.count(False) <= MAX_DISCARDED * len(outcomes)


def assert_near(got, expected):
    assert float(got) == pytest.approx(float(expected), rel=1e-9, nan_ok=True)


@pytest.mark.slow
def test_random_function_gives_what_python_gives():
    def check(function, x, y):
        try:
            expected = function(x, y)
        except (OverflowError, ValueError):  # integers too large for floats, int(nan)
            return False
        for g, e in zip(run(function, x, y), expected, strict=True):
            assert_near(g, e)
        return True

    compare_at_most_points(check, VALUES, EXAMPLES)


@dataclass(frozen=True)
class Dual:
    """A number with its derivatives along x and y, as a textbook has it: Python runs it."""

    primal: float
    dx: float = 0.0
    dy: float = 0.0

    def combined(self, primal, other, mine, its):
        """Return a number with the derivatives of self and other, weighed."""
        return Dual(primal, mine * self.dx + its * other.dx, mine * self.dy + its * other.dy)

    def __add__(self, other):
        other = as_dual(other)
        return self.combined(self.primal + other.primal, other, 1, 1)

    def __sub__(self, other):
        other = as_dual(other)
        return self.combined(self.primal - other.primal, other, 1, -1)

    def __rsub__(self, other):
        return as_dual(other) - self

    def __mul__(self, other):
        other = as_dual(other)
        return self.combined(self.primal * other.primal, other, other.primal, self.primal)

    def __abs__(self):
        sign = (self.primal > 0) - (self.primal < 0)
        return self.combined(abs(self.primal), self, sign, 0)

    __radd__, __rmul__ = __add__, __mul__


def compares(name):
    return lambda self, other: getattr(operator, name)(self.primal, as_dual(other).primal)


for name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(Dual, f"__{name}__", compares(name))


def as_dual(value):
    return value if isinstance(value, Dual) else Dual(value)


def partials_of(function, x, y):
    """Return the partials of the outputs as the pushforward gives them."""
    result, snapshot = parsed(function)
    dual = pushforward(result.program, (0, 1))
    values = interpret(dual.program, (x, y, *snapshot.values(result)), max_iterations=10_000)
    return [
        [values[out.partials[slot]] if slot in out.partials else 0.0 for slot in (0, 1)]
        for out in dual.outputs
    ]


@pytest.mark.slow
def test_random_function_has_the_derivatives_of_dual_numbers():
    def check(function, x, y):
        try:
            expected = [as_dual(e) for e in function(Dual(x, 1.0), Dual(y, 0.0, 1.0))]
        except (OverflowError, ValueError):
            return False
        if not all(math.isfinite(v) for e in expected for v in (e.primal, e.dx, e.dy)):
            return False  # a zero partial times infinity is nan in one of them, 0 in the other
        for (dx, dy), e in zip(partials_of(function, x, y), expected, strict=True):
            assert_near(dx, e.dx)
            assert_near(dy, e.dy)
        return True

    compare_at_most_points(check, FINITE, DERIVATIVE_EXAMPLES)
