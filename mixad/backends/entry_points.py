"""Which installed distributions announce plugins.

For most users none does; then `importlib.metadata` is not imported: it takes a tenth of the time of
the rest of mixad, most of it for the parser of e-mail headers that it reads metadata by.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["entry_points"]

_METADATA = (".dist-info", ".egg-info")


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, as `importlib.metadata` does."""
    if not any(_may_announce(group, folder) for folder in sys.path) and not _are_found_otherwise():
        return ()
    from importlib import metadata

    return tuple(metadata.entry_points(group=group))


def _may_announce(group: str, folder: str) -> bool:
    """Whether a folder for imports has a file of entry points that names the group.

    True for eggs and whatever is no folder, such as a zip file: nothing looks inside these.
    """
    try:
        names = os.listdir(folder or os.curdir)
    except NotADirectoryError:
        return True
    except OSError:  # nothing is imported from there either
        return False
    return any(
        name.endswith(".egg") or (name.endswith(_METADATA) and _names(group, folder, name))
        for name in names
    )


def _names(group: str, folder: str, metadata: str) -> bool:
    try:
        with open(os.path.join(folder, metadata, "entry_points.txt"), "rb") as file:
            return f"[{group}]".encode() in file.read()
    except OSError:  # most have none
        return False


def _are_found_otherwise() -> bool:
    """Whether distributions may come from anything but folders for imports."""
    return any(
        finder is not PathFinder and hasattr(finder, "find_distributions")
        for finder in sys.meta_path
    )
