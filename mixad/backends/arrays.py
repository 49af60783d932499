"""What mixad asks of an array: one record for each array library.

NumPy is its own namespace.  `array_api_compat` is asked for the namespaces of the others only:
importing its NumPy namespace costs more time than NumPy itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Hashable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, cast

import array_api_compat
import numpy as np

from mixad.backends.array_memory import (
    DLPACK,
    LAZY,
    MEMORY,
    Array,
    ArrayMemory,
    NumpyArray,
    is_bfloat16,
)
from mixad.backends.chunked_arrays import Chunked
from mixad.backends.cubed_blocks import CubedBlocks
from mixad.backends.dask_blocks import DaskBlocks
from mixad.backends.unsupported_arrays import (
    check_dense,
    check_no_tracer,
    check_single,
    check_untracked,
    has_tangent,
    more_than_an_array,
    without_memory,
)
from mixad.errors import KernelTypeError
from mixad.kernel.plan import Layout
from mixad.scalar.dtypes import array_dtype, element_type_of, scalar_type_of
from mixad.scalar.promotion_rules import (
    JAX_DOUBLE_RULES,
    JAX_RULES,
    NUMPY_RULES,
    PLAIN_NUMPY_RULES,
    STRICT_RULES,
    TORCH_DOUBLE_RULES,
    TORCH_RULES,
    Rules,
)
from mixad.scalar.types import ScalarType

__all__ = ["CHUNKED", "DESCRIPTIONS", "NUMBERS", "NUMPY", "Array", "Library", "adopt",
           "as_array", "describe_array", "describe_number", "device_key", "device_name", "is_array",
           "is_number", "is_scalar", "is_writeable", "layout_of", "library_met", "library_of",
           "own_library", "strides_of"]  # fmt: skip

_RULES = {
    "numpy": NUMPY_RULES,
    "cupy": PLAIN_NUMPY_RULES,
    "dask": NUMPY_RULES,
    "cubed": NUMPY_RULES,
}
_TORCH_RULES = {"torch.float32": TORCH_RULES, "torch.float64": TORCH_DOUBLE_RULES}
"""By torch's default dtype."""


CHUNKED: dict[str, Chunked] = {"dask": DaskBlocks(), "cubed": CubedBlocks()}
"""Libraries of lazy arrays, by the top-level module of these."""


@dataclass(frozen=True, eq=False)
class Library:
    """One array library."""

    name: str  # the top-level module of its arrays, such as "numpy"
    xp: Any  # its array-API namespace
    chunked: Chunked | None = None  # of lazy arrays, how they are cut
    _dtypes: dict[ScalarType, Any] = field(default_factory=dict, repr=False)

    @property
    def module(self) -> str:
        """What users import, such as ``"dask.array"``."""
        return str(self.xp.__name__).removeprefix("array_api_compat.")

    @property
    def rules(self) -> Rules:
        """The library's promotion policy; the standard's for a library that is not known.

        Values derived from it are cached under `default_dtypes`, which users of torch and JAX can
        change.
        """
        if self.name == "torch":
            return _torch_rules()
        return _jax_rules() if self.name == "jax" else _RULES.get(self.name, STRICT_RULES)

    @property
    def is_lazy(self) -> bool:
        """Whether its arrays have no elements until someone asks for them."""
        return self.chunked is not None

    @property
    def gathers_whole(self) -> bool:
        """Whether elements are taken and added at positions in whole arrays, by one task.

        Cubed would compute the positions where its functions are called.
        """
        return self.name == "cubed"

    @property
    def is_mutable(self) -> bool:
        """Whether its arrays can be written to."""
        return self.name != "jax"

    @cached_property
    def memory(self) -> ArrayMemory:
        """How its memory is shared with NumPy."""
        return LAZY if self.is_lazy else MEMORY.get(self.name, DLPACK)

    def mix_with(self, other: Library) -> Library | None:
        """Return the library of operations on arrays of this and another; None if they do not mix.

        NumPy's arrays go into the graphs of lazy ones.
        """
        if other is self or (self.is_lazy and other is NUMPY):
            return self
        return other if other.is_lazy and self is NUMPY else None

    def dtype_of(self, type: ScalarType) -> Any:
        """Return its dtype of a scalar type."""
        found = self._dtypes.get(type)
        if found is None:
            is_numpys = (self.xp is np or self.is_lazy) and not type.brain
            found = type.dtype if is_numpys else array_dtype(self.xp, type)
            if self.name != "jax":  # its types of 64 bits come and go
                self._dtypes[type] = found
        return found

    def widest(self, name: str) -> Any:
        """Return the dtype ``"int64"``, ``"float64"`` or ``"complex128"``, half of it in JAX."""
        dtype = getattr(self.xp, name)
        if self.name != "jax":
            return dtype
        return sys.modules["jax"].dtypes.canonicalize_dtype(dtype)  # unless 64 bits are enabled

    def asarray(self, value: Any, type: ScalarType, device: Any = None) -> Array:
        """Return a scalar or an array as an array of this library.

        The device itself writes floating-point numbers over CUDA: a copy from the host would wait
        for all launches, and could not be captured in a graph.
        """
        dtype = self.dtype_of(type)
        if self.name in _OVER_CUDA and is_number(value) and type.kind in _FILLED:
            # CuPy's devices are entered: its `full` is not told where.
            with device if self.name == "cupy" and device is not None else nullcontext():
                return self.xp.full((), _round_number(value, type), dtype=dtype, device=device)
        return self.xp.asarray(value, dtype=dtype, device=device)

    def numpy_view(self, array: Array) -> NumpyArray:
        """Return a NumPy array over the memory of an array on the CPU; of bfloat16 its bits."""
        memory = self.memory
        return memory.view(memory.bits(array) if is_bfloat16(array) else array)

    def with_plain_blocks(self, value: Any) -> Any:
        """Return a value for operations to read; a lazy array's blocks are checked when computed.

        What has no kernel would compute on blocks of any kind, or on none: the derivative of a mean
        reads no element.
        """
        return value if self.chunked is None else self.chunked.with_plain_blocks(value)

    def readable(self, array: Array) -> Array:
        """Return an array for the library's functions: one of NumPy's goes into a lazy one."""
        if self.chunked is None or not isinstance(array, (np.ndarray, np.generic)):
            return array
        return self.chunked.asarray(array)

    def broadcast_to(self, array: Array, shape: tuple[int, ...]) -> Array:
        """Return a view of an array in a larger shape; a lazy one has chunks along new axes."""
        to = self.xp if self.chunked is None else self.chunked
        return to.broadcast_to(array, shape)

    def with_plain_blocks_of(self, result: Array, array: Array) -> Array:
        """Return a result that a lazy array's elements decide; its blocks are checked."""
        if self.chunked is None:
            return result
        return self.chunked.with_plain_blocks(result, self.with_plain_blocks(array))

    def apply_on_cpu(
        self,
        function: Callable[..., NumpyArray],
        shape: tuple[int, ...],
        dtype: Any,
        *arrays: Array,
    ) -> Array:
        """Return what a function of NumPy arrays gives for arrays on the CPU, lazily for lazy ones.

        All arrays are on one device. The function makes a new array; shape and dtype describe it
        where it is computed later.
        """
        if self.chunked is None:
            result = function(*(np.asarray(self.numpy_view(a)) for a in arrays))
            found = self.wrap_memory(result, element_type_of(dtype), arrays[0])
            where = array_api_compat.device(arrays[0])
            is_there = array_api_compat.device(found) == where
            return found if is_there else self.xp.asarray(found, device=where)
        plain = map(self.with_plain_blocks, arrays)
        return self.chunked.apply_whole(function, shape, dtype, *plain)

    def wrap_memory(self, result: NumpyArray, type: ScalarType, like: Array) -> Array:
        """Return a NumPy array of a type, or its bits, as an array of this library over the memory.

        The result is on the device of ``like``, one of the library's arrays on the CPU.
        """
        if not type.brain:
            return self.memory.wrapped(self.xp, result, like)
        bits = self.memory.wrapped(self.xp, result.view("int16"), like)
        return bits.view(self.dtype_of(type))


_OVER_CUDA = {"cupy", "torch"}
_FILLED = {"bool", "float", "complex"}
"""Kinds of types; `asarray` decides which integers fit, and what becomes of others."""


def _round_number(value: Any, type: ScalarType) -> Any:
    """Round a number to a type; it is infinite where it is too large."""
    if type.is_bool:
        return bool(value)
    number = complex(value) if type.is_complex else float(value)
    parts = (number.real, number.imag)
    if type.itemsize >= (16 if type.is_complex else 8) or max(map(abs, parts)) <= _LARGEST_FLOAT32:
        return number
    with np.errstate(over="ignore"):
        return np.asarray(number, "c8" if type.is_complex else "f4").item()


_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)


def default_dtypes() -> object:
    """Return the settings that decide types of results: torch's default dtype and JAX's flags."""
    torch = getattr(sys.modules.get("torch"), "get_default_dtype", None)
    jax = getattr(sys.modules.get("jax"), "config", None)
    default = None if torch is None else torch()
    return default if jax is None else (default, jax.jax_enable_x64, jax.jax_numpy_dtype_promotion)


def _jax_rules() -> Rules:
    flags = sys.modules["jax"].config
    if flags.jax_numpy_dtype_promotion == "strict":
        return STRICT_RULES
    return JAX_DOUBLE_RULES if flags.jax_enable_x64 else JAX_RULES


def _torch_rules() -> Rules:
    default = sys.modules["torch"].get_default_dtype()
    rules = _TORCH_RULES.get(str(default))
    if rules is None:
        raise KernelTypeError(
            f"torch's default dtype is {default}, in which kernels do not compute",
            hint="torch.set_default_dtype(torch.float32)",
        )
    return rules


NUMPY = Library("numpy", np)
_LIBRARIES: dict[type, Library] = {np.ndarray: NUMPY}
_BY_NAMESPACE: dict[int, Library] = {id(np): NUMPY}
_ADOPTED: list[tuple[type, Library]] = []
"""Types that integrations follow, and the library whose arrays they stand for."""


def library_of(array: Array) -> Library:
    """Return the library of an array whose operations can be differentiated exactly.

    KernelTypeError for subclasses with other operations and tensors that are not dense; TracerError
    where a transform of torch, JAX or autograd follows the array, and would see nothing.
    """
    library = own_library(array)
    if library.name == "torch":
        check_untracked(array)
    elif library.name == "jax":
        check_no_tracer(type(array))
        check_single(array)
    return library


def own_library(array: Array) -> Library:
    """Return the library of an array, even if a transform of that library follows the array.

    It serves questions about types and shapes; `library_of` serves all others and says what is
    refused.
    """
    kind = type(array)
    if kind is np.ndarray:
        return NUMPY
    library = _LIBRARIES.get(kind) or _find_library(kind, array)
    if library.name == "torch":
        check_dense(array)
    elif library.chunked is not None:
        library.chunked.check(array)
    return library


def library_met(array: Array) -> Library:
    """Return the library of an array that `library_of` or `own_library` has seen."""
    return _LIBRARIES.get(type(array)) or own_library(array)


def _find_library(kind: type, array: Array) -> Library:
    """Return and cache the library of a type of arrays that was not seen before."""
    if issubclass(kind, np.ndarray) and kind is not np.memmap:
        raise more_than_an_array(kind)
    if issubclass(kind, (np.ndarray, np.generic)):
        return _LIBRARIES.setdefault(kind, NUMPY)
    if hasattr(kind, "__mixad_tracer__"):
        return cast("Library", array.library)
    adopted = next((library for base, library in _ADOPTED if issubclass(kind, base)), None)
    if adopted is not None:
        return _LIBRARIES.setdefault(kind, adopted)
    check_no_tracer(kind)
    xp = array_api_compat.array_namespace(array)
    name = xp.__name__.removeprefix("array_api_compat.").partition(".")[0]
    if name == "torch" and kind not in (xp.Tensor, sys.modules["torch"].nn.Parameter):
        raise more_than_an_array(kind, "pass a plain tensor, such as x.as_subclass(torch.Tensor)")
    if name not in CHUNKED and not hasattr(kind, "__dlpack__"):
        raise without_memory(kind)
    if name == "cupy":
        told = ("__class__", "dtype", "shape", "strides", "device.id")
        DESCRIPTIONS[kind] = attrgetter(*told)
    elif name == "torch" and kind is xp.Tensor:
        DESCRIPTIONS[kind] = _tensor_description()
    library = _BY_NAMESPACE.setdefault(id(xp), Library(name, xp, CHUNKED.get(name)))
    if name not in ("cupy", "torch", *CHUNKED):
        DESCRIPTIONS[kind] = partial(_describe, library)
    return _LIBRARIES.setdefault(kind, library)


def _describe(library: Library, array: Array) -> Hashable:
    """Return what decides which program serves an array of some library: see `describe_array`."""
    if library.name == "jax":
        is_elsewhere = getattr(array.device, "platform", None) != "cpu"  # or in several places
        if is_elsewhere or array.dtype.kind == "V":  # which NumPy does not know
            return None
    layout = (type(array), array.dtype, array.shape, library.memory.strides(array))
    return (*layout, device_key(array.device), default_dtypes())


def adopt(name: str, kinds: tuple[type, ...]) -> None:
    """Let values of some types, and of types derived from these, stand for the arrays of a library
    where only types and shapes count."""
    _ADOPTED.extend((kind, _library_named(name)) for kind in kinds)


def _library_named(name: str) -> Library:
    own = name == "jax"  # whose namespace needs no help to be the standard's
    xp = importlib.import_module("jax.numpy" if own else f"array_api_compat.{name}")
    return _BY_NAMESPACE.setdefault(id(xp), Library(name, xp))


def is_scalar(value: object) -> bool:
    """Whether a value is a Python number, which adapts to the dtype of the arrays beside it."""
    return isinstance(value, (bool, int, float)) and not isinstance(value, np.generic)


def is_number(value: object) -> bool:
    """Whether a value is a Python number, a complex one among them."""
    return is_scalar(value) or (isinstance(value, complex) and not isinstance(value, np.generic))


def is_array(value: object) -> bool:
    """Whether a value is an array of some library (a tracer is not) or a NumPy scalar."""
    if type(value) in _LIBRARIES or isinstance(value, np.ndarray):
        return True
    if isinstance(value, type):  # np.float32 has what its scalars have, and is no array
        return False
    return bool(array_api_compat.is_array_api_obj(value)) and not hasattr(value, "__mixad_tracer__")


def is_writeable(array: Array) -> bool:
    """Whether ``array[key] = value`` works; Cubed's arrays have no such operator."""
    is_allowed = array_api_compat.is_writeable_array(array)
    return bool(is_allowed) and hasattr(array, "__setitem__")


def as_array(value: Any) -> Any:
    """Return a NumPy scalar as the 0-d array that it stands for, anything else as it is."""
    return np.asarray(value) if isinstance(value, np.generic) else value


def device_name(array: Array) -> str:
    """Return the kind of device and, if there are several, its index: ``"cpu"``, ``"cuda:1"``."""
    device = array_api_compat.device(array)
    if type(device).__module__.startswith("cupy"):  # it calls itself "<CUDA Device 1>"
        return f"cuda:{device.id}"
    name = str(device).lower()
    return "cpu" if "cpu" in name else name


def device_key(device: Any) -> Hashable:
    """Return a key of a device among a library's: CuPy's devices do not hash."""
    return device if type(device).__hash__ is not None else str(device)


DESCRIPTIONS: dict[type, Callable[[Any], Hashable]] = {
    np.ndarray: attrgetter("dtype", "shape", "strides")
}
"""By type of arrays, the function that describes them: see `describe_array`."""


def describe_array(array: Array) -> Hashable:
    """Return what decides which program and launch serve an array.

    None where `library_of` has to look closer, where something may follow or watch operations, or
    where a description takes as long as all else.
    """
    describe = DESCRIPTIONS.get(type(array))
    return None if describe is None else describe(array)


NUMBERS: frozenset[type] = frozenset(
    {bool, int, float, complex, np.float64, np.float32, np.int64, np.bool_}
)
"""Types of numbers that alone decide which program takes them."""


def describe_number(value: Any) -> Hashable:
    """Return what decides which program and launch serve a number; None for all else."""
    kind: Any = type(value)
    if kind in NUMBERS:
        return cast(Hashable, kind)
    return (kind, value.dtype) if isinstance(value, np.generic) else None


def _tensor_description() -> Callable[[Array], Hashable]:
    """Return the function that describes tensors; only torch's ``_C`` tells what it asks."""
    torch = sys.modules["torch"]
    forward_ad, default = torch.autograd.forward_ad, torch.get_default_dtype
    strided = torch.strided
    is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    count_modes = torch._C._len_torch_dispatch_stack

    def describe(tensor: Array) -> Hashable:
        if (
            tensor.requires_grad
            or tensor.layout is not strided
            or tensor.is_nested
            or tensor.is_neg()
            or tensor.is_conj()
            or tensor._is_zerotensor()
            or is_wrapped(tensor)
            or count_modes()
            or (getattr(forward_ad, "_current_level", 0) >= 0 and has_tangent(forward_ad, tensor))
        ):
            return None
        return tensor.dtype, tensor.shape, tensor.stride(), tensor.device, default()

    return describe


def strides_of(array: Array) -> tuple[int, ...]:
    """Return the bytes between neighbours along each axis of an array."""
    if type(array) is np.ndarray:
        return array.strides
    return library_of(array).memory.strides(array)


def layout_of(array: Array) -> Layout:
    """Return type, shape and byte strides of an array."""
    return Layout(scalar_type_of(array.dtype), tuple(array.shape), strides_of(array))
