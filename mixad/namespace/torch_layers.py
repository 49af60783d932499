"""Layers of ``torch.nn.functional``, distances, padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mixad.errors import NoRuleError
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import elementwise, square
from mixad.namespace.indexing import part_along
from mixad.namespace.joining import broadcast_arrays, concat
from mixad.namespace.linear_algebra import matmul, vecdot
from mixad.namespace.manipulation import matrix_transpose
from mixad.namespace.norms import vector_norm
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import mean, var
from mixad.namespace.torch_weights import check_shape, rows
from mixad.tape.memory import share, unshared
from mixad.tape.node import library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["TORCH_LAYERS"]


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    found = matmul(x, matrix_transpose(weight) if weight.ndim > 1 else weight)
    return found if bias is None else elementwise("add", found, bias)


def _normalize(x: Any, p: float = 2.0, axis: Any = 1, *, eps: float = 1e-12) -> Any:
    length = vector_norm(x, axis=axis, keepdims=True, ord=p)
    return elementwise("div", x, elementwise("maximum", length, eps))


def _cosine_similarity(x1: Any, x2: Any, axis: int = 1, *, eps: float = 1e-8) -> Any:
    """Return cosines of angles along an axis of the broadcast shape."""
    dtype = library_of_value(x1).xp.promote_types(x1.dtype, x2.dtype)
    x1, x2 = (astype(x, dtype, copy=False) for x in (x1, x2))
    directions = (_normalize(x, axis=axis, eps=eps) for x in broadcast_arrays(x1, x2))
    return vecdot(*directions, axis=axis)


def _pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, *, eps: float = 1e-6, keepdims: bool = False
) -> Any:
    between = elementwise("add", elementwise("sub", x1, x2), eps)
    return vector_norm(between, axis=-1, keepdims=keepdims, ord=p)


def _scale_and_shift(x: Any, weight: Any, bias: Any = None) -> Any:
    x = x if weight is None else elementwise("mul", x, weight)
    return x if bias is None else elementwise("add", x, bias)


def _last_axes(called: str, x: Any, shape: Sequence[int], **scales: Any) -> tuple[int, ...]:
    """Return the last axes; raise unless they, and all scales, have the given shape."""
    if not len(shape) or tuple(shape) != tuple(x.shape[-len(shape) :]):
        raise ValueError(
            f"{called}() got normalized_shape {tuple(shape)} for input of shape {tuple(x.shape)}: "
            "it has to be the lengths of the last axes"
        )
    for name, given in scales.items():
        if given is not None:
            check_shape(called, name, given, shape)
    return tuple(range(-len(shape), 0))


def _layer_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    axes = _last_axes("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    spread = elementwise("add", var(x, axes, keepdims=True), eps)
    x = elementwise("sub", x, mean(x, axes, keepdims=True))
    return _scale_and_shift(elementwise("div", x, elementwise("sqrt", spread)), weight, bias)


def _rms_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    axes = _last_axes("rms_norm", x, normalized_shape, weight=weight)
    eps = library_of_value(x).xp.finfo(x.dtype).eps if eps is None else eps
    size = elementwise("sqrt", elementwise("add", mean(square(x), axes, keepdims=True), eps))
    return _scale_and_shift(elementwise("div", x, size), weight)


def _embedding(x: Any, weight: Any) -> Any:
    if weight.ndim != 2:
        raise ValueError(f"embedding() got weight of shape {tuple(weight.shape)}: rows of a matrix")
    return rows(weight, primal_value(x))


def _dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Return ``x`` if nothing is dropped; else TracerError.

    A second run, for tangents or a checkpoint, would drop other elements.
    """
    if training and p:
        raise NoRuleError(
            "dropout() of a value that is being differentiated is not available: multiply by a "
            "mask that is made outside, torch.nn.functional.dropout(torch.ones_like(x), p)"
        )
    return share(unshared(x), x)


def _pad(x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Return ``x`` with equal numbers around it; negative widths cut its edges."""
    if mode != "constant":
        raise NoRuleError(
            f"pad(mode={mode!r}) of a value that is being differentiated is not available: use "
            "mode='constant', or index the tensor"
        )
    for number in range(len(pad) // 2):
        axis, before, after = x.ndim - 1 - number, *pad[2 * number : 2 * number + 2]
        x = part_along(x, axis, max(-before, 0), x.shape[axis] - max(-after, 0))
        edges = [_constant(x, axis, max(n, 0), value or 0.0) for n in (before, after)]
        x = concat([edges[0], x, edges[1]], axis=axis)
    return x


def _constant(x: Any, axis: int, length: int, value: float) -> Any:
    shape = (*x.shape[:axis], length, *x.shape[axis + 1 :])
    return library_of_value(x).xp.full(shape, value, dtype=x.dtype, device=x.device)


TORCH_LAYERS: Mapping[str, BoundFunction] = {
    "linear": function_of(_linear, "input weight bias"),
    "normalize": function_of(_normalize, "input p dim eps out"),
    "layer_norm": function_of(_layer_norm, "input normalized_shape weight bias eps"),
    "rms_norm": function_of(_rms_norm, "input normalized_shape weight eps"),
    "embedding": function_of(
        _embedding, "input weight padding_idx max_norm norm_type scale_grad_by_freq sparse"
    ),
    "dropout": function_of(_dropout, "input p training inplace"),
    "pad": function_of(_pad, "input pad mode value"),
    "cosine_similarity": function_of(_cosine_similarity, "x1 x2 dim eps"),
    "pairwise_distance": function_of(_pairwise_distance, "x1 x2 p eps keepdim"),
}
