"""What an array library does in its own way: memory, compiler, launches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from mixad.backends.arrays import Array
from mixad.backends.cuda.device import Usage

__all__ = ["Driver", "Function", "PreparedLaunch"]

Function: TypeAlias = Any
"""A kernel that is loaded, as a driver knows it."""

PreparedLaunch: TypeAlias = Callable[["array[int]"], None]
"""Launches a kernel, given the words of its argument."""


class Driver(Protocol):
    """What a plugin supplies: memory, compiler and launches of one array library."""

    def device(self, array: Array) -> Hashable:
        """Return the device of an array."""
        ...

    def attribute(self, number: int, device: Hashable) -> int:
        """Return what CUDA says of a device: one of `mixad.backends.cuda.ATTRIBUTES`."""
        ...

    def is_capturing(self, device: Hashable) -> bool:
        """Whether the device's current stream records launches for a graph, and runs none."""
        ...

    def address(self, array: Array) -> int:
        """Return the address of the first element."""
        ...

    def empty(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> Array:
        """Return a new contiguous array, aligned to 16 bytes at least."""
        ...

    def zeros(self, shape: tuple[int, ...], dtype: Any, device: Hashable) -> Array:
        """Return a new contiguous array of zeros, aligned to 16 bytes at least."""
        ...

    def compile(
        self, text: str, entries: Sequence[str], device: Hashable
    ) -> Mapping[str, Function]:
        """Compile CUDA C++ for a device and load it; return its kernels, the ``entries``, by name.

        The text includes nothing; `mixad.backends.nvrtc.OPTIONS` have no fast maths.  What does not
        compile raises BackendError with the compiler's log.
        """
        ...

    def usage(self, function: Function, device: Hashable) -> Usage:
        """Return what a kernel uses of a multiprocessor, as ``cuFuncGetAttribute`` tells it."""
        ...

    def prepare_launch(
        self, function: Function, blocks: int, threads: tuple[int, int], device: Hashable
    ) -> PreparedLaunch:
        """Return what launches a kernel on the device's current stream, asked for at every call.

        The grid has one axis, a block two.  It takes the words of the structure that is the
        kernel's only argument; several threads may call it at once.
        """
        ...
