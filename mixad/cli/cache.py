"""``python -m mixad cache``: where compiled kernels are kept, how much they take, and a way out."""

from __future__ import annotations

from mixad.backends.object_cache import ObjectCache, default
from mixad.config import show_bytes

__all__ = ["describe", "main"]


def main(*, clear: bool = False) -> int:
    """Print the folder and its size, after clearing it if asked to.

    Parameters
    ----------
    clear : bool
        Remove the kernels that are there. Those that processes have loaded stay loaded.

    Returns
    -------
    int
        The exit status, 0.
    """
    cache = default()
    if clear:
        print(f"removing {describe(cache)}")
        cache.clear()
    print(describe(cache))
    return 0


def describe(cache: ObjectCache) -> str:
    """Return the path with the number and size of the files in it.

    Parameters
    ----------
    cache : ObjectCache
        Its folder may be absent.

    Returns
    -------
    str
        One line.
    """
    count, size = cache.size()
    return f"{cache.folder}: {count} files, {show_bytes(size)}"
