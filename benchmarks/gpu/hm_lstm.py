"""The HM-LSTM cell update, and what divergence costs it: see `benchmarks.peers.hm_lstm`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks.gpu.elementwise import Elementwise, contenders
from benchmarks.gpu.work import Work, sampled
from benchmarks.peers.hm_lstm import value_and_gradients
from mixad.special import sigmoid, tanh

SIDES = (2048, 8192)
TARGETS = {"torch.compile": 0.9, "JAX jit": 0.9, "PyTorch eager": 0.1}
OF_COPY = 1 / 0.85  # of measured copy bandwidth, at the larger side
UNIFORM = 32  # neighbours with the same control: a warp
DIVERGENCE_SIDE = 2048


def cell_kernel(z, zb, c, f, i, g):
    if z == 1.0:  # FLUSH
        return sigmoid(i) * tanh(g)
    elif zb == 0.0:  # COPY
        return c
    return sigmoid(f) * c + sigmoid(i) * tanh(g)  # UPDATE


def cell(xp, z, zb, c, f, i, g):
    """Return the cell on arrays."""

    def sigmoid(x):
        return 1 / (1 + xp.exp(-x))

    flush = sigmoid(i) * xp.tanh(g)
    return xp.where(z == 1, flush, xp.where(zb == 0, c, sigmoid(f) * c + flush))


def problem(control, side: int, seed: int) -> Elementwise:
    """Draw the states beside given control values."""
    rng = np.random.default_rng(seed)
    states = [rng.random((side, side), dtype=np.float32) for _ in range(4)]
    cotangent = rng.standard_normal((side, side), dtype=np.float32)
    return Elementwise(cell_kernel, cell, control, states, cotangent)


def drawn(shape: tuple[int, ...], seed: int, repeated: int = 1) -> list[np.ndarray]:
    """Draw both controls, the same for so many neighbours along the last axis."""
    rng = np.random.default_rng(seed)
    short = (*shape[:-1], max(1, shape[-1] // repeated))
    values = (rng.integers(0, 2, short).astype(np.float32) for _ in range(2))
    return [np.ascontiguousarray(np.repeat(v, shape[-1] // short[-1], axis=-1)) for v in values]


def expected(e: Elementwise) -> list[np.ndarray]:
    """Return value and gradients by hand, at the elements that are checked."""
    shape = e.cotangent.shape
    control = [sampled(np.broadcast_to(v, shape)) for v in e.constants]
    return list(value_and_gradients(*control, [sampled(x) for x in e.active], sampled(e.cotangent)))


def works(scale: float, seed: int) -> Iterator[Work]:
    """Yield both layouts at both sizes, then the divergence."""
    for side in (max(8, int(side * scale)) for side in SIDES):
        for name, shape in (("(n, 1)", (side, 1)), ("(n,)", (side,))):
            e = problem(drawn(shape, seed), side, seed + 1)
            targets = TARGETS | ({"copy of the bytes": OF_COPY} if side >= max(SIDES) else {})
            title = f"{side}², z of shape {name}"
            yield work("HM-LSTM", title, e, targets)
    side = max(32, int(DIVERGENCE_SIDE * scale))
    for name, repeated in (("random", 1), (f"{UNIFORM} neighbours alike", UNIFORM)):
        e = problem(drawn((side, side), seed, repeated), side, seed + 1)
        yield work("divergence", f"{side}², control {name}", e, {})


def work(name: str, title: str, e: Elementwise, targets: dict[str, float]) -> Work:
    return Work(name, title, contenders(e), partial(expected, e), e.bytes_moved, targets=targets)
