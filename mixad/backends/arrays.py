"""What mixad asks of an array, whichever library made it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from mixad.errors import KernelTypeError
from mixad.kernel.plan import Layout
from mixad.scalar.types import ScalarType, type_named

__all__ = [
    "Library",
    "layout_of",
    "library_of",
    "numpy_view",
    "scalar_type_of",
    "strides_of",
    "wrap_numpy",
]

_TYPE_NAMES = {
    "bool": "bool", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64", "uint8": "u8",
    "uint16": "u16", "uint32": "u32", "uint64": "u64", "float32": "f32", "float64": "f64",
}  # fmt: skip
_TYPES: dict[Any, ScalarType] = {}  # dtype object of any library → its type, filled as they are met


@dataclass(frozen=True)
class Library:
    """Where an array lives.

    Attributes
    ----------
    module : str
        Top-level module of its type, such as ``"numpy"``.
    device : str
        Kind of device and, where there are several, its index: ``"cpu"``, ``"cuda:1"``.
    """

    module: str
    device: str


_NUMPY = Library("numpy", "cpu")


def library_of(array: Any) -> Library:
    """Return the library and the device of an array.

    Parameters
    ----------
    array : array
        Of any array-API library.
    """
    if isinstance(array, (np.ndarray, np.generic)):
        return _NUMPY
    module = type(array).__module__.partition(".")[0]
    device = str(array_api_compat.device(array)).lower()
    return Library(module, "cpu" if "cpu" in device else device)


def scalar_type_of(dtype: Any) -> ScalarType:
    """Return the scalar type of a dtype of any library.

    Raises
    ------
    KernelTypeError
        If kernels do not compute in that dtype.
    """
    key = (type(dtype), dtype)  # libraries' dtypes may hash alike and refuse to be compared
    known = _TYPES.get(key)
    if known is None:
        name = _TYPE_NAMES.get(str(dtype).rpartition(".")[2])
        if name is None:
            raise KernelTypeError(f"kernels do not compute in dtype {dtype}", hint=_instead(dtype))
        known = _TYPES[key] = type_named(name)
    return known


def _instead(dtype: Any) -> str:
    if isinstance(dtype, np.dtype) and dtype.newbyteorder("=").name in _TYPE_NAMES:
        return f"convert it to the byte order of this machine: x.astype({dtype.name!r})"
    return f"convert it to one of {', '.join(_TYPE_NAMES)}"


def layout_of(array: Any) -> Layout:
    """Return type, shape and byte strides of an array."""
    type = scalar_type_of(array.dtype)
    shape = tuple(array.shape)
    return Layout(type, shape, strides_of(array))


def strides_of(array: Any) -> tuple[int, ...]:
    """Return the bytes between neighbours along each axis.

    Parameters
    ----------
    array : array
        Of NumPy, of a library with ``stride()``, or one on the CPU that speaks DLPack.
    """
    if isinstance(array, (np.ndarray, np.generic)):
        return array.strides
    if hasattr(array, "stride"):
        return tuple(s * array.element_size() for s in array.stride())
    return np.from_dlpack(array).strides


def _from_torch(array: Any) -> np.ndarray[Any, Any]:
    view: np.ndarray[Any, Any] = array.detach().numpy()
    return view


def _to_torch(result: np.ndarray[Any, Any], like: Any) -> Any:
    torch = __import__(type(like).__module__.partition(".")[0])
    return torch.from_numpy(result)


def _to_namespace(result: np.ndarray[Any, Any], like: Any) -> Any:
    return array_api_compat.array_namespace(like).asarray(result, copy=False)


_VIEWS: dict[str, Callable[[Any], np.ndarray[Any, Any]]] = {
    "numpy": np.asarray,
    "torch": _from_torch,
}
_WRAPPERS: dict[str, Callable[[np.ndarray[Any, Any], Any], Any]] = {
    "numpy": lambda result, like: result,
    "torch": _to_torch,
}


def numpy_view(array: Any, module: str) -> np.ndarray[Any, Any]:
    """Return a NumPy array over the memory of an array on the CPU; nothing is copied."""
    view = _VIEWS.get(module)
    return np.from_dlpack(array) if view is None else view(array)


def wrap_numpy(result: np.ndarray[Any, Any], like: Any, module: str) -> Any:
    """Return a NumPy array as an array of the library of ``like``; nothing is copied."""
    return _WRAPPERS.get(module, _to_namespace)(result, like)
