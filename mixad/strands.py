"""Gradients of small arrays by strands: what is known of a recording is not planned again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.arrays import NUMPY, describe_array
from mixad.lifting import Inputs, Outputs
from mixad.namespace.array import ArrayTracer
from mixad.scalar.dtypes import element_type_of
from mixad.signature import Function
from mixad.tape.cell import Cell, kind_of
from mixad.tape.held import is_compared_whole
from mixad.tape.journal import Register
from mixad.tape.node import InputNode
from mixad.tape.schedule import Cotangent
from mixad.tape.segments import one_of, values_of_slots, whole_gradient
from mixad.tape.states import State, initial_state
from mixad.tape.strand import Strand
from mixad.tape.strand_plan import Plan, plan_of
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["StrandCall", "open_strand"]

_MAX_ELEMENTS = 1 << 20
"""Elements of all inputs of a strand: a plan is tried once beside the pass that it repeats."""


_MAX_FUSED = 128
"""Operations of a recording that are fused: compiling more would take seconds.  So many on small
arrays are launched one by one, in whichever call, so that results depend on the recording alone."""

_MAX_LEFT = 2
"""Calls in which a function may leave its strand before none is opened for it any more."""

_MAX_NEW = 16
"""Calls one after another in which a function may do what it has not done before; further ones
count as if it had left its strand: planning costs more than it saves."""


class _History:
    """How calls of a function went: how many left their strand, how many new plans came at last."""

    __slots__ = ("left", "new")

    def __init__(self) -> None:
        self.left = self.new = 0


_HISTORIES: dict[int, _History] = {}
"""By the id of a function's code."""


def _history_of(code: Any) -> _History:
    """Return what is known of a function's calls; it is forgotten with the function."""
    found = _HISTORIES.get(id(code))
    if found is None:
        found = _History()
        try:
            weakref.finalize(code, _HISTORIES.pop, id(code), None).atexit = False
        except TypeError:  # nobody tells when the id is another object's
            return found
        _HISTORIES[id(code)] = found
    return found


def open_strand(
    level: Level, f: Function, args: Sequence[Any], positions: Sequence[int]
) -> StrandCall | None:
    """Return the strand of a call whose differentiated arguments are small arrays of NumPy."""
    code = getattr(f, "__code__", f)
    history = _HISTORIES.get(id(code))
    if history is not None and history.left >= _MAX_LEFT:
        return None
    arrays = [args[position] for position in positions]
    if not all(map(_is_taken, arrays)) or sum([a.size for a in arrays]) > _MAX_ELEMENTS:
        return None
    return StrandCall(level, code, args, positions, arrays)


def _is_taken(array: Any) -> bool:
    return type(array) is np.ndarray and array.ndim > 0 and array.dtype in _DTYPES


_DTYPES = (np.dtype(np.float64), np.dtype(np.float32))


class _Asked(NamedTuple):
    """What a plan is kept for: the end of a recording, and what is asked of it."""

    state: State
    key: tuple[int, bool, tuple[int, ...]]
    output: Register


class StrandCall:
    """One call of a transform.

    Attributes
    ----------
    inputs : Inputs
        What the function is called with.
    """

    def __init__(
        self,
        level: Level,
        code: Any,
        args: Sequence[Any],
        positions: Sequence[int],
        arrays: Sequence[np.ndarray[Any, Any]],
    ) -> None:
        self._level = level
        self._code = code
        self._arguments = args, positions
        self._lifted: Inputs | None = None
        self._plan: Plan | None = None
        self._found: tuple[Any, list[Cotangent | None]] | None = None
        self._asked: _Asked | None = None
        self._dtype: Any = None
        self._value = False
        state = initial_state((tuple(map(describe_array, arrays)), level.check))
        if not state.inputs:
            state.inputs = tuple(
                State(kind_of(element_type_of(a.dtype), NUMPY), a.shape) for a in arrays
            )
        self._states = state.inputs
        self._strand = Strand(level, state, arrays, self._entered, ArrayTracer)
        for array in arrays:
            if level.check != "off" and not is_compared_whole(array):
                level.locks.add(array)
        given = list(args)
        tracers = self._strand.tracers_of_inputs()
        for position, tracer in zip(positions, tracers, strict=True):
            given[position] = tracer
        self.inputs = Inputs(given, [], [], [], [], [])

    def completed(self) -> Inputs:
        """Return the inputs with their nodes: arrays count as they were when they came in."""
        if self._lifted is None:
            args, positions = self._arguments
            given, alone = list(args), frozenset((self._level,))
            nodes: list[InputNode] = []
            cells: list[Cell] = []
            for k, position in enumerate(positions):
                state, held = self._states[k], self._strand.values[k]
                assert state.kind is not None
                device = getattr(args[position], "device", None)
                cells.append(Cell.of_held(held, state.shape, state.kind, device))
                nodes.append(InputNode(self._level, None))
                origin = Origin(nodes[k], 0, alone)
                given[position] = ArrayTracer(cells[k], origin)
            kinds: list[type] = [np.ndarray] * len(nodes)
            self._lifted = Inputs(given, nodes, cells, kinds, [pytree.LEAF] * len(nodes), [])
        return self._lifted

    def _entered(self, index: int) -> Tracer:
        """Return the tracer, with cell and node, of an input."""
        inputs = self.completed()
        found: Tracer = inputs.arguments[self._arguments[1][index]]
        return found

    def finish(self, outputs: Outputs, *, value: bool) -> None:
        """End the recording: find what computes it, or give what the function returned nodes."""
        strand = self._strand
        if outputs.structure is pytree.LEAF and strand.has(outputs.leaves[0]):
            self._find(outputs.leaves[0], value)
        if strand.is_left:
            _history_of(self._code).left += 1
        if not self.is_known:
            strand.depart()
        strand.end()

    def _find(self, leaf: Any, value: bool) -> None:
        """Find what computes a value that the function returned."""
        strand, state = self._strand, self._strand.state
        self._dtype, self._value = strand.known(leaf.slot).dtype, value
        if strand.ends:
            if not leaf.shape and not strand.is_left and leaf.kind.type.is_float:
                count = len(self._states)
                self._found = whole_gradient(strand, count, leaf.slot, with_value=value)
                strand.is_left = self._found is None
            return
        key = leaf.slot, value, tuple([tracer.slot for tracer in strand.alive()])
        takes_plans = strand.is_flat and self._level.check != "full"
        self._plan = state.plans.get(key) if takes_plans else None
        if self._plan is None:
            self._level.fuses = state.count <= _MAX_FUSED or not state.is_small
            strand.depart()
            if self._level.fuses or state.comes_often():
                register = strand.on_nodes().journal.register(leaf.cell)
                self._asked = _Asked(state, key, register)

    @property
    def is_known(self) -> bool:
        """Whether value and gradients can be had without nodes."""
        return self._plan is not None or self._found is not None

    def fail(self) -> None:
        """End the recording of a function that raised: its tracers are refused from now on."""
        self._strand.end()

    def run(self) -> tuple[Any, list[Any]]:
        """Return the value, None if it is not wanted, and the gradients."""
        if self._found is None:
            assert self._plan is not None
            _history_of(self._code).new = 0
            self._found = self._run(self._plan, warns=True)
        value, cotangents = self._found
        return None if value is None else value[()], self._gradients(cotangents)

    def _run(self, plan: Plan, *, warns: bool) -> tuple[Any, list[Cotangent | None]]:
        values = values_of_slots(self._strand.values, plan.slots)
        found, cotangents = plan.run(values, (one_of(self._dtype),), warns=warns)
        return found[0] if found else None, cotangents

    def _gradients(self, cotangents: Sequence[Cotangent | None]) -> list[Any]:
        """Return gradients of the shapes of the inputs, which nothing else holds."""
        return [_gradient(c, state) for c, state in zip(cotangents, self._states, strict=True)]

    def check(self, value: Any, gradients: Sequence[Any]) -> None:
        """Let a plan of what was done be taken from now on if it gives the same, bit by bit."""
        journal, asked = self._level.journal, self._asked
        self._level.journal = None
        if asked is None or journal is None:
            return
        known: Plan | None = asked.state.plans.get(asked.key)
        if known is not None and self._level.check == "full":
            assert self._gives(known, value, gradients), "a known gradient is another one"
        if known is not None:
            return
        values = values_of_slots(self._strand.values)
        wanted = (asked.output,) if self._value else ()
        history = _history_of(self._code)
        made = plan_of(journal, values, (one_of(self._dtype),), wanted)
        if made is not None and self._gives(made, value, gradients):
            asked.state.keep(asked.key, made)
            history.new += 1
            history.left += history.new > _MAX_NEW
        else:
            history.left += 1

    def _gives(self, plan: Plan, value: Any, gradients: Sequence[Any]) -> bool:
        """Whether a plan gives these, bit by bit."""
        own, cotangents = self._run(plan, warns=False)
        found = [None if own is None else own[()], *self._gradients(cotangents)]
        return all(_are_same(a, b) for a, b in zip(found, [value, *gradients], strict=True))


def _gradient(cotangent: Cotangent | None, state: State) -> np.ndarray[Any, Any]:
    """Return a gradient of the shape of an input, which nothing else holds."""
    if cotangent is None:
        return np.zeros(state.shape, state.dtype)
    found: np.ndarray[Any, Any] = cotangent.value
    if cotangent.is_own(state.shape):
        return found
    return np.array(np.broadcast_to(found, state.shape))


def _are_same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return type(a) is type(b) and a.dtype == b.dtype and bool(a.tobytes() == b.tobytes())
