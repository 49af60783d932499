"""What a journal has noted, as launches and rules over registers.

Everything that depends on structure alone is decided as a plan is made: which register a cotangent
is in, what is added to what in whose memory, which memory small results of kernels have that only
kernels read.  A run is a list of steps over a list of registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import NUMPY, Library, as_array
from mixad.backends.execute import Kernel, Prepared, kernel_for
from mixad.backends.numbers import are_numbers
from mixad.kernel.options import KernelOptions
from mixad.scalar.loop_results import DecidedResult
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.forward_node import contraction_of
from mixad.tape.gradient_plan import MADE, in_shape
from mixad.tape.held import Held
from mixad.tape.journal import (
    Contracted,
    Evaluated,
    Journal,
    Launched,
    Passed,
    Place,
    Pulled,
    PulledKernel,
    PulledValues,
    Register,
    Stores,
    Viewed,
)
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.node import added
from mixad.tape.over_numpy import as_numpy, came_in, of_numpy
from mixad.tape.schedule import takes
from mixad.tape.tracer import Tracer
from mixad.tape.unfolded import unfold
from mixad.tape.values_rule import ValuesRule

__all__ = ["Plan", "plan_of"]

_Registers: TypeAlias = list[Any]
_Step: TypeAlias = Callable[[_Registers], None]
_Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
_Fixed: TypeAlias = Mapping[int, Any]
_Arguments: TypeAlias = Callable[[_Registers], Sequence[Any]]
"""Returns the arguments of a rule."""
_Pull: TypeAlias = Callable[[_Registers], Sequence[Any]]
"""Returns the gradients of a rule."""
_Maker: TypeAlias = Callable[[_Fixed], _Step]
"""Makes a step for one thread, of the memory that it has in some registers."""

_MAX_FIXED = 1 << 16
"""Bytes of memory that one thread keeps for a plan."""


_OFTEN = 1 << 10
"""Calls after which numbers are computed by a kernel, which saves as much as compiling one takes
in some thousand."""

_MAX_UNFOLDED = 1 << 14
"""Elements of arrays whose pullbacks are taken apart: more take longer than what is saved."""


class _Found(NamedTuple):
    """Where a cotangent is, and whether nothing else holds its array."""

    register: int
    is_own: bool


_Layout: TypeAlias = tuple[list[Any], list[_Step]]
"""What one thread runs: what registers hold before something comes in, and steps."""


@dataclass(eq=False, slots=True)
class Plan:
    """What computes values and carries cotangents back.

    Attributes
    ----------
    registers : list
        What they hold at first; the slots are the first of them.
    makers : tuple of callable
        Of the steps, in order.
    fixed : tuple of (int, shape and dtype)
        Registers that keep their memory.
    seeds : tuple of int
        Where the cotangents begin.
    values : tuple of int
        Where the values are that are wanted.
    ends : tuple of (int, bool)
        Where the cotangents of the inputs end, -1 for one that is zero, and whether nothing else
        holds their arrays.
    slots : tuple of int
        What is read of what came in.
    decided : tuple of DecidedResult
        What to warn of.
    idle : list
        What threads run that are not at it now.
    """

    registers: list[Any]
    makers: tuple[_Maker, ...]
    fixed: tuple[tuple[int, tuple[int, ...], Any], ...]
    seeds: tuple[int, ...]
    values: tuple[int, ...]
    ends: tuple[tuple[int, bool], ...]
    slots: tuple[int, ...]
    decided: tuple[DecidedResult, ...]
    idle: list[_Layout] = field(default_factory=list)

    def run(
        self, slots: Sequence[Any], cotangents: Sequence[Any], *, warns: bool = True
    ) -> tuple[list[Any], list[tuple[Any, bool] | None]]:
        """Return the values, and the cotangents of the inputs: None where they are zero.

        With each goes whether nothing else holds its array.

        Parameters
        ----------
        slots : sequence
            What came in: arrays, held ones, and numbers; others are not read.
        cotangents : sequence of ndarray
            Those that begin.
        warns : bool
            Whether to warn of results that comparisons decide: not where it has been done.
        """
        if warns and self.decided:
            for each in self.decided:
                each.warn()
        try:
            layout = self.idle.pop()
        except IndexError:
            layout = self._laid_out()
        registers, steps = layout
        registers = registers[:]
        for slot in self.slots:
            value = slots[slot]
            if type(value) is Held:
                value = value.array
            kind = type(value)
            registers[slot] = value if kind is _ndarray or kind is float else came_in(value)
        for register, cotangent in zip(self.seeds, cotangents, strict=True):
            registers[register] = cotangent
        for step in steps:
            step(registers)
        self.idle.append(layout)
        found: list[tuple[Any, bool] | None] = []
        for at, is_own in self.ends:
            found.append(None if at < 0 else (registers[at], is_own))
        return list(map(registers.__getitem__, self.values)), found

    def _laid_out(self) -> _Layout:
        """Return what a thread runs that no other is at."""
        fixed = {register: np.empty(shape, dtype) for register, shape, dtype in self.fixed}
        registers = self.registers[:]
        for register, array in fixed.items():
            registers[register] = array
        return registers, [make(fixed) for make in self.makers]


class _NotPlannedError(Exception):
    """What was done is more than launches and rules over what came in."""


def plan_of(
    journal: Journal,
    slots: Sequence[Any],
    cotangents: Sequence[Any],
    values: Sequence[Register],
    library: Library,
    kind: type[Tracer],
    *,
    compiles: bool = False,
) -> Plan | None:
    """Return the plan of what was done; None where that cannot be repeated.

    It runs along.

    Parameters
    ----------
    journal : Journal
        What was done.
    slots : sequence
        The arrays and numbers that came in.
    cotangents : sequence of ndarray
        Those that begin.
    values : sequence of Register
        Where the values are that are wanted.
    library : Library
        Whose arrays rules take; all else reads NumPy's over their memory.
    kind : type
        Of tracers.
    compiles : bool
        Whether kernels of numbers are compiled, too: that pays if they are launched often.
    """
    if not journal.is_whole or len(journal.seeds) != len(cotangents):
        return None
    planner = _Planner(journal, slots, cotangents, library, kind, compiles=compiles)
    try:
        for entry in journal.entries:
            _ENTRIES[type(entry)](planner, entry)
        return planner.plan(journal, values)
    except _NotPlannedError:
        return None


class _Planner:
    """Makes steps of what was noted, and takes them.

    Attributes
    ----------
    registers : list
        What came in, what was made, and cotangents.
    """

    def __init__(
        self,
        journal: Journal,
        slots: Sequence[Any],
        cotangents: Sequence[Any],
        library: Library,
        kind: type[Tracer],
        *,
        compiles: bool,
    ) -> None:
        self._library = library
        self._kind = kind
        self._compiles = compiles
        self.registers: _Registers = [*slots, *[None] * journal.count]
        self._slots = len(slots)
        self._read: set[int] = set()
        self._kept: set[int] = set()
        self._small: dict[int, Any] = {}
        self._same: dict[int, int] = {}
        self._makers: list[_Maker] = []
        self._last: dict[int, int] = {}
        self._decided: list[DecidedResult] = []
        self._constants = [(self._at(at), as_numpy(array)) for at, array in journal.constants]
        for at, array in self._constants:
            self.registers[at] = array
        self._found: dict[Place, _Found] = {}
        self._seeds = tuple(map(self._new, cotangents))
        for place, register in zip(journal.seeds, self._seeds, strict=True):
            self._found[place] = _Found(register, False)

    def plan(self, journal: Journal, values: Sequence[Register]) -> Plan:
        """Return the plan of the steps that have been made."""
        self._arrays(values)
        wanted = tuple(map(self._at, values))
        found = [None if at is None else self._found.get((at, 0)) for at in journal.inputs]
        ends = tuple([end or _Found(-1, False) for end in found])
        registers: list[Any] = [None] * len(self.registers)
        for at, array in self._constants:
            registers[at] = array
        returned = {*wanted, *[end.register for end in ends]}
        return Plan(
            registers,
            tuple(self._freeing({*returned, *[at for at, _ in self._constants]})),
            tuple(self._fixed(self._kept | returned)),
            self._seeds,
            wanted,
            ends,
            tuple(sorted(self._read)),
            tuple(self._decided),
        )

    def _fixed(self, others: set[int]) -> list[tuple[int, tuple[int, ...], Any]]:
        """Return the registers that only kernels read, and what arrays are there."""
        found, bytes_left = [], _MAX_FIXED
        for register, array in self._small.items():
            if register not in others and array.nbytes <= bytes_left:
                bytes_left -= array.nbytes
                found.append((register, array.shape, array.dtype))
        return found

    def _freeing(self, others: set[int]) -> list[_Maker]:
        """Return the steps, with those that let go of what is large once it has been read."""
        last: dict[int, list[int]] = {}
        for register, step in self._last.items():
            size = getattr(self.registers[register], "nbytes", 0)
            if register not in others and size > _MAX_FIXED:
                last.setdefault(step, []).append(register)
        found = []
        for number, maker in enumerate(self._makers):
            found.append(maker)
            if number in last:
                found.append(_for_all_threads(partial(_free, tuple(last[number]))))
        return found

    # -- registers ---------------------------------------------------------------------------------

    def _touch(self, *registers: int) -> None:
        """Note that the next step reads or fills some registers."""
        self._last.update(dict.fromkeys(registers, len(self._makers)))

    def _at(self, register: Register) -> int:
        """Return where a register of the journal is."""
        at = register if register >= 0 else self._slots - register - 1
        return self._same.get(at, at)

    def _new(self, value: Any) -> int:
        self.registers.append(value)
        return len(self.registers) - 1

    def _arrays(self, registers: Sequence[Register]) -> list[Any]:
        """Return what is in some registers, which is read."""
        self._read.update(at for at in registers if 0 <= at < self._slots)
        found = [self.registers[self._at(at)] for at in registers]
        if any(value is None for value in found):
            raise _NotPlannedError
        return found

    def _for_rule(self, arguments: Sequence[Any]) -> _Arguments:
        """Return what gets the arguments of a rule, registers and shapes: it may keep arrays."""
        self._arrays([a for a in arguments if type(a) is int])
        places = [(True, self._at(a)) if type(a) is int else (False, a) for a in arguments]
        read = [at for is_register, at in places if is_register]
        self._kept.update(read)
        self._touch(*read)
        if self._library is not NUMPY:
            of = partial(of_numpy, self._library)
            return lambda registers: [of(registers[at]) if is_at else at for is_at, at in places]
        if len(read) < len(places):
            return lambda registers: [registers[at] if is_at else at for is_at, at in places]
        return itemgetter(*read) if len(read) > 1 else lambda registers: (registers[read[0]],)

    # -- cotangents --------------------------------------------------------------------------------

    def _taken(self, place: Place | None) -> _Found | None:
        """Return where a cotangent is, which is used up; None if there is none."""
        return None if place is None else self._found.pop(place, None)

    def _add(self, place: Place, register: int, is_own: bool) -> None:
        """Add to a cotangent, as a backward pass does."""
        known = self._found.get(place)
        if known is None:
            self._found[place] = _Found(register, is_own)
            return
        first, second = known.register, register
        own, other = (first, second) if known.is_own else (second, first)
        arrays = self.registers
        self._touch(first, second)
        if (known.is_own or is_own) and takes(arrays[own], arrays[other]):
            self._step(partial(_add_into, own, other))
            self._found[place] = _Found(own, True)
        else:
            found = self._new(None)
            self._step(partial(_add, first, second, found))
            self._found[place] = _Found(found, True)

    # -- steps -------------------------------------------------------------------------------------

    def _step(self, step: _Step) -> None:
        """Take a step that is the same for all threads."""
        step(self.registers)
        self._makers.append(_for_all_threads(step))

    def _launch(
        self, launch: _Run | Prepared, reads: Sequence[int], results: int
    ) -> tuple[int, ...]:
        """Launch a kernel; return the registers of its results."""
        run: _Run = launch.run if isinstance(launch, Prepared) else launch
        writes = tuple([self._new(None) for _ in range(results)])
        self._touch(*reads, *writes)
        step = partial(_launch, run, tuple(reads), writes)
        step(self.registers)
        arrays = [self.registers[at] for at in writes]
        if isinstance(launch, Prepared) and all(type(self.registers[at]) in _PLAIN for at in reads):
            repeated = partial(launch.repeated, tuple(reads), writes)
            if repeated({}) is not None:
                self._makers.append(cast("_Maker", repeated))
                self._small.update(zip(writes, arrays, strict=True))
                return writes
        self._makers.append(_for_all_threads(step))
        return writes

    def _launch_of(
        self,
        call: KernelCall,
        arrays: list[Any],
        shape: tuple[int, ...] | None,
        options: KernelOptions,
    ) -> _Run | Prepared:
        """Return what launches a kernel on arrays like these, at once if they need no conversion.

        Where one is indexed, the call says where it was outside.  Kernels of a backend that was
        asked for are launched as often as the user calls them: no plan is tried beside a pass.
        """
        kinds = zip(arrays, call.kinds, strict=True)
        converts = any(kind == "uniform" and type(a) is np.ndarray for a, kind in kinds)
        if options.backend is not None:
            raise _NotPlannedError
        broadcasts = shape is not None and in_shape(call, arrays, shape) is not arrays
        is_direct = not (converts or broadcasts or "array" in call.kinds)
        found = self._prepared(call.kernel, arrays, options) if is_direct else None
        return found or partial(_run_call, call, shape, options)

    def _prepared(
        self, kernel: Kernel, arrays: list[Any], options: KernelOptions
    ) -> _Run | Prepared | None:
        """Return what launches a kernel on arrays like these; None if it is asked each time."""
        if options.backend is not None:
            raise _NotPlannedError
        numbers = None if self._compiles or not are_numbers(arrays) else kernel.numbers
        if numbers is not None and numbers(arrays) is not None:
            return _Arithmetic(kernel)
        prepared = kernel.prepared(arrays, None)
        if _is_of_plugin(prepared):
            raise _NotPlannedError
        return prepared if prepared.audit is None else None

    def _name(self, register: Register, at: int) -> None:
        """Let a register of the journal be another one."""
        self._same[self._at(register)] = at

    def launched(self, entry: Launched) -> None:
        """Launch a kernel."""
        arrays = self._arrays(entry.arguments)
        launch = self._launch_of(entry.call, arrays, None, entry.options)
        writes = self._launch(launch, self._places(entry.arguments), len(entry.results))
        for register, at in zip(entry.results, writes, strict=True):
            self._name(register, at)

    def stores(self, entry: Stores) -> None:
        """Launch a kernel that makes partials, too."""
        arrays = list(kernel_values(entry.passes[0], self._arrays(entry.arguments)))
        launch = self._prepared(kernel_for(entry.passes, entry.asked), arrays, entry.options)
        run = launch or partial(_run_storing, entry)
        writes = self._launch(run, self._places(entry.arguments), len(entry.asked))
        for register, at in entry.results:
            self._name(register, writes[at])

    def _places(self, registers: Sequence[Register]) -> list[int]:
        return list(map(self._at, registers))

    def viewed(self, entry: Viewed) -> None:
        """Take a view of an array that came in."""
        self._arrays((entry.whole,))
        whole, result = self._places((entry.whole, entry.result))
        self._touch(result)
        self._step(partial(_view, entry, whole, result))

    def evaluated(self, entry: Evaluated) -> None:
        """Apply a rule."""
        arguments = self._for_rule(entry.arguments)
        results = self._places(entry.results)
        self._touch(*results)
        rule, evaluate = entry.rule, partial(entry.rule.evaluate, self._library.xp)
        if type(rule) is ValuesRule:
            self._step(partial(_evaluate_several, evaluate, entry.static, arguments, results))
        else:
            self._step(partial(_evaluate, evaluate, entry.static, arguments, results[0]))

    def pulled_kernel(self, entry: PulledKernel) -> None:
        """Take a step that pulls kernels back."""
        step = entry.step
        self._decided += step.decided
        taken = list(map(self._taken, step.cotangents))
        if None in taken:
            raise _NotPlannedError
        given = [each.register for each in taken if each is not None]
        own = [at for is_given, at in entry.arguments if not is_given]
        self._arrays([*own, *entry.read.values()])
        reads = [given[at] if is_given else self._at(at) for is_given, at in entry.arguments]
        made: tuple[int, ...] = ()
        call = step.plan.call
        if call is not None:
            arrays = [self.registers[at] for at in reads]
            launch = self._launch_of(call, arrays, step.shape, step.options)
            made = self._launch(launch, reads, len(call.outputs))
        for at, register in enumerate(entry.results):
            if register is not None:
                self._name(register, made[at])
        for place, kind, at in step.targets:
            self._add(place, made[at] if kind in MADE else given[at], kind == "array")
        for placed in step.placed:
            whole = self._new(None)
            self._kept.update(made)
            self._touch(*made, *given)
            self._step(partial(_place, placed, made, given, step.shape, whole))
            self._add(placed.target, whole, True)
        for shifted in step.shifted:
            whole = self._new(None)
            read = [
                (index, given[at] if isinstance(at, int) else self._at(entry.read[index]))
                for index, at in step.read
            ]
            self._touch(*[at for _, at in read])
            self._step(partial(_shift, shifted, read, step.shape, step.options, whole))
            self._add(shifted.target, whole, True)

    def pulled(self, entry: Pulled) -> None:
        """Pull a rule back."""
        g = self._taken(entry.place)
        if g is None:
            return
        self._kept.add(g.register)
        self._touch(g.register)
        arguments = self._for_rule(entry.arguments)
        wanted = [target is not None for target in entry.targets]
        cotangent = self._cotangent_of(g.register, entry.shape)
        pull = partial(_pull, entry, wanted)
        first = entry.targets[0]
        into = None if first is None else self._found.get(first)
        if entry.rule.add_into is not None and into is not None and into.is_own:
            whole = of_numpy(self._library, self.registers[into.register])
            if tuple(whole.shape) == entry.arguments[0].shape and entry.rule.add_into(
                whole, cotangent(self.registers), **entry.static
            ):
                self._kept.add(into.register)
                self._touch(into.register)
                added_into = partial(_pull_into, entry, self._library, cotangent, into.register)
                self._makers.append(_for_all_threads(added_into))
                return
        run: _Pull = lambda registers: pull(cotangent(registers), arguments(registers))  # noqa: E731
        unfolded = self._unfolded(entry, g.register, pull, run)
        if unfolded is None:
            self._pulled(run, entry.targets, entry.rule.fresh)
            return
        for target, register in zip(entry.targets, unfolded, strict=True):
            if target is not None and register is not None:
                self._add(target, register, entry.rule.fresh)

    def _unfolded(
        self, entry: Pulled, g: int, pull: Callable[..., Sequence[Any]], run: _Pull
    ) -> list[int | None] | None:
        """Take the steps that a pullback is made of; return the registers of what they give.

        None if it is run as it is: on large arrays, of which checking what it is given is a small
        part, or where it looks at elements.
        """
        read = [self._at(a) for a in entry.arguments if type(a) is int]
        arrays = [self.registers[at] for at in (g, *read)]
        if not all(type(a) is np.ndarray and a.size <= _MAX_UNFOLDED for a in arrays):
            return None
        if arrays[0].shape != entry.shape:
            return None

        def pull_traced(g: Tracer, *traced: Tracer) -> Sequence[Any]:
            given = iter(traced)
            return pull(g, [next(given) if type(a) is int else a for a in entry.arguments])

        given = [of_numpy(self._library, array) for array in arrays]
        found = unfold(pull_traced, given, self._kind, run(self.registers))
        if found is None:
            return None
        places = dict(enumerate((g, *read)))
        for register, array in found.constants:
            places[register] = self._new(as_numpy(array))
            self._constants.append((places[register], as_numpy(array)))

        def at(register: Register) -> int:
            if register not in places:
                places[register] = self._new(None)
            return places[register]

        for each in found.entries:
            assert isinstance(each, Launched | Evaluated)
            moved = each._replace(
                arguments=tuple(map(at, each.arguments)), results=tuple(map(at, each.results))
            )
            _ENTRIES[type(moved)](self, moved)
        return [None if register is None else self._at(at(register)) for register in found.results]

    def pulled_values(self, entry: PulledValues) -> None:
        """Pull a rule with values back."""
        taken = list(map(self._taken, entry.places))
        given = [None if each is None else each.register for each in taken]
        read = [at for at in given if at is not None]
        self._kept.update(read)
        self._touch(*read)
        values, arguments = self._for_rule(entry.values), self._for_rule(entry.arguments)
        pairs = zip(given, entry.shapes, strict=True)
        gs = [None if at is None else self._cotangent_of(at, shape) for at, shape in pairs]
        pull = partial(_pull_values, entry, gs, values, arguments)
        self._pulled(pull, entry.targets, entry.rule.fresh)

    def _cotangent_of(self, register: int, shape: tuple[int, ...]) -> Callable[[_Registers], Any]:
        """Return what gives a rule a cotangent, in the shape of its value."""
        library = self._library
        return lambda registers: broadcast_to(of_numpy(library, registers[register]), shape)

    def passed(self, entry: Passed) -> None:
        """Hand a cotangent on as it is."""
        g = self._taken(entry.place)
        if g is not None and entry.target is not None:
            self._add(entry.target, g.register, False)

    def contracted(self, entry: Contracted) -> None:
        """Multiply stored partials by cotangents."""
        wrt = tuple([i for i, target in enumerate(entry.targets) if target is not None])
        given: dict[int, int] = {}
        for output, place in zip(entry.outputs, entry.places, strict=True):
            g = self._taken(place)
            if g is None:
                raise _NotPlannedError
            if output in given:
                both = self._new(None)
                self._touch(given[output], g.register)
                self._step(partial(_add, given[output], g.register, both))
                given[output] = both
            else:
                given[output] = g.register
        plan = contraction_of(entry.plan, wrt, tuple(given), entry.shapes, entry.shape)
        self._arrays([r for r in entry.residuals if r is not None])
        read = [None if r is None else self._at(r) for r in entry.residuals]
        read += given.values()
        kept = [read[i] for i in plan.kept]
        run = partial(_contract, plan, entry.shape, entry.options)
        results = 0 if plan.call is None else len(plan.call.outputs)
        made = self._launch(run, cast("list[int]", kept), results)
        for index, (kind, at) in zip(wrt, plan.places, strict=True):
            target = entry.targets[index]
            if kind == "array" and target is not None:
                self._add(target, made[at], True)

    def _pulled(
        self,
        pull: _Pull,
        targets: Sequence[Place | None],
        fresh: bool,
    ) -> None:
        """Add what a rule gives to cotangents, where it gives something."""
        gradients = pull(self.registers)
        pairs = enumerate(zip(targets, gradients, strict=True))
        made = [(at, t, as_numpy(g)) for at, (t, g) in pairs if t is not None and g is not None]
        writes = tuple([(at, self._new(g)) for at, _, g in made])
        self._touch(*[register for _, register in writes])
        self._makers.append(_for_all_threads(partial(_take, pull, writes)))
        for (_, register), (_, target, _) in zip(writes, made, strict=True):
            self._add(target, register, fresh)


_ENTRIES: Mapping[type, Callable[[_Planner, Any], None]] = {
    Launched: _Planner.launched,
    Stores: _Planner.stores,
    Viewed: _Planner.viewed,
    Evaluated: _Planner.evaluated,
    PulledKernel: _Planner.pulled_kernel,
    Pulled: _Planner.pulled,
    PulledValues: _Planner.pulled_values,
    Passed: _Planner.passed,
    Contracted: _Planner.contracted,
}

_ndarray = np.ndarray
_PLAIN = (np.ndarray, float, int, bool)
"""Types of what kernels are launched on without being asked anything."""


# -- the steps -------------------------------------------------------------------------------------


def _for_all_threads(step: _Step) -> _Maker:
    """Return what makes a step that is the same for all threads."""
    return lambda fixed: step


def _free(freed: Sequence[int], registers: _Registers) -> None:
    for register in freed:
        registers[register] = None


def _launch(run: _Run, reads: Sequence[int], writes: Sequence[int], registers: _Registers) -> None:
    arrays = run([registers[at] for at in reads])
    for register, array in zip(writes, arrays, strict=True):
        registers[register] = array


def _run_storing(entry: Stores, arguments: Sequence[Any]) -> Sequence[Any]:
    return kernel_for(entry.passes, entry.asked)(kernel_values(entry.passes[0], arguments), None)


def _add_into(own: int, other: int, registers: _Registers) -> None:
    array = registers[own]
    np.add(array, registers[other], array)


def _add(first: int, second: int, found: int, registers: _Registers) -> None:
    registers[found] = added(registers[first], registers[second])


def _view(entry: Viewed, whole: int, result: int, registers: _Registers) -> None:
    array = registers[whole]
    registers[result] = np.ndarray(entry.shape, entry.dtype, array, entry.first, entry.strides)


def _evaluate(
    evaluate: Callable[..., Any],
    static: Mapping[str, Any],
    arguments: _Arguments,
    result: int,
    registers: _Registers,
) -> None:
    value = evaluate(*arguments(registers), **static)
    registers[result] = value if type(value) is np.ndarray else as_array(as_numpy(value))


def _evaluate_several(
    evaluate: Callable[..., Any],
    static: Mapping[str, Any],
    arguments: _Arguments,
    results: Sequence[int],
    registers: _Registers,
) -> None:
    values = evaluate(*arguments(registers), **static)
    for register, value in zip(results, values, strict=True):
        registers[register] = as_array(as_numpy(value))


def _place(
    placed: Any,
    made: Sequence[int],
    given: Sequence[int],
    shape: tuple[int, ...],
    whole: int,
    registers: _Registers,
) -> None:
    arrays = [registers[at] for at in made]
    registers[whole] = placed.added_up(arrays, [registers[at] for at in given], shape)


def _shift(
    shifted: Any,
    read: Sequence[tuple[int, int]],
    shape: tuple[int, ...],
    options: KernelOptions,
    whole: int,
    registers: _Registers,
) -> None:
    values = {index: registers[at] for index, at in read}
    registers[whole] = shifted.added_up(values, shape, options)


def _pull(entry: Pulled, wanted: Sequence[bool], g: Any, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the gradients of a rule."""
    cotangents, static = entry.rule.cotangents, entry.static
    if callable(cotangents):
        return cotangents(g, wanted, *arguments, **static)
    pairs = zip(cotangents, wanted, strict=True)
    return [of(g, *arguments, **static) if is_wanted else None for of, is_wanted in pairs]


def _pull_into(
    entry: Pulled,
    library: Library,
    g: Callable[[_Registers], Any],
    into: int,
    registers: _Registers,
) -> None:
    """Let a rule add its gradient to a cotangent, as it did when the plan was made."""
    assert entry.rule.add_into is not None
    whole = of_numpy(library, registers[into])
    is_added = entry.rule.add_into(whole, g(registers), **entry.static)
    assert is_added, "whether a rule adds in place depends on shapes alone"


def _take(
    pull: _Pull,
    writes: Sequence[tuple[int, int]],
    registers: _Registers,
) -> None:
    """Put gradients that a rule gives into registers."""
    gradients = pull(registers)
    for at, register in writes:
        registers[register] = as_numpy(gradients[at])


def _pull_values(
    entry: PulledValues,
    given: Sequence[Callable[[_Registers], Any] | None],
    values: _Arguments,
    arguments: _Arguments,
    registers: _Registers,
) -> Sequence[Any]:
    """Return the gradients of a rule with values."""
    gs = tuple([None if g is None else g(registers) for g in given])
    made, taken = tuple(values(registers)), arguments(registers)
    wanted = zip(entry.rule.cotangents, entry.targets, strict=True)
    return [None if t is None else of(gs, made, *taken, **entry.static) for of, t in wanted]


def _contract(
    plan: Any, shape: tuple[int, ...], options: KernelOptions, kept: Sequence[Any]
) -> Sequence[Any]:
    found: Sequence[Any] = plan.arrays(list(kept), shape, options)
    return found


# -- kernels ---------------------------------------------------------------------------------------


def _is_of_plugin(prepared: Prepared) -> bool:
    """Whether a kernel is another's, who may count its launches."""
    return registry.plugin_of(prepared.backend.name) is not None


class _Arithmetic:
    """Computes numbers by NumPy's scalars, and once it has done so often by a kernel.

    Their bits are the same: see `mixad.backends.numbers`.
    """

    __slots__ = ("_kernel", "_left", "_run")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._run = cast("_Run", kernel.numbers)  # of arguments of these types it is not None
        self._left = _OFTEN

    def __call__(self, arguments: Sequence[Any]) -> Sequence[Any]:
        self._left -= 1
        if not self._left:
            prepared = self._kernel.prepared(list(arguments), None)
            if prepared.audit is None and not _is_of_plugin(prepared):
                self._run = prepared.run
        return self._run(arguments)


def _run_call(
    call: KernelCall, shape: tuple[int, ...] | None, options: KernelOptions, arrays: Sequence[Any]
) -> Sequence[Any]:
    values = list(arrays)
    return call.arrays(values if shape is None else in_shape(call, values, shape), options)
