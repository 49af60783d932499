"""The gradient of a recording that is known, as launches over registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends import registry
from mixad.backends.numbers import are_numbers
from mixad.kernel.options import KernelOptions
from mixad.tape.gradient_plan import MADE, in_shape
from mixad.tape.held import Held
from mixad.tape.kernel_call import KernelCall
from mixad.tape.make_step import MakeStep
from mixad.tape.schedule import Cotangent, KernelStep, Place, Step, together
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.trace import Trace

__all__ = ["StrandPlan", "plan_of"]

_Register: TypeAlias = int | Place
"""A slot, for its value; a place in the trace, for its cotangent."""

_Target: TypeAlias = tuple[Place, str, int]
"""What a cotangent is of, and where it is found (`mixad.tape.gradient_plan.GradientPlace`)."""


_Input: TypeAlias = tuple[Place | None, tuple[int, ...], Any]
"""Where its cotangent ends, its shape and its dtype."""


class _Launch(NamedTuple):
    """One kernel: what it reads, the slots whose values it makes, the cotangents it adds."""

    run: Callable[[Sequence[Any]], Sequence[Any]]
    arguments: tuple[_Register, ...]
    made: tuple[tuple[int, int], ...]
    cotangents: tuple[Place, ...] = ()
    targets: tuple[_Target, ...] = ()


class StrandPlan(NamedTuple):
    """What computes a value and its gradient.

    Attributes
    ----------
    arrays, numbers : tuple of int
        Slots of what came in and is read; arrays must be as they were.
    launches : tuple of _Launch
        In order.
    seed : Place
        Where the cotangent begins.
    one : ndarray
        That cotangent.
    inputs : tuple of (Place or None, tuple of int and dtype)
        Where those of the inputs end, and their shapes and types.
    value : int or None
        The slot of the value, if it is wanted.
    """

    arrays: tuple[int, ...]
    numbers: tuple[int, ...]
    launches: tuple[_Launch, ...]
    seed: Place
    one: np.ndarray[Any, Any]
    inputs: tuple[_Input, ...]
    value: int | None

    def run(self, values: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return the value, None if it is not wanted, and the gradients."""
        registers: dict[_Register, Any] = {slot: values[slot].array for slot in self.arrays}
        for slot in self.numbers:
            registers[slot] = values[slot]
        registers[self.seed] = self.one
        own: set[Place] = set()  # cotangents in arrays that nothing else holds
        for run, arguments, made, cotangents, targets in self.launches:
            arrays = run([registers[key] for key in arguments])
            for slot, index in made:
                registers[slot] = arrays[index]
            for place, kind, index in targets:
                array = arrays[index] if kind in MADE else registers[cotangents[index]]
                _add(registers, own, place, array, kind == "array")
        value = None if self.value is None else registers[self.value][()]
        return value, [_gradient(each, registers, own) for each in self.inputs]


def _add(
    registers: dict[_Register, Any], own: set[Place], place: Place, array: Any, fresh: bool
) -> None:
    """Add to a cotangent, as a backward pass does."""
    if place in registers:
        array, fresh = together(Cotangent(registers[place], place in own), array, fresh)
    registers[place] = array
    (own.add if fresh else own.discard)(place)


def _gradient(
    asked: _Input, registers: dict[_Register, Any], own: set[Place]
) -> np.ndarray[Any, Any]:
    """Return a gradient of the shape of an input, which nothing else holds."""
    place, shape, dtype = asked
    if place is None or place not in registers:
        return np.zeros(shape, dtype)
    found: np.ndarray[Any, Any] = registers[place]
    if place in own and found.shape == shape:
        return found
    return np.array(np.broadcast_to(found, shape))


class _NotPlannedError(Exception):
    """A step of a backward pass is more than launches over what came in."""


def plan_of(
    strand: Strand,
    inputs: Sequence[State],
    trace: Trace,
    steps: Sequence[Step],
    output: int,
    *,
    with_value: bool,
) -> StrandPlan | None:
    """Return the plan of a backward pass that has been made; None where it is more than launches.

    It runs along, on the values of the strand.

    Parameters
    ----------
    strand : Strand
        What was recorded.
    inputs : sequence of State
        What is known of each input.
    trace : Trace
        What the pass went through.
    steps : sequence of Step
        The pass.
    output : int
        The slot where it began.
    with_value : bool
        Whether its value is wanted, too.
    """
    planner = _Planner(strand, trace, output)
    try:
        launches = tuple(map(planner.launch, steps))
    except _NotPlannedError:
        return None
    value = planner.slot(output) if with_value else None
    if value is not None and value not in planner.registers:
        return None
    numbers = trace.numbers
    nodes = [None if node is None else numbers.get(node) for node in strand.input_nodes]
    read = {k for launch in launches for k in launch.arguments if isinstance(k, int)}
    read = {k for k in read if strand.values[k] is not None}
    arrays = {k for k in read if type(strand.values[k]) is Held}
    return StrandPlan(
        tuple(sorted(arrays)),
        tuple(sorted(read - arrays)),
        launches,
        planner.seed,
        planner.one,
        tuple(map(_input, nodes, inputs)),
        value,
    )


def _input(number: int | None, state: State) -> _Input:
    assert state.kind is not None
    place = None if number is None else (number, 0)
    return place, state.shape, state.kind.library.dtype_of(state.kind.type)


class _Planner:
    """Translates the steps of a backward pass, and takes them on registers."""

    def __init__(self, strand: Strand, trace: Trace, output: int) -> None:
        assert trace.unit is not None
        self.seed = trace.unit
        self.one = np.ones((), strand.dtypes[output])
        self.registers: dict[_Register, Any] = {self.seed: self.one}
        self._strand = strand
        links, places = strand.links, strand.places
        numbers = trace.numbers
        self._operands = {numbers[key]: slots for key, slots in links.items() if key in numbers}
        self._slots: dict[Place, int] = {}
        for slot, (node, index) in places.items():
            if node in numbers:
                self._slots.setdefault((numbers[node], index), slot)
        self._first = {
            slot: self._slots[numbers[node], index]
            for slot, (node, index) in places.items()
            if node in numbers
        }

    def slot(self, slot: int) -> int:
        """Return the first slot with the value of a slot: a sum may have been asked for twice."""
        return self._first.get(slot, slot)

    def launch(self, step: Step) -> _Launch:
        """Return what a step launches."""
        if type(step) is MakeStep:
            read = tuple(map(self._argument, step.arguments))
            run, arrays = self._run(step.call, read, None, step.options)
            return _Launch(run, read, self._made(step.results, arrays))
        is_plain = type(step) is KernelStep and not (
            step.waiting or step.placed or step.shifted or step.decided
        )
        if not is_plain:
            raise _NotPlannedError
        assert isinstance(step, KernelStep)
        given = step.cotangents
        keys: tuple[_Register, ...] = tuple(
            given[at] if isinstance(at, int) else self._argument(at) for at in step.arguments
        )
        run, arrays = self._run(step.plan.call, keys, step.shape, step.options)
        made = self._made(step.results, arrays)
        for place, kind, index in step.targets:
            array = arrays[index] if kind in MADE else self.registers[given[index]]
            self.registers.setdefault(place, array)  # of the shape and type of all that are added
        return _Launch(run, keys, made, given, step.targets)

    def _argument(self, place: Place) -> int:
        """Return the slot of an argument of a node."""
        number, index = place
        slots = self._operands.get(number)
        if slots is None:
            raise _NotPlannedError
        slot = self.slot(slots[index])
        value = self._strand.values[slot]
        if value is not None:
            self.registers[slot] = value.array if type(value) is Held else value
        if slot not in self.registers:
            raise _NotPlannedError
        return slot

    def _made(self, results: Sequence[Place], arrays: Sequence[Any]) -> tuple[tuple[int, int], ...]:
        """Return the slots of what is made, and which arrays they are."""
        found = [(self._slots[p], index) for index, p in enumerate(results) if p in self._slots]
        for slot, index in found:
            self.registers[slot] = arrays[index]
        return tuple(found)

    def _run(
        self,
        call: KernelCall | None,
        keys: Sequence[_Register],
        shape: tuple[int, ...] | None,
        options: KernelOptions,
    ) -> tuple[Callable[..., Any], Sequence[Any]]:
        """Return what launches a kernel, and what it gives for the registers now."""
        if call is None:
            return _nothing, ()
        arrays = [self.registers[key] for key in keys]
        run = _runner(call, arrays, shape, options)
        return run, run(arrays)


def _runner(
    call: KernelCall, arrays: list[Any], shape: tuple[int, ...] | None, options: KernelOptions
) -> Callable[..., Any]:
    """Return what launches a kernel on arrays like these, at once if they need no conversion.

    Where one is indexed, the call says where it was outside.  Kernels of a backend that was asked
    for are launched as often as the user calls them: no plan is tried beside a pass.
    """
    if options.backend is not None:
        raise _NotPlannedError
    kinds = zip(arrays, call.kinds, strict=True)
    converts = any(kind == "uniform" and type(a) is np.ndarray for a, kind in kinds)
    broadcasts = shape is not None and in_shape(call, arrays, shape) is not arrays
    if not (converts or broadcasts or "array" in call.kinds or are_numbers(arrays)):
        prepared = call.kernel.prepared(arrays, options.backend)
        if registry.plugin_of(prepared.backend.name) is not None:
            raise _NotPlannedError
        if prepared.audit is None:
            return prepared.run
    return partial(_run_call, call, shape, options)


def _run_call(
    call: KernelCall, shape: tuple[int, ...] | None, options: KernelOptions, arrays: list[Any]
) -> Sequence[Any]:
    return call.arrays(arrays if shape is None else in_shape(call, arrays, shape), options)


def _nothing(arguments: Sequence[Any]) -> Sequence[Any]:
    return ()
