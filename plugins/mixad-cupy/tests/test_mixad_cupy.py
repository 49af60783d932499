"""The plugin registers through its entry point, imports nothing heavy, and says why it refuses."""

from __future__ import annotations

import subprocess
import sys
from array import array
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from mixad.backends.cuda import Usage
from mixad.backends.registry import Registry, installed_plugins
from mixad.errors import BackendError


@pytest.fixture
def registry():
    return Registry([source for source in installed_plugins() if source.name == "cupy"])


def fake_cupy(device_count):
    return SimpleNamespace(
        cuda=SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=device_count))
    )


def test_the_entry_point_registers_the_backend(registry):
    assert [spec.name for spec in registry.specs] == ["cupy"]
    assert registry.failures == ()


def test_registering_imports_no_cupy():
    code = "import sys, mixad_cupy; mixad_cupy.mixad_backends(); assert 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_cupy_is_named_with_the_command_that_installs_it(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(BackendError, match=r"ModuleNotFoundError: .*cupy.*pip install") as caught:
        registry.backend("cupy")
    assert "cuda13x" in str(caught.value)


def test_a_machine_without_a_device_is_refused(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(lambda: 0))
    with pytest.raises(BackendError, match="no CUDA device"):
        registry.backend("cupy")


def test_the_error_of_the_driver_is_passed_on(registry, monkeypatch):
    def no_driver():
        raise RuntimeError("cudaErrorInsufficientDriver")

    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(no_driver))
    with pytest.raises(BackendError, match="cudaErrorInsufficientDriver"):
        registry.backend("cupy")


class FakeModule:
    """CuPy's RawModule as far as the driver uses it: loaded with its first function."""

    made: ClassVar[list[FakeModule]] = []

    def __init__(self, *, path):
        self.path, self.cubin = path, None
        self.launches = []
        self.made.append(self)

    def get_function(self, entry):
        self.cubin = self.cubin or Path(self.path).read_bytes()
        return FakeFunction(entry, self.launches)


class FakeDevice(nullcontext):
    """CuPy's device, which does not hash."""

    compute_capability = "90"
    __hash__ = None
    entered: ClassVar[list[int]] = []

    def __enter__(self):
        self.entered.append(self.enter_result)


class FakeFunction:
    """A kernel of CuPy's RawModule."""

    num_regs, local_size_bytes, shared_size_bytes = 40, 8, 1024

    def __init__(self, entry, launches):
        self.entry, self.launches = entry, launches

    def __call__(self, grid, block, args):
        self.launches.append((self.entry, grid, block, args))


@pytest.fixture
def driver(monkeypatch):
    cupy = ModuleType("cupy")
    cupy.RawModule, cupy.ndarray = FakeModule, np.ndarray
    stream = SimpleNamespace(is_capturing=lambda: True)
    runtime = SimpleNamespace(
        deviceGetAttribute=lambda number, device: 100 * device + number, getDevice=lambda: 0
    )
    cupy.cuda = SimpleNamespace(
        Device=FakeDevice,
        runtime=runtime,
        get_current_stream=lambda: stream,
    )
    cupy.zeros = np.zeros
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.delitem(sys.modules, "mixad_cupy.driver", raising=False)
    monkeypatch.setattr(FakeModule, "made", [])
    monkeypatch.setattr(FakeDevice, "entered", [])
    from mixad_cupy import driver

    monkeypatch.setattr(driver, "machine_code", lambda text, arch: f"{text} for {arch}".encode())
    return driver.CupyDriver()


def test_a_launch_passes_the_words_as_one_structure(driver):
    functions = driver.compile("text", ["one", "two"], 0)
    words = array("q", [3, -1, 1 << 62])
    driver.prepare_launch(functions["two"], 5, (64, 4), 0)(words)
    (module,) = FakeModule.made
    assert module.cubin == b"text for sm_90"
    assert not Path(module.path).exists()
    ((entry, grid, block, (argument,)),) = module.launches
    assert (entry, grid, block) == ("two", (5,), (64, 4))
    assert argument.shape == (1,)
    assert argument.dtype.itemsize == 24
    assert argument.tobytes() == words.tobytes()


@pytest.mark.parametrize(("device", "entered"), [(0, []), (1, [1, 1])])
def test_only_another_device_is_entered_for_memory_and_launches(driver, device, entered):
    function = driver.compile("text", ["one"], device)["one"]
    FakeDevice.entered.clear()
    driver.empty((2,), np.float32, device)
    driver.prepare_launch(function, 1, (32, 1), device)(array("q", [0]))
    assert FakeDevice.entered == entered
    assert len(FakeModule.made[0].launches) == 1


def test_what_devices_have_and_kernels_use_is_asked_of_cupy(driver):
    assert driver.attribute(16, 3) == 316
    assert driver.is_capturing(0)
    assert driver.usage(driver.compile("text", ["one"], 0)["one"], 0) == Usage(40, 8, 1024)


def test_memory_is_cupys(driver):
    assert driver.empty((2, 3), np.float16, 0).dtype == np.float16
    np.testing.assert_array_equal(driver.zeros((2, 3), np.int32, 0), np.zeros((2, 3), np.int32))


def test_where_an_array_is_and_begins_is_asked_of_cupy(driver):
    array = SimpleNamespace(device=SimpleNamespace(id=2), data=SimpleNamespace(ptr=4096))
    assert (driver.device(array), driver.address(array)) == (2, 4096)
