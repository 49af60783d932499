"""The functions of ``torch.nn.functional``, by their names there: activations, losses, layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from mixad.errors import TracerError
from mixad.namespace.elementwise import elementwise, square, where
from mixad.namespace.indexing import gather, part_along, positions_of
from mixad.namespace.joining import broadcast_arrays, concat
from mixad.namespace.linear_algebra import matmul, vecdot
from mixad.namespace.manipulation import matrix_transpose, normalized_axes
from mixad.namespace.norms import vector_norm
from mixad.namespace.special import of_scalars
from mixad.namespace.spelling import Function, function_of
from mixad.namespace.statistical import mean, total, var
from mixad.namespace.torch_reductions import log_softmax, softmax
from mixad.special import (
    elu,
    exp,
    expm1,
    gelu,
    leaky_relu,
    log,
    log1p,
    log_sigmoid,
    maximum,
    relu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
    xlogy,
)
from mixad.tape.memory import unshared
from mixad.tape.node import library_beside
from mixad.tape.tracer import Tracer, plain

__all__ = ["TORCH_NEURAL"]

# -- activations: functions of scalars, which become kernels --------------------------------------
# Comparisons are such that nan comes out as nan, and derivatives at kinks are torch's.


def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    return x if x * beta > threshold else log1p(exp(x * beta)) / beta


def _celu(x: Any, alpha: Any) -> Any:
    return x if x > 0 else alpha * expm1(x / alpha)


def _selu(x: Any) -> Any:
    """Return the function of Klambauer et al. 2017, with its constants."""
    return 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * expm1(x))


def _gelu_by_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _mish(x: Any) -> Any:
    return x * tanh(softplus(x))


def _tanhshrink(x: Any) -> Any:
    return x - tanh(x)


def _hardtanh(x: Any, low: Any, high: Any) -> Any:
    if x <= low:
        return low
    return high if x >= high else x


def _hardsigmoid(x: Any) -> Any:
    if x <= -3:
        return 0.0
    return 1.0 if x >= 3 else x / 6 + 0.5


def _hardswish(x: Any) -> Any:
    if x <= -3:
        return 0.0
    return x if x >= 3 else x * (x + 3) / 6


def _hardshrink(x: Any, limit: Any) -> Any:
    return 0.0 if x >= -limit and x <= limit else x


def _softshrink(x: Any, limit: Any) -> Any:
    if x > limit:
        return x - limit
    return x + limit if x < -limit else x * 0.0


def _threshold(x: Any, limit: Any, value: Any) -> Any:
    return value if x <= limit else x


class _OfScalars(Function):
    """A function of a tensor and of numbers, the parameters after the first."""

    @cached_property
    def taken(self) -> frozenset[str]:
        """Names of the parameters."""
        return frozenset(("x", *self.parameters[1:]))

    @cached_property
    def direct(self) -> int:
        """How many may come by position: the tensor."""
        return 1


def _activation(scalar: Callable[..., Any], **defaults: float) -> Function:
    """Return a function of scalars, whose further parameters have defaults, as one of tensors."""
    kernel = of_scalars(scalar.__name__.strip("_"), scalar).evaluate

    def evaluate(x: Any, **options: Any) -> Any:
        return kernel(x, *(defaults | options).values())

    return _OfScalars(evaluate, ("input", *defaults))


_BY_TANH = of_scalars("gelu", _gelu_by_tanh)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu() got approximate={approximate!r}: it is 'none' or 'tanh'")
    return _BY_TANH(x) if approximate == "tanh" else _GELU(x)


_GELU = of_scalars("gelu", gelu)
_SIGMOID = of_scalars("sigmoid", sigmoid)


def _along_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function along an axis, which may be left out: torch takes one by their number."""

    def evaluate(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        if axis is None:
            axis = 0 if x.ndim in (0, 1, 3) else 1
        return function(x, axis, dtype)

    return evaluate


def _softmin(x: Any, axis: int, dtype: Any = None) -> Any:
    return softmax(elementwise("neg", x), axis, dtype)


def _glu(x: Any, axis: int = -1) -> Any:
    (axis,) = normalized_axes(axis, x.ndim)
    half, rest = divmod(x.shape[axis], 2)
    if rest:
        raise ValueError(f"glu() got {x.shape[axis]} elements along axis {axis}: it halves them")
    gate = _SIGMOID(part_along(x, axis, half, None))
    return elementwise("mul", part_along(x, axis, None, half), gate)


# -- losses ---------------------------------------------------------------------------------------


def _reduced(losses: Any, reduction: str, weight: Any = None) -> Any:
    """Return what is asked for of the losses of elements: them, their sum or their mean.

    Raises
    ------
    ValueError
        If ``reduction`` is none of these.
    """
    if weight is not None:
        shape, losses = losses.shape, elementwise("mul", losses, weight)
        _check_shape("loss", "weights", losses, shape)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if reduction == "none" else {"mean": mean, "sum": total}[reduction](losses)


def _check_shape(called: str, name: str, given: Any, shape: Sequence[int]) -> None:
    if tuple(given.shape) != tuple(shape):
        raise ValueError(
            f"{called}() got {name} of shape {tuple(given.shape)}: it has to be of shape "
            f"{tuple(shape)}, torch does not broadcast it"
        )


def _mse(x: Any, target: Any) -> Any:
    return (x - target) * (x - target)


def _l1(x: Any, target: Any) -> Any:
    return abs(x - target)


def _smooth_l1(x: Any, target: Any, beta: Any) -> Any:
    distance = abs(x - target)
    return 0.5 * distance * distance / beta if distance < beta else distance - 0.5 * beta


def _huber(x: Any, target: Any, delta: Any) -> Any:
    distance = abs(x - target)
    return 0.5 * distance * distance if distance <= delta else delta * (distance - 0.5 * delta)


def _cross_entropy_of_bits(x: Any, target: Any) -> Any:
    """Return -log of what a probability gives to a target; logarithms are at least -100."""
    return -(target * maximum(log(x), -100.0) + (1 - target) * maximum(log1p(-x), -100.0))


def _cross_entropy_of_logits(x: Any, target: Any, positive: Any) -> Any:
    return (1 - target) * x - (1 + (positive - 1) * target) * log_sigmoid(x)


def _divergence(x: Any, target: Any) -> Any:
    return xlogy(target, target) - target * x


def _divergence_of_logs(x: Any, target: Any) -> Any:
    return exp(target) * (target - x)


_KERNELS = {
    scalar: of_scalars(scalar.__name__.strip("_"), scalar).evaluate
    for scalar in (_mse, _l1, _smooth_l1, _huber, _cross_entropy_of_bits, _cross_entropy_of_logits,
                   _divergence, _divergence_of_logs)
}  # fmt: skip


def _mse_loss(x: Any, target: Any, reduction: str = "mean", *, weight: Any = None) -> Any:
    """Return the squares of distances; with weights their mean is over the sum of the weights."""
    losses = _KERNELS[_mse](x, target)
    if weight is None:
        return _reduced(losses, reduction)
    _check_shape("mse_loss", "weight", weight, x.shape)
    weighted = _reduced(losses, "sum" if reduction == "mean" else reduction, weight)
    return elementwise("div", weighted, total(weight)) if reduction == "mean" else weighted


def _l1_loss(x: Any, target: Any, reduction: str = "mean") -> Any:
    return _reduced(_KERNELS[_l1](x, target), reduction)


def _smooth_l1_loss(x: Any, target: Any, reduction: str = "mean", *, beta: float = 1.0) -> Any:
    if beta == 0:
        return _l1_loss(x, target, reduction)
    return _reduced(_KERNELS[_smooth_l1](x, target, beta), reduction)


def _huber_loss(x: Any, target: Any, reduction: str = "mean", *, delta: float = 1.0) -> Any:
    return _reduced(_KERNELS[_huber](x, target, delta), reduction)


def _bce(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    _check_shape("binary_cross_entropy", "target", target, x.shape)
    _check_probabilities("input", x)
    _check_probabilities("target", target)
    return _reduced(_KERNELS[_cross_entropy_of_bits](x, target), reduction, weight)


def _check_probabilities(name: str, x: Any) -> None:
    """Raise as torch does on the processor; a check would wait for another device."""
    x = plain(x)
    if x.device.type == "cpu" and not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError(f"binary_cross_entropy() got {name} with elements outside of [0, 1]")


def _bce_with_logits(
    x: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    _check_shape("binary_cross_entropy_with_logits", "target", target, x.shape)
    positive = 1.0 if pos_weight is None else pos_weight
    losses = _KERNELS[_cross_entropy_of_logits](x, target, positive)
    _check_shape("binary_cross_entropy_with_logits", "losses by pos_weight", losses, x.shape)
    return _reduced(losses, reduction, weight)


def _kl_div(x: Any, target: Any, reduction: str = "mean", *, log_target: bool = False) -> Any:
    losses = _KERNELS[_divergence_of_logs if log_target else _divergence](x, target)
    if reduction == "batchmean":
        return elementwise("div", total(losses), x.shape[0] if x.ndim else 1)
    return _reduced(losses, reduction)


def _nll_loss(
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """Return minus the elements of the target classes; means are over what is not ignored."""
    classes, target, xp = 0 if x.ndim == 1 else 1, plain(target), library_beside(x).xp
    counts = target != ignore_index
    target = xp.where(counts, target, 0)
    at = positions_of(x).gather(classes, target.unsqueeze(classes)).squeeze(classes)
    chosen = where(counts, gather(x, at), 0.0)
    weights = counts.to(x.dtype) if weight is None else where(counts, _rows(weight, target), 0.0)
    losses = elementwise("neg", elementwise("mul", weights, chosen))
    if reduction != "mean":
        return _reduced(losses, reduction)
    return elementwise("div", total(losses), weights.sum())


def _rows(x: Any, index: Any) -> Any:
    """Return the parts of ``x`` along the first axis at indices, which count from its start."""
    rows = positions_of(x).index_select(0, index.reshape(-1))  # refuses those that are negative
    return gather(x, rows.reshape((*index.shape, *x.shape[1:])))


def _cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Return the cross entropy of classes, or of probabilities of each class.

    Raises
    ------
    TracerError
        If both classes have weights and probabilities, or smoothed classes, are asked for.
    """
    classes = 0 if x.ndim == 1 else 1
    logs = log_softmax(x, classes)
    is_class = not isinstance(target, Tracer) and not target.dtype.is_floating_point
    if is_class and not label_smoothing:
        return _nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if weight is not None or is_class:
        raise TracerError(
            "cross_entropy() of a value that is being differentiated takes weight= and "
            "label_smoothing= each alone, the latter for probabilities: write the target as those"
        )
    _check_shape("cross_entropy", "probabilities", target, x.shape)
    count = x.shape[classes]
    if label_smoothing:
        kept = elementwise("mul", target, 1 - label_smoothing)
        target = elementwise("add", kept, label_smoothing / count)
    losses = elementwise("neg", total(elementwise("mul", logs, target), classes))
    return _reduced(losses, reduction)


# -- layers ---------------------------------------------------------------------------------------


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    found = matmul(x, matrix_transpose(weight) if weight.ndim > 1 else weight)
    return found if bias is None else elementwise("add", found, bias)


def _normalize(x: Any, p: float = 2.0, axis: Any = 1, *, eps: float = 1e-12) -> Any:
    length = vector_norm(x, axis=axis, keepdims=True, ord=p)
    return elementwise("div", x, elementwise("maximum", length, eps))


def _cosine_similarity(x1: Any, x2: Any, axis: int = 1, *, eps: float = 1e-8) -> Any:
    """Return cosines of angles along an axis, which is one of the shape that both broadcast to."""
    directions = (_normalize(x, axis=axis, eps=eps) for x in broadcast_arrays(x1, x2))
    return vecdot(*directions, axis=axis)


def _pairwise_distance(
    x1: Any, x2: Any, p: float = 2.0, *, eps: float = 1e-6, keepdims: bool = False
) -> Any:
    between = elementwise("add", elementwise("sub", x1, x2), eps)
    return vector_norm(between, axis=-1, keepdims=keepdims, ord=p)


def _scaled(x: Any, weight: Any, bias: Any = None) -> Any:
    x = x if weight is None else elementwise("mul", x, weight)
    return x if bias is None else elementwise("add", x, bias)


def _normalized(called: str, x: Any, shape: Sequence[int], **scales: Any) -> tuple[int, ...]:
    """Return the last axes, which have to be of a shape, and what is given for them too."""
    if not len(shape) or tuple(shape) != tuple(x.shape[-len(shape) :]):
        raise ValueError(
            f"{called}() got normalized_shape {tuple(shape)} for input of shape {tuple(x.shape)}: "
            "it has to be the lengths of the last axes"
        )
    for name, given in scales.items():
        if given is not None:
            _check_shape(called, name, given, shape)
    return tuple(range(-len(shape), 0))


def _layer_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5
) -> Any:
    axes = _normalized("layer_norm", x, normalized_shape, weight=weight, bias=bias)
    spread = elementwise("add", var(x, axes, keepdims=True), eps)
    x = elementwise("sub", x, mean(x, axes, keepdims=True))
    return _scaled(elementwise("div", x, elementwise("sqrt", spread)), weight, bias)


def _rms_norm(
    x: Any, normalized_shape: Sequence[int], weight: Any = None, eps: float | None = None
) -> Any:
    axes = _normalized("rms_norm", x, normalized_shape, weight=weight)
    eps = library_beside(x).xp.finfo(x.dtype).eps if eps is None else eps
    size = elementwise("sqrt", elementwise("add", mean(square(x), axes, keepdims=True), eps))
    return _scaled(elementwise("div", x, size), weight)


def _embedding(x: Any, weight: Any) -> Any:
    if weight.ndim != 2:
        raise ValueError(f"embedding() got weight of shape {tuple(weight.shape)}: rows of a matrix")
    return _rows(weight, plain(x))


def _dropout(x: Any, p: float = 0.5, training: bool = True) -> Any:
    """Return ``x`` where nothing is dropped.

    Raises
    ------
    TracerError
        Where something is: a second run, for tangents or a checkpoint, would drop something else.
    """
    if training and p:
        raise TracerError(
            "dropout() of a value that is being differentiated is not available: multiply by a "
            "mask that is made outside, torch.nn.functional.dropout(torch.ones_like(x), p)"
        )
    return unshared(x)


def _pad(x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """Return ``x`` with equal numbers around it, or without its edges where widths are negative."""
    if mode != "constant":
        raise TracerError(
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
    return library_beside(x).xp.full(shape, value, dtype=x.dtype, device=x.device)


_OLD = "size_average reduce reduction"

_FUNCTIONS = {
    "relu": _activation(relu),
    "relu6": _activation(_hardtanh, low=0.0, high=6.0),
    "leaky_relu": _activation(leaky_relu, negative_slope=0.01),
    "elu": _activation(elu, alpha=1.0),
    "celu": _activation(_celu, alpha=1.0),
    "selu": _activation(_selu),
    "gelu": function_of(_gelu, "input approximate"),
    "silu": _activation(silu),
    "mish": _activation(_mish),
    "softplus": _activation(_softplus, beta=1, threshold=20),
    "softsign": _activation(softsign),
    "tanhshrink": _activation(_tanhshrink),
    "hardtanh": _activation(_hardtanh, min_val=-1.0, max_val=1.0),
    "hardsigmoid": _activation(_hardsigmoid),
    "hardswish": _activation(_hardswish),
    "softshrink": _activation(_softshrink, lambd=0.5),
    "_threshold": _activation(_threshold, threshold=0.0, value=0.0),
    "log_sigmoid": _activation(log_sigmoid),
    "softmax": function_of(_along_one(softmax), "input dim _stacklevel dtype"),
    "softmin": function_of(_along_one(_softmin), "input dim _stacklevel dtype"),
    "log_softmax": function_of(_along_one(log_softmax), "input dim _stacklevel dtype"),
    "glu": function_of(_glu, "input dim"),
    "mse_loss": function_of(_mse_loss, f"input target {_OLD} weight"),
    "l1_loss": function_of(_l1_loss, f"input target {_OLD} weight"),
    "smooth_l1_loss": function_of(_smooth_l1_loss, f"input target {_OLD} beta"),
    "huber_loss": function_of(_huber_loss, "input target reduction delta weight"),
    "binary_cross_entropy": function_of(_bce, f"input target weight {_OLD}"),
    "binary_cross_entropy_with_logits": function_of(
        _bce_with_logits, f"input target weight {_OLD} pos_weight"
    ),
    "kl_div": function_of(_kl_div, f"input target {_OLD} log_target"),
    "nll_loss": function_of(
        _nll_loss, "input target weight size_average ignore_index reduce reduction"
    ),
    "cross_entropy": function_of(
        _cross_entropy,
        "input target weight size_average ignore_index reduce reduction label_smoothing",
    ),
    "linear": function_of(_linear, "input weight bias"),
    "normalize": function_of(_normalize, "input p dim eps out"),
    "layer_norm": function_of(_layer_norm, "input normalized_shape weight bias eps"),
    "rms_norm": function_of(_rms_norm, "input normalized_shape weight eps"),
    "embedding": function_of(_embedding, "input weight padding_idx max_norm norm_type"),
    "dropout": function_of(_dropout, "input p training inplace"),
    "pad": function_of(_pad, "input pad mode value"),
}

TORCH_NEURAL: Mapping[str, Function] = {
    **{f"nn.functional.{name}": function for name, function in _FUNCTIONS.items()},
    "celu": _FUNCTIONS["celu"],
    "selu": _FUNCTIONS["selu"],
    "hardshrink": _activation(_hardshrink, lambd=0.5),
    "cosine_similarity": function_of(_cosine_similarity, "x1 x2 dim eps"),
    "pairwise_distance": function_of(_pairwise_distance, "x1 x2 p eps keepdim"),
}
