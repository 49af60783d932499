"""The plugin registers through its entry point, imports nothing heavy, and says why it refuses."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from mixad.backends.registry import Registry, installed_plugins
from mixad.errors import BackendError


@pytest.fixture
def registry():
    return Registry([source for source in installed_plugins() if source.name == "torch"])


def fake_torch(*, available):
    cuda = SimpleNamespace(is_available=lambda: available)
    return SimpleNamespace(cuda=cuda, __version__="0.fake")


def test_the_entry_point_registers_the_backend(registry):
    assert [spec.name for spec in registry.specs] == ["torch"]
    assert registry.failures == ()


def test_it_serves_no_tensor_on_the_cpu(registry):
    (spec,) = registry.specs
    assert not spec.capability.serves("torch", "cpu", frozenset({"float32"}))
    assert spec.capability.serves("torch", "cuda", frozenset({"float32"}))


def test_registering_imports_no_torch():
    code = (
        "import sys, mixad_torch; mixad_torch.mixad_backends(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_torch_is_named(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendError, match=r"ModuleNotFoundError: .*torch.*a build of torch"):
        registry.backend("torch")


def test_a_machine_without_a_device_is_refused(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", fake_torch(available=False))
    with pytest.raises(BackendError, match=r"0\.fake finds no CUDA device"):
        registry.backend("torch")
