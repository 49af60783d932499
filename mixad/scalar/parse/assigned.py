"""Definite assignment: a name is read only where every path to it has assigned it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from mixad.errors import KernelSyntaxError
from mixad.scalar.parse.integers import literal
from mixad.scalar.parse.names import assigned_names, body_of, parameter_names, walk_scope
from mixad.scalar.parse.text import SourceText

__all__ = ["check_assignment"]

Names = frozenset[str]

# Name -> 0 where it is assigned on every path, else the line at which a path without it joins.
State = dict[str, int]


def check_assignment(
    node: ast.FunctionDef, text: SourceText, captured: dict[str, Names], bound: str | None
) -> None:
    """Refuse a body where a name may be read before it is assigned, or whose end can be reached."""
    parameters = dict.fromkeys(parameter_names(node), 0)
    local = frozenset(assigned_names(body_of(node))) | parameters.keys()
    walk = _Forwards(text, captured, local - {bound})
    end = walk.block(node.body, parameters, None)
    if end is not None:
        raise KernelSyntaxError.at(
            text.locate(node.body[-1]),
            f"function {node.name!r} can end without a `return`: here is the end of such a path",
            "return a value on every path",
        )


@dataclass
class _Exits:
    """The states in which control leaves a loop by break, or its body by continue."""

    broken: list[State] = field(default_factory=list)
    continued: list[State] = field(default_factory=list)


@dataclass
class _Forwards:
    text: SourceText
    captured: dict[str, Names]
    local: Names

    def block(
        self, statements: Sequence[ast.stmt], state: State, loop: _Exits | None
    ) -> State | None:
        """Return the state after statements, or None if control does not get there."""
        current: State | None = state
        for s in statements:
            if current is None:
                return None
            current = self.statement(s, current, loop)
        return current

    def statement(self, s: ast.stmt, state: State, loop: _Exits | None) -> State | None:
        match s:
            case ast.If():
                self.read(s.test, state)
                taken = self.block(s.body, dict(state), loop)
                return _join_states(taken, self.block(s.orelse, dict(state), loop), s.lineno)
            case ast.While():
                endless = isinstance(s.test, ast.Constant) and bool(s.test.value)
                self.read(s.test, state)
                return self.loop(s, state, loop, at_least_once=endless, ends=not endless)
            case ast.For():
                self.read(s.iter, state)
                return self.loop(s, state, loop, at_least_once=_never_empty(s.iter), ends=True)
            case ast.Break() | ast.Continue():
                if loop is not None:
                    (loop.broken if isinstance(s, ast.Break) else loop.continued).append(state)
                return None
        return self.simple(s, state)

    def simple(self, s: ast.stmt, state: State) -> State | None:
        self.read(s, state)
        if isinstance(s, ast.AugAssign) and isinstance(s.target, ast.Name):
            self.use(s.target, s.target.id, state)
        if isinstance(s, ast.Return):
            return None
        if not (isinstance(s, ast.AnnAssign) and s.value is None):
            state.update(dict.fromkeys(assigned_names([s]), 0))
        return state

    def loop(
        self,
        s: ast.While | ast.For,
        state: State,
        outer: _Exits | None,
        *,
        at_least_once: bool,
        ends: bool,
    ) -> State | None:
        exits = _Exits()
        inside = dict(state)
        if isinstance(s, ast.For):
            inside.update(dict.fromkeys(assigned_names([s.target]), 0))
        iteration = self.block(s.body, inside, exits)
        for other in exits.continued:
            iteration = _join_states(iteration, other, s.lineno)
        finished = iteration if at_least_once else _join_states(iteration, state, s.lineno)
        if not ends:
            finished = None
        elif finished is not None:
            finished = self.block(s.orelse, finished, outer)
        for other in exits.broken:
            finished = _join_states(finished, other, s.lineno)
        return finished

    def read(self, node: ast.AST, state: State) -> None:
        for part in walk_scope([node]):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                self.use(part, part.id, state)
                for name in self.captured.get(part.id, ()):
                    self.use(part, name, state)

    def use(self, node: ast.Name, name: str, state: State) -> None:
        if name not in self.local or state.get(name) == 0:
            return
        line = state.get(name)
        hint = f"assign {name!r} on every path, for instance before that line"
        if line is None:
            message = f"{name!r} is read before it is assigned"
            hint = f"assign {name!r} first"
        else:
            source = self.text.text(line).strip()
            message = (
                f"{name!r} may be unassigned here: "
                f"not every path through line {line} (`{source}`) assigns it"
            )
        raise KernelSyntaxError.at(self.text.locate(node), message, hint)


def _join_states(a: State | None, b: State | None, line: int) -> State | None:
    if a is None or b is None:
        return dict(a) if b is None and a is not None else b
    return {name: _status(a.get(name), b.get(name), line) for name in {**a, **b}}


def _status(a: int | None, b: int | None, line: int) -> int:
    if a == 0 and b == 0:
        return 0
    return a or b or line


def _never_empty(node: ast.expr) -> bool:
    """Whether an iterable is a literal with at least one element."""
    if isinstance(node, ast.Tuple | ast.List):
        return any(not isinstance(e, ast.Starred) for e in node.elts)
    if not (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range"
    ):
        return False
    numbers = [literal(a) for a in node.args]
    if not 1 <= len(numbers) <= 3 or None in numbers or numbers[2:] == [0]:
        return False
    return bool(range(*(n for n in numbers if n is not None)))
