"""Kernels on lazy arrays: the program goes into the graph, blocks of NumPy arrays go through it.

Nothing is computed here.  A block is computed by the best backend for NumPy on the machine that
computes it; sums are summed block by block first, then as Dask sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from mixad.backends.execute import kernel_for
from mixad.backends.unsupported_arrays import plain_block
from mixad.kernel.spec import KernelSpec, Launch, Output, OutputRequest
from mixad.scalar.ir import Param, Program, source_lines
from mixad.scalar.widen import without_rules

__all__ = ["DaskBackend"]


class DaskBackend:
    """Puts kernels into the graphs of Dask arrays."""

    name = "dask"

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
        """Return the results, which Dask computes when someone asks for them."""
        spec, passes = bound.spec, tuple(map(without_rules, bound.spec.passes))
        return tuple(
            _result(passes[output.source[0]], output, shape, len(bound.shape), arguments)
            for output, shape in zip(spec.outputs, bound.results, strict=True)
        )


def _result(
    program: Program, output: Output, shape: tuple[int, ...], rank: int, arguments: Sequence[Any]
) -> Any:
    """Return one output: for each element of the broadcast, or summed to a shape."""
    import dask.array as da

    axes = tuple(range(rank))
    dtype = output.type.dtype
    operands: list[Any] = []
    for at, (param, argument) in enumerate(zip(program.params, arguments, strict=True)):
        if param.kind == "uniform":
            operands += [argument, () if isinstance(argument, da.Array) else None]
        elif param.kind == "lane":
            operands += [argument, axes[rank - argument.ndim :]]
        else:  # read at any place: every block gets the whole array
            block = partial(plain_block, what=_place(program, param))  # before they are joined
            whole = argument.map_blocks(block, dtype=argument.dtype, meta=argument._meta).rechunk(
                -1
            )
            operands += [whole, tuple(rank + 64 * at + k for k in range(whole.ndim))]
    full = da.blockwise(
        partial(_block, program, output.source[1]),
        axes,
        *operands,
        dtype=dtype,
        meta=np.empty((0,) * rank, dtype),
        concatenate=True,
        name=None,
    )
    return full if full.shape == shape else _summed(full, shape)


def _block(program: Program, result: int, *arguments: Any) -> Any:
    """Compute one output on a block."""
    kernel = kernel_for((program,), (OutputRequest(0, result),))
    pairs = zip(program.params, arguments, strict=True)
    return kernel([_of_block(p, a, _place(program, p)) for p, a in pairs])[0]


def _place(program: Program, param: Param) -> str:
    return f"{program.name}: argument {param.name!r}"


def _of_block(param: Param, value: Any, what: str) -> Any:
    """Return an argument of a kernel on blocks: an array, or a number for a uniform."""
    plain = plain_block(value, what)
    if param.kind != "uniform":
        return np.asarray(plain)
    return plain.item() if isinstance(plain, (np.ndarray, np.generic)) else plain


def _summed(full: Any, shape: tuple[int, ...]) -> Any:
    """Return the sum over the axes that a shape lacks or has with extent 1."""
    lead = full.ndim - len(shape)
    axes = [a for a in range(full.ndim) if a < lead or (shape[a - lead] == 1 != full.shape[a])]
    return full.sum(axis=tuple(axes), dtype=full.dtype, keepdims=True).reshape(shape)
