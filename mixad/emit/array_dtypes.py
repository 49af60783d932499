"""The dtype that an array namespace has for a scalar type."""

from __future__ import annotations

from typing import Any

from mixad.scalar.types import ScalarType

__all__ = ["array_dtype"]


def array_dtype(xp: Any, type: ScalarType) -> Any:
    """Return a namespace's dtype of a scalar type, as its arrays name it.

    JAX's names stand for scalar classes, not for dtypes, and unless it is told otherwise it has no
    types of 64 bits: it computes in those of 32 bits then, and so does what is computed for it.

    Parameters
    ----------
    xp : namespace
        From `array_api_compat.array_namespace`.
    type : ScalarType
        Any.

    Returns
    -------
    dtype
        What the attribute ``dtype`` of an array of that type is.
    """
    name = type.dtype.name
    if xp.__name__ != "jax.numpy":
        return getattr(xp, name)
    dtypes = xp.__array_namespace_info__().dtypes()  # asked each time: users may switch
    return dtypes[name] if name in dtypes else dtypes[name.replace("64", "32")]
