"""Forward mode: against differences, against reverse mode, nested, over several libraries."""

from __future__ import annotations

import importlib.util
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import mixad
from mixad.backends.execute import Kernel
from mixad.errors import TracerError, ZeroDerivativeWarning
from mixad.special import sigmoid, tanh
from mixad.tape.strand_plan import _PlanMaker
from mixad.transforms.recorded_calls import recorded

EXAMPLES_OF_PROGRAMS = 20

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.asarray([0.5, -1.5, 0.25])
DX = np.asarray([1.0, -2.0, 0.5])
Y = np.asarray([[2.0, 0.75, -0.5], [0.25, -1.0, 1.5]])
DY = np.asarray([[-1.0, 0.5, 2.0], [1.0, 0.25, -0.75]])
M = np.asarray([[0.5, 1.0, -1.0], [1.0, 0.5, 0.25], [-0.5, 0.5, 1.0]])


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels launched so far, called or prepared for a plan."""
    made: list[Any] = []
    call, prepare = Kernel.__call__, _PlanMaker._prepared

    def prepared(self: _PlanMaker, kernel: Kernel, arrays: Any, options: Any) -> Any:
        found = prepare(self, kernel, arrays, options)
        if found is not None:
            made.append(kernel.passes)
        return found

    def counted(self: Kernel, arguments: Any, backend: Any = None) -> Any:
        made.append(self.passes)
        return call(self, arguments, backend)

    monkeypatch.setattr(Kernel, "__call__", counted)
    monkeypatch.setattr(_PlanMaker, "_prepared", prepared)
    return made


# -- kernels and random programs -------------------------------------------------------------------


@mixad.broadcast
def product(a, b):
    return 0.5 * a * b


@mixad.broadcast
def both(a, b):
    return 0.5 * a * b, 0.5 * a + b


@mixad.broadcast
def bent(a, b):  # smooth enough for differences to converge where the branches meet
    if a > 0.0:
        return 0.1 * a * a * a * a * a + b
    return b - 0.05 * a * a * a * a * a


@mixad.broadcast
def horner(a, b):
    total = a
    for i in range(3):
        total = 0.5 * total * tanh(b) + i
    return total


ahead = mixad.broadcast(lambda a, b: tanh(a) * b).with_options(placement="forward")


def forced(a: Any, b: Any) -> Any:
    return a * (1.0 if bool(mixad.stop_gradient(b).sum() > 0.1234567) else 0.5) + b


def held(a: Any, b: Any) -> Any:
    c = product(a, b)
    bool((mixad.stop_gradient(c) > 0).any())  # made here
    return c + product(c, c)


STEPS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: 0.5 * a + b,
    "sub": lambda a, b: a - 0.25 * b,
    "mul": lambda a, b: a * b * 0.5,
    "div": lambda a, b: a / (2.0 + b * b),
    "tanh": lambda a, b: np.tanh(a),
    "product": product,
    "both": both,
    "bent": bent,
    "horner": horner,
    "ahead": ahead,
    "sum": lambda a, b: a.sum() * 0.25,
    "mean": lambda a, b: a.mean(),
    "row": lambda a, b: b + 0.25 * a.sum(axis=0, keepdims=True) if a.ndim else a,
    "column": lambda a, b: b * a.sum(axis=-1, keepdims=True) * 0.1 if a.ndim else a,
    "flat": lambda a, b: a.reshape((-1,))[-1:].sum() + b,
    "part": lambda a, b: a[..., ::2].sum() * b * 0.25 if a.ndim else b,
    "picked": lambda a, b: a[..., 1:2] + b if a.ndim else b,
    "matmul": lambda a, b: 0.25 * (a @ M) if a.ndim and a.shape[-1] == 3 else a,
    "gram": lambda a, b: 0.1 * (a.T @ a)[:2] + b if a.ndim == 2 and a.shape[-1] == 3 else a,
    "turned": lambda a, b: (0.25 * a.T @ a).sum() + b if a.ndim == 2 else b,
    "forced": forced,
    "held": held,
    "constant": lambda a, b: product(a, X),
}

STATEMENTS = st.lists(
    st.tuples(st.sampled_from(sorted(STEPS)), st.integers(0, 30), st.integers(0, 30)),
    min_size=1,
    max_size=8,
)


def carry_out(statements: Sequence[tuple[str, int, int]], inputs: Sequence[Any]) -> Any:
    """Run a program; return a tree of its last three values."""
    values: list[Any] = list(inputs)
    for what, i, j in statements:
        a, b = values[i % len(values)], values[j % len(values)]
        if a.ndim == b.ndim == 2 and a.shape != b.shape:
            a = b
        found = STEPS[what](a, b)
        values += found if isinstance(found, tuple) else [found]
    return {"last": values[-1], "before": (values[-2], [values[-3]])}


def differences(f: Callable[..., Any], primals: Any, tangents: Any, step: float = 1e-5) -> Any:
    """Return the derivative of a function along tangents by central differences, leaf by leaf."""
    ends = [
        mixad.pytree.leaves(f(*[p + s * t for p, t in zip(primals, tangents, strict=True)]))
        for s in (step, -step)
    ]
    return [(np.asarray(a) - np.asarray(b)) / (2 * step) for a, b in zip(*ends, strict=True)]


def assert_leaves_near(found: Any, expected: Any, rtol: float = 1e-6) -> None:
    leaves = mixad.pytree.leaves(found)
    for leaf, want in zip(leaves, mixad.pytree.leaves(expected), strict=True):
        np.testing.assert_allclose(leaf, want, rtol, rtol * max(1.0, np.abs(want).max(initial=0)))


PRIMALS, TANGENTS = (X, Y), (DX, DY)


@pytest.mark.slow
@given(STATEMENTS)
def test_tangents_of_random_programs_are_the_limits_of_differences(statements: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return carry_out(statements, (x, y))

    value, tangent = mixad.jvp(f, PRIMALS, TANGENTS)
    assert_leaves_near(value, f(*PRIMALS), 1e-12)
    assert_leaves_near(tangent, differences(f, PRIMALS, TANGENTS))


@pytest.mark.slow
@given(STATEMENTS)
def test_forward_and_reverse_mode_agree_on_random_programs(statements: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return carry_out(statements, (x, y))

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not depend on the arguments")
        value, pullback = mixad.vjp(f, *PRIMALS)
    cotangent = mixad.pytree.tree_map(lambda leaf: np.cos(np.asarray(leaf)), value)
    expected = sum(
        (np.asarray(g) * t).sum() for g, t in zip(pullback(cotangent), TANGENTS, strict=True)
    )
    _, tangent = mixad.jvp(f, PRIMALS, TANGENTS)
    products = mixad.pytree.tree_map(lambda c, t: (c * t).sum(), cotangent, tangent)
    assert sum(mixad.pytree.leaves(products)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.slow
@given(STATEMENTS)
@example([("add", 0, 0)] * 5 + [("both", 0, 0), ("add", 1, 25)])  # was fused out of order
def test_second_derivatives_of_random_programs_in_every_mix_of_modes(statements: Any) -> None:
    def loss(x: Any, y: Any) -> Any:
        tree = carry_out(statements, (x, y))
        return sum((leaf * leaf).sum() for leaf in mixad.pytree.leaves(tree)) + (x * x).sum()

    def slope(x: Any, y: Any) -> Any:
        return mixad.jvp(loss, (x, y), TANGENTS)[1]

    def gradients(x: Any, y: Any) -> Any:
        return mixad.grad(loss, argnums=(0, 1))(x, y)

    products = mixad.jvp(gradients, PRIMALS, TANGENTS)[1]
    assert_leaves_near(products, differences(gradients, PRIMALS, TANGENTS), 1e-5)
    assert_leaves_near(mixad.grad(slope, argnums=(0, 1))(*PRIMALS), products, 1e-9)
    curvature = sum((p * t).sum() for p, t in zip(products, TANGENTS, strict=True))
    assert mixad.jvp(slope, PRIMALS, TANGENTS)[1] == pytest.approx(curvature, rel=1e-9, abs=1e-9)


@pytest.mark.slow
@given(STATEMENTS)
def test_a_linearized_function_is_linear_and_may_be_called_again(statements: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return carry_out(statements, (x, y))

    value, pushforward = mixad.linearize(f, *PRIMALS)
    expected, tangent = mixad.jvp(f, PRIMALS, TANGENTS)
    assert_leaves_near(value, expected, 1e-12)
    for _ in range(2):
        assert_leaves_near(pushforward(DX, DY), tangent, 1e-12)
    first, second = pushforward(DX, 0 * DY), pushforward(0 * DX, DY)
    assert_leaves_near(mixad.pytree.tree_map(lambda a, b: a + b, first, second), tangent, 1e-9)


@pytest.mark.slow
@settings(max_examples=EXAMPLES_OF_PROGRAMS)
@given(STATEMENTS)
def test_random_programs_that_run_again_or_have_rules_of_their_own(statements: Any) -> None:
    def f(x: Any, y: Any) -> Any:
        return carry_out(statements, (x, y))

    reverse, forward = mixad.custom_vjp(f), mixad.custom_jvp(f)
    reverse.defvjp(lambda x, y: (f(x, y), (x, y)), lambda args, g: tuple(mixad.vjp(f, *args)[1](g)))
    forward.defjvp(lambda primals, tangents: mixad.jvp(f, primals, tangents))

    def loss_of(g: Any) -> Any:
        return lambda x, y: sum((v * v).sum() for v in mixad.pytree.leaves(g(x, y))) + (x * x).sum()

    def derivatives(g: Any) -> Any:
        loss = loss_of(g)
        return (
            mixad.value_and_grad(loss, argnums=(0, 1))(*PRIMALS),
            mixad.jvp(loss, PRIMALS, TANGENTS),
            mixad.hvp(loss, PRIMALS, TANGENTS),
            mixad.grad(lambda x: mixad.jvp(lambda x: loss(x, Y), (x,), (DX,))[1])(X),
            mixad.jacfwd(g)(*PRIMALS),
            mixad.jacrev(g)(*PRIMALS),
        )

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not depend on the arguments")
        expected = derivatives(f)
        assert_leaves_near(expected[-1], expected[-2], 1e-9)
        for g in (mixad.checkpoint(f), reverse, forward):
            assert_leaves_near(derivatives(g), expected, 1e-9)


# -- values that are known -------------------------------------------------------------------------


def test_derivatives_by_hand_in_every_mix_of_three() -> None:
    def cubes(x: Any) -> Any:
        return (x * x * x * x).sum()

    def along(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: mixad.jvp(f, (x,), (DX,))[1]

    def against(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: (mixad.grad(f)(x) * DX).sum()

    for outer in (along, against):
        for middle in (along, against):
            for inner in (along, against):
                third = outer(middle(inner(cubes)))(X)
                assert third == pytest.approx((24 * X * DX**3).sum(), rel=1e-12)


def test_five_jvps_of_a_kernel() -> None:
    f = mixad.broadcast(lambda x: np.exp(2.0 * x))

    def along(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: mixad.jvp(f, (x,), (np.ones(3),))[1]

    for _ in range(5):
        f = along(f)
    np.testing.assert_allclose(f(X), 32 * np.exp(2 * X), rtol=1e-12)


def derivative_forward(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: mixad.jvp(f, (x,), (1.0,))[1]


MODES = [mixad.grad, derivative_forward]


@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("outer", MODES)
def test_perturbations_are_not_confused(outer: Any, inner: Any) -> None:
    """Siskind and Pearlmutter 2005; Manzyuk et al. 2019, section 5."""
    assert outer(lambda x: x * inner(lambda y: x + y)(1.0))(1.0) == 1.0
    assert outer(lambda x: x * inner(lambda y: x * y)(2.0))(3.0) == 6.0
    assert outer(lambda x: inner(lambda y: x * y * y)(x))(3.0) == 12.0
    kernel = mixad.broadcast(lambda x, y: x * x * y)
    assert outer(lambda x: x * inner(lambda y: kernel(x, y))(x))(2.0) == pytest.approx(12.0)


@pytest.mark.parametrize("inner", MODES)
@pytest.mark.parametrize("outer", MODES)
def test_a_captured_value_of_a_transform_around(outer: Any, inner: Any) -> None:
    def f(x: Any) -> Any:
        weigh = mixad.broadcast(lambda y: y * y * x)
        return inner(weigh)(3.0) * x

    assert outer(f)(2.0) == pytest.approx(24.0)  # 6 x²


def test_a_pushforward_is_differentiated_with_respect_to_its_tangent() -> None:
    _, pushforward = mixad.linearize(lambda x: product(x, x), X)
    found = mixad.grad(lambda t: (pushforward(t) * Y[0]).sum())(DX)
    np.testing.assert_allclose(found, X * Y[0])


def test_linearized_inside_of_another_transform() -> None:
    def f(x: Any) -> Any:
        _, pushforward = mixad.linearize(lambda y: (y * y * x).sum(), x)
        return pushforward(x) + pushforward(DX)

    # 2 Σ x³ + 2 Σ x² dx
    np.testing.assert_allclose(mixad.grad(f)(X), 6 * X * X + 4 * X * DX)


def test_a_sum_of_stored_partials_is_pushed_forward_as_a_sum() -> None:
    _, tangent = mixad.jvp(lambda x: ahead(x, x).sum(), (X,), (DX,))
    assert tangent == pytest.approx(((np.tanh(X) + X / np.cosh(X) ** 2) * DX).sum())


def test_a_sum_of_what_is_pending_outside_is_pushed_forward_as_a_sum() -> None:
    def f(x: Any) -> Any:
        return mixad.jvp(lambda y: y.sum() * y.sum(), (x * x,), (DX,))[1]

    np.testing.assert_allclose(mixad.grad(f)(X), 4 * X * DX.sum())


def test_what_does_not_change_has_no_tangent() -> None:
    steps = mixad.broadcast(lambda x: math.floor(x) * 1.0)

    def f(x: Any) -> Any:
        a, b = steps(x), np.floor(x)
        bool(a[0] > 0)
        return a * 2.0, a + x, b, b * 3.0, 1.5, Y

    value, tangent = mixad.jvp(f, (X,), (DX,))
    floor = np.floor(X)
    assert_leaves_near(value, (2 * floor, floor + X, floor, 3 * floor, 1.5, Y))
    assert_leaves_near(tangent, (0 * X, DX, 0 * X, 0 * X, 0.0, 0 * Y))


# -- kernels ---------------------------------------------------------------------------------------


def test_value_and_tangent_come_out_of_one_kernel(launches: list[Any]) -> None:
    value, tangent = mixad.jvp(both, (X, X + 1), (DX, DX))
    assert len(launches) == 1
    assert_leaves_near(value, (0.5 * X * (X + 1), 1.5 * X + 1))
    assert_leaves_near(tangent, (0.5 * (2 * X + 1) * DX, 1.5 * DX))


def test_a_chain_and_its_sum_are_one_kernel(launches: list[Any]) -> None:
    def f(x: Any) -> Any:
        r = product(x, x) - 0.3 * x
        return (r * np.tanh(r)).sum()

    mixad.jvp(f, (X,), (DX,))
    assert len(launches) == 1


def test_up_to_ten_directions_are_one_kernel(launches: list[Any]) -> None:
    function, _ = recorded("jvp", product, (X, X), False)
    directions = [(k * DX, DX) for k in range(10)]
    value, tangents = function.pushed(directions)
    assert len(launches) == 1
    np.testing.assert_allclose(value, 0.5 * X * X)
    for k, tangent in enumerate(tangents):
        np.testing.assert_allclose(tangent, 0.5 * (k + 1) * X * DX)


def test_loop_results_that_inputs_decide_are_warned_of() -> None:
    @mixad.broadcast
    def root(c: float) -> tuple[float, float]:
        low, high = 0.0, 4.0
        for _ in range(20):
            middle = 0.5 * (low + high)
            if middle * middle < c:
                low = middle
            else:
                high = middle
        return low, 2.0 * c

    with pytest.warns(ZeroDerivativeWarning, match="low"):
        mixad.jvp(root, (X,), (DX,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixad.jvp(lambda c: root(c)[1], (X,), (DX,))


# -- arguments and libraries -----------------------------------------------------------------------


def test_trees_numbers_and_aux() -> None:
    def f(p: Any, scale: float) -> Any:
        return {"y": p["w"] * scale, "s": scale * scale}, ("aux", p["w"], scale)

    p, dp = {"w": X, "none": None}, {"w": DX, "none": None}
    value, tangent, aux = mixad.jvp(f, (p, 3.0), (dp, 0.5), has_aux=True)
    assert_leaves_near(value, {"y": 3 * X, "s": 9.0})
    assert_leaves_near(tangent, {"y": 3 * DX + 0.5 * X, "s": 3.0})
    assert aux[0] == "aux"
    assert aux[1] is not p["w"] or np.shares_memory(aux[1], X)
    assert (type(tangent["s"]), type(aux[2])) == (float, float)
    value, pushforward, aux = mixad.linearize(f, p, 3.0, has_aux=True)
    assert_leaves_near(pushforward(dp, 0.5), {"y": 3 * DX + 0.5 * X, "s": 3.0})


def test_tangents_have_the_dtype_of_their_values() -> None:
    x = X.astype("f4")
    value, tangent = mixad.jvp(lambda x, s: (x * s, s * 2.0), (x, 2.0), (2 * x, 1.0))
    assert [v.dtype for v in (value[0], tangent[0])] == [np.float32] * 2
    assert (type(value[1]), type(tangent[1])) == (float, float)
    np.testing.assert_allclose(tangent[0], 5 * x)
    value, tangent = mixad.jvp(lambda x: x.astype("f8") * Y, (x,), (x,))
    assert tangent.dtype == np.float64


def test_a_number_stands_for_a_constant_tangent() -> None:
    np.testing.assert_array_equal(mixad.jvp(lambda x: x * x, (X,), (1,))[1], 2 * X)


def test_arrays_without_elements() -> None:
    x = np.zeros((0, 3))
    value, tangent = mixad.jvp(lambda x: (x * x, x.sum()), (x,), (x,))
    assert value[0].shape == tangent[0].shape == (0, 3)
    assert value[1] == tangent[1] == 0


def arrays_of_torch(values: Any) -> Any:
    import torch

    return torch.asarray(values)


LIBRARIES = [
    pytest.param(array_api_strict.asarray, id="array_api_strict"),
    pytest.param(
        arrays_of_torch,
        marks=[pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="no torch here")],
        id="torch",
    ),
]


@pytest.mark.parametrize("array", LIBRARIES)
def test_other_libraries_give_their_own_arrays(array: Any) -> None:
    def f(x: Any, m: Any) -> Any:
        y = horner(x, x * x) @ m
        return y[1:] * sigmoid_of(y).sum(), x.reshape((3, 1)) + ahead(x, x).sum()

    given = [(array(X), array(M)), (array(DX), array(2 * M))]
    value, tangent = mixad.jvp(f, *given)
    expected = mixad.jvp(f, (X, M), (DX, 2 * M))
    for found, want in zip((*value, *tangent), (*expected[0], *expected[1]), strict=True):
        assert type(found) is type(given[0][0])
        np.testing.assert_allclose(np.asarray(np.from_dlpack(found)), want, rtol=1e-12)
    assert_leaves_near(expected[1], differences(f, (X, M), (DX, 2 * M)))


sigmoid_of = mixad.broadcast(lambda t: sigmoid(t))


# -- what is refused (messages are in tests/refusals) ----------------------------------------------


def test_whole_numbers_are_tangents_and_cotangents() -> None:
    """SciPy finds the dtype of an operator with zeros of int8; a mask is one of 0 and 1."""
    f, slope = (lambda x: x**3), 3 * X**2
    wrong = []
    for namespace in (np, array_api_strict):
        for dtype in ("int8", "int64", "uint8", "bool"):
            t = namespace.asarray([1, 0, 1], dtype=getattr(namespace, dtype))
            x = namespace.asarray(X)
            _, pushed = mixad.jvp(f, (x,), (t,))
            (pulled,) = mixad.vjp(f, x)[1](t)
            for got in (pushed, pulled):
                if got.dtype != x.dtype or not np.allclose(np.asarray(got), slope * [1, 0, 1]):
                    wrong.append((namespace.__name__, dtype, got))
    assert not wrong


def test_a_tangent_of_another_transform_that_is_over_is_refused() -> None:
    kept: list[Any] = []
    mixad.grad(lambda x: [kept.append(x), (x * x).sum()][1])(X)
    with pytest.raises(TracerError, match="after that call has ended"):
        mixad.jvp(lambda x: x * x, (X,), (kept[0],))
    with pytest.raises(TracerError, match="after that call has ended"):
        mixad.jvp(lambda x: x * x, (kept[0],), (DX,))


def test_tangents_are_the_callers_own() -> None:
    x, given = np.arange(1.0, 4.0), np.asarray([1.0, 0.5, 2.0])

    def f(a: Any) -> Any:
        return a, a, a.reshape((3, 1)), a[1:], a * 2.0

    _, tangents = mixad.jvp(f, (x,), (given,))
    for i, tangent in enumerate(tangents):
        assert tangent.flags.writeable
        for other in (given, x, *tangents[:i]):
            assert not np.shares_memory(tangent, other)
    _, constant = mixad.jvp(lambda a: a, (x,), (1.0,))
    constant[0] = 2.0
    np.testing.assert_array_equal(constant, [2.0, 1.0, 1.0])


def test_a_function_that_is_constant_warns() -> None:
    with pytest.warns(UserWarning, match=r"mixad\.jvp: the result of .* does not depend"):
        mixad.jvp(lambda x: np.ones(2), (np.ones(2),), (np.ones(2),))
    with pytest.warns(UserWarning, match=r"mixad\.linearize: .* the derivative is zero"):
        mixad.linearize(lambda x: np.ones(2), np.ones(2))


def test_a_partial_that_is_zero_at_a_point_has_a_derivative_there() -> None:
    """At x = 0 the partial 2x of x² is zero, its derivative is not."""
    x = np.asarray([0.0, 1.0])

    def slope(x: Any) -> Any:
        return mixad.jvp(lambda x: (np.sqrt(1.0 + x * x) * x**2).sum(), (x,), (np.ones(2),))[1]

    expected = 2 * np.sqrt(1 + x**2) + 5 * x**2 / np.sqrt(1 + x**2) - x**4 / (1 + x**2) ** 1.5
    np.testing.assert_allclose(mixad.grad(slope)(x), expected, rtol=1e-14)
    _, tangent = mixad.jvp(slope, (x,), (np.ones(2),))
    assert tangent == pytest.approx(expected.sum())
