"""Elementwise functions: each is a broadcast of one op of the table."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from array_api_compat import device

from mixad import pytree
from mixad.backends.arrays import (
    NUMBERS,
    NUMPY,
    Library,
    as_array,
    default_dtypes,
    is_array,
    is_number,
    is_scalar,
)
from mixad.errors import KernelTypeError, TracerError
from mixad.namespace.complex_numbers import (
    as_complex,
    complex_elementwise,
    imag,
    is_complex,
    real,
    select,
)
from mixad.namespace.promotion import promoted_type
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import element_type_of, scalar_type_of
from mixad.scalar.ir import Atom, Kind, Program
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import BOOL, F64, I64, ScalarType, complex_of
from mixad.tape.apply import apply_call, apply_program
from mixad.tape.kernel_call import KernelCall
from mixad.tape.memory import array_as, gives_arrays
from mixad.tape.node import common_library, library_of_value
from mixad.tape.tracer import Tracer, journal_of, primal_value

__all__ = ["CallOf", "DescribedOperand", "angle", "apply_elementwise", "array_beside",
           "as_numpy_gives", "clip", "convert", "converted_params", "element_type",
           "elementwise", "is_operand", "is_strong", "operand", "round_to_decimals",
           "square", "weak_type", "where"]  # fmt: skip


# A described operand: its type, and whether it is a Python number.
DescribedOperand = tuple[Typed, bool]

# What an op, the common type of its operands, and these described make.
CallOf = Callable[[str, ScalarType, tuple[DescribedOperand, ...]], KernelCall]


def is_operand(value: object) -> bool:
    """Whether a value may stand beside a tracer in an expression."""
    is_known = type(value) in NUMBERS or isinstance(value, Tracer)
    return is_known or is_number(value) or is_array(value)


def operand(value: Any, other: Any) -> Any:
    """Return an argument of a function of two, converted to stand beside the other.

    TracerError if the other's library does not take it.
    """
    if is_operand(value):
        return value
    is_numpys = isinstance(other, Tracer) and other.library is NUMPY
    if isinstance(value, (list, tuple)) and is_numpys:
        return np.asarray(value)
    raise TracerError(
        f"a {type(value).__name__} beside a value that is being differentiated: convert it to "
        "an array first"
    )


def array_beside(value: Any, other: Any) -> Any:
    """Return a number as the array that NumPy takes it for, of its own dtype.

    Functions of other libraries take no numbers: for these it has the other argument's dtype, made
    complex for a complex number.
    """
    library = library_of_value(other)
    if library is NUMPY:
        if isinstance(value, Tracer):
            return as_numpy_gives(value)
        return as_array(value) if is_array(value) else np.asarray(value)
    value = _without_numpy_scalar(value, library)
    if is_strong(value):
        return value
    type = element_type_of(other.dtype)
    if isinstance(value, complex) and not type.is_complex:
        type = complex_of(type)
    if isinstance(value, Tracer):
        return elementwise("mul", value, library.asarray(1, type, device(primal_value(other))))
    return library.asarray(value, type, device(primal_value(other)))


def elementwise(op: str, *operands: Any) -> Any:
    """Apply an op of the table to operands, promoted as their library does."""
    return apply_elementwise(op, _call, operands)


def apply_elementwise(
    op: str, call_of: CallOf, operands: tuple[Any, ...], before: tuple[Any, ...] = ()
) -> Any:
    """Apply the function that ``call_of`` returns for promoted operands, after other arguments."""
    key = (op, call_of, default_dtypes(), *[_kind(o) for o in operands])
    call = _CALLS.get(key)
    if call is None:
        library = _library_beside(op, operands)
        operands = tuple([_without_numpy_scalar(o, library) for o in operands])
        if any(map(is_complex, operands)):
            return complex_elementwise(op, library, operands)
        params = tuple([_describe(op, o, library) for o in operands])
        call = call_of(op, promoted_type(library, op, [typed for typed, _ in params]), params)
        if None not in key[3:]:
            _CALLS[key] = call
    return apply_call(call, (*before, *operands))[0]


_CALLS: dict[object, KernelCall] = {}
"""The calls of ops on tracers, NumPy's arrays and numbers, by their keys."""


def _kind(operand: Any) -> object:
    """Return the key of an op's call; None if that takes a closer look."""
    if isinstance(operand, Tracer):
        return (operand.kind, not operand.shape)
    kind = type(operand)
    if kind is np.ndarray:
        return (operand.dtype, not operand.shape)
    return kind if kind is float or kind is int or kind is bool else None


def square(x: Any) -> Any:
    """Return the square of each element."""
    if is_complex(x):
        return elementwise("mul", x, x)
    return apply_program(_square(element_type(x)), (x,))[0]


def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Return the elements, those outside of an interval at its ends; ties split evenly.

    Bounds of another dtype are converted to that of ``x`` where the library does so.
    """
    min, max = (_convert_bound(x, bound) for bound in (min, max))
    if min is not None:
        x = elementwise("maximum", x, operand(min, x))
    return x if max is None else elementwise("minimum", x, operand(max, x))


def _convert_bound(x: Any, bound: Any) -> Any:
    """Return a bound in the dtype in which the library compares it, which need not promote."""
    dtype = getattr(bound, "dtype", x.dtype)
    if dtype == x.dtype or not (isinstance(x, Tracer) or isinstance(bound, Tracer)):
        return bound
    xp = library_of_value(x).xp
    found = xp.clip(xp.zeros(1, dtype=x.dtype), min=xp.zeros(1, dtype=dtype)).dtype
    return convert(bound, element_type_of(x.dtype)) if found == x.dtype else bound


def round_to_decimals(x: Any, decimals: int = 0) -> Any:
    """Return the elements rounded to decimals, halves to even: NumPy and torch scale."""
    if not decimals:
        return elementwise("rint", x)
    scale = 10.0 ** abs(decimals)
    there, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return elementwise(back, elementwise("rint", elementwise(there, x, scale)), scale)


def angle(x: Any, deg: bool = False) -> Any:
    """Return the angles of complex numbers, in radians or degrees."""
    found = elementwise("atan2", imag(x), real(x))
    return elementwise("mul", found, 180 / math.pi) if deg else found


@gives_arrays
def where(condition: Any, x: Any, y: Any) -> Any:
    """Return elements of ``x`` where a condition holds, of ``y`` elsewhere; not both are numbers.

    The derivative is that of the element chosen: none comes from the other, be it nan or inf.
    TracerError if the condition is no array of booleans.
    """
    x, y = operand(x, y), operand(y, x)
    if is_scalar(condition):
        library, other = _library_beside("where", (x, y)), y if is_scalar(x) else x
        kind = BOOL if isinstance(condition, bool) else I64 if isinstance(condition, int) else F64
        condition = library.asarray(condition, kind, device(other))
    condition = primal_value(operand(condition, x if isinstance(x, Tracer) else y))
    if scalar_type_of(condition.dtype) != BOOL:
        called = "where()"
        raise TracerError(
            f"{called} takes a condition of booleans, this one has dtype {condition.dtype}: "
            "write condition != 0, of a list asarray(condition) != 0",
            called,
        )
    if is_complex(x) or is_complex(y):
        library = _library_beside("where", (x, y))
        x, y = _without_numpy_scalar(x, library), _without_numpy_scalar(y, library)
        return select(library, condition, x, y)
    return apply_elementwise("where", _selection, (x, y), (condition,))


def as_numpy_gives(result: Any) -> Any:
    """Return a result as functions of NumPy do: a scalar of NumPy's for Python numbers.

    Beside a float32 array ``np.exp(3.0)`` is a float64, while ``3.0 * 3.0`` adapts.
    """
    if not isinstance(result, Tracer):
        return pytree.tree_map(_as_scalar, result) if isinstance(result, (tuple, list)) else result
    return _as_scalar(result)


def _as_scalar(x: Any) -> Any:
    if not (isinstance(x, Tracer) and x.weak):
        return x
    journal = journal_of(x.levels)
    if journal is not None:
        journal.know(_ONE)
    return array_as(elementwise("mul", x, _ONE), x)


_ONE = np.ones(())
"""A product with it makes a Python number one of NumPy's, which does not adapt."""


def convert(x: Any, type: ScalarType) -> Any:
    """Return ``x`` with elements of another type."""
    if type.is_complex:
        return as_complex(x, type)
    return apply_program(_conversion(element_type(x), type), (x,))[0]


@cache
def _call(op: str, common: ScalarType, params: tuple[DescribedOperand, ...]) -> KernelCall:
    """Return the call of one op: operands are converted to their common type, then used."""
    builder = Builder(op)
    args = converted_params(builder, common, params)
    return KernelCall.storing(builder.finish([builder.op(op, *args)]))


@cache
def _selection(op: str, common: ScalarType, params: tuple[DescribedOperand, ...]) -> KernelCall:
    builder = Builder(op)
    condition = builder.param("condition", BOOL)
    args = converted_params(builder, common, params)
    return KernelCall.storing(builder.finish([builder.op(op, condition, *args)]))


def converted_params(
    builder: Builder, common: ScalarType, params: tuple[DescribedOperand, ...]
) -> list[Atom]:
    """Add a param for each operand; return them converted to a common type."""
    strong = any(not typed.weak for typed, _ in params)
    args: list[Atom] = []
    for name, (typed, number) in zip("xyz", params, strict=False):
        kind: Kind = "uniform" if number or (typed.weak and strong) else "lane"
        var = builder.param(name, common if number else typed.type, kind)
        args.append(builder.cast(var, common))
    return args


@cache
def _square(type: ScalarType) -> Program:
    builder = Builder("square")
    x = builder.param("x", type)
    return builder.finish([builder.op("mul", x, x)])


@cache
def _conversion(source: ScalarType, target: ScalarType) -> Program:
    builder = Builder("astype")
    return builder.finish([builder.convert(builder.param("x", source), target)])


def _library_beside(op: str, operands: Sequence[Any]) -> Library:
    """Return the library of the operands that are no Python or NumPy scalars."""
    arrays = [o for o in operands if is_strong(o)]
    strict = [o for o in arrays if not isinstance(o, np.generic)] or arrays
    return common_library(_SYMBOLS.get(op, op), strict, may_mix=True) if strict else NUMPY


_SYMBOLS = {
    "add": "`+`", "sub": "`-`", "mul": "`*`", "div": "`/`", "pow": "`**`", "floordiv": "`//`",
    "mod": "`%`", "lt": "`<`", "le": "`<=`", "gt": "`>`", "ge": "`>=`", "eq": "`==`", "ne": "`!=`",
    "and": "`&`", "or": "`|`", "xor": "`^`", "shl": "`<<`", "shr": "`>>`",
}  # fmt: skip
"""The operators of operations, as users write them."""


def is_strong(operand: Any) -> bool:
    """Whether an operand is no Python number, traced or not: those adapt to others."""
    return not is_number(operand) and not (isinstance(operand, Tracer) and operand.weak)


def _without_numpy_scalar(operand: Any, library: Library) -> Any:
    """Return a NumPy scalar as an array beside NumPy's and lazy ones, else as a plain number."""
    if isinstance(operand, np.generic) and library.mix_with(NUMPY) is None:
        return operand.item()
    return operand


def _describe(op: str, operand: Any, library: Library) -> DescribedOperand:
    if is_scalar(operand):
        return Typed(weak_type(operand), True), True
    if isinstance(operand, Tracer) and operand.weak:
        return Typed(operand.kind.type, True), False
    try:
        return library.rules.array(element_type(operand), operand.ndim), False
    except KernelTypeError as error:
        raise error.about(f"{op}: an operand") from None


def weak_type(number: bool | int | float) -> ScalarType:
    """Return the type of a Python number."""
    return BOOL if isinstance(number, bool) else I64 if isinstance(number, int) else F64


def element_type(x: Any) -> ScalarType:
    """Return the type of the elements of an array or a tracer."""
    return x.kind.type if isinstance(x, Tracer) else element_type_of(x.dtype)
