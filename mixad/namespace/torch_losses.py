"""The losses of ``torch.nn.functional``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mixad.errors import NoRuleError
from mixad.namespace.elementwise import elementwise, where
from mixad.namespace.indexing import gather, positions_of
from mixad.namespace.special import of_scalars
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.statistical import mean, total
from mixad.namespace.torch_reductions import log_softmax
from mixad.namespace.torch_weights import check_shape, rows
from mixad.special import exp, log, log1p, log_sigmoid, maximum, xlogy
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["TORCH_LOSSES"]


def _reduce(losses: Any, reduction: str, weight: Any = None) -> Any:
    """Return the losses of elements, their sum or their mean, as asked."""
    if weight is not None:
        shape, losses = losses.shape, elementwise("mul", losses, weight)
        check_shape("loss", "weights", losses, shape)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return losses if reduction == "none" else {"mean": mean, "sum": total}[reduction](losses)


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
    """Return -log of a target's probability; logarithms are at least -100."""
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


def _weighted_loss(scalar: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loss of elements; its mean with weights is over the sum of the weights."""

    def evaluate(x: Any, target: Any, reduction: str = "mean", *, weight: Any = None) -> Any:
        losses = _KERNELS[scalar](x, target)
        if weight is None:
            return _reduce(losses, reduction)
        check_shape(f"{scalar.__name__[1:]}_loss", "weight", weight, x.shape)
        weighted = _reduce(losses, "sum" if reduction == "mean" else reduction, weight)
        return elementwise("div", weighted, total(weight)) if reduction == "mean" else weighted

    return evaluate


_mse_loss, _l1_loss = _weighted_loss(_mse), _weighted_loss(_l1)  # torch 2.13 drops l1_loss's weight


def _smooth_l1_loss(x: Any, target: Any, reduction: str = "mean", *, beta: float = 1.0) -> Any:
    if beta == 0:
        return _l1_loss(x, target, reduction)
    return _reduce(_KERNELS[_smooth_l1](x, target, beta), reduction)


def _huber_loss(
    x: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None
) -> Any:
    return _reduce(_KERNELS[_huber](x, target, delta), reduction, weight)


def _bce(x: Any, target: Any, weight: Any = None, *, reduction: str = "mean") -> Any:
    check_shape("binary_cross_entropy", "target", target, x.shape)
    _check_probabilities("input", x)
    _check_probabilities("target", target)
    return _reduce(_KERNELS[_cross_entropy_of_bits](x, target), reduction, weight)


def _check_probabilities(name: str, x: Any) -> None:
    """Raise torch's error on the CPU; a check would wait for another device."""
    x = primal_value(x)
    if x.device.type == "cpu" and not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError(f"binary_cross_entropy() got {name} with elements outside of [0, 1]")


def _bce_with_logits(
    x: Any, target: Any, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None
) -> Any:
    check_shape("binary_cross_entropy_with_logits", "target", target, x.shape)
    positive = 1.0 if pos_weight is None else pos_weight
    losses = _KERNELS[_cross_entropy_of_logits](x, target, positive)
    check_shape("binary_cross_entropy_with_logits", "losses by pos_weight", losses, x.shape)
    return _reduce(losses, reduction, weight)


def _kl_div(x: Any, target: Any, reduction: str = "mean", *, log_target: bool = False) -> Any:
    losses = _KERNELS[_divergence_of_logs if log_target else _divergence](x, target)
    if reduction == "batchmean":
        return elementwise("div", total(losses), x.shape[0] if x.ndim else 1)
    return _reduce(losses, reduction)


def _nll_loss(
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Any:
    """Return minus the elements of the target classes; means leave out ignored ones."""
    classes, target, xp = (
        0 if x.ndim == 1 else 1,
        primal_value(target).long(),
        library_of_value(x).xp,
    )
    counts = target != ignore_index
    target = xp.where(counts, target, 0)
    at = positions_of(x).gather(classes, target.unsqueeze(classes)).squeeze(classes)
    chosen = where(counts, gather(x, at), 0.0)
    weights = counts.to(x.dtype) if weight is None else where(counts, rows(weight, target), 0.0)
    losses = elementwise("neg", elementwise("mul", weights, chosen))
    if reduction != "mean":
        return _reduce(losses, reduction)
    return elementwise("div", total(losses), weights.sum())


def _cross_entropy(
    x: Any,
    target: Any,
    weight: Any = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Return the cross entropy of classes, or of probabilities of each class."""
    classes = 0 if x.ndim == 1 else 1
    logs = log_softmax(x, classes)
    is_class = not isinstance(target, Tracer) and not target.dtype.is_floating_point
    if is_class and not label_smoothing:
        return _nll_loss(logs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if weight is not None or is_class:
        raise NoRuleError(
            "cross_entropy() of a value that is being differentiated takes weight= for a target of "
            "classes, label_smoothing= for one of probabilities, and not both: write it as "
            "-(weight * target * log_softmax(x, 1)).sum(1) with the probabilities that are meant"
        )
    check_shape("cross_entropy", "probabilities", target, x.shape)
    count = x.shape[classes]
    if label_smoothing:
        kept = elementwise("mul", target, 1 - label_smoothing)
        target = elementwise("add", kept, label_smoothing / count)
    losses = elementwise("neg", total(elementwise("mul", logs, target), classes))
    return _reduce(losses, reduction)


_OLD = "size_average reduce reduction"

TORCH_LOSSES: Mapping[str, BoundFunction] = {
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
}
