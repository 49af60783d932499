"""Functions without a rule here, of a library that differentiates itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from mixad.backends.fifo_cache import FifoCache
from mixad.backends.integrations import borrower
from mixad.errors import KernelTypeError, NoRuleError, TracerError

__all__ = ["borrow", "is_borrowed", "or_borrow"]


def is_borrowed() -> bool:
    """Whether an integration records calls of torch's functions."""
    return borrower("torch") is not None


def borrow(
    refusal: NoRuleError, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of a function of torch, recorded with torch's own derivative.

    Without an integration that lends derivatives it raises the refusal, which names the function.
    """
    found = borrower("torch")
    if found is None:
        raise NoRuleError(f"{refusal}; the plugin mixad-torch takes torch's own derivative of it")
    return found.borrow(function, args, kwargs)


def or_borrow(
    call: Callable[[], Any], function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """Return the result of a call by our rule for a function of torch; borrow where there is none.

    Calls that borrow are cached by their arguments but for elements: to find out takes long.
    """
    if function in _SOMETIMES:
        known = _REFUSALS.get(_key(function, args, kwargs))
        if known is not None:
            return borrow(known, function, args, kwargs)
    try:
        return call()
    except NoRuleError as error:
        refusal = NoRuleError(str(error))  # without the frames, which hold values
    except KernelTypeError as error:  # kernels compute in fewer types than torch
        if not is_borrowed():
            raise
        try:
            return borrow(NoRuleError(str(error)), function, args, kwargs)
        except TracerError:  # refused, too: what the rule says is nearer
            raise error from None
    _SOMETIMES.add(function)
    _REFUSALS.keep(_key(function, args, kwargs), 1, refusal)
    return borrow(refusal, function, args, kwargs)


_SOMETIMES: set[Any] = set()
"""Functions of torch whose rule has refused a call."""

_REFUSALS: FifoCache[NoRuleError] = FifoCache(4096)


def _key(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Hashable:
    """Return the key of a call: its arguments without their elements."""
    return (
        function,
        *map(_visible_part, args),
        *((name, _visible_part(value)) for name, value in kwargs.items()),
    )


def _visible_part(value: Any) -> Hashable:
    """Return the part of a value that a rule may look at: types, numbers, names and the like."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_visible_part, value))
    if isinstance(value, (bool, int, float, str)):
        return type(value), value
    return type(value), getattr(value, "dtype", None), getattr(value, "shape", None)
