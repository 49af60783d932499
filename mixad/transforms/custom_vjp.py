"""Functions with a reverse rule of their own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mixad import pytree
from mixad.backends.arrays import is_array
from mixad.call.signature import Argnums, Function, check_callable
from mixad.config import CHECK
from mixad.errors import TracerError
from mixad.tape.broadcasting import broadcast_to
from mixad.tape.constant import is_traced, unwrapped
from mixad.tape.guard import GuardedArray
from mixad.tape.tracer import Level, Tracer
from mixad.tracebacks import short_traceback
from mixad.transforms.call_node import CallNode, record_call
from mixad.transforms.custom_rules import (
    Arguments,
    CustomFunction,
    fitting,
    fitting_leaves,
    pair_of,
    place_of,
)
from mixad.transforms.linear_rule import checked_rule, trial
from mixad.transforms.returning import copy_array

__all__ = ["CustomVjp", "custom_vjp"]


def custom_vjp(f: Function, *, nondiff_argnums: Argnums = ()) -> CustomVjp:
    """Return ``f`` as a function whose reverse rule the user gives with ``defvjp``.

    Parameters
    ----------
    f : callable
        Takes and returns arrays or pytrees of them.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated, such as functions.

    Returns
    -------
    CustomVjp
        To be called as ``f`` is, once it has its rule.

    Raises
    ------
    TracerError
        If ``f`` is no function.  In a call: if there is no rule, if the rule returns what does not
        fit, or if the function reads a traced value that is not among its arguments.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> @mixad.custom_vjp
    ... def clipped(x):  # the gradient is clipped, not the value
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, g: (np.minimum(g, 1.0),))
    >>> mixad.grad(lambda x: (clipped(x) * np.asarray([0.5, 9.0])).sum())(np.ones(2))
    array([0.5, 1. ])
    """
    return CustomVjp(f, nondiff_argnums)


class CustomVjp(CustomFunction):
    """A function with a reverse rule; forward mode takes the rule's transpose.

    Parameters
    ----------
    f : callable
        The function.
    nondiff_argnums : int or sequence of int
        Positions of arguments that are not differentiated.
    """

    def __init__(self, f: Function, nondiff_argnums: Argnums = ()) -> None:
        super().__init__("custom_vjp", f, nondiff_argnums)

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Give the rule.

        Parameters
        ----------
        fwd : callable
            Takes what the function takes; returns its value, and residuals: a pytree of what the
            backward pass needs.
        bwd : callable
            Takes the arguments in ``nondiff_argnums``, if any, the residuals, and a cotangent of
            the structure of the value (None for what is no float); returns a tuple with a
            cotangent for each other argument, None where it is zero.  Must not change the
            cotangent.  Forward mode, which transposes it, refuses one that is not linear in it.
        """
        check_callable("custom_vjp(...).defvjp", fwd)
        check_callable("custom_vjp(...).defvjp", bwd)
        self._rule = fwd, bwd

    @short_traceback
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the value of the function; record it with its rule if an argument is traced."""
        arguments = self.arguments(args, kwargs)
        if not arguments.is_traced:
            return self.f(*args, **kwargs)
        if self._rule is None:
            raise TracerError(f"{self.name} has no rule: make one with defvjp(fwd, bwd)")
        rule = _VjpRule(self.name, arguments, *self._rule)
        arguments.watch(rule)
        return record_call(rule, arguments.primals)


@dataclass(frozen=True, eq=False)
class _VjpRule:
    """The rule for one call."""

    name: str
    given: Arguments
    fwd: Function
    bwd: Function

    borrowed_from = ""  # the functions are the user's

    def argument(self, index: int) -> str:
        """Return the name, for messages, of an array that was changed in the meantime."""
        return f"an argument or a residual of {self.name}"

    def run(self, primals: Any) -> tuple[Any, Any]:
        """Return the value and the residuals, whose arrays are watched for changes."""
        value, residuals = self._forward(primals)
        leaves, structure = pytree.flatten(residuals)
        return value, (structure, [self._kept(leaf) for leaf in leaves])

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Call the backward rule, on residuals that outer transforms see, if there are any."""
        leaves = call.arguments(level)
        primals = pytree.unflatten(call.tree, leaves)
        if any(map(is_traced, leaves)):
            residuals = self._forward(primals)[1]
        else:
            structure, kept = call.residuals
            residuals = pytree.unflatten(structure, [_seen(leaf) for leaf in kept])
        result = self.bwd(*self.given.fixed, residuals, call.value.tree(gs))
        return self._checked(call, level, result)

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> list[list[Any]]:
        """Transpose the backward rule, which must be linear; reverse mode takes it unchanged."""
        places, cells = call.wrt(level), call.value.floats
        refusal = (
            f"{self.name}: bwd is not linear in the cotangent{place_of(self.bwd)}, so it has no "
            "transpose for forward mode (it was tried at four cotangents, which gave different "
            "Jacobians, or at zero): use reverse mode, which takes bwd as it is, or custom_jvp"
        )
        tangents = [trial(call.leaves[i].cell, k) for k, i in enumerate(places)]
        rule, _ = checked_rule(
            "custom_vjp", refusal, lambda gs: self.pulled(call, level, gs), cells, tangents
        )
        return [
            [
                None if tangent is None else broadcast_to(tangent, cell.shape)
                for tangent, cell in zip(
                    rule.transposed([along[i] for i in places]), cells, strict=True
                )
            ]
            for along in directions
        ]

    def _forward(self, primals: Sequence[Any]) -> Any:
        result = self.fwd(*self.given.with_primals(primals))
        return pair_of(self.name, "fwd", result, "(value, residuals)")

    def _kept(self, leaf: Any) -> Any:
        leaf = unwrapped(leaf)
        if isinstance(leaf, Tracer):
            raise TracerError(
                f"{self.name}: fwd reads a value that is being differentiated and is not among its "
                "arguments: pass it as an argument"
            )
        return GuardedArray(leaf, CHECK.read(), self) if is_array(leaf) else leaf

    def _checked(self, call: CallNode, level: Level, result: Any) -> list[Any]:
        """Return the cotangents of the leaves that carry the level.

        They are copies: the rule may fill the same arrays in its next call.
        """
        count = len(call.tree.children)
        if not isinstance(result, (tuple, list)) or len(result) != count:
            got = f"{len(result)} values" if isinstance(result, (tuple, list)) else "no tuple"
            raise TracerError(
                f"{self.name}: bwd returned {got} for {count} arguments: return a tuple with one "
                "cotangent for each, None where it is zero"
            )
        what = f"{self.name}: the cotangent that bwd returned for argument"
        found: list[Any] = []
        for at, (tree, cotangent) in enumerate(zip(call.tree.children, result, strict=True)):
            leaves = fitting_leaves(f"{what} {at}", tree, cotangent)
            found += [(leaf, f"{what} {at}") for leaf in leaves]
        return [
            None if leaf is None else copy_array(fitting(named, call.leaves[i].cell, leaf))
            for i in call.wrt(level)
            for leaf, named in (found[i],)
        ]


def _seen(leaf: Any) -> Any:
    return leaf.array if isinstance(leaf, GuardedArray) else leaf
