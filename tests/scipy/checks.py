"""Comparisons of counterparts with SciPy's functions and with differences of these."""

import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np

import mixad
import mixad.scipy

STEP = 1e-6


def scipys(name: str) -> Callable[..., Any]:
    """Return SciPy's function of a name, ``"signal.lfilter"``."""
    module, _, rest = name.partition(".")
    return attrgetter(rest)(importlib.import_module(f"scipy.{module}"))


def ours(name: str) -> Callable[..., Any]:
    return attrgetter(name)(mixad.scipy)


def flat(results: Any) -> np.ndarray:
    """Return all numbers of a result that may be several arrays, real and imaginary parts apart."""
    parts = results if isinstance(results, tuple | list) else (results,)
    arrays = [np.ravel(np.asarray(part)) for part in parts]
    whole = np.concatenate([a.astype(complex) for a in arrays])
    return np.concatenate([whole.real, whole.imag])


def check_values(name: str, *args: Any, rtol: float = 1e-12, **options: Any) -> None:
    """Compare values and dtypes with SciPy's."""
    found, wanted = ours(name)(*args, **options), scipys(name)(*args, **options)
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for own, other in pairs:
        assert own.dtype == np.asarray(other).dtype
        np.testing.assert_allclose(own, other, rtol=rtol, atol=rtol)


def check_gradient(name: str, *args: Any, tolerance: float = 1e-6, **options: Any) -> None:
    """Compare gradients, of a weighted sum, with respect to all arrays with central differences.

    The differences are those of SciPy's function.
    """
    places = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    reference = scipys(name)

    def value(*arrays: np.ndarray) -> float:
        given = list(args)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        found = flat(reference(*given, **options))
        return float(found @ np.cos(np.arange(found.size)))

    def own(*arrays: Any) -> Any:
        given = list(args)
        for place, array in zip(places, arrays, strict=True):
            given[place] = array
        results = ours(name)(*given, **options)
        parts = results if isinstance(results, tuple | list) else (results,)
        kinds = [np.real, np.imag] if any(part.dtype.kind == "c" for part in parts) else [np.real]
        numbers = [np.ravel(kind(part)) for kind in kinds for part in parts]
        whole = np.concatenate(numbers)
        return (whole * np.cos(np.arange(whole.size))).sum()

    arrays = [args[place] for place in places]
    found = mixad.grad(own, argnums=tuple(range(len(arrays))))(*arrays)
    for i, (array, gradient) in enumerate(zip(arrays, found, strict=True)):
        wanted = np.empty(array.size)
        for j in range(array.size):
            step = np.zeros(array.size)
            step[j] = STEP
            ends = [[*arrays] for _ in range(2)]
            ends[0][i], ends[1][i] = (array + s * step.reshape(array.shape) for s in (1, -1))
            wanted[j] = (value(*ends[0]) - value(*ends[1])) / (2 * STEP)
        np.testing.assert_allclose(
            np.ravel(gradient),
            wanted,
            rtol=tolerance,
            atol=tolerance * (1 + abs(wanted).max(initial=0.0)),
        )
