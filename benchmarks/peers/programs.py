"""Programs of small arrays, written in Python: what stands between kernels is what they cost.

A Kalman filter by a loop, two posteriors that Hamiltonian Monte Carlo differentiates, a perceptron
with one hidden layer, and the wave equation by shifted arrays.  Expected derivatives come from
complex steps through the same formulas (Squire and Trapp, 1998), those of the perceptron from
formulas by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries, losses
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (1_000, 9_000, 40_000)
"""Steps of the Kalman filter; the other programs have one size."""

TOLERANCE = Tolerance(relative=1e-8, scaled=1e-9)
IN_SINGLE = Tolerance(relative=1e-3, scaled=1e-4)
_STEP = 1e-30
"""Of complex steps: nothing cancels, so that it can be as small as this."""


def kalman(xp, p, ys):
    """Return the log likelihood of a local level that decays, of a, q and r."""
    a, q, r = p[0], p[1], p[2]
    m, P, total = 0.0 * a, 1.0 + 0.0 * a, 0.0 * a
    for y in ys:
        m, P = a * m, P * a * a + q
        S = P + r
        e = y - m
        total = total - 0.5 * (e * e / S + xp.log(S))
        K = P / S
        m, P = m + K * e, (1.0 - K) * P
    return total


def eight_schools(xp, p, y, s):
    """Return the log posterior of Rubin's eight schools, not centred: mu, log tau, theta."""
    mu, log_tau, z = p[0], p[1], p[2:]
    theta = mu + xp.exp(log_tau) * z
    a, b = mu / 5.0, (y - theta) / s
    prior = -0.5 * (a * a) - 0.5 * (z * z).sum() + log_tau
    return prior - 0.5 * (b * b).sum() - xp.log(1.0 + xp.exp(2.0 * log_tau) / 25.0)


def logistic(xp, w, X, y):
    """Return the log posterior of a regression on labels 0 and 1."""
    scores = X @ w
    return (y * scores - xp.log1p(xp.exp(scores))).sum() - 0.5 * (w * w).sum()


def perceptron(xp, W, b, V, c, x, labels):
    """Return the cross entropy of a batch; the labels are one-hot."""
    hidden = xp.tanh(x @ W + b)
    scores = hidden @ V + c
    total = xp.log(xp.exp(scores).sum(1))
    return (total - (scores * labels).sum(1)).mean()


def wave(xp, u, steps: int = 1000):
    """Return a sum over a wave on a torus after some steps of the leapfrog scheme."""
    before, now = u, u
    for _ in range(steps):
        before, now = now, _following(xp, before, now)
    return (now * now).sum()


def _following(xp, before, now):
    around = xp.roll(now, 1, 0) + xp.roll(now, -1, 0) + xp.roll(now, 1, 1) + xp.roll(now, -1, 1)
    return 2.0 * now - before + 0.2 * (around - 4.0 * now)


def wave_by_scan(p: losses.Problem) -> tuple[Call, Unpack]:
    """Return the wave by JAX's loop, compiled as one."""
    jax = libraries.jax()

    def loss(u):
        def step(carry, _):
            before, now = carry
            return (now, _following(jax.numpy, before, now)), None

        (_, now), _ = jax.lax.scan(step, (u, u), None, length=1000)
        return (now * now).sum()

    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0,)))
    u = jax.numpy.asarray(p.arrays[0])
    return lambda: jax.block_until_ready(compiled(u)), p.unpack


def mixad_tensors(p: losses.Problem) -> tuple[Call, Unpack]:
    """Return the loss as a user of PyTorch writes it."""
    import mixad

    torch = libraries.torch()
    tensors = [torch.from_numpy(x) for x in p.arrays]
    loss = p.of(torch, torch.from_numpy)
    value_and_gradients = mixad.value_and_grad(loss, argnums=p.argnums)
    return lambda: value_and_gradients(*tensors), p.unpack


def by_complex_steps(
    loss: Callable[..., NDArray], x: NDArray, places: Sequence[int], *constants: NDArray
) -> tuple[NDArray, NDArray]:
    """Return the value of a loss, and its derivatives with respect to some elements."""
    found = []
    for place in places:
        moved = x.astype(complex)
        moved.reshape(-1)[place] += 1j * _STEP
        found.append(loss(np, moved, *constants).imag / _STEP)
    return np.asarray(loss(np, x, *constants)), np.asarray(found)


def _of_one(
    loss: Callable[..., NDArray], x: NDArray, *constants: NDArray, step: int = 1
) -> losses.Problem:
    expected = by_complex_steps(loss, x, range(0, x.size, step), *constants)
    return losses.Problem(loss, (x,), expected, losses.every(step), constants)


def kalman_problem(steps: int, seed: int) -> losses.Problem:
    """Draw what is observed; it is a list of numbers, as a loop reads it."""
    ys = np.random.default_rng(seed).normal(size=steps).tolist()
    return _of_one(partial(_with, kalman, ys), np.array([0.9, 0.5, 0.3]))


def _with(loss: Callable, constant, xp, *arrays):
    return loss(xp, *arrays, constant)


def schools_problem(seed: int) -> losses.Problem:
    """Return the data of the eight schools, and a place to differentiate at."""
    y = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    s = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
    return _of_one(eight_schools, np.random.default_rng(seed).normal(size=10), y, s)


def logistic_problem(seed: int) -> losses.Problem:
    """Draw a regression of 200 observations on 10 numbers each."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(200, 10)), rng.integers(0, 2, 200).astype(float)
    return _of_one(logistic, rng.normal(size=10), X, y)


def perceptron_problem(seed: int) -> losses.Problem:
    """Draw a batch of 128 with 784 numbers each, 128 hidden units and 10 labels, in float32."""
    rng = np.random.default_rng(seed)
    shapes = (784, 128), (128,), (128, 10), (10,)
    arrays = tuple(rng.normal(0, 0.05, shape).astype(np.float32) for shape in shapes)
    x = rng.normal(size=(128, 784)).astype(np.float32)
    labels = np.eye(10, dtype=np.float32)[rng.integers(0, 10, 128)]
    W, b, V, c, x64, l64 = losses.in_double((*arrays, x, labels))
    hidden = np.tanh(x64 @ W + b)
    scores = hidden @ V + c
    slope = (np.exp(scores) / np.exp(scores).sum(1, keepdims=True) - l64) / len(x64)
    inner = (slope @ V.T) * (1.0 - hidden * hidden)
    expected = (
        np.asarray(perceptron(np, W, b, V, c, x64, l64)),
        *(x64.T @ inner, inner.sum(0), hidden.T @ slope, slope.sum(0)),
    )
    return losses.Problem(perceptron, arrays, expected, losses.whole, (x, labels))


def wave_problem(seed: int) -> losses.Problem:
    """Draw where a wave on 128² begins; three of its derivatives are compared."""
    u = np.random.default_rng(seed).normal(size=(128, 128))
    return _of_one(wave, u, step=6000)


OURS: Mapping[str, Callable[[losses.Problem], tuple[Call, Unpack]]] = {
    "mixad": losses.mixad,
    "mixad, tensors": mixad_tensors,
}
EAGER: Mapping[str, Callable[[losses.Problem], tuple[Call, Unpack]]] = {
    "PyTorch eager": losses.torch_eager,
    "autograd": losses.autograd,
}
COMPILED = {"JAX jit": losses.jax_jit, **EAGER}


def _case(
    title: str,
    p: losses.Problem,
    peers: Mapping[str, Callable[[losses.Problem], tuple[Call, Unpack]]],
    targets: Mapping[str, float],
    ours: Sequence[str] = ("mixad",),
    tolerance: Tolerance = TOLERANCE,
) -> Case:
    makers = {**{name: OURS[name] for name in ours}, **peers}
    comparisons = [
        Comparison(name, peer, Target(targets[peer]) if peer in targets else None)
        for peer in peers
        for name in ours
    ]
    contenders = {n: Contender(partial(make, p), p.expected) for n, make in makers.items()}
    return Case("programs", title, contenders, comparisons, tolerance, keeps=(0,))


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield the filter for each number of steps, then the other programs."""
    for steps in sizes:
        p = kalman_problem(steps, seed)
        yield _case(f"Kalman filter, {steps:,} steps", p, EAGER, {"PyTorch eager": 0.25})
    of_posteriors = {"JAX jit": 5.0, "autograd": 0.1}, {"JAX jit": 3.0, "autograd": 0.25}
    many = partial(replace, lead=50)  # a sampler takes many gradients one after another
    yield many(_case("eight schools", schools_problem(seed), COMPILED, of_posteriors[0]))
    yield many(_case("logistic regression", logistic_problem(seed), COMPILED, of_posteriors[1]))
    yield _case(
        "perceptron, float32",
        perceptron_problem(seed),
        COMPILED,
        {"PyTorch eager": 1.2},
        tuple(OURS),
        IN_SINGLE,
    )
    by_scan = {"JAX scan": wave_by_scan}
    yield _case("wave equation, 128²", wave_problem(seed), by_scan, {"JAX scan": 0.7})
