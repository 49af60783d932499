"""Hessian times vector of Rosenbrock's function of n variables, in float32.

``Σ 100 (x₍ᵢ₊₁₎ − xᵢ²)² + (1 − xᵢ)²``, written as one function of two scalars that is broadcast over
two views of ``x``, shifted by one. The Hessian is tridiagonal; the expected product comes from its
entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import libraries
from benchmarks.peers.harness import (
    Call,
    Case,
    Comparison,
    Contender,
    Target,
    Tolerance,
    UnavailableError,
    Unpack,
)

SIZES = (10_000_000,)
TOLERANCE = Tolerance(relative=1e-4, scaled=1e-5)  # 1200 a² − 400 b cancels
TARGETS = {"JAX jit": Target(0.3), "JAX jit, reverse over reverse": Target(0.3)}


def term(a, b):
    """Return the term of two neighbours."""
    return 100.0 * (b - a * a) * (b - a * a) + (1.0 - a) * (1.0 - a)


@dataclass(frozen=True)
class Problem:
    """The point, the vector, and the product in float64."""

    x: NDArray
    v: NDArray
    expected: tuple[NDArray, ...]


def problem(size: int, seed: int) -> Problem:
    """Draw the inputs of one case."""
    rng = np.random.default_rng(seed)
    x, v = (rng.uniform(-1.5, 1.5, size).astype(np.float32) for _ in range(2))
    a, b = x[:-1].astype(np.float64), x[1:].astype(np.float64)
    product = np.zeros(size)
    product[:-1] = (1200 * a * a - 400 * b + 2) * v[:-1] - 400 * a * v[1:]
    product[1:] += -400 * a * v[:-1] + 200.0 * v[1:]
    return Problem(x, v, (product,))


def as_numpy(product: object) -> list[NDArray]:
    """Return a product of any library as a NumPy array."""
    return [np.asarray(product)]


def rosenbrock(x):
    """Return the function by operators on views of any library's array."""
    return term(x[:-1], x[1:]).sum()


def mixad(p: Problem, decorated: bool) -> tuple[Call, Unpack]:
    import mixad

    kernel = mixad.broadcast(term) if decorated else term
    v = p.v

    def slope(x):
        return (mixad.grad(lambda x: kernel(x[:-1], x[1:]).sum())(x) * v).sum()

    product = mixad.grad(slope)
    return lambda: product(p.x), as_numpy


def torch_compile(p: Problem) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    x, v = torch.from_numpy(p.x), torch.from_numpy(p.v)

    def product(x, v):
        return torch.func.jvp(torch.func.grad(rosenbrock), (x,), (v,))[1]

    compiled = torch.compile(product, dynamic=False)
    return lambda: compiled(x, v), as_numpy


def torch_eager(p: Problem) -> tuple[Call, Unpack]:
    torch = libraries.torch()
    x, v = torch.from_numpy(p.x), torch.from_numpy(p.v)

    def call():
        active = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(rosenbrock(active), active, create_graph=True)
        return torch.autograd.grad(slope, active, v)[0]

    return call, as_numpy


def jax_jit(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    return jax_call(p, lambda x, v: jax.jvp(jax.grad(rosenbrock), (x,), (v,))[1])


def jax_reverse(p: Problem) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    return jax_call(p, lambda x, v: jax.grad(lambda x: jax.grad(rosenbrock)(x) @ v)(x))


def jax_call(p: Problem, product: Callable) -> tuple[Call, Unpack]:
    jax = libraries.jax()
    x, v = jax.numpy.asarray(p.x), jax.numpy.asarray(p.v)
    compiled = jax.jit(product)
    return lambda: jax.block_until_ready(compiled(x, v)), as_numpy


def autograd(p: Problem) -> tuple[Call, Unpack]:
    grad = libraries.autograd().grad
    inner = grad(rosenbrock)
    product = grad(lambda x: (inner(x) * p.v).sum())
    return lambda: product(p.x), as_numpy


def copy(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes(3 * p.x.nbytes)


def copy_torch(p: Problem) -> tuple[Call, Unpack]:
    return libraries.copy_bytes_torch(3 * p.x.nbytes)


def first_order_only(p: Problem) -> tuple[Call, Unpack]:
    raise UnavailableError("no derivative of a derivative")


OURS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "mixad decorated": partial(mixad, decorated=True),
    "mixad": partial(mixad, decorated=False),
}
PEERS: Mapping[str, Callable[[Problem], tuple[Call, Unpack]]] = {
    "copy of the bytes": copy,
    "copy of the bytes, PyTorch": copy_torch,
    "torch.compile": torch_compile,
    "JAX jit": jax_jit,
    "JAX jit, reverse over reverse": jax_reverse,
    "PyTorch eager": torch_eager,
    "autograd": autograd,
    "Dr.Jit": first_order_only,
    "Warp (CPU, one thread)": first_order_only,
}
COPIES = (copy, copy_torch)


def cases(sizes: Sequence[int], seed: int) -> Iterator[Case]:
    """Yield one case per size."""
    for size in sizes:
        p = problem(size, seed)
        yield Case(
            "rosenbrock_hvp",
            f"n = {size:,}",
            {
                name: Contender(partial(make, p), () if make in COPIES else p.expected)
                for name, make in {**OURS, **PEERS}.items()
            },
            [Comparison(name, peer, TARGETS.get(peer)) for peer in PEERS for name in OURS],
            TOLERANCE,
        )
