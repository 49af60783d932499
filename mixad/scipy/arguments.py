"""Arguments and results of counterparts of SciPy's functions: arrays, in one namespace."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from mixad import pytree
from mixad.backends.arrays import NUMPY, Library, is_array, is_number
from mixad.namespace.array_likes import first_traced, from_lists
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import is_operand
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.types import ScalarType
from mixad.tape.constant import constants, unwrapped
from mixad.tape.node import common_library, library_of_value
from mixad.tape.tracer import Tracer, primal_value
from mixad.tracebacks import short_traceback

__all__ = ["as_arrays", "as_floats", "float_operands", "is_complex", "of_arrays", "user_result"]

_F = TypeVar("_F", bound=Callable[..., Any])


def of_arrays(names: str) -> Callable[[_F], _F]:
    """Return a decorator for a function of which so many parameters are arrays, or are left out.

    The function gets constants and traced values, whose operators and namespaces are the same
    whatever their library is; its caller gets arrays.
    """
    own = names.split()

    def decorate(function: _F) -> _F:
        signature = inspect.signature(function)
        module = function.__module__

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            given = [name for name in own if bound.arguments.get(name) is not None]
            values = [bound.arguments[name] for name in given]
            arrays = as_arrays(f"{module}.{function.__name__}", values)
            bound.arguments.update(zip(given, arrays, strict=True))
            return pytree.tree_map(user_result, function(*bound.args, **bound.kwargs))

        return short_traceback(call)  # type: ignore[return-value]

    return decorate


def user_result(value: Any) -> Any:
    """Return a result in the user's form: no constant, and no NumPy array without axes."""
    value = unwrapped(value)
    return value[()] if isinstance(value, np.ndarray) and not value.ndim else value


def as_arrays(called: str, values: list[Any]) -> list[Any]:
    """Return arrays, numbers and lists as arrays of one namespace.

    Numbers and lists of Python adapt to the floats beside them, but for NumPy's, as there.
    """
    arrays = [v for v in values if _is_whole_array(v)]
    if arrays:
        common_library(called, arrays)
    like = next((v for v in arrays if isinstance(v, Tracer)), arrays[0] if arrays else None)
    return [constants(_as_array(v, like)) for v in values]


def _is_whole_array(value: Any) -> bool:
    return isinstance(value, Tracer) or (is_array(value) and not isinstance(value, np.generic))


def _as_array(value: Any, like: Any) -> Any:
    if _is_whole_array(value):
        return value
    traced = first_traced(value)
    if traced is not None:
        return from_lists(value, traced)
    value = np.asarray(value)
    library = NUMPY if like is None else library_of_value(like)
    if library is NUMPY:
        return value
    kind = element_type_of(like.dtype)
    is_lossless = kind.is_complex or (kind.is_inexact and value.dtype.kind != "c")
    given = element_type_of(value.dtype)
    return library.asarray(
        value, kind if is_lossless else given, getattr(primal_value(like), "device", None)
    )


def as_floats(*arrays: Any) -> tuple[Any, ...]:
    """Return arrays of whole numbers as floats: SciPy's functions of floats take them."""
    return tuple(a if element_type_of(a.dtype).is_inexact else _as_float(a) for a in arrays)


def _as_float(x: Any) -> Any:
    xp = x.__array_namespace__()
    default = xp.__array_namespace_info__().default_dtypes()["real floating"]
    return xp.astype(x, default)


def is_complex(x: Any) -> bool:
    """Whether an array is of complex numbers."""
    return element_type_of(x.dtype).is_complex


def float_operands(operands: Iterable[Any]) -> list[Any]:
    """Return operands of a kernel, whole numbers and booleans among them as floats.

    Floats have the type that the library gives such operands together, by default its own.
    """
    each: list[Any] = [float(o) if isinstance(o, int) else o for o in operands]
    if not all(map(is_operand, each)):
        return each  # which the kernel refuses
    arrays = [o for o in each if not is_number(o)]
    own = [o for o in arrays if not isinstance(o, np.generic)]
    library = library_of_value(own[0]) if own else NUMPY
    strong = arrays if library is NUMPY else own  # beside others NumPy's scalars adapt
    types = [element_type_of(o.dtype) for o in strong]
    if all(t.is_inexact for t in types) or any(t.is_complex for t in types):
        return each
    common: ScalarType | None = types[0]
    for type in types[1:]:
        common = common and library.rules.strong(common, type)
    if common is None:
        return each
    common = common if common.is_float else library.rules.default_float
    return [o if is_number(o) else _operand_as_float(o, library, common) for o in each]


def _operand_as_float(operand: Any, library: Library, type: ScalarType) -> Any:
    if element_type_of(operand.dtype).is_float:
        return operand
    if isinstance(operand, np.generic):
        return type.dtype.type(operand) if library is NUMPY else float(operand)
    return astype(operand, library.dtype_of(type))
