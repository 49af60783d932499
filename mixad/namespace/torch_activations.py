"""Activations of ``torch.nn.functional``: functions of scalars, which become kernels.

Comparisons are such that nan comes out as nan, and derivatives at kinks are torch's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from mixad.namespace.elementwise import elementwise
from mixad.namespace.indexing import part_along
from mixad.namespace.manipulation import normalized_axes
from mixad.namespace.special import of_scalars
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.namespace.torch_reductions import log_softmax, softmax
from mixad.special import (
    elu,
    exp,
    expm1,
    gelu,
    leaky_relu,
    log1p,
    log_sigmoid,
    relu,
    sigmoid,
    silu,
    softplus,
    softsign,
    tanh,
)

__all__ = ["TORCH_ACTIVATIONS"]


def _softplus(x: Any, beta: Any, threshold: Any) -> Any:
    if beta == 0:
        return 0.5 * x + (x * beta + 1 / beta)  # infinite, with torch's derivative
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


def _relu6(x: Any) -> Any:
    if x <= 0.0:
        return 0.0
    return 6.0 if x >= 6.0 else x


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


def _activation(scalar: Callable[..., Any], **defaults: float) -> BoundFunction:
    """Return a function of scalars, with defaults of further parameters, as one of tensors."""
    kernel = of_scalars(scalar.__name__.strip("_"), scalar).evaluate
    names = tuple(defaults)

    def evaluate(x: Any, *numbers: Any, **options: Any) -> Any:
        given = defaults | dict(zip(names, numbers, strict=False)) | options
        return kernel(x, *given.values())

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own = [inspect.Parameter(name, kind) for name in ("x", *names)]
    evaluate.__signature__ = inspect.Signature(own)  # type: ignore[attr-defined]
    return BoundFunction(evaluate, ("input", *names))


def _in_place(scalar: Callable[..., Any], **defaults: float) -> BoundFunction:
    """Return an activation that torch can store in place of its argument."""
    found = _activation(scalar, **defaults)
    return BoundFunction(found.evaluate, (*found.parameters, "inplace"))


_BY_TANH = of_scalars("gelu", _gelu_by_tanh)


def _gelu(x: Any, approximate: str = "none") -> Any:
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu() got approximate={approximate!r}: it is 'none' or 'tanh'")
    return _BY_TANH(x) if approximate == "tanh" else _GELU(x)


_GELU = of_scalars("gelu", gelu)
_SIGMOID = of_scalars("sigmoid", sigmoid)


def _along_one(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function along an axis; without one torch chooses by the number of axes."""

    def evaluate(x: Any, axis: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
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


TORCH_ACTIVATIONS: Mapping[str, BoundFunction] = {
    "relu": _in_place(relu),
    "relu6": _in_place(_relu6),
    "leaky_relu": _in_place(leaky_relu, negative_slope=0.01),
    "elu": _in_place(elu, alpha=1.0),
    "celu": _in_place(_celu, alpha=1.0),
    "selu": _in_place(_selu),
    "gelu": function_of(_gelu, "input * approximate"),
    "silu": _in_place(silu),
    "mish": _in_place(_mish),
    "softplus": _activation(_softplus, beta=1, threshold=20),
    "softsign": _activation(softsign),
    "tanhshrink": _activation(_tanhshrink),
    "hardtanh": _in_place(_hardtanh, min_val=-1.0, max_val=1.0),
    "hardsigmoid": _in_place(_hardsigmoid),
    "hardswish": _in_place(_hardswish),
    "softshrink": _activation(_softshrink, lambd=0.5),
    "_threshold": _in_place(_threshold, threshold=0.0, value=0.0),
    "log_sigmoid": _activation(log_sigmoid),
    "softmax": function_of(_along_one(softmax), "input dim _stacklevel dtype"),
    "softmin": function_of(_along_one(_softmin), "input dim _stacklevel dtype"),
    "log_softmax": function_of(_along_one(log_softmax), "input dim _stacklevel dtype"),
    "glu": function_of(_glu, "input dim"),
    "hardshrink": _activation(_hardshrink, lambd=0.5),
}
