"""Functions of one element as torch has them, beside the standard's, by torch's names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from mixad import special
from mixad.namespace.complex_numbers import imag, is_complex, real
from mixad.namespace.data_types import astype
from mixad.namespace.elementwise import angle, elementwise, operand, round_to_decimals, where
from mixad.namespace.joining import broadcast_arrays
from mixad.namespace.numpy_functions import nan_to_num
from mixad.namespace.special import SPECIAL, of_scalars
from mixad.namespace.spelling import BoundFunction, OfOperands, function_of
from mixad.scalar.names import OUR_NAMES
from mixad.scalar.parse.library import NUMPY_LIBRARY
from mixad.special import log, log1p
from mixad.tape.node import Rule, apply_rule, library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["TORCH_ELEMENTWISE"]


def _inside_logit(x: Any, eps: Any) -> Any:
    """Return the logit of the nearest number between eps and 1 - eps."""
    if x < eps:
        inside = eps
    elif x > 1 - eps:
        inside = 1 - eps
    else:
        inside = x
    return log(inside) - log1p(-inside)


_clamped = of_scalars("logit", _inside_logit)


def _logit_of_share(x: Any) -> Any:
    """Return the logit; outside of [0, 1] the derivative is nan, too."""
    return special.logit(x) if x >= 0.0 and x <= 1.0 else x * math.nan


_LOGIT = of_scalars("logit", _logit_of_share)


def _logit(x: Any, eps: float | None = None) -> Any:
    return _LOGIT(x) if eps is None else _clamped(x, eps)


def _with_alpha(op: str) -> BoundFunction:
    """Return a sum or a difference whose second operand may be scaled."""

    def evaluate(x: Any, y: Any, alpha: Any = 1) -> Any:
        may_be_complex = is_complex(x) or is_complex(y)
        if isinstance(alpha, bool) or (isinstance(alpha, complex) and not may_be_complex):
            raise ValueError(f"{op}(alpha={alpha!r}): a number that the result can be scaled by")
        y = y if type(alpha) is int and alpha == 1 else y * alpha
        return elementwise(op, operand(x, y), operand(y, x))

    return function_of(evaluate, "input other * alpha")


def _div(x: Any, y: Any, rounding_mode: str | None = None) -> Any:
    """Return the quotient, rounded down or towards zero if asked."""
    x, y = operand(x, y), operand(y, x)
    if rounding_mode not in (None, "floor", "trunc"):
        raise ValueError(f"div(rounding_mode={rounding_mode!r}): None, 'floor' or 'trunc'")
    found = elementwise("floordiv" if rounding_mode == "floor" else "div", x, y)
    return elementwise("trunc", found) if rounding_mode == "trunc" else found


def _complex(x: Any, y: Any) -> Any:
    """Return complex numbers from real and imaginary parts."""
    return apply_rule(_COMPLEX, *broadcast_arrays(x, y))


_COMPLEX = Rule(
    "complex",
    lambda xp, x, y: xp.complex(x, y),
    (lambda g, x, y: real(g), lambda g, x, y: imag(g)),
    linear="all",
)


def _float_power(x: Any, y: Any) -> Any:
    """Return x to the power y, in float64."""
    double = library_of_value(x if hasattr(x, "shape") else y).xp.float64
    x, y = (astype(v, double) if hasattr(v, "shape") else v for v in (x, y))
    return elementwise("pow", x, y)


def _polygamma(n: int, x: Any) -> Any:
    if n < 0:
        raise ValueError(f"polygamma() of order {n}: orders are 0, 1, 2, ...")
    return SPECIAL["polygamma"](n, x)


def _reciprocal(x: Any) -> Any:
    return elementwise("div", 1, x)


# What follows is ``x`` where it ties with the other, as torch before 2.14 has it.  Newer ones split
# ties with tensors, as `maximum` does, and have no derivative at a bound that is a number.


def _at_least(x: Any, low: Any) -> Any:
    return low if x < low or low != low else x


def _at_most(x: Any, high: Any) -> Any:
    return high if x > high or high != high else x


def _fmax(x: Any, y: Any) -> Any:
    return x if x >= y or y != y else y


def _fmin(x: Any, y: Any) -> Any:
    return x if x <= y or y != y else y


# Zeros have no sign for these, and nan the sign 0.


def sign(x: Any) -> Any:
    """Return torch's sign."""
    return special.sign(x) if x < 0 or x > 0 else 0.0


def _heaviside(x: Any, values: Any) -> Any:
    if x == 0:
        return values
    return 1.0 if x > 0 else 0.0


def _angle_of_real(x: Any) -> Any:
    if x >= 0:
        return 0.0
    return math.pi if x < 0 else x * 0.0


_ANGLE_OF_REAL = of_scalars("angle", _angle_of_real)


def _angle(x: Any) -> Any:
    return angle(x) if is_complex(x) else _ANGLE_OF_REAL(x)


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return elements of either; for a condition alone, where it holds."""
    if x is None and y is None:
        return primal_value(condition).nonzero(as_tuple=True)
    return where(condition, x, y)


_AT_LEAST = of_scalars("clamp_min", _at_least)
_AT_MOST = of_scalars("clamp_max", _at_most)


def _clamp_min(x: Any, min: Any) -> Any:
    return _AT_LEAST(x, min)


def _clamp_max(x: Any, max: Any) -> Any:
    return _AT_MOST(x, max)


def _clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    if min is None and max is None:
        raise ValueError("clamp() got neither min nor max: give one of them")
    x = x if min is None else _clamp_min(x, min)
    return x if max is None else _clamp_max(x, max)


_SPECIAL_OF_ONE = (
    "bessel_j0 bessel_j1 bessel_y0 bessel_y1 digamma entr erf erfc erfcx erfinv exp2 expit expm1 "
    "gammaln i0 i0e i1 i1e log1p modified_bessel_i0 modified_bessel_i1 ndtr ndtri psi"
).split()
_SPECIAL_OF_TWO = "gammainc gammaincc xlog1py xlogy zeta".split()
_OF_ONE = "erfinv fix i0 rsqrt".split()


def _ours(names: Iterable[str], prefix: str = "") -> dict[str, Callable[..., Any]]:
    """Return functions of scalars by torch's names, as far as `mixad.special` has them."""
    pairs = ((prefix + name, OUR_NAMES.get(name, name)) for name in names)
    return {theirs: getattr(special, own) for theirs, own in pairs if own in special.__all__}


_NUMPYS_OF_ONE = {
    "sinc": np.sinc, "special_sinc": np.sinc, "deg2rad": np.deg2rad, "rad2deg": np.rad2deg
}  # fmt: skip


def _kernel(name: str, scalar: Callable[..., Any], parameters: str) -> BoundFunction:
    """Return a function of scalars with torch's parameters."""
    return OfOperands(of_scalars(name, scalar).evaluate, tuple(parameters.split()))


TORCH_ELEMENTWISE: Mapping[str, BoundFunction] = {
    **{n: _kernel(n, f, "input") for n, f in _ours(_OF_ONE).items()},
    **{n: _kernel(n, f, "input") for n, f in _ours(_SPECIAL_OF_ONE, "special_").items()},
    **{n: _kernel(n, f, "input other") for n, f in _ours(_SPECIAL_OF_TWO, "special_").items()},
    "xlogy": _kernel("xlogy", special.xlogy, "input other"),
    **{n: _kernel(n, NUMPY_LIBRARY[own], "input") for n, own in _NUMPYS_OF_ONE.items()},
    "heaviside": _kernel("heaviside", _heaviside, "input values"),
    "logaddexp2": _kernel("logaddexp2", NUMPY_LIBRARY[np.logaddexp2], "input other"),
    "fmax": _kernel("fmax", _fmax, "input other"),
    "fmin": _kernel("fmin", _fmin, "input other"),
    **dict.fromkeys(("clip", "clamp"), function_of(_clamp, "input min max")),
    **dict.fromkeys(("logit", "special_logit"), function_of(_logit, "input eps")),
    **dict.fromkeys(("polygamma", "special_polygamma"), function_of(_polygamma, "n input")),
    "add": _with_alpha("add"),
    **dict.fromkeys(("sub", "subtract"), _with_alpha("sub")),
    **dict.fromkeys(("div", "divide"), function_of(_div, "input other * rounding_mode")),
    "true_divide": function_of(_div, "input other"),
    "complex": function_of(_complex, "real=x imag=y"),
    "float_power": function_of(_float_power, "input exponent"),
    "nan_to_num": function_of(nan_to_num, "input nan posinf neginf"),
    **dict.fromkeys(("round", "special_round"), function_of(round_to_decimals, "input * decimals")),
    "clamp_min": function_of(_clamp_min, "input min"),
    "clamp_max": function_of(_clamp_max, "input max"),
    "where": function_of(_where, "condition input other"),
    "reciprocal": function_of(_reciprocal, "input"),
    "angle": function_of(_angle, "input"),
    **dict.fromkeys(("sign", "sgn"), _kernel("sign", sign, "input")),
}
