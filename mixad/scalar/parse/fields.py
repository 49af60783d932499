"""Calls that make named tuples and dataclasses, or replace some of their fields."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.handlers import Arguments
from mixad.scalar.parse.values.object import Object
from mixad.scalar.parse.values.record import Named, Record, named_tuple, record, static_value
from mixad.scalar.parse.values.value import NotKnownError, Value

__all__ = ["construct", "is_record_class", "keeps_arguments", "replace_fields"]


def keeps_arguments(function: Any) -> bool:
    """Whether what a function is called with becomes a part of its result."""
    return function is dataclasses.replace or is_record_class(function)


def is_record_class(kind: Any) -> bool:
    """Whether an object is the class of named tuples or dataclasses."""
    if not isinstance(kind, type):
        return False
    is_named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_named or dataclasses.is_dataclass(kind)


def construct(frame: Frame, node: ast.Call, kind: Any, arguments: Arguments) -> Value | None:
    """Return what a call of a class makes, None if it is no named tuple and no dataclass.

    `dataclasses.replace` makes one, too.
    """
    if kind is dataclasses.replace:
        return _with_changes(frame, node, arguments)
    if not is_record_class(kind):
        return None
    values = _bind_fields(frame, node, kind, arguments)
    if issubclass(kind, tuple):
        return named_tuple(tuple(values[name] for name in kind._fields), kind)
    return _record(frame, node, kind, values)


def replace_fields(
    frame: Frame, node: ast.Call, whole: Named | Record, arguments: Arguments
) -> Value:
    """Return what the method ``_replace`` of a named tuple gives."""
    kind: Any = whole.kind
    owner = next(k for k in kind.__mro__ if "_replace" in vars(k))
    if "_fields" not in vars(owner) or arguments.positional:
        raise frame.error(
            node,
            f"`{ast.unparse(node.func)}` is no replacement of fields by their names",
            f"{kind.__name__}(...)",
        )
    values = _replace_fields(frame, node, whole, whole.fields, arguments)
    return named_tuple(tuple(values.values()), kind)


def _with_changes(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """Return a dataclass with some of its fields replaced."""
    given = arguments.positional
    whole = given[0] if len(given) == 1 else None
    if not isinstance(whole, Record) or whole.is_named_tuple:
        name = ast.unparse(node.func)
        raise frame.type_error(
            node,
            f"`{name}` takes a dataclass that is an argument or made here, and fields by name",
            f"{name}(state, x=...)",
        )
    _check_is_plain(frame, node, whole.kind)
    values = whole.fields | {name: Object(value) for name, value in whole.static}
    return _record(frame, node, whole.kind, _replace_fields(frame, node, whole, values, arguments))


def _replace_fields(
    frame: Frame,
    node: ast.Call,
    whole: Named | Record,
    values: dict[str, Value],
    arguments: Arguments,
) -> dict[str, Value]:
    unknown = [name for name in arguments.keywords if name not in values]
    if unknown:
        raise frame.type_error(
            node,
            f"`{whole.kind.__name__}` has no field {unknown[0]!r}",
            f"its fields are {', '.join(values)}",
        )
    return values | arguments.keywords


def _check_is_plain(frame: Frame, node: ast.Call, kind: Any) -> None:
    """Refuse a class that computes when it is made."""
    if not _is_plain(kind):
        raise frame.error(
            node,
            f"`{kind.__name__}` does more than to keep its fields when it is made",
            "a named tuple or a dataclass without methods of its own for that",
        )


def _bind_fields(frame: Frame, node: ast.Call, kind: Any, arguments: Arguments) -> dict[str, Value]:
    """Return the values of the fields, defaults filled in."""
    _check_is_plain(frame, node, kind)
    try:
        bound = inspect.signature(kind).bind(*arguments.positional, **arguments.keywords)
    except TypeError as error:
        fields = ", ".join(f"{name}=..." for name in inspect.signature(kind).parameters)
        raise frame.type_error(
            node, f"`{kind.__name__}`: {error}", f"{kind.__name__}({fields})"
        ) from None
    given = bound.arguments
    bound.apply_defaults()
    return {
        name: value if name in given else static_value(frame, value, name)
        for name, value in bound.arguments.items()
    }


def _is_plain(kind: Any) -> bool:
    """Whether a class is made by what `NamedTuple` and `dataclass` write, and nothing else."""
    if dataclasses.is_dataclass(kind):
        own = vars(kind)
        made = "__dataclass_params__" in own and own["__dataclass_params__"].init
        fields = dataclasses.fields(kind)
        # By type: cloudpickle rebuilds the class with another object in place of `MISSING`.
        without = type(dataclasses.MISSING)
        plain = all(f.init and isinstance(f.default_factory, without) for f in fields)
        return bool(made and plain and not hasattr(kind, "__post_init__") and _new(kind) is object)
    return "_fields" in vars(_new(kind)) and kind.__init__ is object.__init__


def _new(kind: Any) -> type:
    """Return the class whose ``__new__`` makes its instances."""
    found: type = next(k for k in kind.__mro__ if "__new__" in vars(k))
    return found


def _record(frame: Frame, node: ast.Call, kind: Any, values: dict[str, Value]) -> Record:
    fields = dataclasses.fields(kind)
    names = tuple(f.name for f in fields if not f.metadata.get("static"))
    static = tuple(
        (f.name, _static_object(frame, node, f.name, values[f.name]))
        for f in fields
        if f.metadata.get("static")
    )
    return record(tuple(values[name] for name in names), kind, names, static)


def _static_object(frame: Frame, node: ast.Call, name: str, value: Value) -> Any:
    """Return the object that a static field is."""
    try:
        return value.known_object()
    except NotKnownError:
        raise frame.type_error(
            node,
            f"{name!r} is a static field: it is known when the function is compiled",
            "a literal, or a field that is not static",
        ) from None
