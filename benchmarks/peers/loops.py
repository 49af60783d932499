"""Loops of steps and their gradients: a recurrence, a map, a Markov chain, filters, a product.

A program is written once, over a library's functions and its loop, which has the arguments of
`jax.lax.scan`.  "By hand" is the loop and the one back over its steps, with formulas derived by
hand, compiled by Numba; what all others give is compared with it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries, losses
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack
from benchmarks.peers.losses import Problem

SIZES = (10_000,)
"""Steps of the recurrence, the chain and the filter with vectors, and elements of the map."""

SAMPLES, SIDE = 100, 512
"""Samples of the biquad filter for each of those; the largest side of the matrices."""

TOLERANCE = Tolerance(relative=1e-7, scaled=1e-7)
FEW_ROUNDS = 8  # for what takes seconds

BY_HAND, SCAN = "Numba, by hand", "JAX lax.scan"
Maker = Callable[[Problem], tuple[Call, Unpack]]


# -- programs --------------------------------------------------------------------------------------


def recurrence(scan, xp, W, h, xs):
    """Return the sum of squares of all states of a recurrent network."""

    def step(h, x):
        h = xp.tanh(W @ h + x)
        return h, h

    _, hs = scan(step, h, xs)
    return (hs * hs).sum()


def logistic(steps, scan, xp, rate, x):
    """Return the sum of what the logistic map leaves of each element."""
    x, _ = scan(lambda x, _: (rate * x * (1.0 - x), None), x, None, steps)
    return x.sum()


def markov(scan, xp, start, A, B, symbols):
    """Return minus the log likelihood of symbols, states scaled in each step."""

    def step(state, b):
        state = (state @ A) * b
        total = state.sum()
        return state / total, total

    _, totals = scan(step, start, B.T[symbols])
    return -xp.log(totals).sum()


def kalman(inverse, scan, xp, F, H, Q, R, ys):
    """Return half the sum of squared innovations in their norms and of logs of determinants."""

    def step(carry, y):
        m, P = carry
        m, P = F @ m, F @ P @ F.T + Q
        V, log_det = inverse(xp, H @ P @ H.T + R)
        e = y - H @ m
        K = P @ H.T @ V
        return (m + K @ e, P - K @ (H @ P)), e @ (V @ e) + log_det

    n = len(F)
    return 0.5 * scan(step, (xp.zeros(n), xp.eye(n)), ys)[1].sum()


def inverse(xp, S):
    """Return the inverse of a matrix, and the log of its determinant."""
    return xp.linalg.inv(S), xp.linalg.slogdet(S)[1]


def inverse_of_two(xp, S):
    """Return the same of a symmetric matrix (2, 2), by the theorem of Cayley and Hamilton."""
    eye = xp.eye(2)
    trace = (S * eye).sum()
    det = 0.5 * (trace * trace - (S * S).sum())
    return (trace * eye - S) / det, xp.log(det)


def biquad(scan, xp, b, a, xs):
    """Return the energy of a filtered signal, in the second direct form, transposed."""

    def step(state, x):
        s, t = state
        y = b[0] * x + s
        return (b[1] * x - a[0] * y + t, b[2] * x - a[1] * y), y

    zero = 0.0 * b[0]
    _, ys = scan(step, (zero, zero), xs)
    return (ys * ys).sum()


def product(steps, scan, xp, W, h):
    """Return the sum of squares after steps of a product of matrices."""
    h, _ = scan(lambda h, _: (xp.tanh(W @ h), None), h, None, steps)
    return (h * h).sum()


# -- by hand: functions of a compiler that return value and gradients ------------------------------


def recurrence_by_hand(njit):
    @njit
    def both(W, h, xs):
        steps, n = xs.shape
        columns = W.T.copy()
        hs = np.empty((steps + 1, n))
        hs[0] = h
        value = 0.0
        for t in range(steps):
            u = xs[t].copy()
            for k in range(n):
                for i in range(n):
                    u[i] += columns[k, i] * hs[t, k]
            for i in range(n):
                hs[t + 1, i] = np.tanh(u[i])
                value += hs[t + 1, i] ** 2
        of_W, of_xs, of_h = np.zeros_like(W), np.empty_like(xs), np.zeros(n)
        for t in range(steps - 1, -1, -1):
            for i in range(n):
                y = hs[t + 1, i]
                of_xs[t, i] = (of_h[i] + 2.0 * y) * (1.0 - y * y)
            of_h[:] = 0.0
            for i in range(n):
                for k in range(n):
                    of_W[i, k] += of_xs[t, i] * hs[t, k]
                    of_h[k] += W[i, k] * of_xs[t, i]
        return value, (of_W, of_h, of_xs)

    return both


def logistic_by_hand(njit, steps):
    """Return a loop that carries the tangent along: there is one number to differentiate by."""

    @njit
    def both(rate, x):
        x, tangent = x.copy(), np.zeros_like(x)
        for _ in range(steps):
            for i in range(x.size):
                tangent[i] = x[i] * (1.0 - x[i]) + rate * (1.0 - 2.0 * x[i]) * tangent[i]
                x[i] = rate * x[i] * (1.0 - x[i])
        return x.sum(), (tangent.sum(),)

    return both


def _scaled_states(start, A, B, symbols):
    steps, n = symbols.size, start.size
    states, totals = np.zeros((steps + 1, n)), np.zeros(steps)
    states[0] = start
    for t in range(steps):
        for i in range(n):
            for j in range(n):
                states[t + 1, j] += states[t, i] * A[i, j]
        for j in range(n):
            states[t + 1, j] *= B[j, symbols[t]]
            totals[t] += states[t + 1, j]
        for j in range(n):
            states[t + 1, j] /= totals[t]
    return states, totals


def markov_by_hand(njit):
    forward = njit(_scaled_states)

    @njit
    def both(start, A, B, symbols):
        steps, n = symbols.size, start.size
        states, totals = forward(start, A, B, symbols)
        of_A, of_B, of_state = np.zeros_like(A), np.zeros_like(B), np.zeros(n)
        of_next = np.empty(n)
        for t in range(steps - 1, -1, -1):
            along = 0.0
            for j in range(n):
                along += of_state[j] * states[t + 1, j]
            for j in range(n):
                b = B[j, symbols[t]]
                of_scaled = of_state[j] - along - 1.0
                of_B[j, symbols[t]] += of_scaled * states[t + 1, j] / b
                of_next[j] = of_scaled * b / totals[t]
            for i in range(n):
                of_state[i] = 0.0
                for j in range(n):
                    of_A[i, j] += states[t, i] * of_next[j]
                    of_state[i] += A[i, j] * of_next[j]
        return -np.log(totals).sum(), (of_state, of_A, of_B)

    return both


def _times(a, b):
    out = np.zeros((a.shape[0], b.shape[1]))
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            for j in range(b.shape[1]):
                out[i, j] += a[i, k] * b[k, j]
    return out


def _inverse_and_determinant(S):
    det = S[0, 0] * S[1, 1] - S[0, 1] * S[1, 0]
    V = np.empty((2, 2))
    V[0, 0], V[0, 1] = S[1, 1] / det, -S[0, 1] / det
    V[1, 0], V[1, 1] = -S[1, 0] / det, S[0, 0] / det
    return V, det


def kalman_by_hand(njit):
    times, inverse_of = njit(_times), njit(_inverse_and_determinant)

    @njit
    def predicted(F, H, Q, R, m, P, y):
        m, P = times(F, m), times(times(F, P), F.T) + Q
        HP, G = times(H, P), times(P, H.T)
        V, det = inverse_of(times(HP, H.T) + R)
        return m, P, HP, G, V, det, y - times(H, m)

    @njit
    def both(F, H, Q, R, ys):
        steps, n = len(ys), len(F)
        ms, Ps = np.zeros((steps + 1, n, 1)), np.empty((steps + 1, n, n))
        Ps[0] = np.eye(n)
        value = 0.0
        for t in range(steps):
            y = ys[t].copy().reshape(-1, 1)
            m, P, HP, G, V, det, e = predicted(F, H, Q, R, ms[t], Ps[t], y)
            K = times(G, V)
            ms[t + 1] = m + times(K, e)
            Ps[t + 1] = P - times(K, HP)
            value += 0.5 * (times(e.T, times(V, e))[0, 0] + np.log(det))
        of_F, of_H = np.zeros_like(F), np.zeros_like(H)
        of_Q, of_R = np.zeros_like(Q), np.zeros_like(R)
        of_m, of_P = np.zeros((n, 1)), np.zeros((n, n))
        for t in range(steps - 1, -1, -1):
            y = ys[t].copy().reshape(-1, 1)
            m, P, HP, G, V, _, e = predicted(F, H, Q, R, ms[t], Ps[t], y)
            K = times(G, V)
            of_K = times(of_m, e.T) - times(of_P, HP.T)
            of_e = times(K.T, of_m) + 0.5 * times(V + V.T, e)
            of_G = times(of_K, V.T)
            of_V = 0.5 * times(e, e.T) + times(G.T, of_K)
            of_S = 0.5 * V.T - times(times(V.T, of_V), V.T)
            of_HP = times(of_S, H) - times(K.T, of_P)
            of_R += of_S
            of_H += times(of_S.T, HP) + times(of_G.T, P) + times(of_HP, P.T) - times(of_e, m.T)
            of_P = of_P + times(of_G, H) + times(H.T, of_HP)
            of_m = of_m - times(H.T, of_e)
            of_Q += of_P
            FP = times(F, Ps[t])
            of_F += times(of_P.T, FP) + times(times(of_P, F), Ps[t].T) + times(of_m, ms[t].T)
            of_P, of_m = times(times(F.T, of_P), F), times(F.T, of_m)
        return value, (of_F, of_H, of_Q, of_R)

    return both


def biquad_by_hand(njit):
    @njit
    def both(b, a, xs):
        ys, of_xs = np.empty_like(xs), np.empty_like(xs)
        of_b, of_a = np.zeros(3), np.zeros(2)
        s, t, value = 0.0, 0.0, 0.0
        for k in range(xs.size):
            y = b[0] * xs[k] + s
            s, t = b[1] * xs[k] - a[0] * y + t, b[2] * xs[k] - a[1] * y
            ys[k] = y
            value += y * y
        s, t = 0.0, 0.0
        for k in range(xs.size - 1, -1, -1):
            of_y = 2.0 * ys[k] - a[0] * s - a[1] * t
            of_b[0] += of_y * xs[k]
            of_b[1] += s * xs[k]
            of_b[2] += t * xs[k]
            of_a[0] -= s * ys[k]
            of_a[1] -= t * ys[k]
            of_xs[k] = b[0] * of_y + b[1] * s + b[2] * t
            s, t = of_y, s
        return value, (of_b, of_a, of_xs)

    return both


def product_by_hand(W, h, steps):
    """Return value and gradient by NumPy's products."""
    hs = [h]
    for _ in range(steps):
        hs.append(np.tanh(W @ hs[-1]))
    of_W, of_h = np.zeros_like(W), 2.0 * hs[-1]
    for before, after in zip(hs[-2::-1], hs[:0:-1], strict=True):
        of_z = of_h * (1.0 - after * after)
        of_W += of_z @ before.T
        of_h = W.T @ of_z
    return (hs[-1] ** 2).sum(), (of_W,)


# -- contenders ------------------------------------------------------------------------------------


def with_mixad(p: Problem, memory: int | None = None) -> tuple[Call, Unpack]:
    """Return a program over NumPy's functions and mixad's loop."""
    import mixad

    scan = mixad.scan if memory is None else partial(mixad.scan, memory=memory)
    return losses.mixad(_over(scan, p))


def with_jax(p: Problem) -> tuple[Call, Unpack]:
    return losses.jax_jit(_over(libraries.jax().lax.scan, p))


def with_torch(p: Problem) -> tuple[Call, Unpack]:
    """Return a program over PyTorch's functions, its loop in Python."""
    return losses.torch_eager(_over(loop_of_python, p))


def loop_of_python(step, carry, xs, length):
    """Take steps without parts."""
    for _ in range(length):
        carry, _ = step(carry, None)
    return carry, None


def _over(scan: Callable, p: Problem) -> Problem:
    return replace(p, loss=partial(p.loss, scan))


def in_a_kernel(p: Problem, steps: int) -> tuple[Call, Unpack]:
    """Return the logistic map as a kernel with a loop inside."""
    import mixad

    @mixad.broadcast
    def mapped(x, rate):
        for _ in range(steps):
            x = rate * x * (1.0 - x)
        return x

    return losses.mixad(replace(p, loss=lambda xp, rate, x: mapped(x, rate).sum()))


def by_hand(p: Problem, make: Callable[..., Any]) -> tuple[Call, Unpack]:
    function, arguments = _compiled(make), p.arrays + p.constants
    return lambda: function(*arguments), p.unpack


@cache
def _compiled(make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a loop by hand, compiled once for what is expected and what is timed."""
    return make(libraries.numba().njit(error_model="numpy"))


def problem(
    loss: Callable, arrays: Sequence[Any], constants: Sequence[NDArray], make: Callable[..., Any]
) -> Problem:
    """Return a program and what the loops by hand give, compiled where Numba is there."""
    p = Problem(loss, tuple(arrays), (), losses.whole, tuple(constants))
    if importlib.util.find_spec("numba") is None:
        found = make(lambda function: function)(*arrays, *constants)
    else:
        call, _ = by_hand(p, make)
        found = call()
    return replace(p, expected=tuple(p.unpack(found)))


def _case(
    title: str,
    p: Problem,
    makers: Mapping[str, Maker],
    comparisons: Sequence[tuple[str, str, float | None]],
    **options: Any,
) -> Case:
    return Case(
        "loops",
        title,
        {who: Contender(partial(make, p), p.expected) for who, make in makers.items()},
        [
            Comparison(subject, against, None if limit is None else Target(limit))
            for subject, against, limit in comparisons
        ],
        TOLERANCE,
        keeps=(0,),
        **options,
    )


def _with_peers(make: Callable[..., Any]) -> Mapping[str, Maker]:
    return {"mixad": with_mixad, SCAN: with_jax, BY_HAND: partial(by_hand, make=make)}


# -- cases -----------------------------------------------------------------------------------------


def recurrence_case(steps: int, rng: np.random.Generator) -> Case:
    arrays = rng.normal(size=(16, 16)) / 4.0, np.zeros(16), rng.normal(size=(steps, 16))
    return _case(
        f"tanh(W h + x), 16 numbers, {steps:,} steps",
        problem(recurrence, arrays, (), recurrence_by_hand),
        _with_peers(recurrence_by_hand),
        [("mixad", SCAN, 1.0), ("mixad", BY_HAND, 1.0)],
    )


def logistic_case(n: int, rng: np.random.Generator) -> Case:
    steps = max(2, n // 10)
    make = partial(logistic_by_hand, steps=steps)
    few, inside = "mixad, memory for 10 carries", "mixad, loop in a kernel"
    return _case(
        f"logistic map, {n:,} elements, {steps:,} steps, gradient of the rate",
        problem(partial(logistic, steps), (np.float64(2.9),), (rng.uniform(0.1, 0.9, n),), make),
        {
            "mixad": with_mixad,
            few: partial(with_mixad, memory=10 * 8 * n),
            inside: partial(in_a_kernel, steps=steps),
            **_with_peers(make),
        },
        [
            ("mixad", SCAN, 0.1),
            ("mixad", inside, 8.0),
            (few, "mixad", 4.0),
            ("mixad", BY_HAND, None),
        ],
    )


def markov_case(steps: int, rng: np.random.Generator) -> Case:
    start, A, B = (
        each / each.sum(-1, keepdims=True)
        for each in (rng.uniform(0.1, 1.1, shape) for shape in ((8,), (8, 8), (8, 12)))
    )
    symbols = rng.integers(0, 12, steps)
    return _case(
        f"hidden Markov model, 8 states, 12 symbols, {steps:,} steps",
        problem(markov, (start, A, B), (symbols,), markov_by_hand),
        _with_peers(markov_by_hand),
        [("mixad", SCAN, 0.5), ("mixad", BY_HAND, None)],
    )


def kalman_case(steps: int, rng: np.random.Generator) -> Case:
    """Return a point in the plane that drifts: where it is, and how fast, of where it is seen."""
    F, H = 0.99 * (np.eye(4) + 0.1 * np.eye(4, k=2)), np.eye(2, 4)
    arrays = F, H, 0.01 * np.eye(4), 0.1 * np.eye(2)
    p = problem(partial(kalman, inverse), arrays, (rng.normal(size=(steps, 2)),), kalman_by_hand)
    written_out = replace(p, loss=partial(kalman, inverse_of_two))
    ours, theirs = (f"{who}, 2 × 2 written out" for who in ("mixad", SCAN))
    return _case(
        f"Kalman filter, state 4, observation 2, {steps:,} steps",
        p,
        {
            "mixad": with_mixad,
            ours: lambda _: with_mixad(written_out),
            SCAN: with_jax,
            theirs: lambda _: with_jax(written_out),
            BY_HAND: partial(by_hand, make=kalman_by_hand),
        },
        [
            ("mixad", SCAN, 0.5),
            ("mixad", BY_HAND, 1.0),
            (ours, theirs, 0.5),
            (ours, BY_HAND, 1.0),
        ],
        rounds=FEW_ROUNDS,
        lead=0,
    )


def biquad_case(samples: int, rng: np.random.Generator) -> Case:
    arrays = np.array([0.2, 0.3, 0.2]), np.array([-0.5, 0.3]), rng.normal(size=samples)
    return _case(
        f"biquad filter, {samples:,} samples, gradient of coefficients and signal",
        problem(biquad, arrays, (), biquad_by_hand),
        _with_peers(biquad_by_hand),
        [("mixad", SCAN, 0.5), ("mixad", BY_HAND, 1.0)],
    )


def product_case(side: int, steps: int, rng: np.random.Generator) -> Case:
    W, h = rng.normal(size=(side, side)) / np.sqrt(side), rng.normal(size=(side, side))
    return _case(
        f"product of matrices {side}² in each of {steps} steps",
        problem(
            partial(product, steps), (W,), (h,), lambda _: partial(product_by_hand, steps=steps)
        ),
        {"mixad": with_mixad, "PyTorch eager": with_torch},
        [("mixad", "PyTorch eager", 1.05)],
        rounds=FEW_ROUNDS,
        lead=0,
    )


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield every program for each size."""
    for n in sizes:
        rng = np.random.default_rng(seed)
        yield recurrence_case(n, rng)
        yield logistic_case(n, rng)
        yield markov_case(n, rng)
        yield kalman_case(n, rng)
        yield biquad_case(SAMPLES * n, rng)
        yield product_case(min(SIDE, n), max(2, n // 100), rng)
