"""Every op of the table is lowered, and nothing else is."""

import math
import re

import mpmath
import numpy as np
import pytest
from kernel_runner import WIDTHS, backend_of, run, spec_of

from mixad.emit.llvm.instructions import FORMATS, INTRINSICS, SPECIAL
from mixad.scalar.build import Builder
from mixad.scalar.interpret import apply
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64
from mixad.scalar.verify import VerificationError, result_type
from mixad.testing import special_values

FLOATS = (F32, F64)
LIBM = [op.name for op in TABLE if op.lowering == "libm"]


def signatures(name):
    """Return the argument and result types that an op takes."""
    op = BY_NAME[name]
    found = []
    for type in ALL_TYPES:
        types = (BOOL, type, type) if name == "where" else (type,) * op.arity
        for stated in ALL_TYPES if op.result == "stated" else (None,):
            try:
                found.append((types, result_type(name, types, stated)))
            except VerificationError:
                continue
    return found


def program_of(name, types, out):
    b = Builder(name)
    params = [b.param(f"x{k}", type) for k, type in enumerate(types)]
    return b.finish([b.op(name, *params, type=out)])


@pytest.mark.rows("lanes", [True, False], ids=["lanes", "uniform"])
@pytest.mark.rows("name", [op.name for op in TABLE])
def test_op_is_lowered_for_all_types_it_takes(name, lanes):
    for types, out in signatures(name):
        shape = (3, 4) if lanes else (1,)
        arguments = [np.ones(shape, type.dtype) for type in types]
        program = program_of(name, types, out)
        backend_of().emit(spec_of(program, arguments))


def test_every_library_function_has_an_independent_definition():
    assert set(EXACTLY) == set(LIBM)


def test_lowerings_name_ops_of_the_table_only():
    named = {name for formats in FORMATS.values() for name in formats}
    assert named | set(SPECIAL) | set(INTRINSICS) <= {
        op.name for op in TABLE if op.lowering == "instruction"
    }


@pytest.mark.rows("name", [op.name for op in TABLE if op.lowering == "instruction"])
def test_instruction_is_spelled_once(name):
    """For each kind of argument, one of the tables has an op, so no entry hides another."""
    for kind in {types[-1].kind for types, _ in signatures(name)}:
        intrinsic = kind == "float" and name in INTRINSICS
        assert (name in FORMATS[kind]) + intrinsic <= 1


# -- the maths library -----------------------------------------------------------------------------

FEW_ULP = 4  # libmvec states four units in the last place, libm less
TOLERANCE = {F32: FEW_ULP * 2.0**-23, F64: FEW_ULP * 2.0**-52}
ORDINARY = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
"""Points at which every function of the maths library is defined, or undefined alike."""


EXACTLY = {
    "fmod": math.fmod, "tan": mpmath.tan, "asin": mpmath.asin, "acos": mpmath.acos,
    "atan": mpmath.atan, "sinh": mpmath.sinh, "cosh": mpmath.cosh, "asinh": mpmath.asinh,
    "acosh": mpmath.acosh, "atanh": mpmath.atanh, "atan2": mpmath.atan2, "hypot": mpmath.hypot,
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)), "erfc": mpmath.erfc,
    "gamma": mpmath.gamma, "lgamma": lambda x: mpmath.loggamma(x).real,
}  # fmt: skip
"""What mpmath calls the functions of the maths library; a complex result stands for nan."""


def exactly(name, args):
    """Return the right result, rounded to double precision."""
    result = mpmath.mpmathify(EXACTLY[name](*(mpmath.mpf(float(a)) for a in args)))
    return math.nan if isinstance(result, mpmath.mpc) and result.imag else float(result.real)


def libm_program(type):
    """Return one program with every op of the maths library as an output."""
    b = Builder("libm")
    x, y = b.param("x", type), b.param("y", type)
    return b.finish([b.op(name, *(x, y)[: BY_NAME[name].arity]) for name in LIBM])


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_lanes_go_through_the_widest_function_of_the_library(type, bits):
    """And one by one where the library has none of that width."""
    backend = backend_of(bits)
    x = np.ones(3, type.dtype)
    called = set(
        re.findall(r"call .*@([\w.]+)\(", backend.emit(spec_of(libm_program(type), [x, x])))
    )
    for name in LIBM:
        c = BY_NAME[name].c
        vector = backend.host.vector_function(c, type.bits)
        lanes = f"lanes.{c}{'f' if type == F32 else ''}"
        assert (vector.symbol if vector else lanes) in called


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_library_functions_are_right_to_a_few_ulp(type, bits):
    x = np.array([*ORDINARY, *(1 / p for p in ORDINARY), *(-p for p in ORDINARY)], type.dtype)
    y = x[::-1].copy()
    for name, lanes in zip(LIBM, run(libm_program(type), [x, y], bits), strict=True):
        args = [a.astype(type.dtype) for a in (x, y)[: BY_NAME[name].arity]]
        expected = [exactly(name, point) for point in zip(*args, strict=True)]
        np.testing.assert_allclose(lanes, expected, rtol=TOLERANCE[type], err_msg=name)


@pytest.mark.parametrize("type", FLOATS, ids=str)
def test_library_functions_of_uniform_values_are_those_of_lanes(type):
    """The gang calls the scalar function once: another function than that of lanes, as good."""
    x = np.array(ORDINARY, type.dtype)[:, None]
    moving = np.zeros((1, 3), type.dtype)
    b = Builder("uniform")
    params = [b.param(name, type) for name in ("x", "moving")]
    outputs = [b.op(name, *(params[0],) * BY_NAME[name].arity) for name in LIBM]
    program = b.finish([b.op("add", out, params[1]) for out in outputs])
    for name, got in zip(LIBM, run(program, [x, moving]), strict=True):
        args = [(v,) * BY_NAME[name].arity for v in x[:, 0]]
        expected = np.array([exactly(name, point) for point in args])[:, None]
        np.testing.assert_allclose(
            got, np.broadcast_to(expected, got.shape), rtol=TOLERANCE[type], err_msg=name
        )


@pytest.mark.parametrize("bits", WIDTHS)
def test_library_functions_take_special_values(bits):
    points = [p for p in special_values(F64) if not abs(p) > 2.0**40]
    x = np.array([*points, np.inf, -np.inf])
    for name, got in zip(LIBM, run(libm_program(F64), [x, x[::-1].copy()], bits), strict=True):
        args = (x, x[::-1])[: BY_NAME[name].arity]
        expected = np.array([apply(name, point, F64) for point in zip(*args, strict=True)])
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), err_msg=name)
        infinite = np.isinf(expected)
        np.testing.assert_array_equal(got[infinite], expected[infinite], err_msg=name)
