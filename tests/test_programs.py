"""Small programs as users write them, on every library; gradients are those of torch's autograd.

Constants stand on the right of traced values, and indices name all axes: array_api_strict asks for
it.  No step is negative: torch has none.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.special import exp, log, sigmoid, softplus, sqrt, tanh

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]


# -- kernels, and what they are in torch ---------------------------------------------------------


def _torch() -> Any:
    import torch

    return torch


@dataclass(frozen=True)
class Kernel:
    """A scalar function, and the same as operations on tensors."""

    function: Callable[..., Any]
    tensors: Callable[..., Any]

    def __call__(self, *args: Any) -> Any:
        if any(isinstance(a, _torch().Tensor) and a.requires_grad for a in args):
            return self.tensors(*args)
        return mixad.broadcast(self.function)(*args)


def kernel(tensors: Callable[..., Any]) -> Callable[[Callable[..., Any]], Kernel]:
    return lambda function: Kernel(function, tensors)


@kernel(lambda x: _torch().exp(x))
def exponential(x):
    return exp(x)


@kernel(lambda x: _torch().log(x))
def logarithm(x):
    return log(x)


@kernel(lambda x: _torch().sqrt(x))
def root(x):
    return sqrt(x)


@kernel(lambda x: _torch().tanh(x))
def hyperbolic(x):
    return tanh(x)


@kernel(lambda x: _torch().relu(x))
def rectified(x):
    return x if x > 0 else 0.0


@kernel(lambda z, y: _torch().nn.functional.softplus(z) - y * z)
def logistic_loss(z, y):
    return softplus(z) - y * z


@kernel(lambda r, d: _torch().where(r.abs() <= d, 0.5 * r * r, d * (r.abs() - 0.5 * d)))
def huber(r, d):
    if abs(r) <= d:
        return 0.5 * r * r
    return d * (abs(r) - 0.5 * d)


@kernel(lambda i, f, g, o, c: _lstm_in_torch(i, f, g, o, c))
def lstm_cell(i, f, g, o, c):
    new = sigmoid(f) * c + sigmoid(i) * tanh(g)
    return new, sigmoid(o) * tanh(new)


def _lstm_in_torch(i: Any, f: Any, g: Any, o: Any, c: Any) -> Any:
    torch = _torch()
    new = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return new, torch.sigmoid(o) * torch.tanh(new)


def _newton(x):
    y = x
    for _ in range(6):
        y = 0.5 * (y + x / y)
    return y


root_by_newton = Kernel(_newton, _newton)


def _power_series(x, n):
    total, term = 0.0, 1.0
    for k in range(n):
        total += term
        term *= x / (k + 1)
    return total


power_series = Kernel(_power_series, _power_series)


# -- data ----------------------------------------------------------------------------------------

RNG = np.random.default_rng(7)


def normal(*shape: int) -> Any:
    return RNG.standard_normal(shape)


class Layer(NamedTuple):
    weight: Any
    bias: Any


@dataclass
class Gaussian:
    mean: Any
    deviation: Any


# -- the programs --------------------------------------------------------------------------------


def linear_regression(p: Any, x: Any, y: Any) -> Any:
    residual = p["w"] @ x + p["b"] - y
    return (residual * residual).mean() + 0.1 * (p["w"] ** 2).sum()


def logistic_regression(p: Any, x: Any, y: Any) -> Any:
    return logistic_loss(p["w"] @ x + p["b"], y).mean()


def perceptron(layers: Any, x: Any, y: Any) -> Any:
    h = layers[0].weight @ x + layers[0].bias
    for layer in layers[1:]:
        h = layer.weight @ rectified(h) + layer.bias
    return ((h - y) ** 2).sum(axis=0).mean()


def softmax_cross_entropy(w: Any, x: Any, onehot: Any) -> Any:
    z = (w @ x).T
    p = exponential(z - z.mean(axis=1, keepdims=True))
    p = p / p.sum(axis=1, keepdims=True)
    return -(logarithm((p * onehot).sum(axis=1))).mean()


def layer_norm(p: Any, x: Any) -> Any:
    h = p["w"] @ x
    centred = h - h.mean(axis=0, keepdims=True)
    variance = (centred * centred).mean(axis=0, keepdims=True)
    out = centred / root(variance + 1e-5) * p["scale"] + p["shift"]
    return (out * out * out).sum()


def attention(p: Any, x: Any) -> Any:
    q, k, v = p["q"] @ x, p["k"] @ x, p["v"] @ x
    scores = exponential(q.T @ k / math.sqrt(3))
    weights = scores / scores.sum(axis=1, keepdims=True)
    return ((v @ weights.T) ** 2).mean()


def recurrent(p: Any, sequence: Any) -> Any:
    h = p["h"]
    loss = 0.0
    for t in range(sequence.shape[0]):
        h = hyperbolic(p["w"] @ h + p["u"] @ sequence[t, :] + p["b"])
        loss = loss + (h * h).sum() / (t + 1)
    return loss


def lstm(p: Any, x: Any) -> Any:
    h, c = p["h"], p["c"]
    for _step in range(3):
        gates = p["w"] @ h + p["u"] @ x
        i, f, g, o = (gates[4 * k : 4 * (k + 1)] for k in range(4))
        c, h = lstm_cell(i, f, g, o, c)
    return h.sum() + (c * c).mean()


def robust_fit(p: Any, x: Any, y: Any) -> Any:
    return huber(p["slope"] * x + p["offset"] - y, p["delta"]).sum()


def horner(c: Any, x: Any) -> Any:
    value = c[0] * x
    for k in range(1, c.shape[0]):
        value = (value + c[k]) * x
    return (value * value).mean()


def heat_equation(u: Any, rate: Any) -> Any:
    for _step in range(4):
        change = u[2:] - 2 * u[1:-1] + u[:-2]
        inner = u[1:-1] + change * rate
        u = inner * 1.0
    return (u**2).sum()


def membrane_energy(u: Any) -> Any:
    across, down = u[:, 1:] - u[:, :-1], u[1:, :] - u[:-1, :]
    return root(1.0 + across[:-1, :] ** 2 + down[:, :-1] ** 2).sum() + u[0, :].sum() * u[-1, -1]


def radial_basis(points: Any, width: Any, weights: Any) -> Any:
    n, d = points.shape
    difference = points.reshape((n, 1, d)) - points.reshape((1, n, d))
    squared = (difference * difference).sum(axis=-1)
    return (exponential(-squared / (2 * width * width)) @ weights * weights).sum()


def trace_of_a_cube(a: Any) -> Any:
    cube = a @ a @ a.T
    return sum(cube[i, i] for i in range(a.shape[0]))


def batched(a: Any, b: Any) -> Any:
    product = a @ b
    return (product.mT @ product).mean() + product[..., 0].sum() * product[0, ...].mean()


def standardised(x: Any) -> Any:
    mean = x.mean(axis=(0, 1), keepdims=True)
    deviation = root(((x - mean) ** 2).mean(axis=(0, 1), keepdims=True))
    return ((x - mean) / deviation).reshape((-1,))[::3].sum() + deviation.sum()


def rosenbrock(x: Any) -> Any:
    return (100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def convolution(signal: Any, taps: Any) -> Any:
    n, width = signal.shape[0], taps.shape[0]
    out = sum(signal[k : n - width + k + 1 : 2] * taps[k] for k in range(width))
    return (out * out).mean()


def gaussian_likelihood(p: Any, x: Any) -> Any:
    z = (p.mean - x) / p.deviation
    return (0.5 * z * z + logarithm(p.deviation)).mean()


def newton_in_a_kernel(x: Any) -> Any:
    return (root_by_newton(x * x + 1.0) * x).sum()


def series_in_a_kernel(x: Any, scale: Any) -> Any:
    return (power_series(x * scale, 9) / (1.0 + x * x)).mean()


def steps_of_descent(start: Any, rate: Any, a: Any, b: Any) -> Any:
    x = start
    for _step in range(5):
        x = x - rate * ((x @ a - b) @ a.T)
    return ((x @ a - b) ** 2).sum()


def hyperparameters(p: Any, x: Any) -> Any:
    y = p["scale"] * x + p["shift"]
    return (y**2 * p["weights"][0]).sum() / p["weights"][1] + p["scale"] ** 3


def all_operators(x: Any, y: Any) -> Any:
    z = (x + y) * (x - y) / (1 + abs(x)) + x**2.5 - y**3 + 2**y
    return (z % 1.7 * z - (-z) + (+y) ** -1 + 3 - 2 * x / y).sum()


def views(x: Any) -> Any:
    y = x[::2, 1:, None] * x[None, :2, 1:].mT.reshape((2, 3, 1)) - x[-2:, :-1, None]
    return (y[..., 0, :] * y[1, -1, ...]).sum() + (x[-1, ...] * x[..., 0].sum()).mean() + x.T[0, 1]


def quadratic_form(x: Any, a: Any) -> Any:
    outer = x.reshape((-1, 1)) @ x.reshape((1, -1))
    return (x @ a) @ x + (outer * a.T).mean() + (x @ x) * 0.5


def rows(x: Any) -> Any:
    first, *others = (x[i, :] for i in range(x.shape[0]))
    total = first.sum()
    for row in others:
        total = total * 0.5 + (row * first).sum()
    return total


def one_gradient_of_many(p: Any, x: Any) -> Any:
    """Shared and repeated leaves, an unused one, and one that is used through a view only."""
    return (p["a"] * p["a"][1] @ x).sum() + (p["a"] + p["list"][1][1:, 0]).mean()


PROGRAMS: dict[Callable[..., Any], tuple[Any, tuple[Any, ...]]] = {
    # program: (what it is differentiated with respect to, constants)
    linear_regression: ([{"w": normal(3), "b": 0.5}], (normal(3, 7), normal(7))),
    logistic_regression: ([{"w": normal(3), "b": 0.5}], (normal(3, 7), 1.0 * (normal(7) > 0))),
    perceptron: (
        [[Layer(normal(5, 3), normal(5, 1)), Layer(normal(4, 5), normal(4, 1)),
          Layer(normal(2, 4), normal(2, 1))]],
        (normal(3, 6), normal(2, 6)),
    ),
    softmax_cross_entropy: ([normal(4, 3)], (normal(3, 5), np.eye(4)[[0, 2, 1, 3, 2]])),
    layer_norm: (
        [{"w": normal(4, 3), "scale": normal(4, 1), "shift": normal(4, 1)}],
        (normal(3, 5),),
    ),
    attention: ([{"q": normal(3, 4), "k": normal(3, 4), "v": normal(2, 4)}], (normal(4, 5),)),
    recurrent: (
        [{"h": normal(4), "w": normal(4, 4), "u": normal(4, 2), "b": normal(4)}],
        (normal(5, 2),),
    ),
    lstm: (
        [{"h": normal(4), "c": normal(4), "w": normal(16, 4), "u": normal(16, 3)}],
        (normal(3),),
    ),
    robust_fit: (
        [{"slope": 0.7, "offset": np.asarray(0.2), "delta": 0.9}],
        (normal(20), normal(20)),
    ),
    horner: ([normal(5), normal(6)], ()),
    heat_equation: ([normal(12), 0.3], ()),
    membrane_energy: ([normal(4, 5)], ()),
    radial_basis: ([normal(6, 2), 1.3, normal(6)], ()),
    trace_of_a_cube: ([normal(4, 4)], ()),
    batched: ([normal(2, 3, 4), normal(4, 5)], ()),
    standardised: ([normal(3, 4, 2)], ()),
    rosenbrock: ([normal(6)], ()),
    convolution: ([normal(13), normal(3)], ()),
    gaussian_likelihood: ([Gaussian(normal(3), 0.5 + normal(3) ** 2)], (normal(8, 3),)),
    newton_in_a_kernel: ([normal(9)], ()),
    series_in_a_kernel: ([normal(9), 0.7], ()),
    steps_of_descent: ([normal(3), 0.01], (normal(3, 4), normal(4))),
    hyperparameters: ([{"scale": 1.5, "shift": -0.25, "weights": (2.0, 3.0)}], (normal(4),)),
    all_operators: ([0.5 + normal(5) ** 2, 0.5 + normal(5) ** 2], ()),
    views: ([normal(3, 4)], ()),
    quadratic_form: ([normal(4)], (normal(4, 4),)),
    rows: ([normal(4, 3)], ()),
    one_gradient_of_many: (
        [{"a": normal(3), "list": [normal(2), normal(4, 2)], "unused": 1.0}],
        (normal(3, 3),),
    ),
}  # fmt: skip

CONVERT: dict[str, Callable[[Any], Any]] = {
    "numpy": np.asarray,
    "strict": array_api_strict.asarray,
    "torch": lambda a: _torch().tensor(a),
}


def converted(tree: Any, convert: Callable[[Any], Any]) -> Any:
    """Return a tree with its NumPy arrays converted; numbers stay numbers."""
    change = lambda leaf: convert(leaf) if isinstance(leaf, np.ndarray) else leaf  # noqa: E731
    return mixad.pytree.tree_map(change, tree)


def slopes_of_torch(program: Any, arguments: Any, constants: Any) -> tuple[Any, list[Any]]:
    """Return value and gradients; every leaf is a tensor that requires grad."""
    torch = _torch()
    leaf = lambda a: torch.tensor(a, dtype=torch.float64, requires_grad=True)  # noqa: E731
    arguments = mixad.pytree.tree_map(leaf, arguments)
    value = program(*arguments, *converted(constants, torch.tensor))
    leaves = mixad.pytree.leaves(arguments)
    return value.detach(), torch.autograd.grad(value, leaves, materialize_grads=True)


@pytest.mark.parametrize("library", CONVERT)
@pytest.mark.rows("program", PROGRAMS, ids=lambda program: program.__name__)
def test_gradients_are_those_of_torch(program: Any, library: str) -> None:
    arguments, constants = PROGRAMS[program]
    want_value, want = slopes_of_torch(program, arguments, constants)
    arguments = converted(arguments, CONVERT[library])
    constants = converted(constants, CONVERT[library])
    loss = lambda *args: program(*args, *constants)  # noqa: E731
    value, gradients = mixad.value_and_grad(loss, range(len(arguments)))(*arguments)
    np.testing.assert_allclose(float(value), float(want_value), rtol=1e-12)
    given = mixad.pytree.leaves(arguments)
    for mine, other, leaf in zip(mixad.pytree.leaves(gradients), want, given, strict=True):
        assert type(mine) is type(leaf)
        assert getattr(mine, "dtype", None) == getattr(leaf, "dtype", None)
        mine = mine if isinstance(mine, float) else np.from_dlpack(mine)
        assert np.shape(mine) == tuple(other.shape)
        np.testing.assert_allclose(mine, other.numpy(), rtol=1e-10, atol=1e-12)
