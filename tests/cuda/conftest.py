"""The module beside the tests, importable under any import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cuda_emulator import CAPABILITY, DryDriver, emulated

from mixad.backends import registry
from mixad.backends.cuda import CudaBackend
from mixad.backends.hookspecs import API_VERSION, BackendSpec, hookimpl


class _Plugin:
    """Announces backends for NumPy arrays, to be asked for by name: the CPU ranks before."""

    @hookimpl
    def mixad_backends(self):
        dry = CudaBackend("dry", DryDriver())
        return [
            BackendSpec("emulated", API_VERSION, CAPABILITY, emulated, ""),
            BackendSpec("dry", API_VERSION, CAPABILITY, lambda: dry, ""),
        ]


@pytest.fixture(scope="session", autouse=True)
def _emulated_backend():
    source = registry.PluginSource("emulated", "tests", _Plugin)
    own = registry.Registry([*registry.installed_plugins(), source])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "default_registry", lambda: own)
        yield
