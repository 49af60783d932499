"""What a device has, what a function of it uses, and how many of its threads are there at once.

The rules of residency are those of NVIDIA's occupancy calculator: registers are given to warps in
units of 256, shared memory to blocks, with what the system reserves of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["ATTRIBUTES", "Device", "Usage", "read_device"]

ATTRIBUTES: Mapping[str, int] = MappingProxyType({
    "processors": 16, "clock": 36, "bus": 37, "threads": 39, "major": 75, "minor": 76,
    "shared": 81, "registers": 82, "blocks": 106, "reserved": 111,
})  # fmt: skip
"""What is asked of a device: the numbers of ``cudaDeviceAttr`` and ``CUdevice_attribute``.

They are multiprocessors; kilohertz and bits of the memory; the compute capability; what one
multiprocessor has of threads, shared memory, registers and blocks; and what the system takes of the
shared memory of each block.
"""

_WARP = 32

_REGISTER_UNIT = 256
"""Registers that a warp is given at a time."""

_WARP_UNIT = 4
"""Warps fill the four parts of a multiprocessor evenly."""


@dataclass(frozen=True)
class Usage:
    """What a compiled function uses."""

    registers: int  # of a thread
    local: int  # bytes of a thread: what is spilled, and arrays of CUDA's own functions
    shared: int  # bytes of a block, without those that the system reserves


@dataclass(frozen=True)
class Device:
    """What a device has."""

    architecture: str  # as compilers name it, such as "sm_90"
    processors: int  # multiprocessors
    # The most that one multiprocessor has at once; of shared memory in bytes.
    threads: int
    blocks: int
    registers: int
    shared: int
    reserved: int  # bytes of shared memory that the system takes for each block
    bandwidth: float  # bytes a second of its memory at most: what a copy reaches is less

    def resident(self, usage: Usage, threads: int) -> int:
        """Return how many threads of a function one multiprocessor runs at once."""
        warps = -(-threads // _WARP)
        of_warp = -(-(max(usage.registers, 1) * _WARP) // _REGISTER_UNIT) * _REGISTER_UNIT
        by_registers = self.registers // of_warp // _WARP_UNIT * _WARP_UNIT // warps
        by_shared = self.shared // max(usage.shared + self.reserved, 1)
        blocks = min(self.blocks, self.threads // threads, by_registers, by_shared)
        return blocks * threads

    def occupancy(self, usage: Usage, threads: int) -> float:
        """Return the share of a multiprocessor's threads that a function fills."""
        return self.resident(usage, threads) / self.threads


def read_device(attribute: Callable[[int], int]) -> Device:
    """Return a device by what a function tells of each of its `ATTRIBUTES`."""
    found = {name: attribute(number) for name, number in ATTRIBUTES.items()}
    transfers = 2  # in each period of the clock, one at either edge
    return Device(
        architecture=f"sm_{found['major']}{found['minor']}",
        processors=found["processors"],
        threads=found["threads"],
        blocks=found["blocks"],
        registers=found["registers"],
        shared=found["shared"],
        reserved=found["reserved"],
        bandwidth=transfers * found["clock"] * 1e3 * found["bus"] / 8,
    )
