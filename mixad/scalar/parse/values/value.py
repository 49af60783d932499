"""What a name of the user's function stands for: the questions that every kind answers; numbers.

``frame`` is the `Frame` of the function that is compiled: it stands above these classes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from mixad.errors import KernelError
from mixad.scalar.evaluate import constant
from mixad.scalar.ir import Atom, Const
from mixad.scalar.promotion_rules import Rules, Typed, Weak
from mixad.scalar.types import F32, ScalarType, complex_of

__all__ = ["BoundName", "Mismatch", "NotKnownError", "Number", "Scalar", "Value", "describe_kind",
           "parts_type"]  # fmt: skip


class Mismatch(Exception):  # noqa: N818  (caught at once, never shown)
    """Two values have no common type."""


class NotKnownError(Exception):
    """A value is computed when the kernel runs."""


class Value:
    """What a name stands for; a kind of value refuses what it does not answer.

    A value is made of ``parts``: a tuple of its items, a complex number of two real ones.  Paths
    that meet give a name one *prototype*: a value with zeros in place of the numbers.
    """

    __slots__ = ()

    has_attributes: ClassVar[bool] = False
    """Whether a value that is computed may have attributes, too, other than those of numbers."""
    has_axes: ClassVar[bool] = False
    """Whether one pair of brackets takes an index for each of its axes."""

    # -- what it is ------------------------------------------------------------------------------

    def describe(self) -> str:
        """Describe its type for a message."""
        raise NotImplementedError

    def suggestion(self, spelled: str) -> str:
        """Return what to write in its place where a number is needed."""
        return "call it"

    @property
    def is_called(self) -> bool:
        """Whether it is there to be called."""
        return False

    def is_object(self, value: Any) -> bool:
        """Whether it is this object of Python: None, a built-in function."""
        return False

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex number, or an array of such."""
        return False

    @property
    def is_python_number(self) -> bool | None:
        """Whether a number is one of Python, which adapts to arrays; None for anything else."""
        return None

    def known_object(self) -> Any:
        """Return the Python object that it is; raise NotKnownError where that is not known."""
        raise NotKnownError

    def known_integer(self, frame: Any) -> int | None:
        """Return the integer or bool that it is; None where it is none, or is not known."""
        return None

    # -- what is done with it --------------------------------------------------------------------

    def number(self, frame: Any, node: ast.expr) -> Number:
        """Return it as a number; an array from outside is taken element by element."""
        raise self._not_a_number(frame, node, "number")

    def scalar(self, frame: Any, node: ast.expr) -> Scalar:
        """Return it as a real number."""
        return self.number(frame, node).scalar(frame, node)

    def _not_a_number(self, frame: Any, node: ast.expr, needed: str) -> KernelError:
        error: KernelError = frame.type_error(
            node,
            f"`{ast.unparse(node)}` is {describe_kind(self)}, a {needed} is needed here",
            self.suggestion(ast.unparse(node)),
        )
        return error

    def attribute(self, frame: Any, name: str) -> Value | None:
        """Return what an attribute of it is, None where it has none of that name."""
        return None

    def refused_attribute(self, spelled: str, name: str) -> tuple[str, str]:
        """Return the message and the hint for an attribute that it does not have in a kernel."""
        message = f"{spelled!r} is {describe_kind(self)} here: it has no attribute {name!r}"
        return message, self._instead_of_attribute()

    def _instead_of_attribute(self) -> str:
        return "use functions and operators of numbers"

    def instead_of_loop(self) -> str:
        """Return what a loop can run over instead."""
        return "for i in range(...)"

    def instead_of_sequence(self, *, is_length: bool) -> str:
        """Return what does for it what Python's functions do for tuples."""
        return "a tuple, such as (x, y)"

    def elements(self) -> tuple[Value, ...] | None:
        """Return its items, None for what is no tuple, list or small array."""
        return None

    def item(self, frame: Any, node: ast.Subscript, indices: Sequence[ast.expr]) -> Value:
        """Return what is at some indices."""
        spelled = ast.unparse(node.value)
        raise frame.type_error(
            node,
            f"`{spelled}` is {describe_kind(self)}: it cannot be indexed",
            self._instead_of_index(frame, node, spelled),
        )

    def _instead_of_index(self, frame: Any, node: ast.Subscript, spelled: str) -> str:
        return "index what it returns"

    def with_item(
        self,
        frame: Any,
        target: ast.Subscript,
        indices: Sequence[tuple[ast.Subscript, ast.expr]],
        value: Value,
    ) -> Value:
        """Return it with an item replaced; each index comes with its brackets."""
        spelled = f"`{ast.unparse(indices[0][0].value)}` is {describe_kind(self)}"
        raise frame.type_error(
            target,
            f"{spelled}: it has no items to assign to",
            "a list, [0.0] * 3, or an array, np.zeros(3), that the kernel makes",
        )

    # -- what it is made of ----------------------------------------------------------------------

    def parts(self) -> tuple[Value, ...]:
        """Return the values that it is made of."""
        return ()

    def of_parts(self, parts: Sequence[Value]) -> Self:
        """Return a value of its kind that is made of others."""
        return self

    def same_form(self, other: Value) -> bool:
        """Whether another value differs from it in its parts only, and in the names it has."""
        return False

    def same_kind(self, other: Value) -> bool:
        """Whether one of two values can be chosen when the kernel runs: their types are one."""
        return self.same_form(other) and all(
            a.same_kind(b) for a, b in zip(self.parts(), other.parts(), strict=True)
        )

    def owns_list(self) -> bool:
        """Whether it is, or holds, a list or array that may be assigned to."""
        return any(part.owns_list() for part in self.parts())

    def holds_shared(self) -> bool:
        """Whether it is, or holds, a list or array that goes by another name."""
        return any(part.holds_shared() for part in self.parts())

    def mark_shared(self) -> Self:
        """Return it with its lists and arrays marked as going by another name, too."""
        if not self.owns_list():
            return self
        return self.of_parts([part.mark_shared() for part in self.parts()])

    def mark_like(self, other: Value) -> Self:
        """Return it marked as shared if it or another of its form is."""
        return self

    def structure(self) -> tuple[Any, tuple[Any, ...]] | None:
        """Return its class, and what is static of it, where it is a result; None for a number."""
        return None

    # -- one type for the values of several paths ------------------------------------------------

    def prototype(self) -> Value:
        """Return it with zeros in place of its numbers."""
        return self.of_parts([part.prototype() for part in self.parts()])

    def join(self, rules: Rules, other: Value) -> Value:
        """Return the prototype that two prototypes fit into; raise Mismatch if there is none."""
        if self != other:
            raise Mismatch
        return self

    def atoms(self, frame: Any, like: Value, node: Any) -> list[Atom]:
        """Return its numbers, converted to the types of a prototype."""
        pairs = zip(self.parts(), like.parts(), strict=True)
        return [atom for part, other in pairs for atom in part.atoms(frame, other, node)]

    def zeros(self) -> list[Atom]:
        """Return the numbers in a prototype."""
        return [atom for part in self.parts() for atom in part.zeros()]

    def rebuilt(self, atoms: Iterator[Atom]) -> Self:
        """Return a value like a prototype, whose numbers are ``atoms``, taken in order."""
        return self.of_parts([part.rebuilt(atoms) for part in self.parts()])


class BoundName(NamedTuple):
    """The value of a name, and the line that gave it."""

    value: Value
    line: int


class Number(Value):
    """A real or complex number."""

    __slots__ = ()

    @property
    def re(self) -> Scalar:
        """Its real part."""
        raise NotImplementedError

    @property
    def im(self) -> Scalar | None:
        """Its imaginary part, None for a real number."""
        raise NotImplementedError

    @property
    def typed(self) -> Typed:
        """The type of its parts."""
        return self.re.typed

    @property
    def is_complex(self) -> bool:
        return self.im is not None

    @property
    def is_python_number(self) -> bool:
        return self.typed.weak is True

    def number(self, frame: Any, node: ast.expr) -> Self:
        return self

    def truth(self, frame: Any) -> Atom:
        """Return whether it is not zero."""
        raise NotImplementedError

    def known_object(self) -> Any:
        re, im = self.re.constant, self.im.constant if self.im else 0
        if re is None or im is None:
            raise NotKnownError
        type_ = complex_of(self.typed.type) if self.is_complex else self.typed.type
        value = complex(re, im) if self.is_complex else re
        return (_PYTHON[type_.kind] if self.typed.weak else type_.dtype.type)(value)

    def strong(self) -> Self:
        """Return it as a number that does not adapt to arrays."""
        raise NotImplementedError

    def of_type(self, typed: Typed) -> Number:
        """Return the prototype of its kind that has parts of a type."""
        raise NotImplementedError

    def same_kind(self, other: Value) -> bool:
        if not isinstance(other, Number) or self.is_complex != other.is_complex:
            return False
        return self.typed == other.typed

    def prototype(self) -> Number:
        return self.of_type(self.typed)

    def join(self, rules: Rules, other: Value) -> Number:
        if not isinstance(other, Number):
            raise Mismatch
        wider = self if self.is_complex else other
        typed = parts_type(rules, [self, other])
        if typed is None:
            raise Mismatch
        return wider.of_type(typed)


def parts_type(rules: Rules, numbers: Sequence[Number]) -> Typed | None:
    """Return the type of what several numbers become together, None where there is none.

    If one is complex that is the type of its parts, for which 16 bits are too few.
    """
    found: Typed | None = numbers[0].typed
    for other in numbers[1:]:
        found = (
            None
            if found is None
            else found
            if found == other.typed
            else rules.join(found, other.typed)
        )
    is_complex = any(n.is_complex for n in numbers)
    return found._replace(type=F32) if found and is_complex and found.type.is_narrow else found


@dataclass(frozen=True, slots=True)
class Scalar(Number):
    """A real number that the program computes, receives or contains."""

    atom: Atom
    weak: Weak

    @property
    def typed(self) -> Typed:
        return Typed(self.atom.type, self.weak)

    @property
    def re(self) -> Scalar:
        return self

    @property
    def im(self) -> None:
        """None: it is real."""
        return None

    def describe(self) -> str:
        return str(self.typed)

    def scalar(self, frame: Any, node: ast.expr) -> Scalar:
        return self

    @property
    def constant(self) -> bool | int | float | None:
        """Its value, None where that is not known."""
        return self.atom.value if isinstance(self.atom, Const) else None

    def known_integer(self, frame: Any) -> int | None:
        known: Scalar = frame.constant_integer(self)
        if known.constant is None or known.atom.type.is_float:
            return None
        return bool(known.constant) if known.atom.type.is_bool else int(known.constant)

    def truth(self, frame: Any) -> Atom:
        if self.atom.type.is_bool:
            return self.atom
        truth: Atom = frame.builder.op("ne", self.atom, constant(0, self.atom.type))
        return truth

    def attribute(self, frame: Any, name: str) -> Value | None:
        parts = {"real": self, "imag": Scalar(constant(0, self.atom.type), self.weak)}
        return parts.get(name)

    def _instead_of_index(self, frame: Any, node: ast.Subscript, spelled: str) -> str:
        arguments = frame.info.node.args
        parameters = [
            a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        ]
        if frame.caller is not None or spelled not in parameters:
            return (
                "numbers have no items: leave the index out; a kernel sees one element of each "
                "array"
            )
        signature = (
            f"annotate {spelled} as mixad.Array to pass it whole, or give a signature, by which "
            "its last axes belong to each element"
        )
        names = {each.id for each in ast.walk(node.slice) if isinstance(each, ast.Name)}
        has_slice = any(isinstance(each, ast.Slice) for each in ast.walk(node.slice))
        if has_slice or not names.issubset(parameters):
            return signature
        index = ast.unparse(node.slice).strip("()")
        index = index if names else f"..., {index}"  # without names, the same for all elements
        return f"index before the call, and pass {spelled}[{index}] as an argument; {signature}"

    def strong(self) -> Scalar:
        return Scalar(self.atom, False)

    def of_type(self, typed: Typed) -> Scalar:
        return Scalar(constant(0, typed.type), typed.weak)

    def atoms(self, frame: Any, like: Value, node: Any) -> list[Atom]:
        assert isinstance(like, Number)
        type_: ScalarType = like.typed.type
        own = frame.adopt(self, type_, node)
        return [own, constant(0, type_)] if like.is_complex else [own]

    def zeros(self) -> list[Atom]:
        return [self.atom]

    def rebuilt(self, atoms: Iterator[Atom]) -> Self:
        return type(self)(next(atoms), self.weak)


_PYTHON: dict[str, Any] = {
    "bool": bool, "int": int, "uint": int, "float": float, "complex": complex,
}  # fmt: skip


def describe_kind(value: Value) -> str:
    """Describe a value's type for a message, with the article."""
    kind = value.describe()
    if kind == "NoneType":
        return "None"
    return f"an {kind}" if kind.startswith("array") else f"a {kind}"
