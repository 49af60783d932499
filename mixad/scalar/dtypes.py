"""The dtypes of array libraries, and the types that kernels compute in for them.

Both ways are here, beside the types: a dtype is cached once it is met, and no array is read.
"""

from __future__ import annotations

import sys
from inspect import isclass
from typing import Any

import numpy as np

from mixad.errors import KernelTypeError
from mixad.scalar.types import COMPLEX_TYPES, STORED_TYPES, ScalarType

__all__ = ["array_dtype", "element_type_of", "is_complex_dtype", "name_of_dtype", "scalar_type_of"]

_NUMPYS: dict[str, np.dtype[Any]] = {t.dtype_name: t.dtype for t in STORED_TYPES if not t.brain}
"""NumPy's dtypes by name; those of other packages, such as bfloat16, once they are met."""


def array_dtype(xp: Any, type: ScalarType) -> Any:
    """Return a namespace's dtype of a scalar type, as its arrays name it.

    JAX's names are scalar classes, no dtypes. By default JAX has no 64-bit types: it computes in
    those of 32 bits, and so does what is computed for it.
    """
    name = type.dtype_name
    if xp.__name__ != "jax.numpy":
        found = getattr(xp, name) if hasattr(xp, name) else _NUMPYS[name]
        return np.dtype(found) if isclass(found) else found  # so NumPy and CuPy name them
    if type.is_narrow:
        return np.dtype(getattr(xp, name))
    return sys.modules["jax"].dtypes.canonicalize_dtype(type.dtype)  # users may switch any time


def name_of_dtype(dtype: Any) -> str:
    """Return the name of a dtype of any library; another byte order has a name of its own."""
    return str(dtype).rpartition(".")[2]


_TYPES: dict[Any, ScalarType] = {(type(t.dtype), t.dtype): t for t in STORED_TYPES if not t.brain}
_TYPE_NAMES = {t.dtype_name: t for t in STORED_TYPES}


def scalar_type_of(dtype: Any) -> ScalarType:
    """Return the scalar type of a dtype of any library; KernelTypeError if kernels have none."""
    key = (type(dtype), dtype)  # libraries' dtypes may hash alike and refuse to be compared
    known = _TYPES.get(key)
    if known is None:
        known = _TYPE_NAMES.get(name_of_dtype(dtype))
        if known is None:
            raise KernelTypeError(f"kernels do not compute in dtype {dtype}", hint=_instead(dtype))
        _TYPES[key] = known
        if isinstance(dtype, np.dtype):  # another package's: NumPy does not tell it by name
            _NUMPYS[known.dtype_name] = dtype
    return known


_COMPLEX: dict[Any, ScalarType] = {(type(t.dtype), t.dtype): t for t in COMPLEX_TYPES}
_COMPLEX_NAMES = {t.dtype.name: t for t in COMPLEX_TYPES}


def element_type_of(dtype: Any) -> ScalarType:
    """Return the type of an array's elements, scalar or complex, or raise KernelTypeError."""
    key = (type(dtype), dtype)
    known = _TYPES.get(key) or _COMPLEX.get(key)
    if known is None:
        known = _COMPLEX_NAMES.get(name_of_dtype(dtype))
        if known is None:
            return scalar_type_of(dtype)
        _COMPLEX[key] = known
    return known


def is_complex_dtype(dtype: Any) -> bool:
    """Whether a dtype of any library is that of complex numbers of this machine's byte order."""
    key = (type(dtype), dtype)
    if key in _TYPES:
        return False
    return key in _COMPLEX or name_of_dtype(dtype) in _COMPLEX_NAMES


def _instead(dtype: Any) -> str:
    known = {*_TYPE_NAMES, *_COMPLEX_NAMES}
    if isinstance(dtype, np.dtype) and dtype.byteorder in "<>" and dtype.name in known:
        return f"convert it to the byte order of this machine: x.astype({dtype.name!r})"
    if "complex" in str(dtype):
        is_long = name_of_dtype(dtype) not in _COMPLEX_NAMES
        return "convert it to complex128" if is_long else "take its parts, x.real and x.imag"
    return f"convert it to one of {', '.join(_TYPE_NAMES)}"
