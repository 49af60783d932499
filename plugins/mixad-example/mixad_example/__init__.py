"""An example of a backend: kernels in plain C, compiled by the system's compiler.

Asked for by name, ``mixad.broadcast(f, backend="example")``: for NumPy arrays, mixad itself always
prefers ``cpu``.
"""

from __future__ import annotations

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl

__all__ = ["mixad_backends"]


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``example``."""
    integers = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    dtypes = frozenset({"bool", "float32", "float64", *integers})
    capability = Capability(("numpy",), ("cpu",), dtypes, native=True)
    return [BackendSpec("example", API_VERSION, capability, _load, "install gcc or clang")]


def _load() -> Backend:
    from mixad_example.backend import ExampleBackend

    return ExampleBackend()
