"""Which launches compute what equations say, and carry cotangents back through them.

Nothing is computed here. Kernels are launched when something reads their results, together with
those that they read and that can be computed inside. On the way back, a kernel whose results are
read by the members of groups joins these groups, which become one. A group is pulled back, by one
launch, when something else needs the cotangents that it makes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain, compress
from typing import Any, NamedTuple, TypeAlias, TypeGuard

from mixad.backends.execute import writes_parts
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.loop_results import ComparisonOnlyResult, decided_results
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
from mixad.tape.fusion import (
    NOTHING,
    FusedProgram,
    common_options,
    fits,
    fused_program,
    internal,
)
from mixad.tape.gradient_plan import (
    IN_MEMORY,
    GradientPlan,
    GradientRequest,
    contraction_of,
    plan_gradients,
)
from mixad.tape.group import FusionGroup
from mixad.tape.journal import (
    CallEquation,
    Equation,
    KernelEquation,
    Noted,
    Register,
    RuleEquation,
    ViewEquation,
)
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.node import Rule
from mixad.tape.partials_plan import PartialsPlan
from mixad.tape.placing import is_placeable, move_shifted, placed_parts
from mixad.tape.save_partials import asked_for, cheaper_plan

__all__ = ["Fusion", "NotPlannedError", "Planner", "SavedPartials"]

_MAX_TOGETHER = 63
"""Values that are looked at to be made together with another one."""

_MAX_SMALL = 1 << 14
"""Elements of values that are made together though neither needs the other: a launch takes longer
than what they compute."""

_MAX_COST_SHARED = 200
"""Cost of groups that become one since they read one array, which saves a launch and passes over
memory: twice as many terms in a kernel run as fast, and compile in four times the time."""

_LOW_COST = 20
"""Vector instructions a gang that computing again may cost: about what reading 64 bytes does."""


class NotPlannedError(Exception):
    """What was done is more than launches and rules over what came in."""


_Maker: TypeAlias = tuple[Equation, int]
"""An equation, and which of its results a value is."""

_Result: TypeAlias = tuple[int, int]
"""A member of a launch, and a result of its program."""

_Live: TypeAlias = list[tuple[int, Register, OutputRequest]]
"""Results to make: the member, the register, and what is wanted."""


class Fusion(NamedTuple):
    """Kernels as one program, with the registers of what it reads from outside.

    `shapes` are empty for what is no lane, `wholes` only for numbers.
    """

    fused: FusedProgram
    registers: list[Register]
    carries: list[Hashable]
    shapes: list[Shape]
    wholes: list[Shape]

    @property
    def wrt(self) -> tuple[int, ...]:
        """The leaves that carry the level."""
        return tuple([i for i, carries in enumerate(self.carries) if carries])


class SavedPartials(NamedTuple):
    """Partials that were made with results, by a kernel of which these are the arguments.

    `residuals` are the arguments, then what the passes store; None for what is no partial.
    """

    plan: PartialsPlan
    residuals: tuple[Register | None, ...]
    arguments: Sequence[Register]
    carries: Sequence[Hashable]
    shapes: Sequence[Shape]
    outputs: Mapping[Register, int]


class Planner:
    """Plans entries for some equations.

    If it `is_reverse`, cotangents will be carried back through them. Where it does not fuse, each
    kernel has a launch of its own. `beside` is an array of where kernels run. If it `is_inner`, a
    transform around follows what is read: that is recorded, and nothing has to be made.
    """

    def __init__(
        self,
        noted: Noted,
        *,
        is_reverse: bool,
        fuses: bool,
        beside: Any,
        is_inner: bool = False,
    ) -> None:
        self.decided: list[ComparisonOnlyResult] = list(noted.decided)
        self._equations = noted.equations
        self._is_reverse = is_reverse
        self._fuses = fuses
        self._beside = beside
        self._is_inner = is_inner
        self._count = noted.count
        self._entries: list[Entry] = []
        self._makers: dict[Register, _Maker] = {}
        self._made: set[Register] = {register for register, _ in noted.constants}
        self._held: dict[Register, int] = {}
        self._kept: set[Register] = set()
        self.awaited: set[Register] = set()  # what results wait for that a group leaves to others
        self._uses: Counter[int] = Counter()
        self._inside: dict[int, list[bool]] = {}
        self._stored: dict[int, SavedPartials] = {}
        self._knows_asked = False  # whether partials that are asked for are made as they are met
        self._now = 0
        for equation in self._equations:
            for result, register in enumerate(equation.results):
                self._makers[register] = equation, result
            if type(equation) is CallEquation:
                self._made.update(equation.results)

    @property
    def count(self) -> int:
        """How many registers there are beside slots."""
        return self._count

    def plan(
        self, seeds: Sequence[Register], wanted: Sequence[Register], *, of_number: bool
    ) -> list[Entry]:
        """Return what computes the wanted values, and carries the cotangents of seeds back.

        ``of_number`` says that the one seed is a number with the cotangent 1.
        """
        self._hold(seeds, wanted)
        asked, self._knows_asked = self._find_asked(seeds), True
        for number, equation in enumerate(self._equations):
            self._now = number
            if type(equation) is KernelEquation:
                self._come_to(equation)
                if id(equation) in asked:
                    self._make_asked(equation, asked[id(equation)])
            elif type(equation) is RuleEquation and not equation.waits:
                self._evaluate(equation)
        self._now = len(self._equations)
        if seeds:
            walk = _Walk(self, seeds, seeds[0] if of_number else None)
            walk.run()
        left = [register for register in wanted if register not in self._made]
        while left:
            root = left.pop()
            self._make(root, left[-_MAX_TOGETHER:])
        return self._needed(wanted)

    def know(
        self,
        made: Iterable[Register],
        held: Iterable[Register],
        uses: Mapping[int, int],
        stored: Mapping[int, SavedPartials],
    ) -> None:
        """Note what has been done of the equations, which are nodes.

        These are the values that are there, those that others hold, and by the id of an equation
        how many nodes read its results, and its partials that have been made.
        """
        self._stored.update(stored)
        self._made.update(made)
        self._held.update(dict.fromkeys(held, len(self._equations) + 1))
        self._uses.update(uses)
        for equation in self._equations:
            if type(equation) is KernelEquation:
                self._inside[id(equation)] = self._found_inside(equation)

    def plan_value(self, register: Register) -> list[Entry]:
        """Return what makes a value."""
        self._make(register)
        return self._entries

    def plan_back(self, seeds: Sequence[Register], *, of_number: bool) -> list[Entry]:
        """Return what carries the cotangents of seeds back; see `plan`."""
        asked = self._find_asked(seeds)
        for equation in self._equations if asked else ():
            if type(equation) is KernelEquation and id(equation) in asked:
                self._make_asked(equation, asked[id(equation)])
        self._now = len(self._equations)
        _Walk(self, seeds, seeds[0] if of_number else None).run()
        return self._entries

    def kernel_of(self, register: Register) -> tuple[Fusion, list[KernelEquation]]:
        """Return the kernel that makes a value, and the equations in it."""
        root, _ = self.output(register)
        members = self._members(root, ())
        results = dict.fromkeys([request.result for request, _ in root.outputs])
        return self.fuse(members, [(len(members) - 1, result) for result in results]), members

    @property
    def kept(self) -> set[Register]:
        """The values that are stored as they are made."""
        return self._kept

    @property
    def stored(self) -> list[SavedPartials]:
        """The partials that are made with results."""
        return list(self._stored.values())

    def _hold(self, seeds: Sequence[Register], wanted: Sequence[Register]) -> None:
        """Note until when values are held: until they are read last.

        Wanted values, and those that a rule's cotangents read, are held for good.
        """
        end = len(self._equations) + 1
        for number, equation in enumerate(self._equations):
            if type(equation) in (KernelEquation, RuleEquation):
                self._held.update(dict.fromkeys(equation.arguments, number))  # type: ignore[union-attr,arg-type]
        for equation in self._equations if seeds else ():
            if type(equation) is RuleEquation and any(equation.carries):
                for register, is_read in zip(equation.arguments, _is_read(equation), strict=True):
                    if is_read:
                        self._held[register] = end
                if type(equation.rule) is not Rule:
                    self._held.update(dict.fromkeys(equation.results, end))
        self._held.update(dict.fromkeys(wanted, end))
        self._hold_for_later(self._held.copy())

    def _hold_for_later(self, read: dict[Register, int]) -> None:
        """Hold what waiting kernels and rules read from memory when they are launched or evaluated.

        `read` says until when each value may be asked for.
        """
        for equation in reversed(self._equations):
            if type(equation) is KernelEquation:
                inside: Sequence[bool] = equation.pending
            elif type(equation) is RuleEquation and equation.waits:
                inside = (False,)
            else:
                continue
            until = max([read.get(register, -1) for register in equation.results], default=-1)
            for register, is_inside in zip(equation.arguments, inside, strict=True):
                read[register] = max(read[register], until)
                if not is_inside:
                    self._held[register] = max(self._held[register], until)

    def _needed(self, values: Sequence[Register]) -> list[Entry]:
        """Return the entries that some values and the cotangents of what came in need.

        Kernels that read by index are needed: an index may be outside.
        """
        needed, found = set(values), []
        for entry in reversed(self._entries):
            fills = entry.fills
            if fills is None or not needed.isdisjoint(fills):
                needed.update(entry.reads)
                found.append(entry)
        return found[::-1]

    # -- values ------------------------------------------------------------------------------------

    def is_materialized(self, register: Register) -> bool:
        """Whether a value is there: it came in, or has been made."""
        return register >= 0 or register in self._made

    def maker(self, register: Register) -> Equation | None:
        """Return what makes a value; None if it came in."""
        found = self._makers.get(register)
        return None if found is None else found[0]

    def output(self, register: Register) -> tuple[KernelEquation, int]:
        """Return the kernel that makes a value, and which of its outputs it is."""
        equation, result = self._makers.get(register, (None, 0))
        if type(equation) is not KernelEquation:
            raise NotPlannedError  # it has read what was made by others
        return equation, result

    def append(self, entry: Entry, *results: Register) -> None:
        """Add an entry, which makes some values."""
        self._entries.append(entry)
        self._made.update(results)

    def keep(self, register: Register) -> None:
        """Let a value be stored when it is made: it will be read."""
        self._kept.add(register)

    def make(self, register: Register) -> None:
        """Plan what makes a value, which is stored if others read it."""
        if not (self._is_inner or self.is_materialized(register)):
            equation = self.maker(register)
            if type(equation) is KernelEquation and self._uses[id(equation)]:
                self.keep(register)
            self._make(register)

    def live(self, members: Sequence[KernelEquation]) -> _Live:
        """Return the results of some kernels that are held and have not been made."""
        if self._is_inner:
            return []
        return [
            (at, register, request)
            for at, member in enumerate(members)
            for request, register in member.outputs
            if not self.is_materialized(register) and self._is_held(register)
        ]

    def _is_held(self, register: Register) -> bool:
        return register in self._kept or self._held.get(register, -1) >= self._now

    def _come_to(self, equation: KernelEquation) -> None:
        """Note the pending values that a kernel reads, so that they may be computed inside."""
        inside = self._inside[id(equation)] = self._found_inside(equation)
        for register in compress(equation.arguments, inside):
            self._uses[id(self.maker(register))] += 1

    def _found_inside(self, equation: KernelEquation) -> list[bool]:
        """Return which arguments may be computed inside: pending ones that have not been made."""
        if True not in equation.pending:
            return list(equation.pending)
        pairs = zip(equation.arguments, equation.pending, strict=True)
        return [pending and not self.is_materialized(register) for register, pending in pairs]

    def pending(self, equation: KernelEquation) -> Iterator[Register]:
        """Return what a kernel reads that was pending when it was recorded."""
        return compress(equation.arguments, self.inside(equation))

    def inside(self, equation: KernelEquation) -> Sequence[bool]:
        """Return which arguments of a kernel may be computed inside of its launch."""
        return self._inside[id(equation)]

    def _make(self, root: Register, others: Sequence[Register] = ()) -> None:
        stack = [root]
        while stack:
            register = stack[-1]
            if self.is_materialized(register):
                stack.pop()
                continue
            missing, run = self._prepared(register, others if len(stack) == 1 else ())
            if missing:
                stack += missing
            else:
                stack.pop()
                run()
                if not self.is_materialized(register):
                    raise NotPlannedError

    def _prepared(
        self, register: Register, others: Sequence[Register]
    ) -> tuple[list[Register], Callable[[], None]]:
        """Return what has to be made before a value, and what makes it then."""
        equation = self.maker(register)
        if type(equation) is KernelEquation:
            self.keep(register)
            return self._kernel_prepared(equation, others)
        if type(equation) is ViewEquation:
            entry = Viewed(equation.whole, equation.strided, register)
            return [], partial(self.append, entry, register)
        if type(equation) is RuleEquation and equation.waits:
            missing = [r for r in equation.arguments if not self.is_materialized(r)]
            for each in missing:
                self.keep(each)
            return missing, partial(self._apply, equation)
        raise NotPlannedError

    def _evaluate(self, equation: RuleEquation) -> None:
        """Apply a rule to what it reads; one that reads what has no register gives no values."""
        try:
            for register in equation.arguments:
                self.make(register)
        except NotPlannedError:
            return  # a plan that needs its values cannot be made
        self._apply(equation)

    def _apply(self, equation: RuleEquation) -> None:
        rule, static, results = equation.rule, equation.static, equation.results
        self.append(Evaluated(rule, static, equation.arguments, results), *results)

    # -- launches ----------------------------------------------------------------------------------

    def _kernel_prepared(
        self, root: KernelEquation, others: Sequence[Register]
    ) -> tuple[list[Register], Callable[[], None]]:
        if root.siblings:
            return self._pending(root.arguments), partial(self._run_passes, root)
        members = self._members(root, others)
        self._keep_for_others(members)
        live = self.live(members)
        wanted = list(dict.fromkeys([(at, request.result) for at, _, request in live]))
        fusion = self.fuse(members, wanted)
        _, kept = _program_read(fusion, root.shape)
        missing = self._pending([fusion.registers[i] for i in kept])
        return missing, partial(self._run_fused, members, fusion, wanted, live)

    def _pending(self, registers: Sequence[Register]) -> list[Register]:
        """Return what has to be made first; it is stored."""
        found = [r for r in dict.fromkeys(registers) if not self.is_materialized(r)]
        self._kept.update(found)
        return found

    def _run_passes(self, root: KernelEquation) -> None:
        """Launch all passes of a call together."""
        live = self.live(root.siblings)
        passes = tuple([each.call.passes[0] for each in root.siblings])
        requests = tuple([OutputRequest(at, r.result, r.shape) for at, _, r in live])
        results = tuple([register for _, register, _ in live])
        call = KernelCall(passes, requests)
        self.append(Launched(call, root.options, root.arguments, results), *results)

    def _run_fused(
        self,
        members: Sequence[KernelEquation],
        fusion: Fusion,
        wanted: Sequence[_Result],
        live: _Live,
    ) -> None:
        """Launch the kernel of some equations, with partials where it pays to store these."""
        if self._may_store(members, fusion, wanted) and self._store(members, fusion, wanted, live):
            return
        program, kept = _program_read(fusion, members[-1].shape)
        arguments = tuple([fusion.registers[i] for i in kept])
        call = _call_of(program, _requests(wanted, live))
        results = tuple([register for _, register, _ in live])
        self.append(Launched(call, _options(members), arguments, results), *results)

    def _find_asked(self, seeds: Sequence[Register]) -> dict[int, list[_Result]]:
        """Return the results whose partials the user has asked for (``placement``).

        They are by the ids of equations; cotangents of the seeds reach them.
        """
        if self._is_inner or not any(map(_asks_for_partials, self._equations)):
            return {}
        reached, left = set[Register](), list(seeds)
        while left:
            register = left.pop()
            equation = None if register in reached else self.maker(register)
            reached.add(register)
            if equation is not None:
                left += [each for each in self.edges(equation) if each is not None]
        found: dict[int, list[_Result]] = {}
        for register in reached:
            equation = self.maker(register)
            if _asks_for_partials(equation) and equation.may_store:
                _, output = self._makers[register]
                found.setdefault(id(equation), []).append((0, equation.outputs[output][0].result))
        return found

    def _make_asked(self, equation: KernelEquation, asked: Sequence[_Result]) -> None:
        """Launch a kernel together with partials that the user has asked for."""
        if id(equation) in self._stored or any(map(self.is_materialized, equation.results)):
            return
        for register in self._pending(equation.arguments):
            self._make(register)
        live = self.live([equation])
        wanted = sorted({*asked, *[(0, request.result) for _, _, request in live]})
        self._store([equation], self.fuse([equation], wanted), wanted, live)

    def _store(
        self,
        members: Sequence[KernelEquation],
        fusion: Fusion,
        wanted: Sequence[_Result],
        live: _Live,
    ) -> bool:
        """Launch the kernel of some equations with partials if these are cheaper, or asked for."""
        options, requests, shape = _options(members), _requests(wanted, live), members[-1].shape
        plan = cheaper_plan(fusion.fused, fusion.wrt, fusion.shapes, shape, requests, options)
        if plan is None:
            return False
        results = [register for _, register, _ in live]
        asked, partials = asked_for(plan, requests)
        new = {at: self._new() for at in partials}
        made = [(r, asked.index(request)) for r, request in zip(results, requests, strict=True)]
        made += [(new[at], asked.index(request)) for at, request in partials.items()]
        known = dict(enumerate(fusion.registers)) | new
        count = len(fusion.registers) + sum(len(p.outputs) for p in plan.passes)
        residuals = tuple([known.get(at) if at in plan.read else None for at in range(count)])
        for at, found in self._makers_of(members, wanted).items():
            places = [((at, request.result), r) for request, r in found]
            outputs = {r: wanted.index(place) for place, r in places if place in wanted}
            self._stored[id(members[at])] = SavedPartials(
                plan, residuals, fusion.registers, fusion.carries, fusion.shapes, outputs
            )
        arguments = tuple(fusion.registers)
        entry = Stores(plan.passes, asked, options, arguments, tuple(made))
        self.append(entry, *[register for register, _ in made])
        return True

    def _new(self) -> Register:
        self._count += 1
        return -self._count

    def _makers_of(
        self, members: Sequence[KernelEquation], wanted: Sequence[_Result]
    ) -> dict[int, list[tuple[OutputRequest, Register]]]:
        """Return the outputs of the members of which results are wanted."""
        return {at: members[at].outputs for at, _ in wanted}

    def _may_store(
        self, members: Sequence[KernelEquation], fusion: Fusion, wanted: Sequence[_Result]
    ) -> bool:
        """Whether results may be made together with their partials.

        On the way back, it is decided already what hands cotangents to what.
        """
        is_as_read = len(fusion.registers) == len(members[0].arguments)
        is_decided = self._now == len(self._equations)
        if not self._is_reverse or (is_decided and (len(members) > 1 or not is_as_read)):
            return False
        if not members[-1].may_store:
            return False
        if self._knows_asked and _options(members).placement == "forward":
            return False  # no cotangent reaches it: else its partials have been made
        for at, outputs in self._makers_of(members, wanted).items():
            if any((at, request.result) not in wanted for request, _ in outputs):
                return False
            if self._is_read_outside(members, at):
                return False
        return True

    def _is_read_outside(self, members: Sequence[KernelEquation], at: int) -> bool:
        """Whether what a kernel reads may depend on a member: it is not stored as its parent.

        This is so if something else has read the member, its sum for example.
        """
        inside = Counter(self._read_inside(members))
        if all((id(each) in inside) == (each is not members[at]) for each in members):
            return False  # all that the kernel reads comes before it
        member = members[at]
        is_materialized = any(map(self.is_materialized, member.results))
        return is_materialized or self._uses[id(member)] > inside[id(member)]

    def _read_inside(self, members: Sequence[KernelEquation]) -> Iterator[int]:
        """Yield the ids of what makes the arguments of members that were pending."""
        for member in members:
            for register in self.pending(member):
                yield id(self.maker(register))

    def _keep_for_others(self, members: Sequence[KernelEquation]) -> None:
        """Store results that others read too, where reading is cheaper than computing again."""
        if len(members) == 1:
            return
        inside, costs = Counter(self._read_inside(members)), dict[int, int]()
        for member in members[:-1]:
            cost = member.call.cost + sum([costs.get(i, 0) for i in self._read_inside([member])])
            costs[id(member)] = cost
            if cost > _LOW_COST and self._uses[id(member)] > inside[id(member)]:
                count = len(member.call.outputs)
                self._kept.update(
                    [r for request, r in member.outputs[:count] if request.shape is None]
                )

    def _members(self, root: KernelEquation, others: Sequence[Register]) -> list[KernelEquation]:
        """Return an equation and those that are computed in its launch, in order."""
        if not self._fuses:
            return [root]
        members = _Members(self, root)
        if others and math.prod(root.shape) <= _MAX_SMALL and self.live([root]):
            for register in reversed(others):
                other = None if self.is_materialized(register) else self.maker(register)
                if self._is_beside(other, root):
                    members.add(other)
        return members.order

    def _is_beside(self, other: Equation | None, root: KernelEquation) -> TypeGuard[KernelEquation]:
        """Whether an equation may be computed in the launch of one that does not depend on it."""
        is_alike = type(other) is KernelEquation and _is_alike(other, root)
        return is_alike and bool(self.live([other]))  # type: ignore[list-item]

    def may_fuse(self, register: Register, reader: KernelEquation) -> bool:
        """Whether a value could be computed where an equation reads it: it has not been made."""
        producer = self.maker(register)
        return (
            type(producer) is KernelEquation
            and _is_alike(producer, reader)
            and self.is_readable_inside(register)
            and not self.is_materialized(register)
        )

    def is_readable_inside(self, register: Register) -> bool:
        """Whether a value is one for each element, made with its own kernel alone."""
        producer, result = self.output(register)
        return producer.outputs[result][0].shape is None and not producer.siblings

    def fuse(self, members: Sequence[KernelEquation], wanted: Sequence[_Result]) -> Fusion:
        """Return the fusion of some equations for results; leaves that are one value are one."""
        position = {id(member): at for at, member in enumerate(members)}
        known: dict[Any, int] = {}
        fusion = Fusion(NOTHING, [], [], [], [])
        reads: list[int] = []
        for member in members:
            kinds, inside_of = member.call.kinds, self.inside(member)
            for index, register in enumerate(member.arguments):
                if inside_of[index] and self.is_readable_inside(register):
                    producer, result = self.output(register)
                    inside = position.get(id(producer))
                    if inside is not None:
                        reads.append(internal(inside, producer.outputs[result][0].result))
                        continue
                carries, kind = member.carries[index], kinds[index]
                count = len(fusion.registers)
                at = known.setdefault((register, carries, kind), count)
                if at == count:
                    fusion.registers.append(register)
                    fusion.carries.append(carries)
                    fusion.shapes.append(member.shapes[index] if kind == "lane" else ())
                    fusion.wholes.append(member.shapes[index])
                reads.append(at)
        calls = tuple([member.call for member in members])
        return fusion._replace(fused=fused_program(calls, tuple(reads), tuple(wanted)))

    # -- what is pulled back -----------------------------------------------------------------------

    def edges(self, equation: Equation) -> list[Register | None]:
        """Return what an equation hands cotangents to; None for what does not carry the level."""
        if type(equation) is CallEquation:
            return list(equation.arguments)
        stored = self._stored.get(id(equation))
        if stored is not None:
            pairs = zip(stored.arguments, stored.carries, strict=True)
        elif type(equation) is ViewEquation:
            return []
        else:
            pairs = zip(equation.arguments, equation.carries, strict=True)  # type: ignore[union-attr,arg-type]
        return [register if carries else None for register, carries in pairs]

    def is_kernel(self, equation: Equation | None) -> TypeGuard[KernelEquation]:
        """Whether an equation is pulled back in a group."""
        return type(equation) is KernelEquation and id(equation) not in self._stored

    def takes(self, group: FusionGroup, other: FusionGroup) -> bool:
        """Let a group take another one, if that is possible."""
        return self._fuses and group.take(other)

    def pull(self, equation: Equation, given: Mapping[Register, None]) -> list[Register]:
        """Pull back an equation that is in no group; return the values that have got cotangents."""
        targets = self.edges(equation)
        if type(equation) is CallEquation:
            results = equation.results
            cotangents = tuple([r if r in given else None for r in results])
            entry: Entry = PulledCall(
                equation.call, cotangents, equation.shapes, equation.arguments
            )
        elif type(equation) is KernelEquation:
            return self._contract(equation, given, targets)
        elif type(equation) is RuleEquation:
            entry = self._pulled_rule(equation, given, targets)
        else:
            raise NotPlannedError
        self.append(entry)
        return [target for target in targets if target is not None]

    def _pulled_rule(
        self,
        equation: RuleEquation,
        given: Mapping[Register, None],
        targets: Sequence[Register | None],
    ) -> Entry:
        rule, static, results = equation.rule, equation.static, equation.results
        arguments: list[Any] = list(equation.forms)
        for at, is_read in enumerate(_is_read(equation)):
            if is_read:
                self.make(equation.arguments[at])
                arguments[at] = equation.arguments[at]
        shapes, own = equation.shapes, tuple(targets)
        if type(rule) is Rule:
            return Pulled(rule, static, tuple(arguments), results[0], shapes[0], own)
        cotangents = tuple([r if r in given else None for r in results])
        assert not isinstance(rule, Rule)
        return PulledValues(rule, static, tuple(arguments), results, cotangents, shapes, own)

    def _contract(
        self,
        equation: KernelEquation,
        given: Mapping[Register, None],
        targets: Sequence[Register | None],
    ) -> list[Register]:
        """Multiply stored partials by cotangents."""
        plan, residuals, _, _, shapes, outputs = self._stored[id(equation)]
        found = tuple([r for r in equation.results if r in given])
        wrt = tuple([i for i, target in enumerate(targets) if target is not None])
        own = tuple([outputs[r] for r in found])
        if plan.program.has_named_loops:
            self.decided += decided_results(plan.program, plan.program.origin, wrt, own)
        shape, options = equation.shape, equation.options
        self.append(
            Contracted(plan, residuals, tuple(shapes), own, found, tuple(targets), shape, options)
        )
        contraction = contraction_of(plan, wrt, tuple(dict.fromkeys(own)), shapes, shape)
        pairs = zip(wrt, contraction.places, strict=True)
        return [r for i, (kind, _) in pairs if kind != "zero" and (r := targets[i]) is not None]

    def pull_group(
        self,
        group: FusionGroup,
        found: Mapping[Register, None],
        part_of: _PartOf,
        unit: Register | None,
    ) -> list[Register]:
        """Pull back a group with a cotangent; return the values that have got cotangents."""
        members = group.members[::-1]
        given = [
            (at, register, request.result)
            for at, member in enumerate(members)
            for request, register in member.outputs
            if register in found
        ]
        if not given:
            return []
        live = self.live(members)
        fusion, asked = self._asked(group, members, given, live)
        wholes = self._wholes(group, fusion, asked, part_of, found)
        if wholes and not self._places_parts(fusion.fused, group.options):
            wholes = {}
        cotangents = tuple([register for _, register, _ in given])
        if not wholes:  # whose kernels read all cotangents
            units = tuple([i for i, register in enumerate(cotangents) if register == unit])
            asked = asked._replace(units=units)
        asked, moved = move_shifted(fusion.fused, fusion.shapes, asked, wholes, group.shape)
        plan, waiting = self._plan_and_waiting(fusion, asked)
        awaited = [fusion.registers[leaf] for leaf in waiting]
        self._kept.update(awaited)
        self.awaited.update(awaited)
        count = len(fusion.registers)

        def source(index: int) -> tuple[bool, int]:
            return (True, index - count) if index >= count else (False, fusion.registers[index])

        read = {i: source(i) for i in sorted({i for each in moved for i in each.read})}
        arguments = tuple(map(source, plan.kept))
        left = [register for is_given, register in (*arguments, *read.values()) if not is_given]
        self._kept.update(left)  # one launch may make several
        for register in left:
            self.make(register)
        made = tuple([register for _, register, _ in live]) if plan.primals else ()
        places = dict(zip(asked.wrt, plan.places, strict=True))
        in_wholes = {leaf for parts in wholes.values() for leaf in parts}
        targets = [
            (fusion.registers[leaf], kind, at)
            for leaf, (kind, at) in places.items()
            if kind != "zero" and leaf not in in_wholes
        ]
        placed = tuple(placed_parts(wholes, places))
        self.append(
            PulledKernel(
                cotangents, plan, arguments, made, tuple(targets), placed, tuple(moved), read,
                group.shape, group.options,
            ),
            *made,
        )  # fmt: skip
        self._note_decided(members, given)
        return [
            *[register for register, _, _ in targets],
            *[each.target for each in placed],
            *[each.target for each in moved],
        ]

    def _places_parts(self, fused: FusedProgram, options: KernelOptions) -> bool:
        """Whether a kernel may write parts of larger arrays: not if it is recorded."""
        return not self._is_inner and writes_parts(fused.program, self._beside, options.backend)

    def _asked(
        self,
        group: FusionGroup,
        members: Sequence[KernelEquation],
        given: Sequence[tuple[int, Register, int]],
        live: _Live,
    ) -> tuple[Fusion, GradientRequest]:
        """Return the members' programs as one, and what is wanted of it.

        That is the gradient of each leaf that carries the level, in the leaf's shape.
        """
        seeds = [(at, result) for at, _, result in given]
        held = [(at, request.result) for at, _, request in live]
        results = list(dict.fromkeys([*seeds, *held]))
        fusion = self.fuse(members, results)
        kinds = [param.kind for param in fusion.fused.program.params]
        shapes = [
            fusion.wholes[i]
            if kinds[i] == "array"  # of its own, whatever the loop's is
            else None
            if fusion.shapes[i] == group.shape
            else fusion.shapes[i]
            for i in fusion.wrt
        ]
        primals = zip(held, live, strict=True)
        return fusion, GradientRequest(
            fusion.wrt,
            tuple(map(results.index, seeds)),
            tuple([(results.index(place), request.shape) for place, (_, _, request) in primals]),
            tuple(shapes),
            group.options.mode,
        )

    def _wholes(
        self,
        group: FusionGroup,
        fusion: Fusion,
        asked: GradientRequest,
        part_of: _PartOf,
        found: Mapping[Register, None],
    ) -> dict[Register, dict[int, SubBox]]:
        """Return the values that leaves are parts of, with the leaves and which parts they are.

        If a value has a cotangent already, a single part of it is added to that.
        """
        wholes: dict[Register, dict[int, SubBox]] = {}
        for leaf, shape in zip(asked.wrt, asked.shapes, strict=True):
            known = part_of(fusion.registers[leaf]) if shape is None else None
            if known is not None and is_placeable(known[1], group.shape):
                wholes.setdefault(known[0], {})[leaf] = known[1]
        return {
            whole: parts for whole, parts in wholes.items() if len(parts) > 1 or whole not in found
        }

    def _plan_and_waiting(
        self, fusion: Fusion, asked: GradientRequest
    ) -> tuple[GradientPlan, Sequence[int]]:
        """Return the kernel of the gradients, and the leaves that the results it leaves out wait
        for.

        It makes results too unless there are no gradients to make; or unless they read what is
        pending and the gradients do not: what they read may still come for free further back.
        """
        alone = plan_gradients(fusion.fused, asked._replace(primals=()))
        if not (asked.primals and asked.wrt):
            return alone, ()
        plan = plan_gradients(fusion.fused, asked)
        leaves = [i for i in plan.kept if i < len(fusion.registers) and i not in alone.kept]
        waiting = [i for i in leaves if not self.is_materialized(fusion.registers[i])]
        is_free = any(kind in IN_MEMORY for kind, _ in alone.places)
        return (plan, ()) if is_free and not waiting else (alone, waiting)

    def _note_decided(
        self, members: Sequence[KernelEquation], given: Sequence[tuple[int, Register, int]]
    ) -> None:
        """Note the loop results to warn of, in the names of the user's own functions."""
        for at, member in enumerate(members):
            program = member.call.passes[0]
            if program.has_named_loops:
                wrt = tuple([i for i, carries in enumerate(member.carries) if carries])
                results = {result for number, _, result in given if number == at}
                for register in chain.from_iterable(map(self.pending, members)):
                    if self.maker(register) is member:
                        results.add(member.outputs[self._makers[register][1]][0].result)
                self.decided += decided_results(
                    program, program.origin, wrt, tuple(sorted(results))
                )


class _Members:
    """Equations of one launch, in order: at first one with what can be fused with it."""

    def __init__(self, planner: Planner, root: KernelEquation) -> None:
        self.order: list[KernelEquation] = []
        self._planner = planner
        self._root = root
        self._options = root.options
        self._cost = root.call.cost
        self._found = {id(root)}
        self._left: set[int] = set()
        self._gather(root)

    def add(self, equation: KernelEquation) -> None:
        """Add another equation, with what can be fused with it, if it fits."""
        if self._takes(equation):
            self._gather(equation)

    def _gather(self, equation: KernelEquation) -> None:
        """Put an equation, which has been taken, after those that can be fused with it."""
        planner = self._planner
        stack = [(equation, planner.pending(equation))]
        while stack:
            for register in stack[-1][1]:
                producer, _ = planner.output(register)
                if id(producer) in self._found:
                    continue
                if not planner.may_fuse(register, self._root):
                    if planner.is_readable_inside(register):
                        # Its reader may have its place in the order already.
                        self._left.add(id(producer))
                elif self._takes(producer):
                    stack.append((producer, planner.pending(producer)))
                    break
            else:
                self.order.append(stack.pop()[0])

    def _takes(self, equation: KernelEquation) -> bool:
        """Take an equation if it fits; tell whether it does. What does not fit now never does."""
        if id(equation) in self._found or id(equation) in self._left:
            return False
        options = common_options(self._options, equation.options)
        if options is None or not fits(len(self._found) + 1, self._cost, equation.call.cost):
            return False
        self._options = options
        self._cost += equation.call.cost
        self._found.add(id(equation))
        return True


class _Reader(NamedTuple):
    """A group, and a value that it reads: computed inside, or from memory."""

    group: FusionGroup
    register: Register
    is_inside: bool


class _Walk:
    """One way back: each equation is visited after all that read its results."""

    def __init__(self, planner: Planner, seeds: Sequence[Register], unit: Register | None) -> None:
        self._planner = planner
        self._unit = unit
        self._cotangents: dict[Register, None] = dict.fromkeys(seeds)
        self._waiting: Counter[int] = Counter()
        self._kernels: list[KernelEquation] = []  # ready, may join a group
        self._others: list[Equation] = []  # ready, but need what groups give
        self._groups: dict[FusionGroup, None] = {}  # open, in the order of their beginning
        self._readers: dict[Equation | Register, list[_Reader]] = {}  # by what is read
        self._reach(seeds)
        for seed in seeds:
            self._arrive(seed)

    def run(self) -> None:
        """Visit all equations."""
        while True:
            if self._kernels:
                self._join(self._kernels.pop())
            elif self._others:
                self._pull(self._others.pop())
            elif self._groups:
                self._close(next(reversed(self._groups)))
            else:
                return

    def _reach(self, seeds: Sequence[Register]) -> None:
        """Count how often each equation will be given a cotangent."""
        left, planner = list(seeds), self._planner
        while left:
            register = left.pop()
            equation = planner.maker(register)
            if equation is None and not planner.is_materialized(register):
                raise NotPlannedError  # no equation is known: its cotangent would go nowhere
            if equation is not None:
                self._waiting[id(equation)] += 1
                if self._waiting[id(equation)] == 1:
                    left += [r for r in planner.edges(equation) if r is not None]

    def _arrive(self, register: Register, reader: _Reader | None = None) -> None:
        """Note that a reader of a value has been visited, and perhaps has joined a group."""
        equation = self._planner.maker(register)
        if reader is not None:
            read = register if equation is None else equation
            self._readers.setdefault(read, []).append(reader)
        if equation is None:
            return
        self._waiting[id(equation)] -= 1
        if not self._waiting[id(equation)]:
            if self._planner.is_kernel(equation):
                self._kernels.append(equation)
            else:
                self._others.append(equation)

    def _join(self, equation: KernelEquation) -> None:
        """Let a kernel join the groups that read it, and these one that reads what it reads."""
        readers, own = self._readers_of(equation), FusionGroup(equation)
        edges = self._planner.edges(equation)
        group = self._take_readers(own, readers) if readers else own
        if group is None:
            self._others.append(equation)  # what it needs is not there yet
            return
        self._readers.pop(equation, None)
        self._groups.setdefault(group)
        group = self._take_neighbours(group, [r for r in edges if r is not None])
        # One value may be read in two ways: by a transform inside, and around it.
        for register, is_inside in zip(edges, self._planner.inside(equation), strict=True):
            if register is not None:
                self._arrive(register, _Reader(group, register, is_inside))

    def _take_readers(self, own: FusionGroup, readers: Sequence[_Reader]) -> FusionGroup | None:
        """Make one group of those that read a kernel, and the kernel; None if that cannot be.

        Open groups do not wait for each other.
        """
        planner = self._planner
        for reader in readers:
            may_fuse = planner.may_fuse(reader.register, reader.group.members[0])
            if not (reader.is_inside and may_fuse):
                return None
        group = readers[0].group
        for other in {reader.group: None for reader in readers if reader.group is not group}:
            if not planner.takes(group, other):
                return None
            del self._groups[other]
        return group if planner.takes(group, own) else None

    def _take_neighbours(self, group: FusionGroup, active: Sequence[Register]) -> FusionGroup:
        """Return the group after it has joined others that read what one of its kernels reads.

        What they read is then read once, and has one cotangent.
        """
        for register in active:
            other = self._last_reader(register)
            if other is None or other is group or not _is_alike(other.members[0], group.members[0]):
                continue
            is_costly = len(group.members) > 1 and group.cost + other.cost > _MAX_COST_SHARED
            if not is_costly and self._planner.takes(other, group):
                del self._groups[group]
                group = other
        return group

    def _readers_of(self, equation: Equation) -> list[_Reader]:
        """Return the open groups that read an equation's results, and which."""
        readers = self._readers.get(equation, ())
        found = [reader._replace(group=reader.group.whole) for reader in readers]
        return [reader for reader in found if reader.group.members]

    def _last_reader(self, register: Register) -> FusionGroup | None:
        """Return the open group that was the last to read a value; None if there is none."""
        readers = self._readers.get(self._planner.maker(register) or register)
        while readers:
            group = readers[-1].group.whole
            if group.members:
                return group if readers[-1].register == register else None
            readers.pop()
        return None

    def _pull(self, equation: Equation) -> None:
        """Visit an equation that needs its cotangents now."""
        for reader in self._readers_of(equation):
            self._close(reader.group)
        self._readers.pop(equation, None)
        if self._planner.is_kernel(equation):
            self._join(equation)
            return
        edges = self._planner.edges(equation)
        if any(register in self._cotangents for register in equation.results):
            self._give(self._planner.pull(equation, self._cotangents), equation)
        for register in edges:
            if register is not None:
                self._arrive(register)

    def _give(self, registers: Sequence[Register], *pulled: Equation) -> None:
        """Note the values that have got cotangents; those of what was pulled back are used up."""
        for equation in pulled:
            for register in equation.results:
                self._cotangents.pop(register, None)
        self._cotangents.update(dict.fromkeys(registers))

    def _close(self, group: FusionGroup) -> None:
        """Pull a group back, if that has not been done."""
        if group.members:
            del self._groups[group]
            part_of = partial(self._part, group)
            found = self._planner.pull_group(group, self._cotangents, part_of, self._unit)
            self._give(found, *group.members)
            group.members = []

    def _part(self, group: FusionGroup, register: Register) -> tuple[Register, SubBox] | None:
        """Return what a value is a part of, and which, if one group alone gives its cotangent."""
        equation = self._planner.maker(register)
        if type(equation) is not RuleEquation or type(equation.rule) is not Rule:
            return None
        is_alone = not self._waiting[id(equation)] and register not in self._cotangents
        if equation.rule.part is None or not is_alone or not equation.carries[0]:
            return None
        if any(reader.group is not group for reader in self._readers_of(equation)):
            return None
        part = equation.rule.part(tuple(equation.forms[0].shape), **equation.static)
        return None if part is None else (equation.arguments[0], part)


_PartOf: TypeAlias = Callable[[Register], tuple[Register, SubBox] | None]
"""Returns what a value is a part of, and which part, if it gets no other cotangent; else None."""


def _is_read(equation: RuleEquation) -> list[bool]:
    """Return of each argument whether cotangents read its elements."""
    rule, count = equation.rule, len(equation.arguments)
    if not isinstance(rule, Rule):
        return [at in rule.reads for at in range(count)]
    pairs = zip(equation.carries, rule.reads, strict=False)
    read = {i for carries, reads in pairs if carries for i in reads} | set(rule.positions)
    return [at in read for at in range(count)]


def _asks_for_partials(equation: Equation | None) -> TypeGuard[KernelEquation]:
    """Whether partials are asked for together with a kernel's results."""
    is_asked = type(equation) is KernelEquation and equation.options.placement == "forward"
    return is_asked and any(equation.carries) and not equation.siblings  # type: ignore[union-attr]


def _is_alike(equation: KernelEquation, other: KernelEquation) -> bool:
    """Whether two kernels are computed over one shape, of arrays of one library and device."""
    return (
        equation.shape == other.shape
        and equation.library is other.library
        and equation.device == other.device
        and not (equation.siblings or other.siblings)
    )


def _program_read(fusion: Fusion, shape: Shape) -> tuple[Any, tuple[int, ...]]:
    """Return the program of a fusion and which leaves it takes: as few as give it its shape."""
    program, kept = fusion.fused.trimmed
    if any(fusion.shapes[i] == shape for i in kept):
        return program, kept
    return fusion.fused.program, tuple(range(len(fusion.registers)))


def _options(members: Sequence[KernelEquation]) -> KernelOptions:
    """Return the options of the launch of some equations."""
    return reduce(_shared, [member.options for member in members])


def _shared(one: KernelOptions, other: KernelOptions) -> KernelOptions:
    shared = common_options(one, other)
    assert shared is not None
    return shared


def _requests(wanted: Sequence[_Result], live: _Live) -> tuple[OutputRequest, ...]:
    """Return what is wanted of the program of the wanted results."""
    return tuple([OutputRequest(0, wanted.index((at, r.result)), r.shape) for at, _, r in live])


def _call_of(program: Any, requests: tuple[OutputRequest, ...]) -> KernelCall:
    return KernelCall((program,), requests)
