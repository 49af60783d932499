"""The transforms: what they take, what they return, and what they refuse."""

from __future__ import annotations

import types
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import TracerError


def _libraries() -> list[Any]:
    found = [pytest.param(np, id="numpy"), pytest.param(array_api_strict, id="strict")]
    try:
        import torch
    except ImportError:
        torch = None
    skip = pytest.mark.skipif(torch is None, reason="torch is not installed")
    return [*found, pytest.param(torch, id="torch", marks=[pytest.mark.torch, skip])]


@pytest.fixture(params=_libraries())
def xp(request: pytest.FixtureRequest) -> Any:
    """An array library."""
    return request.param


def as_numpy(array: Any) -> Any:
    return np.from_dlpack(array) if not isinstance(array, (np.ndarray, np.generic)) else array


X = np.asarray([0.5, -1.5, 2.0])


# -- libraries, dtypes ---------------------------------------------------------------------------


@pytest.mark.rows("dtype", ["float32", "float64"])
def test_results_are_of_the_inputs_library_and_dtype(xp: Any, dtype: str) -> None:
    x = xp.asarray([[1.0, 2.0], [3.0, 4.0]], dtype=getattr(xp, dtype))

    def f(x: Any) -> Any:
        y = (x @ x.mT) * 0.5 + x[0, :] - x.sum(axis=1, keepdims=True) / 2
        return (y.reshape(4) ** 2).mean()

    value, gradient = mixad.value_and_grad(f)(x)
    for result in (value, gradient):
        assert type(result) is type(x) or xp is np
        assert result.dtype == x.dtype
    assert tuple(gradient.shape) == (2, 2)
    expected = _finite_differences(f, np.asarray([[1.0, 2.0], [3.0, 4.0]]))
    np.testing.assert_allclose(as_numpy(gradient), expected, rtol=2e-5)


def test_python_numbers_adapt_to_the_arrays_beside_them(xp: Any) -> None:
    x = xp.asarray([1.0, 2.0, 3.0], dtype=xp.float32)

    def f(s: Any) -> Any:
        y = (2 * s + 1) * x
        assert y.dtype == xp.float32
        return (y * y).sum()  # (2s + 1)² 14

    assert mixad.grad(f)(3.0) == 4 * 7 * 14
    assert mixad.grad(mixad.grad(f))(3.0) == 8 * 14
    assert type(mixad.grad(f)(3.0)) is float


def test_every_operator_with_arrays_on_either_side(xp: Any) -> None:
    if xp is array_api_strict:
        pytest.skip("array + tracer: array_api_strict refuses to leave it to the tracer")
    a = xp.asarray([1.5, 2.5, 3.5], dtype=xp.float64)
    x = xp.asarray([2.0, 3.0, 0.5], dtype=xp.float64)
    f: Any = lambda x: (a + x - (x - a) * (a * x) / (a / x) + a**x + x**a).sum()  # noqa: E731
    gradient = mixad.grad(f)(x)
    na, nx = as_numpy(a), as_numpy(x)
    g = lambda x: (na + x - (x - na) * (na * x) / (na / x) + na**x + x**na).sum()  # noqa: E731
    np.testing.assert_allclose(as_numpy(gradient), _finite_differences(g, nx), rtol=1e-7)


def test_broadcast_shapes_of_size_one_missing_axes_and_0d(xp: Any) -> None:
    column = xp.ones((3, 1), dtype=xp.float64)
    row = xp.ones((4,), dtype=xp.float64)
    scalar = xp.asarray(2.0, dtype=xp.float64)
    f: Any = lambda c, r, s: (c * r * s).sum()  # noqa: E731
    gradients = mixad.grad(f, (0, 1, 2))(column, row, scalar)
    assert [tuple(g.shape) for g in gradients] == [(3, 1), (4,), ()]
    assert [float(as_numpy(g).sum()) for g in gradients] == [24.0, 24.0, 12.0]


def test_arrays_without_elements(xp: Any) -> None:
    x = xp.zeros((0, 3), dtype=xp.float64)
    value, gradient = mixad.value_and_grad(lambda x: (x * x).sum())(x)
    assert float(value) == 0.0
    assert tuple(gradient.shape) == (0, 3)


# -- grad, value_and_grad ------------------------------------------------------------------------


def test_argnums_in_any_form() -> None:
    f: Any = lambda x, y, z: x * x + 3 * y + z * y  # noqa: E731
    assert mixad.grad(f)(2.0, 1.0, 5.0) == 4.0
    assert mixad.grad(f, 1)(2.0, 1.0, 5.0) == 8.0
    assert mixad.grad(f, -1)(2.0, 1.0, 5.0) == 1.0
    assert mixad.grad(f, (2, 0))(2.0, 1.0, 5.0) == (1.0, 4.0)
    assert mixad.grad(f, [1])(2.0, 1.0, 5.0) == (8.0,)
    assert mixad.grad(f, np.int64(1))(2.0, 1.0, 5.0) == 8.0
    assert mixad.grad(f, range(3))(2.0, 1.0, 5.0) == (4.0, 8.0, 1.0)


def test_keyword_arguments_are_passed_on() -> None:
    assert mixad.grad(lambda x, *, n: x**n)(2.0, n=3) == 12.0


def test_aux_is_handed_over_without_its_tracers() -> None:
    def f(x: Any) -> Any:
        y = x * x
        return y.sum(), {"y": y, "text": "seen"}

    gradient, aux = mixad.grad(f, has_aux=True)(X)
    np.testing.assert_array_equal(gradient, 2 * X)
    assert isinstance(aux["y"], np.ndarray)
    np.testing.assert_array_equal(aux["y"], X * X)
    assert aux["text"] == "seen"


def test_an_unused_argument_has_a_zero_gradient() -> None:
    dx, dy = mixad.grad(lambda x, y: x.sum(), (0, 1))(X, np.ones((2, 2)))
    np.testing.assert_array_equal(dx, np.ones(3))
    np.testing.assert_array_equal(dy, np.zeros((2, 2)))


def test_a_result_that_depends_on_nothing_warns() -> None:
    with pytest.warns(UserWarning, match="does not depend on the arguments"):
        assert mixad.grad(lambda x: 3.0)(2.0) == 0.0
    with pytest.warns(UserWarning, match="the derivative is zero"):
        np.testing.assert_array_equal(mixad.grad(lambda x: X.sum())(X), np.zeros(3))


def test_the_warning_shows_the_users_line() -> None:
    for call in (
        lambda: mixad.grad(lambda x: 3.0)(X),
        lambda: mixad.value_and_grad(lambda x: mixad.stop_gradient(x).sum())(X),
        lambda: mixad.vjp(lambda x: X, X),
        lambda: mixad.value_and_vjp(lambda x: X > 0, (X,), 1.0),
    ):
        with pytest.warns(UserWarning, match=r"the result of <lambda> does not depend") as caught:
            call()
        assert [w.filename for w in caught] == [__file__]


def test_leaves_that_are_not_used_have_zero_gradients() -> None:
    tree = {"used": X, "array": np.ones((2, 2), "f4"), "number": 2.0, "none": None}
    gradient = mixad.grad(lambda tree: (tree["used"] ** 2).sum())(tree)
    np.testing.assert_array_equal(gradient["array"], np.zeros((2, 2)))
    assert gradient["array"].dtype == np.float32
    assert (gradient["number"], type(gradient["number"])) == (0.0, float)
    assert gradient["none"] is None


@pytest.mark.parametrize(
    ("f", "second"),
    [
        (lambda x: (x * 3.0).sum(), 0.0),
        (lambda x: (x + x).sum() - x[0], 0.0),
        (lambda x: x.sum() * x.sum(), 2.0),
    ],
)
def test_the_derivative_of_a_linear_function_is_zero_without_a_warning(f: Any, second: Any) -> None:
    x = np.asarray([1.0, 2.0])
    hessian = [mixad.grad(lambda x, i=i: mixad.grad(f)(x)[i])(x) for i in range(2)]
    np.testing.assert_array_equal(hessian, np.full((2, 2), second))
    _, pullback = mixad.vjp(mixad.grad(f), x)
    np.testing.assert_array_equal(pullback(np.ones(2))[0], np.full(2, 2 * second))
    assert mixad.grad(mixad.grad(mixad.grad(lambda x: x * 3.0)))(1.0) == 0.0


def test_a_derivative_that_closes_over_a_linear_argument_is_zero_without_a_warning() -> None:
    assert mixad.grad(lambda x: mixad.grad(lambda y: x + y)(1.0))(1.0) == 0.0


def test_an_inner_function_that_ignores_its_argument_is_warned_of_once() -> None:
    with pytest.warns(UserWarning, match="does not depend on the arguments") as caught:
        assert mixad.grad(lambda x: mixad.grad(lambda y: x * x)(1.0) + x)(2.0) == 1.0
    assert len(caught) == 1


def test_a_constant_derivative_is_traced_as_others_are() -> None:
    """What `float()` refuses does not depend on whether the function was linear."""
    for f in (lambda x: 3.0 * x, lambda x: x * x):
        with pytest.raises(mixad.errors.TracerError, match=r"float\(\)"):
            mixad.grad(lambda x, f=f: x * float(mixad.grad(f)(x)))(1.0)


def test_gradients_belong_to_the_caller() -> None:
    cotangent = np.ones(3)
    _, (dx, dy) = mixad.value_and_vjp(lambda x, y: (x + y).reshape(3), (X, X), cotangent)
    dx[0] = 7.0
    np.testing.assert_array_equal(dy, np.ones(3))
    np.testing.assert_array_equal(cotangent, np.ones(3))
    gradient = mixad.grad(lambda x: x.sum())(X)
    gradient[0] = 5.0  # no read-only view of one element
    np.testing.assert_array_equal(gradient, [5.0, 1.0, 1.0])


def test_python_control_flow_on_values() -> None:
    def f(x: Any) -> Any:
        total = x * 0.0
        for element in x:
            if element > 0:
                total = total + element * element
        while (total > 100).any():
            total = total / 2
        return total[0]

    np.testing.assert_array_equal(mixad.grad(f)(X), [1.0, 0.0, 4.0])


# -- what comes back for one number --------------------------------------------------------------

SCALARS = {
    "Python float": 2.0,
    "float64": np.float64(2.0),
    "float32": np.float32(2.0),
    "0-d float64": np.asarray(2.0),
    "0-d float32": np.asarray(2.0, "f4"),
    "0-d strict": array_api_strict.asarray(2.0),
}
FUNCTIONS = {
    "product": lambda x: x * x * 3.0,
    "kernel": lambda x: tripled_square(x),
    "matrix": lambda x: (x * 3.0 * x + 0.0 * x.reshape((1,)).sum()).reshape(()),
    "used twice": lambda x: x * x + (x + x) * x,
}


@mixad.broadcast
def tripled_square(x):
    return 3.0 * x * x


def scalar_gradients(f: Any, x: Any) -> dict[str, Any]:
    """Return d(3 x²)/dx at 2 in every way."""
    values, (pulled,) = mixad.value_and_vjp(f, (x,), 1.0)
    value, gradient = mixad.value_and_grad(f)(x)
    other_value, pullback = mixad.vjp(f, x)
    assert values == value == other_value == 12.0
    return {
        "grad": mixad.grad(f)(x),
        "value_and_grad": gradient,
        "value_and_vjp": pulled,
        "vjp": pullback(1.0)[0],
        "vjp again": pullback(value * 0 + 1)[0],
        "tuple": mixad.grad(lambda y, x: f(x) + 0.0 * y, (1, 0))(1.0, x)[0],
        "tree": mixad.grad(lambda tree: f(tree["x"]))({"x": x})["x"],
        "nested": mixad.grad(lambda x: mixad.value_and_vjp(f, (x,), 1.0)[0])(x),
    }


@pytest.mark.rows("function", FUNCTIONS)
@pytest.mark.rows("kind", SCALARS)
def test_the_gradient_of_a_number_is_what_the_number_is(kind: str, function: str) -> None:
    x = SCALARS[kind]
    for name, gradient in scalar_gradients(FUNCTIONS[function], x).items():
        assert type(gradient) is type(x), name
        assert getattr(gradient, "dtype", None) == getattr(x, "dtype", None), name
        assert getattr(gradient, "shape", ()) == (), name
        assert gradient == 12.0, name


@pytest.mark.torch
@pytest.mark.rows("function", FUNCTIONS)
@pytest.mark.rows("dtype", ["float32", "float64"])
def test_the_gradient_of_a_tensor_without_axes_is_one(dtype: str, function: str) -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(2.0, dtype=getattr(torch, dtype))
    for name, gradient in scalar_gradients(FUNCTIONS[function], x).items():
        assert type(gradient) is torch.Tensor, name
        assert gradient.dtype == x.dtype, name
        assert gradient.shape == (), name
        assert gradient == 12.0, name


@pytest.mark.rows("kind", SCALARS)
def test_a_zero_gradient_is_what_the_number_is(kind: str) -> None:
    x = SCALARS[kind]
    _, zero = mixad.grad(lambda y, x: y * y, (0, 1))(3.0, x)
    assert type(zero) is type(x)
    assert zero == 0.0


@pytest.mark.rows("kind", SCALARS)
def test_second_derivatives_of_a_number_are_what_the_number_is(kind: str) -> None:
    x = SCALARS[kind]
    for f in (lambda x: x * x * x, tripled_square, lambda x: x * 4.0):
        second = mixad.grad(mixad.grad(f))(x)
        assert type(second) is type(x)
        assert getattr(second, "dtype", None) == getattr(x, "dtype", None)


@pytest.mark.parametrize("kind", ["Python float", "float64", "float32", "0-d float32"])
def test_the_value_of_a_function_of_a_number_is_what_the_function_returns(kind: str) -> None:
    x = SCALARS[kind]
    for f in (lambda x: x * x, lambda x: 2.0 - x / 3, lambda x: -x):
        assert type(mixad.value_and_grad(f)(x)[0]) is type(f(x))
        assert type(mixad.vjp(f, x)[0]) is type(f(x))
        assert type(mixad.grad(lambda x, f=f: (x, f(x)), has_aux=True)(x)[1]) is type(f(x))


# -- vjp -----------------------------------------------------------------------------------------


def test_a_pullback_may_be_called_again() -> None:
    value, pullback = mixad.vjp(lambda x, y: (x * y, {"sum": x.sum()}), X, 2 * X)
    np.testing.assert_array_equal(value[0], 2 * X * X)
    for scale in (1.0, 10.0):
        dx, dy = pullback((np.full(3, scale), {"sum": np.asarray(scale)}))
        np.testing.assert_array_equal(dx, scale * (2 * X + 1))
        np.testing.assert_array_equal(dy, scale * X)


def test_a_pullback_inside_another_gradient() -> None:
    def f(x: Any) -> Any:
        _, pullback = mixad.vjp(lambda y: y * y * x, x)
        return pullback(x)[0].sum()  # x · 2 x · x

    np.testing.assert_allclose(mixad.grad(f)(X), 6 * X**2)


def test_vjp_with_aux() -> None:
    value, pullback, aux = mixad.vjp(lambda x: (x * 2.0, x * 3.0), X, has_aux=True)
    np.testing.assert_array_equal(aux, 3 * X)
    assert isinstance(aux, np.ndarray)
    np.testing.assert_array_equal(value, 2 * X)
    np.testing.assert_array_equal(pullback(X)[0], 2 * X)


def test_a_cotangent_that_is_traced_is_differentiated() -> None:
    def f(ct: Any) -> Any:
        return mixad.value_and_vjp(lambda x: x * x, (X,), ct)[1][0].sum()

    np.testing.assert_array_equal(mixad.grad(f)(np.ones(3)), 2 * X)


def test_stop_gradient() -> None:
    f: Any = lambda x: x * mixad.stop_gradient(x * x)  # noqa: E731
    assert mixad.grad(f)(3.0) == 9.0
    assert mixad.stop_gradient({"a": 1.0}) == {"a": 1.0}


@pytest.mark.parametrize("x", [3.0, 1.0 + 2.0j, np.float32(3.0), np.asarray(3.0), np.ones(2)])
def test_what_stop_gradient_gives_is_inside_what_it_is_outside(x: Any) -> None:
    found = []
    mixad.vjp(lambda x: (found.append(mixad.stop_gradient(x)), x)[1], x)
    assert type(found[0]) is type(mixad.stop_gradient(x))
    assert np.asarray(found[0]).dtype == np.asarray(x).dtype
    assert np.shape(found[0]) == np.shape(x)


def test_a_stopped_number_is_printed_and_promoted_as_a_number() -> None:
    def f(t: Any) -> Any:
        scaled = np.ones(2, "f4") * mixad.stop_gradient(t)
        assert scaled.dtype == np.float32
        assert f"{mixad.stop_gradient(np.ones(2) @ (t * np.ones(2))):.1f}" == "6.0"
        return (t * scaled).sum()

    assert mixad.grad(f)(3.0) == 6.0


@pytest.mark.parametrize("made", [np.sort, lambda x: x, lambda x: 1.0 * x])
def test_what_stop_gradient_gives_may_be_written_to(made: Any) -> None:
    def f(x: Any) -> Any:
        y = made(x)
        mixad.stop_gradient(y)[1] = 1e6
        return (y * y).sum()

    x = np.arange(1000.0)
    value, gradient = mixad.value_and_grad(f)(x)
    np.testing.assert_allclose(value, (np.arange(1000.0) ** 2).sum(), rtol=1e-14)
    np.testing.assert_array_equal(gradient, 2.0 * np.arange(1000.0))
    np.testing.assert_array_equal(x, np.arange(1000.0))


# -- refusals ------------------------------------------------------------------------------------


def refused(match: str) -> Any:
    return pytest.raises(TypeError, match=match)


def test_wrong_inputs_are_refused() -> None:
    f: Any = lambda x: x  # noqa: E731
    with refused(r"argument 0 is the whole number 3: write 3.0"):
        mixad.grad(f)(3)
    with refused("dtype int64: convert it to a float dtype"):
        mixad.grad(f)(np.arange(3))
    with refused("contains a str"):
        mixad.grad(f)({"a": 1.0, "b": "text"})
    with refused("argnums names argument 1 of a call with 1 positional"):
        mixad.grad(f, 1)(3.0)
    with refused("MaskedArray is not supported"):
        mixad.grad(f)(np.ma.masked_array([1.0], [True]))


@pytest.mark.rows("argnums", [0.0, True, None, "0", {0, 1}, (0, 1.0), [False]])
@pytest.mark.rows("transform", [mixad.grad, mixad.value_and_grad])
def test_argnums_of_another_type_are_refused(transform: Any, argnums: Any) -> None:
    with refused(r"argnums is a whole number or a sequence of them"):
        transform(lambda x, y: x * y, argnums)(2.0, 3.0)


@pytest.mark.rows("argnums", [(0, 0), (0, -2), [1, 0, 1]])
@pytest.mark.rows("transform", [mixad.grad, mixad.value_and_grad])
def test_argument_named_twice_is_refused(transform: Any, argnums: Any) -> None:
    with refused(r"names an argument twice in a call with 2 positional arguments"):
        transform(lambda x, y: x * y, argnums)(2.0, 3.0)


@pytest.mark.rows("argnums", [2, -3, (0, 2), [-3]])
@pytest.mark.rows("transform", [mixad.grad, mixad.value_and_grad])
def test_argnums_out_of_range_are_refused(transform: Any, argnums: Any) -> None:
    with refused(r"argnums names argument -?\d of a call with 2 .*keyword arguments are not"):
        transform(lambda x, y: x * y, argnums)(2.0, 3.0)
    with refused(r"argnums names argument 1 of a call with 1"):
        transform(lambda x, y: x * y, 1)(2.0, y=3.0)


def test_what_is_no_function_is_refused_at_once() -> None:
    f: Any = lambda x: x * x  # noqa: E731
    with refused(r"mixad\.grad: f is a float, not a function.*not what it returns"):
        mixad.grad(f(2.0))
    with refused(r"mixad\.value_and_grad: f is a NoneType"):
        mixad.value_and_grad(None)
    with refused(r"mixad\.vjp: f is a ndarray"):
        mixad.vjp(f(X), X)
    with refused(r"mixad\.value_and_vjp: f is a ndarray"):
        mixad.value_and_vjp(f(X), (X,), 1.0)


@pytest.mark.parametrize("primals", [X, 2.0, {"x": X}])
def test_primals_that_are_no_sequence_are_refused(primals: Any) -> None:
    with refused(r"primals is a \w+, not a sequence of arguments: write \(x,\)"):
        mixad.value_and_vjp(lambda x: x * x, primals, 1.0)


def test_wrong_outputs_are_refused() -> None:
    with refused(r"array of shape \(3,\).*return its .sum"):
        mixad.grad(lambda x: x)(X)
    with refused("returned None, a gradient needs one number: is a return statement missing"):
        mixad.grad(lambda x: None)(X)
    with refused("returned tuple.*has_aux"):
        mixad.grad(lambda x: (x.sum(), x))(X)
    with refused("must return a pair"):
        mixad.grad(lambda x: x.sum(), has_aux=True)(X)
    with refused("returned a str, which is no array"):
        mixad.vjp(lambda x: "text", X)
    with refused("dtype bool"):
        mixad.grad(lambda x: (x > 0).all())(X)
    for number in (1j, np.complex128(1j)):
        with refused("returned a complex number, a gradient needs a real one: return its real"):
            mixad.grad(lambda x, number=number: number)(X)
    with refused("dtype <U1"):
        mixad.grad(lambda x: np.str_("a"))(X)
    for other in ("text", object(), (i for i in X)):
        with refused(r"returned an? \w+, which is no array"):
            mixad.grad(lambda x, other=other: other)(X)
    for other in ([1.0], (1.0,), {"a": 1.0}):
        with refused(r"a gradient needs one number: use has_aux"):
            mixad.grad(lambda x, other=other: other)(X)
    for pair in ((1.0, 2.0, 3.0), [1.0, 2.0], X[:2]):
        with refused(r"must return a pair \(value, aux\), it returned an? \w+"):
            mixad.grad(lambda x, pair=pair: pair, has_aux=True)(X)


def test_a_wrong_cotangent_is_refused() -> None:
    _, pullback = mixad.vjp(lambda x: x * x, X)
    with refused(r"shape \(2,\)"):
        pullback(np.ones(2))
    with refused("dtype float32"):
        pullback(np.ones(3, "f4"))
    with refused("structure"):
        pullback((np.ones(3),))
    with refused("structure None"):
        pullback(None)
    with refused("an array of array_api_strict, the value is one of numpy: convert it"):
        pullback(array_api_strict.ones(3))
    for other in (1j, "text"):
        with refused(r"cotangent is a \w+: pass an array of .* or a number"):
            pullback(other)
    np.testing.assert_array_equal(pullback(np.ones(3))[0], 2 * X)  # and it works on


@pytest.mark.rows(
    ("leak", "what"),
    [
        (float, r"float\(\)"),
        (complex, r"complex\(\)"),
        (np.asarray, "conversion to a NumPy array"),
        (np.from_dlpack, "DLPack"),
        (lambda x: x.item(), r"item\(\)"),
        (lambda x: x.tolist(), r"tolist\(\)"),
        (lambda x: np.zeros(1).__setitem__(0, x), r"out\[i\] = x.*np\.zeros_like\(x\)"),
    ],
)
def test_a_value_does_not_leak_out_of_its_derivative(leak: Any, what: str) -> None:
    with pytest.raises(TracerError, match=what):
        mixad.grad(lambda x: leak(x * x))(2.0)


def test_a_tracer_that_outlives_its_transform_raises() -> None:
    kept: list[Any] = []
    mixad.grad(lambda x: kept.append(x * 2.0) or x.sum())(X)
    kernel = mixad.broadcast(lambda y: y * 2.0)
    _, pullback = mixad.vjp(lambda x: x * x, X)
    for use in (
        lambda t: t + 1.0, bool, lambda t: t > 0, lambda t: t.sum(), lambda t: t[0], list,
        lambda t: t.T, lambda t: X @ t, lambda t: X * t, np.sin, kernel, np.zeros_like,
        lambda t: t.__setitem__(0, 1.0),
        mixad.grad(lambda x: x.sum()), mixad.stop_gradient, pullback, lambda t: 1.0 in t,
        lambda t: mixad.grad(lambda x: (x * t).sum())(X),
        lambda t: mixad.grad(lambda x: t.sum())(X),
        lambda t: mixad.grad(lambda x: t[0])(X),
        lambda t: mixad.grad(lambda x: (x.sum(), {"t": t}), has_aux=True)(X),
    ):  # fmt: skip
        with pytest.raises(TracerError, match=r"mixad\.grad is used after that call has ended"):
            use(kept[0])
    assert kept[0].shape == (3,)
    assert "inside=grad" in repr(kept[0])


def test_libraries_are_not_mixed() -> None:
    with pytest.raises(TypeError, match=r"mixes arrays of \w+ and of \w+: convert one"):
        mixad.grad(lambda x: (x * array_api_strict.ones(3)).sum())(X)


@pytest.mark.torch
def test_torch_tensors_that_require_grad_are_refused_naming_the_plugin() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(3, requires_grad=True)
    with refused("mixad-torch"):
        mixad.grad(lambda x: x.sum())(x)
    with refused("mixad-torch"):
        mixad.grad(lambda y: (x * y).sum())(torch.ones(3))


@pytest.mark.torch
def test_gradients_agree_with_torch() -> None:
    torch = pytest.importorskip("torch")
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(3, 3, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2))

    def f(a: Any, b: Any) -> Any:
        y = (a @ b / (a + b) - a**b).reshape((9,))[1:8:2]
        return (abs(y - 0.3) % 0.7 * y).mean() + (a[None, 0, :, None] * b).sum()

    ours = mixad.grad(f, (0, 1))(a, b)
    theirs = torch.func.grad(f, (0, 1))(a, b)
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=1e-12)


def _finite_differences(f: Any, x: Any, step: float = 1e-6) -> Any:
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        offset = np.zeros_like(x)
        offset[index] = step
        gradient[index] = (f(x + offset) - f(x - offset)) / (2 * step)
    return gradient


def test_dir_shows_what_users_import_and_no_modules_of_the_inside() -> None:
    assert dir(mixad) == sorted(mixad.__all__)
    modules = {name for name in dir(mixad) if isinstance(getattr(mixad, name), types.ModuleType)}
    assert modules == {"errors", "pytree", "scipy", "special"}
    assert all(getattr(mixad, name).__doc__ for name in modules)
