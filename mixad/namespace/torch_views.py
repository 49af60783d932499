"""Views that methods of torch's tensors take and the standard does not name."""

from __future__ import annotations

import math
from typing import Any

from mixad.namespace.indexing import scatter_add
from mixad.tape.node import Rule, apply_rule, library_of_value, shape_of_view

__all__ = ["torch_view"]


def torch_view(x: Any, method: str, *args: Any) -> Any:
    """Return the view that a method of tensors returns."""
    return apply_rule(_VIEW, x, method=method, args=args)


def _take_view(xp: Any, x: Any, method: str, args: tuple[Any, ...]) -> Any:
    return getattr(x, method)(*args)


def _add_to_view(g: Any, x: Any, method: str, args: tuple[Any, ...]) -> Any:
    """Add the cotangent to the elements that the view shows."""
    shape, on = tuple(x.shape), g.device
    positions = library_of_value(g).xp.arange(math.prod(shape), device=on).reshape(shape)
    return scatter_add(g, shape, _take_view(None, positions, method, args).contiguous())


_VIEW = Rule(
    "a view",
    _take_view,
    (_add_to_view,),
    fresh=True,
    linear="each",
    shape=shape_of_view(_take_view),
    is_view=True,
)
