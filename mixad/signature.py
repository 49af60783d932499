"""What a transform is given: a function, and which of its arguments; checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mixad.errors import TracerError

__all__ = ["Argnums", "Function", "argument_positions", "check_callable", "check_sequence"]

Function = Callable[..., Any]
Argnums = int | Sequence[int]


def check_callable(name: str, f: Any) -> None:
    """Raise if what a transform is given is no function."""
    if not callable(f):
        raise TracerError(
            f"mixad.{name}: f is a {type(f).__name__}, not a function: pass the function itself, "
            f"mixad.{name}(f, ...), not what it returns"
        )


def check_sequence(name: str, what: str, given: Any) -> None:
    """Raise if what stands for several arguments is no sequence."""
    if not isinstance(given, Sequence) or isinstance(given, (str, bytes)):
        raise TracerError(
            f"mixad.{name}: {what} is a {type(given).__name__}, not a sequence of "
            "arguments: write (x,) for one"
        )


def argument_positions(name: str, argnums: Argnums, count: int) -> list[int]:
    """Return the positions that ``argnums`` names in a call with ``count`` arguments."""
    if type(argnums) is int and 0 <= argnums < count:
        return [argnums]
    given = argnums if isinstance(argnums, Sequence) else (argnums,)
    positions = [_position(name, position, count) for position in given]
    if len(set(positions)) < len(positions):
        raise TracerError(
            f"mixad.{name}: argnums={argnums!r} names an argument twice in a call with {count} "
            "positional arguments: name it once, and use its gradient twice"
        )
    return positions


def _position(name: str, position: Any, count: int) -> int:
    """Return a position counted from the first argument."""
    if not isinstance(position, (int, np.integer)) or isinstance(position, bool):
        raise TracerError(
            f"mixad.{name}: argnums is a whole number or a sequence of them: name arguments by "
            f"position, such as 0 or (0, 1), not by the {type(position).__name__} {position!r}"
        )
    if not -count <= position < count:
        raise TracerError(
            f"mixad.{name}: argnums names argument {position!r} of a call with {count} positional "
            "arguments: name one of those, or pass it by position (keyword arguments are not "
            "differentiated)"
        )
    return int(position) % count
