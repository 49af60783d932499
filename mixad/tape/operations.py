"""What a recording is made of: operations, segments, and links between these."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import numpy as np

from mixad.backends.arrays import is_array, library_of
from mixad.backends.fifo_cache import FifoCache
from mixad.tape.constant import is_constant, unwrapped
from mixad.tape.memory import Base, base_of
from mixad.tape.registers import bits_of
from mixad.tape.tracer import Tracer

if TYPE_CHECKING:
    from mixad.tape.states import State

__all__ = ["FURTHER", "LINK", "NUMBERS", "Called", "Container", "Given", "Operation", "Segment",
           "Static", "call_of", "container_of", "results_of"]  # fmt: skip

NUMBERS = frozenset(
    {float, int, complex, np.bool_, np.int64, np.int32}
    | {np.float64, np.float32, np.complex128, np.complex64}
)
"""Types of numbers that come into recordings."""


class Operation:
    """What is applied to operands, known by identity.

    `compute` takes tracers with cells and nodes, arrays and numbers, and returns a tracer or a
    tuple of tracers.
    """

    __slots__ = ("_opened", "compute", "is_kernel", "is_primitive", "weight")

    def __init__(
        self,
        compute: Callable[..., Any],
        *,
        is_kernel: bool = True,
        is_primitive: bool = False,
        weight: int = 1,
    ) -> None:
        self.compute = compute
        self.is_kernel = is_kernel  # one kernel, whose arguments are the operands
        self.is_primitive = is_primitive  # made of no other operations
        self.weight = weight  # operations it counts for where compilation is limited
        self._opened: set[tuple[Any, ...]] = set()

    def open(self, operands: Sequence[Any]) -> bool:
        """Let its parts be recorded in its place, for such operands; tell whether that can be.

        It looks at elements, or makes arrays from values that are not traced.
        """
        if not self.is_primitive:
            self._opened.add(tuple(map(_kind_of, operands)))
        return not self.is_primitive

    def is_open(self, operands: Sequence[Any]) -> bool:
        """Whether its parts are recorded in its place, for such operands."""
        return bool(self._opened) and tuple(map(_kind_of, operands)) in self._opened

    def is_static(self, operands: Sequence[Any]) -> bool:
        """Whether it is a function that reads no array and no number beside traced values.

        What makes derivatives may compute arrays from elements.
        """
        is_function = not (self.is_kernel or self.is_primitive)
        return is_function and all(isinstance(operand, Tracer) for operand in operands)


def _kind_of(operand: Any) -> Any:
    """Return the key of an operand: its type, and that of its elements."""
    return (
        operand.kind
        if isinstance(operand, Tracer)
        else (type(operand), getattr(operand, "dtype", None))
    )


class Static:
    """A part of an operation that is its own key, such as the body of a loop."""

    __slots__ = ()

    def describe(self, values: Sequence[Any]) -> str:
        """Return what the operation did, for people, given its results."""
        return ""


class Called:
    """A call of the user's function that comes into a recording as an operand of its own."""

    __slots__ = ()
    parents: Sequence[Any]  # where its arguments came from; None for those that are not traced
    results: Sequence[Any]  # what its values are

    def pull(self, gs: Sequence[Any]) -> Sequence[Any]:
        """Return the cotangents of its traced arguments, arrays of their shapes."""
        raise NotImplementedError


def _refused(*operands: Any) -> Any:
    raise AssertionError("a further result is made with the first")


FURTHER = Operation(_refused, is_kernel=False, is_primitive=True)
"""Makes further results of the operation before, which says whether there is a kernel."""

LINK = object()
"""Stands in a segment for a value of an earlier one."""


class Segment(NamedTuple):
    """A part of a recording: its slots from ``start`` to ``stop``, and the state at its end."""

    state: State
    start: int
    stop: int


def results_of(given: Any) -> list[Any]:
    """Return the results of an operation, which may be a tuple or a list."""
    return list(given) if isinstance(given, (tuple, list)) else [given]


Container: TypeAlias = Callable[[list[Any]], Any]
"""Makes what the user gets from results."""


def container_of(given: Any) -> Container | None:
    """Return what makes the result of an operation from its values; None if it is a value."""
    if not isinstance(given, (tuple, list)):
        return None
    found: Container = getattr(type(given), "_make", type(given))
    return found


class Given(NamedTuple):
    """What an operation gives.

    `is_told` says that all it has read is traced or came in: it has looked at no elements and made
    no arrays, and no result is an operand.
    """

    results: Sequence[Any]
    container: Container | None  # makes what the user gets; None if that is the result itself
    bases: Sequence[Base | None]  # for each result, what it is a view of
    may_fail: bool  # whether it raises for some elements
    is_told: bool

    @staticmethod
    def of(
        results: Sequence[Any],
        container: Container | None,
        operands: Sequence[Any],
        *,
        may_fail: bool,
        is_told: bool,
    ) -> Given:
        """Return what is to be known of the results of an operation on some operands."""
        bases = [base_of(each, operands) for each in results]
        return Given(results, container, bases, may_fail, is_told)


# -- calls of functions ----------------------------------------------------------------------------

_MAX_INDICES = 1 << 12
"""Most indices and flags in an array that is a part of an operation."""

_PLAIN = frozenset({int, bool, str, type(None), type(Ellipsis)})
"""Types of arguments that are a part of an operation."""

_READS_ARRAYS = frozenset(
    "matmul mm mv bmm matvec vecmat dot vdot vecdot inner outer tensordot einsum linear addmm "
    "where concatenate concat cat stack hstack vstack column_stack "
    "setitem add sub mul div true_divide subtract multiply divide maximum minimum".split()
)
"""Names of functions that compute nothing from arrays: a kernel or a rule reads them."""

_CALLS: FifoCache[Operation] = FifoCache(4096)
"""Calls of functions, by the function and all arguments that are not traced."""

_MAX_CONTENTS = 8
"""Contents of indices and flags with which a call is one operation; each has its own states."""

_CONTENTS: FifoCache[int] = FifoCache(4096)
"""How many contents there have been, by call without these."""


class _Content(NamedTuple):
    """The elements of an array of indices or flags, with its form."""

    form: tuple[Hashable, ...]
    elements: bytes


_OPERAND = object()
"""Stands for an operand among arguments."""

_Compute: TypeAlias = Callable[[Any, Any, Any], Any]
"""Returns the result of a function, from the function, its arguments and its options."""


def call_of(
    kind: type[Tracer],
    arrays: type,
    compute: _Compute,
    function: Hashable,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    *,
    is_primitive: bool = False,
) -> tuple[Operation, list[Any]] | None:
    """Return a call of a function as an operation, which may be made of several, and its operands.

    None if no key identifies an argument for good. Operands are traced values, also in tuples and
    lists, and arrays that a rule (`is_primitive`) or a function of `_READS_ARRAYS` reads.
    """
    operands: list[Any] = []
    name = function if type(function) is str else getattr(function, "__name__", "")
    kinds = (kind, arrays) if is_primitive or name in _READS_ARRAYS else (kind,)
    described: list[Hashable] = []
    try:
        for value in args:
            own = type(value)
            if own is kind:
                operands.append(value)
                described.append(None)
            else:
                is_plain = own in _PLAIN
                described.append((own, value) if is_plain else _described(value, operands, kinds))
        for option, value in kwargs.items():
            described.append((option, _described(value, operands, kinds)))
    except _ConstantFoundError:
        args = list(map(_without_constants, args))
        kwargs = {name: _without_constants(value) for name, value in kwargs.items()}
        return call_of(kind, arrays, compute, function, args, kwargs, is_primitive=is_primitive)
    except TypeError:
        return None
    key = compute, function, *described
    operation = _CALLS.get(key)
    if operation is None:
        if not is_primitive and _has_other_contents(key):
            return None
        taken = set(map(id, operands))
        given = _emptied((tuple(args), *kwargs.values()), lambda value: id(value) in taken)
        call = partial(_call, compute, function, given, tuple(kwargs))
        operation = Operation(call, is_kernel=False, is_primitive=is_primitive)
        _CALLS.keep(key, 1, operation)
    return operation, operands


class _ConstantFoundError(Exception):
    """An argument is a constant: its array is what is recorded."""


def _without_constants(value: Any) -> Any:
    """Return an argument with arrays in place of constants."""
    kind = type(value)
    if kind is tuple or kind is list:
        return kind(map(_without_constants, value))
    if kind is slice:
        return slice(*map(unwrapped, (value.start, value.stop, value.step)))
    return unwrapped(value)


def _described(value: Any, operands: list[Any], kinds: Sequence[type]) -> Hashable:
    """Return the key of an argument; what is an operand is added to `operands`.

    TypeError if it is no operand and no key identifies it for good.
    """
    kind = type(value)
    if kind in kinds:
        operands.append(value)
        return None
    if kind is tuple or kind is list:
        return (kind, *[_described(each, operands, kinds) for each in value])
    if kind in _PLAIN:
        return kind, value
    if kind is float:
        return kind, value.hex()  # zeros have signs
    if kind is complex:
        return kind, value.real.hex(), value.imag.hex()
    if kind is slice:
        ends = value.start, value.stop, value.step
        types = tuple(map(type, ends))
        if _PLAIN.issuperset(types):
            return (kind, types, ends)
        return (kind, *[_described(each, operands, kinds) for each in ends])
    if kind in NUMBERS:
        return kind, value.tobytes()
    if isinstance(value, (type, np.dtype, Static)) or str(kind) == "<class 'torch.dtype'>":
        return cast("Hashable", value)
    return _content_of(value)


def _content_of(value: Any) -> Hashable:
    """Return the elements of an array of indices or flags, with its form."""
    if is_constant(value):
        raise _ConstantFoundError
    if isinstance(value, Tracer):
        raise TypeError(type(value))
    if _are_indices(value) and math.prod(value.shape) <= _MAX_INDICES:
        form = cast("Hashable", type(value)), cast("Hashable", value.dtype), tuple(value.shape)
        return _Content(form, bits_of(value))
    raise TypeError(type(value))


def _has_other_contents(key: Hashable) -> bool:
    """Whether a call, which is new, has come with other indices or flags again and again."""
    form = _without_contents(key)
    if form == key:
        return False
    count = (_CONTENTS.get(form) or 0) + 1
    _CONTENTS.keep(form, 1, count)
    return count > _MAX_CONTENTS


def _without_contents(described: Any) -> Any:
    """Return the key of arguments, without the elements of indices and flags."""
    if type(described) is _Content:
        return described.form
    return tuple(map(_without_contents, described)) if type(described) is tuple else described


def _are_indices(value: Any) -> bool:
    """Whether a value is an array of whole numbers or flags, or such a tensor of torch."""
    if type(value) is np.ndarray:
        return value.dtype.kind in "iub"
    is_float = getattr(value, "is_floating_point", None)
    return is_float is not None and value.is_cpu and not (is_float() or value.is_complex())


def _emptied(value: Any, is_operand: Callable[[Any], bool]) -> Any:
    """Return an argument without operands; its arrays are copied: their content identifies them."""
    if is_operand(value):
        return _OPERAND
    if type(value) in NUMBERS:
        return value
    if is_array(value):
        return library_of(value).xp.asarray(value, copy=True)
    if type(value) is tuple or type(value) is list:
        return type(value)([_emptied(each, is_operand) for each in value])
    return value


def _filled(value: Any, operands: Iterator[Any]) -> Any:
    """Return an argument with operands in their places."""
    if value is _OPERAND:
        return next(operands)
    if type(value) is tuple or type(value) is list:
        return type(value)([_filled(each, operands) for each in value])
    return value


def _call(
    compute: _Compute, function: Hashable, given: Any, names: Sequence[str], *operands: Any
) -> Any:
    """Return the result of a function on operands that stand among its other arguments."""
    args, *named = _filled(given, iter(operands))
    return compute(function, args, dict(zip(names, named, strict=True)))
