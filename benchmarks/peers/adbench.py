"""ADBench's objectives of a Gaussian mixture and of a diagonal LSTM, and readers of its inputs.

Srajer, Kukelova and Fitzgibbon, "A benchmark of selected algorithmic differentiation tools on some
problems in computer vision and machine learning" (2018), §3 and §4.  Each objective is written once
over a namespace that has NumPy's functions; the gradients by hand are what results are checked
against.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.harness import UnavailableError

FOLDER = "ADBENCH_DIR"
BESIDE = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "adbench"


def file(name: str) -> Path:
    """Return an input of ADBench, from the folder that ``ADBENCH_DIR`` names.

    Raises
    ------
    UnavailableError
        If there is none.
    """
    path = Path(os.environ.get(FOLDER, BESIDE)) / name
    if not path.is_file():
        raise UnavailableError(f"{name} is not there: set {FOLDER} to the folder of ADBench's data")
    return path


# --- the mixture


@dataclass(frozen=True)
class Mixture:
    """Points, the parameters of a mixture of Gaussians, and its prior.

    Parameters
    ----------
    alphas : ndarray
        Logarithms of the weights, of shape (k,), up to a constant.
    means : ndarray
        Of shape (k, d).
    icf : ndarray
        Inverse factors of the covariances, of shape (k, d + d (d − 1)/2): the logarithms of the
        diagonal, then the columns below it.
    x : ndarray
        Points, of shape (n, d).
    gamma, m : float
        Of the Wishart prior.
    """

    alphas: NDArray
    means: NDArray
    icf: NDArray
    x: NDArray
    gamma: float
    m: int

    @property
    def parameters(self) -> tuple[NDArray, NDArray, NDArray]:
        """What the objective is differentiated with respect to."""
        return self.alphas, self.means, self.icf


def read_mixture(path: Path) -> Mixture:
    """Read one of ADBench's files ``gmm_d*_K*.txt``."""
    lines = iter(path.read_text().splitlines())
    d, k, n = map(int, next(lines).split())
    alphas, means, icf, x = (_rows(lines, count) for count in (k, k, k, n))
    gamma, m = next(lines).split()
    return Mixture(alphas[:, 0], means.reshape(k, d), icf, x, float(gamma), int(m))


def draw_mixture(d: int, k: int, n: int, rng: np.random.Generator) -> Mixture:
    """Draw a mixture and points."""
    alphas, means, x = (rng.standard_normal(shape) for shape in ((k,), (k, d), (n, d)))
    icf = 0.5 * rng.standard_normal((k, d + d * (d - 1) // 2))
    return Mixture(alphas, means, icf, x, 1.3, 2)


def _rows(lines: Iterator[str], count: int) -> NDArray:
    return np.array([[float(word) for word in next(lines).split()] for _ in range(count)])


def triangle(d: int) -> tuple[NDArray, NDArray]:
    """Return where the elements above the diagonal of a transposed factor are in ``icf``.

    Returns
    -------
    places : ndarray of int
        Of shape (d, d); any place elsewhere.
    above : ndarray
        Ones above the diagonal, zeros elsewhere.
    """
    places = np.zeros((d, d), np.int64)
    places[np.triu_indices(d, 1)] = d + np.arange(d * (d - 1) // 2)
    return places, np.triu(np.ones((d, d)), 1)


def mixture_objective(xp, alphas, means, icf, x, places, above, gamma: float, m: int):
    """Return the logarithm of the posterior of a mixture, up to what does not depend on it.

    Parameters
    ----------
    xp : module
        With NumPy's functions.
    alphas, means, icf, x, gamma, m
        As in `Mixture`.
    places, above : array
        What `triangle` returns.
    """
    n, d = x.shape
    logs = icf[:, :d]
    sums = logs.sum(1)
    diagonals = xp.exp(logs)
    factors = icf[:, places] * above
    centred = x - means[:, None, :]
    scaled = diagonals[:, None, :] * centred + centred @ factors
    inner = (alphas + sums)[:, None] - 0.5 * (scaled * scaled).sum(2)
    likelihood = logsumexp(xp, inner).sum() - n * logsumexp(xp, alphas)
    below = icf[:, d:]
    prior = (diagonals * diagonals).sum() + (below * below).sum()
    penalty = 0.5 * gamma * gamma * prior - m * sums.sum()
    return likelihood + penalty + constant(n, d, means.shape[0], gamma, m)


def logsumexp(xp, x):
    """Return the logarithm of the sum of exponentials over the first axis."""
    largest = xp.amax(x, 0)
    return xp.log(xp.exp(x - largest).sum(0)) + largest


def constant(n: int, d: int, k: int, gamma: float, m: int) -> float:
    """Return the part of the objective that depends on shapes and prior alone."""
    degrees = d + m + 1
    gammas = 0.25 * d * (d - 1) * math.log(math.pi) + sum(
        math.lgamma(0.5 * (degrees - j)) for j in range(d)
    )
    wishart = degrees * d * (math.log(gamma) - 0.5 * math.log(2)) - gammas
    return -0.5 * n * d * math.log(2 * math.pi) - k * wishart


def mixture_gradients(p: Mixture) -> tuple[NDArray, ...]:
    """Return the objective and its gradients, derived by hand, one Gaussian after the other."""
    (n, d), places = p.x.shape, triangle(p.x.shape[1])[0]
    upper = np.triu_indices(d, 1)
    logs, sums = p.icf[:, :d], p.icf[:, :d].sum(1)
    factors, scaled, inner = [], [], []
    for alpha, mean, icf, total in zip(p.alphas, p.means, p.icf, sums, strict=True):
        factor = np.diag(np.exp(icf[:d]))
        factor[upper] = icf[places[upper]]
        factors.append(factor)
        scaled.append((p.x - mean) @ factor)
        inner.append(alpha + total - 0.5 * (scaled[-1] ** 2).sum(1))
    likelihood = np.logaddexp.reduce(inner, axis=0)
    weights = np.exp(inner - likelihood)  # (k, n): how much of a point a Gaussian explains
    prior = (np.exp(logs) ** 2).sum() + (p.icf[:, d:] ** 2).sum()
    value = likelihood.sum() - n * np.logaddexp.reduce(p.alphas)
    value += 0.5 * p.gamma**2 * prior - p.m * sums.sum()
    value += constant(n, d, len(p.alphas), p.gamma, p.m)
    d_alphas = weights.sum(1) - n * np.exp(p.alphas - np.logaddexp.reduce(p.alphas))
    d_means, d_icf = np.empty_like(p.means), np.empty_like(p.icf)
    for at, (factor, y, w) in enumerate(zip(factors, scaled, weights, strict=True)):
        d_means[at] = factor @ (w @ y)
        d_factor = -(p.x - p.means[at]).T @ (w[:, None] * y)
        d_icf[at, :d] = np.diag(d_factor) * np.diag(factor) + w.sum()
        d_icf[at, :d] += p.gamma**2 * np.diag(factor) ** 2 - p.m
        d_icf[at, d:] = d_factor[upper] + p.gamma**2 * p.icf[at, d:]
    return np.asarray(value), d_alphas, d_means, d_icf


# --- the LSTM


@dataclass(frozen=True)
class Recurrence:
    """A sequence, and the parameters and first states of a diagonal LSTM.

    Parameters
    ----------
    main : ndarray
        Of shape (layers, 2, 4, b): of each layer weights and biases of the gates forget, input,
        output and change.
    extra : ndarray
        Of shape (3, b): weights of the input, weights and bias of the prediction.
    state : ndarray
        Of shape (layers, 2, b): hidden state and cell of each layer.
    sequence : ndarray
        Of shape (c, b).
    """

    main: NDArray
    extra: NDArray
    state: NDArray
    sequence: NDArray

    @property
    def parameters(self) -> tuple[NDArray, NDArray]:
        """What the objective is differentiated with respect to."""
        return self.main, self.extra


def read_recurrence(path: Path) -> Recurrence:
    """Read one of ADBench's files ``lstm_l*_c*.txt``."""
    lines = (line for line in path.read_text().splitlines() if line.strip())
    layers, c, b = map(int, next(lines).split())
    main, extra, state, sequence = (_rows(lines, n) for n in (2 * layers, 3, 2 * layers, c))
    return Recurrence(main.reshape(layers, 2, 4, b), extra, state.reshape(layers, 2, b), sequence)


def draw_recurrence(layers: int, c: int, b: int, rng: np.random.Generator) -> Recurrence:
    """Draw parameters and a sequence."""
    shapes = (layers, 2, 4, b), (3, b), (layers, 2, b), (c, b)
    return Recurrence(*(rng.uniform(-1, 1, shape) for shape in shapes))


Predict = Callable[..., tuple]


def lstm_prediction(xp, sigmoid: Callable) -> Predict:
    """Return the prediction from one element of a sequence, by the functions of a library.

    It takes weights and biases of all gates for each layer, the extra weights and bias, hidden
    state and cell for each layer, and an element; it returns the prediction and the new states.
    """

    def predict(layers, extra, states, given):
        x, new = given * extra[0], []
        for (wf, wi, wo, wc, bf, bi, bo, bc), (hidden, cell) in zip(layers, states, strict=True):
            forget = sigmoid(x * wf + bf)
            ingate = sigmoid(hidden * wi + bi)
            outgate = sigmoid(x * wo + bo)
            change = xp.tanh(hidden * wc + bc)
            cell = cell * forget + ingate * change
            x = outgate * xp.tanh(cell)
            new.append((x, cell))
        return x * extra[1] + extra[2], new

    return predict


def recurrence_objective(xp, predict: Predict, main, extra, state, sequence):
    """Return the mean error of the predictions of all elements but the first.

    Parameters
    ----------
    xp : module
        With NumPy's functions.
    predict : callable
        See `lstm_prediction`.
    main, extra, state, sequence
        As in `Recurrence`.
    """
    layers = [[layer[i, j] for i in range(2) for j in range(4)] for layer in main]
    states = [(layer[0], layer[1]) for layer in state]
    extra = (extra[0], extra[1], extra[2])
    total = 0.0
    for given, wanted in itertools.pairwise(sequence):
        predicted, states = predict(layers, extra, states, given)
        total = total + error(xp, predicted, wanted)
    return -total / ((len(sequence) - 1) * sequence.shape[1])


def error(xp, predicted, wanted):
    """Return minus the error of one prediction; ADBench has log(2 + Σ exp)."""
    return (wanted * (predicted - xp.log(2 + xp.exp(predicted).sum()))).sum()


def recurrence_gradients(p: Recurrence) -> tuple[NDArray, ...]:
    """Return the objective and its gradients, carried back by hand."""
    steps, states, value = [], [list(layer) for layer in p.state], 0.0
    for given, wanted in itertools.pairwise(p.sequence):
        x, tape = given * p.extra[0], []
        for (w, b), state in zip(p.main, states, strict=True):
            f, i, o = (_sigmoid(a * w[g] + b[g]) for g, a in ((0, x), (1, state[0]), (2, x)))
            g = np.tanh(state[0] * w[3] + b[3])
            t = np.tanh(state[1] * f + i * g)
            tape.append((x, *state, f, i, o, g, t))
            state[:] = o * t, state[1] * f + i * g
            x = state[0]
        y = x * p.extra[1] + p.extra[2]
        value -= (wanted * (y - np.log(2 + np.exp(y).sum()))).sum()
        dy = wanted.sum() * np.exp(y) / (2 + np.exp(y).sum()) - wanted
        steps.append((given, x, dy, tape))
    d_main, d_extra, d_state = (np.zeros_like(a) for a in (p.main, p.extra, p.state))
    for given, last, dy, tape in reversed(steps):
        d_extra += [np.zeros_like(dy), dy * last, dy]
        dx = dy * p.extra[1]
        for at in reversed(range(len(p.main))):
            x, h, c, f, i, o, g, t = tape[at]
            w = p.main[at, 0]
            dh = dx + d_state[at, 0]
            dc = d_state[at, 1] + dh * o * (1 - t * t)
            slopes = dc * c * f * (1 - f), dc * g * i * (1 - i), dh * t * o * (1 - o)
            gates = np.array([*slopes, dc * i * (1 - g * g)])
            d_main[at] += gates * [x, h, x, h], gates
            d_state[at] = gates[1] * w[1] + gates[3] * w[3], dc * f
            dx = gates[0] * w[0] + gates[2] * w[2]
        d_extra[0] += dx * given
    count = (len(p.sequence) - 1) * p.sequence.shape[1]
    return np.asarray(value) / count, d_main / count, d_extra / count


def _sigmoid(x: NDArray) -> NDArray:
    return 1 / (1 + np.exp(-x))
