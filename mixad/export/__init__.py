"""Kernels as files that need neither Python nor mixad: C and object code, or CUDA."""

from mixad.export.export import Export, export_call
from mixad.export.kernels import Call

__all__ = ["Call", "Export", "export_call"]
