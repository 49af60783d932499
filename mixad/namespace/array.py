"""The array object: what a function that is differentiated gets in place of an array."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mixad.backends.arrays import is_array, is_scalar, scalar_type_of
from mixad.errors import TracerError
from mixad.namespace import statistical
from mixad.namespace.elementwise import convert, elementwise, is_operand, square
from mixad.namespace.indexing import getitem
from mixad.namespace.linear_algebra import matmul
from mixad.namespace.manipulation import matrix_transpose, permute_dims, reshape
from mixad.namespace.statistical import Axis
from mixad.tape.tracer import Tracer, plain

__all__ = ["ArrayTracer"]

_Method = Callable[[Any, Any], Any]


def _binary(op: str) -> _Method:
    def method(self: Any, other: Any) -> Any:
        return elementwise(op, self, other) if is_operand(other) else NotImplemented

    return method


def _reflected(op: str) -> _Method:
    def method(self: Any, other: Any) -> Any:
        return elementwise(op, other, self) if is_operand(other) else NotImplemented

    return method


def _compared(compare: Callable[[Any, Any], Any]) -> _Method:
    """Comparisons have no derivative: they give plain arrays, which `if` and `while` can test."""

    def method(self: Any, other: Any) -> Any:
        return compare(plain(self), plain(other))

    return method


_OPERATORS = {
    np.add: ("__add__", "__radd__"),
    np.subtract: ("__sub__", "__rsub__"),
    np.multiply: ("__mul__", "__rmul__"),
    np.divide: ("__truediv__", "__rtruediv__"),
    np.floor_divide: ("__floordiv__", "__rfloordiv__"),
    np.remainder: ("__mod__", "__rmod__"),
    np.power: ("__pow__", "__rpow__"),
    np.matmul: ("__matmul__", "__rmatmul__"),
    np.less: ("__lt__", "__gt__"),
    np.less_equal: ("__le__", "__ge__"),
    np.greater: ("__gt__", "__lt__"),
    np.greater_equal: ("__ge__", "__le__"),
    np.equal: ("__eq__", "__eq__"),
    np.not_equal: ("__ne__", "__ne__"),
}
"""The operators that NumPy arrays call ufuncs for, with the one that has its operands exchanged."""


class ArrayTracer(Tracer):
    """A traced array: operators and methods of arrays, recorded for the gradient.

    Elements of the results are those of the base library; shapes and dtypes too.
    """

    __slots__ = ()

    __add__, __radd__ = _binary("add"), _reflected("add")
    __sub__, __rsub__ = _binary("sub"), _reflected("sub")
    __mul__, __rmul__ = _binary("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _binary("div"), _reflected("div")
    __floordiv__, __rfloordiv__ = _binary("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _binary("mod"), _reflected("mod")
    __rpow__ = _reflected("pow")

    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __eq__ = _compared(operator.eq)
    __ne__ = _compared(operator.ne)
    __hash__ = None

    def __pow__(self, other: Any) -> Any:
        if not is_operand(other):
            return NotImplemented
        if is_scalar(other) and other == 2:
            return square(self)
        return elementwise("pow", self, other)

    def __neg__(self) -> Any:
        return elementwise("neg", self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return elementwise("abs", self)

    def __matmul__(self, other: Any) -> Any:
        return matmul(self, other) if _is_matrix(other) else NotImplemented

    def __rmatmul__(self, other: Any) -> Any:
        return matmul(other, self) if _is_matrix(other) else NotImplemented

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        """Take the operators of NumPy arrays over; refuse what would lose the derivative."""
        if method == "__call__" and not options and ufunc in _OPERATORS:
            left, right = operands
            ours, exchanged = _OPERATORS[ufunc]
            if isinstance(left, ArrayTracer):
                return getattr(left, ours)(right)
            return getattr(right, exchanged)(left)
        raise TracerError(_refusal(ufunc.__name__, method, options))

    def __getattr__(self, name: str) -> Any:
        """Refuse with what to do; only names that are not there come here."""
        message = f"{type(self).__name__!r} object has no attribute {name!r}"
        if hasattr(np.ndarray, name) and not name.startswith("__"):
            message = (
                f"{name!r} of a value that is being differentiated is not available yet: write it "
                "with operators, indexing, sum, mean and functions decorated with "
                f"@mixad.broadcast, or say mixad.stop_gradient(x).{name} if no derivative is meant"
            )
        raise AttributeError(message, name=name, obj=self)

    def __getitem__(self, key: Any) -> Any:
        return getitem(self, key)

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @property
    def T(self) -> Any:  # noqa: N802
        """The array with its axes in reverse order."""
        return permute_dims(self, tuple(reversed(range(self.ndim))))

    @property
    def mT(self) -> Any:  # noqa: N802
        """The array with its last two axes exchanged."""
        return matrix_transpose(self)

    def reshape(self, *shape: Any) -> Any:
        """Return the elements in another shape, given as a tuple or as several numbers."""
        return reshape(self, shape if len(shape) != 1 or isinstance(shape[0], int) else shape[0])

    def sum(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the sum over axes."""
        return statistical.total(self, axis, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> Any:
        """Return the arithmetic mean over axes."""
        return statistical.mean(self, axis, keepdims=keepdims)

    def astype(self, dtype: Any) -> Any:
        """Return the elements as another dtype; what is no float has no derivative."""
        library = self.cell.library
        target = scalar_type_of(library.xp.empty(0, dtype=dtype).dtype)
        if not target.is_float:
            return library.xp.astype(plain(self), dtype)
        return self if target == self.cell.type else convert(self, target)


def _refusal(name: str, method: str, options: dict[str, Any]) -> str:
    """Return why a ufunc is not applied to a tracer, and what to write instead."""
    if "out" in options:
        return (
            "writing a value that is being differentiated into a NumPy array (+=, out=) would lose "
            "its derivative: make a new array, total = total + x instead of total += x"
        )
    if method != "__call__" or options:
        call = name if method == "__call__" else f"{name}.{method}"
        return (
            f"numpy.{call}({', '.join(f'{option}=...' for option in options)}) of a value that is "
            "being differentiated is not available: use the array's operators, sum() and mean()"
        )
    return (
        f"numpy.{name} of a value that is being differentiated is not available: call it on "
        "numbers, in a function decorated with @mixad.broadcast, or on mixad.stop_gradient(x) if "
        "no derivative is meant"
    )


def _is_matrix(value: object) -> bool:
    return isinstance(value, Tracer) or is_array(value)
