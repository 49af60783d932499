"""A plugin of pytest that registers the CUDA plugins of this checkout, installed or not."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from mixad.backends import registry

PLUGINS = Path(__file__).parents[2] / "plugins"


def pytest_configure() -> None:
    """Register them in this process."""
    sys.path[:0] = [str(PLUGINS / f"mixad-{name}") for name in ("torch", "cupy")]
    names = ("torch", "cupy")
    others = [source for source in registry.installed_plugins() if source.name not in names]
    own = registry.Registry([*others, *map(_source, names)])
    registry.default_registry = lambda: own


def _source(name: str) -> registry.PluginSource:
    return registry.PluginSource(
        name, "this checkout", lambda: importlib.import_module(f"mixad_{name}")
    )
