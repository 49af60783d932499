"""The emitted module: deterministic, plain IEEE, and nothing but what the program says."""

import re
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest
from kernel_runner import WIDTHS, backend_of, run, spec_of

from mixad.emit.llvm.text import GANG, Text, literal
from mixad.scalar.build import Builder
from mixad.scalar.ir import Const, Line
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I32
from mixad.testing import (
    ALL_OPS,
    Recipe,
    random_arguments,
    random_program,
    same_bits,
    special_values,
)

SEEDS = range(60)
FAST_MATH = {"fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"}


def emitted(program, arguments=None, bits=WIDTHS[-1]):
    if arguments is None:
        arguments = random_arguments(program, 0, count=GANG)
    return backend_of(bits).emit(spec_of(program, arguments))


def with_lanes(seeds, recipe=None):
    programs = (random_program(seed, recipe) for seed in seeds)
    return [p for p in programs if any(q.kind == "lane" for q in p.params)]


def instructions(module):
    """Return the lines of a module without comments."""
    return [row for row in module.splitlines() if not row.lstrip().startswith(";")]


# -- arithmetic ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_instruction_has_a_fast_math_flag():
    for program in with_lanes(SEEDS):
        for row in instructions(emitted(program)):
            assert not FAST_MATH & set(re.findall(r"[a-z]+", row)), row


def product_and_sum(name):
    b = Builder(name)
    x, y, z = (b.param(letter, F32) for letter in "xyz")
    return b.finish([b.op("fma", x, y, z) if name == "fma" else b.op("add", b.op("mul", x, y), z)])


@pytest.mark.parametrize("bits", WIDTHS)
def test_product_and_sum_are_fused_where_the_program_says_so_only(bits):
    program, fused = product_and_sum("apart"), product_and_sum("fma")
    arguments = random_arguments(program, 0, count=GANG)
    backend = backend_of(bits)
    assert not re.search("fma|fmadd", backend.assembly(spec_of(program, arguments)))
    assert re.search("fma|fmadd", backend.assembly(spec_of(fused, arguments)))


def test_product_and_sum_round_twice_and_fma_once():
    tiny = np.float32(2.0**-12)
    arguments = [np.full(GANG, v, "f4") for v in (1 + tiny, 1 + tiny, -(1 + 2 * tiny))]
    (twice,) = run(product_and_sum("apart"), arguments)
    (once,) = run(product_and_sum("fma"), arguments)
    assert (twice == 0).all()
    assert (once == tiny**2).all()


# -- the same result everywhere --------------------------------------------------------------------

NOT_LIBRARY = tuple(name for name in ALL_OPS if BY_NAME[name].lowering != "libm")
SIGNLESS = tuple(name for name in NOT_LIBRARY if name not in ("signbit", "copysign"))
"""Without ops that tell one nan from another: the sign of a nan is nobody's promise."""


@pytest.mark.slow
def test_every_width_computes_the_same_bits():
    """Inlined functions included; functions of the maths library are another one for each width."""
    for seed, program in enumerate(with_lanes(SEEDS, Recipe(ops=SIGNLESS, arrays=True))):
        arguments = random_arguments(program, seed, count=2 * GANG + 5)
        first, *others = (run(program, arguments, bits) for bits in WIDTHS)
        for other in others:
            assert all(same_bits(a, b).all() for a, b in zip(first, other, strict=True)), program


@pytest.mark.parametrize("offset", [0, 3])
def test_every_size_computes_what_each_element_alone_gives(offset):
    """Remainders of gangs, and gangs that begin between cache lines."""
    b = Builder("sizes")
    x, n = b.param("x", F32), b.param("n", I32)
    root = b.op("sqrt", b.op("abs", x))
    (out,) = b.if_(b.op("gt", n, b.const(2, I32)), lambda: [b.op("exp", root)], lambda: [x])
    program = b.finish([out, b.op("lt", x, root), b.op("mod", n, b.const(3, I32))])
    largest = 2 * GANG + 1
    x = np.random.default_rng(0).normal(size=offset + largest).astype("f4")[offset:]
    n = np.arange(offset + largest, dtype="i4")[offset:]
    alone = [run(program, [x[i : i + 1], n[i : i + 1]]) for i in range(largest)]
    expected = [np.concatenate(column) for column in zip(*alone, strict=True)]
    for size in range(1, largest + 1):
        for wanted, got in zip(expected, run(program, [x[:size], n[:size]]), strict=True):
            assert same_bits(wanted[:size], got).all(), size


_PRINT_EMITTED = f"""
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.arrays import layout_of
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import OutputRequest
from mixad.testing import Recipe, random_program

backend = CpuBackend()
for seed in {SEEDS!r}:
    program = random_program(seed, Recipe(uniforms=False))
    layouts = [Layout(p.var.type, (9,), (p.var.type.itemsize,)) for p in program.params]
    requests = [OutputRequest(0, k) for k in range(len(program.outputs))]
    print(backend.emit(plan((program,), requests, layouts, (9,), 1 << 40).spec))
"""


@pytest.mark.slow
def test_processes_that_hash_differently_emit_the_same_text():
    texts = [
        subprocess.run(
            [sys.executable, "-c", _PRINT_EMITTED],
            env={"PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (0, 1)
    ]
    assert texts[0].count("define void") == len(SEEDS)
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_specs_that_are_equal_give_equal_text():
    for program in with_lanes(SEEDS):
        arguments = random_arguments(program, 0, count=GANG)
        more = random_arguments(program, 1, count=3 * GANG)
        assert emitted(program, arguments) == emitted(program, more)


# -- the user's text -------------------------------------------------------------------------------

HOSTILE = [
    "x = 1\n}\ndefine void @evil() { ret void",
    "x = 1\r\n}\r\ndefine void @evil() { ret void",
    "x = 1 \x0b\x0c\x1c\x85\u2028\u2029 ret void",
    "y = '\\'; ret void",
    "s = '*/ \" %s {0} {T}'",
    "π = \N{GREEK SMALL LETTER ALPHA} + '\N{PILE OF POO}'",
    "lone \ud800 surrogate",
    "null \0 byte",
]


def annotated(name, text):
    """Return a program whose equations come from a line of this text, with names to match."""
    b = Builder(name)
    b.line = Line("file", 7, text)
    x = b.param(name, F64)
    return b.finish([b.op("add", b.op("mul", x, x), b.const(1.0, F64))])


def test_lines_of_the_user_are_comments_before_what_they_compute():
    module = emitted(annotated("f", "  y = x * x + 1  ")).splitlines()
    at = module.index("  ; 7: y = x * x + 1")
    assert "fmul" in module[at + 1]


def test_line_is_not_repeated_for_each_of_its_equations():
    assert emitted(annotated("f", "y = x * x + 1")).count("; 7:") == 1


@pytest.mark.rows("text", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_of_the_user_changes_the_module(text):
    plain, hostile = emitted(annotated("f", "y")), emitted(annotated(text, text))
    assert hostile.isascii()
    assert hostile.isprintable() or set(re.sub(r"[ -~]", "", hostile)) == {"\n"}
    assert instructions(hostile) == instructions(plain)
    parsed = llvm.parse_assembly(hostile)
    assert [f.name for f in parsed.functions if not f.is_declaration] == ["mixad_kernel"]


def test_names_of_params_are_in_no_instruction():
    assert "secret" not in emitted(annotated("secret", "y"))


# -- constants -------------------------------------------------------------------------------------


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_constants_keep_their_bits(type):
    """As results of a program: the only way to them that nothing simplifies."""
    values = np.array(special_values(type), type.dtype)
    b = Builder("constants")
    b.param("moving", BOOL)
    program = b.finish([b.const(v.item(), type) for v in values])
    for value, got in zip(values, run(program, [np.zeros(3, bool)]), strict=True):
        assert same_bits(np.full(3, value), got).all()


def test_floats_are_spelled_by_their_bits():
    assert literal(Const(-0.0, F64)) == "0x8000000000000000"
    assert literal(Const(1.5, F32)) == "0x3FF8000000000000"


def test_comment_of_an_empty_line_is_a_comment():
    text = Text()
    text.comment("")
    assert text.lines == ["  ; "]
