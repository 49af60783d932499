"""Cotangents of parts of one array, added up: by one kernel where that is cheap.

Kernels read shifted views of one array, say ``x[1:]`` and ``x[:-1]``, and make a cotangent for
each. The cotangent of ``x`` is their sum, each in its place. Where all parts overlap, an element of
it is the sum of contributions of *different* elements of the loop: so the program is copied once
for each part, and the copy computes this part's cotangent at the elements of the loop that belong
to those of ``x``. That kernel writes into the array of the cotangent; nothing else is stored. Along
the edges, where parts do not overlap, the kernel of all cotangents runs, and they are added.

Where evaluating the program again costs more than memory does, the first part is written where it
belongs, and the others are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from mixad.kernel.boxes import Box, common_box, subtract_box
from mixad.kernel.cost import block_cost
from mixad.kernel.options import KernelOptions, Mode
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Program, Var, While, walk_statements
from mixad.tape.fusion import FusedProgram
from mixad.tape.gradient_plan import (
    IN_MEMORY,
    GradientPlan,
    GradientRequest,
    in_shape,
    plan_gradients,
    pulled,
)
from mixad.tape.kernel_call import KernelCall, Shape, kernel_values

__all__ = ["PaddedSum", "ShiftedSum", "is_placeable", "move_shifted", "placed_in_one",
           "placed_parts", "shifted"]  # fmt: skip

_FEWEST = 1 << 18
"""Elements of the loop from which on kernels for the edges cost less than passes over memory.

There are then more launches: one for the inside and one for each edge."""

_MAX_EDGE = 8
"""The edges are at most one part in so many of the elements."""

_PASS = 20
"""Vector instructions a gang that take as long as reading or writing 64 bytes of memory."""

_PASSES = 4
"""Passes over memory that it costs to store and add a part."""


@dataclass(frozen=True, eq=False, slots=True)
class PaddedSum:
    """Cotangents of parts of one value, the first made as the whole with zeros around it."""

    target: Any  # the place of the value
    parts: tuple[tuple[str, int, SubBox], ...]  # kind, index (see `GradientPlan.places`), and where

    def added_up(self, arrays: Sequence[Any], given: Sequence[Any], shape: Shape) -> Any:
        """Return the whole, from what the kernel made and the cotangents that it took.

        `shape` is the shape of each part.
        """
        whole = arrays[self.parts[0][1]]
        for kind, at, part in self.parts[1:]:
            value = arrays[at] if kind in IN_MEMORY else given[at]
            _add(whole, Box(part.starts, shape), value)
        return whole


_Edge: TypeAlias = tuple[Box, tuple[tuple[int, Box, Box], ...]]
"""A box of the loop; and for each box of a whole that gets something from there, which gradient it
gets, where this is in the box of the loop, and where it belongs."""


@dataclass(frozen=True, eq=False, slots=True)
class ShiftedSum:
    """Parts of one value whose cotangents are added up while they are computed.

    `arguments` has for each param of `inner` a leaf, or a cotangent after these, and the elements
    of the loop; None for all.
    """

    target: Any  # the place of the value
    inner: KernelCall  # computes the elements that all parts cover
    arguments: tuple[tuple[int, Box | None], ...]
    extents: Shape  # of these elements
    edges: tuple[_Edge, ...]  # where parts do not overlap
    plan: GradientPlan  # the kernel that runs at the edges
    leaves: int  # how many there are; cotangents come after them

    @property
    def read(self) -> frozenset[int]:
        """The leaves, and cotangents after these, that are read."""
        return frozenset([index for index, _ in self.arguments]) | frozenset(self.plan.kept)

    def added_up(self, values: Mapping[int, Any], shape: Shape, options: KernelOptions) -> Any:
        """Return the whole, from the values by index; `shape` is the broadcast shape."""
        taken = [_cut(values[index], box, shape) for index, box in self.arguments]
        taken = in_shape(self.inner, taken, self.extents)
        (whole,) = self.inner.kernel(kernel_values(self.inner.passes[0], taken), options.backend)
        for box, added in self.edges:
            kept = [_cut(values[index], box, shape) for index in self.plan.kept]
            arrays = self.plan.arrays(kept, box.extents, options)
            for gradient, there, here in added:
                kind, at = self.plan.places[gradient]
                made = (
                    arrays[at] if kind in IN_MEMORY else _cut(values[self.leaves + at], box, shape)
                )
                _add(whole, here, _cut(made, there, box.extents))
        return whole


def _add(whole: Any, box: Box, value: Any) -> None:
    """Add a value to a box of an array, in place."""
    part = whole[box.slices]
    part += value


def _cut(value: Any, box: Box | None, shape: Shape) -> Any:
    """Return what a kernel over a box of a shape reads of an argument that broadcasts to this."""
    own = getattr(value, "shape", ())
    if box is None or not own:
        return value
    keys = box.slices[len(shape) - len(own) :]
    return value[tuple([slice(None) if n == 1 else key for n, key in zip(own, keys, strict=True)])]


def is_placeable(part: SubBox, shape: Shape) -> bool:
    """Whether a kernel over a shape can write a part: its loops go through the whole in order."""
    extents = zip(part.whole, shape, strict=True) if len(part.whole) == len(shape) else [(0, 1)]
    return 0 not in shape and shape != () and all(n > 1 or own == 1 for own, n in extents)


def move_shifted(
    fused: FusedProgram,
    shapes: Sequence[Shape],
    asked: GradientRequest,
    wholes: Mapping[Any, Mapping[int, SubBox]],
    shape: Shape,
) -> tuple[GradientRequest, list[ShiftedSum]]:
    """Return what is wanted of the kernel, and what kernels of their own add up.

    `shapes` are those of the leaves, `wholes` has the parts that they are, by value.
    """

    def is_alike(index: int) -> bool:
        return index < len(shapes) and math.prod(shapes[index]) == 1

    moved = []
    for target, parts in wholes.items():
        added = shifted(fused, asked, parts, target, shape, is_alike)
        if added is None:
            asked = placed_in_one(fused, asked, parts)
        else:
            left = [at for at, leaf in enumerate(asked.wrt) if leaf not in parts]
            asked = asked._replace(
                wrt=tuple([asked.wrt[at] for at in left]),
                shapes=tuple([asked.shapes[at] for at in left]),
            )
            moved.append(added)
    return asked, moved


def placed_parts(
    wholes: Mapping[Any, Mapping[int, SubBox]], places: Mapping[int, tuple[str, int]]
) -> Iterator[PaddedSum]:
    """Yield which parts a kernel has made; `places` says where each leaf's gradient is."""
    for target, parts in wholes.items():
        found = [
            (*places[leaf], part)
            for leaf, part in sorted(parts.items())
            if leaf in places and places[leaf][0] != "zero"
        ]
        if found:
            yield PaddedSum(target, tuple(found))


def placed_in_one(
    fused: FusedProgram, asked: GradientRequest, parts: Mapping[int, SubBox]
) -> GradientRequest:
    """Return what is wanted, with the first part of a value that is not zero placed in its whole.

    `parts` has the whole and the box of each leaf that is a part.
    """
    gradients = pulled(fused, asked).gradients
    shapes: list[Any] = list(asked.shapes)
    for n, leaf in enumerate(asked.wrt):
        if leaf in parts and gradients[n] is not None:
            shapes[n] = parts[leaf]
            break
    return asked._replace(shapes=tuple(shapes))


def shifted(
    fused: FusedProgram,
    asked: GradientRequest,
    parts: Mapping[int, SubBox],
    target: Any,
    shape: Shape,
    is_alike: Callable[[int], bool],
) -> ShiftedSum | None:
    """Return how one kernel adds up cotangents of parts of one value; None if that is costly.

    `parts` has the whole and the box of each leaf that is a part; `target` is the place of the
    value. `is_alike` says, by index, whether an argument is the same for all elements.
    """
    gradients = pulled(fused, asked).gradients
    wrt = tuple([i for i, g in zip(asked.wrt, gradients, strict=True) if i in parts and g])
    boxes = [Box(parts[leaf].starts, shape) for leaf in wrt]
    if len(wrt) < 2 or math.prod(shape) < _FEWEST:
        return None
    common = common_box(boxes)
    if math.prod(common.extents) * _MAX_EDGE < math.prod(shape) * (_MAX_EDGE - 1):
        return None
    leaves = len(fused.program.params)
    alike = tuple(map(is_alike, range(leaves + len(asked.cotangents))))
    program, reads = _sum_of_shifted(fused, wrt, asked.cotangents, asked.mode, alike)
    if not _pays(fused, asked, wrt, program, alike[:leaves].count(False)):
        return None
    whole = parts[wrt[0]].whole
    insides = [common.shift([-s for s in box.starts]) for box in boxes]
    none = tuple([None] * len(wrt))
    return ShiftedSum(
        target=target,
        inner=_call(program, SubBox(whole, common.starts)),
        arguments=tuple([(at, None if k is None else insides[k]) for at, k in reads]),
        extents=common.extents,
        edges=tuple(_edges(shape, boxes, insides)),
        plan=plan_gradients(fused, asked._replace(wrt=wrt, primals=(), shapes=none)),
        leaves=leaves,
    )


def _pays(
    fused: FusedProgram, asked: GradientRequest, wrt: Sequence[int], program: Program, arrays: int
) -> bool:
    """Whether computing once for each part costs less than storing and adding parts.

    If a kernel of the others is left, its leaves are read once more: `arrays` of them.
    """
    if any(isinstance(statement, While) for statement in walk_statements(program.body)):
        return False
    others = tuple([leaf for leaf in asked.wrt if leaf not in wrt])
    has_rest = bool(others or asked.primals)
    rest = _cost(fused, asked._replace(wrt=others)) if others else fused.cost * has_rest
    more = block_cost(program.body) + rest - _cost(fused, asked)
    passes = _PASSES * (len(wrt) - 1) - arrays * has_rest
    return more < _PASS * passes * program.outputs[0].type.itemsize / 4


def _cost(fused: FusedProgram, asked: GradientRequest) -> int:
    return sum(block_cost(p.body) for p in pulled(fused, asked).passes)


def _edges(shape: Shape, boxes: Sequence[Box], insides: Sequence[Box]) -> list[_Edge]:
    """Return the boxes of the loop outside what all parts cover, with what they add where."""
    loop = Box((0,) * len(shape), shape)
    edges = []
    for edge in subtract_box(loop, common_box(insides)):
        back = [-s for s in edge.starts]
        added = [
            (k, left.shift(back), left.shift(box.starts))
            for k, (box, inside) in enumerate(zip(boxes, insides, strict=True))
            for left in subtract_box(edge, inside)
        ]
        edges.append((edge, tuple(added)))
    return edges


@lru_cache(maxsize=1024)
def _call(program: Program, part: SubBox) -> KernelCall:
    return KernelCall((program,), (OutputRequest(0, 0, None, part),))


@lru_cache(maxsize=1024)
def _sum_of_shifted(
    fused: FusedProgram,
    wrt: tuple[int, ...],
    cotangents: tuple[int, ...],
    mode: Mode,
    alike: tuple[bool, ...],
) -> tuple[Program, tuple[tuple[int, int | None], ...]]:
    """Return the program that adds up the gradients of `wrt`, each at elements of its own.

    `alike` says of each leaf, and of the cotangents after these, whether all elements have the
    same. Return also, for each param, which of these it is and which of `wrt` tells its elements.
    """
    builder = Builder(fused.program.name)
    names: dict[tuple[int, int | None], Var] = {}
    total: Atom | None = None
    for k, leaf in enumerate(wrt):
        pullback = pulled(fused, GradientRequest((leaf,), cotangents, (), (None,), mode))
        own: dict[Var, Atom] = {}
        for param, index in zip(pullback.passes[0].params, pullback.kept, strict=True):
            read = (index, None if alike[index] or param.kind != "lane" else k)
            if read not in names:
                (names[read],) = builder.copy_params([param]).values()
            own[param.var] = names[read]
        at = pullback.gradients[0]
        assert at is not None  # or its part would have none
        value = builder.copy(pullback.passes[0].body, own)[at[1]]
        total = value if total is None else builder.op("add", total, value)
    assert total is not None
    return builder.finish([total]), tuple(names)
