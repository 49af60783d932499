"""What a call of a transform does, written down: values are registers, so that it can be repeated.

While the nodes of a call are made and pulled back, each launch and each rule is noted with the
registers that it reads and fills.  What was noted becomes a plan (`mixad.tape.strand_plan`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.arrays import is_array, is_scalar
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import DecidedResult
from mixad.tape.cell import Cell
from mixad.tape.forward_node import ForwardNode
from mixad.tape.held import Held
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import ConstantNode, InputNode, Rule, RuleNode
from mixad.tape.operations import Called, results_of
from mixad.tape.registers import StridedView, as_register, may_share_memory, strided_view_in
from mixad.tape.tracer import Origin, Tracer
from mixad.tape.values_rule import ValuesNode, ValuesRule

if TYPE_CHECKING:
    from mixad.tape.forward_plan import ForwardPlan, Stored
    from mixad.tape.kernel_call import KernelCall, Shape
    from mixad.tape.operations import Operation
    from mixad.tape.schedule import KernelStep

__all__ = ["Contracted", "Entry", "Evaluated", "Journal", "Launched", "Passed", "Place",
           "Pulled", "PulledCall", "PulledKernel", "PulledValues", "Register", "Stores",
           "Viewed"]  # fmt: skip

Register: TypeAlias = int
"""A slot of the strand, or -1, -2, … for what is made on the way."""

Place: TypeAlias = tuple[int, int]
"""Of a cotangent: the number of a node, and which of its outputs."""


class Launched(NamedTuple):
    """A kernel that made results."""

    call: KernelCall
    options: KernelOptions
    arguments: tuple[Register, ...]
    results: tuple[Register, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return self.arguments

    @property
    def fills(self) -> Sequence[Register] | None:
        """Return the registers that it fills; None where it is needed anyhow."""
        return None if self.call.may_be_outside else self.results


class Stores(NamedTuple):
    """A kernel that made results and partials; ``results`` are those of the outputs asked for."""

    passes: tuple[Program, ...]
    asked: tuple[OutputRequest, ...]
    options: KernelOptions
    arguments: tuple[Register, ...]
    results: tuple[tuple[Register, int], ...]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return self.arguments

    @property
    def fills(self) -> Sequence[Register] | None:
        """Return the registers that it fills; None where it is needed anyhow."""
        is_needed = any(p.kind == "array" for p in self.passes[0].params)
        return None if is_needed else [at for at, _ in self.results]


class Viewed(NamedTuple):
    """A view of an array that came in."""

    whole: Register
    strided: StridedView
    result: Register

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return (self.whole,)

    @property
    def fills(self) -> Sequence[Register]:
        """Return the registers that it fills."""
        return (self.result,)


class Evaluated(NamedTuple):
    """A rule that was applied."""

    rule: Rule | ValuesRule
    static: Mapping[str, Any]
    arguments: tuple[Register, ...]
    results: tuple[Register, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return self.arguments

    @property
    def fills(self) -> Sequence[Register]:
        """Return the registers that it fills."""
        return self.results


class PulledKernel(NamedTuple):
    """A step that pulled kernel nodes back.

    An argument is one of its cotangents (True, and which), or in a register (False, and that);
    ``read`` has the registers of what else is read and no cotangent.
    """

    step: KernelStep
    arguments: tuple[tuple[bool, int], ...]
    results: tuple[Register | None, ...]
    read: Mapping[int, Register]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        given = [at for is_given, at in self.arguments if not is_given]
        return (*given, *self.read.values())

    @property
    def fills(self) -> None:
        """It is needed anyhow."""


class Pulled(NamedTuple):
    """A rule that was pulled back; of arguments whose elements are not read it has the shape."""

    rule: Rule
    static: Mapping[str, Any]
    arguments: tuple[Any, ...]
    place: Place
    shape: Shape
    targets: tuple[Place | None, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return [a for a in self.arguments if type(a) is int]

    @property
    def fills(self) -> None:
        """It is needed anyhow."""


class PulledValues(NamedTuple):
    """A rule with values that was pulled back."""

    rule: ValuesRule
    static: Mapping[str, Any]
    arguments: tuple[Any, ...]
    values: tuple[Register, ...]
    places: tuple[Place | None, ...]
    shapes: tuple[Shape, ...]
    targets: tuple[Place | None, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return (*[a for a in self.arguments if type(a) is int], *self.values)

    @property
    def fills(self) -> None:
        """It is needed anyhow."""


class PulledCall(NamedTuple):
    """A call of the user's function that was pulled back by a rule of its own.

    There is a target for each traced argument.
    """

    call: Register
    places: tuple[Place | None, ...]
    shapes: tuple[Shape, ...]
    targets: tuple[Place | None, ...]

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return (self.call,)

    @property
    def fills(self) -> None:
        """It is needed anyhow."""


class Passed(NamedTuple):
    """An input of a transform inside, whose cotangent is that of what came in."""

    place: Place
    target: Place | None

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return ()

    @property
    def fills(self) -> None:
        """It is needed anyhow."""


class Contracted(NamedTuple):
    """Stored partials that were multiplied by cotangents."""

    plan: ForwardPlan
    residuals: tuple[Register | None, ...]
    shapes: tuple[Shape, ...]
    outputs: tuple[int, ...]
    places: tuple[Place, ...]
    targets: tuple[Place | None, ...]
    shape: Shape
    options: KernelOptions

    @property
    def reads(self) -> Sequence[Register]:
        """Return the registers that it reads."""
        return [r for r in self.residuals if r is not None]

    @property
    def fills(self) -> None:
        """It is needed anyhow."""


Entry: TypeAlias = (
    Launched
    | Stores
    | Viewed
    | Evaluated
    | PulledKernel
    | Pulled
    | PulledValues
    | PulledCall
    | Passed
    | Contracted
)


class _Link(NamedTuple):
    """What is known of the arguments of a node.

    Attributes
    ----------
    node : weak reference
        To the node.
    slots : tuple of int or None
        Those of the arguments, if it is one kernel of the operands.
    is_static : bool
        Whether no array and no number is read beside traced values.
    is_call : bool
        Whether numbers are a part of what is called.
    """

    node: weakref.ref[KernelNode]
    slots: tuple[int, ...] | None
    is_static: bool
    is_call: bool


_NOTHING: frozenset[Hashable] = frozenset()


def _numbers_in(operands: Iterable[Any]) -> frozenset[Hashable]:
    """Return what numbers among operands are as arrays without axes."""
    numbers = [o for o in operands if isinstance(o, np.generic) or is_scalar(o)]
    return frozenset([_told(np.asarray(number)) for number in numbers])


def _told(array: Any) -> Hashable:
    return array.dtype, array.tobytes()


def _reads_numbers(node: KernelNode) -> bool:
    """Whether arguments of a node are numbers, which only their place tells from others."""
    return not all(isinstance(argument, (Origin, Cell, Held)) for argument in node.arguments)


class _UnknownSourceError(Exception):
    """A value that is read has no register: it was made from what came in, by others."""


class Journal:
    """What has been done so far.

    Parameters
    ----------
    entered : mapping
        By the id of an array that came in, its slot and its description.
    array_at : callable
        Of such a slot, returns the array.

    Attributes
    ----------
    entries : list of Entry
        In order.
    constants : list of (int, array)
        Registers of arrays that depend on shapes and options alone.
    is_whole : bool
        Whether everything could be noted.
    is_static : bool
        Whether what is recorded now reads no array and no number beside traced values.
    count : int
        How many registers there are beside the slots.
    seeds : sequence of Place
        Where the backward pass began.
    inputs : sequence of (int or None)
        For each input the number of its node in the pass, None where that has not got there.
    decided : list of DecidedResult
        What each call is to warn of.
    """

    def __init__(
        self, entered: Mapping[int, tuple[int, Any]], array_at: Callable[[int], Any]
    ) -> None:
        self.entries: list[Entry] = []
        self.constants: list[tuple[Register, Any]] = []
        self.is_whole = True
        self.is_static = self._is_call = False
        self._numbers = _NOTHING
        self.count = 0
        self.seeds: Sequence[Place] = ()
        self.inputs: Sequence[int | None] = ()
        self.decided: list[DecidedResult] = []
        self._entered = entered
        self._array_at = array_at
        self._cells: dict[int, tuple[weakref.ref[Cell], Register]] = {}
        self._links: dict[int, _Link] = {}
        self._known: dict[int, tuple[Any, Register]] = {}
        self._stored: dict[int, tuple[Register | None, ...]] = {}

    def perform(
        self,
        operation: Operation,
        operands: Sequence[Any],
        slots: tuple[int, ...] | None = None,
    ) -> Any:
        """Return what an operation gives; note which slots the nodes read that it records.

        Without slots it is a part of another one, and numbers among its operands are of it.
        """
        before = self.is_static, self._is_call, self._numbers
        known = [id(each.origin.node) for each in operands if isinstance(each, Tracer)]
        own = slots if operation.is_kernel else None
        self.is_static, self._is_call = operation.is_static(operands), own is None
        self._numbers = _numbers_in(operands) if slots is None else _NOTHING
        try:
            found = operation.compute(*operands)
            for each in results_of(found):
                if isinstance(each, Tracer):
                    self._link(each.origin.node, own, known)
            return found
        finally:
            self.is_static, self._is_call, self._numbers = before

    def know(self, array: Any) -> None:
        """Note an array that is the same in every call."""
        self.constant(array)

    def needed(self, values: Sequence[Register]) -> list[Entry]:
        """Return what is done for some values and for the cotangents of what came in.

        What reads by index is: it may be outside.
        """
        needed, found = set(values), []
        for entry in reversed(self.entries):
            fills = entry.fills
            if fills is None or not needed.isdisjoint(fills):
                needed.update(entry.reads)
                found.append(entry)
        return found[::-1]

    # -- registers ---------------------------------------------------------------------------------

    def name(self, cell: Cell, register: Register) -> None:
        """Note the register of a value that came in."""
        self._cells[id(cell)] = weakref.ref(cell), register

    def take(self, cell: Cell, array: Any) -> None:
        """Note that a value is an array that came in."""
        with _Noting(self):
            self.name(cell, self._array(id(array), lambda: array, is_static=False))

    def _link(self, node: Any, slots: tuple[int, ...] | None, known: Iterable[int]) -> None:
        """Note what an operation has recorded.

        Parameters
        ----------
        node : node
            Of its result.
        slots : tuple of int or None
            Those of the arguments of the node, if it is one kernel of the operands.
        known : iterable of int
            The ids of nodes that were there before.
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
                array = argument.array if type(argument) is Held else argument
                if self._is_number(array):
                    self.constant(array)

    def is_linked(self, node: KernelNode) -> bool:
        """Whether a node has been noted."""
        known = self._links.get(id(node))
        return known is not None and known.node() is node

    def register(self, cell: Cell) -> Register:
        """Return the register of a value."""
        known = self._cells.get(id(cell))
        if known is not None and known[0]() is cell:
            return known[1]
        given = cell.given
        same = None if given is None else self._known.get(id(given))
        found = self._new() if same is None else same[1]
        self._cells[id(cell)] = weakref.ref(cell), found
        return found

    def _new(self) -> Register:
        self.count += 1
        return -self.count

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

    def _array(self, key: int, array: Callable[[], Any], *, is_static: bool) -> Register:
        """Return the register of an array that is no traced value."""
        entered = self._entered.get(key)
        if entered is not None:
            return entered[0]
        if key in self._known:
            return self._known[key][1]
        viewed = self._viewed(array())
        if viewed is None and not (is_static or self._is_number(array())):
            raise _UnknownSourceError
        return self.constant(array()) if viewed is None else viewed

    def _viewed(self, array: Any) -> Register | None:
        """Return the register of a view of an array that came in; None if it is none.

        Nor may it be one of another: arrays that share memory in this call need not in others.
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
        self._known[id(array)] = array, self._new()
        self.entries.append(Viewed(slot, strided, -self.count))
        return -self.count

    def source(self, node: KernelNode, index: int) -> Register:
        """Return the register of an argument of a node."""
        source = node.source(index)
        if type(source) is Cell:
            return self.register(source)
        slots, is_static, is_call = None, self.is_static, self._is_call  # of what is recorded now
        if self.is_linked(node):
            _, slots, is_static, is_call = self._links[id(node)]
        if type(source) is Held:
            return self._array(source.key, lambda: source.array, is_static=is_static)
        if slots is not None:
            return slots[index]
        if not (is_static or is_call):
            raise _UnknownSourceError
        self.constants.append((self._new(), source))
        return -self.count

    def begin(self, seeds: Sequence[Place], inputs: Sequence[int | None]) -> None:
        """Note where a backward pass begins and ends."""
        self.seeds, self.inputs = seeds, inputs

    # -- what is done ------------------------------------------------------------------------------

    def launched(
        self,
        call: KernelCall,
        options: KernelOptions,
        read: Iterable[tuple[KernelNode, int]],
        cells: Iterable[Cell],
    ) -> None:
        """Note a kernel that made cells from arguments of nodes."""
        with _Noting(self):
            arguments = tuple([self.source(*each) for each in read])
            results = tuple(map(self.register, cells))
            self.entries.append(Launched(call, options, arguments, results))

    def stores(
        self,
        stored: Sequence[Stored],
        asked: tuple[OutputRequest, ...],
        options: KernelOptions,
        read: Sequence[tuple[KernelNode, int]],
        results: Iterable[tuple[Cell, OutputRequest]],
        partials: Mapping[int, OutputRequest],
    ) -> None:
        """Note a kernel that made cells, and partials at some positions of the residuals."""
        with _Noting(self):
            arguments = tuple([self.source(*each) for each in read])
            made = [(self.register(cell), asked.index(request)) for cell, request in results]
            new = {at: self._new() for at in partials}
            made += [(new[at], asked.index(request)) for at, request in partials.items()]
            given = dict(enumerate(arguments)) | new
            kept = enumerate(stored[0].residuals)
            residuals = tuple([None if r is None else given[at] for at, r in kept])
            for each in stored:
                self._stored[id(each)] = residuals
            passes = stored[0].plan.passes
            self.entries.append(Stores(passes, asked, options, arguments, tuple(made)))

    def evaluated(
        self,
        rule: Rule | ValuesRule,
        static: Mapping[str, Any],
        arguments: Sequence[Any],
        cells: Iterable[Cell],
    ) -> None:
        """Note a rule that made cells; arguments are cells and arrays."""
        with _Noting(self):
            if not self.is_static and any(map(_has_arrays, static.values())):
                raise _UnknownSourceError
            registers = tuple([self._argument(a) for a in arguments])
            made = tuple(cells)
            results = tuple(map(self.register, made))
            for cell, register in zip(made, results, strict=True):
                if cell.pending is None and not cell.type.is_inexact:  # others read it as it is
                    self._known[id(cell.array)] = cell.array, register
            self.entries.append(Evaluated(rule, static, registers, results))

    def derived(self, rule: Rule, static: Mapping[str, Any], argument: Any, array: Any) -> None:
        """Note a rule that made a plain array of the elements of a value."""
        with _Noting(self):
            register = self.register(argument.cell)
            self._known[id(array)] = array, self._new()
            self.entries.append(Evaluated(rule, static, (register,), (-self.count,)))

    def _argument(self, argument: Any) -> Register:
        if type(argument) is Cell:
            return self.register(argument)
        if is_scalar(argument):
            raise _UnknownSourceError
        return self._array(id(argument), lambda: argument, is_static=self.is_static)

    def pulled_kernel(self, nodes: Sequence[Any], step: KernelStep) -> PulledKernel | None:
        """Return the entry of a step that is to be taken; None if there is none."""
        with _Noting(self):
            arguments = tuple(
                [
                    (True, at) if isinstance(at, int) else (False, self.source(nodes[at[0]], at[1]))
                    for at in step.arguments
                ]
            )
            held = [nodes[number].held(output) for number, output in step.results]
            results = tuple([None if cell is None else self.register(cell) for cell in held])
            read = {
                index: self.source(nodes[at[0]], at[1])
                for index, at in step.read
                if not isinstance(at, int)
            }
            return PulledKernel(step, arguments, results, read)
        return None

    def pulled(
        self, node: Any, number: int, outputs: Sequence[int], targets: tuple[Place | None, ...]
    ) -> Entry | None:
        """Return the entry of a node that is to be pulled back; None if there is none."""
        with _Noting(self):
            if type(node) is RuleNode:
                arguments = tuple([self._residual(a) for a in node.arguments])
                shape = node.results[0].shape
                return Pulled(node.rule, node.static, arguments, (number, 0), shape, targets)
            if type(node) is ValuesNode:
                given = [(number, at) if at in outputs else None for at in range(len(node.cells))]
                return PulledValues(
                    node.rule,
                    node.static,
                    tuple([self._residual(a) for a in node.arguments]),
                    tuple(map(self.register, node.cells)),
                    tuple(given),
                    tuple([cell.shape for cell in node.cells]),
                    targets,
                )
            if isinstance(node, Called):
                results, call = range(len(node.results)), node.source
                return PulledCall(
                    self._array(id(call), lambda: call, is_static=False),
                    tuple([(number, at) if at in outputs else None for at in results]),
                    tuple([result.shape for result in node.results]),
                    tuple([t for t, p in zip(targets, node.parents, strict=True) if p is not None]),
                )
            if type(node) is InputNode:
                return Passed((number, 0), targets[0])
            if type(node) is ConstantNode:  # which nothing was made of
                return None
            if type(node) is not ForwardNode or id(node.stored) not in self._stored:
                raise _UnknownSourceError
            stored = node.stored
            if stored.plan.program.has_named_loops:  # may warn, or raise
                raise _UnknownSourceError
            places = tuple([(number, output) for output in outputs])
            return Contracted(
                stored.plan,
                self._stored[id(stored)],
                tuple(stored.shapes),
                tuple([stored.outputs[output] for output in outputs]),
                places,
                targets,
                node.shape,
                node.options,
            )
        return None

    def _residual(self, argument: Any) -> Any:
        """Return the register of what a rule node keeps, or its shape."""
        if type(argument) is Held:
            return self._array(argument.key, lambda: argument.array, is_static=False)
        cell = getattr(argument, "cell", None)
        return argument if cell is None else self.register(cell)

    def add(self, entry: Entry | None) -> None:
        """Note what has been done."""
        if entry is not None:
            self.entries.append(entry)


def _has_arrays(value: Any) -> bool:
    """Whether there are arrays in an option of a rule."""
    if isinstance(value, (tuple, list)):
        return any(map(_has_arrays, value))
    return is_array(value)


class _Noting:
    """Where something cannot be noted, the journal is not whole."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __enter__(self) -> None:
        if not self._journal.is_whole:
            self._journal.entries.clear()

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> bool:
        if kind is _UnknownSourceError:
            self._journal.is_whole = False
            return True
        return False
