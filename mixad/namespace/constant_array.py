"""The array object of constants: its library computes at once."""

from __future__ import annotations

import copy
import functools
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import Array
from mixad.errors import TracerError
from mixad.namespace.array import ArrayTracer
from mixad.namespace.array_likes import first_traced
from mixad.namespace.assignment import CHANGES_AT, change_at, replace, setitem, strand_of_write
from mixad.namespace.indexing import basic_key, is_selection
from mixad.namespace.spelling import missing
from mixad.namespace.torch_in_place import IN_PLACE
from mixad.tape.cell import Cell
from mixad.tape.constant import (
    ConstantCell,
    constant,
    constant_class,
    constants,
    derived,
    is_traced,
    unwrapped,
)
from mixad.tape.memory import join, noted_array, retire_others, share
from mixad.tape.tracer import Tracer, check_alive, concrete_value, primal_value

__all__ = ["Constant"]

_Method = Callable[[Any, Any], Any]

_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}
"""Comparisons with the sides exchanged."""


def _unary(compute: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda self: constants(compute(primal_value(self)))


def _binary(compute: _Method) -> _Method:
    """Return an operator; with a traced operand it is the tracer's, which libraries may not ask."""
    name = compute.__name__
    mirrored = f"__{_MIRRORED.get(name, 'r' + name)}__"

    def method(self: Any, other: Any) -> Any:
        if is_traced(other) and hasattr(ArrayTracer, mirrored):
            check_alive(self)
            return getattr(ArrayTracer, mirrored)(other, unwrapped(self))
        return constants(compute(primal_value(self), primal_value(other)))

    return method


def _reflected_method(compute: _Method) -> _Method:
    def method(self: Any, other: Any) -> Any:
        if is_traced(other):
            check_alive(self)
            return compute(other, unwrapped(self))
        return constants(compute(primal_value(other), primal_value(self)))

    return method


def _in_place(symbol: str, compute: _Method, change: _Method) -> _Method:
    """Return an in-place operator that changes the array as its library does.

    An operand that is traced makes the constant a traced array. Where the library has no such
    operator the name is bound anew: other names keep the old value.
    """
    name = f"__i{compute.__name__}__"

    def method(self: Any, other: Any) -> Any:
        if not is_traced(other):
            array = _own_array(self)
            changed = change(array, primal_value(other))
            return self if changed is array else constant(changed)
        result = compute(self, other)
        if not hasattr(primal_value(self), name):
            return result
        return _follow(replace(self, symbol, result))

    return method


def _own_array(x: Tracer) -> Array:
    """Return a constant's array to write to: a copy if something has recorded its memory."""
    array = primal_value(x)
    is_lent = x.cell.is_lent  # type: ignore[attr-defined]  # of constants only
    if is_lent or (x.sharing is not None and x.sharing.memory.is_lent):
        array = x.cell.library.xp.asarray(array, copy=True)
        x.cell = ConstantCell(array)
        retire_others(x)
    return array


@contextmanager
def _traced_for_write(x: Constant) -> Iterator[ArrayTracer]:
    """Yield a traced array for a write of something traced; the constant then stands for it."""
    written = ArrayTracer(Cell.of(x.cell.array, "off"), x.origin)  # perhaps written back
    yield written
    x.cell, x.origin = written.cell, written.origin
    if x.origin.levels:
        _follow(x)
    else:  # of whole numbers: nothing is differentiated
        x.cell = ConstantCell(primal_value(x))
    retire_others(x)
    if written.sharing is not None:  # with what was written back
        join(written, x)


def _change_at(ufunc: Any, x: Constant, key: Any, *values: Any) -> None:
    """Carry out ``ufunc.at``: NumPy does that on arrays that are read-only, too."""
    if not _has_traced(values):
        ufunc.at(_own_array(x), _plain(key), *_plain(values))
        return
    if ufunc in CHANGES_AT and strand_of_write(x, _plain(key), *values) is not None:
        change_at(ufunc, x, _plain(key), *values)
        _follow(x)
        return
    with _traced_for_write(x) as array:
        ufunc.at(array, _plain(key), *values)


def _follow(x: Tracer) -> Tracer:
    """Make a constant that stands for a traced value an ordinary traced array."""
    x.__class__ = ArrayTracer
    return noted_array(x)


@constant_class
class Constant(ArrayTracer):
    """An array that no transform follows, in the namespace of those that one does.

    It behaves as its library's arrays, in place too; results are constants. When something traced
    is written to it, it becomes traced: other arrays of its memory keep what they had, and its
    views are refused from then on (see `mixad.tape.memory`).
    """

    __slots__ = ()

    __add__, __radd__ = _binary(operator.add), _reflected_method(operator.add)
    __sub__, __rsub__ = _binary(operator.sub), _reflected_method(operator.sub)
    __mul__, __rmul__ = _binary(operator.mul), _reflected_method(operator.mul)
    __truediv__, __rtruediv__ = _binary(operator.truediv), _reflected_method(operator.truediv)
    __floordiv__, __rfloordiv__ = _binary(operator.floordiv), _reflected_method(operator.floordiv)
    __mod__, __rmod__ = _binary(operator.mod), _reflected_method(operator.mod)
    __pow__, __rpow__ = _binary(operator.pow), _reflected_method(operator.pow)
    __matmul__, __rmatmul__ = _binary(operator.matmul), _reflected_method(operator.matmul)
    __and__, __rand__ = _binary(operator.and_), _reflected_method(operator.and_)
    __or__, __ror__ = _binary(operator.or_), _reflected_method(operator.or_)
    __xor__, __rxor__ = _binary(operator.xor), _reflected_method(operator.xor)
    __lshift__, __rlshift__ = _binary(operator.lshift), _reflected_method(operator.lshift)
    __rshift__, __rrshift__ = _binary(operator.rshift), _reflected_method(operator.rshift)

    __iadd__ = _in_place("+", operator.add, operator.iadd)
    __isub__ = _in_place("-", operator.sub, operator.isub)
    __imul__ = _in_place("*", operator.mul, operator.imul)
    __itruediv__ = _in_place("/", operator.truediv, operator.itruediv)
    __ifloordiv__ = _in_place("//", operator.floordiv, operator.ifloordiv)
    __imod__ = _in_place("%", operator.mod, operator.imod)
    __ipow__ = _in_place("**", operator.pow, operator.ipow)
    __imatmul__ = _in_place("@", operator.matmul, operator.imatmul)
    __iand__ = _in_place("&", operator.and_, operator.iand)
    __ior__ = _in_place("|", operator.or_, operator.ior)
    __ixor__ = _in_place("^", operator.xor, operator.ixor)
    __ilshift__ = _in_place("<<", operator.lshift, operator.ilshift)
    __irshift__ = _in_place(">>", operator.rshift, operator.irshift)

    __lt__, __le__ = _binary(operator.lt), _binary(operator.le)
    __gt__, __ge__ = _binary(operator.gt), _binary(operator.ge)
    __eq__, __ne__ = _binary(operator.eq), _binary(operator.ne)

    def __hash__(self) -> int:
        return hash(primal_value(self))

    __neg__, __abs__ = _unary(operator.neg), _unary(operator.abs)
    __invert__ = _unary(operator.invert)
    __pos__, __copy__ = _unary(operator.pos), _unary(copy.copy)

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __getitem__(self, key: Any) -> Any:
        part = derived(primal_value(self)[_plain(key)], [self])
        keys = key if isinstance(key, tuple) else (key,)
        if any(map(is_selection, map(primal_value, keys))):
            return part
        return share(part, self, tuple(map(basic_key, keys)))

    def __setitem__(self, key: Any, value: Any) -> None:
        if not _has_traced(value):
            _own_array(self)[_plain(key)] = _plain(value)
            return
        if strand_of_write(self, _plain(key), value) is not None:
            setitem(self, _plain(key), value)
            _follow(self)
            return
        with _traced_for_write(self) as array:
            setitem(array, _plain(key), value)

    def __getattr__(self, name: str) -> Any:
        """Return attributes of the library's arrays; results of methods are constants."""
        if name.startswith("__"):
            raise AttributeError(f"a constant has no attribute {name!r}", name=name, obj=self)
        array = primal_value(self)
        if hasattr(array, name) and not callable(getattr(array, name)):
            return derived(getattr(array, name), [self])
        if name in IN_PLACE and self.cell.library.name == "torch":
            return functools.partial(_call_in_place, self, name)
        if not hasattr(array, name) and not self._spelling.has_method(name):
            raise AttributeError(f"{type(array)} has no attribute {name!r}", name=name, obj=self)
        return _method(self, name)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Any:
        if method == "at" and isinstance(operands[0], Constant):
            return _change_at(ufunc, *operands)
        if _has_traced(operands):
            return super().__array_ufunc__(ufunc, method, *_unwrap_tree(operands), **options)
        return constants(getattr(ufunc, method)(*_plain(operands), **_plain(options)))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not _has_traced((args, kwargs)):
            return derived(function(*_plain(args), **_plain(kwargs)), pytree.leaves(args))
        args, kwargs = _unwrap_tree(args), _unwrap_tree(kwargs)
        traced: Any = first_traced((*args, *kwargs.values()))  # or a constant not to be used
        return ArrayTracer.__array_function__(traced, function, types, args, kwargs)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if _has_traced((args, kwargs)):
            return super().__torch_function__(
                function, types, _unwrap_tree(args), _unwrap_tree(kwargs)
            )
        return derived(function(*_plain(args), **_plain(kwargs)), pytree.leaves(args))

    @property
    def dtype(self) -> Any:
        """Dtype of the elements, which may be one that kernels do not compute in."""
        return primal_value(self).dtype

    @property
    def size(self) -> Any:
        """The attribute of the library's arrays."""
        return primal_value(self).size

    @property
    def real(self) -> Any:
        """The real part."""
        return derived(primal_value(self).real, [self])

    @property
    def imag(self) -> Any:
        """The imaginary part."""
        return derived(primal_value(self).imag, [self])

    @property
    def T(self) -> Any:  # noqa: N802
        """The array with its axes in reverse order."""
        return derived(primal_value(self).T, [self])

    @property
    def mT(self) -> Any:  # noqa: N802
        """The array with its last two axes exchanged."""
        return self.__array_namespace__().matrix_transpose(self)

    def reshape(self, *shape: Any, **options: Any) -> Any:
        """Return the elements in another shape."""
        return _call_method(self, "reshape", shape, options)

    def sum(self, *args: Any, **options: Any) -> Any:
        """Return the sum over axes."""
        return _call_method(self, "sum", args, options)

    def mean(self, *args: Any, **options: Any) -> Any:
        """Return the arithmetic mean over axes."""
        return _call_method(self, "mean", args, options)

    def astype(self, dtype: Any, *args: Any, **options: Any) -> Any:
        """Return the elements as another dtype."""
        return _call_method(self, "astype", (dtype, *args), options)

    def item(self) -> Any:
        """Return the number in an array of one element."""
        return primal_value(self).item()

    def tolist(self) -> Any:
        """Return the elements in nested lists."""
        return primal_value(self).tolist()

    def __repr__(self) -> str:
        return f"Constant({primal_value(self)!r})"

    def __str__(self) -> str:
        return str(primal_value(self))

    def __format__(self, spec: str) -> str:
        return format(primal_value(self), spec)

    def __index__(self) -> int:
        return operator.index(concrete_value(self, "an index made"))

    def __float__(self) -> float:
        return float(concrete_value(self, "float()"))

    def __complex__(self) -> complex:
        return complex(concrete_value(self, "complex()"))

    def __round__(self, digits: int | None = None) -> Any:
        return round(float(concrete_value(self, "round()")), digits)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(concrete_value(self, "conversion to a NumPy array"), dtype, copy=copy)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        options = {"stream": stream, "max_version": max_version, "dl_device": dl_device,
                   "copy": copy}  # fmt: skip
        return primal_value(self).__dlpack__(**{k: v for k, v in options.items() if v is not None})

    def __dlpack_device__(self) -> Any:
        return primal_value(self).__dlpack_device__()

    def to_dask_array(self) -> Any:
        """Return the array as one of Dask, which calls this."""
        return sys.modules["dask.array"].asanyarray(primal_value(self))

    def __dask_tokenize__(self) -> Any:
        return sys.modules["dask"].base.normalize_token(primal_value(self))

    def __deepcopy__(self, memo: Any) -> Any:
        return constant(copy.deepcopy(primal_value(self), memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return constant, (primal_value(self),)


def _plain(tree: Any) -> Any:
    return pytree.tree_map(primal_value, tree)


def _unwrap_tree(tree: Any) -> Any:
    return pytree.tree_map(unwrapped, tree)


def _has_traced(tree: Any) -> bool:
    return any(map(is_traced, pytree.leaves(tree)))


def _method(x: Constant, name: str) -> Callable[..., Any]:
    """Return a method of arrays of the library, with its signature, that gives constants."""

    def method(*args: Any, **options: Any) -> Any:
        return _call_method(x, name, args, options)

    own = getattr(primal_value(x), name, None)
    return method if own is None else functools.wraps(own)(method)


def _call_in_place(x: Constant, name: str, *args: Any, **options: Any) -> Any:
    """Carry out a method that changes a tensor; something traced makes it traced."""
    if not _has_traced((args, options)):
        getattr(_own_array(x), name)(*_plain(args), **_plain(options))
        return x
    if name in ("fill_", "copy_"):
        x[...] = next(iter((*args, *options.values())))
        return x
    result = _call_beside_traced(x, name[:-1], args, options)
    return _follow(replace(x, name, result))


def _call_beside_traced(x: Constant, name: str, args: Any, options: Any) -> Any:
    if name == "fill":
        x[...] = next(iter((*args, *options.values())))
        return None
    if not x._spelling.has_method(name):
        raise TracerError(missing(f"{name}()"))
    return x._spelling.call_method(name, (unwrapped(x), *_unwrap_tree(args)), _unwrap_tree(options))


def _call_method(x: Constant, name: str, args: Any, options: Any) -> Any:
    """Return the result of a method: the library's, or the tracers' where arrays have none.

    With a traced argument it is the tracers', too: the library's would get plain values.
    """
    if _has_traced((args, options)) and name not in x._spelling.constant:
        return _call_beside_traced(x, name, args, options)
    method = getattr(primal_value(x), name, None)
    if method is None:
        return constants(
            x._spelling.call_method(name, (primal_value(x), *_plain(args)), _plain(options))
        )
    return derived(method(*_plain(args), **_plain(options)), [x])
