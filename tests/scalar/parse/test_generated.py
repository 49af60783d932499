"""Random functions: compiled and interpreted they give what Python gives."""

import math

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from parse_compiled import from_source, run

EXAMPLES = 200
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


VALUES = st.floats(-4, 4) | st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, math.inf])


@settings(max_examples=EXAMPLES)
@given(functions(), st.lists(st.tuples(VALUES, VALUES), min_size=3, max_size=3))
def test_random_function_gives_what_python_gives(text, points):
    note(text)
    function = from_source(text)
    for x, y in points:
        try:
            expected = function(x, y)
        except (OverflowError, ValueError):  # integers too large for floats, int(nan)
            continue
        got = run(function, x, y)
        for g, e in zip(got, expected, strict=True):
            assert float(g) == pytest.approx(float(e), rel=1e-9, nan_ok=True)
