"""Jacobians, Hessians and products with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np

from mixad import pytree
from mixad.call.signature import (
    Argnums,
    Function,
    TransformedFunction,
    argument_positions,
    check_callable,
    check_sequence,
)
from mixad.errors import TracerError
from mixad.namespace.array import ArrayTracer
from mixad.tape.tracer import Level, Tracer
from mixad.tracebacks import short_traceback
from mixad.transforms.forward import push_forward
from mixad.transforms.gradients import gradient_of
from mixad.transforms.jacobian_blocks import InnerJacobian, Mode, blocks_of
from mixad.transforms.lifting import call_lifted, in_structures, warn_if_constant
from mixad.transforms.recorded_calls import Recorded
from mixad.transforms.recorded_values import record_values
from mixad.transforms.returning import unwrap_aux
from mixad.transforms.strand_calls import CallRequest
from mixad.transforms.strands import open_strand

__all__ = ["hessian", "hvp", "jacfwd", "jacobian", "jacrev"]


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
        positions = argument_positions(name, argnums, len(args))
        is_sequence = isinstance(argnums, Sequence)
        compute = partial(_on_level, name, f, positions, is_sequence, kwargs, has_aux, mode, args)
        if ArrayTracer in map(type, pytree.leaves([args[position] for position in positions])):
            found = compute(args)
            return found if has_aux else found[0]

        def compute_traced(traced: Sequence[Any], _: Sequence[Any]) -> Any:
            found = compute(traced)
            return found if has_aux else found[0]

        known = record_values(name, f, args, positions, compute_traced, has_aux)
        found = compute() if known is None else (_with_numbers(known[0], args, positions), known[1])
        return found if has_aux else found[0]

    options = {"name": name, "argnums": argnums, "has_aux": has_aux, "mode": mode}
    return TransformedFunction(jacobian_of, f, _jacobian, **options)


def _with_numbers(jacobian: Any, args: Sequence[Any], positions: Sequence[int]) -> Any:
    """Return a Jacobian whose blocks without axes have the inputs' kind: arrays, or numbers."""
    inputs = pytree.leaves([args[position] for position in positions])
    blocks, structure = pytree.flatten(jacobian)
    if any(type(block) is float or isinstance(block, np.generic) for block in blocks):
        blocks = list(map(_as_block_of, blocks, cycle(inputs)))
    return pytree.unflatten(structure, iter(blocks))


def _as_block_of(block: Any, given: Any) -> Any:
    if not (type(block) is float or isinstance(block, np.generic)):
        return block
    if type(given) is float:
        return float(block)
    array = np.asarray(block, given.dtype)
    return array if type(given) is np.ndarray else array[()]


def _on_level(
    name: str,
    f: Function,
    positions: Sequence[int],
    is_sequence: bool,
    kwargs: dict[str, Any],
    has_aux: bool,
    mode: Mode,
    args: Sequence[Any],
    traced: Sequence[Any] | None = None,
) -> tuple[Any, Any]:
    """Return the Jacobian of a call, and its aux.

    ``traced`` are the arguments as a surrounding recording has them; they are used where that
    serves.
    """
    strand = None
    with Level(name, is_reverse=mode != "forward") as level:
        if traced is not None:
            strand = open_strand(level, f, traced, positions, InnerJacobian)
        if strand is None:
            inputs, outputs, aux = call_lifted(level, f, args, positions, kwargs, has_aux)
        else:
            assert isinstance(strand, InnerJacobian)
            strand.is_outermost = traced is not args
            asked = CallRequest(mode, of_number=False, with_value=False)
            outputs, aux = strand.record(f, kwargs, has_aux, asked)
    if strand is not None and strand.is_known:
        _, rows, aux = strand.run()
    else:
        inputs = inputs if strand is None else strand.completed()
        function, aux = Recorded(level, inputs, outputs), unwrap_aux(aux, level)
        _check_real(name, function)
        warn_if_constant(f, outputs, level)
        rows = [in_structures(row, inputs.structures) for row in blocks_of(function, mode)]
    found = [tuple(row) if is_sequence else row[0] for row in rows]
    return pytree.unflatten(outputs.structure, found), aux


def _check_real(name: str, function: Recorded) -> None:
    """Refuse complex numbers: a pair of elements has more than one partial."""
    traced = [leaf for leaf in function.outputs.leaves if isinstance(leaf, Tracer)]
    if any(cell.type.is_complex for cell in (*function.inputs.cells, *[t.cell for t in traced])):
        raise TracerError(
            f"mixad.{name} of a function of complex numbers is not available: differentiate a "
            "function of their real and imaginary parts, or use mixad.jvp and mixad.vjp"
        )
