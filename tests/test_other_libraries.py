"""Functions of SciPy, torch and JAX in kernels: compiled, or refused with the name of ours."""

from __future__ import annotations

import importlib.util
import itertools
import math
import operator
import types
from typing import Any

import numpy as np
import pytest

import mixad
from mixad import special
from mixad.errors import KernelSyntaxError, KernelTypeError
from mixad.scalar.names import OUR_NAMES
from mixad.scalar.parse import other_libraries
from mixad.scalar.parse.other_libraries import name_of_ours, stand_in

scipy_special = pytest.importorskip("scipy.special")

COMPILED = sorted(name for name in dir(scipy_special) if stand_in(getattr(scipy_special, name)))
POINTS = {
    "polygamma": (2, 0.7), "expn": (2, 0.7), "erfinv": (0.4,), "xlog1py": (0.7, 0.3),
    "zeta": (2.4, 0.8), "huber": (0.6, 0.9), "erfcinv": (1.3,), "gammainc": (1.4, 0.7),
    "gammaincc": (1.4, 0.7), "sindg": (33.0,), "cosdg": (33.0,), "tandg": (33.0,),
    "cotdg": (33.0,),
}  # fmt: skip
ONE = "cbrt cosm1 digamma ellipe ellipk ellipkm1 entr erf erfc erfcx exp1 exp10 exp2 expi expit \
expm1 exprel gamma gammaln i0 i0e i1 i1e j0 j1 log1p log_expit logit ndtr ndtri psi sinc softplus \
y0 y1".split()
TWO = "beta betaln kl_div pseudo_huber rel_entr xlogy".split()
ARGUMENTS = {**dict.fromkeys(ONE, (0.7,)), **dict.fromkeys(TWO, (0.7, 0.4)), **POINTS}
WHOLE = {"polygamma", "expn"}
"""Functions whose first argument is a whole number, in which there is no derivative."""


def kernel_of(name: str) -> Any:
    function, count = getattr(scipy_special, name), len(ARGUMENTS[name])
    if count == 1:
        return mixad.broadcast(lambda x: function(x) * 1.0)
    return mixad.broadcast(lambda x, y: function(x, y) * 1.0)


def test_what_ours_stand_for_is_what_scipy_has_under_their_names() -> None:
    ours = {OUR_NAMES.get(name, name) for name in dir(scipy_special)} & set(special.__all__)
    assert {OUR_NAMES.get(name, name) for name in COMPILED} == ours
    missing = set(COMPILED) - set(ARGUMENTS)
    assert not missing, f"{missing}: add each to ONE, TWO or POINTS above"
    assert {"expit", "gammaln", "j0", "ndtr", "sindg", "xlogy"} <= set(COMPILED)


@pytest.mark.rows(
    "name",
    COMPILED,
    slow="beta betaln cotdg erf expn gammainc gammaincc j0 j1 polygamma y0 y1 zeta",
)
def test_scipys_functions_have_scipys_values_and_derivatives(name: str) -> None:
    kernel, function, point = kernel_of(name), getattr(scipy_special, name), ARGUMENTS[name]
    columns = [p if name in WHOLE and i == 0 else p * np.array([1.0, 0.9, 1.1])
               for i, p in enumerate(point)]  # fmt: skip
    np.testing.assert_allclose(kernel(*columns), function(*columns), rtol=2e-14)
    for i in range(name in WHOLE, len(point)):
        step = 1e-3 * np.abs(columns[i])

        def moved(times: float, i: int = i, step: Any = step) -> Any:
            return function(*(c + times * step if j == i else c for j, c in enumerate(columns)))

        # Central differences of the fourth order.
        wanted = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12 * step)
        found = mixad.grad(lambda *x: kernel(*x).sum(), argnums=i)(*columns)
        np.testing.assert_allclose(found, wanted, rtol=1e-8)


UFUNCS = [name for name in COMPILED if isinstance(getattr(scipy_special, name), np.ufunc)]
DTYPES = [np.dtype(t) for t in "? b B h H i I q Q e f d".split()]


@pytest.mark.rows("name", UFUNCS)
def test_results_have_scipys_types(name: str) -> None:
    """A function is compiled once for all types of arguments that it takes as the same ones."""
    ufunc, count = getattr(scipy_special, name), len(ARGUMENTS[name])
    every = list(itertools.product(DTYPES, repeat=count))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(other_libraries._OURS, OUR_NAMES.get(name, name), TAKEN[count])
        taking = of_ones(ufunc, count)
        taken = {dtypes: tuple(x.dtype for x in taking(dtypes)) for dtypes in every}
    results = {dtypes: of_ones(ufunc, count)(dtypes)[0].dtype for dtypes in {*taken.values()}}
    for dtypes in every:
        with np.errstate(all="ignore"):
            wanted = ufunc(*(np.ones(1, t) for t in dtypes))
        assert results[taken[dtypes]] == wanted.dtype, dtypes
        assert taken[taken[dtypes]] == taken[dtypes]


TAKEN = {1: lambda x: (x,), 2: lambda x, y: (x, y)}
"""What gives arguments as a function gets them, after those of the call are converted."""


def of_ones(ufunc: Any, count: int) -> Any:
    """Return a kernel's results, given the dtypes of its arguments."""
    function = (lambda x: ufunc(x)) if count == 1 else (lambda x, y: ufunc(x, y))
    kernel = mixad.broadcast(function, backend="reference")

    def results(dtypes: tuple[Any, ...]) -> Any:
        found = kernel(*(np.ones(1, t) for t in dtypes))
        return found if isinstance(found, tuple) else (found,)

    return results


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_numbers_beside_arrays_have_scipys_types(dtype: str) -> None:
    x = np.linspace(0.1, 0.9, 4, dtype=dtype)
    alone = mixad.broadcast(lambda x: x * scipy_special.gammaln(2.5))
    beside = mixad.broadcast(lambda x: scipy_special.xlogy(x, 2.5))
    assert alone(x).dtype == (x * scipy_special.gammaln(2.5)).dtype == np.float64
    assert beside(x).dtype == scipy_special.xlogy(x, 2.5).dtype
    derived = mixad.broadcast(lambda x: x * scipy_special.ndtr(2.5))
    own = mixad.broadcast(lambda x: x * special.ndtr(2.5))
    assert (derived(x).dtype, own(x).dtype) == (np.dtype("f8"), x.dtype)


def test_a_function_and_the_one_that_it_stands_for_are_told_apart() -> None:
    def model(function: Any) -> Any:
        return mixad.broadcast(lambda x: x * function(2.5))

    x = np.ones(2, "f4")
    for theirs, ours in (("ndtr", "ndtr"), ("gammaln", "lgamma")):
        found = [
            model(f)(x).dtype.char
            for f in (getattr(special, ours), getattr(scipy_special, theirs)) * 2
        ]
        assert found == ["f", "d"] * 2


def test_numpys_bessel_function_is_compiled() -> None:
    kernel = mixad.broadcast(lambda x: np.i0(x))
    for dtype in ("f4", "f8", "i4"):
        x = np.array([-9, 0, 1, 3], dtype)
        assert kernel(x).dtype == np.i0(x).dtype
        np.testing.assert_allclose(kernel(x), np.i0(x), rtol=1e-6 if dtype == "f4" else 1e-14)
    x = np.array([-9.0, 0.0, 1.0, 3.0])
    found = mixad.grad(lambda x: kernel(x).sum())(x)
    np.testing.assert_allclose(found, scipy_special.i1(x), rtol=1e-14)


def test_a_function_of_scipys_may_be_passed_and_kept() -> None:
    table = (scipy_special.j0, scipy_special.erf, np.i0)

    def twice(f: Any, x: Any) -> Any:
        return f(f(x))

    kernel = mixad.broadcast(lambda x: twice(scipy_special.ndtr, x) + table[0](x) * table[1](x))
    wanted = scipy_special.ndtr(scipy_special.ndtr(0.3)) + scipy_special.j0(0.3) * math.erf(0.3)
    assert kernel(0.3) == pytest.approx(wanted, rel=1e-14)


@pytest.mark.parametrize("name", ["expm1", "log1p"])
def test_complex_numbers_are_taken_where_ours_are(name: str) -> None:
    z, function = np.array([0.3 + 0.4j, -0.2 + 1.5j]), getattr(scipy_special, name)
    kernel = mixad.broadcast(lambda z: function(z) * 2)
    np.testing.assert_allclose(kernel(z), function(z) * 2, rtol=1e-14)
    with pytest.raises(KernelTypeError, match=r"erf"):
        mixad.broadcast(lambda z: scipy_special.erf(z))(z)


def test_a_function_of_that_name_from_elsewhere_is_not_taken_for_scipys() -> None:
    def erf(x: Any) -> Any:
        return 2 * x

    assert mixad.broadcast(lambda x: erf(x))(3.0) == 6.0
    ndtr = operator.methodcaller("ndtr")
    with pytest.raises(KernelSyntaxError, match=r"is not supported in a kernel"):
        mixad.broadcast(lambda x: ndtr(x))(3.0)


@pytest.mark.rows(
    ("call", "message"),
    [
        (lambda x: scipy_special.ndtr(x, x), r"`scipy_special\.ndtr`.*takes 1 argument"),
        (lambda x: scipy_special.erf(x, x), r"takes 1 argument, got 2"),
        (lambda x: scipy_special.ndtr(x, out=x), r"no parameter 'out'"),
        (lambda x: scipy_special.k0(x), r"`scipy_special\.k0` is not supported"),
        (lambda x: scipy_special.huber(x), r"needs an argument for 'r'"),
        (lambda x: scipy_special.softmax(x), r"`scipy_special\.softmax` is not supported"),
        (lambda x: scipy_special.comb(x, 2), r"`scipy_special\.comb` is not supported"),
    ],
)
def test_what_is_refused_names_scipys_function(call: Any, message: str) -> None:
    with pytest.raises((KernelSyntaxError, KernelTypeError), match=message) as caught:
        mixad.broadcast(call)(0.5)
    assert "scipy_special." in str(caught.value)


# -- functions of tensors --------------------------------------------------------------------------


def refused(function: Any) -> str:
    with pytest.raises(KernelSyntaxError) as caught:
        mixad.broadcast(lambda x: function(x))(0.5)
    return str(caught.value)


@pytest.mark.rows("name", sorted({*special.__all__, *OUR_NAMES} - {"select"}))
def test_names_of_ours_are_found_by_those_of_torch(name: str) -> None:
    ours = OUR_NAMES.get(name, name)
    theirs = types.SimpleNamespace(__name__=f"special_{name}")
    assert name_of_ours(theirs) == (ours if ours in special.__all__ else None)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_torchs_functions_are_refused_with_the_name_of_ours() -> None:
    import torch
    import torch.nn.functional

    for name in torch.special.__all__:
        ours = OUR_NAMES.get(name, name)
        message = refused(getattr(torch.special, name))
        assert "takes tensors: a kernel sees one element" in message
        assert (f"Instead: mixad.special.{ours}\n" in f"{message}\n") == (ours in special.__all__)
    for function, hint in (
        (torch.sin, "mixad.special.sin"),
        (torch.arcsin, "mixad.special.asin"),
        (torch.lgamma, "mixad.special.lgamma"),
        (torch.sigmoid, "mixad.special.sigmoid"),
        (torch.abs, "abs(x)"),
        (torch.clamp, "min(max(x, low), high)"),
        (torch.nn.functional.softplus, "mixad.special.softplus"),
        (torch.nn.functional.silu, "mixad.special.silu"),
        (torch.nn.functional.logsigmoid, "mixad.special.log_sigmoid"),
    ):
        assert f"Instead: {hint}" in refused(function), function
    assert "mixad.special.select" not in refused(torch.select)


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
def test_jaxs_functions_are_refused_with_the_name_of_ours() -> None:
    import jax
    import jax.numpy as jnp

    for function, hint in (
        (jnp.sin, "mixad.special.sin"),
        (jnp.arctan2, "mixad.special.atan2"),
        (jnp.abs, "abs(x)"),
        (jax.scipy.special.gammaln, "mixad.special.lgamma"),
        (jax.scipy.special.erf, "mixad.special.erf"),
        (jax.lax.exp, "mixad.special.exp"),
        (jax.nn.relu, "mixad.special.relu"),
    ):
        message = refused(function)
        assert "takes tensors: a kernel sees one element" in message, function
        assert f"Instead: {hint}" in message, function


@pytest.mark.parametrize("function", [np.i0, np.sinc, np.exp, scipy_special.ndtr])
def test_a_function_of_a_library_is_no_kernel_by_itself(function: Any) -> None:
    with pytest.raises(KernelSyntaxError, match=r"wrap the call in a function of your own"):
        mixad.broadcast(function)
