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
from mixad.scalar.expected import agrees, known_results, same_bits
from mixad.scalar.generate import (
    ALL_OPS,
    ARRAY_EXTENT,
    EXACT_OPS,
    Recipe,
    random_program,
    special_values,
)
from mixad.scalar.ir import Program
from mixad.scalar.types import ScalarType

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["ALL_OPS", "EXACT_OPS", "Expected", "Recipe", "as_python_source", "assert_agrees",
           "expected_outputs", "programs", "random_arguments", "random_program",
           "same_bits"]  # fmt: skip

Values: TypeAlias = np.ndarray[Any, Any]

SPECIAL_SHARE = 0.25
"""Share of special values among random arguments."""

ITERATION_LIMIT = 1000
"""Iterations after which a loop of a test program counts as endless."""


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

    def draw_values(type: ScalarType, shape: tuple[int, ...]) -> Values:
        values = [_random_value(type, source) for _ in range(math.prod(shape))]
        return np.array(values, type.dtype).reshape(shape)

    def argument(param: Any) -> Any:
        if param.array is not None:
            return draw_values(param.var.type, (ARRAY_EXTENT,) * param.array.rank)
        return draw_values(param.var.type, (count,) if param.kind == "lane" else ())[()]

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
        A program without ``Update``.
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
    known = known_results(program, max_iterations=ITERATION_LIMIT)
    rows = [known(_element(program, arguments, i)) for i in range(count)]

    def columns(part: int) -> tuple[Values, ...]:
        return tuple(np.array([row[k][part] for row in rows]) for k in range(len(program.outputs)))

    return Expected(program, arguments, columns(0), columns(1), columns(2))


def _element(program: Program, arguments: Sequence[Any], index: int) -> tuple[Any, ...]:
    pairs = zip(program.params, arguments, strict=True)
    return tuple(a[index] if p.kind == "lane" else a for p, a in pairs)


# -- comparison ------------------------------------------------------------------------------------


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
        wrong = determined & ~agrees(values, got, tolerance)
        if wrong.any():
            at = int(np.argmax(wrong))
            allowed = f"within {tolerance[at]:.3g}" if tolerance[at] else "bit for bit"
            _fail(expected, at, f"output {k} is {got[at]!r}, expected {values[at]!r} {allowed}")


def _fail(expected: Expected, index: int, message: str) -> None:
    source = as_python_source(expected.program, expected.element(index))
    raise AssertionError(f"element {index}: {message}\n\n{source}")
