"""What NVRTC makes of kernels for devices that need not be there: registers, spills, instructions.

A family of kernels is planned and emitted for arrays that are aligned, and not run.
"""

from __future__ import annotations

import itertools
import re
from functools import cache

import numpy as np
import pytest
from cuda_emulator import DryDriver, needs_nvrtc
from cuda_functions import anomaly, cell_update

import mixad
from benchmarks.gpu.bundle import residual_kernel
from benchmarks.gpu.volatility import implied
from mixad.backends import registry
from mixad.backends.arrays import layout_of
from mixad.backends.cuda import CudaBackend, compile_text, usage_in
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Block, Const, Equation, Param, Program, Var
from mixad.scalar.ops import TABLE
from mixad.scalar.pullback import pullback
from mixad.scalar.types import BOOL, F32, F64

ARCHITECTURES = ("sm_80", "sm_90")
LOADS_16_BYTES = re.compile(r"ld\.global\.[\w.]*(v4\.[fbu]32|v2\.[fbu]64)")


# -- the family ------------------------------------------------------------------------------------


def full(type, shape=(64, 64)):
    """Return an aligned array."""
    values = DryDriver().empty(shape, type.dtype, "dry")
    values[...] = np.random.default_rng(0).uniform(0.1, 1, shape)
    return values


def new_texts(run) -> list[str]:
    """Return the texts of the kernels that a call compiles."""
    driver = registry.default_registry().backend("dry").driver
    before = len(driver.texts)
    run(driver)
    return driver.texts[before:]


def with_gradients(kernel, arguments, active, outputs=1) -> list[str]:
    """Return the texts of values and the gradients of the last arguments, for cotangents."""
    first, last = arguments[:-active], arguments[-active:]
    on_device = kernel.with_options(backend="dry")
    one = np.ones_like(arguments[-1])
    cotangent = one if outputs == 1 else (one,) * outputs
    return new_texts(
        lambda driver: mixad.value_and_vjp(lambda *xs: on_device(*first, *xs), last, cotangent)
    )


def of_passes(passes, arguments, result=None) -> list[str]:
    """Return the texts of all results of programs, summed to a shape or stored."""
    requests = [
        OutputRequest(p, k, result) for p, one in enumerate(passes) for k in range(len(one.outputs))
    ]
    shape = np.broadcast_shapes(*(a.shape for a in arguments))
    launch = plan(tuple(passes), requests, list(map(layout_of, arguments)), shape, 1 << 40)

    def run(driver):
        backend = CudaBackend("dry", driver)
        backend.launch(backend.bind(backend.compile(launch.spec), launch), arguments)

    return new_texts(run)


def tanh_product(count, type):
    """Return the program Π tanh(xₖ)."""
    xs = [Var(k, type) for k in range(count)]
    equations, product = [], Const(1.0, type)
    for k, x in enumerate(xs):
        factor, following = Var(count + 2 * k, type), Var(count + 2 * k + 1, type)
        equations.append(Equation(factor, "tanh", (x,)))
        equations.append(Equation(following, "mul", (product, factor)))
        product = following
    params = tuple(Param(f"x{k}", x) for k, x in enumerate(xs))
    return Program("product", params, Block(tuple(equations), (product,)))


@cache
def hm_lstm(type, control_shape):
    control = [full(type, control_shape) for _ in range(2)]
    return with_gradients(cell_update, [*control, *[full(type)] * 4], 4)


@cache
def kepler(type):
    return with_gradients(anomaly, [full(type)] * 2, 2)


@cache
def bundle(type):
    return with_gradients(mixad.broadcast(residual_kernel), [full(type)] * 15, 15, outputs=2)


@cache
def blocks(type):
    kernel = mixad.broadcast(residual_kernel, backend="dry")
    return new_texts(lambda driver: kernel.value_and_jacobian(*[full(type)] * 15))


@cache
def volatility(type):
    return with_gradients(mixad.broadcast(implied), [full(type)] * 4, 1)


@cache
def arity(count, type):
    passes = pullback(tanh_product(count, type), range(count), [0])
    return of_passes([one.program for one in passes], [full(type)] * (count + 1))


@cache
def one_op(name, type):
    op = next(op for op in TABLE if op.name == name)
    xs = [Var(k, type) for k in range(op.arity)]
    out = Var(op.arity, BOOL if op.result == "bool" else type)
    params = tuple(Param(f"x{k}", x) for k, x in enumerate(xs))
    program = Program(name, params, Block((Equation(out, name, tuple(xs)),), (out,)))
    return of_passes([program], [full(type)] * op.arity)


@cache
def reduction(result, type):
    x, y, out = (Var(k, type) for k in range(3))
    equation = Equation(out, "mul", (x, y))
    program = Program("p", (Param("x", x), Param("y", y)), Block((equation,), (out,)))
    return of_passes([program], [full(type, (8, 16, 64))] * 2, result)


USES_FLOAT64 = {"digamma", "trigamma", "polygamma", "sin", "cos", "tan", "kepler", "bundle",
                "blocks", "erfcx", "ierfcx", "erfinv", "erfcinv"}  # fmt: skip
"""Where float32 kernels have float64: the core computes polygammas and these error functions in it,
and CUDA's own sine, cosine and tangent reduce arguments beyond 10⁵ in it, on a branch that others
do not take."""

REGISTERS = {
    "hm_lstm": 96,
    "kepler": 64,
    "bundle": 200,
    "blocks": 200,
    "implied": 96,
    "arity": 144,
    "op": 96,
    "reduction": 96,
}
"""Most registers of a thread, by family; four elements of float32 or two of float64 at a time."""

SPILLED = {("arity", "f32", 24): 4, ("op", "f64", "atan"): 8}
"""Bytes of a thread in memory where the compiler takes a register fewer to have a block more."""

TYPES = {"f32": F32, "f64": F64}
OPS = [op.name for op in TABLE if op.domain in ("float", "number") and op.name != "bitcast"]
RESULTS = list(itertools.product((1, 8), (1, 16), (1, 64)))


def families():
    """Yield the family, what tells its members apart, and the function that returns the texts."""
    for name, type in TYPES.items():
        for shape in ((64,), (64, 1), (64, 64)):
            yield "hm_lstm", (name, shape), lambda t=type, s=shape: hm_lstm(t, s)
        yield "kepler", (name,), lambda t=type: kepler(t)
        yield "bundle", (name,), lambda t=type: bundle(t)
        yield "blocks", (name,), lambda t=type: blocks(t)
        yield "implied", (name,), lambda t=type: volatility(t)
        for count in range(1, 25):
            yield "arity", (name, count), lambda t=type, n=count: arity(n, t)
        for op in OPS:
            yield "op", (name, op), lambda t=type, o=op: one_op(o, t)
        for result in RESULTS:
            yield "reduction", (name, result), lambda t=type, r=result: reduction(r, t)


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(
    ("family", "member", "emit"),
    [pytest.param(*case, id=f"{case[0]}-{'-'.join(map(str, case[1]))}") for case in families()],
)
def test_kernels_compile_without_spills_and_in_their_own_precision(
    family, member, emit, architecture
):
    texts = emit()
    assert texts
    for text in texts:
        code = compile_text(text, architecture, ["--ptxas-options=-v"])
        ptx, log = code.ptx, code.log
        spilled = [int(n) for n in re.findall(r"(\d+) bytes spill stores", log)]
        assert max(spilled) <= SPILLED.get((family, *member), 0), log
        registers = [int(n) for n in re.findall(r"Used (\d+) registers", log)]
        assert registers
        assert max(registers) <= REGISTERS[family], log
        assert sorted(u.registers for u in usage_in(code.cubin).values()) == sorted(registers)
        if "f32" in member and not {family, member[-1]} & USES_FLOAT64:
            assert ".f64" not in ptx
        if "mixad_axis_" not in text and family != "implied":
            assert LOADS_16_BYTES.search(ptx)
        assert not re.search(r"\b(ld|st)\.(v2|v4|[bfsu]\d)", ptx)  # all say which memory it is
