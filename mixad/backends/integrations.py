"""Integrations with other systems of derivatives, loaded when their library is imported.

`LOADED` is empty without one, so that the check at every call costs nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, cast

from mixad.backends import registry
from mixad.backends.arrays import adopt
from mixad.backends.faults import PluginCall, describe, fault, suggestion
from mixad.backends.hookspecs import IntegrationSpec
from mixad.backends.plugins import FAULTS, Announced, PluginSource, are_any_installed
from mixad.backends.protocols import Borrowing, Integration
from mixad.backends.warned import warn_user
from mixad.errors import BackendError, ConfigurationError
from mixad.kernel.options import KernelOptions
from mixad.scalar.ir import Program

__all__ = [
    "LOADED",
    "borrower",
    "follower",
    "generators_of",
    "integration_results",
    "load_integrations",
]

LOADED: list[Integration] = []
"""The integrations of libraries that have been imported."""

_met: set[str] = set()
"""Names of the integrations that were loaded, or failed to load."""

_plugins: dict[int, PluginSource] = {}
"""The plugin of each integration, by its identity."""

_METHODS = ("is_tracing", "trace", "follows", "call")


def load_integrations() -> None:
    """Load plugins' integrations of array libraries imported since the last time."""
    if are_any_installed():
        for announced in registry.default_registry().integrations:
            spec = announced.spec
            if spec.name not in _met and spec.array_module in sys.modules:
                _met.add(spec.name)
                _load(announced)


def _load(announced: Announced[IntegrationSpec]) -> None:
    """Load one; a failure is a warning, and calls are then refused as without it."""
    spec, plugin = announced.spec, announced.plugin
    try:
        loaded = spec.load()
        lacks = [m for m in _METHODS if not callable(getattr(loaded, m, None))]
        if lacks or not all(isinstance(kind, type) for kind in loaded.kinds):
            raise BackendError(
                f"its factory returned {describe(loaded)}, which lacks "
                f"{', '.join(lacks) or 'types as kinds'} of an integration"
            )
        loaded.is_tracing()  # asked at every call: what it raises is raised here
        adopt(spec.array_module, loaded.kinds)
    except ConfigurationError:
        _met.discard(spec.name)  # it is told until the user has put it right
        raise
    except FAULTS as error:
        warn_user(
            f"the integration {spec.name!r} cannot be used: {type(error).__name__}: {error}; "
            f"{suggestion(plugin)}"
        )
        return
    _plugins[id(loaded)] = plugin
    LOADED.append(loaded)


def follower(values: Sequence[Any]) -> Integration | None:
    """Return the integration whose library follows one of these values, if there is one."""
    for integration in LOADED:
        plugin = _plugins.get(id(integration))
        with PluginCall(plugin, "follows", "asked whether it follows a call"):
            if integration.follows(values):
                return integration
    return None


def borrower(library: str) -> Borrowing | None:
    """Return the integration that records calls of a library's functions, if there is one."""
    found = _borrower(library)
    if found is None:
        load_integrations()
        found = _borrower(library)
    return found


def generators_of(
    library: str, arrays: Sequence[Any]
) -> Callable[[], AbstractContextManager[None]]:
    """Return a function that makes a context with the random numbers a library draws next."""
    found = borrower(library)
    return nullcontext if found is None else found.generators(arrays)


def _borrower(library: str) -> Borrowing | None:
    found = (i for i in LOADED if getattr(i, "borrows_of", None) == library)
    return cast("Borrowing | None", next(found, None))


def integration_results(
    integration: Integration, program: Program, values: Sequence[Any], options: KernelOptions
) -> tuple[Any, ...]:
    """Return an integration's results of a call: one array for each output."""
    outputs = integration.call(program, values, options)
    plugin, count = _plugins.get(id(integration)), len(program.outputs)
    if plugin is not None and not (isinstance(outputs, tuple) and len(outputs) == count):
        raise fault(
            plugin,
            "call",
            f"returned {describe(outputs)} for {program.name}, expected {count} in a tuple",
        )
    return outputs
