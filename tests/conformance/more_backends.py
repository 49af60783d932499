"""A plugin of pytest that registers backends for the suite: CUDA emulated, and some that are wrong.

It is loaded by ``-p more_backends`` in processes of their own, as a third party would do it.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mixad.backends import cpu, registry
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl
from mixad.errors import BackendError
from mixad.scalar.types import ALL_TYPES

sys.path.insert(0, str(Path(__file__).parents[1] / "cuda"))

DTYPES = frozenset(t.dtype_name for t in ALL_TYPES)
(CPU,) = cpu.mixad_backends()
NUMPY = replace(CPU.capability, array_modules=("numpy",), dtypes=DTYPES)


def emulated() -> BackendSpec:
    from cuda_emulator import CAPABILITY
    from cuda_emulator import emulated as made

    return BackendSpec("emulated", API_VERSION, CAPABILITY, made, "")


class Wrong(CpuBackend):
    """The CPU backend, whose results something is wrong with."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self._calls = itertools.count()

    def launch(self, bound: Any, arguments: Any) -> Any:
        try:
            outputs = super().launch(bound, arguments)
        except IndexError:
            if self.name == "reads-anything":
                return tuple(np.zeros(s) for s in bound.launch.results)
            raise
        return getattr(self, self.name.replace("-", "_"))(bound, arguments, outputs)

    def reads_anything(self, bound: Any, arguments: Any, outputs: Any) -> Any:
        return outputs

    def off_by_a_bit(self, bound: Any, arguments: Any, outputs: Any) -> Any:
        """The last element of each float result is its neighbour."""
        outputs = tuple(o.copy() for o in outputs)
        for o in outputs:
            if o.dtype.kind == "f" and o.size and np.isfinite(o.flat[-1]):
                o.flat[-1] = np.nextafter(o.flat[-1], np.inf)
        return outputs

    def forgetful(self, bound: Any, arguments: Any, outputs: Any) -> Any:
        """Every seventh call has no effect."""
        return outputs if next(self._calls) % 7 else tuple(np.zeros_like(o) for o in outputs)

    def passes_through(self, bound: Any, arguments: Any, outputs: Any) -> Any:
        """A result that equals an argument is the argument."""
        arrays = [a for a in arguments if isinstance(a, np.ndarray)]
        return tuple(
            next((a for a in arrays if a.shape == o.shape and a.dtype == o.dtype
                  and np.array_equal(a, o)), o)
            for o in outputs
        )  # fmt: skip


WRONG = ("reads-anything", "off-by-a-bit", "forgetful", "passes-through")


def _missing() -> Any:
    raise BackendError("there is no such device")


class Plugin:
    @hookimpl
    def mixad_backends(self) -> list[BackendSpec]:
        def spec(name: str, capability: Capability, load: Any) -> BackendSpec:
            return BackendSpec(name, API_VERSION, capability, load, "")

        few = replace(NUMPY, dtypes=frozenset({"bool", "float64", "int64"}))
        elsewhere = replace(NUMPY, array_modules=("no_library",), devices=("no_device",))
        strict = replace(NUMPY, array_modules=("array_api_strict",))
        return [
            emulated(),
            spec("few", few, lambda: _named("few")),
            spec("elsewhere", elsewhere, lambda: _named("elsewhere")),
            spec("strict", strict, lambda: _named("strict")),
            spec("missing", NUMPY, _missing),
            *(spec(name, NUMPY, lambda name=name: Wrong(name)) for name in WRONG),
        ]


def _named(name: str) -> CpuBackend:
    backend = CpuBackend()
    backend.name = name
    return backend


def pytest_configure() -> None:
    """Register them in this process."""
    source = registry.PluginSource("more", "tests", Plugin)
    own = registry.Registry([*registry.installed_plugins(), source])
    registry.default_registry = lambda: own
