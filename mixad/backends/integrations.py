"""Integrations with other systems of derivatives: loaded when their library is there, then asked.

None is asked about where it is asked on the way of every call: `LOADED` is empty then.
"""

from __future__ import annotations

import sys
import warnings

from mixad.backends import registry
from mixad.backends.arrays import adopt
from mixad.backends.hookspecs import Integration, IntegrationSpec
from mixad.backends.plugins import are_any_installed

__all__ = ["LOADED", "load_integrations"]

LOADED: list[Integration] = []
"""Those of libraries that have been imported."""

_met: set[str] = set()
"""Names of the integrations that were loaded, or failed to load."""


def load_integrations() -> None:
    """Load what plugins offer for array libraries that have been imported since the last time."""
    if are_any_installed():
        for spec in registry.default_registry().integrations:
            if spec.name not in _met and spec.array_module in sys.modules:
                _met.add(spec.name)
                _load(spec)


def _load(spec: IntegrationSpec) -> None:
    """Load one; a failure is told, and calls that it would record are refused as without it."""
    try:
        loaded = spec.load()
    except Exception as error:
        warnings.warn(
            f"the integration {spec.name!r} cannot be used: {type(error).__name__}: {error}",
            RuntimeWarning,
            stacklevel=2,
        )
        return
    adopt(spec.array_module, loaded.kinds)
    LOADED.append(loaded)
