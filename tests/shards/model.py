"""A line through data with outliers, which come in shards."""

from functools import reduce
from operator import add

import numpy as np

import mixad

SHARDS = 8


@mixad.broadcast
def loss(x, y, slope, offset):
    r = slope * x + offset - y
    if abs(r) > 1.0:
        return abs(r) - 0.5
    return 0.5 * r * r


def data(shard):
    """Make the data of a shard; a program in earnest reads a file."""
    rng = np.random.default_rng(shard)
    x = rng.normal(size=10_000)
    return x, 2.0 * x - 1.0 + rng.standard_cauchy(10_000)


def of_shard(parameters, shard):
    x, y = data(shard)
    return mixad.value_and_grad(lambda p: loss(x, y, p["slope"], p["offset"]).sum())(parameters)


def added(results):
    """Add values and gradients, leaf by leaf, in the order of the shards."""
    return reduce(lambda one, other: mixad.tree_map(add, one, other), results)


def fitted(results_of):
    """Go down the gradient, given what returns the results of all shards in their order."""
    parameters = {"slope": 0.0, "offset": 0.0}
    for _ in range(20):
        value, gradients = added(results_of(parameters))
        parameters = mixad.tree_map(lambda p, g: p - 2e-5 * g, parameters, gradients)
    return value, parameters
