"""What `source` and `explain` say of kernels on CUDA devices, with compilers and without."""

from __future__ import annotations

import re
import stat
import sys
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_emulator import CompilingDriver, DryDriver, needs_nvrtc
from cuda_functions import cell_update

import mixad
from benchmarks.offline import H200
from mixad.backends import execute, nvrtc, registry
from mixad.backends.cuda import ATTRIBUTES, CudaBackend, Usage, usage_in
from mixad.broadcast.planned import planned_call
from mixad.errors import BackendError
from mixad.kernel.options import DEFAULT_OPTIONS

X = np.linspace(0.1, 1.0, 64, dtype=np.float32)
CELL = [np.ones((64, 64), np.float32) for _ in range(6)]


@pytest.fixture
def on_driver(monkeypatch):
    """Return the function that has the backend ``dry`` use a driver."""

    def use(driver):
        monkeypatch.setattr(execute, "_KERNELS", OrderedDict())  # they hold their backend
        made = CudaBackend("dry", driver)
        loaded = registry.default_registry()._loaded
        monkeypatch.setitem(loaded, "dry", made)
        return cell_update.with_options(backend="dry")

    return use


def test_a_device_is_given_the_text_that_was_chosen_for_it(on_driver):
    wide = on_driver(DryDriver()).source(*CELL, stage="cuda")
    assert "__align__(16) pack_f32 { float item[4]; }" in wide
    assert "__launch_bounds__(256)" in wide
    assert "if z == 1.0:" in wide
    greedy = DryDriver()
    greedy.used = Usage(registers=144, local=0, shared=0)
    assert "__launch_bounds__(128)" in on_driver(greedy).source(*CELL, stage="cuda")
    narrow = cell_update.source(*CELL, stage="cuda")
    assert "float item[1]" in narrow  # nothing is known of where the arrays are


@pytest.mark.parametrize("shapes", [((5000, 3), (3,)), ((5000, 3), (5000, 1)), ((40, 90, 7), (7,))])
def test_short_rows_on_the_cpu_are_shown_as_a_device_would_have_them(on_driver, shapes):
    """Kernels for the CPU fold them; those for CUDA do not."""
    x, y = (np.ones(shape, np.float32) for shape in shapes)
    kernel = mixad.broadcast(lambda x, y: x * y + y)
    program = kernel._parse((x, y), {})[0].program
    (planned,) = planned_call(program, (x, y), (0, 1), DEFAULT_OPTIONS).kernels
    assert planned.launch.fold is not None  # or this shows nothing
    assert planned.unfolded.fold is None
    shown = kernel.source(x, y, stage="cuda")
    assert shown == kernel.with_options(backend="reference").source(x, y, stage="cuda")
    on_driver(DryDriver())
    launched = kernel.with_options(backend="dry").source(x, y, stage="cuda")
    assert words_read(shown) == words_read(launched)


def words_read(text):
    """Return which words of its arguments a kernel reads, in order."""
    return re.findall(r"word\[\d+\]", text)


def test_explain_tells_what_the_driver_says(on_driver):
    driver = DryDriver()
    driver.used = Usage(registers=40, local=8, shared=1024)
    got = on_driver(driver).explain(*CELL, wrt=("c", "f", "i", "g"))
    (function,) = got.functions
    assert (function.registers, function.local, function.shared) == (40, 8, 1024)
    assert (function.neighbours, function.threads, function.occupancy) == (4, 256, 0.75)
    clock, bus = (H200[ATTRIBUTES[name]] for name in ("clock", "bus"))
    assert got.bandwidth == 2 * clock * 1000 * bus / 8
    assert got.expected_seconds == pytest.approx(got.floor_bytes / got.bandwidth)
    text = str(got)
    assert "40 registers, 8 B of local memory, 1024 B of shared memory" in text
    assert "4 elements a thread, 256 threads a block, 75% of the threads at once" in text
    assert re.search(r"expected: +[\d.]+ µs at 4916\.7 GB/s", text)


def test_nothing_is_said_of_devices_on_the_cpu():
    got = cell_update.explain(*CELL)
    assert got.functions == ()
    assert got.bandwidth is None
    assert got.expected_seconds is None
    assert "registers" not in str(got)
    assert "expected:" not in str(got)


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_ptx_is_for_the_device_of_the_arguments(on_driver, architecture):
    driver = CompilingDriver(architecture)
    kernel = on_driver(driver)
    text = kernel.source(*CELL, stage="ptx", wrt=("c", "f"))
    assert text.startswith("// ")
    assert "if z == 1.0:" in text.split(".version")[0]
    assert f".target {driver.architecture}" in text
    assert re.search(r"ld\.global\.[\w.]*v4", text)
    (function,) = kernel.explain(*CELL, wrt=("c", "f")).functions
    assert 20 < function.registers < 96
    assert function.local == 0


@needs_nvrtc
def test_ptx_can_be_read_where_there_is_no_device():
    text = mixad.broadcast(lambda x: x * x).source(X, stage="ptx")
    assert ".target sm_90" in text
    assert re.search(r"mul\.(rn\.)?f32", text)


def nothing_found(name):
    raise RuntimeError(f"no {name} anywhere")


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (None, "pip install cuda-pathfinder"),
        (SimpleNamespace(load_nvidia_dynamic_lib=nothing_found),
         r"pip install nvidia-cuda-nvrtc-cu12.*no nvrtc anywhere"),
    ],
    ids=["no search", "no NVRTC"],
)  # fmt: skip
def test_without_nvrtc_the_refusal_says_what_to_install(monkeypatch, search, said):
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", search)
    nvrtc._library.cache_clear()
    try:
        with pytest.raises(BackendError, match=said):
            mixad.broadcast(lambda x: x * x).source(X, stage="ptx")
    finally:
        nvrtc._library.cache_clear()


@needs_nvrtc
def test_machine_code_is_compiled_once_for_all_processes(monkeypatch, tmp_path):
    monkeypatch.setenv("MIXAD_CACHE_DIR", str(tmp_path))
    text = 'extern "C" __global__ void k(float *x) { x[0] *= 2.0f; }'
    cubin = nvrtc.machine_code(text, "sm_90")
    assert usage_in(cubin)["k"].registers > 0
    monkeypatch.setattr(nvrtc, "compile_text", None)  # it is not asked again
    assert nvrtc.machine_code(text, "sm_90") == cubin


@needs_nvrtc
def test_the_compilers_log_is_shown():
    with pytest.raises(BackendError, match=r"NVRTC does not compile a kernel:\n.*error"):
        nvrtc.machine_code("this is not C++", "sm_90")


@needs_nvrtc
def test_without_a_disassembler_the_refusal_says_what_to_install(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(pathfinder(), "find_nvidia_binary_utility", lambda name: None)
    with pytest.raises(BackendError, match=r"nvdisasm.* pip install cuda-pathfinder nvidia-cuda-"):
        mixad.broadcast(lambda x: x * x).source(X, stage="sass")


def pathfinder():
    return pytest.importorskip("cuda.pathfinder")


def script_in(folder, text):
    """Put a stand-in for the disassembler into a folder; return its path."""
    script = folder / "nvdisasm"
    script.write_text(f"#!/bin/sh\n{text}\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return str(script)


@needs_nvrtc
@pytest.mark.parametrize("is_on_path", [True, False], ids=["on the path", "of a wheel"])
def test_machine_code_is_shown_by_the_tool_that_is_there(is_on_path, tmp_path, monkeypatch):
    tool = script_in(tmp_path, 'echo "$0 $1"; /usr/bin/head -c 4 "$2" | /usr/bin/od -c')
    monkeypatch.setenv("PATH", str(tmp_path) if is_on_path else "")
    monkeypatch.setattr(pathfinder(), "find_nvidia_binary_utility", {"nvdisasm": tool}.get)
    text = mixad.broadcast(lambda x: x * x).source(X, stage="sass")
    assert text.startswith("// ")
    assert f"{tool} --print-code" in text
    assert "177   E   L   F" in text


@needs_nvrtc
def test_a_tool_that_fails_is_named_with_what_it_said(tmp_path, monkeypatch):
    script_in(tmp_path, "echo too new >&2; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="nvdisasm fails with status 3: too new"):
        mixad.broadcast(lambda x: x * x).source(X, stage="sass")
