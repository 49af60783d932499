"""Kernels in programs of XLA: foreign calls on the CPU, whose sums XLA finishes."""

from __future__ import annotations

import hashlib
import math
import struct
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from mixad.backends import registry
from mixad.backends.checks import check_types
from mixad.backends.cpu.code_version import CODE_VERSION
from mixad.backends.cpu.launch import outside_message, runs_directly
from mixad.errors import TracerError
from mixad.kernel.binding import Result, bind
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import accumulator, padded_columns
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.types import ScalarType
from mixad_jax.family import Call
from mixad_jax.handler import TARGET, Record, register

__all__ = ["Shape", "dtype_of", "lowered", "spec_of", "split_axes"]

Shape = tuple[int, ...]

_NOTHING = array("q", (0,))
"""What an empty array's address is, so that a kernel can read an element before it is refused."""


def dtype_of(type: ScalarType) -> np.dtype[Any]:
    """Return the dtype that arrays of a type have in JAX."""
    return np.dtype(jnp.bfloat16) if type.brain else type.dtype


def lowered(call: Call, shape: Shape, shapes: tuple[Shape, ...], *arguments: Any) -> list[Any]:
    """Compute a call in a program of XLA, on each of several devices its own part."""
    if 0 in shape or not _is_elementwise(call):
        return _computed(call, shape, shapes, *arguments)
    found: list[Any] = _partitioned(call, shape, shapes)(*arguments)
    return found


def _computed(call: Call, shape: Shape, shapes: tuple[Shape, ...], *arguments: Any) -> list[Any]:
    """Compute a call on one device."""
    read = [arguments[k] for k in call.reads]
    given = tuple([_packed(scalar_type_of(x.dtype), x.shape) for x in read])
    planned = _planned(call, shape, shapes, given)
    with jax.enable_x64(True):  # sums are kept in 64 bits whatever the user's arrays have
        if planned is None:
            return [
                jnp.zeros(s, dtype_of(output.type))
                for s, output in zip(shapes, call.program.outputs, strict=True)
            ]
        memory = [jax.ShapeDtypeStruct(*each) for each in planned.memory]
        zeros = [jnp.zeros(*planned.memory[at]) for at in planned.added]
        aliases = {len(read) + k: at for k, at in enumerate(planned.added)}
        run = jax.ffi.ffi_call(TARGET, memory, input_output_aliases=aliases)
        one, two = planned.key
        results = run(*read, *zeros, hash_a=np.int64(one), hash_b=np.int64(two))
        return [
            _finished(result, left, planned.axes)
            for result, left in zip(planned.results, results, strict=True)
        ]


@dataclass(frozen=True)
class _Planned:
    """A kernel that is known to the foreign function, and what is left to XLA."""

    key: tuple[int, int]  # the hash of its content
    memory: tuple[tuple[Shape, Any], ...]  # of what it writes: shapes and dtypes
    added: tuple[int, ...]  # which of these are added to, and begin as zeros
    results: tuple[Result, ...]  # how each is finished
    axes: tuple[int, ...] | None  # the permutation from the order of the loops to the caller's


@lru_cache(maxsize=4096)
def _planned(
    call: Call, shape: Shape, shapes: tuple[Shape, ...], layouts: tuple[Layout, ...]
) -> _Planned | None:
    """Compile a kernel for some layouts; None where there are no elements."""
    program = call.program
    backend: Any = registry.backend(call.named.options.backend or "cpu")
    if backend.name != "cpu":
        raise TracerError(
            f"{program.name}: the backend {backend.name!r} computes nothing in programs of JAX: "
            "leave backend= out, or call the kernel outside of JAX's transforms"
        )
    check_types(program, layouts)
    requests = [
        OutputRequest(0, k, s if s != shape or program.accumulator(k) else None)
        for k, s in enumerate(shapes)
    ]
    can = registry.capability(backend.name)
    launch = plan((program,), requests, layouts, shape, can.cache_bytes, folds=can.folds)
    block = bind(launch, accumulator)
    if not block.tiles:
        return None
    kernel = backend.compile(launch.spec)
    words, places = block.words[:], [-1] * len(layouts)
    for k, at in block.arrays:
        if 0 in layouts[k].shape:
            words[at] = _NOTHING.buffer_info()[0]
        else:
            places[k] = at
    outputs = block.outputs
    added = tuple(k for k, out in enumerate(outputs) if out.is_accumulated)
    messages = [
        f"mixad: {outside_message(k, launch)}" if _is_indexed(launch, k) else ""
        for k in range(len(layouts) + len(outputs))
    ]
    content = repr((CODE_VERSION, launch.spec.token, block.words.tolist(), messages)).encode()
    key = struct.unpack("<2q", hashlib.sha256(content).digest()[:16])
    record = Record(
        kernel=kernel.address,
        tiles=block.tiles,
        runs_directly=runs_directly(kernel, launch, block),
        may_not_end=kernel.may_not_end,
        streams=launch.spec.streaming,
        words=words,
        arguments=[*places, *[-1] * len(added)],
        results=[out.position for out in outputs],
        messages=messages,
        owner=kernel,
    )
    register(key, record)
    return _Planned(key, tuple(map(_memory, outputs)), added, outputs, block.axes)


def _is_indexed(launch: Any, array: int) -> bool:
    """Whether an array, of the params and then the outputs, is read or added to by index."""
    output = array - len(launch.indexed)
    if output < 0:
        return launch.indexed[array] is not None
    return launch.spec.outputs[output].accumulated is not None


def _packed(type: ScalarType, shape: Shape) -> Layout:
    """Return the layout that arrays of XLA have here."""
    strides = [type.itemsize * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return Layout(type, shape, tuple(strides))


def _memory(result: Result) -> tuple[Shape, Any]:
    """Return shape and dtype of what a kernel writes."""
    shape = result.memory
    if result.is_summed_by_columns:
        shape = (*shape[:-1], padded_columns(shape[-1]))
    if result.is_accumulated:
        shape = (max(1, math.prod(shape)),)  # lanes without a place of their own change the first
    return shape, dtype_of(result.held)


def _finished(result: Result, left: Any, axes: tuple[int, ...] | None) -> Any:
    """Return an output from what a kernel has left of it."""
    if result.is_accumulated:
        left = left[: math.prod(result.memory)].reshape(result.memory)
    if result.is_summed_by_columns:
        left = left[..., : result.memory[-1]]
    if result.summed is not None:
        left = left.sum(result.summed, keepdims=True)
        if result.columns:
            first = left.ndim - 1
            left = left.reshape(*left.shape[:-1], *(extent for extent, _ in result.columns))
            left = left.sum(
                tuple(first + k for k, (_, is_sum) in enumerate(result.columns) if is_sum),
                keepdims=True,
            )
        left = left.astype(dtype_of(result.type)).reshape(result.shape)
    if axes is not None and not result.is_accumulated:
        left = left.transpose(axes)
    return left.reshape(result.final)


# -- arrays on several devices ---------------------------------------------------------------------


def _is_elementwise(call: Call) -> bool:
    """Whether a call can be computed in parts: no array is read or added to by index."""
    return not (any(call.is_array) or call.program.accumulators)


@lru_cache(maxsize=4096)
def _partitioned(call: Call, shape: Shape, shapes: tuple[Shape, ...]) -> Any:
    """Return the call as a function that XLA may split along the axes of the broadcast shape."""

    @custom_partitioning
    def whole(*arguments: Any) -> tuple[Any, ...]:
        return tuple(_computed(call, shape, shapes, *arguments))

    def partition(mesh: Mesh, given: Sequence[Any], results: Sequence[Any]) -> Any:
        split = _split_axes(mesh, shape, [*given, *results])
        local = _local(shape, shape, split, mesh)
        local_shapes = tuple(_local(s, shape, split, mesh) for s in shapes)

        def part(*arguments: Any) -> tuple[Any, ...]:
            found = _computed(call, local, local_shapes, *arguments)
            return tuple(
                jax.lax.psum(x, axes) if axes else x
                for x, axes in zip(found, map(partial(_summed, shape, split), shapes), strict=True)
            )

        own, made = (
            tuple(NamedSharding(mesh, spec_of(x.shape, shape, split)) for x in each)
            for each in (given, results)
        )
        return mesh, part, made, own

    def rule(mesh: Mesh, given: Sequence[Any], results: Sequence[Any]) -> str:
        operands, outputs = (
            ", ".join(
                " ".join(_factors(tuple(x.shape), shape, f"{of}{k}_")) for k, x in enumerate(each)
            )
            for of, each in (("u", given), ("v", results))
        )
        return f"{operands} -> {outputs}"

    whole.def_partition(partition=partition, sharding_rule=rule)
    return whole


def _places(own: Shape, shape: Shape) -> list[int | None]:
    """Return for each axis of an array which of the broadcast shape's it is; None if of one
    element."""
    first = len(shape) - len(own)
    return [axis if extent == shape[axis] else None for axis, extent in enumerate(own, first)]


def _factors(own: Shape, shape: Shape, prefix: str) -> list[str]:
    """Return names of an array's axes: the same for those that are split together."""
    return [
        f"{prefix}{k}" if axis is None else f"a{axis}" for k, axis in enumerate(_places(own, shape))
    ]


def _split_axes(mesh: Mesh, shape: Shape, arrays: Sequence[Any]) -> list[tuple[str, ...]]:
    """Return for each axis of the broadcast shape the axes of the mesh that split it.

    These are of the first array that is split there; one that does not go in is left out.
    """
    split: list[tuple[str, ...]] = [()] * len(shape)
    for x in arrays:
        for axis, names in split_axes(x, shape):
            if split[axis] or {name for other in split for name in other}.intersection(names):
                continue
            if shape[axis] % math.prod(mesh.shape[name] for name in names) == 0:
                split[axis] = names
    return split


def split_axes(x: Any, shape: Shape) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the axes of the broadcast shape that an array is split along, with a mesh's axes."""
    for axis, names in zip(_places(x.shape, shape), x.sharding.spec, strict=False):
        if axis is not None and names:
            yield axis, (names,) if isinstance(names, str) else tuple(names)


def _local(own: Shape, shape: Shape, split: Sequence[tuple[str, ...]], mesh: Mesh) -> Shape:
    """Return the shape of a device's part of an array."""
    return tuple(
        extent if axis is None else extent // math.prod(mesh.shape[name] for name in split[axis])
        for extent, axis in zip(own, _places(own, shape), strict=True)
    )


def spec_of(own: Shape, shape: Shape, split: Sequence[tuple[str, ...]]) -> PartitionSpec:
    """Return how an array is split where the axes of the broadcast shape are."""
    return PartitionSpec(*[
        None if axis is None or not split[axis] else split[axis] for axis in _places(own, shape)
    ])  # fmt: skip


def _summed(shape: Shape, split: Sequence[tuple[str, ...]], own: Shape) -> tuple[str, ...]:
    """Return the axes of the mesh that a sum goes over, whose parts each device has computed."""
    kept = set(_places(own, shape))
    return tuple(name for axis, names in enumerate(split) if axis not in kept for name in names)
