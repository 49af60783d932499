"""Torch's own refusals, in torch's words: torch is asked, on tensors without elements.

Torch checks shapes and options of a call on its ``meta`` tensors, which have no elements, as it
does on others. Whether dtypes go together is checked where torch computes: with several dtypes, on
ones. A call is checked once for each kind. If torch refuses it, or cannot tell so, the same call on
plain tensors decides, and so it does for checks that torch makes only while it computes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from mixad.backends.arrays import library_of
from mixad.backends.fifo_cache import FifoCache
from mixad.namespace.axis_of_numbers import NumbersHaveAnAxis
from mixad.namespace.common_spellings import COMMON
from mixad.namespace.torch_elementwise import TORCH_ELEMENTWISE
from mixad.scalar.dtypes import element_type_of
from mixad.tape.cell import Cell
from mixad.tape.constant import is_constant
from mixad.tape.node import waiting_view
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["CheckedSpelling", "without_elements"]

_UNCHECKED = frozenset((*COMMON, *TORCH_ELEMENTWISE)) - {"matmul", "where", "angle", "heaviside"}
"""Functions of elements: kernels check that shapes broadcast and that dtypes fit."""

_OF_LAYOUT = frozenset(("view", "view_as"))
"""Functions that torch refuses for strides, too."""

_CHECK_AS_THEY_COMPUTE = frozenset(("celu", "nn.functional.celu", "nn.functional.smooth_l1_loss"))
"""Functions of elements that check their options at one element or more."""

_TAKEN: FifoCache[bool] = FifoCache(4096)
"""Kinds of calls that torch takes."""


class CheckedSpelling(NumbersHaveAnAxis):
    """A spelling of torch: calls that torch refuses raise torch's errors."""

    def binding(self, function: Any) -> Callable[..., Any]:
        """Return the binding of a function of torch."""
        bound, name = super().binding(function), self.name_of(function)
        is_checked = name is not None and self.has_method(name)
        return _translate_errors(name, function, bound) if is_checked else bound

    def method_binding(self, name: str) -> Callable[..., Any]:
        """Return the binding of a method of tensors; the tensor is its first argument."""
        bound = super().method_binding(name)
        function = getattr(sys.modules["torch"].Tensor, name, None)
        return bound if function is None else _translate_errors(name, function, bound)


def _translate_errors(
    name: str | None, function: Callable[..., Any], bound: Callable[..., Any]
) -> Callable[..., Any]:
    """Return a bound function that raises torch's errors."""
    if name in _UNCHECKED:
        return bound
    kind_of = _kind_and_strides if name in _OF_LAYOUT else _kind

    def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if kwargs.get("out") is None:  # a second call would write to it
            key = (function, *map(kind_of, args), *((k, kind_of(v)) for k, v in kwargs.items()))
            if not _TAKEN.get(key):
                _check(name, function, args, kwargs)
                _TAKEN.keep(key, 1, True)
        return bound(args, kwargs)

    return call


def _check(
    name: str | None, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Raise torch's error, if it refuses a call."""
    if name in _OF_LAYOUT:  # elements tell nothing more
        _call(function, without_elements, args, kwargs)
        return
    several = len(_dtypes((*args, *kwargs.values()))) > 1
    convert = _of_ones if several else without_elements
    try:
        _call(function, convert, args, kwargs)
    except Exception:  # torch's have no class in common, and elements may decide
        _call(function, _require_supported, args, kwargs)
        return
    if name in _CHECK_AS_THEY_COMPUTE:
        _call(function, _with_one_element, args, kwargs)
    if any(isinstance(value, complex) for value in (*args, *kwargs.values())):
        _call(function, _require_supported, args, kwargs)


def _call(
    function: Any, convert: Callable[[Any], Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> None:
    """Call a function on converted arguments."""
    options = {name: _convert_nested(convert, value) for name, value in kwargs.items()}
    function(*[_convert_nested(convert, value) for value in args], **options)


def _convert_nested(convert: Callable[[Any], Any], value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_convert_nested(convert, each) for each in value]
    return convert(value)


def _dtypes(value: Any) -> set[Any]:
    """Return the dtypes of the tensors in nested lists."""
    if isinstance(value, (list, tuple)):
        return set().union(*map(_dtypes, value))
    value = primal_value(value) if is_constant(value) else value
    return {value.dtype} if isinstance(value, Tracer) or _is_tensor(value) else set()


def without_elements(value: Any) -> Any:
    """Return a tensor without elements, of another's shape, dtype and strides."""
    if isinstance(value, Tracer):
        return waiting_view(value.cell, _meta)
    return _in_memory(value) if _is_tensor(value) else value


def _of_ones(value: Any) -> Any:
    """Return ones for traced values: nothing is computed for them."""
    if not isinstance(value, Tracer) or is_constant(value):
        return _require_supported(value)
    one = sys.modules["torch"].ones((), dtype=value.dtype, device=value.device)
    return one.expand(value.shape)


def _with_one_element(value: Any) -> Any:
    """Return a tensor with as many axes as another, all of length 1."""
    meta = without_elements(value)
    return (
        sys.modules["torch"].ones((1,) * meta.ndim, dtype=meta.dtype) if _is_tensor(meta) else meta
    )


def _require_supported(value: Any) -> Any:
    """Return a value for torch; refuse arrays of other kinds before torch sees them."""
    value = primal_value(value)
    if _is_tensor(value):
        library_of(value)
        element_type_of(value.dtype)
    return value


def _meta(cell: Cell) -> Any:
    if cell.pending is None:
        return _in_memory(cell.value)
    dtype = cell.library.dtype_of(cell.type)
    return cell.library.xp.empty(cell.shape, dtype=dtype, device="meta")


def _in_memory(tensor: Any) -> Any:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.is_nested:
        return tensor.detach().to("meta")
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, sys.modules["torch"].Tensor)


def _kind(value: Any) -> Hashable:
    """Return the part of an argument that decides whether torch takes it."""
    if isinstance(value, Tracer) and not is_constant(value):
        return value.shape, value.kind
    value = primal_value(value)
    if _is_tensor(value):
        return _require_supported(value).shape if value.is_nested else value.shape, value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_kind, value))
    return type(value), value if value.__hash__ is not None else str(value)


def _kind_and_strides(value: Any) -> Hashable:
    strides = without_elements(value)
    return _kind(value), strides.stride() if _is_tensor(strides) else None
