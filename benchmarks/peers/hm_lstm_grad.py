"""The HM-LSTM cell between array operations: ``mixad.grad`` of ``((cell @ W) ** 2).sum()``.

Nothing hands the cell its cotangent here: the tape does, after the matrix product. What the cell
itself takes, forward and backward, is the whole gradient less the same gradient from the cell's
value on (``((h @ W) ** 2).sum()`` with respect to ``h``), round by round. ``W`` has few columns, so
that this difference is not lost in the time of a matrix product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import hm_lstm, libraries
from benchmarks.peers.harness import (
    Call,
    Case,
    Comparison,
    Contender,
    Target,
    Times,
    Tolerance,
    UnavailableError,
    Unpack,
)

SIZES = hm_lstm.SIZES
COLUMNS = 16
TOLERANCE = Tolerance(relative=1e-4, scaled=2e-5)  # sums of n float32 terms
TARGETS = {"value_and_vjp of the cell": Target(1.5)}


@dataclass(frozen=True)
class Problem:
    """The cell's inputs, the weights, and the gradients in float64."""

    cell: hm_lstm.Problem
    weights: NDArray
    value: NDArray  # of the cell, in float32
    expected: tuple[NDArray, ...]  # gradients of c, f, i, g
    value_gradient: NDArray  # of the cell's value


def problem(size: int, control_shape: tuple[int, ...], seed: int) -> Problem:
    """Draw the inputs of one case."""
    cell = hm_lstm.problem(size, control_shape, seed)
    rng = np.random.default_rng(seed + 1)
    weights = rng.standard_normal((size, COLUMNS), dtype=np.float32) / np.float32(np.sqrt(size))
    wide = weights.astype(np.float64)
    value = cell.expected[0]
    cotangent = 2 * (value @ wide) @ wide.T
    gradients = hm_lstm.value_and_gradients(cell.z, cell.zb, cell.states, cotangent)[1:]
    return Problem(cell, weights, value.astype(np.float32), gradients, cotangent)


def as_numpy(gradients: Sequence) -> list[NDArray]:
    """Return gradients of any library as NumPy arrays."""
    return [np.asarray(x) for x in gradients]


def mixad(p: Problem, strategy: str) -> tuple[Call, Unpack]:
    import mixad

    cell_update = hm_lstm.mixad_cell(strategy)
    z, zb, weights = p.cell.z, p.cell.zb, p.weights
    gradient = mixad.grad(
        lambda c, f, i, g: ((cell_update(z, zb, c, f, i, g) @ weights) ** 2).sum(),
        argnums=(0, 1, 2, 3),
    )
    return lambda: gradient(*p.cell.states), as_numpy


def mixad_without_cell(p: Problem) -> tuple[Call, Unpack]:
    import mixad

    weights = p.weights
    gradient = mixad.grad(lambda h: ((h @ weights) ** 2).sum())
    return lambda: gradient(p.value), lambda result: [np.asarray(result)]


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    control, states, _ = hm_lstm.torch_tensors(p.cell)
    weights = torch.from_numpy(p.weights)

    def loss(z, zb, c, f, i, g):
        return ((hm_lstm.torch_cell(z, zb, c, f, i, g) @ weights) ** 2).sum()

    loss = torch.compile(loss, dynamic=False) if compiled else loss

    def call():
        active = [x.detach().requires_grad_() for x in states]
        return torch.autograd.grad(loss(*control, *active), active)

    return call, as_numpy


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=False)


def torch_compile(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=True)


def jax_jit(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    z, zb, weights = (jax.numpy.asarray(x) for x in (p.cell.z, p.cell.zb, p.weights))
    states = [jax.numpy.asarray(x) for x in p.cell.states]

    def loss(z, zb, weights, *states):
        return ((hm_lstm.jax_cell(z, zb, *states) @ weights) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(3, 4, 5, 6)))
    return lambda: jax.block_until_ready(gradient(z, zb, weights, *states)), as_numpy


def drjit(p: Problem) -> tuple[Call, Unpack]:
    dr = libraries.drjit()
    from drjit.llvm.ad import TensorXf

    z, zb, *states, weights = (TensorXf(x) for x in (*p.cell.control, *p.cell.states, p.weights))
    dr.eval(z, zb, states, weights)

    def call():
        active = [TensorXf(x) for x in states]
        dr.enable_grad(*active)
        dr.backward(dr.sum((hm_lstm.drjit_cell(z, zb, *active) @ weights) ** 2))
        gradients = [dr.grad(x) for x in active]
        dr.eval(gradients)
        dr.sync_thread()
        return gradients

    return call, as_numpy


def warp_cpu(p: Problem) -> tuple[Call, Unpack]:
    libraries.warp()
    raise UnavailableError("no differentiable product of whole matrices")


def autograd(p: Problem) -> tuple[Call, Unpack]:
    grad = libraries.autograd().grad
    z, zb, weights = p.cell.z, p.cell.zb, p.weights
    gradient = grad(lambda s: ((hm_lstm.autograd_cell(z, zb, *s) @ weights) ** 2).sum())
    return lambda: gradient(p.cell.states), as_numpy


PEERS = {
    "Dr.Jit": drjit,
    "torch.compile": torch_compile,
    "JAX jit": jax_jit,
    "PyTorch eager": torch_eager,
    "Warp (CPU, one thread)": warp_cpu,
    "autograd": autograd,
}


def contenders(p: Problem) -> Mapping[str, Contender]:
    """Return mixad with each strategy, its parts, and the peers."""
    found: dict[str, Contender] = {}
    for strategy in hm_lstm.STRATEGIES:
        found[f"mixad {strategy}"] = Contender(partial(mixad, p, strategy), p.expected)
        found[f"mixad {strategy}, value_and_vjp of the cell"] = Contender(
            partial(hm_lstm.mixad, p.cell, strategy), p.cell.expected
        )
    found["mixad, from the cell's value on"] = Contender(
        partial(mixad_without_cell, p), (p.value_gradient,)
    )
    for name, make in PEERS.items():
        found[name] = Contender(partial(make, p), p.expected)
    return found


def cell_share(times: Times, strategy: str) -> NDArray[np.float64]:
    """Return what the cell takes of the whole gradient, round by round."""
    return times[f"mixad {strategy}"] - times["mixad, from the cell's value on"]


def comparisons() -> Iterator[Comparison]:
    """Yield the cell's share over value_and_vjp, and the whole over each peer."""
    for strategy in hm_lstm.STRATEGIES:
        yield Comparison(
            f"mixad {strategy}, share of the cell",
            f"mixad {strategy}, value_and_vjp of the cell",
            TARGETS["value_and_vjp of the cell"],
        )
    for peer in PEERS:
        for strategy in hm_lstm.STRATEGIES:
            yield Comparison(f"mixad {strategy}", peer)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size, with control values that vary along the contiguous axis."""
    for size in sizes:
        p = problem(size, (size,), seed)
        yield Case(
            "hm_lstm_grad",
            f"{size}², z of shape (n,), W of shape (n, {COLUMNS})",
            contenders(p),
            list(comparisons()),
            TOLERANCE,
            {
                f"mixad {strategy}, share of the cell": partial(cell_share, strategy=strategy)
                for strategy in hm_lstm.STRATEGIES
            },
        )
