"""The blocks of a Jacobian: partials of all results at every element, side by side in one array."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mixad.backends.arrays import is_array
from mixad.backends.execute import broadcast_shape, capability_beside, kernel_for
from mixad.broadcast.results import user_result
from mixad.broadcast.with_respect_to import Names, real_leaves
from mixad.errors import KernelGradientError
from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.spec import OutputRequest
from mixad.kernel.strategy import taken_passes
from mixad.namespace.joining import stack
from mixad.namespace.manipulation import reshape
from mixad.scalar.dual import MAX_PARTIALS
from mixad.scalar.ir import Program
from mixad.scalar.jacobian import PartialsPass, dual_partials, reverse_partials
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.scalar.parse import Parsed
from mixad.tape.apply import apply_program
from mixad.tape.kernel_call import kernel_values
from mixad.tape.tracer import Tracer

__all__ = ["value_and_jacobian"]

_MAX_BESIDE = 128
"""Partials that one launch stores side by side: a gang of them is assembled on the stack."""


@dataclass(frozen=True)
class _Plan:
    """Programs with the same params, and the pass and result of each output and each partial."""

    passes: tuple[Program, ...]
    primals: tuple[tuple[int, int], ...]
    partials: tuple[tuple[int, int], ...]


def value_and_jacobian(
    parsed: Parsed,
    values: Sequence[Any],
    wrt: Names,
    options: KernelOptions,
    *,
    with_primals: bool = True,
) -> tuple[Any, Any]:
    """Return the values of a function, None if not wanted, and its Jacobian at every element.

    The Jacobian has an axis of outputs only where the function returns several.
    """
    leaves = real_leaves(parsed, values, wrt)
    indices = [i for leaf in leaves for i in leaf.params]
    if not indices:
        raise KernelGradientError(
            f"{parsed.program.name}: a Jacobian with respect to no inputs",
            hint="pass floats, or name some in wrt",
        )
    primals, blocks = _blocks(parsed.program, values, indices, options, with_primals)
    is_one = parsed.returned is None and parsed.single
    value = user_result(parsed, tuple(primals)) if with_primals else None
    return value, blocks[..., 0, :] if is_one else blocks


def _blocks(
    program: Program,
    values: Sequence[Any],
    wrt: Sequence[int],
    options: KernelOptions,
    with_primals: bool,
) -> tuple[list[Any], Any]:
    """Return the outputs, if wanted, and partials: axes of outputs and ``wrt`` come last."""
    _check_outputs(program)
    if program.has_named_loops:
        warn_of_decided_results(program, tuple(wrt), tuple(range(len(program.outputs))))
    plan = _plan(program, program.origin, tuple(wrt), options.mode, with_primals)
    shape = broadcast_shape(program, [tuple(getattr(v, "shape", ())) for v in values])
    block = (len(program.outputs), len(wrt))
    made = _in_one_launch if _is_one_launch(program, values, plan, options) else _by_planes
    primals, partials = made(plan, values, options)
    return primals, reshape(partials, (*shape, *block))


def _is_one_launch(
    program: Program, values: Sequence[Any], plan: _Plan, options: KernelOptions
) -> bool:
    """Whether one launch stores all partials in their places."""
    if len(plan.partials) > _MAX_BESIDE or any(isinstance(v, Tracer) for v in values):
        return False
    arrays = (v for v in values if is_array(v) and not isinstance(v, np.generic))
    array = next(arrays, np.empty(0))
    return capability_beside(program, array, options.backend).stores_beside


def _in_one_launch(
    plan: _Plan, values: Sequence[Any], options: KernelOptions
) -> tuple[list[Any], Any]:
    first, *others = plan.partials
    blocks = OutputRequest(*first, beside=tuple(others))
    kernel = kernel_for(plan.passes, (*(OutputRequest(*at) for at in plan.primals), blocks))
    *primals, partials = kernel(kernel_values(plan.passes[0], values), options.backend)
    return primals, partials


def _by_planes(plan: _Plan, values: Sequence[Any], options: KernelOptions) -> tuple[list[Any], Any]:
    """Compute an array for each partial, and stack these; they may be recorded."""
    arrays = [apply_program(program, values, options) for program in plan.passes]
    primals, planes = (
        [arrays[at][result] for at, result in places] for places in (plan.primals, plan.partials)
    )
    return primals, stack(planes, axis=-1)


def _check_outputs(program: Program) -> None:
    """Raise where partials of all outputs do not fit one array."""
    types = [output.type for output in program.outputs]
    if types[0].is_float and len(set(types)) == 1:
        return
    listed = ", ".join(type.dtype_name for type in types)
    raise KernelGradientError(
        f"{program.name}: a Jacobian of results of {listed}; one array takes floats of one type",
        hint="call duals, which returns arrays of their own, or convert results in the function",
    )


@lru_cache(maxsize=1024)
def _plan(
    program: Program, origin: str, wrt: tuple[int, ...], mode: Mode, with_primals: bool
) -> _Plan:
    """Return the programs; ``origin`` distinguishes equal ones, whose errors name other lines."""

    def forward() -> tuple[PartialsPass, ...]:
        chunk = mode.chunk or MAX_PARTIALS
        return dual_partials(program, wrt, chunk=chunk, with_primals=with_primals)

    def reverse() -> tuple[PartialsPass, ...]:
        return (reverse_partials(program, wrt, with_primals=with_primals),)

    _, passes = taken_passes(program, wrt, mode, forward, reverse)
    places = {}
    for at, found in enumerate(passes):
        width = len(found.columns)
        for k, column in enumerate(found.columns):
            for row in range(len(program.outputs)):
                places[row, column] = (at, found.primals + row * width + k)
    return _Plan(
        tuple(found.program for found in passes),
        tuple((at, k) for at, found in enumerate(passes) for k in range(found.primals)),
        tuple(places[place] for place in sorted(places)),
    )
