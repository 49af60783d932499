"""Functions of `math` and NumPy that are small programs: plain Python, compiled as a user's is.

Each has the parameters of the function it stands for, and its conventions at special points.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad.scalar.parse.sinc import sinc_by

__all__ = ["LIBRARY", "NUMPY_LIBRARY", "as_floats"]


def as_floats(*numbers: Any) -> Any:
    """Stand for numbers in the float type in which NumPy's functions of them compute."""
    return numbers


as_floats.__mixad_op__ = "as_floats"  # type: ignore[attr-defined]  # `intrinsics` compiles it


# Those of `math` are functions apart from NumPy's, which give scalars of NumPy's.


def _math_degrees(x: Any) -> Any:
    (t,) = as_floats(x)
    return t * (180 / math.pi)


def _math_radians(x: Any) -> Any:
    (t,) = as_floats(x)
    return t * (math.pi / 180)


def _degrees(x: Any) -> Any:
    (t,) = as_floats(x)
    return t * (180 / math.pi)


def _radians(x: Any) -> Any:
    (t,) = as_floats(x)
    return t * (math.pi / 180)


def _square(x: Any) -> Any:
    return x * x


def _positive(x: Any) -> Any:
    return +x


def _logaddexp2(x: Any, y: Any) -> Any:
    s, t = as_floats(x, y)
    return np.logaddexp(s * math.log(2), t * math.log(2)) / math.log(2)


def _heaviside(x: Any, y: Any) -> Any:
    s, t = as_floats(x, y)
    return s if s != s else t if s == 0 else 1.0 if s > 0 else 0.0


def _sinc(x: Any) -> Any:
    return sinc_by(x, np.sin, np.rint)


def _fmin(x: Any, y: Any) -> Any:
    return y if np.isnan(x) else x if np.isnan(y) else np.minimum(x, y)


def _fmax(x: Any, y: Any) -> Any:
    return y if np.isnan(x) else x if np.isnan(y) else np.maximum(x, y)


def _fix(x: Any) -> Any:
    return np.trunc(x)


def _numpy_isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08) -> Any:
    return a == b or (np.isfinite(b) and np.abs(a - b) <= atol + rtol * np.abs(b))


def _math_isclose(a: Any, b: Any, *, rel_tol: Any = 1e-09, abs_tol: Any = 0.0) -> Any:
    near = abs(a - b) <= max(rel_tol * max(abs(a), abs(b)), abs_tol)
    return a == b or (near and math.isfinite(a) and math.isfinite(b))


NUMPY_LIBRARY: Mapping[Any, Callable[..., Any]] = MappingProxyType({
    np.degrees: _degrees, np.rad2deg: _degrees, np.radians: _radians, np.deg2rad: _radians,
    np.square: _square, np.positive: _positive,
    np.logaddexp2: _logaddexp2, np.heaviside: _heaviside, np.sinc: _sinc, np.fix: _fix,
    np.fmin: _fmin, np.fmax: _fmax, np.isclose: _numpy_isclose,
})  # fmt: skip

LIBRARY: Mapping[Any, Callable[..., Any]] = MappingProxyType({
    **NUMPY_LIBRARY,
    math.degrees: _math_degrees, math.radians: _math_radians, math.isclose: _math_isclose,
})  # fmt: skip
