"""A stand-in for CUDA's driver and compiler: launches reach the emulator of CUDA C++.

The module has the names and calling conventions of `cuda.bindings.driver` as far as the driver of
mixad-torch uses them; "machine code" is the text.
"""

from __future__ import annotations

import ctypes
import enum
import threading
from array import array
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from cuda_emulator import H200, EmulatedDriver

from mixad.backends.cuda import Code
from mixad.errors import BackendError


class CUresult(enum.IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_INVALID_CONTEXT = 201


class CUfunction_attribute(enum.IntEnum):  # noqa: N801
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1
    CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES = 3
    CU_FUNC_ATTRIBUTE_NUM_REGS = 4


USED = {
    CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS: 40,
    CUfunction_attribute.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: 0,
    CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: 1024,
}
"""What every kernel says that it uses."""

OK = CUresult.CUDA_SUCCESS


class StandIn:
    """CUDA as one process sees it.

    Attributes
    ----------
    compiled : list of (str, str)
        The texts that went through the compiler, and for which architecture.
    stream : int
        The current one.
    streams : list of int
        The stream of each launch.
    entered : list
        The devices that were made current.
    captures : bool
        Whether the current stream is recorded for a graph.
    """

    def __init__(self) -> None:
        self.compiled: list[tuple[str, str]] = []
        self.stream = 77
        self.streams: list[int] = []
        self.captures = False
        self.entered: list[Any] = []
        self._emulator = EmulatedDriver()
        self._of_thread = threading.local()

    @property
    def driver(self) -> ModuleType:
        module = ModuleType("cuda.bindings.driver")
        module.CUresult = CUresult
        module.CUdevice_attribute, module.CUfunction_attribute = int, CUfunction_attribute
        module.cuDeviceGet = lambda ordinal: (OK, ordinal)
        module.cuDeviceGetAttribute = lambda number, device: (OK, H200[number])
        module.cuDevicePrimaryCtxRetain = lambda device: (OK, device)
        module.cuCtxSetCurrent = self._set_context
        module.cuFuncGetAttribute = lambda name, function: self._in_context(lambda: USED[name])
        module.cuModuleLoadData = lambda cubin: self._in_context(lambda: bytes(cubin))
        module.cuModuleGetFunction = self._function
        module.cuLaunchKernel = self._launch
        module.cuGetErrorString = lambda status: (OK, b"a stand-in's error")
        return module

    def _set_context(self, context: Any) -> Any:
        self._of_thread.context = context
        return (OK,)

    def _in_context(self, answer: Callable[[], Any]) -> Any:
        """Answer only a thread that has a context, as CUDA does."""
        if not hasattr(self._of_thread, "context"):
            return (CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        return OK, answer()

    def compile(self, text: str, architecture: str, options: Sequence[str] = ()) -> Code:
        """Stand in for `mixad.backends.nvrtc.compiled`."""
        if "not C++" in text:
            raise BackendError("NVRTC does not compile a kernel:\nline 1")
        self.compiled.append((text, architecture))
        return Code(text, text.encode(), "")

    def _function(self, module: bytes, name: bytes) -> Any:
        entry = name.decode()
        return OK, self._emulator.compile(module.decode().rstrip("\0"), [entry], None)[entry]

    def _launch(self, function: Any, *rest: Any) -> Any:
        blocks, one_y, one_z, x, y, z, shared, stream, params, extra = rest
        if not hasattr(self._of_thread, "context"):
            return (CUresult.CUDA_ERROR_INVALID_CONTEXT,)
        if not blocks:
            return (CUresult.CUDA_ERROR_INVALID_VALUE,)
        assert (one_y, one_z, z, shared, extra) == (1, 1, 1, 0, 0)
        self.streams.append(stream)
        address = ctypes.c_void_p.from_address(params).value
        self._emulator.launch(function, blocks, (x, y), None, _Words(address))
        return (OK,)


class _Words(array):
    """Words at an address, as far as the emulator asks."""

    def __new__(cls, address: int) -> _Words:
        self = super().__new__(cls, "q")
        self.address = address
        return self

    def buffer_info(self) -> tuple[int, int]:
        return self.address, 0
