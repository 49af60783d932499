"""Which backends there are, and which one serves an array.

Plugins say what they can do; the ranking is ours. Nothing is imported until the first question,
and a plugin that fails is kept as a `Failure`, for `mixad doctor` to show.
"""

from __future__ import annotations

import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from types import ModuleType

import pluggy

from mixad import config
from mixad.backends import hookspecs
from mixad.backends.hookspecs import API_VERSION, ENTRY_POINT_GROUP, Backend, BackendSpec
from mixad.errors import BackendError

__all__ = [
    "BackendStatus",
    "Failure",
    "PluginSource",
    "Registry",
    "backend",
    "compiles",
    "default_registry",
    "installed_plugins",
    "rank",
    "resolve",
]

_BUILT_IN = {"cpu": "mixad.backends.cpu", "reference": "mixad.backends.reference"}


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


def installed_plugins() -> list[PluginSource]:
    """Return the built-in plugins, then those that installed distributions announce.

    Returns
    -------
    list of PluginSource
        None of them imported yet.
    """
    return [_built_in(name, module) for name, module in _BUILT_IN.items()] + [
        _announced(entry_point) for entry_point in metadata.entry_points(group=ENTRY_POINT_GROUP)
    ]


def _built_in(name: str, module: str) -> PluginSource:
    def load() -> ModuleType:
        return importlib.import_module(module)

    return PluginSource(name, "mixad", load)


def _announced(entry_point: metadata.EntryPoint) -> PluginSource:
    def origin() -> str:
        dist = entry_point.dist
        return f"{dist.name} {dist.version}" if dist is not None else entry_point.value

    return PluginSource(entry_point.name, origin, entry_point.load)


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
        self._lock = threading.RLock()
        self._specs: dict[str, BackendSpec] = {}
        self._sources: dict[str, PluginSource] = {}
        self._failures: list[Failure] = []
        self._loaded: dict[str, Backend | BackendError] = {}
        self._resolved: dict[tuple[str, str, frozenset[str]], Backend] = {}
        for source in sources:
            self._add(source)

    @property
    def specs(self) -> tuple[BackendSpec, ...]:  # numpydoc ignore=RT01
        """What is registered, by name; a blocked backend is among them."""
        return tuple(self._specs[name] for name in sorted(self._specs))

    @property
    def failures(self) -> tuple[Failure, ...]:  # numpydoc ignore=RT01
        """The plugins that could not be registered, in the order they were met."""
        return tuple(self._failures)

    def resolve(self, array_module: str, device: str, dtypes: frozenset[str]) -> Backend:
        """Return the best backend for kernels on arrays of a library, device and dtypes.

        The answer is kept: one dictionary look-up from the second call on. Where the best one
        fails to load, the next serves, and a RuntimeWarning says so and why, once.

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
            with self._lock:
                found = self._resolved[key] = self._best(array_module, _kind(device), dtypes)
        return found

    def backend(self, name: str) -> Backend:
        """Return the backend of a name.

        Parameters
        ----------
        name : str
            Such as ``"cpu"``.

        Returns
        -------
        Backend
            Loaded.

        Raises
        ------
        BackendError
            There is none, it is blocked, or it cannot serve on this machine; the message says
            which, why, and what to do.
        """
        refusal = self._refusal(name)
        if refusal is not None:
            raise BackendError(refusal)
        outcome = self._load(self._specs[name])
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
            BackendStatus(spec, self._sources[spec.name].described_origin, self._unusable(spec))
            for spec in self.specs
        )

    def _unusable(self, spec: BackendSpec) -> str | None:
        try:
            self.backend(spec.name)
        except BackendError as error:
            return str(error)
        return None

    def _best(self, array_module: str, device: str, dtypes: frozenset[str]) -> Backend:
        candidates = [
            spec
            for spec in self._specs.values()
            if spec.capability.serves(array_module, device, dtypes)
        ]
        reasons = []
        for spec in sorted(candidates, key=lambda spec: rank(spec, array_module)):
            try:
                chosen = self.backend(spec.name)
            except BackendError as error:
                if self._permits(spec.name):
                    reasons.append(str(error))
                continue
            _warn_of_substitute(chosen, f"{array_module} arrays on {device}", reasons)
            return chosen
        raise BackendError(self._nothing_serves(array_module, device, dtypes, reasons))

    def _nothing_serves(
        self, array_module: str, device: str, dtypes: frozenset[str], reasons: Sequence[str]
    ) -> str:
        listed = " and ".join(sorted(dtypes))
        lines = [f"no backend serves {listed} arrays of {array_module} on {device}"]
        lines += [f"  {reason}" for reason in reasons]
        lines += [f"  plugin {f.plugin!r} ({f.origin}): {f.reason}" for f in self._failures]
        if self._block or self._allow:
            lines.append(f"  {config.BACKEND_ALLOW.name} or {config.BACKEND_BLOCK.name} is set")
        lines.append("  run `python -m mixad doctor` for what is installed")
        return "\n".join(lines)

    def _permits(self, name: str) -> bool:
        return name not in self._block and (not self._allow or name in self._allow)

    def _refusal(self, name: str) -> str | None:
        """Return why a name cannot even be tried, or None."""
        if name in self._block:
            return f"backend {name!r} is blocked: take it out of {config.BACKEND_BLOCK.name}"
        if not self._permits(name):
            return f"backend {name!r} is not allowed: add it to {config.BACKEND_ALLOW.name}"
        if name in self._specs:
            return None
        for failure in self._failures:
            if failure.plugin == name:
                return f"backend {name!r} ({failure.origin}) cannot be used: {failure.reason}"
        known = ", ".join(sorted(self._specs)) or "none"
        return f"no backend is named {name!r}: known are {known}; is its plugin installed?"

    def _load(self, spec: BackendSpec) -> Backend | BackendError:
        with self._lock:
            if spec.name not in self._loaded:
                self._loaded[spec.name] = _loaded(spec)
            return self._loaded[spec.name]

    def _add(self, source: PluginSource) -> None:
        """Register the backends of one plugin; whatever it raises stays its own."""
        if source.name in self._block:
            self._fail(source, f"not imported: {config.BACKEND_BLOCK.name} names it")
            return
        try:
            specs = _specs_of(source)
        except (Exception, SystemExit) as error:
            self._fail(source, f"{type(error).__name__}: {error}", error)
            return
        for spec in specs:
            self._add_spec(source, spec)

    def _add_spec(self, source: PluginSource, spec: BackendSpec) -> None:
        refusal = _spec_refusal(spec)
        if refusal is None and spec.name in self._specs:
            first = self._sources[spec.name].described_origin
            refusal = f"a backend named {spec.name!r} comes from {first} already"
        if refusal is not None:
            self._fail(source, refusal)
            return
        self._specs[spec.name] = spec
        self._sources[spec.name] = source

    def _fail(
        self, source: PluginSource, reason: str, exception: BaseException | None = None
    ) -> None:
        self._failures.append(Failure(source.name, source.described_origin, reason, exception))


def _specs_of(source: PluginSource) -> list[BackendSpec]:
    """Import a plugin and call its hook, alone, so that its errors are its own."""
    hooks = pluggy.PluginManager(ENTRY_POINT_GROUP)
    hooks.add_hookspecs(hookspecs)
    hooks.register(source.load(), name=source.name)
    hooks.check_pending()
    answers: list[Sequence[BackendSpec]] = hooks.hook.mixad_backends()
    if not answers:
        raise TypeError("it has no function `mixad_backends` marked with `hookimpl`")
    return [spec for answer in answers for spec in answer]


def _spec_refusal(spec: object) -> str | None:
    if not isinstance(spec, BackendSpec):
        return f"mixad_backends returned a {type(spec).__name__}, expected BackendSpec"
    if spec.api_version != API_VERSION:
        older = "the plugin" if spec.api_version < API_VERSION else "mixad"
        return (
            f"backend {spec.name!r} is written for plugin API {spec.api_version}, this mixad has "
            f"{API_VERSION}: upgrade {older}"
        )
    return None


def _loaded(spec: BackendSpec) -> Backend | BackendError:
    """Call the factory; any failure becomes a BackendError with the reason and the way out."""
    try:
        return spec.load()
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, BackendError) else f"{type(error).__name__}: "
        refusal = BackendError(
            f"backend {spec.name!r} cannot serve: {kind}{error}; {spec.install_hint}"
        )
        refusal.__cause__ = error
        return refusal


def _warn_of_substitute(chosen: Backend, what: str, reasons: Sequence[str]) -> None:
    if reasons:
        warnings.warn(
            f"{what} are served by the backend {chosen.name!r}, because " + "; ".join(reasons),
            RuntimeWarning,
            stacklevel=2,
        )


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


def compiles(name: str) -> bool:
    """Return whether a registered backend compiles its kernels.

    Parameters
    ----------
    name : str
        Such as ``"cpu"``.

    Returns
    -------
    bool
        False where it interprets them.
    """
    return any(s.name == name and s.capability.native for s in default_registry().specs)


def backend(name: str) -> Backend:
    """Return the backend of a name: see `Registry.backend`.

    Parameters
    ----------
    name : str
        Such as ``"cpu"``.

    Returns
    -------
    Backend
        Loaded.
    """
    return default_registry().backend(name)
