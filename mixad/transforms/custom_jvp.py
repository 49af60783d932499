"""Functions with a forward rule of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad import pytree
from mixad.backends.arrays import as_array, is_scalar, library_of
from mixad.call.signature import Argnums, Function, check_callable
from mixad.errors import TracerError
from mixad.tape.constant import unwrapped
from mixad.tape.tracer import Level, Tracer
from mixad.tracebacks import short_traceback
from mixad.transforms.call_node import CallNode, is_inexact, record_call
from mixad.transforms.custom_rules import (
    Arguments,
    CustomFunction,
    fitting,
    fitting_leaves,
    pair_of,
    place_of,
)
from mixad.transforms.linear_rule import checked_rule, trial
from mixad.transforms.returning import own_cotangent

__all__ = ["CustomJvp", "custom_jvp"]


def custom_jvp(f: Function, *, nondiff_argnums: Argnums = ()) -> CustomJvp:
    """Return ``f`` as a function whose forward rule the user gives with ``defjvp``.

    Reverse mode transposes what the rule does to tangents.  Either mode checks each time, at four
    tangents, that this is linear (`mixad.transforms.linear_rule`); arrays of Dask are not checked.

    Parameters
    ----------
    f : callable
        Takes and returns arrays or pytrees of them.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated, such as functions.

    Returns
    -------
    CustomJvp
        To be called as ``f`` is, once it has its rule.

    Raises
    ------
    TracerError
        If ``f`` is no function.  In a call: if there is no rule, if the rule returns what does not
        fit, or if the function reads a traced value that is not among its arguments.  In a
        derivative: if the rule is not linear in the tangents.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> @mixad.custom_jvp
    ... def log1pexp(x):
    ...     return np.log1p(np.exp(x))
    >>> @log1pexp.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return log1pexp(x), t * (1 - 1 / (1 + np.exp(x)))
    >>> mixad.grad(log1pexp)(0.0), mixad.grad(mixad.grad(log1pexp))(0.0)
    (0.5, 0.25)
    """
    return CustomJvp(f, nondiff_argnums)


class CustomJvp(CustomFunction):
    """A function with a forward rule.

    Parameters
    ----------
    f : callable
        The function.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated.
    """

    def __init__(self, f: Function, nondiff_argnums: Argnums = ()) -> None:
        super().__init__("custom_jvp", f, nondiff_argnums)

    def defjvp(self, rule: Function) -> Function:
        """Give the rule.

        Parameters
        ----------
        rule : callable
            Takes the arguments in ``nondiff_argnums``, if any, a tuple of the others, and a tuple
            of their tangents (None for a leaf that is no float); returns the value and its
            tangent, of the same structure, None where it is zero.  Must be linear in the tangents.

        Returns
        -------
        callable
            The rule.
        """
        check_callable("custom_jvp(...).defjvp", rule)
        self._rule = rule
        return rule

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the value of the function; record it with its rule if an argument is traced."""
        arguments = self.arguments(args, kwargs)
        if not arguments.is_traced:
            return self.f(*args, **kwargs)
        if self._rule is None:
            raise TracerError(f"{self.name} has no rule: make one with defjvp(rule)")
        rule = _JvpRule(self.name, arguments, self.f, self._rule)
        arguments.watch(rule)
        return record_call(rule, arguments.primals)


@dataclass(frozen=True, eq=False)
class _JvpRule:
    """The rule for one call."""

    name: str
    given: Arguments
    f: Function
    rule: Function

    borrowed_from = ""  # the functions are the user's

    def argument(self, index: int) -> str:
        """Return the name, for messages, of an array that was changed in the meantime."""
        return f"an argument of {self.name}"

    def run(self, primals: Any) -> tuple[Any, Any]:
        """Return the value; the residuals are the arguments alone."""
        return self.f(*self.given.with_primals(primals)), None

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Record the map of tangents and pull the cotangents back through it."""
        places = call.wrt(level)

        def map_of_tangents(seeds: Sequence[Any]) -> list[Any]:
            moving = dict(zip(places, seeds, strict=True))
            return self.tangents(call, level, [moving.get(i) for i in range(len(call.leaves))])

        cells = [call.leaves[i].cell for i in places]
        return checked_rule("custom_jvp", self._refusal, map_of_tangents, cells, gs)[1]

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> list[list[Any]]:
        """Call the rule on the tangents of the leaves; it must be linear, as in reverse mode."""
        cells = call.value.floats
        if not any(cell.library.is_lazy for cell in cells):
            self.pulled(call, level, [trial(cell, k) for k, cell in enumerate(cells)])
        return [self.tangents(call, level, tangents) for tangents in directions]

    @property
    def _refusal(self) -> str:
        return (
            f"{self.name}: the rule is not linear in the tangents{place_of(self.rule)}, so what it "
            "gives is no derivative and has no transpose for reverse mode (it was tried at four "
            "tangents, which gave different Jacobians, or at zero): make its tangent a sum of "
            "products of one tangent and what depends on the primals only, or use custom_vjp"
        )

    def tangents(self, call: CallNode, level: Level, given: Sequence[Any]) -> list[Any]:
        """Call the rule; return the tangents of its results, None for zero."""
        leaves = call.arguments(level)
        filled = [_zero(leaf) if t is None else t for leaf, t in zip(leaves, given, strict=True)]
        primals = pytree.unflatten(call.tree, leaves)
        result = self.rule(*self.given.fixed, primals, pytree.unflatten(call.tree, filled))
        value, tangent = pair_of(self.name, "the rule", result, "(value, tangent)")
        structure = call.value.structure
        fitting_leaves(f"{self.name}: the value that the rule returned", structure, value)
        what = f"{self.name}: the tangent that the rule returned"
        found = fitting_leaves(what, structure, tangent)
        return [
            self._linear(None if leaf is None else fitting(what, cell, leaf))
            for leaf, cell in zip(found, call.value.cells, strict=True)
            if cell is not None
        ]

    def _linear(self, tangent: Any) -> Any:
        """Return a tangent; None if it does not depend on those of the arguments."""
        if tangent is None or isinstance(tangent, Tracer):
            return tangent
        if library_of(tangent).xp.any(tangent != 0):
            raise TracerError(
                f"{self.name}: the tangent that the rule returned does not depend on the tangents "
                "of the arguments and is not zero: make it linear in them"
            )
        return None


def _zero(leaf: Any) -> Any:
    """Return a zero tangent of an argument; None for one that is no float."""
    leaf = unwrapped(leaf)
    if isinstance(leaf, Tracer):
        return own_cotangent(leaf.cell, None)
    if not is_inexact(leaf):
        return None
    return 0.0 if is_scalar(leaf) else library_of(leaf).xp.zeros_like(as_array(leaf))
