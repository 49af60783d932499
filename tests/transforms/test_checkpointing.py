"""Checkpoints: the same derivatives, fewer values kept, what is not the same the second time."""

from __future__ import annotations

import functools
import importlib.util
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import TracerError
from mixad.special import tanh

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.asarray([0.5, -1.5, 0.25])
V = np.asarray([1.0, -2.0, 0.5])
M = np.asarray([[0.5, 1.0, -1.0], [1.0, 0.5, 0.25], [-0.5, 0.5, 1.0]])


@mixad.broadcast
def gate(a, b):
    if a > b:
        return a * b
    return tanh(a)


def layer(p: Any, x: Any, *, scale: float = 1.0) -> Any:
    h = gate(p["w"] @ x, x) * scale
    return h + p["b"], {"norm": (h * h).sum(), "size": 3}


def loss_of(layer: Any) -> Any:
    def loss(p: Any, x: Any) -> Any:
        total = 0.0
        for _ in range(3):
            x, more = layer(p, x, scale=0.5)
            total = total + more["norm"] * more["size"]
        return total + (x * x).sum()

    return loss


P = {"w": M, "b": 0.25}
DP = {"w": M * M, "b": 1.0}
PLAIN, CHECKED = loss_of(layer), loss_of(mixad.checkpoint(layer))
NESTED = loss_of(mixad.checkpoint(lambda p, x, **kw: mixad.checkpoint(layer)(p, x, **kw)))


def assert_same(found: Any, expected: Any) -> None:
    for f, e in zip(mixad.pytree.leaves(found), mixad.pytree.leaves(expected), strict=True):
        assert type(f) is type(e)
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-12)


def loss_of_vector(z: Any) -> Any:
    """The loss of all numbers in one vector, without any transform."""
    return PLAIN({"w": z[:9].reshape(3, 3), "b": float(z[9])}, z[10:])


def differences() -> tuple[Any, Any, Any]:
    """The value of the loss, its gradient and its Hessian, by central differences."""
    z = np.concatenate([M.ravel(), [P["b"]], X])
    steps = 1e-4 * np.eye(z.size)
    ends = np.asarray([[loss_of_vector(z + s * d) for s in (1, -1)] for d in steps])
    hessian = [
        [
            sum(s * t * loss_of_vector(z + s * d + t * e) for s in (1, -1) for t in (1, -1))
            for d in steps
        ]
        for e in steps
    ]
    return loss_of_vector(z), (ends[:, 0] - ends[:, 1]) / 2e-4, np.asarray(hessian) / 4e-8


def in_structure(vector: Any) -> Any:
    return {"w": vector[:9].reshape(3, 3), "b": vector[9]}, vector[10:]


def expected() -> dict[str, Any]:
    """What each of the transforms below gives."""
    value, gradient, hessian = differences()
    along = np.concatenate([DP["w"].ravel(), [DP["b"]], V])
    gx, hx = gradient[10:], hessian[10:, 10:]
    return {
        "grad": (value, in_structure(gradient)),
        "jvp": (value, gradient @ along),
        "hvp": in_structure(hessian @ along),
        "jvp of jvp": (gx @ V, V @ hx @ V),
        "grad of jvp": hx @ V,
        "grad of grad": hx @ V,
        "hessian": hx,
    }


@pytest.mark.slow
@pytest.mark.parametrize("checked", [CHECKED, NESTED])
@pytest.mark.parametrize(
    ("name", "transform"),
    {
        "grad": lambda f: mixad.value_and_grad(f, argnums=(0, 1))(P, X),
        "jvp": lambda f: mixad.jvp(f, (P, X), (DP, V)),
        "hvp": lambda f: mixad.hvp(f, (P, X), (DP, V)),
        "jvp of jvp": lambda f: mixad.jvp(
            lambda x: mixad.jvp(lambda x: f(P, x), (x,), (V,))[1], (X,), (V,)
        ),
        "grad of jvp": lambda f: mixad.grad(lambda x: mixad.jvp(lambda x: f(P, x), (x,), (V,))[1])(
            X
        ),
        "grad of grad": lambda f: mixad.grad(
            lambda x: (mixad.grad(lambda x: f(P, x))(x) * V).sum()
        )(X),
        "hessian": lambda f: mixad.hessian(lambda x: f(P, x))(X),
    }.items(),
)
def test_derivatives_are_those_of_the_function(name: str, transform: Any, checked: Any) -> None:
    found = transform(checked)
    assert_same(found, transform(PLAIN))
    leaves = map(mixad.pytree.leaves, (found, expected()[name]))
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_without_a_transform_the_function_is_called() -> None:
    assert_same(mixad.checkpoint(layer)(P, X), layer(P, X))


def test_only_arguments_are_kept() -> None:
    inside: deque[weakref.ref[Any]] = deque()  # what a list collects the second time is a copy's

    def f(x: Any) -> Any:
        y = np.tanh(x)
        inside.append(weakref.ref(y))
        return y * 2.0

    _, pullback = mixad.vjp(mixad.checkpoint(f), X)
    assert inside[0]() is None
    assert len(inside) == 1
    (gradient,) = pullback(np.ones(3))
    assert len(inside) == 2
    np.testing.assert_allclose(gradient, 2 / np.cosh(X) ** 2)


@pytest.mark.slow
def test_a_captured_value_is_differentiated() -> None:
    def loss(w: Any, x: Any) -> Any:
        scale = w * w
        step = mixad.checkpoint(lambda x: np.tanh(x * scale) + w)
        return step(step(x)).sum()

    def plain(w: Any, x: Any) -> Any:
        step = lambda x: np.tanh(x * (w * w)) + w  # noqa: E731
        return step(step(x)).sum()

    assert_same(mixad.grad(loss, argnums=(0, 1))(X, V), mixad.grad(plain, argnums=(0, 1))(X, V))
    assert_same(mixad.hvp(loss, (X, V), (V, X)), mixad.hvp(plain, (X, V), (V, X)))


def test_a_captured_value_of_a_transform_around() -> None:
    def outer(w: Any) -> Any:
        return mixad.grad(lambda x: mixad.checkpoint(lambda x: (w * x * x).sum())(x))(X).sum()

    np.testing.assert_allclose(mixad.grad(outer)(V), 2 * X)


def test_what_is_captured_in_functions_partials_and_containers() -> None:
    def loss(w: Any) -> Any:
        held = {"w": [w]}

        def inner(x: Any, *, w: Any = w) -> Any:
            return x * held["w"][0] + w

        def recursive(x: Any, depth: int) -> Any:
            return inner(x) if depth == 0 else recursive(x * w, depth - 1)

        step = mixad.checkpoint(functools.partial(recursive, depth=1))
        return step(X).sum()

    np.testing.assert_allclose(mixad.grad(loss)(V), 2 * X * V + 1)


def test_a_loop_variable_is_what_it_was() -> None:
    def loss(x: Any) -> Any:
        for i in range(1, 4):
            x = mixad.checkpoint(lambda x: x * float(i))(x)  # noqa: B023
        for w in (2.0 * x, 3.0 * x):
            x = mixad.checkpoint(lambda x: x * w)(x)  # noqa: B023
        return x.sum()

    np.testing.assert_allclose(mixad.grad(loss)(X), 3 * 216 * 6 * X**2)


@dataclass
class Weights:
    w: Any


CHANGES: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[..., None]]] = {
    "a longer list": (lambda w: [w], lambda held: held[-1], lambda held, new: held.append(new)),
    "a dictionary": (
        lambda w: {"w": [w]},
        lambda held: held["w"][0],
        lambda held, new: held.update(w=[new]),
    ),
    "a field": (Weights, lambda held: held.w, lambda held, new: setattr(held, "w", new)),
    "of no traced value": (
        lambda w: [V],
        lambda held: held[-1],
        lambda held, new: held.append(mixad.stop_gradient(new)),
    ),
}


@pytest.mark.rows(("hold", "read", "change"), CHANGES.values(), ids=CHANGES)
@pytest.mark.rows("more", [True, False], ids=["and another value", "alone"])
def test_a_container_that_changes_later_is_what_it_was(
    hold: Any, read: Any, change: Any, more: bool
) -> None:
    def loss(w: Any, x: Any) -> Any:
        held, other = hold(w), w if more else 1.0
        y = mixad.checkpoint(lambda x: x * read(held) * other)(x)
        change(held, w * 2.0)
        return y.sum() + (0.0 * w).sum()

    is_traced = read(hold(X)) is X
    by_w = X * (is_traced * V**more + more * V)
    assert_same(mixad.grad(loss, argnums=(0, 1))(V, X), (by_w, V * V**more))


def test_numbers_stay_numbers() -> None:
    x = X.astype("f4")
    scaled = mixad.checkpoint(lambda x, s: (x * s, s * s))
    value, pullback = mixad.vjp(scaled, x, 3.0)
    assert value[0].dtype == np.float32
    assert type(value[1]) is float
    gradients = pullback((x, 1.0))
    assert gradients[0].dtype == np.float32
    assert gradients[1] == pytest.approx(float((x * x).sum()) + 6.0)


def test_an_output_that_nothing_reads() -> None:
    f = mixad.checkpoint(lambda x, y: (x * x, y * y))
    found = mixad.grad(lambda x, y: f(x, y)[0].sum(), argnums=(0, 1))(X, V)
    assert_same(found, (2 * X, 0 * V))


def arrays_of_torch(values: Any) -> Any:
    import torch

    return torch.asarray(values)


@pytest.mark.parametrize(
    "array",
    [
        pytest.param(array_api_strict.asarray, id="array_api_strict"),
        pytest.param(
            arrays_of_torch,
            marks=[pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="no torch here")],
            id="torch",
        ),
    ],
)
def test_other_libraries(array: Any) -> None:
    def step(w: Any, x: Any) -> Any:
        return gate(w @ x, x)

    found = mixad.grad(lambda w, x: mixad.checkpoint(step)(w, x * x).sum(), argnums=(0, 1))(
        array(M), array(X)
    )
    expected = mixad.grad(lambda w, x: step(w, x * x).sum(), argnums=(0, 1))(M, X)
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(array(X))
        np.testing.assert_allclose(np.asarray(np.from_dlpack(one)), other)


# -- what is refused -------------------------------------------------------------------------------


def test_another_value_the_second_time_is_refused() -> None:
    rng = np.random.default_rng(0)
    noisy = mixad.checkpoint(lambda x: x * rng.random(3))
    with pytest.raises(TracerError, match="something else when it was run again"):
        mixad.grad(lambda x: noisy(x).sum())(X)
    sizes = iter([3, 2])
    shorter = mixad.checkpoint(lambda x: x[: next(sizes)])
    with pytest.raises(TracerError, match="something else when it was run again"):
        mixad.grad(lambda x: shorter(x).sum())(X)


def test_an_argument_that_was_changed_is_refused() -> None:
    a = V.copy()

    def loss(x: Any) -> Any:
        y = mixad.checkpoint(lambda x, a: x * a)(x, a)
        a[0] = 5.0
        return y.sum()

    with pytest.raises(TracerError, match="changed in place"):
        mixad.grad(loss)(X)


LARGE = np.full(10_000, 2.0)


def reads_a_global(x: Any) -> Any:
    return (lambda: x * LARGE)()


def reads_a_closure(array: Any) -> Any:
    held = {"array": [array]}
    return lambda x: x * held["array"][0]


@pytest.mark.parametrize("check", ["sample", "full"])
@pytest.mark.parametrize("f", [reads_a_global, reads_a_closure(LARGE)], ids=["global", "closure"])
def test_an_array_it_reads_that_was_changed_is_refused(
    f: Any, check: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIXAD_CHECK", check)
    _, pullback = mixad.vjp(mixad.checkpoint(f), np.ones(10_000))
    np.testing.assert_array_equal(pullback(np.ones(10_000))[0], LARGE)
    place = slice(None) if check == "sample" else slice(5, 6)
    LARGE[place] = 100.0
    try:
        with pytest.raises(TracerError, match=f"captured by mixad.checkpoint of {f.__name__}"):
            pullback(np.ones(10_000))
    finally:
        LARGE[place] = 2.0


def test_all_of_the_value_is_compared_if_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another element, which no sample finds, the second time."""

    class Other:
        runs = 0

    def f(x: Any) -> Any:
        Other.runs += 1
        return x * (1.0 + (np.arange(10_000) == Other.runs))

    mixad.grad(lambda x: mixad.checkpoint(f)(x).sum())(np.ones(10_000))
    monkeypatch.setenv("MIXAD_CHECK", "full")
    with pytest.raises(TracerError, match="something else when it was run again"):
        mixad.grad(lambda x: mixad.checkpoint(f)(x).sum())(np.ones(10_000))


class Layer:
    def __init__(self, w: Any) -> None:
        self.w = w

    def __call__(self, x: Any) -> Any:
        return x * self.w


def test_a_traced_value_in_an_object_is_refused_or_recorded() -> None:
    np.testing.assert_array_equal(mixad.grad(lambda w: mixad.checkpoint(Layer(w))(X).sum())(V), X)
    with pytest.raises(TracerError, match="pass it as an argument"):
        mixad.grad(lambda w: mixad.checkpoint(Layer(w))(w).sum())(V)


def test_a_leaked_value_is_refused() -> None:
    kept: deque[Any] = deque()

    def f(x: Any) -> Any:
        kept.append(x * 1.0)
        return x * 2.0

    mixad.grad(lambda x: mixad.checkpoint(f)(x).sum())(X)
    with pytest.raises(TracerError, match=r"inside mixad\.checkpoint is used"):
        kept[1] + 1.0


# -- arrays that the function changes --------------------------------------------------------------


@pytest.mark.parametrize("place", [1, slice(None)])
def test_a_write_to_an_argument_is_refused_and_the_caller_keeps_its_elements(place: Any) -> None:
    def cut(x: Any) -> Any:
        x[place] = 0.0
        return x * x

    def f(x: Any) -> Any:
        y = np.sort(x)  # an array of its own, of more elements than are compared one by one
        square = y * y  # is computed later
        return mixad.checkpoint(cut)(y).sum() + square.sum()

    given = np.arange(1.0, 1001.0)
    for loss in (f, lambda x: mixad.checkpoint(cut)(x).sum()):
        with pytest.raises(TracerError, match="cut changes one of its arguments in place"):
            mixad.grad(loss)(given)
        np.testing.assert_array_equal(given, np.arange(1.0, 1001.0))


def test_an_argument_that_is_handed_on_may_be_written_to_by_the_caller() -> None:
    x = np.ones(3)
    value, _ = mixad.vjp(mixad.checkpoint(lambda x: x), x)
    value[0] = 2.0  # as of the function itself, which returns the array
    assert value[0] == 2.0


def test_a_write_of_a_traced_value_in_the_second_run_is_refused_by_name() -> None:
    x = np.ones(3)

    def f(w: Any) -> Any:
        y = 2.0 * x
        y[0] = w[0]
        return y

    with pytest.raises(TracerError, match=r"out\[i\] = x.*np\.zeros_like\(x\)"):
        mixad.grad(lambda w: mixad.checkpoint(f)(w).sum())(np.ones(3))


def test_forward_mode_refuses_a_backward_rule_inside_that_is_not_linear() -> None:
    bounded = mixad.custom_vjp(lambda x: x * 1.0)
    bounded.defvjp(lambda x: (x * 1.0, None), lambda _, g: (np.clip(g, -1.0, 1.0),))
    f = mixad.checkpoint(lambda x: bounded(x) * 3.0)
    x = np.asarray([0.5, -2.0])
    with pytest.raises(TracerError, match="bwd is not linear"):
        mixad.jvp(f, (x,), (x,))
    np.testing.assert_array_equal(mixad.grad(lambda x: f(x).sum())(x), np.ones(2))


RUNS: list[Any] = []


def test_forward_mode_runs_it_again_once_for_all_directions() -> None:
    def f(x: Any) -> Any:
        RUNS.append(x)
        return np.sin(x) * x.sum()

    RUNS.clear()
    x = np.asarray([0.5, -2.0, 1.0])
    found = mixad.jacfwd(mixad.checkpoint(f))(x)
    assert len(RUNS) == 2
    np.testing.assert_allclose(found, np.diag(np.cos(x) * x.sum()) + np.sin(x)[:, None])
