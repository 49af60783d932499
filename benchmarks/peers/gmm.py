"""ADBench's Gaussian mixture: the log posterior of 1000 points and its gradients, in float64.

Batches of triangular products, logarithms of sums of exponentials, a prior: see `adbench`.  The
triangles are gathered from the packed parameters, so that the same source runs in every library.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.peers import adbench, losses
from benchmarks.peers.harness import Case, Comparison, Target, Tolerance

SIZES = (10, 64)
"""Dimensions of the points; 25 Gaussians each."""

TOLERANCE = Tolerance(relative=1e-9, scaled=1e-12)
TARGETS = {
    peer: Target(1.0)
    for peer in ("torch.compile", "torch.compile, whole step", "JAX jit", "PyTorch eager")
} | {"autograd": Target(1.0)}


def problem(p: adbench.Mixture) -> losses.Problem:
    """Return the objective of a mixture; value and gradients by hand."""
    places, above = adbench.triangle(p.x.shape[1])
    return losses.Problem(
        partial(_objective, gamma=p.gamma, m=p.m),
        p.parameters,
        adbench.mixture_gradients(p),
        losses.whole,
        (p.x, places, above),
    )


def _objective(xp, *arrays, gamma: float, m: int):
    return adbench.mixture_objective(xp, *arrays, gamma, m)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per dimension."""
    for d in sizes:
        path = adbench.file(f"gmm/1k/gmm_d{d}_K25.txt")
        p = problem(adbench.read_mixture(path))
        yield Case(
            "gmm",
            path.stem,
            losses.contenders(p, {"mixad": losses.mixad}),
            [Comparison("mixad", peer, TARGETS.get(peer)) for peer in losses.PEERS],
            TOLERANCE,
            keeps=(0,),
        )
