"""Kernels on the CPU: emit, compile or fetch from the cache, fill the argument block, run the tiles."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixad.backends.arrays import library_of, numpy_view, wrap_numpy
from mixad.backends.cpu import compiler
from mixad.backends.cpu.host import VECTOR_FUNCTIONS, Host, detect
from mixad.emit.llvm import BLOCK, ENTRY, ArgumentBlock, Dialect, emit_kernel
from mixad.kernel.lower import lowered
from mixad.kernel.spec import KernelSpec, Launch
from mixad.scalar.types import ScalarType

__all__ = ["CpuBackend", "CpuKernel"]

_PACKING = {"float32": "<fxxxx", "float64": "<d", "bool": "<?xxxxxxx"}
_STOP = np.zeros(1, np.int32)


@dataclass(frozen=True)
class _Bound:
    """A launch with its argument block: only addresses and scalars are filled in at a call."""

    words: array[int]
    tiles: int
    operands: tuple[tuple[int, int], ...]
    uniforms: tuple[tuple[int, int, ScalarType], ...]
    outputs: tuple[tuple[int, np.dtype[Any]], ...]


@dataclass
class CpuKernel:
    """A compiled kernel, and the launches that were bound to it."""

    module: compiler.Module
    spec: KernelSpec
    function: Any
    bound: dict[int, tuple[Launch, _Bound]] = field(default_factory=dict)


class CpuBackend:
    """Compiles kernel specs for the host and launches them on its cores."""

    name = "cpu"

    def __init__(self, host: Host | None = None) -> None:
        self.host = host or detect()
        self.dialect = _dialect(self.host)
        self.cache_bytes = self.host.cache_bytes

    def emit(self, spec: KernelSpec) -> str:
        """Return the LLVM IR of a kernel."""
        return emit_kernel(lowered(spec), self.dialect)

    def assembly(self, spec: KernelSpec) -> str:
        """Return the assembler text of a kernel, for people."""
        return compiler.assembly(self.emit(spec), self.host)

    def compile(self, spec: KernelSpec) -> CpuKernel:
        """Return a kernel ready to run, from the cache on disk if it is there."""
        module = compiler.compile_module(self.emit(spec), self.host)
        return CpuKernel(module, spec, module.function(ENTRY, compiler.KERNEL_PROTOTYPE))

    def launch(
        self, executable: CpuKernel, launch: Launch, arguments: Sequence[Any]
    ) -> tuple[Any, ...]:
        """Run a kernel over new results."""
        known = executable.bound.get(id(launch))
        if known is None:
            known = executable.bound[id(launch)] = (launch, _bind(launch))
        bound = known[1]
        like = arguments[bound.operands[0][0]] if bound.operands else None
        module = "numpy" if like is None else library_of(like).module
        words = bound.words[:]
        views = [numpy_view(arguments[k], module) for k, _ in bound.operands]
        for view, (_, at) in zip(views, bound.operands, strict=True):
            words[at] = view.ctypes.data
        for k, at, type in bound.uniforms:
            words[at] = _bits(arguments[k], type)
        shape = tuple(launch.shape[a] for a in launch.order)
        results = [_empty(shape, dtype) for _, dtype in bound.outputs]
        for result, (at, _) in zip(results, bound.outputs, strict=True):
            words[at] = result.ctypes.data
        if bound.tiles:
            executable.function(words.buffer_info()[0], 0, bound.tiles)
        return tuple(wrap_numpy(_in_axis_order(r, launch.order), like, module) for r in results)


def _dialect(host: Host) -> Dialect:
    found = (host.vector_function(name, bits) for name in VECTOR_FUNCTIONS for bits in (32, 64))
    return Dialect(host.vector_bits, frozenset(f.symbol for f in found if f is not None))


def _bind(launch: Launch) -> _Bound:
    """Fill everything into an argument block that the layouts decide."""
    spec, block = launch.spec, ArgumentBlock(launch.spec)
    words = array("q", bytes(8 * block.words))
    inner = launch.extents[-1]
    per_row = max(1, -(-inner // BLOCK))
    words[block.STOP] = _STOP.ctypes.data
    words[block.EXTENT] = inner
    words[block.TILES_PER_ROW] = per_row
    for axis, extent in enumerate(launch.extents[:-1]):
        words[block.OUTER_EXTENTS + axis] = extent
    operands, uniforms = [], []
    for k, (operand, strides) in enumerate(zip(spec.operands, launch.strides, strict=True)):
        if operand is None or strides is None:
            uniforms.append((k, block.params[k], spec.passes[0].params[k].var.type))
            continue
        operands.append((k, block.params[k]))
        for axis, stride in enumerate(strides[:-1]):
            words[block.outer_stride(k, axis)] = stride
        if operand.step == "any":
            words[block.inner_stride(k)] = strides[-1]
    outputs = [(at, o.type.dtype) for at, o in zip(block.outputs, spec.outputs, strict=True)]
    rows = int(np.prod(launch.extents[:-1], dtype=np.int64))
    tiles = rows * per_row if 0 not in launch.shape else 0
    return _Bound(words, tiles, tuple(operands), tuple(uniforms), tuple(outputs))


def _bits(value: Any, type: ScalarType) -> int:
    """Return a scalar as the 64-bit word that kernels read it from."""
    if type.is_integer:
        packed = (
            struct.pack("<q", int(value)) if type.kind == "int" else struct.pack("<Q", int(value))
        )
    else:
        packed = struct.pack(_PACKING[type.dtype.name], value)
    word: int = struct.unpack("<q", packed)[0]
    return word


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return an uninitialised array that starts on a cache line."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.empty(size + 63, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def _in_axis_order(result: np.ndarray[Any, Any], order: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return a result whose axes lie in the order of the loops as an array in the caller's order."""
    if order == tuple(range(len(order))):
        return result
    return result.transpose(np.argsort(order))
