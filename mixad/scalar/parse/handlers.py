"""What compiles the call of a known function, and what it is given."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.values import Scalar, Value

__all__ = ["Arguments", "Handler", "counted", "numbers"]


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
) -> list[Scalar]:
    """Return the arguments of a call as numbers; their number must be one of ``counts``."""
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
            f"`{name}` takes {takes}{counted(counts[-1])}, got {len(given)}",
            f"{name}({', '.join('xyz'[: counts[0]])})",
        )
    nodes = node.args if len(node.args) == len(given) else [node] * len(given)
    return [frame.as_scalar(v, n) for v, n in zip(given, nodes, strict=True)]


def counted(count: int) -> str:
    """Return "1 argument", "2 arguments"."""
    return f"{count} argument{'' if count == 1 else 's'}"
