"""mixad's kernels in JAX's transforms.

Importing this module imports no JAX: the integration is loaded where that is.
"""

from __future__ import annotations

from mixad.backends.hookspecs import API_VERSION, Integration, IntegrationSpec, hookimpl

__all__ = ["mixad_integrations"]


@hookimpl
def mixad_integrations() -> list[IntegrationSpec]:
    """Announce the integration with JAX's transforms.

    Returns
    -------
    list of IntegrationSpec
        One spec.
    """
    return [IntegrationSpec("jax", API_VERSION, "jax", _integrate)]


def _integrate() -> Integration:
    from mixad_jax.primitive import JaxIntegration

    return JaxIntegration()
