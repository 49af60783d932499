"""Loops of steps: `scan`, `fori_loop`, `while_loop`, `map`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from array_api_compat import is_writeable_array

from mixad import pytree
from mixad.backends.arrays import NUMPY, Library, is_array, is_scalar, library_of
from mixad.call.closures import captured_values
from mixad.config import LOOP_MEMORY
from mixad.constructs.leaves import leaf_of, result_of, returned_leaf
from mixad.constructs.loop import Loop, needs_of, run_loop
from mixad.constructs.recorded_body import RecordedBody, record_body, record_twice
from mixad.constructs.while_loop_rule import WhileLoop, run_while_loop
from mixad.errors import TracerError
from mixad.namespace.array_methods import copy_array
from mixad.namespace.elementwise import weak_type
from mixad.namespace.joining import stack
from mixad.scalar.types import BOOL
from mixad.tape.cell import kind_of
from mixad.tape.constant import unwrapped
from mixad.tape.node import Result, common_library
from mixad.tape.tracer import Tracer

__all__ = ["fori_loop", "map", "scan", "while_loop"]

_map = map


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    *,
    reverse: bool = False,
    memory: int | None = None,
) -> tuple[Any, Any]:
    """Run a function over the steps of arrays, handing a carry from one step to the next.

    The function is called twice or more on values whose elements are unknown, and what it does with
    them is compiled and run in each step.  So it must do the same whatever these are, and whenever
    it is called; what cannot be recorded so runs in Python in each step.

    Parameters
    ----------
    f : callable
        ``f(carry, x) -> (carry, y)``: the next carry, of the structure, shapes and dtypes of the
        last, and what the step gives.  All traced values that it captures are differentiated.
    init : array or pytree
        The first carry.
    xs : array or pytree, optional
        Arrays of one length; each step takes a part of each, along the first axis.
    length : int, optional
        How many steps there are: needed without ``xs``.
    reverse : bool
        Whether the last part of ``xs`` is taken first.  ``ys`` are where their ``xs`` are.
    memory : int, optional
        Bytes of carries that are kept for the derivative; steps whose carries are not kept run
        again.  By default what ``MIXAD_LOOP_MEMORY`` says, 1 GiB.

    Returns
    -------
    carry : array or pytree
        The last carry; ``init`` if there are no steps.
    ys : array or pytree
        What the steps give, side by side along a first axis.

    Raises
    ------
    TracerError
        If lengths or carries do not fit together, a step depends on elements in Python, or there is
        not memory for two carries.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> def step(total, x):
    ...     total = total + x
    ...     return total, total * x
    >>> mixad.scan(step, 0.0, np.asarray([1.0, 2.0, 3.0]))
    (array(6.), array([ 1.,  6., 18.]))
    """
    return _scan("scan", f, init, xs, length, reverse=reverse, memory=memory)


def fori_loop(
    lower: int, upper: int, body_fun: Callable[[Any, Any], Any], init_val: Any, *,
    memory: int | None = None,
) -> Any:  # fmt: skip
    """Run a function for each whole number of a range, handing a value from one step to the next.

    Parameters
    ----------
    lower, upper : int
        The range, whose end is not in it.
    body_fun : callable
        ``body_fun(i, value) -> value``; what holds for the function of `scan` holds for it.
    init_val : array or pytree
        The first value.
    memory : int, optional
        As for `scan`.

    Returns
    -------
    array or pytree
        The last value.

    Raises
    ------
    TracerError
        As for `scan`.

    Examples
    --------
    >>> import mixad
    >>> mixad.fori_loop(1, 6, lambda i, x: x * i, 1.0)
    array(120.)
    """
    name = "fori_loop"
    numbers = range(_whole(name, "lower", lower), _whole(name, "upper", upper))

    def call(value: Any, parts: Sequence[Any]) -> Any:
        return body_fun(parts[0], value), None

    leaves, structure = pytree.flatten(init_val)
    steps = _Steps(name, call, structure, numbers)
    carries, library = _as_carries(steps, leaves, [])
    device = getattr(carries[0], "device", None) if library is not NUMPY else None
    xs = library.xp.arange(
        numbers.start, numbers.stop, dtype=library.widest("int64"), device=device
    )
    return _loop(steps, leaves, [xs], len(numbers), memory=memory)[0]


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    *,
    memory: int | None = None,
) -> Any:
    """Run a function for as long as a predicate holds, handing a value from step to step.

    Its derivative is that of the steps that were taken; the predicate has none.

    Parameters
    ----------
    cond_fun : callable
        ``cond_fun(value)``: whether there is another step, a bool without axes.
    body_fun : callable
        ``body_fun(value) -> value``; what holds for the function of `scan` holds for both.
    init_val : array or pytree
        The first value.
    memory : int, optional
        As for `scan`.

    Returns
    -------
    array or pytree
        The last value.

    Raises
    ------
    TracerError
        As for `scan`; if the predicate gives no bool without axes.

    Examples
    --------
    >>> import mixad
    >>> def root(a):
    ...     return mixad.while_loop(
    ...         lambda x: abs(x * x - a) > 1e-12, lambda x: 0.5 * (x + a / x), a
    ...     )
    >>> float(root(2.0)), float(mixad.grad(root)(2.0))
    (1.414213562373095, 0.35355339059327373)
    """
    name = "while_loop"
    leaves, structure = pytree.flatten(init_val)
    if not leaves:
        raise TracerError(f"mixad.{name}: there is no carry: pass what changes as init_val")
    steps = _Steps(name, lambda value, parts: (body_fun(value), None), structure)
    carries, library = _as_carries(steps, leaves, [])
    recorded, test = None, None
    if _can_run_again(library):
        carries = steps.promote(leaves, carries, [])
        inputs = list(_map(result_of, carries))
        recorded = steps.record_alike(inputs, [])
        test = record_twice(name, lambda *v: cond_fun(pytree.unflatten(structure, v)), inputs)
    if recorded is not None and test is not None:
        _check_test(test)
        room = _room_for(inputs, memory)
        tests = len(test.captured)
        loop = WhileLoop(test.body, recorded.body, len(carries), tests, room, recorded.logged)
        values = run_while_loop(loop, [*carries, *test.captured, *recorded.captured])
        return pytree.unflatten(structure, _map(returned_leaf, values[:-1]))
    value = pytree.tree_map(_copy, init_val)
    while bool(cond_fun(value)):
        value = pytree.tree_map(_copy, body_fun(value))
    return value


def map(f: Callable[[Any], Any], xs: Any) -> Any:
    """Return what a function gives for each part of arrays along their first axis, one by one.

    Parameters
    ----------
    f : callable
        Of a part of each of ``xs``.
    xs : array or pytree
        Arrays of one length.

    Returns
    -------
    array or pytree
        What it gives, side by side along a first axis.

    Raises
    ------
    TracerError
        As for `scan`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.map(lambda row: row @ row, np.asarray([[1.0, 2.0], [3.0, 4.0]]))
    array([ 5., 25.])
    """
    return _scan("map", lambda carry, x: (carry, f(x)), None, xs)[1]


def _scan(
    name: str,
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    length: int | None = None,
    *,
    reverse: bool = False,
    memory: int | None = None,
) -> tuple[Any, Any]:
    """Run a function over the steps of arrays; ``name`` is the caller's."""
    leaves, structure = pytree.flatten(xs)
    given = [leaf_of(leaf, f"mixad.{name}: xs") for leaf in leaves]
    count = _length_of(name, given, length)

    def call(carry: Any, parts: Sequence[Any]) -> Any:
        return f(carry, pytree.unflatten(structure, parts))

    carries, carry = pytree.flatten(init)
    steps = _Steps(name, call, carry)
    return _loop(steps, carries, given, count, reverse=reverse, memory=memory)


class _Steps(NamedTuple):
    """The function of each step of a loop: of a carry and slices, it returns a carry and ys.

    A loop over numbers has these as slices: Python's where the loop runs in Python.
    """

    name: str
    call: Callable[[Any, Sequence[Any]], Any]
    structure: pytree.Structure
    numbers: range | None = None

    def record(self, carries: Sequence[Result], parts: Sequence[Result]) -> RecordedBody | None:
        """Return a step's body; None if it may do something else for other values."""
        return record_body(self.name, self._call_of(len(carries)), [*carries, *parts])

    def _call_of(self, count: int) -> Callable[..., Any]:
        """Return a function of ``count`` leaves of a carry, and of slices."""

        def call(*values: Any) -> Any:
            return self.call(pytree.unflatten(self.structure, values[:count]), values[count:])

        return call

    def record_alike(
        self, carries: Sequence[Result], parts: Sequence[Result]
    ) -> RecordedBody | None:
        """Return a step's body; refuse a function that does something else when called again."""
        found = record_twice(self.name, self._call_of(len(carries)), [*carries, *parts])
        if found is None:
            return None
        self._check_structure(found.structure)
        self._check_carries(carries, found.body.results)
        return found

    def promote(
        self, leaves: Sequence[Any], carries: list[Any], parts: Sequence[Result]
    ) -> list[Any]:
        """Return carries; Python numbers that adapt get the dtype that a step returns for them."""
        are_numbers = [is_scalar(leaf) for leaf in leaves]
        if not any(are_numbers):
            return carries
        given = list(_map(result_of, carries))
        weak = [
            each._replace(kind=kind_of(each.kind.type, each.kind.library, True))
            if is_number
            else each
            for each, is_number in zip(given, are_numbers, strict=True)
        ]
        found = self.record(weak, parts)
        if found is None:
            return carries
        self._check_structure(found.structure)
        results = zip(leaves, carries, found.body.results, are_numbers, strict=False)
        return [
            r.kind.library.asarray(leaf, r.kind.type, r.device)
            if is_number and _KINDS[weak_type(leaf).kind] <= _KINDS[r.kind.type.kind]
            else carry
            for leaf, carry, r, is_number in results
        ]

    def _check_structure(self, returned: pytree.Structure) -> None:
        """Refuse a result that is no pair with a first carry of the same structure."""
        if returned.kind is not tuple or len(returned.children) != 2:
            raise TracerError(
                f"mixad.{self.name}: the function must return a pair (carry, y), it returned "
                f"{returned}: write None for y if there is none"
            )
        own = returned.children[0]
        if own is not self.structure and own != self.structure:
            raise TracerError(
                f"mixad.{self.name}: the carry has the structure {self.structure}, the function "
                f"returns one of {own}: return a carry like the one that it is given"
            )

    def _check_carries(self, carries: Sequence[Result], results: Sequence[Result]) -> None:
        for before, after in zip(carries, results, strict=False):
            if (before.shape, before.kind.type) != (after.shape, after.kind.type):
                raise TracerError(
                    f"mixad.{self.name}: a carry of shape {before.shape} and dtype "
                    f"{_dtype_of(before)} becomes one of shape {after.shape} and dtype "
                    f"{_dtype_of(after)}: give the loop an array like the latter, or convert what "
                    "the function returns"
                )


def _as_carries(
    steps: _Steps, leaves: Sequence[Any], xs: Sequence[Any]
) -> tuple[list[Any], Library]:
    """Return leaves as arrays, and their library; numbers become arrays of the others' library.

    Of numbers alone it is the library of the function's captures.
    """
    what = f"mixad.{steps.name}: the carry"
    given = [leaf if is_scalar(leaf) else leaf_of(leaf, what) for leaf in leaves]
    arrays = [*[each for each in given if not is_scalar(each)], *xs]
    arrays = arrays or [each for found in captured_values(steps.call) for each in found]
    library = common_library(f"mixad.{steps.name}", arrays) if arrays else NUMPY
    device = getattr(arrays[0], "device", None) if arrays and library is not NUMPY else None
    carries = [
        library.asarray(each, weak_type(each), device) if is_scalar(each) else each
        for each in given
    ]
    return carries, library


def _loop(
    steps: _Steps,
    leaves: Sequence[Any],
    xs: Sequence[Any],
    length: int,
    *,
    reverse: bool = False,
    memory: int | None = None,
) -> tuple[Any, Any]:
    """Run a loop over slices of arrays; return the last carry, and the steps' results."""
    carries, library = _as_carries(steps, leaves, xs)
    if _can_run_again(library):
        parts = [part._replace(shape=part.shape[1:]) for part in _map(result_of, xs)]
        carries = steps.promote(leaves, carries, parts)
        recorded = steps.record_alike(list(_map(result_of, carries)), parts)
        if recorded is not None:
            arguments = [*carries, *xs, *recorded.captured]
            traced = [each for each in arguments if isinstance(each, Tracer)]
            room = _room_for(recorded.body.results[: len(carries)], memory, length)
            room = min(room, max(length, 1))
            is_reverse = any(level.is_reverse for each in traced for level in each.levels)
            loop = Loop(recorded.body, len(carries), len(xs), length, reverse, (), False, room)
            loop = replace(loop, logged=recorded.logged)
            needs = needs_of(loop, xs, recorded.captured) if is_reverse else None
            if needs is not None and loop.has_room(length, needs, room):
                loop = loop.keeping(needs)
            values = run_loop(loop, arguments)[: len(recorded.body.results)]
            carry, ys = pytree.unflatten(recorded.structure, _map(returned_leaf, values))
            return carry, ys
    return _run_in_python(steps, leaves, xs, length, reverse)


_KINDS = {"bool": 0, "int": 1, "uint": 1, "float": 2, "complex": 3}
"""Kinds of types; a Python number adapts to one that does not come before its own."""


def _dtype_of(result: Result) -> Any:
    return result.kind.library.dtype_of(result.kind.type)


@cache
def _can_run_again(library: Library) -> bool:
    """Whether bodies over a library's arrays are recorded: it can write results side by side.

    Others, JAX among them, have functions that take no traced values.
    """
    return not library.is_lazy and bool(is_writeable_array(library.xp.empty(0)))


def _length_of(name: str, xs: Sequence[Any], length: int | None) -> int:
    """Return the number of steps."""
    if any(not x.shape for x in xs):
        raise TracerError(f"mixad.{name}: xs contains a number: pass arrays with an axis of steps")
    lengths = [int(x.shape[0]) for x in xs]
    if length is not None:
        lengths.append(_whole(name, "length", length))
        if lengths[-1] < 0:
            raise TracerError(f"mixad.{name}: length is {length}: pass 0 or more")
    if not lengths:
        raise TracerError(f"mixad.{name}: how many steps there are is not known: pass xs or length")
    if len(set(lengths)) > 1:
        raise TracerError(
            f"mixad.{name}: arrays of {' and '.join(_map(str, dict.fromkeys(lengths)))} steps: "
            "pass xs and length of one number of steps"
        )
    return lengths[0]


def _whole(name: str, what: str, number: Any) -> int:
    """Return a whole number of steps."""
    if isinstance(number, Tracer):
        raise TracerError(
            f"mixad.{name}: {what} is a traced value: pass a number that is known, or use "
            "mixad.while_loop, which runs for as long as a predicate holds"
        )
    try:
        return int(number.__index__())
    except AttributeError:
        raise TracerError(f"mixad.{name}: {what} is {number!r}: pass a whole number") from None


def _check_test(test: RecordedBody) -> None:
    """Raise if a predicate gives no bool."""
    results = test.body.results
    if len(results) != 1 or results[0].shape or results[0].kind.type != BOOL:
        shown = [f"{_dtype_of(result)} of shape {result.shape}" for result in results]
        raise TracerError(
            f"mixad.while_loop: cond_fun gives {', '.join(shown) or 'nothing'}: return one bool, "
            "such as x > 0 or numpy.any(x > 0)"
        )
    if test.is_constant:
        raise TracerError(
            "mixad.while_loop: what cond_fun gives does not depend on the value that is handed on, "
            "so the loop would never end, or never begin: make it of the value"
        )


def _room_for(carries: Sequence[Result], memory: int | None, length: int | None = None) -> int:
    """Return how many carries there is memory for, beside one; no limit if all of a loop fit.

    0 if there is none for two.
    """
    limit = LOOP_MEMORY.read() if memory is None else memory
    bytes_ = sum(each.nbytes for each in carries)
    if not bytes_ or (length is not None and length * bytes_ <= limit):
        return 1 << 62
    return max(int(limit // bytes_) - 1, 0)


def _run_in_python(
    steps: _Steps, leaves: Sequence[Any], xs: Sequence[Any], length: int, reverse: bool
) -> tuple[Any, Any]:
    """Run the steps of a loop one by one, each recorded as any other operation.

    The function may write to its arguments, which are copies, as where the loop is recorded.
    """
    carry, found = pytree.unflatten(steps.structure, leaves), list[Any]()
    for at in reversed(range(length)) if reverse else range(length):
        numbers = steps.numbers
        parts = [_copy(x[at, ...]) for x in xs] if numbers is None else [numbers[at]]
        carry, y = steps.call(pytree.tree_map(_copy, carry), parts)
        found.append(y)
    if not found and steps.numbers is not None:
        return carry, None
    if not found:
        raise TracerError(
            f"mixad.{steps.name}: no step tells what they give: pass one step or more"
        )
    if reverse:
        found.reverse()
    return carry, pytree.tree_map(lambda *ys: stack([leaf_of(y, "y") for y in ys]), *found)


def _copy(leaf: Any) -> Any:
    """Return a leaf that may be written to, if leaves like it may."""
    leaf = unwrapped(leaf)
    if isinstance(leaf, Tracer):
        return copy_array(leaf)
    if not is_array(leaf) or not _can_run_again(library_of(leaf)):
        return leaf
    return library_of(leaf).xp.asarray(leaf, copy=True)
