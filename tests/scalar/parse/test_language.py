"""Traits of the language, one small function each."""

import enum
import functools
from typing import NamedTuple

import numpy as np
import parse_traits as traits
import pytest
from parse_compiled import from_source, run

import mixad
from mixad.scalar.types import F32, F64, I64, U64


def flat(value):
    return [float(v) for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.rows("function", traits.ONE_ARGUMENT, ids=lambda f: f.__name__)
@pytest.mark.rows("x", [0.0, 1.0, 1.5, -0.25, 2.0, -2.0])
def test_trait_gives_what_python_gives(function, x):
    assert flat(run(function, x)) == pytest.approx(flat(function(x)), nan_ok=True)


def test_numpy_functions_stand_for_operators():
    def f(x, n):
        return np.add(x, n) + np.multiply(x, 2) - np.subtract(1, x) + np.divide(n, 2)

    def g(x, n):
        return np.remainder(n, 3) + np.negative(x) + np.floor_divide(x, 2) + np.power(abs(x), n)

    for x, n in ((1.5, 3.0), (-2.0, 4.0)):
        assert run(f, x, n) == f(x, n)
        assert run(g, x, n) == pytest.approx(g(x, n))


def test_booleans_have_bitwise_operators():
    def f(x, y):
        return (x > 0) & (y > 0) | ~(x < y)

    assert [bool(run(f, x, 2.0)) for x in (1.0, -1.0, 3.0)] == [True, False, True]


def test_functions_behind_lru_cache_are_seen_through():
    assert run(functools.lru_cache(lambda x: x * 2), 1.0) == 2.0


def test_a_function_may_be_passed_one_that_calls_it():
    def apply(f, x):
        return f(x)

    assert run(lambda x: apply(lambda t: apply(lambda u: u * 2, t), x), 1.5) == 3.0


def scaled(x, scale=None, mode="plain"):
    if scale is None:
        scale = 2.0
    if mode == "square":
        return scale * x * x
    return scale * x if scale is not None and mode != "other" else x


def test_none_and_strings_are_known_when_a_function_is_compiled():
    assert run(lambda x: scaled(x), 3.0) == 6.0
    assert run(lambda x: scaled(x, 5.0), 3.0) == 15.0
    assert run(lambda x: scaled(x, mode="square"), 3.0) == 18.0
    assert run(lambda x: scaled(x, x, "other"), 3.0) == 3.0
    mode = "square"
    f = lambda x: scaled(x, mode=mode)  # noqa: E731
    assert run(f, 3.0) == 18.0
    mode = "plain"
    assert run(f, 3.0) == 6.0


class Method(enum.Enum):
    EULER = "euler"
    HEUN = "heun"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def stepped(x, method, level=Level.LOW, name="rk4"):
    if method is Method.EULER:
        return x
    if method == Method.HEUN and level != Level.HIGH:
        return 2.0 * x
    return 3.0 * x if name in ("rk4", "rk45") else 4.0 * x


def test_members_of_enumerations_and_strings_are_compared_when_a_function_is_compiled():
    cases = [(Method.EULER,), (Method.HEUN,), (Method.HEUN, Level.HIGH), (None, Level.LOW, "x")]
    for case in cases:
        assert run(lambda x: stepped(x, *case), 1.5) == stepped(1.5, *case)  # noqa: B023


class Line(NamedTuple):
    slope: float
    offset: float


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return self.scale * x


def test_named_tuples_and_objects_that_are_called():
    line, scaled = Line(2.0, 0.5), Scaled(3.0)

    def f(x):
        slope, offset = line
        return scaled(slope * x) + offset + line.slope + line[1] + len(line)

    assert run(f, 1.5) == f(1.5)
    assert run(Scaled(-2.0), 1.5) == -3.0
    scaled.scale = 5.0
    assert run(f, 1.5) == f(1.5)


def test_enumerate_starts_anywhere_and_zip_may_be_strict():
    def f(x):
        for i, (a, b) in enumerate(zip((1.0, 2.0), (x, 3.0), strict=True), start=2):
            x += i * a * b
        for i, a in enumerate((x, 1.0), 5):
            x += i * a
        return x

    assert run(f, 1.5) == f(1.5)


def test_literals_of_64_bits():
    assert run(lambda n: n + np.uint64(18446744073709551615), 0, types=(U64,)) == 2**64 - 1
    assert run(lambda n: n + -9223372036854775808, 5, types=(I64,)) == 5 - 2**63


def test_bounds_of_clip_may_be_none_and_have_names():
    x = 3.0
    for f in (
        lambda x: np.clip(x, None, 2), lambda x: np.clip(x, 4, None), lambda x: np.clip(x, 0, 1),
        lambda x: np.clip(x, min=4), lambda x: np.clip(x, a_min=0, a_max=2),
        lambda x: np.clip(a=x, max=2.5, min=0.5),
    ):  # fmt: skip
        assert run(f, x) == f(x)


def test_lines_after_the_end_of_all_paths_are_skipped():
    text = "def f(x):\n    while True:\n        if x > 1: return x\n        x += 1\n    return y\n"
    assert run(from_source(text), 0.0) == 2.0


def test_single_precision_is_kept():
    result = run(lambda x: x * 0.1 + 1 / 3, 0.5, types=(F32,))
    assert result == np.float32(0.5) * np.float32(0.1) + np.float32(1 / 3)
    assert result.dtype == F32.dtype
    assert run(lambda x, y: x * y, 0.5, 0.1, types=(F32, F64)).dtype == F64.dtype


FLAG, OFF, COUNT = True, False, 3
INVERTED = [
    lambda x: x * ~FLAG,
    lambda x: x * ~OFF,
    lambda x: x * ~True,
    lambda x: x * ~(COUNT < 4),
    lambda x: x * ~(COUNT in (1, 3)),
    lambda x: x * ~(not FLAG),
    lambda x: x * ~bool(COUNT),
    lambda x: x * ~(FLAG and OFF),
    lambda x: x * ~(FLAG if COUNT < 4 else OFF),
    lambda x: x * (~FLAG & 3) + (~(~FLAG) << 1),
]


@pytest.mark.rows("function", INVERTED, ids=range(len(INVERTED)))
@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
def test_python_bools_are_inverted_as_the_integers_that_they_are(function):
    assert run(function, 1.5) == function(1.5)
    expected = function(np.asarray([1.5, 2.0]))
    np.testing.assert_array_equal(mixad.broadcast(function)(np.asarray([1.5, 2.0])), expected)


@pytest.mark.filterwarnings("ignore:Bitwise inversion:DeprecationWarning")
def test_comparisons_of_arrays_are_inverted_as_booleans():
    x = np.asarray([1.0, 2.0])
    for function in (lambda x: x * ~(x < 1.5), lambda x: x * (~(x < 1.5) & ~FLAG)):
        np.testing.assert_array_equal(mixad.broadcast(function)(x), function(x))


@pytest.mark.parametrize("times", ["2", "0", "-1", "True", "(1 + 1)"])
def test_tuples_are_repeated_a_whole_number_of_times(times):
    for text in (f"(x, x + 1) * {times}", f"{times} * (x, x + 1)"):
        f = from_source(f"def f(x):\n    return sum({text})\n")
        assert run(f, 3.0) == f(3.0)
