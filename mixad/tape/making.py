"""Making pending results, in one kernel with all pending nodes that can be fused with them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from mixad.backends.execute import kernel_for
from mixad.kernel.options import KernelOptions
from mixad.kernel.spec import OutputRequest
from mixad.tape.cell import Cell, Pending
from mixad.tape.forward_plan import ForwardPlan, Stored
from mixad.tape.fusion import (
    Fusion,
    common_options,
    fits,
    fuse,
    is_alike,
    is_readable_inside,
    may_fuse,
    producer_of,
    program_read,
    value_of,
)
from mixad.tape.kernel_call import kernel_values
from mixad.tape.registers import array_like
from mixad.tape.storing import asked_for, residuals_of, storing_plan
from mixad.tape.tracer import Origin, check_mode, journal_of

if TYPE_CHECKING:
    from mixad.tape.kernel_node import KernelNode

__all__ = ["Making", "kernel_members", "kernel_prepared", "make", "make_together",
           "makings"]  # fmt: skip

_MAX_TOGETHER = 63
"""Values that are looked at to be made together with another one."""

_MAX_ELEMENTS = 1 << 14
"""Elements of values that are made together though neither needs the other: a launch takes longer
than what they compute."""

_LOW_COST = 20
"""Vector instructions a gang that computing again may cost: about what reading 64 bytes does."""


def make(root: Pending) -> None:
    """Make values that someone asks for, after those that they are made of."""
    for run in makings(root):
        run()


def make_together(cells: Iterable[Cell]) -> None:
    """Make the values of some cells, which no other thread knows, in as few kernels as can be."""
    left = [cell.pending for cell in cells if cell.pending is not None]
    while left:
        root = left.pop()
        for run in makings(root, left[-_MAX_TOGETHER:]):
            run()


def makings(root: Pending, others: Sequence[Pending] = ()) -> Iterator[Callable[[], None]]:
    """Yield what makes values, each after what makes those that they are made of.

    Each is to be called before the next one is asked for. It may also make some of `others`, which
    are to be made next.
    """
    stack = [root]
    while stack:
        missing, run = stack[-1].prepared(others if len(stack) == 1 else ())
        if missing:
            stack += missing
        else:
            stack.pop()
            yield run


@dataclass(frozen=True, eq=False, slots=True)
class Making:
    """Makes, in one kernel, all live results of some nodes."""

    members: list[KernelNode]  # in order
    wanted: list[tuple[int, int]]  # of the fused program: member, and result of its program
    fusion: Fusion  # for the results that were live when it was prepared

    def __call__(self) -> None:
        """Make them; another fusion is made if other results are live by now."""
        live = _live(self.members)
        if not live:
            return
        wanted, fusion = _wanted(live), self.fusion
        if wanted != self.wanted:
            fusion = fuse(self.members, wanted)
        requests = _requests(live, wanted)
        check = check_mode(self.members[-1].levels)
        arrays = _run_fused(self.members, fusion, wanted, requests)
        for (_, _, cell, _), array in zip(live, arrays, strict=False):
            cell.fill(array, check)


def kernel_prepared(
    root: KernelNode, others: Sequence[Pending] = ()
) -> tuple[list[Pending], Callable[[], None]]:
    """Return what has to be made before a node, and what makes the node: see `Pending`."""
    if any(level.foresees for level in root.levels):
        return [], partial(_fill, root)
    members = kernel_members(root, others)
    if root.siblings:
        return _pending(root.arguments), partial(_run_passes, root)
    _keep_for_others(members)
    wanted = _wanted(_live(members))
    fusion = fuse(members, wanted)
    _, kept = program_read(fusion, root.shape)
    read = [members[at].arguments[index] for at, index in (fusion.places[i] for i in kept)]
    return _pending(read if wanted else ()), Making(members, wanted, fusion)


def _fill(root: KernelNode) -> None:
    """Fill the results of a node with arrays of their shapes and kinds."""
    journal = journal_of(root.levels)
    for _, cell, _ in root.live():
        if journal is not None:
            journal.register(cell)
        cell.fill(array_like(cell.shape, cell.kind, cell.device), "off")


def _pending(sources: Sequence[Any]) -> list[Pending]:
    """Return what has to be made first; nodes retain what is read of them."""
    found: dict[int, Pending] = {}
    for source in sources:
        if type(source) is Cell:
            pending: Pending | None = source.pending
        elif type(source) is Origin:
            pending = producer_of(source).keep(source.output).pending
        else:
            continue
        if pending is not None:
            found[id(pending)] = pending
    return list(found.values())


_Live: TypeAlias = list[tuple[int, int, Cell, OutputRequest]]
"""Results to make: member, output, its cell, and what is wanted."""


def _live(members: Sequence[KernelNode]) -> _Live:
    return [(at, *each) for at, node in enumerate(members) for each in node.live()]


def _wanted(live: _Live) -> list[tuple[int, int]]:
    """Return which results of a fused program are wanted: member, and result of its program."""
    return list(dict.fromkeys((at, request.result) for at, _, _, request in live))


def _requests(live: _Live, wanted: Sequence[tuple[int, int]]) -> tuple[OutputRequest, ...]:
    """Return what is wanted of the results of a fused program."""
    return tuple([OutputRequest(0, wanted.index((at, r.result)), r.shape) for at, _, _, r in live])


def _run_fused(
    members: Sequence[KernelNode],
    fusion: Fusion,
    wanted: Sequence[tuple[int, int]],
    requests: tuple[OutputRequest, ...],
) -> tuple[Any, ...]:
    """Run the kernel of some nodes, with partials where it pays to store these.

    Return the arrays that `requests` ask for, then those of partials. `wanted` are the results of
    the fused program: member, and result of its program.
    """
    options = _options(members)
    plan = _storing(members, fusion, wanted, requests)
    if plan is None:
        program, kept = program_read(fusion, members[-1].shape)
        values = kernel_values(program, [value_of(fusion.sources[i]) for i in kept])
        return kernel_for((program,), requests)(values, options.backend)
    values = kernel_values(fusion.fused.program, [value_of(s) for s in fusion.sources])
    asked, _ = asked_for(plan, requests)
    arrays = kernel_for(plan.passes, asked)(values, options.backend)
    check = check_mode(members[-1].levels)
    made = dict(zip(asked, arrays, strict=True))
    residuals = residuals_of(plan, fusion.sources, requests, made, check)
    for at, results in _makers(members, wanted).items():
        outputs = list(map(wanted.index, results))
        members[at].store(Stored(plan, residuals, fusion.parents, fusion.shapes, outputs))
    return arrays


def _options(members: Sequence[KernelNode]) -> KernelOptions:
    return reduce(_shared, (node.options for node in members))


def _makers(
    members: Sequence[KernelNode], wanted: Sequence[tuple[int, int]]
) -> dict[int, list[tuple[int, int]]]:
    """Return the nodes whose results are wanted, each with all of these."""
    return {at: [(at, request.result) for request in members[at].outputs] for at, _ in wanted}


def _storing(
    members: Sequence[KernelNode],
    fusion: Fusion,
    wanted: Sequence[tuple[int, int]],
    requests: tuple[OutputRequest, ...],
) -> ForwardPlan | None:
    """Return how results are made together with their partials; None if they are made alone."""
    may_store = all(
        all(result in wanted for result in results) and not _is_read_outside(members, at)
        for at, results in _makers(members, wanted).items()
    )
    return storing_plan(members, fusion, requests, _options(members)) if may_store else None


def _is_read_outside(members: Sequence[KernelNode], at: int) -> bool:
    """Whether what a kernel reads may depend on one of its nodes: it is not stored as their parent.

    This is so if anything but the kernel's other nodes has read that node, its sum for example.
    """
    node = members[at]
    sources = [source for member in members for source in member.arguments]
    inside = Counter([id(source.node) for source in sources if type(source) is Origin])
    if all((id(member) in inside) == (member is not node) for member in members):
        return False  # all that the kernel reads comes before it
    return node.uses > inside[id(node)] or any(node.is_made(k) for k in range(len(node.outputs)))


def _run_passes(root: KernelNode) -> None:
    """Make the live results of several passes: a node's and its siblings'."""
    siblings = [node for held in root.siblings if (node := held()) is not None]
    live = _live(siblings)
    if not live:
        return
    passes = tuple(node.call.passes[0] for node in siblings)
    requests = tuple(OutputRequest(at, r.result, r.shape) for at, _, _, r in live)
    sources = [
        producer_of(s).cell(s.output) if type(s) is Origin else s for s in siblings[0].arguments
    ]
    values = kernel_values(passes[0], [value_of(s) for s in sources])
    arrays = kernel_for(passes, requests)(values, siblings[0].options.backend)
    for (_, _, cell, _), array in zip(live, arrays, strict=True):
        cell.fill(array, check_mode(siblings[0].levels))


def _shared(one: KernelOptions, other: KernelOptions) -> KernelOptions:
    shared = common_options(one, other)
    assert shared is not None
    return shared


def _keep_for_others(members: Sequence[KernelNode]) -> None:
    """Retain results that nodes outside read too, where reading costs less than computing again."""
    if len(members) == 1:
        return
    inside = Counter(id(s.node) for node in members for s in node.arguments if type(s) is Origin)
    costs: dict[int, int] = {}
    for node in members[:-1]:
        cost = node.call.cost + sum(
            costs.get(id(s.node), 0) for s in node.arguments if type(s) is Origin
        )
        costs[id(node)] = cost
        if cost > _LOW_COST and node.uses > inside[id(node)]:
            for output, request in enumerate(node.call.outputs):
                if request.shape is None:
                    node.keep(output)


def kernel_members(root: KernelNode, others: Sequence[Pending] = ()) -> list[KernelNode]:
    """Return a pending node and those made in its kernel, each after those whose results it reads.

    An unmade ancestor of the same shape is fused unless the kernel gets too long; so are others,
    with their ancestors, where a launch takes longer than what it computes.
    """
    if root.siblings or not all(level.fuses for level in root.levels):
        return [root]
    members = _Members(root)
    if others and math.prod(root.shape) <= _MAX_ELEMENTS and root.live():
        for other in reversed(others):
            if _is_beside(other, root):
                members.add(other)
    return members.order


def _is_beside(other: Pending, root: KernelNode) -> TypeGuard[KernelNode]:
    """Whether a node may be made in the kernel of one that does not depend on it."""
    if type(other) is not type(root):
        return False
    return is_alike(other, root) and other.levels == root.levels and bool(other.live())


class _Members:
    """Nodes of one kernel: at first `root` with what can be fused with it."""

    def __init__(self, root: KernelNode) -> None:
        self.order: list[KernelNode] = []  # each after those whose results it reads
        self._root = root
        self._options = root.options
        self._cost = root.call.cost
        self._found = {id(root)}
        self._left: set[int] = set()
        self._gather(root)

    def add(self, node: KernelNode) -> None:
        """Add another node, with what can be fused with it, if it fits."""
        if self._takes(node):
            self._gather(node)

    def _gather(self, node: KernelNode) -> None:
        """Put a node, which has been taken, after those that can be fused with it."""
        stack: list[tuple[KernelNode, Iterator[Any]]] = [(node, iter(node.arguments))]
        while stack:
            arguments = stack[-1][1]
            for source in arguments:
                if type(source) is not Origin or id(source.node) in self._found:
                    continue
                producer = producer_of(source)
                if not may_fuse(source, self._root):
                    if is_readable_inside(source):
                        # Its reader may have its place in the order already.
                        self._left.add(id(producer))
                elif self._takes(producer):
                    stack.append((producer, iter(producer.arguments)))
                    break
            else:
                self.order.append(stack.pop()[0])

    def _takes(self, node: KernelNode) -> bool:
        """Take a node if it fits; tell whether it does. What does not fit now never does."""
        if id(node) in self._found or id(node) in self._left:
            return False
        options = common_options(self._options, node.options)
        if options is None or not fits(len(self._found) + 1, self._cost, node.call.cost):
            return False
        self._options = options
        self._cost += node.call.cost
        self._found.add(id(node))
        return True
