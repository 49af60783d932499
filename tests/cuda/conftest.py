"""The module beside the tests, importable under any import mode."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import pytest
from cuda_emulator import DryDriver, emulated

from mixad.backends import registry
from mixad.backends.cuda import CudaBackend
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl
from mixad.scalar.types import STORED_TYPES


class _Plugin:
    """Announces backends for NumPy arrays, to be asked for by name: the CPU ranks before."""

    @hookimpl
    def mixad_backends(self):
        dtypes = frozenset(t.dtype_name for t in STORED_TYPES)
        capability = Capability(("numpy",), ("cpu",), dtypes, native=True)
        dry = CudaBackend("dry", DryDriver())
        return [
            BackendSpec("emulated", API_VERSION, capability, emulated, ""),
            BackendSpec("dry", API_VERSION, capability, lambda: dry, ""),
        ]


@pytest.fixture(scope="session", autouse=True)
def _emulated_backend():
    source = registry.PluginSource("emulated", "tests", _Plugin)
    own = registry.Registry([*registry.installed_plugins(), source])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "default_registry", lambda: own)
        yield
