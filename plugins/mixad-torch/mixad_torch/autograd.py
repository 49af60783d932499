"""Calls of kernels in torch's own autograd: one operator, whose derivatives are itself.

``torch.ops.mixad.kernel(name, tensors, numbers, sizes)`` runs the call of a name
(`mixad.tape.named_call`): a kernel, or a pullback of one, of any order.  Its derivative is the call
of the pullback's name, so second derivatives need nothing of their own.  Ordinary calls go straight
to the kernel; whatever traces, compiles or watches torch sees the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache, partial
from itertools import chain
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad

from mixad.backends.arrays import own_library
from mixad.broadcast.function import BroadcastFunction
from mixad.broadcast.graph_calls import call_in_graph
from mixad.errors import KernelTypeError, TracerError
from mixad.kernel.options import KernelOptions
from mixad.scalar.ir import Program
from mixad.scalar.loop_results import warn_of_decided_results
from mixad.tape.named_call import NamedCall, NamedPullback, name_call, named_call
from mixad_torch.borrow import APPLY, borrow

__all__ = ["KERNEL", "TorchIntegration"]

# Dynamo would follow how a method is bound, through the parser, and not find back.
BroadcastFunction.__get__ = torch.compiler.disable(BroadcastFunction.__get__)

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
_FOLLOWED = (FakeTensor, FunctionalTensor)
_NUMBERS = {torch.SymBool: bool, torch.SymInt: int, torch.SymFloat: float}
"""What symbols become: torch keeps the value as a condition of the graph."""


class TorchIntegration:
    """What mixad asks about calls on tensors: see `mixad.backends.protocols.Integration`."""

    kinds: tuple[type, ...] = _FOLLOWED  # tensors without elements, which torch traces with
    borrows_of = "torch"  # whose functions it calls for which mixad has no rule

    def is_tracing(self) -> bool:
        """Whether torch.compile reads the call; Dynamo knows the answer, it does not ask."""
        return torch.compiler.is_dynamo_compiling()

    def trace(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call one node of Dynamo's graph."""
        return _in_graph(number, args, kwargs)

    def follows(self, values: Sequence[Any]) -> bool:
        """Whether torch is to see the call."""
        tensors = [v for v in values if isinstance(v, torch.Tensor)]
        return any(map(_is_followed, tensors)) or (bool(tensors) and _is_watched())

    def call(
        self, program: Program, values: Sequence[Any], options: KernelOptions
    ) -> tuple[torch.Tensor, ...]:
        """Apply a program at every element, and record that."""
        call = name_call(program, options)
        return _recorded(call, values, ())

    def borrow(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of torch on traced tensors, recorded with torch's own derivative."""
        return borrow(function, args, kwargs)

    def generators(self, arrays: Sequence[Any]) -> Callable[[], AbstractContextManager[None]]:
        """Note what state torch's generators are in, of the CPU and of tensors' devices."""
        devices = {x.device for x in arrays if isinstance(x, torch.Tensor)}
        others = [device for device in devices if device.type != "cpu"]
        state = torch.get_rng_state()
        states = {
            device: torch.get_device_module(device).get_rng_state(device) for device in others
        }
        return partial(_drawn_again, state, states)


@contextmanager
def _drawn_again(
    state: torch.Tensor, states: Mapping[torch.device, torch.Tensor]
) -> Iterator[None]:
    """Let torch's generators begin in some state; afterwards they are as they were."""
    before = torch.get_rng_state()
    before_of = {d: torch.get_device_module(d).get_rng_state(d) for d in states}
    try:
        _set_generators(state, states)
        yield
    finally:
        _set_generators(before, before_of)


def _set_generators(state: torch.Tensor, states: Mapping[torch.device, torch.Tensor]) -> None:
    torch.set_rng_state(state)
    for device, own in states.items():
        torch.get_device_module(device).set_rng_state(own, device)


@torch.compiler.allow_in_graph
def _in_graph(number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    known = {name: _known(value) for name, value in kwargs.items()}
    return call_in_graph(_known(number), tuple(map(_known, args)), known)


def _known(value: Any) -> Any:
    """Return a symbol's value; anything else as it is."""
    number = _NUMBERS.get(type(value))
    return value if number is None else number(value)


def _is_followed(tensor: torch.Tensor) -> bool:
    return (
        tensor.requires_grad
        or type(tensor) not in _PLAIN
        or tensor.is_meta
        or torch._C._functorch.is_functorch_wrapped_tensor(tensor)  # no public name tells it
        or forward_ad.unpack_dual(tensor).tangent is not None
    )


def _is_watched() -> bool:
    """Whether a mode is to see every operator: torch's tracers, counters, and users' own."""
    return torch._C._len_torch_dispatch_stack() > 0  # no public name tells it


def _recorded(call: NamedCall, values: Sequence[Any], sizes: Sequence[int]) -> Any:
    """Make a call so that autograd sees it; what are no numbers must be tensors."""
    tensors, numbers = [], []
    for param, value, is_array in zip(call.program.params, values, call.is_array, strict=True):
        if is_array and not isinstance(value, torch.Tensor):
            raise KernelTypeError(
                f"{call.program.name}: argument {param.name!r} is an array of "
                f"{own_library(value).name} beside tensors of torch",
                hint=f"pass torch.as_tensor({param.name})",
            )
        (tensors if is_array else numbers).append(value)
    return _entered(call.name, numbers, sizes, tensors)


def _entered(
    name: str, numbers: Sequence[Any], sizes: Sequence[int], tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Make a call in torch's graph; torch.func needs the form that binds arguments by name."""
    if torch._C._are_functorch_transforms_active():
        return _apply_transformed(name, numbers, sizes, *tensors)
    if torch.is_grad_enabled():
        return _apply_recorded(name, numbers, sizes, *tensors)
    return _made(name, numbers, sizes, tensors)


def _made(
    name: str, numbers: Sequence[Any], sizes: Sequence[int], tensors: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Run the kernel, or hand it on to what watches."""
    if _is_watched() or not all(type(t) in _PLAIN and not t.is_meta for t in tensors):
        with torch._C._AutoDispatchBelowAutograd():
            return tuple(KERNEL(name, tensors, numbers, sizes))
    return _launched(name, tensors, numbers, sizes)


def _keep(ctx: Any, inputs: Sequence[Any], outputs: Sequence[torch.Tensor]) -> None:
    """Keep what the pullback reads, and what gradients are like."""
    name, ctx.numbers, sizes, *tensors = inputs
    ctx.set_materialize_grads(False)
    ctx.call = named_call(name)
    ctx.shape = _decoded(sizes)[0] if sizes else outputs[0].shape
    read = _read(ctx.call, ctx.needs_input_grad[3:])
    ctx.save_for_backward(*[t if k in read else None for k, t in enumerate(tensors)])
    ctx.like = [(t.shape, t.dtype, t.device) for t in tensors]


class _Recorded(torch.autograd.Function):
    """A call of a kernel, or of a pullback, in torch's graph."""

    @staticmethod
    def forward(
        ctx: Any, name: str, numbers: Sequence[Any], sizes: Sequence[int], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        outputs = _made(name, numbers, sizes, tensors)
        _keep(ctx, (name, numbers, sizes, *tensors), outputs)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        given = tuple(k for k in ctx.call.floats if cotangents[k] is not None)
        values = [*_arguments(ctx.call, ctx.saved_tensors, ctx.numbers)]
        values += [cotangents[k] for k in given]
        gradients = [None] * len(ctx.like)
        for chunk in _chunks(ctx.call, ctx.needs_input_grad[3:]):
            wrt = tuple([place for _, place in chunk])
            if ctx.call.program.has_named_loops:
                warn_of_decided_results(ctx.call.program, wrt, given)
            pulled = ctx.call.pullback(wrt, given)
            own = [k for k, _ in chunk]
            for k, gradient in zip(own, _pulled(ctx, pulled, own, values), strict=True):
                gradients[k] = gradient
        return None, None, None, *gradients

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise TracerError(
            f"{ctx.call.program.name}: torch's forward mode does not see what happens here: use "
            "mixad.jvp, or torch's reverse mode"
        )


class _Transformed(_Recorded):
    """The same where transforms of torch.func are at work."""

    @staticmethod
    def forward(
        name: str, numbers: Sequence[Any], sizes: Sequence[int], *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return _made(name, numbers, sizes, tensors)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        _keep(ctx, inputs, output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, name: str, *rest: Any) -> Any:
        raise TracerError(
            f"{named_call(name).program.name}: torch.vmap does not see what happens here: kernels "
            "broadcast, so call it on arrays with the mapped axis in front"
        )


# Torch's own way to apply a function: what is traced by mixad has been told apart before.
_apply_recorded, _apply_transformed = (APPLY.__get__(None, f) for f in (_Recorded, _Transformed))


def _pulled(
    ctx: Any, pulled: NamedPullback, chunk: Sequence[int], values: Sequence[Any]
) -> list[torch.Tensor]:
    """Return the gradients of some tensors: those that are zero whatever the values are, too."""
    results: Sequence[torch.Tensor] = ()
    if pulled.call is not None:
        shapes = [ctx.like[k][0] for k, at in zip(chunk, pulled.gradients, strict=True)
                  if at is not None]  # fmt: skip
        sizes = _encoded([ctx.shape, *shapes])
        results = _recorded(pulled.call, [values[i] for i in pulled.kept], sizes)
    return [
        _zeros(*ctx.like[k]) if at is None else results[at]
        for k, at in zip(chunk, pulled.gradients, strict=True)
    ]


def _zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


@lru_cache(maxsize=4096)
def _places(call: NamedCall) -> tuple[int, ...]:
    """Return which params the tensors of a call are."""
    return tuple(i for i, is_array in enumerate(call.is_array) if is_array)


@lru_cache(maxsize=4096)
def _chunks(call: NamedCall, needed: tuple[bool, ...]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return which gradients each pullback computes: tensors, and the params that they are."""
    active = {i: k for k, i in enumerate(_places(call)) if needed[k]}
    return tuple(tuple((active[i], i) for i in wrt) for wrt in call.chunks(tuple(active)))


@lru_cache(maxsize=4096)
def _read(call: NamedCall, needed: tuple[bool, ...]) -> frozenset[int]:
    """Return which tensors a pullback to some of them reads."""
    wrts = [tuple(place for _, place in chunk) for chunk in _chunks(call, needed)]
    kept = {i for wrt in wrts for i in call.pullback(wrt, call.floats).kept}
    return frozenset(k for k, i in enumerate(_places(call)) if i in kept)


def _arguments(call: NamedCall, tensors: Iterable[Any], numbers: Iterable[Any]) -> Iterator[Any]:
    """Yield the arguments of a call in the order of its params."""
    tensors, numbers = iter(tensors), iter(numbers)
    return (next(tensors if is_array else numbers) for is_array in call.is_array)


def _encoded(shapes: Iterable[Sequence[int]]) -> list[int]:
    """Return shapes as one list, each after its rank."""
    return list(chain.from_iterable((len(shape), *shape) for shape in shapes))


def _decoded(sizes: Sequence[int]) -> list[tuple[int, ...]]:
    shapes, at = [], 0
    while at < len(sizes):
        rank = int(sizes[at])
        shapes.append(tuple(sizes[at + 1 : at + 1 + rank]))
        at += 1 + rank
    return shapes


# -- the operator ----------------------------------------------------------------------------------


def _launched(
    name: str, tensors: Sequence[torch.Tensor], numbers: Sequence[Any], sizes: Sequence[int]
) -> tuple[torch.Tensor, ...]:
    """Run the kernel on tensors as they are, whatever follows them."""
    call = named_call(name)
    plain = [t.detach() if t.requires_grad else t for t in tensors]
    arguments = list(_arguments(call, plain, numbers))
    if not sizes:
        return call.launch(arguments)
    shape, *shapes = _decoded(sizes)
    return call.launch(arguments, shape, tuple(shapes))


def _computed(*args: Any) -> list[torch.Tensor]:
    """Run the kernel for a graph, which is promised packed results, as `_shaped` says."""
    return [result.contiguous() for result in _launched(*args)]


def _shaped(
    name: str, tensors: Sequence[torch.Tensor], numbers: Sequence[Any], sizes: Sequence[int]
) -> list[torch.Tensor]:
    """Return what the kernel gives without its elements."""
    call = named_call(name)
    _check_place(call, tensors)
    outputs = call.program.outputs
    shapes = _decoded(sizes)[1:] if sizes else [_broadcast(call, tensors)] * len(outputs)
    dtype_of = own_library(tensors[0]).dtype_of
    return [
        torch.empty(shape, dtype=dtype_of(output.type), device=tensors[0].device)
        for shape, output in zip(shapes, outputs, strict=True)
    ]


def _broadcast(call: NamedCall, tensors: Sequence[torch.Tensor]) -> tuple[int, ...]:
    params = call.program.params
    lanes = [t.shape for i, t in zip(_places(call), tensors, strict=True)
             if params[i].kind == "lane"]  # fmt: skip
    return torch.broadcast_shapes(*lanes)


def _check_place(call: NamedCall, tensors: Sequence[torch.Tensor]) -> None:
    devices = dict.fromkeys(t.device for t in tensors)
    if len(devices) > 1:
        listed = " and ".join(map(str, devices))
        raise KernelTypeError(
            f"{call.program.name}: the tensors of one call are on {listed}",
            hint="move them to one device",
        )


def _in_autograd(
    name: str, tensors: Sequence[torch.Tensor], numbers: Sequence[Any], sizes: Sequence[int]
) -> list[torch.Tensor]:
    return list(_entered(name, numbers, sizes, tensors))


_LIBRARY = torch.library.Library("mixad", "DEF")
_LIBRARY.define("kernel(str name, Tensor[] tensors, Scalar[] numbers, SymInt[] sizes) -> Tensor[]")
for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("kernel", _computed, _key)
_LIBRARY.impl("kernel", _in_autograd, "Autograd")
torch.library.register_fake("mixad::kernel", _shaped, lib=_LIBRARY)

KERNEL = torch.ops.mixad.kernel.default
"""``(name, tensors, numbers, sizes)``: the call of a name, of tensors and numbers in the order of
its params; ``sizes`` are the broadcast shape and the shape of each output, each after its rank, or
empty where every output has the broadcast shape of the tensors."""
