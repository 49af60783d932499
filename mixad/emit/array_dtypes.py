"""The dtype that an array namespace has for a scalar type."""

from __future__ import annotations

from typing import Any

import numpy as np

from mixad.scalar.types import ScalarType

__all__ = ["array_dtype", "remember_dtype"]

_MET: dict[str, Any] = {}
"""NumPy's dtypes that come from elsewhere, such as the bfloat16 of ml_dtypes, by name."""


def remember_dtype(name: str, dtype: np.dtype[Any]) -> None:
    """Take a dtype that arrays of NumPy have for the one of a name that NumPy does not have."""
    _MET[name] = dtype


def array_dtype(xp: Any, type: ScalarType) -> Any:
    """Return a namespace's dtype of a scalar type, as its arrays name it.

    JAX's names stand for scalar classes, not for dtypes, and unless it is told otherwise it has no
    types of 64 bits: it computes in those of 32 bits then, and so does what is computed for it.

    Parameters
    ----------
    xp : namespace
        From `array_api_compat.array_namespace`.
    type : ScalarType
        Any; one that NumPy does not have when an array of it was met.

    Returns
    -------
    dtype
        What the attribute ``dtype`` of an array of that type is.
    """
    name = type.dtype_name
    if xp.__name__ != "jax.numpy":
        return getattr(xp, name) if hasattr(xp, name) else _MET[name]
    if type.is_narrow:
        return np.dtype(getattr(xp, name))
    dtypes = xp.__array_namespace_info__().dtypes()  # asked each time: users may switch
    return dtypes[name] if name in dtypes else dtypes[name.replace("64", "32")]
