"""The HM-LSTM cell update: value and four gradients, given a cotangent."""

from __future__ import annotations

import mixad
from mixad.cli.demo import Workload, cell_update

from .arrays import BACKENDS, on_device, require, synchronize

SIZES = (512, 1024, 2048)
FLAG_LAYOUTS = ("(n,)", "(n, 1)")


class ValueAndVjp:
    """One call, its results allocated by the call; compiled before it is timed."""

    params = (BACKENDS, SIZES, FLAG_LAYOUTS)
    param_names = ("backend", "size", "shape of z")

    def setup(self, backend, size, layout):
        require(backend)
        work = Workload.random(size)
        z, zb, *primals, self.cotangent = (on_device(backend, a) for a in vars(work).values())
        if layout == "(n, 1)":
            z, zb = z.reshape(-1, 1), zb.reshape(-1, 1)
        self.primals = tuple(primals)
        kernel = cell_update.with_options(backend=backend)
        self.update = lambda c, f, i, g: kernel(z, zb, c, f, i, g)
        self.time_value_and_vjp(backend, size, layout)

    def time_value_and_vjp(self, backend, size, layout):
        mixad.value_and_vjp(self.update, self.primals, self.cotangent)
        synchronize(backend)
