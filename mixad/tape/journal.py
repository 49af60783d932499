"""What recorded operations are made of, written down as equations over registers.

Operations are done on nodes of a level that launches nothing: each kernel, rule and call of the
user's is noted with the registers that it reads and fills. The equations of a segment become plans
(`mixad.tape.planner`, `mixad.tape.strand_plan`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.arrays import is_array, is_scalar
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.loop_results import ComparisonOnlyResult
from mixad.tape.cell import Cell
from mixad.tape.guard import GuardedArray
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import Rule, Shaped
from mixad.tape.operations import results_of
from mixad.tape.registers import StridedView, as_register, may_share_memory, strided_view_in
from mixad.tape.tracer import Level, Origin, Tracer
from mixad.tape.values_rule import ValuesRule

if TYPE_CHECKING:
    from mixad.backends.arrays import Library
    from mixad.tape.kernel_call import KernelCall, Shape
    from mixad.tape.operations import Operation

__all__ = ["CallEquation", "Equation", "Journal", "KernelEquation", "Noted", "Register",
           "RuleEquation", "ViewEquation", "sources_of"]  # fmt: skip

Register: TypeAlias = int
"""A slot of the segment, or -1, -2, … for what is made on the way."""


@dataclass(frozen=True, eq=False, slots=True)
class KernelEquation:
    """One pass of a kernel's call.

    `shapes` are those of the arguments, empty for numbers.
    """

    call: KernelCall
    options: KernelOptions
    shape: Shape
    library: Library
    device: Any
    arguments: tuple[Register, ...]
    # By argument: what a cotangent goes along; false if the argument does not carry the level.
    # Arguments are one leaf if they are one value along the same edge.
    carries: tuple[Hashable, ...]
    pending: tuple[bool, ...]  # by argument: whether it may be computed inside
    shapes: tuple[Shape, ...]
    outputs: list[tuple[OutputRequest, Register]]  # what is wanted, and where; sums come later
    siblings: list[KernelEquation]  # all passes of a call that has several
    may_store: bool = True  # whether nothing but one reverse transform follows its partials

    @property
    def results(self) -> list[Register]:
        """The registers that it fills."""
        return [register for _, register in self.outputs]


@dataclass(frozen=True, eq=False, slots=True)
class RuleEquation:
    """A rule that is applied; one that `waits` is evaluated when something reads its value."""

    rule: Rule | ValuesRule
    static: Mapping[str, Any]
    arguments: tuple[Register, ...]
    carries: tuple[bool, ...]
    forms: tuple[Shaped, ...]
    results: tuple[Register, ...]
    shapes: tuple[Shape, ...]
    waits: bool


@dataclass(frozen=True, eq=False, slots=True)
class CallEquation:
    """What is pulled back by itself, such as a call of the user's function; its values are there.

    The arguments are those that carry the level, None in place of others.
    """

    call: Register
    arguments: tuple[Register | None, ...]
    results: tuple[Register, ...]
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, eq=False, slots=True)
class ViewEquation:
    """A view of an array that came in."""

    whole: Register
    strided: StridedView
    results: tuple[Register, ...]


Equation: TypeAlias = KernelEquation | RuleEquation | CallEquation | ViewEquation


def sources_of(equation: Equation) -> Sequence[Register]:
    """Return what an equation reads."""
    if isinstance(equation, ViewEquation):
        return (equation.whole,)
    found = [at for at in equation.arguments if at is not None]
    return [equation.call, *found] if isinstance(equation, CallEquation) else found


@dataclass(frozen=True, eq=False, slots=True)
class Noted:
    """What operations are made of."""

    equations: Sequence[Equation]
    constants: Sequence[tuple[Register, Any]]  # arrays that depend on shapes and options alone
    registers: Mapping[int, Register]  # by slot of a made value: its register
    count: int  # how many registers there are beside slots
    decided: Sequence[ComparisonOnlyResult]  # what each call is to warn of


class _Link(NamedTuple):
    """What is known of the arguments of a node."""

    node: weakref.ref[KernelNode]
    slots: tuple[int, ...] | None  # None unless it is one kernel of the operands
    is_static: bool  # whether nothing is read beside traced values
    is_call: bool  # whether numbers are a part of what is called


_NOTHING: frozenset[Hashable] = frozenset()


def _numbers_in(operands: Iterable[Any]) -> frozenset[Hashable]:
    """Return the keys of the numbers among operands, as arrays without axes."""
    numbers = [o for o in operands if isinstance(o, np.generic) or is_scalar(o)]
    return frozenset([_told(np.asarray(number)) for number in numbers])


def _told(array: Any) -> Hashable:
    return array.dtype, array.tobytes()


def _reads_numbers(node: KernelNode) -> bool:
    """Whether arguments of a node are numbers: only their position identifies these."""
    return not all(
        isinstance(argument, (Origin, Cell, GuardedArray)) for argument in node.arguments
    )


class _UnknownSourceError(Exception):
    """A value that is read has no register: something else made it from what came in."""


class Journal:
    """What has been recorded on a level so far.

    `entered` has slot and description of each array that came in, by its id; `array_at` returns the
    array of a slot. It `is_whole` if everything could be noted, and `is_static` while what is
    recorded reads no array and no number beside traced values.
    """

    def __init__(
        self,
        entered: Mapping[int, tuple[int, Any]],
        array_at: Callable[[int], Any],
    ) -> None:
        self.constants: list[tuple[Register, Any]] = []
        self.is_whole = True
        self.is_static = self._is_call = False
        self.decided: list[ComparisonOnlyResult] = []
        self._numbers = _NOTHING
        self._count = 0
        self._entered = entered
        self._array_at = array_at
        self._equations: list[_Places] = []
        self._open: list[_Places] = []
        self._nodes: dict[int, _NotedNode] = {}
        self._cells: dict[int, tuple[weakref.ref[Cell], Register]] = {}
        self._links: dict[int, _Link] = {}
        self._known: dict[int, tuple[Any, Register]] = {}
        self._constant: set[Register] = set()  # of traced values that depend on no input

    def perform(
        self,
        operation: Operation,
        operands: Sequence[Any],
        slots: tuple[int, ...] | None = None,
    ) -> Any:
        """Return the result of an operation; note what it is made of.

        An operation without slots is a part of another one, and so are the numbers among its
        operands.
        """
        before = self.is_static, self._is_call, self._numbers
        known = [id(each.origin.node) for each in operands if isinstance(each, Tracer)]
        own, count = slots if operation.is_kernel else None, len(self._open)
        self.is_static, self._is_call = operation.is_static(operands), own is None
        self._numbers = _numbers_in(operands) if slots is None else _NOTHING
        try:
            found = operation.compute(*operands)
            for each in results_of(found):
                if isinstance(each, Tracer):
                    self._link(each.origin.node, own, known)
            return found
        finally:
            self._resolve(count)
            self.is_static, self._is_call, self._numbers = before

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Let the journal not be whole if something cannot be noted."""
        try:
            yield
        except _UnknownSourceError:
            self.is_whole = False

    def mark(self) -> tuple[int, int, int]:
        """Return how much has been noted, for `forget`."""
        return len(self._equations), len(self._nodes), len(self._known)

    def forget(self, mark: tuple[int, int, int]) -> None:
        """Forget what has been noted since a mark, and hold none of it any more."""
        equations, nodes, known = mark
        del self._equations[equations:]
        for key in list(self._nodes)[nodes:]:
            del self._nodes[key]
        for key in list(self._known)[known:]:
            del self._known[key]

    def know(self, array: Any) -> None:
        """Note an array that is the same in every call."""
        self._constant.add(self.constant(array))

    def noted(self, values: Mapping[int, Any]) -> Noted:
        """Return what has been noted, with the registers of some values by slot."""
        self._resolve(0)
        registers = {
            slot: self.register(value.cell)
            for slot, value in values.items()
            if isinstance(value, Tracer)
        }
        equations = [each for places in self._equations for each in places.equations]
        return Noted(equations, tuple(self.constants), registers, self._count, tuple(self.decided))

    # -- registers ---------------------------------------------------------------------------------

    def name(self, cell: Cell, register: Register) -> None:
        """Note the register of a value that came in."""
        self._cells[id(cell)] = weakref.ref(cell), register

    def take(self, cell: Cell, array: Any) -> None:
        """Note that a value is an array that came in."""
        with self._noting():
            self.name(cell, self.array(array, is_static=False))

    def take_constant(self, cell: Cell, array: Any) -> None:
        """Note that a value is an array that came in, which is not differentiated."""
        with self._noting():
            register = self.array(array, is_static=False)
            self.name(cell, register)
            self._constant.add(register)

    def _link(self, node: Any, slots: tuple[int, ...] | None, known: Iterable[int]) -> None:
        """Note the kernels of the node of a result, back to nodes that were `known` before.

        `slots` are those of its arguments, if it is one kernel of the operands.
        """
        seen, left, new = set(known), [node], list[KernelNode]()
        while left:
            node = left.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if type(node) is KernelNode and not self.is_linked(node):
                new.append(node)
            left += [parent.node for parent in node.parents if parent is not None]
        is_one = sum(map(_reads_numbers, new)) == 1
        for each in new:
            is_direct = slots is not None and is_one and len(each.arguments) == len(slots)
            own = slots if is_direct else None
            self._links[id(each)] = _Link(weakref.ref(each), own, self.is_static, slots is None)
            for argument in each.arguments if self._numbers else ():
                array = argument.array if type(argument) is GuardedArray else argument
                if self._is_number(array):
                    self.constant(array)

    def is_linked(self, node: KernelNode) -> bool:
        """Whether a node has been linked."""
        known = self._links.get(id(node))
        return known is not None and known.node() is node

    def register(self, cell: Cell) -> Register:
        """Return the register of a value."""
        known = self._cells.get(id(cell))
        if known is not None and known[0]() is cell:
            return known[1]
        given = cell.given
        same = None if given is None else self._known.get(id(given))
        if type(cell.pending) is KernelNode:
            found = self._output(cell.pending, cell.output)
        else:
            found = self._new() if same is None else same[1]
        self._cells[id(cell)] = weakref.ref(cell), found
        return found

    def _output(self, node: KernelNode, output: int) -> Register:
        """Return the register of an output of a kernel."""
        noted = self._nodes.setdefault(id(node), _NotedNode(node))
        if output not in noted.registers:
            noted.registers[output] = self._new()
        return noted.registers[output]

    def _new(self) -> Register:
        self._count += 1
        return -self._count

    def constant(self, array: Any) -> Register:
        """Return the register of an array that is the same in every call."""
        known = self._known.get(id(array))
        if known is None:
            known = self._known[id(array)] = array, self._new()
            self.constants.append((known[1], array))
        return known[1]

    def _is_number(self, array: Any) -> bool:
        """Whether an array is a number that is a part of what is recorded now."""
        return type(array) is np.ndarray and not array.shape and _told(array) in self._numbers

    def array(self, array: Any, *, is_static: bool) -> Register:
        """Return the register of an array that is no traced value."""
        entered = self._entered.get(id(array))
        if entered is not None:
            return entered[0]
        if id(array) in self._known:
            return self._known[id(array)][1]
        viewed = self._viewed(array)
        if viewed is None and not (is_static or self._is_number(array)):
            raise _UnknownSourceError
        return self.constant(array) if viewed is None else viewed

    def _viewed(self, array: Any) -> Register | None:
        """Return the register of a view of an array that came in; None if it is no such view.

        None too if it shares memory with anything else: in other calls it need not.
        """
        view = as_register(array)
        came_in = [(slot, as_register(self._array_at(slot))) for slot, _ in self._entered.values()]
        sharing = [(slot, whole) for slot, whole in came_in if may_share_memory(view, whole)]
        cells = [cell() for cell, _ in self._cells.values()]
        made = [cell.value for cell in cells if cell is not None and cell.pending is None]
        is_made = any(may_share_memory(view, as_register(value)) for value in made)
        if is_made or len(sharing) != 1:
            return None
        slot, whole = sharing[0]
        strided = strided_view_in(view, whole)
        if strided is None:
            return None
        register = self._new()
        self._known[id(array)] = array, register
        self._add(ViewEquation(slot, strided, (register,)))
        return register

    def _source(self, node: KernelNode, index: int) -> Register:
        """Return the register of an argument of a node."""
        source = node.arguments[index]
        if type(source) is Origin:
            return self._output(source.node, source.output)  # type: ignore[arg-type]  # a kernel's
        if type(source) is Cell:
            return self.register(source)
        slots, is_static, is_call = None, self.is_static, self._is_call  # of what is recorded now
        if self.is_linked(node):
            _, slots, is_static, is_call = self._links[id(node)]
        if type(source) is GuardedArray:
            return self.array(source.array, is_static=is_static)
        if slots is not None:
            return slots[index]
        if not (is_static or is_call):
            raise _UnknownSourceError
        self.constants.append((self._new(), source))
        return -self._count

    # -- equations ---------------------------------------------------------------------------------

    def _add(self, *equations: Equation) -> None:
        self._equations.append(_Places(list(equations)))

    def recorded(self, nodes: Sequence[KernelNode]) -> None:
        """Note the passes of a kernel; they become equations when their operation is over."""
        places = _Places([], nodes)
        self._equations.append(places)
        self._open.append(places)
        for node in nodes:
            for output in range(len(node.outputs)):
                self._output(node, output)

    def _resolve(self, first: int) -> None:
        """Note the equations of kernels, now that it is known where what they read came from."""
        for places in self._open[first:]:
            try:
                found: list[KernelEquation] = []
                siblings = found if len(places.nodes) > 1 else []
                found += [self._equation(node, siblings) for node in places.nodes]
            except _UnknownSourceError:
                continue  # a plan that reads it cannot be made
            places.equations += found
            for node, equation in zip(places.nodes, found, strict=True):
                self._nodes[id(node)].equation = equation
        del self._open[first:]

    def _equation(self, node: KernelNode, siblings: list[KernelEquation]) -> KernelEquation:
        kinds, given = node.call.kinds, node.arguments
        is_pending = [type(source) is Origin for source in given]
        shapes: list[Any] = []
        for source, kind in zip(given, kinds, strict=True):
            if type(source) is Origin:
                producer: Any = source.node
                request = producer.outputs[source.output]
                shapes.append(producer.shape if request.shape is None else request.shape)
            else:
                is_shaped = kind != "uniform" and isinstance(source, (Cell, GuardedArray))
                shapes.append(source.shape if is_shaped else ())
        arguments = tuple([self._source(node, index) for index in range(len(given))])
        origins = zip(node.parents, arguments, strict=True)
        carries = tuple([self._carries(parent, register) for parent, register in origins])
        outputs = [
            (request, self._output(node, output)) for output, request in enumerate(node.outputs)
        ]
        if not any(carries):
            self._constant.update([register for _, register in outputs])
        return KernelEquation(
            node.call,
            node.options,
            node.shape,
            node.library,
            node.device,
            arguments,
            carries,
            tuple(is_pending),
            tuple(shapes),
            outputs,
            siblings,
        )

    def _carries(self, origin: Origin | None, register: Register) -> bool:
        """Whether an argument, which came from somewhere, depends on inputs of the level."""
        is_traced = origin is not None and self._is_of(origin.levels)
        return is_traced and register not in self._constant

    def _is_of(self, levels: frozenset[Level]) -> bool:
        """Whether the journal's level is among these."""
        return any(level.journal is self for level in levels)

    def summed(self, node: KernelNode) -> None:
        """Note that a sum of a kernel's result is wanted, the last of its outputs."""
        output = len(node.outputs) - 1
        register, equation = self._output(node, output), self._nodes[id(node)].equation
        if equation is not None:
            equation.outputs.append((node.outputs[output], register))
            if not any(equation.carries):
                self._constant.add(register)

    def evaluated(
        self,
        rule: Rule | ValuesRule,
        static: Mapping[str, Any],
        arguments: Sequence[Any],
        cells: Sequence[Cell],
        *,
        waits: bool = False,
    ) -> None:
        """Note a rule of tracers and arrays, whose values are in these cells."""
        with self._noting():
            if not self.is_static and any(map(_has_arrays, static.values())):
                raise _UnknownSourceError
            registers = tuple(map(self._argument, arguments))
            results = tuple(map(self.register, cells))
            for cell, register in zip(cells, results, strict=True):
                if cell.pending is None and not cell.type.is_inexact:  # others read it as it is
                    self._known[id(cell.array)] = cell.array, register
            shapes = tuple([cell.shape for cell in cells])
            self._apply(rule, static, arguments, registers, results, shapes, waits=waits)

    def derived(self, rule: Rule, static: Mapping[str, Any], argument: Any, array: Any) -> None:
        """Note a rule that made a plain array of the elements of a value."""
        with self._noting():
            registers, result = (self.register(argument.cell),), self._new()
            self._known[id(array)] = array, result
            self._apply(rule, static, (argument,), registers, (result,), (tuple(array.shape),))

    def _apply(
        self,
        rule: Rule | ValuesRule,
        static: Mapping[str, Any],
        arguments: Sequence[Any],
        registers: tuple[Register, ...],
        results: tuple[Register, ...],
        shapes: tuple[Shape, ...],
        *,
        waits: bool = False,
    ) -> None:
        origins = [a.origin if isinstance(a, Tracer) else None for a in arguments]
        carries = [self._carries(o, r) for o, r in zip(origins, registers, strict=True)]
        if not any(carries):
            self._constant.update(results)
        forms = [Shaped(tuple(a.shape), a.dtype) for a in arguments]
        self._add(
            RuleEquation(
                rule, static, registers, tuple(carries), tuple(forms), results, shapes, waits
            )
        )

    def called(self, call: Any, tracers: Sequence[Tracer], cells: Sequence[Cell]) -> None:
        """Note a call of the user's function with some values."""
        with self._noting():
            arguments = tuple([self.register(tracer.cell) for tracer in tracers])
            results = tuple(map(self.register, cells))
            shapes = tuple([cell.shape for cell in cells])
            register = self.array(call, is_static=False)
            self._add(CallEquation(register, arguments, results, shapes))

    def _argument(self, argument: Any) -> Register:
        if isinstance(argument, Tracer):
            return self.register(argument.cell)
        if is_scalar(argument):
            raise _UnknownSourceError
        return self.array(argument, is_static=self.is_static)


@dataclass(eq=False, slots=True)
class _NotedNode:
    """A kernel's node and its outputs' registers; it is held, since its id identifies it."""

    node: KernelNode
    registers: dict[int, Register] = field(default_factory=dict)
    equation: KernelEquation | None = None


@dataclass(eq=False, slots=True)
class _Places:
    """Equations in their place; those of kernels come when their operation is over."""

    equations: list[Any]
    nodes: Sequence[KernelNode] = field(default=())


def _has_arrays(value: Any) -> bool:
    """Whether there are arrays in an option of a rule."""
    if isinstance(value, (tuple, list)):
        return any(map(_has_arrays, value))
    return is_array(value)
