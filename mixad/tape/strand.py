"""What one call of a transform records of small arrays, as long as it is known from other calls.

A tracer of a strand is a slot: it has no cell and no node.  Operations look up the next state
(`mixad.tape.states`).  At the first that is not known, or where a tracer is asked for more than its
shape and type, everything is done on nodes in the order in which it was recorded, and goes on so:
what comes of it has the same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from threading import get_ident
from typing import Any, TypeAlias, cast
from weakref import ref

import numpy as np

from mixad.backends.arrays import describe_array
from mixad.backends.fifo_cache import FifoCache
from mixad.tape.cell import Cell, Kind
from mixad.tape.held import Held, Reader
from mixad.tape.journal import Journal
from mixad.tape.kernel_node import KernelNode
from mixad.tape.memory import is_numpy_number
from mixad.tape.node import RuleNode
from mixad.tape.operations import FURTHER, Link, Operation, Segment
from mixad.tape.replay import Replay, stand_in
from mixad.tape.states import SeenSlot, State, initial_state
from mixad.tape.tracer import Level, Origin, Tracer, check_levels
from mixad.tape.values_rule import ValuesNode

__all__ = ["Strand"]

_MAX_SLOTS = 4096
"""Values of a segment, if it does not end before; what follows is recorded on nodes."""

_MAX_INT = 1 << 31
"""Whole numbers up to this size fit all types that they may be converted to."""

_MAX_INDICES = 1 << 12
"""Indices and flags in an array that is a part of what is applied."""

_NUMBERS = frozenset({float, int, np.float64, np.float32, np.int64, np.int32, np.bool_})
"""Types of numbers that come in."""

_new = object.__new__

_PLAIN = frozenset({int, bool, str, type(None), type(Ellipsis)})
"""Types of arguments that are a part of what is applied."""

_OVER = State()
"""The state of a strand whose transform has ended: nothing follows it."""


_OPERATIONS: FifoCache[Operation] = FifoCache(4096)
"""Calls of functions by what they are and all arguments that are not traced."""


_OPERAND = object()
"""Stands for an operand among arguments."""


def _emptied(value: Any, is_operand: Callable[[Any], bool]) -> Any:
    """Return an argument without operands; arrays in it are copied: they are told by content."""
    if is_operand(value):
        return _OPERAND
    if type(value) is np.ndarray:
        return value.copy()
    if type(value) is tuple or type(value) is list:
        return type(value)([_emptied(each, is_operand) for each in value])
    return value


def _filled(value: Any, operands: Iterator[Any]) -> Any:
    """Return an argument with operands in their places."""
    if value is _OPERAND:
        return next(operands)
    if type(value) is tuple or type(value) is list:
        return type(value)([_filled(each, operands) for each in value])
    return value


_Compute: TypeAlias = Callable[[Any, Any, Any], Any]
"""Of a function, its arguments and its options, returns what it gives."""


def _call(
    compute: _Compute, function: Hashable, given: Any, names: Sequence[str], *operands: Any
) -> Any:
    """Return what a function gives for operands among its other arguments."""
    args, *named = _filled(given, iter(operands))
    return compute(function, args, dict(zip(names, named, strict=True)))


_READS_ARRAYS = frozenset({np.matmul, operator.matmul})
"""Functions that compute nothing from arrays before a rule reads them."""


_Made: TypeAlias = "tuple[Operation | None, tuple[int, ...], ref[Tracer], State]"
"""The operation, None of an input, the slots of its operands, the tracer, and its state."""

_Pending: TypeAlias = tuple[Operation, tuple[Any, ...], Sequence[Any], int]
"""An operation that is not known, its key, what comes in with it, looks before it."""


class Strand:
    """One recording, by one thread.

    Parameters
    ----------
    level : Level
        The transform's.
    state : State
        In which the inputs have come in.
    arrays : sequence of ndarray
        The inputs, which are differentiated with respect to.
    inputs : sequence of callable
        For each of these, returns its tracer with cell and node.
    kind : type
        Of tracers.

    Attributes
    ----------
    values : list
        By slot: a held array, a number or a link that came in, None for what was made.
    segments : list of Segment
        Those that have ended.
    journal : Journal
        What is done by nodes.
    kind : type
        Of tracers.
    is_flat : bool
        Whether its tracers have no nodes.
    is_left : bool
        Whether a tracer was asked for what strands do not know.
    """

    __slots__ = ("_cells", "_done", "_entered", "_inputs", "_is_cold", "_links", "_made",
                 "_origins", "_pending", "_replay", "_rest", "_start", "_thread", "is_flat",
                 "is_left", "journal", "kind", "level", "segments", "state", "values")  # fmt: skip

    def __init__(
        self,
        level: Level,
        state: State,
        arrays: Sequence[np.ndarray[Any, Any]],
        inputs: Sequence[Callable[[], Tracer]],
        kind: type[Tracer],
    ) -> None:
        self.level = level
        self.state = state
        self.values: list[Any] = [Held(array, level.check) for array in arrays]
        self.segments: list[Segment] = []
        self.is_flat = True
        self.is_left = False
        self._inputs = inputs
        self.kind = kind
        self._made: list[_Made | None] = []
        self._origins: dict[int, Origin] = {}
        self._cells: dict[int, ref[Cell]] = {}
        self._entered: dict[int, tuple[int, Hashable]] = {}
        self.journal = level.journal = Journal(self._entered)
        self._links: dict[int, int] = {}
        self._start = 0
        self._thread = get_ident()
        self._is_cold = False
        self._done: list[Any] = []
        self._rest: list[Any] = []
        self._replay: Replay | None = None
        self._pending: _Pending | None = None

    def tracers_of_inputs(self, states: Sequence[State]) -> list[Tracer]:
        """Return a tracer for each input."""
        tracers: list[Tracer] = []
        for slot, state in enumerate(states):
            tracer: Tracer = _new(self.kind)
            tracer.strand, tracer.slot, tracer.state = self, slot, state
            self._made.append((None, (), ref(tracer), state))
            tracers.append(tracer)
        return tracers

    # -- recording ---------------------------------------------------------------------------------

    def record(self, operation: Operation, operands: Sequence[Any]) -> Any:
        """Return what an operation gives, if that is known; else None.

        Then it is to be computed on nodes, and `learn` is to be told what came of it.
        """
        self._pending = None
        if self._is_cold:
            return None
        kind, start = self.kind, self._start
        codes: list[Any] = [operation]
        arriving: list[Any] = []
        for operand in operands:
            if type(operand) is kind and operand.strand is self and operand.state is not None:
                slot = operand.slot - start
                if slot >= 0:
                    codes.append(slot)
                    continue
            code = self._code(operand)
            if code is None:
                self._leave()
                return None
            codes.append(code)
            if type(code) is not int:
                arriving.append(operand)
        key = tuple(codes)
        with self.level.lock:  # another thread may ask for nodes
            state = self.state.next.get(key)
            if state is None or not self.is_flat or self._thread != get_ident():
                return self._begin(operation, key, arriving)
            slots = self._enter(key, arriving, state.reader) if arriving or start else key[1:]
            self.state = state
            tracer = self._flat(operation, slots, state)
            further = [self._flat(FURTHER, slots, each) for each in state.further]
            if state.is_end:
                self._end_segment()
        return (tracer, *further) if further else tracer

    def _end_segment(self) -> None:
        """Record what follows as another segment."""
        stop = len(self.values)
        self.segments.append(Segment(self.state, self._start, stop))
        self.state, self._start, self._links = initial_state(self.level.check), stop, {}
        self.level.journal = self._replay = None  # what is noted is one segment
        if not self.is_flat:
            self._flatten()

    def _flatten(self) -> None:
        """Let go of nodes: segments are planned one by one."""
        made = [(each[2](), each[3]) for each in self._made if each is not None]
        alive = [(tracer, state) for tracer, state in made if tracer is not None]
        if not all(self._is_current(tracer) for tracer, _ in alive):
            return
        for tracer, state in alive:
            if tracer.state is None:
                tracer.state = state
                del tracer.cell, tracer.origin, tracer.sharing
        self._origins.clear()
        self._cells.clear()
        self.journal = Journal(self._entered)
        self.is_flat = True

    def _code(self, operand: Any) -> Any:
        """Return what tells an operand from others: its slot, if it has one; None if unknown."""
        kind = type(operand)
        if kind is self.kind:
            if operand.strand is not self or not self._is_current(operand):
                return None
            slot = self._links.get(operand.slot, operand.slot) - self._start
            return slot if slot >= 0 else (operand.kind, operand.shape, is_numpy_number(operand))
        if kind is np.ndarray:
            description = describe_array(operand)
            known = self._entered.get(id(operand))
            if known is None or known[1] != description:
                return description
            slot = self._links.get(known[0], known[0]) - self._start
            return slot if slot >= 0 else description
        if kind is int and not -_MAX_INT < operand < _MAX_INT:
            return None
        return kind if kind in _NUMBERS else None

    def _begin(self, operation: Operation, key: tuple[Any, ...], arriving: Sequence[Any]) -> Any:
        """Return what an operation gives that is not known; None if nodes are to tell."""
        if self.state is _OVER:
            return None
        if self._thread != get_ident() or len(self.values) - self._start > _MAX_SLOTS:
            self._leave()
            return None
        if self.segments and self.is_flat:
            return self._foresee(operation, key, arriving)
        self.depart()
        self._pending = operation, key, arriving, self.level.looks
        return None

    def _foresee(self, operation: Operation, key: tuple[Any, ...], arriving: Sequence[Any]) -> Any:
        """Return what an operation will give, told by the open segment on nodes of its own.

        Values of earlier segments are others there.  None if that does not tell.
        """
        step = tuple(map(self._seen_from_here, key))
        slots = self._enter(key, arriving, None)
        if self._replay is None:
            self._replay = Replay(self, self._start, lambda slot: stand_in(self.known(slot)))
        replay = self._replay
        try:
            results = replay.result(operation, slots)
        except Exception:  # of these values, or the user's: nodes tell which
            results = None
        except BaseException:  # what came in has slots that no other call gives it
            self._leave()
            raise
        if results is None or not all(map(self._may_know, results)):
            self._leave()
            return None
        state = self.state.follow(key, list(map(_described, results)), step)
        state.reader = _reader_of(results[0].origin.node)
        self.state = state
        found = tuple(
            [
                self._flat(operation if known is state else FURTHER, slots, known)
                for known in (state, *state.further)
            ]
        )
        replay.done += results
        if state.is_end:
            self._end_segment()
        return found if len(found) > 1 else found[0]

    def _flat(self, operation: Operation, slots: tuple[int, ...], state: State) -> Tracer:
        """Return a result that has neither cell nor node."""
        tracer: Tracer = _new(self.kind)
        tracer.strand, tracer.slot, tracer.state = self, len(self.values), state
        self.values.append(None)
        self._made.append((operation, slots, ref(tracer), state))
        return tracer

    def _enter(
        self, codes: tuple[Any, ...], arriving: Sequence[Any], reader: Reader | None
    ) -> tuple[int, ...]:
        """Return the slots of operands; those that have none get one."""
        slots, left = [], iter(arriving)
        for index, code in enumerate(codes[1:]):
            if type(code) is int:
                slots.append(self._start + code)
                continue
            value, slot = next(left), len(self.values)
            if type(value) is np.ndarray:
                known = self._entered.get(id(value))
                if known is not None and known[1] == code:  # of an earlier segment
                    self._links[known[0]] = slot
                    value = Link(known[0])
                else:
                    self._entered[id(value)] = slot, code
                    if self.level.check != "off":
                        self.level.locks.add(value)
                    value = Held(value, self.level.check, reader, index)
            elif type(value) is self.kind:
                self._links[value.slot] = slot
                value = Link(value.slot)
            self.values.append(value)
            self._made.append(None)
            slots.append(slot)
        return tuple(slots)

    def call(
        self,
        compute: _Compute,
        function: Hashable,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
    ) -> Any:
        """Return what a function of arrays gives, which may be made of several operations.

        Parameters
        ----------
        compute : callable
            Of the function and its arguments, returns what it gives.
        function : hashable
            What it is.
        args, kwargs : sequence, mapping
            Its arguments: traced values, also in tuples and lists; all else is a part of what is
            applied, but for arrays that matrix products read.
        """
        operands: list[Any] = []
        try:
            described = [self._described(value, operands, function) for value in args]
            described += [(n, self._described(v, operands, function)) for n, v in kwargs.items()]
        except TypeError:
            self._leave()
            return compute(function, args, kwargs)
        key = compute, function, *described
        operation = _OPERATIONS.get(key)
        if operation is None:
            taken = set(map(id, operands))
            given = _emptied((tuple(args), *kwargs.values()), lambda value: id(value) in taken)
            operation = Operation(partial(_call, compute, function, given, tuple(kwargs)))
            operation.is_kernel = False
            _OPERATIONS.keep(key, 1, operation)
        return self.apply(operation, operands)

    def _described(self, value: Any, operands: list[Any], function: Hashable) -> Hashable:
        """Return what tells an argument from others; what is an operand is added to these.

        Raises
        ------
        TypeError
            If it is none, and cannot be told from others for good.
        """
        kind = type(value)
        if kind is self.kind or (kind is np.ndarray and function in _READS_ARRAYS):
            operands.append(value)
            return None
        if kind is tuple or kind is list:
            return (kind, *[self._described(each, operands, function) for each in value])
        if kind in _PLAIN:
            return kind, value
        if kind is np.ndarray and value.dtype.kind in "iub" and value.size <= _MAX_INDICES:
            return kind, value.dtype, value.shape, value.tobytes()
        if kind is float:
            return kind, value.hex()  # zeros have signs
        if kind is slice:
            ends = value.start, value.stop, value.step
            return (kind, *[self._described(each, operands, function) for each in ends])
        if kind in _NUMBERS:
            return kind, value.tobytes()
        if isinstance(value, (type, np.dtype)):
            return cast("Hashable", value)
        raise TypeError(kind)

    def apply(self, operation: Operation, operands: Sequence[Any]) -> Any:
        """Return what an operation gives that may be made of others."""
        found = self.record(operation, operands)
        if found is not None or self._pending is None:
            return operation.compute(*operands) if found is None else found
        pending, self._is_cold = self._pending, True
        self.journal.is_static = operation.is_static(operands)
        slots = self._enter(pending[1], pending[2], None)
        try:
            result = operation.compute(*operands)
            self._pending = pending
            return self.learn(result, slots)
        except BaseException:  # what came in with it has slots that no other call gives them
            self._leave()
            raise
        finally:
            self._is_cold, self.journal.is_static = False, False

    def learn(self, result: Any, slots: tuple[int, ...] | None = None) -> Any:
        """Let what an operation gave on nodes be known; return it.

        ``slots`` are those of the operands if what came in with it has got some.
        """
        if self._pending is None or self._thread != get_ident():
            return result
        pending, self._pending = self._pending, None
        operation, codes, arriving, looks = pending
        if self.state is _OVER:
            return result
        results = result if type(result) is tuple else (result,)
        if looks != self.level.looks or not all(map(self._may_know, results)):
            self._leave()
            return result
        step = tuple(map(self._seen_from_here, codes))
        state = self.state.follow(codes, list(map(_described, results)), step)
        state.reader = _reader_of(results[0].origin.node)
        operands = self._enter(codes, arriving, state.reader) if slots is None else slots
        self.state = state
        for each, made in zip(results, (state, *state.further), strict=True):
            each.strand, each.slot = self, len(self.values)
            self.values.append(None)
            own = operation if made is state else FURTHER
            self._made.append((own, operands, ref(each), made))
            self._link(each.slot, operation, operands, each)
        if state.is_end:
            self._end_segment()
        return result

    def _seen_from_here(self, code: Any) -> Any:
        """Return a code such that it is alike in each turn of a loop."""
        if type(code) is not int:
            return code
        after = (each[3].count for each in self._made[self._start + code :] if each is not None)
        return SeenSlot(code, self.state.count - next(after, self.state.count))

    def _may_know(self, result: Any) -> bool:
        """Whether a result can be had without nodes."""
        if type(result) is not self.kind or result.strand is not None:
            return False
        node = result.origin.node
        is_made = type(node) in (KernelNode, RuleNode, ValuesNode)
        return is_made and len(result.origin.levels) == 1

    def _is_current(self, tracer: Tracer) -> bool:
        """Whether a tracer still stands for its slot: one with a node may have been written to."""
        if tracer.state is not None:
            return True
        cell = self._cells.get(tracer.slot)
        is_same = cell is not None and tracer.cell is cell()
        return is_same and tracer.origin is self._origins[tracer.slot]

    def has(self, value: Any) -> bool:
        """Whether a value is a tracer of the strand, and stands for its slot."""
        return type(value) is self.kind and value.strand is self and self._is_current(value)

    def held(self) -> tuple[int, ...]:
        """Return the slots whose tracers someone holds: planning asks for them."""
        made = enumerate(self._made)
        return tuple([slot for slot, each in made if each is not None and each[2]() is not None])

    # -- nodes -------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Go on with nodes for what strands do not know."""
        self.is_left = True
        self.level.journal = None
        self.depart()
        self.state = _OVER

    def complete(self) -> None:
        """Give tracers cells and nodes, since one is asked for them."""
        check_levels((self.level,))
        with self.level.lock:  # another thread may be about it
            if not self._is_cold:
                self._leave()

    def depart(self) -> None:
        """Give all tracers cells and nodes: everything recorded is done on nodes, in order."""
        with self.level.lock:
            if not self.is_flat:
                return
            self._is_cold, done = True, self._done  # after an exception, it goes on from there
            try:
                for slot in range(len(done), len(self._made)):
                    made = self._made[slot]
                    if made is None:
                        done.append(self._came_in(slot, done))
                    else:
                        done.append(self._on_nodes(slot, made, done))
                self.is_flat = False
            finally:
                self._is_cold = False
            self._done = []

    def _came_in(self, slot: int, done: Sequence[Any]) -> Any:
        """Return what came in, as operations on nodes take it."""
        value = self.values[slot]
        if type(value) is Link:
            return done[value.slot]
        return value.array if type(value) is Held else value

    def _on_nodes(self, slot: int, made: _Made, done: Sequence[Any]) -> Tracer:
        """Return what was recorded for a slot as a tracer with cell and node."""
        operation, operands, found, _ = made
        if operation is None:
            result = self._inputs[slot]()
            self.journal.name(result.cell, slot)
        elif operation is FURTHER:
            result = self._rest.pop(0)
        else:
            given = [done[at] for at in operands]
            self.journal.is_static = operation.is_static(given)
            result = operation.compute(*given)
            if type(result) is tuple:
                result, *self._rest = result
        tracer = found()
        if tracer is None:
            tracer = result
        else:
            tracer.cell, tracer.origin, tracer.sharing = result.cell, result.origin, result.sharing
            tracer.state = None
        self._link(slot, operation, operands, tracer)
        self.journal.is_static = False
        return tracer

    def _link(
        self, slot: int, operation: Operation | None, operands: tuple[int, ...], tracer: Tracer
    ) -> None:
        """Note where a tracer comes from, and which slots its nodes read."""
        origins, values = self._origins, self.values
        linked = [v.slot if type(v := values[at]) is Link else at for at in operands]
        known = {id(origins[at].node) for at in linked if at in origins}
        origins[slot] = tracer.origin
        self._cells[slot] = ref(tracer.cell)
        is_kernel = operation is not None and operation.is_kernel
        self.journal.link(tracer.origin.node, operands if is_kernel else None, known)

    # -- what has been recorded --------------------------------------------------------------------

    def made(self, slot: int) -> tuple[Operation | None, tuple[int, ...]] | None:
        """Return what made the value of a slot, None of an input; None if it came in."""
        found = self._made[slot]
        return None if found is None else found[:2]

    def arrived(self, slot: int) -> Any:
        """Return the array or number that came in, as operations take it."""
        value = self.values[slot]
        if type(value) is Link:
            value = self.values[value.slot]
        return value.array if type(value) is Held else value

    def is_traced(self, slot: int) -> bool:
        """Whether the value of a slot is an input, was made, or links to one that is."""
        value = self.values[slot]
        return self._made[value.slot if type(value) is Link else slot] is not None

    def known(self, slot: int) -> State:
        """Return what is known of a traced value."""
        value = self.values[slot]
        found = self._made[value.slot if type(value) is Link else slot]
        assert found is not None
        return found[3]

    def end(self) -> None:
        """Let nothing be recorded any more, and hold no node: the backward pass frees them."""
        self.state = _OVER
        self._entered = {}
        for each in (self._origins, self._cells, self._made, self._done):
            each.clear()
        self._inputs, self._pending, self._replay = (), None, None


def _described(tracer: Tracer) -> tuple[Kind, tuple[int, ...], bool]:
    """Return what states know of a value."""
    return tracer.cell.kind, tracer.cell.shape, is_numpy_number(tracer)


def _reader_of(node: Any) -> Reader:
    """Return what reads the arguments of a node, for messages."""
    return cast("Reader", node.call if type(node) is KernelNode else node.rule)
