"""Programs that walk through blocks of elements: the parts of reductions and scans.

An axis is cut into blocks, and each lane of a kernel walks through one. Arrays have three axes,
those before the axis, the axis, and those after it, then those of an element that is itself a small
array. Params are the arrays that are read; for each lane, the place before, the number of the block
and the place after; how many elements a block has and how many of the first blocks have one more;
the operator's captures. An element is several numbers; those that are floats have cotangents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, cast

from mixad.kernel.options import DEFAULT_OPTIONS
from mixad.scalar.build import Builder, as_array
from mixad.scalar.ir import ArrayType, Atom, Program, Var
from mixad.scalar.simplify import without_dead_code
from mixad.scalar.types import BOOL, I64, ScalarType
from mixad.scalar.verify import verify
from mixad.tape.operations import Static
from mixad.tape.pullback_plan import plan_pullback

__all__ = ["Operator", "fold_program", "fold_pullback_program", "local_cotangents_program",
           "scan_cotangents_program", "scan_program", "scan_pullback_program"]  # fmt: skip

_LINE = 64
"""Bytes of a line of the cache."""

Core = tuple[int, ...]
_Atoms = Sequence[Atom]


@dataclass(frozen=True)
class Operator(Static):
    """What combines two elements: a program of both elements' numbers, then of the captures.

    It returns the numbers of one element.
    """

    program: Program
    cores: tuple[Core, ...]  # shape of each array of an element; () is a number

    @cached_property
    def places(self) -> tuple[tuple[int, Core], ...]:
        """For each number of an element, the array that it is in, and its indices there."""
        return tuple(
            (leaf, index)
            for leaf, core in enumerate(self.cores)
            for index in product(*map(range, core))
        )

    @property
    def size(self) -> int:
        """The number of numbers in an element."""
        return len(self.places)

    @cached_property
    def types(self) -> tuple[ScalarType, ...]:
        """The type of each number."""
        return tuple(p.var.type for p in self.program.params[: self.size])

    @property
    def leaf_types(self) -> tuple[ScalarType, ...]:
        """The type of each array."""
        return tuple(dict(zip((leaf for leaf, _ in self.places), self.types, strict=True)).values())

    @cached_property
    def floats(self) -> tuple[int, ...]:
        """The positions of the numbers that have derivatives."""
        return tuple(at for at, type in enumerate(self.types) if type.is_float)

    @property
    def float_leaves(self) -> tuple[int, ...]:
        """The positions of the arrays that have derivatives."""
        return tuple(at for at, type in enumerate(self.leaf_types) if type.is_float)

    @property
    def captured(self) -> int:
        """The number of captured values."""
        return len(self.program.params) - 2 * self.size

    @property
    def of_numbers(self) -> Operator:
        """The same operator of elements whose numbers are in arrays of their own."""
        return Operator(self.program, ((),) * self.size)


class _Walk:
    """A program over blocks while it is built."""

    def __init__(self, name: str, operator: Operator) -> None:
        self.builder = Builder(f"{operator.program.name}: {name}")
        self.operator = operator

    def begin(self) -> None:
        """Declare the params that every program has after the arrays that it reads."""
        b = self.builder
        self.before, self.block, self.after = [
            b.param(n, I64) for n in ("before", "block", "after")
        ]
        self.length, self.more = (b.param(n, I64, "uniform") for n in ("length", "more"))
        params = self.operator.program.params[2 * self.operator.size :]
        self.captured = list(b.copy_params(params).values())
        fewer = b.op("lt", self.more, self.block)
        earlier = b.op("where", fewer, self.more, self.block)
        self.start = b.op("add", b.op("mul", self.block, self.length), earlier)
        self.has_more = b.op("lt", self.block, self.more)

    # -- arrays ------------------------------------------------------------------------------------

    def arrays(self, name: str, leaves: Sequence[int]) -> dict[int, Var]:
        """Declare an array to read for each of some arrays of an element."""
        types = self.operator.leaf_types
        return {
            at: self.builder.array_param(f"{name}{at}", self._type(types[at], at)) for at in leaves
        }

    def written(self, name: str, leaves: Sequence[int]) -> dict[int, Var]:
        """Declare an array to write for each of some arrays of an element."""
        types = self.operator.leaf_types
        return {
            at: self.builder.accumulator(f"{name}{at}", self._type(types[at], at), "write")
            for at in leaves
        }

    def _type(self, type: ScalarType, leaf: int) -> ArrayType:
        return ArrayType(type, 3 + len(self.operator.cores[leaf]))

    def numbers(self, name: str, which: Sequence[int]) -> list[Var]:
        """Declare arrays over blocks, one for each of some numbers of an element."""
        types = self.operator.types
        return [self.builder.array_param(f"{name}{n}", ArrayType(types[n], 3)) for n in which]

    def element(self, arrays: Mapping[int, Var], at: Atom) -> list[Atom]:
        """Read the numbers of an element."""
        places = [place for place in self.operator.places if place[0] in arrays]
        return [
            self.builder.load(arrays[leaf], *self._indices(at, index), is_inside=True)
            for leaf, index in places
        ]

    def write(self, arrays: Mapping[int, Var], at: Atom, values: _Atoms) -> None:
        """Write the numbers of an element."""
        places = [place for place in self.operator.places if place[0] in arrays]
        for (leaf, index), value in zip(places, values, strict=True):
            indices = self._indices(at, index)
            self.builder.update(arrays[leaf], *indices, value=value, is_inside=True)

    def _indices(self, at: Atom, index: Core) -> list[Atom]:
        own = (self.builder.const(i, I64) for i in index)
        return [self.before, at, self.after, *own]

    def of_block(self, arrays: Sequence[Var], block: Atom) -> list[Atom]:
        """Read numbers of a block."""
        place = self.before, block, self.after
        return [self.builder.load(a, *place, is_inside=True) for a in arrays]

    def previous_block(self) -> Atom:
        """Return the number of the block before, 0 for the first."""
        return self._or_zero(self.block)

    @property
    def before_start(self) -> Atom:
        """The place before the block, 0 for the first."""
        return self._or_zero(self.start)

    def previous(self, at: Atom) -> Atom:
        """Return the place before one that is not the first."""
        return self.builder.op("add", at, self.builder.const(-1, I64))

    def _or_zero(self, at: Atom) -> Atom:
        b, zero = self.builder, self.builder.const(0, I64)
        return b.op("where", b.op("lt", zero, at), self.previous(at), zero)

    def touch(self, *arrays: Mapping[int, Var]) -> None:
        """Load the block's arrays into the cache: they are read from its end, or written."""
        b = self.builder
        for array, core in ((a[leaf], self.operator.cores[leaf]) for a in arrays for leaf in a):
            size, line = math.prod(core), _LINE // array.type.itemsize
            places = list(product(*map(range, core)))[::line]

            def iteration(
                j: Atom, array: Var = array, places: Any = places, by: int = max(1, line // size)
            ) -> list[Atom]:
                at = b.op("add", self.start, j)
                for place in places:
                    b.touch(array, *self._indices(at, place))
                return [b.op("add", j, b.const(by, I64))]

            inits = [b.const(0, I64)]
            b.while_(inits, lambda j: b.op("lt", j, self.length), iteration, is_short=True)

    # -- what is done with them --------------------------------------------------------------------

    def combine(self, a: _Atoms, b: _Atoms) -> list[Atom]:
        """Return the numbers of two elements combined."""
        return list(self.builder.inline(self.operator.program, [*a, *b, *self.captured]))

    def forward(self, carries: _Atoms, step: Callable[[Atom, _Atoms], _Atoms]) -> list[Atom]:
        """Do ``step`` at each place of the block from its second one to its last."""
        b, one = self.builder, self.builder.const(1, I64)

        def iteration(j: Atom, *values: Atom) -> list[Atom]:
            return [b.op("add", j, one), *step(b.op("add", self.start, j), values)]

        _, *carries = b.while_(
            [one, *carries],
            lambda j, *_: b.op("lt", j, self.length),
            iteration,
            is_short=True,
        )
        return self._at_last(carries, step)

    def backward(self, carries: _Atoms, step: Callable[[Atom, _Atoms], _Atoms]) -> list[Atom]:
        """Do ``step`` at each place of the block from its last one to its second."""
        b, one = self.builder, self.builder.const(1, I64)
        carries = self._at_last(carries, step)

        def iteration(j: Atom, *values: Atom) -> list[Atom]:
            return [b.op("sub", j, one), *step(b.op("add", self.start, j), values)]

        _, *found = b.while_(
            [b.op("sub", self.length, one), *carries],
            lambda j, *_: b.op("le", one, j),
            iteration,
            is_short=True,
        )
        return found

    def _at_last(self, carries: _Atoms, step: Callable[[Atom, _Atoms], _Atoms]) -> list[Atom]:
        """Do ``step`` at the last place of the blocks that have one more.

        Other blocks read their first place there, which does no harm.
        """
        b = self.builder
        at = b.op("where", self.has_more, b.op("add", self.start, self.length), self.start)
        return list(b.if_(self.has_more, lambda: step(at, carries), lambda: carries))

    def is_first_place(self, at: Atom) -> Atom:
        """Return whether a place is the first of the axis; False where that is known."""
        b, zero = self.builder, self.builder.const(0, I64)
        return b.op("eq", at, zero) if at == self.start else b.const(False, BOOL)

    def join(self, prefixes: Sequence[Var], first: _Atoms) -> list[Atom]:
        """Combine the first element of the block with the prefix before it, if there is one."""

        def combined() -> list[Atom]:
            return self.combine(self.of_block(prefixes, self.previous_block()), first)

        return self.unless(self.is_first_place(self.start), first, combined)

    def unless(self, cond: Atom, values: _Atoms, others: Callable[[], _Atoms]) -> list[Atom]:
        """Return values where a condition holds; compute others where it does not.

        An operator may be defined for neighbouring elements alone: for others it might read outside
        of an array, or never end.
        """
        return list(self.builder.if_(cond, lambda: values, others))

    def zeros(self, which: Sequence[int]) -> list[Atom]:
        """Return a zero for each of some numbers."""
        return [self.builder.const(0, self.operator.types[n]) for n in which]

    def sum(self, these: _Atoms, those: _Atoms) -> list[Atom]:
        """Return the sums of numbers."""
        return [self.builder.op("add", a, b) for a, b in zip(these, those, strict=True)]

    def finish(self, outputs: _Atoms) -> Program:
        """Return the program."""
        return verify(without_dead_code(self.builder.finish(outputs)))


class _Pullback:
    """The pullback of an operator, for a program that walks through blocks.

    It adds the gradients of ``wanted`` captured arrays to accumulators.
    """

    def __init__(self, walk: _Walk, wanted: Sequence[int] = ()) -> None:
        operator, params = walk.operator, walk.operator.program.params
        size, floats = operator.size, operator.floats
        wrt = [*floats, *(size + n for n in floats), *(2 * size + at for at in wanted)]
        self.walk = walk
        self.plan = plan_pullback(operator.program, tuple(wrt), floats, DEFAULT_OPTIONS.mode)
        self.types = [params[at].var.type for at in wrt]
        self.arrays: dict[int, Var] = {
            slot: walk.builder.accumulator(f"gradient {slot}", as_array(params[at]))
            for slot, at in enumerate(wrt)
            if params[at].kind == "array"
        }
        self.sums = [slot for slot in range(2 * len(floats), len(wrt)) if slot not in self.arrays]

    def __call__(
        self, a: _Atoms, b: _Atoms, r: _Atoms
    ) -> tuple[list[Atom], list[Atom], list[Atom]]:
        """Return the cotangents of both elements, and of captures that are no arrays."""
        builder, plan = self.walk.builder, self.plan
        given = [*a, *b, *self.walk.captured, *r]
        outputs = []
        for number, program in enumerate(plan.passes):
            names: dict[Var, Atom] = {
                param.var: given[at] for param, at in zip(program.params, plan.kept, strict=True)
            }
            for slot, array in self.arrays.items():
                place = plan.gradients[slot]
                if place is not None and place[0] == number:
                    names[cast("Var", program.outputs[place[1]])] = array
            outputs.append(builder.copy(program.body, names))
        found = [
            builder.const(0, type) if place is None else outputs[place[0]][place[1]]
            for place, type in zip(plan.gradients, self.types, strict=True)
        ]
        count = len(r)
        return found[:count], found[count : 2 * count], [found[slot] for slot in self.sums]

    def but_first(
        self, at: Atom, a: _Atoms, b: _Atoms, r: _Atoms
    ) -> tuple[list[Atom], list[Atom], list[Atom]]:
        """Return the same; the first place of the axis has no element to combine with."""
        walk, count = self.walk, len(r)

        def pulled() -> list[Atom]:
            return [each for found in self(a, b, r) for each in found]

        first = [*walk.zeros(walk.operator.floats), *r, *self.no_sums()]
        found = walk.unless(walk.is_first_place(at), first, pulled)
        return found[:count], found[count : 2 * count], found[2 * count :]

    def no_sums(self) -> list[Atom]:
        """Return zeros for captures that are no arrays."""
        return [self.walk.builder.const(0, self.types[slot]) for slot in self.sums]

    def results(self, sums: _Atoms) -> list[Atom]:
        """Return the outputs for captures; ``sums`` are those that are no arrays."""
        found = dict(zip(self.sums, sums, strict=True))
        return [found.get(slot) or self.arrays[slot] for slot in sorted({*found, *self.arrays})]


@lru_cache(maxsize=256)
def fold_program(operator: Operator) -> Program:
    """Return the program that combines the elements of each block.

    Params: the arrays of elements. Outputs: the numbers of the combination.
    """
    walk = _Walk("reduce", operator)
    xs = walk.arrays("x", range(len(operator.cores)))
    walk.begin()

    def step(at: Atom, total: _Atoms) -> list[Atom]:
        return walk.combine(total, walk.element(xs, at))

    return walk.finish(walk.forward(walk.element(xs, walk.start), step))


@lru_cache(maxsize=256)
def scan_program(operator: Operator, has_prefix: bool) -> Program:
    """Return the program that writes the prefixes of elements.

    Params: the arrays of elements; with ``has_prefix`` each number's prefixes at the ends of
    blocks. Outputs: the arrays of prefixes.
    """
    walk = _Walk("associative_scan", operator)
    leaves = range(len(operator.cores))
    xs = walk.arrays("x", leaves)
    prefixes = walk.numbers("prefix", range(operator.size)) if has_prefix else []
    walk.begin()
    ys = walk.written("y", leaves)
    first = walk.element(xs, walk.start)
    if has_prefix:
        first = walk.join(prefixes, first)
    walk.touch(ys)
    walk.write(ys, walk.start, first)

    def step(at: Atom, total: _Atoms) -> list[Atom]:
        total = walk.combine(total, walk.element(xs, at))
        walk.write(ys, at, total)
        return total

    walk.forward(first, step)
    return walk.finish(list(ys.values()))


def _begin_scan_pullback(
    operator: Operator, has_later: bool
) -> tuple[_Walk, tuple[dict[int, Var], dict[int, Var], dict[int, Var]], list[Atom]]:
    """Begin a program that walks back through a scan.

    Return it, the arrays of elements, prefixes and their cotangents, and what later blocks add to
    the cotangent of the prefix at the end of the block, zeros without ``has_later``.
    """
    walk = _Walk("pullback of associative_scan", operator)
    leaves = range(len(operator.cores))
    arrays = (
        walk.arrays("x", leaves),
        walk.arrays("y", leaves),
        walk.arrays("g", operator.float_leaves),
    )
    later = walk.numbers("later", operator.floats) if has_later else []
    walk.begin()
    return (
        walk,
        arrays,
        walk.of_block(later, walk.block) if has_later else walk.zeros(operator.floats),
    )


@lru_cache(maxsize=256)
def local_cotangents_program(operator: Operator) -> Program:
    """Return the program for what each block adds to the cotangent of the prefix before it.

    Params: the arrays of elements, of prefixes and of their cotangents. Outputs: a cotangent for
    each float; zero from the first block, which has no prefix before it.
    """
    walk, (xs, ys, gs), none = _begin_scan_pullback(operator, False)
    pull = _Pullback(walk)

    def step(at: Atom, before: Atom, r: _Atoms) -> list[Atom]:
        r = walk.sum(r, walk.element(gs, at))
        return pull(walk.element(ys, before), walk.element(xs, at), r)[0]

    walk.touch(xs, ys, gs)
    r = walk.backward(none, lambda at, r: step(at, walk.previous(at), r))
    is_first = walk.is_first_place(walk.start)
    return walk.finish(walk.unless(is_first, none, lambda: step(walk.start, walk.before_start, r)))


@lru_cache(maxsize=256)
def scan_cotangents_program(operator: Operator, has_later: bool) -> Program:
    """Return the program that finds the cotangents of prefixes, with what later ones add.

    Params: the arrays of elements, prefixes and cotangents; with ``has_later`` each float's
    cotangents at the ends of blocks. Outputs: the arrays of cotangents.
    """
    walk, (xs, ys, gs), later = _begin_scan_pullback(operator, has_later)
    rs = walk.written("r", operator.float_leaves)
    pull = _Pullback(walk)

    def take(at: Atom, r: _Atoms) -> list[Atom]:
        r = walk.sum(r, walk.element(gs, at))
        walk.write(rs, at, r)
        return r

    def step(at: Atom, r: _Atoms) -> list[Atom]:
        return pull(walk.element(ys, walk.previous(at)), walk.element(xs, at), take(at, r))[0]

    walk.touch(xs, ys, gs, rs)
    take(walk.start, walk.backward(later, step))
    return walk.finish(list(rs.values()))


@lru_cache(maxsize=256)
def scan_pullback_program(operator: Operator, has_later: bool, wanted: tuple[int, ...]) -> Program:
    """Return the program that finds the cotangents of elements and of captured values.

    Params: as of `scan_cotangents_program`. Outputs: the arrays of cotangents, then those of the
    ``wanted`` captured values, one for each lane of numbers.
    """
    walk, (xs, ys, gs), later = _begin_scan_pullback(operator, has_later)
    found = walk.written("cotangent of x", operator.float_leaves)
    pull, count = _Pullback(walk, wanted), len(operator.floats)

    def step(at: Atom, before: Atom, values: _Atoms) -> list[Atom]:
        r = walk.sum(values[:count], walk.element(gs, at))
        of_a, of_b, gained = pull.but_first(at, walk.element(ys, before), walk.element(xs, at), r)
        walk.write(found, at, of_b)
        return [*of_a, *walk.sum(values[count:], gained)]

    walk.touch(xs, ys, gs, found)
    values = [*later, *pull.no_sums()]
    values = walk.backward(values, lambda at, v: step(at, walk.previous(at), v))
    values = step(walk.start, walk.before_start, values)
    return walk.finish([*found.values(), *pull.results(values[count:])])


@lru_cache(maxsize=256)
def fold_pullback_program(operator: Operator, has_prefix: bool, wanted: tuple[int, ...]) -> Program:
    """Return the program that walks back through a reduction, as `scan_pullback_program` does.

    Params: elements; with ``has_prefix`` each number's prefixes at ends of blocks; each float's
    cotangents there. Output arrays have prefixes first, then cotangents where there are floats.
    """
    walk = _Walk("pullback of reduce", operator)
    leaves = range(len(operator.cores))
    xs = walk.arrays("x", leaves)
    prefixes = walk.numbers("prefix", range(operator.size)) if has_prefix else []
    later = walk.numbers("later", operator.floats)
    walk.begin()
    found = walk.written("cotangent of x", leaves)
    own = {leaf: found[leaf] for leaf in operator.float_leaves}
    pull, count = _Pullback(walk, wanted), len(operator.floats)
    first = walk.element(xs, walk.start)
    before = walk.of_block(prefixes, walk.previous_block()) if has_prefix else first
    total = walk.join(prefixes, first) if has_prefix else first

    def advance(at: Atom, total: _Atoms) -> list[Atom]:
        walk.write(found, at, total)
        return walk.combine(total, walk.element(xs, at))

    walk.touch(found)
    walk.forward(total, advance)

    def step(at: Atom, prefix: _Atoms, values: _Atoms) -> list[Atom]:
        of_a, of_b, gained = pull.but_first(at, prefix, walk.element(xs, at), values[:count])
        walk.write(own, at, of_b)
        return [*of_a, *walk.sum(values[count:], gained)]

    values = [*walk.of_block(later, walk.block), *pull.no_sums()]
    values = walk.backward(values, lambda at, v: step(at, walk.element(found, at), v))
    values = step(walk.start, before, values)
    return walk.finish([*found.values(), *pull.results(values[count:])])
