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
        """Return what CUDA says of a device.

        Parameters
        ----------
        number : int
            One of `mixad.backends.cuda.ATTRIBUTES`.
        device : hashable
            What `device` returned.
        """
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
        """Compile CUDA C++ for a device and load it.

        Parameters
        ----------
        text : str
            A module that includes nothing; with `mixad.backends.nvrtc.OPTIONS`, no fast maths.
        entries : sequence of str
            Symbols of its kernels.
        device : hashable
            What `device` returned.

        Returns
        -------
        mapping
            The kernels.

        Raises
        ------
        BackendError
            With the compiler's log.
        """
        ...

    def usage(self, function: Function, device: Hashable) -> Usage:
        """Return what a kernel uses of a multiprocessor, as ``cuFuncGetAttribute`` tells it.

        Parameters
        ----------
        function : Function
            What `compile` returned.
        device : hashable
            Where it was compiled for.
        """
        ...

    def prepare_launch(
        self, function: Function, blocks: int, threads: tuple[int, int], device: Hashable
    ) -> PreparedLaunch:
        """Return what launches a kernel on the device's current stream, asked for at every call.

        Several threads may call it at once.

        Parameters
        ----------
        function : Function
            What `compile` returned.
        blocks : int
            Blocks of the grid, which has one axis.
        threads : tuple of int
            Threads of a block along x and y.
        device : hashable
            Where it was compiled for.

        Returns
        -------
        callable
            Takes the words of the structure that is the kernel's only argument.
        """
        ...
