"""Bundle adjustment: the Jacobian blocks (p, 2, 15) of all observations, float64.

ADBench's residual of 15 inputs and 2 outputs (Srajer, Kukelova and Fitzgibbon, 2018), with as many
cameras, points and observations as its fifth problem has, in its order: observation i is of camera
i mod n and point i mod m.  What an observation reads of its camera
and of its point is gathered by every contender.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernels.bundle import CAMERA, INPUTS, gathered, residual_of_arrays
from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (225_911,)
CAMERAS, POINTS = 257 / 225_911, 65_132 / 225_911
CHECKED = 61  # every so many observations are compared: every partial of these
TOLERANCE = Tolerance(relative=1e-9, scaled=1e-12)
TARGETS = {"JAX jacrev": Target(0.12)}
HALVES = INPUTS[:8], INPUTS[8:]


@dataclass(frozen=True)
class Problem:
    """Parameters, and for each observation which of them it reads, and where the point was seen.

    Parameters
    ----------
    cameras, points, weights : ndarray
        Of shapes (n, 11), (m, 3), (p,).
    camera, point : ndarray of int
        Of shape (p,).
    seen : ndarray
        Of shape (2, p).
    """

    cameras: NDArray
    points: NDArray
    weights: NDArray
    camera: NDArray
    point: NDArray
    seen: NDArray

    @property
    def arrays(self) -> tuple[NDArray, ...]:
        return self.cameras, self.points, self.weights, self.camera, self.point, self.seen

    @property
    def bytes_moved(self) -> int:
        """Every array once, and the blocks."""
        return sum(a.nbytes for a in self.arrays) + self.weights.nbytes * 30

    def expected(self) -> NDArray:
        """Return the blocks of the observations that are checked, by complex steps."""
        step, at = 1e-30, slice(None, None, CHECKED)
        inputs = [*self.cameras[self.camera[at]].T, *self.points[self.point[at]].T]
        inputs.append(self.weights[at])
        blocks = np.empty((len(inputs[0]), 2, len(inputs)))
        for k in range(len(inputs)):
            moved = [x + (1j * step if j == k else 0) for j, x in enumerate(inputs)]
            for m, r in enumerate(residual_of_arrays(np, *moved, *self.seen[:, at])):
                blocks[:, m, k] = r.imag / step
        return blocks


def problem(size: int, seed: int) -> Problem:
    """Draw parameters and observations."""
    rng = np.random.default_rng(seed)
    n, m = max(2, round(CAMERAS * size)), max(3, round(POINTS * size))
    cameras = np.empty((n, CAMERA))
    lows = (0.05, 0.05, 0.05, -0.5, -0.5, -0.5, 500, -5, -5, -0.05, -0.05)
    highs = (0.4, 0.4, 0.4, 0.5, 0.5, 0.5, 600, 5, 5, 0.05, 0.05)
    cameras[:] = rng.uniform(lows, highs, (n, CAMERA))
    points = rng.uniform((-1, -1, 4), (1, 1, 8), (m, 3))
    camera, point = np.arange(size) % n, np.arange(size) % m
    weights, seen = rng.uniform(0.5, 1.0, size), rng.uniform(-100, 100, (2, size))
    return Problem(cameras, points, weights, camera, point, seen)


def whole(blocks: object) -> list[NDArray]:
    """Return the checked ones of blocks (p, 2, 15)."""
    return [np.asarray(blocks)[::CHECKED]]


def joined(blocks: Sequence) -> list[NDArray]:
    """Return the checked ones of blocks of camera, point and weight."""
    camera, point, weight = (np.asarray(b)[::CHECKED] for b in blocks)
    return [np.concatenate([camera, point, weight[:, :, None]], axis=2)]


def mixad(p: Problem) -> tuple[Call, Unpack]:
    """Return one launch that gathers, differentiates, and stores blocks."""
    kernel, zeros = gathered(p.cameras, p.points, p.weights), [0.0] * len(INPUTS)
    of_weight = np.arange(p.weights.size)
    given = (p.camera, p.point, of_weight, *p.seen, *zeros)
    return lambda: kernel.jacobian(*given, wrt=INPUTS), whole


def mixad_planes(p: Problem) -> tuple[Call, Unpack]:
    """Return two launches, each of which has some inputs, that store an array for each partial."""
    kernel, zeros = gathered(p.cameras, p.points, p.weights), [0.0] * len(INPUTS)
    given = (p.camera, p.point, np.arange(p.weights.size), *p.seen, *zeros)

    def unpack(halves):
        rows = [
            [both[m].partials[name] for both, names in zip(halves, HALVES, strict=True)
             for name in names] for m in range(2)
        ]  # fmt: skip
        return [np.moveaxis(np.array(rows)[..., ::CHECKED], -1, 0)]

    return lambda: [kernel.duals(*given, wrt=names) for names in HALVES], unpack


def of_one(xp: object, stack: Callable) -> Callable:
    """Return the residual of one observation, of vectors."""

    def residual(camera, point, weight, seen):
        return stack(residual_of_arrays(xp, *camera, *point, weight, *seen))

    return residual


def jax_call(p: Problem, transform: str) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    jacobian = getattr(jax, transform)(of_one(jax.numpy, jax.numpy.stack), argnums=(0, 1, 2))

    @jax.jit
    def blocks(cameras, points, weights, camera, point, seen):
        return jax.vmap(jacobian, (0, 0, 0, 1))(cameras[camera], points[point], weights, seen)

    arrays = [jax.numpy.asarray(a) for a in p.arrays]
    return lambda: jax.block_until_ready(blocks(*arrays)), joined


def jax_one_array(p: Problem) -> tuple[Call, Unpack]:
    """Return the same with the inputs in one vector, so that blocks are in one array."""
    jax = libraries.jax()
    jnp = jax.numpy

    def residual(row, seen):
        return jnp.stack(residual_of_arrays(jnp, *row, *seen))

    @jax.jit
    def blocks(cameras, points, weights, camera, point, seen):
        rows = jnp.concatenate([cameras[camera], points[point], weights[:, None]], axis=1)
        return jax.vmap(jax.jacrev(residual), (0, 1))(rows, seen)

    arrays = [jnp.asarray(a) for a in p.arrays]
    return lambda: jax.block_until_ready(blocks(*arrays)), whole


def torch_call(p: Problem, transform: str) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    jacobian = getattr(torch.func, transform)(of_one(torch, torch.stack), argnums=(0, 1, 2))
    mapped = torch.func.vmap(jacobian, (0, 0, 0, 1))
    cameras, points, weights, camera, point, seen = map(torch.from_numpy, p.arrays)
    return lambda: mapped(cameras[camera], points[point], weights, seen), joined


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(p.bytes_moved)


PEERS = {
    "mixad duals, an array for each": mixad_planes,
    "copy of the bytes": copy,
    "JAX jacrev": partial(jax_call, transform="jacrev"),
    "JAX jacrev, one array": jax_one_array,
    "JAX jacfwd": partial(jax_call, transform="jacfwd"),
    "torch.func jacrev": partial(torch_call, transform="jacrev"),
    "torch.func jacfwd": partial(torch_call, transform="jacfwd"),
}


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per number of observations."""
    for size in sizes:
        p = problem(size, seed)
        expected = (p.expected(),)
        contenders = {"mixad": Contender(partial(mixad, p), expected)}
        for name, make in PEERS.items():
            contenders[name] = Contender(partial(make, p), () if make is copy else expected)
        yield Case(
            "bundle",
            f"{size:,} observations, {len(p.cameras):,} cameras, {len(p.points):,} points",
            contenders,
            [Comparison("mixad", peer, TARGETS.get(peer)) for peer in PEERS],
            TOLERANCE,
            keeps=(0,),
        )
