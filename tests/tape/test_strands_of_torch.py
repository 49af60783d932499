"""Gradients of small tensors of torch by strands: those by nodes, bit for bit, and torch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelTypeError, TracerError
from mixad.transforms import gradients

torch = pytest.importorskip("torch")
F = torch.nn.functional

X = torch.linspace(0.5, 2.0, 4, dtype=torch.float64)
Y = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64).reshape(3, 4)
TABLE = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
SQUARE = torch.linspace(-1.0, 1.0, 16, dtype=torch.float64).reshape(4, 4)
CLASSES = torch.tensor([1, 0, 3])

fold = mixad.broadcast(lambda x: x * x if x > 0.5 else -x)


@pytest.fixture(autouse=True)
def known(fresh: None) -> None:
    """A strand is opened once torch's tensors are known."""
    mixad.grad(lambda x: x.sum())(X)


def by_nodes(f: Any, *args: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gradients, "open_strand", lambda *given: None)
        return outcome(f, *args)


def outcome(f: Any, *args: Any) -> Any:
    """Return bits and types of a value and its gradients."""
    value, gradients = mixad.value_and_grad(f, tuple(range(len(args))))(*args)
    return [(type(a), a.dtype, tuple(a.shape), a.numpy().tobytes()) for a in (value, *gradients)]


PROGRAMS: dict[str, Callable[..., Any]] = {
    "operators": lambda x, y: (2.0 * x + x * y - y / 3.0 - 1).sum(),
    "functions": lambda x, y: (torch.sin(x) * torch.exp(-y) + torch.maximum(x, y) + y.abs()).sum(),
    "tensors from outside": lambda x, y: (x * TABLE + TABLE / (y + 3.0) + TABLE - x).sum(),
    "a layer": lambda x, y: torch.tanh(F.linear(y, SQUARE, x)).pow(2).mean(),
    "matrix products": lambda x, y: (y @ SQUARE.T @ x).sum() + torch.dot(x, TABLE),
    "a softmax": lambda x, y: torch.softmax(y * x, dim=1)[:, 0].sum() + torch.logsumexp(x, 0),
    "a cross entropy": lambda x, y: F.cross_entropy(y * x, CLASSES),
    "indices": lambda x, y: y[torch.arange(3), CLASSES].sum() * x[1:].prod(),
    "shapes": lambda x, y: (y.T.reshape(2, 6).sum(dim=0) * torch.cat([x, x[:2]])).sum(),
    "statistics": lambda x, y: y.std(dim=1).sum() + torch.var(x, correction=0) + y.mean(),
    "a kernel": lambda x, y: (fold(x) * y).sum(),
    "a loop": lambda x, y: recurrence(x, y),
    "types": lambda x, y: (x.float() * y.to(torch.float32)).sum().double() * x.shape[0],
}
LOOKING: dict[str, Callable[..., Any]] = {
    "where": lambda x, y: torch.where(y > 0, x * y, -0.1 * y).sum(),
    "a branch": lambda x, y: (x * y if (x * y).sum() > 0 else x + y).sum(),
    "a clamp": lambda x, y: torch.relu(y - x).sum() + torch.clamp(y, -0.5, 0.5).sum(),
}


def recurrence(x: Any, y: Any) -> Any:
    state = torch.zeros(4, dtype=torch.float64)
    for row in y:
        state = torch.tanh(0.5 * state + x * row)
    return state.sum()


@pytest.mark.parametrize("name", [*PROGRAMS, *LOOKING])
def test_gradients_are_those_by_nodes_and_of_torch(name: str, runs: list[Any]) -> None:
    f = (PROGRAMS | LOOKING)[name]
    for scale in (1.0, 1.0, -0.7, 1.3):
        args = scale * X, scale * Y
        assert outcome(f, *args) == by_nodes(f, *args)
        leaves = [a.clone().requires_grad_() for a in args]
        if name != "a kernel":
            expected = torch.autograd.grad(f(*leaves), leaves)
            for a, b in zip(mixad.grad(f, (0, 1))(*args), expected, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)
    assert len(runs) >= 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_known_program_sees_new_values_types_and_layouts(dtype: Any, runs: list[Any]) -> None:
    f = lambda x: (torch.sin(x) * x).sum()  # noqa: E731
    wide = torch.linspace(-1.0, 1.0, 12, dtype=dtype).reshape(3, 4)
    for x in (wide, wide.T, wide[:, ::2], wide.expand(2, 3, 4), wide.clone(), wide[0, 0]) * 2:
        found = mixad.grad(f)(x)
        assert (found.dtype, found.shape) == (dtype, x.shape)
        torch.testing.assert_close(found, torch.cos(x) * x + torch.sin(x))
    assert len(runs) >= 6


def test_tensors_that_torch_marks_are_left_to_nodes(runs: list[Any]) -> None:
    f = lambda x: (x * x).sum()  # noqa: E731
    negative = torch.view_as_complex(torch.ones(3, 2, dtype=torch.float64)).conj().imag
    assert negative.is_neg()
    for _ in range(3):
        torch.testing.assert_close(mixad.grad(f)(negative), 2.0 * negative.resolve_neg())
        with pytest.raises(TracerError, match="requires grad"):
            mixad.grad(f)(X.clone().requires_grad_())
    assert not runs


def test_results_are_the_callers_own(runs: list[Any]) -> None:
    call = mixad.value_and_grad(lambda x: ((x * x).sum(), x * 3.0), has_aux=True)
    for _ in range(4):
        (value, aux), gradient = call(X)
        torch.testing.assert_close(aux, 3.0 * X)
        torch.testing.assert_close(gradient, 2.0 * X)
        for each in (value, aux, gradient):
            each.fill_(torch.nan)
    assert runs
    assert torch.equal(X, torch.linspace(0.5, 2.0, 4, dtype=torch.float64))


def test_a_tensor_that_changes_while_it_is_recorded_is_refused() -> None:
    table = torch.ones(4, dtype=torch.float64)

    def f(x: Any) -> Any:
        y = (x * table).sum()
        table.mul_(2.0)
        return y

    for _ in range(3):
        with pytest.raises(TracerError, match="changed in place"):
            mixad.grad(f)(X)


def test_the_default_dtype_is_that_of_the_call() -> None:
    f = lambda x: (x * torch.ones(4)).sum() * torch.tensor(2.0)  # noqa: E731
    x = X.float()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32, torch.float64) * 2:
            torch.set_default_dtype(dtype)
            value, _ = mixad.value_and_grad(f)(x)
            assert value.dtype == f(x).dtype
    finally:
        torch.set_default_dtype(torch.float32)


def test_arrays_and_tensors_have_plans_of_their_own() -> None:
    f = lambda x: (x * x + 1.0).sum()  # noqa: E731
    for _ in range(3):
        assert type(mixad.grad(f)(X)) is torch.Tensor
        assert type(mixad.grad(f)(X.numpy())) is np.ndarray


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "f",
    [
        lambda a: torch.stack([a, a]).sum(),
        lambda a: a.expand(3).sum() + a,
        lambda a: (a.reshape(1, 1) @ a.reshape(1, 1)).sum(),
        lambda a: a.repeat(3).sum() * torch.norm(a),
    ],
)
def test_cotangents_of_tensors_without_axes_are_tensors(f: Any, dtype: Any) -> None:
    a = torch.tensor(1.3, dtype=dtype)
    leaf = a.clone().requires_grad_()
    (expected,) = torch.autograd.grad(f(leaf), leaf)
    for _ in range(3):
        _, pullback = mixad.vjp(f, a)
        found = [mixad.grad(f)(a), *pullback(torch.ones_like(a)), *pullback(torch.ones_like(a))]
        for each in (*found, mixad.jacobian(f)(a)):
            assert type(each) is torch.Tensor
            assert each.dtype == dtype
            assert each.shape == ()
            torch.testing.assert_close(each, expected)


WRITES: dict[str, Callable[..., Any]] = {
    "elements": lambda y, x: y.__setitem__(2, x[0] * x[1]),
    "a part": lambda y, x: y.__setitem__(slice(1, 3), x[:2]),
    "a number": lambda y, x: y.__setitem__(0, 2.5),
    "a mask": lambda y, x: y.__setitem__(torch.tensor([True, False, True, False]), x[:2] * 2.0),
    "a number by a mask": lambda y, x: y.__setitem__(torch.tensor([True, False, True, True]), 0.5),
    "add_": lambda y, x: y.add_(x, alpha=0.5),
    "an element in place": lambda y, x: y.__setitem__(1, y[1].mul_(x[3])),
    "a part in place": lambda y, x: y.__setitem__(slice(2), y[:2].mul_(x[3])),
    "fill_": lambda y, x: y.fill_(3.0),
    "copy_": lambda y, x: y.copy_(x.flip(0)),
    "clamp_": lambda y, x: y.clamp_(0.6, 1.7),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_is_written_to_tensors_is_as_in_torch(name: str, runs: list[Any]) -> None:
    def f(x: Any, y: Any) -> Any:
        z = x * y[0]
        WRITES[name](z, x)
        return (z * z * y).sum() + x.sum() + y.sum()

    for scale in (1.0, 1.0, -0.7, 1.3):
        args = scale * X, scale * Y
        known, other = outcome(f, *args), by_nodes(f, *args)
        assert known == other or "mask" in name  # which adds up cotangents in another order
        leaves = [a.clone().requires_grad_() for a in args]
        expected = torch.autograd.grad(f(*leaves), leaves)
        for found, each in zip(mixad.grad(f, (0, 1))(*args), expected, strict=True):
            torch.testing.assert_close(found, each)
    assert len(runs) > 4


def test_a_tensor_without_elements_is_refused_with_the_name_of_the_argument() -> None:
    with pytest.raises(KernelTypeError, match=r"mixad\.grad: argument 0: .*'meta'"):
        mixad.grad(lambda x: (x * x).sum())(torch.empty(3, device="meta", dtype=torch.float64))


def test_what_is_made_inside_of_a_transform_of_torch_is_not_kept() -> None:
    f = lambda x: x.sum()  # noqa: E731
    for _ in range(3):
        found = torch.func.functionalize(lambda one: mixad.grad(f)(X) * one)(torch.tensor(1.0))
        torch.testing.assert_close(found, torch.ones_like(X))
    torch.testing.assert_close(mixad.grad(f)(X), torch.ones_like(X))


@pytest.mark.parametrize("before", [False, True])
def test_rules_compute_in_the_types_that_they_are_given_under_autocast(before: bool) -> None:
    x = X.float()
    f = lambda x: ((x.sin() @ x.outer(x)) * 2.0).sum() + 0  # noqa: E731
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(f(leaf), leaf)
    for is_on in (before, True, not before, True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_on):
            value, gradient = mixad.value_and_grad(f)(x)
            _, pull = mixad.vjp(f, x)
            (pulled,) = pull(torch.tensor(1.0))
            tangent = mixad.jvp(f, (x,), (torch.ones_like(x),))[1]
        assert value.dtype == gradient.dtype == torch.float32
        torch.testing.assert_close(value, f(x))
        torch.testing.assert_close(gradient, expected)
        torch.testing.assert_close(pulled, expected)
        torch.testing.assert_close(tangent, expected.sum())
