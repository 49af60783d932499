"""Which names are live and which are assigned, statement by statement.

Liveness (backwards) says what a branch must hand on and what a loop must carry.  Definite
assignment (forwards) refuses a name that some path to its use has not assigned.  Both are the
textbook data-flow equations on structured code; a loop needs no more than a second round.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from mixad.scalar.parse.code import FunctionNode
from mixad.scalar.parse.names import (
    assigned_names,
    body_of,
    nested_functions,
    parameter_names,
    walk_scope,
)

__all__ = ["Liveness", "breaks", "contains_return", "exits_always", "live_names", "may_exit",
           "nested_captures"]  # fmt: skip

Names = frozenset[str]
_NONE: Names = frozenset()


def reads(node: ast.AST | None, captured: dict[str, Names]) -> Names:
    """Return the names that an expression reads; naming a function reads what it captures."""
    found: set[str] = set()
    for part in walk_scope([node] if node is not None else []):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            found.add(part.id)
            found |= captured.get(part.id, _NONE)
        elif isinstance(part, ast.Lambda):
            found |= free_names(part)
    return frozenset(found)


def free_names(node: FunctionNode) -> Names:
    """Return the names that a function reads and does not assign."""
    body = body_of(node)
    found: set[str] = set()
    for part in walk_scope(body):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            found.add(part.id)
        elif isinstance(part, FunctionNode):
            found |= free_names(part)
    return frozenset(found - {*parameter_names(node), *assigned_names(body)})


def nested_captures(node: FunctionNode) -> dict[str, Names]:
    """Return, for each name of a nested function (or of a lambda), what calling it reads."""
    captured: dict[str, Names] = {}
    body = body_of(node)
    for inner in nested_functions(body):
        if isinstance(inner, ast.FunctionDef):
            captured[inner.name] = captured.get(inner.name, _NONE) | free_names(inner)
    for part in walk_scope(body):
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Lambda):
            for target in part.targets:
                if isinstance(target, ast.Name):
                    captured[target.id] = captured.get(target.id, _NONE) | free_names(part.value)
    return captured


@dataclass(frozen=True)
class Loop:
    """What is live at a loop's test, and after the loop."""

    head: Names
    after: Names


@dataclass
class Liveness:
    """Live names: after each statement, and at each loop, by the identity of the node."""

    after: dict[int, Names] = field(default_factory=dict)
    loops: dict[int, Loop] = field(default_factory=dict)


def live_names(node: FunctionNode, captured: dict[str, Names]) -> Liveness:
    """Return the liveness of a function's body."""
    liveness = Liveness()
    if isinstance(node, ast.FunctionDef):
        always = frozenset().union(*captured.values()) if captured else _NONE
        always |= frozenset().union(*map(free_names, nested_functions(list(node.body))))
        _Backwards(liveness, captured, always).block(node.body, _NONE, None)
    return liveness


@dataclass
class _Backwards:
    liveness: Liveness
    captured: dict[str, Names]
    always: Names

    def reads(self, node: ast.AST | None) -> Names:
        return reads(node, self.captured)

    def block(self, statements: Sequence[ast.stmt], after: Names, loop: Loop | None) -> Names:
        """Record what is live after each statement, and return what is live before the first."""
        live = after
        for statement in reversed(statements):
            self.liveness.after[id(statement)] = live | self.always
            live = self.names_before(statement, live, loop)
        return live

    def names_before(self, s: ast.stmt, after: Names, loop: Loop | None) -> Names:
        match s:
            case ast.Return():
                return self.reads(s.value)
            case ast.Break():
                return loop.after if loop else _NONE
            case ast.Continue():
                return loop.head if loop else _NONE
            case ast.If():
                taken, other = (self.block(b, after, loop) for b in (s.body, s.orelse))
                return self.reads(s.test) | taken | other
            case ast.While():
                return self.loop(s, self.reads(s.test), _NONE, after, loop)
            case ast.For():
                bound = frozenset(assigned_names([s.target]))
                return self.reads(s.iter) | self.loop(s, _NONE, bound, after, loop)
        assigned = _targets(s)
        return (after - assigned) | self.read_by(s)

    def loop(
        self, s: ast.While | ast.For, test: Names, bound: Names, after: Names, outer: Loop | None
    ) -> Names:
        head = test | self.block(s.orelse, after, outer)
        while True:
            inside = self.block(s.body, head, Loop(head, after)) - bound
            if inside <= head:
                break
            head |= inside
        self.liveness.loops[id(s)] = Loop(head | self.always, after | self.always)
        return head

    def read_by(self, s: ast.stmt) -> Names:
        if isinstance(s, ast.AugAssign):
            return self.reads(s) | frozenset(assigned_names([s.target]))
        if isinstance(s, ast.AnnAssign):
            return self.reads(s.value)
        return self.reads(s)


def _targets(s: ast.stmt) -> Names:
    if isinstance(s, ast.AnnAssign) and s.value is None:
        return _NONE
    return frozenset(assigned_names([s]))


def may_exit(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements can leave their block by break, continue or return."""
    return contains_return(statements) or _breaks_or_continues(
        statements, (ast.Break, ast.Continue)
    )


def breaks(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements can break the loop whose body they are."""
    return _breaks_or_continues(statements, (ast.Break,))


def contains_return(statements: Sequence[ast.stmt]) -> bool:
    """Whether statements can return from their function."""
    return any(
        isinstance(s, ast.Return)
        or (isinstance(s, ast.If | ast.While | ast.For) and contains_return([*s.body, *s.orelse]))
        for s in statements
    )


def _breaks_or_continues(statements: Sequence[ast.stmt], kinds: tuple[type, ...]) -> bool:
    for s in statements:
        if isinstance(s, kinds):
            return True
        if isinstance(s, ast.While | ast.For):
            if _breaks_or_continues(s.orelse, kinds):
                return True
        elif isinstance(s, ast.If) and _breaks_or_continues([*s.body, *s.orelse], kinds):
            return True
    return False


def exits_always(statements: Sequence[ast.stmt]) -> bool:
    """Whether control never reaches the end of statements."""
    for s in statements:
        if isinstance(s, ast.Return | ast.Break | ast.Continue):
            return True
        if isinstance(s, ast.If) and s.orelse and exits_always(s.body) and exits_always(s.orelse):
            return True
        if isinstance(s, ast.While) and _endless(s):
            return True
    return False


def _endless(s: ast.While) -> bool:
    """Whether a loop can only be left by return."""
    return isinstance(s.test, ast.Constant) and bool(s.test.value) and not breaks(s.body)
