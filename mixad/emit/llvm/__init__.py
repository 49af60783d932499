"""LLVM IR for the CPU: explicit SPMD vectors, one gang of `GANG` elements at a time."""

from mixad.emit.llvm.kernel import ENTRY, emit_kernel
from mixad.emit.llvm.text import GANG, Dialect

__all__ = ["ENTRY", "GANG", "Dialect", "emit_kernel"]
