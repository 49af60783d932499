"""Whether a user's rule is linear: in tangents, or in cotangents.

The result of a rule that is not linear is no derivative, and its transpose depends on where it was
recorded. So a rule is recorded at four tangents that look random, and the transposes are compared:
those of a linear rule are one map, computed by the same operations with the same rounding. That is
enough where the recorded operations are linear themselves. Where this is not known, the rule may
have a constant term, or a step that its derivative does not see: then f(0) = 0 and f(t) = J t are
checked, as closely as rounding allows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Self, cast

import numpy as np

from mixad.backends.arrays import Array, is_scalar, library_of
from mixad.errors import TracerError
from mixad.namespace.array import ArrayTracer
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.linearity import linear_results
from mixad.tape.backward import backward
from mixad.tape.body import enter
from mixad.tape.cell import Cell
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import InputNode, RuleNode
from mixad.tape.tangents import carry_forward
from mixad.tape.tracer import Level, Origin, Tracer, without_level
from mixad.tape.writing import WriteNode
from mixad.transforms.returning import own_cotangent

__all__ = ["RecordedRule", "checked_rule", "trial"]

_Rule = Callable[[list[Tracer]], Sequence[Any]]

_OTHERS = (1, 2, 3)
"""Trials beside the first one."""


class RecordedRule(NamedTuple):
    """A rule recorded at some tangents, or cotangents: ``values``, of ``inputs`` of a level."""

    own: Level
    inputs: list[InputNode]
    values: Sequence[Any]

    @classmethod
    def at(
        cls,
        name: str,
        rule: _Rule,
        arrays: Sequence[Any],
        cells: Sequence[Cell],
        *,
        is_reverse: bool = True,
    ) -> Self:
        """Call a rule on arrays as inputs of a level, to be transposed, or pushed forward."""
        with Level(name, is_reverse=is_reverse) as own:
            pairs = zip(arrays, cells, strict=True)
            seeds = [enter(array, own, ArrayTracer, weak=cell.kind.weak) for array, cell in pairs]
            values = rule(seeds)
        return cls(own, [cast("InputNode", seed.origin.node) for seed in seeds], values)

    def transposed(self, cotangents: Sequence[Any]) -> list[Any]:
        """Return the transpose at cotangents of the values; None for zero."""
        pairs = zip(map(self._origin, self.values), cotangents, strict=True)
        seeds = [(origin, g) for origin, g in pairs if origin is not None and g is not None]
        return [found and found.value for found in backward(self.own, seeds, self.inputs)]

    def pushed(self, directions: Sequence[Sequence[Any]]) -> list[list[Any]]:
        """Return, for each direction, the tangents of the values from those of the inputs."""
        origins = [self._origin(value) for value in self.values]
        along = zip(*directions, strict=True)
        with Level(self.own.name, is_reverse=False) as own:
            seeds = [
                tuple([None if t is None else enter(t, own, ArrayTracer) for t in ts])
                for ts in along
            ]
            moving = [origin for origin in origins if origin is not None]
            duals = iter(carry_forward(self.own, own, moving, self.inputs, seeds))
            zero = (None,) * len(directions)
            found = [zero if origin is None else next(duals).tangents for origin in origins]
        return [[without_level(t, own) for t in tangents] for tangents in zip(*found, strict=True)]

    def _origin(self, value: Any) -> Origin | None:
        """Return where a value came from; None if it does not depend on the inputs."""
        depends = isinstance(value, Tracer) and self.own in value.origin.levels
        return value.origin if depends else None

    @property
    def is_linear(self) -> bool:
        """Whether all that was recorded is linear; False if not known."""
        waiting = [self._origin(value) for value in self.values if value is not None]
        seen = set()
        while waiting:
            origin = waiting.pop()
            if origin is None:
                return False
            if (id(origin.node), origin.output) not in seen:
                seen.add((id(origin.node), origin.output))
                if not _is_linear(origin, self.own):
                    return False
                if origin.node not in self.inputs:
                    waiting += [p for p in origin.node.parents if p and self.own in p.levels]
        return True


def _is_linear(origin: Origin, own: Level) -> bool:
    """Whether the node of a value is linear in all that depends on a level."""
    node = origin.node
    moving = [i for i, p in enumerate(node.parents) if p and own in p.levels]
    match node:
        case InputNode():
            return node.level is own
        case RuleNode():
            is_joint = node.rule.linear == "all" and len(moving) == len(node.parents)
            return is_joint or (node.rule.linear == "each" and len(moving) == 1)
        case WriteNode():
            return len(moving) == len(node.parents)
        case KernelNode():
            zeros = [i for i, a in enumerate(node.arguments) if is_scalar(a) and not a]
            program = node.call.passes[0]
            known = linear_results(program, frozenset(moving), frozenset(zeros))
            return known[node.outputs[origin.output].result]
    return False


def checked_rule(
    name: str, refusal: str, rule: _Rule, cells: Sequence[Cell], cotangents: Sequence[Any]
) -> tuple[RecordedRule, list[Any]]:
    """Record a rule; return the record, and what its transpose makes of the cotangents.

    The rule maps tracers, which stand for cells, to tracers, or to None for zero. TracerError if it
    is not linear; a lazy library's arrays are not compared.
    """
    if any(cell.library.is_lazy for cell in cells):
        recorded = RecordedRule.at(name, rule, [own_cotangent(cell, None) for cell in cells], cells)
        return recorded, recorded.transposed(cotangents)
    tangents = [trial(cell, k) for k, cell in enumerate(cells)]
    recorded = RecordedRule.at(name, rule, tangents, cells)
    pulled = recorded.transposed(cotangents)
    eps = max((_eps(a) for a in (*tangents, *recorded.values) if a is not None), default=0.0)
    is_linear = recorded.is_linear
    with np.errstate(all="ignore"):  # of numbers that are not the user's
        for number in _OTHERS:
            there = [trial(cell, k, number) for k, cell in enumerate(cells)]
            other = RecordedRule.at(name, rule, there, cells)
            _check_same(refusal, pulled, other.transposed(cotangents), eps ** (1 / 3))
            is_linear = is_linear and other.is_linear
        if not is_linear:
            zeros = [own_cotangent(cell, None) for cell in cells]
            at_zero = RecordedRule.at(name, rule, zeros, cells).values
            _check_small(refusal, at_zero, recorded.values, eps ** (2 / 3))
            forward = RecordedRule.at(name, rule, tangents, cells, is_reverse=False)
            _check_same(refusal, forward.pushed([tangents])[0], recorded.values, eps ** (1 / 3))
    return recorded, pulled


def trial(cell: Cell, argument: int, number: int = 0) -> Array:
    """Return numbers at which a rule is tried: positive about 1 for trial 0, others per argument.

    Trial 1: negative, 128 to 1024; 2: both signs, 1/1024 to 1/16; 3: positive, 128 to 1024. Orders,
    magnitudes and signs differ between trials, so a rule that chooses among tangents is found out.
    """
    size = math.prod(cell.shape)
    parts = [np.resize(_spread(argument + each, number), size) for each in (0.0, 0.5)]
    elements = parts[0] + 1j * parts[1] if cell.type.is_complex else parts[0]
    return cell.library.asarray(elements.reshape(cell.shape), cell.type, cell.device)


@lru_cache(maxsize=64)
def _spread(start: float, number: int) -> np.ndarray[Any, Any]:
    """Return the fractions of multiples of irrational numbers: numbers in no apparent order."""
    steps = np.arange(1.0, _PERIOD + 1) + math.sqrt(2.0) * start
    if number == 0:
        return 0.5 + steps * _GOLDEN % 1.0
    if number == 1:
        return -(2.0 ** (3.0 * ((steps * math.sqrt(3.0) + 0.44) % 1.0) + 7.0))
    if number == 3:
        return 2.0 ** (3.0 * ((steps * math.sqrt(5.0) + 0.13) % 1.0) + 7.0)
    signs = np.where((steps * math.sqrt(7.0) + 0.70) % 1.0 < 0.5, -1.0, 1.0)
    return signs * 2.0 ** (6.0 * ((steps * math.sqrt(11.0) + 0.06) % 1.0) - 10.0)


_PERIOD = 1009
"""After so many, a prime, the numbers of longer arrays repeat."""

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def _check_same(refusal: str, some: Sequence[Any], others: Sequence[Any], tolerance: float) -> None:
    """Refuse a rule if arrays differ that a linear rule would make the same."""
    for one, other in zip(some, others, strict=True):
        given = [_wide(each) for each in (one, other) if each is not None]
        if given:
            rest = given[0] - given[1] if len(given) == 2 else given[0]
            _check(refusal, rest, given[0], tolerance)


def _check_small(
    refusal: str, some: Sequence[Any], others: Sequence[Any], tolerance: float
) -> None:
    """Refuse a rule that does not give zero for zero."""
    for one, other in zip(some, others, strict=True):
        if one is not None:
            rest = _wide(one)
            _check(refusal, rest, rest if other is None else _wide(other), tolerance)


def _check(refusal: str, rest: Array, whole: Array, tolerance: float) -> None:
    """Refuse a rest that is more than rounding, where it is finite."""
    xp = library_of(rest).xp
    if bool(xp.any(rest != 0)):
        is_finite = xp.logical_and(xp.isfinite(rest), xp.isfinite(whole))
        if _largest(rest, is_finite) > tolerance * _largest(whole, is_finite):
            raise TracerError(refusal)


def _largest(array: Array, counted: Array) -> float:
    xp = library_of(array).xp
    magnitudes = xp.abs(array)
    return float(xp.max(xp.where(counted, magnitudes, xp.zeros_like(magnitudes))))


def _wide(value: Any) -> Array:
    """Return an array, or a tracer's, in the type in which its elements are computed."""
    array = value.cell.array if isinstance(value, Tracer) else value
    library, type = library_of(array), element_type_of(array.dtype)
    return library.xp.astype(array, library.dtype_of(type.arithmetic)) if type.is_narrow else array


def _eps(value: Any) -> float:
    """Return the spacing of numbers at 1 in the type of an array's elements."""
    type = element_type_of(value.dtype)
    bits = type.bits // 2 if type.is_complex else type.bits
    return 2.0 ** -(7 if type.brain else {16: 10, 32: 23, 64: 52}[bits])
