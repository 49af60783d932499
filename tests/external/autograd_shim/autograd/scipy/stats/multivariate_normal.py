"""The normal distribution of vectors."""

from typing import Any

import numpy as np

__all__ = ["entropy", "logpdf", "pdf"]


def logpdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """Return the logarithm of the density, of a singular covariance where it is not 0."""
    apart = x - mean
    if allow_singular:
        values, vectors = np.linalg.eigh(cov)
        kept = values > 1e-10
        distance = np.sum(np.dot(apart, vectors[:, kept]) ** 2 / values[kept], axis=-1)
        return -0.5 * (np.sum(np.log(2 * np.pi * values[kept])) + distance)
    solved = np.linalg.solve(cov, np.swapaxes(np.atleast_2d(apart), 0, 1))
    distance = np.sum(apart * np.reshape(np.swapaxes(solved, 0, 1), np.shape(apart)), axis=-1)
    norm = len(cov) * np.log(2 * np.pi) + np.linalg.slogdet(cov)[1]
    return -0.5 * (norm + distance)


def pdf(x: Any, mean: Any, cov: Any, allow_singular: bool = False) -> Any:
    """Return the density."""
    return np.exp(logpdf(x, mean, cov, allow_singular))


def entropy(mean: Any, cov: Any) -> Any:
    """Return the differential entropy, on which the mean has no influence."""
    return 0.5 * (len(cov) * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(cov)[1]) + 0 * np.sum(mean)
