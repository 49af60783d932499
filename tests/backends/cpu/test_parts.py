"""Kernels that write results into parts of larger arrays, against NumPy's assignment."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mixad.backends import registry
from mixad.backends.execute import Kernel, capability_beside, writes_parts
from mixad.errors import BackendError
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.types import BF16, BOOL, F16, F32, F64, I16

EXAMPLES = 100


def sum_and_product(type):
    b = Builder("sum_and_product")
    x, y = b.param("x", type), b.param("y", type)
    return b.finish([b.op("add", x, y), b.op("mul", x, y)])


def placed(values, part):
    whole = np.zeros(part.whole, values.dtype)
    box = tuple(slice(s, s + n) for s, n in zip(part.starts, values.shape, strict=True))
    whole[box] = values
    return whole


@st.composite
def parts(draw):
    """Draw a shape, and a part of that shape."""
    shape = tuple(draw(st.lists(st.sampled_from((0, 1, 2, 15, 16, 33)), min_size=1, max_size=3)))
    starts = tuple(draw(st.integers(0, 3)) for _ in shape)
    more = [draw(st.integers(0, 3)) for _ in shape]
    whole = tuple(s + n + m for s, n, m in zip(starts, shape, more, strict=True))
    return shape, SubBox(whole, starts)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(parts(), st.sampled_from((F32, F64, I16)), st.booleans(), st.booleans())
def test_a_part_is_written_beside_other_results(drawn, type, is_transposed, is_broadcast):
    shape, part = drawn
    rng = np.random.default_rng(0)
    order = "F" if is_transposed else "C"
    x, y = (rng.integers(-9, 9, shape).astype(type.dtype, order=order) for _ in range(2))
    y = y[..., :1] if is_broadcast else y
    requests = (OutputRequest(0, 0, part=part), OutputRequest(0, 1), OutputRequest(0, 0, ()))
    whole, product, _ = Kernel((sum_and_product(type),), requests)((x, y))
    np.testing.assert_array_equal(whole, placed(x + y, part))
    np.testing.assert_array_equal(product, x * y)


def test_a_part_of_truth_values():
    b = Builder("less")
    program = b.finish([b.op("lt", b.param("x", F64), b.param("y", F64))])
    x, y = np.random.default_rng(0).random((2, 37))
    part = SubBox((40,), (2,))
    (whole,) = Kernel((program,), (OutputRequest(0, 0, part=part),))((x, y))
    assert whole.dtype == BOOL.dtype
    np.testing.assert_array_equal(whole, placed(x < y, part))


@pytest.mark.parametrize(
    ("shape", "part"),
    [
        ((3_000_001,), SubBox((3_000_004,), (1,))),
        ((1500, 2047), SubBox((1501, 2064), (1, 3))),  # rows that begin on lines of the cache
        ((1500, 2047), SubBox((1500, 2050), (0, 3))),
        ((40, 70, 1000), SubBox((42, 70, 1024), (1, 0, 24))),
    ],
)
def test_parts_of_large_arrays(shape, part):
    x, y = np.random.default_rng(0).random((2, *shape), dtype="f4")
    kernel = Kernel((sum_and_product(F32),), (OutputRequest(0, 0, part=part),))
    (whole,) = kernel((x, y))
    np.testing.assert_array_equal(whole, placed(x + y, part))
    streams = kernel.prepare_launch((x, y)).launch.spec.streaming
    assert streams == (len(shape) == 1 or part.whole[-1] % 16 == 0)


def test_backends_say_whether_they_write_parts():
    program, x = sum_and_product(F32), np.ones(3, "f4")
    assert writes_parts(program, x)
    assert not writes_parts(program, x, "reference")


def test_backends_that_write_no_parts_are_given_none():
    requests = [OutputRequest(0, 0, part=SubBox((5,), (1,))), OutputRequest(0, 0, beside=((0, 1),))]
    x = np.ones(3, "f4")
    for request in requests:
        kernel = Kernel((sum_and_product(F32),), (request,))
        with pytest.raises(BackendError, match="'reference' does not"):
            kernel((x, x), "reference")


@pytest.mark.parametrize("type", [BF16, F16, F32])
def test_the_backend_that_is_asked_is_that_of_the_types(type, monkeypatch):
    """Memory of bfloat16 looks like that of uint16 to NumPy, for which there may be another."""
    asked = []
    resolve = registry.resolve
    monkeypatch.setattr(registry, "resolve", lambda *args: asked.append(args) or resolve(*args))
    assert writes_parts(sum_and_product(type), np.ones(3, "f4"))
    assert capability_beside(sum_and_product(type), np.ones(3, "f4")).stores_beside
    assert {dtypes for _, _, dtypes in asked} == {frozenset({type.dtype_name})}
