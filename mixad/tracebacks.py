"""Tracebacks as users see them: the frames of their code, and one of mixad's."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from types import TracebackType
from typing import ParamSpec, TypeVar

from mixad.config import TRACEBACK

__all__ = ["hide_frames", "short_traceback"]

P = ParamSpec("P")
T = TypeVar("T")


def short_traceback(function: Callable[P, T]) -> Callable[P, T]:
    """Decorate a function for users so that its errors have short tracebacks.

    It adds a call, some 0.2 µs: operators, ufuncs, functions of `mixad.special` and kernels have
    ``except Exception`` and `hide_frames` of their own.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if TRACEBACK.read() == "short":
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            hide_frames(error)
            raise

    return call


def hide_frames(error: BaseException) -> None:
    """Remove mixad's frames from the tracebacks of an error and of its causes.

    The function of mixad that other code called last stays; ``MIXAD_TRACEBACK=full`` keeps all.
    Callers are in ``except Exception``, which is free without an error, and raise it again.
    """
    if TRACEBACK.read() == "full":
        return
    for each in _with_reasons(error):
        if each.__traceback__ is not None:
            each.__traceback__ = _without_own(each.__traceback__)


def _with_reasons(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its causes, and those in whose handling it was raised."""
    left: list[BaseException | None] = [error]
    seen: set[int] = set()
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            left += [each.__cause__, each.__context__]


def _without_own(traceback: TracebackType) -> TracebackType:
    """Return a traceback with one frame of mixad: where other code called it last."""
    entries = list(_entries(traceback))
    own = [at for at, entry in enumerate(entries) if _package(entry) == "mixad"]
    # Calls between its own functions may go through the standard library, such as `dataclasses`.
    between = {
        at
        for before, after in pairwise(own)
        if all(_package(e) in sys.stdlib_module_names for e in entries[before + 1 : after])
        for at in range(before + 1, after + 1)
    }
    called_last = max((at for at in own if at not in between), default=None)
    hidden = {*own, *between} - {called_last}
    kept = [entry for at, entry in enumerate(entries) if at not in hidden]
    for entry, following in zip(kept, [*kept[1:], None], strict=True):
        entry.tb_next = following
    return kept[0]


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _package(entry: TracebackType) -> str:
    return str(entry.tb_frame.f_globals.get("__name__")).partition(".")[0]
