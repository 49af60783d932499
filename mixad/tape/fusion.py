"""Fusion of pending nodes into one program: which nodes, and what it computes from what.

The programs of several nodes are copied into one, where each reads the others' results directly.
A fused program depends only on the nodes' calls and on who reads whom; that is its key, and
everything derived from it is retained with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from mixad.kernel.cost import block_cost
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Program, Var
from mixad.scalar.simplify import read_params, without_dead_code
from mixad.tape.cell import Cell
from mixad.tape.held import Held
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.tracer import Origin

if TYPE_CHECKING:
    from mixad.tape.kernel_node import KernelNode

__all__ = ["LONGEST", "NOTHING", "FusedProgram", "Fusion", "common_options", "fits", "fuse",
           "fused_program", "internal", "is_alike", "is_readable_inside", "may_fuse",
           "producer_of", "program_read", "value_of"]  # fmt: skip

MAX_NODES = 64
"""Nodes in one kernel: compile time grows with its length (at 32 nodes of 10 inputs 0.2 s), speed
does not. Each cut is one more kernel to compile: compiling a long chain takes time with its length,
whatever the number is, unless the chain repeats itself and finds its kernels again."""

LONGEST = 1000
"""What one element of a kernel of several nodes may cost: compile time grows with it as well."""

HIGH_COST = 500
"""Cost per element from which two programs are not put into one kernel: nothing is gained, since
the arrays between them are cheap beside them, and registers are short."""


@dataclass(frozen=True, eq=False)
class FusedProgram:
    """The program of some fused nodes; the same object for the same nodes, so that it is a key."""

    program: Program

    @cached_property
    def cost(self) -> int:
        """What one element costs, as `mixad.kernel.cost` counts."""
        return block_cost(self.program.body)

    @cached_property
    def trimmed(self) -> tuple[Program, tuple[int, ...]]:
        """The program without what its results do not need, and which params it has left."""
        program = without_dead_code(self.program)
        kept = read_params(program)
        return replace(program, params=tuple([program.params[i] for i in kept])), kept


class Fusion(NamedTuple):
    """Fused nodes and the leaves that they read from outside."""

    fused: FusedProgram  # its params are the leaves
    places: list[tuple[int, int]]  # by leaf: a member, and the index of its argument
    sources: list[Any]  # by leaf: a cell, a `Held` array or a number
    parents: list[Origin | None]  # by leaf: where it came from; None if not traced
    shapes: list[Shape]  # by leaf; empty for what is no lane


def fuse(members: Sequence[KernelNode], wanted: Sequence[tuple[int, int]]) -> Fusion:
    """Return the fusion of some nodes, each after those whose results it reads inside.

    `wanted` are the results of the fused program: position of a member, and result of its program.
    Leaves that are the same value become one.
    """
    position = {id(node): at for at, node in enumerate(members)}
    known: dict[object, int] = {}
    leaves = Fusion(NOTHING, [], [], [], [])
    reads: list[int] = []
    for member, node in enumerate(members):
        kinds, parents = node.call.kinds, node.parents
        for index, source in enumerate(node.arguments):
            if type(source) is Origin:
                producer = producer_of(source)
                inside = position.get(id(producer))
                if inside is not None and is_readable_inside(source):
                    reads.append(internal(inside, producer.outputs[source.output].result))
                    continue
                source = producer.cell(source.output)
            count = len(leaves.sources)
            parent, kind = parents[index], kinds[index]
            at = known.setdefault(_mark(source, parent, kind, count), count)
            if at == count:
                leaves.places.append((member, index))
                leaves.sources.append(source)
                leaves.parents.append(parent)
                leaves.shapes.append(_shape(source) if kind == "lane" else ())
            reads.append(at)
    calls = tuple([node.call for node in members])
    return leaves._replace(fused=fused_program(calls, tuple(reads), tuple(wanted)))


def internal(member: int, result: int) -> int:
    """Return the code, among leaves, of a result of a call."""
    return ~(member << 16 | result)


def _mark(source: Any, parent: Origin | None, kind: str, count: int) -> object:
    """Return a key of a leaf; each number has its own, since equal ones may change."""
    if parent is not None:
        return id(parent.node), parent.output, id(parent.levels), kind
    return (source.identity, kind) if type(source) is Held else count


def _shape(source: Any) -> Shape:
    return source.shape if type(source) is Cell or type(source) is Held else ()


def program_read(fusion: Fusion, shape: Shape) -> tuple[Program, tuple[int, ...]]:
    """Return the program of a fusion, and its leaves that it takes.

    These are as few as give the nodes' `shape`.
    """
    program, kept = fusion.fused.trimmed
    if any(fusion.shapes[i] == shape for i in kept):
        return program, kept
    return fusion.fused.program, tuple(range(len(fusion.sources)))


def value_of(source: Any) -> Any:
    """Return a leaf as kernels take it; a pending one is made."""
    return source.value if type(source) is Cell or type(source) is Held else source


NOTHING = FusedProgram(Builder("nothing").finish([]))


@lru_cache(maxsize=1024)
def fused_program(
    calls: tuple[KernelCall, ...], reads: tuple[int, ...], wanted: tuple[tuple[int, int], ...]
) -> FusedProgram:
    """Return the fused program of some calls, in order.

    `reads` has for each argument of each call a leaf, or a result inside as `internal` packs it;
    `wanted` has the results: a call, and a result of its program.
    """
    first = calls[0].passes[0]
    is_alone = len(calls) == 1 and reads == tuple(range(len(reads)))
    if is_alone and wanted == tuple((0, k) for k in range(len(first.outputs))):
        return FusedProgram(first)  # one call of which nothing is read twice
    builder = Builder(calls[-1].name)
    leaves: list[Var] = []
    results: list[tuple[Atom, ...]] = []
    places = iter(reads)
    for call in calls:
        program = call.passes[0]
        names: dict[Var, Atom] = {}
        for param in program.params:
            at = next(places)
            if at == len(leaves):
                leaves += builder.copy_params([param]).values()
            # As memory would hold it: what is computed does not depend on what is fused.
            names[param.var] = (
                leaves[at] if at >= 0 else builder.held(results[~at >> 16][~at & 0xFFFF])
            )
        names |= builder.copy_accumulators(program.accumulators)
        results.append(builder.copy(program.body, names))
    return FusedProgram(builder.finish([results[member][result] for member, result in wanted]))


def is_readable_inside(source: Origin) -> bool:
    """Whether a value is one for each element, made with its node's kernel alone."""
    node = producer_of(source)
    return node.outputs[source.output].shape is None and not node.siblings


def is_alike(node: KernelNode, other: KernelNode) -> bool:
    """Whether two nodes are computed over one shape, of arrays of one library and device."""
    return (
        node.shape == other.shape
        and node.library is other.library
        and node.device == other.device
        and not (node.siblings or other.siblings)
    )


def may_fuse(source: Origin, reader: KernelNode) -> bool:
    """Whether a pending value could be computed where a node reads it.

    A value that has been made is read instead. Nothing is fused along an edge that lacks a running
    transform of the node: through it, that transform would see what it must not.
    """
    node = producer_of(source)
    return (
        is_alike(node, reader)
        and is_readable_inside(source)
        and not node.is_made(source.output)
        and (
            node.levels is source.levels
            or not any(level.alive for level in node.levels - source.levels)
        )
    )


def producer_of(source: Origin) -> KernelNode:
    """Return what makes a value that was pending when it was read: always a kernel node."""
    return source.node  # type: ignore[return-value]


def common_options(one: KernelOptions, other: KernelOptions) -> KernelOptions | None:
    """Return the options of a kernel that two nodes share; None if theirs differ."""
    if one is other or other == DEFAULT_OPTIONS:
        return one
    return other if one in (DEFAULT_OPTIONS, other) else None


def fits(count: int, cost: int, other: int) -> bool:
    """Whether nodes of two costs, so many together, fit into one kernel."""
    return count <= MAX_NODES and min(cost, other) < HIGH_COST and cost + other <= LONGEST
