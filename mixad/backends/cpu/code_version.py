"""Which version of our own code turns specs into kernels: part of the key of a cached kernel."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from mixad.version import __version__

__all__ = ["CODE_VERSION"]

_PARTS = ("scalar", "kernel", "emit", "backends/cpu")


def _version(root: Path) -> str:
    facts = [__version__, *(fact for part in _PARTS for fact in _files(root, part))]
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:32]


def _files(root: Path, part: str) -> Iterator[str]:
    """Yield name, size and time of every Python file in a part of our code."""
    with os.scandir(root / part) as entries:
        for entry in entries:
            name = f"{part}/{entry.name}"
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield f"{name} {status.st_size} {status.st_mtime_ns}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files(root, name)


CODE_VERSION = _version(Path(__file__).parents[2])
"""A digest of name, size and time of every file that decides what a kernel is.

Found when mixad is imported: a file that is edited later is not the code that runs. An edited one,
as in a development tree, changes it at the next start of Python.
"""
