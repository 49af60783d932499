"""Powers as libraries compute them: squares are products, exponents of one half may be roots."""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from mixad.backends.arrays import NUMPY, Library, is_number, is_scalar
from mixad.namespace.elementwise import (
    CallOf,
    DescribedOperand,
    apply_elementwise,
    converted_params,
    element_type,
    elementwise,
    is_strong,
    square,
    weak_type,
)
from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom
from mixad.scalar.types import ScalarType
from mixad.tape.kernel_call import KernelCall
from mixad.tape.memory import is_numpy_number
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer

__all__ = ["power"]


def power(x: Any, y: Any, by_operator: bool = False) -> Any:
    """Return ``x`` to the power ``y`` as libraries compute it.

    Squares are products. Powers of one half may be roots, which differ at -inf and -0.0.
    """
    if is_scalar(y) and y == 2:
        return square(x)
    if abs(y) != 0.5 if is_number(y) else not _is_one_float(y):
        return elementwise("pow", x, y)
    halves = _halves(_OperandKind.of(x), _OperandKind.of(y), by_operator)
    if is_scalar(y) and y in halves:
        return apply_elementwise("pow", _root(y), (x, y))
    if is_scalar(y) or not halves:
        return elementwise("pow", x, y)
    return apply_elementwise("pow", _power_by_roots(halves), (x, y))


class _OperandKind(NamedTuple):
    """What of an operand decides how a library computes a power; a Python number has no library.

    Lengths are 1 or others.
    """

    library: Library | None
    type: ScalarType
    is_array: bool = False
    shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, x: Any) -> _OperandKind:
        """Return the kind of an operand."""
        if not is_strong(x):
            return cls(None, x.kind.type if isinstance(x, Tracer) else weak_type(x))
        is_number = is_numpy_number(x) if isinstance(x, Tracer) else isinstance(x, np.generic)
        shape = tuple([1 if length == 1 else 2 for length in x.shape])
        return cls(library_of_value(x), element_type(x), not is_number, shape)

    def sample(self, number: float, library: Library) -> Any:
        """Return a number as such an operand, beside a library's arrays."""
        if self.library is None or (library is not NUMPY and not self.is_array):
            return number
        array = library.xp.full(self.shape, number, dtype=library.dtype_of(self.type))
        return array if self.is_array else array[()]


def _is_one_float(y: Any) -> bool:
    type = element_type(y)
    return type.is_float and not type.is_complex and math.prod(y.shape) == 1


@cache
def _halves(base: _OperandKind, exponent: _OperandKind, by_operator: bool) -> tuple[float, ...]:
    """Return the exponents among 0.5 and -0.5 that are roots, negative at -0.0, in a library."""
    kinds = [k for k in (base, exponent) if k.library is not None]
    libraries = {k.library for k in kinds if k.is_array} or {k.library for k in kinds}
    library = libraries.pop() if len(libraries) == 1 else None
    if library is None or base.type.is_complex or not base.type.is_float:
        return ()
    library = NUMPY if library.is_lazy else library
    own = operator.pow if by_operator or library is not NUMPY else np.power
    x = base.sample(-0.0, library)
    with np.errstate(divide="ignore"):
        found = {y: own(x, exponent.sample(y, library)) for y in (0.5, -0.5)}
    return tuple(y for y, power in found.items() if math.copysign(1.0, library.xp.max(power)) < 0)


@cache
def _root(exponent: float) -> CallOf:
    """Return the maker of a call for a power of 0.5 or -0.5 as a root."""

    @cache
    def call_of(op: str, common: ScalarType, params: tuple[DescribedOperand, ...]) -> KernelCall:
        builder = Builder("root")
        x, _ = converted_params(builder, common, params)
        return KernelCall.storing(builder.finish([_root_of(builder, x, exponent)]))

    return call_of


@cache
def _power_by_roots(halves: tuple[float, ...]) -> CallOf:
    """Return what makes the call of a power that is a root for the exponents ``halves``.

    Except at -inf and zeros both have the same values.
    """

    @cache
    def call_of(op: str, common: ScalarType, params: tuple[DescribedOperand, ...]) -> KernelCall:
        builder = Builder(op)
        x, y = converted_params(builder, common, params)
        is_edge = builder.op("le", x, builder.const(0.0, common))
        found = builder.op(op, x, y)
        for half in halves:
            is_half = builder.op("eq", y, builder.const(half, common))
            root = _root_of(builder, x, half)
            found = builder.op("where", builder.op("and", is_half, is_edge), root, found)
        return KernelCall.storing(builder.finish([found]))

    return call_of


def _root_of(builder: Builder, x: Atom, exponent: float) -> Atom:
    root = builder.op("sqrt", x)
    return root if exponent > 0 else builder.op("div", builder.const(1.0, x.type), root)
