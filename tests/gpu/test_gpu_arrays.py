"""Kernels on a CUDA device: values, derivatives, layouts, storage; the conformance suite."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mixad
from benchmarks.gpu.bundle import drawn, residual_kernel
from mixad.backends import registry
from mixad.backends.cuda.choice import candidate_shapes
from mixad.backends.execute import kernel_for
from mixad.emit.cuda import Dialect
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.types import F32, F64
from mixad.special import sigmoid, tanh

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


@mixad.broadcast
def cell_update(z, zb, c, f, i, g):
    if z == 1.0:
        return sigmoid(i) * tanh(g)
    elif zb == 0.0:
        return c
    return sigmoid(f) * c + sigmoid(i) * tanh(g)


def cell_inputs(side, control_shape, dtype):
    rng = np.random.default_rng(0)
    control = rng.integers(0, 2, (2, *control_shape)).astype(dtype)
    return list(control), [rng.uniform(-2, 2, (side, side)).astype(dtype) for _ in range(5)]


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_the_conformance_suite_passes(name, device_of):
    device_of(name)
    path = [str(ROOT), str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=",
               "-p", "_mixad_pytest", "-p", "plugins_here",
               "--pyargs", "mixad.conformance", f"--mixad-backend={name}"]  # fmt: skip
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    assert "results compared" in done.stdout


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("control_shape", [(300, 1), (300,), (300, 300)])
def test_value_and_gradients_of_the_cell_have_the_bits_of_the_cpu(library, control_shape, dtype):
    (z, zb), (*states, cotangent) = cell_inputs(300, control_shape, dtype)
    control = [library.put(z), library.put(zb)]
    value, gradients = mixad.value_and_vjp(
        lambda *s: cell_update(*control, *s), [library.put(s) for s in states],
        library.put(cotangent),
    )  # fmt: skip
    want = mixad.value_and_vjp(lambda *s: cell_update(z, zb, *s), states, cotangent)
    for a, b in zip([value, *gradients], [want[0], *want[1]], strict=True):
        assert type(a) is type(control[0])
        np.testing.assert_array_equal(library.get(a), b)


def product(type):
    b = Builder("product")
    return b.finish([b.op("mul", b.param("x", type), b.param("y", type))])


RESULTS = [None, (1, 700), (300, 1), (1, 1)]


@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_sums_have_the_same_bits_again_and_wherever_arrays_are(library, type):
    rng = np.random.default_rng(0)
    whole = rng.standard_normal((2, 300, 704)).astype(type.dtype)
    kernel = kernel_for((product(type),), tuple(OutputRequest(0, 0, r) for r in RESULTS))
    found = []
    for shift in (0, 0, 1, 2, 4):
        arrays = []
        for values in whole[..., :700]:
            memory = library.put(np.zeros(values.size + 4, type.dtype))
            memory[shift : shift + values.size] = library.put(values.ravel())
            arrays.append(memory[shift : shift + values.size].reshape(300, 700))
        found.append([library.get(o) for o in kernel(arrays)])
    for again in found[1:]:
        for a, b in zip(again, found[0], strict=True):
            np.testing.assert_array_equal(a, b)
    exact = whole[0, :, :700].astype("f8") * whole[1, :, :700]
    np.testing.assert_allclose(found[0][3].item(), exact.sum(), rtol=1e-5, atol=1e-2)


def test_float16_has_the_bits_of_the_cpu(library):
    rng = np.random.default_rng(0)
    x, y = (rng.uniform(-2, 2, s).astype("f2") for s in ((50, 64), (64,)))
    kernel = mixad.broadcast(lambda x, y: x * y + x if x > y else x / y)
    got = kernel(library.put(x), library.put(y))
    np.testing.assert_array_equal(library.get(got), kernel(x, y))
    gradient = mixad.grad(lambda y: kernel(library.put(x), y).sum())(library.put(y))
    want = mixad.grad(lambda y: kernel(x, y).sum())(y)
    np.testing.assert_allclose(library.get(gradient), want, rtol=2e-3, atol=2e-3)


def test_subnormal_numbers_are_kept(library):
    halves = np.asarray([6e-8, 1e-6, -3e-5, 1.0], "f2")
    singles = np.asarray([1e-45, -1e-40, 3e-39, 1.0], "f4")
    for x in (halves, singles):
        kernel = mixad.broadcast(lambda x: x * 0.5 if x > 0.0 else -x)
        np.testing.assert_array_equal(library.get(kernel(library.put(x))), kernel(x))


def test_a_part_of_a_larger_array_is_written(library):
    x, y = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    request = OutputRequest(0, 0, part=SubBox((5, 8), (1, 4)))
    (got,) = kernel_for((product(F64),), (request,))([library.put(x), library.put(y)])
    wanted = np.zeros((5, 8))
    wanted[1:4, 4:] = x * y
    np.testing.assert_array_equal(library.get(got), wanted)


@pytest.mark.parametrize("count", [1, 33, 4096, 100_003])
@pytest.mark.parametrize("options", [{}, {"strategy": "forward"}, {"chunk": 4}], ids=str)
def test_blocks_of_a_jacobian_are_those_of_the_cpu(library, options, count):
    kernel = mixad.broadcast(residual_kernel, **options)
    inputs = drawn(count, 0)
    _, blocks = kernel.value_and_jacobian(*map(library.put, inputs))
    np.testing.assert_allclose(library.get(blocks), kernel.jacobian(*inputs), rtol=1e-9, atol=1e-9)


def test_second_derivatives_through_a_loop(library):
    mean = np.linspace(0.1, 3.0, 1000)

    @mixad.broadcast
    def anomaly(m):
        e = m
        while True:
            step = (e - 0.4 * np.sin(e) - m) / (1.0 - 0.4 * np.cos(e))
            e = e - step
            if abs(step) < 1e-12:
                return e

    def curvature(m):
        first = mixad.grad(lambda m: anomaly(m).sum())
        return mixad.grad(lambda m: (first(m) * first(m)).sum())(m)

    np.testing.assert_allclose(
        library.get(curvature(library.put(mean))), curvature(mean), rtol=1e-11
    )


def test_an_index_outside_is_refused_with_its_line(library):
    table = library.put(np.arange(5.0))
    looked_up = mixad.broadcast(lambda k: table[k])
    k = np.asarray([0, 4, -5])
    np.testing.assert_array_equal(library.get(looked_up(library.put(k))), [0.0, 4.0, 0.0])
    with pytest.raises(IndexError, match=r"table\[k\]|outside"):
        looked_up(library.put(np.asarray([0, 5])))
    assert library.get(looked_up(library.put(k)))[1] == 4.0  # the device goes on


def test_more_than_2_31_elements(library):
    count = (1 << 31) + 2049
    if library.name == "torch":
        import torch

        x = torch.zeros(count, dtype=torch.int8, device="cuda")
    else:
        import cupy

        x = cupy.zeros(count, dtype=cupy.int8)
    x[-1] = 5
    y = mixad.broadcast(lambda x: x + 1)(x)
    assert int(y[-1]) == 6
    assert int(y[(1 << 31) - 1]) == 1
    assert int(y[0]) == 1


def test_arrays_of_a_second_device_stay_there(library):
    if library.count < 2:
        pytest.skip("there is one CUDA device")
    kernel = mixad.broadcast(lambda x, y: x * y * y)
    x = np.arange(6.0)
    if library.name == "torch":
        a, b = (library.put(x).to(f"cuda:{k}") for k in (0, 1))
    else:
        import cupy

        with cupy.cuda.Device(1):
            b = cupy.asarray(x)
        a = cupy.asarray(x)
    for array in (a, b, a):
        got = mixad.grad(lambda v: kernel(v, v).sum())(array)
        assert got.device == array.device
        np.testing.assert_allclose(library.get(got), 3 * x * x)


@pytest.mark.parametrize("count", [1, 6, 12])
def test_the_shape_that_is_chosen_is_near_the_best(library, count):
    """Within 15 % of the fastest of all that could be chosen."""
    b = Builder("products")
    xs = [b.param(f"x{k}", F32) for k in range(count)]
    total = b.const(1.0, F32)
    for x in xs:
        total = b.op("mul", total, b.op("tanh", x))
    kernel = kernel_for((b.finish([total]),), (OutputRequest(0, 0),))
    arrays = [library.put(np.full((4096, 4096), 0.5, np.float32)) for _ in range(count)]
    prepared = kernel.prepare_launch(arrays)
    backend, bound = prepared.backend, prepared.bound
    device = backend.driver.device(arrays[0])
    picked, seconds = backend.dialect(bound, device, True), {}
    for shape in candidate_shapes(bound.widest):
        dialect = Dialect(*shape)
        bound.launches.setdefault(device, {})[True] = backend.launches(bound, dialect, device)
        seconds[shape] = _seconds(lambda: kernel(arrays), library)
    bound.launches[device].clear()
    assert seconds[picked.vector, picked.threads] <= 1.15 * min(seconds.values()), seconds


def _seconds(call, library):
    """Return the time of a call in a loop: much longer than what the host does."""
    best = np.inf
    for _ in range(5):
        library.get(call()[0][:1, :1])
        start = time.perf_counter()
        for _ in range(20):
            out = call()
        library.get(out[0][:1, :1])
        best = min(best, (time.perf_counter() - start) / 20)
    return best


def test_doctor_shows_the_backend(library):
    statuses = {s.spec.name: s.reason for s in registry.default_registry().statuses()}
    assert statuses[library.name] is None
