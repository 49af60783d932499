"""The most memory that a process has held, the arrays that it is given among it."""

from __future__ import annotations

import math

import numpy as np

import mixad
from benchmarks.peers import chain12
from mixad.cli.demo import Workload, cell_update

from .arrays import BACKENDS, require_for_operators
from .recording import Chain

ELEMENTS = 1 << 22


def drawn(elements):
    """Return an array to differentiate with respect to."""
    return np.random.default_rng(0).random(elements, dtype=np.float32)


def nothing(elements):
    """Return the memory of a process with mixad imported and one array."""
    return drawn(elements).sum


def cell(placement):
    """Return value and gradients of the HM-LSTM cell, the partials stored or not."""

    def made(elements):
        work = Workload.random(math.isqrt(elements))
        z, zb, *primals, cotangent = vars(work).values()
        kernel = cell_update.with_options(placement=placement)

        def call():
            _, pullback = mixad.vjp(lambda c, f, i, g: kernel(z, zb, c, f, i, g), *primals)
            return pullback(cotangent)

        return call

    return made


def twelve_operations(elements):
    """Return the gradient of a chain of functions of arrays."""
    gradient, x = mixad.grad(lambda x: chain12.chain(np, x)), drawn(elements)
    return lambda: gradient(x)


def long_chain(elements):
    """Return the gradient of 200 operations in a row: several kernels, with values between."""
    gradient, x = mixad.grad(Chain.chain), drawn(elements)
    return lambda: gradient(x)


def checkpointed_chain(elements):
    """Return the same with nothing kept between the passes but the input."""
    gradient, x = mixad.grad(mixad.checkpoint(Chain.chain)), drawn(elements)
    return lambda: gradient(x)


WORKS = {
    "nothing": nothing,
    "HM-LSTM, partials stored": cell("forward"),
    "HM-LSTM, partials in the pullback": cell("reverse"),
    "twelve operations": twelve_operations,
    "200 operations": long_chain,
    "200 operations, checkpointed": checkpointed_chain,
}


class Peak:
    """The process's own memory: what is on a device is not in it."""

    params = (BACKENDS, tuple(WORKS))
    param_names = ("backend", "work")

    def setup(self, backend, work):
        if backend in ("cupy", "torch"):
            raise NotImplementedError(f"the peak is of the host's memory, not of {backend}'s")
        require_for_operators(backend)
        self.call = WORKS[work](ELEMENTS)

    def peakmem_call(self, backend, work):
        self.call()
