"""Calls of transforms by strands: a recording that is known is not planned again."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mixad import pytree
from mixad.backends.arrays import NUMPY, describe_array
from mixad.call.signature import Function
from mixad.namespace.array import ArrayTracer
from mixad.tape.body import came_into
from mixad.tape.cell import Cell
from mixad.tape.constant import is_traced
from mixad.tape.guard import GuardedArray
from mixad.tape.memory import noted_array
from mixad.tape.node import InputNode
from mixad.tape.operations import results_of
from mixad.tape.plan import Plan
from mixad.tape.registers import as_register, filled, of_register, own_array
from mixad.tape.segments import MAX_FUSED, Run, one_of
from mixad.tape.states import State
from mixad.tape.strand import Computed, Strand
from mixad.tape.tracer import Level, Origin, Tracer
from mixad.transforms.inside import MAX_INSIDE, HandedOnError, InnerRun, operation_of, pull_back
from mixad.transforms.lifting import Inputs, Outputs, called, in_structures
from mixad.transforms.returning import unwrap_shared
from mixad.transforms.strand_history import History

__all__ = ["VALUES_ALONE", "CallRequest", "StrandCall", "as_input", "size_of"]


class CallRequest(NamedTuple):
    """What is asked of a call beside its gradients."""

    given: Any  # the cotangent of the value, or the tangents of the inputs
    of_number: bool  # whether the value must be one number, with cotangent 1
    with_value: bool  # whether the value is asked for


VALUES_ALONE = CallRequest(None, of_number=False, with_value=True)
"""A request for values without gradients."""


class _Returned(NamedTuple):
    """What the caller gets beside gradients: leaves of the value, if wanted, and of aux."""

    leaves: list[Any]
    structures: list[pytree.Structure]

    def trees(self, values: Mapping[int, Any], level: Level) -> list[Any]:
        """Return value and aux, with the values of some leaves."""
        given = enumerate(self.leaves)
        leaves = [values[k] if k in values else unwrap_shared(leaf, level) for k, leaf in given]
        return in_structures(leaves, self.structures)


def _returned(outputs: Outputs, aux: Any, *, with_value: bool) -> _Returned:
    """Return the caller's part of a function's result."""
    leaves, structure = pytree.flatten(aux)
    if not with_value:
        return _Returned(leaves, [pytree.flatten(None)[1], structure])
    return _Returned([*outputs.leaves, *leaves], [outputs.structure, structure])


_NOTHING = _Returned([], [])


class StrandCall:
    """One call of a transform, recorded as a strand; inside of others one operation of theirs.

    ``structures`` and ``arrays`` are the arguments that are inputs, flattened, and ``state`` is the
    state in which they come in. `arguments` are what the function is called with, `inputs` the
    tracers in them. `is_known` says that no nodes are needed for what is asked.
    """

    arguments: list[Any]
    is_known = False
    _lifted: Inputs | None = None
    _key: tuple[tuple[int, ...], Hashable, tuple[int, ...]] | None = None
    _plan: Plan | None = None
    _found: tuple[Sequence[Any], Sequence[Any]] | None = None
    _returned = _NOTHING
    _traced: Sequence[int] = ()
    _cotangents: Sequence[Any] = ()
    _is_of_number = False

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
        self._strand = Strand(level, state, arrays, self._entered, ArrayTracer, _make_run)
        self.inputs = self._strand.tracers_of_inputs()

    @classmethod
    def takes(cls, arrays: Sequence[Any], described: Sequence[Hashable]) -> bool:
        """Whether such a call serves inputs; the description of one is None if unknown."""
        return True

    def completed(self) -> Inputs:
        """Return the inputs with their nodes; arrays count as they were when they came in."""
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
        """Return the tracer of an input, with cell and node."""
        self.completed()
        found: Tracer = self._tracers[index]
        return found

    def record(
        self, f: Function, kwargs: dict[str, Any], has_aux: bool, asked: CallRequest
    ) -> tuple[Outputs, Any]:
        """Call the function; return its outputs and its aux.

        If it raises, its tracers are refused from then on.
        """
        try:
            outputs, aux = called(f, self.arguments, kwargs, has_aux, self._level)
            self.finish(outputs, aux, asked)
        except BaseException:
            self._strand.stop()
            self._strand.end()
            raise
        return outputs, aux

    def finish(self, outputs: Outputs, aux: Any, asked: CallRequest) -> None:
        """End the recording: find a plan, or give nodes to the function's result."""
        strand = self._strand
        strand.stop()
        if asked.with_value or aux is not None:
            self._returned = _returned(outputs, aux, with_value=asked.with_value)
        if not strand.is_left and self._is_of_strand(outputs, asked):
            find = self._find if strand.outer is None else self._find_inside
            find(outputs, asked)
        if strand.is_left:
            self._history.leave(self._f)
        self.is_known = self._key is not None or self._found is not None
        if not self.is_known:
            strand.depart()
        strand.end()

    def _is_of_strand(self, outputs: Outputs, asked: CallRequest) -> bool:
        """Whether the strand traces the function's result, or nothing does."""
        has, leaves = self._strand.has, self._returned.leaves
        if asked.of_number:
            is_one = outputs.structure is pytree.LEAF and has(outputs.leaves[0])
            if not (is_one and leaves):
                return is_one
        self._traced = [at for at, leaf in enumerate(leaves) if has(leaf)]
        every = leaves if asked.with_value else (*outputs.leaves, *leaves)
        return not any(is_traced(leaf) for leaf in every if not has(leaf))

    def _find(self, outputs: Outputs, asked: CallRequest) -> None:
        """Find what computes the request."""
        strand, leaves = self._strand, self._returned.leaves
        values: tuple[int, ...] = ()
        if self._traced:
            values = tuple([leaves[at].slot for at in self._traced])
        given: Hashable = None
        if asked.of_number:
            leaf = outputs.leaves[0]
            known = leaf.state
            if known.shape or not known.kind.type.is_float:
                return
            slots: tuple[int, ...] = (leaf.slot,)
            self._cotangents, self._is_of_number = (one_of(known.kind, self._strand.device),), True
        elif asked is VALUES_ALONE:
            slots = ()
            if not values:
                return
        else:
            seeds = outputs.seeds(asked.given, self._level)
            if not seeds or not self._are_alike([g for _, g in seeds]):
                return
            slots = tuple([leaf.slot for leaf, _ in seeds])
            self._cotangents = [as_register(g) for _, g in seeds]
            given = tuple(map(describe_array, self._cotangents))
        if strand.ends:
            run = strand.run or Run(strand)
            assert isinstance(run, Run)
            self._found = run.gradient(list(zip(slots, self._cotangents, strict=True)), values)
            strand.is_left = self._found is None
            return
        self._key = slots, given, values
        if self._level.check != "full":
            self._plan = strand.state.plans.get(self._key)
        if self._plan is None:
            self._found = self._planned()

    def _find_inside(self, outputs: Outputs, asked: CallRequest) -> None:
        """Record the call with the strand around."""
        wanted = [self._returned.leaves[at].slot for at in self._traced]
        if asked is VALUES_ALONE:
            run = self._strand.finish(wanted)
            if run is not None:
                assert isinstance(run, InnerRun)
                self._found = list(map(run.traced, wanted)), ()
        elif asked.of_number:
            leaf = outputs.leaves[0]
            if leaf.shape or not leaf.kind.type.is_float:
                return
            results = self._record(pull_back, [leaf.slot], wanted, [])
            if results is not None:
                count = len(self._states)
                self._found = results[count:], results[:count]

    def _record(
        self,
        compute: Callable[..., Any],
        outputs: Sequence[int],
        wanted: Sequence[int],
        further: Sequence[Any],
    ) -> list[Any] | None:
        """Return the results of the call as one operation of the outer strand; None if impossible.

        ``compute`` makes them from the inner inputs and the ``further`` operands.
        """
        strand = self._strand
        strand.is_left |= sum([end.count for end in (*strand.ends, strand.state)]) > MAX_INSIDE
        strand.is_left |= bool(strand.views)  # what is handed on would not be known as a view
        if strand.is_left:
            return None
        came, numbers = came_into(strand)
        slots = tuple(outputs), tuple(wanted)
        operation = operation_of(strand, strand.state, compute, numbers, *slots)
        if operation is None:
            strand.is_left = True
            return None
        assert strand.outer is not None
        fused = [level for level in strand.outer.levels if level.fuses]
        if operation.weight > MAX_FUSED and strand.state.is_small:
            for level in fused:
                level.fuses = False
        operands = [v.array if type(v) is GuardedArray else v for v in came.values()]
        try:
            found = strand.outer.applied(operation, [*operands, *further])
        except HandedOnError:
            strand.is_left = True
            for level in fused:
                level.fuses = True
            return None
        return results_of(found)

    def _are_alike(self, given: Sequence[Any]) -> bool:
        """Whether cotangents are arrays of the inputs' kind."""
        kind, device = type(self._arrays[0]), self._strand.device
        return all(
            type(g) is kind and g.device == device and describe_array(g) is not None for g in given
        )

    def run(self) -> tuple[Any, list[Any], Any]:
        """Return the value (None if not wanted), the gradients, and aux."""
        if self._plan is not None:
            self._history.new = 0
            self._found = self._plan.run(self._strand.values, self._cotangents)
        assert self._found is not None
        return self._answer(*self._found)

    def _planned(self) -> tuple[Sequence[Any], Sequence[Any]] | None:
        """Return values and cotangents of a recording of one segment; None if it has no plan."""
        assert self._key is not None
        slots, _, values = self._key
        run, plans = Run(self._strand), self._strand.state.plans
        is_new = self._key not in plans
        seeds = list(zip(slots, self._cotangents, strict=True))
        found = run.once(self._key, seeds, values, of_number=self._is_of_number)
        if found is None:
            self._strand.is_left, self._key = True, None
        elif is_new and self._key in plans:
            self._history.note_new(self._f)
        return found

    def _answer(
        self, values: Sequence[Any], cotangents: Sequence[tuple[Any, bool] | None]
    ) -> tuple[Any, list[Any], Any]:
        is_inside = self._strand.outer is not None
        gradients = self._derivatives(list(cotangents)) if cotangents else []
        if not self._returned.structures:
            return None, gradients, None
        leaves = [self._returned.leaves[at] for at in self._traced]
        given = values if is_inside else map(self._handed, values, leaves)
        of_leaves = dict(zip(self._traced, given, strict=True))
        value, aux = self._returned.trees(of_leaves, self._level)
        return value, gradients, aux

    def _derivatives(self, found: list[Any]) -> list[Any]:
        """Return the derivatives as the caller gets them."""
        if self._strand.outer is not None:
            return in_structures(found, self._structures)
        return self._gradients(found)

    def _gradients(self, cotangents: Sequence[tuple[Any, bool] | None]) -> list[Any]:
        """Return cotangents of the inputs in the caller's form."""
        library, device = self._strand.library, self._strand.device
        pairs = zip(cotangents, self._states, strict=True)
        found = [_gradient(cotangent, state, device) for cotangent, state in pairs]
        if library is not NUMPY:
            found = [of_register(library, array) for array in found]
        return in_structures(found, self._structures)

    def _handed(self, value: Any, leaf: Tracer) -> Any:
        """Return a value in the caller's form: NumPy has numbers where there is no axis."""
        if self._strand.library is not NUMPY:
            return of_register(self._strand.library, value)
        return value if value.ndim else _number_in(value, leaf)


def _make_run(strand: Strand) -> Computed:
    """Return what computes the segments of a strand that have ended."""
    return Run(strand) if strand.outer is None else InnerRun(strand)


def _gradient(cotangent: tuple[Any, bool] | None, state: State, device: Any) -> Any:
    """Return a gradient in an input's shape, held by nothing else; a number for a number."""
    if cotangent is None:
        assert state.kind is not None
        found = filled(0.0, state.shape, state.kind, device)
    else:
        found, is_own = cotangent
        is_number = isinstance(found, np.generic)
        if is_number or not (is_own and tuple(found.shape) == state.shape):
            found = own_array(found, state.shape)
    return as_input(found, state) if state.is_number else found


def as_input(array: Any, state: State) -> Any:
    """Return an array, or a number, in the form in which such inputs come in."""
    return _number_in(array, state) if state.is_number else array


def _number_in(array: np.ndarray[Any, Any], known: State | Tracer) -> Any:
    """Return the number in an array without axes; one of Python numbers alone is Python's."""
    assert known.kind is not None
    return array.item() if known.kind.weak else array[()]


def size_of(arrays: Sequence[Any]) -> int:
    """Return the number of elements in some arrays."""
    return sum([math.prod(array.shape) for array in arrays])
