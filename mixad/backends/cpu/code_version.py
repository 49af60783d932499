"""Which version of our own code turns specs into kernels: part of the key of a cached kernel."""

from __future__ import annotations

import functools
import hashlib
import os
from pathlib import Path

from mixad.version import __version__

__all__ = ["code_version"]

_PARTS = ("scalar", "kernel", "emit", "backends/cpu")


@functools.cache
def code_version() -> str:
    """Return a digest of name, size and time of every file that decides what a kernel is.

    A file that is edited, as in a development tree, changes it at the next start of Python.

    Returns
    -------
    str
        32 hexadecimal digits.
    """
    root = Path(__file__).parents[2]
    facts = [__version__]
    for part in _PARTS:
        for folder, _, files in os.walk(root / part):
            for name in files:
                if name.endswith(".py"):
                    path = os.path.join(folder, name)
                    status = os.stat(path)
                    where = os.path.relpath(path, root)
                    facts.append(f"{where} {status.st_size} {status.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(facts)).encode()).hexdigest()[:32]
