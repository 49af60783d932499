"""What a user may override of the choices made for a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFAULT_OPTIONS", "KernelOptions", "Placement", "Strategy"]

Strategy = Literal["auto", "forward", "reverse"]
Placement = Literal["auto", "forward", "reverse"]


@dataclass(frozen=True)
class KernelOptions:
    """Overrides of one decorated function; every field has a choice that is made for the user.

    Attributes
    ----------
    strategy : str
        How a kernel's derivative is computed: by dual chunks (``"forward"``), by scalar reverse
        mode, or as the program suggests (``"auto"``).
    placement : str
        When partials are computed: with the primal (``"forward"``), in the backward pass
        (``"reverse"``), or as sizes suggest (``"auto"``).
    chunk : int or None
        Most active inputs in one pass; None: as few passes as can be.
    backend : str or None
        Name of the backend; None: the best one for the arrays.
    """

    strategy: Strategy = "auto"
    placement: Placement = "auto"
    chunk: int | None = None
    backend: str | None = None


DEFAULT_OPTIONS = KernelOptions()
