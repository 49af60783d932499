"""Long blocks are given to LLVM's scheduler in regions, unless they would spill too much."""

import numpy as np
import pytest
from kernel_runner import WIDTHS, backend_of, run, spec_of

from mixad.emit.llvm import scheduling_regions
from mixad.emit.llvm.scheduling_regions import MAX_LIVE, REGION, scheduling_boundaries
from mixad.kernel.block_summary import summarize_blocks
from mixad.scalar.build import Builder
from mixad.scalar.pullback import pullback
from mixad.scalar.types import F32, F64
from mixad.testing import random_arguments, same_bits

WIDE = 512
FACTORS = 6


def fan(width, length, type=F32):
    """Return a program of so many statements, so many values of which live at once."""
    b = Builder("fan")
    x = b.param("x", type)
    arms = [b.op("sqrt", x)]
    for _ in range(width - 1):
        arms.append(b.op("sqrt", arms[-1]))
    while len(arms) > 1:
        arms.append(b.op("sub", arms.pop(), arms.pop()))
    (tip,) = arms
    for _ in range(length - (2 * width - 1)):
        tip = b.op("sqrt", tip)
    return b.finish([tip])


def gradient_of_a_product():
    """Return the pullback of Π σ(xₙ): as many independent chains, each with a division."""
    b = Builder("product")
    product, *factors = [b.op("sigmoid", b.param(f"x{n}", F32)) for n in range(FACTORS)]
    for factor in factors:
        product = b.op("mul", product, factor)
    (whole,) = pullback(b.finish([product]), range(FACTORS), [0], with_primals=True)
    return whole.program


def boundaries(program, bits=WIDE):
    return list(scheduling_boundaries(program.body, bits, summarize_blocks(program)))


def test_long_block_has_a_boundary_after_each_stretch():
    length = 2 * REGION + 1
    assert len(fan(3, length).body.statements) == length
    assert boundaries(fan(3, length)) == [REGION, 2 * REGION]


def test_block_of_one_stretch_has_none():
    assert boundaries(fan(3, REGION)) == []
    assert boundaries(fan(3, REGION + 1)) == [REGION]


def test_order_is_llvms_where_values_take_several_registers():
    assert boundaries(fan(3, 2 * REGION), WIDE // 2) == []
    assert boundaries(fan(3, 2 * REGION, F64)) == []


def test_order_is_llvms_where_too_many_values_live():
    # while the last two arms become one, their difference lives beside them
    assert boundaries(fan(MAX_LIVE - 1, 2 * REGION)) == [REGION]
    assert boundaries(fan(MAX_LIVE, 2 * REGION)) == []


@pytest.mark.skipif(WIDE not in WIDTHS, reason="needs registers that hold a gang of float32")
def test_chains_take_turns_in_the_machine_code(monkeypatch):
    """Divisions of all chains are near one another, not each at the end of its own chain."""
    program = gradient_of_a_product()
    spec = spec_of(program, random_arguments(program, 0, count=32))
    kept = span_of_divisions(backend_of(WIDE).assembly(spec))
    monkeypatch.setattr(scheduling_regions, "MAX_LIVE", 0)
    assert kept < 0.7 * span_of_divisions(backend_of(WIDE).assembly(spec))


def span_of_divisions(assembly):
    """Return how many lines lie between the first division and the last."""
    lines = [n for n, row in enumerate(assembly.splitlines()) if "vdivps" in row]
    assert len(lines) == FACTORS
    return lines[-1] - lines[0]


@pytest.mark.slow
def test_boundaries_change_no_bit():
    """Wide registers have them, narrow ones do not."""
    program = gradient_of_a_product()
    arguments = random_arguments(program, 0, count=1000)
    first, *others = (run(program, arguments, bits) for bits in WIDTHS)
    assert np.isfinite(first).any()
    for other in others:
        assert all(same_bits(a, b).all() for a, b in zip(first, other, strict=True))
