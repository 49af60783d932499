"""Data type functions: the same elements in another type."""

from __future__ import annotations

from typing import Any

from mixad.backends.arrays import scalar_type_of
from mixad.namespace.elementwise import convert
from mixad.tape.node import library_beside
from mixad.tape.tracer import plain

__all__ = ["astype"]


def astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    """Return the elements as another dtype.

    Parameters
    ----------
    x : array or Tracer
        Of floats.
    dtype : dtype
        Of the array's library, or what that takes for one.
    copy : bool
        Without a meaning for what is traced: it is never written to.

    Returns
    -------
    array or Tracer
        A plain array if the dtype is no float: then there is no derivative.
    """
    xp = library_beside(x).xp
    dtype = xp.empty(0, dtype=dtype).dtype
    target = scalar_type_of(dtype)
    if not target.is_float:
        return xp.astype(plain(x), dtype)
    return x if target == scalar_type_of(x.dtype) else convert(x, target)
