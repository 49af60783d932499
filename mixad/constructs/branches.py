"""Choices between functions inside the bodies of loops: `cond` and `switch`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import is_scalar
from mixad.constructs.leaves import leaf_of, result_of, returned_leaf
from mixad.constructs.recorded_body import record_body
from mixad.constructs.switch_rule import Switch, run_switch
from mixad.errors import TracerError
from mixad.namespace.unknown_array import UnknownArray
from mixad.tape.tracer import NotRecordedError, primal_value

__all__ = ["cond", "switch"]


def cond(
    pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any
) -> Any:
    """Return what one of two functions gives, chosen by a predicate.

    Inside the body of a loop, where the predicate differs from step to step, both are recorded and
    one runs in each step.  Elsewhere only the chosen one is called, as by ``if``.

    Parameters
    ----------
    pred : bool or array
        Whether ``true_fun`` is meant: without axes.
    true_fun, false_fun : callable
        Of the operands.  Where they return other structures, shapes or dtypes, the loop around
        runs in Python.
    *operands : array or pytree
        What they are given.  All traced values that they capture are differentiated, too.

    Returns
    -------
    array or pytree
        What the chosen function returns.

    Raises
    ------
    TracerError
        If the predicate has axes.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> def step(x, _):
    ...     x = mixad.cond(x > 3.0, lambda x: x / 2, lambda x: x + 2, x)
    ...     return x, x
    >>> mixad.scan(step, 0.0, length=5)[1]
    array([2., 4., 2., 4., 2.])
    """
    return _choose("cond", pred, [false_fun, true_fun], operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return what one of several functions gives, chosen by a whole number.

    Parameters
    ----------
    index : int or array
        Which function is meant: without axes.  A number outside of the range is taken for the
        nearest in it.
    branches : sequence of callable
        As the functions of `cond`.
    *operands : array or pytree
        As for `cond`.

    Returns
    -------
    array or pytree
        What the chosen function returns.

    Raises
    ------
    TracerError
        As for `cond`; if there are no functions.

    Examples
    --------
    >>> import mixad
    >>> mixad.fori_loop(0, 3, lambda i, x: mixad.switch(i, [abs, lambda x: x * x], x), -3.0)
    array(81.)
    """
    if not branches:
        raise TracerError("mixad.switch: there are no branches: pass at least one function")
    return _choose("switch", index, list(branches), operands)


def _choose(
    name: str, index: Any, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]
) -> Any:
    """Call the chosen function, or record all if the choice is unknown."""
    index = primal_value(index)
    if np.shape(index):
        raise TracerError(
            f"mixad.{name}: what is chosen by has the shape {np.shape(index)}: pass one "
            "number; numpy.where chooses element by element"
        )
    if not isinstance(index, UnknownArray):
        at = int(bool(index)) if name == "cond" else min(max(int(index), 0), len(branches) - 1)
        return branches[at](*operands)
    index = index != 0 if name == "cond" else index
    leaves, structure = pytree.flatten(tuple(operands))
    arrays = [at for at, leaf in enumerate(leaves) if not is_scalar(leaf)]
    given = [leaf_of(leaves[at], f"mixad.{name}: an operand") for at in arrays]
    inputs = list(map(result_of, given))
    found = []
    for branch in branches:
        recorded = record_body(name, _spread(branch, leaves, arrays, structure), inputs)
        if recorded is None:
            raise NotRecordedError(f"mixad.{name} of what is not known")
        found.append(recorded)
    first = found[0]
    for other in found[1:]:
        shapes = [[(r.shape, r.kind.type) for r in each.body.results] for each in (first, other)]
        if first.structure != other.structure or shapes[0] != shapes[1]:
            raise NotRecordedError(f"mixad.{name} of functions that return different things")
    bodies = tuple([each.body for each in found])
    captured = [each.captured for each in found]
    choice = Switch(bodies, len(given), tuple(map(len, captured)))
    arguments = [index, *given, *[value for each in captured for value in each]]
    values = run_switch(choice, arguments)
    return pytree.unflatten(first.structure, map(returned_leaf, values))


def _spread(
    branch: Callable[..., Any],
    leaves: Sequence[Any],
    arrays: Sequence[int],
    structure: pytree.Structure,
) -> Callable[..., Any]:
    """Return a function of array leaves; Python's numbers adapt to them."""

    def call(*values: Any) -> Any:
        given = {**dict(enumerate(leaves)), **dict(zip(arrays, values, strict=True))}
        return branch(*pytree.unflatten(structure, list(given.values())))

    return call
