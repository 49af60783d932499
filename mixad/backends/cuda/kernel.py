"""A kernel whose texts are compiled when a launch first needs them, once for each device."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from functools import partial

from mixad.backends.cuda.choice import BlockShape, choose_shape
from mixad.backends.cuda.device import Device, Usage
from mixad.backends.cuda.driver import Driver, Function
from mixad.emit.cuda import Dialect, emit_kernel, entries, for_threads
from mixad.kernel.spec import KernelSpec, Operand

__all__ = ["CudaKernel"]


class CudaKernel:
    """A kernel whose texts are compiled when a launch first needs them."""

    def __init__(self, spec: KernelSpec, driver: Driver) -> None:
        self.spec = spec
        self._lowered = for_threads(spec)
        self._driver = driver
        self._loaded: dict[tuple[Dialect, Hashable], tuple[Function, ...]] = {}
        self._chosen: dict[tuple[int, bool, int, Hashable], BlockShape] = {}
        self._lock = threading.RLock()

    def text(self, dialect: Dialect) -> str:
        """Return the CUDA C++ for a dialect."""
        return emit_kernel(self._lowered, dialect)

    def functions(self, dialect: Dialect, device: Hashable) -> tuple[Function, ...]:
        """Return what is launched on a device, pass by pass."""
        key = dialect, device
        if key not in self._loaded:
            with self._lock:
                if key not in self._loaded:
                    symbols = entries(self.spec)
                    loaded = self._driver.compile(self.text(dialect), symbols, device)
                    self._loaded[key] = tuple(loaded[s] for s in symbols)
        return self._loaded[key]

    def usages(self, dialect: Dialect, device: Hashable) -> list[Usage]:
        """Return what each pass uses, compiled for a device."""
        return [self._driver.usage(f, device) for f in self.functions(dialect, device)]

    def shape(
        self, widest: int, wide: bool, elements: int, device: Hashable, described: Device
    ) -> BlockShape:
        """Return how blocks are shaped on a device, chosen at the first launch there."""
        key = widest, wide, elements, device
        if key not in self._chosen:
            with self._lock:
                used = partial(self._usages_of, wide, elements, device)
                self._chosen[key] = choose_shape(described, widest, self._loaded_bytes, used)
        return self._chosen[key]

    def _usages_of(
        self, wide: bool, elements: int, device: Hashable, shape: BlockShape
    ) -> list[Usage]:
        return self.usages(Dialect(*shape, wide=wide, elements=elements), device)

    @property
    def _loaded_bytes(self) -> list[int]:
        """Bytes of each value that is loaded for an element, of what moves along the row."""
        operands = (self.spec.operands[k] for k in self.spec.varying_params)
        return [o.type.itemsize for o in operands if isinstance(o, Operand)]
