"""Gradients of small arrays by strands: what is known of a recording is not planned again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from functools import partial
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
from mixad.tape.node import InputNode
from mixad.tape.states import State, initial_state
from mixad.tape.strand import Strand
from mixad.tape.strand_plan import StrandPlan, plan_of
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["StrandCall", "open_strand"]

_MAX_ELEMENTS = 1 << 20
"""Elements of all inputs of a strand: a plan is tried once beside the pass that it repeats."""


_MAX_LEFT = 2
"""Calls in which a function may leave its strand before none is opened for it any more."""

_LEFT: dict[int, int] = {}
"""By the id of a function's code, how often a strand of it was left."""


def open_strand(
    level: Level, f: Function, args: Sequence[Any], positions: Sequence[int]
) -> StrandCall | None:
    """Return the strand of a call whose differentiated arguments are small arrays of NumPy."""
    code = getattr(f, "__code__", f)
    if _LEFT.get(id(code), 0) >= _MAX_LEFT:
        return None
    arrays = [args[position] for position in positions]
    if not all(map(_is_taken, arrays)) or sum([a.size for a in arrays]) > _MAX_ELEMENTS:
        return None
    return StrandCall(level, code, args, positions, arrays)


def _note_left(code: Any) -> None:
    """Count that a function left its strand: it asks for more than strands know."""
    if id(code) not in _LEFT:
        try:
            weakref.finalize(code, _LEFT.pop, id(code), None).atexit = False
        except TypeError:  # nobody tells when the id is another object's
            return
    _LEFT[id(code)] = _LEFT.get(id(code), 0) + 1


def _is_taken(array: Any) -> bool:
    return type(array) is np.ndarray and array.ndim > 0 and array.dtype in _DTYPES


_DTYPES = (np.dtype(np.float64), np.dtype(np.float32))


class _Asked(NamedTuple):
    """What a plan is kept for: the end of a recording, and what is asked of it."""

    state: State
    key: tuple[int, bool, tuple[int, ...]]
    dtype: Any
    value: int | None


class StrandCall:
    """One call of a transform.

    Attributes
    ----------
    inputs : Inputs
        What the function is called with.
    plan : StrandPlan or None
        What computes value and gradients, if it is known.
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
        self.plan: StrandPlan | None = None
        self._asked: _Asked | None = None
        state = initial_state((tuple(map(describe_array, arrays)), level.check))
        if not state.inputs:
            state.inputs = tuple(
                State(kind_of(element_type_of(a.dtype), NUMPY), a.shape) for a in arrays
            )
        self._states = state.inputs
        enter = [partial(self._entered, k) for k in range(len(arrays))]
        self._strand = Strand(level, state, arrays, enter, ArrayTracer)
        for array in arrays:
            if level.check != "off" and not is_compared_whole(array):
                level.locks.add(array)
        given = list(args)
        tracers = self._strand.tracers_of_inputs(state.inputs)
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
        """End the recording: find its plan, or give what the function returned nodes."""
        strand, state = self._strand, self._strand.state
        if strand.is_left:
            _note_left(self._code)
        if outputs.structure is pytree.LEAF and strand.has(outputs.leaves[0]):
            leaf = outputs.leaves[0]
            key = leaf.slot, value, strand.held()
            takes_plans = strand.is_flat and self._level.check != "full"
            self.plan = state.plans.get(key) if takes_plans else None
            if self.plan is None:
                strand.depart()
                register = strand.journal.register(leaf.cell)
                self._asked = _Asked(state, key, leaf.dtype, register if value else None)
        if self.plan is None:
            strand.depart()
        strand.end()

    def fail(self) -> None:
        """End the recording of a function that raised: its tracers are refused from now on."""
        self._strand.end()

    def run(self) -> tuple[Any, list[Any]]:
        """Return the value and the gradients, by the plan."""
        assert self.plan is not None
        return self.plan.run(self._strand.values)

    def check(self, value: Any, gradients: Sequence[Any]) -> None:
        """Let a plan of what was done be taken from now on if it gives the same, bit by bit."""
        journal, asked = self._level.journal, self._asked
        self._level.journal = None
        if asked is None or journal is None:
            return
        known = asked.state.plans.get(asked.key)
        if known is not None and self._level.check == "full":
            assert self._gives(known, value, gradients), "a known gradient is another one"
        if known is not None:
            return
        made = plan_of(journal, self._strand.values, self._states, asked.dtype, asked.value)
        if made is not None and self._gives(made, value, gradients):
            asked.state.keep(asked.key, made)
        else:
            _note_left(self._code)

    def _gives(self, plan: StrandPlan, value: Any, gradients: Sequence[Any]) -> bool:
        """Whether a plan gives these, bit by bit."""
        own, found = plan.run(self._strand.values)
        pairs = zip([own, *found], [value, *gradients], strict=True)
        return all(_are_same(a, b) for a, b in pairs)


def _are_same(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return type(a) is type(b) and a.dtype == b.dtype and bool(a.tobytes() == b.tobytes())
