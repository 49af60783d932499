"""Elements of a traced value in the body of a loop, where they are unknown.

A body is recorded once and runs with other values in each step. Results without a derivative
(comparisons, indices, orders) are recorded there, too.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import numpy as np

from mixad.backends.arrays import library_of
from mixad.errors import TracerError
from mixad.namespace.array import OF_SHAPES, ArrayTracer
from mixad.namespace.elementwise import elementwise, is_operand
from mixad.namespace.indexing import is_selection
from mixad.namespace.module import replace_tracers
from mixad.namespace.unknown_numbers import computed_by_kernels
from mixad.tape.opaque import apply_opaque
from mixad.tape.operations import Operation
from mixad.tape.strand import Strand
from mixad.tape.tracer import NotRecordedError, bodies_among, primal_value

__all__ = ["IndexedArrayError", "UnknownArray"]

_Method = Callable[[Any, Any], Any]


def _fits(value: UnknownArray, other: Any) -> bool:
    """Whether the type of whole numbers has a Python number; others have no such limit."""
    if type(other) not in (int, float, bool) or value.kind.type.is_inexact:
        return True
    dtype = value.kind.type.dtype
    if type(other) is not int or dtype.kind not in "iu":
        return False
    limits = np.iinfo(dtype)
    return bool(limits.min <= other <= limits.max)


def _test_operator(op: str) -> _Method:
    """Return an operator that is a kernel for all elements, and has no derivative."""
    operation = Operation(partial(elementwise, op))
    compute = getattr(operator, {"and": "and_", "or": "or_"}.get(op, op))

    def method(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        if not _fits(self, other):
            return self.call(compute, (self, other), {})
        found = self.strand.applied(operation, (self.source, _source(other)))
        return UnknownArray.of(found)

    return method


def _arithmetic_operator(op: str, compute: _Method, *, is_reflected: bool = False) -> _Method:
    """Return an arithmetic operator; beside a value with a derivative it has one, too."""
    operation = Operation(partial(elementwise, op))

    def method(self: Any, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        operands = (other, self) if is_reflected else (self, other)
        is_exact = _is_exact(op, operands) and _are_numbers(operands) and _fits(self, other)
        if not (_has_derivative(operands) or is_exact):
            return self.call(compute, operands, {})
        given = tuple([o.without_derivative() if type(o) is UnknownArray else o for o in operands])
        found = self.strand.applied(operation, given)
        return found if _has_derivative(operands) else UnknownArray.of(found)

    return method


def _is_exact(op: str, operands: Sequence[Any]) -> bool:
    """Whether kernels give what the library does, of whole numbers at least."""
    if op in _EXACT:
        return True
    value, divisor = operands
    is_divided = op in _DIVISIONS and type(divisor) is int and divisor > 0
    return is_divided and value.kind.type.is_integer


class IndexedArrayError(TracerError):
    """An unknown array indexes a plain one, or Python asks it for a whole number."""


class UnknownArray(ArrayTracer):
    """The elements of a traced value, which has no derivative here."""

    __slots__ = ("is_alone", "source")
    source: ArrayTracer  # the traced value
    strand: Strand
    is_alone: bool  # whether it is no view of another and has no views

    @classmethod
    def of(cls, tracer: Any) -> UnknownArray:
        """Return the unknown array of a value's elements."""
        if type(tracer) is cls:
            return tracer
        found: UnknownArray = object.__new__(cls)
        found.strand, found.slot, found.state = tracer.strand, tracer.slot, tracer.state
        found.source, found.is_alone = tracer, True
        return found

    def without_derivative(self) -> Any:
        """Return the value, recorded without a derivative."""
        if not self.kind.type.is_float:
            return self.source
        return self.strand.applied(_STOPPED, (self.source,))

    __lt__, __le__, __gt__, __ge__ = map(_test_operator, ("lt", "le", "gt", "ge"))
    __eq__, __ne__ = _test_operator("eq"), _test_operator("ne")
    __and__, __or__, __xor__ = map(_test_operator, ("and", "or", "xor"))
    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__
    __hash__ = None  # type: ignore[assignment]

    __add__, __sub__ = (
        _arithmetic_operator("add", operator.add),
        _arithmetic_operator("sub", operator.sub),
    )
    __mul__, __truediv__ = (
        _arithmetic_operator("mul", operator.mul),
        _arithmetic_operator("div", operator.truediv),
    )
    __floordiv__ = _arithmetic_operator("floordiv", operator.floordiv)
    __mod__ = _arithmetic_operator("mod", operator.mod)
    __radd__ = _arithmetic_operator("add", operator.add, is_reflected=True)
    __rsub__ = _arithmetic_operator("sub", operator.sub, is_reflected=True)
    __rmul__ = _arithmetic_operator("mul", operator.mul, is_reflected=True)
    __rtruediv__ = _arithmetic_operator("div", operator.truediv, is_reflected=True)
    __rfloordiv__ = _arithmetic_operator("floordiv", operator.floordiv, is_reflected=True)
    __rmod__ = _arithmetic_operator("mod", operator.mod, is_reflected=True)

    def __neg__(self) -> Any:
        if self.kind.type.is_integer:
            return UnknownArray.of(self.strand.applied(_NEGATED, (self.source,)))
        return self.call(operator.neg, (self,), {})

    def __abs__(self) -> Any:
        return self.call(operator.abs, (self,), {})

    def __invert__(self) -> Any:
        return UnknownArray.of(self.strand.applied(_INVERTED, (self.source,)))

    def __getitem__(self, key: Any) -> Any:
        return self.call(operator.getitem, (self, key), {})

    def __pow__(self, other: Any) -> Any:
        if _has_derivative((other,)):
            return self.without_derivative() ** other
        return self.call(operator.pow, (self, other), {})

    def __rpow__(self, other: Any) -> Any:
        if _has_derivative((other,)):
            return other ** self.without_derivative()
        return self.call(operator.pow, (other, self), {})

    def __setitem__(self, key: Any, value: Any) -> None:
        if _has_derivative((value,)):
            raise NotRecordedError("a write of floats to whole numbers")
        if not self.is_alone:
            raise NotRecordedError("a write to whole numbers of which there are views")
        found = self.call(_with_item, (self, key, value), {})
        self.slot, self.state, self.source = found.slot, found.state, found.source

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        is_call = method == "__call__"
        if is_call and not options:
            test, operator_ = _TESTS.get(ufunc), _OPERATORS.get(ufunc)
            if test is not None:
                found = self.strand.applied(test, tuple(map(_source, operands)))
                return UnknownArray.of(found)
            if operator_ is not None and isinstance(operands[0], (np.ndarray, np.generic)):
                return getattr(operands[1], f"__r{operator_.__name__}__")(operands[0])
            if operator_ is not None:
                return operator_(*operands)
        if _has_derivative(operands):
            given = [o.without_derivative() if type(o) is UnknownArray else o for o in operands]
            return ArrayTracer.__array_ufunc__(self.source, ufunc, method, *given, **options)
        return self.call(ufunc if is_call else getattr(ufunc, method), operands, options)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if function in OF_SHAPES or _has_derivative((args, kwargs)):
            return ArrayTracer.__array_function__(self.source, function, types, args, kwargs)
        return self.call(function, args, kwargs)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        given = args, kwargs or {}
        if _has_derivative(given):
            return ArrayTracer.__torch_function__(function, types, *given)
        found: list[Any] = []
        replace_tracers(found.append, (*args, *given[1].values()))
        unknown = next(each for each in found if type(each) is cls)
        return unknown.call(function, *given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(_array_like(self), name):
            return super().__getattr__(name)
        if not callable(getattr(_array_like(self), name)):
            return self.call(operator.attrgetter(name), (self,), {})
        return partial(self._call_method, name)

    def _call_method(self, name: str, *args: Any, **options: Any) -> Any:
        return self.call(_method, (name, self, *args), options)

    def call(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        """Record a library function, which has no derivative here, and return its result.

        Unless it is known to return new arrays, its arguments and results are read-only from then
        on: they may share memory.
        """
        positional = tuple(replace_tracers(_source, tuple(args)))
        given = positional, dict(replace_tracers(_source, dict(kwargs)))
        is_method = function is _method
        name = args[0] if is_method else getattr(function, "__name__", "")
        own = computed_by_kernels(name, given[0][is_method:], given[1])
        if own is not None:
            found = UnknownArray.of(own)
            if name == "getitem" and not any(map(is_selection, _keys_of(args[1]))):
                replace_tracers(_mark_shared, (found, *args))  # a view
            return found
        found = self.strand.call(apply_opaque, function, *given, is_primitive=True)
        if isinstance(function, np.ufunc) or name in _FRESH:
            return replace_tracers(UnknownArray.of, found)
        replace_tracers(_mark_shared, (*args, *kwargs.values()))
        return replace_tracers(lambda value: _mark_shared(UnknownArray.of(value)), found)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """Return the elements as another dtype."""
        return self._call_method("astype", dtype, *args, **options)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Return the elements in another shape."""
        return self._call_method("reshape", *shape, **options)

    def sum(self, *args: Any, **options: Any) -> Any:
        """Return sums of elements."""
        return self._call_method("sum", *args, **options)

    def mean(self, *args: Any, **options: Any) -> Any:
        """Return means of elements."""
        return self._call_method("mean", *args, **options)

    @property
    def T(self) -> Any:  # noqa: N802
        """The elements with axes in reverse order."""
        return self.call(np.transpose, (self,), {})

    def __bool__(self) -> bool:
        raise self._unknown("bool()", "write mixad.cond(predicate, f, g, x), numpy.where, or")

    def __int__(self) -> NoReturn:
        raise self._unknown("int()", "use it as an index, a[i], or in")

    def __index__(self) -> NoReturn:
        raise self._index_error("a whole number")

    def __float__(self) -> NoReturn:
        raise self._unknown("float()", "keep it as an array, or write")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise self._index_error("conversion to a NumPy array")

    def _index_error(self, what: str) -> TracerError:
        """Return why a plain array cannot be indexed: the body may capture it."""
        instead = "pass an array that is indexed in xs or in the carry, or write"
        error = self._unknown(what, instead, 3)
        if not isinstance(error, NotRecordedError):
            error = self.strand.refusal = IndexedArrayError(str(error))
        return error

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d array")
        return (self[i] for i in range(self.shape[0]))

    def __repr__(self) -> str:
        return f"<elements of shape {self.shape} that another step of a loop has others of>"

    def _unknown(self, what: str, instead: str, depth: int = 2) -> TracerError:
        """Return why Python cannot read an element; leave the body if a library asks for one."""
        frame = sys._getframe(depth)
        while frame is not None and frame.f_globals["__name__"] in _ASKED:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None and frame.f_globals["__name__"].split(".")[0] in _LIBRARIES:
            self.strand.refusal = NotRecordedError(f"{what} of a value in the body of a loop")
            return self.strand.refusal
        self.strand.refusal = TracerError(
            f"{what} of a value that each step of the loop computes anew, while its function is "
            f"called once: {instead} a function decorated with @mixad.broadcast; mixad.while_loop "
            "runs for as long as a predicate holds"
        )
        return self.strand.refusal


def _keys_of(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _source(value: Any) -> Any:
    """Return the traced value of an unknown array; other values unchanged."""
    return value.source if type(value) is UnknownArray else value


def _mark_shared(value: Any) -> Any:
    """Return a value; record that others may share an unknown one's memory."""
    if type(value) is UnknownArray:
        value.is_alone = False
    return value


def _has_derivative(tree: Any) -> bool:
    """Whether there is a traced float among arguments, beside unknown elements."""
    found: list[Any] = []
    replace_tracers(found.append, tree if isinstance(tree, tuple) else (tree,))
    return any(type(each) is ArrayTracer and each.kind.type.is_inexact for each in found)


def _are_numbers(operands: Sequence[Any]) -> bool:
    """Whether operands are whole numbers or floats; flags may be beside such arrays.

    Sums of flags differ, and which type one has beside a number of Python the library says.
    """
    types = [str(getattr(o, "dtype", type(o).__name__)) for o in operands]
    are_flags = [type.startswith("bool") for type in types]
    if not any(are_flags):
        return True
    return not all(are_flags) and all(hasattr(o, "dtype") for o in operands)


def _array_like(value: UnknownArray) -> Any:
    return value.kind.library.xp.empty(0)


def _with_item(array: Any, key: Any, value: Any) -> Any:
    """Return a copy of an array with a value at a key."""
    found = library_of(array).xp.asarray(array, copy=True)
    found[key] = value
    return found


def _method(name: str, array: Any, *args: Any, **options: Any) -> Any:
    """Return the result of a method of an array."""
    return getattr(array, name)(*args, **options)


def _stop(x: Any) -> Any:
    """Return a value on which the bodies of loops depend alone, as whole numbers do."""
    bodies = bodies_among(x.origin.levels)
    return type(x)(x.cell, x.origin._replace(levels=bodies)) if bodies else primal_value(x)


def _invert(x: Any) -> Any:
    return elementwise("not", x)


_STOPPED = Operation(_stop, is_kernel=False, is_primitive=True)
_INVERTED = Operation(_invert)
_NEGATED = Operation(partial(elementwise, "neg"))
_TESTS = {
    ufunc: Operation(partial(elementwise, op))
    for ufunc, op in {
        np.isnan: "isnan", np.isinf: "isinf", np.isfinite: "isfinite", np.signbit: "signbit",
        np.less: "lt", np.less_equal: "le", np.greater: "gt", np.greater_equal: "ge",
        np.equal: "eq", np.not_equal: "ne",
    }.items()
}  # fmt: skip
"""Ufuncs that return booleans, with their recorded operations."""

_FRESH = frozenset(
    (
        "add sub mul truediv floordiv mod neg abs pow invert _with_item "
        "copy clone astype sum prod max min amax amin mean any all argmax argmin count_nonzero "
        "argsort sort cumsum cumprod where searchsorted bincount clip sign zeros_like ones_like"
    ).split()
)
"""Functions and methods whose results share no memory with their arguments."""

_EXACT = frozenset({"add", "sub", "mul"})
"""Operators that kernels have of all numbers."""

_DIVISIONS = frozenset({"floordiv", "mod"})
"""Operators that kernels have of whole numbers, and where the divisor is not zero."""

_OPERATORS = {
    np.add: operator.add, np.subtract: operator.sub, np.multiply: operator.mul,
    np.divide: operator.truediv,
}  # fmt: skip
"""Ufuncs that are operators."""

_ASKED = frozenset({__name__, "mixad.tape.tracer", "mixad.namespace.array"})
"""Modules through which Python reads an element."""

_LIBRARIES = frozenset({"mixad", "numpy", "torch", "array_api_compat", "scipy"})
