"""Fields: of named tuples and dataclasses, and what small arrays say of themselves."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

from mixad.scalar.ir import Const
from mixad.scalar.parse.argument import PYTHON_SCALARS
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.handlers import Arguments
from mixad.scalar.parse.values import Object, Record, Scalar, Value, named

__all__ = ["constructed", "is_record_class"]


def is_record_class(kind: Any) -> bool:
    """Whether an object is the class of named tuples or dataclasses."""
    if not isinstance(kind, type):
        return False
    is_named = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_named or dataclasses.is_dataclass(kind)


def constructed(frame: Frame, node: ast.Call, kind: Any, arguments: Arguments) -> Value | None:
    """Return what a call of a class makes, None if it is no named tuple and no dataclass."""
    if not is_record_class(kind):
        return None
    values = _bound(frame, node, kind, arguments)
    if issubclass(kind, tuple):
        return named(tuple(values[name] for name in kind._fields), kind)
    return _record(frame, node, kind, values)


def _bound(frame: Frame, node: ast.Call, kind: Any, arguments: Arguments) -> dict[str, Value]:
    """Return the values of the fields, defaults filled in; a class that computes is refused."""
    if not _is_plain(kind):
        raise frame.error(
            node,
            f"`{kind.__name__}` does more than to keep its fields when it is made",
            "a named tuple or a dataclass without methods of its own for that",
        )
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
        name: value if name in given and isinstance(value, _VALUES) else _constant(frame, value)
        for name, value in bound.arguments.items()
    }


_VALUES = Value.__args__


def _constant(frame: Frame, value: Any) -> Value:
    """Return a default value."""
    return frame.constant(value) if type(value) in PYTHON_SCALARS else Object(value)


def _is_plain(kind: Any) -> bool:
    """Whether a class is made by what `NamedTuple` and `dataclass` write, and nothing else."""
    if dataclasses.is_dataclass(kind):
        own = vars(kind)
        made = "__dataclass_params__" in own and own["__dataclass_params__"].init
        fields = dataclasses.fields(kind)
        plain = all(f.init and f.default_factory is dataclasses.MISSING for f in fields)
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
        (f.name, _known(frame, node, f.name, values[f.name]))
        for f in fields
        if f.metadata.get("static")
    )
    known = tuple((type(value), repr(value)) for _, value in static)
    return Record(tuple(values[name] for name in names), kind, names, static, known)


def _known(frame: Frame, node: ast.Call, name: str, value: Value) -> Any:
    """Return the object that a static field is."""
    if isinstance(value, Object):
        return value.value
    if isinstance(value, Scalar) and isinstance(value.atom, Const):
        kinds = {"bool": bool, "int": int, "uint": int, "float": float}
        return kinds[value.atom.type.kind](value.atom.value)
    raise frame.type_error(
        node,
        f"{name!r} is a static field: it is known when the function is compiled",
        "a literal, or a field that is not static",
    )
