"""Rules that the user gives: used in every mix of modes, watched for what does not fit."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import mpmath
import numpy as np
import pytest

import mixad
from mixad.errors import MixadError, TracerError

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.asarray([0.5, -1.5, 0.25])
V = np.asarray([1.0, -2.0, 0.5])
W = np.asarray([2.0, 0.5, -1.0])


def by_vjp() -> Any:
    """x² y and x y² as one function; each rule says how often it was used."""
    used: list[str] = []

    @mixad.custom_vjp
    def products(p: Any, y: Any) -> Any:
        used.append("plain")
        return p["x"] * p["x"] * y, {"b": p["x"] * y * y}

    def fwd(p: Any, y: Any) -> Any:
        used.append("fwd")
        return products(p, y), (p["x"], y, "anything")

    def bwd(residuals: Any, g: Any) -> Any:
        used.append("bwd")
        x, y, _ = residuals
        a, b = g[0], g[1]["b"]
        return {"x": a * 2.0 * x * y + b * y * y}, a * x * x + b * 2.0 * x * y

    products.defvjp(fwd, bwd)
    return products, used


def by_jvp() -> Any:
    used: list[str] = []

    @mixad.custom_jvp
    def products(p: Any, y: Any) -> Any:
        used.append("plain")
        return p["x"] * p["x"] * y, {"b": p["x"] * y * y}

    @products.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        used.append("rule")
        (p, y), (t, u) = primals, tangents
        x, t = p["x"], t["x"]
        # Traced values stand on the left: array_api_strict leaves nothing to the right operand.
        a = t * (2.0 * x * y) + u * (x * x)
        return products(p, y), (a, {"b": t * (y * y) + u * (2.0 * x * y)})

    return products, used


RULES = {"custom_vjp": by_vjp, "custom_jvp": by_jvp}


def loss_of(products: Any) -> Any:
    def loss(x: Any, y: Any) -> Any:
        a, more = products({"x": np.tanh(x)}, y)
        return (a * a * W).sum() + (more["b"] * x).sum()

    return loss


def without_rule(p: Any, y: Any) -> Any:
    return p["x"] * p["x"] * y, {"b": p["x"] * y * y}


TRANSFORMS = {
    "grad": lambda f: mixad.value_and_grad(f, argnums=(0, 1))(X, V),
    "grad of one": lambda f: mixad.grad(f, argnums=1)(X, V),
    "jvp": lambda f: mixad.jvp(f, (X, V), (V, W)),
    "jvp along one": lambda f: mixad.jvp(lambda x: f(x, V), (X,), (W,)),
    "hvp": lambda f: mixad.hvp(f, (X, V), (V, W)),
    "jvp of jvp": lambda f: mixad.jvp(lambda x, y: mixad.jvp(f, (x, y), (V, W))[1], (X, V), (W, V)),
    "grad of jvp": lambda f: mixad.grad(
        lambda x, y: mixad.jvp(f, (x, y), (V, W))[1], argnums=(0, 1)
    )(X, V),
    "grad of grad": lambda f: mixad.grad(
        lambda x, y: (mixad.grad(f)(x, y) * W).sum(), argnums=(0, 1)
    )(X, V),
    "three": lambda f: mixad.jvp(
        mixad.grad(lambda x: mixad.jvp(lambda x: f(x, V), (x,), (W,))[1]), (X,), (V,)
    ),
    "hessian": lambda f: mixad.hessian(f, argnums=(0, 1))(X, V),
    "jacobian": lambda f: mixad.jacfwd(mixad.jacrev(f))(X, V),
    "checkpoint": lambda f: mixad.hvp(mixad.checkpoint(f), (X, V), (V, W)),
}


def assert_same(found: Any, expected: Any) -> None:
    for f, e in zip(mixad.pytree.leaves(found), mixad.pytree.leaves(expected), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-12)


def partial(a: int, b: int) -> Any:
    """∂ᵃ⁺ᵇ/∂xᵃ∂yᵇ of each element's part of the loss, by mpmath."""

    def part(x: Any, y: Any, w: float) -> Any:
        t = mpmath.tanh(x)
        return (t * t * y) ** 2 * w + t * y * y * x

    with mpmath.workdps(40):
        found = [
            mpmath.diff(lambda x, y, w=w: part(x, y, w), (x, y), (a, b)) if a + b else part(x, y, w)
            for x, y, w in zip(X, V, W, strict=True)
        ]
    return np.asarray(found, dtype=float)


def expected() -> dict[str, Any]:
    """What each of the transforms gives, made of partial derivatives at each element."""
    value, dx, dy = partial(0, 0).sum(), partial(1, 0), partial(0, 1)
    xx, xy, yy, xxx = partial(2, 0), partial(1, 1), partial(0, 2), partial(3, 0)
    slope, product = (dx * V + dy * W).sum(), (xx * V + xy * W, xy * V + yy * W)
    return {
        "grad": (value, (dx, dy)),
        "grad of one": dy,
        "jvp": (value, slope),
        "jvp along one": (value, (dx * W).sum()),
        "hvp": product,
        "jvp of jvp": (slope, (product[0] * W + product[1] * V).sum()),
        "grad of jvp": product,
        "grad of grad": (xx * W, xy * W),
        "three": (xx * W, xxx * W * V),
        "hessian": ((np.diag(xx), np.diag(xy)), (np.diag(xy), np.diag(yy))),
        "jacobian": np.diag(xx),
        "checkpoint": product,
    }


@pytest.mark.rows("make", RULES.values(), ids=RULES)
@pytest.mark.rows("name", TRANSFORMS, slow="hessian")
def test_right_rules_give_right_derivatives_of_any_order(name: str, make: Any) -> None:
    products, used = make()
    assert_same(TRANSFORMS[name](loss_of(products)), expected()[name])
    assert {"bwd", "rule"} & set(used)


def test_the_rule_is_what_is_used() -> None:
    """The straight-through estimator of Bengio et al. 2013."""

    @mixad.custom_vjp
    def rounded(x: Any) -> Any:
        return np.round(x)

    rounded.defvjp(lambda x: (np.round(x), None), lambda _, g: (g,))
    np.testing.assert_array_equal(mixad.grad(lambda x: (rounded(x) * W).sum())(X), W)
    np.testing.assert_array_equal(mixad.jvp(rounded, (X,), (V,))[1], V)

    @mixad.custom_jvp
    def steep(x: Any) -> Any:
        return x * 1.0

    steep.defjvp(lambda primals, tangents: (steep(*primals), 100.0 * tangents[0]))
    np.testing.assert_array_equal(mixad.jvp(steep, (X,), (V,))[1], 100 * V)
    np.testing.assert_array_equal(mixad.grad(lambda x: (steep(x) * W).sum())(X), 100 * W)


def test_without_a_transform_the_function_is_called() -> None:
    for make in RULES.values():
        products, used = make()
        assert_same(products({"x": X}, y=V), without_rule({"x": X}, V))
        assert used == ["plain"]


def test_under_one_transform_the_forward_rule_runs_once() -> None:
    products, used = by_vjp()
    mixad.grad(loss_of(products))(X, V)
    assert used == ["fwd", "plain", "bwd"]


def test_arguments_that_are_not_differentiated() -> None:
    def power(n: int, x: Any, name: str) -> Any:
        return x**n, len(name)

    by_reverse = mixad.custom_vjp(power, nondiff_argnums=(0, -1))
    by_reverse.defvjp(
        lambda n, x, name: (power(n, x, name), x),
        lambda n, name, x, g: (g[0] * n * x ** (n - 1),) if g[1] is None and name == "cube" else (),
    )
    by_forward = mixad.custom_jvp(power, nondiff_argnums=(0, 2))
    by_forward.defjvp(
        lambda n, name, primals, tangents: (
            power(n, primals[0], name),
            (n * primals[0] ** (n - 1) * tangents[0], None),
        )
    )
    for f in (by_reverse, by_forward):
        value, length = mixad.jvp(lambda x, f=f: f(3, x, name="cube"), (X,), (V,))
        assert_same(value, (X**3, 4))
        np.testing.assert_allclose(length[0], 3 * X**2 * V)
        np.testing.assert_allclose(mixad.grad(lambda x, f=f: f(3, x, "cube")[0].sum())(X), 3 * X**2)
        with pytest.raises(TracerError, match="argument 0 is named in nondiff_argnums"):
            mixad.grad(lambda n, f=f: f(n, X, "cube")[0].sum())(3.0)


def scaled_by(transform: str) -> Any:
    """x w, of which w is not differentiated: an array in a dictionary."""

    def product(w: Any, x: Any) -> Any:
        return x * w["w"]

    f = getattr(mixad, transform)(product, nondiff_argnums=(0,))
    if transform == "custom_vjp":
        f.defvjp(lambda w, x: (product(w, x), None), lambda w, _, g: (g * w["w"],))
    else:
        f.defjvp(lambda w, p, t: (product(w, p[0]), t[0] * w["w"]))
    return f


@pytest.mark.parametrize("transform", RULES)
def test_arrays_that_are_not_differentiated_are_watched(transform: str) -> None:
    w, f = {"w": W.copy()}, scaled_by(transform)
    _, pullback = mixad.vjp(lambda x: f(w, x), X)
    np.testing.assert_array_equal(pullback(V)[0], V * W)
    w["w"][0] = 100.0
    with pytest.raises(TracerError, match=rf"of mixad\.{transform} of product.*changed in place"):
        pullback(V)


@pytest.mark.parametrize("transform", RULES)
def test_constants_that_are_not_differentiated_stay_what_they_were(transform: str) -> None:
    f = scaled_by(transform)

    def loss(x: Any) -> Any:
        w = x.__array_namespace__().asarray(W)
        y = f({"w": w}, x)
        w *= 3.0
        return (y + x * w).sum()

    np.testing.assert_array_equal(mixad.grad(loss)(X), 4.0 * W)


def test_arguments_of_other_kinds_and_missing_cotangents() -> None:
    @mixad.custom_vjp
    def scaled(x: Any, n: int, options: Any, unused: Any) -> Any:
        return x * n

    scaled.defvjp(lambda x, n, options, unused: (x * n, n), lambda n, g: (g * n, None, None, None))
    found = mixad.grad(lambda x, u: scaled(x, 3, {"a": None}, u).sum(), argnums=(0, 1))(X, V)
    assert_same(found, (np.full(3, 3.0), np.zeros(3)))

    @mixad.custom_jvp
    def shifted(x: Any, n: int, y: Any) -> Any:
        return x + n + y, 7.0

    @shifted.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        assert tangents[1] is None
        return shifted(*primals), (tangents[0] + tangents[2], None)

    assert_same(mixad.jvp(lambda x: shifted(x, 2, V), (X,), (W,))[1], (W, 0.0))
    assert_same(mixad.grad(lambda x: shifted(x, 2, V)[0].sum())(X), np.ones(3))


def test_numbers_and_dtypes() -> None:
    def scale(x: Any, s: Any) -> Any:
        return x * s, s * s

    reverse, forward = mixad.custom_vjp(scale), mixad.custom_jvp(scale)
    reverse.defvjp(
        lambda x, s: (scale(x, s), (x, s)),
        lambda r, g: (g[0] * r[1], (g[0] * r[0]).sum() + 2.0 * r[1] * g[1]),
    )
    forward.defjvp(
        lambda p, t: (scale(*p), (t[0] * p[1] + t[1] * p[0], 2.0 * p[1] * t[1])),
    )
    x = X.astype("f4")
    for f in (reverse, forward):
        (value, square), pullback = mixad.vjp(f, x, 3.0)
        assert (value.dtype, type(square)) == (np.float32, float)
        by_x, by_s = pullback((x, 1.0))
        assert (by_x.dtype, type(by_s)) == (np.float32, float)
        np.testing.assert_allclose(by_x, 3 * x)
        assert by_s == pytest.approx(float((x * x).sum()) + 6.0)
        tangent, rate = mixad.jvp(f, (x, 3.0), (x, 2.0))[1]
        assert (tangent.dtype, type(rate)) == (np.float32, float)
        np.testing.assert_allclose(tangent, 5 * x)
        assert rate == 12.0
        curvature = mixad.hvp(lambda s, f=f: f(x, s)[0].sum() * f(x, s)[1], (3.0,), (1.0,))
        assert curvature == pytest.approx(18.0 * float(x.sum()))


def test_rules_do_not_disturb_the_cotangents_of_others() -> None:
    @mixad.custom_vjp
    def same(x: Any) -> Any:
        return x * 1.0

    def bwd(_: Any, g: Any) -> Any:
        g *= 2.0
        return (g,)

    same.defvjp(lambda x: (x * 1.0, None), bwd)
    with pytest.raises(ValueError, match="read-only"):
        mixad.vjp(lambda x: (same(x), same(x)), X)[1]((V, V))


def test_residuals_are_watched_for_changes() -> None:
    held = V.copy()

    @mixad.custom_vjp
    def scaled(x: Any) -> Any:
        return x * V

    scaled.defvjp(lambda x: (x * V, held), lambda v, g: (g * v,))
    _, pullback = mixad.vjp(scaled, X)
    held[0] = 9.0
    with pytest.raises(TracerError, match="changed in place"):
        pullback(W)


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
@pytest.mark.parametrize("make", RULES.values(), ids=RULES)
def test_other_libraries(make: Any, array: Any) -> None:
    products, _ = make()

    def f(x: Any, y: Any) -> Any:
        a, more = products({"x": x * x}, y)
        return (a * more["b"]).sum()

    found = [*mixad.hvp(f, (array(X), array(V)), (array(V), array(W)))]
    products = without_rule
    expected = mixad.hvp(f, (X, V), (V, W))
    for one, other in zip(found, expected, strict=True):
        assert type(one) is type(array(X))
        np.testing.assert_allclose(np.asarray(np.from_dlpack(one)), other)


@pytest.mark.slow
def test_kernels_do_not_take_functions_with_rules() -> None:
    f = mixad.custom_vjp(lambda x: x * x)
    f.defvjp(lambda x: (x * x, x), lambda x, g: (g * 0.0,))
    with pytest.raises(MixadError):
        mixad.broadcast(f)(X)
    kernel = mixad.broadcast(lambda x: f(x))
    with pytest.raises(MixadError):
        kernel(X)


def test_a_captured_traced_value_is_refused() -> None:
    def loss(w: Any, made: Any) -> Any:
        return made(w)(w).sum()

    def reverse(w: Any) -> Any:
        f = mixad.custom_vjp(lambda x: x * w)
        f.defvjp(lambda x: (x * w, None), lambda _, g: (g * w,))
        return f

    def residual(w: Any) -> Any:
        f = mixad.custom_vjp(lambda x: x * V)
        f.defvjp(lambda x: (x * V, w), lambda r, g: (g * r,))
        return f

    def forward(w: Any) -> Any:
        f = mixad.custom_jvp(lambda x: x * w)
        f.defjvp(lambda p, t: (p[0] * w, t[0] * w))
        return f

    for made in (reverse, residual, forward):
        with pytest.raises(TracerError, match="pass it as an argument"):
            mixad.grad(loss)(X, made)


def test_what_a_rule_reads_beside_its_arguments_is_told() -> None:
    def by_vjp(w: Any) -> Any:
        f = mixad.custom_vjp(lambda x: x * 2.0)
        f.defvjp(lambda x: (x * 2.0, None), lambda _, g: (g * 2.0 * w,))
        return f(w).sum()

    def by_jvp(w: Any) -> Any:
        f = mixad.custom_jvp(lambda x: x * 2.0)
        f.defjvp(lambda p, t: (p[0] * 2.0, t[0] * 2.0 * w))
        return f(w).sum()

    for loss in (by_vjp, by_jvp):
        for transform in (lambda f: mixad.grad(f)(X), lambda f: mixad.jvp(f, (X,), (V,))):
            with pytest.raises(TracerError, match=r"the rule of mixad\.custom_.* as an argument"):
                transform(loss)


def test_positions_that_are_not_differentiated_are_checked() -> None:
    for given in ("x", None, ("x",), (1.0,), (True,), (0, 0)):
        for transform in (mixad.custom_vjp, mixad.custom_jvp):
            with pytest.raises(TracerError, match=r"of <lambda>: nondiff_argnums"):
                transform(lambda x, n: x**n, nondiff_argnums=given)


@pytest.mark.parametrize("positions", [1, (1,), (-1,)])
def test_an_argument_that_is_not_differentiated_may_have_its_default(positions: Any) -> None:
    def power(x: Any, n: int = 3) -> Any:
        return x**n

    f = mixad.custom_vjp(power, nondiff_argnums=positions)
    f.defvjp(lambda x, n: (x**n, x), lambda n, x, g: (g * n * x ** (n - 1),))
    for given, n in (((), 3), ((2,), 2)):
        np.testing.assert_array_equal(f(X, *given), X**n)
        found = mixad.grad(lambda x, given=given: f(x, *given).sum())(X)
        np.testing.assert_allclose(found, n * X ** (n - 1), rtol=1e-15)


def test_positions_from_the_end_are_those_of_the_function() -> None:
    def sized(x: Any, *more: Any) -> Any:
        return x * len(more[-1])

    f = mixad.custom_jvp(sized, nondiff_argnums=-1)  # of as many as a call has
    f.defjvp(lambda last, p, t: (sized(*p, last), t[0] * len(last)))
    for given in (("ab",), (1.0, "abc")):
        found = mixad.grad(lambda x, given=given: f(x, *given).sum())(X)
        np.testing.assert_array_equal(found, np.full(3, len(given[-1])))

    def scaled(x: Any, n: float = 2.0, *, unused: int = 0) -> Any:
        return x * n

    g = mixad.custom_jvp(scaled, nondiff_argnums=-2)
    g.defjvp(lambda x, p, t: (x * p[0], x * t[0]))
    assert mixad.grad(lambda n: g(X, n).sum())(1.0) == X.sum()


class Scaled:
    """Functions with rules in a class body are methods, as others are."""

    def __init__(self, by: float) -> None:
        self.by = by

    @mixad.scalar_rule(lambda self, x: (None, 2.0 * x * self.by))
    def square(self, x: Any) -> Any:
        return x * x * self.by

    @mixad.custom_jvp
    def cube(self, x: Any) -> Any:
        return x**3 * self.by

    @cube.defjvp
    def _rule(primals: Any, tangents: Any) -> Any:  # noqa: N805
        me, x = primals
        return me.cube(x), 3.0 * x**2 * tangents[1] * me.by

    def _fourth(self, x: Any) -> Any:
        return x**4 * self.by

    fourth = mixad.custom_vjp(_fourth, nondiff_argnums=0)
    fourth.defvjp(
        lambda self, x: (x**4 * self.by, x), lambda self, x, g: (4.0 * x**3 * self.by * g,)
    )


@pytest.mark.parametrize(("name", "power"), [("square", 2), ("cube", 3), ("fourth", 4)])
def test_functions_with_rules_are_methods_in_a_class(name: str, power: int) -> None:
    method = getattr(Scaled(1.5), name)
    np.testing.assert_allclose(method(X), 1.5 * X**power)
    np.testing.assert_allclose(getattr(Scaled, name)(Scaled(1.5), X), 1.5 * X**power)
    want = 1.5 * power * X ** (power - 1)
    np.testing.assert_allclose(mixad.grad(lambda x: method(x).sum())(X), want)
    np.testing.assert_allclose(mixad.jvp(method, (X,), (V,))[1], want * V)


def test_a_leaked_value_is_refused() -> None:
    kept: list[Any] = []
    f = mixad.custom_jvp(lambda x: x * 2.0)
    f.defjvp(lambda p, t: (kept.append(t[0]), (p[0], 2.0 * t[0]))[1])
    mixad.grad(lambda x: f(x).sum())(X)
    with pytest.raises(TracerError, match=r"inside mixad\.custom_jvp is used after"):
        kept[0] + 1.0


NOT_LINEAR = {
    "magnitudes": lambda p, t: (p[0] ** 2, abs(t[0]) * 2 * p[0]),
    "squares": lambda p, t: (p[0] ** 2, t[0] ** 2),
    "cubes": lambda p, t: (p[0] ** 2, t[0] ** 3),
    "something more": lambda p, t: (p[0] ** 2, 2 * p[0] * t[0] + 1),
    "something of the primals more": lambda p, t: (p[0] ** 2, 2 * p[0] * t[0] + p[0]),
    "one side": lambda p, t: (p[0] ** 2, np.where(t[0] > 0, t[0], 0.0)),
    "a branch": lambda p, t: (p[0] ** 2, 2 * t[0] if (t[0] > 0).all() else t[0]),
}


@pytest.mark.rows("dtype", ["f8", "f4", "f2", "c16"])
@pytest.mark.rows("rule", NOT_LINEAR)
def test_what_is_not_linear_has_no_transpose(rule: str, dtype: str) -> None:
    if dtype == "c16" and rule == "one side":
        pytest.skip("complex numbers have no order")
    f = mixad.custom_jvp(lambda x: x**2)
    f.defjvp(NOT_LINEAR[rule] if dtype != "c16" else _of_parts(NOT_LINEAR[rule]))
    x = X.astype(dtype)
    with pytest.raises(TracerError, match=r"mixad\.custom_jvp of <lambda>: .* not linear"):
        mixad.grad(lambda x: f(x).real.sum())(x)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
@pytest.mark.parametrize("rule", NOT_LINEAR)
def test_forward_mode_refuses_what_is_not_linear(rule: str, dtype: str) -> None:
    f = mixad.custom_jvp(lambda x: x**2)
    f.defjvp(NOT_LINEAR[rule])
    x = X.astype(dtype)
    for transform in (
        lambda: mixad.jvp(f, (x,), (x,)),
        lambda: mixad.jvp(f, (x,), (0 * x,)),
        lambda: mixad.jacfwd(f)(x),
        lambda: mixad.linearize(f, x)[1](x),
    ):
        with pytest.raises(TracerError, match=r"mixad\.custom_jvp of <lambda>: .* not linear"):
            transform()


BACKWARD_NOT_LINEAR = {
    "something more": lambda x, g: (2 * x * g + 1,),
    "something of the residuals more": lambda x, g: (2 * x * g + x,),
    "clipping": lambda x, g: (np.clip(2 * x * g, -1, 1),),
    "a bound": lambda x, g: (np.minimum(g, 1.0),),
    "magnitudes": lambda x, g: (abs(g),),
    "cubes": lambda x, g: (g**3,),
    "squares": lambda x, g: (g * g,),
}


@pytest.mark.parametrize("rule", BACKWARD_NOT_LINEAR)
def test_a_backward_rule_that_is_not_linear_has_no_transpose(rule: str) -> None:
    bwd = BACKWARD_NOT_LINEAR[rule]
    f = mixad.custom_vjp(lambda x: x**2)
    f.defvjp(lambda x: (x**2, x), bwd)
    for transform in (lambda: mixad.jvp(f, (X,), (V,)), lambda: mixad.jacfwd(f)(X)):
        with pytest.raises(TracerError, match=r"mixad\.custom_vjp of <lambda>: bwd is not linear"):
            transform()
    found = mixad.grad(lambda x: (f(x) * W).sum())(X)  # reverse mode takes it as it is
    np.testing.assert_array_equal(found, np.broadcast_to(bwd(X, W)[0], X.shape))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2"])
def test_linear_rules_are_believed_where_terms_cancel_and_sixteen_bits_round(dtype: str) -> None:
    """Softmax with one large logit, whose tangents cancel: p (t - <p, t>); subnormal in 16 bits."""
    x = np.asarray([-4.0, 1.0, 12.0]).astype(dtype)
    t = np.asarray([1.0, -0.5, 0.25]).astype(dtype)

    def softmax(x: Any) -> Any:
        e = np.exp(x - 12.0)
        return e / e.sum()

    by_jvp, by_vjp = mixad.custom_jvp(softmax), mixad.custom_vjp(softmax)

    def product(p: Any, t: Any) -> Any:
        return p * (t - (p * t).sum())

    by_jvp.defjvp(lambda p, t: (softmax(p[0]), product(softmax(p[0]), t[0])))
    by_vjp.defvjp(lambda x: (softmax(x),) * 2, lambda p, g: (product(p, g),))
    p = np.exp(x.astype("f8") - 12.0)
    p /= p.sum()
    want = p * (t - (p * t).sum())
    for f in (by_jvp, by_vjp):
        found = mixad.jvp(f, (x,), (t,))[1]
        np.testing.assert_allclose(found, want, atol=8 * float(np.finfo(dtype).eps))


def _of_parts(rule: Any) -> Any:
    """The rule with a tangent that comparisons take: the real part."""
    return lambda p, t: (p[0] ** 2, rule(p, (t[0].real,))[1] * (1 + 0j))


def test_what_is_linear_over_real_numbers_has_a_transpose() -> None:
    f = mixad.custom_jvp(lambda z: np.conj(z) * z * 1j)
    f.defjvp(lambda p, t: (f(*p), (np.conj(t[0]) * p[0] + t[0] * np.conj(p[0])) * 1j))
    z = X + 1j * V
    found = mixad.grad(lambda z: (f(z) * (W + 2j)).real.sum())(z)
    np.testing.assert_allclose(found, -4.0 * z, rtol=1e-13)


def test_a_rule_is_transposed_beside_infinite_and_missing_tangents() -> None:
    f = mixad.custom_jvp(lambda x: (np.sqrt(abs(x)), x * 2.0))
    f.defjvp(lambda p, t: (f(*p), (t[0] * 0.5 / np.sqrt(abs(p[0])), None)))
    x = np.asarray([0.0, 4.0])
    with np.errstate(divide="ignore"):
        found = mixad.grad(lambda x: sum(f(x)).sum())(x)
    np.testing.assert_array_equal(found, [np.inf, 0.25])


@pytest.mark.parametrize("library", [np, array_api_strict])
def test_a_rule_may_hand_its_cotangent_on_in_one_call_and_change_it_in_the_next(
    library: Any,
) -> None:
    @mixad.custom_vjp
    def doubled_below_zero(x: Any) -> Any:
        return x

    doubled_below_zero.defvjp(lambda x: (x, x), lambda x, g: (g if float(x) > 0 else 2.0 * g,))
    gradient = mixad.grad(lambda x: doubled_below_zero((x * x * x).sum()))
    for x, want in [(1.0, 3.0), (-1.0, 6.0), (1.0, 3.0)]:
        found = gradient(library.asarray([x, x]))
        np.testing.assert_array_equal(np.from_dlpack(found), [want, want])


def test_a_rule_may_fill_the_same_array_in_each_call() -> None:
    memory = np.empty(3)

    @mixad.custom_vjp
    def square(x: Any) -> Any:
        return x * x

    def backward(x: Any, g: Any) -> Any:
        return (np.multiply(2.0 * x, g, out=memory),)

    square.defvjp(lambda x: (x * x, x), backward)
    x = np.array([1.0, 2.0, 3.0])
    expected = 2 * x * (x + 1) ** 2 + 2 * x**2 * (x + 1)
    for _ in range(3):
        found = mixad.grad(lambda x: (square(x) * square(x + 1)).sum())(x)
        np.testing.assert_allclose(found, expected, rtol=1e-15)
    _, pullback = mixad.vjp(lambda x: square(x) * square(x + 1), x)
    np.testing.assert_allclose(pullback(np.ones(3))[0], expected, rtol=1e-15)
