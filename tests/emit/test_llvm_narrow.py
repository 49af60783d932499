"""Conversions of 16-bit floats: the bits are NumPy's, with the host's instructions and without."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import llvmlite.binding as llvm
import numpy as np
import pytest
from kernel_runner import WIDTHS, planned

from mixad.backends.cpu import compiler
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import LLVM_LOCK, detect
from mixad.backends.cpu.symbols import KERNEL_SYMBOLS, read_symbols
from mixad.emit.llvm.kernel import emit_kernel
from mixad.emit.llvm.text import Dialect
from mixad.kernel.lower import lower_spec
from mixad.scalar.build import Builder
from mixad.scalar.types import BF16, F16, F32, F64, U16

PATTERNS = np.arange(1 << 16, dtype="u2")
TYPES = pytest.mark.parametrize("type", [F16, BF16], ids=str)


@cache
def backend(bits, has_half):
    host = detect().with_vector_bits(bits)
    if not has_half:
        host = replace(host, features=host.features.replace("+f16c", "-f16c"))
    return CpuBackend(host)


HOSTS = pytest.mark.parametrize(
    ("bits", "has_half"),
    [(bits, has) for bits in WIDTHS for has in (False, True) if detect().has_half or not has],
)


def run(program, argument, bits, has_half):
    chosen, launch = backend(bits, has_half), planned(program, [argument])
    return chosen.launch(chosen.bind(chosen.compile(launch.spec), launch), [argument])[0]


def decoding(type):
    """Bits of a 16-bit type to float32."""
    b = Builder("decoding")
    return b.finish([b.convert(b.op("bitcast", b.param("x", U16), type=type), F32)])


def encoding(type, source=F32):
    """Floats to the bits of a 16-bit type."""
    b = Builder("encoding")
    return b.finish([b.op("bitcast", b.cast(b.param("x", source), type), type=U16)])


def decoded(bits, type):
    """The numbers of all patterns, by what the standards say of sign, exponent and fraction."""
    fraction = 10 if type == F16 else 7
    bias = 15 if type == F16 else 127
    sign = np.where(bits >> 15, -1.0, 1.0)
    exponent = (bits.astype("i8") & 0x7FFF) >> fraction
    below = (bits & ((1 << fraction) - 1)) / 2.0**fraction
    size = np.ldexp(np.where(exponent, 1 + below, below), np.maximum(exponent, 1) - bias)
    top = (1 << (15 - fraction)) - 1
    special = np.where(below == 0, np.inf, np.nan)
    return sign * np.where(exponent == top, special, size)


@TYPES
@HOSTS
def test_every_pattern_is_the_number_that_the_format_says(type, bits, has_half):
    got = run(decoding(type), PATTERNS, bits, has_half)
    expected = decoded(PATTERNS, type)
    np.testing.assert_array_equal(got, expected.astype("f4"))
    np.testing.assert_array_equal(np.signbit(got), PATTERNS >= 0x8000)
    quiet = (got.view("u4") & 0x00400000) != 0
    assert quiet[np.isnan(expected)].all()


@HOSTS
def test_every_quiet_float16_is_the_bits_of_numpy(bits, has_half):
    got = run(decoding(F16), PATTERNS, bits, has_half).view("u4")
    magnitude = PATTERNS & 0x7FFF
    is_signalling = (magnitude > 0x7C00) & (magnitude < 0x7E00)
    expected = PATTERNS.view("f2").astype("f4").view("u4") | np.where(is_signalling, 1 << 22, 0)
    np.testing.assert_array_equal(got, expected)


def floats(type):
    """Every number of a type, all midpoints, the neighbours of these, and three million others."""
    exact = decoded(PATTERNS, type)
    exact = np.sort(exact[np.isfinite(exact)])
    beyond = [65520.0, 65519.996, 65536.0, 1e30, 3.3961e38, 3.396e38]
    middle = (exact[1:] + exact[:-1]) / 2
    near = np.concatenate([exact, middle, beyond, np.negative(beyond)]).astype("f4")
    random = np.random.default_rng(7).integers(0, 1 << 32, 3_000_000, dtype="u4").view("f4")
    infinity = np.float32(np.inf)
    return np.concatenate(
        [near, np.nextafter(near, infinity), np.nextafter(near, -infinity), random]
    )


def nearest(x, type):
    """The bits of the nearest number, found among all of them; halves to the even pattern."""
    upper = 0x7C00 if type == F16 else 0x7F80
    sizes = decoded(np.arange(upper, dtype="u2"), type)
    top = sizes[-1] + (sizes[-1] - sizes[-2])  # stands for infinity when it comes to rounding
    sizes = np.append(sizes, top)
    size = np.abs(x.astype("f8"))
    above = np.clip(np.searchsorted(sizes, size), 1, upper)
    low, high = size - sizes[above - 1], sizes[above] - size
    takes_upper = (high < low) | ((high == low) & (above % 2 == 0))
    return np.where(takes_upper, above, above - 1).astype("u2") | (
        np.signbit(x) * np.uint16(1 << 15)
    )


@pytest.mark.slow
@TYPES
@HOSTS
def test_float32_is_rounded_to_the_nearest_halves_to_even(type, bits, has_half):
    x = floats(type)
    x = x[~np.isnan(x)]
    np.testing.assert_array_equal(run(encoding(type), x, bits, has_half), nearest(x, type))


@HOSTS
def test_float32_is_rounded_to_the_bits_of_numpy(bits, has_half):
    x = floats(F16)
    x = x[~np.isnan(x) | ((x.view("u4") & (1 << 22)) != 0)]  # signalling nans become quiet here
    with np.errstate(all="ignore"):
        expected = x.astype("f2").view("u2")
    np.testing.assert_array_equal(run(encoding(F16), x, bits, has_half), expected)


@TYPES
@HOSTS
def test_nan_stays_a_quiet_nan_with_its_sign_and_the_top_of_its_payload(type, bits, has_half):
    payloads = np.arange(1, 1 << 23, 997, dtype="u4")
    x = np.concatenate([payloads | 0x7F800000, payloads | 0xFF800000]).view("f4")
    cut = x.view("u4") >> 13
    expected = (
        (x.view("u4") >> 16) | 0x40
        if type == BF16
        else (x.view("u4") >> 16 & 0x8000) | 0x7E00 | (cut & 0x3FF)
    )
    np.testing.assert_array_equal(run(encoding(type), x, bits, has_half), expected.astype("u2"))


@TYPES
@HOSTS
def test_float64_is_rounded_once(type, bits, has_half):
    """By way of float32 it would be rounded twice: beside a midpoint to the wrong side."""
    exact = decoded(PATTERNS, type)
    exact = np.sort(exact[np.isfinite(exact)])
    middle = (exact[1:] + exact[:-1]) / 2
    x = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    x = np.concatenate([x, x * (1 + 2.0**-40), [1e300, -1e300, np.inf, -np.inf, 5e-324]])
    got = run(encoding(type, F64), x, bits, has_half)
    np.testing.assert_array_equal(got, nearest(x, type))
    if type == F16:
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, x.astype("f2").view("u2"))


@TYPES
@HOSTS
def test_conversions_call_no_function(type, bits, has_half):
    chosen = backend(bits, has_half)
    for program in (decoding(type), encoding(type), encoding(type, F64)):
        (param,) = program.params
        spec = planned(program, [np.ones(64, param.var.type.dtype)]).spec
        code = compiler.compile_object(chosen.emit(spec), chosen.host)
        undefined = read_symbols(code).undefined
        assert undefined <= KERNEL_SYMBOLS & {"memcpy", "memset", "memmove"}, undefined


@TYPES
@HOSTS
def test_one_number_for_a_gang_is_converted_as_lanes_are(type, bits, has_half):
    """An operand that stands still along the innermost axis is one scalar, not a vector."""
    b = Builder("standing still")
    y, x, n = b.param("y", F32), b.param("x", F32), b.param("n", U16)
    there = b.op("bitcast", b.cast(x, type), type=U16)
    back = b.convert(b.op("bitcast", n, type=type), F32)
    program = b.finish([there, b.op("add", back, b.op("mul", y, b.const(0.0, F32)))])
    numbers = floats(type)[::1009]
    numbers = numbers[~np.isnan(numbers)]
    patterns = np.resize(PATTERNS[::7], len(numbers))
    arguments = [np.zeros((1, 20), "f4"), numbers[:, None], patterns[:, None]]
    chosen = backend(bits, has_half)
    launch = planned(program, arguments)
    got = chosen.launch(chosen.bind(chosen.compile(launch.spec), launch), arguments)
    np.testing.assert_array_equal(got[0], np.repeat(nearest(numbers, type)[:, None], 20, 1))
    with np.errstate(all="ignore"):
        expected = decoded(patterns, type).astype("f4") + np.float32(0)
    np.testing.assert_array_equal(got[1], np.repeat(expected[:, None], 20, 1))


MACHINES = [
    ("x86_64-pc-linux-gnu", "x86-64", "", False),
    ("x86_64-pc-linux-gnu", "x86-64", "+avx2", False),
    ("x86_64-pc-linux-gnu", "x86-64", "+avx512f,+avx512bw,+avx512bf16,+avx512fp16", False),
    ("aarch64-unknown-linux-gnu", "generic", "", True),
    ("arm64-apple-macosx", "generic", "", True),
]


@TYPES
@pytest.mark.rows(("triple", "cpu", "features", "has_half"), MACHINES)
def test_no_machine_needs_a_function_for_them(type, triple, cpu, features, has_half):
    """What LLVM would call where there is no instruction is on no list of ours."""
    with LLVM_LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        try:
            target = llvm.Target.from_triple(triple)
        except RuntimeError:
            pytest.skip(f"this LLVM has no target {triple}")
        machine = target.create_target_machine(cpu=cpu, features=features, opt=2)
        for program in (decoding(type), encoding(type), encoding(type, F64)):
            spec = planned(program, [np.ones(64, program.params[0].var.type.dtype)]).spec
            text = emit_kernel(lower_spec(spec), Dialect(128, frozenset(), has_half))
            undefined = read_symbols(machine.emit_object(llvm.parse_assembly(text))).undefined
            assert undefined <= {"memcpy"}
