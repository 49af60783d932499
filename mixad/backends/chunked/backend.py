"""Kernels on lazy arrays: programs go into the graph, blocks of NumPy arrays go through them.

Nothing is computed here.  One task for each block computes all results of a kernel, with the best
backend for NumPy on the machine that computes the block; sums are taken inside.  What is summed
over several blocks is added up by the library (`mixad.backends.chunked_arrays.Chunked`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from mixad.backends.arrays import CHUNKED
from mixad.backends.chunked_arrays import BlockAxes, BlockResult, Operand
from mixad.backends.execute import broadcast_shape, kernel_for
from mixad.backends.unsupported_arrays import plain_block
from mixad.kernel.spec import KernelSpec, Launch, OutputRequest
from mixad.scalar.ir import Param, Program, source_lines, without_lines
from mixad.scalar.widen import without_rules

__all__ = ["ChunkedBackend"]

_Wanted: TypeAlias = tuple[int, int, BlockAxes]
"""A pass, the position among its outputs, and the axes of the result."""


class ChunkedBackend:
    """Puts kernels into the graphs of a library's lazy arrays."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._chunked = CHUNKED[name]

    def emit(self, spec: KernelSpec) -> str:
        """Return the programs that go into the graph, as text."""
        lines = dict.fromkeys(line.shown for p in spec.passes for line in source_lines(p))
        return "\n\n".join(["\n".join(f"# {line}" for line in lines), *map(str, spec.passes)])

    def compile(self, spec: KernelSpec) -> KernelSpec:
        """Return the kernel as it is: each worker compiles it for itself."""
        return spec

    def bind(self, executable: KernelSpec, launch: Launch) -> Launch:
        """Return the kernel with its shapes."""
        return launch

    def launch(self, bound: Launch, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Return the results, which the library computes when someone asks for them."""
        spec, passes = bound.spec, tuple(map(without_rules, bound.spec.passes))
        if not spec.checks_indices:  # no message on a worker names a line
            passes = tuple(map(without_lines, passes))
        results = [
            BlockResult(tuple(shape), o.type.dtype, _axes(shape, bound.shape))
            for o, shape in zip(spec.outputs, bound.results, strict=True)
        ]
        wanted = [(*o.source, r.axes) for o, r in zip(spec.outputs, results, strict=True)]
        return self._chunked.map_blocks(
            f"mixad-{passes[0].name}",
            partial(_block, passes, tuple(wanted)),
            len(bound.shape),
            self._operands(passes[0], len(bound.shape), arguments),
            results,
        )

    def _operands(self, program: Program, rank: int, arguments: Sequence[Any]) -> list[Operand]:
        """Return the arguments, cut like the largest, each with its axes among those of blocks."""
        given = [
            (p, a if p.kind == "uniform" else self._chunked.asarray(a))  # NumPy's beside lazy ones
            for p, a in zip(program.params, arguments, strict=True)
        ]
        lanes = [argument for param, argument in given if param.kind == "lane"]
        largest = max(lanes, key=_size, default=None)
        operands: list[Operand] = []
        for param, argument in given:
            if param.kind == "lane":
                axes = tuple(range(rank - argument.ndim, rank))
                operands.append((_cut_like(argument, largest), axes))
            elif param.kind == "array":  # read at any place: every block gets the whole array
                what = _place(program, param)
                plain = self._chunked.with_plain_blocks(
                    argument, what=what
                )  # before they are joined
                operands.append((plain.rechunk(-1), ()))
            else:
                operands.append((argument, () if hasattr(argument, "chunks") else None))
        return operands


def _axes(shape: tuple[int, ...], whole: tuple[int, ...]) -> BlockAxes:
    """Return the axes of a result of some shape: it may lack the first ones of the broadcast."""
    lead = len(whole) - len(shape)
    return tuple(
        [None if extent != whole[lead + a] else lead + a for a, extent in enumerate(shape)]
    )


def _size(array: Any) -> int:
    return int(array.size)


def _cut_like(array: Any, largest: Any) -> Any:
    """Return an array in chunks like those of the largest one, which are cheaper to leave."""
    if array.size == largest.size:
        return array
    lead = largest.ndim - array.ndim
    return array.rechunk(
        {
            axis: largest.chunks[lead + axis]
            for axis, extent in enumerate(array.shape)
            if lead + axis >= 0 and extent == largest.shape[lead + axis]
        }
    )


def _block(passes: tuple[Program, ...], wanted: tuple[_Wanted, ...], *arguments: Any) -> Any:
    """Compute what a block gives of each result."""
    pairs = zip(passes[0].params, arguments, strict=True)
    values = [_of_block(p, a, _place(passes[0], p)) for p, a in pairs]
    shape = broadcast_shape(passes[0], [np.shape(value) for value in values])
    return kernel_for(passes, tuple([_request(*each, shape) for each in wanted]))(values)


def _request(at: int, result: int, axes: BlockAxes, shape: tuple[int, ...]) -> OutputRequest:
    """Return the request for a result on a block of some shape."""
    is_stored = axes == tuple(range(len(shape)))
    own = tuple([1 if axis is None else shape[axis] for axis in axes])
    return OutputRequest(at, result, None if is_stored else own)


def _place(program: Program, param: Param) -> str:
    return f"{program.name}: argument {param.name!r}"


def _of_block(param: Param, value: Any, what: str) -> Any:
    """Return an argument of a kernel on blocks: an array, or a number for a uniform."""
    plain = plain_block(value, what)
    if param.kind != "uniform":
        return np.asarray(plain)
    return plain.item() if isinstance(plain, (np.ndarray, np.generic)) else plain
