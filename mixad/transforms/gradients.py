"""Transforms: functions of arrays become functions that return derivatives.

All of them lift their inputs into tracers of a new level, call the function, and carry cotangents
back; they differ in where the cotangent comes from and in what they return.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, TypeVarTuple, overload

from mixad import pytree
from mixad.backends.unsupported_arrays import check_no_tracer
from mixad.broadcast.direct_pullback import pull_at_once
from mixad.call.signature import (
    Argnums,
    Function,
    Gradient,
    GradientWithAux,
    TransformedFunction,
    ValueAndGradient,
    ValueAndGradientWithAux,
    argument_positions,
    check_callable,
    check_sequence,
)
from mixad.tape.backward import backward
from mixad.tape.memory import is_numpy_number
from mixad.tape.tracer import Level, Tracer, primal_value
from mixad.tracebacks import hide_frames, short_traceback
from mixad.transforms.kept_calls import keep_call
from mixad.transforms.lifting import call_lifted, check_scalar, warn_if_constant
from mixad.transforms.returning import copy_array, unwrap_aux, without_derivative
from mixad.transforms.strand_calls import CallRequest
from mixad.transforms.strands import open_strand

__all__ = ["grad", "gradient_of", "stop_gradient", "value_and_grad", "value_and_vjp", "vjp"]

P = ParamSpec("P")
R = TypeVar("R")
Aux = TypeVar("Aux")
Primals = TypeVarTuple("Primals")


@overload
def grad(
    f: Callable[Concatenate[Any, P], Any],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
) -> Gradient[P]: ...
@overload
def grad(
    f: Callable[Concatenate[Any, P], Any], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> GradientWithAux[P]: ...
@overload
def grad(
    f: Callable[P, Any], argnums: Sequence[int], *, has_aux: Literal[False] = False
) -> Callable[P, tuple[Any, ...]]: ...
@overload
def grad(f: Callable[P, Any], argnums: Argnums, *, has_aux: bool = False) -> Callable[P, Any]: ...
def grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
    """Return the function that computes the gradient of a scalar-valued ``f``.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one number: a 0-d array of floats.
    argnums : int or sequence of int
        Positions of the arguments to differentiate with respect to, each once; negative ones
        count from the last argument of the call.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``; ``aux`` is passed on as it is.

    Returns
    -------
    callable
        Takes what ``f`` takes; returns the gradient, in the structure, library, dtype and device
        of the argument (a tuple of gradients if ``argnums`` is a sequence), or
        ``(gradient, aux)``.  Each leaf comes back as what it is in the argument: a Python float
        for a Python float, a NumPy scalar for a NumPy scalar, else an array, with no axes for one
        with no axes.  With respect to complex numbers x + iy it is ∂x + i∂y.

    Raises
    ------
    TracerError
        If ``f`` is no function or returns no scalar of floats, an argument in ``argnums`` is not
        made of floats, or ``argnums`` does not name positions of the call, each once.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.grad(lambda x: (x * x).sum())(np.asarray([1.0, 2.0, 3.0]))
    array([2., 4., 6.])
    >>> mixad.grad(lambda x: x**3 - x)(2.0), mixad.grad(lambda x: x**3 - x)(np.float32(2.0))
    (11.0, np.float32(11.0))
    >>> mixad.grad(lambda x: x**3 - x)(np.asarray(2.0))
    array(11.)
    """
    check_callable("grad", f)

    gradient = gradient_of(f, argnums, has_aux)
    return TransformedFunction(gradient, f, grad, argnums=argnums, has_aux=has_aux)


def gradient_of(f: Function, argnums: Argnums, has_aux: bool = False) -> Function:
    """Return what `grad` calls: a plain function, which is made at each call of `hvp`.

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
        Returns the gradient of ``f``, or ``(gradient, aux)``.
    """

    is_sequence = isinstance(argnums, Sequence)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        positions = argument_positions("grad", argnums, len(args))
        _, found, aux = _pulled_back("grad", f, args, positions, kwargs, has_aux, _GRADIENT)
        gradients = tuple(found) if is_sequence else found[0]
        return (gradients, aux) if has_aux else gradients

    return gradient


@overload
def value_and_grad(
    f: Callable[Concatenate[Any, P], R],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[False] = False,
) -> ValueAndGradient[P, R]: ...
@overload
def value_and_grad(
    f: Callable[Concatenate[Any, P], Any], argnums: Literal[0] = 0, *, has_aux: Literal[True]
) -> ValueAndGradientWithAux[P]: ...
@overload
def value_and_grad(
    f: Function, argnums: Argnums, *, has_aux: bool = False
) -> Callable[..., Any]: ...
def value_and_grad(f: Function, argnums: Argnums = 0, *, has_aux: bool = False) -> Any:
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
        Returns ``(value, gradient)``, or ``((value, aux), gradient)``.  Gradients are as from
        `grad`; a value without axes is what operations of its library return: a Python float if
        all that made it are Python numbers, a NumPy scalar, or an array without axes.

    Raises
    ------
    TracerError
        As for `grad`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.value_and_grad(lambda x, y: (x * y).sum(), argnums=1)(np.ones(2), np.full(2, 3.0))
    (np.float64(6.0), array([1., 1.]))
    """
    check_callable("value_and_grad", f)

    name, is_sequence = "value_and_grad", isinstance(argnums, Sequence)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        positions = argument_positions(name, argnums, len(args))
        asked = _VALUE_AND_GRADIENT
        value, found, aux = _pulled_back(name, f, args, positions, kwargs, has_aux, asked)
        gradients = tuple(found) if is_sequence else found[0]
        return ((value, aux), gradients) if has_aux else (value, gradients)

    return TransformedFunction(
        value_and_gradient, f, value_and_grad, argnums=argnums, has_aux=has_aux
    )


@overload
def vjp(
    f: Callable[[*Primals], R], *primals: *Primals, has_aux: Literal[False] = False
) -> tuple[R, Callable[[Any], tuple[*Primals]]]: ...
@overload
def vjp(
    f: Callable[[*Primals], tuple[R, Aux]], *primals: *Primals, has_aux: Literal[True]
) -> tuple[R, Callable[[Any], tuple[*Primals]], Aux]: ...
@short_traceback  # type: ignore[misc]  # mypy does not see that `*primals: Any` takes them
def vjp(f: Function, *primals: Any, has_aux: bool = False) -> Any:
    """Return the value of ``f`` and the function that carries cotangents back through it.

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
    pullback : callable
        Takes a cotangent of the structure and shapes of ``value``, returns a tuple with one
        cotangent for each primal, in the forms that `grad` returns; may be called any number of
        times.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TracerError
        If a leaf of a primal is no float, or a cotangent has another structure or shape than the
        value.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> value, pullback = mixad.vjp(lambda x: x * x, np.asarray([1.0, 2.0]))
    >>> pullback(np.asarray([1.0, 10.0]))
    (array([ 2., 40.]),)
    """
    check_callable("vjp", f)
    value, aux, call = keep_call("vjp", f, primals, has_aux, is_reverse=True)

    @short_traceback
    def pullback(cotangent: Any) -> tuple[Any, ...]:
        return tuple(call.pull(cotangent))

    return (value, pullback, aux) if has_aux else (value, pullback)


@short_traceback
def value_and_vjp(f: Function, primals: Sequence[Any], cotangent: Any) -> tuple[Any, Any]:
    """Return the value of ``f`` and the cotangents of its primals, for a cotangent known up front.

    Where the result of ``f`` comes directly from a broadcast function, one kernel computes value
    and cotangents.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    primals : sequence
        Its arguments, a tuple or a list; every leaf a float or complex array or number.
    cotangent : array or pytree
        Of the structure and shapes of the value; a Python number stands for a constant array.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    cotangents : tuple
        One for each primal, in the forms that `grad` returns.

    Raises
    ------
    TracerError
        If ``primals`` is no sequence, a leaf of one is no float, or the cotangent has another
        structure or shape than the value.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> x = np.asarray([1.0, 2.0])
    >>> mixad.value_and_vjp(lambda x: x * x, (x,), np.asarray([1.0, 10.0]))
    (array([1., 4.]), (array([ 2., 40.]),))
    """
    check_callable("value_and_vjp", f)
    check_sequence("value_and_vjp", "primals", primals)
    asked = CallRequest(cotangent, of_number=False, with_value=True)
    positions = range(len(primals))

    def record() -> tuple[Any, Sequence[Any]]:
        name, kwargs = "value_and_vjp", dict[str, Any]()
        value, gradients, _ = _pulled_back(name, f, primals, positions, kwargs, False, asked)
        return value, gradients

    value, gradients = pull_at_once(f, primals, cotangent, record)
    return value, tuple(gradients)


def stop_gradient(tree: Any) -> Any:
    """Return the values of a pytree without their derivatives, for every transform around.

    Inside a kernel, its argument is a number, or a tuple, list, small array, named tuple or
    dataclass of them.

    Parameters
    ----------
    tree : array or pytree
        What is no array is returned as it is.

    Returns
    -------
    array or pytree
        Plain arrays, with the elements of now: copies, which may be written to.  Numbers of Python
        and of NumPy stay such.

    Examples
    --------
    >>> import mixad
    >>> mixad.grad(lambda x: x * mixad.stop_gradient(x))(3.0)
    3.0
    """
    try:  # not decorated: the parser knows it by its mark, which it takes of no wrapper
        return pytree.tree_map(_stopped, tree)
    except Exception as error:
        hide_frames(error)
        raise


def _stopped(leaf: Any) -> Any:
    """Return the present elements: what is recorded reads a traced array's later."""
    is_number = isinstance(leaf, Tracer) and is_numpy_number(leaf)
    array = without_derivative(leaf) if is_number else primal_value(leaf)
    check_no_tracer(type(array))  # JAX would differentiate it all the same
    return copy_array(array)


stop_gradient.__mixad_op__ = "stop_gradient"  # type: ignore[attr-defined]  # for the parser


_GRADIENT = CallRequest(1.0, of_number=True, with_value=False)
_VALUE_AND_GRADIENT = CallRequest(1.0, of_number=True, with_value=True)


def _pulled_back(
    name: str,
    f: Function,
    args: Sequence[Any],
    positions: Sequence[int],
    kwargs: dict[str, Any],
    has_aux: bool,
    asked: CallRequest,
) -> tuple[Any, list[Any], Any]:
    """Return value (None if not wanted), gradients and aux of a function."""
    with Level(name) as level:
        strand = open_strand(level, f, args, positions)
        if strand is None:
            inputs, outputs, aux = call_lifted(level, f, args, positions, kwargs, has_aux)
        else:
            outputs, aux = strand.record(f, kwargs, has_aux, asked)
    if strand is not None:
        if strand.is_known:
            return strand.run()
        inputs = strand.completed()
    if asked.of_number:
        check_scalar(name, outputs)
    warn_if_constant(f, outputs, level)
    seeds = [(leaf.origin, g) for leaf, g in outputs.seeds(asked.given, level)]
    around = outputs.around(level)
    if not asked.with_value:
        outputs.leaves.clear()  # then no kernel computes the value
    inputs.arguments.clear()
    cotangents = backward(level, seeds, inputs.nodes, of_number=asked.of_number)
    gradients = inputs.gradients(cotangents, around)
    aux = unwrap_aux(aux, level) if has_aux else None
    return outputs.values(level) if asked.with_value else None, gradients, aux
