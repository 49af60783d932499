"""CUDA for torch tensors: torch's memory and streams; `cuda.bindings` loads and launches."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from cuda.bindings import driver

from mixad.backends.cuda import Usage, machine_code
from mixad.errors import BackendError

__all__ = ["TorchDriver"]

_AS_IT_IS = nullcontext()


class TorchDriver:
    """What a `mixad.backends.cuda.CudaBackend` asks of torch and of CUDA.

    Modules are loaded into the primary context of a device, which is torch's, and stay.
    """

    def device(self, array: torch.Tensor) -> torch.device:
        """Return the device of a tensor."""
        return array.device

    def attribute(self, number: int, device: torch.device) -> int:
        """Return what CUDA says of a device."""
        (ordinal,) = _checked(driver.cuDeviceGet(device.index))
        name = driver.CUdevice_attribute(number)
        return int(_checked(driver.cuDeviceGetAttribute(name, ordinal))[0])

    def is_capturing(self, device: torch.device) -> bool:
        """Whether torch's current stream is recorded for a graph."""
        with torch.cuda.device(device):
            return torch.cuda.is_current_stream_capturing()

    def address(self, array: torch.Tensor) -> int:
        """Return the address of the first element."""
        return array.data_ptr()

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return new memory of torch's own allocator, used on the current stream."""
        return torch.empty(shape, dtype=dtype, device=device)

    def zeros(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return memory of torch's own allocator, set to zero on the current stream."""
        return torch.zeros(shape, dtype=dtype, device=device)

    def compile(self, text: str, entries: Sequence[str], device: torch.device) -> Mapping[str, Any]:
        """Compile for a device, or take what is kept on disk, and load it."""
        major, minor = torch.cuda.get_device_capability(device)
        code = machine_code(text, f"sm_{major}{minor}")
        with _made_current(device):
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
        with _made_current(device):
            used = [int(_checked(driver.cuFuncGetAttribute(n, function))[0]) for n in names]
        return Usage(*used)

    def launch(
        self,
        function: Any,
        blocks: int,
        threads: tuple[int, int],
        words: array[int],
        device: torch.device,
    ) -> None:
        """Launch on torch's current stream, which may be one that is being captured."""
        arguments = array("q", (words.buffer_info()[0],))
        at, x, y = arguments.buffer_info()[0], *threads
        with _made_current(device):
            stream = _stream(device)
            found = driver.cuLaunchKernel(function, blocks, 1, 1, x, y, 1, 0, stream, at, 0)
            if found[0]:
                _checked(found)


_raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
"""Tells the current stream as a number, which torch.compile's kernels ask; no public name does."""


def _stream(device: torch.device) -> int:
    """Return torch's current stream as CUDA has it."""
    if _raw_stream is None:
        return torch.cuda.current_stream(device).cuda_stream
    return _raw_stream(device.index)


def _made_current(device: torch.device) -> AbstractContextManager[Any]:
    """Return the context in which a device is the current one; as a rule it is already."""
    if device.index not in _HERE.devices:
        _enter(device)
    return _AS_IT_IS if torch.cuda.current_device() == device.index else torch.cuda.device(device)


class _Thread(threading.local):
    """What this thread has entered: the devices whose contexts it has been given.

    CUDA's driver begins a thread with no context, torch with device 0 and none until it has to ask
    CUDA for something: torch's own threads for backward passes are such.
    """

    def __init__(self) -> None:
        self.devices: set[int] = set()


_HERE = _Thread()
_CONTEXTS: dict[int, Any] = {}
"""Primary contexts by device, each held once for the life of the process."""


def _enter(device: torch.device) -> None:
    """Make a device's primary context, which is torch's, the one of this thread for that device."""
    if device.index not in _CONTEXTS:
        (ordinal,) = _checked(driver.cuDeviceGet(device.index))
        (_CONTEXTS[device.index],) = _checked(driver.cuDevicePrimaryCtxRetain(ordinal))
    with torch.cuda.device(device):
        _checked(driver.cuCtxSetCurrent(_CONTEXTS[device.index]))
    _HERE.devices.add(device.index)


def _checked(result: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what a call of CUDA returned besides its status."""
    status, *values = result
    if int(status):
        told = driver.cuGetErrorString(status)[1].decode()
        raise BackendError(f"CUDA reports {status.name}: {told}")
    return tuple(values)
