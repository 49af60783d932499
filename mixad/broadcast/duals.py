"""Values and partial derivatives of a program at every element, as dual chunks of arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from mixad import pytree
from mixad.broadcast.with_respect_to import Names, real_leaves
from mixad.errors import KernelGradientError
from mixad.kernel.options import KernelOptions
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.dual import MAX_PARTIALS, DualChunk, even_chunks
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.scalar.parse import Leaf, Parsed
from mixad.scalar.pushforward import DualProgram, pushforward
from mixad.tape.apply import apply_program
from mixad.tape.core_axes import stack_core_axes
from mixad.tape.node import library_of_value
from mixad.tape.tracer import primal_value

__all__ = ["dual_chunks"]

Core: TypeAlias = tuple[int, ...]


def dual_chunks(parsed: Parsed, values: Sequence[Any], wrt: Names, options: KernelOptions) -> Any:
    """Return a function's result with a dual chunk of arrays in place of each array."""
    leaves = real_leaves(parsed, values, wrt)
    if len(leaves) > MAX_PARTIALS:
        raise KernelGradientError(
            f"{parsed.program.name}: duals with respect to {len(leaves)} inputs; a dual "
            f"chunk carries at most {MAX_PARTIALS} partials",
            hint="call jacobian, which takes any number, or duals with fewer names in wrt",
        )
    indices = [i for leaf in leaves for i in leaf.params]
    duals = _dual_arrays(parsed.program, values, indices, options)
    if parsed.returned is None:
        chunks = tuple([_chunk([dual], (), leaves) for dual in duals])
        return chunks[0] if parsed.single else chunks
    taken = parsed.returned.pair_outputs(duals)
    found = [_chunk(outputs, core, leaves) for core, outputs in taken]
    return pytree.unflatten(parsed.returned.structure, found)


class _Dual(NamedTuple):
    """An output of a program, and its partials by params; None for no float."""

    primal: Any
    partials: dict[int, Any] | None


def _chunk(outputs: Sequence[_Dual], core: Core, wrt: Sequence[Leaf]) -> DualChunk[Any]:
    """Return the dual chunk of one array, which several outputs may make up."""
    primal = _whole([o.primal for o in outputs], core)
    by_params = [o.partials for o in outputs if o.partials is not None]
    if not by_params:
        return DualChunk(primal)
    partials: dict[Hashable, Any] = {
        leaf.name: _whole([p[i] for p in by_params for i in leaf.params], (*core, *leaf.core))
        for leaf in wrt
    }
    return DualChunk(primal, partials)


def _whole(elements: Sequence[Any], core: Core) -> Any:
    return stack_core_axes(elements, core) if core else elements[0]


def _dual_arrays(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> list[_Dual]:
    """Return each output of a program with its partials, in as few passes as possible."""
    if program.has_named_loops:
        warn_of_decided_results(program, tuple(wrt), tuple(range(len(program.outputs))))
    slots = even_chunks(len(wrt), options.chunk or MAX_PARTIALS) or (range(0),)
    passes = [_dual_pass(program, values, [wrt[slot] for slot in part], options) for part in slots]
    return list(map(_join_passes, zip(*passes, strict=True)))


def _dual_pass(
    program: Program, values: Sequence[Any], wrt: Sequence[int], options: KernelOptions
) -> list[_Dual]:
    """Return the outputs with their partials with respect to some params, from one pass."""
    dual = _dual_program(program, program.origin, tuple(wrt))
    arrays = apply_program(dual.program, values, options)
    return [_output_at(output, arrays, wrt) for output in dual.outputs]


@lru_cache(maxsize=1024)
def _dual_program(program: Program, origin: str, wrt: tuple[int, ...]) -> DualProgram:
    """Return the pushforward; ``origin`` distinguishes equal programs of other lines."""
    return pushforward(program, wrt)


def _output_at(positions: DualChunk[int], arrays: Sequence[Any], wrt: Sequence[int]) -> _Dual:
    """Return an output of arrays for one of positions; static zeros become arrays of zeros."""
    primal = arrays[positions.primal]
    values = primal_value(primal)
    xp = library_of_value(primal).xp
    if not scalar_type_of(values.dtype).is_float:
        return _Dual(primal, None)
    partials = {
        param: arrays[at]
        if (at := positions.partials.get(slot)) is not None
        else xp.zeros_like(values)
        for slot, param in enumerate(wrt)
    }
    return _Dual(primal, partials)


def _join_passes(parts: Sequence[_Dual]) -> _Dual:
    """Return one output's results of several passes as one."""
    if parts[0].partials is None:
        return parts[0]
    found = {param: p for part in parts for param, p in (part.partials or {}).items()}
    return _Dual(parts[0].primal, found)
