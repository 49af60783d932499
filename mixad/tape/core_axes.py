"""The elements along an array's last axes, as arrays of their own and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from mixad.backends.arrays import is_number, own_library
from mixad.backends.execute import Kernel, capability_beside, kernel_for
from mixad.backends.integrations import follower
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import element_type_of
from mixad.scalar.ir import Program
from mixad.scalar.types import ScalarType
from mixad.tape.constant import constant, is_constant, unwrapped
from mixad.tape.node import Rule, apply_rule
from mixad.tape.tracer import Tracer
from mixad.tape.values_rule import ValuesRule, apply_values_rule, instantiate_zeros

__all__ = ["split_core_axes", "stack_core_axes"]

Core = tuple[int, ...]


def split_core_axes(x: Any, core: Core) -> list[Any]:
    """Return views of the elements along the last axes, whose lengths are `core` (not empty).

    Each view is over the axes before; the last index runs first.
    """
    if is_constant(x):
        return list(map(constant, _views(None, unwrapped(x), core)))
    if not isinstance(x, Tracer):
        return list(_views(None, x, core))
    if x.strand is not None:
        return list(x.strand.call(_apply, _ELEMENTS, (x,), {"core": core}))
    return list(apply_values_rule(_ELEMENTS, x, core=core))


def stack_core_axes(elements: Sequence[Any], core: Core) -> Any:
    """Return an array of elements along new last axes; the inverse of `split_core_axes`.

    `core` are the lengths of the new axes. Elements have one dtype and shape; numbers make a NumPy
    array.
    """
    if any(map(is_constant, elements)):
        return constant(stack_core_axes(list(map(unwrapped, elements)), core))
    if any(isinstance(e, Tracer) for e in elements):
        strands = (e.strand for e in elements if isinstance(e, Tracer))
        strand = next((each for each in strands if each is not None), None)
        if strand is not None:
            return strand.call(_apply, _ASSEMBLED, elements, {"core": core})
        return apply_rule(_ASSEMBLED, *elements, core=core)
    if all(map(is_number, elements)):
        return np.asarray(elements).reshape(core)
    return _side_by_side(own_library(elements[0]).xp, *elements, core=core)


def _apply(rule: Any, args: Sequence[Any], static: Any) -> Any:
    """Return the result of a rule on some arguments."""
    apply = apply_rule if type(rule) is Rule else apply_values_rule
    return apply(rule, *args, **static)


def _views(xp: Any, x: Any, core: Core) -> tuple[Any, ...]:
    return tuple([x[(..., *at)] for at in np.ndindex(core)])


def _side_by_side(xp: Any, *elements: Any, core: Core) -> Any:
    kernel = _kernel_for(elements)
    whole = xp.stack(elements, axis=-1) if kernel is None else kernel(elements, None)[0]
    return whole if len(core) == 1 else xp.reshape(whole, (*whole.shape[:-1], *core))


def _kernel_for(elements: Sequence[Any]) -> Kernel | None:
    """Return a kernel that stores arrays side by side, with all threads; None where none does."""
    type = element_type_of(elements[0].dtype)
    if len(elements) == 1 or type.is_complex or follower(elements) is not None:
        return None
    program = _identity(type, len(elements))
    return _storing(program) if capability_beside(program, elements[0]).stores_beside else None


@cache
def _identity(type: ScalarType, count: int) -> Program:
    """Return the program that returns its numbers."""
    builder = Builder("putting an array together")
    return builder.finish([builder.param(f"x{k}", type, "lane") for k in range(count)])


@cache
def _storing(program: Program) -> Kernel:
    beside = tuple([(0, k) for k in range(1, len(program.outputs))])
    return kernel_for((program,), (OutputRequest(0, 0, beside=beside),))


def _of_whole(gs: tuple[Any, ...], values: tuple[Any, ...], x: Any, core: Core) -> Any:
    """Return the cotangent of an array, given those of its elements."""
    return stack_core_axes(instantiate_zeros(gs, values), core)


def _of_elements(g: Any, wanted: Sequence[bool], *elements: Any, core: Core) -> list[Any]:
    found = zip(split_core_axes(g, core), wanted, strict=True)
    return [part if is_wanted else None for part, is_wanted in found]


_ELEMENTS = ValuesRule("taking an array apart", _views, (_of_whole,), fresh=True, is_total=True)
_ASSEMBLED = Rule(
    "putting an array together", _side_by_side, _of_elements, linear="all", moves=True
)
