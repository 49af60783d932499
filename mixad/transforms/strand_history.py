"""How calls of functions by strands went: some functions get none any more."""

from __future__ import annotations

import weakref
from collections import Counter
from types import CellType

from mixad.call.signature import Function, TransformedFunction

__all__ = ["History", "history_of"]

_MAX_LEFT = 2
"""Calls that may leave a function's strand before no strand is opened for it any more."""

_MAX_NEW = 16
"""Successive calls in which a function may do something new; further ones count as if they had left
the strand: to plan costs more than it saves."""


class History:
    """How calls of functions of one code went.

    `left` counts calls that left their strand, by what the function closes over; `new` counts the
    plans made since a call was last known.
    """

    __slots__ = ("left", "new")

    def __init__(self) -> None:
        self.left: Counter[tuple[int, ...]] = Counter()
        self.new = 0

    def leave(self, f: Function) -> None:
        """Record that a call of a function left its strand, or might as well have."""
        self.left[_inside(f)] += 1

    def has_left(self, f: Function) -> bool:
        """Whether a function gets no strand any more."""
        return self.left[_inside(f)] >= _MAX_LEFT

    def note_new(self, f: Function) -> None:
        """Record that a plan was made for a call of a function."""
        self.new += 1
        if self.new > _MAX_NEW:
            self.leave(f)


_HISTORIES: dict[int, dict[tuple[str, bool, int], History]] = {}
"""By the id of a function's code; then by transform, and by how many transforms wrap the
function."""


def history_of(f: Function, transform: str, *, is_inner: bool) -> History:
    """Return what is known of a function's calls by a transform, inside of others or not.

    It is dropped with the function. A function that a transform returned goes by the one inside.
    """
    code, depth = getattr(f, "__code__", None), 0
    if code is None:
        while isinstance(f, TransformedFunction):
            f, depth = f.transformed, depth + 1
        code = getattr(f, "__code__", f)
    histories = _HISTORIES.get(id(code))
    if histories is None:
        histories = {}
        try:
            weakref.finalize(code, _HISTORIES.pop, id(code), None).atexit = False
        except TypeError:  # nobody tells when the id is another object's
            return History()
        _HISTORIES[id(code)] = histories
    found = histories.get((transform, is_inner, depth))
    if found is None:
        found = histories.setdefault((transform, is_inner, depth), History())
    return found


def _inside(f: Function) -> tuple[int, ...]:
    """Return a key for functions of one code that call others, such as wrappers of a loss."""
    return tuple(map(_code_in, getattr(f, "__closure__", None) or ()))


def _code_in(cell: CellType) -> int:
    try:
        return id(cell.cell_contents.__code__)
    except (AttributeError, ValueError):  # no function, or nothing yet
        return 0
