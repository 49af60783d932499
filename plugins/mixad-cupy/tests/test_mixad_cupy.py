"""The plugin registers through its entry point, imports nothing heavy, and says why it refuses."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

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


def test_with_a_device_it_says_that_it_has_no_kernels(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", fake_cupy(lambda: 1))
    with pytest.raises(BackendError, match="no kernels"):
        registry.backend("cupy")
