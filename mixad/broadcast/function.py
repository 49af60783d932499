"""The public decorator: a plain scalar function becomes a broadcast kernel with derivatives."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

import numpy as np

from mixad.backends.arrays import describe_array
from mixad.backends.integrations import LOADED, follower, load_integrations
from mixad.backends.numbers import are_numbers
from mixad.broadcast.duals import dual_chunks
from mixad.broadcast.graph_calls import register_bound, register_kernel
from mixad.broadcast.results import (
    as_numbers,
    call_kernel,
    made_whole,
    stores_whole,
    user_result,
    with_complex,
)
from mixad.broadcast.with_respect_to import Names, active_leaves
from mixad.call.signature import AnyArray, NamedFields
from mixad.call.specialise import PreparedCall, Specialiser
from mixad.errors import BackendError, KernelSyntaxError
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions, Loops, Placement, Strategy
from mixad.scalar.ir import Program
from mixad.scalar.parse import PYTHON_SCALARS, Parsed
from mixad.scalar.parse.by_value import PickledFunction, by_value, helpers_by_value
from mixad.scalar.parse.info import op_name, rule_of
from mixad.scalar.parse.unsupported_calls import is_transform
from mixad.tape.apply import apply_call
from mixad.tape.constant import unwrapped
from mixad.tape.kernel_call import KernelCall
from mixad.tape.operations import Operation
from mixad.tape.strand import Strand
from mixad.tape.tracer import Tracer, primal_value
from mixad.tracebacks import hide_frames, short_traceback

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mixad.broadcast.explain import Explanation
    from mixad.broadcast.kinks import KinkReport
    from mixad.broadcast.trace import Trace
    from mixad.export import Export

__all__ = ["BroadcastFunction", "broadcast"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
A = TypeVar("A", bound=AnyArray)
Number: TypeAlias = "complex | np.generic"
NumPys: TypeAlias = "NDArray[Any] | complex | np.generic"

_OPTIONS = tuple(field.name for field in fields(KernelOptions))

_DIRECT = frozenset({np.ndarray, *PYTHON_SCALARS})
"""Types of values that kernels take unchanged."""


class BroadcastFunction(PickledFunction, Generic[R_co]):
    """A scalar function that is applied at every element of broadcast arrays, as one kernel.

    Made by `broadcast`.  Called with arrays, it broadcasts them as NumPy does and returns arrays of
    their library, dtype rules and device; called with numbers only, it returns numbers.  Called
    inside a function that `mixad.grad` or another transform differentiates, it is recorded as one
    node.  ``duals`` computes partial derivatives by themselves, ``explain`` and ``source`` show
    what runs, ``trace`` what it computes at one element, ``kinks`` where derivatives jump, and
    ``with_options`` changes how.

    Parameters
    ----------
    function : callable
        A plain Python function of scalars.
    options : KernelOptions, optional
        Overrides of the choices that mixad makes.
    """

    @short_traceback
    def __init__(
        self, function: Callable[..., Any], options: KernelOptions = DEFAULT_OPTIONS
    ) -> None:
        _check_is_of_elements(function)
        functools.update_wrapper(self, function)
        self._function = function
        self._options = options
        self._specialiser = Specialiser(
            function, implicit=options.loops == "implicit", signature=options.signature
        )
        self._source = self._specialiser.source
        self._needs_instance = self._source.needs_instance
        self._number = register_kernel(self)
        self._helpers: tuple[Any, ...] = ()
        load_integrations()

    def __repr__(self) -> str:
        return f"<mixad.broadcast {self._source.name}({', '.join(self._source.parameters)})>"

    def _reduce(self) -> tuple[Any, ...]:
        function = self._function
        if type(function) is MethodType and self._is_of_class(function):
            return getattr, (function.__self__, function.__name__)
        helpers = [source.function for source in self._source.snapshot().sources]
        return _unpickle, (by_value(function), self._options, helpers_by_value(helpers))

    def _is_of_class(self, method: MethodType) -> bool:
        """Whether a method's object has this kernel under its name."""
        found = getattr(type(method.__self__), method.__name__, None)
        return (
            isinstance(found, BroadcastFunction)
            and found._function is method.__func__
            and found._options == self._options
        )

    def __get__(self, instance: object, owner: type | None = None) -> BroadcastFunction[R_co]:
        """Bind to an instance, as functions do: a decorated method sees its ``self``."""
        if instance is None:
            return self
        function = self._function.__get__(instance, owner)
        bound: BroadcastFunction[R_co] = BroadcastFunction(function, self._options)
        bound._number = register_bound(bound, self._number, instance)
        return bound

    @property
    def __mixad_function__(self) -> Callable[..., Any]:
        """The decorated function, for the parser: a kernel that calls this compiles that."""
        return self._function

    # NumPy's arrays have a dtype in their type: which one comes out, its rules say at run time.
    @overload
    def __call__(self, x: Number, /, *args: Number, **kwargs: Number) -> Any: ...
    @overload
    def __call__(
        self: BroadcastFunction[complex], x: NumPys, /, *args: NumPys, **kwargs: NumPys
    ) -> NDArray[Any]: ...
    @overload
    def __call__(
        self: BroadcastFunction[complex],
        x: A | complex,
        /,
        *args: A | complex,
        **kwargs: A | complex,
    ) -> A: ...
    @overload
    def __call__(self: BroadcastFunction[NamedFields], /, *args: Any, **kwargs: Any) -> Any: ...
    @overload
    def __call__(
        self: BroadcastFunction[tuple[complex, ...]], x: NumPys, /, *args: NumPys, **kwargs: NumPys
    ) -> tuple[NDArray[Any], ...]: ...
    @overload
    def __call__(
        self: BroadcastFunction[tuple[complex, ...]],
        x: A | complex,
        /,
        *args: A | complex,
        **kwargs: A | complex,
    ) -> tuple[A, ...]: ...
    @overload
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Apply the function at every element.

        Parameters
        ----------
        *args, **kwargs
            Arrays, tracers and numbers, bound to the function's parameters as Python does, and
            named tuples and dataclasses of these.  With a signature, the last axes of an array
            may belong to one element.

        Returns
        -------
        array, number, or tuple or structure of them
            One for each value that the function returns, of the broadcast shape, then the axes of
            its core, if it has one.

        Raises
        ------
        KernelSyntaxError
            If the function holds what cannot be compiled; the message names the line.
        KernelTypeError
            If types do not fit, arrays do not broadcast, or are of several libraries.
        """
        try:
            for integration in LOADED:
                if integration.is_tracing():
                    return integration.trace(self._number, args, kwargs)
            if self._needs_instance and self._is_through_class(args):
                return self.__get__(args[0])(*args[1:], **kwargs)
            call, values = self._specialiser.bind_call(args, kwargs)
            run = call.run
            if run is not None:
                try:
                    outputs = run(values)
                except (IndexError, BackendError):  # it says where, or asks another backend
                    call.run = None
                    outputs = call.found.call.kernel(values, self._options.backend)
                return outputs[0] if call.finish is None else call.finish(values, outputs)
            strand = _strand_of(call, values)
            if strand is None:
                return self._launch_or_record(call, values)
            return self._record(strand, call, values)
        except Exception as error:
            hide_frames(error)
            raise

    def _launch_or_record(self, call: PreparedCall, values: Sequence[Any]) -> Any:
        """Launch a kernel, or record it as a node."""
        found, parsed = call.found, call.found.parsed
        if found.whole is not None and stores_whole(parsed, values, self._options):
            return made_whole(found, values, self._options)
        if _DIRECT.issuperset(map(type, values)):  # nothing to record, nothing to convert
            outputs = found.call.kernel(values, self._options.backend)
        else:
            outputs = call_kernel(found.call, values, self._options)
        if call.guard is not None:
            self._prepare(call, values)
        return _make_result(parsed, values, outputs)

    def _record(self, strand: Strand, call: PreparedCall, values: Sequence[Any]) -> Any:
        """Record a call in a strand."""
        parsed, found = call.found.parsed, strand.applied(self._operation(call), values)
        return user_result(parsed, found if type(found) is tuple else (found,))

    def _operation(self, call: PreparedCall) -> Operation:
        """Return the operation of a call in a strand; it holds nothing of the user's."""
        if call.operation is None:
            kernel_call, options = call.found.call, self._options
            compute = partial(_outputs, kernel_call, options)
            call.operation = kernel_call.operations.setdefault(options, Operation(compute))
        return call.operation

    def _prepare(self, call: PreparedCall, values: Sequence[Any]) -> None:
        """Let calls with such arguments launch the kernel at once, without derivative or audit.

        If a launch fails, the kernel repeats it: it knows other backends.
        """
        if not all(type(v) in PYTHON_SCALARS or describe_array(v) is not None for v in values):
            return
        is_numpys = _DIRECT.issuperset(map(type, values))
        if are_numbers(values) or not (is_numpys or follower(values) is None):
            return
        prepared = call.found.call.kernel.prepare_launch(values, self._options.backend)
        if prepared.audit is None:
            parsed = call.found.parsed
            call.finish = None if _is_output(parsed) else partial(_make_result, parsed)
            call.run = prepared.run

    @short_traceback
    def with_options(self, **changes: Any) -> BroadcastFunction[R_co]:
        """Return the same function with other overrides.

        Parameters
        ----------
        **changes
            ``strategy``, ``placement``, ``chunk``, ``backend``, ``loops``, ``signature``, as
            in `broadcast`.

        Returns
        -------
        BroadcastFunction
            A new one.

        Raises
        ------
        TypeError
            If there is no such option.
        ConfigurationError
            If a value is not one of those that `broadcast` takes; it is a ValueError.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> product = mixad.broadcast(lambda x, y: x * y)
        >>> product.with_options(chunk=1).explain(np.ones(3), np.ones(3)).chunks
        (1, 1)
        """
        unknown = [name for name in changes if name not in _OPTIONS]
        if unknown:
            raise TypeError(
                f"with_options takes {', '.join(_OPTIONS)}, not "
                f"{', '.join(map(repr, unknown))}: leave it out"
            )
        return BroadcastFunction(self._function, replace(self._options, **changes))

    @short_traceback
    def duals(self, *args: Any, wrt: Names = None, **kwargs: Any) -> Any:
        """Compute values and partial derivatives at every element.

        These are the dual numbers themselves, before any cotangent: use them where the Jacobian's
        blocks are wanted (error propagation, Newton's method per element), `mixad.grad` where a
        gradient is.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            Names of parameters, at most 10; by default all that are arrays of floats, or, if
            there are no arrays, all that are floats.  Fields of structures are named with dots,
            ``"state.x"``; the structure's name stands for all of them.
        **kwargs
            As for a call.

        Returns
        -------
        DualChunk, or tuple or structure of DualChunk
            For each value that the function returns: ``primal``, an array of the broadcast shape,
            and ``partials``, for each name an array of that shape; none for a value that is no
            float.  With a signature the axes of the result's core come after these, and those of
            the argument's after them.

        Raises
        ------
        KernelGradientError
            If ``wrt`` names what is no float, there are more than 10 names, or a result or a name
            is complex (a part of it, ``"z.real"``, is not).

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def area(a, b):
        ...     return a * b
        >>> area.duals(np.array([2.0]), np.array([5.0])).partials["a"]
        array([5.])
        """
        return dual_chunks(*self._parse(args, kwargs), wrt, self._options)

    @short_traceback
    def jacobian(self, *args: Any, wrt: Names = None, **kwargs: Any) -> Any:
        """Compute the Jacobian at every element: a block of all partial derivatives.

        One kernel writes the blocks where they belong, by dual numbers or in reverse, as
        ``strategy`` says; any number of inputs is taken.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            Names of parameters; by default all that are arrays of floats, or, if there are no
            arrays, all that are floats.
        **kwargs
            As for a call.

        Returns
        -------
        array
            Of the broadcast shape, then an axis of the values that the function returns, if it
            returns several, and an axis of ``wrt``; vectors and structures count by their numbers.

        Raises
        ------
        KernelGradientError
            If ``wrt`` names what is no float or nothing at all, the values are not floats of one
            type, or a value or a name is complex (a part of it, ``"z.real"``, is not).

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def polar(r, angle):
        ...     return r * np.cos(angle), r * np.sin(angle)
        >>> polar.jacobian(np.asarray([1.0, 2.0]), np.asarray([0.0, 0.0]))
        array([[[ 1., -0.],
                [ 0.,  1.]],
        <BLANKLINE>
               [[ 1., -0.],
                [ 0.,  2.]]])
        """
        from mixad.broadcast.blocks import (
            value_and_jacobian,  # as below: what calls need not is not imported
        )

        parsed, values = self._parse(args, kwargs)
        return value_and_jacobian(parsed, values, wrt, self._options, with_primals=False)[1]

    @short_traceback
    def value_and_jacobian(self, *args: Any, wrt: Names = None, **kwargs: Any) -> tuple[Any, Any]:
        """Compute values and the Jacobian at every element, by one kernel.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            As for `jacobian`.
        **kwargs
            As for a call.

        Returns
        -------
        value : array, or tuple of array
            For each value that the function returns, of the broadcast shape.
        jacobian : array
            As from `jacobian`.

        Raises
        ------
        KernelGradientError
            As for `jacobian`.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> product = mixad.broadcast(lambda x, y: x * y)
        >>> product.value_and_jacobian(np.asarray([2.0, 3.0]), 5.0, wrt=("x", "y"))
        (array([10., 15.]), array([[5., 2.],
               [5., 3.]]))
        """
        from mixad.broadcast.blocks import value_and_jacobian

        return value_and_jacobian(*self._parse(args, kwargs), wrt, self._options)

    @short_traceback
    def explain(self, *args: Any, wrt: Names = None, **kwargs: Any) -> Explanation:
        """Tell what computes values and gradients of a call with these arguments, and why.

        The kernel is that of `mixad.value_and_vjp`.  It is compiled if it has not been, not run.
        `mixad.grad` makes no value, and may take the other strategy where both cost about the same.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            Names of the parameters whose gradient is meant; by default all that are arrays of
            floats, or, if there are no arrays, all that are floats.
        **kwargs
            As for a call.

        Returns
        -------
        Explanation
            Fields to read, and a readable ``str``: backend and why it, strategy, chunks, placement,
            static zeros, shape and loops, bytes, flops, the key of the kernel, whether it is there.

        Raises
        ------
        KernelGradientError
            If ``wrt`` names what is no float.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def area(a, b):
        ...     return a * b
        >>> print(area.explain(np.ones((1000, 500)), np.ones(500)))
        backend:      cpu (made for numpy, compiles)
        strategy:     forward, partials per pass: 2
        placement:    reverse; reverse where the value is needed first
        static zeros: none
        shape:        (1000, 500), loops over 1000 x 500
        moves:        8.0 MB read, 8.0 MB written
        floor:        16.0 MB at the bandwidth of a copy
        arithmetic:   1.5 Mflop, 0.094 per byte
        kernel:       ...
        """
        from mixad.broadcast.explain import explain_call

        return explain_call(*self._program_of_wrt(args, kwargs, wrt), self._options)

    @short_traceback
    def kinks(
        self, *args: Any, wrt: Names = None, tolerance: float | None = None, **kwargs: Any
    ) -> KinkReport:
        """Tell which elements of a call come near a kink, where the derivative jumps.

        One kernel computes, beside the function, how far each element stays from the boundaries of
        branches, from ties of `abs`, `min` and `max`, from jumps of `floor` and the like, and from
        another number of iterations of a loop.

        Parameters
        ----------
        *args
            As for a call.
        wrt : sequence of str or str, optional
            Names of the parameters that may move: a kink counts if what is compared depends on one
            of them; by default all that are arrays of floats, or, if there are no arrays, all that
            are floats.
        tolerance : float, optional
            What counts as near: relative to the larger number where two are compared, absolute
            beside the constant 0.  By default the square root of the precision of the dtype, 1.5e-8
            for float64.
        **kwargs
            As for a call.

        Returns
        -------
        KinkReport
            Fields to read, and a readable ``str``: for each line with elements near its kink, how
            many they are, which, and how near.  It is false if there are none.

        Raises
        ------
        KernelGradientError
            If ``wrt`` names what is no float.
        ConfigurationError
            If ``tolerance`` is negative or no number; it is a ValueError.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def hinge(x):
        ...     return max(x, 0.0)
        >>> print(hinge.kinks(np.array([-1.0, 1e-9, 2.0])))
        1 of 3 elements are near one of 1 kink in hinge:
          line 3: return max(x, 0.0)
            tie: 1 at [1], nearest 1.0e-09
        """
        from mixad.broadcast.kinks import kink_report

        info = self._source.info
        first = info.text.line(info.node)
        return kink_report(
            *self._program_of_wrt(args, kwargs, wrt), self._options, tolerance, first
        )

    @short_traceback
    def trace(
        self, *args: Any, at: int | tuple[int, ...] = (), wrt: Names = None, **kwargs: Any
    ) -> Trace:
        """Show what is computed at one element: each equation's value and partials.

        The interpreter runs the function at that element: the branches that it takes, each
        iteration of its loops.  It shows what a ``print`` in the function would, and takes less
        than a tenth of a millisecond for each equation.

        Parameters
        ----------
        *args
            As for a call.
        at : int or tuple of int, optional
            Which element of the broadcast shape; negative indices count from the end.  May be left
            out where all arguments are numbers.
        wrt : sequence of str or str, optional
            Names of parameters, at most 10; by default all that are arrays of floats, or, if there
            are no arrays, all that are floats.  Complex numbers have a partial for each part.
        **kwargs
            As for a call.

        Returns
        -------
        Trace
            Fields to read, and a readable ``str``: the user's lines in the order in which they are
            passed, below each its equations.  Variables without a name have the numbers that
            ``source`` shows.

        Raises
        ------
        KernelIndexError
            If there is no element ``at``, or the function reads outside an array there.
        KernelGradientError
            If ``wrt`` names what is no float, or more than 10 inputs.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def halved(x):
        ...     while x > 1.0:
        ...         x = x * 0.5
        ...     return x * x
        >>> print(halved.trace(np.array([0.5, 1.5]), at=1))
        halved at [1]          value  d/dx
          x                      1.5     1
        line 3: while x > 1.0:  # iteration 1
          x                      1.5     1
          %2 = gt x, 1.0        True
        line 4: x = x * 0.5  # iteration 1
          %3 = mul x, 0.5       0.75   0.5
        line 3: while x > 1.0:  # iteration 2
          x                     0.75   0.5
          %2 = gt x, 1.0       False
        line 3: while x > 1.0:
          x after the loop      0.75   0.5
        line 5: return x * x
          %5 = mul x, x       0.5625  0.75
        returns
          [0]                 0.5625  0.75
        """
        from mixad.broadcast.trace import trace_call

        info = self._source.info
        first = info.text.line(info.node)
        return trace_call(*self._program_of_wrt(args, kwargs, wrt), at, first)

    @short_traceback
    def source(
        self,
        *args: Any,
        stage: str = "program",
        wrt: Names = None,
        **kwargs: Any,
    ) -> str:
        """Return the text of one stage from the function to the kernel for value and gradients.

        Parameters
        ----------
        *args
            As for a call.
        stage : str
            ``"program"``: the function as typed equations.  ``"pushforward"``: the same on dual
            chunks, values and partials.  ``"pullback"``: what contracts partials with cotangents,
            one program per pass.  ``"llvm"``: what the backend is given to compile, LLVM IR on the
            CPU; the backend ``"reference"`` shows its array calls.  ``"asm"``: what came of it, if
            the backend compiles.  ``"cuda"``: the CUDA C++ that a device would be given, whether
            or not there is one.  ``"ptx"`` and ``"sass"``: what NVRTC makes of it, NVIDIA's
            assembler and the machine's instructions, for the device of the arguments, or for
            sm_90 where they are on none.
        wrt : sequence of str or str, optional
            Names of the parameters to differentiate with respect to; by default all that are
            arrays of floats, or, if there are no arrays, all that are floats.
        **kwargs
            As for a call.

        Returns
        -------
        str
            Text for people, with the function's own lines as comments.

        Raises
        ------
        ValueError
            If there is no such stage, or the backend does not have it.
        BackendError
            If NVRTC, or what shows its machine code, is not installed.
        KernelGradientError
            If ``wrt`` names what is no float.

        Examples
        --------
        >>> import numpy as np, mixad
        >>> @mixad.broadcast
        ... def area(a, b):
        ...     return a * b
        >>> print(area.source(np.ones(3), np.ones(3), stage="pullback", wrt="a"))
        # returns output 0, gradient of a
        program area(%0 a: f64 lane, %1 b: f64 lane, %3 cotangent 0: f64 lane)
          # 3: return a * b
          %2:f64 = mul %0, %1
          %4:f64 = mul_zeros %3, %1
          return %2, %4
        """
        from mixad.broadcast.stages import stage_text

        return stage_text(*self._program_of_wrt(args, kwargs, wrt), self._options, stage)

    @short_traceback
    def export(
        self,
        folder: str | os.PathLike[str],
        *args: Any,
        wrt: Names = None,
        what: str | Sequence[str] = ("value", "pushforward", "pullback"),
        target: str = "c",
        cpu: str = "native",
        dynamic: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> Export:
        """Write the kernel as files that a program in another language calls, without Python.

        For C there are an object file, a header, a C file that binds extents and strides, and a
        shared library where a C compiler is installed.  A program that calls them computes the same
        bits as mixad does here, in the thread that calls, or in threads of its own, which share out
        tiles.

        Parameters
        ----------
        folder : str or path
            Where the files go: a folder that is not there, is empty, or has an export and nothing
            else, which is replaced.  Either all files are written or none.
        *args
            As for a call: arrays that stand for all of their dtypes, number of axes and pattern of
            broadcasting.
        wrt : sequence of str or str, optional
            Names of the parameters to differentiate with respect to; by default all that are arrays
            of floats, or, if there are no arrays, all that are floats.
        what : sequence of str or str
            Some of ``"value"``; ``"pushforward"``: values and tangents; ``"pullback"``: values and
            gradients for cotangents, those of arguments that broadcast summed to their shapes.
        target : str
            ``"c"``; or ``"cuda"``: CUDA C++ for nvcc or NVRTC, and a host function in C.
        cpu : str
            What to compile for: ``"native"``, this machine; ``"x86-64-v2"``, ``"x86-64-v3"`` or
            ``"x86-64-v4"`` on x86-64, ``"generic"`` elsewhere.
        dynamic : bool
            Whether extents and strides are arguments; False: they are those of the example, and
            there is one kernel instead of one for each way to sum.
        name : str, optional
            What functions and files are called, such as ``"cell"`` for ``cell_value``; by default
            the function's own name, or one like it that C has.
        **kwargs
            As for a call.

        Returns
        -------
        Export
            Fields to read: the folder, its files, the functions, the command that links them.

        Raises
        ------
        ConfigurationError
            If an option has no such value, or the folder has other files or cannot be made; it is a
            ValueError.
        KernelTypeError
            If the function captures an array, has floats of 16 bits, or computes with Python
            integers that may be too large.
        KernelGradientError
            If there is nothing to differentiate with respect to.
        BackendError
            If the CPU is not known, or the linker fails.

        Examples
        --------
        >>> import tempfile, numpy as np, mixad
        >>> @mixad.broadcast
        ... def area(a, b):
        ...     return a * b
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     made = area.export(folder, np.ones((2, 3)), np.ones(3), target="cuda")
        >>> made.files
        ('area.cu', 'area.h', 'area.c', 'export.json')
        """
        from mixad.export import Call, export_call

        parsed, values = self._parse(args, kwargs)
        wants = {what} if isinstance(what, str) else set(what)
        leaves = active_leaves(parsed, values, wrt) if wants != {"value"} else ()
        active = tuple(i for leaf in leaves for i in leaf.params)
        plain_values = tuple(map(primal_value, values))
        call = Call(self._source.name, parsed, plain_values, active, self._options)
        return export_call(call, folder, what, target, cpu, dynamic=dynamic, name=name)

    # -- internals -------------------------------------------------------------------------------

    def _program_of_wrt(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], wrt: Names
    ) -> tuple[Program, tuple[Any, ...], list[int]]:
        """Return the program, plain values of its params, and which of these ``wrt`` names."""
        parsed, values = self._parse(args, kwargs)
        indices = [i for leaf in active_leaves(parsed, values, wrt) for i in leaf.params]
        return parsed.program, tuple(map(primal_value, values)), indices

    def _known_call(self, args: tuple[Any, ...], *, learn: bool = False) -> PreparedCall | None:
        """Return what is known of a call of plain arrays that gives one; it may be learned now.

        None where arguments or captures are more than that, or nothing is known.
        """
        call = self._specialiser.recall(args)
        if call is None and learn and not self._needs_instance:
            self._specialiser.bind_call(args, {})
            call = self._specialiser.recall(args)
        return call if call is not None and _is_output(call.found.parsed) else None

    def _is_through_class(self, args: tuple[Any, ...]) -> bool:
        """Whether a method is called as ``A.f(a, x)``, or by a property."""
        return bool(args) and self._source.takes_instance(args[0])

    def _parse(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Parsed, Any]:
        """Return the program for these arguments and the values of its params."""
        if self._needs_instance and self._is_through_class(args):
            return self.__get__(args[0])._parse(args[1:], kwargs)
        call, values = self._specialiser.bind_call(args, kwargs)
        return call.found.parsed, tuple(map(unwrapped, values))


def _strand_of(call: PreparedCall, values: Sequence[Any]) -> Strand | None:
    """Return the strand of a traced value, if it has one that records such calls."""
    parsed = call.found.parsed
    if parsed.scalars or parsed.complex_outputs:
        return None
    strands = (value.strand for value in values if isinstance(value, Tracer))
    return next((strand for strand in strands if strand is not None), None)


def _outputs(call: KernelCall, options: KernelOptions, *values: Any) -> Any:
    """Return the output of a call, or a tuple of several."""
    outputs = apply_call(call, values, options)
    return outputs if len(outputs) > 1 else outputs[0]


def _is_output(parsed: Parsed) -> bool:
    """Whether a function returns the only output of its program unchanged."""
    return parsed.single and not (parsed.scalars or parsed.complex_outputs or parsed.returned)


def _make_result(parsed: Parsed, values: Sequence[Any], outputs: tuple[Any, ...]) -> Any:
    """Return the function's result, made of the outputs of its program."""
    outputs = as_numbers(parsed, values, outputs)
    if parsed.complex_outputs:
        outputs = with_complex(outputs, parsed.complex_outputs)
    return user_result(parsed, outputs)


def _unpickle(function: Any, options: KernelOptions, helpers: Any) -> BroadcastFunction[Any]:
    """Return a kernel, which holds its helpers: their text is known while they live."""
    kernel: BroadcastFunction[Any] = BroadcastFunction(function, options)
    kernel._helpers = helpers
    return kernel


def _check_is_of_elements(function: Callable[..., Any]) -> None:
    """Raise if a function of mixad is no source of a kernel."""
    if op_name(function) is not None:
        raise KernelSyntaxError(
            f"{function.__name__} has no source to compile, it is one op",
            hint=f"write mixad.broadcast(lambda x: {function.__name__}(x))",
        )
    if _is_of_arrays(function):
        name = getattr(function, "__name__", type(function).__name__)
        raise KernelSyntaxError(
            f"mixad.broadcast: {name} is a transform of mixad, or made by one, which "
            "works on arrays; a kernel is made of a function of numbers",
            hint="broadcast the function itself and differentiate the result, "
            "mixad.grad(lambda x: mixad.broadcast(f)(x).sum()), or write "
            "mixad.broadcast(f).duals(x) for the derivative at every element",
        )


def _is_of_arrays(function: Any) -> bool:
    """Whether a callable is one of mixad's own, or made by one, and no kernel."""
    if isinstance(function, FunctionType):
        return is_transform(function)
    made_by = type(function).__module__.startswith("mixad.")
    return made_by and not isinstance(function, BroadcastFunction) and rule_of(function) is None


@overload
def broadcast(function: Callable[..., R], /) -> BroadcastFunction[R]: ...


@overload
def broadcast(
    *,
    strategy: Strategy = ...,
    placement: Placement = ...,
    chunk: int | None = ...,
    backend: str | None = ...,
    loops: Loops = ...,
    signature: str | None = ...,
) -> Callable[[Callable[..., R]], BroadcastFunction[R]]: ...


@short_traceback
def broadcast(
    function: Callable[..., Any] | None = None,
    /,
    *,
    strategy: Strategy = "auto",
    placement: Placement = "auto",
    chunk: int | None = None,
    backend: str | None = None,
    loops: Loops = "unrolled",
    signature: str | None = None,
) -> Any:
    """Turn a scalar function into one that is applied at every element of broadcast arrays.

    The function is plain Python on numbers: ``if``, ``while``, ``for … in range``, early
    ``return``, calls to other functions.  It is compiled to one kernel that computes values, and to
    kernels that compute values with derivatives (Revels et al., "Dynamic Automatic Differentiation
    of GPU Broadcast Kernels", 2018).

    Parameters
    ----------
    function : callable
        A function of scalars that returns a scalar or a tuple of scalars; named tuples and
        dataclasses of scalars stand for several.
    strategy : str
        How derivatives are computed: ``"forward"``, by chunks of dual numbers; ``"reverse"``, by
        reverse accumulation in one pass, which no loop goes along with; ``"auto"``, by dual numbers
        unless they take several passes and reverse costs less.
    placement : str
        When partials are computed.  ``"reverse"``: in the backward pass, from the inputs; nothing
        but these is kept.  ``"forward"``: with the values, stored, multiplied by the cotangents
        later; in the backward pass where the values are computed again there (`mixad.vjp` of few
        elements) or a transform around follows them.  ``"auto"``: in the backward pass, unless a
        value is needed before its cotangent is known and storing partials takes less time than
        computing a dear function again.
    chunk : int, optional
        Most inputs that one pass differentiates with respect to, from 1 to 10; by default as few
        passes as can be, of even size.  Fewer at once need fewer registers, and repeat the values.
    backend : str, optional
        Name of a backend, such as ``"cpu"`` or ``"reference"``, which is slow and obviously right;
        by default the best one for the arrays of a call.
    loops : str
        How loops that go on until they have converged are differentiated.  ``"unrolled"``:
        iteration by iteration, as all others are.  ``"implicit"``: where they end, by the implicit
        function theorem, which needs one iteration of dual numbers and gives the derivative of the
        fixed point, nan where the loop has not come near one.
    signature : str, optional
        Which last axes of arguments and results belong to one element, as NumPy's generalised
        ufuncs spell it: ``"(3),(n),()->(n)"``.  Their elements are variables, of results and
        arguments 64 at most; the longest arguments beyond that are read by index instead, as
        `Array` is, at each element's own place along the axes before the core.

    Returns
    -------
    BroadcastFunction
        With the function's name, docstring, and ``__wrapped__``.

    Raises
    ------
    KernelSyntaxError
        If the function has no source, is a transform of mixad or made by one, or if its file
        changed since it was imported.
    ConfigurationError
        If an override is not one of those above; it is a ValueError.

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
    >>> mixad.grad(lambda x: clipped(x, 2.0).sum())(np.array([1.0, 2.0, 3.0]))
    array([0., 1., 1.])

    With options, the decorator is called first:

    >>> @mixad.broadcast(placement="forward")
    ... def cubed(x):
    ...     return x * x * x
    >>> cubed(2.0)
    8.0
    """
    options = KernelOptions(strategy, placement, chunk, backend, loops, signature)
    if function is None:
        return lambda f: BroadcastFunction(f, options)
    return BroadcastFunction(function, options)
