"""What functions with derivative rules of their own have in common."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import as_array, is_array, is_scalar
from mixad.backends.unsupported_arrays import check_no_tracer
from mixad.call.signature import Argnums, Function, check_callable
from mixad.config import CHECK
from mixad.errors import TracerError
from mixad.namespace.data_types import astype
from mixad.scalar.parse.by_value import PickledFunction, by_value
from mixad.tape.cell import Cell
from mixad.tape.constant import constant, is_constant, is_traced, unwrapped
from mixad.tape.guard import GuardedArray, Reader
from mixad.tape.kernel_node import moved
from mixad.tape.tracer import Tracer, primal_value
from mixad.transforms.lifting import matching

__all__ = ["Arguments", "CustomFunction", "fitting", "fitting_leaves", "pair_of", "place_of"]


class Arguments:
    """The arguments of one call: those at the positions ``fixed`` are not differentiated."""

    def __init__(self, name: str, arguments: tuple[Any, ...], fixed: Sequence[int]) -> None:
        positions = {_position(name, at, len(arguments)) for at in fixed}
        self._fixed = tuple([arguments[at] for at in sorted(positions)])
        self._watched: list[GuardedArray] = []
        self.primals = tuple([a for at, a in enumerate(arguments) if at not in positions])
        self._positions = positions
        for at in sorted(positions):
            if any(map(is_traced, pytree.leaves(arguments[at]))):
                raise TracerError(
                    f"{name}: argument {at} is named in nondiff_argnums and is being "
                    "differentiated: leave it out of nondiff_argnums, or pass its "
                    "mixad.stop_gradient"
                )

    def watch(self, reader: Reader) -> None:
        """Retain the other arguments as they are now, for a rule that reads them later."""
        self._fixed = pytree.tree_map(_own, self._fixed)
        arrays = [primal_value(leaf) for leaf in pytree.leaves(self._fixed)]
        self._watched = [GuardedArray(a, CHECK.read(), reader) for a in arrays if is_array(a)]

    @property
    def fixed(self) -> tuple[Any, ...]:
        """The arguments that are not differentiated; raises if an array in them has changed."""
        for held in self._watched:
            held.array  # noqa: B018
        return self._fixed

    def with_primals(self, primals: Sequence[Any]) -> tuple[Any, ...]:
        """Return all arguments, with the given ones in place of the primals."""
        fixed, moving = iter(self.fixed), iter(primals)
        count = len(self._fixed) + len(self.primals)
        return tuple([next(fixed if at in self._positions else moving) for at in range(count)])

    @property
    def is_traced(self) -> bool:
        """Whether a primal is being differentiated.

        TracerError if JAX or autograd follows one: they would not see the user's rule.
        """
        leaves = pytree.leaves(self.primals)
        for kind in set(map(type, leaves)):
            check_no_tracer(kind)
        return any(map(is_traced, leaves))


def _own(leaf: Any) -> Any:
    """Return a constant under another name: writes to the user's do not change it."""
    return constant(unwrapped(leaf)) if is_constant(leaf) else leaf


def _positions(name: str, nondiff_argnums: Argnums) -> tuple[int, ...]:
    """Return the positions that a rule names, also a single one."""
    given = nondiff_argnums if isinstance(nondiff_argnums, Sequence) else (nondiff_argnums,)
    for at in given:
        if not isinstance(at, (int, np.integer)) or isinstance(at, bool):
            raise TracerError(
                f"{name}: nondiff_argnums names {at!r}: name arguments by position, such as (0, 2)"
            )
    if len(set(given)) < len(given):
        raise TracerError(
            f"{name}: nondiff_argnums={nondiff_argnums!r} names an argument twice: name it once"
        )
    return tuple(map(int, given))


def _from_the_front(f: Function, positions: tuple[int, ...]) -> tuple[int, ...]:
    """Return positions counted from the front; negative ones count back in f's signature.

    If ``f`` takes any number of arguments they stay, and count from the end of each call's.
    """
    if min(positions, default=0) >= 0:
        return positions
    kinds = [p.kind for p in inspect.signature(f).parameters.values()]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return positions
    count = (
        len(kinds)
        - kinds.count(inspect.Parameter.KEYWORD_ONLY)
        - (inspect.Parameter.VAR_KEYWORD in kinds)
    )
    return tuple([at + count if -count <= at < 0 else at for at in positions])


def _position(name: str, at: int, count: int) -> int:
    if not -count <= at < count:
        raise TracerError(
            f"{name}: nondiff_argnums names argument {at} of a call with {count}: name one of those"
        )
    return at % count


class CustomFunction(PickledFunction):
    """A function with the user's own derivative; ``transform`` names its decorator in messages."""

    def __init__(self, transform: str, f: Function, nondiff_argnums: Argnums) -> None:
        check_callable(transform, f)
        self._rule: Any = None
        for name in functools.WRAPPER_ASSIGNMENTS:
            if hasattr(f, name):
                setattr(self, name, getattr(f, name))
        self.f = f
        self.name = f"mixad.{transform} of {getattr(f, '__name__', type(f).__name__)}"
        self._fixed = _from_the_front(f, _positions(self.name, nondiff_argnums))

    def _reduce(self) -> tuple[Any, ...]:
        return type(self), (by_value(self.f), self._fixed), by_value(self._rule)

    def __setstate__(self, rule: Any) -> None:
        self._rule = rule

    def arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Return the arguments of a call, keyword arguments in their positions."""
        is_default = any(at >= len(args) for at in self._fixed)  # of the arguments not passed
        if kwargs or is_default:
            bound = inspect.signature(self.f).bind(*args, **kwargs)
            if is_default:
                bound.apply_defaults()
            named = [name for name in kwargs if name in bound.kwargs]
            if named:
                raise TracerError(
                    f"{self.name}: {', '.join(named)} can be passed by keyword only, which "
                    "rules do not get: make it a positional argument"
                )
            args = bound.args
        return Arguments(self.name, args, self._fixed)


def place_of(rule: Function) -> str:
    """Return where a rule is, for messages; empty if it is not written in Python."""
    code = getattr(inspect.unwrap(rule), "__code__", None)
    return "" if code is None else f" (in {code.co_filename}, line {code.co_firstlineno})"


def pair_of(name: str, rule: str, result: Any, what: str) -> Any:
    """Return a rule's result, which must be a pair."""
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        got = "an array" if isinstance(result, Tracer) or is_array(result) else "no pair"
        raise TracerError(f"{name}: {rule} returned {got}: return a pair {what}")
    return result


def fitting_leaves(what: str, structure: pytree.Structure, tree: Any) -> list[Any]:
    """Return the leaves of a rule's result, in which None stands for zeros of any tree."""
    try:
        return pytree.leaves_or_none(structure, tree)
    except ValueError as error:
        raise TracerError(f"{what} {error}: return one of that structure") from None


def fitting(what: str, cell: Cell, given: Any) -> Any:
    """Return a tangent or cotangent that a rule returned, as one of a value.

    A Python number may have one of another dtype or library, that of what it was computed from. A
    number for an array is refused: it is a sum that should not be there.
    """
    given = unwrapped(given)
    if is_scalar(given):
        given = cell.library.asarray(given, cell.type, cell.device)
    given = as_array(given)
    if not cell.kind.weak or tuple(getattr(given, "shape", (0,))):
        return matching(cell, given, what)
    if not isinstance(given, Tracer):
        return cell.library.asarray(float(given), cell.type, cell.device)
    dtype = cell.library.dtype_of(cell.type)
    there = moved(given, cell.library, cell.device)
    return there if there.dtype == dtype else astype(there, dtype)
