"""Which backend serves an array: ranked by us, loaded when needed, kept when loaded.

Plugins say what they can do (`mixad.backends.plugins`); the ranking is ours. None is imported
until the first question.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mixad import config
from mixad.backends.faults import refuse_what_is_no_backend, suggestion
from mixad.backends.hookspecs import BackendSpec, Capability, IntegrationSpec
from mixad.backends.plugins import (
    FAULTS,
    Announced,
    Failure,
    PluginSource,
    installed_plugins,
    read_plugins,
)
from mixad.backends.protocols import Backend
from mixad.backends.warned import warn_user
from mixad.errors import BackendError, ConfigurationError
from mixad.fork_locks import lock_of

__all__ = [
    "BackendStatus",
    "Failure",
    "PluginSource",
    "Registry",
    "backend",
    "capability",
    "default_registry",
    "installed_plugins",
    "plugin_of",
    "rank",
    "resolve",
]


@dataclass(frozen=True)
class BackendStatus:
    """One backend as `mixad doctor` shows it.

    Attributes
    ----------
    spec : BackendSpec
        What the plugin announced.
    origin : str
        Distribution and version of the plugin.
    reason : str or None
        Why it cannot serve, or None where it can.
    """

    spec: BackendSpec
    origin: str
    reason: str | None


def rank(spec: BackendSpec, array_module: str) -> tuple[bool, bool, str]:
    """Return the sort key of a backend for arrays of one library: the least is preferred.

    A backend made for the library beats one for every library, compiled beats interpreted, and
    the name decides the rest, so that the order of installation never does.

    Parameters
    ----------
    spec : BackendSpec
        The backend.
    array_module : str
        Top-level module of the array's type.

    Returns
    -------
    tuple
        Compared with those of other backends.
    """
    capability = spec.capability
    return (array_module not in capability.array_modules, not capability.native, spec.name)


class Registry:
    """The backends of a set of plugins: ranked by us, loaded when needed, kept when loaded.

    Parameters
    ----------
    sources : iterable of PluginSource
        The plugins, usually from `installed_plugins`.
    allow, block : frozenset of str
        Names of backends; an empty `allow` allows all.
    """

    def __init__(
        self,
        sources: Iterable[PluginSource],
        *,
        allow: frozenset[str] = frozenset(),
        block: frozenset[str] = frozenset(),
    ) -> None:
        self._allow = allow
        self._block = block
        found = read_plugins(sources, block)
        self._announced, self._failures = found.backends, found.failures
        self._integrations = found.integrations
        self._loaded: dict[str, Backend | BackendError] = {}
        self._warned: set[str] = set()
        self._resolved: dict[tuple[str, str, frozenset[str]], Backend] = {}

    @property
    def specs(self) -> tuple[BackendSpec, ...]:  # numpydoc ignore=RT01
        """What is registered, by name; a blocked backend is among them."""
        return tuple(self._announced[name].spec for name in sorted(self._announced))

    @property
    def failures(self) -> tuple[Failure, ...]:  # numpydoc ignore=RT01
        """The plugins that could not be registered, in the order they were met."""
        return self._failures

    @property
    def integrations(self) -> tuple[Announced[IntegrationSpec], ...]:  # numpydoc ignore=RT01
        """The integrations with other libraries' derivatives, in the order they were met."""
        return self._integrations

    def resolve(self, array_module: str, device: str, dtypes: frozenset[str]) -> Backend:
        """Return the best backend for kernels on arrays of a library, device and dtypes.

        The answer is kept: one dictionary look-up from the second call on. Where the best one
        fails to load, the next serves, and a RuntimeWarning says so and why, once for each library
        and kind of device.

        Parameters
        ----------
        array_module : str
            Top-level module of the array's type, such as ``"numpy"``.
        device : str
            Such as ``"cpu"`` or ``"cuda:1"``; an index is ignored.
        dtypes : frozenset of str
            Names of the dtypes of all arguments and results, such as ``"float32"``.

        Returns
        -------
        Backend
            Loaded.

        Raises
        ------
        BackendError
            None serves; the message has the reason for each.
        """
        key = (array_module, device, dtypes)
        found = self._resolved.get(key)
        if found is None:
            with _lock:
                served = f"{array_module} arrays on {_kind(device)} are"
                found = self._best(array_module, _kind(device), dtypes, {}, served)
                self._resolved[key] = found
        return found

    def substitute(
        self,
        array_module: str,
        device: str,
        dtypes: frozenset[str],
        faults: Mapping[str, str],
        kernel: str,
    ) -> Backend:
        """Return the best backend for a kernel in which others have failed, with a RuntimeWarning.

        Parameters
        ----------
        array_module, device : str
            As in `resolve`.
        dtypes : frozenset of str
            As in `resolve`.
        faults : mapping of str to str
            What happened in those that failed, by name of the backend.
        kernel : str
            Whose it is, for the warning.

        Returns
        -------
        Backend
            Loaded.

        Raises
        ------
        BackendError
            None serves; the message has what happened.
        """
        with _lock:
            served = f"the kernel of {kernel} is"
            return self._best(array_module, _kind(device), dtypes, faults, served)

    def plugin(self, name: str) -> PluginSource | None:
        """Return the plugin of a backend; None for mixad's own.

        Parameters
        ----------
        name : str
            Of a backend.

        Returns
        -------
        PluginSource or None
            For messages about what it does wrong.
        """
        found = self._announced.get(name)
        return None if found is None or found.plugin.is_built_in else found.plugin

    def capability(self, name: str) -> Capability:
        """Return what a backend can do.

        Parameters
        ----------
        name : str
            Of a registered backend.

        Returns
        -------
        Capability
            As its plugin announced it.
        """
        return self._announced[name].spec.capability

    def backend(self, name: str, dtypes: frozenset[str] = frozenset()) -> Backend:
        """Return the backend of a name.

        Parameters
        ----------
        name : str
            Such as ``"cpu"``.
        dtypes : frozenset of str
            Names of the dtypes of all arguments and results.

        Returns
        -------
        Backend
            Loaded.

        Raises
        ------
        BackendError
            There is none, it is blocked, it does not compute in these dtypes, or it cannot serve
            on this machine; the message says which, why, and what to do.
        """
        refusal = self._refusal(name)
        if refusal is not None:
            raise BackendError(refusal)
        missing = dtypes - self.capability(name).dtypes
        if missing:
            raise BackendError(
                f"backend {name!r} does not compute in {' and '.join(sorted(missing))}: convert "
                "the arrays, or name no backend"
            )
        outcome = self._load(name)
        if isinstance(outcome, BackendError):
            raise BackendError(str(outcome)) from outcome.__cause__
        return outcome

    def statuses(self) -> tuple[BackendStatus, ...]:
        """Load every backend and return how each fared.

        Returns
        -------
        tuple of BackendStatus
            By name.
        """
        return tuple(
            BackendStatus(found.spec, found.plugin.described_origin, self._unusable(name))
            for name, found in sorted(self._announced.items())
        )

    def _unusable(self, name: str) -> str | None:
        try:
            self.backend(name)
        except (BackendError, ConfigurationError) as error:
            return str(error)
        return None

    def _best(
        self,
        array_module: str,
        device: str,
        dtypes: frozenset[str],
        faults: Mapping[str, str],
        served: str,
    ) -> Backend:
        candidates = [
            spec for spec in self.specs if spec.capability.serves(array_module, device, dtypes)
        ]
        failed, refused = [], []
        for spec in sorted(candidates, key=lambda spec: rank(spec, array_module)):
            refusal = self._refusal(spec.name)
            if refusal is not None:
                refused.append(refusal)
                continue
            outcome = faults.get(spec.name) or self._load(spec.name)
            if isinstance(outcome, (str, BackendError)):
                failed.append(str(outcome))
                continue
            if failed:
                self._warn_of_substitute(f"{served} served by the backend {spec.name!r}", failed)
            return outcome
        raise BackendError(self._nothing_serves(array_module, device, dtypes, [*failed, *refused]))

    def _warn_of_substitute(self, what: str, reasons: Sequence[str]) -> None:
        message = f"{what}, because " + "; ".join(reasons)
        if message not in self._warned:  # as it is for every combination of dtypes
            self._warned.add(message)
            warn_user(message)

    def _nothing_serves(
        self, array_module: str, device: str, dtypes: frozenset[str], reasons: Sequence[str]
    ) -> str:
        listed = " and ".join(sorted(dtypes))
        lines = [f"no backend serves {listed} arrays of {array_module} on {device}"]
        lines += [f"  {reason}" for reason in reasons]
        lines += [f"  plugin {f.plugin!r} ({f.origin}): {f.reason}" for f in self._failures]
        lines.append("  run `python -m mixad doctor` for what is installed")
        return "\n".join(lines)

    def _refusal(self, name: str) -> str | None:
        """Return why a name cannot even be tried, or None."""
        if name in self._block:
            return f"backend {name!r} is blocked: take it out of {config.BACKEND_BLOCK.name}"
        if self._allow and name not in self._allow:
            return f"backend {name!r} is not allowed: add it to {config.BACKEND_ALLOW.name}"
        if name in self._announced:
            return None
        for failure in self._failures:
            if failure.plugin == name:
                return f"backend {name!r} ({failure.origin}) cannot be used: {failure.reason}"
        known = ", ".join(sorted(self._announced)) or "(none)"
        return f"no backend is named {name!r}: use one of {known}, or install its plugin"

    def _load(self, name: str) -> Backend | BackendError:
        with _lock:
            if name not in self._loaded:
                self._loaded[name] = _load_backend(self._announced[name])
            return self._loaded[name]


_lock = lock_of(sys.modules[__name__], "_lock", threading.RLock)
"""Held while a backend is chosen and loaded, so that none is loaded twice."""


def _load_backend(announced: Announced[BackendSpec]) -> Backend | BackendError:
    """Call the factory; a failure becomes a BackendError with the reason and what to do.

    A user's wrong setting is no failure of the backend, and no other backend stands in.
    """
    spec, plugin = announced.spec, announced.plugin
    try:
        found = spec.load()
        refuse_what_is_no_backend(found, spec)
        return found
    except ConfigurationError:
        raise
    except FAULTS as error:
        kind = "" if isinstance(error, BackendError) else f"{type(error).__name__}: "
        reasons = [f"{kind}{error}", spec.install_hint]
        whose = ""
        if not plugin.is_built_in:
            whose = f" ({plugin})"
            reasons.append(suggestion(plugin))
        refusal = BackendError(f"backend {spec.name!r}{whose} cannot serve: {'; '.join(reasons)}")
        refusal.__cause__ = error
        return refusal


def _kind(device: str) -> str:
    """Return the device without its index."""
    return device.partition(":")[0]


@functools.cache
def default_registry() -> Registry:
    """Return the registry of this process, made at the first call.

    Returns
    -------
    Registry
        Of the installed plugins and the environment's allow and block lists.
    """
    return Registry(
        installed_plugins(),
        allow=config.BACKEND_ALLOW.read(),
        block=config.BACKEND_BLOCK.read(),
    )


def resolve(array_module: str, device: str, dtypes: frozenset[str]) -> Backend:
    """Return the best backend for kernels on some arrays: see `Registry.resolve`.

    Parameters
    ----------
    array_module : str
        Top-level module of the array's type, such as ``"numpy"``.
    device : str
        Such as ``"cpu"`` or ``"cuda:1"``; an index is ignored.
    dtypes : frozenset of str
        Names of the dtypes of all arguments and results, such as ``"float32"``.

    Returns
    -------
    Backend
        Loaded.
    """
    return default_registry().resolve(array_module, device, dtypes)


def plugin_of(name: str) -> PluginSource | None:
    """Return the plugin of a backend: see `Registry.plugin`.

    Parameters
    ----------
    name : str
        Such as ``"cpu"``.

    Returns
    -------
    PluginSource or None
        None for mixad's own.
    """
    return default_registry().plugin(name)


def capability(name: str) -> Capability:
    """Return what a registered backend can do: see `Registry.capability`.

    Parameters
    ----------
    name : str
        Such as ``"cpu"``.

    Returns
    -------
    Capability
        As its plugin announced it.
    """
    return default_registry().capability(name)


def backend(name: str, dtypes: frozenset[str] = frozenset()) -> Backend:
    """Return the backend of a name: see `Registry.backend`.

    Parameters
    ----------
    name : str
        Such as ``"cpu"``.
    dtypes : frozenset of str
        Names of the dtypes of all arguments and results.

    Returns
    -------
    Backend
        Loaded.
    """
    return default_registry().backend(name, dtypes)
