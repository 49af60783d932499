"""``python -m mixad doctor``: what is here, what is missing and why, and whether it works."""

from __future__ import annotations

import importlib.util
import os
import platform
import traceback
from collections.abc import Callable, Iterable
from importlib import metadata

import numpy as np

import mixad
from mixad import config
from mixad.backends.hookspecs import BackendSpec
from mixad.backends.object_cache import default
from mixad.backends.plugins import FAULTS
from mixad.backends.protocols import Backend, Described
from mixad.backends.registry import BackendStatus, Failure, default_registry
from mixad.cli.cache import describe
from mixad.errors import ConfigurationError
from mixad.special import exp

__all__ = ["main", "self_test"]

Rows = Iterable[tuple[str, str]]

_REQUIRED = ("numpy", "array-api-compat", "llvmlite", "pluggy", "platformdirs")
_OPTIONAL = (
    *("mixad-cupy", "cupy-cuda12x", "cupy-cuda13x", "mixad-torch", "torch"),
    *("mixad-jax", "jax", "array-api-strict"),
)


def main() -> int:
    """Print the report; the exit status is 1 where the self-test fails or a setting is wrong."""
    _section("versions", _versions())
    _section("machine", _machine())
    _section("environment", _environment())
    if any(_setting(variable).startswith("WRONG") for variable in config.VARIABLES):
        print("\nset the variables marked WRONG right, or unset them, and run this again")
        return 1
    _section("cache", _cache())
    _section("backends", _backends())
    _section("integrations", _integrations())
    verdict = self_test()
    _section("self-test", [("gradient", verdict or "ok")])
    return 0 if verdict is None else 1


def _section(title: str, rows: Rows) -> None:
    print(title)
    for name, value in rows:
        print(f"  {name:20} {value}")


def _versions() -> Rows:
    yield "mixad", mixad.__version__
    yield "python", f"{platform.python_version()} {platform.python_implementation()}"
    for name in (*_REQUIRED, *_OPTIONAL):
        version = _version(name)
        if version is not None or name in _REQUIRED:
            yield name, version or "MISSING"


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> Rows:
    yield "system", platform.platform()
    yield "processor", platform.machine()
    yield "cores", str(os.cpu_count())


def _environment() -> Rows:
    for variable in config.VARIABLES:
        yield variable.name, _setting(variable)
    for name in config.unknown_variables():
        yield name, "UNKNOWN: mixad reads no variable of this name"


def _cache() -> Rows:
    yield "kernels", describe(default())
    problem = default().problem()
    if problem is not None:
        yield "UNUSABLE", f"nothing is kept: {problem}"


def _setting(variable: config.Variable[object]) -> str:
    try:
        value = variable.read()
    except ConfigurationError as error:
        return f"WRONG: {error}"
    if value is None:
        return "unset: chosen for this machine"
    return ", ".join(sorted(value)) or "-" if isinstance(value, frozenset) else str(value)


def _backends() -> Rows:
    registry = default_registry()
    for status in registry.statuses():
        yield status.spec.name, _status(status)
        if status.reason is None:
            yield from _details(registry.backend(status.spec.name))
    for failure in registry.failures:
        yield failure.plugin, _failure_text(failure)


def _status(status: BackendStatus) -> str:
    if status.reason is not None:
        return f"MISSING ({status.origin}): {status.reason}"
    return f"ready ({status.origin}): {_serves(status.spec)}"


def _integrations() -> Rows:
    for announced in default_registry().integrations:
        spec, origin = announced.spec, announced.plugin.described_origin
        if importlib.util.find_spec(spec.array_module) is None:
            yield spec.name, f"waits ({origin}): there is no {spec.array_module}"
            continue
        try:
            spec.load()
        except FAULTS as error:
            yield spec.name, f"MISSING ({origin}): {type(error).__name__}: {error}"
        else:
            yield spec.name, f"ready ({origin}): calls inside of {spec.array_module}'s transforms"


def _serves(spec: BackendSpec) -> str:
    capability = spec.capability
    libraries = ", ".join(capability.array_modules).replace("*", "any library")
    devices = ", ".join(capability.devices).replace("*", "any device")
    return f"{'compiles' if capability.native else 'interprets'}, {libraries} on {devices}"


def _details(backend: Backend) -> Rows:
    if isinstance(backend, Described):
        try:
            rows = [(f"  {name}", str(value)) for name, value in backend.describe().items()]
        except FAULTS as error:  # a plugin's, whose other rows count
            rows = [("  describe", f"FAILED: {type(error).__name__}: {error}")]
        yield from rows


def _failure_text(failure: Failure) -> str:
    if failure.exception is None:
        return f"REFUSED ({failure.origin}): {failure.reason}"
    frames = traceback.extract_tb(failure.exception.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"FAILED ({failure.origin}): {failure.reason}{where}"


@mixad.broadcast
def _decay(x, steps):  # type: ignore[no-untyped-def]
    """Return a function with a branch and a loop whose length differs from lane to lane."""
    if x < 0.0:
        return -x
    total = 0.0
    while steps > 0.0:
        total = total + exp(-x)
        steps = steps - 1.0
    return total


def self_test(gradient: Callable[..., object] | None = None) -> str | None:
    """Compare one gradient, through a branch and a loop, with its formula; return what is wrong.

    ``gradient`` takes `x` and `steps`; by default it is mixad's.
    """
    x = np.linspace(-2.0, 2.0, 101)
    steps = np.arange(101.0) % 5
    expected = np.where(x < 0, -1.0, -steps * np.exp(-x))
    try:
        got = np.asarray((gradient or _gradient)(x, steps))
    except Exception:  # whatever it is, this is the place to show it
        return "FAILED\n" + traceback.format_exc()
    error = np.abs(got - expected).max()
    if not error <= 32 * np.finfo(np.float64).eps * np.abs(expected).max():
        return f"WRONG by {error:.1e}: please report this, with the whole output"
    return None


def _gradient(x: np.ndarray, steps: np.ndarray) -> object:
    return mixad.grad(lambda x: _decay(x, steps).sum())(x)
