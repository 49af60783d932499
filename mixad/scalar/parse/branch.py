"""Two paths that meet: `if`, and statements after an exit that may have been taken."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial

from mixad.errors import KernelError
from mixad.scalar.build import Draft
from mixad.scalar.evaluate import constant
from mixad.scalar.ir import Atom, Const, Line, Load, While, walk_statements
from mixad.scalar.parse.analysis import exits_always, may_exit
from mixad.scalar.parse.frame import Frame, State, is_false
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values.record import Record
from mixad.scalar.parse.values.value import BoundName, Mismatch, Value, describe_kind
from mixad.scalar.promotion_rules import Rules
from mixad.scalar.types import BOOL

__all__ = ["Path", "is_guarded", "levels_left", "one_kind", "run_block", "select", "unless"]


_DEEPEST = 120
"""Levels of conditions: Python allows about 1000 calls in one another, a level takes six."""


class Path:
    """One of two paths: the block it writes, its results, and the state at its end.

    A result is None where nothing reads it if this path was taken.  ``node`` is for the refusal of
    paths that are too many in one another.
    """

    def __init__(self, frame: Frame, node: Located, work: Callable[[], object]) -> None:
        if levels_left(frame) <= 0:
            raise _too_deep(frame, node)
        self.frame = frame
        self.draft = Draft()
        self.atoms: list[Atom | None] = []
        self.start = frame.builder.fresh(BOOL).id  # what is younger is not visible outside
        frame.context.depth += 1
        with frame.builder.writing(self.draft), frame.branch(frame.state):
            work()
            self.state: State = frame.state
        frame.context.depth -= 1

    def give(self, value: Value | None, like: Value, node: Located) -> None:
        """Add a value, in the types of a prototype, to the block's results."""
        if value is None:
            self.atoms += [None] * len(like.zeros())
            return
        with self.frame.builder.writing(self.draft):
            self.atoms += value.atoms(self.frame, like, node)


def levels_left(frame: Frame) -> int:
    """Return how many conditions can be nested in one another from here."""
    return _DEEPEST - frame.context.depth


def _too_deep(frame: Frame, node: Located) -> KernelError:
    return frame.error(
        node,
        f"conditions are nested {_DEEPEST} deep here, as deep as can be compiled: what follows "
        "an `elif`, or an `if` that returns, is inside its `else`",
        "`if`s that assign to a name, one after the other, or a loop over a captured array",
    )


def is_guarded(draft: Draft) -> bool:
    """Whether what has been written must run only where Python runs it.

    An index may be outside where it is not needed, a loop may not end there.
    """
    return any(isinstance(s, Load | While) for s in walk_statements(draft.block(())))


def run_block(frame: Frame, statements: Sequence[ast.stmt]) -> None:
    """Compile statements; what follows an exit that may have been taken runs only if it was not."""
    for i, s in enumerate(statements):
        frame.builder.line = frame.with_call(frame.info.text.line(s))
        if isinstance(s, ast.If):
            if _run_if(frame, s, statements[i + 1 :]):
                return
        else:
            execute = frame.context.statements.get(type(s))
            if execute is None:
                raise frame.unsupported_error(s)
            execute(frame, s)
        if frame.state.ended:
            return
        exited = frame.is_left()
        if not is_false(exited):
            rest = statements[i + 1 :]
            if rest:
                live = _live_after(frame, rest[-1], [s, *rest])
                unless(frame, s, exited, partial(run_block, frame, rest), live)
            return


def _run_if(frame: Frame, s: ast.If, rest: Sequence[ast.stmt]) -> bool:
    """Compile an `if`; return whether ``rest``, what follows it, was compiled as part of it.

    A branch that always leaves the block does not meet the other one again, so what follows
    belongs to the other branch.
    """
    cond = frame.truth(s.test)
    if isinstance(cond, Const):
        run_block(frame, s.body if cond.value else s.orelse)
        return False
    body, orelse = list(s.body), list(s.orelse)
    takes_rest = exits_always(body) or exits_always(orelse)
    if takes_rest:
        if exits_always(body):
            orelse += rest
        else:
            body += rest
    line = frame.builder.line
    paths = [Path(frame, s, partial(run_block, frame, b)) for b in (body, orelse)]
    last = rest[-1] if takes_rest and rest else s
    _meet(frame, s, cond, paths[0], paths[1], _live_after(frame, last, [*body, *orelse]), line)
    return takes_rest


def unless(
    frame: Frame, node: ast.stmt, exited: Atom, work: Callable[[], object], live: frozenset[str]
) -> None:
    """Compile ``work`` so that it runs unless ``exited`` holds."""

    def going_on() -> None:
        frame.state.exits.clear()
        frame.state.ended = False
        work()

    line = frame.builder.line
    if is_false(exited):
        going_on()
    else:
        skipped, going = Path(frame, node, lambda: None), Path(frame, node, going_on)
        skipped.state.ended = True
        _meet(frame, node, exited, skipped, going, live, line)


def _live_after(frame: Frame, last: ast.stmt, inside: Sequence[ast.stmt]) -> frozenset[str]:
    live = frame.info.liveness.after[id(last)]
    return live | frame.loop_head | frame.loop_after if may_exit(inside) else live


def _meet(
    frame: Frame,
    node: ast.stmt,
    cond: Atom,
    yes: Path,
    no: Path,
    live: frozenset[str],
    line: Line | None,
) -> None:
    """Continue with the state of whichever path is taken."""
    names = [n for n in {**yes.state.names, **no.state.names} if n in live]
    bound: list[tuple[BoundName | None, BoundName | None]] = [
        (yes.state.names.get(n), no.state.names.get(n)) for n in names
    ]
    bound.append((yes.state.result, no.state.result))
    prototypes = [
        _prototype(frame, node, name, *pair)
        for name, pair in zip([*names, None], bound, strict=True)
    ]
    for (a, b), like in zip(bound, prototypes, strict=True):
        if like is not None:
            yes.give(a and a.value, like, node)
            no.give(b and b.value, like, node)
    kinds = list({**yes.state.exits, **no.state.exits})
    for path in (yes, no):
        path.atoms += [path.state.exits.get(k) or Const(False, BOOL) for k in kinds]
    atoms = iter(select(frame, cond, yes, no, line))
    merged = [
        None if like is None else BoundName(like.rebuilt(atoms), (a or b).line)  # type: ignore[union-attr]
        for (a, b), like in zip(bound, prototypes, strict=True)
    ]
    frame.state = State(
        {n: b for n, b in zip(names, merged[:-1], strict=True) if b is not None},
        dict(zip(kinds, atoms, strict=True)),
        merged[-1],
        yes.state.ended and no.state.ended,
    )


def _prototype(
    frame: Frame, node: Located, name: str | None, a: BoundName | None, b: BoundName | None
) -> Value | None:
    """Return the prototype of what a name holds after two paths; None is the name of the result."""
    if a is None or b is None:
        one = a or b
        return None if one is None else one.value.prototype()
    try:
        return a.value.prototype().join(frame.context.rules, b.value.prototype())
    except Mismatch:
        what = "the result" if name is None else repr(name)
        what, x, y = _find_differing(frame.context.rules, what, a.value, b.value)
        raise frame.type_error(
            node,
            f"{what} is {describe_kind(x)} on one path (line {a.line}) "
            f"and {describe_kind(y)} on the other (line {b.line})",
            one_kind(x, y, "give both paths values of one type"),
        ) from None


def _find_differing(rules: Rules, what: str, a: Value, b: Value) -> tuple[str, Value, Value]:
    """Return what has no common type, inside of tuples that differ in their elements only."""
    if a.elements() is not None and a.same_form(b):
        for at, (one, other) in enumerate(zip(a.parts(), b.parts(), strict=True)):
            try:
                one.prototype().join(rules, other.prototype())
            except Mismatch:
                return _find_differing(rules, f"element {at} of {what}", one, other)
    return what, a, b


def one_kind(a: Value, b: Value, otherwise: str) -> str:
    """Return what to write instead of values that have no common type."""
    if a.is_called or b.is_called:
        return "call the function in each case, and choose between the results"
    if isinstance(a, Record) and isinstance(b, Record) and a.kind is b.kind:
        fields = zip(a.static, b.static, strict=True)
        differ = [repr(name) for (name, one), (_, other) in fields if one != other]
        if differ:
            return f"give both the same value of the static field {differ[0]}"
    if {a.describe().partition(" ")[0], b.describe().partition(" ")[0]} == {"array", "list"}:
        return "a list in both cases, such as list(w), or an array, such as np.array([x, y])"
    return otherwise


def select(frame: Frame, cond: Atom, yes: Path, no: Path, line: Line | None) -> list[Atom]:
    """Add the `if` whose blocks two paths have written; return the atoms of the path taken."""
    pairs = [_pair(cond, a, b, yes.start) for a, b in zip(yes.atoms, no.atoms, strict=True)]
    different = list(dict.fromkeys(p for p in pairs if p[0] != p[1]))
    if not different:
        return [a for a, _ in pairs]
    then, orelse = (path.draft.block([p[i] for p in different]) for i, path in enumerate((yes, no)))
    before, frame.builder.line = frame.builder.line, line
    outs = frame.builder.add_if(cond, then, orelse, line)
    frame.builder.line = before
    chosen = dict(zip(different, outs, strict=True))
    return [chosen.get(p, p[0]) for p in pairs]


def _pair(cond: Atom, a: Atom | None, b: Atom | None, start: int) -> tuple[Atom, Atom]:
    """Return the results of both paths; one that nothing reads becomes the other's, or zero."""
    known = a if a is not None else b
    assert known is not None
    if a is None or b is None:
        visible = isinstance(known, Const) or known.id < start
        filler = known if visible else constant(0, known.type)
        return (filler if a is None else a), (filler if b is None else b)
    return (Const(True, BOOL) if a == cond else a), (Const(False, BOOL) if b == cond else b)
