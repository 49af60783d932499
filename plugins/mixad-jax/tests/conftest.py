"""Two devices for JAX, before anything uses it, and the integration, for each test only."""

from importlib.util import find_spec

import pytest

from mixad.backends import arrays, integrations

if find_spec("jax") is not None:
    import jax

    jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture
def integration(monkeypatch):
    """Let the integration be loaded, as where the distribution is installed."""
    from mixad_jax.primitive import JaxIntegration

    made = JaxIntegration()
    monkeypatch.setattr(arrays, "_LIBRARIES", dict(arrays._LIBRARIES))
    monkeypatch.setattr(arrays, "_ADOPTED", list(arrays._ADOPTED))
    arrays.adopt("jax", made.kinds)
    before = list(integrations.LOADED)
    integrations.LOADED[:] = [made]
    with jax.enable_x64(True):  # arrays of 64 bits, but where a test says otherwise
        yield made
    integrations.LOADED[:] = before
