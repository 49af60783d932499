"""Products of vectors and matrices as NumPy has them: numbers and lists are arrays there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mixad.namespace.array_likes import arrays_of
from mixad.namespace.creation import tril, triu
from mixad.namespace.einsum import einsum, read_operands
from mixad.namespace.elementwise import elementwise
from mixad.namespace.joining import broadcast_arrays, broadcast_to
from mixad.namespace.linear_algebra import cross, dot, inner, outer, tensordot, vecdot
from mixad.namespace.manipulation import moveaxis, reshape
from mixad.namespace.spelling import SpelledFunction, Variadic, function_of
from mixad.tape.memory import gives_arrays

__all__ = ["NUMPY_PRODUCTS", "kron"]


def _dot(a: Any, b: Any) -> Any:
    return dot(*arrays_of(a, b))


@gives_arrays
def _tensordot(a: Any, b: Any, *, axes: Any = 2) -> Any:
    return tensordot(*arrays_of(a, b), axes=axes)


def _inner(x: Any, y: Any) -> Any:
    return inner(*arrays_of(x, y))


def _outer(x: Any, y: Any) -> Any:
    return outer(*(reshape(v, -1) for v in arrays_of(x, y)))


def _vdot(x: Any, y: Any) -> Any:
    """Return the sum of products of all elements, those of the first conjugated."""
    return vecdot(*(reshape(v, -1) for v in arrays_of(x, y)))


def _einsum(*operands: Any, optimize: Any = None) -> Any:
    text, arrays = read_operands(operands)
    return einsum(text, *arrays_of(*arrays), optimize=optimize)


def _broadcast_arrays(*operands: Any) -> tuple[Any, ...]:
    return broadcast_arrays(*arrays_of(*operands))


def kron(x: Any, y: Any) -> Any:
    """Return the products of all elements of ``y`` by each of ``x``, side by side."""
    ndim = max(x.ndim, y.ndim)
    rows, columns = ((*[1] * (ndim - v.ndim), *v.shape) for v in (x, y))
    left = reshape(x, [n for length in rows for n in (length, 1)])
    right = reshape(y, [n for length in columns for n in (1, length)])
    whole = [m * n for m, n in zip(rows, columns, strict=True)]
    return reshape(elementwise("mul", left, right), whole)


def _kron(x: Any, y: Any) -> Any:
    return kron(*arrays_of(x, y))


def _cross(
    x: Any, y: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    return moveaxis(cross(moveaxis(x, axisa, -1), moveaxis(y, axisb, -1)), -1, axisc)


def _triangle(part: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes a vector for a matrix of which it is every row."""

    def evaluate(x: Any, *, k: int = 0) -> Any:
        return part(broadcast_to(x, 2 * tuple(x.shape)) if x.ndim == 1 else x, k=k)

    return evaluate


NUMPY_PRODUCTS: Mapping[str, SpelledFunction] = {
    "dot": function_of(_dot),
    "tensordot": function_of(_tensordot),
    "inner": function_of(_inner, "a=x b=y"),
    "outer": function_of(_outer, "a=x b=y out"),
    "vdot": function_of(_vdot, "a=x b=y"),
    "einsum": Variadic(_einsum, ()),
    "kron": function_of(_kron, "a=x b=y"),
    "cross": function_of(_cross, "a=x b=y axisa axisb axisc axis"),
    "broadcast_arrays": Variadic(_broadcast_arrays, ()),
    "tril": function_of(_triangle(tril), "m=x k"),
    "triu": function_of(_triangle(triu), "m=x k"),
}
