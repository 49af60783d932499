"""Forward-mode transforms: tangents of the inputs become tangents of the value.

The function is recorded as for the reverse mode, and its tape is pushed forward on dual numbers;
plans of values and tangents serve calls that are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, TypeVarTuple, overload

from mixad import pytree
from mixad.call.signature import Function, check_callable, check_sequence
from mixad.namespace.array import ArrayTracer
from mixad.tape.registers import as_register
from mixad.tape.tracer import Level
from mixad.tracebacks import short_traceback
from mixad.transforms.inner_calls import InnerForward
from mixad.transforms.kept_calls import keep_call
from mixad.transforms.lifting import call_lifted, warn_if_constant
from mixad.transforms.recorded_calls import Recorded
from mixad.transforms.recorded_values import record_values
from mixad.transforms.returning import unshared_tangent, unwrap_aux
from mixad.transforms.strand_calls import CallRequest
from mixad.transforms.strands import open_strand

__all__ = ["jvp", "linearize", "push_forward"]


R = TypeVar("R")
Aux = TypeVar("Aux")
Primals = TypeVarTuple("Primals")


@overload
def jvp(
    f: Callable[[*Primals], R],
    primals: tuple[*Primals],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[..., R],
    primals: list[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[False] = False,
) -> tuple[R, R]: ...
@overload
def jvp(
    f: Callable[..., tuple[R, Aux]],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[True],
) -> tuple[R, R, Aux]: ...
@short_traceback
def jvp(
    f: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> Any:
    """Return the value of ``f`` and how fast it changes as the arguments move along tangents.

    Value and tangents come out of the same kernels.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    primals : sequence
        Its arguments, a tuple or a list; every leaf a float or complex array or number.
    tangents : sequence
        For each argument its tangent: of its structure, every leaf of the shape and dtype of the
        argument's, or a Python number that stands for a constant array.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    tangent : array or pytree
        Of the structure and shapes of the value.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TracerError
        If a leaf of a primal is no float, or a tangent has another structure or shape.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> x, dx = np.asarray([1.0, 2.0]), np.asarray([1.0, 0.5])
    >>> mixad.jvp(lambda x: x * x, (x,), (dx,))
    (array([1., 4.]), array([2., 2.]))
    """
    check_callable("jvp", f)
    check_sequence("jvp", "primals", primals)
    check_sequence("jvp", "tangents", tangents)
    found = push_forward(f, f, primals, tangents, with_value=True, has_aux=has_aux)
    return found if has_aux else found[:2]


@short_traceback
def linearize(f: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of ``f`` and the linear function that carries tangents through it.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    *primals : array or pytree
        Where to differentiate; every leaf a float or complex array or number.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    pushforward : callable
        Takes tangents as `jvp` does, returns the tangent of the value; may be called any number of
        times.  What is cheap is computed again, nothing but the trace is stored.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TracerError
        As from `jvp`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> value, pushforward = mixad.linearize(lambda x: x * x, np.asarray([1.0, 2.0]))
    >>> pushforward(np.asarray([1.0, 0.5]))
    array([2., 2.])
    """
    check_callable("linearize", f)
    value, aux, call = keep_call("linearize", f, primals, has_aux, is_reverse=False)

    @short_traceback
    def pushforward(*tangents: Any) -> Any:
        return call.tangent(tangents)

    return (value, pushforward, aux) if has_aux else (value, pushforward)


# -- one tangent -----------------------------------------------------------------------------------


def push_forward(
    f: Function,
    of: Function,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    with_value: bool,
    has_aux: bool = False,
) -> tuple[Any, Any, Any]:
    """Return value (None if not wanted), tangent and aux; ``of`` is the user's function."""
    leaves = _alike_leaves(primals, tangents)
    push = partial(_push_on_level, f, of, primals, tangents, with_value, has_aux)
    if leaves is None:
        return push()
    if ArrayTracer in map(type, leaves[0]):
        return push((primals, leaves[1]))
    given, count = (*primals, *tangents), len(primals)

    def push_traced(arguments: Sequence[Any], inputs: Sequence[Any]) -> tuple[Any, Any]:
        value, tangent, aux = push((arguments[:count], inputs[len(leaves[0]) :]))
        return ((value, tangent), aux) if has_aux else (value, tangent)

    found = record_values("jvp", of, given, range(len(given)), push_traced, has_aux)
    if found is None:
        return push()
    (value, tangent), aux = found
    taken = list(map(as_register, leaves[1]))
    return value, pytree.tree_map(lambda leaf: unshared_tangent(leaf, taken), tangent), aux


def _push_on_level(
    f: Function,
    of: Function,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    with_value: bool,
    has_aux: bool,
    traced: tuple[Sequence[Any], Sequence[Any]] | None = None,
) -> tuple[Any, Any, Any]:
    """Return value, tangent and aux of a call.

    ``traced`` are the primals and the leaves of the tangents as a surrounding recording has them;
    they are used where that serves.
    """
    positions, strand = range(len(primals)), None
    with Level("jvp", is_reverse=False) as level:
        if traced is not None:
            strand = open_strand(level, of, traced[0], positions, InnerForward)
        if strand is None:
            inputs, outputs, aux = call_lifted(level, f, primals, positions, {}, has_aux)
        else:
            assert traced is not None
            assert isinstance(strand, InnerForward)
            strand.is_outermost = traced[0] is not primals
            asked = CallRequest(traced[1], of_number=False, with_value=with_value)
            outputs, aux = strand.record(f, {}, has_aux, asked)
    if strand is not None:
        if strand.is_known:
            value, (tangent,), aux = strand.run()
            return value, tangent, aux
        inputs = strand.completed()
    warn_if_constant(of, outputs, level)
    function, aux = Recorded(level, inputs, outputs), unwrap_aux(aux, level)
    if not with_value:
        return None, function.tangent(tuple(tangents)), aux
    value, (tangent,) = function.pushed([tuple(tangents)])
    return value, tangent, aux


def _alike_leaves(
    primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]] | None:
    """Return the leaves of primals and tangents; None unless they are arrays of the same form."""
    arrays: list[Any] = []
    others: list[Any] = []
    for primal, tangent in zip(primals, tangents, strict=False):
        leaves, structure = pytree.flatten(primal)
        given, own = pytree.flatten(tangent)
        if own is not structure and own != structure:
            return None
        arrays += leaves
        others += given
    if len(primals) != len(tangents) or not all(map(_are_alike, arrays, others)):
        return None
    return arrays, others


def _are_alike(array: Any, other: Any) -> bool:
    """Whether two leaves are arrays of one shape and type."""
    shape, dtype = getattr(array, "shape", None), getattr(array, "dtype", None)
    if shape is None or dtype is None:
        return False
    return bool(shape == getattr(other, "shape", None) and dtype == getattr(other, "dtype", None))
