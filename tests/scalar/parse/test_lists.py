"""Lists, small arrays and structures in compiled functions give what Python gives."""

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parse_compiled import from_source, run

from mixad.errors import KernelError

EXAMPLES = 200

NUMBERS = st.floats(-6, 6) | st.integers(-6, 6).map(float) | st.sampled_from([0.0, -0.0, 0.5, 2.0])


class Pair(NamedTuple):
    a: float
    b: float = 2.0


@dataclass
class Body:
    at: Pair
    mass: float = 1.0


@dataclass(frozen=True)
class Scaled:
    value: float
    factor: float


def filled_in_a_loop(x, y):
    out = [0.0] * 4
    for i in range(4):
        out[i] = x * i + y
    return sum(out), out[-1]


def added_to(x, y):
    out = [x, y, 0.0]
    for i in range(3):
        out[i] += x if i % 2 else y
        out[i] *= 2.0
    return out[0], out[1], out[2]


def changed_in_branches(x, y):
    out = [0.0, 1.0]
    if x > y:
        out[0] = x
    elif x > 0:
        out[1] = out[0] + y
    else:
        out = [y, x]
    out[0] += 1.0
    return out[0], out[1]


def looked_at_in_slices(x, y):
    out, of_arrays = np.zeros(3), [np.zeros(2), np.zeros(2)]
    out[0] = x
    before = sum(out[1:]) + max(out[:2])
    for i in range(1, 3):
        out[i] = y
    of_arrays[1][0] = before
    return before, sum(out[1:]), of_arrays[1][0], of_arrays[0][0]


def index_of_a_loop(x, y):
    out = [x, y, 1.0, 2.0, 3.0]
    i = 0
    while i < 5 and out[i] < 4.0:
        out[i] = out[i - 1] + abs(x) + 0.5
        i += 1
    return sum(out), i


def replaced_each_iteration(x, y):
    state = [x, y]
    for _ in range(int(abs(x)) + 1):
        state = [0.5 * state[1] - 0.1 * state[0], state[0] + 0.25]
    a, b = state
    return a, b


def matrix(x, y):
    m = [[x, 1.0], [y, 2.0]]
    m[0][1] = x * y
    m[1][0] += m[0][1]
    t = 0.0
    for row in m:
        for v in row:
            t = 0.5 * t + v
    return t, len(m)


def helpers_make_lists(x, y):
    def scaled(v, by):
        out = [0.0] * len(v)
        for i, a in enumerate(v):
            out[i] = a * by
        return out

    def dot(a, b):
        t = 0.0
        for p, q in zip(a, b, strict=True):
            t += p * q
        return t

    u = scaled([x, y, 1.0], 2.0)
    u[2] = 5.0
    return dot(u, u), dot(u, (1.0, x, y))


def early_return_of_a_list(x, y):
    def sorted_pair(a, b):
        if a < b:
            return [a, b]
        return [b, a]

    p = sorted_pair(x, y)
    p[0] -= 1.0
    return p[0], p[1]


def returned_from_a_loop(x, y):
    def first_above(v, limit):
        out = [0.0, -1.0]
        for i in range(len(v)):
            out[0] = v[i]
            out[1] = i
            if v[i] > limit:
                return out
        return out

    found = first_above([x, y, 3.0], 1.0)
    return found[0], found[1]


def concatenated(x, y):
    a = [x] + [y, 1.0]  # noqa: RUF005
    a += [2.0]
    b = a[1:3] * 2
    b[0] = 7.0
    return sum(a), sum(b), len(b), a[1]


def copied(x, y):
    a = [x, y]
    b = list(a)
    c = a[:]
    a[0] = 9.0
    return b[0], c[0], a[0]


def looked_at(x, y):
    a = [x, y, 1.0]
    t = min(a) + max(a) + len(a)
    p, *rest = a
    if x in a:
        t += 1.0
    a[1] = t
    return a[1], p, rest[0]


def arrays(x, y):
    out = np.zeros(3)
    m = np.zeros((2, 2))
    for i in range(2):
        out[i] = x * (i + 1)
        for j in range(2):
            m[i, j] += out[i] * y
    out[2] += out.shape[0] + m.ndim
    v = np.array([x, y])
    v[0] = 3.0
    return out[0] + out[1], out[2], m[1, 0] + m[0][1], v[0] + v[1]


def named(x, y):
    p = Pair(x, b=y)
    q = Pair(p.b) if x > 0 else Pair(p.a, 1.0)
    a, b = q
    for _ in range(3):
        q = Pair(q.b, 0.5 * q.a)
    return p.a + p[1], a, b, q.a, q.b


def nested(x, y):
    body = Body(Pair(x, y), mass=2.0)
    for _ in range(2):
        at = body.at
        body = Body(Pair(at.a + 0.1 * body.mass, at.b - y), body.mass)
    return body.at.a, body.at.b, body.mass


def of_functions(x, y):
    def turned(body):
        return Body(Pair(-body.at.b, body.at.a), body.mass)

    return turned(turned(Body(Pair(x, y)))).at.a, Scaled(x, factor=y).factor


def chosen_structure(x, y):
    bodies = (Body(Pair(x, y)), Body(Pair(y, 3.0), 4.0))
    i = 1 if x > y else 0
    return bodies[i].at.a, bodies[i].mass


def lists_in_structures(x, y):
    p = Pair([x, 1.0], y)
    return p.a[0] + p.a[1], p.b


FUNCTIONS = [
    filled_in_a_loop, added_to, changed_in_branches, looked_at_in_slices, index_of_a_loop,
    replaced_each_iteration, matrix,
    helpers_make_lists, early_return_of_a_list, returned_from_a_loop, concatenated, copied,
    looked_at, arrays, named, nested, of_functions, chosen_structure, lists_in_structures,
]  # fmt: skip


@pytest.mark.rows(
    "function",
    FUNCTIONS,
    ids=lambda f: f.__name__,
    slow="index_of_a_loop named returned_from_a_loop",
)
@given(x=NUMBERS, y=NUMBERS)
def test_compiled_function_gives_what_python_gives(function, x, y):
    for got, expected in zip(run(function, x, y), function(x, y), strict=True):
        assert float(got) == pytest.approx(float(expected), rel=1e-12, abs=1e-13, nan_ok=True)


def test_index_outside_a_list_raises_where_it_is_written_to():
    def outside(x):
        out = [x, x]
        i = int(x)
        out[i] = 1.0
        return out[0]

    assert run(outside, 1.0) == 1.0
    with pytest.raises(IndexError):
        run(outside, 2.0)


def test_a_nan_that_is_not_chosen_does_not_spread():
    def chosen(x):
        out = [x, math.nan]
        i = int(x)
        out[i] = 5.0
        return out[0]

    assert run(chosen, 0.0) == 5.0


# -- aliasing: programs at random ------------------------------------------------------------------

LISTS = st.sampled_from("abc")
PLACES = st.sampled_from(["0", "1", "-1"])
VALUES = st.sampled_from(["x", "y", "2.0", "a[0]", "b[1]", "c[0] + x", "sum(b)", "t[0][1]"])


def simple_statements():
    forms = [
        ("{} = [{}, {}]", LISTS, VALUES, VALUES),
        ("{} = {}", LISTS, LISTS),
        ("{}[{}] = {}", LISTS, PLACES, VALUES),
        ("{}[{}] = {}", LISTS, PLACES, VALUES),
        ("{}[{}] += {}", LISTS, PLACES, VALUES),
        ("{}[k] = {}", LISTS, VALUES),
        ("{} = list({})", LISTS, LISTS),
        ("{} = {}[:]", LISTS, LISTS),
        ("{} = {} if x > 1.0 else {}", LISTS, LISTS, LISTS),
        ("t = ({}, {})", LISTS, LISTS),
        ("t = ([{}, x], {})", VALUES, LISTS),
        ("{} = t[{}]", LISTS, PLACES),
        ("{} = same({})", LISTS, LISTS),
        ("{} = swapped({})", LISTS, LISTS),
        ("{}, {} = t", LISTS, LISTS),
        ("{} = t[k]", LISTS),
        ("m = [{}, list({})]", LISTS, LISTS),
        ("m[{}][{}] = {}", PLACES, PLACES, VALUES),
        ("m[k][{}] += {}", PLACES, VALUES),
        ("{} = m[k]", LISTS),
        ("{} = m[{}]", LISTS, PLACES),
        ("m[{}] = {}", PLACES, LISTS),
    ]
    return st.one_of(
        *(st.tuples(*parts).map(lambda p, form=form: [form.format(*p)]) for form, *parts in forms)
    )


def indented(lines):
    return [f"    {line}" for line in lines]


def blocks(inner):
    body = st.lists(inner, min_size=1, max_size=4).map(
        lambda parts: [line for part in parts for line in part]
    )
    return st.one_of(
        st.tuples(body, body).map(
            lambda b: ["if x > y:", *indented(b[0]), "else:", *indented(b[1])]
        ),
        body.map(lambda b: ["for _ in range(2):", *indented(b)]),
        body.map(lambda b: ["for v in c:", *indented(b)]),
        st.tuples(body, st.uuids()).map(
            lambda b: [
                f"n_{b[1].hex[:6]} = 0",
                f"while n_{b[1].hex[:6]} < 1.0 + abs(y):",
                *indented([*b[0], f"n_{b[1].hex[:6]} += 1"]),
            ]
        ),
        body.map(lambda b: ["for _ in range(3):", *indented([*b, "if a[0] > y:", "    break"])]),
    )


PROGRAMS = st.lists(
    st.recursive(simple_statements(), blocks, max_leaves=6), min_size=2, max_size=8
).map(lambda parts: [line for part in parts for line in part])
HELPERS = """
def same(v):
    return v

def swapped(v):
    w = [v[1], v[0]]
    return w

def f(x, y):
    a, b, c = [x, 1.0], [y, 2.0], [3.0, x * y]
    t, m = (a, [x, y]), [[1.0, x], [y, 2.0]]
    k = int(x > y)
"""


@pytest.mark.slow
def test_lists_are_shared_as_in_python_or_refused():
    compiled = Counter()

    @settings(max_examples=EXAMPLES, deadline=None)
    @given(PROGRAMS, st.sampled_from([(0.5, 2.0), (3.0, 1.5), (-1.0, 0.0)]))
    def check(lines, values):
        read = ("a[0], a[1], b[0], b[1], c[0], c[1]", "t[0][0], t[0][1], t[1][0], t[1][1]",
                "m[0][0], m[0][1], m[1][0], m[1][1]")  # fmt: skip
        result = f"return {', '.join(read)}"
        function = from_source(HELPERS + "\n".join(indented([*lines, result])) + "\n")
        try:
            got = run(function, *values)
        except KernelError:
            compiled[False] += 1
            return
        compiled[True] += 1
        assert [float(g) for g in got] == pytest.approx(function(*values), rel=1e-12, nan_ok=True)

    check()
    assert compiled[True] > 0.1 * compiled.total()


def test_lists_of_one_assignment_to_several_names_have_one_name_each():
    def f(x):
        a, (b, c) = [x, 1.0], ([[x, 2.0], [0.0, 0.0]], 3.0)
        a[0] += c
        b[1][int(c) - 2] = a[0]
        return a[0] + b[1][1] + b[0][0]

    assert run(f, 0.5) == f(0.5)


@pytest.mark.parametrize("text", ["a, b = p, 1.0", "a, b = c, d = [x, 1.0], 1.0"])
def test_lists_with_another_name_are_not_assigned_to(text):
    f = from_source(f"def f(x):\n    p = [x, 2.0]\n    {text}\n    a[0] = 5.0\n    return p[0]\n")
    with pytest.raises(KernelError, match="goes by another name"):
        run(f, 0.5)


def test_items_of_a_tuple_are_computed_before_the_loop_that_runs_over_it():
    """So a list that they are made of may be assigned to in its iterations."""

    def f(x):
        a = [x, 2.0, 3.0]
        for i, (item, by) in enumerate(((a[1], a[0]), (max(a), -1.0))):
            a[i] = item * by
            a[1] += a[0]
        for item in (a[2], a[int(abs(x))]):
            a[2] = a[2] * item - 1.0
        return a[0] + 10.0 * a[1] + 100.0 * a[2]

    for x in (0.5, -1.5, 2.5):
        assert run(f, x) == f(x)


@pytest.mark.rows("iterated", ["a", "zip(b, a)", "enumerate(a)", "reversed(a)", "(a, b)", "h(a)"])
def test_a_list_that_a_loop_reads_in_turns_is_not_assigned_to_in_them(iterated):
    f = from_source(
        "def h(v):\n    return v\n"
        f"def f(x):\n    a, b = [x, 2.0], (1.0, 3.0)\n    s = 0.0\n    for _ in {iterated}:\n"
        "        a[1] = 5.0\n    return a[1]\n"
    )
    with pytest.raises(KernelError):
        run(f, 0.5)
