"""What a journal has noted, as launches and rules over registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import NUMPY, as_array
from mixad.backends.execute import Kernel, kernel_for
from mixad.backends.numbers import are_numbers
from mixad.kernel.options import KernelOptions
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.forward_node import contraction_of
from mixad.tape.gradient_plan import MADE, in_shape
from mixad.tape.journal import (
    Contracted,
    Entry,
    Evaluated,
    Journal,
    Launched,
    Place,
    Pulled,
    PulledKernel,
    PulledValues,
    Register,
    Stores,
)
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.node import added
from mixad.tape.schedule import Cotangent, together
from mixad.tape.values_rule import ValuesRule

__all__ = ["Plan", "plan_of"]


class _Values:
    """What a run has found.

    Attributes
    ----------
    registers : list
        Arrays and numbers: those of slots, and at the end those that are made.
    cotangents : dict
        By place.
    own : set of Place
        Cotangents in arrays that nothing else holds.
    warns : bool
        Whether results that comparisons decide are warned of.
    """

    __slots__ = ("cotangents", "own", "registers", "warns")

    def __init__(self, registers: list[Any], cotangents: dict[Place, Any], *, warns: bool) -> None:
        self.registers = registers
        self.warns = warns
        self.cotangents = cotangents
        self.own: set[Place] = set()

    def read(self, registers: Sequence[Register]) -> list[Any]:
        """Return what is in some registers."""
        values = self.registers
        return [values[at] for at in registers]

    def cotangent(self, place: Place | None) -> Cotangent | None:
        """Return what a value has got; None if that is nothing."""
        if place is None or place not in self.cotangents:
            return None
        return Cotangent(self.cotangents[place], place in self.own)

    def add(self, place: Place, array: Any, fresh: bool) -> None:
        """Add to a cotangent, as a backward pass does."""
        known = self.cotangents.get(place)
        if known is not None:
            array, fresh = together(Cotangent(known, place in self.own), array, fresh)
        self.cotangents[place] = array
        if fresh:
            self.own.add(place)
        elif known is not None:
            self.own.discard(place)


_Step: TypeAlias = Callable[[_Values], None]
_Run: TypeAlias = Callable[[list[Any]], Sequence[Any]]


class Plan(NamedTuple):
    """What computes values and carries cotangents back.

    Attributes
    ----------
    constants : tuple of (Register and array)
        What is the same in every call.
    made : int
        How many registers there are beside the slots.
    steps : tuple of callable
        In order.
    seeds : tuple of Place
        Where the cotangents begin.
    values : tuple of Register
        Where the values are that are wanted.
    inputs : tuple of (Place or None)
        Where the cotangents of the inputs end.
    slots : frozenset of int
        What is read of what came in.
    """

    constants: tuple[tuple[Register, Any], ...]
    made: int
    steps: tuple[_Step, ...]
    seeds: tuple[Place, ...]
    values: tuple[Register, ...]
    inputs: tuple[Place | None, ...]
    slots: frozenset[int]

    def run(
        self, slots: Sequence[Any], cotangents: Sequence[Any], *, warns: bool = True
    ) -> tuple[list[Any], list[Cotangent | None]]:
        """Return the values, and the cotangents of the inputs: None where they are zero.

        Parameters
        ----------
        slots : sequence
            The arrays and numbers that came in; others are not read.
        cotangents : sequence of array
            Those that begin.
        warns : bool
            Whether to warn of results that comparisons decide: not where it has been done.
        """
        registers = [*slots, *[None] * self.made]
        for register, array in self.constants:
            registers[register] = array
        begun = dict(zip(self.seeds, cotangents, strict=True))
        found = _Values(registers, begun, warns=warns)
        for step in self.steps:
            step(found)
        return found.read(self.values), [found.cotangent(place) for place in self.inputs]


class _NotPlannedError(Exception):
    """What was done is more than launches and rules over what came in."""


def plan_of(
    journal: Journal,
    slots: Sequence[Any],
    cotangents: Sequence[Any],
    values: Sequence[Register],
) -> Plan | None:
    """Return the plan of what was done; None where that cannot be repeated.

    It runs along.

    Parameters
    ----------
    journal : Journal
        What was done.
    slots : sequence
        The arrays and numbers that came in.
    cotangents : sequence of array
        Those that begin.
    values : sequence of Register
        Where the values are that are wanted.
    """
    if not journal.is_whole or len(journal.seeds) != len(cotangents):
        return None
    registers = [*slots, *[None] * journal.count]
    for at, array in journal.constants:
        registers[at] = array
    begun = dict(zip(journal.seeds, cotangents, strict=True))
    planner = _Planner(_Values(registers, begun, warns=False))
    try:
        steps = tuple(map(planner.step, journal.entries))
    except _NotPlannedError:
        return None
    if any(registers[at] is None for at in values):
        return None
    ends = tuple([None if number is None else (number, 0) for number in journal.inputs])
    read = frozenset([*planner.slots, *[at for at in values if at >= 0]])
    return Plan(
        tuple(journal.constants),
        journal.count,
        steps,
        tuple(journal.seeds),
        tuple(values),
        ends,
        read,
    )


class _Planner:
    """Makes steps of what was noted, and takes them."""

    def __init__(self, found: _Values) -> None:
        self.slots: set[int] = set()
        self._found = found

    def step(self, entry: Entry) -> _Step:
        """Return the step of an entry, which has been taken."""
        step: _Step = _STEPS[type(entry)](self, entry)
        step(self._found)
        return step

    def _launched(self, entry: Launched) -> _Step:
        run = _runner(entry.call, self._read(entry.arguments), None, entry.options)
        return partial(_launch, run, entry.arguments, tuple(enumerate(entry.results)))

    def _stores(self, entry: Stores) -> _Step:
        arrays = list(kernel_values(entry.passes[0], self._read(entry.arguments)))
        run = _prepared(kernel_for(entry.passes, entry.asked), arrays, entry.options)
        run = run or partial(_run_storing, entry)
        made = tuple([(at, register) for register, at in entry.results])
        return partial(_launch, run, entry.arguments, made)

    def _evaluated(self, entry: Evaluated) -> _Step:
        self._read(entry.arguments)
        return partial(_evaluate, entry)

    def _pulled_kernel(self, entry: PulledKernel) -> _Step:
        step = entry.step
        registers = [at for is_given, at in entry.arguments if not is_given]
        self._read([*registers, *entry.read.values()])
        cotangents = self._found.cotangents
        if not all(place in cotangents for place in step.cotangents):
            raise _NotPlannedError
        results = [(at, r) for at, r in enumerate(entry.results) if r is not None]
        targets = [(place, kind in MADE, at, kind == "array") for place, kind, at in step.targets]
        run: _Run = _nothing
        if step.plan.call is not None:
            given = [cotangents[place] for place in step.cotangents]
            read = self._found.registers
            arrays = [given[at] if is_given else read[at] for is_given, at in entry.arguments]
            run = _runner(step.plan.call, arrays, step.shape, step.options)
        return partial(_pull_kernel, entry, run, results, targets)

    def _pulled(self, entry: Pulled) -> _Step:
        self._read([a for a in entry.arguments if type(a) is int])
        wanted = [target is not None for target in entry.targets]
        return partial(_pull, entry, wanted)

    def _pulled_values(self, entry: PulledValues) -> _Step:
        self._read([*entry.values, *[a for a in entry.arguments if type(a) is int]])
        return partial(_pull_values, entry)

    def _contracted(self, entry: Contracted) -> _Step:
        self._read([r for r in entry.residuals if r is not None])
        return partial(_contract, entry)

    def _read(self, registers: Sequence[Any]) -> list[Any]:
        """Return what is in some registers, which is read."""
        self.slots.update(at for at in registers if at >= 0)
        found = self._found.read(registers)
        if any(value is None for value in found):
            raise _NotPlannedError
        return found


_STEPS: Mapping[type, Callable[[_Planner, Any], _Step]] = {
    Launched: _Planner._launched,
    Stores: _Planner._stores,
    Evaluated: _Planner._evaluated,
    PulledKernel: _Planner._pulled_kernel,
    Pulled: _Planner._pulled,
    PulledValues: _Planner._pulled_values,
    Contracted: _Planner._contracted,
}


# -- the steps -------------------------------------------------------------------------------------


def _launch(
    run: _Run, arguments: Sequence[Register], made: Sequence[tuple[int, Register]], found: _Values
) -> None:
    arrays = run(found.read(arguments))
    for at, register in made:
        found.registers[register] = arrays[at]


def _run_storing(entry: Stores, arguments: list[Any]) -> Sequence[Any]:
    return kernel_for(entry.passes, entry.asked)(kernel_values(entry.passes[0], arguments), None)


def _evaluate(entry: Evaluated, found: _Values) -> None:
    rule, arguments = entry.rule, found.read(entry.arguments)
    made = rule.evaluate(NUMPY.xp, *arguments, **entry.static)
    values = made if type(rule) is ValuesRule else (made,)
    for register, value in zip(entry.results, values, strict=True):
        found.registers[register] = as_array(value)


def _pull_kernel(
    entry: PulledKernel,
    run: _Run,
    results: Sequence[tuple[int, Register]],
    targets: Sequence[tuple[Place, bool, int, bool]],
    found: _Values,
) -> None:
    """Take a step: ``results`` go to registers, ``targets`` are cotangents that it adds."""
    step, registers, pop = entry.step, found.registers, found.cotangents.pop
    if step.decided and found.warns:
        for each in step.decided:
            each.warn()
    given = [pop(place) for place in step.cotangents]
    pairs = entry.arguments
    arrays = run([given[at] if is_given else registers[at] for is_given, at in pairs])
    for at, register in results:
        registers[register] = arrays[at]
    for place, is_made, at, fresh in targets:
        found.add(place, arrays[at] if is_made else given[at], fresh)
    for parts in step.placed:
        found.add(parts.target, parts.added_up(arrays, given, step.shape), True)
    if step.shifted:
        values = {
            index: given[at] if isinstance(at, int) else registers[entry.read[index]]
            for index, at in step.read
        }
        for shifted in step.shifted:
            whole = shifted.added_up(values, step.shape, step.options)
            found.add(shifted.target, whole, True)


def _pull(entry: Pulled, wanted: Sequence[bool], found: _Values) -> None:
    g = found.cotangents.pop(entry.place, None)
    if g is None:
        return
    found.own.discard(entry.place)
    rule, static, targets = entry.rule, entry.static, entry.targets
    g = broadcast_to(g, entry.shape)
    first = targets[0]
    if rule.add_into is not None and first is not None and first in found.own:
        whole = found.cotangents[first]
        if whole.shape == entry.arguments[0].shape and rule.add_into(whole, g, **static):
            return
    registers = found.registers
    arguments = [registers[a] if type(a) is int else a for a in entry.arguments]
    if callable(rule.cotangents):
        gradients = rule.cotangents(g, wanted, *arguments, **static)
    else:
        rules = zip(rule.cotangents, wanted, strict=True)
        gradients = [of(g, *arguments, **static) if is_wanted else None for of, is_wanted in rules]
    for target, gradient in zip(targets, gradients, strict=True):
        if target is not None and gradient is not None:
            found.add(target, gradient, rule.fresh)


def _pull_values(entry: PulledValues, found: _Values) -> None:
    given = [place and found.cotangents.pop(place) for place in entry.places]
    pairs = zip(given, entry.shapes, strict=True)
    gs = tuple([None if g is None else broadcast_to(g, shape) for g, shape in pairs])
    values = tuple(found.read(entry.values))
    arguments = [found.registers[a] if type(a) is int else a for a in entry.arguments]
    for of, target in zip(entry.rule.cotangents, entry.targets, strict=True):
        if target is not None:
            found.add(target, of(gs, values, *arguments, **entry.static), entry.rule.fresh)


def _contract(entry: Contracted, found: _Values) -> None:
    wrt = tuple([i for i, target in enumerate(entry.targets) if target is not None])
    given: dict[int, Any] = {}
    for output, place in zip(entry.outputs, entry.places, strict=True):
        g = found.cotangents.pop(place)
        given[output] = added(given[output], g) if output in given else g
    plan = contraction_of(entry.plan, wrt, tuple(given), entry.shapes, entry.shape)
    values = [None if r is None else found.registers[r] for r in entry.residuals]
    values += given.values()
    arrays = plan.arrays([values[i] for i in plan.kept], entry.shape, entry.options)
    for index, (kind, at) in zip(wrt, plan.places, strict=True):
        target = entry.targets[index]
        if kind == "array" and target is not None:
            found.add(target, arrays[at], True)


# -- kernels ---------------------------------------------------------------------------------------


def _runner(
    call: KernelCall, arrays: list[Any], shape: tuple[int, ...] | None, options: KernelOptions
) -> _Run:
    """Return what launches a kernel on arrays like these, at once if they need no conversion.

    Where one is indexed, the call says where it was outside.  Kernels of a backend that was asked
    for are launched as often as the user calls them: no plan is tried beside a pass.
    """
    kinds = zip(arrays, call.kinds, strict=True)
    converts = any(kind == "uniform" and type(a) is np.ndarray for a, kind in kinds)
    if options.backend is not None:
        raise _NotPlannedError
    broadcasts = shape is not None and in_shape(call, arrays, shape) is not arrays
    is_direct = not (converts or broadcasts or "array" in call.kinds)
    run = _prepared(call.kernel, arrays, options) if is_direct else None
    return run or partial(_run_call, call, shape, options)


def _prepared(kernel: Kernel, arrays: list[Any], options: KernelOptions) -> _Run | None:
    """Return what launches a kernel on arrays like these; None if it is asked each time."""
    if options.backend is not None:
        raise _NotPlannedError
    if are_numbers(arrays) and kernel.numbers is not None:
        return cast("_Run", kernel.numbers)  # of arguments of these types it is not None
    prepared = kernel.prepared(arrays, options.backend)
    if registry.plugin_of(prepared.backend.name) is not None:
        raise _NotPlannedError
    return prepared.run if prepared.audit is None else None


def _run_call(
    call: KernelCall, shape: tuple[int, ...] | None, options: KernelOptions, arrays: list[Any]
) -> Sequence[Any]:
    return call.arrays(arrays if shape is None else in_shape(call, arrays, shape), options)


def _nothing(arguments: Sequence[Any]) -> Sequence[Any]:
    return ()
