"""Pending nodes become one kernel: the same gradients, fewer launches, whatever is asked when."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError
from mixad.tape import gradient_plan
from mixad.tape.fusion import LONGEST
from mixad.tape.group import FusionGroup
from mixad.tape.materialize import kernel_of
from mixad.tape.tracer import Tracer
from mixad.transforms import gradients

EXAMPLES = 150
SHAPES = ((), (3,), (4, 1), (4, 3), (2, 4, 3))
STEP = 1e-30


# -- random programs over arrays, which NumPy runs on complex numbers too -------------------------

UNARY: dict[str, Callable[[Any], Any]] = {
    "sin": np.sin,
    "tanh": np.tanh,
    "exp": lambda x: np.exp(-0.1 * x * x),
    "neg": lambda x: -x,
    "scaled": lambda x: 0.5 * x,
    "square": lambda x: x**2,
    "half": lambda x: x / 2.0,
    "total": lambda x: x.sum(),
    "mean": lambda x: x.mean(),
    "rows": lambda x: x.sum(axis=0) if x.ndim else x,
    "columns": lambda x: x.sum(axis=-1, keepdims=True) if x.ndim else x,
    "flat": lambda x: x.reshape((-1,)).sum(),
    "turned": lambda x: (x.T * 1.5).T,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / (2.0 + y * y),
}

_instruction = st.tuples(
    st.sampled_from([*UNARY, *BINARY]),
    st.integers(0, 99),
    st.integers(0, 99),
    st.sampled_from(["keep", "drop", "force"]),
)


def run(program: list[Any], inputs: tuple[Any, ...]) -> Any:
    """Run a program: each instruction reads two earlier values; the last ones are summed."""
    values = list(inputs)
    for name, left, right, what in program:
        # The nearest values are read most, so that chains are long.
        x, y = values[-1 - left % min(4, len(values))], values[right % len(values)]
        value = UNARY[name](x) if name in UNARY else BINARY[name](x, y)
        if what == "force" and isinstance(value, Tracer):
            mixad.stop_gradient(value)
        if what == "drop" and len(values) > len(inputs):
            values.pop()
        values.append(value)
    return sum((v.sum() for v in values[-3:]), start=0.0)


def derivative(f: Callable[..., Any], inputs: tuple[Any, ...], along: tuple[Any, ...]) -> float:
    """Return the directional derivative of an analytic function by a complex step."""
    moved = (x + 1j * STEP * d for x, d in zip(inputs, along, strict=True))
    return float(np.imag(f(*moved)) / STEP)


@pytest.mark.slow
@given(
    st.lists(_instruction, min_size=1, max_size=14),
    st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
    st.integers(0, 2**16),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_gradients_of_random_programs(program: list[Any], shapes: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    inputs = tuple(rng.uniform(-1, 1, shape) for shape in shapes)
    along = tuple(rng.uniform(-1, 1, shape) for shape in shapes)

    def f(*xs: Any) -> Any:
        return run(program, xs)

    value, gradients = mixad.value_and_grad(f, tuple(range(len(shapes))))(*inputs)
    np.testing.assert_allclose(value, f(*inputs), rtol=1e-11, atol=1e-11)
    found = sum(float((g * d).sum()) for g, d in zip(gradients, along, strict=True))
    np.testing.assert_allclose(found, derivative(f, inputs, along), rtol=1e-9, atol=1e-9)
    for gradient, x in zip(gradients, inputs, strict=True):
        assert gradient.shape == x.shape


@pytest.mark.slow
@given(st.lists(_instruction, min_size=1, max_size=8), st.integers(0, 2**16))
@settings(max_examples=EXAMPLES, deadline=None)
def test_second_derivatives_of_random_programs(program: list[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, v, w = rng.uniform(-1, 1, (3, 4, 3))

    def slope(x: Any) -> Any:
        return (mixad.grad(lambda x: run(program, (x,)))(x) * v).sum()

    def gradient(x: Any) -> Any:
        return float((mixad.grad(lambda x: run(program, (x,)))(x) * v).sum())

    found = float((mixad.grad(slope)(x) * w).sum())
    h = 1e-5
    expected = (gradient(x + h * w) - gradient(x - h * w)) / (2 * h)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


# -- how many kernels ----------------------------------------------------------------------------

X = np.linspace(0.2, 1.4, 24).reshape(4, 6)


def chain(x: Any) -> Any:
    for _ in range(4):
        x = np.sin(x) * 1.5 + x
    return x


def test_value_and_gradient_of_a_chain_are_one_kernel(launches: list[Any]) -> None:
    mixad.value_and_grad(lambda x: chain(x).sum())(X)
    assert len(launches) == 1


def test_decorated_functions_fuse_with_operators(launches: list[Any]) -> None:
    clipped = mixad.broadcast(lambda x: x if x < 1.0 else 1.0 + 0.1 * (x - 1.0))
    value, gradient = mixad.value_and_grad(lambda x: (clipped(2.0 * x) ** 2).sum())(X)
    assert len(launches) == 1
    inner = np.where(2 * X < 1, 2 * X, 1 + 0.1 * (2 * X - 1))
    np.testing.assert_allclose(value, (inner**2).sum(), rtol=1e-14)
    np.testing.assert_allclose(gradient, 2 * inner * np.where(2 * X < 1, 2, 0.2), rtol=1e-13)


def test_a_strategy_does_not_prevent_fusion_with_what_has_none(launches: list[Any]) -> None:
    square = mixad.broadcast(lambda x: x * x, strategy="forward")
    cube = mixad.broadcast(lambda x: x * x * x)
    x = np.linspace(-1, 1, 7)
    gradient = mixad.grad(lambda x: (square(x) + cube(x) * x).sum())(x)
    np.testing.assert_allclose(gradient, 2 * x + 4 * x**3, rtol=1e-14)
    assert len(launches) == 1


def _cold() -> None:
    """Forget every plan that the tape has made."""
    for name, module in list(sys.modules.items()):
        if name.startswith("mixad.tape."):
            for value in vars(module).values():
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


@pytest.mark.slow
@pytest.mark.parametrize("looked_at", [False, True])
def test_what_fuses_does_not_depend_on_what_ran_before(
    looked_at: bool, launches: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cold and warm, the same kernels run and give the same bits; so do plans of strands, which
    are cut where a value is looked at."""
    kernel = mixad.broadcast(lambda a, b: math.sin(a) * b)

    def loss(x: Any) -> Any:
        y = np.exp(x) * 2.0
        z = kernel(y, x)
        if looked_at and z[0] > 100.0:
            return z.sum()
        return (z * z).sum() + y.mean() + (y - z).sum(axis=0, keepdims=True).sum()

    def run() -> tuple[Any, list[tuple[str, str]]]:
        launches.clear()
        value, gradient = mixad.value_and_grad(loss)(np.linspace(-1.0, 1.0, 12).reshape(3, 4)[:, 0])
        return [value, *gradient], [(str(passes), str(asked)) for passes, asked in launches]

    monkeypatch.setattr(gradients, "open_strand", lambda *args: None)  # plans are not counted
    _cold()
    cold = run()
    assert [run() for _ in range(3)] == [cold] * 3
    mixad.grad(lambda x: loss(x * 3.0))(np.ones(3))  # others that share plans with it
    assert run() == cold
    _cold()
    assert run() == cold
    monkeypatch.undo()
    found = [run()[0] for _ in range(3)]
    assert found == [found[0] if looked_at else cold[0]] * 3
    np.testing.assert_allclose(found[0], cold[0], rtol=1e-14)


def test_terms_of_a_loss_that_share_a_residual_are_one_kernel(launches: list[Any]) -> None:
    def loss(x: Any) -> Any:
        r = x - 1.0
        return (r * r).sum() + np.sin(r).sum()

    np.testing.assert_allclose(mixad.grad(loss)(X), 2 * (X - 1) + np.cos(X - 1), rtol=1e-13)
    assert len(launches) == 1


def test_a_hessian_vector_product_is_one_kernel(launches: list[Any]) -> None:
    v = np.ones_like(X)
    found = mixad.grad(lambda x: (mixad.grad(lambda x: (x**2 * x).sum())(x) * v).sum())(X)
    np.testing.assert_allclose(found, 6 * X * v, rtol=1e-14)
    assert len(launches) == 1


@pytest.mark.slow
def test_what_only_sums_are_read_of_is_not_stored(launches: list[Any]) -> None:
    mixad.grad(lambda x: chain(x).sum())(X)
    [(_, requests)] = launches
    assert len(requests) == 1  # the gradient


def test_a_chain_of_linear_operations_hands_the_cotangent_on(launches: list[Any]) -> None:
    gradient = mixad.grad(lambda x, y: (x + y - 3.0).sum())(X, X)
    np.testing.assert_array_equal(gradient, np.ones_like(X))
    assert not launches


def test_a_row_is_computed_once_not_at_every_row(launches: list[Any]) -> None:
    def loss(row: Any) -> Any:
        return (np.exp(row) * X).sum()

    row = np.linspace(0, 1, 6)
    np.testing.assert_allclose(mixad.grad(loss)(row), np.exp(row) * X.sum(axis=0), rtol=1e-13)
    shapes = [[p.kind for p in passes[0].params] for passes, _ in launches]
    assert len(shapes) == 2  # the sum over rows, then the six elements of the row


@pytest.mark.slow
def test_a_dear_value_that_two_kernels_read_is_computed_once(launches: list[Any]) -> None:
    def loss(x: Any) -> Any:
        y = np.exp(np.sin(x))
        first = (y * 2.0) @ np.ones(6)  # runs now
        return first.sum() + (y * y).sum()

    y = np.exp(np.sin(X))
    expected = (2 + 2 * y) * y * np.cos(X)
    np.testing.assert_allclose(mixad.grad(loss)(X), expected, rtol=1e-12)
    dear = [p for passes, _ in launches for p in passes if "sin" in str(p)]
    assert len(dear) <= 2  # once forward; once more for the derivative


@pytest.mark.slow
@pytest.mark.parametrize("length", [100, 10_000])
def test_long_chains_are_cut_into_kernels(length: int, launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        for _ in range(length):
            x = x * 1.0001 + 1e-5
        return (x * x).sum()

    x = np.asarray([0.5, -1.5])
    value, gradient = mixad.value_and_grad(f)(x)
    y, slope = x, np.ones(2)
    for _ in range(length):
        y, slope = y * 1.0001 + 1e-5, slope * 1.0001
    np.testing.assert_allclose(value, (y * y).sum(), rtol=1e-10)
    np.testing.assert_allclose(gradient, 2 * y * slope, rtol=1e-10)
    assert len(launches) < length / 6
    assert len({passes[0].token for passes, _ in launches}) < 12  # the cuts repeat


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the resource module is POSIX")
def test_a_sum_of_a_broadcast_writes_no_array_of_its_size() -> None:
    """Peak memory of a process that differentiates a sum over 8192² elements of a row and a column.

    The broadcast array alone would take 512 MB.
    """
    code = """
import resource
import numpy as np, mixad
loss = lambda c, r: (np.sin(c) * r + c * r * r).sum()
c, r = np.linspace(0, 1, 8192)[:, None], np.linspace(1, 2, 8192)
small = mixad.value_and_grad(loss, (0, 1))(c[:8], r[:8])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
mixad.value_and_grad(loss, (0, 1))(c, r)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    per_unit = 1 if sys.platform == "darwin" else 1024
    assert int(found.stdout) * per_unit < 64 << 20


def test_two_dear_functions_are_kernels_of_their_own(launches: list[Any]) -> None:
    def iterated(x: float) -> float:
        for _ in range(40):
            x = math.sin(x) + math.exp(-x) * math.tanh(x)
        return x

    dear = mixad.broadcast(iterated)
    mixad.grad(lambda x: (2.0 * dear(dear(x)) - 1.0).sum())(X)
    # The inner one's partials are stored with its value.
    assert sum("while" in str(p) for passes, _ in launches for p in passes) == 2


# -- what a review found ---------------------------------------------------------------------------


@pytest.mark.parametrize("length", [4, 5, 6])
def test_the_length_of_an_indexed_array_does_not_matter(length: int) -> None:
    table = np.linspace(1.0, 2.0, length)
    scaled = mixad.broadcast(lambda x, y: x * table[2] + y)
    y = np.zeros(5)
    dx = mixad.grad(lambda x: scaled(x, y).sum())(np.asarray(3.0))
    np.testing.assert_allclose(dx, 5 * table[2], rtol=1e-15)

    def slope(x: Any) -> Any:
        square = mixad.broadcast(lambda x, y: x * x * table[2] + y)
        return mixad.grad(lambda x: square(x, y).sum())(x)

    np.testing.assert_allclose(mixad.grad(slope)(np.asarray(3.0)), 10 * table[2], rtol=1e-15)


def test_many_shapes_are_differentiated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    derived: list[Any] = []
    derive = gradient_plan.plan_pullback

    def counted(*args: Any, **kwargs: Any) -> Any:
        derived.append(args)
        return derive(*args, **kwargs)

    monkeypatch.setattr(gradient_plan, "plan_pullback", counted)
    bump = mixad.broadcast(lambda x: 1.0 / (1.0 + x * x))
    for n in range(2, 20):
        mixad.grad(lambda x: bump(x).sum(axis=0, keepdims=True).sum())(np.ones((n, 2)))
    names = [args[0].name for args in derived]
    assert names.count("sum") <= 1  # of the outer sum, which another test may have derived
    assert len(names) - names.count("sum") == 1


def test_the_backward_pass_is_linear_in_the_number_of_terms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[Any] = []
    take = FusionGroup.take

    def counted(self: FusionGroup, other: FusionGroup) -> bool:
        tries.append(self)
        return take(self, other)

    monkeypatch.setattr(FusionGroup, "take", counted)
    values = [np.full(3, float(n)) for n in range(300)]
    gradients = mixad.grad(lambda vs: sum((v * v).sum() for v in vs))(values)
    for gradient, value in zip(gradients, values, strict=True):
        np.testing.assert_array_equal(gradient, 2 * value)
    assert len(tries) < 4 * len(values)


def test_looks_for_groups_do_not_grow_with_how_often_a_value_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[Any] = []
    whole = FusionGroup.whole.fget
    assert whole is not None

    def counted(self: FusionGroup) -> FusionGroup:
        looks.append(self)
        return whole(self)

    monkeypatch.setattr(FusionGroup, "whole", property(counted))
    turns = 200

    def f(W: Any, b: Any) -> Any:
        h = np.ones(3)
        for _ in range(turns):
            h = (W @ h) * b
        return h.sum()

    _, pullback = mixad.vjp(f, np.eye(3), np.ones(3))
    dW, db = pullback(1.0)
    np.testing.assert_allclose(dW, np.full((3, 3), float(turns)))
    np.testing.assert_allclose(db, np.full(3, float(turns)))
    assert len(looks) < 8 * turns


def test_nodes_of_several_passes_leave_with_their_last_reference() -> None:
    nodes: list[weakref.ref[Any]] = []
    product = mixad.broadcast(lambda a, b, c: a * b * c, placement="forward", chunk=1)

    def f(*xs: Any) -> Any:
        y = product(*xs)
        nodes.append(weakref.ref(y.cell.pending))
        return y.sum()

    gc.disable()
    try:
        mixad.grad(f, (0, 1, 2))(X, X, X)
        assert [ref() for ref in nodes] == [None]
    finally:
        gc.enable()


def test_equal_sums_of_a_value_are_one(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = chain(x)
        return sum(y.sum() for _ in range(5))

    value, _ = mixad.value_and_grad(f)(X)
    np.testing.assert_allclose(value, 5 * chain(X).sum(), rtol=1e-13)
    assert all(len(requests) <= 2 for _, requests in launches)


def test_groups_that_read_one_value_are_pulled_back_by_one_kernel(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)
        return np.exp(y * 0.5), np.cos(y + 1.0) * y

    y, G, H = np.sin(X), X + 2.0, X * X
    _, (found,) = mixad.value_and_vjp(f, (X,), (G, H))
    slopes = 0.5 * np.exp(y * 0.5) * G + (np.cos(y + 1.0) - np.sin(y + 1.0) * y) * H
    np.testing.assert_allclose(found, slopes * np.cos(X), rtol=1e-13, atol=1e-14)
    assert len(launches) == 1


def test_terms_that_read_one_array_in_different_ways_are_pulled_back_by_one_kernel(
    launches: list[Any],
) -> None:
    def f(x: Any) -> Any:
        return sum((np.sin(n * x) * np.cos(x / n)).sum() for n in (1.0, 2.0))

    slopes = [
        n * np.cos(n * X) * np.cos(X / n) - np.sin(n * X) * np.sin(X / n) / n for n in (1.0, 2.0)
    ]
    np.testing.assert_allclose(mixad.grad(f)(X), sum(slopes), rtol=1e-13, atol=1e-14)
    assert len(launches) == 1


def test_a_node_that_two_groups_read_is_pulled_back_once() -> None:
    def f(x: Any) -> Any:
        y = np.sin(x)  # read over its own shape, and over that of the matrix
        return (y * 2.0).sum() + (y * M + np.cos(y)).sum()

    x = np.linspace(0.1, 1.0, 6)
    y = np.sin(x)
    expected = (2 + M.sum(axis=0) - 4 * np.sin(y)) * np.cos(x)
    np.testing.assert_allclose(mixad.grad(f)(x), expected, rtol=1e-12)


M = np.linspace(-1.0, 1.0, 24).reshape(4, 6)


def test_an_array_changed_between_two_uses_is_refused() -> None:
    def f(t: Any) -> Any:
        w = np.ones(3)
        first = (t * w).sum()
        w += 1
        return first + (t * w).sum()

    with pytest.raises(TracerError, match="changed in place"):
        mixad.grad(f)(np.ones(3))


ZERO_TIMES_INFINITY: dict[str, tuple[Callable[..., Any], list[float], list[float]]] = {
    "a root under a weight": (
        lambda a, look: (look(np.sqrt(a)) * np.asarray([0.0, 1.0])).sum(), [0.0, 4.0], [0.0, 0.25]),
    "a reciprocal": (lambda a, look: (look(1.0 / (a - 1.0)) * 0.0).sum(), [0.0, 3.0], [0.0, 0.0]),
    "a logarithm": (
        lambda a, look: (look(np.log(a)) * np.asarray([0.0, 1.0])).sum(), [0.0, 2.0], [0.0, 0.5]),
    "two roots": (
        lambda a, look: (np.sqrt(look(np.sqrt(a))) * np.asarray([0.0, 1.0])).sum(),
        [0.0, 1.0], [0.0, 0.25]),
}  # fmt: skip


@pytest.mark.rows("what", ZERO_TIMES_INFINITY)
@pytest.mark.rows("looked_at", [False, True])
def test_a_zero_cotangent_gives_a_zero_gradient_fused_or_not(what: str, looked_at: bool) -> None:
    f, at, expected = ZERO_TIMES_INFINITY[what]

    def look(y: Any) -> Any:
        if looked_at:
            mixad.stop_gradient(y)
        return y

    with np.errstate(all="ignore"):
        gradient = mixad.grad(lambda a: f(a, look))(np.asarray(at))
    np.testing.assert_array_equal(gradient, expected)


def test_a_pending_value_that_no_derivative_reads_makes_no_cycle() -> None:
    nodes: list[weakref.ref[Any]] = []

    def f(x: Any) -> Any:
        row = np.exp(x[0] * 1.0) * 2.0  # pending, over another shape than what reads it
        nodes.append(weakref.ref(row.origin.node))
        return (x + row).sum() + (np.sin(row) + 0.5 * x).sum()

    gc.disable()
    try:
        gradient = mixad.grad(f)(X)
        assert [ref() for ref in nodes] == [None]
    finally:
        gc.enable()
    row = 2.0 * np.exp(X[0])
    expected = np.full(X.shape, 1.5)
    expected[0] += len(X) * (1 + np.cos(row)) * row
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


@pytest.mark.slow
def test_dear_programs_are_cut_before_their_kernel_takes_long_to_compile() -> None:
    @mixad.broadcast
    def step(x: float) -> float:
        x = math.sin(x) * math.exp(-x) + math.cos(x)
        return math.sin(x) * math.exp(-x) + math.cos(x)

    lengths: list[int] = []

    def f(x: Any) -> Any:
        for _ in range(12):
            x = step(x)
            _, _, members = kernel_of(x.origin.node)
            lengths.append(len(members))
            assert len(members) == 1 or sum(m.call.cost for m in members) <= LONGEST
        return x.sum()

    mixad.grad(f)(X)
    assert max(lengths) > 1  # some are in one kernel all the same
