"""Rules over small arrays, such as matrices of a batch, whose elements are variables of a kernel.

Every element of an argument is a view over the axes before, which a kernel reads as it reads any
array; the elements of a value are stored side by side.  A step of a loop runs it without Python.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import mul
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends import registry
from mixad.backends.array_memory import address_of
from mixad.backends.execute import Kernel, kernel_for
from mixad.backends.fifo_cache import FifoCache
from mixad.backends.hookspecs import LaunchBlock, Stepping
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.tape.plan_steps import is_of_plugin

__all__ = ["CoreBlock", "CoreKernel", "OverCores"]

Core: TypeAlias = tuple[int, ...]
_Array: TypeAlias = np.ndarray[Any, Any]


_MAX_LAYOUTS = 64
"""Layouts of arguments for which a kernel remembers its launch."""


class CoreBlock(NamedTuple):
    """A launch that a backend runs by itself."""

    backend: Stepping
    block: LaunchBlock  # of arguments and values
    # Words of where it reads and writes what fails: one place, zero at first.
    fails: tuple[int, ...]
    room: int  # bytes of that place
    compiled: object  # what keeps the code in memory


class CoreKernel:
    """A program over the elements of small arrays of NumPy, for batches of them.

    Params are the elements of each argument, outputs those of each value; where some arguments have
    no value there is one more of each: whether it has failed.  ``cores`` and ``results`` are last
    axes.
    """

    def __init__(self, program: Program, cores: Sequence[Core], results: Sequence[Core]) -> None:
        self._program = program
        self._cores = tuple(cores)
        self._results = tuple(results)
        self._may_fail = len(program.params) > sum(map(math.prod, cores))
        self._dtypes = frozenset(output.type.dtype_name for output in program.outputs)
        self._blocks: FifoCache[tuple[Any, CoreBlock | None]] = FifoCache(_MAX_LAYOUTS)

    @property
    def is_served(self) -> bool:
        """Whether there is a backend that compiles it."""
        backend = registry.resolve("numpy", "cpu", self._dtypes)
        return registry.capability(backend.name).stores_beside

    def __call__(self, arrays: Sequence[_Array]) -> tuple[_Array, ...] | None:
        """Return the values for some arrays; None if it fails for one of a batch."""
        block = self._known_block(arrays)
        if block is not None:
            return self._run(block, arrays)
        leading = self._leading(arrays)
        made = self._kernel(self._elements(arrays, leading), None)
        if self._may_fail and made[-1].any():
            return None
        pairs = zip(made, self._results, strict=False)
        return tuple([each.reshape((*leading, *core)) for each, core in pairs])

    def block(self, arrays: Sequence[_Array]) -> CoreBlock | None:
        """Return the launch for arrays like these as what a backend runs; None if none does."""
        prepared = self._kernel.prepare_launch(self._elements(arrays, self._leading(arrays)), None)
        found = None if prepared.audit or is_of_plugin(prepared) else prepared.blocks()
        if found is None:
            return None
        backend, (block,) = found
        places = [
            (k, sum(map(mul, at, each.strides[each.ndim - len(core) :])))
            for k, (each, core) in enumerate(zip(arrays, self._cores, strict=True))
            for at in np.ndindex(core)
        ]
        count = len(places)
        reads = [(places[k][0], word, places[k][1]) for k, word, _ in block.reads if k < count]
        fails = [word for k, word, _ in block.reads if k == count]
        writes, last = block.writes[: len(self._results)], block.writes[len(self._results) :]
        own = block._replace(reads=tuple(reads), writes=writes)
        words = (*fails, *[each.word for each in last])
        room = sum(each.room for each in last)
        return CoreBlock(backend, own, words, room, prepared.compiled)

    def _known_block(self, arrays: Sequence[_Array]) -> CoreBlock | None:
        """Return the launch for arrays like these, if it is short: made once for a layout."""
        backend = registry.resolve("numpy", "cpu", self._dtypes)
        key = (id(backend), *[each for a in arrays for each in (a.shape, a.strides)])
        found = self._blocks.get(key)
        if found is None:
            found = backend, self.block(arrays)
            self._blocks.keep(key, 1, found)
        return found[1]

    def _run(self, known: CoreBlock, arrays: Sequence[_Array]) -> tuple[_Array, ...] | None:
        """Run a launch that is known: Python does little beside."""
        block, leading = known.block, self._leading(arrays)
        words, addresses = block.words[:], [address_of(each) for each in arrays]
        for k, word, first in block.reads:
            words[word] = addresses[k] + first
        made = [np.empty(leading + core, dtype) for core, dtype in self._made]
        for written, each in zip(block.writes, made, strict=True):
            words[written.word] = address_of(each)
        fails = array("b", bytes(known.room))
        for word in known.fails:
            words[word] = fails.buffer_info()[0]
        known.backend.run_block(block.kernel, words, block.tiles)
        return None if any(fails) else tuple(made)

    @cached_property
    def _made(self) -> list[tuple[Core, np.dtype[Any]]]:
        """The last axes and the dtype of each value."""
        found, first = [], 0
        for core in self._results:
            found.append((core, self._program.outputs[first].type.dtype))
            first += math.prod(core)
        return found

    @cached_property
    def _kernel(self) -> Kernel:
        requests, first = [], 0
        for core in self._results:
            end = first + math.prod(core)
            beside = tuple([(0, k) for k in range(first + 1, end)])
            requests.append(OutputRequest(0, first, beside=beside))
            first = end
        if self._may_fail:
            requests.append(OutputRequest(0, first))
        return kernel_for((self._program,), tuple(requests))

    def _leading(self, arrays: Sequence[_Array]) -> tuple[int, ...]:
        """Return the shape of the batch."""
        pairs = zip(arrays, self._cores, strict=True)
        first, *others = [a.shape[: a.ndim - len(core)] for a, core in pairs]
        return (
            first if all(each == first for each in others) else np.broadcast_shapes(first, *others)
        )

    def _elements(self, arrays: Sequence[_Array], leading: tuple[int, ...]) -> list[_Array]:
        """Return the arguments of the kernel."""
        pairs = zip(arrays, self._cores, strict=True)
        views = [each[(..., *at)] for each, core in pairs for at in np.ndindex(core)]
        return [*views, np.zeros(leading, bool)] if self._may_fail else views


@dataclass(frozen=True)
class OverCores:
    """What evaluates a rule: a kernel over small arrays of NumPy, a library where there is none."""

    kernel: Callable[..., CoreKernel | None]  # ``(*arrays, **static)``: None for a library
    library: Callable[..., tuple[Any, ...]]  # ``(xp, *arrays, **static)``: the values
    # ``(**static)``: raised where the kernel fails; else by the library
    error: Callable[..., Exception] | None = None

    def __call__(self, xp: Any, *arrays: Any, **static: Any) -> tuple[Any, ...]:
        """Return the values of a rule."""
        kernel = self.kernel(*arrays, **static)
        if kernel is None:
            return self.library(xp, *arrays, **static)
        found = kernel(arrays)
        if found is not None:
            return found
        if self.error is not None:
            raise self.error(**static)
        return self.library(xp, *arrays, **static)

    def block(self, arrays: Sequence[Any], static: Any) -> CoreBlock | None:
        """Return the launch for arrays like these as what a backend runs by itself."""
        kernel = self.kernel(*arrays, **static)
        return None if kernel is None else kernel.block(arrays)
