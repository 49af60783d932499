"""Kernels on CUDA devices, for plugins: all but what an array library does in its own way.

A plugin gives a `Driver`, some calls of its library and of CUDA, and gets a backend:
``CudaBackend("cupy", driver)``.
"""

from mixad.backends.cuda.backend import CudaBackend
from mixad.backends.cuda.bound import CudaBound
from mixad.backends.cuda.cubin import usage_in
from mixad.backends.cuda.device import ATTRIBUTES, Device, Usage
from mixad.backends.cuda.driver import Driver, Function
from mixad.backends.cuda.kernel import CudaKernel
from mixad.backends.disassembler import disassemble
from mixad.backends.nvrtc import OPTIONS, Code, compile_text, machine_code

__all__ = ["ATTRIBUTES", "OPTIONS", "Code", "CudaBackend", "CudaBound", "CudaKernel", "Device",
           "Driver", "Function", "Usage", "compile_text", "disassemble",
           "machine_code", "usage_in"]  # fmt: skip
