"""Arrays without axes have one of length 1 where a library's function goes along axes.

``np.sum(x, axis=0)`` and ``torch.cumsum(x, 0)`` take a number for ``x``; the standard's do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.exceptions import AxisError

from mixad import pytree
from mixad.backends.arrays import is_array
from mixad.namespace.spelling import LibraryBinding
from mixad.tape.tracer import Tracer, primal_value

__all__ = ["NumbersHaveAnAxis"]


class NumbersHaveAnAxis(LibraryBinding):
    """A spelling of a library whose functions in part take an axis of arrays without axes.

    The library says which: where there is no such axis it is called on the values, and either
    raises its own error or tells the shapes of the results.
    """

    def binding(self, function: Any) -> Callable[..., Any]:
        """Return the binding of a function of the library."""
        return self._with_axes(super().binding(function), function)

    def method_binding(self, name: str) -> Callable[..., Any]:
        """Return the binding of a method of arrays; the array is its first argument."""

        def method(array: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(array, name)(*args, **kwargs)

        return self._with_axes(super().method_binding(name), method)

    def _with_axes(self, bound: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
        """Return a bound function that asks the library's own if an axis is missing."""

        def call(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
            try:
                return bound(args, kwargs)
            except AxisError:
                want = own(
                    *pytree.tree_map(primal_value, args),
                    **pytree.tree_map(primal_value, dict(kwargs)),
                )
                if not any(map(_is_number, (*args, *kwargs.values()))):
                    raise
            given = {name: self._with_axis(value) for name, value in kwargs.items()}
            return self._shape_results(bound(tuple(map(self._with_axis, args)), given), want)

        return call

    def _with_axis(self, value: Any) -> Any:
        return self._reshape(value, (1,)) if _is_number(value) else value

    def _shape_results(self, found: Any, want: Any) -> Any:
        """Return results in the shapes of the library's."""
        leaves, structure = pytree.flatten(found)
        shapes = [tuple(w.shape) for w in (want if isinstance(want, (tuple, list)) else (want,))]
        shaped = [self._reshape(x, shape) for x, shape in zip(leaves, shapes, strict=True)]
        return pytree.unflatten(structure, shaped)

    @property
    def _reshape(self) -> Callable[..., Any]:
        return self.functions["reshape"]


def _is_number(value: Any) -> bool:
    return (isinstance(value, Tracer) or is_array(value)) and not value.shape
