"""PyTorch's derivative of a kernel's own text: Python's control flow on tensors without axes."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

_FUNCTIONS = ("sqrt", "exp", "log", "log2", "log1p", "sin", "cos", "acos", "erf")


def in_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose module's functions compute with tensors."""
    torch = pytest.importorskip("torch")
    names = dict(vars(sys.modules[function.__module__]))
    constants = {"pi": math.pi, "e": math.e, "nan": math.nan}
    functions = {name: getattr(torch, name) for name in _FUNCTIONS}
    names["math"] = SimpleNamespace(**constants, **functions)
    names["mixad"] = SimpleNamespace(stop_gradient=_detached)
    for name, value in list(names.items()):
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            names[name] = FunctionType(value.__code__, names, name, value.__defaults__)
    return names[function.__name__]


def values_and_jacobian(
    function: Callable[..., Any], arguments: Sequence[Any], active: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return values and partials, element by element: of shapes (n, outputs), (n, outputs, active).

    Arguments that are not active are numbers.
    """
    torch = pytest.importorskip("torch")
    own = in_torch(function)
    values, rows = [], []
    for k in range(len(arguments[active[0]])):
        given = [
            torch.tensor(a[k], requires_grad=True) if at in active else a
            for at, a in enumerate(arguments)
        ]
        outputs = own(*given)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        seeds = [given[at] for at in active]
        values.append([float(_detached(out)) for out in outputs])
        rows.append([_partials(torch, out, seeds) for out in outputs])
    return np.array(values), np.array(rows)


def _detached(x: Any) -> Any:
    return x if isinstance(x, float) else x.detach()


def _partials(torch: Any, output: Any, seeds: Sequence[Any]) -> list[float]:
    if not getattr(output, "requires_grad", False):
        return [0.0] * len(seeds)
    found = torch.autograd.grad(output, seeds, retain_graph=True, allow_unused=True)
    return [0.0 if g is None else float(g) for g in found]
