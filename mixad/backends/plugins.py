"""The plugins there are, and what each announces: found, imported one by one, checked.

A plugin that fails, whatever it raises, fails alone: it becomes a `Failure`, for `mixad doctor` to
show. Which backend then serves is the business of `mixad.backends.registry`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pluggy

from mixad import config
from mixad.backends import hookspecs
from mixad.backends.entry_points import entry_points
from mixad.backends.hookspecs import (
    API_VERSION,
    ENTRY_POINT_GROUP,
    BackendSpec,
    Capability,
    IntegrationSpec,
)
from mixad.errors import ConfigurationError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = [
    "FAULTS",
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
    name: importlib.import_module(f"mixad.backends.{name}")
    for name in ("chunked", "cpu", "reference")
}
_ENTRY_POINTS = entry_points(ENTRY_POINT_GROUP)

FAULTS = (Exception, SystemExit)
"""Exceptions of a plugin that count as its fault: others end the process."""


Spec = TypeVar("Spec", BackendSpec, IntegrationSpec)


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
    is_built_in : bool
        Whether it is mixad's own: what it raises is a defect of mixad, not of a plugin.
    """

    name: str
    origin: str | Callable[[], str]
    load: Callable[[], object]
    is_built_in: bool = False

    @property
    def described_origin(self) -> str:  # numpydoc ignore=RT01
        """Where it comes from, in words."""
        return self.origin if isinstance(self.origin, str) else self.origin()

    def __str__(self) -> str:
        return f"plugin {self.name!r} ({self.described_origin})"


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
class Announced(Generic[Spec]):
    """A backend or an integration, and the plugin that announced it.

    Attributes
    ----------
    spec : BackendSpec or IntegrationSpec
        What the plugin says of it.
    plugin : PluginSource
        Whose it is.
    """

    spec: Spec
    plugin: PluginSource


@dataclass(frozen=True)
class Plugins:
    """What plugins announced.

    Attributes
    ----------
    backends : dict of str to Announced
        By name, in the order they were met.
    integrations : tuple of Announced
        In the order they were met.
    failures : tuple of Failure
        In the order they were met: whatever a plugin raised, save KeyboardInterrupt, is one.
    """

    backends: dict[str, Announced[BackendSpec]]
    integrations: tuple[Announced[IntegrationSpec], ...]
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
    built_in = [_built_in_plugin(name, module) for name, module in _BUILT_IN.items()]
    return [*built_in, *map(_of_distribution, _ENTRY_POINTS)]


def _built_in_plugin(name: str, module: ModuleType) -> PluginSource:
    return PluginSource(name, "mixad", lambda: module, is_built_in=True)


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
    backends: dict[str, Announced[BackendSpec]] = {}
    integrations: list[Announced[IntegrationSpec]] = []
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
                integrations.append(Announced(outcome, source))
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
    except ConfigurationError:
        raise
    except FAULTS as error:
        return [_failure(source, f"{type(error).__name__}: {error}", error)]
    found = ((spec, _refusal(spec)) for spec in specs)
    return [spec if refusal is None else _failure(source, refusal) for spec, refusal in found]


def _failure(source: PluginSource, reason: str, exception: BaseException | None = None) -> Failure:
    return Failure(source.name, source.described_origin, reason, exception)


def _answers(source: PluginSource) -> list[Any]:
    """Import a plugin and call its hooks, alone, so that its errors are its own."""
    hooks = pluggy.PluginManager(ENTRY_POINT_GROUP)
    hooks.add_hookspecs(hookspecs)
    hooks.register(source.load(), name=source.name)
    hooks.check_pending()
    found: list[Any] = []
    known = (hooks.hook.mixad_backends, hooks.hook.mixad_integrations)
    called = [hook for hook in known if hook.get_hookimpls()]
    if not called:
        raise TypeError("it has no function `mixad_backends` marked with `hookimpl`")
    for hook in called:
        for answer in hook() or [None]:  # pluggy leaves out a None
            if not isinstance(answer, Iterable):
                got = "None" if answer is None else f"a {type(answer).__name__}"
                raise TypeError(f"{hook.name} returned {got}, expected a list of specs")
            found += answer
    return found


def _refusal(spec: Any) -> str | None:
    """Return why a spec cannot be registered, or None."""
    if not isinstance(spec, (BackendSpec, IntegrationSpec)):
        return f"a hook returned a {type(spec).__name__}, expected BackendSpec or IntegrationSpec"
    kind = "backend" if isinstance(spec, BackendSpec) else "integration"
    if isinstance(spec.api_version, int) and spec.api_version != API_VERSION:
        older = "the plugin" if spec.api_version < API_VERSION else "mixad"
        return (
            f"{kind} {spec.name!r} is written for plugin API {spec.api_version}, this mixad has "
            f"{API_VERSION}: upgrade {older}"
        )
    wrong = [f"{name} {expected}, not {got!r}" for name, got, expected in _wrong_fields(spec)]
    return f"the spec of {kind} {spec.name!r} must have {' and '.join(wrong)}" if wrong else None


def _wrong_fields(spec: BackendSpec | IntegrationSpec) -> Iterator[tuple[str, object, str]]:
    """Yield the fields of a spec that are not what its annotations say, and what is expected."""
    yield from _wrong(spec, name=str, api_version=int)
    load: object = spec.load
    if not callable(load):
        yield "load", load, "a function"
    if isinstance(spec, IntegrationSpec):
        yield from _wrong(spec, array_module=str)
        return
    yield from _wrong(spec, install_hint=str, capability=Capability)
    if isinstance(spec.capability, Capability):
        yield from _wrong(
            spec.capability,
            native=bool,
            cache_bytes=int,
            folds=bool,
            writes_parts=bool,
            stores_beside=bool,
        )
        for name, kinds, expected in _NAMES:
            found: object = getattr(spec.capability, name)
            if not isinstance(found, kinds) or not all(isinstance(each, str) for each in found):
                yield name, found, expected


def _wrong(owner: object, **kinds: type) -> Iterator[tuple[str, object, str]]:
    for name, kind in kinds.items():
        found = getattr(owner, name)
        if not isinstance(found, kind):
            yield name, found, f"of type {kind.__name__}"


_NAMES: tuple[tuple[str, tuple[type[Collection[str]], ...], str], ...] = (
    ("array_modules", (tuple, list), "a tuple of str"),  # a str would serve every part of itself
    ("devices", (tuple, list), "a tuple of str"),
    ("dtypes", (frozenset, set), "a frozenset of str"),
    ("accumulates", (frozenset, set), "a frozenset of str"),
)
"""The fields of a capability that hold names."""
