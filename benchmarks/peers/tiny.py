"""What a gradient costs where there is next to nothing to compute: sum(sin(x) x + exp(−x)) of 8."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import Call, Case, Comparison, Contender, Target, Tolerance, Unpack

SIZES = (8,)
LEAD = 50  # calls before a timed one: a program that takes small gradients takes many
TOLERANCE = Tolerance(relative=1e-12, scaled=1e-12)
TARGETS = {
    "mixad, functions and operators": Target(20e-6),  # NumPy's, which ask the traced value
    "mixad, the namespace": Target(20e-6),  # what `x.__array_namespace__()` has
    "mixad, decorated": Target(20e-6),
}


@dataclass(frozen=True)
class Problem:
    """The array, and the gradient by hand."""

    x: NDArray
    expected: tuple[NDArray, ...]


def problem(size: int, seed: int) -> Problem:
    """Draw the array of one case."""
    x = np.random.default_rng(seed).uniform(0.1, 2.0, size)
    return Problem(x, (np.cos(x) * x + np.sin(x) - np.exp(-x),))


def as_numpy(gradient: object) -> list[NDArray]:
    """Return a gradient of any library as a NumPy array."""
    return [np.asarray(gradient)]


def loss(xp, x):
    """Return the sum, by the functions of a namespace."""
    return (xp.sin(x) * x + xp.exp(-x)).sum()


def mixad(p: Problem) -> tuple[Call, Unpack]:
    import mixad

    gradient = mixad.grad(partial(loss, np))
    return lambda: gradient(p.x), as_numpy


def mixad_namespace(p: Problem) -> tuple[Call, Unpack]:
    import mixad

    gradient = mixad.grad(lambda x: loss(x.__array_namespace__(), x))
    return lambda: gradient(p.x), as_numpy


def mixad_decorated(p: Problem) -> tuple[Call, Unpack]:
    import mixad

    term = mixad.broadcast(lambda x: math.sin(x) * x + math.exp(-x))
    gradient = mixad.grad(lambda x: term(x).sum())
    return lambda: gradient(p.x), as_numpy


def jax_jit(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    x = jax.numpy.asarray(p.x)
    gradient = jax.jit(jax.grad(partial(loss, jax.numpy)))
    return lambda: jax.block_until_ready(gradient(x)), as_numpy


def torch_call(p: Problem, compiled: bool) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    x = torch.from_numpy(p.x)
    f = partial(loss, torch)
    f = torch.compile(f, dynamic=False) if compiled else f

    def call():
        active = x.detach().requires_grad_()
        return torch.autograd.grad(f(active), active)[0]

    return call, as_numpy


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=False)


def torch_compile(p: Problem) -> tuple[Call, Unpack]:
    return torch_call(p, compiled=True)


def autograd(p: Problem) -> tuple[Call, Unpack]:
    grad = libraries.autograd().grad
    import autograd.numpy as anp

    gradient = grad(partial(loss, anp))
    return lambda: gradient(p.x), as_numpy


def drjit(p: Problem) -> tuple[Call, Unpack]:
    dr = libraries.drjit()
    from drjit.llvm.ad import Float64

    x = Float64(p.x)
    dr.eval(x)

    def call():
        active = Float64(x)
        dr.enable_grad(active)
        dr.backward(dr.sum(dr.sin(active) * active + dr.exp(-active)))
        gradient = dr.grad(active)
        dr.eval(gradient)
        dr.sync_thread()
        return gradient

    return call, as_numpy


def warp_cpu(p: Problem) -> tuple[Call, Unpack]:
    wp = libraries.warp()
    from benchmarks.peers.warp_kernels import tiny_term

    x = wp.array(p.x, requires_grad=True, device="cpu")

    def call():
        x.grad = wp.zeros_like(x, requires_grad=False)
        total = wp.zeros(1, dtype=wp.float64, requires_grad=True, device="cpu")
        with wp.Tape() as tape:
            wp.launch(tiny_term, p.x.size, [x], [total], device="cpu")
        tape.backward(total)
        return x.grad

    return call, lambda gradient: [gradient.numpy()]


OURS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "mixad, functions and operators": mixad,
    "mixad, the namespace": mixad_namespace,
    "mixad, decorated": mixad_decorated,
}
PEERS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "JAX jit": jax_jit,
    "PyTorch eager": torch_eager,
    "torch.compile": torch_compile,
    "autograd": autograd,
    "Dr.Jit": drjit,
    "Warp (CPU, one thread)": warp_cpu,
}


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size."""
    for size in sizes:
        p = problem(size, seed)
        yield Case(
            "tiny",
            f"n = {size}",
            {n: Contender(partial(make, p), p.expected) for n, make in {**OURS, **PEERS}.items()},
            [
                *(Comparison(name, None, TARGETS[name]) for name in OURS),
                *(Comparison(name, peer) for peer in PEERS for name in OURS),
            ],
            TOLERANCE,
            keeps=(0,),
            lead=LEAD,
        )
