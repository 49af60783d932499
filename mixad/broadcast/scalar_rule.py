"""Scalar functions whose derivatives the user gives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from mixad.broadcast.function import BroadcastFunction, broadcast
from mixad.call.signature import check_callable
from mixad.errors import KernelTypeError
from mixad.scalar.parse import read_function
from mixad.scalar.parse.by_value import PickledFunction, by_value
from mixad.tracebacks import short_traceback

__all__ = ["ScalarRule", "scalar_rule"]

_NUMBERS = (bool, int, float, np.generic)


def scalar_rule(rule: Callable[..., Any]) -> Callable[[Callable[..., Any]], ScalarRule]:
    """Return a decorator for a scalar function whose partial derivatives the user gives.

    The function is called in kernels as any other is, and outside of them.  Its derivatives are
    those of the rule: the body is computed, and never differentiated.  Second derivatives come from
    differentiating the rule, which may call the function.

    Parameters
    ----------
    rule : callable
        A Python function of numbers, as kernels are.  Takes the function's parameters and, if it
        has one parameter more, the function's value.  Returns the partial derivatives: a tuple
        with one for each parameter (or the one number, of one parameter), None where there is
        none.

    Returns
    -------
    callable
        Takes the function, a Python function of numbers that returns one number.  The result is
        called as the function is; with arrays, it is applied to each element.

    Raises
    ------
    KernelSyntaxError
        If the rule or the function is no Python function whose source can be read.
    KernelTypeError
        If the rule does not take the function's parameters.  In a call from a kernel: if it does
        not return one partial derivative for each, or the function does not return one number.
    KernelGradientError
        If a derivative is asked for with respect to a parameter for which the rule has None, or
        to an array that the function reads from outside.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> @mixad.scalar_rule(lambda x, root: 0.5 / root)
    ... def root(x):
    ...     y = x
    ...     for _ in range(6):
    ...         y = 0.5 * (y + x / y)
    ...     return y
    >>> mixad.grad(lambda x: root(x).sum())(np.asarray([1.0, 4.0]))
    array([0.5 , 0.25])
    """
    check_callable("scalar_rule", rule)

    @short_traceback
    def decorate(function: Callable[..., Any]) -> ScalarRule:
        return ScalarRule(function, rule)

    return decorate


class ScalarRule(PickledFunction):
    """A scalar function with partial derivatives that the user gives.

    Made by `scalar_rule`.

    Parameters
    ----------
    function : callable
        A Python function of numbers.
    rule : callable
        As `scalar_rule` takes it.
    """

    @short_traceback
    def __init__(self, function: Callable[..., Any], rule: Callable[..., Any]) -> None:
        check_callable("scalar_rule", function)
        _check_parameters(function, rule)
        functools.update_wrapper(self, function)
        self._function = function
        self._rule = rule

    def __repr__(self) -> str:
        return f"<mixad.scalar_rule {getattr(self, '__name__', '')}>"

    def _reduce(self) -> tuple[Any, ...]:
        return ScalarRule, (by_value(self._function), by_value(self._rule))

    @property
    def __mixad_function__(self) -> Callable[..., Any]:
        """The function, for the parser."""
        return self._function

    @property
    def __mixad_rule__(self) -> Callable[..., Any]:
        """The derivatives, for the parser."""
        return self._rule

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function's value: of numbers as Python computes it, of arrays a kernel's.

        Parameters
        ----------
        *args, **kwargs
            Arrays, tracers and numbers, bound to the function's parameters as Python does.

        Returns
        -------
        number or array
            Of the broadcast shape.
        """
        if all(isinstance(v, _NUMBERS) for v in (*args, *kwargs.values())):
            return self._function(*args, **kwargs)
        return self._kernel(*args, **kwargs)

    @cached_property
    def _kernel(self) -> BroadcastFunction[Any]:
        return broadcast(self)


def _check_parameters(function: Callable[..., Any], rule: Callable[..., Any]) -> None:
    """Refuse a rule with other parameters than the function."""
    given = read_function(function).parameters
    for source in map(read_function, (function, rule)):
        source.info.refuse_variadic()
    taken = read_function(rule).parameters
    if len(taken) not in (len(given), len(given) + 1):
        name = getattr(function, "__name__", "the function")
        raise KernelTypeError(
            f"mixad.scalar_rule of {name}: the rule takes ({', '.join(taken)})",
            hint=f"lambda {', '.join(given)}: ... as the function does, or one more for its value",
        )
