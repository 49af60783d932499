"""Methods of tensors that no function of torch does, or not with the same arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mixad.errors import TracerError
from mixad.namespace.creation import full
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import where
from mixad.namespace.joining import broadcast_to, tile
from mixad.namespace.linear_algebra import adjoint
from mixad.namespace.manipulation import reshape
from mixad.namespace.special import SPECIAL
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import total
from mixad.namespace.torch_checks import without_elements
from mixad.namespace.torch_views import torch_view
from mixad.tape.constant import constants
from mixad.tape.memory import gives_views, share, unshared
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["TORCH_METHODS"]


@gives_views
def _expand(x: Any, shape: Sequence[int], *, implicit: bool = False) -> Any:
    """Return a view in a larger shape; lengths of -1 stay."""
    own = (*[1] * (len(shape) - x.ndim), *x.shape)
    return broadcast_to(x, tuple(o if n == -1 else n for o, n in zip(own, shape, strict=True)))


@gives_views
def _expand_as(x: Any, y: Any) -> Any:
    return broadcast_to(x, tuple(y.shape))


@gives_views
def _view(x: Any, shape: Any) -> Any:
    if not isinstance(shape, (int, Sequence)):
        raise TracerError(
            f"view({shape}) of a value that is being differentiated is not available: the bits of "
            "its elements have no derivative; use x.to(dtype) to convert them"
        )
    return reshape(x, shape)


@gives_views
def _view_as(x: Any, y: Any) -> Any:
    return reshape(x, tuple(y.shape))


def _repeat(x: Any, shape: Sequence[int]) -> Any:
    return tile(x, shape)


def _clone(x: Any, *, memory_format: Any = None) -> Any:
    """Return a copy, whose elements may be in another order in memory."""
    keeps = memory_format in (None, library_of_value(x).xp.preserve_format)
    return unshared(x if keeps else _contiguous(x, memory_format=memory_format))


def _contiguous(x: Any, *, memory_format: Any = None) -> Any:
    """Return ``x`` if its elements are in that order in memory, else a copy."""
    memory_format = memory_format or library_of_value(x).xp.contiguous_format
    is_so = without_elements(x).is_contiguous(memory_format=memory_format)
    return share(unshared(x), x) if is_so else apply_rule(_CLONE, x, memory_format=memory_format)


_CLONE = Rule(
    "clone",
    lambda xp, x, memory_format: x.clone(memory_format=memory_format),
    (lambda g, x, memory_format: g,),
    linear="each",
    shape=lambda xp, own, memory_format: own,
)


def _detach(x: Any) -> Any:
    """Return the plain tensor, as `mixad.stop_gradient` does."""
    return primal_value(x)


def _cast(x: Any, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False,
        copy: bool = False) -> Any:  # fmt: skip
    """Return ``x`` in the dtype that is given or that a tensor has; nothing is moved."""
    flags = [given for given in args if isinstance(given, bool)]  # non_blocking, copy
    copy = flags[1] if len(flags) > 1 else copy
    for given in args:
        if hasattr(given, "dtype"):
            dtype, device = given.dtype, given.device
        elif str(given).startswith("torch."):
            dtype = given
        elif not isinstance(given, bool):
            device = given
    if device is not None and str(device) not in (str(x.device), x.device.type):
        raise TracerError(
            f"to({device!r}) of a value on {x.device!r} that is being differentiated is not "
            "available: move the arguments of the transform"
        )
    if dtype is None or dtype == x.dtype:
        return unshared(x) if copy else x
    return astype(x, dtype)


def _type(x: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return ``x`` in another dtype; without one, torch's name of its own."""
    if dtype is None:
        return primal_value(x).type()
    if isinstance(dtype, str) or not str(dtype).startswith("torch."):
        raise TracerError(
            f"type({dtype!r}) of a value that is being differentiated is not available: write "
            "x.to(dtype) with a torch.dtype"
        )
    return _cast(x, dtype=dtype)


def _as_type(name: str) -> Callable[..., Any]:
    def evaluate(x: Any) -> Any:
        return _cast(x, dtype=getattr(library_of_value(x).xp, name))

    return evaluate


def _where(x: Any, condition: Any, y: Any) -> Any:
    return where(condition, x, y)


def _sum_to_size(x: Any, shape: Sequence[int]) -> Any:
    lead = x.ndim - len(shape)
    axes = [a for a in range(x.ndim) if a < lead or (shape[a - lead] == 1 and x.shape[a] != 1)]
    return reshape(total(x, tuple(axes)) if axes else x, shape)


def _type_as(x: Any, other: Any) -> Any:
    return _cast(x, other)


def _ndim(x: Any) -> int:
    return len(x.shape)


def _nelement(x: Any) -> int:
    return math.prod(x.shape)


@gives_views
def _unfold(x: Any, dimension: int, size: int, step: int) -> Any:
    """Return windows of a length along an axis, which counts them; their elements come last."""
    return torch_view(x, "unfold", dimension, size, step)


def _polygamma(x: Any, n: int) -> Any:
    return SPECIAL["polygamma"](n, x)


def _new(name: str) -> Callable[..., Any]:
    """Return a method that makes a tensor like another one, for writes."""

    def evaluate(x: Any, *given: Any, dtype: Any = None, device: Any = None) -> Any:
        return constants(getattr(primal_value(x), name)(*given, dtype=dtype, device=device))

    return evaluate


def _new_full(x: Any, size: Sequence[int], fill_value: Any, *, dtype: Any = None,
              device: Any = None) -> Any:  # fmt: skip
    if isinstance(fill_value, Tracer):
        return full(size, fill_value, dtype=dtype or x.dtype, device=device)
    return constants(primal_value(x).new_full(size, fill_value, dtype=dtype, device=device))


_NEW = ("new_empty", "new_ones", "new_tensor", "new_zeros")
_DTYPES = {"double": "float64", "float": "float32", "half": "float16", "bfloat16": "bfloat16",
           "long": "int64", "int": "int32", "bool": "bool"}  # fmt: skip

TORCH_METHODS: Mapping[str, BoundFunction] = {
    "expand": function_of(_expand, "input size=shape * implicit"),
    "expand_as": function_of(_expand_as, "input other"),
    "view": function_of(_view, "input size=shape"),
    "view_as": function_of(_view_as, "input other"),
    "reshape_as": function_of(_view_as, "input other"),
    "repeat": function_of(_repeat, "input size=shape"),
    "clone": function_of(_clone, "input * memory_format"),
    "contiguous": function_of(_contiguous, "input * memory_format"),
    "detach": function_of(_detach, "input"),
    "to": BoundFunction(_cast, ()),
    "type": function_of(_type, "input dtype non_blocking"),
    "type_as": function_of(_type_as, "input other"),
    **{name: function_of(_as_type(dtype), "input") for name, dtype in _DTYPES.items()},
    "where": function_of(_where, "input condition other"),
    "sum_to_size": function_of(_sum_to_size, "input size=shape"),
    "adjoint": function_of(adjoint, "input"),
    **dict.fromkeys(("dim", "ndimension"), function_of(_ndim, "input")),
    "nelement": function_of(_nelement, "input"),
    "polygamma": function_of(_polygamma, "input n"),
    "unfold": function_of(_unfold, "input dimension size step"),
    **{name: BoundFunction(_new(name), ()) for name in _NEW},
    "new_full": function_of(
        _new_full, "input size fill_value * dtype layout device pin_memory requires_grad"
    ),
}
