"""A program that type checkers read, and nobody runs: see `test_types`.

Lines that end in a comment ``wrong`` are those that a checker must report.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, assert_type

import numpy as np
from numpy.typing import NDArray

import mixad


class Tensor:
    """An array of another library."""

    shape: tuple[int, ...] = ()
    dtype: str = ""
    ndim: int = 0

    def sum(self) -> Tensor:
        return self


class Pair(NamedTuple):
    a: float
    b: float


@dataclass
class Parameters:
    w: NDArray[np.float64]
    b: float


Array = NDArray[np.float64]

x: Array = np.ones(3)
narrow: NDArray[np.float32] = np.ones(3, np.float32)
counts: NDArray[np.int64] = np.arange(3)
t = Tensor()


# -- kernels: arrays in, arrays out ----------------------------------------------------------------


@mixad.broadcast
def product(x: float, y: float) -> float:
    return x * y


@mixad.broadcast(chunk=2)
def both(x: float, y: float) -> tuple[float, float]:
    return x + y, x - y


@mixad.broadcast
def bare(x, y):  # type: ignore[no-untyped-def]
    return x * y


@mixad.broadcast
def rotated(z: complex) -> complex:
    return 1j * z


@mixad.broadcast
def paired(x: float) -> Pair:
    return Pair(x, x)


assert_type(product, mixad.BroadcastFunction[float])
assert_type(product(x, x), NDArray[Any])
assert_type(product(counts, narrow), NDArray[Any])
assert_type(product(2.0, y=x), NDArray[Any])
assert_type(product(x, np.float32(2.0)), NDArray[Any])
assert_type(product(t, 2.0), Tensor)
assert_type(product(2.0, t), Tensor)
assert_type(both(x, 2.0), tuple[NDArray[Any], ...])
assert_type(both(t, 2.0), tuple[Tensor, ...])
assert_type(rotated(x), NDArray[Any])
assert_type(product.with_options(chunk=1)(x, x), NDArray[Any])
print(bare(x, x).sum(), paired(x).a.shape, product(2.0, 3.0), product([1.0, 2.0], x))
assert_type(product(t, 2.0), NDArray[Any])  # wrong
both(x, 2.0).sum()  # wrong


# -- gradients: of the type of the argument --------------------------------------------------------


def loss(x: Array, rate: float) -> np.float64:
    return np.float64((x * x).sum() * rate)


def of_tensor(x: Tensor) -> Tensor:
    return x.sum()


def total(p: Parameters) -> float:
    return float(p.w.sum()) * p.b


assert_type(mixad.grad(loss)(x, 2.0), Array)
assert_type(mixad.grad(of_tensor)(t), Tensor)
assert_type(mixad.grad(total)(Parameters(x, 1.0)), Parameters)
assert_type(mixad.grad(lambda x: x * x)(2.0), float)
assert_type(mixad.grad(lambda x: product(x, 2.0).sum())(x), Array)
assert_type(mixad.grad(lambda p: p["w"].sum())({"w": x}), dict[str, Array])
assert_type(mixad.grad(lambda x, y: (x * y).sum())(x, narrow), Array)
assert_type(mixad.grad(mixad.grad(lambda x: x**3))(2.0), float)
assert_type(mixad.grad(loss, argnums=(0, 1))(x, 2.0), tuple[Any, ...])
assert_type(mixad.grad(lambda x: (x.sum(), "aux"), has_aux=True)(x), tuple[Array, Any])
assert_type(mixad.value_and_grad(loss)(x, 2.0), tuple[np.float64, Array])
assert_type(mixad.value_and_grad(of_tensor)(t), tuple[Tensor, Tensor])
assert_type(
    mixad.value_and_grad(lambda x: (x.sum(), "aux"), has_aux=True)(x),
    tuple[tuple[Any, Any], Array],
)
print(mixad.grad(loss, 1)(x, 2.0), mixad.value_and_grad(loss, (0, 1))(x, 2.0))
mixad.grad(loss)(x, "2")  # wrong
mixad.grad(loss)(x)  # wrong
mixad.grad(2.0)  # wrong


# -- pullbacks and tangents ------------------------------------------------------------------------


def squared(x: Array) -> Array:
    return x * x


value, pullback = mixad.vjp(squared, x)
assert_type(value, Array)
assert_type(pullback(x), tuple[Array])
assert_type(mixad.vjp(lambda x, t: t.sum(), x, t)[0], Tensor)
assert_type(mixad.vjp(lambda x, t: t.sum(), x, t)[1](t), tuple[Array, Tensor])
assert_type(mixad.vjp(product, x, narrow)[1](1.0), tuple[Array, NDArray[np.float32]])
assert_type(mixad.vjp(lambda x: (x * x, "aux"), x, has_aux=True)[2], str)
assert_type(mixad.jvp(squared, (x,), (x,)), tuple[Array, Array])
assert_type(mixad.jvp(squared, [x], [x]), tuple[Array, Array])
assert_type(mixad.jvp(lambda t: t.sum(), (t,), (t,)), tuple[Tensor, Tensor])
mixad.vjp(squared, x, x)  # wrong
mixad.jvp(squared, x, x)  # wrong
