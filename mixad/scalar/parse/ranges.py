"""`for` loops: over ranges as loops, over tuples iteration by iteration."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from mixad.errors import KernelError
from mixad.scalar.ir import Atom, Const
from mixad.scalar.parse.analysis import breaks, contains_return
from mixad.scalar.parse.branch import levels_left, run_block, unless
from mixad.scalar.parse.frame import Frame, is_false, is_true
from mixad.scalar.parse.loop import LoopPlan, run_else, run_loop
from mixad.scalar.parse.names import changed_names, dotted_path, names_assigned_in, walk_scope
from mixad.scalar.parse.outside import look_up
from mixad.scalar.parse.statements import assign_target
from mixad.scalar.parse.subscript import items_of
from mixad.scalar.parse.values.value import BoundName, Scalar, Value, describe_kind
from mixad.scalar.types import I64, integer_bounds

__all__ = ["run_for"]

_MAX_COPIES = 256
"""Turns, of all loops around, that are written out where they index a tuple."""
_FEW_COPIES = 16
"""The same where they index arrays: without a loop constants fold, with more of them only compiling
takes longer."""


def run_for(frame: Frame, s: ast.For) -> None:
    """Compile a `for` statement."""
    bounds = _range_bounds(frame, s.iter)
    if bounds is None:
        value = items_of(frame, s.iter)
        items = value.elements()
        if items is None:
            raise frame.type_error(
                s.iter,
                f"`for` runs over range(...) or a constant tuple, not over {describe_kind(value)}",
                value.instead_of_loop(),
            )
        _check_is_left_alone(frame, s)
        _unroll(frame, s, items)
    elif (numbers := _unrolled_range(frame, s, bounds)) is not None:
        _unroll(frame, s, [frame.constant(n) for n in numbers])
    else:
        _run_range(frame, s, bounds)


def _check_is_left_alone(frame: Frame, s: ast.For) -> None:
    """Refuse a loop over a list whose items it assigns to: Python would read the new ones."""
    changed = changed_names(list(s.body))
    for node in _read_later(s.iter):
        if isinstance(node, ast.Name) and node.id in changed:
            raise frame.error(
                s.iter,
                f"the loop assigns to items of {node.id!r}, over which it runs",
                f"for i in range(len({node.id}))",
            )


def _read_later(node: ast.expr) -> Iterator[ast.AST]:
    """Yield the parts of what a loop runs over that may be lists which it reads as it goes.

    The items of a tuple or a list that is written out are computed before the first iteration.
    """
    match node:
        case ast.Tuple() | ast.List():
            return
        case ast.Call():
            for argument in node.args:
                yield from _read_later(argument)
        case _:
            yield from ast.walk(node)


def _range_bounds(frame: Frame, node: ast.expr) -> list[Atom] | None:
    """Return start, stop and step if an iterable is a call of range."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    if not frame.value(node.func).is_object(range):
        return None
    if node.keywords or not 1 <= len(node.args) <= 3:
        raise frame.error(node, "range takes one to three arguments", "range(start, stop, step)")
    bounds = [_range_bound(frame, a) for a in node.args]
    zero, one = (frame.builder.const(n, I64) for n in (0, 1))
    return [zero, *bounds, one] if len(bounds) == 1 else [*bounds, one][:3]


def _range_bound(frame: Frame, node: ast.expr) -> Atom:
    scalar = frame.scalar(node)
    if scalar.atom.type.is_float:
        raise frame.type_error(
            node, f"range takes integers, `{ast.unparse(node)}` is a {scalar.typed}", "use int(...)"
        )
    return frame.builder.convert(scalar.atom, I64)


def _unrolled_range(frame: Frame, s: ast.For, bounds: Sequence[Atom]) -> range | None:
    """Return the numbers of a range if its iterations are written out.

    They are where the loop's variable indexes something: an item of a tuple is known when its index
    is.  Each iteration that may leave the loop has the next ones inside a condition.
    """
    indexed = _index_expressions(s)
    if not indexed:
        return None
    most = _MAX_COPIES if any(_may_be_tuple(frame, s, n) for n in indexed) else _FEW_COPIES
    most //= frame.context.copies
    if breaks(s.body) or contains_return(s.body):
        most = min(most, levels_left(frame) // 2)
    numbers = _constant_range([frame.constant_integer(Scalar(b, True), most).atom for b in bounds])
    if numbers is None:
        return None
    return None if numbers[most:] else numbers  # its length may not be one for Python's len


def _constant_range(bounds: Sequence[Atom]) -> range | None:
    numbers = [int(b.value) for b in bounds if isinstance(b, Const)]
    return range(*numbers) if len(numbers) == 3 and numbers[2] != 0 else None


@lru_cache(maxsize=4096)
def _index_expressions(s: ast.For) -> tuple[ast.expr, ...]:
    """Return what the body indexes with the loop's variable."""
    names = {n.id for n in ast.walk(s.target) if isinstance(n, ast.Name)}
    return tuple(
        part.value
        for part in walk_scope(list(s.body))
        if isinstance(part, ast.Subscript)
        and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(part.slice))
    )


def _may_be_tuple(frame: Frame, s: ast.For, node: ast.expr) -> bool:
    """Whether what is indexed may be a tuple, as far as is known before the loop."""
    while isinstance(node, ast.Subscript):
        node = node.value
    path = dotted_path(node)
    if not isinstance(node, ast.Name | ast.Attribute) or path is None:
        return True
    if path[0] in names_assigned_in(s):
        return True
    try:
        return look_up(frame, node).elements() is not None
    except KernelError:  # where the loop reads it, it is refused; it may not get there
        return True


def _run_range(frame: Frame, s: ast.For, bounds: Sequence[Atom]) -> None:
    start, stop, step = bounds
    if isinstance(step, Const) and step.value == 0:
        raise frame.error(s.iter, "the step of range is 0", "a step that is not 0")
    counter = f"<counter {s.lineno}:{s.col_offset}>"
    builder = frame.builder

    def position() -> Atom:
        return frame.state.names[counter].value.scalar(frame, s.iter).atom

    def test() -> Atom:
        if isinstance(step, Const):
            return builder.op("lt" if step.value > 0 else "gt", position(), stop)
        rising = builder.op("gt", step, builder.const(0, I64))
        falling = builder.op("lt", step, builder.const(0, I64))
        return builder.op(
            "or",
            builder.op("and", rising, builder.op("lt", position(), stop)),
            builder.op("and", falling, builder.op("gt", position(), stop)),
        )

    def run_iteration() -> None:
        here = position()
        assign_target(frame, s.target, Scalar(here, True))
        run_block(frame, s.body)
        frame.pass_exit("continue")
        following = _following(frame, here, stop, step)
        frame.state.names[counter] = BoundName(Scalar(following, True), s.lineno)

    frame.state.names[counter] = BoundName(Scalar(start, True), s.lineno)
    run_loop(frame, LoopPlan(s, test, run_iteration, (counter,)))


def _following(frame: Frame, here: Atom, stop: Atom, step: Atom) -> Atom:
    """Return the counter of the next iteration: the stop where a step from here would overflow."""
    builder = frame.builder
    following = builder.op("add", here, step)
    if not isinstance(step, Const):
        falling = builder.op("lt", step, builder.const(0, I64))
        overflows = builder.op("ne", falling, builder.op("lt", following, here))
    elif _stays(frame, stop, int(step.value)):
        return following
    else:
        overflows = builder.op("lt" if step.value > 0 else "gt", following, here)
    return builder.op("where", overflows, stop, following)


def _stays(frame: Frame, stop: Atom, step: int) -> bool:
    """Whether one step from any number before the stop stays within 64 bits."""
    low, high = frame.builder.bounds(stop)
    least, largest = integer_bounds(I64)
    return high - 1 + step <= largest if step > 0 else low + 1 + step >= least


def _unroll(frame: Frame, s: ast.For, items: Sequence[Value]) -> None:
    """Compile the body once for each item."""
    live = frame.info.liveness.loops[id(s)]
    outer, copies = (frame.loop_head, frame.loop_after), frame.context.copies
    frame.loop_head, frame.loop_after = live.head, live.after
    frame.context.copies *= len(items)
    try:
        _write_out(frame, s, items, live.head | live.after)
    finally:
        frame.loop_head, frame.loop_after = outer
        frame.context.copies = copies
    left = frame.is_left()
    always_left = frame.state.ended or is_true(left)
    broken = not is_false(frame.exit("break"))
    frame.pass_exit("break")
    if s.orelse and not always_left:
        run_else(frame, s, left, broken=broken)


def _write_out(frame: Frame, s: ast.For, items: Sequence[Value], live: frozenset[str]) -> None:
    for i, item in enumerate(items):
        assign_target(frame, s.target, item)
        run_block(frame, s.body)
        frame.pass_exit("continue")
        if frame.state.ended:
            return
        exited = frame.is_left()
        if not is_false(exited):
            unless(frame, s, exited, partial(_write_out, frame, s, items[i + 1 :], live), live)
            return
