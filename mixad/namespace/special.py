"""Special functions of arrays, under the names that SciPy has for them: kernels of `mixad.special`.

SciPy asks the namespace of its arguments for an extension ``special`` before it converts them to
NumPy arrays, and its own ufuncs ask traced arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from mixad import special
from mixad.call.specialise import Specialiser
from mixad.namespace.complex_numbers import is_complex
from mixad.namespace.elementwise import elementwise, is_operand, operand
from mixad.namespace.spelling import BoundFunction, OfOperands
from mixad.scalar.names import OUR_NAMES, our_names
from mixad.tape.apply import apply_call
from mixad.tape.tracer import Tracer

__all__ = ["SPECIAL", "of_scalars"]

_Scalar = Callable[..., Any]


@cache
def _specialiser(function: _Scalar) -> Specialiser:
    """Return the specialiser of a function, made at the first call."""
    return Specialiser(function)


def _broadcast(function: _Scalar, operands: tuple[Any, ...]) -> Any:
    """Return a function of scalars, applied to arrays."""
    operands = tuple(o if is_operand(o) else _array_beside(o, operands) for o in operands)
    op = getattr(function, "__mixad_op__", None)
    if op is not None:
        return elementwise(op, *operands)
    if any(map(is_complex, operands)):
        return elementwise(function.__name__, *operands)  # as refused as for an op
    call, values = _specialiser(function).bind_call(operands, {})
    return apply_call(call.found.call, values)[0]


def _array_beside(value: Any, operands: tuple[Any, ...]) -> Any:
    """Return a value that is no operand as an array beside the traced operand."""
    return operand(value, next((o for o in operands if isinstance(o, Tracer)), None))


def of_scalars(name: str, scalar: _Scalar) -> BoundFunction:
    """Return a function of scalars as one of arrays."""

    def evaluate(*operands: Any) -> Any:
        return _broadcast(scalar, operands)

    evaluate.__name__ = evaluate.__qualname__ = name
    evaluate.__doc__ = scalar.__doc__
    return OfOperands(evaluate, tuple(inspect.signature(scalar).parameters))


_SAME = (
    "beta betaln cbrt cosm1 digamma ellipe ellipk ellipkm1 entr erf erfc erfcinv erfcx erfinv exp1 "
    "exp10 exp2 expi expm1 expn exprel gamma gammainc gammaincc huber i0 i0e i1 i1e j0 j1 kl_div "
    "log1p logit ndtr ndtri polygamma pseudo_huber rel_entr sinc softplus xlog1py xlogy y0 y1"
).split()


def _riemann(x: Any) -> Any:
    return special.zeta(x)


def _zeta(x: Any, q: Any = None) -> Any:
    """Return Riemann's zeta function, or with q Hurwitz's."""
    return _broadcast(_riemann, (x,)) if q is None else _broadcast(special.zeta, (x, q))


SPECIAL = {
    name: of_scalars(name, getattr(special, OUR_NAMES.get(name, name)))
    for name in sorted({*our_names("scipy"), *_SAME})
} | {"zeta": OfOperands(_zeta, ("x", "q"))}
"""By SciPy's names."""
