"""What is made on the way is on the device of the arguments: array-api-strict has several."""

from __future__ import annotations

import functools
from typing import Any

import array_api_strict
import numpy as np
import pytest
import test_linalg
import test_whole_arrays
from derivatives import weighted

import mixad
from mixad.errors import TracerError

OTHER = array_api_strict.Device("device1")
CASES = test_whole_arrays.CASES | test_linalg.CASES


class On:
    """The namespace of array-api-strict, in which a case's own arrays are on one device."""

    def __init__(self, device: Any) -> None:
        xp = mixad.namespace_of(array_api_strict)
        self.asarray = functools.partial(xp.asarray, device=device)
        self.eye = functools.partial(xp.eye, device=device)
        self._xp = xp

    def __getattr__(self, name: str) -> Any:
        return getattr(self._xp, name)


def derivatives(case: tuple[Any, ...], device: Any) -> list[Any]:
    f, *arrays = case
    given = [array_api_strict.asarray(np.asarray(a), device=device) for a in arrays]
    loss = functools.partial(weighted, f, On(device))
    gradient = mixad.grad(loss, argnums=tuple(range(len(given))))
    return [*gradient(*given), *mixad.jvp(gradient, given, given)[1]]


@pytest.mark.rows(
    "name", CASES, slow=["svd of square", "svd of tall", "svd of wide", "vector_norm of order"]
)
def test_derivatives_are_computed_on_the_device_of_the_arguments(name: str) -> None:
    expected = derivatives(CASES[name], array_api_strict.Device("CPU_DEVICE"))
    for found, want in zip(derivatives(CASES[name], OTHER), expected, strict=True):
        assert found.device == OTHER
        np.testing.assert_allclose(found._array, want._array, rtol=1e-12, atol=1e-12)


def test_a_number_as_a_condition() -> None:
    x = array_api_strict.ones(3, device=OTHER)
    xp = mixad.namespace_of(array_api_strict)
    found = mixad.grad(lambda x: xp.sum(xp.where(True, x * x, 0.0)))(x)
    assert found.device == OTHER
    np.testing.assert_array_equal(found._array, 2.0)


@pytest.mark.parametrize("condition", [0, 2, 0.5])
def test_a_number_that_is_no_boolean_is_refused_as_a_condition(condition: Any) -> None:
    for library in (array_api_strict, np):
        xp, x = mixad.namespace_of(library), library.ones(3)
        with pytest.raises(TracerError, match="takes a condition of booleans, this one has dtype"):
            mixad.grad(lambda x, xp=xp: xp.sum(xp.where(condition, x * x, 3.0)))(x)
