"""Arithmetic on single numbers: the bits of a kernel and of the interpreter, without a kernel."""

from __future__ import annotations

import random
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import mixad
from mixad.backends.execute import Kernel
from mixad.backends.numbers import scalar_evaluator
from mixad.errors import KernelTypeError
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import Program
from mixad.scalar.types import BF16, BOOL, F16, F32, F64, I64, ScalarType

EXAMPLES = 150

ARITHMETIC = ("add", "sub", "mul", "div", "copysign", "mul_zero", "mul_zeros")
OF_ONE = ("neg", "abs", "sqrt", "floor", "ceil", "trunc", "rint", "sign", "relu")
COMPARED = ("lt", "le", "gt", "ge", "eq", "ne")
STORED = (OutputRequest(0, 0), OutputRequest(0, 1, ()))
POINTS = (0.0, -0.0, 1.0, -2.5, 0.1, 3e38, 1e-40, 1e-310, 2.5, np.inf, -np.inf, np.nan)


def random_program(source: random.Random, type: ScalarType, length: int) -> Program:
    """Return a program of exact ops on three numbers, the last of them uniform."""
    b = Builder("arithmetic")
    values = [b.param("x", type), b.param("y", type), b.param("a", type, "uniform")]
    values.append(b.const(source.choice((0.0, 0.5, -3.0)), type))
    for _ in range(length):
        x, y = source.choices(values, k=2)
        kind = source.randrange(4)
        if kind == 0:
            values.append(b.op(source.choice(OF_ONE), x))
        elif kind == 1:
            condition = b.op(source.choice(COMPARED), x, y)
            values.append(b.op("where", condition, y, x))
        else:
            values.append(b.op(source.choice(ARITHMETIC), x, y))
    return b.finish([values[-1], values[-2]])


@pytest.mark.slow
@pytest.mark.parametrize("type", [F32, F64], ids=str)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 5))
@settings(max_examples=EXAMPLES, deadline=None)
def test_bits_are_those_of_the_interpreter_and_of_a_kernel(
    type: ScalarType, seed: int, length: int
) -> None:
    source = random.Random(seed)
    program = random_program(source, type, length)
    compute = scalar_evaluator((program,), STORED)
    assume(compute is not None)  # otherwise it is too long, once its ops are spelled out
    x, y = (type.dtype.type(p) for p in source.choices(POINTS, k=2))
    given = source.choice((*POINTS, 1e300))  # beyond float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compute((np.asarray(x), np.asarray(y), given))
    assert found is not None
    with np.errstate(all="ignore"):
        wanted = interpret(program, (x, y, type.dtype.type(given)))
    kernel = Kernel((program,), STORED)((np.asarray(x), np.asarray(y), given), "cpu")
    for f, w, k in zip(found, wanted, kernel, strict=True):
        assert isinstance(f, np.ndarray)
        assert not f.shape
        assert f.dtype == k.dtype == type.dtype
        assert np.isnan(f) == np.isnan(w) == np.isnan(k)
        if not np.isnan(f):
            assert f.tobytes() == np.asarray(w).tobytes() == k.tobytes()


def half(type: ScalarType = F64, kind: Any = "lane", op: str = "mul") -> Program:
    b = Builder("half")
    return b.finish([b.op(op, b.param("x", type, kind), b.const(0.5, type))])


def test_only_short_exact_programs_on_floats_are_taken() -> None:
    one = (OutputRequest(0, 0),)
    assert scalar_evaluator((half(),), one) is not None
    assert scalar_evaluator((half(), half()), one) is None
    assert scalar_evaluator((half(),), (OutputRequest(0, 0, (1,)),)) is None
    assert scalar_evaluator((half(),), (OutputRequest(0, 0, part=SubBox((3,), (1,))),)) is None
    assert scalar_evaluator((half(kind="uniform"),), one) is None
    assert scalar_evaluator((half(BF16),), one) is None
    assert scalar_evaluator((half(I64, op="floordiv"),), one) is None
    for narrow in (F16, BF16):
        b = Builder("narrowed")
        assert scalar_evaluator((b.finish([b.convert(b.param("x", F32), narrow)]),), one) is None
    b = Builder("of_a_condition")
    assert scalar_evaluator((b.finish([b.param("x", BOOL)]),), one) is None
    for name in ("exp", "sin", "erf", "cbrt", "tanh"):
        b = Builder(name)
        assert scalar_evaluator((b.finish([b.op(name, b.param("x", F64))]),), one) is None
    b = Builder("sums")
    x = total = b.param("x", F64)
    for _ in range(25):
        total = b.op("add", total, x)
    assert scalar_evaluator((b.finish([total]),), one) is None


def test_arrays_with_axes_go_through_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel((half(),), (OutputRequest(0, 0),))
    prepared: list[Any] = []
    own = Kernel.prepare_launch
    monkeypatch.setattr(Kernel, "prepare_launch", lambda *a: [prepared.append(a), own(*a)][1])
    assert kernel((np.asarray(3.0),))[0] == 1.5
    assert prepared == []
    np.testing.assert_array_equal(kernel((np.asarray([3.0]),))[0], [1.5])
    assert kernel((np.asarray(3.0),), "cpu")[0] == 1.5
    assert len(prepared) == 2
    with pytest.raises(KernelTypeError, match="compiled for float64"):
        kernel((np.asarray(3.0, "f4"),))


def test_a_mean_launches_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[Any] = []
    own = Kernel.prepare_launch
    monkeypatch.setattr(Kernel, "prepare_launch", lambda *a: [prepared.append(a), own(*a)][1])
    x = np.arange(8, dtype="f4")
    value, gradient = mixad.value_and_grad(lambda x: (x * x).mean())(x)
    assert len({id(kernel) for kernel, *_ in prepared}) == 1
    assert value.dtype == gradient.dtype == np.float32
    assert value == np.float32(17.5)
    np.testing.assert_array_equal(gradient, x / np.float32(4))


@pytest.mark.slow
def test_a_number_of_16_bits_is_rounded() -> None:
    x = np.asarray([1.1, 2.3, 0.7], np.float16)
    functions = [
        lambda x: x.mean(),
        lambda x: x.std(),
        lambda x: x.astype(np.float32).sum().astype(np.float16),
    ]
    for f in functions:
        want = np.float16(f(x.astype(float)))
        for value in (
            mixad.value_and_grad(f)(x)[0],
            mixad.vjp(f, x)[0],
            mixad.jvp(f, (x,), (x,))[0],
        ):
            assert value.dtype == np.float16
            assert value == want


@pytest.mark.slow
def test_numbers_are_computed_to_all_orders_in_both_modes() -> None:
    def loss(x: Any) -> Any:
        total, mean = (x * x).sum(), x.mean()
        return np.sqrt(total) / (1.0 + mean * mean) + abs(mean) * np.maximum(total, 0.5)

    mixad.check_grads(loss, (np.asarray([0.3, -0.5, 1.1]),), order=3)
