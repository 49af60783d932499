"""Losses written with functions of arrays, as `benchmarks.peers` has them: value and gradients."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

import mixad
from benchmarks.peers import adbench, chain12, gmm, hm_lstm, hm_lstm_grad, sum_broadcast
from benchmarks.peers.losses import Problem

from .arrays import BACKENDS, library, on_device, require_for_operators, synchronize

GAUSSIANS, DIMENSIONS = 16, 8


def mixture(elements):
    """Return a mixture of Gaussians whose largest arrays have so many elements."""
    points = max(4, elements // (GAUSSIANS * DIMENSIONS))
    return gmm.problem(
        adbench.draw_mixture(DIMENSIONS, GAUSSIANS, points, np.random.default_rng(0))
    )


def cell_between_products(elements):
    """Return the loss of `benchmarks.peers.hm_lstm_grad`: a kernel, then a product of matrices."""
    side = math.isqrt(elements)
    p = hm_lstm_grad.problem(side, (side,), seed=0)
    update = hm_lstm.mixad_cell("auto")

    def loss(xp, c, f, i, g, z, zb, weights):
        return ((update(z, zb, c, f, i, g) @ weights) ** 2).sum()

    constants = p.cell.z, p.cell.zb, p.weights
    return Problem(loss, p.cell.states, p.expected, np.asarray, constants)


LOSSES = {
    "twelve operations": lambda elements: chain12.problem(elements, seed=0),
    "sum of a broadcast": lambda elements: sum_broadcast.problem(math.isqrt(elements), seed=0),
    "mixture of Gaussians": mixture,
    "HM-LSTM, then a product": cell_between_products,
}


class ValueAndGrad:
    """Value and all gradients of a loss, compiled before it is timed."""

    params = (BACKENDS, (1 << 12, 1 << 20), tuple(LOSSES))
    param_names = ("backend", "elements", "loss")

    def setup(self, backend, elements, loss):
        require_for_operators(backend)
        p = LOSSES[loss](elements)
        self.arrays = [on_device(backend, array) for array in p.arrays]
        of_arrays = p.of(library(backend), partial(on_device, backend))
        self.value_and_grad = mixad.value_and_grad(of_arrays, argnums=p.argnums)
        self.time_value_and_grad(backend, elements, loss)

    def time_value_and_grad(self, backend, elements, loss):
        self.value_and_grad(*self.arrays)
        synchronize(backend)
