"""What only a device can tell: functions of CUDA's own, for which the emulator has libm's.

Its name puts it before the other files: what they find is told apart from what functions are off.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from mixad.backends.execute import kernel_for
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import F32, F64

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))

from cuda_emulator import UNTESTED

pytestmark = pytest.mark.gpu

POINTS = np.array([-np.inf, -40.25, -3.5, -1.0, -0.75, -1e-3, -0.0, 0.0, 1e-30, 0.0625, 0.5,
                   0.9375, 1.0, 1.5, 2.0, 7.25, 33.0, 1e5, np.inf, np.nan])  # fmt: skip
MAX_ULP = 16
"""Beyond what NVIDIA states of any of them (CUDA C++ Programming Guide, mathematical functions)."""


def computed(name, xs, library):
    """Return an op of arrays on the device."""
    b = Builder(name)
    type = F32 if xs[0].dtype == np.float32 else F64
    program = b.finish([b.op(name, *(b.param("xyz"[k], type) for k in range(len(xs))))])
    (found,) = kernel_for((program,), (OutputRequest(0, 0),))(tuple(map(library.put, xs)))
    return program, library.get(found)


@pytest.mark.parametrize(
    ("name", "type"),
    [(name, type) for name, types in UNTESTED.items() for type in types],
    ids=str,
)
def test_a_function_of_cudas_is_that_of_the_interpreter(library, name, type):
    points = POINTS
    if name == "bounded_reciprocal":
        points = np.linspace(1.0, 2.0, 1000)
    grid = np.meshgrid(*[points] * BY_NAME[name].arity)
    xs = [np.ravel(x).astype(type.dtype) for x in grid]
    program, found = computed(name, xs, library)
    with np.errstate(all="ignore"):
        wanted = np.array([interpret(program, x)[0] for x in zip(*xs, strict=True)])
    tolerance = MAX_ULP * np.finfo(type.dtype).eps
    near_zeros = 1.0 if name == "lgamma" else float(np.finfo(type.dtype).smallest_normal)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * near_zeros)


def test_a_reciprocal_between_1_and_2_is_as_ieee_divides(library):
    """Of every number there: sigmoid and tanh have the CPU's bits by it."""
    x = np.arange(0x3F800000, 0x40000001, dtype=np.uint32).view(np.float32)
    _, found = computed("bounded_reciprocal", [x], library)
    np.testing.assert_array_equal(found, 1 / x)
