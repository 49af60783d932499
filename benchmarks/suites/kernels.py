"""Kernels of elements as `benchmarks.gpu` has them: value and gradients in one launch.

Of bundle adjustment, the blocks of the Jacobian.
"""

from __future__ import annotations

import numpy as np

from benchmarks.gpu import arity, bundle, kepler, volatility
from benchmarks.gpu.elementwise import Elementwise, by_mixad

from .arrays import BACKENDS, Place, require, synchronize

SIDE = 1024  # of the arrays of every arity
INTERPRETED = 10_000  # options that the interpreter is given


class _Compiled:
    """A call whose kernel is compiled before it is timed."""

    def setup(self, backend, size):
        require(backend)
        self.call = self.made(size, Place(backend), backend).call
        self.time_call(backend, size)

    def time_call(self, backend, size):
        self.call()
        synchronize(backend)


class Kepler(_Compiled):
    """A loop that ends for each element on its own; float64."""

    params = (BACKENDS, (10_000, 1_000_000))
    param_names = ("backend", "elements")

    def made(self, elements, place, backend):
        return by_mixad(kepler.problem(elements, np.float64, seed=0), place, backend=backend)


class ImpliedVolatility(_Compiled):
    """Safeguarded Newton steps with a `break`; float64."""

    params = (BACKENDS, (10_000, 200_000))
    param_names = ("backend", "options")

    def made(self, options, place, backend):
        if backend == "reference" and options > INTERPRETED:
            raise NotImplementedError("the interpreter takes longer than asv waits for")
        return by_mixad(volatility.problem(options, seed=0)[0], place, backend=backend)


class BundleAdjustment(_Compiled):
    """Residuals of 15 inputs and all 30 partials, in blocks (n, 2, 15); float64."""

    params = (BACKENDS, (10_000, 200_000))
    param_names = ("backend", "observations")

    def made(self, observations, place, backend):
        return bundle.by_mixad(bundle.drawn(observations, seed=0), place, backend=backend)


class Arity(_Compiled):
    """Products of so many factors, all of them active; float32."""

    params = (BACKENDS, tuple(arity.ARITIES))
    param_names = ("backend", "inputs")

    def made(self, inputs, place, backend):
        xs, cotangent = arity.drawn(SIDE, seed=0)
        product = Elementwise(arity.product_of(inputs), None, (), xs[:inputs], cotangent)
        return by_mixad(product, place, backend=backend)
