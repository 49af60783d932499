"""Locks that are new in a forked child: a thread of its parent may have held the old ones."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["lock_of"]

T = TypeVar("T")

_LOCKS: weakref.WeakKeyDictionary[Any, dict[str, Callable[[], Any]]] = weakref.WeakKeyDictionary()
"""By what holds locks, a module or an object, how each is made."""


def lock_of(owner: object, name: str, make: Callable[[], T]) -> T:
    """Return a lock for an attribute, which forked children set to a new one.

    A thread that holds the old one while it forks releases that.
    """
    _LOCKS.setdefault(owner, {})[name] = make
    return make()


def _renew() -> None:
    for owner, locks in _LOCKS.items():
        for name, make in locks.items():
            setattr(owner, name, make())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
