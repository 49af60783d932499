"""Views: traced arrays that share memory in their library, where writing to one changes all.

Here a write changes only the array that is written to. The others raise when they are used, and say
what to write instead: their elements would not be NumPy's.

A value without axes may be an array or a number of NumPy. Operations return numbers, which have no
memory to share, so arrays are noted.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from mixad.backends.arrays import NUMPY
from mixad.errors import TracerError
from mixad.tape.cell import Cell
from mixad.tape.tracer import Level, Origin, Tracer

if TYPE_CHECKING:
    from mixad.tape.node import Node
    from mixad.tape.operations import Operation
    from mixad.tape.states import State

__all__ = ["Base", "array_as", "base_of", "check_writable", "gives_arrays",
           "gives_read_only_views", "gives_views", "is_numpy_number", "is_part_written_back",
           "is_written_back", "join", "noted", "noted_array", "read_only", "restore", "retire_flat",
           "retire_others", "share", "stand_for", "unshared",
           "view_of"]  # fmt: skip


class _Memory:
    """The tracers that share one piece of memory.

    `is_lent` says that something has recorded an array in it, so that it is not written to any
    more; this is so for constants only.
    """

    __slots__ = ("_limit", "_members", "is_lent")

    def __init__(self, first: Tracer) -> None:
        self.is_lent: bool = getattr(first.cell, "is_lent", False)
        self._members = [weakref.ref(first)]
        self._limit = 8

    def add(self, tracer: Tracer) -> None:
        """Add a tracer; now and then drop those that nobody holds any more."""
        if len(self._members) >= self._limit:
            self._members = [held for held in self._members if held() is not None]
            self._limit = 2 * len(self._members) + 8
        self._members.append(weakref.ref(tracer))

    def others(self, tracer: Tracer) -> list[Tracer]:
        """Return those that share memory with a tracer."""
        members = [held() for held in self._members]
        return [member for member in members if member is not None and member is not tracer]


class AliasInfo(NamedTuple):
    """What a tracer shares: the memory, and if it is ``x[key]``, where ``x`` came from.

    Without axes it may still be a number: NumPy's views of numbers are.
    """

    memory: _Memory
    whole: Origin | None = None
    key: object = None
    is_read_only: bool = False
    is_array: bool = False


class _StaleView(Level):
    """A transform that never ran: a tracer that may not be used any more depends on it."""

    __slots__ = ("part", "was", "writer")

    def __init__(
        self, was: Origin | State | None, writer: Tracer, part: Operation | None = None
    ) -> None:
        super().__init__("an older view")
        self.alive = False
        self.was = was  # what the tracer stood for; a state if it had no node
        self.part = part  # what made the writer, if that is a part of this
        self.writer = weakref.ref(writer)  # what was written to

    @property
    def over(self) -> str:
        return (
            "an array that shares memory with another one is used after that was written to: "
            "traced views do not follow writes; write to the array itself (x[0, 1] = y, not "
            "x[0][1] = y), take views after the last write, or copy the part first (x[1:] * 1)"
        )


def share(view: Any, base: Any, key: object = None) -> Any:
    """Note that a traced value is a view of another one, and return it.

    `key` is set if the view is ``base[key]``. Nothing is noted of plain arrays.
    """
    if isinstance(view, Tracer) and isinstance(base, Tracer) and view is not base:
        strand = view.strand
        if strand is not None and strand is base.strand and None not in (view.state, base.state):
            strand.views[view.slot] = base.slot
            return view
        of_base = base.sharing = _sharing_of(base)
        is_array = bool(base.shape) or of_base.is_array
        view.sharing = AliasInfo(of_base.memory, base.origin, key, of_base.is_read_only, is_array)
        view.sharing.memory.add(view)
    return view


_Value = TypeVar("_Value")


def _sharing_of(tracer: Tracer) -> AliasInfo:
    found: AliasInfo | None = tracer.sharing
    return AliasInfo(_Memory(tracer)) if found is None else found


def is_numpy_number(tracer: Tracer) -> bool:
    """Whether NumPy has a number there: no axes, and not noted to be an array."""
    state = tracer.state  # another thread may be giving it a cell
    if state is not None:
        return state.is_number
    is_short = not tracer.cell.shape and tracer.cell.library is NUMPY
    return is_short and (tracer.sharing is None or not tracer.sharing.is_array)


def noted_array(value: _Value) -> _Value:
    """Note that a traced value is an array in NumPy even if it has no axes; return it."""
    if isinstance(value, Tracer) and is_numpy_number(value):
        if value.strand is not None and value.state is not None:
            return cast("_Value", value.strand.as_array(value))
        value.sharing = _sharing_of(value)._replace(is_array=True)
    return value


def array_as(value: _Value, like: Any) -> _Value:
    """Note that a traced value is an array if another one, which it copies for example, is."""
    is_array = isinstance(like, Tracer) and not is_numpy_number(like)
    return noted_array(value) if is_array else value


def join(inner: Tracer, outer: Tracer) -> None:
    """Note that two traced values are one array: what is a view of one is a view of the other."""
    outer.sharing = _sharing_of(outer)
    memory = outer.sharing.memory
    members = [inner, *(inner.sharing.memory.others(inner) if inner.sharing is not None else ())]
    for member in members:
        sharing = member.sharing or outer.sharing._replace(whole=None, key=None)
        member.sharing = sharing._replace(memory=memory)
        memory.add(member)


_Function = TypeVar("_Function", bound=Callable[..., Any])
_VIEWS: set[Callable[..., Any]] = set()
_READ_ONLY: set[Callable[..., Any]] = set()
_ARRAYS: set[Callable[..., Any]] = set()


def gives_views(function: _Function) -> _Function:
    """Decorate a function whose results may be views of its first argument."""
    _VIEWS.add(function)
    return function


def gives_read_only_views(function: _Function) -> _Function:
    """Decorate a function that `gives_views`, which NumPy does not let its users write to."""
    _READ_ONLY.add(function)
    return gives_views(function)


def gives_arrays(function: _Function) -> _Function:
    """Decorate a function whose results are arrays in NumPy, where most give numbers."""
    _ARRAYS.add(function)
    return function


def noted(function: Callable[..., Any], result: Any, arguments: Sequence[Any]) -> Any:
    """Return what a function returned for some arguments, and note what it shares memory with.

    A function that returns an argument as it is may have copied it in the library: a write to
    either retires the other name.
    """
    if function in _VIEWS:
        if isinstance(result, (tuple, list)):
            return type(result)([_part_of(part, arguments[0]) for part in result])
        shared = view_of(result, arguments[0])
        return read_only(shared) if function in _READ_ONLY else shared
    if any(result is argument for argument in arguments):
        own = unshared(result)
        is_alone = isinstance(result, Tracer) and is_numpy_number(result)
        result = own if is_alone else share(own, result)
    return noted_array(result) if function in _ARRAYS else result


def _part_of(part: Any, base: Any) -> Any:
    """Return one of several views; single elements are numbers, where the library has numbers.

    They are the base's elements one by one, and no indexing by an ellipsis made them.
    """
    is_element = isinstance(part, Tracer) and is_numpy_number(part) and bool(base.shape)
    return part if is_element else view_of(part, base)


def view_of(view: Any, base: Any) -> Any:
    """Return a view of a traced value under a name of its own, with what it shares memory with."""
    return share(unshared(view) if view is base else view, base)


def read_only(view: Any) -> Any:
    """Return a view that may not be written to if its library is NumPy; others allow it."""
    if isinstance(view, Tracer) and view.sharing is not None and view.cell.library is NUMPY:
        view.sharing = view.sharing._replace(is_read_only=True)
    return view


def check_writable(tracer: Tracer) -> None:
    """Raise if a tracer stands for an array that NumPy would not let its user write to."""
    if tracer.sharing is not None and tracer.sharing.is_read_only:
        raise TracerError(
            "assignment destination is read-only: NumPy's diagonal, diag, broadcast_to and "
            "sliding_window_view give views that cannot be written to; write to the array itself, "
            "or to a copy (x * 1)"
        )


def unshared(value: Any) -> Any:
    """Return a value under another name: writing to one does not change the other."""
    return type(value)(value.cell, value.origin) if isinstance(value, Tracer) else value


def retire_others(tracer: Tracer) -> None:
    """Retire what shares memory with a tracer that was written to: it raises when it is used."""
    if tracer.sharing is None:
        return
    for other in tracer.sharing.memory.others(tracer):
        _retire(other, other.origin, tracer)
    tracer.sharing = tracer.sharing._replace(memory=_Memory(tracer))


def _retire(tracer: Tracer, origin: Origin, writer: Tracer) -> None:
    levels = origin.levels | {_StaleView(origin, writer)}
    tracer.origin, tracer.sharing = origin._replace(levels=levels), None


def retire_flat(tracer: Tracer, writer: Tracer, part: Operation | None) -> None:
    """Retire a tracer without a node, since its memory was written to: it raises when it is used.

    `part` made the writer, if that is a part of this.
    """
    strand = tracer.strand
    assert strand is not None
    levels = frozenset((strand.level, _StaleView(tracer.state, writer, part)))
    tracer.cell = Cell(tracer.shape, tracer.kind, strand.device)
    tracer.origin = Origin(cast("Node", None), 0, levels)
    tracer.sharing = tracer.state = None


def stand_for(tracer: Tracer, result: Tracer) -> bool:
    """Let a tracer that had no node stand for a result; return whether it may be used.

    It may not if its memory has been written to under another name.
    """
    retired = None if tracer.state is not None else _retired(tracer)
    tracer.cell, tracer.origin, tracer.sharing = result.cell, result.origin, result.sharing
    tracer.state = None
    if retired is not None:
        writer = retired.writer()
        _retire(tracer, result.origin, tracer if writer is None else writer)
    elif tracer.sharing is not None:
        tracer.sharing.memory.add(tracer)
    return retired is None


def is_written_back(tracer: Tracer, key: object, value: Any) -> bool:
    """Whether a value is ``tracer[key]``, which was changed in place: ``x[0] += 1`` does this."""
    retired = _retired(tracer)
    if retired is None or not isinstance(value, Tracer) or retired.writer() is not value:
        return False
    sharing = value.sharing
    return sharing is not None and sharing.whole is retired.was and sharing.key == key


def restore(tracer: Tracer) -> None:
    """Let a tracer be used again; a part of it is about to be written back."""
    retired = _retired(tracer)
    assert retired is not None
    if isinstance(retired.was, Origin):
        tracer.origin = retired.was
    else:
        tracer.state = retired.was
        del tracer.cell, tracer.origin, tracer.sharing


def _is_same_call(first: Operation, second: Operation) -> bool:
    """Whether two operations are one call, which may have been evicted and made anew."""
    if first is second:
        return True
    one, other = first.compute, second.compute
    return isinstance(one, partial) and isinstance(other, partial) and one.args == other.args


def is_part_written_back(tracer: Tracer, part: Operation, value: Any) -> bool:
    """Whether a value is a part, changed in place, of a tracer without a node."""
    retired = _retired(tracer) if tracer.state is None else None
    if retired is None or retired.part is None or retired.writer() is not value:
        return False
    return _is_same_call(retired.part, part)


class Base(NamedTuple):
    """Which operand of an operation its result is a view of, and whether one may write to it.

    The operand is None if the result shares memory with something else.
    """

    operand: int | None
    is_read_only: bool


def base_of(result: Any, operands: Sequence[Any]) -> Base | None:
    """Return what a result is a view of; None if it shares no memory."""
    sharing = result.sharing if isinstance(result, Tracer) else None
    others = [] if sharing is None else sharing.memory.others(result)
    is_operand = any(result is operand for operand in operands)
    if sharing is None or not (others or is_operand):
        return Base(None, False) if is_operand else None
    found = (at for at, operand in enumerate(operands) if any(operand is each for each in others))
    return Base(None if is_operand else next(found, None), sharing.is_read_only)


def _retired(tracer: Tracer) -> _StaleView | None:
    found = [level for level in tracer.origin.levels if isinstance(level, _StaleView)]
    return found[0] if len(found) == 1 else None
