"""Functions of torch for which mixad has no rule, recorded with torch's own derivative.

A call runs once, on detached tensors of which those that are traced require grad; what is kept is
torch's graph of it.  A pullback goes back through the graph.  Where it is differentiated again, it
is recorded as a call whose graph continues the same one: nothing is run twice, so random functions
are right at every order, and batch statistics move once a call.  A pushforward is the derivative of
the pullback, which is linear in the cotangents.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, wraps
from typing import Any, NamedTuple, TypeVar

import torch
from torch.utils import _pytree as pytree

from mixad.config import CheckMode
from mixad.errors import TracerError
from mixad.namespace.assignment import replace
from mixad.namespace.spelling import public_name
from mixad.tape.constant import is_traced, unwrapped
from mixad.tape.guard import GuardedArray
from mixad.tape.tracer import Level, Tracer, check_mode, levels_of
from mixad.transforms.call_node import CallNode, record_call

__all__ = ["borrow", "functional_call"]

_Tensors = Sequence[torch.Tensor]
_Found = Sequence[torch.Tensor | None]
_T = TypeVar("_T")


def borrow(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call a function of torch on traced tensors; record it with torch's own derivative."""
    name, reason, place = _known(function)
    if kwargs.get("out") is not None:
        raise TracerError(
            f"{name}(out=...) of a value that is being differentiated would lose its derivative: "
            "use the result that it returns"
        )
    if reason is not None:
        raise TracerError(f"{name}() of a value that is being differentiated: {reason}")
    is_told = place is not None and len(args) > place and args[place]
    written = (0,) if name.endswith("_") or is_told or kwargs.get("inplace") else ()
    return _record(_Call(name, function, args, kwargs, written))


def functional_call(
    module: torch.nn.Module,
    params_and_buffers: Mapping[str, Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> Any:
    """Call a module with other parameters and buffers; recorded as one call if one is traced."""

    def call(own: Any, args: Any, kwargs: Any) -> Any:
        return torch.func.functional_call(module, own, args, kwargs)

    given = pytree.tree_map(unwrapped, (dict(params_and_buffers), args, dict(kwargs)))
    if not any(map(is_traced, pytree.tree_leaves(given))):
        return call(*given)
    name = type(module).__name__
    own = dict(module.named_parameters())
    missing = [key for key, p in own.items() if p.requires_grad and key not in given[0]]
    if missing:
        raise TracerError(
            f"functional_call of {name}: the gradients of {', '.join(missing)} would be lost: pass "
            "them too, or module.requires_grad_(False)"
        )
    count = len(given[0])
    parameters = [k for k, key in enumerate(given[0]) if key in own]
    made = _Call(name, call, given, {}, range(count, 10**9), parameters, is_module=True)
    tensors = [*own.items(), *module.named_buffers()]
    made.captured += [tensor for key, tensor in tensors if key not in given[0]]
    return _record(made)


APPLY = inspect.getattr_static(torch.autograd.Function, "apply")
"""A class method of Python's or, from torch 2.14 on, of C's."""


@wraps(torch.autograd.Function.apply)
def _apply_function(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Apply a user's function of torch; of traced values it is recorded with its own backward."""
    call = APPLY.__get__(None, cls)
    if not any(map(is_traced, _flatten((*args, *kwargs.values()))[0])):
        return call(*args, **kwargs)
    return _record(_Call(f"{cls.__name__}.apply", call, args, kwargs, (), is_module=True))


# Torch asks nothing of the arguments here: a traced value would lose the user's backward.
torch.autograd.Function.apply = classmethod(_apply_function)

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
    "normal": "torch takes no derivative of it: write mean + std * torch.randn_like(mean)",
    "numpy": "NumPy would not see its derivative: use functions of torch",
}
"""Why functions, or all of a module, are refused."""


@lru_cache(maxsize=4096)
def _known(function: Any) -> tuple[str, str | None, int | None]:
    """Return a function's name, why it is refused, if it is, and where its ``inplace`` comes."""
    name = public_name(function, "torch")
    module, _, own = name.rpartition(".")
    # Torch's compiled functions have no such argument, and no signature.
    names = list(inspect.signature(function).parameters) if inspect.isfunction(function) else []
    place = names.index("inplace") if "inplace" in names else None
    return name, _REFUSED.get(own) or _REFUSED.get(module), place


def _record(call: _Call) -> Any:
    """Return what a call returns, recorded."""
    check = check_mode(levels_of(call.traced))
    rule = _Borrowed(call.name, call.start, call.is_module, check, call.captured)
    return call.result(record_call(rule, call.traced))


class _Call:
    """A call of a function of torch, or of a module, whose arguments and result are pytrees.

    It gets clones of the leaves that may be ``written`` to, and traced values stand for what is in
    these afterwards.  The derivative of a module is its author's: what torch's graph does not reach
    is constant, and gradients may be those of no function.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        written: Collection[int],
        parameters: Collection[int] = (),
        *,
        is_module: bool = False,
    ) -> None:
        leaves, self._structure = _flatten((*args, *kwargs.values()))
        self._count, self._names = len(args), tuple(kwargs)
        self._leaves = list(map(unwrapped, leaves))
        self._places = [i for i, leaf in enumerate(self._leaves) if is_traced(leaf)]
        self.name, self.traced = name, [self._leaves[i] for i in self._places]
        self.captured = [leaf for leaf in self._leaves if isinstance(leaf, torch.Tensor)]
        self._function, self._written, self._parameters = function, written, parameters
        self.is_module = is_module
        _check_arguments(name, self._leaves, self.traced)

    def start(self, tensors: _Tensors) -> Graph:
        """Call the function of tensors in place of what is traced."""
        leaves = list(self._leaves)
        for i in self._parameters:
            if i not in self._places:
                leaves[i] = torch.nn.Parameter(leaves[i], requires_grad=False)
        pairs = list(zip(self._places, tensors, strict=True))
        inputs = [_leaf(x, is_parameter=i in self._parameters) for i, x in pairs]
        self._given = []
        for i, x in zip(self._places, inputs, strict=True):
            leaves[i] = x.clone() if i in self._written else x
            self._given.append(leaves[i])
        before = [(x._version, x.grad_fn) for x in self._given]
        values = _unflatten(leaves, self._structure)
        kwargs = dict(zip(self._names, values[self._count :], strict=True))
        result = self._function(*values[: self._count], **kwargs)
        self._changed = []
        for k, (x, (version, made_by)) in enumerate(zip(self._given, before, strict=True)):
            if not x.requires_grad:
                raise TracerError(
                    f"{self.name}() detaches an argument that is being differentiated: write "
                    "x = x.detach(), which is a new value"
                )
            if x._version != version:
                if x.grad_fn is made_by:
                    raise TracerError(
                        f"{self.name}() writes to an argument that is being differentiated where "
                        "torch does not record it: pass a clone, or write it as a new value"
                    )
                self._changed.append(k)
        self._shown, self._form = _flatten([result])
        own = set(map(id, self._given))
        outputs = {id(y): y for y in self._shown if id(y) not in own and self._is_output(y)}
        outputs |= {id(self._given[k]): self._given[k] for k in self._changed}
        self._keys = list(outputs)
        return Graph(inputs, list(outputs.values()))

    def result(self, values: Sequence[Any]) -> Any:
        """Return the function's result with traced values in place of tensors of floats."""
        by_key = dict(zip(self._keys, values, strict=True))
        for k, (tracer, tensor) in enumerate(zip(self.traced, self._given, strict=True)):
            if k in self._changed:
                symbol = f"{self._function.__name__.rstrip('_')}_"
                replace(tracer, symbol, by_key[id(tensor)])
            by_key[id(tensor)] = tracer
        found = [by_key.get(id(leaf), leaf) for leaf in self._shown]
        return _unflatten(found, self._form)[0]

    def _is_output(self, leaf: Any) -> bool:
        """Whether a leaf of the result has a derivative."""
        if not isinstance(leaf, torch.Tensor):
            is_static = _is_shape(leaf) or isinstance(leaf, _STATIC)
            if not (is_static or (self.is_module and isinstance(leaf, (float, complex)))):
                raise TracerError(
                    f"{self.name}() returned a {type(leaf).__name__}, which would lose its "
                    "derivative: say mixad.stop_gradient(x) if no derivative is meant"
                )
            return False
        if not (leaf.is_floating_point() or leaf.is_complex()):
            return False
        if leaf.layout is not torch.strided or leaf.is_nested or type(leaf) not in _DENSE:
            raise TracerError(
                f"{self.name}() returned {_kind(leaf)}: values that are differentiated are dense"
            )
        is_constant = self.is_module or self.name in _PERMUTING or not leaf.numel()
        if not (leaf.requires_grad or is_constant):
            raise TracerError(
                f"{self.name}() returned numbers of which torch knows no derivative: say "
                "mixad.stop_gradient(x) if none is meant"
            )
        return leaf.requires_grad


def _flatten(values: Sequence[Any]) -> tuple[list[Any], Any]:
    """Return the leaves of values, and their structure; None where they are leaves themselves."""
    if all(isinstance(x, _LEAVES) or _is_shape(x) for x in values):
        return list(values), None
    return pytree.tree_flatten(list(values))


def _unflatten(leaves: list[Any], structure: Any) -> list[Any]:
    return leaves if structure is None else pytree.tree_unflatten(leaves, structure)


def _is_shape(value: Any) -> bool:
    return value is None or (type(value) in (list, tuple) and all(type(x) is int for x in value))


_LEAVES = (torch.Tensor, Tracer, bool, int, float, str, torch.dtype)


def _check_arguments(name: str, leaves: Sequence[Any], traced: Sequence[Any]) -> None:
    """Refuse what torch would not differentiate, or what something else differentiates."""
    if torch._C._are_functorch_transforms_active():  # no public name tells it
        raise TracerError(f"{name}() of a value that is being differentiated: {_INNER}")
    for tracer in traced:
        library = tracer.kind.library.name
        if library != "torch":
            raise TracerError(
                f"{name}() is torch's, and a value that is being differentiated is of {library}: "
                "pass tensors to the transform, 0-dimensional ones in place of numbers"
            )
    if any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        raise TracerError(
            f"{name}() got a tensor that requires grad beside a value that is being "
            "differentiated: its gradient would be lost; pass tensor.detach(), or differentiate "
            "it, too; for parameters of a module use mixad_torch.functional_call(module, "
            "parameters, x)"
        )


_PERMUTING = {"torch.linalg.lu", "torch.lu_unpack"}
"""Functions among whose results are permutations of which torch knows no derivative: it is zero."""

_STATIC = (bool, int, str, torch.Size, torch.dtype, torch.device, torch.layout, torch.memory_format)
"""Types of what has no derivative."""

_DENSE = (torch.Tensor, torch.nn.Parameter)


def _kind(tensor: torch.Tensor) -> str:
    """Return what a tensor is called that is not dense."""
    is_plain = type(tensor) in _DENSE and not tensor.is_nested
    kind = str(tensor.layout).removeprefix("torch.") if is_plain else type(tensor).__name__
    return f"a tensor of the kind {kind}"


def _leaf(tensor: torch.Tensor, *, is_parameter: bool = False) -> torch.Tensor:
    """Return a leaf of a graph with the elements of a tensor."""
    own = tensor.clone() if tensor.is_inference() else tensor.detach()
    return torch.nn.Parameter(own) if is_parameter else own.requires_grad_()


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a value of a graph as a tensor outside of it."""
    return tensor.detach().resolve_conj().resolve_neg()


def _recording(
    name: str, call: Callable[[], _T], pattern: str = "differentia|derivative|requires? ?_?grad"
) -> _T:
    """Return what a call gives; torch records it, whatever the user has said of that.

    Where an error says that it does not, or that it has no derivative, the refusal is ours.
    """
    try:
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            return call()
        with torch.inference_mode(False), torch.enable_grad():
            return call()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        if not re.search(pattern, str(error)):
            raise
        instead = _OF_ATTENTION if "scaled_dot_product" in str(error) else ""
        raise TracerError(f"{name}(): torch has no derivative here: {error}{instead}") from error


_OF_ATTENTION = (
    "; call it under `with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`, "
    "which computes attention by what has derivatives of any order"
)

_ANY = ""
"""Of what torch raises where it computes a derivative, all is of that."""


@dataclass(frozen=True, eq=False)
class Graph:
    """What torch has recorded: outputs of inputs, which are leaves of its graph."""

    inputs: _Tensors
    outputs: _Tensors

    def pull(self, wrt: Sequence[int], cotangents: _Tensors, *, create_graph: bool) -> _Found:
        """Return the gradients of some inputs; None where they are zero whatever the values are."""
        pairs = [(y, g) for y, g in zip(self.outputs, cotangents, strict=True) if y.requires_grad]
        if not pairs or not wrt:
            return [None] * len(wrt)
        outputs, given = zip(*pairs, strict=True)
        inputs = [self.inputs[i] for i in wrt]
        found = torch.autograd.grad(
            outputs, inputs, given, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
        if create_graph:
            _check_recorded(found, (*self.inputs, *given))
            if _FORGETS_STATISTICS and any(map(_has_statistics, _nodes(outputs))):
                return _without_derivative(found, self.inputs)
        return found

    def push(self, wrt: Sequence[int], tangents: _Tensors, *, create_graph: bool) -> _Found:
        """Return the tangents of the outputs, None where they are zero: the transpose of `pull`."""
        seeds = [torch.ones_like(y, requires_grad=True) for y in self.outputs]
        pulled = self.pull(wrt, seeds, create_graph=True)
        linear, own = _outputs([*seeds, *self.inputs], pulled, tangents)
        return linear.pull(range(len(seeds)), own, create_graph=create_graph)


@dataclass(frozen=True, eq=False)
class PulledGraph(Graph):
    """A pullback: outputs are gradients of another graph's inputs, ``wrt``.

    Second derivatives are symmetric, so tangents of gradients are gradients once more: there is no
    third derivative, which torch lacks, or computes wrongly, of more functions than second ones.
    Of what has a backward that somebody wrote they need not be: that is pushed as any graph is.
    """

    of: Graph
    wrt: Sequence[int]

    def push(self, wrt: Sequence[int], tangents: _Tensors, *, create_graph: bool) -> _Found:
        """Return the tangents of the gradients."""
        count = len(self.of.inputs)
        moving = {i: t for i, t in zip(wrt, tangents, strict=True) if i < count}
        others = {i - count: t for i, t in zip(wrt, tangents, strict=True) if i >= count}
        pulled = self.of.pull(list(moving), self.inputs[count:], create_graph=True)
        second, own = _outputs(self.inputs, pulled, list(moving.values()))
        along = second.pull(self.wrt, own, create_graph=create_graph)
        linear = Graph(self.inputs, [self.of.outputs[k] for k in others])
        rest = linear.pull(self.wrt, list(others.values()), create_graph=create_graph)
        return [
            b if a is None else a if b is None else a + b for a, b in zip(along, rest, strict=True)
        ]


def _check_recorded(found: _Found, leaves: _Tensors) -> None:
    """Refuse gradients that are to be differentiated and that torch has not recorded."""
    is_lost = any(y is not None and not y.requires_grad and y.any() for y in found)
    known = set(map(id, leaves))
    if is_lost or any(_is_cut(node, known) for node in _nodes(found)):
        raise TracerError(
            "a backward that is written in Python computes a gradient where torch does not record "
            "it, so tangents and second derivatives would be lost: write it with functions of "
            "torch, without detach(), no_grad() and once_differentiable"
        )


def _is_cut(node: Any, leaves: Collection[int]) -> bool:
    """Whether a node is what `once_differentiable` gives, which raises no error where it is unused.

    Its tensors are leaves of its own.  Torch's own nodes of that name (batch_norm has one) do come
    from the leaves that are known, and raise the error.
    """
    return node.name() == "torch::autograd::Error" and all(
        parent.name() == "torch::autograd::AccumulateGrad" and id(parent.variable) not in leaves
        for parent, _ in node.next_functions
        if parent is not None
    )


_FORGETS_STATISTICS = torch.__version__ < "2.14"
"""Whether torch takes the means and variances of batch_norm for constant in third derivatives.

Newer ones have a node there that raises an error.
"""


def _has_statistics(node: Any) -> bool:
    """Whether a node is the second derivative of batch_norm in training."""
    is_second = node.name().endswith("BatchNormBackwardBackward0")
    return is_second and getattr(node, "_saved_train", True)


def _without_derivative(found: _Found, inputs: _Tensors) -> _Found:
    """Return gradients whose own derivatives with respect to some leaves raise an error."""
    message = b"torch before 2.14 has wrong third derivatives of batch_norm"
    own = torch._C._functions.DelayedError(message, len(inputs))(*inputs)
    nothing = sum(x.flatten()[:0].abs().sum() for x in ([own] if len(inputs) == 1 else own))
    return [None if y is None else y + nothing.to(y.dtype) for y in found]


def _outputs(inputs: _Tensors, found: _Found, beside: _Tensors) -> tuple[Graph, _Tensors]:
    """Return a graph of outputs but for those that are zero, and what is ``beside`` the others."""
    pairs = [(y, t) for y, t in zip(found, beside, strict=True) if y is not None]
    return Graph(inputs, [y for y, _ in pairs]), [t for _, t in pairs]


class _Watched(NamedTuple):
    """A tensor that a graph may read later: torch does not see what NumPy or `.data` write to it.

    A write that torch counts is left to torch, which knows whether the graph reads the tensor.
    """

    tensor: torch.Tensor
    version: int | None
    held: GuardedArray

    @classmethod
    def of(cls, tensor: torch.Tensor, rule: _Borrowed) -> _Watched:
        """Note what is in a tensor."""
        own = tensor.detach()
        return cls(own, _version(own), GuardedArray(own, rule.check, rule))

    def compare(self) -> None:
        """Raise an error if the tensor has been changed."""
        if _version(self.tensor) == self.version:
            _ = self.held.array


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _is_on_cpu(tensor: torch.Tensor) -> bool:
    """Whether NumPy may write to a tensor."""
    is_dense = type(tensor) in _DENSE and tensor.layout is torch.strided and not tensor.is_nested
    return is_dense and tensor.is_cpu and tensor.dtype in _SEEN


_SEEN = {
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128, torch.int32, torch.int64),
}
"""Types of what is watched: NumPy has them, or their bits."""


@dataclass(eq=False)
class _Borrowed:
    """The rule of a call whose arguments are tensors, and its value a list of them."""

    name: str  # what was called
    # Returns the graph for values of the arguments, then forgotten.
    step: Callable[[_Tensors], Graph] | None
    # Whether gradients may be those of no function: second derivatives are not symmetric then.
    is_module: bool
    check: CheckMode  # how closely tensors are watched that the graph may read later
    captured: Sequence[torch.Tensor]  # those that are read beside the arguments
    watched: Sequence[_Watched] = ()  # all of them, as they are after the call

    @property
    def borrowed_from(self) -> str:
        """What is written to is a clone."""
        return "torch"

    def argument(self, index: int) -> str:
        """Return what an array is called in messages that was changed in the meantime."""
        return f"an argument of {self.name}()"

    def run(self, arguments: _Tensors) -> tuple[list[torch.Tensor], Graph]:
        """Return the values of the outputs, and the graph."""
        step, self.step = self.step, None
        assert step is not None
        graph = _recording(self.name, partial(step, arguments))
        if self.check != "off":
            tensors = {id(x): x for x in (*self.captured, *arguments) if _is_on_cpu(x)}
            self.watched = [_Watched.of(x, self) for x in tensors.values()]
        return list(map(_plain, graph.outputs)), graph

    def _compare(self) -> None:
        """Refuse to read tensors that were changed where torch does not see it."""
        for each in self.watched:
            each.compare()

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Go back through the graph."""
        self._compare()
        graph, wrt = call.residuals, call.wrt(level)

        def graph_of(inputs: _Tensors, found: _Found) -> Graph:
            if self.is_module or _has_written_backward(graph):
                return _graph_of(inputs, found)
            own = [i for i, g in zip(wrt, found, strict=True) if g is not None]
            return PulledGraph(inputs, [g for g in found if g is not None], graph, own)

        pull = partial(graph.pull, wrt)
        return _derived(f"the pullback of {self.name}", call, level, gs, pull, graph_of)

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> Sequence[Sequence[Any]]:
        """Go forward through the graph."""
        self._compare()
        found = []
        for tangents in directions:
            moving = [i for i, tangent in enumerate(tangents) if tangent is not None]
            push = partial(call.residuals.push, moving)
            along = [tangents[i] for i in moving]
            name = f"the pushforward of {self.name}"
            found.append(_derived(name, call, level, along, push, _graph_of))
        return found


def _graph_of(inputs: _Tensors, found: _Found) -> Graph:
    return Graph(inputs, [y for y in found if y is not None])


def _has_written_backward(graph: Graph) -> bool:
    """Whether a user has written the backward of something in a graph."""
    written = torch.autograd.function.BackwardCFunction
    return any(isinstance(node, written) for node in _nodes(graph.outputs))


def _nodes(tensors: Iterable[torch.Tensor | None]) -> Iterator[Any]:
    """Yield the nodes of torch's graph that tensors come from."""
    found = [y.grad_fn for y in tensors if y is not None]
    seen = set()
    while found:
        node = found.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found += [parent for parent, _ in node.next_functions]
            yield node


_ONCE = {"torch.nn.functional.linear_cross_entropy"}
"""Functions whose gradients torch computes beside their values, and takes for constant."""


def _derived(
    name: str,
    call: CallNode,
    level: Level,
    given: Sequence[Any],
    derive: Callable[..., _Found],
    graph_of: Callable[[_Tensors, _Found], Graph],
) -> Sequence[Any]:
    """Return what a graph gives for cotangents or tangents; recorded if something follows it."""
    leaves, graph = call.arguments(level), call.residuals
    if not any(map(is_traced, (*leaves, *given))):
        return _recording(name, partial(derive, given, create_graph=False), _ANY)
    found: list[torch.Tensor | None] = []

    def step(arguments: _Tensors) -> Graph:
        if call.name in _ONCE:
            raise TracerError(
                f"{call.name}() has a first derivative only: in its second one torch forgets that "
                "the first depends on the arguments"
            )
        own = list(map(_leaf, arguments[len(leaves) :]))
        found[:] = _recording(name, partial(derive, own, create_graph=True), _ANY)
        return graph_of([*graph.inputs, *own], found)

    own = call.rule
    beside = [each.tensor for each in own.watched]
    rule = _Borrowed(name, step, own.is_module, own.check, beside)
    values = iter(record_call(rule, [*leaves, *given]))
    return [None if each is None else next(values) for each in found]
