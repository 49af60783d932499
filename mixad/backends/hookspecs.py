"""The one hook of mixad, and the types that cross it.

A plugin is a module named by an entry point of group ``mixad``. It implements `mixad_backends`
and returns specs: what each backend can do, as plain data, and a factory for it. Importing the
plugin must be cheap; the array library is imported by the factory, when a kernel needs it.

::

    from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl

    @hookimpl
    def mixad_backends():
        return [BackendSpec(name="mine", api_version=API_VERSION, ..., load=_load)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import pluggy

if TYPE_CHECKING:
    from mixad.kernel.spec import KernelSpec, Launch

__all__ = [
    "ANY",
    "API_VERSION",
    "ENTRY_POINT_GROUP",
    "Backend",
    "BackendSpec",
    "Bound",
    "Capability",
    "Described",
    "Executable",
    "hookimpl",
    "mixad_backends",
]

API_VERSION = 1
"""Version of this contract; raised when a backend written for the old one would fail."""

ENTRY_POINT_GROUP = "mixad"

ANY = "*"
"""Stands in a capability for every array library or every device."""

hookspec = pluggy.HookspecMarker("mixad")
hookimpl = pluggy.HookimplMarker("mixad")

Executable = Any
"""What `Backend.compile` returns: opaque to mixad, handed back to `Backend.bind`."""

Bound = Any
"""What `Backend.bind` returns: opaque to mixad, handed back to `Backend.launch`."""


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
    """

    array_modules: tuple[str, ...]
    devices: tuple[str, ...]
    dtypes: frozenset[str]
    native: bool

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


class Backend(Protocol):
    """What a factory returns: source, executables and launches for planned kernels.

    Attributes
    ----------
    name : str
        The name in its `BackendSpec`.
    """

    name: str

    def emit(self, spec: KernelSpec) -> str:
        """Return the source of the kernel: the same for equal specs, comments aside.

        Parameters
        ----------
        spec : KernelSpec
            The planned kernel.

        Returns
        -------
        str
            Source in the backend's language.
        """
        ...

    def compile(self, spec: KernelSpec) -> Executable:
        """Return the kernel, ready to be launched any number of times from any thread.

        Parameters
        ----------
        spec : KernelSpec
            The planned kernel.

        Returns
        -------
        Executable
            Whatever `bind` takes.
        """
        ...

    def bind(self, executable: Executable, launch: Launch) -> Bound:
        """Return a kernel with everything done that does not depend on the data.

        Parameters
        ----------
        executable : Executable
            What `compile` returned; several launches share it.
        launch : Launch
            Shapes, strides and extents of the calls.

        Returns
        -------
        Bound
            Whatever `launch` takes; mixad keeps it for as long as it keeps the launch.
        """
        ...

    def launch(self, bound: Bound, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run the kernel and return its outputs, arrays of the arguments' library and device.

        Parameters
        ----------
        bound : Bound
            What `bind` returned; calls from several threads share it.
        arguments : sequence
            Arrays and scalars, in the order of the spec.

        Returns
        -------
        tuple
            The outputs, in the order of the spec.
        """
        ...


@runtime_checkable
class Described(Protocol):
    """A backend that has more to tell ``mixad doctor``."""

    def describe(self) -> Mapping[str, str]:
        """Return facts about this machine: vector width, source of the maths, device.

        Returns
        -------
        mapping of str to str
            Shown in this order.
        """
        ...


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


@hookspec
def mixad_backends() -> Sequence[BackendSpec]:
    """Return the backends of this plugin, as specs.

    Returns
    -------
    sequence of BackendSpec
        In any order: mixad ranks them.
    """
    raise NotImplementedError("a specification: call it through the registry")
