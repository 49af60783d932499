"""Random well-typed programs, for tests that compare two ways of running one.

Every choice is asked of a `Choices`.  A seeded one gives the same program on every machine; one
that asks Hypothesis makes failing programs shrink, because False and the lowest number always stand
for the simpler alternative.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar

from mixad.scalar.build import Builder
from mixad.scalar.evaluate import constant
from mixad.scalar.interpret import is_exact
from mixad.scalar.ir import ArrayType, Atom, Const, Kind, Program, Var
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import ALL_TYPES, BOOL, F32, I32, ScalarType, integer_bounds
from mixad.scalar.verify import VerificationError, result_type, verify

__all__ = ["ALL_OPS", "ARRAY_EXTENT", "EXACT_OPS", "OF_DERIVATIVES", "Choices", "Recipe",
           "SeededChoices", "random_program", "special_values"]  # fmt: skip

T = TypeVar("T")

OF_DERIVATIVES = frozenset(
    {"circle_inversion", "direction_cosine", "div_zero", "mul_pow", "pow_log"}
)
"""Ops that come in with the derivatives of others."""

ALL_OPS = tuple(op.name for op in TABLE if op.name not in OF_DERIVATIVES)
"""Every op of the table but those."""

EXACT_OPS = tuple(n for n in ALL_OPS if is_exact(n) and None not in BY_NAME[n].partials)
"""The ops that have one right result, bit for bit, and all their derivatives."""

ARRAY_EXTENT = 5
"""Every axis of an array argument has this extent; generated indices stay below it."""


@dataclass(frozen=True)
class Recipe:
    """What random programs are made of.

    Attributes
    ----------
    ops : tuple of str
        Ops to choose from.
    types : tuple of ScalarType
        Types of params, constants and conversions.  Loop counters are ``i32`` and conditions
        ``bool`` in any case.
    statements : int
        At most this many statements in a block.
    depth : int
        How deep blocks nest.
    params, outputs : int
        At most this many; at least one.
    iterations : int
        At most this many iterations of a loop.
    uniforms : bool
        Whether some params are uniform.
    arrays : bool
        Whether there are array params, and loads from them.
    sums : bool
        Whether there is an accumulator of floats, the last output, and additions to it.
    """

    ops: tuple[str, ...] = ALL_OPS
    types: tuple[ScalarType, ...] = ALL_TYPES
    statements: int = 10
    depth: int = 3
    params: int = 4
    outputs: int = 6
    iterations: int = 4
    uniforms: bool = True
    arrays: bool = False
    sums: bool = False


class Choices(Protocol):
    """The source of choices for random programs."""

    def integer(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, both included."""
        ...

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        ...


class SeededChoices:
    """Pseudo-random choices: the same for the same seed, on every machine."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def integer(self, low: int, high: int) -> int:
        """Return a number from ``low`` to ``high``, all equally likely."""
        return self._random.randint(low, high)

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return self._random.random() < probability


def random_program(choices: Choices | int, recipe: Recipe | None = None) -> Program:
    """Return a random program; it passes `verify` and ends for all arguments.

    Parameters
    ----------
    choices : Choices or int
        Where choices come from, or the seed of pseudo-random ones.
    recipe : Recipe, optional
        What to make it of.

    Returns
    -------
    Program
        With at least one param and one output.

    Examples
    --------
    >>> random_program(7) == random_program(7)
    True
    """
    if isinstance(choices, int):
        choices = SeededChoices(choices)
    return verify(_Writer(choices, recipe or Recipe()).program())


def special_values(type: ScalarType) -> tuple[bool | int | float, ...]:
    """Return the values of a type where definitions tend to differ."""
    if type.is_bool:
        return (False, True)
    if type.is_integer:
        low, high = integer_bounds(type)
        return (0, 1, 2, 3, 7, high, high - 1, low, low + 1, constant(-1, type).value)
    digits, smallest = (24, -149) if type == F32 else (53, -1074)
    below_one = 1 - 2.0**-digits
    positive = (
        0.0, 1.0, 0.5, 1.5, 2.5, 3.0, below_one, 1 + 2.0 ** (1 - digits),
        2.0**smallest, 2.0 ** (smallest + digits - 1) * (1 - 2.0 ** (1 - digits)),
        2.0 ** (smallest + digits - 1), 2.0**digits - 1, 2.0**31, 2.0**32, 2.0**63, 2.0**64,
        below_one * 2.0 ** (127 if type == F32 else 1023) * 2, math.inf,
    )  # fmt: skip
    return (*positive, *(-x for x in positive), math.nan)


class _Writer:
    """Writes one program; ``scopes`` are the atoms that each open block can read."""

    def __init__(self, choices: Choices, recipe: Recipe) -> None:
        self.chance = choices.chance
        self.integer = choices.integer
        self.recipe = recipe
        self.builder = Builder("generated")
        self.scopes: list[list[Atom]] = [[]]
        self.arrays: list[tuple[Var, ArrayType]] = []
        self.accumulators: list[Var] = []
        self.unread: dict[Atom, None] = {}  # an ordered set: what nothing depends on yet
        # Few types in one program, so that values meet instead of being converted all the time.
        self.types = list(dict.fromkeys(self.choose(recipe.types) for _ in self.some(4)))
        accepted = {
            type: [name for name in recipe.ops if _accepts(name, type)]
            for type in (*self.types, BOOL, I32)
        }
        self.ops_of = {type: names for type, names in accepted.items() if names}

    def program(self) -> Program:
        for k in self.some(self.recipe.params):
            self.param(f"x{k}")
        if self.recipe.arrays:
            array = ArrayType(self.type(), self.integer(1, 2))
            self.arrays.append((self.builder.array_param("a", array), array))
        if self.recipe.sums:
            array = ArrayType(self.choose([t for t in self.recipe.types if t.is_float]), 1)
            self.accumulators.append(self.builder.accumulator("sums", array))
        self.statements(self.recipe.depth)
        outputs = self.late_first(self.scopes[0])[: self.recipe.outputs]
        return self.builder.finish([*outputs, *self.accumulators])

    def param(self, name: str) -> None:
        kind: Kind = "uniform" if self.recipe.uniforms and self.chance(0.2) else "lane"
        self.add([self.builder.param(name, self.type(), kind)])

    # -- choices ---------------------------------------------------------------------------------

    def choose(self, alternatives: Sequence[T]) -> T:
        return alternatives[self.integer(0, len(alternatives) - 1)]

    def some(self, most: int) -> Iterator[int]:
        """Count up from 0 at least once, and at most ``most`` times."""
        for k in range(most):
            if k and not self.chance(most / (most + 2)):
                return
            yield k

    def type(self) -> ScalarType:
        return self.choose(self.types)

    @property
    def visible(self) -> list[Atom]:
        return [atom for scope in self.scopes for atom in scope]

    def add(self, atoms: Sequence[Atom]) -> None:
        """Make atoms readable in the innermost block."""
        for atom in atoms:
            if atom not in self.scopes[-1]:
                self.scopes[-1].append(atom)
                self.unread[atom] = None

    def late_first(self, atoms: Sequence[Atom]) -> list[Atom]:
        """Order atoms, unread ones first, then the latest: they depend on most."""
        ordered = list(reversed(atoms))
        ordered.sort(key=lambda atom: atom not in self.unread)
        return ordered

    def read(self, atoms: Sequence[Atom]) -> Atom:
        """Choose an atom and count it as read."""
        atom = self.choose(atoms)
        self.unread.pop(atom, None)
        return atom

    def value(self, type: ScalarType) -> Atom:
        """Return an atom of a type: an existing one, a conversion of one, or a constant."""
        fitting = [atom for atom in self.visible if atom.type == type]
        unread = [atom for atom in fitting if atom in self.unread]
        if unread and self.chance(0.8):
            return self.read(unread)
        if fitting and self.chance(0.6):
            return self.read(fitting)
        others = [atom for atom in self.visible if atom.type != type]
        unread = [atom for atom in others if atom in self.unread]
        if others and self.chance(0.7):
            return self.builder.convert(self.read(unread or others), type)
        return self.constant(type)

    def constant(self, type: ScalarType) -> Const:
        if type.is_bool or self.chance(0.15):
            return self.builder.const(self.choose(special_values(type)), type)
        if type.is_integer:
            return self.builder.const(self.integer(0, 9), type)
        return self.builder.const(self.choose((0.25, 0.5, 1.0, 1.5, 2.0, 3.0)), type)

    # -- statements ------------------------------------------------------------------------------

    def statements(self, depth: int) -> None:
        most = self.recipe.statements
        # Inner blocks are shorter, or programs would grow exponentially with their depth.
        most = most if len(self.scopes) == 1 else max(most // 2, 1)
        for _ in self.some(most):
            if depth and self.chance(0.15):
                self.add(self.branch(depth - 1))
            elif depth and self.chance(0.15):
                self.add(self.loop(depth - 1))
            elif self.arrays and self.chance(0.2):
                self.add([self.load()])
            elif self.accumulators and self.chance(0.2):
                (array,) = self.accumulators
                self.builder.update(array, self.index(), value=self.value(array.type))
            else:
                self.add([self.equation()])

    def equation(self) -> Atom:
        common = [type for type in self.types if type in self.ops_of]
        type = self.choose(common if common and self.chance(0.8) else [*self.ops_of])
        name = self.choose(self.ops_of[type])
        if name == "where":
            return self.builder.op(name, self.value(BOOL), self.value(type), self.value(type))
        args = [self.value(type) for _ in range(BY_NAME[name].arity)]
        return self.builder.op(name, *args, type=self.stated_type(name, type))

    def stated_type(self, name: str, type: ScalarType) -> ScalarType | None:
        if name == "convert":
            return self.type()
        if name == "bitcast":
            # A float's bits as an integer would compare nans by their payload.
            return self.choose([t for t in ALL_TYPES if _same_width_number(t, type)])
        return None

    def load(self) -> Atom:
        array, type = self.choose(self.arrays)
        return self.builder.load(array, *(self.index() for _ in range(type.rank)))

    def index(self) -> Atom:
        extent = self.builder.const(ARRAY_EXTENT, I32)
        return self.builder.op("mod", self.value(I32), extent)

    @contextmanager
    def scope(self, atoms: Sequence[Atom]) -> Iterator[None]:
        self.scopes.append([])
        self.add(atoms)
        try:
            yield
        finally:
            self.scopes.pop()

    def nested_results(
        self, depth: int, results: Callable[[], Sequence[Atom]], carries: Sequence[Atom] = ()
    ) -> Sequence[Atom]:
        """Write the statements of a nested block and return its results."""
        with self.scope(carries):
            self.statements(depth)
            return results()

    def branch(self, depth: int) -> tuple[Atom, ...]:
        types: list[ScalarType] = []

        def then() -> Sequence[Atom]:
            results = self.late_first(self.scopes[-1])[: self.integer(1, 3)]
            types.extend(atom.type for atom in results)
            return results

        def orelse() -> Sequence[Atom]:
            return [self.value(type) for type in types]

        cond = self.value(BOOL)
        return self.builder.if_(
            cond,
            lambda: self.nested_results(depth, then),
            lambda: self.nested_results(depth, orelse),
        )

    def loop(self, depth: int) -> tuple[Atom, ...]:
        b = self.builder
        bound = self.loop_bound()
        inits = [self.value(self.type()) for _ in self.some(3)]

        def test(counter: Atom, *carries: Atom) -> Atom:
            below = b.op("lt", counter, bound)
            if not self.chance(0.25):
                return below
            return self.nested_results(0, lambda: [b.op("and", below, self.value(BOOL))], carries)[
                0
            ]

        def iteration(counter: Atom, *carries: Atom) -> Sequence[Atom]:
            def following() -> list[Atom]:
                return [
                    b.op("add", counter, b.const(1, I32)),
                    *(self.value(c.type) for c in carries),
                ]

            return self.nested_results(depth, following, (counter, *carries))

        return b.while_([b.const(0, I32), *inits], test, iteration)

    def loop_bound(self) -> Atom:
        """Return how many turns a loop takes: a constant, or a value that differs between lanes."""
        if self.chance(0.7):
            iterations = self.builder.const(self.recipe.iterations + 1, I32)
            return self.builder.op("mod", self.value(I32), iterations)
        return self.builder.const(self.integer(0, self.recipe.iterations), I32)


def _accepts(name: str, type: ScalarType) -> bool:
    """Whether an op takes arguments of a type (for ``where``, selects between such)."""
    types = (type,) * BY_NAME[name].arity
    if name == "where":
        return True
    if name == "bitcast" and type.is_float:
        return False
    try:
        result_type(name, types, stated=type)
    except VerificationError:
        return False
    return True


def _same_width_number(a: ScalarType, b: ScalarType) -> bool:
    return a.bits == b.bits and not a.is_bool
