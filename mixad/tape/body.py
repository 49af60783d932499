"""Recordings as functions of arrays: what a loop runs in each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from mixad.backends.arrays import Library, describe_array, device_key
from mixad.errors import TracerError
from mixad.scalar.dtypes import element_type_of
from mixad.tape.cell import Cell
from mixad.tape.journal import Journal, Noted, sources_of
from mixad.tape.memory import array_as, noted_array
from mixad.tape.node import InputNode, Result
from mixad.tape.operations import FURTHER, LINK, NUMBERS, Operation, Static, results_of
from mixad.tape.plan import Plan
from mixad.tape.registers import as_register, of_register
from mixad.tape.states import State
from mixad.tape.strand import Strand
from mixad.tape.strand_plan import make_plan
from mixad.tape.tracer import Level, Origin, Tracer, journal_of

__all__ = ["Body", "are_made_alike", "came_into", "enter", "perform"]

Steps: TypeAlias = Iterable[tuple[Any, Operation, Sequence[Any]]]
"""Operations in order: the place of the result, the operation, the places of its operands."""


def came_into(strand: Strand) -> tuple[dict[int, Any], dict[int, Any]]:
    """Return by slot what came into a recording: guarded arrays and traced values; and numbers."""
    values = enumerate(strand.values)
    came = {slot: v for slot, v in values if type(v) is not State and v is not LINK}
    numbers = {slot: v for slot, v in came.items() if type(v) in NUMBERS}
    return {slot: v for slot, v in came.items() if slot not in numbers}, numbers


def perform(steps: Steps, done: dict[Any, Any]) -> None:
    """Do operations in order; store each result in `done`, beside the values that they read."""
    rest: list[Any] = []
    for place, operation, given in steps:
        if operation is not FURTHER:
            rest = results_of(_performed(operation, [done[at] for at in given]))
        done[place] = rest.pop(0)


def _performed(operation: Operation, operands: Sequence[Any]) -> Any:
    """Return the result of an operation; if a journal notes what is done, note it there."""
    traced = [each for each in operands if isinstance(each, Tracer)]
    journal = journal_of(frozenset(chain.from_iterable(each.origin.levels for each in traced)))
    if journal is None:
        return operation.compute(*operands)
    return journal.perform(operation, operands)


def enter(value: Any, level: Level, kind: type[Tracer], *, weak: bool = False) -> Tracer:
    """Return an array, or a tracer of transforms around, as a tracer of a level."""
    alone = frozenset((level,))
    if isinstance(value, Tracer):
        origin = Origin(InputNode(level, value.origin), 0, alone | value.origin.levels)
        return array_as(kind(value.cell, origin), value)
    cell = Cell.of(value, level.check, weak=weak)
    return kind(cell, Origin(InputNode(level, None), 0, alone))


def are_made_alike(one: Tracer, other: Tracer) -> bool:
    """Whether two traced values are one, or come of the same operations on the same values."""
    if one.state is not None and other.state is not None and one.strand is other.strand:
        assert one.strand is not None
        return _are_slots_alike(one.strand, one.slot, other.slot)
    if one.state is not None or other.state is not None:
        return False
    return one.cell is other.cell or _are_nodes_alike(one.origin, other.origin)


def _are_slots_alike(strand: Strand, one: int, other: int) -> bool:
    """Whether two values of a strand come of the same operations on the same values."""
    left = [(one, other)]
    while left:
        one, other = left.pop()
        if one == other:
            continue
        first, second = strand.made(one), strand.made(other)
        if first is None and second is None:
            if not _came_in_alike(strand.values[one], strand.values[other]):
                return False
            continue
        if first is None or second is None or first[0] is not second[0]:
            return False
        if strand.values[one].place != strand.values[other].place:
            return False
        left += zip(first[1], second[1], strict=True)
    return True


def _came_in_alike(one: Any, other: Any) -> bool:
    """Whether two values that came into a strand are one, or the same number."""
    if isinstance(one, Tracer) and isinstance(other, Tracer):
        return are_made_alike(one, other)
    if type(one) in NUMBERS:
        return type(one) is type(other) and _bits(one) == _bits(other)
    return one is other


def _are_nodes_alike(one: Origin, other: Origin) -> bool:
    """Whether two values come of nodes that do the same to the same values."""
    left: list[tuple[Origin | None, Origin | None]] = [(one, other)]
    while left:
        first, second = left.pop()
        if first is second or (first and second and first[:2] == second[:2]):
            continue
        if first is None or second is None or first.output != second.output:
            return False
        does = [
            getattr(o.node, "call", None) or getattr(o.node, "rule", None) for o in (first, second)
        ]
        if does[0] is None or does[0] is not does[1]:
            return False
        left += zip(first.node.parents, second.node.parents, strict=True)
    return True


class Body(Static):
    """A function of arrays that does the same operations whatever their elements are.

    `compute` takes arrays or traced values and returns a list of these.
    """

    def __init__(
        self,
        name: str,
        compute: Callable[..., Sequence[Any]],
        results: Sequence[Result],
        kind: type[Tracer],
    ) -> None:
        self.name = name  # for messages
        self.compute = compute
        self.results = tuple(results)
        self.kind = kind  # of tracers
        self.derived: dict[tuple[Any, ...], Body] = {}  # its derivatives, by request
        self._reads: dict[Any, frozenset[int]] = {}
        self._plans: dict[Any, Plan | None] = {}
        self._operation = Operation(
            lambda *operands: list(compute(*operands)), is_kernel=False, is_primitive=True
        )

    @classmethod
    def of_recording(cls, strand: Strand, outputs: Sequence[int], kind: type[Tracer]) -> Body:
        """Return what was recorded as a function of what came in, numbers excepted.

        Recordings of the same operations have one.
        """
        came, numbers = came_into(strand)
        told = tuple([(slot, type(v), _bits(v)) for slot, v in numbers.items()])
        results = [strand.result(slot) for slot in outputs]
        given = [(r.shape, r.kind, device_key(r.device)) for r in results]  # some just came in
        key = cls, tuple(outputs), tuple(given), tuple(came), told
        found: Body | None = strand.state.plans.get(key)
        if found is None:
            steps, slots = list(strand.steps()), list(came)
            weak = [slot for slot, v in came.items() if isinstance(v, Tracer) and v.kind.weak]

            def compute(*operands: Any) -> list[Any]:
                done = {**numbers, **dict(zip(slots, operands, strict=True))}
                done.update({slot: _as_weak(done[slot]) for slot in weak})
                perform(steps, done)
                return [done[slot] for slot in outputs]

            found = cls(strand.level.name, compute, results, kind)
            strand.state.keep(key, found)
        return found

    def plan(self, arrays: Sequence[Any], library: Library) -> Plan | None:
        """Return what computes the results of arrays like these, which are as registers hold them.

        None if the operations cannot be planned, or one looks at elements: then they run one by
        one.
        """
        layout = tuple(map(describe_array, arrays))
        if layout not in self._plans:
            self._plans[layout] = self._planned(arrays, library)
        return self._plans[layout]

    def describe_step(self) -> str:
        """Return what is done in a step, for people: how many kernels, and what Python calls."""
        plan = next((plan for plan in reversed(self._plans.values()) if plan is not None), None)
        if plan is None:
            return "operations one by one, called from Python"
        counts = Counter(plan.work)
        kernels = counts.pop("kernel", 0)
        parts = [f"{kernels} kernel{'s' * (kernels != 1)}"] if kernels or not counts else []
        called = [name if n == 1 else f"{n} times {name}" for name, n in counts.items()]
        return ", ".join([*parts, *[f"{each} called from Python" for each in called]])

    def check(self, values: Sequence[Any]) -> None:
        """Raise if values differ from the results in shape or type, for which memory was made."""
        for value, result in zip(values, self.results, strict=True):
            is_alike = tuple(value.shape) == result.shape
            if not (is_alike and element_type_of(value.dtype) == result.kind.type):
                raise TracerError(
                    f"mixad.{self.name}: a step gives an array of shape {tuple(value.shape)} and "
                    f"dtype {value.dtype} where the function was recorded to give one of shape "
                    f"{result.shape} and type {result.kind.type}: make it such in each step"
                )

    def operands_read(self, operands: Sequence[Result]) -> frozenset[int]:
        """Return the operands that results depend on; all if that depends on elements."""
        key = tuple([(each.shape, each.kind, device_key(each.device)) for each in operands])
        if key not in self._reads:
            self._reads[key] = self._found_read(operands)
        return self._reads[key]

    def _found_read(self, operands: Sequence[Result]) -> frozenset[int]:
        """Follow what the operations are made of from the results back to operands."""
        every = frozenset(range(len(operands)))
        arrays = [as_register(each.ones_like()) for each in operands]
        try:
            with np.errstate(all="ignore"):
                noted, found = self._noted(arrays, operands[0].kind.library)
        except Exception:  # an operation has no value for made-up elements
            return every
        if noted is None:
            return every
        left, makers = list(found), {}
        for equation in noted.equations:
            makers.update(dict.fromkeys(equation.results, equation))
        read = set[int]()
        while left:
            register = left.pop()
            if register in read:
                continue
            read.add(register)
            if register in makers:
                left += sources_of(makers[register])
        return every & read

    def _planned(self, arrays: Sequence[Any], library: Library) -> Plan | None:
        """Make the plan of what the operations are made of."""
        noted, registers = self._noted(arrays, library)
        made = make_plan(noted, arrays, [], registers, [], library, self.kind, compiles=True)
        if made is None:
            return None
        plan, (results, _) = made
        self.check(results)
        return plan

    def _noted(self, arrays: Sequence[Any], library: Library) -> tuple[Noted | None, list[int]]:
        """Return what the operations are made of, and the registers of results.

        None if one looks at elements, or cannot be noted.
        """
        with Level(self.name, is_reverse=False, differentiates=False) as level:
            level.check, level.unknown, level.foresees = "off", _no_value, True
            wholes = [of_register(library, array) for array in arrays]
            entered = {id(array): (at, array) for at, array in enumerate(wholes)}
            journal = level.journal = Journal(entered, wholes.__getitem__)
            alone, given = frozenset((level,)), list[Tracer]()
            for register, array in enumerate(wholes):
                cell = Cell.of(array, "off")
                journal.name(cell, register)
                origin = Origin(InputNode(level, None), 0, alone)
                given.append(noted_array(self.kind(cell, origin)))
            found = results_of(journal.perform(self._operation, given))
            values = dict(enumerate(found))
            constants = {
                at: journal.constant(v) for at, v in values.items() if not isinstance(v, Tracer)
            }
            noted, level.journal = journal.noted(values), None
        if level.looks or not journal.is_whole:
            return None, []
        return noted, [{**noted.registers, **constants}[at] for at in values]


def _as_weak(value: Any) -> Any:
    """Return a value that adapts to the dtypes beside it, as the captured Python number did."""
    if not isinstance(value, Tracer):
        return value.item()
    cell, journal = Cell.of(value.cell.array, "off", weak=True), journal_of(value.origin.levels)
    if journal is not None:
        journal.name(cell, journal.register(value.cell))
    return type(value)(cell, value.origin)


def _no_value(tracer: Tracer) -> Any:
    raise AssertionError("on nodes there are values")


def _bits(number: Any) -> bytes:
    return np.asarray(number).tobytes()
