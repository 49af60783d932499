"""What the control groups of this process leave of the machine: cores and memory.

A process is in one group of a tree, and has no more than the least that this group and those around
it allow.  Version 2 has one tree; version 1 has one for each resource.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["core_quota", "memory_bytes"]

_ROOT = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def core_quota(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> float | None:
    """Return the number of cores whose time this process may use, None if not limited."""
    quotas = [
        _quota(*_text(group / "cpu.max").partition(" ")[::2])
        for group in _groups(root, membership, "")
    ]
    quotas += [
        _quota(_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us"))
        for group in _groups(root, membership, "cpu")
    ]
    return min(filter(None, quotas), default=None)


def memory_bytes(root: Path = _ROOT, membership: Path = _MEMBERSHIP) -> int | None:
    """Return how much memory this process may have, None if unknown."""
    limits = [_physical_memory()]
    for group in _groups(root, membership, ""):
        limits += [_limit(_text(group / name)) for name in ("memory.max", "memory.high")]
    for group in _groups(root, membership, "memory"):
        limits.append(_limit(_text(group / "memory.limit_in_bytes")))
    return min((n for n in limits if n is not None), default=None)


def _groups(root: Path, membership: Path, resource: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and of those around it.

    A container may show its own group as the root while the path is the one outside: folders of
    that path do not exist then.
    """
    for line in _text(membership).splitlines():
        _, resources, path = [*line.split(":", 2), "", ""][:3]
        if resource in resources.split(","):
            own = path.strip("/")
            break
    else:
        own = ""
    # Beside version 1, the one tree of version 2 is in a folder of its own.
    tops = [root / resource] if resource else [root, root / "unified"]
    for top in tops:
        folder = top / own
        yield folder
        while folder != top:
            folder = folder.parent
            yield folder


def _text(path: Path) -> str:
    """Return the contents of a file; empty if it is missing or not readable."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _quota(limit: str, period: str) -> float | None:
    try:
        quota = int(limit) / int(period)
    except (ValueError, ZeroDivisionError):  # "max", or no limit that we can read
        return None
    return quota if quota > 0 else None


def _limit(text: str) -> int | None:
    """Return a limit; version 1 writes a number larger than any memory for none."""
    return int(text) if text.isdigit() else None


def _physical_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
