"""The array object: a function that is differentiated gets it in place of an array."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from mixad.backends import arrays
from mixad.backends.arrays import Library, is_array
from mixad.errors import MixadError, NoRuleError, TracerError
from mixad.namespace.array_likes import first_traced, from_lists
from mixad.namespace.assignment import CHANGES_AT, change_at, replace, setitem
from mixad.namespace.borrowing import borrow, is_borrowed, or_borrow
from mixad.namespace.complex_numbers import imag, real
from mixad.namespace.elementwise import (
    as_numpy_gives,
    elementwise,
    is_operand,
)
from mixad.namespace.indexing import part_of, without_constants
from mixad.namespace.linear_algebra import matmul
from mixad.namespace.manipulation import matrix_transpose, permute_dims
from mixad.namespace.module import Namespace, namespace_over, replace_tracers
from mixad.namespace.powers import power
from mixad.namespace.scipy_calls import asks_for_conversion, function_called, instead_of
from mixad.namespace.spelling import LibraryBinding
from mixad.namespace.spellings import NUMPY, UFUNCS, spelling_of, spelling_of_ufunc, torch_spelling
from mixad.namespace.statistical import total
from mixad.namespace.torch_in_place import IN_PLACE, change
from mixad.tape.constant import constants, unwrapped
from mixad.tape.memory import array_as, is_numpy_number, share, unshared, view_of
from mixad.tape.node import library_of_value
from mixad.tape.operations import Operation
from mixad.tape.tracer import Tracer, primal_value, strand_of
from mixad.tracebacks import hide_frames, short_traceback

__all__ = ["OF_SHAPES", "ArrayTracer"]

_Method = Callable[[Any, Any], Any]


def _record(self: Any, operation: Operation, operands: Sequence[Any]) -> Any:
    """Return the result of an operation, recorded by a strand that has it or on nodes."""
    strand = self.strand or strand_of(operands)  # of a loop inside, if there is one
    return operation.compute(*operands) if strand is None else strand.applied(operation, operands)


def _by_strand(
    self: Any,
    compute: Callable[[Any, Any, Any], Any],
    function: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Return the result of a function, recorded by a strand that has it or on nodes."""
    strand = self.strand or strand_of((*args, *kwargs.values()))
    if strand is None:
        return compute(function, args, kwargs)
    return strand.call(compute, function, args, kwargs)


def _called_numpy(function: Any, args: Any, kwargs: Any) -> Any:
    return as_numpy_gives(NUMPY.call(function, args, kwargs))


def _called_torch(function: Any, args: Any, kwargs: Any) -> Any:
    return torch_spelling().call(function, tuple(args), kwargs)


def _called_method(name: Any, args: Any, kwargs: Any) -> Any:
    """Return the result of a method of the first argument."""
    args, kwargs = replace_tracers(unwrapped, tuple(args)), replace_tracers(unwrapped, dict(kwargs))
    return args[0]._spelling.call_method(name, args, kwargs)


def _power_by_operator(function: Any, args: Any, kwargs: Any) -> Any:
    base, exponent = args
    return power(base, exponent, by_operator=True)


def _rearrange_axes(function: Any, args: Any, kwargs: Any) -> Any:
    """Return a view of the argument with axes in another order."""
    return share(function(*args), *args)


def _convert_list(other: Any, tracer: Any, method: _Method) -> Any:
    """Return a method's result for a list or the like, which its library takes for an array."""
    operand = _from_lists(other, tracer)
    return NotImplemented if operand is other else method(tracer, operand)


def _from_lists(other: Any, tracer: Any) -> Any:
    """Return lists as an array, beside arrays of NumPy; other libraries take none."""
    return from_lists(other, tracer) if tracer.kind.library is arrays.NUMPY else other


def _binary(op: str) -> _Method:
    operation = Operation(partial(elementwise, op))

    def method(self: Any, other: Any) -> Any:
        try:
            strand = self.strand or strand_of((self, other))  # of a loop inside, if there is one
            if strand is not None:
                found = strand.record(operation, (self, other))
                if found is not None:
                    return found
            if not is_operand(other):
                return _convert_list(other, self, method)
            return elementwise(op, self, other)
        except Exception as error:
            hide_frames(error)
            raise

    return method


def _reflected_method(op: str) -> _Method:
    operation = Operation(partial(elementwise, op))

    def method(self: Any, other: Any) -> Any:
        try:
            strand = self.strand
            if strand is not None:
                found = strand.record(operation, (other, self))
                if found is not None:
                    return found
            if not is_operand(other):
                return _convert_list(other, self, method)
            return elementwise(op, other, self)
        except Exception as error:
            hide_frames(error)
            raise

    return method


def _beside(x: Any, y: Any) -> tuple[Any, Any]:
    """Return operands of a comparison, one of NumPy's beside a lazy one as such."""
    if type(x) is type(y) or not (arrays.is_array(x) and arrays.is_array(y)):
        return x, y
    library = arrays.library_of(x).mix_with(arrays.library_of(y))
    return (x, y) if library is None else (library.readable(x), library.readable(y))


def _comparison_method(compare: Callable[[Any, Any], Any]) -> _Method:
    """Return a comparison: its results are constants, which `if` and `while` can test."""

    def method(self: Any, other: Any) -> Any:
        try:
            return constants(
                compare(*_beside(primal_value(self), primal_value(_from_lists(other, self))))
            )
        except Exception as error:
            hide_frames(error)
            raise

    return method


def _in_place(symbol: str, compute: _Method) -> _Method:
    """Return an in-place operator: the tracer, under all its names, stands for the result.

    Numbers, and arrays of libraries without this operator, are bound anew: their other names keep
    the old value.
    """
    name = f"__i{compute.__name__}__"

    def method(self: Any, other: Any) -> Any:
        try:
            result = compute(self, other)
            if is_numpy_number(self) or not hasattr(_array_class(self.kind.library), name):
                return result
            return replace(self, symbol, result)
        except Exception as error:
            hide_frames(error)
            raise

    return method


class ArrayTracer(Tracer):
    """A traced array: operators and methods of arrays, recorded for the gradient.

    Elements of the results are those of the base library; shapes and dtypes too.
    """

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _reflected_method("add")
    __sub__, __rsub__ = _binary("sub"), _reflected_method("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected_method("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected_method("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected_method("floordiv")
    __mod__, __rmod__ = _binary("mod"), _reflected_method("mod")

    __iadd__, __isub__ = _in_place("+", operator.add), _in_place("-", operator.sub)
    __imul__, __itruediv__ = _in_place("*", operator.mul), _in_place("/", operator.truediv)
    __ifloordiv__, __imod__ = _in_place("//", operator.floordiv), _in_place("%", operator.mod)
    __ipow__, __imatmul__ = _in_place("**", operator.pow), _in_place("@", operator.matmul)

    __lt__, __le__ = _comparison_method(operator.lt), _comparison_method(operator.le)
    __gt__, __ge__ = _comparison_method(operator.gt), _comparison_method(operator.ge)
    __eq__ = _comparison_method(operator.eq)
    __ne__ = _comparison_method(operator.ne)

    def __hash__(self) -> int:
        raise self._conversion(
            sys._getframe(1),
            "hash()",
            "keep it in a list, or in a dictionary under a name, and compare with ==",
        )

    def __pow__(self, other: Any) -> Any:
        try:
            if not is_operand(other):
                return _convert_list(other, self, operator.pow)
            return _by_strand(self, _power_by_operator, operator.pow, (self, other), {})
        except Exception as error:
            hide_frames(error)
            raise

    def __rpow__(self, other: Any) -> Any:
        try:
            if not is_operand(other):
                return _convert_list(other, self, ArrayTracer.__rpow__)
            return _by_strand(self, _power_by_operator, operator.pow, (other, self), {})
        except Exception as error:
            hide_frames(error)
            raise

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __neg__(self) -> Any:
        try:
            return _record(self, _NEGATIVE, (self,))
        except Exception as error:
            hide_frames(error)
            raise

    def __pos__(self) -> Any:
        own = unshared(self)
        return share(own, self) if self.kind.library.name == "torch" else own

    def __copy__(self) -> Any:
        own = array_as(unshared(self), self)
        return share(own, self) if self.kind.library.name == "torch" else own

    def __deepcopy__(self, memo: Any) -> Any:
        return array_as(unshared(self), self)

    def __abs__(self) -> Any:
        try:
            return _record(self, _ABSOLUTE, (self,))
        except Exception as error:
            hide_frames(error)
            raise

    def __matmul__(self, other: Any) -> Any:
        try:
            if not _is_matrix(other):
                return _convert_list(other, self, operator.matmul)
            return _record(self, _PRODUCT, (self, other))
        except Exception as error:
            hide_frames(error)
            raise

    def __rmatmul__(self, other: Any) -> Any:
        try:
            if not _is_matrix(other):
                return _convert_list(other, self, lambda x, y: matmul(y, x))
            return _record(self, _PRODUCT, (other, self))
        except Exception as error:
            hide_frames(error)
            raise

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        try:
            if method != "__call__" or options:
                return self._called_ufunc(ufunc, method, operands, options)
            operation = _UFUNCS.get(ufunc)
            if operation is not None:
                return _record(self, operation, operands)
            if ufunc in _TESTS:
                return ufunc(*map(primal_value, operands))
            return self._called_ufunc(ufunc, method, operands, options)
        except Exception as error:
            hide_frames(error)
            raise

    def _called_ufunc(self, ufunc: Any, method: str, operands: Any, options: Any) -> Any:
        """Return the result of a ufunc that has options, or no operation of its own."""
        if "out" in options or (method == "at" and not isinstance(operands[0], Tracer)):
            raise TracerError(_CHANGED)
        if method == "at" and ufunc in CHANGES_AT and operands[0].kind.library.name in _WITH_AT:
            return change_at(ufunc, *operands)
        if method != "__call__":
            spelling = NUMPY if hasattr(np, ufunc.__name__) else UFUNCS
            name = f"{ufunc.__name__}.{method}"
            return as_numpy_gives(spelling.call_named(name, operands, options))
        spelling = spelling_of_ufunc(ufunc)
        if spelling is NUMPY and getattr(np, ufunc.__name__, None) is not ufunc:
            called = function_called(sys._getframe(2))
            if called is not None:  # a private ufunc, under the name of what calls it
                raise self._leak(called, instead_of(called, "numpy", NUMPY))
        if spelling is NUMPY and not _takes_values(ufunc):
            return _by_strand(self, _called_numpy, ufunc, operands, options)
        return as_numpy_gives(spelling.call(ufunc, operands, options))

    @short_traceback
    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if _is_like(function, self) and first_traced((args, *kwargs.values())) is None:
            return constants(function(*args, **kwargs))
        if function in OF_SHAPES:
            return function(*replace_tracers(_in_shape, args), **replace_tracers(_in_shape, kwargs))
        if _takes_values(function):
            return _called_numpy(function, args, kwargs)
        return _by_strand(self, _called_numpy, function, args, kwargs)

    @classmethod
    @short_traceback
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = function.__name__, kwargs or {}
        if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            if not (args and isinstance(args[0], Tracer)):
                # For torch, a TypeError says "try the reflected operator".
                raise MixadError(_CHANGED_TENSOR)
            if name in IN_PLACE:
                return getattr(args[0], name)(*args[1:], **kwargs)
            return borrow(NoRuleError(_CHANGED), function, args, kwargs)
        if _takes_values_of_torch(function):
            return _called_torch(function, args, kwargs)
        traced = first_traced((*args, *kwargs.values()))
        call = partial(_by_strand, traced, _called_torch, function, args, kwargs)
        if name in _IN_PLACE_OPERATORS:  # which would write to a tensor: another one is tried
            return call()
        refusal = _refusal_of_torch(function)
        if refusal is not None:
            return borrow(refusal, function, args, kwargs)
        return or_borrow(call, function, args, kwargs)

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._conversion(
            sys._getframe(1),
            "conversion to a NumPy array",
            "use its own operators and methods, np.stack([x, y]) in place of the list [x, y], and "
            "np.concatenate in place of np.r_ and np.c_",
        )

    def __float__(self) -> float:
        raise self._conversion(
            sys._getframe(1),
            "float()",
            "keep it as an array, use np.exp(x) for math.exp(x), and write it (out[i] = x) into an "
            "array made with np.zeros_like(x) or np.zeros(n, like=x)",
        )

    def as_integer_ratio(self) -> NoReturn:
        """Refuse: `statistics` calls this for numbers that it adds up."""
        raise self._conversion(sys._getframe(1), "as_integer_ratio()", "keep it as an array")

    def _conversion(self, frame: FrameType, what: str, instead: str) -> TracerError:
        """Return the refusal of a conversion, named after the library function that makes it."""
        called = function_called(frame)
        if called is None:
            return self._leak(what, instead)
        library = self.kind.library.name
        return self._leak(called, instead_of(called, library, self._spelling))

    def __array_namespace__(self, *, api_version: str | None = None) -> Namespace:
        """Return the standard's functions for traced arrays."""
        return namespace_over(self.kind.library, api_version)

    def __getattr__(self, name: str) -> Any:
        """Return methods that arrays of the library have; refuse others and say what to write.

        Attributes that a strand's tracer lacks yet are made here.
        """
        if name in _COMPLETED and self.strand is not None:
            self.strand.complete()  # unless another thread has, since it was asked for
            return object.__getattribute__(self, name)
        if name == "__jax_array__" and asks_for_conversion(sys._getframe(1)):
            called = function_called(sys._getframe(1)) or "a function of JAX"
            # For JAX, a TypeError says that there is another one to be told.
            raise MixadError(str(self._leak(called, instead_of(called, "numpy", NUMPY))))
        if name.startswith("__"):
            raise AttributeError(f"a traced array has no attribute {name!r}", name=name, obj=self)
        library, spelling = self.kind.library, self._spelling
        if hasattr(_array_class(library), name):
            if name in spelling.constant:
                return getattr(primal_value(self), name)
            if library.name == "torch" and name in IN_PLACE:
                return partial(change, _call_method, self, name)
            if spelling.has_method(name):
                return partial(_call_method, self, name)
            if library.name == "torch" and (name == "mH" or (name == "H" and self.ndim == 2)):
                return _call_method(self, "adjoint")
            if library.name == "torch" and _is_borrowed(name):
                return partial(_call_borrowed, self, name)
        raise AttributeError(_no_attribute(library, name), name=name, obj=self)

    def __getitem__(self, key: Any) -> Any:
        try:
            return _by_strand(self, part_of, operator.getitem, (self, key), {})
        except Exception as error:
            hide_frames(error)
            raise

    @short_traceback
    def __setitem__(self, key: Any, value: Any) -> None:
        setitem(self, without_constants(key), unwrapped(value))

    def __iter__(self) -> Iterator[Any]:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        equal = self == value
        return equal if isinstance(equal, bool) else bool(self.kind.library.xp.any(equal))

    @property
    def size(self) -> Any:
        """Number of elements; for torch, as in its tensors, a method that returns the shape."""
        if self.kind.library.name == "torch":
            return lambda dim=None: self.shape if dim is None else self.shape[dim]
        return super().size

    @property
    def real(self) -> Any:
        """The real part."""
        return view_of(real(self), self)

    @property
    def imag(self) -> Any:
        """The imaginary part; zeros without a derivative for real numbers."""
        return constants(share(imag(self), self))

    @property
    def T(self) -> Any:  # noqa: N802
        """The array with its axes in reverse order."""
        return _by_strand(self, _rearrange_axes, permute_dims, (self,), {})

    @property
    def mT(self) -> Any:  # noqa: N802
        """The array with its last two axes exchanged."""
        return _by_strand(self, _rearrange_axes, matrix_transpose, (self,), {})

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Return the elements in another shape, given as a tuple or as several numbers."""
        return _by_strand(self, _called_method, "reshape", (self, *shape), options)

    def sum(self, *args: Any, **options: Any) -> Any:
        """Return the sum over axes; arguments are those of the array's library."""
        try:
            if not args and not options:
                return _record(self, _TOTAL, (self,))
            return _by_strand(self, _called_method, "sum", (self, *args), options)
        except Exception as error:
            hide_frames(error)
            raise

    def mean(self, *args: Any, **options: Any) -> Any:
        """Return the arithmetic mean over axes; arguments are those of the array's library."""
        return _by_strand(self, _called_method, "mean", (self, *args), options)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """Return the elements as another dtype; one that is no float has no derivative."""
        found = _by_strand(self, _called_method, "astype", (self, dtype, *args), options)
        return array_as(found, self)

    @property
    def _spelling(self) -> LibraryBinding:
        return spelling_of(self.kind.library)


_WITH_AT = ("numpy", "cupy")
"""Libraries whose arrays ``ufunc.at`` takes."""

_CHANGED = (
    "writing a value that is being differentiated into an array (+=, out=, a[i] = x, np.add.at, "
    "methods that end in _) would lose its derivative: make the array with zeros_like(x), which "
    "takes such values, or a new one, total = total + x instead of total += x"
)

_IN_PLACE_OPERATORS = frozenset(
    f"__i{op}__"
    for op in "add sub mul div truediv floordiv mod pow matmul and or xor lshift rshift".split()
)

_CHANGED_TENSOR = f"{_CHANGED}; torch.index_add, scatter_add and the like return a new one"


_INSTEAD_OF_ATTRIBUTE = {
    "t": "x.T",
    **dict.fromkeys(("adjoint", "mH", "H"), "x.mT of real numbers, of complex ones x.mT.conj()"),
    "flatten": "x.reshape(-1)",
    "flat": "x.reshape(-1)",
    "view": "x.reshape(shape), or x.astype(dtype) for other numbers",
    **dict.fromkeys(("view_as", "squeeze", "unflatten"), "x.reshape(shape)"),
    **dict.fromkeys(("dim", "ndimension"), "x.ndim"),
    **dict.fromkeys(("clone", "copy"), "x * 1"),
    "contiguous": "x itself",
    **dict.fromkeys(("dot", "mm", "mv", "bmm"), "x @ y"),
    **dict.fromkeys(("float", "double", "half", "type"), "x.astype(dtype)"),
    "nelement": "x.size",
    "detach": "mixad.stop_gradient(x)",
    **dict.fromkeys(
        ("backward", "grad", "requires_grad", "requires_grad_"),
        "mixad.grad, which follows what it is told to without marks on arrays",
    ),
}
"""Substitutes for methods that traced arrays, or those of other libraries, do not have."""


@cache
def _array_class(library: Library) -> type:
    """Return the class of a library's arrays."""
    return type(library.xp.empty(0))


def _no_attribute(library: Library, name: str) -> str:
    """Return why an attribute is missing, and what to do if the library's arrays have it."""
    instead = _INSTEAD_OF_ATTRIBUTE.get(name)
    if instead is None and name.endswith("_") and hasattr(_array_class(library), name):
        instead = "x += y and the like, or x[...] = y"
    if instead is not None:
        return f"{name!r} of a value that is being differentiated is not available: use {instead}"
    if not name.startswith("_") and hasattr(_array_class(library), name):
        return (
            f"{name!r} of a value that is being differentiated is not available yet: write it with "
            "operators, indexing, sum, mean and functions decorated with @mixad.broadcast, or say "
            f"mixad.stop_gradient(x).{name} if no derivative is meant"
        )
    if name.startswith("_"):
        return (
            f"functions of {library.name} do not take a value that is being differentiated: write "
            "it with the value's own operators and methods, or functions decorated with "
            "@mixad.broadcast"
        )
    return f"a traced array has no attribute {name!r}"


_WITH_LIKE = frozenset(
    "arange array asanyarray asarray ascontiguousarray empty eye full identity ones tri "
    "zeros".split()
)
"""Functions of NumPy that make arrays ``like=`` another, which they do not read."""


def _is_like(function: Any, tracer: Any) -> bool:
    return function.__name__ in _WITH_LIKE and tracer.kind.library is arrays.NUMPY


@short_traceback
def _call_method(x: Any, name: str, /, *args: Any, **options: Any) -> Any:
    """Return the result of a method of a traced value."""
    call = partial(_by_strand, x, _called_method, name, (x, *args), options)
    if x.kind.library.name != "torch":
        return call()
    return or_borrow(call, getattr(_array_class(x.kind.library), name), (x, *args), options)


@short_traceback
def _call_borrowed(x: Any, name: str, /, *args: Any, **options: Any) -> Any:
    """Return the result of a traced tensor's method that has no rule."""
    function = getattr(_array_class(x.kind.library), name)
    refusal = NoRuleError(_no_attribute(x.kind.library, name))
    return borrow(refusal, function, (x, *args), options)


def _is_matrix(value: object) -> bool:
    return isinstance(value, Tracer) or is_array(value)


def _multiply(a: Any, b: Any) -> Any:
    """Return ``a @ b``, which torch refuses for two dtypes."""
    if library_of_value(a).name != "torch":
        return matmul(a, b)
    return torch_spelling().call(sys.modules["torch"].matmul, (a, b), {})


def _apply_ufunc(ufunc: Any, *operands: Any) -> Any:
    return as_numpy_gives(NUMPY.call(ufunc, operands, {}))


OF_SHAPES = frozenset({np.shape, np.ndim, np.size, np.iscomplexobj, np.isrealobj})
"""Functions of NumPy that read shape and dtype only."""


def _in_shape(value: Any) -> Any:
    """Return an array of the shape and dtype of a traced value; other values unchanged."""
    if not isinstance(value, Tracer):
        return value
    return np.broadcast_to(np.zeros((), value.dtype), value.shape)


_takes_values = cache(NUMPY.takes_values)


@cache
def _takes_values_of_torch(function: Any) -> bool:
    return torch_spelling().takes_values(function)


@cache
def _refusal_of_torch(function: Any) -> NoRuleError | None:
    """Return why a function of torch has no rule; None where it has one."""
    return torch_spelling().refusal_of(function)


def _is_borrowed(name: str) -> bool:
    """Whether a method of tensors that has no rule is called with torch's own derivative."""
    is_own = name.startswith("_") or name in _INSTEAD_OF_ATTRIBUTE
    return not is_own and callable(getattr(sys.modules["torch"].Tensor, name)) and is_borrowed()


_TESTS = frozenset(
    {
        *(np.isfinite, np.isinf, np.isnan, np.signbit),
        *(np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal),
    }
)
"""Functions of NumPy that return booleans for each element."""

_COMPLETED = frozenset({"cell", "origin", "sharing"})
_NEGATIVE = Operation(partial(elementwise, "neg"))
_ABSOLUTE = Operation(partial(elementwise, "abs"))
_TOTAL = Operation(total)
_PRODUCT = Operation(_multiply, is_kernel=False)
_UFUNCS = {
    ufunc: Operation(partial(_apply_ufunc, ufunc))
    for ufunc in vars(np).values()
    if isinstance(ufunc, np.ufunc) and ufunc.nout == 1 and ufunc.nin <= 2
    if ufunc.signature is None
    if ufunc not in (np.power, np.float_power, *_TESTS)
}
"""NumPy's elementwise functions, with their recorded operations. Powers are not here: numbers
decide how they are computed, and ``float_power`` reads other arrays than its arguments, while
strands know operands by type and slot."""
