"""Creation functions that take arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from array_api_compat import device as device_of

from mixad.backends.arrays import library_of
from mixad.errors import TracerError
from mixad.namespace.array_likes import first_traced, stack_nested
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import elementwise
from mixad.namespace.joining import broadcast_to
from mixad.tape.constant import constant
from mixad.tape.memory import gives_arrays, unshared
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["asarray", "empty_like", "full", "full_like", "linspace", "ones_like", "tril", "triu",
           "zeros_like"]  # fmt: skip


@gives_arrays
def asarray(x: Any, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> Any:
    """Return a traced array, or a stack of such and numbers in nested lists.

    The result is a plain array, without a derivative, if ``dtype`` is no float. TracerError if the
    array would move to another device.
    """
    array = x if isinstance(x, Tracer) else stack_nested(x, first_traced(x))
    if device is not None and device != array.device:
        raise TracerError(
            f"asarray(device={device!r}) of a value on {array.device!r} that is being "
            "differentiated is not available: move the arguments of the transform"
        )
    if dtype is not None:
        return astype(array, dtype, copy=bool(copy))
    return unshared(array) if copy else array


def full(
    shape: int | Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None
) -> Any:
    """Return an array of one traced number."""
    return broadcast_to(asarray(fill_value, dtype=dtype, device=device), shape)


def empty_like(x: Any, *, dtype: Any = None, device: Any = None, shape: Any = None) -> Any:
    """Return an array as `zeros_like` does, with arbitrary elements."""
    return _create_like("empty", x, dtype, device, shape)


def ones_like(x: Any, *, dtype: Any = None, device: Any = None, shape: Any = None) -> Any:
    """Return ones as `zeros_like` returns zeros."""
    return _create_like("ones", x, dtype, device, shape)


def zeros_like(x: Any, *, dtype: Any = None, device: Any = None, shape: Any = None) -> Any:
    """Return zeros of the shape and dtype of a traced array, unless others are asked for.

    The result is a constant: traced values can be written to its elements.
    """
    return _create_like("zeros", x, dtype, device, shape)


def full_like(
    x: Any, fill_value: Any, *, dtype: Any = None, device: Any = None, shape: Any = None
) -> Any:
    """Return one number, which may be traced, as `zeros_like` returns zeros."""
    if isinstance(fill_value, Tracer):
        shape = x.shape if shape is None else shape
        return full(shape, fill_value, dtype=dtype or x.dtype, device=device)
    return _create_like("full", x, dtype, device, shape, fill_value)


def _create_like(name: str, x: Any, dtype: Any, device: Any, shape: Any, *value: Any) -> Any:
    """Return the result of the library's creation function for an array like ``x``."""
    xp = library_of_value(x).xp
    create: Callable[..., Any]
    if shape is None and isinstance(x, Tracer) and x.state is not None:
        shape = x.shape  # which does not wait for its elements
    if shape is None:
        create, like = getattr(xp, f"{name}_like"), primal_value(x)
    else:
        create, like = getattr(xp, name), shape
        dtype, device = dtype or x.dtype, device or x.device
    return constant(create(like, *value, dtype=dtype, device=device))


def linspace(
    start: Any,
    stop: Any,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Any:
    """Return evenly spaced numbers between two, of which one is traced; the ends have no axes.

    The result is a plain array, without a derivative, if ``dtype`` is no float.
    """
    traced = start if isinstance(start, Tracer) else stop
    like = primal_value(traced)
    share = library_of(like).xp.linspace(
        0.0, 1.0, num, dtype=like.dtype, device=device_of(like), endpoint=endpoint
    )
    ends = elementwise("mul", start, 1.0 - share), elementwise("mul", stop, share)
    return asarray(elementwise("add", *ends), dtype=dtype, device=device)


def tril(x: Any, *, k: int = 0) -> Any:
    """Return matrices with zeros above the ``k``-th diagonal."""
    return apply_rule(_TRIL, x, k=k)


def triu(x: Any, *, k: int = 0) -> Any:
    """Return matrices with zeros below the ``k``-th diagonal."""
    return apply_rule(_TRIU, x, k=k)


_TRIL = Rule(
    "tril",
    lambda xp, x, k: xp.tril(x, k=k),
    (lambda g, x, k: tril(g, k=k),),
    fresh=True,
    linear="each",
    moves=True,
)
_TRIU = Rule(
    "triu",
    lambda xp, x, k: xp.triu(x, k=k),
    (lambda g, x, k: triu(g, k=k),),
    fresh=True,
    linear="each",
    moves=True,
)
