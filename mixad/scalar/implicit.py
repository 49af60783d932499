"""Loops that go on until they converge, as the implicit function theorem needs them.

Where a loop has come to a fixed point of its step, x = S(x, θ), the derivative of x solves (I −
∂S/∂x) dx = ∂S/∂θ dθ: one iteration on dual numbers at the point that was reached, and a small
linear system, in place of dual numbers in every iteration (Christianson: "Reverse accumulation and
attractive fixed points", 1994; Griewank, Walther: "Evaluating Derivatives", 2nd ed., chapter 15).

Here is what is known without numbers: which loops are such loops, which iteration is the step (the
one after which the loop goes on), and whose derivative a result of the loop has.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

from mixad.errors import KernelGradientError
from mixad.scalar.ir import (
    Atom,
    Block,
    Const,
    Equation,
    If,
    Statement,
    Var,
    While,
    read_atoms,
    walk_statements,
    written_vars,
)

__all__ = ["MAX_UNKNOWNS", "Values", "closure", "convergence_tests", "converges",
           "dependent_groups", "going_on", "read_by", "reads_counters", "refuse_crowd",
           "refuse_total"]  # fmt: skip

MAX_UNKNOWNS = 8
"""Most values of a loop that may depend on each other: the unknowns of one linear system."""

Node = TypeVar("Node", bound=Hashable)

_Sources = frozenset[Var]
_NONE: _Sources = frozenset()
_ADVANCING = frozenset({"add", "sub", "mul", "div"})


# -- which loops -----------------------------------------------------------------------------------


def converges(carries: Sequence[Var], cond: Block, body: Block) -> bool:
    """Whether what a loop computes decides when it ends.

    Other loops count: integers decide, and floats that every iteration changes by the same number
    (``t += h``), whatever else they compute.
    """
    decide = _Deciding(carries, cond, body)
    return decide.computes(cond.results[0])


class _Deciding:
    """The values that decide when a loop ends."""

    def __init__(self, carries: Sequence[Var], cond: Block, body: Block) -> None:
        known = {carry: frozenset({carry}) for carry in carries}
        self.tested, self.turned = dict(known), dict(known)
        _sources(cond, self.tested)
        self.after = dict(zip(carries, _sources(body, self.turned), strict=True))
        self.results = dict(zip(carries, body.results, strict=True))
        self.body = body

    def computes(self, test: Atom) -> bool:
        """Whether a condition of the test depends on computed values, not on counters alone."""
        deciding = closure(_atom_sources(test, self.tested), self.after)
        return any(c.type.is_float and not self.advances(c) for c in deciding)

    def advances(self, carry: Var) -> bool:
        """Whether an iteration leaves a carry, or adds to or multiplies it by loop constants."""
        result = self.results[carry]
        made = next((s for s in self.body.statements if result in written_vars(s)), None)
        if result == carry:
            return True
        if not isinstance(made, Equation) or made.op not in _ADVANCING or carry not in made.args:
            return False
        others = [a for a in made.args if a != carry]
        in_order = made.op in ("add", "mul") or made.args[0] == carry
        return in_order and len(others) == 1 and not _atom_sources(others[0], self.turned)


def convergence_tests(loop: While) -> list[Atom]:
    """Return the conditions in a loop's test that its counters alone do not decide, if any.

    While all of them hold, it has not converged. The flag for ``break`` is one condition, computed
    if one of the exits is: a counter among the exits is part of it.
    """
    decide = _Deciding(loop.carries, loop.cond, loop.body)
    parts = _parts(loop.cond, loop.cond.results[0])
    computed = [part for part in parts if decide.computes(part)]
    return computed if len(computed) < len(parts) else []


def _parts(block: Block, atom: Atom) -> list[Atom]:
    """Return the conditions that all hold if a condition of a block does."""
    made = next((s for s in block.statements if atom in written_vars(s)), None)
    match made:
        case Equation(op="and", args=(x, y)):
            return [*_parts(block, x), *_parts(block, y)]
    return [atom]


def closure(start: Iterable[Node], after: Mapping[Node, Iterable[Node]]) -> set[Node]:
    """Return nodes of a graph with all that they depend on, step by step."""
    found: set[Node] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += after[node]
    return found


def _atom_sources(atom: Atom, sources: Mapping[Var, _Sources]) -> _Sources:
    return sources.get(atom, _NONE) if isinstance(atom, Var) else _NONE


def _sources(block: Block, sources: dict[Var, _Sources]) -> list[_Sources]:
    """Return the known variables that each result of a block depends on, conditions included."""
    for s in block.statements:
        for var, found in zip(written_vars(s), _sources_of(s, sources), strict=True):
            sources[var] = found
    return [_atom_sources(a, sources) for a in block.results]


def _sources_of(s: Statement, sources: dict[Var, _Sources]) -> list[_Sources]:
    read = _NONE.union(*(_atom_sources(a, sources) for a in read_atoms(s)))
    match s:
        case If():
            pairs = zip(_sources(s.then, sources), _sources(s.orelse, sources), strict=True)
            return [read | yes | no for yes, no in pairs]
        case While():
            sources.update(dict.fromkeys(s.carries, read))
            total = read.union(*_sources(s.cond, sources), *_sources(s.body, sources))
            return [total] * len(s.outs)
    return [read] * len(written_vars(s))


# -- which iteration -------------------------------------------------------------------------------


def going_on(loop: While) -> Mapping[Var, bool]:
    """Return the conditions of an iteration that have known values if the loop goes on after it.

    So ``if abs(step) < tol: break`` is no part of the step whose fixed point is sought.
    """
    tested: dict[Var, bool] = {}
    _suppose(loop.cond, loop.cond.results[0], True, tested, frozenset(loop.carries))
    facts: dict[Var, bool] = {}
    for carry, result in zip(loop.carries, loop.body.results, strict=True):
        if carry in tested:
            _suppose(loop.body, result, tested[carry], facts)
    return facts


def _suppose(
    block: Block,
    atom: Atom,
    value: bool,
    facts: dict[Var, bool],
    outside: frozenset[Var] = frozenset(),
) -> None:
    """Add the facts that follow, in a block or outside of it, from the value of a condition.

    What a nested block says of variables around it holds only if it runs, and is not added.
    """
    if isinstance(atom, Const):
        return
    made = next((s for s in block.statements if atom in written_vars(s)), None)
    if made is not None or atom in outside:
        facts[atom] = value
    match made:
        case Equation(op="not", args=(x,)):
            _suppose(block, x, not value, facts, outside)
        case Equation(op="and" | "or" as op, args=(x, y)) if value == (op == "and"):
            _suppose(block, x, value, facts, outside)
            _suppose(block, y, value, facts, outside)
        case If() | Equation(op="where"):
            _suppose_choice(block, made, atom, value, facts, outside)


def _suppose_choice(
    block: Block,
    made: If | Equation,
    atom: Var,
    value: bool,
    facts: dict[Var, bool],
    outside: frozenset[Var],
) -> None:
    """Add the facts that follow from the value of a condition which another one chooses."""
    cond, *branches = _choice(made, atom)
    for result, taken in zip(branches, (True, False), strict=True):
        if isinstance(result, Const) and result.value != value:
            _suppose(block, cond, not taken, facts, outside)
        elif isinstance(made, If):
            _suppose(made.then if taken else made.orelse, result, value, facts)


def _choice(made: If | Equation, atom: Atom) -> tuple[Atom, Atom, Atom]:
    """Return the condition that chooses a value, and its alternatives."""
    if isinstance(made, Equation):
        cond, yes, no = made.args
        return cond, yes, no
    at = [*made.outs].index(cast("Var", atom))
    return made.cond, made.then.results[at], made.orelse.results[at]


# -- whose derivative ------------------------------------------------------------------------------


class Values:
    """Which values the results of a convergence loop may be, told by the names of the program.

    ``function`` is the name of the user's function, for messages.
    """

    def __init__(self, loop: While, function: str) -> None:
        self.loop, self.function = loop, function
        self.known = going_on(loop)
        made = {var: s for s in walk_statements(loop.body) for var in written_vars(s)}
        self.steps = [_values(r, made, self.known) for r in loop.body.results]
        self.all = [_values(r, made, {}) for r in loop.body.results]

    def exit_values(self, output: int) -> set[Atom]:
        """Return the values of a result, beside its step, if an iteration leaves the loop."""
        return self.all[output] - self.steps[output] - {self.loop.carries[output]}

    def is_step_of(self, values: set[Atom], carry: int) -> bool:
        """Whether values are those of a carry before or after a step."""
        return values <= {self.loop.carries[carry], *self.steps[carry]}

    def stands_for(self, output: int) -> int:
        """Return the carry whose derivative a result has: its own, or the one that it returns.

        KernelGradientError if its value is no carry's while the loop goes on.
        """
        left = self.exit_values(output)
        if not left:
            return output
        return self.first_carry(
            output, (j for j in self.same_type_carries(output) if self.is_step_of(left, j))
        )

    def holder(self, carry: int) -> int:
        """Return the result that has the value of a carry where the loop ends.

        KernelGradientError if no result has it.
        """
        if not self.exit_values(carry):
            return carry
        holds = (
            k
            for k in self.same_type_carries(carry)
            if self.is_step_of(self.exit_values(k) or self.all[k], carry)
        )
        return self.first_carry(carry, holds)

    def same_type_carries(self, carry: int) -> list[int]:
        """Return the carries of the same type."""
        type = self.loop.carries[carry].type
        return [k for k, other in enumerate(self.loop.carries) if other.type == type]

    def first_carry(self, carry: int, candidates: Iterator[int]) -> int:
        """Return the first of some carries, or refuse."""
        for candidate in candidates:
            return candidate
        raise _refusal(
            self.loop,
            f"{self.function}: {_name(self.loop, carry)} becomes something else where this loop is "
            "left than in its iterations, and the implicit function theorem tells nothing of that",
            "leave the loop first, and compute it from what the loop leaves",
        )

    def may_stay(self, carry: int) -> bool:
        """Whether a step may leave a carry unchanged, as an end of a bracket that does not move."""
        return self.loop.carries[carry] in self.steps[carry]


def read_by(loop: While, carries: Iterable[int]) -> set[int]:
    """Return the carries, of any type, that an iteration reads to compute some."""
    index = {carry: i for i, carry in enumerate(loop.carries)}
    sources = _sources(loop.body, {carry: frozenset({carry}) for carry in loop.carries})
    return {index[var] for i in carries for var in sources[i]}


def reads_counters(loop: While, carry: int, solved: Collection[int]) -> bool:
    """Whether a carry's step reads changing variables that are not solved for."""
    return any(
        loop.body.results[j] != loop.carries[j] for j in read_by(loop, [carry]) if j not in solved
    )


def _values(atom: Atom, made: Mapping[Var, Statement], facts: Mapping[Var, bool]) -> set[Atom]:
    """Return the values that a carry may become, whatever conditions choose it."""
    found = made.get(atom) if isinstance(atom, Var) else None
    match found:
        case Equation(op="where") | If():
            cond, yes, no = _choice(found, atom)
        case _:
            return {atom}
    known = facts.get(cond) if isinstance(cond, Var) else None
    taken = [value for value, when in ((yes, True), (no, False)) if known in (None, when)]
    return set().union(*(_values(value, made, facts) for value in taken))


def dependent_groups(graph: Mapping[int, Iterable[int]]) -> list[list[int]]:
    """Return the nodes of a graph in groups that depend on each other, dependencies first.

    >>> dependent_groups({0: [0, 1], 1: [0], 2: [1]})
    [[0, 1], [2]]
    """
    reached = {node: closure(graph[node], graph) for node in graph}
    groups: dict[tuple[int, ...], int] = {}
    for node in graph:
        mutual = [other for other in graph if other in reached[node] and node in reached[other]]
        groups[tuple(mutual or [node])] = len(reached[node] | {node})
    return [list(group) for group in sorted(groups, key=lambda group: groups[group])]


# -- refusals --------------------------------------------------------------------------------------


def refuse_total(values: Values, index: int) -> KernelGradientError:
    """Return the refusal of a carry that every iteration adds to: it solves no equation."""
    return _refusal(
        values.loop,
        f"{values.function}: every iteration of this loop adds to {_name(values.loop, index)}, "
        "whatever it is: that is no step to a fixed point, which the implicit function theorem "
        "is about",
        'differentiate it iteration by iteration, with loops="unrolled"',
    )


def refuse_crowd(values: Values, unknowns: Sequence[int]) -> KernelGradientError:
    """Return the refusal of a system that is too large."""
    return _refusal(
        values.loop,
        f"{values.function}: {len(unknowns)} values of this loop depend on each other; the "
        f"implicit function theorem is applied to at most {MAX_UNKNOWNS}",
        'differentiate it iteration by iteration, with loops="unrolled"',
    )


def _refusal(loop: While, message: str, hint: str) -> KernelGradientError:
    place = loop.line.place if loop.line else None
    return KernelGradientError(message, location=place, hint=hint)


def _name(loop: While, index: int) -> str:
    name = loop.names[index] if loop.names else ""
    return f"'{name}'" if name.isidentifier() else name or "a value"
