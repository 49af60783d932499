"""How calls of functions by strands went: some are given none any more."""

from __future__ import annotations

import weakref
from collections import Counter
from types import CellType

from mixad.signature import Function

__all__ = ["has_left", "leave", "note_known", "note_new"]

_MAX_LEFT = 2
"""Calls in which a function may leave its strand before none is opened for it any more."""

_MAX_NEW = 16
"""Calls one after another in which a function may do what it has not done before; further ones
count as if it had left its strand: planning costs more than it saves."""


class _History:
    """How calls of functions of one code went.

    Attributes
    ----------
    left : dict
        By what a function closes over, in how many calls it has left its strand.
    new : int
        How many new plans came at last.
    """

    __slots__ = ("left", "new")

    def __init__(self) -> None:
        self.left: Counter[tuple[int, ...]] = Counter()
        self.new = 0


_HISTORIES: dict[int, _History] = {}
"""By the id of a function's code."""


def _history_of(f: Function) -> _History:
    """Return what is known of a function's calls; it is forgotten with the function."""
    code = getattr(f, "__code__", f)
    found = _HISTORIES.get(id(code))
    if found is None:
        found = _History()
        try:
            weakref.finalize(code, _HISTORIES.pop, id(code), None).atexit = False
        except TypeError:  # nobody tells when the id is another object's
            return found
        _HISTORIES[id(code)] = found
    return found


def _inside(f: Function) -> tuple[int, ...]:
    """Return what tells functions of one code apart that call others: wrappers of a loss."""
    return tuple(map(_code_in, getattr(f, "__closure__", None) or ()))


def _code_in(cell: CellType) -> int:
    try:
        return id(cell.cell_contents.__code__)
    except (AttributeError, ValueError):  # no function, or nothing yet
        return 0


def leave(f: Function) -> None:
    """Note that a call of a function has left its strand, or might as well have."""
    _history_of(f).left[_inside(f)] += 1


def has_left(f: Function) -> bool:
    """Whether a function is given no strand any more."""
    history = _HISTORIES.get(id(getattr(f, "__code__", f)))
    return history is not None and bool(history.left) and history.left[_inside(f)] >= _MAX_LEFT


def note_known(f: Function) -> None:
    """Note that a call of a function was known."""
    _history_of(f).new = 0


def note_new(f: Function) -> None:
    """Note that a plan was made for a call of a function."""
    history = _history_of(f)
    history.new += 1
    if history.new > _MAX_NEW:
        leave(f)
