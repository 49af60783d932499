"""Whether a value is traced, and functions with derivatives of their own."""

from __future__ import annotations

from typing import Any

from autograd.extend import primitive

__all__ = ["Box", "isbox", "primitive"]


class Box:
    """What mixad refuses as a value of autograd's: nothing is one here."""


def isbox(value: Any) -> bool:
    """Tell whether a value is traced."""
    return hasattr(value, "__mixad_tracer__")
