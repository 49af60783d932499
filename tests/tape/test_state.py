"""Levels live in tracers: nothing in mixad's modules knows of a transform that is running."""

from __future__ import annotations

import gc
import sys
import threading
import types
from collections import OrderedDict, deque
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.tape.cell import Cell
from mixad.tape.tracer import Level, Tracer

X = np.linspace(0.5, 1.5, 300)
CONTAINERS = (dict, list, tuple, set, frozenset, deque, OrderedDict, types.MappingProxyType)
CACHE = type(lru_cache(lambda: None))


def _is_followed(value: Any) -> bool:
    if isinstance(value, CONTAINERS) or type(value) is CACHE:
        return True
    module = type(value).__module__
    return module.startswith("mixad.") or module == "weakref"


def reachable() -> list[Any]:
    """Return what mixad's modules hold: their names, containers and caches, and so on."""
    found: dict[int, Any] = {}
    left: list[Any] = [
        value
        for name, module in list(sys.modules.items())
        if name.startswith("mixad.")
        for value in vars(module).values()
    ]
    while left:
        value = left.pop()
        if id(value) not in found and not isinstance(value, types.ModuleType):
            found[id(value)] = value
            left += gc.get_referents(value) if _is_followed(value) else []
    return list(found.values())


@mixad.broadcast(placement="forward")
def product(a, b):
    return a * b


@pytest.mark.slow
def test_no_module_holds_anything_of_a_running_transform() -> None:
    seen: list[Any] = []

    def inner(y: Any, x: Any) -> Any:
        z = product(np.exp(y), x)
        if z[0] > 0:
            seen.append([v for v in reachable() if isinstance(v, (Level, Tracer, Cell))])
        return (z * z).sum()

    def outer(x: Any) -> Any:
        return (mixad.grad(inner)(x, x) * mixad.checkpoint(np.tanh)(x)).sum()

    mixad.grad(outer)(X)
    mixad.grad(outer)(X)  # with plans that are remembered
    assert len(seen) >= 2
    assert seen == [[]] * len(seen)


@pytest.mark.slow
def test_no_module_has_a_variable_of_the_thread_or_the_context() -> None:
    assert not [v for v in reachable() if isinstance(v, (threading.local, ContextVar))]


def test_transforms_may_end_in_any_order() -> None:
    """Three functions that are differentiated stop in their midst and go on crosswise."""
    turns = {name: threading.Event() for name in ("b in", "c in", "a out", "b out")}
    found: dict[str, Any] = {}

    def run(name: str, before: str | None, inside: str | None, wait: str | None) -> None:
        def f(x: Any) -> Any:
            y = np.sin(x) * x
            if inside:
                turns[inside].set()
            if wait:
                assert turns[wait].wait(30)
            return (y * y).sum()

        if before:
            assert turns[before].wait(30)
        found[name] = mixad.grad(lambda x: mixad.grad(f)(x).sum())(X)
        if f"{name} out" in turns:
            turns[f"{name} out"].set()

    threads = [
        threading.Thread(target=run, args=args)
        for args in [("a", None, "b in", "c in"), ("b", "b in", "c in", "a out"),
                     ("c", "c in", None, "b out")]
    ]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    s, c = np.sin(X), np.cos(X)
    y, slope, curvature = s * X, c * X + s, -s * X + 2 * c
    for name in "abc":
        np.testing.assert_allclose(found[name], 2 * (slope**2 + y * curvature), rtol=1e-12)
