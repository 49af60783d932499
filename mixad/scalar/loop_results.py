"""Loop results that depend on an input through comparisons only, such as those of bisection.

Their derivative is zero: right for the code that ran, and rarely what was meant.  One walk over a
program collects facts about its variables.  A loop's result is *decided* by an input if a condition
in the loop, or the loop's test, looks at the input to choose it, while it has no partial derivative
at all and is no counter: neither an integer nor a float that only ever holds whole numbers.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce

from mixad.errors import ZeroDerivativeWarning
from mixad.scalar.activity import active_arguments
from mixad.scalar.ir import (
    Atom,
    Block,
    Equation,
    If,
    Line,
    Load,
    Program,
    Statement,
    Var,
    While,
    written_vars,
)
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ScalarType

__all__ = ["ComparisonOnlyResult", "decided_results", "warn_of_decided_results"]

Slots = frozenset[int]
_NONE: Slots = frozenset()

_WHOLE = frozenset({"floor", "ceil", "trunc", "rint", "sign", "floordiv"})
"""Ops whose results are whole numbers."""

_CLOSED = frozenset({"add", "sub", "mul", "neg", "abs", "mod", "fmod", "copysign", "minimum",
                     "maximum", "relu", "where", "convert"})  # fmt: skip
"""Ops whose results are whole numbers if their arguments are."""


@dataclass(frozen=True)
class ComparisonOnlyResult:
    """A loop with results that inputs decide through comparisons only."""

    function: str  # the user's function
    line: Line  # where the loop starts
    names: tuple[str, ...]  # the results
    inputs: tuple[str, ...]  # what the conditions look at

    def __str__(self) -> str:
        names = _join_words([n if n == RETURNED else repr(n) for n in self.names])
        verb = "depends" if len(self.names) == 1 else "depend"
        inputs = _join_words([repr(n) for n in self.inputs])
        constant = self.names[0] if RETURNED not in self.names else "..."
        number = self.line.users.number
        return (
            f"{self.function}, line {number}: {names} {verb} on {inputs} through the "
            "comparisons of this loop only, so the derivative is zero\n"
            "  Instead: go on from the result with one step of Newton's method, which has the "
            f"derivative of the root; mixad.stop_gradient({constant}) says that zero is meant"
        )

    def warn(self) -> None:
        """Warn at the user's line; Python's filters decide whether it is shown again."""
        line = self.line.users
        where = (line.filename, line.number)
        warnings.warn_explicit(str(self), ZeroDerivativeWarning, *where, registry=_SHOWN)


RETURNED = "the value returned in the loop"
"""Stands for the name of a loop's result that the function returns from inside the loop."""

_SHOWN: dict[str | tuple[str, type[Warning], int], int] = {}


def _join_words(words: Sequence[str]) -> str:
    return " and ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])


def warn_of_decided_results(
    program: Program, wrt: tuple[int, ...], outputs: tuple[int, ...]
) -> None:
    """Warn of each loop whose results have no derivative and perhaps should."""
    for found in decided_results(program, program.origin, wrt, outputs):
        found.warn()


@lru_cache(maxsize=1024)
def decided_results(
    program: Program, origin: str, wrt: tuple[int, ...], outputs: tuple[int, ...]
) -> tuple[ComparisonOnlyResult, ...]:
    """Return the loops of a program with results that inputs decide through comparisons only.

    Results count if ``outputs``, which are differentiated, depend on them. ``origin`` is for the
    cache: equal programs may have other lines.
    """
    walk = _Walk()
    for slot in wrt:
        own = frozenset({slot})
        walk.facts[program.params[slot].var] = Facts(partials=own, read=own, fraction=True)
    walk.block(program.body)
    reached = frozenset().union(*(walk.facts_of(program.outputs[m]).decided for m in outputs))
    # A result of an inner loop may have got a partial in a later iteration of the loop around it.
    return tuple(_reports(program, walk, reached & walk.decided.keys()))


def _reports(
    program: Program, walk: _Walk, reached: frozenset[Var]
) -> Iterator[ComparisonOnlyResult]:
    for loop in walk.loops.values():
        results = [(v, n) for v, n in zip(loop.outs, loop.names, strict=True) if v in reached]
        if results and loop.line is not None:
            slots = sorted(frozenset().union(*(walk.decided[v] for v, _ in results)))
            names = tuple(dict.fromkeys(n for _, n in results))
            inputs = tuple(program.params[slot].name for slot in slots)
            yield ComparisonOnlyResult(program.name, loop.line, names, inputs)


@dataclass(frozen=True)
class Facts:
    """What is known of a value."""

    partials: Slots = _NONE  # slots that it has a partial derivative with respect to
    read: Slots = _NONE  # slots that comparing it looks at
    chosen: Slots = _NONE  # slots that conditions of the loops around have looked at to choose it
    # The decided results of loops that it has a derivative with respect to.
    decided: frozenset[Var] = frozenset()
    fraction: bool = False  # whether it may be no whole number

    def __or__(self, other: Facts) -> Facts:
        return Facts(
            self.partials | other.partials,
            self.read | other.read,
            self.chosen | other.chosen,
            self.decided | other.decided,
            self.fraction or other.fraction,
        )

    def of_type(self, type: ScalarType) -> Facts:
        """Return the facts that remain for a type; integers are counters."""
        if type.is_float:
            return self
        return Facts(read=self.read) if type.is_bool else NOTHING


NOTHING = Facts()


class _Walk:
    """Facts about one program's variables; in a loop, those of its last iteration.

    `decided` has the slots that decide results of loops, `loops` the loops that have names, by
    their first result.
    """

    def __init__(self) -> None:
        self.facts: dict[Var, Facts] = {}
        self.decided: dict[Var, Slots] = {}
        self.loops: dict[Var, While] = {}
        self._depth = 0

    def facts_of(self, atom: Atom) -> Facts:
        """Return the facts about an atom; a variable from outside may be a fraction."""
        if isinstance(atom, Var):
            return self.facts.get(atom, Facts(fraction=True).of_type(atom.type))
        whole = not math.isfinite(atom.value) or float(atom.value).is_integer()
        return NOTHING if whole else Facts(fraction=True)

    def block(self, block: Block) -> None:
        for s in block.statements:
            for var, facts in zip(written_vars(s), self.results(s), strict=True):
                self.facts[var] = facts.of_type(var.type)

    def results(self, s: Statement) -> Sequence[Facts]:
        match s:
            case Equation():
                return [self.equation(s)]
            case If():
                self.block(s.then)
                self.block(s.orelse)
                chosen = self.choice(s.cond)
                pairs = zip(s.then.results, s.orelse.results, strict=True)
                return [self.facts_of(a) | self.facts_of(b) | chosen for a, b in pairs]
            case While():
                return self.loop(s)
            case Load():
                return [replace(self.facts_of(s.array), fraction=True)]
        return [Facts(fraction=True) for _ in written_vars(s)]

    def choice(self, cond: Atom) -> Facts:
        """Return the facts that a value gets from the condition that chooses it."""
        read = self.facts_of(cond).read
        return Facts(read=read, chosen=read if self._depth else _NONE)

    def equation(self, s: Equation) -> Facts:
        args = [self.facts_of(a) for a in s.args]
        if BY_NAME[s.op].result == "bool" or s.out.type.is_bool:
            return reduce(Facts.__or__, args)
        flowing = reduce(Facts.__or__, (args[i] for i in active_arguments[s.op]), NOTHING)
        if s.op == "where" or s.args[0].type.is_bool:
            flowing |= self.choice(s.args[0])
        fraction = s.op not in _WHOLE and (s.op not in _CLOSED or any(a.fraction for a in args))
        return replace(flowing, fraction=fraction)

    def loop(self, s: While) -> Sequence[Facts]:
        """Grow the facts about the carries until an iteration adds none."""
        self._depth += 1
        carried = [self.facts_of(a) for a in s.inits]
        grown = self.iteration(s, carried)
        while grown != carried:
            carried, grown = grown, self.iteration(s, grown)
        self._depth -= 1
        if s.names:
            self.loops[s.outs[0]] = s
        names = s.names or ("",) * len(s.outs)
        return [
            self.facts_after_loop(o, f, n) for o, f, n in zip(s.outs, carried, names, strict=True)
        ]

    def iteration(self, s: While, carried: Sequence[Facts]) -> list[Facts]:
        for carry, facts in zip(s.carries, carried, strict=True):
            self.facts[carry] = facts.of_type(carry.type)
        self.block(s.cond)
        self.block(s.body)
        tested = self.choice(s.cond.results[0])
        rows = zip(s.carries, carried, s.body.results, strict=True)
        return [
            before
            if after == carry
            else before | (self.facts_of(after) | tested).of_type(carry.type)
            for carry, before, after in rows
        ]

    def facts_after_loop(self, out: Var, facts: Facts, name: str) -> Facts:
        """Return the facts about a carry after the loop."""
        self.decided.pop(out, None)
        if name and out.type.is_float and facts.chosen and not facts.partials and facts.fraction:
            self.decided[out] = facts.chosen
            facts = replace(facts, chosen=_NONE, decided=facts.decided | {out})
        return facts if self._depth else replace(facts, chosen=_NONE)
