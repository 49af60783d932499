"""A sum over the broadcast of a column, a row, a scalar and a full array: value and gradients.

``Σ s tanh(c f + r)`` in float32. The gradients of the column, the row and the scalar are sums over
what they were broadcast to; only the full array is read and its gradient written at full size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.peers import losses
from benchmarks.peers.harness import Case, Comparison, Target, Tolerance

SIZES = (4096,)
CHECKED = 61
TOLERANCE = Tolerance(relative=1e-4, scaled=1e-4)  # sums of up to 1.7·10⁷ float32 terms
TARGETS = {
    "torch.compile": Target(0.05),
    "copy of the bytes": Target(1.6),
    "copy of the bytes, PyTorch": Target(1.6),
}


def terms(xp, column, row, scalar, full):
    """Return what is summed."""
    return xp.tanh(column * full + row) * scalar


def loss(xp, column, row, scalar, full):
    """Return the sum."""
    return terms(xp, column, row, scalar, full).sum()


def mixad_decorated(p: losses.Problem):
    """Return the same with one decorated function under the sum."""
    import mixad
    from mixad.special import tanh

    @mixad.broadcast
    def term(column, row, scalar, full):
        return tanh(column * full + row) * scalar

    value_and_gradients = mixad.value_and_grad(lambda *xs: term(*xs).sum(), argnums=p.argnums)
    return lambda: value_and_gradients(*p.arrays), p.unpack


def problem(size: int, seed: int) -> losses.Problem:
    """Draw the arguments of one case; value and gradients by hand, in float64."""
    rng = np.random.default_rng(seed)
    shapes = ((size, 1), (size,), (), (size, size))
    arrays = tuple(rng.uniform(-1, 1, s).astype(np.float32) for s in shapes)
    column, row, scalar, full = losses.in_double(arrays)
    t = np.tanh(column * full + row)
    slope = scalar * (1 - t * t)
    gradients = (
        (slope * full).sum(axis=1, keepdims=True),
        slope.sum(axis=0),
        t.sum(),
        slope * column,
    )
    checked = losses.every(CHECKED)
    expected = (np.asarray((scalar * t).sum()), *(checked(np.asarray(g)) for g in gradients))
    return losses.Problem(loss, arrays, expected, checked)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size."""
    for size in sizes:
        p = problem(size, seed)
        ours = {"mixad": losses.mixad, "mixad decorated": mixad_decorated}
        others = {
            "Dr.Jit": partial(losses.drjit, terms=terms),
            losses.WARP: partial(losses.warp_cpu, kernel="broadcast_term", extents=(size, size)),
        }
        peers = (*losses.PEERS, *others)
        yield Case(
            "sum_broadcast",
            f"{size}²",
            losses.contenders(p, ours, others),
            [Comparison(n, peer, TARGETS.get(peer)) for peer in peers for n in ours],
            TOLERANCE,
        )
