"""Kepler's equation E − e sin E = M, Newton until the step is at most 1e-10, float64.

The gradient of ``sum(w * E)`` with respect to M and e. Its closed form, from the converged E, is
``w / (1 − e cos E)`` and ``w sin E / (1 − e cos E)``. Systems that cannot differentiate a ``while``
loop in reverse run `FIXED_STEPS` steps for every element, as their users must.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (1_000_000,)
STRATEGIES = ("forward", "auto")
FIXED_STEPS = 12  # the exact loop takes 9 at most on these inputs; users cannot know and add some
TOLERANCE = Tolerance(relative=1e-10, scaled=1e-12)
TARGETS = {
    "torch.compile, fixed steps": Target(0.3),
    "JAX reverse, fixed steps": Target(0.01),
    "Numba, duals by hand": Target(0.2),
}


@dataclass(frozen=True)
class Problem:
    """Mean anomaly, eccentricity, weights, and the two gradients."""

    M: NDArray
    e: NDArray
    w: NDArray
    expected: tuple[NDArray, ...]


def problem(size: int, seed: int) -> Problem:
    """Draw the inputs of one case."""
    rng = np.random.default_rng(seed)
    M, e = rng.uniform(0, 2 * np.pi, size), rng.uniform(0, 0.95, size)
    w = rng.standard_normal(size)
    E = np.where(e < 0.8, M, np.pi)
    for _ in range(30):
        E = E - (E - e * np.sin(E) - M) / (1 - e * np.cos(E))
    slope = w / (1 - e * np.cos(E))
    return Problem(M, e, w, (slope, slope * np.sin(E)))


def as_numpy(gradients: Sequence) -> list[NDArray]:
    """Return gradients of any library as NumPy arrays."""
    return [np.asarray(x) for x in gradients]


def eccentric_anomaly(M, e):
    """Return E of one pair of scalars, exact loop."""
    E = M if e < 0.8 else math.pi
    step = 1.0
    while abs(step) > 1e-10:
        step = (E - e * math.sin(E) - M) / (1.0 - e * math.cos(E))
        E -= step
    return E


def mixad(p: Problem, strategy: str) -> tuple[Call, Unpack]:
    import mixad

    solve, w = mixad.broadcast(strategy=strategy)(eccentric_anomaly), p.w
    gradient = mixad.grad(lambda M, e: (w * solve(M, e)).sum(), argnums=(0, 1))
    return lambda: gradient(p.M, p.e), as_numpy


def fixed_steps(xp, M, e):
    """Return E after a fixed number of steps, in the namespace of an array library."""
    E = xp.where(e < 0.8, M, xp.pi)
    for _ in range(FIXED_STEPS):
        E = E - (E - e * xp.sin(E) - M) / (1 - e * xp.cos(E))
    return E


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    M, e, w = (torch.from_numpy(x) for x in (p.M, p.e, p.w))
    solve = partial(fixed_steps, torch)
    solve = torch.compile(solve, dynamic=False) if compiled else solve

    def call():
        active = [x.detach().requires_grad_() for x in (M, e)]
        return torch.autograd.grad((w * solve(*active)).sum(), active)

    return call, as_numpy


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=False)


def torch_compile(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=True)


def jax_reverse(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()

    def loss(M, e, w):
        def newton(E, _):
            return E - (E - e * jax.numpy.sin(E) - M) / (1 - e * jax.numpy.cos(E)), None

        start = jax.numpy.where(e < 0.8, M, jax.numpy.pi)
        return (w * jax.lax.scan(newton, start, None, length=FIXED_STEPS)[0]).sum()

    return jax_call(p, jax.grad(loss, argnums=(0, 1)))


def jax_forward(p: Problem) -> tuple[Call, Unpack]:
    """Return two pushforwards through the exact loop, mapped over the elements."""
    jax = libraries.jax()
    jnp = jax.numpy

    def solve(M, e):
        def newton(state):
            E, _ = state
            step = (E - e * jnp.sin(E) - M) / (1 - e * jnp.cos(E))
            return E - step, step

        start = jnp.where(e < 0.8, M, jnp.pi), jnp.ones_like(M)
        return jax.lax.while_loop(lambda state: jnp.abs(state[1]) > 1e-10, newton, start)[0]

    def gradients(M, e, w):
        dM = jax.jvp(solve, (M, e), (1.0, 0.0))[1]
        de = jax.jvp(solve, (M, e), (0.0, 1.0))[1]
        return w * dM, w * de

    return jax_call(p, jax.vmap(gradients))


def jax_call(p: Problem, gradients: Callable) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    arrays = [jax.numpy.asarray(x) for x in (p.M, p.e, p.w)]
    compiled = jax.jit(gradients)
    return lambda: jax.block_until_ready(compiled(*arrays)), as_numpy


def drjit_solve(dr, loop: Callable) -> Callable:
    """Return the exact loop on Dr.Jit arrays; ``loop`` is ``dr.while_loop`` with its options."""

    def solve(M, e):
        def newton(E, step, M, e):
            step = (E - e * dr.sin(E) - M) / (1 - e * dr.cos(E))
            return E - step, step, M, e

        start = dr.select(e < 0.8, M, type(M)(math.pi)), type(M)(1.0), M, e
        return loop(start, lambda E, step, M, e: dr.abs(step) > 1e-10, newton)[0]

    return solve


def drjit_forward(p: Problem) -> tuple[Call, Unpack]:
    """Return two pushforwards through the exact loop, fused in one kernel or two by Dr.Jit."""
    dr = libraries.drjit()
    solve = drjit_solve(dr, dr.while_loop)

    def gradients(M, e, w):
        found = []
        for k in range(2):
            active = [type(M)(M), type(M)(e)]
            dr.enable_grad(active[k])
            E = solve(*active)
            dr.forward_from(active[k])
            found.append(w * dr.grad(E))
        return found

    return drjit_call(p, gradients)


def drjit_reverse(p: Problem) -> tuple[Call, Unpack]:
    """Return the gradient through a loop that stores its trajectory, of bounded length."""
    dr = libraries.drjit()
    solve = drjit_solve(dr, partial(dr.while_loop, mode="symbolic", max_iterations=FIXED_STEPS))

    def gradients(M, e, w):
        active = [type(M)(M), type(M)(e)]
        dr.enable_grad(*active)
        dr.backward(dr.sum(w * solve(*active)))
        return [dr.grad(x) for x in active]

    return drjit_call(p, gradients)


def drjit_call(p: Problem, gradients: Callable) -> tuple[Call, Unpack]:
    dr = libraries.drjit()
    from drjit.llvm.ad import Float64

    arrays = [Float64(x) for x in (p.M, p.e, p.w)]
    dr.eval(arrays)

    def call():
        found = gradients(*arrays)
        dr.eval(found)
        dr.sync_thread()
        return found

    return call, as_numpy


def numba_by_hand(p: Problem) -> tuple[Call, Unpack]:
    """Return the exact loop with its two partials carried by hand."""
    numba = libraries.numba()
    prange = numba.prange

    @numba.njit(parallel=True, error_model="numpy")
    def gradients(M, e, w):
        grad_M, grad_e = np.empty_like(M), np.empty_like(e)
        for k in prange(M.size):
            m, ecc = M[k], e[k]
            low = ecc < 0.8
            E, E_M, E_e = (m, 1.0, 0.0) if low else (math.pi, 0.0, 0.0)
            step = 1.0
            while abs(step) > 1e-10:
                s, c = math.sin(E), math.cos(E)
                slope = 1 - ecc * c
                step = (E - ecc * s - m) / slope
                step_M = (slope * E_M - 1 - step * ecc * s * E_M) / slope
                step_e = (slope * E_e - s - step * (ecc * s * E_e - c)) / slope
                E, E_M, E_e = E - step, E_M - step_M, E_e - step_e
            grad_M[k], grad_e[k] = w[k] * E_M, w[k] * E_e
        return grad_M, grad_e

    return lambda: gradients(p.M, p.e, p.w), as_numpy


def warp_cpu(p: Problem) -> tuple[Call, Unpack]:
    wp = libraries.warp()
    from benchmarks.peers.warp_kernels import eccentric_anomaly as kernel

    active = [wp.array(x, requires_grad=True, device="cpu") for x in (p.M, p.e)]
    w = wp.array(p.w, device="cpu")

    def call():
        for x in active:
            x.grad = wp.zeros_like(x, requires_grad=False)
        E = wp.empty(p.M.size, dtype=wp.float64, requires_grad=True, device="cpu")
        with wp.Tape() as tape:
            wp.launch(kernel, p.M.size, active, [E], device="cpu")
        tape.backward(grads={E: w})
        return [x.grad for x in active]

    return call, lambda gradients: [x.numpy() for x in gradients]


def autograd(p: Problem) -> tuple[Call, Unpack]:
    grad = libraries.autograd().grad
    import autograd.numpy as anp

    gradient = grad(lambda active: (p.w * fixed_steps(anp, *active)).sum())
    return lambda: gradient((p.M, p.e)), as_numpy


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(5 * p.M.nbytes)


def copy_torch(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes_torch(5 * p.M.nbytes)


PEERS = {
    "copy of the bytes": copy,
    "copy of the bytes, PyTorch": copy_torch,
    "Dr.Jit forward": drjit_forward,
    "Dr.Jit reverse, stored trajectory": drjit_reverse,
    "torch.compile, fixed steps": torch_compile,
    "Numba, duals by hand": numba_by_hand,
    "PyTorch eager, fixed steps": torch_eager,
    "JAX forward, vmap of jvp": jax_forward,
    "JAX reverse, fixed steps": jax_reverse,
    "Warp (CPU, one thread)": warp_cpu,
    "autograd, fixed steps": autograd,
}
COPIES = (copy, copy_torch)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size."""
    for size in sizes:
        p = problem(size, seed)
        makes = {f"mixad {s}": partial(mixad, strategy=s) for s in STRATEGIES} | PEERS
        yield Case(
            "kepler",
            f"n = {size:,}",
            {
                name: Contender(partial(make, p), () if make in COPIES else p.expected)
                for name, make in makes.items()
            },
            [
                Comparison(f"mixad {strategy}", peer, TARGETS.get(peer))
                for peer in PEERS
                for strategy in STRATEGIES
            ],
            TOLERANCE,
        )
