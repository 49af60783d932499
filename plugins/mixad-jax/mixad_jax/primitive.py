"""Calls of kernels in JAX's transforms: one primitive, whose derivatives are itself.

An equation has a call (`mixad_jax.family`), the broadcast shape, and the shape of each output: that
or what it is summed to. Tangents are linear equations of their own, so that JAX's linearisation and
transposition find them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from operator import and_
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import dispatch
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from mixad.backends.arrays import is_array, own_library
from mixad.errors import KernelShapeError, KernelTypeError, TracerError
from mixad.kernel.options import KernelOptions
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad_jax.family import Call, Derivation, call_of
from mixad_jax.lowering import Shape, dtype_of, lowered, spec_of, split_axes

__all__ = ["KERNEL", "JaxIntegration"]

KERNEL = Primitive("mixad_kernel")
"""``(*arguments, call, shape, shapes)``: a `Call`, the broadcast shape, the outputs' shapes."""

KERNEL.multiple_results = True


class JaxIntegration:
    """What mixad asks about calls on JAX's arrays: see `mixad.backends.protocols.Integration`."""

    kinds: tuple[type, ...] = (jax.core.Tracer,)  # values inside JAX's transforms

    def is_tracing(self) -> bool:
        """Whether JAX reads the call instead of making it: it never does."""
        return False

    def trace(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call that JAX reads: there is none."""
        raise TracerError("JAX reads no calls of kernels: they are made on values that it follows")

    def follows(self, values: Sequence[Any]) -> bool:
        """Whether JAX is to see the call: in its transforms, or of arrays on several devices."""
        return any(
            isinstance(v, jax.core.Tracer)
            or (isinstance(v, jax.Array) and v.sharding.num_devices > 1)
            for v in values
        )

    def call(
        self, program: Program, values: Sequence[Any], options: KernelOptions
    ) -> tuple[jax.Array, ...]:
        """Apply a program at every element, as an equation of JAX's."""
        call = call_of(program, options)
        arguments = [_argument(call.program, k, value) for k, value in enumerate(values)]
        shape = _broadcast(call, [x.shape for x in arguments])
        return tuple(_bind(call, shape, (shape,) * len(program.outputs), arguments))


def _argument(program: Program, k: int, value: Any) -> jax.Array:
    """Return an argument as an array of JAX, of the type that the program takes."""
    param = program.params[k]
    if isinstance(value, jax.Array):
        return value
    if isinstance(value, np.generic) or not is_array(value):
        dtype = dtype_of(param.var.type)
        try:
            with jax.enable_x64(True):  # programs take Python's floats as they are
                return jnp.asarray(value, dtype)
        except OverflowError:
            raise KernelTypeError(
                f"{program.name}: argument {param.name!r} is {value}, which {dtype} does not hold",
                hint="pass a float",
            ) from None
    raise KernelTypeError(
        f"{program.name}: argument {param.name!r} is an array of {own_library(value).name} "
        "beside values that JAX follows",
        hint=f"pass jax.numpy.asarray({param.name})",
    )


def _broadcast(call: Call, shapes: Sequence[Shape]) -> Shape:
    lanes = [s for s, is_array in zip(shapes, call.is_array, strict=True) if not is_array]
    if not all(isinstance(extent, int) for s in shapes for extent in s):
        raise TracerError(
            f"{call.program.name}: kernels are made for known shapes, not for symbolic ones: "
            "export the function for each shape"
        )
    try:
        return jnp.broadcast_shapes(*lanes)
    except ValueError:
        listed = " and ".join(map(str, dict.fromkeys(lanes)))
        raise KernelShapeError(f"{call.program.name}: shapes {listed} do not broadcast") from None


def _bind(
    call: Call, shape: Shape, shapes: Sequence[Shape], arguments: Sequence[Any]
) -> list[jax.Array]:
    """Add an equation; under `jax.shard_map`, all arguments vary along the same axes.

    A cast to these is linear: a gradient is summed over them.
    """
    jet = sys.modules.get("jax.experimental.jet")
    if jet is not None and any(isinstance(x, jet.JetTracer) for x in arguments):
        raise TracerError(
            f"{call.program.name}: jax.experimental.jet does not see what happens here: "
            "nest jax.jvp"
        )
    varying = [jax.typeof(x).manual_axis_type.varying for x in arguments]
    axes = frozenset().union(*varying)
    cast = [
        x if own == axes else jax.lax.pcast(x, tuple(axes - own), to="varying")
        for x, own in zip(arguments, varying, strict=True)
    ]
    found: list[jax.Array] = KERNEL.bind(*cast, call=call, shape=shape, shapes=tuple(shapes))
    return found


@lru_cache(maxsize=1024)
def _compiled(call: Call, shape: Shape, shapes: tuple[Shape, ...]) -> Any:
    return jax.jit(lambda *x: KERNEL.bind(*x, call=call, shape=shape, shapes=shapes))


@KERNEL.def_impl
def _run(*arguments: Any, call: Call, shape: Shape, shapes: tuple[Shape, ...]) -> Any:
    with jax.disable_jit(False):  # what is run here is a program of XLA, whatever the user has said
        return _compiled(call, shape, shapes)(*arguments)


@KERNEL.def_abstract_eval
def _typed(*avals: Any, call: Call, shape: Shape, shapes: tuple[Shape, ...]) -> list[Any]:
    types = set(jax.sharding.get_abstract_mesh().axis_types)
    if {AxisType.Manual, AxisType.Auto} <= types:
        raise TracerError(
            f"{call.program.name}: jax.shard_map over some axes of a mesh is not available here: "
            "map over all of them, leave axis_names out"
        )
    kinds = [kind for aval in avals for kind in (aval.manual_axis_type, aval.sharding.spec)]
    if any(kind.unreduced or kind.reduced for kind in kinds):
        raise TracerError(
            f"{call.program.name}: an argument is unreduced, a sum over a mesh that has yet to be "
            "taken, or reduced: pass it resharded"
        )
    mesh = next((a.sharding.mesh for a in avals if a.sharding.mesh.axis_names), None)
    split = _split(call, shape, avals)
    return [
        avals[0].update(
            s,
            dtype_of(output.type),
            False,
            sharding=None if mesh is None else NamedSharding(mesh, spec_of(s, shape, split)),
        )
        for s, output in zip(shapes, call.program.outputs, strict=True)
    ]


def _split(call: Call, shape: Shape, avals: Sequence[Any]) -> list[tuple[str, ...]]:
    """Return for each axis of the broadcast shape the explicit axes of a mesh that split it."""
    split: list[tuple[str, ...]] = [()] * len(shape)
    for aval, is_indexed in zip(avals, call.is_array, strict=True):
        found = () if is_indexed else tuple(split_axes(aval, shape))
        fits = all(split[axis] in ((), names) for axis, names in found)
        if not fits or (is_indexed and any(aval.sharding.spec)):
            raise TracerError(
                f"{call.program.name}: arguments are split along explicit axes of a mesh in ways "
                "that do not fit: reshard them alike, or call the kernel in jax.shard_map"
            )
        for axis, names in found:
            split[axis] = names
    return split


def _lowered(*arguments: Any, call: Call, shape: Shape, shapes: tuple[Shape, ...]) -> list[Any]:
    return lowered(call, shape, shapes, *arguments)


mlir.register_lowering(KERNEL, mlir.lower_fun(_lowered, multiple_results=True), platform="cpu")
# Splitting asks for the devices, and no public name says so of a primitive.
dispatch.prim_requires_devices_during_lowering.add(KERNEL)


# -- derivatives -----------------------------------------------------------------------------------


def _pushed(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    call: Call,
    shape: Shape,
    shapes: tuple[Shape, ...],
) -> tuple[Any, Any]:
    """Return outputs and their tangents."""
    outputs = _bind(call, shape, shapes, primals)
    active = tuple(k for k, tangent in enumerate(tangents) if type(tangent) is not ad.Zero)
    if call.program.has_named_loops:
        warn_of_decided_results(call.program, call.params(active), call.named.floats)
    pushed, given = call.pushforward(active, active)
    found: list[Any] = [ad.Zero(jax.typeof(output).to_tangent_aval()) for output in outputs]
    if pushed is not None:
        arguments = [*(primals[k] for k in call.kept(active)), *(tangents[k] for k in active)]
        for k, tangent in zip(
            given, _bind(pushed, shape, [shapes[k] for k in given], arguments), strict=True
        ):
            found[k] = _split_as(tangent, jax.typeof(outputs[k]))
    return outputs, found


def _split_as(x: Any, aval: Any) -> Any:
    """Return a tangent or a gradient on the explicit axes of a mesh that its value is split by."""
    own = jax.typeof(x).sharding
    spec = PartitionSpec(*aval.sharding.spec)
    if own.spec == spec or AxisType.Explicit not in own.mesh.axis_types:
        return x
    return jax.sharding.reshard(x, NamedSharding(own.mesh, spec))


ad.primitive_jvps[KERNEL] = _pushed


def _transposed(
    cotangents: Sequence[Any],
    *arguments: Any,
    call: Call,
    shape: Shape,
    shapes: tuple[Shape, ...],
) -> list[Any]:
    """Return the cotangents of the arguments in which a call is linear."""
    linear = [k for k, x in enumerate(arguments) if ad.is_undefined_primal(x)]
    given = [k for k, cotangent in enumerate(cotangents) if type(cotangent) is not ad.Zero]
    found: list[Any] = [None] * len(arguments)
    for k in linear:
        found[k] = ad.Zero(arguments[k].aval)
    if not given:
        return found
    made, first = call.derivation, call.first_given
    outputs = [cotangents[k] for k in given]
    if made is None or min(linear) < first:
        gradients = _transpose_alone(call, shape, tuple(linear), tuple(given), arguments, outputs)
    elif made.way == "push":
        gradients = _transpose_pushforward(made, first, shape, given, arguments, outputs)
    else:
        gradients = _transpose_pullback(made, first, shape, given, arguments, outputs)
    for k, gradient in gradients:
        if k in linear:
            found[k] = _split_as(gradient, arguments[k].aval)
    return found


def _transpose_pushforward(
    made: Derivation,
    first: int,
    shape: Shape,
    given: Sequence[int],
    arguments: Sequence[Any],
    cotangents: Sequence[Any],
) -> Iterator[tuple[int, Any]]:
    """Yield the gradients of tangents, which begin at the ``first`` argument: pullbacks."""
    outputs = tuple(made.outputs[k] for k in given)
    for chunk in made.of.chunks(made.wrt):
        pulled, own = made.of.pullback(chunk, outputs, made.whole)
        places = [first + made.wrt.index(argument) for argument in own]
        if pulled is not None:
            shapes = [_shape_of(arguments[k]) for k in places]
            values = [*arguments[:first], *cotangents]
            yield from zip(places, _bind(pulled, shape, shapes, values), strict=True)


def _transpose_pullback(
    made: Derivation,
    first: int,
    shape: Shape,
    given: Sequence[int],
    arguments: Sequence[Any],
    cotangents: Sequence[Any],
) -> Iterator[tuple[int, Any]]:
    """Yield the gradients of cotangents, which begin at the ``first`` argument: a pushforward."""
    wrt = tuple(made.wrt[k] for k in given)
    pushed, own = made.of.pushforward(wrt, made.whole)
    if pushed is not None:
        places = {k: first + made.outputs.index(k) for k in own if k in made.outputs}
        shapes = [_shape_of(arguments[places[k]]) if k in places else shape for k in own]
        tangents = _bind(pushed, shape, shapes, [*arguments[:first], *cotangents])
        yield from ((places[k], x) for k, x in zip(own, tangents, strict=True) if k in places)


def _transpose_alone(
    call: Call,
    shape: Shape,
    linear: tuple[int, ...],
    given: tuple[int, ...],
    arguments: Sequence[Any],
    cotangents: Sequence[Any],
) -> Iterator[tuple[int, Any]]:
    """Yield the gradients of arguments in which a call is linear by itself."""
    kept = call.kept(linear)
    if not set(linear).isdisjoint(kept):
        names = ", ".join(repr(call.program.params[p].name) for p in call.params(linear))
        raise TracerError(
            f"{call.program.name}: jax.linear_transpose takes functions that are linear, and this "
            f"is not known to be in {names}: use jax.vjp"
        )
    for chunk in call.chunks(linear):
        pulled, own = call.pullback(chunk, given, linear)
        if pulled is not None:
            shapes = [_shape_of(arguments[k]) for k in own]
            values = [*(arguments[k] for k in kept), *cotangents]
            yield from zip(own, _bind(pulled, shape, shapes, values), strict=True)


def _shape_of(argument: Any) -> Shape:
    return tuple(argument.aval.shape if ad.is_undefined_primal(argument) else argument.shape)


ad.primitive_transposes[KERNEL] = _transposed


# -- vmap ------------------------------------------------------------------------------------------


def _batched(
    arguments: Sequence[Any],
    places: Sequence[int | None],
    *,
    call: Call,
    shape: Shape,
    shapes: tuple[Shape, ...],
) -> tuple[Sequence[Any], Sequence[int]]:
    """Call a kernel for each element of an axis: it is one more axis of the broadcast shape."""
    count = next(x.shape[at] for x, at in zip(arguments, places, strict=True) if at is not None)
    front = [
        x if at is None else jnp.moveaxis(x, at, 0) for x, at in zip(arguments, places, strict=True)
    ]
    moving = [at is not None for at in places]
    if call.program.accumulators or any(map(and_, moving, call.is_array)):
        return _one_by_one(front, moving, call, shape, shapes), (0,) * len(shapes)
    aligned = [
        x.reshape(_with_axis(count, x.shape[1:], shape)) if moves else x
        for x, moves in zip(front, moving, strict=True)
    ]
    found = _bind(call, (count, *shape), [_with_axis(count, s, shape) for s in shapes], aligned)
    outputs = [x.reshape(count, *s) for x, s in zip(found, shapes, strict=True)]
    return outputs, (0,) * len(shapes)


def _with_axis(count: int, own: Shape, shape: Shape) -> Shape:
    """Return a shape with an axis in front of those of the broadcast shape."""
    return (count, *(1,) * (len(shape) - len(own)), *own)


def _one_by_one(
    front: Sequence[Any], moving: Sequence[bool], call: Call, shape: Shape, shapes: Sequence[Shape]
) -> Any:
    """Call a kernel again and again where each call has another array that it reads by index."""

    def one(own: Sequence[Any]) -> Any:
        left = iter(own)
        values = [next(left) if moves else x for x, moves in zip(front, moving, strict=True)]
        return _bind(call, shape, shapes, values)

    return jax.lax.map(one, [x for x, moves in zip(front, moving, strict=True) if moves])


batching.primitive_batchers[KERNEL] = _batched
