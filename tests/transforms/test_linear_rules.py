"""Rules that the user gives must be linear: those that are not are refused, all others believed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad.errors import TracerError

Rule = Callable[[Any, Any], Any]
"""What a rule makes of a primal and a tangent."""


def by_jvp(rule: Rule) -> Any:
    f = mixad.custom_jvp(lambda x: x * 1)
    f.defjvp(lambda p, t: (p[0] * 1, rule(p[0], t[0])))
    return f


def by_vjp(rule: Rule) -> Any:
    f = mixad.custom_vjp(lambda x: x * 1)
    f.defvjp(lambda x: (x * 1, x), lambda x, g: (rule(x, g),))
    return f


EXAMPLES = 150

USES = {
    "custom_jvp forward": lambda rule, x: mixad.jvp(by_jvp(rule), (x,), (x,))[1],
    "custom_jvp reverse": lambda rule, x: mixad.vjp(by_jvp(rule), x)[1](x)[0],
    "custom_vjp forward": lambda rule, x: mixad.jvp(by_vjp(rule), (x,), (x,))[1],
}
"""All ways in which a rule must be linear."""


NOT_LINEAR: dict[str, Rule] = {
    # Odd, and of degree one.
    "median": lambda x, t: np.median(t) * x,
    "sorting": lambda x, t: np.sort(t) * x,
    "sorting by indices": lambda x, t: t[np.argsort(t)] * x,
    "mean of the middle": lambda x, t: np.sort(t)[1:-1].mean() * x,
    "largest magnitude": lambda x, t: t[np.argmax(abs(t))] * x,
    "largest and smallest": lambda x, t: (np.max(t) - np.max(-t)) * x,
    "cubes over squares": lambda x, t: t**3 / (t * t).sum(),
    "a choice by magnitude": lambda x, t: np.where(abs(t) > abs(t[::-1]), t, 2.0 * t),
    "a ratio of sizes": lambda x, t: t * abs(t).sum() / abs(t).max(),
    # Of degree one.
    "magnitudes": lambda x, t: abs(t) * x,
    "a norm": lambda x, t: np.sqrt((t * t).sum()) * x,
    "one side": lambda x, t: np.maximum(t, 0.0),
    # Anything else.
    "squares": lambda x, t: t * t,
    "products": lambda x, t: t * t[::-1],
    "signs": lambda x, t: np.sign(t) * x,
    "steps": lambda x, t: np.round(t * 8.0) / 8.0,
    "a curve": lambda x, t: np.tanh(t),
    "a bound": lambda x, t: np.clip(t, -1.0, 1.0),
    "a wide bound": lambda x, t: np.clip(t, -20.0, 20.0),
    "a narrow bound": lambda x, t: np.clip(t, -0.01, 0.01),
    "a bound of the norm": lambda x, t: t / np.maximum(1.0, np.sqrt((t * t).sum())),
    "a constant more": lambda x, t: t * x + 1.0,
    "a part of the primal more": lambda x, t: t * x + x * 0.125,
    # What is not recorded.
    "a branch on all": lambda x, t: t * x if (t > 0).all() else 2.0 * t,
    "a branch on some": lambda x, t: t * x if (t > 0).any() else 2.0 * t,
    "a branch on a sum": lambda x, t: t * x if t.sum() > 0 else 2.0 * t,
    "a branch on a size": lambda x, t: t * x if abs(t).max() > 1 else 2.0 * t,
    "a branch on an order": lambda x, t: t * x if t[0] > t[-1] else 2.0 * t,
    "a tangent without a derivative": lambda x, t: t * x + mixad.stop_gradient(t),
    "one as a factor": lambda x, t: t * mixad.stop_gradient(t),
}


@pytest.mark.rows("dtype", ["f8", "f4", "f2"], slow="f4 f2")
@pytest.mark.rows("use", USES)
@pytest.mark.rows("rule", NOT_LINEAR)
def test_rules_that_are_not_linear_are_refused(rule: str, use: str, dtype: str) -> None:
    x = np.asarray([0.5, 1.0, 1.5, 2.0]).astype(dtype)
    with pytest.raises(TracerError, match=r"of <lambda>: .* not linear .*test_linear_rules\.py"):
        USES[use](NOT_LINEAR[rule], x)


BOUNDED: dict[str, Rule] = {
    "a bound above": lambda x, t: np.minimum(t, 5.0) * x,
    "a bound below": lambda x, t: np.maximum(t, -5.0) * x,
    "two bounds": lambda x, t: np.clip(t, -2.0, 2.0) * x,
    "wide bounds": lambda x, t: np.clip(t, -100.0, 100.0) * x,
    "more above a bound": lambda x, t: np.where(t > 3.0, 2.0 * t, t),
    "a branch on a bound": lambda x, t: t * x if (t < 50.0).all() else 2.0 * t,
}


@pytest.mark.rows("use", USES)
@pytest.mark.rows("rule", BOUNDED)
@pytest.mark.rows("shape", [(), (5,)])
def test_bounds_are_found_on_either_side_of_single_numbers_too(
    shape: tuple[int, ...], rule: str, use: str
) -> None:
    with pytest.raises(TracerError, match="not linear"):
        USES[use](BOUNDED[rule], np.full(shape, 0.5))


def median_of_three(a: Any, b: Any, c: Any) -> Any:
    return np.maximum(np.minimum(a, b), np.minimum(np.maximum(a, b), c))


NOT_LINEAR_TOGETHER: dict[str, Callable[[Any, Any, Any], Any]] = {
    "median": median_of_three,
    "the larger of two": lambda a, b, c: np.where(abs(a) > abs(b), a, b) + c,
    "a branch": lambda a, b, c: a + b if abs(b) > abs(c) else a + c,
    "a product of two over another": lambda a, b, c: a * b / c,
}


@pytest.mark.parametrize("rule", NOT_LINEAR_TOGETHER)
def test_tangents_of_several_numbers_are_tried_in_several_orders(rule: str) -> None:
    f = mixad.custom_jvp(lambda x, y, z: x + y + z)
    f.defjvp(lambda p, t: (f(*p), NOT_LINEAR_TOGETHER[rule](*t)))
    for transform in (
        lambda: mixad.jvp(f, (1.0, 2.0, 3.0), (1.0, 1.0, 1.0)),
        lambda: mixad.grad(f, argnums=(0, 1, 2))(1.0, 2.0, 3.0),
    ):
        with pytest.raises(TracerError, match="not linear"):
            transform()


def test_random_rules_are_refused() -> None:
    rng = np.random.default_rng(1)
    for use in USES.values():
        with pytest.raises(TracerError, match="not linear"):
            use(lambda x, t: t * rng.normal(size=3), np.ones(3))


def softmax(x: Any) -> Any:
    e = np.exp(x - np.max(x))
    return e / e.sum()


def of_softmax(x: Any, t: Any) -> Any:
    p = softmax(x)
    return p * (t - (p * t).sum())


@pytest.mark.rows("dtype", ["f8", "f4", "f2"])
@pytest.mark.rows("use", USES)
@pytest.mark.rows("large", [12.0, 20.0, 30.0, 36.0, 80.0])
def test_linear_rules_are_believed_where_rounding_is_all_there_is(
    large: float, use: str, dtype: str
) -> None:
    """Softmax with one large logit: what is left of the tangents is of the size of rounding."""
    x = np.asarray([-4.0, 1.0, large]).astype(dtype)
    found = USES[use](of_softmax, x)
    np.testing.assert_allclose(found, of_softmax(x, x), atol=large * np.finfo(dtype).eps)


LINEAR: dict[str, Rule] = {
    "a guard": lambda x, t: np.where(t != 0, t * x, 0.0),
    "a branch on the primal": lambda x, t: t * x if x.sum() > 0 else 2.0 * t,
    "a mask of the primal": lambda x, t: np.where(x > 0, t, 0.0),
    "sorting by the primal": lambda x, t: t[np.argsort(-x)],
    "quotients": lambda x, t: t * t / t * x,
    "a checkpoint": lambda x, t: mixad.checkpoint(of_softmax)(x, t),
    "a system": lambda x, t: np.linalg.solve(np.eye(3) + 0.1, t) * x,
    "written parts": lambda x, t: _written(x, t),
    "a kernel": lambda x, t: mixad.broadcast(lambda a, b: a * b if a > 1.0 else b / 2.0)(x, t),
    "padding": lambda x, t: np.diff(np.pad(t, 1))[1:] * x,
    "differences of what is near": lambda x, t: (x + t) * 3.0 - x * 3.0,
    "large factors": lambda x, t: t * x * 1e300,
    "small factors": lambda x, t: t * x * 1e-300,
    "overflow": lambda x, t: t * x * 1e300 * 1e300,
    "infinite factors": lambda x, t: t * np.asarray([np.inf, 1.0, -np.inf]),
    "missing factors": lambda x, t: t * np.asarray([np.nan, 1.0, 2.0]),
    "infinite sums": lambda x, t: t @ np.asarray([np.inf, 1.0, -np.inf]) * x,
    "nothing": lambda x, t: t * 0.0,
}


def _written(x: Any, t: Any) -> Any:
    out = t * 0.0
    out[1:] = t[:-1] * x[1:]
    return out


@pytest.mark.rows("use", USES)
@pytest.mark.rows("rule", LINEAR)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_linear_rules_are_believed_whatever_they_are_made_of(rule: str, use: str) -> None:
    x = np.asarray([0.5, 1.0, 1.5])
    found, of = USES[use](LINEAR[rule], x), LINEAR[rule]
    matrix = np.stack([of(x, x + e) - of(x, x) for e in np.eye(3)], axis=1)
    want = of(x, x) if use == "custom_jvp forward" else matrix.T @ x
    finite = np.isfinite(found) & np.isfinite(want)
    np.testing.assert_allclose(np.where(finite, found, 0), np.where(finite, want, 0), rtol=1e-9)
    if "infinite" not in rule and rule not in ("overflow", "missing factors"):
        assert finite.all()


def test_empty_arrays_whole_numbers_and_trees_have_rules() -> None:
    f = mixad.custom_jvp(lambda tree, n: {"a": tree["a"] * n, "b": (tree["b"], n)})
    f.defjvp(
        lambda p, t: (
            f(*p),
            {"a": t[0]["a"] * p[1] + t[0]["b"].sum(), "b": (t[0]["b"] * 1.0, None)},
        )
    )
    tree = {"a": np.ones((0, 3)), "b": np.ones(2)}
    tangent = mixad.jvp(lambda tree: f(tree, 3), (tree,), (tree,))[1]
    assert tangent["a"].shape == (0, 3)
    np.testing.assert_array_equal(tangent["b"][0], np.ones(2))
    found = mixad.grad(lambda tree: f(tree, 3)["b"][0].sum())(tree)
    np.testing.assert_array_equal(found["b"], np.ones(2))
    for use in USES.values():
        assert use(lambda x, t: t * 2.0, np.ones(0)).shape == (0,)


# -- rules made at random ----------------------------------------------------------------------


def _constant(draw: Any, shape: tuple[int, ...], dtype: str) -> Any:
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    numbers = rng.normal(size=shape) + (1j * rng.normal(size=shape) if "c" in dtype else 0.0)
    numbers *= 10.0 ** draw(st.sampled_from([0, 0, 0, 5, -5, 30, -30]))
    if numbers.size and draw(st.integers(0, 9)) == 0:
        numbers.flat[0] = draw(st.sampled_from([np.inf, -np.inf, np.nan, 0.0]))
    with np.errstate(all="ignore"):
        return numbers.astype(dtype)


def _step(draw: Any, size: int, dtype: str) -> Callable[[Any], Any]:
    """A linear map of arrays of a size, of constants that do not depend on what it is given."""
    a, matrix = _constant(draw, (size,), dtype), _constant(draw, (size, size), dtype)
    indices = np.asarray(draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size)))
    logits = np.linspace(-1.0, 1.0, size) * draw(st.sampled_from([1.0, 10.0, 50.0, 200.0]))
    p, mask = softmax(logits).astype(dtype), indices % 2 == 0
    steps: dict[str, Callable[[Any], Any]] = {
        "scaled": lambda t: a * t,
        "divided": lambda t: t / 3.0,
        "product": lambda t: matrix @ t,
        "einsum": lambda t: np.einsum("i,ij->j", t, matrix),
        "gathered": lambda t: t[indices],
        "masked": lambda t: np.where(mask, t, 0.0),
        "one of two": lambda t: np.where(mask, t * a, t.sum() * a),
        "sum": lambda t: t.sum() * a,
        "centred": lambda t: t - t.mean(),
        "scan": np.cumsum,
        "turned": lambda t: np.roll(t, 1)[::-1],
        "added": lambda t: t * 2.0 - t[indices],
        "joined": lambda t: np.concatenate([t, -t])[:size],
        "softmax": lambda t: p * (t - (p * t).sum()),
        "softmax by a product": lambda t: p * (t - p @ t),
    }
    if "c" in dtype:
        steps |= {"conjugate": np.conj, "parts": lambda t: t.real * 1j + t.imag, "fft": np.fft.fft}
    return steps[draw(st.sampled_from(sorted(steps)))]


@st.composite
def linear_rules(draw: Any) -> tuple[str, int, Callable[[Any], Any]]:
    dtype = draw(st.sampled_from(["f2", "f4", "f8", "c8", "c16"]))
    size = draw(st.sampled_from([1, 2, 3, 17]))
    steps = [_step(draw, size, dtype) for _ in range(draw(st.integers(1, 4)))]

    def rule(t: Any) -> Any:
        for step in steps:
            t = step(t)
        return t.astype(dtype)

    return dtype, size, rule


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=EXAMPLES, deadline=None)
@given(linear_rules())
def test_linear_rules_are_never_refused(drawn: tuple[str, int, Callable[[Any], Any]]) -> None:
    dtype, size, rule = drawn
    x = np.linspace(0.5, 2.0, size).astype(dtype)
    for use in USES.values():
        assert use(lambda _, t: rule(t), x).dtype == x.dtype


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "complex64"])
@pytest.mark.parametrize(
    "library",
    [
        pytest.param("torch", marks=pytest.mark.torch),
        "jax.numpy",
    ],
)
def test_arrays_of_other_libraries(library: str, dtype: str) -> None:
    xp = pytest.importorskip(library)
    x = xp.asarray([-4.0, 1.0, 12.0], dtype=getattr(xp, dtype))
    p = xp.asarray([2**-18, 2**-14, 1.0 - 2**-8], dtype=getattr(xp, dtype))
    for use in USES.values():
        found = use(lambda x, t: p * (t - (p * t).sum()), x)
        assert found.dtype == x.dtype
        for rule in (lambda x, t: t * x + 1.0, lambda x, t: t * (t * x).sum()):
            with pytest.raises(TracerError, match="not linear"):
                use(rule, x)
