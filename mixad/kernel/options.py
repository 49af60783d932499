"""What a user may override of the choices made for a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFAULT_OPTIONS", "KernelOptions", "Placement", "Strategy"]

Strategy = Literal["auto", "forward"]
Placement = Literal["auto", "forward", "reverse"]


@dataclass(frozen=True)
class KernelOptions:
    """Overrides of one decorated function; every field has a choice that is made for the user.

    Attributes
    ----------
    strategy : str
        How a kernel's derivative is computed: by dual chunks (``"forward"``), which is all there is
        so far, or as mixad chooses (``"auto"``).
    placement : str
        When partials are computed: with the primal (``"forward"``), in the backward pass
        (``"reverse"``), or as mixad chooses (``"auto"``), so far always in the backward pass.
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
