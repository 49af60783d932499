"""Distributions: counterparts of those of `scipy.stats`, each function one kernel.

``norm.logpdf(x, loc=0, scale=1)``: values and derivatives, with respect to parameters of shape too,
are computed together.  Of discrete distributions there are ``logpmf`` and ``pmf``, and no scale.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from mixad.backends.arrays import is_number
from mixad.broadcast.function import BroadcastFunction, broadcast
from mixad.scipy.arguments import as_arrays, float_operands, user_result
from mixad.scipy.programs.distribution import programs_of
from mixad.scipy.programs.families import FAMILIES, Family
from mixad.tape.constant import unwrapped
from mixad.tracebacks import short_traceback

__all__ = sorted(FAMILIES)

_WHAT = {
    "logpdf": "logarithm of the density", "pdf": "density", "logpmf": "logarithm of probabilities",
    "pmf": "probabilities", "logcdf": "logarithm of the distribution function",
    "cdf": "distribution function", "sf": "survival function, 1 less the distribution function",
    "ppf": "quantiles, the inverse of the distribution function",
}  # fmt: skip


class Distribution:
    """A distribution, which is a namespace of its functions.

    Parameters
    ----------
    name : str
        SciPy's name.
    family : Family
        What is known of it.
    """

    def __init__(self, name: str, family: Family) -> None:
        self._name = name
        self.__doc__ = f"The {family.what} distribution."
        for method in programs_of(family):
            setattr(self, method, _function(name, family, method))

    def __repr__(self) -> str:
        return f"<mixad.scipy.stats.{self._name}>"

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


@cache
def _kernel(name: str, method: str) -> BroadcastFunction[Any]:
    return broadcast(programs_of(FAMILIES[name])[method])


def _function(name: str, family: Family, method: str) -> Callable[..., Any]:
    first = "q" if method == "ppf" else "k" if family.is_discrete else "x"
    options = {"loc": 0.0} if family.is_discrete else {"loc": 0.0, "scale": 1.0}
    kind = Parameter.POSITIONAL_OR_KEYWORD
    signature = Signature([
        Parameter(first, kind),
        *[Parameter(shape, kind) for shape in family.shapes],
        *[Parameter(option, kind, default=value) for option, value in options.items()],
    ])  # fmt: skip
    unused = [1.0] * (2 - len(family.shapes))

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        operands = _without_lists(f"mixad.scipy.stats.{name}.{method}", bound.args)
        number, *rest = float_operands(operands)
        shapes, others = rest[: len(family.shapes)], rest[len(family.shapes) :]
        return user_result(_kernel(name, method)(number, *shapes, *unused, *others))

    function.__name__, function.__qualname__ = method, f"{name}.{method}"
    function.__signature__ = signature  # type: ignore[attr-defined]
    function.__doc__ = f"Return the {_WHAT[method]} of the {family.what} distribution."
    return short_traceback(function)


def _without_lists(called: str, operands: Sequence[Any]) -> Sequence[Any]:
    """Return operands of a kernel, with lists as arrays of the others' library."""
    if not any(isinstance(o, (list, tuple)) for o in operands):
        return operands
    arrays = iter(as_arrays(called, [o for o in operands if not is_number(o)]))
    return [o if is_number(o) else unwrapped(next(arrays)) for o in operands]


globals().update({name: Distribution(name, family) for name, family in FAMILIES.items()})

if TYPE_CHECKING:

    def __getattr__(name: str) -> Distribution: ...
