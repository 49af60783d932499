"""What it takes to record an operation on a small array: the tape's own part of a gradient.

A gradient does `COUNT` operations whose results nothing reads: no kernel is launched for them and
no cotangent goes back.  Divided by `COUNT`, its time is that of recording one, plus a share of what
a gradient takes without any, which is timed too.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import mixad

from .arrays import BACKENDS, on_device, require_for_operators, synchronize

COUNT = 200

OPERATIONS = {
    "none": lambda x, m, given, places: None,
    "x + x": lambda x, m, given, places: x + x,
    "2.0 * x": lambda x, m, given, places: 2.0 * x,
    "x * array": lambda x, m, given, places: x * given,
    "sum": lambda x, m, given, places: x.sum(),
    "reshape": lambda x, m, given, places: x.reshape((2, 4)),
    "x[3]": lambda x, m, given, places: x[3],
    "x[1:5]": lambda x, m, given, places: x[1:5],
    "x[places]": lambda x, m, given, places: x[places],
    "m @ m": lambda x, m, given, places: m @ m,
}


def repeated(operation, given, places, x, m):
    """Record an operation so many times; return what depends on none of the results."""
    for _ in range(COUNT):
        operation(x, m, given, places)
    return x.sum()


class Recording:
    """Gradients of `COUNT` operations on 8 or 4 × 4 elements; the backend says whose arrays."""

    params = (BACKENDS, tuple(OPERATIONS))
    param_names = ("backend", "operation")

    def setup(self, backend, operation):
        require_for_operators(backend)
        rng = np.random.default_rng(0)
        drawn = rng.random(8), rng.random(8), np.asarray([1, 1, 3]), rng.random((4, 4))
        self.x, given, places, self.m = (on_device(backend, array) for array in drawn)
        self.gradient = mixad.grad(partial(repeated, OPERATIONS[operation], given, places))
        self.time_record(backend, operation)

    def time_record(self, backend, operation):
        self.gradient(self.x, self.m)
        synchronize(backend)


class Chain:
    """The gradient of `COUNT` products and sums in a row: recorded, fused, carried back."""

    params = (BACKENDS, (8, 4096))
    param_names = ("backend", "elements")

    def setup(self, backend, elements):
        require_for_operators(backend)
        self.x = on_device(backend, np.random.default_rng(0).random(elements))
        self.gradient = mixad.grad(self.chain)
        self.time_gradient(backend, elements)

    @staticmethod
    def chain(x):
        """Return the sum of what comes of the elements."""
        for _ in range(COUNT // 2):
            x = x * 0.99 + 0.01
        return x.sum()

    def time_gradient(self, backend, elements):
        self.gradient(self.x)
        synchronize(backend)
