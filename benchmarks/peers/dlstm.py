"""ADBench's diagonal LSTM: two layers of 14 over a sequence of 1024, value and gradients, float64.

Next to no arithmetic, in a loop of Python: some forty operations on 14 elements each, a thousand
times.  See `adbench` for the objective.  Its source is the same in every library but for

- the logistic function, which is the library's own where there is one;
- JAX jit, where the loop is ``lax.scan``: unrolled, it compiles for minutes;
- torch.compile, which compiles the step of the loop for the same reason;
- "mixad decorated", where a step of both layers is one function of scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import adbench, libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (1024,)
"""Lengths of the sequence; ADBench has one file with two layers."""

TOLERANCE = Tolerance(relative=1e-9, scaled=1e-12)
TARGETS = {"PyTorch eager": Target(0.5)}


@dataclass(frozen=True)
class Problem:
    """The parameters and the sequence; value and gradients by hand."""

    given: adbench.Recurrence
    expected: tuple[NDArray, ...]

    @property
    def constants(self) -> tuple[NDArray, NDArray]:
        return self.given.state, self.given.sequence


def as_numpy(result: tuple) -> list[NDArray]:
    """Return ``(value, gradients)`` of any library as NumPy arrays."""
    value, gradients = result
    return [np.asarray(x) for x in (value, *gradients)]


def logistic(xp, x):
    """Return the logistic function where a library has none of its own."""
    return 1 / (1 + xp.exp(-x))


def mixad_call(p: Problem, predict: adbench.Predict) -> tuple[Call, Unpack]:
    import mixad

    def loss(main, extra):
        return adbench.recurrence_objective(np, predict, main, extra, *p.constants)

    value_and_gradients = mixad.value_and_grad(loss, argnums=(0, 1))
    return lambda: value_and_gradients(*p.given.parameters), as_numpy


def mixad(p: Problem) -> tuple[Call, Unpack]:
    return mixad_call(p, adbench.lstm_prediction(np, partial(logistic, np)))


def mixad_decorated(p: Problem) -> tuple[Call, Unpack]:
    import mixad
    from mixad.special import sigmoid, tanh

    def layer(wf, wi, wo, wc, bf, bi, bo, bc, hidden, cell, x):
        kept = cell * sigmoid(x * wf + bf)
        cell = kept + sigmoid(hidden * wi + bi) * tanh(hidden * wc + bc)
        return sigmoid(x * wo + bo) * tanh(cell), cell

    @mixad.broadcast
    def step(wf, wi, wo, wc, bf, bi, bo, bc,
             vf, vi, vo, vc, af, ai, ao, ac,
             win, wout, bout, h, c, k, m, given):  # fmt: skip
        h, c = layer(wf, wi, wo, wc, bf, bi, bo, bc, h, c, given * win)
        k, m = layer(vf, vi, vo, vc, af, ai, ao, ac, k, m, h)
        return k * wout + bout, h, c, k, m

    def predict(layers, extra, states, given):
        y, h, c, k, m = step(*layers[0], *layers[1], *extra, *states[0], *states[1], given)
        return y, [(h, c), (k, m)]

    return mixad_call(p, predict)


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    """Return the loop, its step compiled or not, with PyTorch's autograd around it."""
    torch = libraries.torch()
    predict = adbench.lstm_prediction(torch, torch.sigmoid)
    predict = torch.compile(predict, dynamic=False) if compiled else predict
    parameters = [torch.from_numpy(x) for x in p.given.parameters]
    constants = [torch.from_numpy(x) for x in p.constants]

    def call():
        active = [x.detach().requires_grad_() for x in parameters]
        value = adbench.recurrence_objective(torch, predict, *active, *constants)
        return value.detach(), torch.autograd.grad(value, active)

    return call, as_numpy


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=False)


def torch_compile_step(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=True)


def jax_scan(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    predict = adbench.lstm_prediction(jax.numpy, jax.nn.sigmoid)
    state, sequence = (jax.numpy.asarray(x) for x in p.constants)

    def loss(main, extra):
        layers = [(*weights, *biases) for weights, biases in main]

        def step(states, element):
            given, wanted = element
            predicted, states = predict(layers, extra, states, given)
            return states, adbench.error(jax.numpy, predicted, wanted)

        first = [(hidden, cell) for hidden, cell in state]
        errors = jax.lax.scan(step, first, (sequence[:-1], sequence[1:]))[1]
        return -errors.mean() / sequence.shape[1]

    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))
    parameters = [jax.numpy.asarray(x) for x in p.given.parameters]
    return lambda: jax.block_until_ready(compiled(*parameters)), as_numpy


def autograd(p: Problem) -> tuple[Call, Unpack]:
    value_and_grad = libraries.autograd().value_and_grad
    import autograd.numpy as anp

    predict = adbench.lstm_prediction(anp, partial(logistic, anp))
    both = value_and_grad(
        lambda active: adbench.recurrence_objective(anp, predict, *active, *p.constants)
    )
    return lambda: both(p.given.parameters), as_numpy


OURS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "mixad": mixad,
    "mixad decorated": mixad_decorated,
}
PEERS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "PyTorch eager": torch_eager,
    "torch.compile, step": torch_compile_step,
    "JAX jit, scan": jax_scan,
    "autograd": autograd,
}


def problem(given: adbench.Recurrence) -> Problem:
    """Return the objective of a sequence; value and gradients by hand."""
    return Problem(given, adbench.recurrence_gradients(given))


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per length."""
    for length in sizes:
        path = adbench.file(f"lstm/lstm_l2_c{length}.txt")
        p = problem(adbench.read_recurrence(path))
        yield Case(
            "dlstm",
            path.stem,
            {n: Contender(partial(make, p), p.expected) for n, make in {**OURS, **PEERS}.items()},
            [Comparison(name, peer, TARGETS.get(peer)) for peer in PEERS for name in OURS],
            TOLERANCE,
            keeps=(0,),
        )
