"""Functions of torch for which mixad has no rule, recorded with torch's own derivative.

A call runs once, on detached tensors of which those that are traced require grad; what is kept is
torch's graph of it.  A pullback goes back through the graph.  Where it is differentiated again, it
is recorded as a call whose graph continues the same one: nothing is run twice, so random functions
are right at every order, and batch statistics move once a call.  A pushforward is the derivative of
the pullback, which is linear in the cotangents.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from mixad.errors import TracerError
from mixad.namespace.assignment import replace
from mixad.namespace.spelling import public_name
from mixad.tape.constant import is_traced, unwrapped
from mixad.tape.tracer import Level
from mixad.transforms.call_node import CallNode, record_call

__all__ = ["borrow", "record"]

_Tensors = Sequence[torch.Tensor]
_Found = Sequence[torch.Tensor | None]


def borrow(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of torch on traced tensors; record it with torch's own derivative."""
    name = public_name(function, "torch")
    if kwargs.get("out") is not None:
        raise TracerError(
            f"{name}(out=...) of a value that is being differentiated would lose its derivative: "
            "use the result that it returns"
        )
    reason = _REFUSED.get(name.rpartition(".")[2]) or _REFUSED.get(name.rpartition(".")[0])
    if reason is not None:
        raise TracerError(f"{name}() of a value that is being differentiated: {reason}")
    written = (0,) if _is_in_place(function, args, kwargs) else ()
    return record(f"{name}()", function, args, kwargs, written)


_OF_MEMORY = "it looks at strides and memory, which traced values do not have: index, or reshape"
_WRONG = "torch's own derivative of it is wrong: write it with torch.scatter"
_INNER = "torch sees no traced values there: use mixad's transforms inside of each other"
_REFUSED = {
    **dict.fromkeys(
        ("as_strided", "as_strided_", "as_strided_copy", "as_strided_scatter"), _OF_MEMORY
    ),
    **dict.fromkeys(("set_", "resize_", "resize_as_"), _OF_MEMORY),
    **dict.fromkeys(("max_unpool1d", "max_unpool2d", "max_unpool3d"), _WRONG),
    **dict.fromkeys(("torch.autograd", "torch.func"), _INNER),
    "numpy": "NumPy would not see its derivative: use functions of torch",
}
"""Why functions, or all of a module, are refused."""


def _is_in_place(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call writes to its first argument."""
    place = _place_of_inplace(function)
    by_place = place is not None and len(args) > place and args[place]
    return bool(function.__name__.endswith("_") or by_place or kwargs.get("inplace"))


@cache
def _place_of_inplace(function: Any) -> int | None:
    """Return where a function has an argument ``inplace``; torch's compiled ones have none."""
    if not inspect.isfunction(function):
        return None
    names = list(inspect.signature(function).parameters)
    return names.index("inplace") if "inplace" in names else None


def record(
    name: str,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    written: Collection[int] = (),
) -> Any:
    """Return what a function of traced tensors, in pytrees, returns; recorded.

    ``written`` are the leaves of the arguments to which it may write: it gets clones, and traced
    values stand for what is in these afterwards.
    """
    call = _Call(name, function, args, kwargs, written)
    return call.result(record_call(_Borrowed(name, call.start), call.traced))


class _Call:
    """A call of a function whose arguments and result are pytrees.

    Attributes
    ----------
    traced : list of Tracer
        Of the arguments.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        written: Collection[int],
    ) -> None:
        leaves, self._structure = pytree.tree_flatten((args, dict(kwargs)))
        self._leaves = list(map(unwrapped, leaves))
        self._places = [i for i, leaf in enumerate(self._leaves) if is_traced(leaf)]
        self.traced = [self._leaves[i] for i in self._places]
        self._name, self._function, self._written = name, function, written
        _check_arguments(name, self._leaves, self.traced)

    def start(self, tensors: _Tensors) -> Graph:
        """Call the function of tensors in place of what is traced."""
        inputs = list(map(_leaf, tensors))
        pairs = zip(self._places, inputs, strict=True)
        self._given = given = [x.clone() if i in self._written else x for i, x in pairs]
        leaves = list(self._leaves)
        for i, x in zip(self._places, given, strict=True):
            leaves[i] = x
        before = [(x._version, x.grad_fn) for x in given]
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        try:
            result = self._function(*args, **kwargs)
        except RuntimeError as error:
            if "a leaf Variable that requires grad" not in str(error):
                raise
            raise TracerError(_writes(self._name)) from error
        self._is_changed = [
            x._version != version for x, (version, _) in zip(given, before, strict=True)
        ]
        for x, (version, made_by) in zip(given, before, strict=True):
            if x._version != version and x.grad_fn is made_by:  # torch has recorded no write
                raise TracerError(_writes(self._name))
        self._shown, self._form = pytree.tree_flatten(result)
        own = set(map(id, given))
        outputs = {id(y): y for y in self._shown if id(y) not in own and _is_output(self._name, y)}
        outputs |= {id(x): x for x, is_so in zip(given, self._is_changed, strict=True) if is_so}
        self._keys = list(outputs)
        return Graph(inputs, list(outputs.values()))

    def result(self, values: Sequence[Any]) -> Any:
        """Return the function's result with traced values in place of tensors of floats."""
        by_key = dict(zip(self._keys, values, strict=True))
        triples = zip(self.traced, self._given, self._is_changed, strict=True)
        for tracer, tensor, is_changed in triples:
            if is_changed:
                replace(tracer, f"{self._function.__name__.rstrip('_')}_", by_key[id(tensor)])
            by_key[id(tensor)] = tracer
        return pytree.tree_unflatten(
            [by_key.get(id(leaf), leaf) for leaf in self._shown], self._form
        )


def _writes(name: str) -> str:
    return (
        f"{name} writes to an argument that is being differentiated where torch does not record "
        "it: pass a clone, and plain tensors for the buffers of a module"
    )


def _check_arguments(name: str, leaves: Sequence[Any], traced: Sequence[Any]) -> None:
    """Refuse what torch would not differentiate, or what something else differentiates."""
    if torch._C._are_functorch_transforms_active():  # no public name tells it
        raise TracerError(f"{name} of a value that is being differentiated: {_INNER}")
    for tracer in traced:
        library = tracer.kind.library.name
        if library != "torch":
            raise TracerError(
                f"{name} is torch's, and a value that is being differentiated is of {library}: "
                "pass tensors to the transform, 0-dimensional ones in place of numbers"
            )
    if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        raise TracerError(
            f"{name} got a tensor that requires grad beside a value that is being differentiated: "
            "its gradient would be lost; pass tensor.detach(), or differentiate it, too; "
            "parameters of a module by mixad_torch.functional_call(module, parameters, x)"
        )


def _is_output(name: str, leaf: Any) -> bool:
    """Whether a leaf of a result has a derivative."""
    if not isinstance(leaf, torch.Tensor):
        if leaf is not None and not isinstance(leaf, _STATIC):
            raise TracerError(
                f"{name} returned a {type(leaf).__name__}, which would lose its derivative: say "
                "mixad.stop_gradient(x) if no derivative is meant"
            )
        return False
    if not (leaf.is_floating_point() or leaf.is_complex()):
        return False
    if leaf.layout is not torch.strided or leaf.is_nested or type(leaf) not in _DENSE:
        raise TracerError(
            f"{name} returned {_kind(leaf)}: values that are differentiated are dense"
        )
    if not leaf.requires_grad:
        raise TracerError(
            f"{name} returned numbers of which torch knows no derivative: say "
            "mixad.stop_gradient(x) if none is meant"
        )
    return True


_STATIC = (bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Types of what has no derivative."""

_DENSE = (torch.Tensor, torch.nn.Parameter)


def _kind(tensor: torch.Tensor) -> str:
    """Return what a tensor is called that is not dense."""
    is_plain = type(tensor) in _DENSE and not tensor.is_nested
    kind = str(tensor.layout).removeprefix("torch.") if is_plain else type(tensor).__name__
    return f"a tensor of the kind {kind}"


def _leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Return a leaf of a graph with the elements of a tensor."""
    own = tensor.clone() if tensor.is_inference() else tensor.detach()
    return own.requires_grad_()


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a value of a graph as a tensor outside of it."""
    return tensor.detach().resolve_conj().resolve_neg()


@contextmanager
def _recording() -> Iterator[None]:
    """Let torch record, whatever the caller has said of it."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class Graph(NamedTuple):
    """What torch has recorded: outputs of inputs, which are leaves of its graph."""

    inputs: _Tensors
    outputs: _Tensors

    def pull(self, wrt: Sequence[int], cotangents: _Tensors, *, create_graph: bool) -> _Found:
        """Return the gradients of some inputs; None where they are zero whatever the values are."""
        pairs = [(y, g) for y, g in zip(self.outputs, cotangents, strict=True) if y.requires_grad]
        if not pairs:
            return [None] * len(wrt)
        outputs, given = zip(*pairs, strict=True)
        inputs = [self.inputs[i] for i in wrt]
        return torch.autograd.grad(
            outputs, inputs, given, retain_graph=True, create_graph=create_graph, allow_unused=True
        )

    def push(self, wrt: Sequence[int], tangents: _Tensors, *, create_graph: bool) -> _Found:
        """Return the tangents of the outputs, None where they are zero: the transpose of `pull`."""
        seeds = [torch.zeros_like(y, requires_grad=True) for y in self.outputs]
        pulled = self.pull(wrt, seeds, create_graph=True)
        pairs = [(g, t) for g, t in zip(pulled, tangents, strict=True) if g is not None]
        linear = Graph(seeds, [g for g, _ in pairs])
        own = [t for _, t in pairs]
        return linear.pull(range(len(seeds)), own, create_graph=create_graph)


@dataclass(eq=False)
class _Borrowed:
    """The rule of a call whose arguments are tensors, and its value a list of them.

    Attributes
    ----------
    name : str
        What was called.
    step : callable or None
        Returns the graph, for the values of the arguments; forgotten then, as what it holds is.
    """

    name: str
    step: Callable[[_Tensors], Graph] | None

    @property
    def only_reads(self) -> bool:
        """What is written to is a clone."""
        return True

    def argument(self, index: int) -> str:
        """Return what an array is called in messages that was changed in the meantime."""
        return f"an argument of {self.name}"

    def run(self, arguments: _Tensors) -> tuple[list[torch.Tensor], Graph]:
        """Return the values of the outputs, and the graph."""
        step, self.step = self.step, None
        assert step is not None
        with _recording():
            graph = step(arguments)
            return list(map(_plain, graph.outputs)), graph

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Go back through the graph."""
        pull = partial(call.residuals.pull, call.wrt(level))
        return _derived(f"the pullback of {self.name}", call, level, gs, pull)

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> Sequence[Sequence[Any]]:
        """Go forward through the graph."""
        found = []
        for tangents in directions:
            moving = [i for i, tangent in enumerate(tangents) if tangent is not None]
            push = partial(call.residuals.push, moving)
            along = [tangents[i] for i in moving]
            found.append(_derived(f"the pushforward of {self.name}", call, level, along, push))
        return found


def _derived(
    name: str, call: CallNode, level: Level, given: Sequence[Any], derive: Callable[..., _Found]
) -> Sequence[Any]:
    """Return what a graph gives for cotangents or tangents; recorded if something follows it."""
    leaves, graph = call.arguments(level), call.residuals
    if not any(map(is_traced, (*leaves, *given))):
        with _recording():
            return derive(given, create_graph=False)
    found: list[torch.Tensor | None] = []

    def step(arguments: _Tensors) -> Graph:
        own = list(map(_leaf, arguments[len(leaves) :]))
        found[:] = derive(own, create_graph=True)
        return Graph([*graph.inputs, *own], [each for each in found if each is not None])

    values = iter(record_call(_Borrowed(name, step), [*leaves, *given]))
    return [None if each is None else next(values) for each in found]
