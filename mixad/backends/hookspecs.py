"""The hooks of mixad, and what plugins announce through them.

A plugin is a module named by an entry point of group ``mixad``. It implements `mixad_backends`
and returns specs: what each backend can do, as plain data, and a factory for it. Importing the
plugin must be cheap; the array library is imported by the factory, when a kernel needs it. A plugin
for a library that has derivatives of its own implements `mixad_integrations` too, or instead.
What factories return is in `mixad.backends.protocols`; its names are here, too.

::

    from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl

    @hookimpl
    def mixad_backends():
        return [BackendSpec(name="mine", api_version=API_VERSION, ..., load=_load)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pluggy

from mixad.backends.protocols import (
    Assembling,
    Backend,
    Borrowing,
    Bound,
    Boxed,
    Described,
    DeviceFunction,
    Executable,
    Integration,
    LaunchBlock,
    OnDevice,
    Repeating,
    Stepping,
    SubBoxWrite,
    Tiled,
    Written,
)
from mixad.kernel.plan import DEFAULT_CACHE_BYTES

__all__ = [
    "ANY",
    "API_VERSION",
    "ENTRY_POINT_GROUP",
    "Assembling",
    "Backend",
    "BackendSpec",
    "Borrowing",
    "Bound",
    "Boxed",
    "Capability",
    "Described",
    "DeviceFunction",
    "Executable",
    "Integration",
    "IntegrationSpec",
    "LaunchBlock",
    "OnDevice",
    "Repeating",
    "Stepping",
    "SubBoxWrite",
    "Tiled",
    "Written",
    "hookimpl",
    "mixad_backends",
    "mixad_integrations",
]

API_VERSION = 1
"""Version of this contract; raised when a backend written for the old one would fail."""

ENTRY_POINT_GROUP = "mixad"

ANY = "*"
"""Stands in a capability for every array library or every device."""

hookspec = pluggy.HookspecMarker("mixad")
hookimpl = pluggy.HookimplMarker("mixad")


@dataclass(frozen=True)
class Capability:
    """What a backend can do, known without importing its array library.

    Attributes
    ----------
    array_modules : tuple of str
        Top-level modules of the array types it serves, such as ``("cupy",)``; `ANY` for every
        array library.
    devices : tuple of str
        Kinds of device, without an index: ``("cpu",)``, ``("cuda",)``; `ANY` for every kind.
    dtypes : frozenset of str
        Names of the dtypes of arguments and results that it serves, such as ``"float32"``.
    native : bool
        True where it compiles kernels, False where it interprets them.
    cache_bytes : int
        About the size of the last-level cache: a launch that moves more is planned to store past
        it.
    folds : bool
        Whether its kernels go through several short rows as one: only then do launches have a
        `mixad.kernel.spec.Fold`.
    writes_parts : bool
        Whether its kernels write a result into a part of a larger array: only then do outputs have
        a `mixad.kernel.spec.SubBox`. The backend is `SubBoxWrite`, too.
    stores_beside : bool
        Whether its kernels store several results of an element side by side: only then do outputs
        have others beside them (`mixad.kernel.spec.OutputRequest`).
    accumulates : frozenset of str
        How its kernels change arrays at indices that programs compute, of ``"add"``, ``"min"``,
        ``"max"`` and ``"write"``: only such accumulators are among the outputs
        (`mixad.kernel.spec.Output.accumulated`).
    """

    array_modules: tuple[str, ...]
    devices: tuple[str, ...]
    dtypes: frozenset[str]
    native: bool
    cache_bytes: int = DEFAULT_CACHE_BYTES
    folds: bool = False
    writes_parts: bool = False
    stores_beside: bool = False
    accumulates: frozenset[str] = frozenset()

    def serves(self, array_module: str, device: str, dtypes: frozenset[str]) -> bool:
        """Whether kernels on arrays of this library and device are served.

        Parameters
        ----------
        array_module : str
            Top-level module of the array's type.
        device : str
            Kind of device, without an index.
        dtypes : frozenset of str
            Names of the dtypes of all arguments and results.

        Returns
        -------
        bool
            True where all of it fits.
        """
        return (
            (array_module in self.array_modules or ANY in self.array_modules)
            and (device in self.devices or ANY in self.devices)
            and dtypes <= self.dtypes
        )


@dataclass(frozen=True)
class BackendSpec:
    """One backend, as its plugin announces it.

    Attributes
    ----------
    name : str
        Unique among the backends of a process.
    api_version : int
        The `API_VERSION` it was written for, as a number.
    capability : Capability
        What it can do once loaded.
    load : callable
        Returns the backend; imports what is heavy. Where it cannot serve on this machine it raises:
        BackendError with the reason, or whatever an import or a driver raises. All are reported.
    install_hint : str
        How a user gets what is missing, for instance a pip command: it ends what is reported.
    """

    name: str
    api_version: int
    capability: Capability
    load: Callable[[], Backend]
    install_hint: str


@dataclass(frozen=True)
class IntegrationSpec:
    """One integration, as its plugin announces it.

    Attributes
    ----------
    name : str
        For messages.
    api_version : int
        The `API_VERSION` it was written for, as a number.
    array_module : str
        Top-level module of the library: the integration is loaded when that has been imported.
    load : callable
        Returns the integration.
    """

    name: str
    api_version: int
    array_module: str
    load: Callable[[], Integration]


@hookspec
def mixad_backends() -> Sequence[BackendSpec]:
    """Return the backends of this plugin, as specs.

    Returns
    -------
    sequence of BackendSpec
        In any order: mixad ranks them.
    """
    raise NotImplementedError("a specification: call it through the registry")


@hookspec
def mixad_integrations() -> Sequence[IntegrationSpec]:
    """Return the integrations of this plugin with derivatives of other libraries, as specs.

    Returns
    -------
    sequence of IntegrationSpec
        As a rule one.
    """
    raise NotImplementedError("a specification: call it through the registry")
