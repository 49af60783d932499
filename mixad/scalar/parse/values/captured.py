"""Arrays that are not taken apart: those from outside, and arguments that are passed whole."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mixad.scalar.evaluate import constant
from mixad.scalar.ir import Atom, Var
from mixad.scalar.parse.argument import Argument
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.snapshot import Address
from mixad.scalar.parse.values.complex import number_of_parts, types_of_parts
from mixad.scalar.parse.values.value import Number, Scalar, Value

__all__ = ["Captured", "Indexed", "WholeArray"]


@dataclass(frozen=True, slots=True)
class WholeArray(Value):
    """An array whose elements are read by index."""

    has_axes: ClassVar[bool] = True
    name: str
    argument: Argument

    def item(self, frame: Frame, node: ast.Subscript, indices: Sequence[ast.expr]) -> Number:
        for index in indices:
            if isinstance(index, ast.Slice):
                raise frame.error(
                    index,
                    f"a kernel reads single elements: a slice of {self.name!r} is an array",
                    "read one element after another in a loop over range(...)",
                )
        rank = self.argument.indices
        if len(indices) != rank or not indices:
            raise frame.type_error(
                node, f"{self.name!r} has {rank} axes, it is indexed by {len(indices)}",
                "give one integer for each axis",
            )  # fmt: skip
        places = [_index(frame, index) for index in indices]
        arrays, lead = self.arrays_read(frame)
        with frame.at_node(node):
            loaded = [frame.builder.load(array, *lead, *places) for array in arrays]
        return number_of_parts([Scalar(atom, self.argument.weak) for atom in loaded])

    def arrays_read(self, frame: Frame) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        """Return the array params that it is, and the indices that the function does not write."""
        raise NotImplementedError


def _index(frame: Frame, node: ast.expr) -> Atom:
    index = frame.scalar(node)
    if not index.atom.type.is_integer:
        raise frame.type_error(node, f"an index is an integer, not {index.typed}", "use int(...)")
    return index.atom


@dataclass(frozen=True, slots=True)
class Captured(WholeArray):
    """An array or tracer from outside: a scalar per element, or an array if it is indexed."""

    address: Address

    @property
    def is_complex(self) -> bool:
        return self.argument.type.is_complex

    @property
    def is_python_number(self) -> bool:
        return self.argument.weak is True

    def describe(self) -> str:
        return (
            f"captured array of {self.argument.type}"
            if self.argument.rank
            else str(self.argument.type)
        )

    def number(self, frame: Frame, node: ast.expr) -> Number:
        return frame.context.capture(self.name, self.address, self.argument)

    def arrays_read(self, frame: Frame) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        return frame.context.capture_arrays(self.name, self.address, self.argument), ()

    def prototype(self) -> Number:
        types = types_of_parts(self.argument.type).values()
        return number_of_parts([Scalar(constant(0, type_), self.argument.weak) for type_ in types])

    def atoms(self, frame: Frame, like: Value, node: ast.expr) -> list[Atom]:
        return self.number(frame, node).atoms(frame, like, node)

    def instead_of_loop(self) -> str:
        if not self.argument.rank:
            return super(Captured, self).instead_of_loop()
        return f"for i in range({self.name}.shape[0]), and {self.name}[i] in the loop"

    def instead_of_sequence(self, *, is_length: bool) -> str:
        if not self.argument.rank:
            return super(Captured, self).instead_of_sequence(is_length=is_length)
        if is_length:
            return f"{self.name}.shape[0]"
        return f"a loop over range({self.name}.shape[0]), or the array's result before the call"


@dataclass(frozen=True, slots=True)
class Indexed(WholeArray):
    """An argument that is read by index: one array param, or two if it is complex.

    ``lead`` are the indices of its first axes, which the function does not write.
    """

    arrays: tuple[Var, ...]
    lead: tuple[Var, ...] = ()

    def describe(self) -> str:
        why = "" if self.argument.batch is None else ", as its core is too long to be variables"
        return f"array of {self.argument.type} that is read by index{why}"

    def suggestion(self, spelled: str) -> str:
        return f"read an element of it, {self._element(spelled)}"

    def _element(self, spelled: str) -> str:
        """Return how an element is written."""
        return f"{spelled}[{', '.join('ijklmn'[: self.argument.indices])}]"

    def _instead_of_attribute(self) -> str:
        return "pass its lengths as arguments"

    def arrays_read(self, frame: Frame) -> tuple[tuple[Var, ...], tuple[Var, ...]]:
        return self.arrays, self.lead

    def instead_of_loop(self) -> str:
        return f"for i in range(n), and {self._element(self.name)} in the loop, with n an argument"

    def instead_of_sequence(self, *, is_length: bool) -> str:
        if is_length:
            return f"pass the length of {self.name} as an argument"
        return (
            f"a loop over range(n), and {self._element(self.name)} in the loop, with n an argument"
        )
