"""Transforms: functions of arrays become functions that return derivatives.

All of them lift their inputs into tracers of a new level, call the function, and carry cotangents
back; they differ in where the cotangent comes from and in what they return.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import is_array, scalar_type_of
from mixad.errors import TracerError
from mixad.namespace.array import ArrayTracer
from mixad.tape.backward import Cotangent, backward
from mixad.tape.broadcast_node import broadcast_to
from mixad.tape.cell import Cell
from mixad.tape.node import InputNode
from mixad.tape.tracer import Level, Origin, Tracer, check_alive, plain, stripped

__all__ = ["grad", "stop_gradient", "value_and_grad", "value_and_vjp", "vjp"]

Function = Callable[..., Any]
Argnums = int | Sequence[int]


def grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Return the function that computes the gradient of a scalar-valued ``f``.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one number: a 0-d array of floats.
    argnums : int or sequence of int
        Positions of the arguments to differentiate with respect to; negative ones count from the
        last argument of the call.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``; ``aux`` is passed on as it is.

    Returns
    -------
    callable
        Takes what ``f`` takes; returns the gradient, in the structure, library, dtype and device
        of the argument (a tuple of gradients if ``argnums`` is a sequence), or
        ``(gradient, aux)``.

    Raises
    ------
    TracerError
        If ``f`` returns no scalar of floats, or an argument in ``argnums`` is not made of floats.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.grad(lambda x: (x * x).sum())(np.asarray([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    >>> mixad.grad(lambda x: x**3 - x)(2.0)
    np.float64(11.0)
    """

    @functools.wraps(f)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        _, gradients, aux = _scalar_vjp("grad", f, argnums, has_aux, args, kwargs, value=False)
        return (gradients, aux) if has_aux else gradients

    return gradient


def value_and_grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Function:
    """Return the function that computes the value of ``f`` and its gradient together.

    Parameters
    ----------
    f : callable
        As for `grad`.
    argnums : int or sequence of int
        As for `grad`.
    has_aux : bool
        As for `grad`.

    Returns
    -------
    callable
        Returns ``(value, gradient)``, or ``((value, aux), gradient)``.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.value_and_grad(lambda x, y: (x * y).sum(), argnums=1)(np.ones(2), np.full(2, 3.0))
    (np.float64(6.0), array([1., 1.]))
    """

    @functools.wraps(f)
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        value, gradients, aux = _scalar_vjp(
            "value_and_grad", f, argnums, has_aux, args, kwargs, value=True
        )
        return ((value, aux), gradients) if has_aux else (value, gradients)

    return value_and_gradient


def vjp(f: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of ``f`` and the function that carries cotangents back through it.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    *primals : array or pytree
        Where to differentiate; every leaf a float array or a float.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    pullback : callable
        Takes a cotangent of the structure and shapes of ``value``, returns a tuple with one
        cotangent for each primal; may be called any number of times.
    aux : object
        Only with ``has_aux``.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> value, pullback = mixad.vjp(lambda x: x * x, np.asarray([1.0, 2.0]))
    >>> pullback(np.asarray([1.0, 10.0]))
    (array([ 2., 40.]),)
    """
    with Level("vjp") as level:
        inputs = _lifted(level, list(primals), range(len(primals)))
        outputs, aux = _called(f, inputs.arguments, {}, has_aux, level)
    _warn_if_constant(f, outputs, level)
    value, aux = outputs.values(level), _aux(aux, level)

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        seeds = outputs.seeds(cotangent, level)
        return tuple(inputs.gradients(backward(level, seeds, inputs.nodes)))

    return (value, pullback, aux) if has_aux else (value, pullback)


def value_and_vjp(f: Function, primals: Sequence[Any], cotangent: Any) -> tuple[Any, Any]:
    """Return the value of ``f`` and the cotangents of its primals, for a cotangent known up front.

    Where the result of ``f`` comes directly from a broadcast function, one kernel computes value
    and cotangents.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    primals : sequence
        Its arguments; every leaf a float array or a float.
    cotangent : array or pytree
        Of the structure and shapes of the value; a Python number stands for a constant array.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    cotangents : tuple
        One for each primal.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> x = np.asarray([1.0, 2.0])
    >>> mixad.value_and_vjp(lambda x: x * x, (x,), np.asarray([1.0, 10.0]))
    (array([1., 4.]), (array([ 2., 40.]),))
    """
    with Level("value_and_vjp") as level:
        inputs = _lifted(level, list(primals), range(len(primals)))
        outputs, _ = _called(f, inputs.arguments, {}, False, level)
    _warn_if_constant(f, outputs, level)
    seeds = outputs.seeds(cotangent, level)
    cotangents = tuple(inputs.gradients(backward(level, seeds, inputs.nodes)))
    return outputs.values(level), cotangents


def stop_gradient(tree: Any) -> Any:
    """Return the values of a pytree without their derivatives, for every transform around.

    Parameters
    ----------
    tree : array or pytree
        What is not traced is returned as it is.

    Returns
    -------
    array or pytree
        Plain arrays.

    Examples
    --------
    >>> import mixad
    >>> mixad.grad(lambda x: x * mixad.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    return pytree.tree_map(plain, tree)


@dataclass(frozen=True)
class _Inputs:
    """The arguments of a call with tracers among them, and what gradients are returned as."""

    arguments: list[Any]
    nodes: list[InputNode]
    cells: list[Cell]
    structures: list[pytree.Structure]

    def gradients(self, cotangents: Sequence[Cotangent | None]) -> list[Any]:
        """Return the gradient of each differentiated argument, in its structure."""
        finished = map(_finished, self.cells, cotangents)
        return [pytree.unflatten(structure, finished) for structure in self.structures]


@dataclass(frozen=True)
class _Outputs:
    """What a function returned: leaves that are tracers of the level or do not depend on it."""

    leaves: list[Any]
    structure: pytree.Structure

    def values(self, level: Level) -> Any:
        """Return the value as the caller of the transform sees it."""
        return pytree.unflatten(self.structure, (_value(leaf, level) for leaf in self.leaves))

    def seeds(self, cotangent: Any, level: Level) -> list[tuple[Origin, Any]]:
        """Return where the backward pass begins, with which cotangents."""
        found, structure = pytree.flatten(cotangent)
        if structure != self.structure:
            raise TracerError(
                f"the cotangent has the structure {structure}, the value of the function has "
                f"{self.structure}"
            )
        return [
            (leaf.origin, _seed(leaf, given))
            for leaf, given in zip(self.leaves, found, strict=True)
            if _depends(leaf, level)
        ]


def _scalar_vjp(
    name: str,
    f: Function,
    argnums: Argnums,
    has_aux: bool,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    value: bool,
) -> tuple[Any, Any, Any]:
    """Return value (if wanted), gradients and aux of a scalar-valued function."""
    positions = _positions(name, argnums, len(args))
    with Level(name) as level:
        inputs = _lifted(level, list(args), positions)
        outputs, aux = _called(f, inputs.arguments, kwargs, has_aux, level)
    _check_scalar(name, outputs)
    _warn_if_constant(f, outputs, level)
    seeds = outputs.seeds(1.0, level)
    if not value:
        outputs.leaves.clear()  # then no kernel computes the value
    inputs.arguments.clear()
    gradients = inputs.gradients(backward(level, seeds, inputs.nodes))
    chosen = gradients[0] if isinstance(argnums, int) else tuple(gradients)
    return outputs.values(level) if value else None, chosen, _aux(aux, level)


def _positions(name: str, argnums: Argnums, count: int) -> list[int]:
    """Return the positions that ``argnums`` names in a call with ``count`` arguments."""
    given = [argnums] if isinstance(argnums, int) else list(argnums)
    for position in given:
        if not isinstance(position, int) or not -count <= position < count:
            raise TracerError(
                f"mixad.{name}: argnums names argument {position!r}, the call has {count} "
                "positional arguments (keyword arguments are not differentiated)"
            )
    return [position % count for position in given]


def _lifted(level: Level, arguments: list[Any], positions: Sequence[int]) -> _Inputs:
    """Put tracers of a level in place of the leaves of some arguments."""
    nodes: list[InputNode] = []
    cells: list[Cell] = []
    structures = []
    for position in positions:
        found, structure = pytree.flatten(arguments[position])
        traced = [_traced(level, leaf, position) for leaf in found]
        arguments[position] = pytree.unflatten(structure, traced)
        nodes += [t.origin.node for t in traced if isinstance(t.origin.node, InputNode)]
        cells += [t.cell for t in traced]
        structures.append(structure)
    return _Inputs(arguments, nodes, cells, structures)


def _traced(level: Level, leaf: Any, position: int) -> Tracer:
    """Return the tracer of one input."""
    outer = leaf.origin if isinstance(leaf, Tracer) else None
    levels = frozenset({level}) | (outer.levels if outer else frozenset())
    origin = Origin(InputNode(level, outer), 0, levels)
    return ArrayTracer(_input_cell(level, leaf, position), origin)


def _input_cell(level: Level, leaf: Any, position: int) -> Cell:
    where = f"mixad.{level.name}: argument {position}"
    if isinstance(leaf, Tracer):
        check_alive(leaf)
        return leaf.cell
    if isinstance(leaf, float) and not isinstance(leaf, np.generic):
        return Cell.of(np.asarray(leaf), weak=True)
    if isinstance(leaf, (bool, int)):
        raise TracerError(f"{where} is the whole number {leaf!r}: write {float(leaf)!r}")
    if not is_array(leaf):
        raise TracerError(
            f"{where} contains a {type(leaf).__name__}: gradients are with respect to arrays and "
            "floats; close over other values, or see mixad.pytree.register"
        )
    cell = Cell.of(leaf)
    if not cell.type.is_float:
        raise TracerError(
            f"{where} contains an array of dtype {leaf.dtype}: convert it to a float dtype, or "
            "leave it out of argnums"
        )
    return cell


def _called(
    f: Function, arguments: list[Any], kwargs: dict[str, Any], has_aux: bool, level: Level
) -> tuple[_Outputs, Any]:
    """Call the function; return its outputs and its aux."""
    result, aux = f(*arguments, **kwargs), None
    if has_aux:
        if not isinstance(result, tuple) or len(result) != 2:
            raise TracerError(
                f"mixad.{level.name} with has_aux=True: {_name(f)} must return a pair "
                f"(value, aux), it returned a {type(result).__name__}"
            )
        result, aux = result
    outputs = _Outputs(*pytree.flatten(result))
    for leaf in outputs.leaves:
        _check_output(f, leaf, level)
    return outputs, aux


def _check_output(f: Function, leaf: Any, level: Level) -> None:
    if isinstance(leaf, Tracer):
        check_alive(leaf)
    elif not is_array(leaf) and not isinstance(leaf, (bool, int, float)):
        raise TracerError(
            f"mixad.{level.name}: {_name(f)} returned a {type(leaf).__name__}, which is no array"
        )


def _warn_if_constant(f: Function, outputs: _Outputs, level: Level) -> None:
    if not any(_depends(leaf, level) for leaf in outputs.leaves):
        warnings.warn(
            f"mixad.{level.name}: the result of {_name(f)} does not depend on the arguments that "
            "it is differentiated with respect to; the gradient is zero",
            UserWarning,
            stacklevel=3,
        )


def _check_scalar(name: str, outputs: _Outputs) -> None:
    if outputs.structure != pytree.LEAF:
        raise TracerError(
            f"mixad.{name}: the function returned {outputs.structure}, a gradient needs one "
            "number: use has_aux=True for further results, or mixad.vjp"
        )
    leaf = outputs.leaves[0]
    shape = tuple(getattr(leaf, "shape", ()))
    if shape:
        raise TracerError(
            f"mixad.{name}: the function returned an array of shape {shape}, a gradient needs one "
            "number: return its .sum(), or use mixad.vjp"
        )
    if is_array(leaf) and not scalar_type_of(leaf.dtype).is_float:
        raise TracerError(
            f"mixad.{name}: the function returned a value of dtype {leaf.dtype}, which has no "
            "gradient"
        )


def _seed(leaf: Tracer, given: Any) -> Any:
    """Return the cotangent of an output as an array of its shape and dtype."""
    cell = leaf.cell
    if isinstance(given, (bool, int, float)):
        one = cell.library.asarray(given, cell.type, cell.device)
        return broadcast_to(one, cell.shape)
    if not isinstance(given, Tracer) and not is_array(given):
        raise TracerError(f"a cotangent is an array or a number, not a {type(given).__name__}")
    if tuple(given.shape) != cell.shape or given.dtype != leaf.dtype:
        raise TracerError(
            f"the cotangent has shape {tuple(given.shape)} and dtype {given.dtype}, the value has "
            f"shape {cell.shape} and dtype {leaf.dtype}"
        )
    return given


def _finished(cell: Cell, cotangent: Cotangent | None) -> Any:
    """Return a gradient that the caller owns: of the input's shape, sharing no memory."""
    xp = cell.library.xp
    if cotangent is None:
        dtype = cell.library.dtype_of(cell.type)
        gradient = xp.zeros(cell.shape, dtype=dtype, device=cell.device)
    elif isinstance(cotangent.value, Tracer):
        return broadcast_to(cotangent.value, cell.shape)
    elif cotangent.fresh and tuple(cotangent.value.shape) == cell.shape:
        gradient = cotangent.value
    else:
        gradient = xp.asarray(xp.broadcast_to(cotangent.value, cell.shape), copy=True)
    return np.float64(gradient) if cell.weak else gradient


def _aux(aux: Any, level: Level) -> Any:
    """Return what the function handed over beside its value, without tracers of the level."""
    return pytree.tree_map(lambda leaf: stripped(leaf, level), aux)


def _value(leaf: Any, level: Level) -> Any:
    """Return an output to the caller; 0-d NumPy arrays become scalars, as NumPy's results are."""
    value = stripped(leaf, level)
    return value[()] if isinstance(value, np.ndarray) else value


def _depends(leaf: Any, level: Level) -> bool:
    return isinstance(leaf, Tracer) and level in leaf.origin.levels


def _name(f: Function) -> str:
    return getattr(f, "__name__", type(f).__name__)
