"""Calls of transforms by strands: what is known of a recording is not planned again."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.arrays import NUMPY, describe_array, is_array, is_number
from mixad.lifting import Inputs, Outputs, called, in_structures
from mixad.namespace.array import ArrayTracer
from mixad.returning import handed
from mixad.signature import Function
from mixad.strand_history import History
from mixad.tape.cell import Cell
from mixad.tape.constant import is_traced
from mixad.tape.journal import Journal, Launched, Register
from mixad.tape.memory import noted_array
from mixad.tape.node import InputNode
from mixad.tape.over_numpy import as_numpy, have_same_bits, of_numpy
from mixad.tape.plan import Plan
from mixad.tape.segments import MAX_FUSED, Run, one_of, values_of_slots
from mixad.tape.states import State
from mixad.tape.strand import Computed, Strand
from mixad.tape.strand_plan import plan_of
from mixad.tape.tracer import Level, Origin, Tracer

__all__ = ["VALUES_ALONE", "Asked", "StrandCall", "as_input", "size_of"]

_MAX_AT_ONCE = 1 << 20
"""Of so many elements a plan is made in the first call; of more in the second, as many would be in
memory twice, in a call that may be the only one."""


class Asked(NamedTuple):
    """What is asked of a call beside its gradients.

    Attributes
    ----------
    given : array or pytree
        The cotangent of the value, or the tangents of the inputs.
    of_number : bool
        Whether the value is to be one number, with the cotangent 1.
    with_value : bool
        Whether the value is asked for.
    """

    given: Any
    of_number: bool
    with_value: bool


VALUES_ALONE = Asked(None, of_number=False, with_value=True)
"""Values, and no gradients."""


class _Returned(NamedTuple):
    """What the caller gets beside gradients: leaves of the value, if it is wanted, and of aux."""

    leaves: list[Any]
    structures: list[pytree.Structure]

    def trees(self, values: Mapping[int, Any], level: Level) -> list[Any]:
        """Return value and aux, with the values of some leaves."""
        given = enumerate(self.leaves)
        leaves = [values[k] if k in values else handed(leaf, level) for k, leaf in given]
        return in_structures(leaves, self.structures)


def _returned(outputs: Outputs, aux: Any, *, with_value: bool) -> _Returned:
    """Return what the caller gets of what the function returned."""
    leaves, structure = pytree.flatten(aux)
    if not with_value:
        return _Returned(leaves, [pytree.flatten(None)[1], structure])
    return _Returned([*outputs.leaves, *leaves], [outputs.structure, structure])


_NOTHING = _Returned([], [])


_slot_of = attrgetter("slot")


class _Wanted(NamedTuple):
    """What a plan is kept for: the end of a recording, and what is asked of it."""

    state: State
    key: Hashable
    outputs: tuple[Register, ...]


class StrandCall:
    """One call of a transform.

    Parameters
    ----------
    level : Level
        The transform's.
    f : callable
        What is called.
    history : History
        How its calls went.
    structures : sequence of Structure
        What the arguments that are inputs are made of.
    arrays : sequence of array or Tracer
        Their leaves.
    state : State
        In which these have come in.

    Attributes
    ----------
    arguments : list
        What the function is called with.
    inputs : list of Tracer
        What stands in it for the arrays.
    is_known : bool
        Whether what is asked for can be had without nodes.
    """

    arguments: list[Any]
    is_known = False
    _make_run: Callable[[Strand], Computed] = Run
    _lifted: Inputs | None = None
    _plan: Plan | None = None
    _found: tuple[Sequence[Any], Sequence[Any]] | None = None
    _wanted: _Wanted | None = None
    _returned = _NOTHING
    _traced: Sequence[int] = ()
    _cotangents: Sequence[Any] = ()

    def __init__(
        self,
        level: Level,
        f: Function,
        history: History,
        structures: Sequence[pytree.Structure],
        arrays: Sequence[Any],
        state: State,
    ) -> None:
        self._level = level
        self._f = f
        self._history = history
        self._structures = structures
        self._arrays = arrays
        self._states = state.inputs
        self._strand = Strand(level, state, arrays, self._entered, ArrayTracer, self._make_run)
        self.inputs = self._strand.tracers_of_inputs()

    @classmethod
    def takes(cls, arrays: Sequence[Any], described: Sequence[Hashable]) -> bool:
        """Whether there is such a call for inputs, of which None is told where all is not known."""
        return True

    def completed(self) -> Inputs:
        """Return the inputs with their nodes: arrays count as they were when they came in."""
        if self._lifted is None:
            alone = frozenset((self._level,))
            nodes: list[InputNode] = []
            cells: list[Cell] = []
            tracers: list[Any] = []
            slots = zip(self._arrays, self._states, self._strand.values, strict=False)
            for array, state, held in slots:
                assert state.kind is not None
                device = getattr(array, "device", None)
                cells.append(Cell.of_held(held, state.shape, state.kind, device))
                nodes.append(InputNode(self._level, None))
                tracer = ArrayTracer(cells[-1], Origin(nodes[-1], 0, alone))
                tracers.append(tracer if state.is_number else noted_array(tracer))
            self._tracers = tracers
            kinds: list[type] = [np.generic if s.is_number else np.ndarray for s in self._states]
            structures = list(self._structures)
            self._lifted = Inputs([], nodes, cells, kinds, structures, [])
        return self._lifted

    def _entered(self, index: int) -> Tracer:
        """Return the tracer, with cell and node, of an input."""
        self.completed()
        found: Tracer = self._tracers[index]
        return found

    def record(
        self, f: Function, kwargs: dict[str, Any], has_aux: bool, asked: Asked
    ) -> tuple[Outputs, Any]:
        """Call the function; return its outputs and its aux.

        Tracers of one that raised are refused from now on.
        """
        try:
            outputs, aux = called(f, self.arguments, kwargs, has_aux, self._level)
            self.finish(outputs, aux, asked)
        except BaseException:
            self._strand.end()
            raise
        return outputs, aux

    def finish(self, outputs: Outputs, aux: Any, asked: Asked) -> None:
        """End the recording: find what computes it, or give what the function returned nodes."""
        strand = self._strand
        if asked.with_value or aux is not None:
            self._returned = _returned(outputs, aux, with_value=asked.with_value)
        if self._is_of_strand(outputs, asked):
            self._find(outputs, asked)
        if strand.has_opened:
            self._history.note_new(self._f)
        elif strand.is_left:
            self._history.leave(self._f)
        self.is_known = self._plan is not None or self._found is not None
        if not self.is_known:
            strand.depart()
        strand.end()

    def _is_of_strand(self, outputs: Outputs, asked: Asked) -> bool:
        """Whether what the function returned is traced by the strand or not at all."""
        has, leaves = self._strand.has, self._returned.leaves
        if asked.of_number:
            is_one = outputs.structure is pytree.LEAF and has(outputs.leaves[0])
            if not (is_one and leaves):
                return is_one
        self._traced = [at for at, leaf in enumerate(leaves) if has(leaf)]
        return not any(is_traced(leaf) and not has(leaf) for leaf in (*outputs.leaves, *leaves))

    def _find(self, outputs: Outputs, asked: Asked) -> None:
        """Find what computes what is asked for."""
        strand, state, returned = self._strand, self._strand.state, self._returned
        values: tuple[int, ...] = ()
        if self._traced:
            values = tuple([returned.leaves[at].slot for at in self._traced])
        given: Hashable = None
        if asked.of_number:
            leaf = outputs.leaves[0]
            slots: tuple[int, ...] = (leaf.slot,)
            self._cotangents = (one_of(leaf.kind),)
        elif asked is VALUES_ALONE:
            slots = ()
            if not values:
                return
        else:
            seeds = outputs.seeds(asked.given, self._level)
            if not seeds or not self._are_alike([g for _, g in seeds]):
                return
            slots = tuple([leaf.slot for leaf, _ in seeds])
            self._cotangents = [as_numpy(g) for _, g in seeds]
            given = tuple(map(describe_array, self._cotangents))
        if strand.ends:
            if not strand.is_left and (not asked.of_number or self._is_float(slots[0])):
                pairs = list(zip(slots, self._cotangents, strict=True))
                run = strand.run or Run(strand)
                assert isinstance(run, Run)
                self._found = run.gradient(pairs, values)
                strand.is_left = self._found is None
            return
        key = slots, given, values, tuple(map(_slot_of, strand.alive()))
        takes_plans = strand.is_flat and self._level.check != "full"
        self._plan = state.plans.get(key) if takes_plans else None
        if self._plan is None:
            self._level.fuses = state.weight <= MAX_FUSED or not state.is_small
            strand.depart()
            if state.come() >= self._least_calls():
                register = strand.on_nodes().journal.register
                wanted = [returned.leaves[at].cell for at in self._traced]
                self._wanted = _Wanted(state, key, tuple(map(register, wanted)))

    def _is_float(self, slot: int) -> bool:
        """Whether a value is one number of floats."""
        known = self._strand.known(slot)
        return not known.shape and known.kind is not None and known.kind.type.is_float

    def _are_alike(self, given: Sequence[Any]) -> bool:
        """Whether cotangents are arrays such as those that came in."""
        kind, device = type(self._arrays[0]), self._strand.device
        return all(
            type(g) is kind and g.device == device and describe_array(g) is not None for g in given
        )

    def _least_calls(self) -> int:
        """Return in which call a plan is made."""
        if not self._level.fuses:
            return 3
        return 1 if size_of(self._arrays) <= _MAX_AT_ONCE else 2

    def run(self) -> tuple[Any, list[Any], Any]:
        """Return the value, None if it is not wanted, the gradients, and aux."""
        if self._found is None:
            assert self._plan is not None
            self._history.new = 0
            self._found = self._plan.run(self._strand.values, self._cotangents)
        return self._answer(*self._found)

    def _answer(
        self, values: Sequence[Any], cotangents: Sequence[tuple[Any, bool] | None]
    ) -> tuple[Any, list[Any], Any]:
        gradients = self._gradients(cotangents) if cotangents else []
        if not self._returned.structures:
            return None, gradients, None
        leaves = [self._returned.leaves[at] for at in self._traced]
        of_leaves = dict(zip(self._traced, map(self._handed, values, leaves), strict=True))
        value, aux = self._returned.trees(of_leaves, self._level)
        return value, gradients, aux

    def _gradients(self, cotangents: Sequence[tuple[Any, bool] | None]) -> list[Any]:
        """Return cotangents of the inputs as the caller gets them."""
        library, found = self._strand.library, list(map(_gradient, cotangents, self._states))
        if library is not NUMPY:
            found = [of_numpy(library, array) for array in found]
        return in_structures(found, self._structures)

    def _handed(self, value: Any, leaf: Tracer) -> Any:
        """Return a value as the caller gets it: NumPy has numbers where there is no axis."""
        if self._strand.library is not NUMPY:
            return of_numpy(self._strand.library, value)
        return value if value.ndim else _number_in(value, leaf)

    def check(self, *found: Any) -> None:
        """Let a plan of what was done be taken from now on if it gives the same, bit by bit.

        ``found`` are value, gradients and aux.
        """
        try:
            self._check(found)
        finally:
            self._strand.forget_calls()

    def _check(self, found: Sequence[Any]) -> None:
        journal, wanted = self._level.journal, self._wanted
        self._level.journal = None
        if wanted is None or journal is None:
            return
        if not self._cotangents and _may_warn(journal):
            self._history.leave(self._f)
            return
        known: Plan | None = wanted.state.plans.get(wanted.key)
        if known is not None and self._level.check == "full":
            assert self._gives(known, found), "a known gradient is another one"
        if known is not None:
            return
        values, library = values_of_slots(self._strand.values), self._strand.library
        made = plan_of(journal, values, self._cotangents, wanted.outputs, library, ArrayTracer)
        if made is not None and self._gives(made, found):
            wanted.state.keep(wanted.key, made)
            self._history.note_new(self._f)
        else:
            self._history.leave(self._f)

    def _gives(self, plan: Plan, found: Sequence[Any]) -> bool:
        """Whether a plan gives these, bit by bit."""
        own = self._answer(*plan.run(self._strand.values, self._cotangents, warns=False))
        return all(map(_are_same, pytree.leaves(own), pytree.leaves(found)))


def _may_warn(journal: Journal) -> bool:
    """Whether a kernel has loops that may decide a result: of that nodes warn in each call."""
    launched = [entry for entry in journal.entries if type(entry) is Launched]
    return any(p.has_named_loops for entry in launched for p in entry.call.passes)


def _gradient(cotangent: tuple[Any, bool] | None, state: State) -> Any:
    """Return a gradient of the shape of an input, which nothing else holds; of a number one."""
    if cotangent is None:
        assert state.kind is not None
        found = np.zeros(state.shape, state.kind.type.dtype)
    else:
        found, is_own = cotangent
        if type(found) is not np.ndarray or not (is_own and found.shape == state.shape):
            found = np.array(np.broadcast_to(found, state.shape))
    return as_input(found, state) if state.is_number else found


def as_input(array: Any, state: State) -> Any:
    """Return an array for an input as such inputs come in: of a number one."""
    return _number_in(array, state) if state.is_number else array


def _number_in(array: np.ndarray[Any, Any], known: State | Tracer) -> Any:
    """Return the number in an array without axes: what comes of Python's only is one of Python."""
    assert known.kind is not None
    return array.item() if known.kind.weak else array[()]


def _are_same(a: Any, b: Any) -> bool:
    if not is_array(a):
        return a is b or (is_number(a) and type(a) is type(b) and a == b)
    return have_same_bits(a, b)


def size_of(arrays: Sequence[Any]) -> int:
    """Return how many elements some arrays have."""
    return sum([math.prod(array.shape) for array in arrays])
