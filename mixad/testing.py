"""Tools to test a backend with: random programs, arguments for them, and the right results.

A backend is right when it computes what the reference interpreter computes.  Ops that have one
right result (`mixad.scalar.generate.EXACT_OPS`) are compared bit for bit.  The others may differ by
a few units in the last place, and then a comparison may go the other way and everything after it
be different.  So the interpreter runs such a program several times, with the results of inexact ops
displaced by more than the tolerance: where that changes a decision, or makes results scatter, the
result is not *determined* and is not compared; where it does not, the scatter is the tolerance.

::

    program = random_program(seed)
    arguments = random_arguments(program, seed, count=64)
    expected = expected_outputs(program, arguments)
    assert_agrees(expected, my_backend(program, arguments))
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mixad.scalar.as_python import as_python_source
from mixad.scalar.generate import (
    ALL_OPS,
    ARRAY_EXTENT,
    EXACT_OPS,
    Recipe,
    random_program,
    special_values,
)
from mixad.scalar.interpret import interpret, is_exact
from mixad.scalar.ir import Equation, Program, walk_statements
from mixad.scalar.types import ScalarType

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["ALL_OPS", "EXACT_OPS", "Expected", "Recipe", "as_python_source", "assert_agrees",
           "expected_outputs", "programs", "random_arguments", "random_program",
           "same_bits"]  # fmt: skip

Scalar: TypeAlias = Any
Values: TypeAlias = np.ndarray[Any, Any]

DISPLACEMENT = 16
"""Units in the last place by which results of inexact ops are displaced."""

PATTERNS = 5
"""Runs with displaced results: all up, all down, and each by an amount of its own.

With equal amounts only, displacements can cancel: in L/(L/x) the errors of L do not."""

MOST_SCATTER = {32: 1e-3, 64: 1e-9}
"""By width: elements whose results scatter more than this, relatively, are undetermined."""

SPECIAL_SHARE = 0.25
"""Share of special values among random arguments."""

TURN_LIMIT = 1000
"""Turns after which a loop of a test program is taken to be endless."""

_CANCELLING = {"lgamma", "digamma", "polygamma", "logaddexp"}
"""Inexact ops that are accurate in units of max(|x|, 1): they have roots where digits cancel."""


def programs(recipe: Recipe | None = None) -> SearchStrategy[Program]:
    """Return a Hypothesis strategy of random programs; failing ones shrink.

    Parameters
    ----------
    recipe : Recipe, optional
        What programs are made of; by default smaller ones than `random_program` makes.

    Returns
    -------
    SearchStrategy
        Of verified programs.
    """
    from hypothesis import strategies

    chosen = recipe or Recipe(statements=5, depth=2)

    @strategies.composite
    def program(draw: Callable[[SearchStrategy[int]], int]) -> Program:
        return random_program(_DrawnChoices(draw, strategies.integers), chosen)

    return program()


@dataclass(frozen=True)
class _DrawnChoices:
    """Choices that Hypothesis makes, and makes simpler."""

    draw: Callable[[SearchStrategy[int]], int]
    integers: Callable[[int, int], SearchStrategy[int]]

    def integer(self, low: int, high: int) -> int:
        return self.draw(self.integers(low, high))

    def chance(self, probability: float) -> bool:
        return self.integer(0, 99) >= 100 - round(100 * probability)


# -- arguments -------------------------------------------------------------------------------------


def random_arguments(program: Program, seed: int, count: int) -> tuple[Any, ...]:
    """Return random arguments, special values among them.

    Parameters
    ----------
    program : Program
        What they are for.
    seed : int
        The same seed gives the same arguments.
    count : int
        Number of elements.

    Returns
    -------
    tuple
        One per param: an array of shape ``(count,)`` for a lane, a NumPy scalar for a uniform, and
        for an array param one with `ARRAY_EXTENT` elements along each axis.
    """
    source = random.Random(seed)

    def drawn(type: ScalarType, shape: tuple[int, ...]) -> Values:
        values = [_random_value(type, source) for _ in range(math.prod(shape))]
        return np.array(values, type.dtype).reshape(shape)

    def argument(param: Any) -> Any:
        if param.array is not None:
            return drawn(param.var.type, (ARRAY_EXTENT,) * param.array.rank)
        return drawn(param.var.type, (count,) if param.kind == "lane" else ())[()]

    return tuple(map(argument, program.params))


def _random_value(type: ScalarType, source: random.Random) -> bool | int | float:
    if type.is_bool or source.random() < SPECIAL_SHARE:
        return source.choice(special_values(type))
    if type.is_integer:
        low, high = (-20, 20) if type.kind == "int" else (0, 40)
        return source.randint(low, high)
    magnitude = 10.0 ** source.uniform(-3, 3) if source.random() < 0.3 else source.uniform(0, 4)
    return source.choice((-1, 1)) * magnitude


# -- the right results -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What a program computes for arguments, and how exactly that is known.

    Attributes
    ----------
    program : Program
        The program.
    arguments : tuple
        As `random_arguments` makes them.
    values : tuple of arrays
        The outputs, each of shape ``(count,)``.
    tolerance : tuple of arrays
        For each output, by how much each element may differ; 0 asks for the same bits.
    determined : tuple of arrays of bool
        For each output, where results are to be compared.
    """

    program: Program
    arguments: tuple[Any, ...]
    values: tuple[Values, ...]
    tolerance: tuple[Values, ...]
    determined: tuple[Values, ...]

    @cached_property
    def discarded(self) -> float:
        """Share of results that are not compared.

        Returns
        -------
        float
            From 0 to 1.
        """
        return 1.0 - float(np.mean(self.determined)) if self.determined else 0.0

    def element(self, index: int) -> tuple[Any, ...]:
        """Return the arguments of one element.

        Parameters
        ----------
        index : int
            Which.

        Returns
        -------
        tuple
            One per param.
        """
        return _element(self.program, self.arguments, index)


def expected_outputs(program: Program, arguments: Sequence[Any]) -> Expected:
    """Run the interpreter for every element.

    Parameters
    ----------
    program : Program
        A program without ``Accumulate``.
    arguments : sequence
        As `random_arguments` makes them; at least one lane.

    Returns
    -------
    Expected
        The results, their tolerance, and where they are determined.
    """
    arguments = tuple(arguments)
    lanes = [a for a, p in zip(arguments, program.params, strict=True) if p.kind == "lane"]
    count = len(lanes[0]) if lanes else 1
    names = {s.op for s in walk_statements(program.body) if isinstance(s, Equation)}
    results = _exactly if all(map(is_exact, names)) else _scattered
    rows = [results(program, _element(program, arguments, i)) for i in range(count)]

    def columns(part: int) -> tuple[Values, ...]:
        return tuple(np.array([row[k][part] for row in rows]) for k in range(len(program.outputs)))

    return Expected(program, arguments, columns(0), columns(1), columns(2))


_Result: TypeAlias = tuple[Scalar, float, bool]
"""A result, its tolerance, and whether it is determined."""


def _element(program: Program, arguments: Sequence[Any], index: int) -> tuple[Any, ...]:
    pairs = zip(program.params, arguments, strict=True)
    return tuple(a[index] if p.kind == "lane" else a for p, a in pairs)


def _exactly(program: Program, arguments: Sequence[Any]) -> list[_Result]:
    return [(v, 0.0, True) for v in interpret(program, arguments, max_turns=TURN_LIMIT)]


def _scattered(program: Program, arguments: Sequence[Any]) -> list[_Result]:
    """Return an element's results; four times their scatter is the tolerance."""
    plain = _Witness(lambda: 0)
    values = interpret(program, arguments, max_turns=TURN_LIMIT, watch=plain)
    spread = [0.0] * len(values)
    for pattern in range(PATTERNS):
        witness = _Witness(_amounts(pattern))
        displaced = interpret(program, arguments, max_turns=TURN_LIMIT, watch=witness)
        if witness.decisions != plain.decisions:
            return [(v, 0.0, False) for v in values]
        apart = map(_distance, values, displaced)
        spread = [max(pair) for pair in zip(spread, apart, strict=True)]
    return [(v, 4.0 * s, _is_small(s, v)) for s, v in zip(spread, values, strict=True)]


def _amounts(pattern: int) -> Callable[[], int]:
    if pattern < 2:
        return lambda: (DISPLACEMENT, -DISPLACEMENT)[pattern]
    source = random.Random(pattern)
    return lambda: source.randint(-DISPLACEMENT, DISPLACEMENT)


class _Witness:
    """Displaces what inexact ops return, and records what is decided from floats."""

    def __init__(self, amount: Callable[[], int]) -> None:
        self.amount = amount
        self.decisions: list[object] = []

    def __call__(self, equation: Equation, result: Scalar) -> Scalar:
        if equation.args[-1].type.is_float and not equation.out.type.is_float:
            self.decisions.append(result.item())
        if is_exact(equation.op):
            return result
        return _displaced(equation.op, result, self.amount())


def _displaced(name: str, value: Scalar, units: int) -> Scalar:
    """Move a value by units in the last place; what has no neighbours stays.

    The sign of a nan, which `signbit` and `copysign` read, is the processor's or the library's.
    """
    if np.isnan(value) and units:
        return np.copysign(value, value.dtype.type(units))
    if not np.isfinite(value) or (value == 0 and name not in _CANCELLING):
        return value
    size = np.maximum(abs(value), value.dtype.type(1)) if name in _CANCELLING else abs(value)
    return value + value.dtype.type(units) * np.spacing(size)


def _distance(a: Scalar, b: Scalar) -> float:
    if same_bits(a, b):
        return 0.0
    distance = abs(float(a) - float(b)) if a.dtype.kind == "f" else math.inf
    return math.inf if math.isnan(distance) else distance


def _is_small(spread: float, value: Scalar) -> bool:
    if value.dtype.kind != "f" or spread == 0:
        return spread == 0
    return spread <= MOST_SCATTER[8 * value.dtype.itemsize] * abs(float(value))


# -- comparison ------------------------------------------------------------------------------------


def same_bits(a: Any, b: Any) -> Any:
    """Whether values are the same bit for bit; any nan is the same as any other.

    Parameters
    ----------
    a, b : NumPy arrays or scalars
        Of one dtype; otherwise they are different.

    Returns
    -------
    bool or array of bool
        Element by element.
    """
    if a.dtype != b.dtype:
        return np.zeros(np.broadcast_shapes(a.shape, b.shape), bool)[()]
    equal = a == b
    if a.dtype.kind != "f":
        return equal
    return (equal & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))


def assert_agrees(expected: Expected, outputs: Sequence[Any]) -> None:
    """Fail, with the program as Python source, where outputs differ from what is expected.

    Parameters
    ----------
    expected : Expected
        From `expected_outputs`.
    outputs : sequence of NumPy arrays
        What the backend computed: one array of shape ``(count,)`` per output.

    Raises
    ------
    AssertionError
        Naming the output and the first differing element.
    """
    wanted = zip(expected.values, expected.tolerance, expected.determined, outputs, strict=True)
    for k, (values, tolerance, determined, got) in enumerate(wanted):
        if got.dtype != values.dtype or got.shape != values.shape:
            _fail(
                expected,
                0,
                f"output {k} is {got.dtype}{got.shape}, not {values.dtype}{values.shape}",
            )
        wrong = determined & ~_agrees(values, got, tolerance)
        if wrong.any():
            at = int(np.argmax(wrong))
            allowed = f"within {tolerance[at]:.3g}" if tolerance[at] else "bit for bit"
            _fail(expected, at, f"output {k} is {got[at]!r}, expected {values[at]!r} {allowed}")


def _agrees(values: Values, got: Values, tolerance: Values) -> Values:
    with np.errstate(all="ignore"):
        near = np.abs(values.astype("f8") - got.astype("f8")) <= tolerance
        same: Values = same_bits(values, got) | ((tolerance > 0) & near)
        return same


def _fail(expected: Expected, index: int, message: str) -> None:
    source = as_python_source(expected.program, expected.element(index))
    raise AssertionError(f"element {index}: {message}\n\n{source}")
