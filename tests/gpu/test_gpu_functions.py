"""Every array function on a CUDA device: derivatives are those over NumPy, and stay there."""

from __future__ import annotations

import functools
import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixad

pytest.importorskip("array_api_strict")  # which the tables of cases are written beside
sys.path.insert(0, str(Path(__file__).parents[1] / "namespace"))

import test_every_function
import test_linalg
import test_whole_arrays
from derivatives import weighted

pytestmark = pytest.mark.gpu

CASES = test_every_function.CASES | test_whole_arrays.CASES | test_linalg.CASES


class On:
    """A namespace in which a case's own arrays are on the device of another array."""

    def __init__(self, xp: Any, like: Any) -> None:
        self.asarray = functools.partial(xp.asarray, device=like.device)
        self.eye = functools.partial(xp.eye, device=like.device)
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)


def derivatives(f: Any, xp: Any, arrays: list[Any]) -> list[Any]:
    """Return gradients, and how they change along the arrays."""
    loss = functools.partial(weighted, f, On(xp, arrays[0]))
    gradient = mixad.grad(loss, argnums=tuple(range(len(arrays))))
    return [*gradient(*arrays), *mixad.jvp(gradient, arrays, arrays)[1]]


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_over_numpy(library, name):
    f, *given = CASES[name]
    on_host = [np.asarray(x, dtype=np.float64) for x in given]
    there = [library.put(x) for x in on_host]
    xp = mixad.namespace_of(importlib.import_module(library.name))
    wanted = derivatives(f, mixad.namespace_of(np), on_host)
    for found, want in zip(derivatives(f, xp, there), wanted, strict=True):
        assert found.device == there[0].device
        np.testing.assert_allclose(library.get(found), want, rtol=1e-8, atol=1e-10)
