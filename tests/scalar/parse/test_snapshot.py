"""What a function reads from outside: re-read at every call, and the key of what it means."""

import functools
import math
from enum import Enum

import numpy as np
import pytest
from parse_compiled import described, from_source, op_names, parsed, run

from mixad import special
from mixad.errors import KernelSyntaxError
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.parse.intrinsics import _KNOWN as KNOWN_FUNCTIONS
from mixad.scalar.parse.library import LIBRARY
from mixad.scalar.types import F32, F64, I64

GAIN = 2.0
OFFSETS = (1.0, 2.0)
TABLE = np.array([[1.0, 2.0], [3.0, 4.0]])


def scaled(x):
    return x * GAIN


def make(k):
    def inner(x):
        return x + k

    return inner, lambda value: change(inner, value)


def change(function, value):
    function.__closure__[0].cell_contents = value


def key(function):
    return read_function(function).snapshot(described).key


def test_rebinding_a_global_changes_the_result_and_not_the_key(monkeypatch):
    before = key(scaled)
    assert run(scaled, 3.0) == 6.0
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    assert key(scaled) == before
    assert run(scaled, 3.0) == 15.0


def test_one_program_serves_all_values_of_a_captured_scalar(monkeypatch):
    source = read_function(scaled)
    result = parse(source, [Argument(F64)], source.snapshot())
    monkeypatch.setitem(globals(), "GAIN", -1.0)
    assert source.snapshot().values(result) == (-1.0,)


@pytest.mark.parametrize("value", [2, True, np.float32(2), np.int64(2), "text", None, (2.0,)])
def test_the_type_of_a_captured_value_is_in_the_key(monkeypatch, value):
    before = key(scaled)
    monkeypatch.setitem(globals(), "GAIN", value)
    assert key(scaled) != before


def test_rebinding_a_cell_changes_the_result():
    function, rebind = make(1.0)
    assert run(function, 1.0) == 2.0
    rebind(10.0)
    assert run(function, 1.0) == 11.0


def test_captured_python_scalar_is_weak_and_numpy_scalar_is_strong():
    weak, strong = make(0.5)[0], make(np.float64(0.5))[0]
    assert parsed(weak, F32)[0].program.outputs[0].type == F32
    assert parsed(strong, F32)[0].program.outputs[0].type == F64
    assert [p.kind for p in parsed(weak, F32)[0].program.params] == ["lane", "uniform"]


def test_types_of_numbers_in_a_tuple_are_in_the_key_and_values_are_not(monkeypatch):
    def f(x):
        return x * OFFSETS[0]

    before = key(f)
    assert run(f, 2.0) == 2.0
    for value in ((3.0, 1.0), (-0.0, 2.0), (0.0, 2.0)):
        monkeypatch.setitem(globals(), "OFFSETS", value)
        assert key(f) == before
        assert str(run(f, 2.0)) == str(value[0] * 2.0)
    for value in ((1, 2), (True, 2.0), (np.float32(1), 2.0), (1.0,), ((1.0, 2.0), 1.0)):
        monkeypatch.setitem(globals(), "OFFSETS", value)
        assert key(f) != before
        before = key(f)


def test_types_and_lengths_of_long_tuples_and_lists_are_in_the_key(monkeypatch):
    def f(x):
        return x * OFFSETS[0]

    def key_with(value):
        monkeypatch.setitem(globals(), "OFFSETS", value)
        return key(f)

    assert key_with((1.0,) * 65) == key_with((2.0,) * 65)
    kinds = [(1.0,) * 65, [1.0] * 65, (1.0,) * 66, ((1.0,) * 60, (3.0,) * 5), (1,) + (1.0,) * 64]
    assert len(set(map(key_with, kinds))) == len(kinds)


def test_helpers_are_followed(monkeypatch):
    def f(x):
        return scaled(x) + 1

    before = key(f)
    assert run(f, 1.0) == 3.0
    monkeypatch.setitem(globals(), "GAIN", 7.0)
    assert run(f, 1.0) == 8.0
    monkeypatch.setitem(globals(), "scaled", lambda x: x - 1)
    assert key(f) != before
    assert run(f, 1.0) == 1.0


def test_a_helper_that_closes_over_another_value_shares_the_key_only_if_types_agree():
    def using(helper):
        return lambda x: helper(x)

    assert key(using(make(1.0)[0])) == key(using(make(2.0)[0]))
    assert key(using(make(1.0)[0])) != key(using(make(1)[0]))


def test_default_arguments_of_helpers_are_read_at_each_call():
    text = "def h(x, a=1.0, *, b=2.0):\n    return x * a + b\ndef f(x):\n    return h(x)\n"
    f = from_source(text)
    assert run(f, 3.0) == 5.0
    f.__globals__["h"].__defaults__ = (10.0,)
    assert run(f, 3.0) == 32.0


def test_functions_in_tuples_are_helpers():
    tower = (scaled, lambda x: x + 1, math.sin)

    def f(x):
        for step in tower:
            x = step(x)
        return x

    assert run(f, 3.0) == pytest.approx(math.sin(7.0))


class Model:
    gain = 3.0

    def __init__(self, shift):
        self.shift = shift
        self.inner = self
        self.__private = 0.25

    def apply(self, x):
        return self.helper(x) + self.inner.shift + self.__private

    def helper(self, x, extra=0.5):
        return x * self.gain + extra


def test_bound_methods_read_their_object_at_each_call():
    model = Model(1.0)
    assert run(model.apply, 2.0) == model.apply(2.0) == 7.75
    before = key(model.apply)
    model.shift, model.gain = 2.0, 4.0
    assert run(model.apply, 2.0) == model.apply(2.0)
    assert key(model.apply) == before
    assert key(Model(1.0).apply) == before  # what it reads from its object is in the key
    model.helper = lambda x: x
    assert key(model.apply) != before


def test_module_constants_are_constants():
    result, _ = parsed(lambda x: x * math.pi + np.e)
    assert not result.captures
    assert run(lambda x: x * math.pi, 1.0) == math.pi


def test_captured_array_that_is_indexed_is_an_array_param():
    def f(x, n):
        return x + TABLE[int(n), 1]

    result, snapshot = parsed(f)
    assert [p.kind for p in result.program.params] == ["lane", "lane", "array"]
    assert snapshot.values(result)[0] is TABLE
    assert run(f, 1.0, 1.0) == 5.0


def test_captured_array_that_is_not_indexed_is_a_lane():
    def f(x):
        return x + TABLE

    result, snapshot = parsed(f)
    assert [p.kind for p in result.program.params] == ["lane", "lane"]
    assert snapshot.values(result)[0] is TABLE


def test_an_array_is_not_read_where_the_test_before_it_fails():
    def f(x, n):
        return 1.0 if n < 2 and TABLE[0, int(n)] > x else 0.0

    result, _ = parsed(f)
    assert op_names(result.program).index("If") < op_names(result.program).index("Load")
    assert run(f, 0.0, 5.0) == 0.0
    assert run(f, 0.0, 1.0) == 1.0


def test_an_array_is_not_read_after_break():
    def f(x):
        i = 0
        while TABLE[0, i] < 10:
            i += 1
            if i == 2:
                break
        return i + x

    assert run(f, 0.0) == 2.0


def test_a_name_that_does_not_exist_is_refused_only_if_it_is_needed():
    f = from_source("def f(x):\n    if False:\n        return nothing\n    return x\n")
    assert run(f, 1.0) == 1.0


def test_special_functions_are_ops():
    result, _ = parsed(lambda x: special.sigmoid(x) + special.digamma(x))
    assert op_names(result.program) == ["sigmoid", "digamma", "add"]


def test_what_wraps_a_special_function_is_not_the_op():
    """`functools.wraps` copies the mark of an op to a function that computes something else."""

    @functools.wraps(special.sigmoid)
    def twice(x):
        return 2 * special.sigmoid(x)

    result, _ = parsed(lambda x: twice(x))
    assert op_names(result.program) == ["sigmoid", "mul"]


def test_a_helper_without_source_is_refused_at_the_call():
    space = {}
    exec("def h(x):\n    return x\n", space)
    h = space["h"]
    with pytest.raises(KernelSyntaxError, match="not available") as caught:
        parsed(lambda x: h(x))
    assert caught.value.location.line > 0


def test_snapshot_takes_microseconds():
    import timeit

    def f(x):
        return math.sin(scaled(x)) * GAIN + OFFSETS[0] + special.tanh(x)

    source = read_function(f)
    seconds = min(timeit.repeat(source.snapshot, number=100, repeat=5)) / 100
    assert seconds < 100e-6


def test_members_of_enumerations_are_in_the_key():
    class Mode(Enum):
        FAST = 1
        EXACT = 2

    def choosing(mode):
        return lambda x: x if mode == Mode.FAST else -x

    assert key(choosing(Mode.FAST)) == key(choosing(Mode.FAST)) != key(choosing(Mode.EXACT))


def test_functions_that_are_ops_are_told_apart_by_the_key():
    """Objects are numbered in the key, so what compiling looks up must be in it by itself."""

    def using(function):
        return lambda x: function(x)

    functions = [f for f in KNOWN_FUNCTIONS if f not in LIBRARY]
    assert len({key(using(f)) for f in functions}) == len(functions) > 100


def test_key_is_hashable():
    def f(x):
        return (lambda t: t)(x) + int(np.int64(1))

    assert isinstance(hash(key(f)), int)
    assert parsed(f, I64)[0].single
