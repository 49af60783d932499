"""What one call of a transform records of small arrays, as long as it is known from other calls.

A tracer of a strand is a slot: it has no cell and no node.  Operations look up the next state
(`mixad.tape.states`).  At the first that is not known, or where a tracer is asked for more than its
shape and type, everything is done on nodes in the order in which it was recorded, and goes on so:
what comes of it has the same bits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence
from threading import get_ident
from typing import Any, TypeAlias, cast

import numpy as np

from mixad.backends.arrays import describe_array
from mixad.tape.cell import Cell
from mixad.tape.held import Held
from mixad.tape.kernel_node import KernelNode
from mixad.tape.states import State
from mixad.tape.tracer import Level, Origin, Tracer, check_levels

__all__ = ["Operation", "Strand"]

_MAX_SLOTS = 256
"""Values of a strand; what follows is recorded on nodes."""

_MAX_INT = 1 << 31
"""Whole numbers up to this size fit all types that they may be converted to."""

_OVER = State()
"""The state of a strand whose transform has ended: nothing follows it."""


class Operation:
    """What is applied to operands, known by identity.

    Parameters
    ----------
    compute : callable
        Of tracers with cells and nodes, arrays and numbers, returns one tracer.
    """

    __slots__ = ("compute",)

    def __init__(self, compute: Callable[..., Any]) -> None:
        self.compute = compute


_Made: TypeAlias = "tuple[Operation | None, tuple[int, ...], weakref.ref[Tracer]]"
"""The operation, None of an input, the slots of its operands, the tracer."""

_Pending: TypeAlias = tuple[Operation, tuple[Any, ...], Sequence[Any]]
"""An operation that is not known, its key, what comes in with it."""


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
        By slot: a held array or a number that came in, None for what was made.
    inputs : int
        How many there are: the first slots.
    input_nodes : list of (int or None)
        The ids of the nodes of the inputs, once the recording has ended.
    links : dict
        By the id of a node, the slots of its arguments.
    places : dict
        By slot, the id of its node and which output it is.
    dtypes : dict
        By slot with a node, its dtype.
    is_flat : bool
        Whether its tracers have no nodes.
    is_left : bool
        Whether a tracer was asked for what strands do not know.
    """

    __slots__ = ("_cells", "_done", "_entered", "_inputs", "_is_cold", "_kind", "_made", "_origins",
                 "_pending", "_thread", "dtypes", "input_nodes", "inputs", "is_flat", "is_left",
                 "level", "links", "places", "state", "values")  # fmt: skip

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
        self.inputs = len(arrays)
        self.input_nodes: list[int | None] = []
        self.links: dict[int, tuple[int, ...]] = {}
        self.places: dict[int, tuple[int, int]] = {}
        self.dtypes: dict[int, Any] = {}
        self.is_flat = True
        self.is_left = False
        self._inputs = inputs
        self._kind = kind
        self._made: list[_Made | None] = []
        self._origins: dict[int, Origin] = {}
        self._cells: dict[int, weakref.ref[Cell]] = {}
        self._entered: dict[int, tuple[int, Hashable]] = {}
        self._thread = get_ident()
        self._is_cold = False
        self._done: list[Any] = []
        self._pending: _Pending | None = None

    def tracers_of_inputs(self, states: Sequence[State]) -> list[Tracer]:
        """Return a tracer for each input."""
        tracers = [self._tracer(slot, state) for slot, state in enumerate(states)]
        self._made += [(None, (), weakref.ref(tracer)) for tracer in tracers]
        return tracers

    def _tracer(self, slot: int, state: State) -> Tracer:
        tracer: Tracer = object.__new__(self._kind)
        tracer.strand, tracer.slot, tracer.state = self, slot, state
        return tracer

    # -- recording ---------------------------------------------------------------------------------

    def record(self, operation: Operation, operands: Sequence[Any]) -> Tracer | None:
        """Return what an operation gives, if that is known; else None.

        Then it is to be computed on nodes, and `learn` is to be told what came of it.
        """
        self._pending = None
        if self._is_cold or self.state is _OVER:
            return None
        key: list[Hashable] = [operation]
        arriving: list[Any] = []
        for operand in operands:
            kind = type(operand)
            if kind is self._kind:
                if operand.strand is not self or (
                    operand.state is None and not self._is_current(operand)
                ):
                    self._leave()
                    return None
                key.append(operand.slot)
            elif kind is np.ndarray:
                description = describe_array(operand)
                known = self._entered.get(id(operand))
                if known is not None and known[1] == description:
                    key.append(known[0])
                else:
                    key.append(description)
                    arriving.append(operand)
            elif kind is float or (kind is int and -_MAX_INT < operand < _MAX_INT):
                key.append(cast(Hashable, kind))
                arriving.append(operand)
            else:
                self._leave()
                return None
        if self._thread != get_ident() or len(self.values) > _MAX_SLOTS:
            self._leave()
            return None
        codes = tuple(key)
        with self.level.lock:  # another thread may ask for nodes
            state = self.state.next.get(codes) if self.is_flat else None
            if state is None:
                self.depart()
                self._pending = operation, codes, arriving
                return None
            slots = self._enter(codes, arriving, state)
            tracer = self._tracer(len(self.values), state)
            self._advance(operation, slots, tracer, state)
        return tracer

    def _advance(
        self, operation: Operation, operands: tuple[int, ...], tracer: Tracer, state: State
    ) -> None:
        self.values.append(None)
        self._made.append((operation, operands, weakref.ref(tracer)))
        self.state = state

    def _enter(
        self, codes: tuple[Any, ...], arriving: Sequence[Any], state: State
    ) -> tuple[int, ...]:
        """Return the slots of operands; those that have none get one."""
        if not arriving:
            return codes[1:]
        slots, left = [], iter(arriving)
        for index, code in enumerate(codes[1:]):
            if type(code) is int:
                slots.append(code)
                continue
            value, slot = next(left), len(self.values)
            if type(value) is np.ndarray:
                self._entered[id(value)] = slot, code
                if self.level.check != "off":
                    self.level.locks.add(value)
                value = Held(value, self.level.check, state.reader, index)
            self.values.append(value)
            self._made.append(None)
            slots.append(slot)
        return tuple(slots)

    def learn(self, result: Any) -> Any:
        """Let what an operation gave on nodes be known; return it."""
        if self._pending is None or self._thread != get_ident():
            return result
        pending, self._pending = self._pending, None
        if self.state is _OVER or type(result) is not self._kind:
            return result
        origin = result.origin
        node = origin.node
        is_plain = type(node) is KernelNode and result.cell.pending is node
        if not is_plain or len(origin.levels) > 1 or result.sharing is not None or result.strand:
            return result
        operation, codes, arriving = pending
        state = self.state.follow(codes, result.cell.kind, result.cell.shape)
        state.reader = cast(KernelNode, node).call
        operands = self._enter(codes, arriving, state)
        result.strand, result.slot = self, len(self.values)
        self._advance(operation, operands, result, state)
        self._link(result.slot, operands, result)
        return result

    def _is_current(self, tracer: Tracer) -> bool:
        """Whether a tracer still stands for its slot: one with a node may have been written to."""
        if tracer.state is not None:
            return True
        cell = self._cells.get(tracer.slot)
        is_same = cell is not None and tracer.cell is cell()
        return is_same and tracer.origin is self._origins[tracer.slot]

    def has(self, value: Any) -> bool:
        """Whether a value is a tracer of the strand, and stands for its slot."""
        return type(value) is self._kind and value.strand is self and self._is_current(value)

    def held(self) -> tuple[int, ...]:
        """Return the slots whose tracers someone holds: planning asks for them."""
        made = enumerate(self._made)
        return tuple([slot for slot, each in made if each is not None and each[2]() is not None])

    # -- nodes -------------------------------------------------------------------------------------

    def _leave(self) -> None:
        """Go on with nodes for what strands do not know."""
        self.is_left = True
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
                        value = self.values[slot]
                        done.append(value.array if type(value) is Held else value)
                    else:
                        done.append(self._on_nodes(slot, made, done))
                self.is_flat = False
            finally:
                self._is_cold = False
            self._done = []

    def _on_nodes(self, slot: int, made: _Made, done: Sequence[Any]) -> Tracer:
        """Return what was recorded for a slot as a tracer with cell and node."""
        operation, operands, found = made
        if operation is None:
            result = self._inputs[slot]()
        else:
            result = operation.compute(*[done[at] for at in operands])
        tracer = found()
        if tracer is None:
            tracer = result
        else:
            tracer.cell, tracer.origin, tracer.sharing = result.cell, result.origin, result.sharing
            tracer.state = None
        self._link(slot, operands, tracer)
        return tracer

    def _link(self, slot: int, operands: tuple[int, ...], tracer: Tracer) -> None:
        """Note where a tracer comes from, and which slots its node reads."""
        node: Any = tracer.origin.node
        self._origins[slot] = tracer.origin
        self._cells[slot] = weakref.ref(tracer.cell)
        self.places[slot] = id(node), tracer.origin.output
        self.dtypes[slot] = tracer.dtype
        if id(node) not in self.links and len(getattr(node, "arguments", ())) == len(operands):
            self.links[id(node)] = operands

    def end(self) -> None:
        """Let nothing be recorded any more, and hold no node: the backward pass frees them."""
        self.state = _OVER
        origins = map(self._origins.get, range(self.inputs))
        self.input_nodes = [None if origin is None else id(origin.node) for origin in origins]
        for each in (self._origins, self._cells, self._made, self._entered, self._done):
            each.clear()
        self._inputs, self._pending = (), None
