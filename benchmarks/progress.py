"""Bars for long work, on a terminal where tqdm is installed; elsewhere there are none."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from typing import TypeVar

__all__ = ["progress", "say"]

T = TypeVar("T")


def progress(items: Iterable[T], of: str, total: int | None = None) -> Iterable[T]:
    """Return items, for a loop; a bar counts them.

    Parameters
    ----------
    items : iterable
        What takes long.
    of : str
        What they are.
    total : int, optional
        How many, where they do not tell themselves.
    """
    if not _has_bars():
        return items
    from tqdm import tqdm

    tqdm.monitor_interval = 0  # a thread that wakes up would be measured, too
    return tqdm(items, desc=of, total=total, file=sys.stderr)


def say(text: str) -> None:
    """Tell what is done, on a line of its own above the bar and apart from reports."""
    if _has_bars():
        from tqdm import tqdm

        tqdm.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr, flush=True)


def _has_bars() -> bool:
    return sys.stderr.isatty() and importlib.util.find_spec("tqdm") is not None
