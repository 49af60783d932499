"""CUDA for torch tensors: torch's memory and streams; `cuda.bindings` loads and launches."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from operator import attrgetter
from typing import Any

import torch
from cuda.bindings import driver

from mixad.backends.cuda import Usage, machine_code
from mixad.errors import BackendError

__all__ = ["TorchDriver"]


class TorchDriver:
    """What a `mixad.backends.cuda.CudaBackend` asks of torch and of CUDA.

    Modules are loaded into the primary context of a device, which is torch's, and stay.
    """

    # These are called for each array of a launch, so they are functions in C.
    device = staticmethod(attrgetter("device"))
    address = staticmethod(torch.Tensor.data_ptr)

    def attribute(self, number: int, device: torch.device) -> int:
        """Return what CUDA says of a device."""
        (ordinal,) = _checked(driver.cuDeviceGet(device.index))
        name = driver.CUdevice_attribute(number)
        return int(_checked(driver.cuDeviceGetAttribute(name, ordinal))[0])

    def is_capturing(self, device: torch.device) -> bool:
        """Whether torch's current stream is recorded for a graph."""
        with torch.cuda.device(device):
            return torch.cuda.is_current_stream_capturing()

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return new memory of torch's own allocator, used on the current stream."""
        if _current_device() == device.index:
            return _empty_strided(shape, _contiguous(shape), dtype)
        return torch.empty(size=shape, dtype=dtype, device=device)

    def zeros(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return memory of torch's own allocator, set to zero on the current stream."""
        return torch.zeros(shape, dtype=dtype, device=device)

    def compile(self, text: str, entries: Sequence[str], device: torch.device) -> Mapping[str, Any]:
        """Compile for a device, or take what is kept on disk, and load it."""
        major, minor = torch.cuda.get_device_capability(device)
        code = machine_code(text, f"sm_{major}{minor}")
        with _entered(device):
            (module,) = _checked(driver.cuModuleLoadData(code))
            return {e: _checked(driver.cuModuleGetFunction(module, e.encode()))[0] for e in entries}

    def usage(self, function: Any, device: torch.device) -> Usage:
        """Return what a kernel uses of a multiprocessor."""
        asked = driver.CUfunction_attribute
        names = (
            asked.CU_FUNC_ATTRIBUTE_NUM_REGS,
            asked.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES,
            asked.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        )
        with _entered(device):
            used = [int(_checked(driver.cuFuncGetAttribute(n, function))[0]) for n in names]
        return Usage(*used)

    def prepare_launch(
        self, function: Any, blocks: int, threads: tuple[int, int], device: torch.device
    ) -> Callable[[array[int]], None]:
        """Return what launches on torch's current stream, which may be one that is captured."""
        index, call = device.index, driver.cuLaunchKernel
        current_device, current_stream = _current_device, _current_stream
        x, y = threads

        def launch(words: array[int]) -> None:
            arguments = array("q", (words.buffer_info()[0],))
            at = arguments.buffer_info()[0]
            if current_device() == index:
                found = call(function, blocks, 1, 1, x, y, 1, 0, current_stream(index), at, 0)
                if not found[0]:
                    return
                if found[0] != _NO_CONTEXT:
                    _checked(found)
            with _entered(device):
                _checked(call(function, blocks, 1, 1, x, y, 1, 0, current_stream(index), at, 0))

        return launch


def _stream(index: int) -> int:
    """Return torch's current stream as CUDA has it."""
    return torch.cuda.current_stream(index).cuda_stream


# Kernels of torch.compile call these; public names take several times as long.
_current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _stream)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)
_empty_strided: Callable[..., torch.Tensor] = torch._C._dynamo.guards._empty_strided_cuda


@lru_cache(maxsize=4096)
def _contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return how many elements are between neighbours along each axis."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


_NO_CONTEXT = driver.CUresult.CUDA_ERROR_INVALID_CONTEXT


@contextmanager
def _entered(device: torch.device) -> Iterator[None]:
    """Make a device the current one, and its primary context, which is torch's, this thread's.

    CUDA's driver begins a thread with no context, torch with device 0 and none until it has to ask
    CUDA for something: torch's own threads for backward passes are such.
    """
    if device.index not in _CONTEXTS:
        (ordinal,) = _checked(driver.cuDeviceGet(device.index))
        (_CONTEXTS[device.index],) = _checked(driver.cuDevicePrimaryCtxRetain(ordinal))
    with torch.cuda.device(device):
        _checked(driver.cuCtxSetCurrent(_CONTEXTS[device.index]))
        yield


_CONTEXTS: dict[int, Any] = {}
"""Primary contexts by device, each held once for the life of the process."""


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a call of CUDA returned besides its status."""
    status, *values = result
    if int(status):
        told = driver.cuGetErrorString(status)[1].decode()
        raise BackendError(f"CUDA reports {status.name}: {told}")
    return tuple(values)
