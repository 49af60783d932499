"""Kernels as files that need neither Python nor mixad: C and object code, or CUDA."""

from mixad.export.kernels import Call
from mixad.export.targets import Export, export_call

__all__ = ["Call", "Export", "export_call"]
