"""Containers: those of Python, which mixad's transforms go into."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np

dict, list, tuple, type = builtins.dict, builtins.list, builtins.tuple, builtins.type


def isinstance(value: Any, kind: Any) -> bool:
    """Tell whether a value is of a class; traced arrays are arrays."""
    kinds = kind if builtins.isinstance(kind, builtins.tuple) else (kind,)
    traced = np.ndarray in kinds and hasattr(value, "__mixad_tracer__")
    return traced or builtins.isinstance(value, kinds)


__all__ = ["dict", "isinstance", "list", "tuple", "type"]
