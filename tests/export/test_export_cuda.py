"""Exports for CUDA: what NVRTC makes of the text, and what the host function launches, emulated."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from c_calls import described
from cuda_emulator import built, needs_nvrtc
from exported_kernels import looked_up, model, three

import mixad
from mixad.backends.cuda import compile_text, usage_in

HERE = Path(__file__).parent
FLAGS = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared")

needs_compilers = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("g++")), reason="no gcc and g++"
)


OTHERS = [(1, 1), (3, 5), (300, 2100), (0, 3), (3000, 7)]


class Module(ctypes.Structure):
    _fields_ = (("own", ctypes.c_int64 * 1024),)


class Plan(ctypes.Structure):
    _fields_ = (
        ("tiles", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("own", ctypes.c_int64 * 4096),
    )


class OnDevice:
    """An export for CUDA over the emulator."""

    def __init__(self, folder: Path) -> None:
        self.record = json.loads((folder / "export.json").read_text("utf-8"))
        name = self.record["name"]
        text = (folder / f"{name}.cu").read_text("utf-8")
        for kernel in self.record["kernels"]:
            end = f"}}  // namespace of_{kernel.partition('_pass_')[0]}\n"
            assert text.count(end) == 1
            text = text.replace(end, f"EMULATED({kernel})\n{end}")
        self.kernels = built(text)
        host = folder / "host.so"
        command = ["gcc", *FLAGS, f"-I{HERE / 'emulated_driver'}", "-o", host, folder / f"{name}.c"]
        subprocess.run(command, check=True)
        self.library, self.name, self.module = ctypes.CDLL(str(host)), name, Module()
        assert self.called("load", ctypes.byref(self.module), self.handle) == 0

    @property
    def handle(self):
        return ctypes.c_void_p(self.kernels._handle)

    def called(self, function, *arguments):
        return self.library[f"{self.name}_{function}"](*arguments)

    def __call__(self, what, arguments, results):
        """Return the status of a call, and whether something was read outside an array."""
        plan, module = ctypes.byref(Plan()), ctypes.byref(self.module)
        given = [
            ctypes.byref(described(a)) if isinstance(a, np.ndarray) else ctypes.c_double(a)
            for a in (*arguments, *results)
        ]
        status = self.called(f"{what}_bind", plan, module, *given)
        if status:
            return status, False
        memory = np.full(plan._obj.bytes + 64, 0xFF, np.uint8)
        first = -memory.ctypes.data % 64
        address = ctypes.c_uint64(memory.ctypes.data + first)
        status = self.called("launch", plan, module, None, address)
        return status, bool(memory[first : first + 4].any())


def drawn(rng, shape, dtype="float32"):
    return rng.uniform(-1, 1, shape).astype(dtype)


def pulled(kernel, arguments, cotangent):
    value, gradients = mixad.value_and_vjp(kernel, tuple(arguments), cotangent)
    return [value, *gradients]


@pytest.mark.slow
@needs_compilers
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("dynamic", [True, False])
def test_the_host_function_launches_values_and_gradients(tmp_path, dtype, dynamic):
    rng = np.random.default_rng(0)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    example = [drawn(rng, s, dtype) for s in ((700, 48), (48,), (48,))]
    model.export(tmp_path / "out", *example, target="cuda", dynamic=dynamic)
    on_device = OnDevice(tmp_path / "out")
    for shape in (
        [(700, 48), (1, 1), (3, 5), (300, 2100), (0, 3), (3000, 7)] if dynamic else [(700, 48)]
    ):
        x, a, b = (drawn(rng, s, dtype) for s in (shape, shape[1:], shape[1:]))
        cotangent, tangents = (
            drawn(rng, shape, dtype),
            [drawn(rng, v.shape, dtype) for v in (x, a, b)],
        )
        results = [np.full(v.shape, np.nan, dtype) for v in (x, x, a, b)]
        assert on_device("pullback", (x, a, b, cotangent), results) == (0, False), shape
        for found, expected in zip(results, pulled(model, (x, a, b), cotangent), strict=True):
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * 30)
        pair = results[:2]
        assert on_device("pushforward", (x, a, b, *tangents), pair) == (0, False)
        for found, expected in zip(pair, mixad.jvp(model, (x, a, b), tuple(tangents)), strict=True):
            np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@needs_compilers
def test_sums_over_three_axes_and_layouts_are_launched(tmp_path):
    rng = np.random.default_rng(0)

    def shapes(n):
        return n, n[2:], (n[1], 1), (n[0], 1, 1)

    example = [drawn(rng, s) for s in shapes((4, 5, 6))]
    three.export(tmp_path / "out", *example, what="pullback", target="cuda")
    on_device = OnDevice(tmp_path / "out")
    for n in [(4, 5, 6), (1, 50, 3), (40, 1, 33), (2, 3, 2500)]:
        arguments = [drawn(rng, s) for s in shapes(n)]
        cotangent = drawn(rng, n)
        results = [np.full(v.shape, np.nan, "f4") for v in (arguments[0], *arguments)]
        assert on_device("pullback", (*arguments, cotangent), results) == (0, False)
        for found, expected in zip(results, pulled(three, arguments, cotangent), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    # Results in another order of memory than the loops' would have to be moved: that is said.
    arguments[0] = np.array(arguments[0], order="F")
    status, _ = on_device("pullback", (*arguments, np.array(cotangent, order="F")), results)
    assert status == 2


@pytest.mark.slow
@needs_compilers
def test_every_pass_is_launched(tmp_path):
    rng, kernel = np.random.default_rng(0), model.with_options(chunk=1)
    x, a, b = (drawn(rng, s) for s in ((70, 48), 48, 48))
    kernel.export(tmp_path / "out", x, a, b, what="pullback", target="cuda", dynamic=False)
    on_device, cotangent = OnDevice(tmp_path / "out"), drawn(rng, x.shape)
    assert {k.rpartition("_")[2] for k in on_device.record["kernels"] if "pass" in k} == set("012")
    results = [np.full(v.shape, np.nan, "f4") for v in (x, x, a, b)]
    assert on_device("pullback", (x, a, b, cotangent), results) == (0, False)
    for found, expected in zip(results, pulled(model, (x, a, b), cotangent), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@needs_compilers
def test_reading_outside_an_array_is_noted(tmp_path):
    t, i, x = np.arange(5.0), np.array([0, 4]), np.ones(2)
    looked_up.export(tmp_path / "out", t, i, x, what="value", target="cuda")
    on_device, result = OnDevice(tmp_path / "out"), np.empty(2)
    assert on_device("value", (t, i, x), [result]) == (0, False)
    np.testing.assert_array_equal(result, t[i])
    assert on_device("value", (t, np.array([0, 5]), x), [result]) == (0, True)


@pytest.mark.slow
@needs_nvrtc
def test_nvrtc_compiles_the_kernels_under_their_names(tmp_path):
    example = [np.ones(s, "f4") for s in ((64, 64), (64,), (64,))]
    model.export(tmp_path / "out", *example, target="cuda")
    record = json.loads((tmp_path / "out" / "export.json").read_text("utf-8"))
    text = (tmp_path / "out" / "model.cu").read_text("utf-8")
    assert f"__launch_bounds__({record['threads']})" in text
    assert "struct Arguments" in text
    assert set(record["kernels"]) <= set(usage_in(compile_text(text, "sm_90").cubin))
