"""What the calls that are refused share."""

import array_api_strict
import numpy as np

import mixad

X = np.asarray([1.0, 2.0, 3.0])
STRICT = array_api_strict.ones(3)


@mixad.broadcast
def product(x, y):
    return x * y


def squares(x):
    return (x * x).sum()


def inside(operation):
    """Do something with a value that is being differentiated."""
    return mixad.grad(operation)(X.copy())
