"""The state of compiling one call of one function."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, cast

from mixad.errors import KernelError, KernelSyntaxError, KernelTypeError, SourceLocation
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, Atom, Const, Line, Var
from mixad.scalar.parse.argument import Argument
from mixad.scalar.parse.info import FunctionInfo
from mixad.scalar.parse.integers import Formula, compute, fits, overflow
from mixad.scalar.parse.other_libraries import is_ours
from mixad.scalar.parse.refusals import refusal
from mixad.scalar.parse.snapshot import Address, Snapshot, is_sequence, scalar_argument
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values.complex import Complex, number_of_parts, types_of_parts
from mixad.scalar.parse.values.value import BoundName, Number, Scalar, Value
from mixad.scalar.promotion_rules import Rules, Typed
from mixad.scalar.types import BOOL, F64, I64, ScalarType, part_of

__all__ = ["Capture", "Exit", "Frame", "ParseContext", "State", "is_false", "is_true"]

# A function may be active in itself so often, by way of functions passed as arguments.
_MAX_NESTED = 4

Exit: TypeAlias = Literal["break", "continue", "return"]


@dataclass(frozen=True)
class Capture:
    """A value from outside that the program takes as a parameter.

    If it has ``positions``, it is no one's value: it is the array of so many positions in a tuple.
    If it has ``elements``, it is an array of numbers of a ``type`` in a long tuple.
    """

    name: str  # as the user's function spells it
    address: Address  # where `Snapshot.value` finds it
    indexed: bool = False  # whether the parameter is an array that the program indexes
    positions: int = 0
    part: str = ""  # of complex numbers: "real" or "imag"
    elements: tuple[Address, ...] = ()
    type: ScalarType | None = None

    @property
    def spelled(self) -> str:
        """Its name in the program."""
        return f"{self.name}.{self.part}" if self.part else self.name


@dataclass
class State:
    """What holds at a point of a function: names, and the exits that have been taken before it.

    ``ended`` says that an exit has been taken on every path: control does not get here.
    """

    names: dict[str, BoundName] = field(default_factory=dict)
    exits: dict[Exit, Atom] = field(default_factory=dict)
    result: BoundName | None = None
    ended: bool = False

    def copy(self) -> State:
        """Return a state that changes independently."""
        return State(dict(self.names), dict(self.exits), self.result, self.ended)


@dataclass(eq=False)
class Table:
    """The numbers of one type in a long tuple, and the array parameters that have them."""

    elements: tuple[Address, ...]
    arrays: list[Var] = field(default_factory=list)


@dataclass(eq=False)
class ParseContext:
    """What the frames of one parse share."""

    builder: Builder
    rules: Rules
    snapshot: Snapshot
    expressions: Mapping[type, Callable[[Frame, Any], Value]]
    statements: Mapping[type, Callable[[Frame, Any], None]]
    run: Callable[[Frame, Sequence[ast.stmt]], None]
    captures: dict[Capture, Var] = field(default_factory=dict)
    adopted: dict[tuple[Var, ScalarType], SourceLocation] = field(default_factory=dict)
    formulas: dict[Var, Formula] = field(default_factory=dict)
    active: list[tuple[FunctionInfo, int]] = field(default_factory=list)
    depth: int = 0
    copies: int = 1  # of what is compiled now, by loops that are written out
    integers: dict[Var, tuple[Address, int]] = field(default_factory=dict)  # from outside
    needed: dict[Address, float] = field(default_factory=dict)  # which of them are known, up to
    elements: dict[Var, tuple[Var, int]] = field(default_factory=dict)  # of arrays of numbers
    tables: dict[Address, dict[Address, tuple[Table, int]]] = field(default_factory=dict)
    implicit: bool = False  # whether convergence loops are differentiated where they end
    family: Any = None  # of rules that are being compiled: see `scalar_rule_calls`

    def for_program(self, builder: Builder, family: Any) -> ParseContext:
        """Return what the frames of another program share: that of a rule."""
        return ParseContext(
            builder, self.rules, self.snapshot, self.expressions, self.statements, self.run,
            implicit=self.implicit, family=family,
        )  # fmt: skip

    def capture(self, name: str, address: Address, argument: Argument) -> Number:
        """Return a value from outside as a parameter of the program, a complex one as two."""
        numbers = []
        for part, type_ in types_of_parts(argument.type).items():
            key = Capture(name, address, part=part)
            if key not in self.captures:
                self.captures[key] = self.builder.param(key.spelled, type_, argument.kind)
            numbers.append(Scalar(self.captures[key], argument.weak))
        return number_of_parts(numbers)

    def capture_arrays(self, name: str, address: Address, argument: Argument) -> tuple[Var, ...]:
        """Return an array from outside as an array parameter; of complex numbers, as two."""
        types = types_of_parts(argument.type).items()
        keys = [(Capture(name, address, indexed=True, part=part), type_) for part, type_ in types]
        return tuple([self._array(key, ArrayType(type_, argument.rank)) for key, type_ in keys])

    def _array(self, key: Capture, type_: ArrayType) -> Var:
        if key not in self.captures:
            self.captures[key] = self.builder.array_param(key.spelled, type_)
        return self.captures[key]

    def element(self, name: str, address: Address, argument: Argument) -> Number:
        """Return a number in a long tuple: those of one type are the elements of an array."""
        root = address[:2]
        if root not in self.tables:
            self.tables[root] = _tables(self.snapshot.value(root), root)
        table, at = self.tables[root][address]
        if not table.arrays:
            spelled = name.partition("[")[0]
            for part, type_ in types_of_parts(argument.type).items():
                key = Capture(spelled, root, True, 0, part, table.elements, argument.type)
                table.arrays.append(self._array(key, ArrayType(type_, 1)))
        numbers = []
        for array in table.arrays:
            loaded = cast("Var", self.builder.load(array, self.builder.const(at, I64)))
            self.elements[loaded] = array, at
            numbers.append(Scalar(loaded, argument.weak))
        return number_of_parts(numbers)

    def positions(self, name: str, count: int) -> Var:
        """Return the array 0, 1, … of the positions in a tuple: reading it checks an index."""
        key = Capture(name, (), indexed=True, positions=count)
        return self._array(key, ArrayType(I64, 1))


@dataclass(eq=False)
class Frame:
    """One function being compiled into the program: names, source, and where values come from.

    ``index`` is the function's place in the snapshot, ``parent`` the frame around a nested
    function, ``caller`` the frame with the call, ``call`` the user's call of what this frame is
    part of if that is one of mixad's own functions, ``loop_head`` and ``loop_after`` the names that
    the innermost loop needs at its head and after it, ``hints`` the types that loops have carried
    when they were compiled before, as part of a loop around them: types only widen, so they start
    there.
    """

    context: ParseContext
    info: FunctionInfo
    index: int
    parent: Frame | None = None
    state: State = field(default_factory=State)
    loop_head: frozenset[str] = frozenset()
    loop_after: frozenset[str] = frozenset()
    hints: dict[int, dict[str, Value]] = field(default_factory=dict)
    caller: Frame | None = None
    call: Line | None = None

    @property
    def implicit(self) -> bool:
        """Whether loops that converge are differentiated where they end; series of ours are not."""
        return self.context.implicit and not self.info.is_ours

    @property
    def outermost(self) -> Frame:
        """The frame around all functions in which this one is nested."""
        return self if self.parent is None else self.parent.outermost

    def runs_in(self, info: FunctionInfo, index: int) -> bool:
        """Whether a function is being compiled around this frame, so that calling it recurs.

        One with the same code, but another object or other captured values, is another function.
        A nested function counts as called where it is defined: passing a function one that calls it
        again is no recursion.
        """
        frame: Frame | None = self
        while frame is not None:
            if frame.info is info and frame.index == index:
                return True
            frame = frame.parent or frame.caller
        return self.context.active.count((info, index)) >= _MAX_NESTED

    @property
    def builder(self) -> Builder:
        """The builder of the program."""
        return self.context.builder

    # -- evaluation ------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Return what an expression stands for, computing it where it is a number."""
        evaluate = self.context.expressions.get(type(node))
        if evaluate is None:
            raise self.unsupported_error(node)
        return evaluate(self, node)

    def scalar(self, node: ast.expr) -> Scalar:
        """Return the real number that an expression is."""
        return self.value(node).scalar(self, node)

    def number(self, node: ast.expr) -> Number:
        """Return the number that an expression is, real or complex."""
        return self.value(node).number(self, node)

    def truth(self, node: ast.expr) -> Atom:
        """Return whether an expression is true: a number is where it is not zero."""
        return self.number(node).truth(self)

    def convert(self, scalar: Scalar, to: Typed) -> Scalar:
        """Return a number in another type."""
        return Scalar(self.builder.cast(scalar.atom, to.type), to.weak)

    def adopt(self, scalar: Scalar, type_: ScalarType, node: Located) -> Atom:
        """Return a number in the type that it takes beside others.

        A Python integer must fit: a literal is checked now, one from outside at every call.
        """
        atom = scalar.atom
        if scalar.weak and type_.is_integer and atom.type == I64 != type_:
            if isinstance(atom, Var):
                self.context.adopted.setdefault((atom, type_), self.info.text.locate(node))
            elif not fits(int(atom.value), type_):
                raise overflow(self.info.text.locate(node), int(atom.value), type_)
        return self.builder.cast(atom, type_)

    def formula(self, result: Atom, formula: Formula, node: Located) -> None:
        """Note how a Python integer is computed: where it is known at every call, it must fit."""
        if isinstance(result, Var) and result not in self.context.formulas:
            self.context.formulas[result] = formula
            self.context.adopted[result, I64] = self.info.text.locate(node)

    def constant(self, value: bool | int | float) -> Scalar:
        """Return a Python number as a weak constant."""
        type_ = BOOL if isinstance(value, bool) else I64 if isinstance(value, int) else F64
        return Scalar(self.builder.const(value, type_), True)

    def complex_constant(self, value: complex, typed: Typed | None = None) -> Complex:
        """Return a complex number as a constant, a weak one unless a type of parts is given."""
        type_, weak = typed or Typed(F64, True)
        re, im = (Scalar(self.builder.const(v, type_), weak) for v in (value.real, value.imag))
        return Complex(re, im)

    # -- names -----------------------------------------------------------------------------------

    def assign(self, name: str, value: Value, node: Located) -> None:
        """Give a name a value."""
        self.state.names[name] = BoundName(value, node.lineno)

    def is_own(self, name: str) -> bool:
        """Whether a name is one of this function, or of those around it."""
        return name in self.info.local or (self.parent is not None and self.parent.is_own(name))

    def fields(self, value: Value, path: tuple[str, ...], node: ast.expr) -> Value:
        """Return what attributes of a value stand for; ``path`` begins with how it is spelled."""
        spelled = path[0]
        for name in path[1:]:
            found = value.attribute(self, name)
            if found is None:
                raise self.type_error(node, *value.refused_attribute(spelled, name))
            value, spelled = found, f"{spelled}.{name}"
        return value

    def constant_integer(self, scalar: Scalar, most: float = math.inf) -> Scalar:
        """Return an integer as a constant, if it is computed from integers from outside alone.

        The program is then one for these integers; where one is larger than ``most``, for all that
        are.  What a rule reads stays a parameter: rules are compiled once for all calls.
        """
        read: dict[Address, int] = {}
        value = self._evaluate_integer(scalar.atom, read, {})
        if value is None or not read or self.context.family is not None:
            return scalar
        needed = self.context.needed
        needed.update({at: max(most, needed.get(at, 0)) for at in read})
        if any(abs(number) > most for number in read.values()):
            return scalar
        return Scalar(self.builder.const(value, scalar.atom.type), scalar.weak)

    def _evaluate_integer(
        self, atom: Atom, read: dict[Address, int], known: dict[Var, int | None]
    ) -> int | None:
        """Return an integer that depends on integers from outside alone; add them to ``read``."""
        if isinstance(atom, Const):
            return None if atom.type.is_float else int(atom.value)
        if atom in self.context.integers:
            address, value = self.context.integers[atom]
            read[address] = value
            return value
        formula = self.context.formulas.get(atom)
        if formula is not None and atom not in known:
            operands = [self._evaluate_integer(a, read, known) for a in formula.operands]
            known[atom] = compute(formula.name, operands)
        return known.get(atom)

    def known_number(self, value: Any, argument: Argument) -> Number:
        """Return a number from outside as a constant."""
        if argument.type.is_complex:
            typed = Typed(part_of(argument.type), argument.weak)
            return self.complex_constant(complex(value), typed)
        return Scalar(self.builder.const(value, argument.type), argument.weak)

    # -- exits -----------------------------------------------------------------------------------

    def exit(self, kind: Exit) -> Atom:
        """Return whether an exit has been taken."""
        return self.state.exits.get(kind) or self.builder.const(False, BOOL)

    def is_left(self) -> Atom:
        """Return whether the rest of the block is skipped."""
        flag: Atom = self.builder.const(False, BOOL)
        for taken in self.state.exits.values():
            flag = self.builder.op("or", flag, taken)
        return flag

    def pass_exit(self, kind: Exit) -> None:
        """Go on after the end of what an exit leaves."""
        flag = self.state.exits.pop(kind, None)
        if flag is not None and not is_false(flag):
            self.state.ended = False

    @contextmanager
    def branch(self, state: State) -> Iterator[State]:
        """Work on a copy of a state; the state before is restored afterwards."""
        before, self.state = self.state, state.copy()
        try:
            yield self.state
        finally:
            self.state = before

    @contextmanager
    def at_node(self, node: Located) -> Iterator[None]:
        """Let what is computed meanwhile come from one node: messages at run time point at it."""
        before, self.builder.line = self.builder.line, self.with_call(self.info.text.span(node))
        try:
            yield
        finally:
            self.builder.line = before

    def with_call(self, line: Line) -> Line:
        """Return a line of the function, with the user's call if it is one of mixad's own."""
        return line if self.call is None else replace(line, call=self.call)

    def call_at(self, node: Located, filename: str) -> Line | None:
        """Return the user's call of a function in a file of mixad's own; None for others."""
        if self.call is None and is_ours(filename):
            return self.info.text.span(node)
        return self.call

    # -- refusals --------------------------------------------------------------------------------

    def error(
        self,
        node: Located,
        message: str,
        hint: str | None = None,
        kind: type[KernelError] = KernelSyntaxError,
    ) -> KernelError:
        """Return an error at a node."""
        return kind.at(self.info.text.locate(node), message, hint)

    def type_error(self, node: Located, message: str, hint: str | None = None) -> KernelError:
        """Return an error about types at a node."""
        return self.error(node, message, hint, KernelTypeError)

    def unsupported_error(self, node: ast.expr | ast.stmt) -> KernelError:
        """Return the error for a construct that cannot be compiled."""
        return self.error(node, *refusal(node))


def _tables(value: Any, root: Address) -> dict[Address, tuple[Table, int]]:
    """Return for each number in a tuple which of those of its type it is."""
    found: dict[type, list[Address]] = {}

    def collect(value: Any, address: Address) -> None:
        if is_sequence(value):
            for i, item in enumerate(value):
                collect(item, (*address, i))
        elif scalar_argument(value) is not None:
            found.setdefault(type(value), []).append(address)

    collect(value, root)
    tables = [Table(tuple(addresses)) for addresses in found.values()]
    return {address: (t, at) for t in tables for at, address in enumerate(t.elements)}


def is_true(atom: Atom) -> bool:
    """Whether an atom is the constant True."""
    return isinstance(atom, Const) and bool(atom.value)


def is_false(atom: Atom) -> bool:
    """Whether an atom is the constant False."""
    return isinstance(atom, Const) and not atom.value
