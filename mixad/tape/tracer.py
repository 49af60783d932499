"""Tracers: values that remember where they come from, and the levels they depend on.

There is one graph for all transforms. A tracer carries the set of *levels*, one per running
transform, whose inputs it depends on; an operation depends on what its arguments depend on. A
transform differentiates along the edges that carry its level, and computes with values without its
level: the transforms around it record the rest. So levels need no order, no stack and no global
state, and perturbations cannot be confused.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from mixad.backends.arrays import as_array, is_scalar
from mixad.config import CHECK, CheckMode
from mixad.errors import TracerError
from mixad.tape.cell import Cell
from mixad.tape.guard import GuardedArray, Reader
from mixad.tape.locks import Locks

if TYPE_CHECKING:
    from mixad.backends.arrays import Library
    from mixad.scalar.loop_results import ComparisonOnlyResult
    from mixad.tape.cell import Kind
    from mixad.tape.journal import Journal
    from mixad.tape.node import Node
    from mixad.tape.states import State
    from mixad.tape.strand import Strand

__all__ = ["Level", "NotRecordedError", "Origin", "Tracer", "bodies_among", "check_alive",
           "check_levels", "check_mode", "check_written", "concrete_value", "elements_of",
           "is_in_body", "journal_of", "kept", "leaked", "levels_of", "locked",
           "may_differentiate_twice", "origin_outside", "primal_value", "read_only", "strand_of",
           "warn", "without_level"]  # fmt: skip


class NotRecordedError(TracerError):
    """Other values may need other operations than the body of a loop has recorded."""


class Level:
    """One running transform; it is over when the ``with`` block ends.

    `looks` counts the times that something but a kernel or a rule has read elements of a traced
    value, `risks` the applied rules that raise for some elements. Kernels have one node each if not
    `fuses`: compiling what comes once may take seconds. If `foresees`, no kernel is launched: only
    shapes and types are asked for. If `is_read_only`, values may not be written to: the body of a
    loop captures one and is recorded, with more or fewer calls than there are steps.
    """

    __slots__ = ("alive", "check", "differentiates", "foresees", "fuses", "is_read_only",
                 "is_reverse", "journal", "lock", "locks", "looks", "name", "number", "risks",
                 "unknown")  # fmt: skip

    def __init__(self, name: str, *, is_reverse: bool = True, differentiates: bool = True) -> None:
        self.name = name  # for messages
        self.is_reverse = is_reverse  # cotangents go back: partials may be stored for them
        self.differentiates = differentiates  # derivatives are asked for, not values alone
        self.number = next(_NUMBERS)  # in the order of creation, in which locks are taken
        self.lock = _new_lock()  # held while pending values are made: threads may share them
        self.locks = Locks()  # arrays that cannot be written to until it is over
        self.alive = True  # whether it is running
        self.journal: Journal | None = None  # notes what is done, to be repeated
        self.looks = self.risks = 0
        self.fuses, self.foresees, self.is_read_only = True, False, False
        # Of the body of a loop, which runs again with other values: returns what stands for the
        # elements of a tracer. Values that have no derivative are traced there, too.
        self.unknown: Callable[[Tracer], Any] | None = None
        self.check = CHECK.read()  # how closely arrays that are read later are watched

    def __enter__(self) -> Level:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.alive = False
        if self.locks:
            self.locks.release()

    @property
    def over(self) -> str:
        """Message for a value that is used when the transform is over."""
        return (
            f"a value from inside mixad.{self.name} is used after that call has ended: return it "
            "from the function (with has_aux=True if it is not the result)"
        )


_NUMBERS = count()
_new_lock = type(threading.RLock())


class Origin(NamedTuple):
    """Where a value comes from: an output of a node, and the levels that it depends on."""

    node: Node
    output: int
    levels: frozenset[Level]


class Tracer:
    """A value inside a transform.

    A strand records it without a node and knows it by `slot`; `state` is what is known of it then,
    while it has neither cell nor origin: these are made when asked for.
    """

    __slots__ = ("__weakref__", "cell", "origin", "sharing", "slot", "state", "strand")
    slot: int
    __mixad_tracer__ = True

    def __init__(self, cell: Cell, origin: Origin) -> None:
        self.cell = cell  # may be pending
        self.origin = origin  # what made it
        self.sharing: Any = None  # if it is a view or has views: `mixad.tape.memory`
        self.strand: Strand | None = None
        self.state: State | None = None

    @property
    def kind(self) -> Kind:
        """What operations must know of it beside its shape."""
        state = self.state  # another thread may be giving it a cell
        if state is None:
            return self.cell.kind
        assert state.kind is not None
        return state.kind

    @property
    def library(self) -> Library:
        """The array library."""
        return self.cell.library if self.state is None else self.kind.library

    @property
    def weak(self) -> bool:
        """Whether it began as a Python number and adapts to the dtypes beside it."""
        return self.cell.weak if self.state is None else self.kind.weak

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        state = self.state
        return self.cell.shape if state is None else state.shape

    @property
    def dtype(self) -> Any:
        """Dtype of the elements, as the array's library names it."""
        kind = self.kind
        return kind.library.dtype_of(kind.type)

    @property
    def levels(self) -> frozenset[Level]:
        """The transforms that it depends on."""
        if self.state is None or self.strand is None:
            return self.origin.levels
        return self.strand.levels

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for length in self.shape:
            size *= length
        return size

    @property
    def device(self) -> Any:
        """Device that the array is on."""
        if self.state is None or self.strand is None:
            return self.cell.device
        return self.strand.device

    def __len__(self) -> int:
        if not self.shape:
            is_torchs = self.kind.library.name == "torch"  # whose `tensor` asks for it
            hint = ": write torch.stack([x, y]) for torch.tensor([x, y])" if is_torchs else ""
            raise TypeError(f"len() of a 0-d array{hint}")
        return self.shape[0]

    def __bool__(self) -> bool:
        return bool(concrete_value(self, "bool()"))

    def __int__(self) -> int:
        return int(concrete_value(self, "int()"))

    def __trunc__(self) -> int:
        return math.trunc(float(concrete_value(self, "math.trunc()")))

    def __floor__(self) -> int:
        return math.floor(float(concrete_value(self, "math.floor()")))

    def __ceil__(self) -> int:
        return math.ceil(float(concrete_value(self, "math.ceil()")))

    def __repr__(self) -> str:
        names = ", ".join(sorted(level.name for level in self.levels))
        if self.state is None:
            return f"Tracer({self.cell.array!r}, inside={names})"
        is_over = self.strand is None or not self.strand.level.alive
        seen = f"an array of shape {self.shape}" if is_over else repr(primal_value(self))
        return f"Tracer({seen}, inside={names})"

    def _repr_html_(self) -> str:
        import html  # in notebooks only: the import of mixad does not wait for it

        return f"<pre>{html.escape(repr(self))}</pre>"

    def __format__(self, spec: str) -> str:
        """Text has no derivative, as in `__repr__`: a number is printed as numbers are."""
        if not spec or self.shape:
            return super().__format__(spec)
        number = concrete_value(self, "formatting")
        return format(complex(number) if self.kind.type.is_complex else float(number), spec)

    def _leak(self, what: str, instead: str) -> TracerError:
        return TracerError(
            f"{what} of a value that is being differentiated would lose its derivative: {instead}, "
            "or say mixad.stop_gradient(x) if that is meant"
        )

    def __round__(self, digits: int | None = None) -> int:
        if digits is not None:
            raise self._leak("round() to digits", "scale it and use np.round(x)")
        return round(float(concrete_value(self, "round()")))

    def __complex__(self) -> complex:
        raise self._leak("complex()", "keep it as an array")

    def __dlpack__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._leak("DLPack export", "use its own operators and methods")

    def __dlpack_device__(self) -> NoReturn:
        raise self._leak("DLPack export", "use its own operators and methods")

    def to_dask_array(self) -> Any:
        """Refuse: functions of Dask would put the value into a graph, without its derivative."""
        raise self._leak(
            "conversion to a Dask array", "use functions of the namespace, or of NumPy"
        )

    def __dask_tokenize__(self) -> Any:
        raise self._leak(
            "conversion to a Dask array", "use functions of the namespace, or of NumPy"
        )

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise self._leak("pickling", "return it from the function that is differentiated")

    def item(self) -> float:
        """Refuse: a Python number has no derivative."""
        raise self._leak("item()", "keep it as an array")

    def tolist(self) -> list[Any]:
        """Refuse: Python numbers have no derivative."""
        raise self._leak("tolist()", "keep it as an array")


def primal_value(value: Any) -> Any:
    """Return a value without its derivative: the array of a tracer, anything else as it is."""
    if not isinstance(value, Tracer):
        return value
    check_alive(value)
    if value.strand is not None:
        found = value.strand.demanded(value)
        if found is not None:
            return found
    for level in value.origin.levels:
        level.looks += 1
    return value.cell.array


def strand_of(arguments: Iterable[Any]) -> Strand | None:
    """Return the newest strand of some arguments, which records operations on them.

    None if there is none, or if one of the arguments has a node that no strand knows.
    """
    newest: Strand | None = None
    has_node = False
    for argument in arguments:
        if isinstance(argument, Tracer):
            strand = argument.strand
            if strand is None or not strand.takes(argument):
                has_node |= strand is not None or bool(argument.origin.levels)
            elif newest is None or strand.level.number > newest.level.number:
                newest = strand
    if has_node and (newest is None or newest.level.unknown is None):
        return None
    return newest


def bodies_among(levels: frozenset[Level]) -> frozenset[Level]:
    """Return the levels that record bodies of loops: a value without derivative has only these."""
    return frozenset([level for level in levels if level.unknown is not None])


@contextmanager
def read_only(tracers: Iterable[Tracer]) -> Iterator[None]:
    """Forbid writes to values of these levels: the body of a loop captures them."""
    every = {level for tracer in tracers for level in tracer.levels}
    levels = [level for level in every if not level.is_read_only]
    for level in levels:
        level.is_read_only = True
    try:
        yield
    finally:
        for level in levels:
            level.is_read_only = False


def check_written(tracer: Tracer) -> None:
    """Raise if the body of a loop, while it is recorded, writes to a value from outside."""
    levels = tracer.levels
    if levels and all(level.is_read_only for level in levels):
        raise NotRecordedError("a write to what is from outside of the body")


def is_in_body(values: Iterable[Any]) -> bool:
    """Whether one of some values is traced in the body of a loop."""
    return any(isinstance(value, Tracer) and bodies_among(value.levels) for value in values)


def elements_of(argument: Any) -> Any:
    """Return an argument of a rule as an array for others to see: it may be read again."""
    if not isinstance(argument, Tracer):
        return argument
    check_alive(argument)
    found = None if argument.strand is None else argument.strand.demanded(argument)
    return argument.cell.array if found is None else found


def journal_of(levels: frozenset[Level]) -> Journal | None:
    """Return the journal of some transforms; None unless one of them alone has one."""
    if len(levels) == 1:
        (level,) = levels
        return level.journal
    journals = [level.journal for level in levels if level.journal is not None]
    return journals[0] if len(journals) == 1 else None


def warn(decided: Iterable[ComparisonOnlyResult], levels: frozenset[Level]) -> None:
    """Warn of results that comparisons decide inside some transforms, or note it for each call."""
    journal = journal_of(levels)
    if journal is not None:
        journal.decided += decided
        return
    for each in decided:
        each.warn()


def concrete_value(tracer: Tracer, what: str) -> Any:
    """Return the array of a tracer for Python to look at its elements.

    TracerError if it is lazy: it would be computed behind the user's back.
    """
    library = tracer.kind.library
    if library.is_lazy:
        raise TracerError(
            f"{what} of a lazy {library.name} array would compute all that it depends "
            "on: write numpy.where() for a choice between arrays, a function decorated with "
            "@mixad.broadcast for one at every element, or compute the value before the function "
            "that is differentiated"
        )
    return primal_value(tracer)


def leaked(error: ValueError) -> TracerError | None:
    """Return the refusal that NumPy hides behind an error of its own, in ``out[i] = tracer``."""
    cause = error.__cause__
    return TracerError(str(cause)) if isinstance(cause, TracerError) else None


def check_alive(tracer: Tracer) -> None:
    """Raise if a tracer is used after a transform that it belongs to."""
    strand = tracer.strand
    if tracer.state is None or strand is None:
        check_levels(tracer.origin.levels)
    elif not strand.level.alive:
        raise TracerError(strand.level.over)


def check_levels(levels: Iterable[Level]) -> None:
    """Raise if one of some transforms is over."""
    for level in levels:
        if not level.alive:
            raise TracerError(level.over)


def levels_of(tracers: list[Tracer]) -> frozenset[Level]:
    """Return the levels that the result of an operation on tracers depends on."""
    levels = tracers[0].origin.levels
    for tracer in tracers:
        check_alive(tracer)
        if tracer.origin.levels is not levels:
            levels |= tracer.origin.levels
    return levels


def check_mode(levels: frozenset[Level]) -> CheckMode:
    """Return how closely arrays that transforms read later are watched: as the strictest does."""
    if len(levels) == 1:
        (level,) = levels
        return level.check
    return max((level.check for level in levels), key=_CLOSENESS.index)


_CLOSENESS: tuple[CheckMode, ...] = ("off", "sample", "full")


def locked(levels: frozenset[Level]) -> AbstractContextManager[Any]:
    """Return a context that holds the locks of transforms, taken in the order of their creation."""
    if len(levels) == 1:
        (level,) = levels
        return level.lock
    locks = ExitStack()
    for level in sorted(levels, key=lambda level: level.number):
        locks.enter_context(level.lock)
    return locks


def kept(value: Any, levels: frozenset[Level], reader: Reader, index: int) -> Any:
    """Return an argument as nodes and pending calls retain it; an array is watched for changes.

    The user's tracer may stand for another value later: what it stands for now is retained.
    """
    if isinstance(value, Tracer):
        return type(value)(value.cell, value.origin)
    if isinstance(value, np.generic) or is_scalar(value):
        return as_array(value)
    check = check_mode(levels)
    if isinstance(value, np.ndarray) and check != "off":
        running = [level for level in levels if level.alive]
        outermost = min(running, key=_number, default=None)  # which lasts longest
        if outermost is not None and outermost.check != "off":
            outermost.locks.add(value)
    return GuardedArray(value, check, reader, index)


def may_differentiate_twice(levels: Iterable[Level]) -> bool:
    """Whether someone may ask some transforms for second derivatives."""
    return sum([level.differentiates for level in levels]) > 1


def _number(level: Level) -> int:
    return level.number


def without_level(value: Any, level: Level) -> Any:
    """Return a value as the transforms around ``level`` see it: an array if there are none."""
    if isinstance(value, GuardedArray):
        return value.array
    if not isinstance(value, Tracer):
        return value
    around = frozenset(other for other in value.origin.levels if other.alive and other is not level)
    if not around:
        return value.cell.array
    return type(value)(value.cell, origin_outside(value.origin, level)._replace(levels=around))


def origin_outside(origin: Origin, level: Level) -> Origin:
    """Return where an input of a level came from outside of it; other origins as they are."""
    node = origin.node
    if getattr(node, "level", None) is level and node.parents[0] is not None:
        return node.parents[0]
    return origin
