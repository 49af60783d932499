"""The folder of an export: all of it, or nothing of it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mixad.errors import ConfigurationError

__all__ = ["RECORD", "write_folder"]

RECORD = "export.json"
"""The file that says what the others are; a folder that has one is an export."""


def write_folder(folder: Path, fill: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Make a folder of what ``fill`` writes into one, and of the record that it returns.

    An export that is there is replaced, an empty folder filled.  ConfigurationError if there is
    anything else, or no folder can be made: then nothing is written.
    """
    if folder.is_dir():
        if any(folder.iterdir()) and not (folder / RECORD).is_file():
            raise ConfigurationError(
                f"export: the folder {folder} has files that are no export; name one that is empty "
                "or not there"
            )
    elif folder.exists():
        raise ConfigurationError(f"export: {folder} is no folder; name one that is not there")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    except OSError as error:
        raise ConfigurationError(
            f"export: no folder can be made in {folder.parent}: {error.strerror}; name another"
        ) from error
    try:
        record = fill(made)
        (made / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
        made.chmod(0o777 & ~_umask())
        _put(made, folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return record


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _put(made: Path, folder: Path) -> None:
    """Let a folder have the name of another, which goes."""
    if not folder.is_dir():
        made.rename(folder)
        return
    before = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        folder.rename(before / "before")
        made.rename(folder)
    finally:
        shutil.rmtree(before, ignore_errors=True)
