"""The folder of an export: all of it, or nothing of it."""

from __future__ import annotations

import json
import secrets
import shutil
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
    anything else, or if no folder can be made: then nothing is written.
    """
    if folder.is_dir():
        others = sorted({path.name for path in folder.iterdir()} - _exported_files(folder))
        if others:
            raise ConfigurationError(
                f"export: the folder {folder} has {others[0]!r}, which is of no export; name one "
                "that is empty or not there"
            )
    elif folder.exists():
        raise ConfigurationError(f"export: {folder} is no folder; name one that is not there")
    made = _unused_name(folder)
    try:
        made.mkdir(parents=True)
    except OSError as error:
        raise ConfigurationError(
            f"export: no folder can be made in {folder.parent}: {error.strerror}; name another"
        ) from error
    try:
        record = fill(made)
        (made / RECORD).write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")
        _put(made, folder)
    finally:
        if made.is_dir():
            shutil.rmtree(made)
    return record


def _exported_files(folder: Path) -> set[str]:
    """Return the names of the files that the last export has written to a folder."""
    record = folder / RECORD
    try:
        return set(json.loads(record.read_text("utf-8"))["files"]) if record.is_file() else set()
    except (ValueError, KeyError, TypeError):  # another program's
        return set()


def _unused_name(folder: Path) -> Path:
    """Return a name that no folder beside one has."""
    return folder.with_name(f".{folder.name}.{secrets.token_hex(8)}")


def _put(made: Path, folder: Path) -> None:
    """Let a folder have the name of another, which goes."""
    if not folder.is_dir():
        made.rename(folder)
        return
    before = _unused_name(folder)
    folder.rename(before)
    try:
        made.rename(folder)
    except OSError:
        before.rename(folder)
        raise
    shutil.rmtree(before)
