"""Functions with derivatives of their own: mixad's `custom_vjp`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mixad

__all__ = ["defvjp", "primitive"]


def primitive(fun: Callable[..., Any]) -> Any:
    """Return a function whose derivative is to be defined."""
    return mixad.custom_vjp(fun)


def defvjp(fun: Any, *makers: Any) -> None:
    """Define the pullback with respect to each argument, given the value and the arguments."""

    def forward(*args: Any) -> Any:
        value = fun(*args)
        return value, (value, args)

    def backward(kept: Any, g: Any) -> Any:
        value, args = kept
        return tuple(maker(value, *args)(g) for maker in makers)

    fun.defvjp(forward, backward)
