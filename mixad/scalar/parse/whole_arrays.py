"""Arguments that a kernel takes whole: what annotates them, and which of a function's are."""

from __future__ import annotations

import ast
from types import FunctionType
from typing import Any

__all__ = ["Array", "annotated_parameters"]


class Array:
    """Annotates a parameter of a kernel whose argument is an array that is passed whole.

    Other arguments are broadcast: the function sees one element of each.  An array that is passed
    whole is read by index, one element at a time, at integers that the function computes; negative
    ones count from the end.  It has a gradient: every read adds to the element that it read.

    Where every element of the broadcast has a small array or a table of its own, give a
    ``signature`` instead: `broadcast`.

    Examples
    --------
    >>> import numpy as np, mixad
    >>> @mixad.broadcast
    ... def distance(pos: mixad.Array, i, j):
    ...     x = pos[i, 0] - pos[j, 0]
    ...     y = pos[i, 1] - pos[j, 1]
    ...     return np.sqrt(x * x + y * y)
    >>> pos = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    >>> i, j = np.array([0, 0, 1]), np.array([1, 2, 2])
    >>> distance(pos, i, j)
    array([ 5., 10.,  5.])
    >>> mixad.grad(lambda pos: distance(pos, i, j).sum())(pos)
    array([[-1.2, -1.6],
           [ 0. ,  0. ],
           [ 1.2,  1.6]])
    """


def annotated_parameters(function: FunctionType) -> frozenset[str]:
    """Return the parameters of a function that are annotated as `Array`.

    Annotations may be text, where a module has its annotations not evaluated.
    """
    found = function.__annotations__
    return frozenset(
        [name for name, given in found.items() if name != "return" and _is_array(function, given)]
    )


def _is_array(function: FunctionType, annotation: Any) -> bool:
    if isinstance(annotation, str):
        annotation = _resolve_name(function, annotation)
    return annotation is Array


def _resolve_name(function: FunctionType, text: str) -> Any:
    """Return what a dotted name stands for where a function is defined; None if it is no such."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    try:
        value = cells[node.id].cell_contents if node.id in cells else None
    except ValueError:  # a cell that is not filled yet
        return None
    value = function.__globals__.get(node.id) if value is None else value
    for name in attributes:
        value = getattr(value, name, None)
    return value
