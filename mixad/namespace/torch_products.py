"""Products of vectors and matrices as torch has them, by torch's names."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from mixad.namespace.complex_numbers import is_complex
from mixad.namespace.creation import tril, triu
from mixad.namespace.determinants import det, slogdet
from mixad.namespace.einsum import einsum
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.joining import broadcast_arrays
from mixad.namespace.linear_algebra import (
    cross,
    inner,
    matmul,
    outer,
    tensordot,
    trace,
    vecdot,
)
from mixad.namespace.manipulation import (
    expand_dims,
    is_several,
    matrix_transpose,
    normalized_axes,
    reshape,
)
from mixad.namespace.numpy_products import kron
from mixad.namespace.solving import identity_like, inv, matrix_power, pinv, solve
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import total
from mixad.namespace.torch_views import torch_view
from mixad.tape.memory import gives_views
from mixad.tape.node import library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["TORCH_PRODUCTS"]


def _einsum(equation: str, *operands: Any) -> Any:
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return einsum(equation, *operands)


def _scale(x: Any, factor: Any) -> Any:
    return x if type(factor) in (int, float) and factor == 1 else elementwise("mul", x, factor)


def _added_product(product: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """Return beta * x + alpha * product(a, b)."""

    def evaluate(x: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
        found = _scale(product(a, b), alpha)
        shape = tuple(found.shape)
        if tuple(library_of_value(x).xp.broadcast_shapes(tuple(x.shape), shape)) != shape:
            raise ValueError(
                f"what is added to a product of shape {shape} has this shape or broadcasts to it, "
                f"not the shape {tuple(x.shape)}"
            )
        if type(beta) in (int, float) and beta == 0:  # what x has is not looked at, nan neither
            return found
        return elementwise("add", _scale(x, beta), found)

    return evaluate


def _addcmul(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return elementwise("add", x, _scale(elementwise("mul", a, b), value))


def _addcdiv(x: Any, a: Any, b: Any, *, value: Any = 1) -> Any:
    return elementwise("add", x, _scale(elementwise("div", a, b), value))


def _lerp(x: Any, end: Any, weight: Any) -> Any:
    """Interpolate between two tensors, exact at both ends: starting at the nearer one."""
    step = elementwise("sub", end, x)
    from_start = elementwise("add", x, elementwise("mul", weight, step))
    from_end = elementwise("sub", end, elementwise("mul", step, 1 - weight))
    is_near = abs(primal_value(weight)) < 0.5
    if isinstance(is_near, bool):
        return from_start if is_near else from_end
    return where(is_near, from_start, from_end)


def _tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Return sums of products; a factor of length 1 has the other summed on its own."""
    if not is_several(dims):
        count = operator.index(dims)
        dims = range(a.ndim - count, a.ndim), range(count)
    left, right = (normalized_axes(axes, x.ndim) for axes, x in zip(dims, (a, b), strict=True))
    for i, j in zip(left, right, strict=True):
        if a.shape[i] == 1:
            b = total(b, j, keepdims=True)
        elif b.shape[j] == 1:
            a = total(a, i, keepdims=True)
    return tensordot(a, b, axes=(left, right))


def _cross(x: Any, y: Any, axis: int | None = None) -> Any:
    """Return cross products along an axis; along the first one of length 3 for None."""
    x, y = broadcast_arrays(x, y)
    return cross(x, y, axis=list(x.shape).index(3) if axis is None else axis)


def _linalg_cross(x: Any, y: Any, axis: int = -1) -> Any:
    return cross(*broadcast_arrays(x, y), axis=axis)


def _linalg_vecdot(x: Any, y: Any, axis: int = -1) -> Any:
    return vecdot(*broadcast_arrays(x, y), axis=axis)


def _solve(a: Any, b: Any, left: bool = True) -> Any:
    """Solve for matrices, or for a batch of vectors if ``b`` has the shape of one column each.

    The standard takes vectors of one axis only.
    """
    is_vectors = b.ndim == 1 or tuple(b.shape) == tuple(a.shape)[:-1]
    if left and is_vectors and b.ndim > 1:
        return reshape(solve(a, expand_dims(b, axis=-1)), tuple(b.shape))
    if left:
        return solve(a, b)
    if is_vectors:
        raise ValueError(
            f"linalg.solve(A, B, left=False) of shapes {tuple(a.shape)} and {tuple(b.shape)}: B is "
            "taken for vectors, which are columns; give it an axis for the rows"
        )
    return matrix_transpose(solve(matrix_transpose(a), matrix_transpose(b)))


def _solve_triangular(
    a: Any, b: Any, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> Any:
    """Solve with a triangle of matrices, with ones as its diagonal if asked."""
    if b.ndim < 2:
        raise ValueError(f"linalg.solve_triangular(A, B): B has shape {tuple(b.shape)}, no matrix")
    inside = int(unitriangular)
    a = triu(a, k=inside) if upper else tril(a, k=-inside)
    if unitriangular:
        a = elementwise("add", a, identity_like(a))
    if left:
        return solve(a, b)
    return matrix_transpose(solve(matrix_transpose(a), matrix_transpose(b)))


def _logdet(x: Any) -> Any:
    """Return the logarithm of determinants; nan where real ones are negative."""
    sign, size = slogdet(x)
    if is_complex(x):
        return elementwise("add", elementwise("log", sign), size)
    return where(primal_value(sign) < 0, math.nan, size)


@gives_views
def _diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return torch_view(x, "diagonal", offset, dim1, dim2)


@gives_views
def _linalg_diagonal(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    return _diagonal(x, offset, dim1, dim2)


def _sum_of(a: str, b: str, product: Callable[..., Any] = matmul, type: str = "") -> BoundFunction:
    """Return a sum with a product; ``a``, ``b`` and ``type`` are torch's names."""
    return function_of(_added_product(product), f"input {a}=a {b}=b {type} * beta alpha")


_MATMUL = function_of(matmul, "input=a mat2=b out_dtype")

TORCH_PRODUCTS: Mapping[str, BoundFunction] = {
    "einsum": BoundFunction(_einsum, ()),
    "mm": _MATMUL,
    "bmm": _MATMUL,
    "mv": function_of(matmul, "input=a vec=b"),
    "vdot": function_of(vecdot, "input other"),
    "inner": function_of(inner, "input other"),
    **dict.fromkeys(("outer", "ger"), function_of(outer, "input vec2=y")),
    "addmm": _sum_of("mat1", "mat2", type="out_dtype"),
    "baddbmm": _sum_of("batch1", "batch2", type="out_dtype"),
    "addmv": _sum_of("mat", "vec"),
    "addr": _sum_of("vec1", "vec2", outer),
    "addcmul": function_of(_addcmul, "input tensor1=a tensor2=b * value"),
    "addcdiv": function_of(_addcdiv, "input tensor1=a tensor2=b * value"),
    "lerp": function_of(_lerp, "input end weight"),
    "tensordot": function_of(_tensordot, "a b dims out"),
    "kron": function_of(kron, "input other"),
    "cross": function_of(_cross, "input other dim"),
    "linalg_cross": function_of(_linalg_cross, "input other * dim"),
    "linalg_vecdot": function_of(_linalg_vecdot, "x y * dim"),
    "linalg_matmul": function_of(matmul, "input=a other=b"),
    "trace": function_of(trace, "input"),
    "diagonal": function_of(_diagonal, "input offset dim1 dim2"),
    "linalg_diagonal": function_of(_linalg_diagonal, "A=x * offset dim1 dim2"),
    "matrix_power": function_of(matrix_power, "input n"),
    "linalg_matrix_power": function_of(matrix_power, "input n"),
    "inverse": function_of(inv, "input"),
    "linalg_solve_triangular": function_of(
        _solve_triangular, "input=a B=b * upper left unitriangular"
    ),
    "linalg_solve": function_of(_solve, "A=a B=b * left"),
    "linalg_pinv": function_of(pinv, "input rcond=rtol hermitian * atol rtol"),
    "det": function_of(det, "input"),
    "slogdet": function_of(slogdet, "input"),
    "logdet": function_of(_logdet, "input"),
}
