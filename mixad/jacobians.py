"""Jacobians, Hessians and products with them, made of passes in either mode.

The Jacobian of a function of N elements into M has N columns, of which forward mode gives up to
ten in one pass, and M rows, of which reverse mode gives one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Literal, TypeAlias

from mixad import pytree
from mixad.api import gradient_of
from mixad.errors import TracerError
from mixad.forward import push_forward
from mixad.lifting import warn_if_constant
from mixad.namespace.data_types import astype
from mixad.namespace.joining import stack
from mixad.namespace.manipulation import reshape
from mixad.recorded_calls import Recorded, recorded
from mixad.returning import as_given, owned
from mixad.scalar.dual import MAX_PARTIALS
from mixad.signature import (
    Argnums,
    Function,
    TransformedFunction,
    argument_positions,
    check_callable,
    check_sequence,
)
from mixad.tape.backward import backward
from mixad.tape.cell import Cell
from mixad.tape.kernel_node import moved
from mixad.tape.tracer import Tracer
from mixad.tracebacks import short_traceback

__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]

Mode: TypeAlias = Literal["auto", "forward", "reverse"]


def jacobian(
    f: Function, argnums: Argnums = 0, *, has_aux: bool = False, mode: Mode = "auto"
) -> Function:
    """Return the function that computes the Jacobian of ``f``.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    argnums : int or sequence of int
        As for `grad`.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``; ``aux`` is passed on as it is.
    mode : "auto", "forward" or "reverse"
        ``"forward"`` as `jacfwd`, ``"reverse"`` as `jacrev`; ``"auto"`` is forward where the
        arguments have at most as many elements as the value, else reverse.

    Returns
    -------
    callable
        Takes what ``f`` takes; returns the Jacobian: an array of shape ``out.shape + in.shape``,
        of the argument's library, dtype and device.  For a value or an argument that is a pytree,
        the value's structure with the argument's at each leaf; with a sequence of ``argnums``, a
        tuple of those at each leaf.  With ``has_aux``, ``(jacobian, aux)``.

    Raises
    ------
    TracerError
        If ``f`` is no function, an argument in ``argnums`` is not made of floats, ``argnums`` does
        not name positions of the call, each once, or there is no such mode.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.jacobian(lambda x: x * x)(np.asarray([1.0, 2.0]))
    array([[2., 0.],
           [0., 4.]])
    """
    return _jacobian(f, "jacobian", argnums, has_aux, mode)


def jacfwd(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Return the function that computes the Jacobian of ``f`` by columns, in forward mode.

    Ten columns are computed in each pass: best for few inputs.

    Parameters
    ----------
    f : callable
        As for `jacobian`.
    argnums : int or sequence of int
        As for `grad`.
    has_aux : bool
        As for `jacobian`.

    Returns
    -------
    callable
        As from `jacobian`.

    Raises
    ------
    TracerError
        As for `jacobian`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.jacfwd(lambda t: np.asarray([1.0, 2.0, 3.0]) * t * t)(3.0)
    array([ 6., 12., 18.])
    """
    return _jacobian(f, "jacfwd", argnums, has_aux, "forward")


def jacrev(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Return the function that computes the Jacobian of ``f`` by rows, in reverse mode.

    One row is computed in each pass: best for few outputs.

    Parameters
    ----------
    f : callable
        As for `jacobian`.
    argnums : int or sequence of int
        As for `grad`.
    has_aux : bool
        As for `jacobian`.

    Returns
    -------
    callable
        As from `jacobian`.

    Raises
    ------
    TracerError
        As for `jacobian`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.jacrev(lambda x: {"sum": x.sum(), "first": x[0] * x[1]})(np.asarray([1.0, 2.0, 3.0]))
    {'sum': array([1., 1., 1.]), 'first': array([2., 1., 0.])}
    """
    return _jacobian(f, "jacrev", argnums, has_aux, "reverse")


def hessian(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Return the function that computes the Hessian of ``f``, forward over reverse.

    Parameters
    ----------
    f : callable
        As for `jacobian`; its value is a number as a rule.
    argnums : int or sequence of int
        As for `grad`.
    has_aux : bool
        As for `jacobian`.

    Returns
    -------
    callable
        Takes what ``f`` takes; returns the Jacobian of the Jacobian: for a number and one array,
        of shape ``in.shape + in.shape``.

    Raises
    ------
    TracerError
        As from `jacobian`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.hessian(lambda x: (x * x * x).sum() + x[0] * x[1])(np.asarray([1.0, 2.0]))
    array([[ 6.,  1.],
           [ 1., 12.]])
    """
    check_callable("hessian", f)
    gradients = _jacobian(f, "hessian", argnums, has_aux, "reverse")
    return _jacobian(gradients, "hessian", argnums, has_aux, "forward")


@short_traceback
def hvp(f: Function, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """Return the product of the Hessian of ``f`` with a vector, without the Hessian.

    It is the tangent of the gradient: forward over reverse.

    Parameters
    ----------
    f : callable
        As for `grad`: returns one number.
    primals : sequence
        Its arguments, a tuple or a list; every leaf a float or complex array or number.
    tangents : sequence
        The vector, as `jvp` takes it.

    Returns
    -------
    array or pytree
        Of the structure of the argument; of several, a tuple with one for each.

    Raises
    ------
    TracerError
        As from `grad` and `jvp`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> x, v = np.asarray([1.0, 2.0]), np.asarray([1.0, 0.5])
    >>> mixad.hvp(lambda x: (x * x * x).sum(), (x,), (v,))
    array([6., 6.])
    """
    check_callable("hvp", f)
    check_sequence("hvp", "primals", primals)
    check_sequence("hvp", "tangents", tangents)
    argnums = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return push_forward(gradient_of(f, argnums), f, primals, tangents, with_value=False)[1]


def _jacobian(f: Function, name: str, argnums: Argnums, has_aux: bool, mode: Mode) -> Function:
    check_callable(name, f)
    if mode not in ("auto", "forward", "reverse"):
        raise TracerError(
            f"mixad.{name}: mode={mode!r}: it must be one of 'auto', 'forward', 'reverse'"
        )

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        function, aux = recorded(
            name,
            f,
            args,
            has_aux,
            positions=argument_positions(name, argnums, len(args)),
            kwargs=kwargs,
            is_reverse=mode != "forward",
        )
        _check_real(name, function)
        warn_if_constant(f, function.outputs, function.level)
        blocks = _columns(function) if _is_forward(function, mode) else _rows(function)
        found = _assembled(function, blocks, isinstance(argnums, Sequence))
        return (found, aux) if has_aux else found

    options = {"name": name, "argnums": argnums, "has_aux": has_aux, "mode": mode}
    return TransformedFunction(jacobian_of, f, _jacobian, **options)


def _check_real(name: str, function: Recorded) -> None:
    """Refuse complex numbers: one number for each pair of elements would not do."""
    traced = [leaf for leaf in function.outputs.leaves if isinstance(leaf, Tracer)]
    if any(cell.type.is_complex for cell in (*function.inputs.cells, *[t.cell for t in traced])):
        raise TracerError(
            f"mixad.{name} of a function of complex numbers is not available: differentiate a "
            "function of their real and imaginary parts, or use mixad.jvp and mixad.vjp"
        )


def _is_forward(function: Recorded, mode: Mode) -> bool:
    inputs = sum(math.prod(cell.shape) for cell in function.inputs.cells)
    outputs = sum(math.prod(_shape(leaf)) for leaf in function.outputs.leaves)
    return mode == "forward" or (mode == "auto" and inputs <= outputs)


def _shape(leaf: Any) -> tuple[int, ...]:
    return tuple(getattr(leaf, "shape", ()))


def _assembled(function: Recorded, blocks: Sequence[Sequence[Any]], is_sequence: bool) -> Any:
    """Return blocks, one for each leaf of the value and of the arguments, as a tree of trees."""
    inputs, outputs = function.inputs, function.outputs
    around = outputs.around(function.level)
    rows = []
    for row in blocks:
        ends = zip(row, inputs.cells, inputs.kinds, strict=True)
        left = iter([as_given(block, cell, kind, around) for block, cell, kind in ends])
        trees = [pytree.unflatten(structure, left) for structure in inputs.structures]
        rows.append(tuple(trees) if is_sequence else trees[0])
    return pytree.unflatten(outputs.structure, rows)


def _rows(function: Recorded) -> list[list[Any]]:
    """Return the blocks of the Jacobian by backward passes, one for each element of the value."""
    level, inputs, found = function.level, function.inputs, []
    for leaf in function.outputs.leaves:
        rows: list[list[Any]] = []
        if isinstance(leaf, Tracer) and level in leaf.origin.levels:
            for unit in _units(leaf.cell):
                cotangents = backward(level, [(leaf.origin, unit)], inputs.nodes)
                rows.append([owned(*pair) for pair in zip(inputs.cells, cotangents, strict=True)])
        columns = zip(*rows, strict=True) if rows else [()] * len(inputs.cells)
        pairs = zip(columns, inputs.cells, strict=True)
        found.append([_block(parts, 0, leaf, cell) for parts, cell in pairs])
    return found


def _columns(function: Recorded) -> list[list[Any]]:
    """Return the blocks of the Jacobian by forward passes, one for up to ten elements."""
    leaves, cells = function.outputs.leaves, function.inputs.cells
    found: list[list[Any]] = [[] for _ in leaves]
    for at, cell in enumerate(cells):
        columns = list(_tangents(function, at))
        for k, leaf in enumerate(leaves):
            parts = [column[k] for column in columns] if isinstance(leaf, Tracer) else []
            found[k].append(_block(parts, -1, leaf, cell))
    return found


def _tangents(function: Recorded, at: int) -> Iterator[list[Any]]:
    """Return the tangents of the value along each element of one leaf of the arguments."""
    cells = function.inputs.cells
    size = math.prod(cells[at].shape)
    passes = -(-size // MAX_PARTIALS)
    units = _units(cells[at])  # made pass by pass: all together they are a square
    for turn in range(passes):
        chunk = list(islice(units, (turn + 1) * size // passes - turn * size // passes))
        carried = function.carried(
            [[unit if i == at else None for i in range(len(cells))] for unit in chunk]
        )
        yield from (carried.along(k) for k in range(len(chunk)))


def _units(cell: Cell) -> Iterator[Any]:
    """Return, for each element of a value, the array that is one there and zero elsewhere."""
    xp, dtype = cell.library.xp, cell.library.dtype_of(cell.type)
    size = math.prod(cell.shape)
    for k in range(size):
        row = xp.reshape(xp.astype(xp.arange(size, device=cell.device) == k, dtype), (1, size))
        yield xp.reshape(row, cell.shape)


def _block(parts: Sequence[Any], axis: int, leaf: Any, cell: Cell) -> Any:
    """Return rows or columns as one array, zeros if there are none.

    It is of the kind of the input, whose cell is given; of the output's for a Python number.
    """
    like = leaf.cell if cell.kind.weak and isinstance(leaf, Tracer) else cell
    xp, dtype = like.library.xp, like.library.dtype_of(like.type)
    shape = (*_shape(leaf), *cell.shape)
    if not parts:
        return xp.zeros(shape, dtype=dtype, device=like.device)
    arrays = [part if _shape(part) else _array(part, like) for part in parts]
    block = reshape(arrays[0] if len(arrays) == 1 else stack(arrays, axis=axis), shape)
    return block if block.dtype == dtype else astype(block, dtype)


def _array(number: Any, like: Cell) -> Any:
    """Return a number as a 0-d array of the kind of a value."""
    if isinstance(number, Tracer):
        return moved(number, like.library, like.device)
    return like.library.asarray(float(number), like.type, like.device)
