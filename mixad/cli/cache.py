"""``python -m mixad cache``: where compiled kernels are kept, how much they take, and a way out."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from mixad import config

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["describe", "main"]

_KIB = 1024


def main(*, clear: bool = False) -> int:
    """Print the folder and its size, after removing it if asked to.

    Parameters
    ----------
    clear : bool
        Remove what is there. Kernels that processes have loaded stay loaded.

    Returns
    -------
    int
        The exit status, 0.
    """
    folder = config.kernel_cache_folder()
    if clear and folder.exists():
        print(f"removing {describe(folder)}")
        shutil.rmtree(folder)
    print(describe(folder))
    return 0


def describe(folder: Path) -> str:
    """Return the path with the number and size of the files in it.

    Parameters
    ----------
    folder : pathlib.Path
        May be absent.

    Returns
    -------
    str
        One line.
    """
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return f"{folder}: {len(sizes)} files, {sum(sizes) / _KIB:.1f} KiB"
