"""`torch.autocast`, which lets torch's functions compute in other types than their arguments'.

Rules here are made for the arguments' types, so nothing that they call is cast.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["in_given_types"]

P = ParamSpec("P")
R = TypeVar("R")

_DEVICES = ("cpu", "cuda")


def in_given_types(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function during which torch computes in the types of its arguments."""

    @wraps(function)
    def compute(*args: P.args, **kwargs: P.kwargs) -> R:
        torch = sys.modules.get("torch")
        if torch is None or not any(map(torch.is_autocast_enabled, _DEVICES)):
            return function(*args, **kwargs)
        with ExitStack() as stack:
            for device in filter(torch.is_autocast_enabled, _DEVICES):
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return compute
