"""Methods of torch's tensors that end in an underscore: they change the tensor.

The tracer, under all its names, stands for the result; its views are refused from then on, as after
every write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mixad.namespace.assignment import replace, setitem
from mixad.tape.constant import unwrapped
from mixad.tape.tracer import Tracer

__all__ = ["IN_PLACE", "change"]

_COMPUTED = (
    "abs absolute acos acosh add addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh "
    "arctan arctan2 arctanh asin asinh atan atan2 atanh baddbmm ceil clamp clamp_max clamp_min "
    "clip copysign cos cosh cumprod cumsum deg2rad digamma div divide erf erfc erfinv exp exp2 "
    "expm1 fix float_power floor floor_divide fmod heaviside hypot i0 index_add index_copy "
    "index_fill lerp lgamma log log10 log1p log2 logit masked_fill masked_scatter mul multiply "
    "nan_to_num neg negative polygamma pow rad2deg reciprocal relu remainder round rsqrt scatter "
    "scatter_add "
    "sgn sigmoid sign sin sinc sinh sqrt square sub subtract tan tanh tril triu true_divide "
    "trunc xlogy".split()
)
_WRITTEN: dict[str, Callable[..., Any]] = {
    "zero_": lambda: 0.0,
    "fill_": lambda value: value,
    "copy_": lambda src, non_blocking=False: src,
}

IN_PLACE = frozenset((*(f"{name}_" for name in _COMPUTED), *_WRITTEN))
"""Their names."""


def change(compute: Callable[..., Any], x: Tracer, name: str, /, *args: Any, **options: Any) -> Any:
    """Carry out a method that changes ``x``; return ``x``.

    ``compute`` calls the method of that name without its underscore, which returns a new tensor.
    """
    if name in _WRITTEN:
        setitem(x, ..., unwrapped(_WRITTEN[name](*args, **options)))
        return x
    return replace(x, name, compute(x, name[:-1], *args, **options))
