"""How each library's arrays share their memory with NumPy, without a copy."""

from __future__ import annotations

import ctypes
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NoReturn, TypeAlias

import numpy as np

from mixad.errors import TracerError
from mixad.scalar.dtypes import name_of_dtype

__all__ = ["DLPACK", "LAZY", "MEMORY", "Array", "ArrayMemory", "NumpyArray", "address_of",
           "is_bfloat16", "packed_strides"]  # fmt: skip

Array: TypeAlias = Any
"""An array of any library, or a NumPy scalar."""

NumpyArray: TypeAlias = np.ndarray[Any, Any]


@dataclass(frozen=True)
class ArrayMemory:
    """How the memory of one library's arrays is shared with NumPy.

    `view` and `elements` return NumPy arrays: over an array's own memory on the CPU, and of its
    elements copied from any device. `wrapped` ``(xp, result, like)`` makes an array of the library
    over NumPy's memory, on the device of ``like``. `bits` views bfloat16, which NumPy does not
    know, as int16.

    `strided_view` ``(array, dtype, shape, strides, first)`` begins ``first`` bytes after the array.
    `apart` is the context in which no transform of the library sees what is made.
    """

    strides: Callable[[Array], tuple[int, ...]]  # bytes between neighbours along each axis
    view: Callable[[Array], NumpyArray]
    wrapped: Callable[[Any, NumpyArray, Array], Array]
    bits: Callable[[Array], Array] = lambda a: a.view("int16")
    address: Callable[[Array], int | None] = lambda a: None
    elements: Callable[[Array], NumpyArray] = np.from_dlpack
    have_same_bytes: Callable[[Array, Array], bool] | None = None
    strided_view: Callable[..., Array] | None = None
    apart: Callable[[], AbstractContextManager[Any]] = nullcontext
    is_capturing: Callable[[], bool] = lambda: False  # whether the stream captures a graph


def packed_strides(array: Array) -> tuple[int, ...]:
    """Return the strides that an array has if it is packed, as arrays without memory yet are."""
    size = getattr(array, "itemsize", None) or np.dtype(name_of_dtype(array.dtype)).itemsize
    steps = accumulate((size, *array.shape[:0:-1]), operator.mul)
    return tuple(steps)[::-1][len(array.shape) == 0 :]


def _refuse_to_compute(array: Array) -> NoReturn:
    raise TracerError(
        "this needs the elements of a lazy array, which nothing here computes behind your back: "
        "call .compute() on the array before the function that is differentiated"
    )


def _over_jax(array: Array) -> NumpyArray:
    """Wait for a JAX array and return the NumPy array over its memory.

    bfloat16 comes as its bits, since DLPack does not take it to NumPy.
    """
    return np.asarray(array).view("int16") if is_bfloat16(array) else np.from_dlpack(array)


def _as_jax(xp: Any, result: NumpyArray, like: Array) -> Array:
    """Return a JAX array over memory, free to move to another device where ``like`` is.

    Arrays of 64 bits outlive the mode in which they were made, and so do results of them.
    """
    jax = sys.modules["jax"]
    is_double = result.itemsize >= 8 and not jax.config.jax_enable_x64
    with jax.enable_x64(True) if is_double else nullcontext():
        found = jax.device_put(result)
        is_there = not like.committed and found.devices() == like.devices()
        return found if is_there else jax.device_put(result, like.device)


def _address_of() -> Callable[[np.ndarray[Any, Any]], int]:
    """Return the function that reads where a NumPy array begins; it is probed once.

    Every extension compiled against NumPy reads it behind the head of the object
    (``PyArrayObject_fields.data``). `ndarray.ctypes` takes ten times as long.
    """
    at, head = ctypes.c_size_t.from_address, object.__basicsize__

    def read(array: np.ndarray[Any, Any]) -> int:
        return at(id(array) + head).value

    def ask(array: np.ndarray[Any, Any]) -> int:
        return int(array.__array_interface__["data"][0])

    probes: list[np.ndarray[Any, Any]] = [
        np.zeros(3),
        np.ones((4, 5), np.float32)[1:, ::2],
        np.asarray(1),
    ]
    return read if all(read(probe) == ask(probe) for probe in probes) else ask


address_of = _address_of()


def _address_of_numpys(array: Array) -> int | None:
    """Return where an array begins; None of a NumPy scalar, whose memory is a copy."""
    return address_of(array) if type(array) is np.ndarray else None


def _have_tensors_same_bytes(a: Array, b: Array) -> bool:
    torch = sys.modules["torch"]
    packed = [each.clone(memory_format=torch.contiguous_format) for each in (a, b)]
    one, other = (each.resolve_conj().resolve_neg().reshape(-1) for each in packed)
    return bool(torch.equal(one.view(torch.uint8), other.view(torch.uint8)))


def _have_cupys_same_bytes(a: Array, b: Array) -> bool:
    one, other = (each.copy(order="C").ravel().view("uint8") for each in (a, b))
    return bool((one == other).all())


def _strided_view_of_tensor(
    array: Array, dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], first: int
) -> Array:
    """Return a view of a tensor, of its own type: torch counts elements, not bytes."""
    size, start = array.element_size(), array.storage_offset()
    return array.as_strided(shape, [step // size for step in strides], start + first // size)


@contextmanager
def _apart_from_jax() -> Iterator[None]:
    """Make arrays under `jax.jit`, too, and of 64 bits in whichever mode."""
    jax = sys.modules["jax"]
    with jax.ensure_compile_time_eval(), jax.enable_x64(True):
        yield


def is_bfloat16(array: Array) -> bool:
    """Whether an array has the one float type that NumPy does not know."""
    return str(array.dtype).endswith("bfloat16")


# Torch marks tensors whose elements are the negatives or conjugates of what is in memory by bits,
# and zeros that are in no memory.
MEMORY = {
    "numpy": ArrayMemory(
        lambda a: a.strides,
        np.asarray,
        lambda xp, result, like: result,
        address=_address_of_numpys,
        elements=np.asarray,
        strided_view=lambda a, dtype, shape, strides, first: np.ndarray(
            shape, dtype, a, first, strides
        ),
    ),
    "cupy": ArrayMemory(
        lambda a: a.strides,
        np.from_dlpack,
        lambda xp, result, like: xp.asarray(result),
        address=lambda a: int(a.data.ptr),
        elements=lambda a: a.get(),
        have_same_bytes=_have_cupys_same_bytes,
        strided_view=lambda a, dtype, shape, strides, first: type(a)(
            shape, dtype, a.data + first, strides
        ),
        is_capturing=lambda: sys.modules["cupy"].cuda.get_current_stream().is_capturing(),
    ),
    "torch": ArrayMemory(
        lambda a: tuple(s * a.element_size() for s in a.resolve_neg().stride()),
        lambda a: a.detach().resolve_conj().resolve_neg().numpy(force=a._is_zerotensor()),
        lambda xp, result, like: xp.from_numpy(result),
        bits=lambda a: a.detach().resolve_neg().view(sys.modules["torch"].int16),
        address=lambda a: None if a.is_neg() or a.is_conj() or a._is_zerotensor() else a.data_ptr(),
        elements=lambda a: a.detach().resolve_conj().resolve_neg().numpy(force=True),
        have_same_bytes=_have_tensors_same_bytes,
        strided_view=_strided_view_of_tensor,
        is_capturing=lambda: (
            (cuda := sys.modules["torch"].cuda).is_initialized()
            and cuda.is_current_stream_capturing()
        ),
    ),
    "jax": ArrayMemory(
        lambda a: packed_strides(a) if is_bfloat16(a) else np.from_dlpack(a).strides,
        _over_jax,
        _as_jax,
        lambda a: a,
        elements=np.asarray,
        apart=_apart_from_jax,
    ),
}
LAZY = ArrayMemory(packed_strides, _refuse_to_compute, lambda xp, result, like: xp.asarray(result))
"""For arrays that have no elements yet."""

DLPACK = ArrayMemory(
    lambda a: np.from_dlpack(a).strides,
    np.from_dlpack,
    lambda xp, result, like: xp.asarray(result, copy=False),
)
"""For every other library."""
