"""How much a launch may move before its results are stored past the caches."""

from __future__ import annotations

from pathlib import Path

from mixad import config
from mixad.kernel.plan import DEFAULT_CACHE_BYTES

__all__ = ["cache_bytes"]


def cache_bytes(root: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int:
    """Return the size of the last-level cache, or a multiple of the second's if that is less.

    A virtual machine may report the last-level cache of a host that it shares with others.
    """
    chosen = config.STREAM_BYTES.read()
    if chosen is not None:
        return chosen
    last, second = 0, 0.0
    for index in root.glob("index*"):
        try:
            size = config.byte_count((index / "size").read_text())
            last = max(last, size)
            if (index / "level").read_text().strip() == "2":
                second = size / _count_of((index / "shared_cpu_list").read_text())
        except (OSError, ValueError):
            continue
    ours = int(_LAST_BY_SECOND * second * config.available_cores())
    return min(filter(None, (last, ours)), default=DEFAULT_CACHE_BYTES)


_LAST_BY_SECOND = 8
"""A last-level cache that CPUs do not share is hardly larger than so many second-level ones."""


def _count_of(cpus: str) -> int:
    """Return how many CPUs a list such as ``0-3,8`` names."""
    ends = [[int(n) for n in part.split("-")] for part in cpus.strip().split(",")]
    return sum(end[-1] - end[0] + 1 for end in ends)
