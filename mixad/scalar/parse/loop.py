"""Loops: which names they carry, of which types, and how they are left.

A loop is compiled with the types its carries start with.  If an iteration gives them wider ones, it
is compiled again with those, until they stay (types only widen, so they do).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from mixad.scalar.build import Draft
from mixad.scalar.implicit import converges
from mixad.scalar.ir import Atom, Const, Var
from mixad.scalar.loop_results import RETURNED
from mixad.scalar.parse.analysis import breaks, contains_return, may_exit
from mixad.scalar.parse.branch import is_guarded, one_kind, run_block, unless
from mixad.scalar.parse.frame import Frame, State, is_false, is_true
from mixad.scalar.parse.list_aliases import share_as_in
from mixad.scalar.parse.names import names_assigned_in
from mixad.scalar.parse.values.value import BoundName, Mismatch, Value, describe_kind
from mixad.scalar.types import BOOL

__all__ = ["LoopPlan", "run_else", "run_loop", "run_while"]

_RESULT = "<result>"


@dataclass
class LoopPlan:
    """A loop to be compiled."""

    node: ast.While | ast.For
    test: Callable[[], Atom]  # compiles the test, returns its truth
    run_iteration: Callable[[], None]  # compiles the body
    hidden: tuple[str, ...] = ()  # names of its own that it carries: a counter
    names: list[str] = field(default_factory=list)
    prototypes: dict[str, Value] = field(default_factory=dict)

    @property
    def breaks(self) -> bool:
        """Whether the body can break the loop."""
        return breaks(self.node.body)

    @property
    def returns(self) -> bool:
        """Whether the body can return from the function."""
        return contains_return(self.node.body)


def run_while(frame: Frame, s: ast.While) -> None:
    """Compile a `while` statement."""
    run_loop(frame, LoopPlan(s, lambda: frame.truth(s.test), lambda: run_block(frame, s.body)))


def run_loop(frame: Frame, plan: LoopPlan) -> None:
    """Compile a loop and its `else`."""
    live = frame.info.liveness.loops[id(plan.node)]
    needed = live.head | live.after
    plan.names = [*plan.hidden, *(n for n in names_assigned_in(plan.node) if n in needed)]
    plan.names += [_RESULT] if plan.returns else []
    start = frame.state.names
    plan.prototypes = frame.hints.setdefault(id(plan.node), {})
    _widen(frame, plan, {n: start[n] for n in plan.names if n in start})
    outer = frame.loop_head, frame.loop_after
    # A loop that is differentiated where it ends needs there what an iteration starts with.
    kept = live.head if frame.implicit else frozenset()
    frame.loop_head, frame.loop_after = live.head, live.after | kept
    try:
        attempt = _attempt(frame, plan)
        while attempt is None:
            attempt = _attempt(frame, plan)
    finally:
        frame.loop_head, frame.loop_after = outer
    _finish(frame, plan, attempt)


@dataclass
class _Attempt:
    """A loop compiled with carries of certain types."""

    carries: list[Var]
    cond: Draft
    body: Draft
    test: Atom
    ends: list[Atom]
    flags: list[str]
    broken: bool


def _values(state: State) -> dict[str, BoundName]:
    return state.names if state.result is None else {**state.names, _RESULT: state.result}


def _attempt(frame: Frame, plan: LoopPlan) -> _Attempt | None:
    """Compile test and body; if types do not stay, widen the plan's prototypes and return None."""
    builder = frame.builder
    line = builder.line
    carries = [
        builder.fresh(zero.type)
        for n in plan.names
        if n in plan.prototypes
        for zero in plan.prototypes[n].zeros()
    ]
    flags = [f for f, needed in (("going", plan.breaks or plan.returns),
                                 ("returned", plan.breaks and plan.returns)) if needed]  # fmt: skip
    flag_vars = [builder.fresh(BOOL) for _ in flags]
    cond, body = Draft(), Draft()
    with frame.branch(frame.state) as state:
        _enter(frame, plan, state, carries)
        with builder.writing(cond):
            test = plan.test()
        with builder.writing(body):
            plan.run_iteration()
            state_after = frame.state
            if _widen(frame, plan, _values(state_after)):
                builder.line = line
                return None
            broken = not is_false(frame.exit("break"))
            ends = _ends(frame, plan, flags)
    share_as_in(frame, state_after)
    builder.line = line
    return _Attempt([*carries, *flag_vars], cond, body, test, ends, flags, broken)


def _enter(frame: Frame, plan: LoopPlan, state: State, carries: Sequence[Var]) -> None:
    """Give the carried names the values of the carries; other names keep theirs."""
    atoms = iter(carries)
    line = plan.node.lineno
    for name in plan.names:
        if name in plan.prototypes:
            bound = BoundName(plan.prototypes[name].rebuilt(atoms), _line_of(state, name, line))
            if name != _RESULT:
                state.names[name] = bound
    state.exits.clear()
    state.result, state.ended = None, False


def _line_of(state: State, name: str, otherwise: int) -> int:
    bound = state.names.get(name)
    return otherwise if bound is None else bound.line


def _widen(frame: Frame, plan: LoopPlan, values: dict[str, BoundName]) -> bool:
    """Widen the plan's prototypes to those of values; return whether any has changed."""
    before = dict(plan.prototypes)
    for name in plan.names:
        if name in values:
            found = values[name].value.prototype()
            plan.prototypes[name] = (
                _wider(frame, plan, name, found, values[name].line) if name in before else found
            )
    return plan.prototypes != before


def _wider(frame: Frame, plan: LoopPlan, name: str, after: Value, line: int) -> Value:
    start = plan.prototypes[name]
    try:
        return start.join(frame.context.rules, after)
    except Mismatch:
        spelled = "the result" if name == _RESULT else repr(name)
        raise frame.type_error(
            plan.node,
            f"{spelled} is {describe_kind(start)} when the loop starts "
            f"and {describe_kind(after)} after an iteration (line {line})",
            one_kind(start, after, "give it one type before and in the loop"),
        ) from None


def _ends(frame: Frame, plan: LoopPlan, flags: Sequence[str]) -> list[Atom]:
    """Return what the carries become after an iteration."""
    ends = _values(frame.state)
    atoms: list[Atom] = []
    for name in plan.names:
        if name in plan.prototypes:
            atoms += _carried_atoms(frame, plan, name, ends.get(name))
    returned = frame.exit("return")
    left = frame.builder.op("or", frame.exit("break"), returned)
    by_flag = {"going": lambda: frame.builder.op("not", left), "returned": lambda: returned}
    return [*atoms, *(by_flag[f]() for f in flags)]


def _finish(frame: Frame, plan: LoopPlan, attempt: _Attempt) -> None:
    """Add the loop, and give the names and exits their values after it."""
    builder = frame.builder
    going = attempt.carries[-len(attempt.flags)] if attempt.flags else None
    cond, test = _guarded_test(frame, attempt, going)
    if is_true(test):
        raise frame.error(plan.node, "this loop never ends", "leave it with `break` or `return`")
    tested, body = cond.block([test]), attempt.body.block(attempt.ends)
    outs = builder.add_while(
        attempt.carries,
        [*_inits(frame, plan), *(builder.const(f == "going", BOOL) for f in attempt.flags)],
        tested,
        body,
        builder.line,
        (*_carry_names(plan), *("" for _ in attempt.flags)),
        implicit=frame.implicit and converges(attempt.carries, tested, body),
    )
    _leave(frame, plan, outs)
    flags = dict(zip(attempt.flags, outs[len(outs) - len(attempt.flags) :], strict=True))
    endless = is_true(attempt.test)
    ended: Atom = flags.get("going", Const(True, BOOL))
    if plan.returns:
        returned = flags.get("returned") or Const(True, BOOL)
        if endless and not attempt.broken:
            returned = Const(True, BOOL)
        elif not plan.breaks:
            returned = builder.op("not", ended)
        frame.state.exits["return"] = returned
        frame.state.ended = is_true(returned)
    if plan.node.orelse and not endless:
        run_else(frame, plan.node, builder.op("not", ended), broken=attempt.broken)


def _carry_names(plan: LoopPlan) -> Iterator[str]:
    """Yield, for each number that the loop carries, the user's name of it; "" for a hidden one."""
    for name in plan.names:
        if name in plan.prototypes:
            spelled = "" if name in plan.hidden else RETURNED if name == _RESULT else name
            yield from (spelled for _ in plan.prototypes[name].zeros())


def _guarded_test(frame: Frame, attempt: _Attempt, going: Atom | None) -> tuple[Draft, Atom]:
    """Return the loop's test, which holds only while the loop has not been left.

    After `break` it is not computed if it must not be.
    """
    builder, cond = frame.builder, attempt.cond
    if going is None:
        return cond, attempt.test
    if is_guarded(cond):
        outer = Draft()
        with builder.writing(outer):
            never = Draft().block([Const(False, BOOL)])
            (test,) = builder.add_if(going, cond.block([attempt.test]), never, builder.line)
        return outer, test
    with builder.writing(cond):
        return cond, builder.op("and", going, attempt.test)


def _inits(frame: Frame, plan: LoopPlan) -> list[Atom]:
    return [
        atom
        for name in plan.names
        if name in plan.prototypes
        for atom in _carried_atoms(frame, plan, name, frame.state.names.get(name))
    ]


def _carried_atoms(frame: Frame, plan: LoopPlan, name: str, bound: BoundName | None) -> list[Atom]:
    """Return what the carries of a name hold; zeros where it has no value, which nothing reads."""
    like = plan.prototypes[name]
    return like.zeros() if bound is None else bound.value.atoms(frame, like, plan.node)


def _leave(frame: Frame, plan: LoopPlan, outs: Sequence[Var]) -> None:
    """Give the carried names what the loop has left in its carries."""
    atoms: Iterator[Atom] = iter(outs)
    line = plan.node.lineno
    for name in plan.names:
        if name in plan.prototypes:
            bound = BoundName(plan.prototypes[name].rebuilt(atoms), line)
            if name == _RESULT:
                frame.state.result = bound
            else:
                frame.state.names[name] = bound
    for name in plan.hidden:
        del frame.state.names[name]


def run_else(frame: Frame, s: ast.While | ast.For, left: Atom, *, broken: bool) -> None:
    """Compile a loop's `else`, which runs unless the loop was left by break or return.

    ``broken`` says whether a break can have left it: control then goes on after the loop.
    """
    live = frame.info.liveness.loops[id(s)].after
    if may_exit(s.orelse):
        live |= frame.loop_head | frame.loop_after
    unless(frame, s, left, lambda: run_block(frame, s.orelse), live)
    if broken:
        frame.state.ended = False
