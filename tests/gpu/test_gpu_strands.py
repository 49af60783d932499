"""Calls of transforms on devices: what is known of one is a plan, over the library's own arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.tape.plan import Plan

pytestmark = pytest.mark.gpu

xp = mixad.namespace_of(np)

X = np.linspace(0.5, 2.0, 4)
Y = np.linspace(-1.0, 1.0, 12).reshape(3, 4)
MATRIX = np.linspace(-1.0, 1.0, 16).reshape(4, 4)


@mixad.broadcast
def fold(w: Any, x: Any) -> Any:
    return w * x * x if x > 0.0 else w * x


def recurrence(x: Any, y: Any) -> Any:
    state = 0.0 * x
    for k in range(40):
        state = xp.tanh(0.5 * state + x * y[k % 3])
    return xp.sum(state)


PROGRAMS: dict[str, Callable[..., Any]] = {
    "operators": lambda x, y: xp.sum(2.0 * x + xp.sin(x) * y - y / 3.0),
    "a matrix product": lambda x, y: xp.sum(xp.tanh(y @ xp.reshape(y, (4, 3)) @ y + x) ** 2),
    "a kernel": lambda x, y: xp.sum(fold(y, x)) * x[0],
    "a rule": lambda x, y: xp.sum(xp.cumulative_sum(x * x)) + xp.sum(xp.std(y, axis=1)),
    "a branch": lambda x, y: xp.sum(x * y) if xp.sum(x * y) > 0 else xp.sum(x + y),
    "a loop": recurrence,
    "views": lambda x, y: xp.sum(y[1:, ::2] * xp.permute_dims(y, (1, 0))[:2, :2]) * x[-1],
    "a second derivative": lambda x, y: xp.sum(mixad.grad(lambda x: xp.sum(x**3 * y[0]))(x) * x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_the_host_and_known_from_then_on(library, name, monkeypatch):
    f, plans, own = PROGRAMS[name], [], Plan.run
    mixad.grad(lambda x: xp.sum(x))(library.put(X))  # arrays of a library are known once it is met
    monkeypatch.setattr(Plan, "run", lambda plan, *a, **k: plans.append(plan) or own(plan, *a, **k))
    for scale in (1.0, -0.7, 1.3):
        args = scale * X, scale * Y
        plans.clear()
        on_device = mixad.value_and_grad(f, (0, 1))(*map(library.put, args))
        assert plans
        value, gradients = mixad.value_and_grad(f, (0, 1))(*args)
        np.testing.assert_allclose(library.get(on_device[0]), value, rtol=1e-12)
        for mine, other in zip(on_device[1], gradients, strict=True):
            np.testing.assert_allclose(library.get(mine), other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["jvp", "hvp", "vjp", "jacobian"])
def test_other_transforms_are_those_of_the_host(library, name):
    f = lambda x: xp.sin(x) * xp.cumulative_sum(x * x)  # noqa: E731
    calls: dict[str, Callable[..., Any]] = {
        "jvp": lambda x: mixad.jvp(f, (x,), (x * x,))[1],
        "hvp": lambda x: mixad.hvp(lambda x: xp.sum(f(x)), (x,), (x * x,))[0],
        "vjp": lambda x: mixad.vjp(f, x)[1](x * x)[0],
        "jacobian": mixad.jacobian(f),
    }
    for _ in range(3):
        found, expected = calls[name](library.put(X)), calls[name](X)
        np.testing.assert_allclose(library.get(found), expected, rtol=1e-12)


@pytest.mark.parametrize("size", [100, 1 << 20])
@pytest.mark.parametrize("known", [False, True])
def test_a_gradient_is_captured_in_a_graph_and_replayed_on_other_values(torch, size, known):
    """What is not known cannot be compared while it is captured; its kernels are there."""
    x = torch.randn(size, device="cuda")
    gradient = mixad.grad(lambda x: xp.sum(xp.sin(x) * x))
    for _ in range(3 if known else 1):
        gradient(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradient(x)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(captured, torch.cos(x) * x + torch.sin(x))
    torch.testing.assert_close(gradient(x), captured)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_a_known_gradient_waits_for_nothing(torch):
    x = torch.randn(1000, device="cuda")
    gradient = mixad.grad(lambda x: xp.sum(xp.sin(x) * x))
    gradient(x)
    try:
        torch.cuda.set_sync_debug_mode("error")
        gradient(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
