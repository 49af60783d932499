"""The public decorator: a plain scalar function becomes a broadcast kernel with derivatives."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from types import CodeType
from typing import Any, TypeAlias, overload

import numpy as np

from mixad.backends.arrays import is_array, scalar_type_of
from mixad.backends.execute import Kernel, kernel_for
from mixad.errors import KernelGradientError, KernelSyntaxError, KernelTypeError
from mixad.explain import Explanation, explain_kernel, kernel_source
from mixad.kernel.options import KernelOptions, Placement, Strategy
from mixad.kernel.spec import OutputRequest
from mixad.scalar.dual import MAX_PARTIALS, DualChunk
from mixad.scalar.ir import ArrayType, Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.scalar.parse import (
    PYTHON_SCALARS,
    Argument,
    FunctionSource,
    Parsed,
    Snapshot,
    check_limits,
    parse,
    read_function,
)
from mixad.scalar.promotion import NUMPY, Rules
from mixad.scalar.pullback import even_chunks
from mixad.scalar.pushforward import pushforward
from mixad.scalar.types import I64, ScalarType
from mixad.tape.apply import apply_program
from mixad.tape.node import library_beside
from mixad.tape.tracer import Tracer, plain

__all__ = ["BroadcastFunction", "broadcast"]

Names: TypeAlias = Sequence[str] | str | None
"""Parameters of a function; one name stands for itself."""

_CHUNKS = range(1, MAX_PARTIALS + 1)
_OPTIONS = tuple(field.name for field in fields(KernelOptions))


def describe(value: Any) -> Argument | None:
    """Return what the parser must know of a value; None for what is neither array nor number.

    Parameters
    ----------
    value : object
        An argument or a captured value: a Python or NumPy scalar, an array, a tracer.

    Returns
    -------
    Argument or None
        Type, and whether it varies over the broadcast.
    """
    weak = PYTHON_SCALARS.get(type(value))
    if weak is not None:
        return weak
    if isinstance(value, Tracer) and value.cell.weak:
        return Argument(value.cell.type, weak=True, kind="uniform")
    if isinstance(value, np.generic):
        return Argument(scalar_type_of(value.dtype), kind="uniform")
    if not isinstance(value, Tracer) and not is_array(value):
        return None
    return Argument(scalar_type_of(value.dtype), kind="lane", rank=len(value.shape))


_MOST_COMPILED = 256
"""Combinations of types that one function remembers its programs for."""


def _kind(value: Any) -> object:
    """Return what the program for a value depends on: found and hashed in no time."""
    kind = type(value)
    if kind is np.ndarray:
        return value.dtype
    if kind in PYTHON_SCALARS:
        return kind
    if isinstance(value, Tracer):
        cell = value.cell
        return (cell.type, cell.weak, cell.library.name)
    return (kind, getattr(value, "dtype", None))


_DIRECT = frozenset({np.ndarray, *PYTHON_SCALARS})
"""Types of values that kernels take as they are."""


@dataclass(frozen=True, slots=True)
class _Compiled:
    """The program for some types of arguments and captures, and the kernel of its values."""

    parsed: Parsed
    kernel: Kernel


_COMPILED: dict[int, dict[object, _Compiled]] = {}


def _programs_of(code: CodeType) -> dict[object, _Compiled]:
    """Return the programs of some code, by what they depend on.

    They are shared by all functions with that code, such as the bound methods of a class or a
    lambda that is made again at every call: what tells these apart is in the keys.
    """
    programs = _COMPILED.get(id(code))
    if programs is None:
        programs = _COMPILED[id(code)] = {}
        weakref.finalize(code, _COMPILED.pop, id(code), None)
    return programs


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
        if hasattr(function, "__mixad_op__"):
            raise KernelSyntaxError(
                f"{function.__name__} has no source to compile, it is one op",
                hint=f"write mixad.broadcast(lambda x: {function.__name__}(x))",
            )
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._source: FunctionSource = read_function(function)
        self._compiled = _programs_of(self._source.function.__code__)

    def __repr__(self) -> str:
        return f"<mixad.broadcast {self._source.name}({', '.join(self._source.parameters)})>"

    def __reduce__(self) -> str:
        """Be pickled as functions are: by name."""
        return self._function.__qualname__

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
        compiled, values = self._bound(args, kwargs)
        parsed = compiled.parsed
        if _DIRECT.issuperset(map(type, values)):  # nothing to record, nothing to convert
            outputs = compiled.kernel(values, self._options.backend)
        else:
            outputs = apply_program(parsed.program, values, self._options)
        if parsed.positions:
            values = [v for i, v in enumerate(values) if i not in parsed.positions]
        if np.ndarray not in map(type, values) and all(map(_is_number, values)):
            outputs = tuple(_as_number(out, values) for out in outputs)
        return outputs[0] if parsed.single else tuple(outputs)

    def with_options(self, **changes: Any) -> BroadcastFunction:
        """Return the same function with other overrides.

        Parameters
        ----------
        **changes
            ``strategy``, ``placement``, ``chunk``, ``backend``, as in `broadcast`.

        Returns
        -------
        BroadcastFunction
            A new one.

        Raises
        ------
        TypeError
            If there is no such option.
        ValueError
            If a value is not one of those that `broadcast` takes.
        """
        unknown = [name for name in changes if name not in _OPTIONS]
        if unknown:
            raise TypeError(
                f"with_options takes {', '.join(_OPTIONS)}, not {', '.join(map(repr, unknown))}"
            )
        return BroadcastFunction(self._function, _checked(replace(self._options, **changes)))

    def duals(self, *args: Any, wrt: Names = None, **kwargs: Any) -> Any:
        """Compute values and partial derivatives at every element.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            Names of parameters, at most 10; by default all that are arrays of floats, or, if
            there are no arrays, all that are floats.
        **kwargs
            As for a call.

        Returns
        -------
        DualChunk, or tuple of DualChunk
            For each value that the function returns: ``primal``, an array of the broadcast shape,
            and ``partials``, for each name an array of that shape; none for a value that is no
            float.

        Raises
        ------
        KernelGradientError
            If ``wrt`` names what is no float, or there are more than 10 names.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def area(a, b):
        ...     return a * b
        >>> area.duals(np.array([2.0]), np.array([5.0])).partials["a"]
        array([5.])
        """
        parsed, values = self._parsed(args, kwargs)
        indices = self._differentiated(parsed, values, wrt)
        if len(indices) > MAX_PARTIALS:
            raise KernelGradientError(
                f"{self._source.name}: duals with respect to {len(indices)} inputs; a dual chunk "
                f"carries at most {MAX_PARTIALS} partials",
                hint="call duals several times, with some names in wrt each time",
            )
        warn_of_decided_results(
            parsed.program, tuple(indices), tuple(range(len(parsed.program.outputs)))
        )
        passes = even_chunks(len(indices), self._options.chunk or MAX_PARTIALS) or (range(0),)
        parts = [
            self._dual_pass(parsed.program, values, [indices[slot] for slot in slots])
            for slots in passes
        ]
        chunks = tuple(map(_joined, zip(*parts, strict=True)))
        return chunks[0] if parsed.single else chunks

    def explain(self, *args: Any, wrt: Names = None, **kwargs: Any) -> Explanation:
        """Tell what a call with these arguments runs, and why.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            Names of the parameters whose gradient is meant; by default all arrays of floats.
        **kwargs
            As for a call.

        Returns
        -------
        Explanation
            Fields to read, and a readable ``str``.
        """
        parsed, values = self._parsed(args, kwargs)
        indices = self._differentiated(parsed, values, wrt)
        return explain_kernel(parsed.program, tuple(map(plain, values)), indices, self._options)

    def source(
        self,
        *args: Any,
        stage: str = "program",
        wrt: Names = None,
        **kwargs: Any,
    ) -> str:
        """Return what the function becomes for these arguments.

        Parameters
        ----------
        *args
            As for a call.
        stage : str
            ``"program"``, ``"pushforward"``, ``"pullback"``, or the code of the kernel that
            computes value and gradients: ``"llvm"``, ``"asm"``.
        wrt : sequence of str or str, optional
            Names of the parameters to differentiate with respect to; by default all arrays of
            floats.
        **kwargs
            As for a call.

        Returns
        -------
        str
            Text for people.

        Raises
        ------
        ValueError
            If there is no such stage.
        """
        parsed, values = self._parsed(args, kwargs)
        indices = self._differentiated(parsed, values, wrt)
        return kernel_source(
            parsed.program, tuple(map(plain, values)), indices, self._options, stage
        )

    # -- internals -------------------------------------------------------------------------------

    def _dual_pass(
        self, program: Program, values: Sequence[Any], wrt: Sequence[int]
    ) -> list[DualChunk[Any]]:
        """Return the outputs with their partials with respect to some params, from one pass."""
        dual = pushforward(program, wrt)
        arrays = apply_program(dual.program, values, self._options)
        names = [program.params[i].name for i in wrt]
        return [_dual_arrays(output, arrays, names) for output in dual.outputs]

    def _parsed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Parsed, Any]:
        """Return the program for these arguments and the values of its params."""
        compiled, values = self._bound(args, kwargs)
        return compiled.parsed, values

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[_Compiled, Any]:
        """Return what the function is compiled to for these arguments, and all values it takes."""
        try:
            values = self._source.bind(args, kwargs)
        except TypeError as error:
            raise TypeError(f"{self._source.name}() {error}") from None
        try:
            snapshot = self._source.snapshot(describe)
        except KernelTypeError as error:
            raise KernelTypeError(
                f"{self._source.name}: a value from outside: {error.message}", hint=error.hint
            ) from None
        key = (*map(_kind, values), snapshot.key)
        compiled = self._compiled.get(key)
        if compiled is None:
            if len(self._compiled) >= _MOST_COMPILED:
                self._compiled.clear()
            compiled = self._compiled[key] = self._compile(values, snapshot)
        values = (*values, *snapshot.values(compiled.parsed))
        if compiled.parsed.limits:
            check_limits(compiled.parsed, values)
        if compiled.parsed.positions:
            values = _in_one_library(values, compiled.parsed.positions)
        return compiled, values

    def _compile(self, values: Sequence[Any], snapshot: Snapshot) -> _Compiled:
        arguments = tuple(map(self._described, self._source.parameters, values))
        parsed = parse(self._source, arguments, snapshot, _rules_for(values))
        requests = tuple(OutputRequest(0, k) for k in range(len(parsed.program.outputs)))
        return _Compiled(parsed, kernel_for((parsed.program,), requests))

    def _described(self, name: str, value: Any) -> Argument:
        try:
            argument = describe(value)
        except KernelTypeError as error:
            raise KernelTypeError(
                f"{self._source.name}: argument {name!r}: {error.message}", hint=error.hint
            ) from None
        if argument is None:
            raise KernelTypeError(
                f"{self._source.name}: argument {name!r} is a {type(value).__name__}",
                hint="pass an array, a tracer or a number",
            )
        return argument

    def _differentiated(self, parsed: Parsed, values: Sequence[Any], wrt: Names) -> list[int]:
        """Return the indices of the params that ``wrt`` names."""
        params = parsed.program.params
        floats = {p.name: i for i, p in enumerate(params) if _is_float(p.var.type, values[i])}
        if wrt is None:
            own = [n for n in self._source.parameters if n in floats]
            arrays = [n for n in own if params[floats[n]].kind == "lane"]
            return [floats[n] for n in arrays or own]
        names = [wrt] if isinstance(wrt, str) else list(wrt)
        unknown = [n for n in names if n not in floats]
        if unknown:
            raise KernelGradientError(
                f"{self._source.name}: wrt names {', '.join(map(repr, unknown))}; floats are "
                f"{', '.join(map(repr, floats)) or 'none'}"
            )
        return [floats[n] for n in dict.fromkeys(names)]


def _is_float(kind: ScalarType | ArrayType, value: Any) -> bool:
    """Whether a param can be active: it is of floats, and no whole number taken as one."""
    return isinstance(kind, ScalarType) and kind.is_float and type(value) is not int


def _rules_for(values: Sequence[Any]) -> Rules:
    """Return the promotion policy of the library that the arrays are of."""
    for value in values:
        if not isinstance(value, (bool, int, float, np.generic, np.ndarray)):
            return library_beside(value).rules
    return NUMPY


_NUMPY = (np.ndarray, np.generic)


def _in_one_library(values: Sequence[Any], positions: frozenset[int]) -> tuple[Any, ...]:
    """Return values with the positions in tuples as arrays of the library of the others."""
    arrays = (v for v in values if hasattr(v, "shape") and not isinstance(v, _NUMPY))
    beside = next((v for v in arrays if not isinstance(v, Tracer) or not v.cell.weak), None)
    if beside is None or library_beside(beside).xp is np:
        return tuple(values)
    placed = library_beside(beside).asarray
    return tuple(
        placed(v, I64, beside.device) if i in positions else v for i, v in enumerate(values)
    )


def _is_number(value: Any) -> bool:
    return type(value) in PYTHON_SCALARS or isinstance(value, np.generic)


def _as_number(result: Any, values: Sequence[Any]) -> Any:
    """Return a result of no axes as a Python number if all arguments are such, else NumPy's."""
    return result.item() if all(type(v) in PYTHON_SCALARS for v in values) else result[()]


def _dual_arrays(
    positions: DualChunk[int], arrays: Sequence[Any], names: Sequence[str]
) -> DualChunk[Any]:
    """Return a dual chunk of arrays from one of positions; static zeros become arrays of zeros."""
    primal = arrays[positions.primal]
    values = plain(primal)
    xp = library_beside(primal).xp
    if not xp.isdtype(values.dtype, "real floating"):
        return DualChunk(primal)
    partials: dict[Hashable, Any] = {
        name: arrays[at]
        if (at := positions.partials.get(slot)) is not None
        else xp.zeros_like(values)
        for slot, name in enumerate(names)
    }
    return DualChunk(primal, partials)


def _joined(parts: Sequence[DualChunk[Any]]) -> DualChunk[Any]:
    """Return the dual chunks that several passes give for one output as one."""
    return DualChunk(parts[0].primal, {n: p for part in parts for n, p in part.partials.items()})


def _checked(options: KernelOptions) -> KernelOptions:
    """Return the options if each is one that exists."""
    for name, value, choices in (
        ("strategy", options.strategy, ("auto", "forward")),
        ("placement", options.placement, ("auto", "forward", "reverse")),
    ):
        if value not in choices:
            listed = ", ".join(map(repr, choices))
            raise ValueError(f"{name} must be one of {listed}, not {value!r}")
    chunk = options.chunk
    if chunk is not None and not (isinstance(chunk, int) and chunk in _CHUNKS):
        raise ValueError(
            f"chunk must be None or a whole number from 1 to {MAX_PARTIALS}, not {chunk!r}"
        )
    if not isinstance(options.backend, str | None):
        raise ValueError(f"backend must be None or the name of one, not {options.backend!r}")
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
