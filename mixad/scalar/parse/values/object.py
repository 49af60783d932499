"""Any other Python object: a built-in function, a module, None, a string."""

from __future__ import annotations

import ast
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import BuiltinFunctionType, FunctionType, MappingProxyType, MethodType
from typing import Any

import numpy as np

from mixad.scalar.parse.info import callee_of
from mixad.scalar.parse.values.value import Value

__all__ = ["Object", "compare_objects", "describe_object"]


@dataclass(frozen=True, slots=True)
class Object(Value):
    """An object of Python that is no number and holds none."""

    value: Any
    name: str = ""

    @property
    def is_called(self) -> bool:
        return callable(self.value)

    def is_object(self, value: Any) -> bool:
        return self.value is value

    def known_object(self) -> Any:
        return self.value

    def describe(self) -> str:
        return describe_object(self.value)

    def suggestion(self, spelled: str) -> str:
        if isinstance(self.value, np.complexfloating):  # of long doubles
            return f"complex({spelled})"
        for kind, hint in _INSTEAD.items():
            if isinstance(self.value, kind):
                return hint
        return "call it" if self.is_called else "pass its numbers as arguments"

    def instead_of_loop(self) -> str:
        return super(Object, self).instead_of_loop() if self.is_called else "make it a tuple"

    def same_form(self, other: Value) -> bool:
        return self == other

    def _instead_of_index(self, frame: Any, node: ast.Subscript, spelled: str) -> str:
        return self.suggestion(spelled)


def describe_object(value: Any) -> str:
    """Describe an object's type for a message; what is called like a function may be none."""
    if isinstance(value, type):
        return "class"
    if isinstance(value, functools.partial):
        return "functools.partial"
    if isinstance(value, _FUNCTIONS) or callee_of(value) is not None:
        return "function"
    return f"{type(value).__name__} object" if callable(value) else type(value).__name__


_FUNCTIONS = (FunctionType, MethodType, BuiltinFunctionType, np.ufunc, type(np.where))


def compare_objects(op: ast.cmpop, left: Value, right: Value) -> bool | None:
    """Return what is known of objects when a function is compiled.

    That is whether something is None, whether two objects are one, and whether strings, members
    of enumerations and None are equal.
    """
    objects = [v.value for v in (left, right) if isinstance(v, Object)]
    both = len(objects) == 2
    if isinstance(op, ast.Is | ast.IsNot) and (both or any(v is None for v in objects)):
        return (both and objects[0] is objects[1]) == isinstance(op, ast.Is)
    compared = both and all(isinstance(v, str | Enum | None) for v in objects)
    if isinstance(op, ast.Eq | ast.NotEq) and compared:
        return bool(objects[0] == objects[1]) == isinstance(op, ast.Eq)
    return None


_INSTEAD: Mapping[type, str] = MappingProxyType({
    set: "make it a tuple",
    dict: "read its numbers before the call, into names of their own",
    str: "a number or a bool stands for it; strings are only compared, with == and !=",
    type(None): "a number, or test it with `is None`",
    np.ndarray: "pass it as an argument",
})  # fmt: skip
