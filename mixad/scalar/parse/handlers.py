"""What compiles the call of a known function, and what it is given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.values.value import Number, Scalar, Value
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import type_of_dtype

__all__ = ["Arguments", "Handler", "as_numpy_takes", "as_scipy_takes", "check_count", "count_text",
           "numbers", "of_numpy", "real_numbers", "strong"]  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """The values that a call passes."""

    positional: Sequence[Value]
    keywords: dict[str, Value]


Handler: TypeAlias = Callable[[Frame, ast.Call, Arguments], Value]


# Options of NumPy's functions that cannot be passed by position either.
_OPTIONS = frozenset({"dtype", "out", "where", "casting", "order", "subok", "axis", "keepdims"})


def numbers(
    frame: Frame, node: ast.Call, arguments: Arguments, counts: tuple[int, ...]
) -> list[Number]:
    """Return the arguments of a call as numbers; as many as one of ``counts`` says."""
    return [v.number(frame, n) for v, n in _with_nodes(frame, node, arguments, counts)]


def real_numbers(
    frame: Frame, node: ast.Call, arguments: Arguments, counts: tuple[int, ...]
) -> list[Scalar]:
    """Return the arguments of a call as real numbers; as many as one of ``counts`` says."""
    return [v.scalar(frame, n) for v, n in _with_nodes(frame, node, arguments, counts)]


def _with_nodes(
    frame: Frame, node: ast.Call, arguments: Arguments, counts: tuple[int, ...]
) -> Iterator[tuple[Value, ast.expr]]:
    check_count(frame, node, arguments, counts)
    given = arguments.positional
    nodes = node.args if len(node.args) == len(given) else [node] * len(given)
    return zip(given, nodes, strict=True)


def check_count(
    frame: Frame, node: ast.Call, arguments: Arguments, counts: tuple[int, ...]
) -> None:
    """Refuse a call whose arguments are not as many as one of ``counts``, by position."""
    name = ast.unparse(node.func)
    if arguments.keywords:
        options = sorted(f"`{k}`" for k in _OPTIONS.intersection(arguments.keywords))
        raise frame.error(
            node,
            f"`{name}` takes no keyword arguments in a kernel",
            f"leave {' and '.join(options)} out, and convert or choose its result"
            if options
            else "pass them by position",
        )
    given = arguments.positional
    if len(given) not in counts:
        takes = " or ".join(map(str, counts[:-1])) + " or " if len(counts) > 1 else ""
        raise frame.type_error(
            node,
            f"`{name}` takes {takes}{count_text(counts[-1])}, got {len(given)}",
            f"{name}({', '.join('xyz'[: counts[0]])})",
        )


def as_numpy_takes(frame: Frame, node: ast.Call, arguments: Arguments) -> Arguments:
    """Return the arguments of a function of NumPy: Python numbers alone are NumPy's scalars.

    ``np.exp(3.0)`` is a float64 that does not adapt to a float32 beside it, ``np.add(x, 3.0)``
    is what ``x`` is.
    """
    values = [*arguments.positional, *arguments.keywords.values()]
    if any(v.is_python_number is False for v in values):
        return arguments
    return Arguments(
        [strong(frame, node, v) for v in arguments.positional],
        {name: strong(frame, node, v) for name, v in arguments.keywords.items()},
    )


def of_numpy(handler: Handler, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """Compile a call of a function of NumPy."""
    return handler(frame, node, as_numpy_takes(frame, node, arguments))


def as_scipy_takes(frame: Frame, node: ast.Call, function: Any, arguments: Arguments) -> Arguments:
    """Return numbers in the precision in which a function of SciPy's computes: its first that fits.

    Most have ``d->d`` before ``f->f``, so that a float32 beside a literal is computed in double.
    """
    ufunc = getattr(function, "__wrapped__", function)  # with SCIPY_ARRAY_API
    given = arguments.positional
    if not frame.context.rules.numpy_scalars or not isinstance(ufunc, np.ufunc):
        return arguments
    if len(given) != ufunc.nin or any(v.is_complex or v.is_python_number is None for v in given):
        return arguments
    scalars = [v.scalar(frame, node) for v in given]
    dtypes = [_numpy_operand(s.typed) for s in scalars]
    result = type_of_dtype(ufunc.resolve_dtypes((*dtypes, None))[-1])
    assert result is not None
    taken = [frame.convert(s, Typed(result, False)) for s in scalars]
    return Arguments(taken, arguments.keywords)


def _numpy_operand(typed: Typed) -> Any:
    """Return what NumPy takes for a type when it looks for the one in which a ufunc computes."""
    if typed.weak is True:
        return {"float": float, "int": int}.get(typed.type.kind, np.dtype(bool))
    return np.dtype(np.float16) if typed.type.is_narrow else typed.type.dtype


def strong(frame: Frame, node: ast.Call, value: Value) -> Value:
    """Return a Python number as the scalar that NumPy makes of it, anything else as it is."""
    if not frame.context.rules.numpy_scalars or not value.is_python_number:
        return value
    return value.number(frame, node).strong()


def count_text(count: int) -> str:
    """Return "1 argument", "2 arguments"."""
    return f"{count} argument{'' if count == 1 else 's'}"
