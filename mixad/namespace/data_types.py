"""Data type functions: the same elements in another type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.backends.arrays import is_array
from mixad.errors import KernelTypeError, TracerError
from mixad.namespace.complex_numbers import common_type
from mixad.namespace.elementwise import convert
from mixad.namespace.promotion import promoted_type
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import C128, F64
from mixad.tape.memory import unshared
from mixad.tape.node import common_library, library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["astype", "in_doubles", "of_one_type"]


def astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    """Return the elements as another dtype: a plain array, without a derivative, if it is no float.

    Without ``copy`` an array of that dtype is returned itself. KernelTypeError if complex numbers
    would lose their imaginary part.
    """
    xp = library_of_value(x).xp
    dtype = xp.empty(0, dtype=dtype).dtype
    source, target = element_type_of(x.dtype), element_type_of(dtype)
    if source.is_complex and not (target.is_complex or target.is_bool):
        raise KernelTypeError(
            f"astype({dtype}) of an array of dtype {x.dtype} would lose its imaginary part",
            hint="take a part first: x.real, x.imag, abs(x)",
        )
    if not target.is_inexact:
        return xp.astype(primal_value(x), dtype)
    if target == source:
        return unshared(x) if copy else x
    return convert(x, target)


def in_doubles(x: Any) -> Any:
    """Return the elements in 64 bits, if the library has these."""
    type = element_type_of(x.dtype)
    if type in (F64, C128):
        return x
    return astype(x, library_of_value(x).widest("complex128" if type.is_complex else "float64"))


def of_one_type(what: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return arrays of one library converted to the type that it promotes them to."""
    for x in arrays:
        if not isinstance(x, Tracer) and not is_array(x):
            raise TracerError(f"{what} takes arrays, not a {type(x).__name__}: convert it first")
    library = common_library(what, arrays, may_mix=True)
    types = [element_type_of(x.dtype) for x in arrays]
    if types.count(types[0]) == len(types):
        return tuple(arrays)
    if any(t.is_complex for t in types):
        common = common_type(library, arrays)
    else:
        common = promoted_type(library, what, [Typed(t, False) for t in types])
    return tuple(x if element_type_of(x.dtype) == common else convert(x, common) for x in arrays)
