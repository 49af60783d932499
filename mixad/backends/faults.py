"""Faults of plugins' backends as BackendErrors: whose each is, and how to do without it.

Built-in backends are not watched: their errors pass through.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from traceback import walk_tb
from typing import Any

from mixad import config
from mixad.backends.arrays import Library, device_name, own_library
from mixad.backends.hookspecs import BackendSpec
from mixad.backends.plugins import FAULTS, PluginSource
from mixad.backends.protocols import Backend, Bound
from mixad.errors import BackendError, MixadError
from mixad.kernel.spec import Launch
from mixad.scalar.dtypes import scalar_type_of

__all__ = [
    "PluginCall",
    "describe",
    "fault",
    "fault_of",
    "refuse_what_is_no_backend",
    "suggestion",
    "watch_launch",
]

_METHODS = ("emit", "compile", "bind", "launch")
_OPTIONAL_METHODS = ("describe", "assembly", "device_text", "device_functions", "architecture",
                     "bandwidth", "tiling")  # fmt: skip


def suggestion(plugin: PluginSource) -> str:
    """Return how to do without a plugin."""
    return f"leave it out: {config.BACKEND_BLOCK.name}={plugin.name}"


def refuse_what_is_no_backend(found: object, spec: BackendSpec) -> None:
    """Raise BackendError if a factory returned something else than the backend of its spec."""
    required = (*_METHODS, "moved") if spec.capability.writes_parts else _METHODS
    missing = [m for m in required if not callable(getattr(found, m, None))]
    if missing:
        raise BackendError(
            f"its factory returned {describe(found)}, which lacks {', '.join(missing)} of a backend"
        )
    own = getattr(found, "name", None)
    if own != spec.name:
        raise BackendError(f"its factory returned a backend with the name {own!r}")
    wrong = [m for m in _OPTIONAL_METHODS if not callable(getattr(found, m, len))]
    if wrong:
        told = " and ".join(f"{each} = {getattr(found, each)!r}" for each in wrong)
        raise BackendError(f"its factory returned a backend with {told}: see `Backend`")


def _is_users(error: BaseException) -> bool:
    """Whether an exception inside a plugin is about the call, not about the plugin.

    Such are mixad's own refusals, warnings that the user made errors, ends that a signal asks for,
    and lack of memory, for which libraries of devices have classes of their own.
    """
    if isinstance(error, SystemExit):
        ending = set(map(_code_of, map(signal.getsignal, signal.valid_signals())))
        return any(frame.f_code in ending for frame, _ in walk_tb(error.__traceback__))
    if isinstance(error, MixadError):
        return not isinstance(error, BackendError)
    return isinstance(error, (MemoryError, Warning)) or "OutOfMemory" in type(error).__name__


def fault(plugin: PluginSource, name: str, what: str) -> BackendError:
    """Return the error about an object that a plugin offers under a name."""
    return BackendError(f"{name!r} of the {plugin} {what}; {suggestion(plugin)}")


def _code_of(handler: Any) -> Any:
    """Return the code of a signal's handler, for any callable; None if it is not Python's."""
    while isinstance(handler, partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = type(handler).__call__
    return getattr(function, "__code__", None)


@dataclass(frozen=True)
class PluginCall:
    """Reports an exception inside a plugin as its fault; without a plugin the code is mixad's own.

    No generator does this: it would take faults caused by StopIteration for its own.
    """

    plugin: PluginSource | None
    name: str
    what: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self.plugin is not None and isinstance(error, FAULTS) and not _is_users(error):
            raise fault_of(self.plugin, self.name, error, self.what) from error


def fault_of(plugin: PluginSource, name: str, error: BaseException, what: str) -> BackendError:
    """Return the error about an exception in an object that a plugin offers under a name."""
    return fault(plugin, name, f"raised {type(error).__name__} {what}: {error}")


def watch_launch(
    plugin: PluginSource,
    backend: Backend,
    planned: Launch,
    bound: Bound,
    library: Library,
    device: str,
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function that launches a plan on a plugin's backend; its faults are BackendErrors.

    The first results are checked. An IndexError is the user's if the kernel reads or adds to arrays
    by index.
    """
    is_checked = False

    def run(arguments: Sequence[Any]) -> tuple[Any, ...]:
        nonlocal is_checked
        try:
            results = backend.launch(bound, arguments)
        except FAULTS as error:
            if _is_users(error) or (isinstance(error, IndexError) and planned.may_be_outside):
                raise
            raise fault_of(plugin, backend.name, error, _where(planned)) from error
        if not is_checked:
            wrong = _wrong(results, planned, library, device)
            if wrong is not None:
                got, want = wrong
                returned = f"returned {got} {_where(planned)}, expected {want}"
                raise fault(plugin, backend.name, returned)
            is_checked = True
        return results

    return run


def _where(planned: Launch) -> str:
    return f"from a launch of {planned.spec.passes[0].name}"


def _wrong(results: object, planned: Launch, on: Library, where: str) -> tuple[str, str] | None:
    """Return the kind of some results, and what they must be; None if they are right."""
    expected = list(zip(planned.results, planned.spec.outputs, strict=True))
    if not isinstance(results, tuple):
        return describe(results), "a tuple"
    if len(results) != len(expected):
        return f"{len(results)} results", str(len(expected))
    for at, (result, (shape, output)) in enumerate(zip(results, expected, strict=True)):
        want = f"{output.type.dtype_name} array of shape {shape}"
        want = f"a {want} of {on.name} on {where} as result {at}"
        try:
            library, device = own_library(result), device_name(result)
            type, own = scalar_type_of(result.dtype), tuple(result.shape)
        except Exception:  # a thing of any type
            return describe(result), want
        if (library, device, own, type) != (on, where, shape, output.type):
            got = f"{type.dtype_name} array of shape {own}"
            return f"a {got} of {library.name} on {device}", want
    return None


def describe(value: object) -> str:
    """Return what an object is that has the wrong type."""
    return "None" if value is None else f"a {type(value).__name__}"
