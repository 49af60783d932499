"""Operators on functions of one argument, as operators on functions of several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["get_name", "unary_to_nary"]


def get_name(fun: Any) -> str:
    """Return the name of a function."""
    return getattr(fun, "__name__", "[unknown name]")


def unary_to_nary(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Let an operator take which arguments of a function are meant."""

    def nary(fun: Any, argnum: Any = 0, *options: Any, **named: Any) -> Any:
        def applied(*args: Any, **kwargs: Any) -> Any:
            several = not isinstance(argnum, int)
            numbers = argnum if several else (argnum,)

            def unary(x: Any) -> Any:
                given = list(args)
                for at, value in zip(numbers, x if several else (x,), strict=True):
                    given[at] = value
                return fun(*given, **kwargs)

            unary.__name__ = get_name(fun)
            chosen = tuple(args[at] for at in numbers)
            return operator(unary, chosen if several else chosen[0], *options, **named)

        applied.__name__ = f"{get_name(operator)}_of_{get_name(fun)}_wrt_argnum_{argnum}"
        applied.__doc__ = f"    {get_name(operator)} of function {get_name(fun)} with respect to"
        return applied

    nary.__name__, nary.__doc__ = get_name(operator), operator.__doc__
    return nary
