"""Checks of a transform's arguments, a function and positions; the types of its result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np

from mixad.errors import TracerError
from mixad.scalar.parse.by_value import PickledFunction, by_value
from mixad.tracebacks import hide_frames

__all__ = ["AnyArray", "Argnums", "Function", "Gradient", "GradientWithAux", "NamedFields",
           "TransformedFunction", "ValueAndGradient", "ValueAndGradientWithAux",
           "argument_positions", "check_callable", "check_sequence"]  # fmt: skip

Function = Callable[..., Any]
Argnums = int | Sequence[int]

X = TypeVar("X")
P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


# -- what type checkers know -----------------------------------------------------------------------


class AnyArray(Protocol):
    """An array of any library."""

    @property
    def shape(self) -> Any:
        """Its extents."""

    @property
    def dtype(self) -> Any:
        """The type of its elements."""

    @property
    def ndim(self) -> int:
        """How many axes it has."""


class NamedFields(Protocol):
    """A named tuple: its fields are arrays where those of one element are numbers."""

    def _asdict(self) -> dict[str, Any]: ...


class Gradient(Protocol[P]):
    """A function whose result has its first argument's type; ``P`` are the others."""

    def __call__(self, x: X, /, *args: P.args, **kwargs: P.kwargs) -> X:
        """Return the gradient."""


class GradientWithAux(Protocol[P]):
    """A `Gradient` that returns a pair with something else."""

    def __call__(self, x: X, /, *args: P.args, **kwargs: P.kwargs) -> tuple[X, Any]:
        """Return the gradient and aux."""


class ValueAndGradient(Protocol[P, R_co]):
    """A function that returns a value and a gradient of its first argument's type."""

    def __call__(self, x: X, /, *args: P.args, **kwargs: P.kwargs) -> tuple[R_co, X]:
        """Return the value and the gradient."""


class ValueAndGradientWithAux(Protocol[P]):
    """A `ValueAndGradient` whose value is a pair with something else."""

    def __call__(self, x: X, /, *args: P.args, **kwargs: P.kwargs) -> tuple[tuple[Any, Any], X]:
        """Return the value with aux, and the gradient."""


# -- checks ----------------------------------------------------------------------------------------


class TransformedFunction(PickledFunction):
    """The function that a transform returns; it calls ``call``.

    Pickles have the transform by name, ``f`` and ``options``, of which it is made again.
    """

    def __init__(self, call: Function, f: Function, transform: Function, **options: Any) -> None:
        functools.update_wrapper(self, f, updated=())
        self._call = call
        self._made_of = f, transform, options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it, as ``f`` is."""
        try:
            return self._call(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    def __repr__(self) -> str:
        f, transform, options = self._made_of
        name = options.get("name", transform.__name__)
        return f"<mixad.{name} of {getattr(f, '__qualname__', f)}>"

    def of(self, f: Function) -> Any:
        """Return the same transform of another function."""
        _, transform, options = self._made_of
        return transform(f, **options)

    @property
    def transformed(self) -> Function:
        """The function that is transformed."""
        return self._made_of[0]

    def _reduce(self) -> tuple[Any, ...]:
        f, transform, options = self._made_of
        return _transform, (transform, by_value(f), options)


def _transform(transform: Function, f: Function, options: dict[str, Any]) -> Any:
    return transform(f, **options)


def check_callable(name: str, f: Any) -> None:
    """Raise if a transform's argument is no function."""
    if not callable(f):
        raise TracerError(
            f"mixad.{name}: f is a {type(f).__name__}, not a function: pass the function itself, "
            f"mixad.{name}(f, ...), not what it returns"
        )


def check_sequence(name: str, what: str, given: Any) -> None:
    """Raise if an argument that stands for several is no sequence."""
    if type(given) is tuple:
        return
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
