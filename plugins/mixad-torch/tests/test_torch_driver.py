"""The driver on a stand-in for a device: tensors of the host, kernels run by the emulator.

What compiles and what loads is real: NVRTC and cuda-bindings.
"""

from __future__ import annotations

import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
driver_of_cuda = pytest.importorskip("cuda.bindings.driver")
sys.path[:0] = [
    str(Path(__file__).parent),
    str(Path(__file__).parents[3] / "tests" / "cuda"),
]

from cuda_emulator import compiler, needs_nvrtc  # noqa: E402
from stand_in import StandIn  # noqa: E402

import mixad  # noqa: E402
from mixad.backends import nvrtc, registry  # noqa: E402
from mixad.backends.cuda import ATTRIBUTES, CudaBackend, usage_in  # noqa: E402
from mixad.backends.hookspecs import API_VERSION, BackendSpec, hookimpl  # noqa: E402
from mixad.errors import BackendError, TracerError  # noqa: E402
from mixad.tape import registers, segments  # noqa: E402
from mixad.tape.plan import Plan  # noqa: E402

pytestmark = needs_nvrtc

NOTHING = """
struct Arguments { long long word[1]; };
extern "C" __global__ void k(const Arguments a) {}
"""


WORDS = array("q", [0])


@pytest.fixture
def cuda(monkeypatch, tmp_path):
    """Let torch have one device, which is the host, and CUDA be the stand-in."""
    compiler()
    monkeypatch.setenv("MIXAD_CACHE_DIR", str(tmp_path))
    stand_in = StandIn()
    monkeypatch.setattr(nvrtc, "compile_text", stand_in.compile)
    device_of = driver_of_cuda.cuDeviceGet
    monkeypatch.setattr(driver_of_cuda, "cuDeviceGet", lambda index: device_of(index or 0))
    allocators = torch._C._dynamo.guards
    on_the_host = allocators._empty_strided_cpu
    monkeypatch.setattr(allocators, "_empty_strided_cuda", on_the_host, raising=False)
    monkeypatch.delitem(sys.modules, "mixad_torch.driver", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    current_stream = lambda index: stand_in.stream  # noqa: E731
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", current_stream, raising=False)
    entered = stand_in.entered
    monkeypatch.setattr(torch.cuda, "device", lambda d: entered.append(d) or nullcontext())
    current_device = lambda: None  # noqa: E731  # as tensors of the host say
    monkeypatch.setattr(torch._C, "_cuda_getDevice", current_device, raising=False)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: stand_in.captures)
    return stand_in


@pytest.fixture
def driver(cuda):
    from mixad_torch.driver import TorchDriver

    return TorchDriver()


@pytest.fixture
def plugin(driver):
    """Let the backend serve tensors of the host, under the name ``torch-stand-in``."""

    class Plugin:
        @hookimpl
        def mixad_backends(self):
            import mixad_torch

            (own,) = mixad_torch.mixad_backends()
            capability = replace(own.capability, devices=("cpu",))
            made = CudaBackend("torch-stand-in", driver)
            return [BackendSpec("torch-stand-in", API_VERSION, capability, lambda: made, "")]

    return registry.PluginSource("stand-in", "tests", Plugin)


@pytest.fixture
def backend(plugin, monkeypatch):
    """Offer the backend beside what is installed."""
    own = registry.Registry([*registry.installed_plugins(), plugin])
    monkeypatch.setattr(registry, "default_registry", lambda: own)
    return "torch-stand-in"


@pytest.fixture
def on_device(plugin, monkeypatch):
    """Let tensors of the host count as those of a device, whose memory NumPy does not share."""
    alone = registry.Registry([plugin])
    monkeypatch.setattr(registry, "default_registry", lambda: alone)
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda tensor: False))
    monkeypatch.setattr(registers, "_are_numpys", lambda library, device: False)
    monkeypatch.setattr(segments, "_ONES", {})


def scaled(w, x):
    return w * x * x if x > 0.0 else w * x


fold = mixad.broadcast(scaled)


def test_gradients_of_tensors(backend, cuda):
    kernel = mixad.broadcast(scaled).with_options(backend=backend)
    w = torch.linspace(0.5, 2.0, 24, dtype=torch.float32).reshape(6, 4)
    x = torch.tensor([-1.0, 0.5, 1.0, -0.25])
    gw, gx = mixad.grad(lambda w, x: kernel(w, x).sum(), (0, 1))(w, x)
    w_, x_ = (t.clone().requires_grad_() for t in (w, x))
    torch.where(x_ > 0, w_ * x_ * x_, w_ * x_).sum().backward()
    torch.testing.assert_close(gw, w_.grad)
    torch.testing.assert_close(gx, x_.grad)
    assert set(cuda.streams) == {cuda.stream}
    assert {architecture for _, architecture in cuda.compiled} == {"sm_90"}


def test_what_kernels_use_and_devices_have_is_asked_of_cuda(driver):
    device = torch.device("cuda", 0)
    (function,) = driver.compile(NOTHING, ["k"], device).values()
    used = usage_in(nvrtc.machine_code(NOTHING, "sm_90"))["k"]
    assert used.registers > 0
    assert driver.usage(function, device) == used
    assert driver.attribute(ATTRIBUTES["processors"], device) == 132


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_floats_of_16_bits_have_the_bits_that_the_cpu_gives(backend, dtype):
    on_device = mixad.broadcast(scaled).with_options(backend=backend)
    x = torch.linspace(-3.0, 3.0, 96).reshape(4, 24).to(dtype)
    w = torch.tensor([0.5, 1e-7, 300.0, 65000.0]).to(dtype)[:, None]
    torch.testing.assert_close(
        on_device(w, x), mixad.broadcast(scaled)(w, x), rtol=0, atol=0, equal_nan=True
    )
    got = mixad.grad(lambda w: on_device(w, x).astype(torch.float32).sum())(w)
    want = mixad.grad(lambda w: mixad.broadcast(scaled)(w, x).astype(torch.float32).sum())(w)
    assert got.dtype == dtype
    torch.testing.assert_close(got, want)


@pytest.mark.slow  # kernels compiled by g++
@pytest.mark.parametrize("extent", [6, 5000])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_gradients_of_tensors_that_are_read_by_index(backend, extent, dtype):
    """Small ones are added to in shared memory; of large ones, what is added is sorted."""
    table = torch.linspace(0.5, 2.0, extent, dtype=dtype)
    k, x = torch.arange(700) * 7 % extent, torch.linspace(-1.0, 1.0, 700, dtype=dtype)
    read = mixad.broadcast(read_twice, backend=backend)
    got = mixad.grad(lambda t: (read(t, k, x) * x).sum())(table)
    t = table.double().requires_grad_()
    (torch.where(x > 0, t[k] * t[-1], 0.0) * x.double()).sum().backward()
    assert got.dtype == dtype
    tolerance = {"rtol": 1e-12, "atol": 0.0} if dtype == torch.float64 else {}
    torch.testing.assert_close(got, t.grad.to(dtype), **tolerance)


def read_twice(table: mixad.Array, k, x):
    if x > 0.0:
        return table[k] * table[-1]
    return 0.0


@pytest.mark.slow  # kernels compiled by g++
@pytest.mark.parametrize("bins", [6, 5000])
def test_histograms_of_tensors(on_device, bins):
    xs, at = torch.arange(900.0) * 11 % 37, torch.arange(900) * 7 % bins
    dest = torch.full((bins,), 20.0)
    for op, name in ((min, "amin"), (max, "amax"), (lambda a, b: a + b, "sum")):
        expected = dest.scatter_reduce(0, at, xs, name)
        assert torch.equal(mixad.reduce_by_index(op, dest, at, xs), expected)


def test_a_kernel_that_indexes_is_refused_while_a_graph_is_captured(backend, cuda):
    table = torch.arange(5.0)
    looked_up = mixad.broadcast(lambda k: table[k]).with_options(backend=backend)
    k = torch.tensor([0, 4])
    assert looked_up(k).tolist() == [0.0, 4.0]
    cuda.captures = True
    with pytest.raises(TracerError, match="cannot be captured in a graph: whether an index"):
        looked_up(k)


def test_a_first_call_is_refused_while_a_graph_is_captured(backend, cuda):
    kernel = mixad.broadcast(scaled).with_options(backend=backend)
    x = torch.linspace(0.5, 2.0, 24)
    cuda.captures = True
    with pytest.raises(TracerError, match="call the function once before the capture"):
        kernel(x, x)
    cuda.captures = False
    torch.testing.assert_close(kernel(x, x), x**3)
    cuda.captures = True
    torch.testing.assert_close(kernel(x, x), x**3)
    with pytest.raises(TracerError, match="once before the capture"):  # of another alignment
        kernel(torch.linspace(0.5, 2.0, 25)[1:], x)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_gradient_is_captured_after_however_many_calls(calls, cuda, on_device):
    """While a graph is captured nothing is compared, which would read from the device."""
    w, x = torch.linspace(0.5, 2.0, 12).reshape(3, 4), torch.linspace(-1.0, 1.0, 4)

    def loss(x):
        total = fold(w, x)
        for _ in range(calls):  # another program for each number of calls
            total = total * x - w
        return total.sum()

    gradient = mixad.grad(loss)
    cuda.captures = True
    with pytest.raises(TracerError, match="call the function once before the capture"):
        gradient(x)
    cuda.captures = False
    expected = [gradient(x) for _ in range(calls)]
    compiled = len(cuda.compiled)
    cuda.captures = True
    found = gradient(x)
    assert len(cuda.compiled) == compiled
    for one in expected:
        assert torch.equal(found, one)


def test_code_is_compiled_once_for_all_processes(cuda, driver):
    device = torch.device("cuda", 0)
    for _ in range(2):  # the second one finds it on the disk
        (function,) = driver.compile(NOTHING, ["k"], device).values()
        driver.prepare_launch(function, 1, (256, 1), device)(WORDS)
    assert cuda.compiled == [(NOTHING, "sm_90")]


def test_code_is_that_of_the_same_function_further_down(cuda, driver):
    device = torch.device("cuda", 0)
    for line in (3, 4):
        placed = NOTHING.replace("{}", f'{{\n#line {line} "mine.py"\n  // x = 1 |\n}}')
        driver.compile(placed, ["k"], device)
    assert len(cuda.compiled) == 1


def test_what_is_on_the_disk_needs_no_compiler(cuda, driver, monkeypatch):
    def missing(*_):
        raise BackendError("NVRTC is not installed: python -m pip install")

    device = torch.device("cuda", 0)
    driver.compile(NOTHING, ["k"], device)
    monkeypatch.setattr(nvrtc, "_is_installed", lambda: False)
    for name in ("compile_text", "_version", "_architectures"):
        monkeypatch.setattr(nvrtc, name, missing)
    assert driver.compile(NOTHING, ["k"], device).keys() == {"k"}
    with pytest.raises(BackendError, match="NVRTC is not installed: python -m pip install"):
        driver.compile(NOTHING.replace("k(", "other("), ["other"], device)


def test_for_a_device_that_is_newer_than_the_compiler_it_makes_ptx(cuda, driver, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (99, 0))
    driver.compile(NOTHING, ["k"], torch.device("cuda", 0))
    assert cuda.compiled == [(NOTHING, f"compute_{max(nvrtc._architectures())}")]


def test_the_compilers_log_is_shown(driver):
    with pytest.raises(BackendError, match=r"NVRTC does not compile a kernel:\n.*error"):
        driver.compile("not C++", ["k"], torch.device("cuda", 0))


def test_another_device_is_made_current_for_the_launch(driver, cuda, monkeypatch):
    device = torch.device("cuda", 1)
    (function,) = driver.compile(NOTHING, ["k"], device).values()
    for current, entered in ((0, [device]), (1, [])):
        monkeypatch.setattr("mixad_torch.driver._current_device", lambda current=current: current)
        cuda.entered.clear()
        driver.prepare_launch(function, 1, (256, 1), device)(WORDS)
        assert cuda.entered == entered


def test_the_stream_is_asked_for_at_every_launch(driver, cuda):
    device = torch.device("cuda", 0)
    (function,) = driver.compile(NOTHING, ["k"], device).values()
    launch = driver.prepare_launch(function, 1, (256, 1), device)
    for cuda.stream in (0, 5, 6):
        launch(WORDS)
    assert cuda.streams == [0, 5, 6]


@pytest.mark.parametrize("current", [0, 1])
def test_a_thread_that_has_no_context_gets_that_of_the_device(driver, cuda, monkeypatch, current):
    """Torch runs backward passes in threads of its own, which may have asked nothing of CUDA."""
    monkeypatch.setattr("mixad_torch.driver._current_device", lambda: current)
    device = torch.device("cuda", 0)
    (function,) = driver.compile(NOTHING, ["k"], device).values()

    def first_use():
        driver.prepare_launch(function, 1, (256, 1), device)(WORDS)
        return driver.usage(function, device)

    with ThreadPoolExecutor(1) as fresh:
        assert fresh.submit(first_use).result().registers > 0
        assert fresh.submit(driver.compile, NOTHING, ["k"], device).result().keys() == {"k"}


@pytest.mark.parametrize("current", [0, 1])
def test_a_status_of_cuda_is_an_error(driver, cuda, monkeypatch, current):
    monkeypatch.setattr("mixad_torch.driver._current_device", lambda: current)
    device = torch.device("cuda", 0)
    (function,) = driver.compile(NOTHING, ["k"], device).values()
    with pytest.raises(BackendError, match="CUDA_ERROR_INVALID_VALUE: a stand-in's error"):
        driver.prepare_launch(function, 0, (256, 1), device)(WORDS)


PROGRAMS = {
    "operators": lambda x, y: (2.0 * x + torch.sin(x) * y - y / 3.0).sum(),
    "a matrix product": lambda x, y: torch.tanh(y @ TABLE.T + x).pow(2).mean(),
    "a kernel": lambda x, y: fold(y, x).sum() * x[0],
    "a rule": lambda x, y: torch.cumsum(x * x, 0).sum() + torch.softmax(y, 1)[:, 0].sum(),
    "indices": lambda x, y: y[torch.tensor([2, 0]), torch.tensor([1, 3])].sum() * x.prod(),
    "a branch": lambda x, y: (x * y if (x * y).sum() > 0 else x + y).sum(),
    "a second derivative": lambda x, y: mixad.grad(lambda x: (x**3 * y[0]).sum())(x).sum(),
}
PLAIN = {"a kernel": lambda x, y: torch.where(x > 0, y * x * x, y * x).sum() * x[0]}
TABLE = torch.linspace(-1.0, 1.0, 16).reshape(4, 4)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_known_of_a_call_is_not_planned_again(name, cuda, on_device):
    plans = []
    x, y = torch.linspace(0.5, 2.0, 4), torch.linspace(-1.0, 1.0, 12).reshape(3, 4)
    with pytest.MonkeyPatch.context() as patch:
        own = Plan.run
        patch.setattr(Plan, "run", lambda plan, *a, **k: plans.append(plan) or own(plan, *a, **k))
        for scale in (1.0, -0.7, 1.3, 0.4):
            launched, args = len(cuda.streams), (scale * x, scale * y)
            found = mixad.grad(PROGRAMS[name], (0, 1))(*args)
            assert len(cuda.streams) > launched
            given = [a.clone().requires_grad_() for a in args]
            if name == "a second derivative":
                expected = 6 * given[0] * given[1][0], torch.zeros(3, 4)
                expected[1][0] = 3 * given[0] ** 2
            else:
                f = PLAIN.get(name, PROGRAMS[name])
                expected = torch.autograd.grad(f(*given), given)
            for mine, other in zip(found, expected, strict=True):
                torch.testing.assert_close(mine, other)
    assert len(plans) >= 2  # the first call is recorded
