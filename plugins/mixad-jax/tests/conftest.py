"""Two devices for JAX, before anything uses it, and the integration, for each test only."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest
from mixad_jax.primitive import JaxIntegration

from mixad.backends import arrays, integrations

jax.config.update("jax_num_cpu_devices", 2)


@pytest.fixture(autouse=True)
def integration(monkeypatch: pytest.MonkeyPatch) -> Iterator[JaxIntegration]:
    """Let the integration be loaded, as where the distribution is installed."""
    made = JaxIntegration()
    monkeypatch.setattr(arrays, "_LIBRARIES", dict(arrays._LIBRARIES))
    monkeypatch.setattr(arrays, "_ADOPTED", list(arrays._ADOPTED))
    arrays.adopt("jax", made.kinds)
    before = list(integrations.LOADED)
    integrations.LOADED[:] = [made]
    with jax.enable_x64(True):  # arrays of 64 bits, but where a test says otherwise
        yield made
    integrations.LOADED[:] = before
