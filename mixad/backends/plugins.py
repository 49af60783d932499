"""The plugins there are, and what each announces: found, imported one by one, checked.

A plugin that fails, whatever it raises, fails alone: it becomes a `Failure`, for `mixad doctor` to
show. Which backend then serves is the business of `mixad.backends.registry`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

import pluggy

from mixad import config
from mixad.backends import hookspecs
from mixad.backends.entry_points import entry_points
from mixad.backends.hookspecs import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    BackendSpec,
    IntegrationSpec,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "Announced",
    "Failure",
    "PluginSource",
    "Plugins",
    "are_any_installed",
    "installed_plugins",
    "read_plugins",
]

# What takes long is done with the import of mixad, so that the first kernel does not wait for it:
# importing our own backends, and looking through every installed distribution.
_BUILT_IN = {
    name: importlib.import_module(f"mixad.backends.{name}") for name in ("cpu", "dask", "reference")
}
_ENTRY_POINTS = entry_points(ENTRY_POINT_GROUP)


@dataclass(frozen=True)
class PluginSource:
    """A plugin before it is imported.

    Attributes
    ----------
    name : str
        Name of the entry point.
    origin : str or callable
        Where it comes from, for messages, distribution and version; or what returns that, since
        reading a distribution's metadata takes milliseconds.
    load : callable
        Imports it and returns the module, or any object with the hook.
    """

    name: str
    origin: str | Callable[[], str]
    load: Callable[[], object]

    @property
    def described_origin(self) -> str:  # numpydoc ignore=RT01
        """Where it comes from, in words."""
        return self.origin if isinstance(self.origin, str) else self.origin()


@dataclass(frozen=True)
class Failure:
    """A plugin, or one of its backends, that cannot be used.

    Attributes
    ----------
    plugin : str
        Name of the entry point.
    origin : str
        Distribution and version.
    reason : str
        Why, in one or more lines.
    exception : BaseException or None
        What was raised, if anything was.
    """

    plugin: str
    origin: str
    reason: str
    exception: BaseException | None = None


@dataclass(frozen=True)
class Announced:
    """A backend, and the plugin that announced it.

    Attributes
    ----------
    spec : BackendSpec
        What the plugin says of it.
    plugin : PluginSource
        Whose it is.
    """

    spec: BackendSpec
    plugin: PluginSource


@dataclass(frozen=True)
class Plugins:
    """What plugins announced.

    Attributes
    ----------
    backends : dict of str to Announced
        By name, in the order they were met.
    integrations : tuple of IntegrationSpec
        In the order they were met.
    failures : tuple of Failure
        In the order they were met: whatever a plugin raised, save KeyboardInterrupt, is one.
    """

    backends: dict[str, Announced]
    integrations: tuple[IntegrationSpec, ...]
    failures: tuple[Failure, ...]


def are_any_installed() -> bool:
    """Return whether a distribution announces a plugin.

    Returns
    -------
    bool
        False where there are the built-in ones only.
    """
    return bool(_ENTRY_POINTS)


def installed_plugins() -> list[PluginSource]:
    """Return the built-in plugins, then those that installed distributions announce.

    Returns
    -------
    list of PluginSource
        Those of distributions are not imported yet; installed are those that were when mixad was
        imported.
    """
    built_in = [_built_in(name, module) for name, module in _BUILT_IN.items()]
    return [*built_in, *map(_of_distribution, _ENTRY_POINTS)]


def _built_in(name: str, module: ModuleType) -> PluginSource:
    return PluginSource(name, "mixad", lambda: module)


def _of_distribution(entry_point: EntryPoint) -> PluginSource:
    def origin() -> str:
        dist = entry_point.dist
        return f"{dist.name} {dist.version}" if dist is not None else entry_point.value

    return PluginSource(entry_point.name, origin, entry_point.load)


def read_plugins(sources: Iterable[PluginSource], block: frozenset[str] = frozenset()) -> Plugins:
    """Import plugins and return what they announce.

    Parameters
    ----------
    sources : iterable of PluginSource
        The plugins, usually from `installed_plugins`.
    block : frozenset of str
        Names of plugins that are not imported.

    Returns
    -------
    Plugins
        Their backends and integrations, and what failed.
    """
    backends: dict[str, Announced] = {}
    integrations: list[IntegrationSpec] = []
    failures: list[Failure] = []
    for source in sources:
        for outcome in _outcomes(source, block):
            if isinstance(outcome, BackendSpec) and outcome.name in backends:
                first = backends[outcome.name].plugin.described_origin
                reason = f"a backend named {outcome.name!r} comes from {first} already"
                failures.append(_failure(source, reason))
            elif isinstance(outcome, BackendSpec):
                backends[outcome.name] = Announced(outcome, source)
            elif isinstance(outcome, IntegrationSpec):
                integrations.append(outcome)
            else:
                failures.append(outcome)
    return Plugins(backends, tuple(integrations), tuple(failures))


def _outcomes(
    source: PluginSource, block: frozenset[str]
) -> Sequence[BackendSpec | IntegrationSpec | Failure]:
    """Return what comes of one plugin: its backends and integrations, or why it has none."""
    if source.name in block:
        return [_failure(source, f"not imported: {config.BACKEND_BLOCK.name} names it")]
    try:
        specs = _answers(source)
    except (Exception, SystemExit) as error:
        return [_failure(source, f"{type(error).__name__}: {error}", error)]
    refusals = [_refusal(spec) for spec in specs]
    return [
        spec if refusal is None else _failure(source, refusal)
        for spec, refusal in zip(specs, refusals, strict=True)
    ]


def _failure(source: PluginSource, reason: str, exception: BaseException | None = None) -> Failure:
    return Failure(source.name, source.described_origin, reason, exception)


def _answers(source: PluginSource) -> list[BackendSpec | IntegrationSpec]:
    """Import a plugin and call its hooks, alone, so that its errors are its own."""
    hooks = pluggy.PluginManager(ENTRY_POINT_GROUP)
    hooks.add_hookspecs(hookspecs)
    hooks.register(source.load(), name=source.name)
    hooks.check_pending()
    answers: list[Sequence[BackendSpec | IntegrationSpec]] = [
        *hooks.hook.mixad_backends(),
        *hooks.hook.mixad_integrations(),
    ]
    if not answers:
        raise TypeError("it has no function `mixad_backends` marked with `hookimpl`")
    return [spec for answer in answers for spec in answer]


def _refusal(spec: object) -> str | None:
    """Return why a spec cannot be registered, or None."""
    if not isinstance(spec, (BackendSpec, IntegrationSpec)):
        return f"mixad_backends returned a {type(spec).__name__}, expected BackendSpec"
    if spec.api_version != API_VERSION:
        older = "the plugin" if spec.api_version < API_VERSION else "mixad"
        kind = "backend" if isinstance(spec, BackendSpec) else "integration"
        return (
            f"{kind} {spec.name!r} is written for plugin API {spec.api_version}, this mixad has "
            f"{API_VERSION}: upgrade {older}"
        )
    return None
