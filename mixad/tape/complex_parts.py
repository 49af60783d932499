"""Real and imaginary parts of complex numbers, for kernels, which compute with real numbers.

Splitting and joining compute nothing: ``re + 1j * im`` would turn infinities into nan and lose
signs of zeros.
The cotangent of z = x + iy is ∂x + i∂y of a real loss, so each is the other's adjoint.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mixad.backends.arrays import Array, is_number, own_library
from mixad.scalar.types import ScalarType, complex_of, type_of_dtype
from mixad.tape.cell import Cell
from mixad.tape.constant import constant, is_constant, unwrapped
from mixad.tape.tracer import Tracer, check_mode
from mixad.tape.values_rule import ValuesRule, apply_values_rule, instantiate_zeros

__all__ = ["join_complex", "split_complex"]


def split_complex(z: Any) -> tuple[Any, Any]:
    """Return the real and the imaginary part of a complex number, an array or a tracer.

    The parts of an array are views where its library has views.
    """
    if is_constant(z):
        re, im = split_complex(unwrapped(z))
        return constant(re), constant(im)
    if isinstance(z, Tracer):
        re, im = apply_values_rule(_PARTS, z)
        return (_weak(re), _weak(im)) if z.cell.weak else (re, im)
    if is_number(z) or isinstance(z, np.generic | np.ndarray):
        return z.real, z.imag
    return _split(own_library(z).xp, z)


def join_complex(re: Any, im: Any) -> Any:
    """Return the complex number, array or tracer with these parts, of one type and one shape."""
    if is_constant(re):
        return constant(join_complex(unwrapped(re), unwrapped(im)))
    if isinstance(re, Tracer) or isinstance(im, Tracer):
        (z,) = apply_values_rule(_JOINED, re, im)
        is_weak = all(isinstance(x, Tracer) and x.cell.weak for x in (re, im))
        return _weak(z) if is_weak else z
    if is_number(re):
        return complex(re, im)
    if isinstance(re, np.generic):
        return _numpy_joined(np.asarray(re), np.asarray(im))[()]
    return _array_joined(re, im)


def _weak(x: Tracer) -> Tracer:
    """Return what came of a Python number as such a number: it adapts to arrays beside it."""
    cell = Cell.of(x.cell.array, check_mode(x.origin.levels), weak=True)
    return type(x)(cell, x.origin)


def _split(xp: Any, z: Array) -> tuple[Array, Array]:
    return xp.real(z), xp.imag(z)


def _numpy_joined(re: Any, im: Any) -> Any:
    z = np.empty(np.broadcast_shapes(re.shape, im.shape), complex_of(_type(re)).dtype)
    z.real, z.imag = re, im
    return z


def _type(part: Any) -> ScalarType:
    found = type_of_dtype(part.dtype)
    assert found is not None
    return found


def _array_joined(re: Array, im: Array) -> Array:
    library = own_library(re)
    if library.name == "torch":
        return sys.modules["torch"].complex(re, im)
    if library.name == "jax":
        return sys.modules["jax"].lax.complex(re, im)
    if type(re) is np.ndarray:
        return _numpy_joined(re, im)
    if library.name == "cupy":
        z = library.xp.empty(re.shape, dtype=re.dtype.char.upper())
        z.real, z.imag = re, im
        return z
    dtype = library.xp.complex64 if re.dtype == library.xp.float32 else library.xp.complex128
    return library.apply_on_cpu(_numpy_joined, tuple(re.shape), dtype, re, im)


def _cotangent_of_whole(gs: Any, values: Any, z: Any) -> Any:
    return join_complex(*instantiate_zeros(gs, values))


_PARTS = ValuesRule(
    "taking complex numbers apart", _split, (_cotangent_of_whole,), fresh=True, is_total=True
)

_JOINED = ValuesRule(
    "putting complex numbers together",
    lambda xp, re, im: (_array_joined(re, im),),
    (
        lambda gs, values, re, im: split_complex(gs[0])[0],
        lambda gs, values, re, im: split_complex(gs[0])[1],
    ),
    is_total=True,
)
