"""Special functions of arrays, under SciPy's names: those of kernels, and two of whole arrays."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from mixad.backends.arrays import is_number
from mixad.namespace.elementwise import elementwise
from mixad.namespace.manipulation import normalized_axes
from mixad.namespace.special import SPECIAL
from mixad.scipy.arguments import (
    as_arrays,
    as_floats,
    float_operands,
    is_complex,
    of_arrays,
    user_result,
)
from mixad.tape.constant import unwrapped
from mixad.tape.node import Rule, apply_without_derivative
from mixad.tracebacks import short_traceback

__all__ = ["logsumexp", "multigammaln", *sorted(SPECIAL)]


@of_arrays("a")
def multigammaln(a: Any, d: int) -> Any:
    """Return the logarithm of the multivariate gamma function.

    Parameters
    ----------
    a : array
        Where; above (d - 1)/2, else nan is returned.
    d : int
        Dimension of the space, at least 1.

    Returns
    -------
    array
        Of the shape of ``a``.

    Examples
    --------
    >>> import mixad.scipy
    >>> round(float(mixad.scipy.special.multigammaln(3.0, 2)), 12)
    1.550194993958
    """
    d = operator.index(d)
    if d < 1:
        raise ValueError(f"multigammaln(d={d}): d is at least 1")
    (a,) = as_floats(a)
    xp = a.__array_namespace__()
    found = d * (d - 1) / 4 * math.log(math.pi) + 0 * a
    for j in range(d):
        found = found + xp.special.gammaln(a - j / 2)
    return xp.where(a > (d - 1) / 2, found, math.nan)


@of_arrays("a b")
def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False
) -> Any:
    """Return the logarithm of sums of exponentials.

    Parameters
    ----------
    a : array
        Exponents.
    axis : int or tuple of int, optional
        Along which they are added up; all by default.
    b : array, optional
        What exponentials are multiplied with; it broadcasts against ``a``.
    keepdims : bool
        Whether axes stay, with length 1.
    return_sign : bool
        Whether the logarithm of the sum's size is returned, and the sum's sign.

    Returns
    -------
    array, or pair of array
        The logarithm, nan where a sum is negative; or that of its size, and its sign.

    Examples
    --------
    >>> import mixad.scipy
    >>> round(float(mixad.scipy.special.logsumexp([1000.0, 1000.0])), 12)
    1000.69314718056
    """
    a, *weights = as_floats(a, *([] if b is None else [b]))
    xp = a.__array_namespace__()
    if is_complex(a):
        raise ValueError("logsumexp takes real exponents")
    axes = normalized_axes(axis, a.ndim)
    if weights:
        a, b = xp.broadcast_arrays(a, weights[0])
        a, b = (xp.where(b == 0, x, y) for x, y in ((-math.inf, a), (0.0, b)))
    top = apply_without_derivative(_FINITE_TOP, unwrapped(a), axis=axes)
    powers = xp.exp(a - top)
    total = xp.sum(powers if b is None else b * powers, axis=axes, keepdims=True)
    sign = xp.sign(total)
    size = xp.abs(total) if return_sign else total
    found = elementwise("log", unwrapped(size)) + top  # by a kernel, which warns of nothing
    if not keepdims:
        found, sign = (xp.squeeze(x, axis=axes) if x.ndim else x for x in (found, sign))
    return (found, sign) if return_sign else found


def _finite_top(xp: Any, a: Any, axis: tuple[int, ...]) -> Any:
    """Return the largest numbers along axes, which cancel; 0 for infinite ones."""
    top = xp.max(a, axis=axis, keepdims=True)
    return xp.where(xp.isfinite(top), top, xp.zeros_like(top))


_FINITE_TOP = Rule("finite_top", _finite_top, ())


def _function(name: str) -> Callable[..., Any]:
    evaluate, parameters = SPECIAL[name].evaluate, SPECIAL[name].parameters
    most, least = len(parameters), 1 if name == "zeta" else len(parameters)

    @wraps(evaluate)
    def function(*operands: Any) -> Any:
        if not least <= len(operands) <= most:
            raise TypeError(
                f"mixad.scipy.special.{name} takes {'at most ' * (least < most)}{most} "
                f"argument{'s' * (most > 1)}, got "
                f"{len(operands)}: write {name}({', '.join(parameters)})"
            )
        are_numbers = all(map(is_number, operands))
        given = [o for o in operands if are_numbers or not is_number(o)]
        arrays = iter(as_arrays(f"mixad.scipy.special.{name}", given))
        each = [o if is_number(o) and not are_numbers else next(arrays) for o in operands]
        return user_result(evaluate(*float_operands(map(unwrapped, each))))

    return short_traceback(function)


globals().update({name: _function(name) for name in SPECIAL})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Any]: ...
