"""The public decorator: a plain scalar function becomes a broadcast kernel with derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, overload

import array_api_compat
import numpy as np

from mixad.backends.arrays import library_of, scalar_type_of
from mixad.backends.execute import execute
from mixad.errors import KernelGradientError, KernelTypeError
from mixad.explain import Explanation, explain_kernel, kernel_source
from mixad.kernel.options import KernelOptions, Placement, Strategy
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS, DualChunk
from mixad.scalar.parse import Argument, FunctionSource, Parsed, parse, read_function
from mixad.scalar.promotion import NUMPY, STRICT, TORCH, Rules
from mixad.scalar.pushforward import pushforward
from mixad.scalar.types import BOOL, F64, I64, type_of_dtype
from mixad.tape.broadcast_node import apply_program

__all__ = ["BroadcastFunction", "broadcast"]

_RULES = {"torch": TORCH, "array_api_strict": STRICT}
_WEAK = {
    bool: Argument(BOOL, weak=False, kind="uniform"),
    int: Argument(I64, weak=True, kind="uniform"),
    float: Argument(F64, weak=True, kind="uniform"),
}


def describe(value: Any) -> Argument | None:
    """Return what the parser must know of a value; None for what is neither array nor number.

    Parameters
    ----------
    value : object
        An argument or a captured value: a Python or NumPy scalar, an array, a tracer.
    """
    weak = _WEAK.get(type(value))
    if weak is not None:
        return weak
    if isinstance(value, np.generic):
        scalar_type = type_of_dtype(value.dtype)
        return None if scalar_type is None else Argument(scalar_type, kind="uniform")
    if not hasattr(value, "dtype") or not hasattr(value, "shape"):
        return None
    return Argument(scalar_type_of(value.dtype), kind="lane", rank=len(value.shape))


class BroadcastFunction:
    """A scalar function that is applied at every element of broadcast arrays, as one kernel.

    Made by `broadcast`.  Called with arrays, it broadcasts them as NumPy does and returns arrays of
    their library, dtype rules and device; called with numbers only, it returns numbers.

    Parameters
    ----------
    function : callable
        A plain Python function of scalars.
    options : KernelOptions
        Overrides of the choices that mixad makes.
    """

    def __init__(self, function: Callable[..., Any], options: KernelOptions) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._source: FunctionSource = read_function(function)
        self._parsed: dict[object, Parsed] = {}

    def __repr__(self) -> str:
        return f"<mixad.broadcast {self._source.name}({', '.join(self._source.parameters)})>"

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Bind to an instance, as functions do: a decorated method sees its ``self``."""
        if instance is None:
            return self
        return BroadcastFunction(self._function.__get__(instance, owner), self._options)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function at every element.

        Parameters
        ----------
        *args, **kwargs
            Arrays, tracers and numbers, bound to the function's parameters as Python does.

        Returns
        -------
        array, number, or tuple of them
            One for each value that the function returns, of the broadcast shape.

        Raises
        ------
        KernelSyntaxError
            If the function holds what cannot be compiled; the message names the line.
        KernelTypeError
            If types do not fit, arrays do not broadcast, or are of several libraries.
        """
        parsed, values = self._bound(args, kwargs)
        outputs = apply_program(parsed.program, values, self._options)
        if all(type(v) in _WEAK or isinstance(v, np.generic) for v in values):
            outputs = tuple(_as_number(out, values) for out in outputs)
        return outputs[0] if parsed.single else tuple(outputs)

    def with_options(self, **changes: Any) -> BroadcastFunction:
        """Return the same function with other overrides.

        Parameters
        ----------
        **changes
            ``strategy``, ``placement``, ``chunk``, ``backend``, as in `broadcast`.

        Raises
        ------
        ValueError
            If a value is not one of those that `broadcast` takes.
        """
        return BroadcastFunction(self._function, _checked(replace(self._options, **changes)))

    def duals(self, *args: Any, wrt: Sequence[str] | str | None = None, **kwargs: Any) -> Any:
        """Compute values and partial derivatives at every element.

        Parameters
        ----------
        *args, **kwargs
            As for a call; arrays and numbers, no tracers.
        wrt : sequence of str, optional
            Names of parameters, at most 10; by default all that are arrays of floats.

        Returns
        -------
        DualChunk, or tuple of DualChunk
            For each value that the function returns: ``primal``, an array of the broadcast shape,
            and ``partials``, for each name an array of that shape.

        Raises
        ------
        KernelGradientError
            If ``wrt`` names no parameter, one that is not an array of floats, or more than 10.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def area(a, b):
        ...     return a * b
        >>> area.duals(np.array([2.0]), np.array([5.0])).partials["a"]
        array([5.])
        """
        parsed, values = self._bound(args, kwargs)
        indices = self._differentiated(parsed, [wrt] if isinstance(wrt, str) else wrt)
        dual = pushforward(parsed.program, indices)
        requests = tuple(OutputRequest(0, k) for k in range(len(dual.program.outputs)))
        arrays = execute((dual.program,), requests, values, self._options.backend)
        names = [parsed.program.params[i].name for i in indices]
        chunks = tuple(_dual_arrays(d, arrays, names) for d in dual.outputs)
        return chunks[0] if parsed.single else chunks

    def explain(self, *args: Any, wrt: Sequence[str] | None = None, **kwargs: Any) -> Explanation:
        """Tell what a call with these arguments runs, and why.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        wrt : sequence of str, optional
            Names of the parameters whose gradient is meant; by default all arrays of floats.

        Returns
        -------
        Explanation
            Fields to read, and a readable ``str``.
        """
        parsed, values = self._bound(args, kwargs)
        return explain_kernel(
            parsed.program, values, self._differentiated(parsed, wrt), self._options
        )

    def source(
        self, *args: Any, stage: str = "program", wrt: Sequence[str] | None = None, **kwargs: Any
    ) -> str:
        """Return what the function becomes for these arguments.

        Parameters
        ----------
        *args, **kwargs
            As for a call.
        stage : str
            ``"program"``, ``"pushforward"``, ``"pullback"``, or the code of the kernel that computes
            value and gradients: ``"llvm"``, ``"asm"``.
        wrt : sequence of str, optional
            Names of the parameters to differentiate with respect to; by default all arrays of
            floats.

        Raises
        ------
        ValueError
            If there is no such stage.
        """
        parsed, values = self._bound(args, kwargs)
        indices = self._differentiated(parsed, wrt)
        return kernel_source(parsed.program, values, indices, self._options, stage)

    # -- internals -------------------------------------------------------------------------------

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Parsed, tuple[Any, ...]]:
        """Return the program for these arguments and the values of its params."""
        values = self._source.bind(args, kwargs)
        snapshot = self._source.snapshot(describe)
        arguments = tuple(map(self._described, self._source.parameters, values))
        rules = _rules_for(values)
        key = (arguments, snapshot.key, rules.name)
        parsed = self._parsed.get(key)
        if parsed is None:
            parsed = self._parsed[key] = parse(self._source, arguments, snapshot, rules)
        return parsed, (*values, *snapshot.values(parsed))

    def _described(self, name: str, value: Any) -> Argument:
        argument = describe(value)
        if argument is None:
            raise KernelTypeError(
                f"{self._source.name}: argument {name!r} is a {type(value).__name__}; "
                "pass an array, a tracer or a number"
            )
        return argument

    def _differentiated(self, parsed: Parsed, wrt: Sequence[str] | None) -> list[int]:
        """Return the indices of the params that ``wrt`` names."""
        params = parsed.program.params
        active = {p.name: i for i, p in enumerate(params) if p.kind == "lane" and p.var.type.is_float}
        names = list(active) if wrt is None else list(wrt)
        unknown = [n for n in names if n not in active]
        if unknown:
            raise KernelGradientError(
                f"{self._source.name}: wrt names {', '.join(map(repr, unknown))}; arrays of floats are "
                f"{', '.join(map(repr, active)) or 'none'}"
            )
        return [active[n] for n in names]


def _rules_for(values: Sequence[Any]) -> Rules:
    """Return the promotion policy of the library that the arrays are of."""
    for value in values:
        if not isinstance(value, (bool, int, float, np.generic, np.ndarray)):
            return _RULES.get(library_of(getattr(value, "primal", value)).module, NUMPY)
    return NUMPY


def _as_number(result: Any, values: Sequence[Any]) -> Any:
    """Return a result of no axes as a Python number if all arguments are such, else NumPy's."""
    return result.item() if all(type(v) in _WEAK for v in values) else result[()]


def _dual_arrays(
    positions: DualChunk[int], arrays: Sequence[Any], names: Sequence[str]
) -> DualChunk[Any]:
    """Return a dual chunk of arrays from one of positions; static zeros become arrays of zeros."""
    primal = arrays[positions.primal]
    xp = array_api_compat.array_namespace(primal)
    partials = {
        name: arrays[positions.partials[slot]] if slot in positions.partials else xp.zeros_like(primal)
        for slot, name in enumerate(names)
    }
    return DualChunk(primal, partials)


def _checked(options: KernelOptions) -> KernelOptions:
    """Return the options if each is one that exists."""
    for name, value, choices in (
        ("strategy", options.strategy, ("auto", "forward")),
        ("placement", options.placement, ("auto", "forward", "reverse")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
    if options.chunk is not None and not 1 <= options.chunk <= MAX_PARTIALS:
        raise ValueError(f"chunk must be None or from 1 to {MAX_PARTIALS}, not {options.chunk}")
    return options


@overload
def broadcast(function: Callable[..., Any], /) -> BroadcastFunction: ...


@overload
def broadcast(
    *,
    strategy: Strategy = ...,
    placement: Placement = ...,
    chunk: int | None = ...,
    backend: str | None = ...,
) -> Callable[[Callable[..., Any]], BroadcastFunction]: ...


def broadcast(
    function: Callable[..., Any] | None = None,
    /,
    *,
    strategy: Strategy = "auto",
    placement: Placement = "auto",
    chunk: int | None = None,
    backend: str | None = None,
) -> Any:
    """Turn a scalar function into one that is applied at every element of broadcast arrays.

    The function is plain Python on numbers: ``if``, ``while``, ``for … in range``, early
    ``return``, calls to other functions.  It is compiled to one kernel that computes values, and to
    kernels that compute values with derivatives (Revels et al., "Dynamic Automatic Differentiation
    of GPU Broadcast Kernels", 2018).

    Parameters
    ----------
    function : callable
        A function of scalars that returns a scalar or a tuple of scalars.
    strategy : str
        How derivatives are computed: ``"forward"``, by chunks of dual numbers, or ``"auto"``.
    placement : str
        When partials are computed: ``"forward"``, with the primal, ``"reverse"``, in the backward
        pass, or ``"auto"``.
    chunk : int, optional
        Most inputs that one pass differentiates with respect to, from 1 to 10.
    backend : str, optional
        Name of a backend; by default the best one for the arrays of a call.

    Returns
    -------
    BroadcastFunction
        With the function's name, docstring, and ``__wrapped__``.

    Raises
    ------
    KernelSyntaxError
        If the function has no source, or it changed since it was imported.
    ValueError
        If an override is not one of those above.

    Examples
    --------
    >>> import numpy as np, mixad
    >>> @mixad.broadcast
    ... def clipped(x, low):
    ...     if x < low:
    ...         return low
    ...     return x
    >>> clipped(np.array([1.0, 2.0, 3.0]), 2.0)
    array([2., 2., 3.])
    """
    options = _checked(KernelOptions(strategy, placement, chunk, backend))
    if function is None:
        return lambda f: BroadcastFunction(f, options)
    return BroadcastFunction(function, options)
