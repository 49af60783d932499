"""What names and attributes stand for: those of the function, and those from outside."""

from __future__ import annotations

import ast
from typing import Any, cast

from mixad.errors import KernelError
from mixad.scalar.ir import Var
from mixad.scalar.parse.argument import Argument
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.info import MISSING
from mixad.scalar.parse.names import dotted_path
from mixad.scalar.parse.snapshot import Address, is_sequence, scalar_argument
from mixad.scalar.parse.values.callable import Helper
from mixad.scalar.parse.values.captured import Captured
from mixad.scalar.parse.values.object import Object, describe_object
from mixad.scalar.parse.values.record import named_tuple
from mixad.scalar.parse.values.sequence import List, Tuple
from mixad.scalar.parse.values.value import Value
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import I64

__all__ = ["local_value", "look_up", "value_from_outside"]


def look_up(frame: Frame, node: ast.Name | ast.Attribute) -> Value:
    """Return what a name or an attribute chain stands for."""
    path = dotted_path(node, frame.info.inside)
    if path is None:
        raise frame.unsupported_error(node)
    owner = frame
    while path[0] not in owner.info.local:
        if owner.parent is None:
            here = (owner.index, owner.info.path_index[path])
            return value_from_outside(frame, here, ".".join(path), node)
        owner = owner.parent
    value = local_value(owner, path[0], node, frame)
    if isinstance(value, Object):
        address = frame.context.snapshot.attributes.get((id(value.value), path[1:]))
        if address is not None:
            name = ".".join((value.name or path[0], *path[1:]))
            return value_from_outside(frame, address, name, node)
    return frame.fields(value, path, node)


def local_value(owner: Frame, name: str, node: ast.expr, reader: Frame) -> Value:
    """Return the value of a name of a function."""
    bound = owner.state.names.get(name)
    if bound is None:
        raise reader.error(
            node, f"{name!r} is read before it is assigned", f"assign {name!r} first"
        )
    return bound.value


def value_from_outside(frame: Frame, address: Address, name: str, node: ast.expr) -> Value:
    """Return the value at an address of the snapshot."""
    snapshot = frame.context.snapshot
    value = snapshot.value(address)
    if value is MISSING:
        raise _undefined_error(frame, address, name, node)
    if address in snapshot.functions:
        return Helper(snapshot.functions[address], describe_object(value))
    argument = snapshot.arguments.get(address)
    if argument is not None:
        return Captured(name, argument, address)
    argument = scalar_argument(value)
    if argument is not None:
        return _number(frame, value, argument, address, name, node)
    if not is_sequence(value):
        return Object(value, name)
    items = tuple(
        [value_from_outside(frame, (*address, i), f"{name}[{i}]", node) for i in range(len(value))]
    )
    if hasattr(value, "_fields"):
        return named_tuple(items, type(value))
    return Tuple(items) if isinstance(value, tuple) else List(items, is_shared=True)


def _undefined_error(frame: Frame, address: Address, name: str, node: ast.expr) -> KernelError:
    """Return why a name has no value: a tuple may have been a named one at an earlier call."""
    found = frame.context.snapshot.sources[address[0]].without_attribute(address[1])
    if found is None or not is_sequence(found[1]):
        return frame.error(
            node, f"{name!r} is not defined", "define it before the call, or mend its spelling"
        )
    path, value = found
    holder, attribute = ".".join(path), name.split(".")[len(path)]
    return frame.error(
        node,
        f"{holder!r} is a {type(value).__name__} at this call, without a field {attribute!r}",
        f"make it a named tuple that has it, or read an item by its number: {holder}[0]",
    )


def _number(
    frame: Frame, value: Any, argument: Argument, address: Address, name: str, node: ast.expr
) -> Value:
    """Return a number from outside: a parameter, or a constant if the snapshot's key has it."""
    context = frame.context
    if address[:2] in context.snapshot.constants:
        return frame.known_number(value, argument)
    is_element = address[:2] in context.snapshot.tables and context.family is None
    take = context.element if is_element else context.capture
    captured = take(name, address, argument)
    if not captured.typed.type.is_float:
        atom = cast("Var", captured.re.atom)
        context.integers[atom] = address, int(value)
        if captured.typed == Typed(I64, True) and not is_element:  # of any size in Python
            context.adopted.setdefault((atom, I64), frame.info.text.locate(node))
    return captured
