"""NumPy's statistics and what is like them: every shape, what is at kinks, and what JAX says."""

from __future__ import annotations

import functools
import importlib.util
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes

import mixad
from mixad.errors import TracerError

EXAMPLES_OF_SHAPES = 15  # of each reduction
HAS_JAX = importlib.util.find_spec("jax") is not None
RNG = np.random.default_rng(5)
X, Y, V, W = (
    RNG.normal(size=(4, 5)),
    RNG.normal(size=(4, 5)),
    RNG.normal(size=6),
    RNG.random(5) + 0.5,
)

# -- every shape, every choice of axes -------------------------------------------------------------


def holes(x: Any) -> Any:
    """Return numbers with a few nans, which are at the same places in all arrays of a shape."""
    places = np.random.default_rng(1).random(x.shape) < 0.3
    return np.where(places, np.nan, x)


def masked(function: Any) -> Any:
    def evaluate(x: Any, axis: Any, keepdims: bool) -> Any:
        mask = np.random.default_rng(2).random(x.shape) < 0.7
        return function(x, axis=axis, keepdims=keepdims, where=mask, initial=0.3)

    return evaluate


REDUCTIONS: dict[str, Any] = {
    **{name: lambda x, axis, keepdims, f=name: getattr(np, f)(x, axis=axis, keepdims=keepdims)
       for name in ("average", "median")},
    **{name: lambda x, axis, keepdims, f=name: getattr(np, f)(
           holes(x), axis=axis, keepdims=keepdims)
       for name in ("nansum", "nanprod", "nanmean", "nanmax", "nanmin", "nanvar", "nanmedian")},
    **{name: lambda x, axis, keepdims, f=name: getattr(np, f)(
           x, axis=axis, keepdims=keepdims, ddof=1, where=np.arange(x.shape[-1]) % 3 > 0)
       for name in ("var", "std")},
    "quantile": lambda x, axis, keepdims: np.quantile(x, [0.2, 0.9], axis=axis, keepdims=keepdims),
    "percentile": lambda x, axis, keepdims: np.percentile(x, 37.0, axis=axis, keepdims=keepdims),
    "nanquantile": lambda x, axis, keepdims: np.nanquantile(
        holes(x), [0.2, 0.9], axis=axis, keepdims=keepdims),
    "nanpercentile": lambda x, axis, keepdims: np.nanpercentile(
        holes(x), 37.0, axis=axis, keepdims=keepdims, method="higher"),
    "sum": masked(np.sum), "prod": masked(np.prod), "max": masked(np.max), "min": masked(np.min),
    "mean": lambda x, axis, keepdims: np.mean(
        x, axis=axis, keepdims=keepdims, where=np.arange(x.shape[-1]) % 2 == 0),
}  # fmt: skip


@st.composite
def reduced(draw: Any) -> tuple[Any, Any]:
    shape = draw(array_shapes(max_dims=3, max_side=4))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    signed = tuple(a - draw(st.sampled_from((0, len(shape)))) for a in sorted(axes))
    axis = draw(st.sampled_from((None, signed, signed[0])))
    x = np.random.default_rng(draw(st.integers(0, 99))).permutation(np.prod(shape, dtype=int))
    return 0.3 + 0.37 * x.reshape(shape) - 0.11 * x.size, axis


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*does not depend on:UserWarning")
@pytest.mark.rows("name", REDUCTIONS, slow="std var")
@settings(max_examples=EXAMPLES_OF_SHAPES, deadline=None)
@given(given=reduced(), keepdims=st.booleans())
def test_reductions_of_every_shape_are_those_of_numpy(
    name: str, given: tuple[Any, Any], keepdims: bool
) -> None:
    x, axis = given
    function = functools.partial(REDUCTIONS[name], axis=axis, keepdims=keepdims)
    wanted = function(x)
    value, pullback = mixad.vjp(function, x)
    np.testing.assert_allclose(value, wanted, rtol=1e-12, atol=1e-12, strict=True)
    numbers = np.cos(np.arange(np.size(wanted))).reshape(wanted.shape) * ~np.isnan(wanted)
    along, step = np.sin(1.0 + np.arange(x.size)).reshape(x.shape), 1e-6
    ends = (np.nan_to_num(function(x + s * along)) for s in (step, -step))
    slope = np.subtract(*ends) / (2 * step)
    (gradient,) = pullback(numbers)
    error = np.vdot(gradient, along) - np.vdot(numbers, slope)
    assert abs(error) <= 1e-5 * np.abs(slope).sum() + 1e-8


# -- what is at ties, ends and gaps ----------------------------------------------------------------


def test_nans_have_derivative_zero() -> None:
    x = np.asarray([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    for name, wanted in {
        "nansum": [1, 0, 1], "nanprod": [3, 0, 1], "nanmean": [0.5, 0, 0.5], "nanmax": [0, 0, 1],
        "nanmin": [1, 0, 0], "nanvar": [-1, 0, 1], "nanstd": [-0.5, 0, 0.5],
        "nanmedian": [0.5, 0, 0.5],
    }.items():  # fmt: skip
        value, pullback = mixad.vjp(lambda x, f=name: getattr(np, f)(x, axis=1), x)
        assert np.isnan(value[1]) == (name not in ("nansum", "nanprod"))
        np.testing.assert_allclose(pullback(np.ones(2))[0], [wanted, [0, 0, 0]])


def test_largest_elements_share_and_nans_do_not() -> None:
    x = np.asarray([2.0, np.nan, 2.0, 1.0])
    np.testing.assert_array_equal(mixad.grad(np.nanmax)(x), [0.5, 0.0, 0.5, 0.0])
    gradient = mixad.grad(lambda x: np.max(x, where=[True, False, True, True], initial=1.0))(x)
    np.testing.assert_array_equal(gradient, [0.5, 0.0, 0.5, 0.0])
    low = mixad.grad(lambda x: np.max(x[3:], initial=1.0))(x)  # the start is one more element
    np.testing.assert_array_equal(low, [0.0, 0.0, 0.0, 0.5])


def test_the_start_of_a_reduction_has_a_derivative() -> None:
    def loss(start: Any) -> Any:
        x = X + 0.0 * start
        parts = np.sum(x, initial=start), np.prod(x[0], initial=start), np.max(x, initial=3 * start)
        return parts[0] + 2.0 * parts[1] + parts[2]

    for start in (2.0, np.float32(2.0), np.asarray(2.0)):
        wanted = 1.0 + 2.0 * np.prod(X[0]) + 3.0
        np.testing.assert_allclose(mixad.grad(loss)(start), wanted, rtol=1e-6)


def test_a_median_is_the_elements_in_the_middle() -> None:
    gradient = mixad.grad(np.median)
    np.testing.assert_array_equal(gradient(np.asarray([3.0, 1.0, 2.0])), [0, 0, 1])
    np.testing.assert_array_equal(gradient(np.asarray([3.0, 1.0, 2.0, 9.0])), [0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(gradient(np.asarray([2.0, 2.0, 2.0])), [0, 1, 0])  # their order
    np.testing.assert_array_equal(gradient(np.asarray([2.0, np.nan, 1.0])), [0, 0, 0])
    gradient = mixad.grad(np.nanmedian)
    np.testing.assert_array_equal(gradient(np.asarray([2.0, np.nan, 1.0])), [0.5, 0, 0.5])
    np.testing.assert_array_equal(gradient(np.asarray([2.0, np.nan, 1.0, 5.0])), [1, 0, 0, 0])
    np.testing.assert_array_equal(gradient(np.asarray([np.inf, np.inf, 1.0])), [1, 0, 0])


def test_a_quantile_of_an_element_is_that_element() -> None:
    for q, wanted in ((0.0, [0, 1, 0]), (0.5, [0, 0, 1]), (1.0, [1, 0, 0]), (0.25, [0, 0.5, 0.5])):
        gradient = mixad.grad(lambda x, q=q: np.quantile(x, q))(np.asarray([3.0, 1.0, 2.0]))
        np.testing.assert_array_equal(gradient, wanted)


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_whole_numbers_are_the_first_and_the_last_element(name: str, dtype: str) -> None:
    x = np.asarray([[1.0, np.inf, -np.inf], [2.0, 5.0, 3.0]], dtype=dtype)
    for q in (0, 1, [0, 1], np.int64(1)):
        for axis in (0, 1, None):
            function = functools.partial(getattr(np, name), q=q, axis=axis)
            np.testing.assert_array_equal(mixad.vjp(function, x)[0], function(x), strict=True)


def test_medians_along_one_axis_where_another_is_empty() -> None:
    x = np.zeros((0, 3))
    for function in (np.nanmedian, functools.partial(np.nanquantile, q=0.3)):
        value = mixad.vjp(lambda x, f=function: f(x, axis=1), x)[0]
        np.testing.assert_array_equal(value, function(x, axis=1), strict=True)


def test_interpolation_is_constant_outside_and_takes_the_line_on_the_right_at_a_point() -> None:
    x, points = np.asarray([-1.0, 0.0, 1.0, 2.0, 3.0]), np.arange(3.0)
    _, pullback = mixad.vjp(np.interp, x, points, np.asarray([5.0, 7.0, 4.0]))
    of_x, of_points, of_values = map(np.stack, zip(*map(pullback, np.eye(5)), strict=True))
    np.testing.assert_array_equal(of_x, np.diag([0, 2, -3, 0, 0]))
    np.testing.assert_array_equal(of_points[:, 0], [0, -2, 0, 0, 0])
    np.testing.assert_array_equal(of_points[:, 1], [0, 0, 3, 0, 0])
    np.testing.assert_array_equal(of_points[:, 2], [0, 0, 0, 0, 0])
    np.testing.assert_array_equal(of_values.T, [[1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]])

    def outside(v: Any) -> Any:
        return np.interp(x + 0.0 * v, points, V[:3], left=v, right=2 * v).sum()

    assert mixad.grad(outside)(0.0) == 3.0


def test_points_may_coincide() -> None:
    points = np.asarray([0.0, 0.0, 1.0, 1.0])
    for function in (
        lambda x: np.interp(x, points, V[:4]),
        lambda x: np.interp(x[:3], points, x[:4]),
    ):
        x = np.asarray([-0.5, 0.5, 1.5, 0.25])
        assert np.all(np.isfinite(mixad.grad(lambda x, f=function: f(x).sum())(x)))


@pytest.mark.slow
def test_correlations_of_one_are_not_cut_off() -> None:
    x = np.asarray([[1.0, 2.0, 4.0], [2.0, 4.0, 8.0]])  # as far as they can be
    gradient = mixad.grad(lambda x: np.corrcoef(x)[0, 1])(x)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-15)
    mixad.check_grads(lambda x: np.corrcoef(x)[0], (x,), order=2)


@pytest.mark.parametrize("axis", [None, 1])
def test_the_sum_of_weights_is_what_numpy_returns(axis: Any) -> None:
    found = mixad.vjp(lambda x: np.average(x, axis, returned=True), X)[0][1]
    wanted = np.average(X, axis, returned=True)[1]
    np.testing.assert_array_equal(found, wanted, strict=True)
    assert type(found) is type(wanted)


def test_pieces_may_be_constants() -> None:
    for f in (lambda v: np.ones(len(v)), lambda v: v[:0].sum()):  # what is no array of the traced
        value = mixad.vjp(lambda x, f=f: np.piecewise(x, [x < 0], [f, lambda v: v * v]), V)[0]
        np.testing.assert_array_equal(value, np.piecewise(V, [V < 0], [f, lambda v: v * v]))


def test_weights_that_sum_to_zero_are_refused_as_numpy_refuses_them() -> None:
    for weights in ([1.0, -1.0], [0.0, 0.0]):
        for average in (np.average, lambda x, **o: mixad.vjp(lambda x: np.average(x, **o), x)):
            with pytest.raises(ZeroDivisionError):
                average(np.ones(2), weights=weights)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*(nanmedian|partial).*does not depend on:UserWarning")
def test_what_is_empty_or_has_no_axes_is_as_in_numpy() -> None:
    empty, number = np.zeros((0, 3)), np.asarray(0.7)
    for function in (np.nansum, np.nanprod, np.nanmean, np.nanvar, np.median, np.average,
                     np.nanmedian, functools.partial(np.nanquantile, q=0.3)):  # fmt: skip
        for x in (number, *([] if function is np.average else [empty])):
            value = mixad.vjp(function, x)[0]
            np.testing.assert_array_equal(value, function(x), strict=True)
    for function in (np.nanmax, functools.partial(np.quantile, q=0.5)):
        with pytest.raises((ValueError, IndexError)):
            mixad.vjp(function, empty)
    with pytest.warns(UserWarning, match="does not depend on"):
        value = mixad.vjp(lambda x: np.max(x, axis=0, initial=-1.0), empty)[0]
    np.testing.assert_array_equal(value, [-1.0, -1.0, -1.0])


def test_convolutions_of_nothing_and_of_matrices_are_refused() -> None:
    for x in (np.zeros(0), np.ones((2, 2)), np.ones((2, 0))):
        for function in (np.convolve, np.correlate):
            with pytest.raises(ValueError, match=r"empty|deep"):
                function(x, V)
            with pytest.raises(ValueError, match="takes vectors"):
                mixad.vjp(lambda v, f=function, x=x: f(x, v), V)


def test_least_squares_return_what_numpy_returns() -> None:
    for a in (X, X.T, X[:, :4]):
        b = np.cos(np.arange(len(a)))
        for right in (b, np.stack([b, b * b]).T):
            found = mixad.vjp(lambda a, b: np.linalg.lstsq(a, b), a, right)[0]
            wanted = np.linalg.lstsq(a, right)
            for f, w in zip(found, wanted, strict=True):
                np.testing.assert_allclose(f, w, rtol=1e-10, atol=1e-10)
                assert np.shape(f) == np.shape(w)
    with pytest.raises(TracerError, match="rank 1"):
        mixad.vjp(lambda a: np.linalg.lstsq(a, V[:2])[0], np.ones((2, 2)))


def test_the_order_of_products_is_the_one_with_the_fewest_multiplications() -> None:
    sizes = []

    def watched(x: Any) -> Any:
        parts = [x, x.T, x, x.T, x[:, 0]]
        found = np.linalg.multi_dot(parts)
        sizes.append(found.shape)
        return found

    mixad.check_grads(watched, (X,), order=2)
    text = str(mixad.tape(lambda x: np.linalg.multi_dot([x, x.T, x, x.T, x[:, 0]]))(X))
    assert text.count("matmul") == 4
    assert set(sizes) == {(4,)}


# -- what JAX says ---------------------------------------------------------------------------------

AGAINST_JAX: dict[str, tuple[Any, ...]] = {
    "average": (lambda xp, x, w: xp.average(x, axis=1, weights=w), X, W),
    "convolve": (lambda xp, v, w: xp.convolve(v, w, mode="same"), V, W),
    "corrcoef": (lambda xp, x: xp.corrcoef(x, rowvar=False), X),
    "correlate": (lambda xp, v, w: xp.correlate(v, w, mode="full"), V, W),
    "cov": (lambda xp, x, y: xp.cov(x, y, aweights=W), X, Y),
    "interp": (lambda xp, x, k, f: xp.interp(x, xp.sort(k), f), X, V, V**2),
    "interp with a period": (lambda xp, x, k, f: xp.interp(x, k, f, period=1.3), X, V, V**2),
    "linalg.lstsq": (lambda xp, x, y: xp.linalg.lstsq(x.T, y.T)[0], X, Y),
    "max of a part": (lambda xp, x: xp.max(x, axis=0, where=X > 0, initial=0.3), X),
    "median": (lambda xp, x: xp.median(x, axis=0), X),
    "nanquantile": (lambda xp, x: xp.nanquantile(xp.where(X > 1, xp.nan, x), 0.3, axis=1), X),
    "nanstd": (lambda xp, x: xp.nanstd(xp.where(X > 1, xp.nan, x), axis=1), X),
    "nanvar": (lambda xp, x: xp.nanvar(xp.where(X > 1, xp.nan, x), axis=1, ddof=1), X),
    "quantile": (lambda xp, x: xp.quantile(x, xp.asarray([0.1, 0.77]), axis=(0,)), X),
}


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.rows("name", AGAINST_JAX)
def test_derivatives_are_those_of_jax(name: str) -> None:
    import jax
    import jax.numpy as jnp

    function, *arrays = AGAINST_JAX[name]
    weights = np.cos(0.7 * np.arange(function(np, *arrays).size)).reshape(
        function(np, *arrays).shape
    )
    places, along = tuple(range(len(arrays))), [np.sin(1.0 + a) for a in arrays]

    def derivatives(xp: Any, grad: Any, arrays: Any) -> tuple[Any, ...]:
        def slope(*arrays: Any) -> Any:
            gradients = grad(lambda *a: xp.sum(function(xp, *a) * weights), places)(*arrays)
            pairs = zip(gradients, along, arrays, strict=True)
            return sum(xp.sum(g * v) + 0.0 * xp.sum(a) for g, v, a in pairs)

        first = grad(lambda *a: xp.sum(function(xp, *a) * weights), places)(*arrays)
        return (*first, *grad(slope, places)(*arrays))

    with jax.enable_x64(True):
        wanted = derivatives(jnp, jax.grad, [jnp.asarray(a) for a in arrays])
        wanted = [np.asarray(w) for w in wanted]
    for found, want in zip(derivatives(np, mixad.grad, arrays), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-8, atol=1e-9)


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.bincount(np.array([0, 1, 1]), x),
        lambda x: np.interp(x[:2] * 0 + 0.5, mixad.stop_gradient(x), x * x),
        lambda x: np.interp(x * 1.1, mixad.stop_gradient(x), mixad.stop_gradient(x * x)),
        lambda x: np.vander(x, 3),
        lambda x: np.float_power(x, 2.5),
        lambda x: np.cov(x, x * x),
        lambda x: np.nanmean(x),
        lambda x: np.nanvar(x),
        lambda x: np.nanmedian(x),
        lambda x: np.nanquantile(x, 0.3),
    ],
)
def test_functions_in_64_bits_have_32_in_jax_without_a_warning(call: Any) -> None:
    import jax
    import jax.numpy as jnp

    x = np.array([1.0, 2.5, 3.0])
    want, pullback = mixad.vjp(call, x)
    cotangent = np.linspace(1.0, 2.0, want.size).reshape(want.shape)
    with warnings.catch_warnings(), jax.enable_x64(False):
        warnings.simplefilter("error")
        got, jax_pullback = mixad.vjp(call, jnp.asarray(x, jnp.float32))
        gradient = jax_pullback(jnp.asarray(cotangent, jnp.float32))[0]
    assert got.dtype == gradient.dtype == jnp.float32
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(gradient, pullback(cotangent)[0], rtol=1e-5, atol=1e-6)
