"""Plans of entries: launches and rules over registers, taken once as they are made.

Everything that depends on structure alone is decided when a plan is made: which register has a
cotangent, what is added to what in whose memory, which memory is for small results that only
kernels read. A run is a list of steps over a list of registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import add, itemgetter
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import NUMPY, Library, is_array
from mixad.backends.autocast import in_given_types
from mixad.backends.execute import InBoxes, Kernel, Prepared, kernel_for
from mixad.backends.hookspecs import LaunchBlock, Stepping
from mixad.backends.numbers import are_numbers
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.kernel.rolls import Shifts
from mixad.scalar.loop_results import ComparisonOnlyResult
from mixad.tape import plan_steps as steps
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.core_kernel import OverCores
from mixad.tape.cotangents import takes
from mixad.tape.entries import (
    Contracted,
    Entry,
    Evaluated,
    Launched,
    Pulled,
    PulledCall,
    PulledKernel,
    PulledValues,
    Stores,
    Viewed,
)
from mixad.tape.gradient_plan import IN_MEMORY, contraction_of, in_shape
from mixad.tape.journal import Noted, Register
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.moves import runs_of
from mixad.tape.native_steps import Native, NativeAlias, NativeLaunch, alias_of
from mixad.tape.node import Rule
from mixad.tape.plan import MAX_BYTES, Fixed, Plan, Result, share_memory
from mixad.tape.plan_steps import Arguments, Maker, Pull, Registers, Run, Step
from mixad.tape.planner import NotPlannedError, Planner
from mixad.tape.registers import as_register, of_register
from mixad.tape.rolls import Term, can_be_added, rolled, sum_of
from mixad.tape.tracer import Tracer
from mixad.tape.unfolded import unfold
from mixad.tape.values_rule import ValuesRule

__all__ = ["Done", "make_plan"]

_LARGE = 1 << 16
"""Bytes from which on arrays are let go of once they have been read."""

_MAX_UNFOLDED = 1 << 14
"""Elements of arrays whose pullbacks are taken apart: for more, it takes longer than it saves."""


def _is_numpys(array: Any) -> bool:
    """Whether something is an array of NumPy itself."""
    return type(array) is np.ndarray


class _Found(NamedTuple):
    """Where a cotangent is, and whether nothing else holds its array."""

    register: int
    is_own: bool


@in_given_types
def make_plan(
    noted: Noted | None,
    slots: Sequence[Any],
    cotangents: Sequence[tuple[Register, Any]],
    values: Sequence[Register],
    inputs: Sequence[Register],
    library: Library,
    kind: type[Tracer],
    *,
    of_number: bool = False,
    fuses: bool = True,
    compiles: bool = False,
) -> tuple[Plan, Done] | None:
    """Return the plan of what was recorded, and what it returns; None if that cannot be repeated.

    `cotangents` begin at registers of values, and those of `inputs` are wanted; `of_number`: the
    one cotangent is 1. Rules take arrays of the `library`, all else NumPy's over their memory.
    Kernels of numbers are compiled if it `compiles`, which pays if they are launched often.
    """
    if noted is None:
        return None
    beside = next((a for a in slots if is_array(a)), None)
    planner = Planner(noted, is_reverse=bool(cotangents), fuses=fuses, beside=beside)
    try:
        seeds = [register for register, _ in cotangents]
        entries = planner.plan(seeds, values, of_number=of_number)
        maker = _PlanMaker(
            noted, planner.count, slots, cotangents, library, kind, compiles=compiles
        )
        maker.take(entries, values)
        return maker.plan(values, inputs, planner.decided)
    except NotPlannedError:
        return None


Done: TypeAlias = tuple[list[Any], list[tuple[Any, bool] | None]]
"""Values, and the cotangents of what came in: None where they are zero. With each goes whether
nothing else holds its array."""


class _PlanMaker:
    """Makes steps from entries, and takes them.

    `registers` hold what came in, what was made, and cotangents.
    """

    def __init__(
        self,
        noted: Noted,
        count: int,
        slots: Sequence[Any],
        cotangents: Sequence[tuple[Register, Any]],
        library: Library,
        kind: type[Tracer],
        *,
        compiles: bool,
    ) -> None:
        self._library = library
        self._kind = kind
        self._compiles = compiles
        self.registers: Registers = [*slots, *[None] * count]
        self._slots = len(slots)
        self._read: set[int] = set()
        self._kept: set[int] = set()
        self._launched: list[tuple[int, int]] = []
        self._same: dict[int, int] = {}
        self._waiting: dict[int, tuple[Term, ...]] = {}
        self._makers: list[Maker] = []
        self._work: dict[int, str] = {}
        self._natives: dict[int, Native] = {}
        self._last: dict[int, int] = {}
        self._let_go: set[int] = set()
        self._used: list[int] = []
        self._constants = [(self._at(at), as_register(array)) for at, array in noted.constants]
        for at, array in self._constants:
            self.registers[at] = array
        self._found: dict[Register, _Found] = {}
        self._seeds = tuple([self._new(g) for _, g in cotangents])
        given = zip(cotangents, self._seeds, strict=True)
        for (value, _), register in reversed(list(given)):
            self._add(value, register, False)  # the last is taken first by a backward pass

    def take(self, entries: Sequence[Entry], values: Sequence[Register]) -> None:
        """Take the steps of some entries; let go of what is large once it has been read."""
        last = {register: at for at, entry in enumerate(entries) for register in entry.reads}
        ends: dict[int, list[Register]] = {}
        for register, at in last.items():
            if register < 0 and register not in values:
                ends.setdefault(at, []).append(register)
        for at, entry in enumerate(entries):
            _ENTRIES[type(entry)](self, entry)
            over = [*map(self._at, ends.get(at, ())), *self._used]
            self._used = []
            self._free(over)

    def _free(self, over: Sequence[int]) -> None:
        """Let go of large arrays in registers that have been read, unless someone else has them."""
        large = [at for at in over if getattr(self.registers[at], "nbytes", 0) > MAX_BYTES]
        if large:
            kept = {each.register for each in self._found.values()}
            kept |= {term.register for terms in self._waiting.values() for term in terms}
            kept |= {*self._waiting, *[at for at, _ in self._constants]}
            for at in large:
                if at not in kept:
                    self._let_go.add(at)
                    self.registers[at] = None

    def plan(
        self,
        values: Sequence[Register],
        inputs: Sequence[Register],
        decided: Sequence[ComparisonOnlyResult],
    ) -> tuple[Plan, Done]:
        """Return the plan of the steps that have been made, and what they have returned."""
        self._arrays(values)
        wanted = tuple(map(self._at, values))
        ends = tuple([self._found.get(at) or _Found(-1, False) for at in inputs])
        self._touch(*wanted, *[end.register for end in ends])
        registers: list[Any] = [None] * len(self.registers)
        for at, array in self._constants:
            registers[at] = array
        returned, aliases = {*wanted, *[end.register for end in ends]}, self._aliases()
        plan = Plan(
            registers,
            tuple(self._freeing({*returned, *[at for at, _ in self._constants]})),
            tuple(self._fixed(self._kept | returned)),
            self._seeds,
            wanted,
            ends,
            tuple(sorted(self._read)),
            tuple(decided),
            self._as_natives(),
            tuple([getattr(self.registers[at], "nbytes", 0) for at in wanted]),
            tuple([name for at, name in self._work.items() if at not in aliases]),
        )
        found = [None if at < 0 else (self.registers[at], is_own) for at, is_own in ends]
        return plan, ([self.registers[at] for at in wanted], found)

    def _aliases(self) -> set[int]:
        """Return the steps that make a view, so that there is nothing to do."""
        return {at for at, native in self._natives.items() if type(native) is NativeAlias}

    @property
    def _is_body(self) -> bool:
        """Whether a backend may run the steps by itself, as those of a loop."""
        return self._compiles and self._library is NUMPY

    def _as_natives(self) -> tuple[Native, ...] | None:
        """Return the steps if a backend can run all of them by itself."""
        found = [self._natives.get(at) for at in range(len(self._makers))]
        are_numpys = all(type(a) is np.ndarray for a in self.registers[: self._slots])
        if None in found or not are_numpys:
            return None
        return tuple([native for native in found if native is not None])

    def _fixed(self, others: set[int]) -> list[Fixed]:
        """Return the registers that only kernels fill and read, and what memory they have."""
        others = others | self._let_go
        own = [(register, step) for register, step in self._launched if register not in others]
        return share_memory(
            [Result(at, self.registers[at], step, self._last[at]) for at, step in own]
        )

    def _freeing(self, others: set[int]) -> list[Maker]:
        """Return the steps, with some that let go of large arrays once these have been read."""
        last: dict[int, list[int]] = {}
        for register, step in self._last.items():
            size = getattr(self.registers[register], "nbytes", 0)
            is_large = size > _LARGE or register in self._let_go
            if register not in others and is_large:
                last.setdefault(step, []).append(register)
        found = []
        for number, maker in enumerate(self._makers):
            found.append(maker)
            if number in last:
                found.append(steps.for_all_threads(partial(steps.free, tuple(last[number]))))
        return found

    # -- registers ---------------------------------------------------------------------------------

    def _touch(self, *registers: int) -> None:
        """Note that the next step reads or fills some registers; make those that wait."""
        for register in registers:
            if register in self._waiting:
                self._make(register)
        self._last.update(dict.fromkeys(registers, len(self._makers)))

    def _at(self, register: Register) -> int:
        """Return where a register of the journal is."""
        at = register if register >= 0 else self._slots - register - 1
        return self._same.get(at, at)

    def _new(self, value: Any) -> int:
        self.registers.append(value)
        return len(self.registers) - 1

    def _arrays(self, registers: Sequence[Register]) -> list[Any]:
        """Return the arrays in some registers, which are read now."""
        self._read.update(at for at in registers if 0 <= at < self._slots)
        found = [self.registers[self._at(at)] for at in registers]
        if any(value is None for value in found):
            raise NotPlannedError
        return found

    def _for_rule(self, arguments: Sequence[Any]) -> Arguments:
        """Return what makes a rule's arguments, registers and shapes; the rule may retain them."""
        self._arrays([a for a in arguments if type(a) is int])
        places = [(True, self._at(a)) if type(a) is int else (False, a) for a in arguments]
        read = [at for is_register, at in places if is_register]
        self._kept.update(read)
        self._touch(*read)
        if self._library is not NUMPY:
            of = partial(of_register, self._library)
            return lambda registers: [of(registers[at]) if is_at else at for is_at, at in places]
        if len(read) < len(places):
            return lambda registers: [registers[at] if is_at else at for is_at, at in places]
        return itemgetter(*read) if len(read) > 1 else lambda registers: (registers[read[0]],)

    # -- cotangents --------------------------------------------------------------------------------

    def _taken(self, place: Register | None) -> _Found | None:
        """Return where a cotangent is, and use it up; None if there is none."""
        found = None if place is None else self._found.pop(place, None)
        if found is not None:
            self._used.append(found.register)
        return found

    def _add(self, place: Register, register: int, is_own: bool) -> None:
        """Add to a cotangent, as a backward pass does."""
        known = self._found.get(place)
        if known is None:
            self._found[place] = _Found(register, is_own)
            return
        first, second = known.register, register
        if self._wait_for_sum(place, first, second):
            return
        own, other = (first, second) if known.is_own else (second, first)
        arrays = self.registers
        self._touch(first, second)
        if (known.is_own or is_own) and takes(arrays[own], arrays[other]):
            self._make_readers(own)
            self._step("add", partial(steps.add_into, own, other))
            self._found[place] = _Found(own, True)
        else:
            found = self._new(None)
            self._step("add", partial(steps.add_new, first, second, found))
            self._found[place] = _Found(found, True)

    # -- rolled arrays -----------------------------------------------------------------------------

    def _wait_for_roll(self, source: int, shifts: Shifts | None, result: int) -> bool:
        """Let a register wait that has the elements of another, rolled; tell whether it can.

        Kernels read them where they are; all else makes the array.
        """
        array = self.registers[source]
        if shifts is None or type(array) is not np.ndarray or not array.flags.c_contiguous:
            return False
        (first, *others) = self._terms(source)
        if others:
            self._make(source)
            first, array = Term(source, None), self.registers[source]
            if not array.flags.c_contiguous:  # kernels may leave axes in another order
                return False
        if first.shifts is not None:
            shifts = tuple(map(add, first.shifts, shifts))
        self._waiting[result] = (Term(first.register, shifts),)
        self.registers[result] = rolled(array, shifts)
        return True

    def _wait_for_sum(self, place: Register, first: int, second: int) -> bool:
        """Let the sum of two cotangents wait, if one of them does; tell whether it can."""
        if first not in self._waiting and second not in self._waiting:
            return False
        if len(self._terms(second)) > 1:  # what is added up is added up in the order that it has
            self._make(second)
        terms = (*self._terms(first), *self._terms(second))
        arrays = self.registers[first], self.registers[second]
        if not can_be_added(terms, *arrays):
            return False
        found = self._new(arrays[0] + arrays[1])
        self._waiting[found] = terms
        self._found[place] = _Found(found, True)
        return True

    def _terms(self, register: int) -> tuple[Term, ...]:
        """Return what a register is the sum of: itself alone, if it is there."""
        return self._waiting.get(register) or (Term(register, None),)

    def _make(self, register: int) -> None:
        """Make the array of a register that waits."""
        terms, next_step = self._waiting.pop(register), len(self._makers)
        waiting = [each for each, step in self._last.items() if step == next_step]
        if len(terms) == 1:
            source, shifts = terms[0]
            assert shifts is not None
            self._touch(source, register)
            self._step("roll", partial(steps.roll, source, shifts, register))
            if self._is_body:
                self._note_runs(partial(rolled, shifts=shifts), [source], [0], register)
        else:
            reads = []
            for source, shifts in terms:
                reads.append(source if shifts is None else self._new(None))
                if shifts is not None:
                    can_wait = self._wait_for_roll(source, shifts, reads[-1])
                    assert can_wait, "what is moved on is contiguous"
            call = sum_of(len(reads), self.registers[register].dtype)
            self._launch_call(call, reads, (register,), None, DEFAULT_OPTIONS)
        # What the step reads for which this is made is read after it.
        self._last.update(dict.fromkeys(waiting, len(self._makers)))

    def _make_readers(self, register: int) -> None:
        """Make the registers that wait and read one that is changed next."""
        for waiting, terms in list(self._waiting.items()):
            if any(term.register == register for term in terms):
                self._touch(waiting)

    def _launch_in_boxes(
        self, call: KernelCall, reads: Sequence[int], writes: tuple[int, ...]
    ) -> bool:
        """Launch a kernel on registers some of which wait; tell whether it reads what they are."""
        for at in reads:
            if len(self._terms(at)) > 1:
                self._make(at)
        terms = [term for at in reads for term in self._terms(at)]
        if all(term.shifts is None for term in terms):
            return False
        sources = [term.register for term in terms]
        arrays = [self.registers[at] for at in sources]
        pairs = zip(arrays, call.kinds, strict=True)
        if any((type(a) is np.ndarray) is (kind == "uniform") for a, kind in pairs):
            return False
        launch = call.kernel.in_boxes(arrays, [term.shifts for term in terms])
        step = None if launch is None else launch.launch(sources, writes, {})
        if launch is None or step is None:
            return False
        self._touch(*sources, *writes)
        step(self.registers)
        self._note_native(launch, sources, writes)
        self._launched += [(at, len(self._makers)) for at in writes]
        self._append("kernel", cast("Maker", partial(launch.launch, sources, writes)))
        return True

    # -- steps -------------------------------------------------------------------------------------

    def _append(self, name: str, maker: Maker) -> None:
        """Add a step, with its name for people."""
        self._work[len(self._makers)] = name
        self._makers.append(maker)

    def _step(self, name: str, step: Step) -> None:
        """Take a step that all threads share."""
        step(self.registers)
        self._append(name, steps.for_all_threads(step))

    def _fresh(self, count: int) -> tuple[int, ...]:
        return tuple([self._new(None) for _ in range(count)])

    def _launch_call(
        self,
        call: KernelCall,
        reads: Sequence[int],
        writes: tuple[int, ...],
        shape: tuple[int, ...] | None,
        options: KernelOptions,
    ) -> None:
        """Launch the kernel of a call."""
        if options.backend is not None:
            raise NotPlannedError
        if not self._launch_in_boxes(call, reads, writes):
            arrays = [self.registers[at] for at in reads]
            self._launch(self._launch_of(call, arrays, shape, options), reads, writes)

    def _launch(
        self, launch: Run | Prepared, reads: Sequence[int], writes: tuple[int, ...]
    ) -> None:
        """Launch a kernel."""
        run: Run = launch.run if isinstance(launch, Prepared) else launch
        self._touch(*reads, *writes)
        step = partial(steps.launch, run, tuple(reads), writes)
        step(self.registers)
        if isinstance(launch, Prepared) and all(type(self.registers[at]) in _PLAIN for at in reads):
            self._note_native(launch, reads, writes)
            repeated = partial(launch.repeated, tuple(reads), writes)
            if repeated({}) is not None:
                self._launched += [(at, len(self._makers)) for at in writes]
                self._append("kernel", cast("Maker", repeated))
                return
        self._append("kernel", steps.for_all_threads(step))

    def _note_native(
        self, launch: Prepared | InBoxes, reads: Sequence[int], writes: Sequence[int]
    ) -> None:
        """Note that the next step is a launch that a backend can run by itself, if it is."""
        found = launch.blocks() if self._compiles else None
        known = {at for at, _ in self._constants}
        if found is not None and all(
            reads[k] < self._slots or reads[k] in known for k, _, _ in found[1][0].numbers
        ):
            sizes = tuple([self.registers[at].nbytes for at in writes])
            numbers = tuple([reads[k] for k, _, _ in found[1][0].numbers])
            native = NativeLaunch(*found, tuple(reads), tuple(writes), numbers, sizes)
            self._natives[len(self._makers)] = native

    def _note_alias(self, source: int, result: int) -> None:
        """Note that the last step has made a view of what is in a register, if it has."""
        array, view = self.registers[source], self.registers[result]
        if self._compiles and type(array) is np.ndarray and type(view) is np.ndarray:
            native = alias_of(array, view, source, result)
            if native is not None:
                self._natives[len(self._makers) - 1] = native

    def _note_core(self, evaluate: OverCores, entry: Evaluated, results: Sequence[int]) -> None:
        """Note that the last step is a kernel over small arrays that a backend runs, if it is."""
        reads, at = self._places(entry.arguments), len(self._makers) - 1
        found = evaluate.block([self.registers[each] for each in reads], entry.static)
        if found is not None:
            sizes = tuple([self.registers[each].nbytes for each in results])
            self._natives[at] = NativeLaunch(
                found.backend,
                (found.block,),
                tuple(reads),
                tuple(results),
                (),
                sizes,
                found.fails,
                found.room,
                found.compiled,
            )
            self._work[at] = "kernel"

    def _note_moves(self, rule: Rule, entry: Evaluated, result: int) -> None:
        """Note that the last step copies or adds elements, if a backend can do so by itself."""
        places, constants = self._places(entry.arguments), {each for each, _ in self._constants}
        if rule.moves and constants.issuperset(places[k] for k in rule.positions):
            moved = [k for k in range(len(places)) if k not in rule.positions]
            evaluate = partial(rule.evaluate, self._library.xp, **entry.static)
            if self._note_runs(evaluate, places, moved, result):
                return
        arrays, backend = [self.registers[at] for at in places], self._stepping(result)
        if rule.block is not None and backend is not None and all(map(_is_numpys, arrays)):
            block = rule.block(backend, *arrays, **entry.static)
            if block is not None:
                self._note_block(backend, block, places, result)

    def _note_runs(
        self, evaluate: Callable[..., Any], places: list[int], moved: Sequence[int], result: int
    ) -> bool:
        """Note that the last step copies parts of arrays; tell whether a backend can."""
        at, value, backend = len(self._makers) - 1, self.registers[result], self._stepping(result)
        arrays = [self.registers[each] for each in places]
        if at in self._natives or backend is None or not all(map(_is_numpys, arrays)):
            return at in self._natives
        runs = runs_of(evaluate, arrays, moved, value)
        if runs is None:
            return False
        sources, (source, first, _, count) = [places[k] for k in moved], runs[0]
        if source >= 0 and count == value.nbytes:
            self._natives[at] = NativeAlias(sources[source], result, first, False)
        else:
            block = backend.move_block(len(sources), runs, value.nbytes)
            self._note_block(backend, block, sources, result)
        return True

    def _note_block(
        self, backend: Stepping, block: LaunchBlock, reads: Sequence[int], result: int
    ) -> None:
        """Note that the last step is one that a backend runs by itself."""
        at, sizes = len(self._makers) - 1, (self.registers[result].nbytes,)
        self._natives[at] = NativeLaunch(backend, (block,), tuple(reads), (result,), (), sizes)
        self._work[at] = "kernel"

    def _stepping(self, result: int) -> Stepping | None:
        """Return what may run the step of a result by itself, whose elements may be of any type."""
        if type(self.registers[result]) is not np.ndarray:
            return None
        backend = registry.resolve("numpy", "cpu", frozenset(("float64",)))
        return backend if isinstance(backend, Stepping) else None

    def _launch_of(
        self,
        call: KernelCall,
        arrays: list[Any],
        shape: tuple[int, ...] | None,
        options: KernelOptions,
    ) -> Run | Prepared:
        """Return what launches a kernel on arrays like these, at once if they need no conversion.

        Where one is indexed, the call says where it was outside. Kernels of a backend that was
        asked for are launched as often as the user calls them: no plan is tried beside a pass.
        """
        kinds = list(zip(arrays, call.kinds, strict=True))
        others = [a for a, kind in kinds if kind == "uniform" and type(a) is not np.ndarray]
        converts = any(map(is_array, others))
        broadcasts = shape is not None and in_shape(call, arrays, shape) is not arrays
        is_direct = not (converts or broadcasts or call.may_be_outside)
        arrays = [a.item() if k == "uniform" and type(a) is np.ndarray else a for a, k in kinds]
        found = self._prepared(call.kernel, arrays, options) if is_direct else None
        return found or partial(steps.run_call, call, shape, options)

    def _prepared(
        self, kernel: Kernel, arrays: list[Any], options: KernelOptions
    ) -> Run | Prepared | None:
        """Return what launches a kernel on arrays like these; None if it is asked each time."""
        if options.backend is not None:
            raise NotPlannedError
        numbers = None if self._compiles or not are_numbers(arrays) else kernel.numbers
        if numbers is not None and numbers(arrays) is not None:
            return steps.Arithmetic(kernel)
        prepared = kernel.prepare_launch(arrays, None)
        if prepared.audit is not None:
            return None
        is_plugins = steps.is_of_plugin(prepared)
        return partial(steps.run_prepared, kernel, prepared.run) if is_plugins else prepared

    def _name(self, register: Register, at: int) -> None:
        """Give a register of the journal the place of another one."""
        self._same[self._at(register)] = at

    def launched(self, entry: Launched) -> None:
        """Launch a kernel."""
        self._arrays(entry.arguments)
        writes = self._fresh(len(entry.results))
        self._launch_call(entry.call, self._places(entry.arguments), writes, None, entry.options)
        for register, at in zip(entry.results, writes, strict=True):
            self._name(register, at)

    def stores(self, entry: Stores) -> None:
        """Launch a kernel that makes partials, too."""
        arrays = list(kernel_values(entry.passes[0], self._arrays(entry.arguments)))
        launch = self._prepared(kernel_for(entry.passes, entry.asked), arrays, entry.options)
        run = launch or partial(steps.run_storing, entry)
        writes = self._fresh(len(entry.asked))
        self._launch(run, self._places(entry.arguments), writes)
        for register, at in entry.results:
            self._name(register, writes[at])

    def _places(self, registers: Sequence[Register]) -> list[int]:
        return list(map(self._at, registers))

    def viewed(self, entry: Viewed) -> None:
        """Take a view of an array that came in."""
        self._arrays((entry.whole,))
        whole, result = self._places((entry.whole, entry.result))
        self._touch(result)
        self._step("view", partial(steps.view, entry.strided, whole, result))
        self._note_alias(whole, result)

    def evaluated(self, entry: Evaluated) -> None:
        """Apply a rule."""
        rule, results = entry.rule, self._places(entry.results)
        if type(rule) is Rule and rule.steps is not None:
            (array,), (source,) = self._arrays(entry.arguments), self._places(entry.arguments)
            if self._wait_for_roll(source, rule.steps(array.shape, **entry.static), results[0]):
                return
        arguments = self._for_rule(entry.arguments)
        self._touch(*results)
        evaluate = partial(rule.evaluate, self._library.xp)
        if type(rule) is ValuesRule:
            step = partial(steps.evaluate_several, evaluate, entry.static, arguments, results)
            self._step(rule.name, step)
            if isinstance(rule.evaluate, OverCores) and self._is_body:
                self._note_core(rule.evaluate, entry, results)
        else:
            step = partial(steps.evaluate, evaluate, entry.static, arguments, results[0])
            self._step(rule.name, step)
            if len(entry.arguments) == 1:
                self._note_alias(self._at(entry.arguments[0]), results[0])
            if type(rule) is Rule and self._is_body:
                self._note_moves(rule, entry, results[0])

    def pulled_kernel(self, entry: PulledKernel) -> None:
        """Take a step that pulls kernels back."""
        taken = [each for each in map(self._taken, entry.cotangents) if each is not None]
        if len(taken) < len(entry.cotangents):
            raise NotPlannedError
        given = [each.register for each in taken]
        self._arrays(entry.reads)

        def at(source: tuple[bool, int]) -> int:
            is_given, register = source
            return given[register] if is_given else self._at(register)

        made: tuple[int, ...] = ()
        call = entry.plan.call
        if call is not None:
            made = self._fresh(len(call.outputs))
            reads = list(map(at, entry.arguments))
            self._launch_call(call, reads, made, entry.shape, entry.options)
        for register, place in zip(entry.results, made, strict=False):
            self._name(register, place)
        for target, kind, place in entry.targets:
            found = made[place] if kind in IN_MEMORY else given[place]
            self._add(target, found, kind == "array")
        for placed in entry.placed:
            whole = self._new(None)
            self._kept.update(made)
            self._touch(*made, *given)
            self._step("add", partial(steps.place, placed, made, given, entry.shape, whole))
            self._add(placed.target, whole, True)
        for shifted in entry.shifted:
            whole = self._new(None)
            read = [(index, at(source)) for index, source in entry.read.items()]
            self._touch(*[register for _, register in read])
            run = partial(steps.shift, shifted, read, entry.shape, entry.options, whole)
            self._step("kernel", run)
            self._add(shifted.target, whole, True)

    def pulled(self, entry: Pulled) -> None:
        """Pull a rule back."""
        g = self._taken(entry.value)
        if g is None or self._rolled_back(entry, g.register):
            return
        self._kept.add(g.register)
        self._touch(g.register)
        arguments = self._for_rule(entry.arguments)
        wanted = [target is not None for target in entry.targets]
        cotangent = self._cotangent_of(g.register, entry.shape)
        pull = partial(steps.pull, entry, wanted)
        first = entry.targets[0]
        into = None if first is None else self._found.get(first)
        if entry.rule.add_into is not None and into is not None and into.is_own:
            self._touch(into.register)
            self._make_readers(into.register)
            whole = of_register(self._library, self.registers[into.register])
            if tuple(whole.shape) == entry.arguments[0].shape and entry.rule.add_into(
                whole, cotangent(self.registers), **entry.static
            ):
                self._kept.add(into.register)
                self._touch(into.register)
                added_into = partial(
                    steps.pull_into, entry, self._library, cotangent, into.register
                )
                self._append(entry.rule.name, steps.for_all_threads(added_into))
                return
        run: Pull = lambda registers: pull(cotangent(registers), arguments(registers))  # noqa: E731
        unfolded = self._unfolded(entry, g.register, pull, run)
        if unfolded is None:
            self._pulled(entry.rule.name, run, entry.targets, entry.rule.fresh)
            return
        for target, register in zip(entry.targets, unfolded, strict=True):
            if target is not None and register is not None:
                self._add(target, register, entry.rule.fresh)

    def _rolled_back(self, entry: Pulled, g: int) -> bool:
        """Pull back a rule that rolls elements; tell whether it is one."""
        (target,) = entry.targets if len(entry.targets) == 1 else (None,)
        shape = self.registers[g].shape
        if entry.rule.steps is None or target is None or shape != entry.shape:
            return False
        shifts, found = entry.rule.steps(shape, **entry.static), self._new(None)
        if not self._wait_for_roll(g, shifts and tuple([-s for s in shifts]), found):
            return False
        self._add(target, found, True)
        return True

    def _unfolded(
        self, entry: Pulled, g: int, pull: Callable[..., Sequence[Any]], run: Pull
    ) -> list[int | None] | None:
        """Take the steps that a pullback is made of; return the registers of its results.

        None if it is run as it is: on large arrays, where it costs little to check its arguments,
        or because it looks at elements.
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

        given = [of_register(self._library, array) for array in arrays]
        found = unfold(pull_traced, given, self._kind, self._library, run(self.registers))
        if found is None:
            return None
        places = dict(enumerate((g, *read)))
        for register, array in found.constants:
            places[register] = self._new(as_register(array))
            self._constants.append((places[register], as_register(array)))

        def at(register: Register) -> int:
            if register not in places:
                places[register] = self._new(None)
            return places[register]

        for each in found.entries:
            moved = each._replace(
                arguments=tuple(map(at, each.arguments)), results=tuple(map(at, each.results))
            )
            _ENTRIES[type(moved)](self, moved)
        return [None if register is None else self._at(at(register)) for register in found.results]

    def pulled_values(self, entry: PulledValues) -> None:
        """Pull a rule with values back."""
        taken = list(map(self._taken, entry.given))
        given = [None if each is None else each.register for each in taken]
        read = [at for at in given if at is not None]
        self._kept.update(read)
        self._touch(*read)
        values, arguments = self._for_rule(entry.values), self._for_rule(entry.arguments)
        pairs = zip(given, entry.shapes, strict=True)
        gs = [None if at is None else self._cotangent_of(at, shape) for at, shape in pairs]
        pull = partial(steps.pull_values, entry, gs, values, arguments)
        self._pulled(entry.rule.name, pull, entry.targets, entry.rule.fresh)

    def pulled_call(self, entry: PulledCall) -> None:
        """Let a call of the user's function carry cotangents back."""
        given = [None if g is None else g.register for g in map(self._taken, entry.given)]
        read = [self._at(entry.call), *[at for at in given if at is not None]]
        self._arrays([entry.call])
        self._kept.update(read)
        self._touch(*read)
        pairs = zip(given, entry.shapes, strict=True)
        gs = [None if at is None else self._cotangent_of(at, shape) for at, shape in pairs]
        self._pulled("call", partial(steps.pull_call, read[0], gs), entry.targets, False)

    def _cotangent_of(self, register: int, shape: tuple[int, ...]) -> Callable[[Registers], Any]:
        """Return what makes the cotangent that a rule gets, in the shape of its value."""
        library = self._library
        return lambda registers: broadcast_to(of_register(library, registers[register]), shape)

    def contracted(self, entry: Contracted) -> None:
        """Multiply stored partials by cotangents."""
        wrt = tuple([i for i, target in enumerate(entry.targets) if target is not None])
        given: dict[int, int] = {}
        for output, place in zip(entry.outputs, entry.given, strict=True):
            g = self._taken(place)
            if g is None:
                raise NotPlannedError
            if output in given:
                both = self._new(None)
                self._touch(given[output], g.register)
                self._step("add", partial(steps.add_new, given[output], g.register, both))
                given[output] = both
            else:
                given[output] = g.register
        plan = contraction_of(entry.plan, wrt, tuple(given), entry.shapes, entry.shape)
        self._arrays([r for r in entry.residuals if r is not None])
        read = [None if r is None else self._at(r) for r in entry.residuals]
        read += given.values()
        if plan.call is None:
            return
        made = self._fresh(len(plan.call.outputs))
        kept = cast("list[int]", [read[i] for i in plan.kept])
        self._launch_call(plan.call, kept, made, entry.shape, entry.options)
        for index, (kind, at) in zip(wrt, plan.places, strict=True):
            target = entry.targets[index]
            if kind == "array" and target is not None:
                self._add(target, made[at], True)

    def _pulled(
        self,
        name: str,
        pull: Pull,
        targets: Sequence[Register | None],
        fresh: bool,
    ) -> None:
        """Add the cotangents that a rule returns, where they are not zero."""
        gradients = pull(self.registers)
        pairs = enumerate(zip(targets, gradients, strict=True))
        made = [(at, t, as_register(g)) for at, (t, g) in pairs if t is not None and g is not None]
        writes = tuple([(at, self._new(g)) for at, _, g in made])
        self._touch(*[register for _, register in writes])
        self._append(name, steps.for_all_threads(partial(steps.take, pull, writes)))
        for (_, register), (_, target, _) in zip(writes, made, strict=True):
            self._add(target, register, fresh)


_ENTRIES: Mapping[type, Callable[[_PlanMaker, Any], None]] = {
    Launched: _PlanMaker.launched,
    Stores: _PlanMaker.stores,
    Viewed: _PlanMaker.viewed,
    Evaluated: _PlanMaker.evaluated,
    PulledKernel: _PlanMaker.pulled_kernel,
    Pulled: _PlanMaker.pulled,
    PulledCall: _PlanMaker.pulled_call,
    PulledValues: _PlanMaker.pulled_values,
    Contracted: _PlanMaker.contracted,
}

_PLAIN = (np.ndarray, float, int, bool)
"""Types of what kernels are launched on without asking."""
