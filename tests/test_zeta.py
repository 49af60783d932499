"""Riemann's and Hurwitz's zeta functions, against mpmath and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf

import mixad
from mixad import special
from tools.measure_derivatives import derivatives

scipy_special = pytest.importorskip("scipy.special")

HURWITZ = [
    (x, q)
    for x in (1.0001, 1.5, 2.0, 7.3, 40.0, 99.5, 101.0, 300.0)
    for q in (1e-3, 0.6, 1.0, 2.5, 13.0, 400.0, 1e6)
    if abs(x * math.log10(q)) < 250
]
RIEMANN = [-170.5, -30.3, -7.0, -4.0, -0.6, -1e-9, 0.0, 1e-20, 0.3, 0.49, 0.51, 0.9, 0.9999,
           1.0001, 1.7, 3.0, 17.0, 60.0, 110.0]  # fmt: skip
LARGEST = {"f8": 1e280, "f4": 1e30}


def ulps(got: float, wanted: mpf, dtype: str) -> float:
    return float(abs(mpf(float(got)) - wanted) / abs(wanted) / np.finfo(dtype).eps)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_hurwitz_zeta_has_two_derivatives_in_both_arguments(dtype: str) -> None:
    rows = [tuple(map(float, np.array(p, dtype))) for p in HURWITZ
            if abs(p[0] * math.log10(p[1])) < math.log10(LARGEST[dtype]) - 5]  # fmt: skip
    columns = [np.array(c, dtype) for c in zip(*rows, strict=True)]
    (value,), (dx, dq), (dxx, dxq, _, dqq) = derivatives("zeta", columns)
    with mp.workdps(200):  # it takes ζ(s, q) of large q as a difference
        for k, (x, q) in enumerate(rows):
            s, a = mpf(x), mpf(q)
            once, twice = mp.zeta(s + 1, a), mp.zeta(s + 2, a)
            wanted = {
                "value": (value, mp.zeta(s, a)),
                "dx": (dx, mp.zeta(s, a, 1)),
                "dq": (dq, -s * once),
                "dxx": (dxx, mp.zeta(s, a, 2)),
                "dxq": (dxq, -once - s * mp.zeta(s + 1, a, 1)),
                "dqq": (dqq, s * (s + 1) * twice),
            }
            for name, (found, e) in wanted.items():
                limit = 60 + 4 * x
                scale = abs(mp.zeta(s, a) * mp.log(a)) if name == "dx" and q != 1 else 0
                if abs(e) > np.finfo(dtype).tiny * 100:
                    error = ulps(found[k], e, dtype) * float(abs(e) / max(abs(e), scale))
                    assert error < limit, (name, x, q, found[k], float(e), error)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_riemann_zeta_has_two_derivatives_on_both_sides_of_its_pole(dtype: str) -> None:
    x = np.array([x for x in RIEMANN if dtype == "f8" or abs(x) < 35], dtype)
    kernel = mixad.broadcast(lambda x: special.zeta(x))
    first = mixad.grad(lambda x: kernel(x).sum())
    second = mixad.grad(lambda x: first(x).sum())
    with mp.workdps(50):
        for order, found in enumerate((kernel(x), first(x), second(x))):
            for t, got in zip(x.tolist(), found, strict=True):
                exact = mp.zeta(mpf(t), 1, order)
                if t in (-4.0, -30.0) and order == 0:
                    assert got == 0
                    continue
                scale = max(abs(mp.zeta(mpf(t), 1, o)) for o in range(order + 1))
                error = float(abs(mpf(float(got)) - exact) / (scale if t < 0.5 else abs(exact)))
                assert error < 100 * (1 + abs(t)) * np.finfo(dtype).eps, (order, t, got, exact)


EDGES = np.array([-math.inf, -2.5, -2.0, -0.5, -0.0, 0.0, 0.5, 1.0, 2.0, 3.5, 1e300, math.inf,
                  math.nan])  # fmt: skip


def test_values_of_hurwitz_zeta_at_edges_are_those_of_scipy() -> None:
    below = EDGES[~(EDGES >= 1e300)]  # beyond, SciPy's is nan
    x, q = (g.ravel() for g in np.meshgrid(below, EDGES))
    found, wanted = mixad.broadcast(special.zeta)(x, q), scipy_special.zeta(x, q)
    rows = zip(x, q, found, wanted, strict=True)
    differing = [r for r in rows if r[2] != pytest.approx(r[3], rel=1e-14, nan_ok=True)]
    assert not differing


def test_values_of_riemann_zeta_at_edges_are_those_of_scipy() -> None:
    found = mixad.broadcast(lambda x: special.zeta(x))(EDGES)
    np.testing.assert_allclose(found, scipy_special.zeta(EDGES), rtol=1e-13)
    assert special.zeta(-300.0) == 0
    assert special.zeta(0.0) == -0.5


@pytest.mark.slow
def test_q_is_left_out_or_given() -> None:
    x = np.array([2.0, 3.0])
    np.testing.assert_allclose(mixad.broadcast(special.zeta)(x, 1.0), scipy_special.zeta(x))
    namespace = mixad.namespace_of(np).special
    for q in ((), (None,), (1.0,)):
        found = mixad.grad(lambda x, q=q: namespace.zeta(x, *q).sum())(x)
        np.testing.assert_allclose(found, [float(mp.zeta(t, 1, 1)) for t in x], rtol=1e-13)


def test_large_exponents_leave_the_first_term() -> None:
    x, q = np.array([1e3, 1e300, 1e300, 1e300, math.inf]), np.array([1.0, 1.0, 2.0, 1e300, 2.0])
    np.testing.assert_array_equal(mixad.broadcast(special.zeta)(x, q), [1, 1, 0, 0, 0])
