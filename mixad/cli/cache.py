"""``python -m mixad cache``: where compiled kernels are, how large they are, and their removal."""

from __future__ import annotations

from mixad.backends.object_cache import ObjectCache, default
from mixad.config import show_bytes

__all__ = ["describe", "main"]


def main(*, clear: bool = False) -> int:
    """Print the folder and its size, after removing its kernels if asked to.

    Kernels that processes have loaded stay loaded.
    """
    cache = default()
    if clear:
        print(f"removing {describe(cache)}")
        cache.clear()
    print(describe(cache))
    return 0


def describe(cache: ObjectCache) -> str:
    """Return a line with the path, which may be absent, and the number and size of files in it."""
    count, size = cache.size()
    return f"{cache.folder}: {count} files, {show_bytes(size)}"
