"""Methods of NumPy's ufuncs, ``np.add.reduce`` and the like, by these names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mixad.namespace.common_spellings import COMMON
from mixad.namespace.elementwise import array_beside
from mixad.namespace.manipulation import reshape
from mixad.namespace.masked_reductions import masked_max, masked_min, masked_prod, masked_total
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import cumprod, cumsum
from mixad.tape.tracer import Tracer

__all__ = ["UFUNC_METHODS"]


def _reduce(reduction: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction with the first axis as the default."""

    def evaluate(x: Any, axis: Any = 0, *, dtype: Any = None, keepdims: bool = False,
                 initial: Any = None, where: Any = True) -> Any:  # fmt: skip
        options = {} if dtype is None else {"dtype": dtype}
        return reduction(x, axis, keepdims=keepdims, initial=initial, where=where, **options)

    return evaluate


def _extreme(reduction: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction that takes no dtype."""

    def evaluate(x: Any, axis: Any = 0, *, keepdims: bool = False, initial: Any = None,
                 where: Any = True) -> Any:  # fmt: skip
        return reduction(x, axis, keepdims=keepdims, initial=initial, where=where)

    return evaluate


def _accumulate(cumulation: Callable[..., Any]) -> Callable[..., Any]:
    def evaluate(x: Any, axis: int = 0, dtype: Any = None) -> Any:
        return cumulation(x, axis, dtype)

    return evaluate


def _outer(name: str) -> Callable[..., Any]:
    """Return a function of all pairs of elements of two arrays."""

    def evaluate(x: Any, y: Any) -> Any:
        like = x if isinstance(x, Tracer) else y
        x, y = array_beside(x, like), array_beside(y, like)
        return COMMON[name](reshape(x, (*x.shape, *[1] * y.ndim)), y)

    return evaluate


_REDUCE = "array=x / axis dtype out keepdims initial where"
_OUTER = {"power": "pow"} | {
    name: name for name in ("add", "subtract", "multiply", "divide", "maximum", "minimum")
}

UFUNC_METHODS: Mapping[str, BoundFunction] = {
    "add.reduce": function_of(_reduce(masked_total), _REDUCE),
    "multiply.reduce": function_of(_reduce(masked_prod), _REDUCE),
    "maximum.reduce": function_of(_extreme(masked_max), _REDUCE),
    "minimum.reduce": function_of(_extreme(masked_min), _REDUCE),
    "add.accumulate": function_of(_accumulate(cumsum), "array=x / axis dtype out"),
    "multiply.accumulate": function_of(_accumulate(cumprod), "array=x / axis dtype out"),
    **{f"{name}.outer": function_of(_outer(ours), "A=x B=y /") for name, ours in _OUTER.items()},
}
"""Beside functions in NumPy's table; other methods are refused by name."""
