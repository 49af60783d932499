"""Special functions under SciPy's names: an extension of the namespace, and SciPy's ufuncs."""

from __future__ import annotations

import importlib.util
from typing import Any

import array_api_strict
import mpmath
import numpy as np
import pytest

import mixad
from mixad import special
from mixad.errors import TracerError
from mixad.namespace.scipy_functions import DERIVATIVES, SCIPY
from mixad.namespace.special import SPECIAL
from mixad.scalar.expression import expression

scipy_special = pytest.importorskip("scipy.special")

HAS_TORCH = importlib.util.find_spec("torch") is not None
X = np.array([0.3, 1.2, 2.5])

DERIVED = {
    "log_sigmoid": lambda x: -mpmath.log1p(mpmath.exp(-x)),
    "ndtr": mpmath.ncdf,
    "cosm1": lambda x: mpmath.cos(x) - 1,
    "exp10": lambda x: mpmath.mpf(10) ** x,
    "exprel": lambda x: mpmath.expm1(x) / x,
    "entr": lambda x: -x * mpmath.log(x),
    "rel_entr": lambda x, y: x * mpmath.log(x / y),
    "kl_div": lambda x, y: x * mpmath.log(x / y) - x + y,
    "huber": lambda d, r: r * r / 2 if abs(r) <= d else d * (abs(r) - d / 2),
    "pseudo_huber": lambda d, r: d * (mpmath.sqrt(d * d + r * r) - d),
}


def test_every_name_is_one_of_scipys() -> None:
    assert not set(SPECIAL) & set(SCIPY)
    missing = {name for name in (*SPECIAL, *SCIPY) if not hasattr(scipy_special, name)}
    assert missing <= {"softplus"}  # SciPy has it since 1.17
    left = {name for name in special.__all__ if hasattr(scipy_special, name)} - set(SPECIAL)
    assert not left, (
        f"{left}: arrays have them too, add them to _SAME in mixad/namespace/special.py"
    )


def test_every_formula_has_a_partial_for_each_parameter() -> None:
    for name, known in DERIVATIVES.items():
        assert len(known.partials) == len(known.parameters), name
        assert any(known.partials), name
        for partial in filter(None, known.partials):
            assert expression(partial).names <= {*known.parameters, "out"}, name


@pytest.mark.parametrize("name", ["erf", "expm1", "exprel", "gammaln", "log_expit", "psi"])
def test_a_compiled_function_is_called_as_scipys_ufunc(name: str) -> None:
    ufunc = getattr(scipy_special, name)
    if not isinstance(ufunc, np.ufunc):
        pytest.skip("SCIPY_ARRAY_API is set: this is a wrapper")
    exact = {"erf": mpmath.erf, "expm1": mpmath.expm1, "exprel": DERIVED["exprel"],
             "gammaln": mpmath.loggamma, "log_expit": DERIVED["log_sigmoid"],
             "psi": mpmath.digamma}  # fmt: skip
    found = mixad.grad(lambda x: ufunc(x).sum())(X)
    np.testing.assert_allclose(found, [float(mpmath.diff(exact[name], x)) for x in X], rtol=1e-13)


@pytest.mark.parametrize(
    ("name", "exact"),
    [
        ("k0", lambda x: mpmath.besselk(0, x)),
        ("k1", lambda x: mpmath.besselk(1, x)),
        ("log_ndtr", lambda x: mpmath.log(mpmath.ncdf(x))),
    ],
)
def test_a_function_that_scipy_computes_has_two_derivatives(name: str, exact: Any) -> None:
    first = mixad.grad(lambda x: getattr(scipy_special, name)(x).sum())
    second = mixad.grad(lambda x: first(x).sum())
    for order, found in enumerate((first(X), second(X)), start=1):
        wanted = [float(mpmath.diff(exact, x, order)) for x in X]
        np.testing.assert_allclose(found, wanted, rtol=1e-11)


@pytest.mark.slow
def test_operands_broadcast_and_gradients_have_their_shapes() -> None:
    a, b = np.array([[0.7], [1.6]]), X
    da, db = mixad.grad(lambda a, b: scipy_special.betaln(a, b).sum(), argnums=(0, 1))(a, b)
    psi = scipy_special.psi
    np.testing.assert_allclose(da, (psi(a) - psi(a + b)).sum(1, keepdims=True), rtol=1e-13)
    np.testing.assert_allclose(db, (psi(b) - psi(a + b)).sum(0), rtol=1e-13)


@pytest.mark.slow
def test_single_precision_stays() -> None:
    gradient = mixad.grad(lambda x: scipy_special.gammaincc(np.float32(2), x).sum())
    found = gradient(X.astype("float32"))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, -X * np.exp(-X), rtol=1e-5)


@pytest.mark.slow
def test_whole_numbers_beside_traced_values_are_floats() -> None:
    found = mixad.grad(lambda x: scipy_special.stdtr(np.array([1, 1, 1]), x).sum())(X)
    np.testing.assert_allclose(found, 1 / (np.pi * (1 + X * X)), rtol=1e-13)


def test_a_derivative_that_is_not_known_is_refused_when_it_is_asked_for() -> None:
    def both(v: Any, x: Any) -> Any:
        return scipy_special.chdtr(v, x).sum()

    assert np.all(mixad.grad(both, argnums=1)(X, X) > 0)
    with pytest.raises(TracerError, match=r"scipy\.special\.chdtr\(\) with respect to 'v'.*stop_g"):
        mixad.grad(both)(X, X)
    assert mixad.grad(lambda v, x: both(mixad.stop_gradient(v), x), argnums=1)(X, X).shape == (3,)


def test_the_extension_is_one_of_every_namespace() -> None:
    xp = mixad.namespace_of(array_api_strict)
    assert repr(xp.special) == "<namespace mixad.array_api_strict.special>"
    assert set(dir(xp.special)) == set(SPECIAL)
    assert set(dir(mixad.namespace_of(np).special)) == {*SPECIAL, *SCIPY}
    found = mixad.grad(lambda x: xp.sum(xp.special.entr(x)))(array_api_strict.asarray(X))
    np.testing.assert_allclose(np.asarray(found), -np.log(X) - 1, rtol=1e-13, atol=1e-15)
    with pytest.raises(AttributeError, match="special has no attribute 'k0'"):
        xp.special.k0  # noqa: B018


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_what_scipy_computes_is_refused_for_tensors() -> None:
    import torch

    with pytest.raises(TracerError, match=r"scipy\.special\.k0\(\).*NumPy arrays only"):
        mixad.grad(lambda x: SCIPY["k0"].evaluate(x).sum())(torch.asarray(X))


def test_plain_arrays_and_numbers_are_computed_as_scipy_does() -> None:
    special = mixad.namespace_of(np).special
    np.testing.assert_allclose(special.rel_entr(X, 2.0), scipy_special.rel_entr(X, 2.0), rtol=1e-14)
    np.testing.assert_array_equal(special.k0(X), scipy_special.k0(X))
    np.testing.assert_allclose(special.erf(0.5), scipy_special.erf(0.5), rtol=1e-15)


EDGES = np.array([-np.inf, -2.0, -0.0, 0.0, 0.5, 2.0, np.inf, np.nan])


@pytest.mark.rows(
    "name", ["entr", "exprel", "rel_entr", "kl_div", "huber", "pseudo_huber", "xlogy"]
)
def test_values_at_edges_are_those_of_scipy(name: str) -> None:
    ufunc, count = getattr(scipy_special, name), len(SPECIAL[name].parameters)
    # Of pseudo_huber, SciPy has 0 at (0, inf) and (nan, 0).
    edges = EDGES[np.isfinite(EDGES)] if name == "pseudo_huber" else EDGES
    operands = np.meshgrid(*[edges] * count)
    with np.errstate(all="ignore"):
        wanted = ufunc(*operands)
    found = getattr(mixad.namespace_of(np).special, name)(*operands)
    np.testing.assert_allclose(found, wanted, rtol=1e-15)


@pytest.mark.rows("name", DERIVED)
@pytest.mark.rows("point", [(0.3, 1.7), (1.2, 1.1), (2.5, 0.4)])
def test_gradients_of_derived_functions_agree_with_mpmath(name: str, point: Any) -> None:
    exact, kernel = DERIVED[name], mixad.broadcast(getattr(mixad.special, name))
    values = point[: exact.__code__.co_argcount] if name != "ndtr" else point[:1]
    for index in range(len(values)):
        order = tuple(int(i == index) for i in range(len(values)))
        wanted = float(mpmath.diff(exact, values, order) if len(values) > 1
                       else mpmath.diff(exact, *values))  # fmt: skip
        found = mixad.grad(lambda *x: kernel(*x), argnums=index)(*values)
        assert found == pytest.approx(wanted, rel=1e-13, abs=1e-15)


@pytest.mark.parametrize("x", [1e-9, 1e-4])
def test_a_small_pseudo_huber_loss_keeps_its_digits(x: float) -> None:
    assert mixad.special.pseudo_huber(2.0, x) == pytest.approx(x * x / 2, rel=1e-8)
    kernel = mixad.broadcast(mixad.special.pseudo_huber)
    curvature = mixad.grad(lambda r: mixad.grad(lambda r: kernel(2.0, r))(r))(0.0)
    assert curvature == pytest.approx(1.0, rel=1e-14)
