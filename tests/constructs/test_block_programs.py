"""The programs over blocks: each is what NumPy says of its blocks, lane by lane and as a kernel."""

from itertools import pairwise

import numpy as np
import pytest
from operators import CASES, close, element, inner, long, prefixes, slope

from mixad.constructs.block_programs import (
    fold_program,
    fold_pullback_program,
    local_cotangents_program,
    scan_cotangents_program,
    scan_program,
    scan_pullback_program,
)
from mixad.constructs.blocks import _Blocks
from mixad.constructs.elements import read_elements
from mixad.constructs.operators import core_of, prefer_first, read_operator
from mixad.scalar.interpret import interpreter

NAMES = ["a*b+a+b", "affine", "argmax", "a captured number", "an indexed table", "2x2"]
CUTS = [(12, 3), (14, 3), (3, 3), (5, 3), (7, 1), (1, 1)]
"""How many elements there are, and in how many blocks: with and without one more."""


class Blocks:
    """Random elements of an axis that is cut, their prefixes and cotangents."""

    def __init__(self, name, extent, count):
        self.case, self.rng = CASES[name], np.random.default_rng(extent)
        self.extent, self.count = extent, count
        self.cut = _Blocks((2, extent, 3), count, extent // count, extent % count)
        sizes = [extent // count + (block < extent % count) for block in range(count)]
        ends = np.cumsum([0, *sizes])
        self.parts = [slice(*each) for each in pairwise(ends)]
        # Along their first axis, as the steps in NumPy take them.
        self.xs = self.case.draw(self.rng, (extent, 2, 3))
        self.ys = tuple(
            np.asarray(y, x.dtype)
            for y, x in zip(prefixes(self.case, self.xs, self.case.captured), self.xs, strict=True)
        )
        self.floats = [at for at, x in enumerate(self.xs) if x.dtype.kind == "f"]
        self.gs = [self.rng.standard_normal(self.ys[at].shape) for at in self.floats]
        self.later = [
            self.rng.standard_normal((count, *self.xs[at].shape[1:])) for at in self.floats
        ]
        elements, _ = read_elements("test", "xs", element(self.xs))
        core = core_of("test", self.case.signature)
        op = self.case.op(self.case.captured)
        self.operator, self.captured, *_ = read_operator("test", op, elements, core)

    # -- what is run -------------------------------------------------------------------------------

    def placed(self, leaves):
        """Return arrays with their axis in the second place."""
        return [np.ascontiguousarray(np.moveaxis(x, 0, 1)) for x in leaves]

    def numbers(self, leaves, which):
        """Return an array for each number of elements."""
        own = dict(zip(which, self.placed(leaves), strict=True))
        return [own[leaf][(..., *index)] for leaf, index in self.operator.places if leaf in own]

    def leaves(self, numbers, which):
        """Return arrays of elements along their first axis, of those of numbers."""
        left, places, found = iter(numbers), self.operator.places, []
        for leaf in which:
            whole = np.stack([next(left) for at, _ in places if at == leaf], -1)
            core = self.operator.cores[leaf]
            found.append(np.moveaxis(whole, 1, 0).reshape(-1, 2, 3, *core))
        return found

    def run(self, program, shapes, arrays):
        """Run a program lane by lane; compare with the kernel; return outputs."""
        found, run = [np.zeros(s) if s else None for s in shapes], interpreter(program)
        types = [out.type.dtype for out in program.outputs]
        accumulators, values = [], {}
        for each in program.accumulators:
            at = program.outputs.index(each.var)
            fill = 0 if each.kind == "add" else np.nan if each.var.type.is_float else -9
            found[at] = np.full(shapes[at], fill, types[at])
            accumulators.append(found[at])
        for lane in np.ndindex(2, self.count, 3):
            given = [*arrays, *lane, self.cut.length, self.cut.more, *self.captured]
            values[lane] = run([*given, *accumulators])
        for at, shape in enumerate(shapes):
            if not program.accumulator(at):
                each = [values[lane][at] for lane in values]
                lanes = np.array(each, types[at]).reshape(2, self.count, 3)
                found[at] = lanes if shape is None else lanes.sum()
        kernels = self.cut.launch(program, shapes, arrays, self.captured)
        for one, other, type in zip(kernels, found, types, strict=True):
            if type.kind == "f" or "pullback" not in program.name:
                close(one, other)
        return found

    # -- what NumPy says of one block --------------------------------------------------------------

    def of_block(self, block, xs, before=None, captured=None):
        """Return the prefixes of a block, of what is before it and its elements."""
        part = [x[self.parts[block]] for x in xs]
        if before is not None:
            part = [np.concatenate([f[None], x]) for f, x in zip(before, part, strict=True)]
        found = prefixes(self.case, part, self.case.captured if captured is None else captured)
        return [y if before is None else y[1:] for y in found]

    def before(self, block):
        """Return the prefix before a block; None before the first."""
        return [y[self.parts[block].start - 1] for y in self.ys] if block else None

    def paired(self, ys, gs):
        return inner([ys[at] for at in self.floats], gs)

    def with_floats(self, leaves, floats):
        leaves = list(leaves)
        for at, x in zip(self.floats, floats, strict=True):
            leaves[at] = x
        return leaves

    def gain(self, xs, captured, gs, later):
        """Return what all blocks give, if what is before each does not change."""
        total = 0
        for block in range(self.count):
            ys = self.of_block(block, xs, self.before(block), captured)
            total += self.paired([y[-1] for y in ys], [each[block] for each in later])
            if gs is not None:
                total += self.paired(ys, [g[self.parts[block]] for g in gs])
        return total

    def check_cotangents(self, found, gs, wanted):
        """Compare cotangents of elements and captured values with differences."""
        given = [self.xs[at] for at in self.floats]
        found = [*[np.moveaxis(x, 1, 0) for x in found[: len(given)]], *found[len(given) :]]
        if wanted:
            given.append(self.case.captured)
        along = [self.rng.standard_normal(np.shape(x)) for x in given]

        def gain(*given):
            captured = given[-1] if wanted else self.case.captured
            xs = self.with_floats(self.xs, given[: len(self.floats)])
            return self.gain(xs, captured, gs, self.later)

        close(inner(found, along), slope(gain, given, along, 1e-5), 1e-10)


def built(name, extent, count):
    blocks = Blocks(name, extent, count)
    return (
        blocks,
        blocks.operator,
        blocks.placed(blocks.xs),
        blocks.placed(blocks.ys),
        blocks.placed(blocks.gs),
    )


@pytest.mark.rows("name", NAMES)
@pytest.mark.rows(("extent", "count"), CUTS)
def test_folds(name, extent, count):
    blocks, operator, xs, _, _ = built(name, extent, count)
    found = blocks.run(fold_program(operator), [None] * operator.size, xs)
    which = range(len(xs))
    wanted = [[y[-1] for y in blocks.of_block(block, blocks.xs)] for block in range(count)]
    for one, other in zip(blocks.leaves(found, which), zip(*wanted, strict=True), strict=True):
        close(one, np.stack(other))


@pytest.mark.rows("name", NAMES)
@pytest.mark.rows(("extent", "count"), CUTS)
def test_scans(name, extent, count):
    blocks, operator, xs, ys, _ = built(name, extent, count)
    ends = [y[[part.stop - 1 for part in blocks.parts]] for y in blocks.ys]
    prefix = blocks.numbers(ends, range(len(xs))) if count > 1 else []
    found = blocks.run(scan_program(operator, count > 1), [x.shape for x in xs], [*xs, *prefix])
    for one, other in zip(found, ys, strict=True):
        close(one, other)


@pytest.mark.rows("name", NAMES)
@pytest.mark.rows(("extent", "count"), CUTS[:4])
def test_local_cotangents(name, extent, count):
    blocks, operator, xs, ys, gs = built(name, extent, count)
    program = local_cotangents_program(operator)
    found = blocks.run(program, [None] * len(operator.floats), [*xs, *ys, *gs])
    for block in range(1, count):
        given = [blocks.before(block)[at] for at in blocks.floats]
        along = [blocks.rng.standard_normal(x.shape) for x in given]

        def gain(*given, block=block):
            ys = blocks.of_block(block, blocks.xs, blocks.with_floats(blocks.before(block), given))
            return blocks.paired(ys, [g[blocks.parts[block]] for g in blocks.gs])

        own = [r[block] for r in blocks.leaves(found, blocks.floats)]
        close(inner(own, along), slope(gain, given, along, 1e-5), 1e-10)


@pytest.mark.rows("name", NAMES)
@pytest.mark.rows(("extent", "count"), CUTS)
def test_cotangents_of_prefixes(name, extent, count):
    blocks, operator, xs, ys, gs = built(name, extent, count)
    later = blocks.numbers(blocks.later, blocks.floats) if count > 1 else []
    program = scan_cotangents_program(operator, count > 1)
    found = [
        np.moveaxis(r, 1, 0)
        for r in blocks.run(program, [g.shape for g in gs], [*xs, *ys, *gs, *later])
    ]
    for block, part in enumerate(blocks.parts):
        for at in range(part.start, part.stop):
            given = [blocks.ys[leaf][at] for leaf in blocks.floats]
            along = [blocks.rng.standard_normal(x.shape) for x in given]

            def gain(*given, block=block, part=part, at=at):
                here = blocks.with_floats([y[at] for y in blocks.ys], given)
                rest = [
                    np.concatenate([long(y)[None], x[at + 1 : part.stop]])
                    for y, x in zip(here, blocks.xs, strict=True)
                ]
                ys = prefixes(blocks.case, rest, blocks.case.captured)
                own = blocks.paired(ys, [g[at : part.stop] for g in blocks.gs])
                if count == 1:
                    return own
                return own + blocks.paired(
                    [y[-1] for y in ys], [each[block] for each in blocks.later]
                )

            close(inner([r[at] for r in found], along), slope(gain, given, along, 1e-5), 1e-10)


@pytest.mark.rows("name", NAMES, slow="2x2")
@pytest.mark.rows(("extent", "count"), CUTS)
@pytest.mark.rows("wants", [True, False], ids=["captured", "elements only"])
def test_pullbacks_of_scans(name, extent, count, wants):
    blocks, operator, xs, ys, gs = built(name, extent, count)
    wanted = (0,) if wants and blocks.case.captured is not None else ()
    if count == 1:
        blocks.later = [0 * each for each in blocks.later]
    later = blocks.numbers(blocks.later, blocks.floats) if count > 1 else []
    program = scan_pullback_program(operator, count > 1, wanted)
    shapes = [g.shape for g in gs] + [np.shape(blocks.captured[at]) for at in wanted]
    blocks.check_cotangents(blocks.run(program, shapes, [*xs, *ys, *gs, *later]), blocks.gs, wanted)


@pytest.mark.rows("name", NAMES, slow="2x2")
@pytest.mark.rows(("extent", "count"), CUTS)
@pytest.mark.rows("wants", [True, False], ids=["captured", "elements only"])
def test_pullbacks_of_folds(name, extent, count, wants):
    blocks, operator, xs, _, _ = built(name, extent, count)
    wanted = (0,) if wants and blocks.case.captured is not None else ()
    ends = [y[[part.stop - 1 for part in blocks.parts]] for y in blocks.ys]
    prefix = blocks.numbers(ends, range(len(xs))) if count > 1 else []
    later = blocks.numbers(blocks.later, blocks.floats)
    program = fold_pullback_program(operator, count > 1, wanted)
    shapes = [x.shape for x in xs] + [np.shape(blocks.captured[at]) for at in wanted]
    found = blocks.run(program, shapes, [*xs, *prefix, *later])
    own = [found[at] for at in blocks.floats] + found[len(xs) :]
    blocks.check_cotangents(own, None, wanted)


@pytest.mark.parametrize("extent", [1, 119, 120, 121, 240, 241, 14401, 1_000_003])
def test_how_an_axis_is_cut(extent):
    """Into blocks of at most 120 elements, of which none has over one more than another."""
    blocks = _Blocks.of((2, extent, 3))
    sizes = [blocks.length + (block < blocks.more) for block in range(blocks.count)]
    assert sum(sizes) == extent
    assert max(sizes) <= 120
    assert blocks.count == -(-extent // 120)
    whole = _Blocks.of((2, extent, 3), is_whole=True)
    assert (whole.count, whole.length, whole.more) == (1, extent, 0)


@pytest.mark.parametrize("name", ["min", "max"])
def test_the_first_of_equal_numbers_is_taken(name):
    made = prefer_first(Blocks(name, 5, 1).operator)
    numbers = [-np.inf, -1.0, -0.0, 0.0, 2.0, np.inf, np.nan]
    run, numpys = interpreter(made.program), {"min": np.minimum, "max": np.maximum}[name]
    for a in numbers:
        for b in numbers:
            (found,) = run([a, b])
            wanted = a if a == b else numpys(a, b)
            np.testing.assert_array_equal([found, np.signbit(found)], [wanted, np.signbit(wanted)])
    other = Blocks("a*b+a+b", 5, 1).operator
    assert prefer_first(other).program == other.program
