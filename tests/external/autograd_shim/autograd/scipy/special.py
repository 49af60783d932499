"""SciPy's special functions, which ask traced arrays what they are."""

import numpy as np
from scipy.special import *  # noqa: F403

import mixad
from mixad.scipy.special import logsumexp, multigammaln  # noqa: F401  # SciPy's converts to NumPy arrays

jn = jv  # noqa: F405
polygamma = mixad.namespace_of(np).special.polygamma
"""SciPy's is no ufunc: with SCIPY_ARRAY_API it asks this namespace."""
