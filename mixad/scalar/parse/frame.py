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
from mixad.scalar.parse.info import MISSING, FunctionInfo
from mixad.scalar.parse.integers import Formula, computed, fits, overflow
from mixad.scalar.parse.names import dotted
from mixad.scalar.parse.other_libraries import is_ours
from mixad.scalar.parse.refusals import refusal
from mixad.scalar.parse.snapshot import (
    Address,
    Snapshot,
    is_sequence,
    plain_number,
    scalar_argument,
)
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values import (
    Array,
    Bound,
    Captured,
    Complex,
    Helper,
    List,
    Named,
    Number,
    Object,
    Record,
    Scalar,
    Tuple,
    Value,
    a_kind_of,
    field_of,
    kind_of_object,
    named_tuple,
    refused_attribute,
    shape_of_array,
    way_out,
)
from mixad.scalar.promotion_rules import Rules, Typed
from mixad.scalar.types import BOOL, F64, I64, ScalarType, part_of

__all__ = ["PARTS", "Capture", "Exit", "Frame", "State", "Walk"]

# A function may be active in itself so often, by way of functions passed as arguments.
_MAX_NESTED = 4

Exit: TypeAlias = Literal["break", "continue", "return"]


@dataclass(frozen=True)
class Capture:
    """A value from outside that the program takes as a parameter.

    Attributes
    ----------
    name : str
        As the user's function spells it.
    address : tuple of int
        Where `Snapshot.value` finds it.
    indexed : bool
        Whether the parameter is an array that the program indexes.
    positions : int
        If not 0, the value is no one's: it is the array of so many positions in a tuple.
    part : str
        Of complex numbers, which part it is: `"real"` or `"imag"`.
    elements : tuple of Address
        Where the numbers of a long tuple are that are the elements of this array.
    type : ScalarType or None
        The type of these.
    """

    name: str
    address: Address
    indexed: bool = False
    positions: int = 0
    part: str = ""
    elements: tuple[Address, ...] = ()
    type: ScalarType | None = None

    @property
    def spelled(self) -> str:
        """Its name in the program."""
        return f"{self.name}.{self.part}" if self.part else self.name


PARTS = ("real", "imag")
"""The attributes of numbers."""


@dataclass
class State:
    """What holds at a point of a function: names, and the exits that have been taken before it.

    ``ended`` says that an exit has been taken on every path: control does not get here.
    """

    names: dict[str, Bound] = field(default_factory=dict)
    exits: dict[Exit, Atom] = field(default_factory=dict)
    result: Bound | None = None
    ended: bool = False

    def copy(self) -> State:
        """Return a state that changes independently."""
        return State(dict(self.names), dict(self.exits), self.result, self.ended)


@dataclass(eq=False)
class Table:
    """The numbers of one type in a long tuple, and the array parameters that have them."""

    elements: tuple[Address, ...]
    arrays: tuple[Var, ...] = ()


@dataclass(eq=False)
class Walk:
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
    family: Any = None  # of rules that are being compiled around this walk, see `ruled`

    def capture(self, name: str, address: Address, argument: Argument) -> Number:
        """Return a value from outside as a parameter of the program, a complex one as two."""
        if not argument.type.is_complex:
            return self._captured(Capture(name, address), argument.type, argument)
        part = part_of(argument.type)
        re, im = (Capture(name, address, part=p) for p in PARTS)
        return Complex(self._captured(re, part, argument), self._captured(im, part, argument))

    def _captured(self, key: Capture, type_: ScalarType, argument: Argument) -> Scalar:
        if key not in self.captures:
            self.captures[key] = self.builder.param(key.spelled, type_, argument.kind)
        return Scalar(self.captures[key], argument.weak)

    def capture_arrays(self, array: Captured) -> tuple[Var, ...]:
        """Return an array from outside as an array parameter; of complex numbers, as two."""
        type_ = array.argument.type
        if not type_.is_complex:
            return (self._captured_array(array, type_),)
        return tuple(self._captured_array(array, part_of(type_), part) for part in PARTS)

    def _captured_array(self, array: Captured, type_: ScalarType, part: str = "") -> Var:
        key = Capture(array.name, array.address, indexed=True, part=part)
        if key not in self.captures:
            kind = ArrayType(type_, array.argument.rank)
            self.captures[key] = self.builder.array_param(key.spelled, kind)
        return self.captures[key]

    def element(self, name: str, address: Address, argument: Argument) -> Number:
        """Return a number in a long tuple: those of one type are the elements of an array."""
        root = address[:2]
        if root not in self.tables:
            self.tables[root] = _tables(self.snapshot.value(root), root)
        table, at = self.tables[root][address]
        if not table.arrays:
            parts = PARTS if argument.type.is_complex else ("",)
            name = name.partition("[")[0]
            table.arrays = tuple([self._array_of(name, table, argument.type, p) for p in parts])
        found = [Scalar(self._loaded(array, at), argument.weak) for array in table.arrays]
        return Complex(*found) if len(found) == 2 else found[0]

    def _loaded(self, array: Var, at: int) -> Var:
        var = cast("Var", self.builder.load(array, self.builder.const(at, I64)))
        self.elements[var] = array, at
        return var

    def _array_of(self, name: str, table: Table, type_: ScalarType, part: str) -> Var:
        key = Capture(name, table.elements[0][:2], True, 0, part, table.elements, type_)
        kind = ArrayType(part_of(type_) if part else type_, 1)
        self.captures[key] = self.builder.array_param(key.spelled, kind)
        return self.captures[key]

    def positions(self, name: str, count: int) -> Var:
        """Return the array 0, 1, … of the positions in a tuple: reading it checks an index."""
        key = Capture(name, (), indexed=True, positions=count)
        if key not in self.captures:
            self.captures[key] = self.builder.array_param(name, ArrayType(I64, 1))
        return self.captures[key]


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

    walk: Walk
    info: FunctionInfo
    index: int
    parent: Frame | None = None
    state: State = field(default_factory=State)
    loop_head: frozenset[str] = frozenset()
    loop_after: frozenset[str] = frozenset()
    hints: dict[int, dict[str, Any]] = field(default_factory=dict)
    caller: Frame | None = None
    call: Line | None = None

    @property
    def implicit(self) -> bool:
        """Whether loops that converge are differentiated where they end; series of ours are not."""
        return self.walk.implicit and not self.info.is_ours

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
        return self.walk.active.count((info, index)) >= _MAX_NESTED

    @property
    def builder(self) -> Builder:
        """The builder of the program."""
        return self.walk.builder

    # -- evaluation ------------------------------------------------------------------------------

    def value(self, node: ast.expr) -> Value:
        """Return what an expression stands for, computing it where it is a number."""
        evaluate = self.walk.expressions.get(type(node))
        if evaluate is None:
            raise self.unsupported(node)
        return evaluate(self, node)

    def scalar(self, node: ast.expr) -> Scalar:
        """Return the number that an expression is."""
        return self.as_scalar(self.value(node), node)

    def number(self, node: ast.expr) -> Number:
        """Return the number that an expression is, real or complex."""
        return self.as_number(self.value(node), node)

    def as_number(self, value: Value, node: ast.expr) -> Number:
        """Return a value as a number; an array from outside is taken element by element."""
        if isinstance(value, Captured):
            return self.walk.capture(value.name, value.address, value.argument)
        if isinstance(value, Number):
            return value
        raise self.not_a_number(value, node)

    def as_scalar(self, value: Value, node: ast.expr) -> Scalar:
        """Return a value as a real number."""
        number = self.as_number(value, node)
        if isinstance(number, Scalar):
            return number
        raise self.not_a_number(number, node)

    def truth(self, node: ast.expr) -> Atom:
        """Return whether an expression is true: a number is where it is not zero."""
        return self.truth_of(self.number(node))

    def truth_of(self, number: Number) -> Atom:
        """Return whether a number is not zero."""
        if isinstance(number, Complex):
            return self.builder.op("or", self.truth_of(number.re), self.truth_of(number.im))
        atom = number.atom
        return (
            atom
            if atom.type.is_bool
            else self.builder.op("ne", atom, self.builder.const(0, atom.type))
        )

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
                self.walk.adopted.setdefault((atom, type_), self.info.text.locate(node))
            elif not fits(int(atom.value), type_):
                raise overflow(self.info.text.locate(node), int(atom.value), type_)
        return self.builder.cast(atom, type_)

    def formula(self, result: Atom, formula: Formula, node: Located) -> None:
        """Note how a Python integer is computed: where it is known at every call, it must fit."""
        if isinstance(result, Var) and result not in self.walk.formulas:
            self.walk.formulas[result] = formula
            self.walk.adopted[result, I64] = self.info.text.locate(node)

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
        self.state.names[name] = Bound(value, node.lineno)

    def lookup(self, node: ast.Name | ast.Attribute) -> Value:
        """Return what a name or an attribute chain stands for."""
        path = dotted(node, self.info.inside)
        if path is None:
            raise self.unsupported(node)
        frame: Frame | None = self
        while frame is not None:
            if path[0] in frame.info.local:
                return frame.local(path, node, self)
            if frame.parent is None:
                return frame.free(path, node, self)
            frame = frame.parent
        raise AssertionError("a frame chain ends in a free name")

    def is_own(self, name: str) -> bool:
        """Whether a name is one of this function, or of those around it."""
        frame: Frame | None = self
        while frame is not None:
            if name in frame.info.local:
                return True
            frame = frame.parent
        return False

    def local(self, path: tuple[str, ...], node: ast.expr, reader: Frame) -> Value:
        """Return the value of a name of this function."""
        bound = self.state.names.get(path[0])
        if bound is None:
            raise reader.error(
                node, f"{path[0]!r} is read before it is assigned", f"assign {path[0]!r} first"
            )
        if len(path) > 1:
            found = self._attribute(bound.value, path, node, reader)
            if found is not None:
                return found
            return reader.fields(bound.value, path, node)
        return bound.value

    def part(self, number: Number, name: str) -> Scalar | None:
        """Return what an attribute of a number is: its real or its imaginary part."""
        if name not in PARTS:
            return None
        if isinstance(number, Complex):
            return number.re if name == "real" else number.im
        zero = Scalar(self.builder.const(0, number.atom.type), number.weak)
        return number if name == "real" else zero

    def fields(self, value: Value, path: tuple[str, ...], node: ast.expr) -> Value:
        """Return what attributes of a value stand for; ``path`` begins with how it is spelled."""
        spelled = path[0]
        for name in path[1:]:
            found = self._field(value, name)
            if found is None:
                message, hint = refused_attribute(value, spelled, name)
                raise self.error(node, message, hint, KernelTypeError)
            value, spelled = found, f"{spelled}.{name}"
        return value

    def _field(self, value: Value, name: str) -> Value | None:
        """Return what one attribute of a value is."""
        if isinstance(value, Number):
            return self.part(value, name)
        if isinstance(value, Array) and name in ("shape", "ndim", "size"):
            shape = shape_of_array(value)
            sizes = {"ndim": len(shape), "size": math.prod(shape)}
            if name == "shape":
                return Tuple(tuple(map(self.constant, shape)))
            return self.constant(sizes[name])
        if isinstance(value, Record) and name in dict(value.static):
            return self.static(dict(value.static)[name], name)
        return field_of(value, name) if isinstance(value, Named | Record) else None

    def static(self, value: Any, name: str) -> Value:
        """Return what a static field or a default is; numbers, alone or in tuples, are known."""
        if not self.walk.rules.numpy_scalars:
            value = plain_number(value)
        argument = scalar_argument(value)
        if argument is not None:
            return self._known(value, argument)
        if isinstance(value, int):  # a member of an enumeration
            return self.constant(value)
        if isinstance(value, tuple):
            items = tuple([self.static(v, f"{name}[{i}]") for i, v in enumerate(value)])
            return named_tuple(items, type(value)) if hasattr(value, "_fields") else Tuple(items)
        return Object(value, name)

    def _attribute(
        self, value: Value, path: tuple[str, ...], node: ast.expr, reader: Frame
    ) -> Value | None:
        """Return what is read from a module or an object that a name of this function holds."""
        if not isinstance(value, Object):
            return None
        address = self.walk.snapshot.attributes.get((id(value.value), path[1:]))
        if address is None:
            return None
        return self.outside(address, ".".join((value.name or path[0], *path[1:])), node, reader)

    def free(self, path: tuple[str, ...], node: ast.expr, reader: Frame) -> Value:
        """Return the value of a name from outside."""
        address = (self.index, self.info.path_index[path])
        return self.outside(address, ".".join(path), node, reader)

    def outside(self, address: Address, name: str, node: ast.expr, reader: Frame) -> Value:
        """Return the value at an address of the snapshot."""
        snapshot = self.walk.snapshot
        value = snapshot.value(address)
        if value is MISSING:
            raise self._undefined(address, name, node, reader)
        if address in snapshot.functions:
            return Helper(snapshot.functions[address], kind_of_object(value))
        argument = snapshot.arguments.get(address)
        if argument is not None:
            return Captured(address, name, argument)
        return self._plain(value, address, name, node, reader)

    def _undefined(self, address: Address, name: str, node: ast.expr, reader: Frame) -> KernelError:
        """Return why a name has no value: a tuple may have been a named one at an earlier call."""
        found = self.walk.snapshot.sources[address[0]].without_attribute(address[1])
        if found is None or not is_sequence(found[1]):
            return reader.error(
                node, f"{name!r} is not defined", "define it before the call, or mend its spelling"
            )
        path, value = found
        holder, attribute = ".".join(path), name.split(".")[len(path)]
        return reader.error(
            node,
            f"{holder!r} is a {type(value).__name__} at this call, without a field {attribute!r}",
            f"make it a named tuple that has it, or read an item by its number: {holder}[0]",
        )

    def _plain(
        self, value: Any, address: Address, name: str, node: ast.expr, reader: Frame
    ) -> Value:
        argument = scalar_argument(value)
        if argument is not None:
            # Constants of modules, and elements of constant tuples, are in the snapshot's key.
            if address[:2] in self.walk.snapshot.constants:
                return self._known(value, argument)
            is_element = address[:2] in self.walk.snapshot.tables and self.walk.family is None
            take = self.walk.element if is_element else self.walk.capture
            captured = take(name, address, argument)
            if isinstance(captured, Scalar) and not captured.typed.type.is_float:
                self.walk.integers[cast("Var", captured.atom)] = address, int(value)
                if captured.typed == Typed(I64, True) and not is_element:  # of any size in Python
                    place = reader.info.text.locate(node)
                    self.walk.adopted.setdefault((cast("Var", captured.atom), I64), place)
            return captured
        if is_sequence(value):
            items = tuple(
                self.outside((*address, i), f"{name}[{i}]", node, reader) for i in range(len(value))
            )
            if hasattr(value, "_fields"):
                return named_tuple(items, type(value))
            return Tuple(items) if isinstance(value, tuple) else List(items, is_shared=True)
        return Object(value, name)

    def known(self, scalar: Scalar, most: float = math.inf) -> Scalar:
        """Return an integer as a constant, if it is computed from integers from outside alone.

        The program is then one for these integers; where one is larger than ``most``, for all that
        are.  What a rule reads stays a parameter: rules are compiled once for all calls.
        """
        read: dict[Address, int] = {}
        value = self._computed(scalar.atom, read, {})
        if value is None or not read or self.walk.family is not None:
            return scalar
        needed = self.walk.needed
        needed.update({at: max(most, needed.get(at, 0)) for at in read})
        if any(abs(number) > most for number in read.values()):
            return scalar
        return Scalar(self.builder.const(value, scalar.atom.type), scalar.weak)

    def _computed(
        self, atom: Atom, read: dict[Address, int], known: dict[Var, int | None]
    ) -> int | None:
        """Return an integer that depends on integers from outside alone; add them to ``read``."""
        if isinstance(atom, Const):
            return None if atom.type.is_float else int(atom.value)
        if atom in self.walk.integers:
            address, value = self.walk.integers[atom]
            read[address] = value
            return value
        formula = self.walk.formulas.get(atom)
        if formula is not None and atom not in known:
            operands = [self._computed(a, read, known) for a in formula.operands]
            known[atom] = computed(formula.name, operands)
        return known.get(atom)

    def _known(self, value: Any, argument: Argument) -> Number:
        if argument.type.is_complex:
            typed = Typed(part_of(argument.type), argument.weak)
            return self.complex_constant(complex(value), typed)
        return Scalar(self.builder.const(value, argument.type), argument.weak)

    # -- exits -----------------------------------------------------------------------------------

    def exit(self, kind: Exit) -> Atom:
        """Return whether an exit has been taken."""
        return self.state.exits.get(kind) or self.builder.const(False, BOOL)

    def exited(self) -> Atom:
        """Return whether the rest of the block is skipped."""
        flag: Atom = self.builder.const(False, BOOL)
        for taken in self.state.exits.values():
            flag = self.builder.op("or", flag, taken)
        return flag

    def passed(self, kind: Exit) -> None:
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
    def at(self, node: Located) -> Iterator[None]:
        """Let what is computed meanwhile come from one node: messages at run time point at it."""
        before, self.builder.line = self.builder.line, self.called(self.info.text.span(node))
        try:
            yield
        finally:
            self.builder.line = before

    def called(self, line: Line) -> Line:
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

    def unsupported(self, node: ast.expr | ast.stmt) -> KernelError:
        """Return the error for a construct that cannot be compiled."""
        return self.error(node, *refusal(node))

    def not_a_number(self, value: Value, node: ast.expr) -> KernelError:
        """Return the error for something else where a number is needed."""
        real = "real " if isinstance(value, Complex) else ""
        return self.type_error(
            node,
            f"`{ast.unparse(node)}` is {a_kind_of(value)}, a {real}number is needed here",
            way_out(value, ast.unparse(node)),
        )


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
