"""SciPy's special functions, which ask traced arrays what they are."""

from typing import Any

import numpy as np
from scipy.special import *  # noqa: F403

import mixad

jn = jv  # noqa: F405
polygamma = mixad.namespace_of(np).special.polygamma
"""SciPy's is no ufunc: with SCIPY_ARRAY_API it asks this namespace."""


def logsumexp(a: Any, axis: Any = None, b: Any = 1.0, keepdims: bool = False) -> Any:
    """Return the logarithm of a sum of exponentials: SciPy's converts to NumPy arrays."""
    largest = np.max(a, axis=axis, keepdims=True)
    total = np.sum(b * np.exp(a - largest), axis=axis, keepdims=True)
    found = np.log(total) + largest
    return found if keepdims else np.squeeze(found, axis=axis)
