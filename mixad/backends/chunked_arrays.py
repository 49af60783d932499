"""What mixad asks of a library of lazy arrays that are cut into blocks of NumPy's.

`mixad.backends.arrays.CHUNKED` has the libraries; others are refused by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from mixad.backends.array_memory import Array

__all__ = ["BlockAxes", "BlockResult", "Chunked", "Operand", "chunks_in"]

BlockAxes: TypeAlias = tuple[int | None, ...]
"""For each axis of a result, the axis of the blocks that it is; None if it is summed."""

Operand: TypeAlias = tuple[Any, tuple[int, ...] | None]
"""An array, and for each of its axes which axis of the blocks it is.

None are given for an array that every block gets as a whole; a number has None.
"""


class BlockResult(NamedTuple):
    """An array that a function of blocks gives a part of, or adds to, with each block."""

    shape: tuple[int, ...]  # 1 along what is summed
    dtype: Any
    axes: BlockAxes


class Chunked(Protocol):
    """How functions of blocks go into the graphs of a library: nothing is computed here.

    Arrays have ``chunks``, ``rechunk`` and a ``name`` that tells an array from what it was before a
    change in place.
    """

    def check(self, array: Array) -> None:
        """Refuse an array of the library on which kernels do not compute."""

    def asarray(self, value: Any) -> Array:
        """Return a lazy array as it is, and an array or a scalar of NumPy as a lazy one."""

    def with_plain_blocks(
        self, array: Any, beside: Array | None = None, what: str = "mixad"
    ) -> Any:
        """Return an array, each block of which is refused if it is more than an array.

        With ``beside``, whose axes are the array's last ones, its blocks are looked at instead.
        What is no lazy array is returned as it is; errors begin with ``what``.
        """

    def broadcast_to(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return an array in a larger shape, in blocks that fit into memory."""

    def apply_whole(
        self, function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, *arrays: Array
    ) -> Array:
        """Return what a function of whole arrays of NumPy gives, of a shape and dtype."""

    def map_blocks(
        self,
        name: str,
        function: Callable[..., tuple[Any, ...]],
        rank: int,
        operands: Sequence[Operand],
        results: Sequence[BlockResult],
    ) -> tuple[Array, ...]:
        """Return what a function gives of blocks with some axes, computed once for all results.

        The function takes a block or a number for each operand. Chunks of operands along an axis
        may differ. Sums over blocks are in an order that depends on chunks alone.
        """


def chunks_in(array: Array, shape: tuple[int, ...]) -> list[Any]:
    """Return the chunks of an array in a larger shape: its own, and "auto" along new axes."""
    lead = len(shape) - array.ndim
    return [
        "auto" if axis < lead or array.shape[axis - lead] != n else array.chunks[axis - lead]
        for axis, n in enumerate(shape)
    ]
