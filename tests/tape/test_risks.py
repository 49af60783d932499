"""What raises for some elements is computed at once: its error is the user's to catch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.linalg import LinAlgError

import mixad
from mixad.errors import TracerError
from mixad.tape.strand import Strand

pytestmark = pytest.mark.usefixtures("fresh")

X = np.linspace(0.3, 1.0, 4)
EYE = np.eye(4)


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[Strand]:
    """Recordings that have gone on by nodes for what strands do not know."""
    found: list[Strand] = []
    leave = Strand._leave

    def counted(self: Strand) -> None:
        found.append(self)
        leave(self)

    monkeypatch.setattr(Strand, "_leave", counted)
    return found


def log_density(x: Any) -> Any:
    """Return the logarithm of a Gaussian process's density, up to a constant."""
    factor = np.linalg.cholesky(np.exp(-((x[:, None] - x) ** 2)) + 0.5 * EYE)
    whitened = np.linalg.solve(factor, np.sin(x))
    return -0.5 * (whitened * whitened).sum() - np.log(np.diag(factor)).sum()


def filtered(p: Any) -> Any:
    """Return the likelihood of a Kalman filter in two dimensions."""
    step, seen = np.array([[1.0, 0.1], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    m, P, total = p[:2], np.diag(p[2:]), 0.0
    for k in range(40):
        m, P = step @ m, step @ P @ step.T + 0.1 * np.eye(2)
        S, r = seen @ P @ seen.T + 0.5 * np.eye(1), np.sin(0.3 * k) - seen @ m
        total = total - 0.5 * (r @ np.linalg.solve(S, r)) - 0.5 * np.log(S[0, 0])
        gain = P @ seen.T @ np.linalg.inv(S)
        m, P = m + gain @ r, P - gain @ seen @ P
    return total


def eigen(x: Any) -> Any:
    values, vectors = np.linalg.eigh(np.diag(x) + 0.1 * np.outer(x, x))
    return (values**3).sum() + (vectors[:, 0] ** 4).sum()


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a Gaussian process": log_density,
    "a Kalman filter": filtered,
    "eigenvalues": eigen,
    "determinants": lambda x: np.log(np.linalg.det(np.outer(x, x) + EYE)) * x.sum(),
    "QR": lambda x: (np.linalg.qr(np.outer(x, x) + EYE * x).R ** 3).sum(),
    "a pseudoinverse": lambda x: (np.linalg.pinv(np.outer(x, x) + EYE) @ x).sum(),
    "a list": lambda x: sum((each * k).sum() for k, each in enumerate(np.split(x * x, 2))),
    "signs": lambda x: np.linalg.slogdet(np.outer(x, x) + EYE)[1] * x.sum(),
    "singular values": lambda x: np.linalg.svd(np.outer(x, x) + EYE * x)[1].prod() + (x * x).sum(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_by_strands(name: str, left: list[Strand]) -> None:
    f = PROGRAMS[name]
    gradient, value = mixad.grad(f), mixad.value_and_grad(f)
    for x in (X, 1.5 * X, X + 0.1, X):
        left.clear()  # of what looks at elements it is known the next time
        ends = [(f(x + 1e-6 * unit), f(x - 1e-6 * unit)) for unit in EYE]
        expected = [(high - low) / 2e-6 for high, low in ends]
        np.testing.assert_allclose(gradient(x), expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(value(x)[0], f(x), rtol=1e-13)
    assert not left


def test_an_error_is_raised_where_it_is_waited_for() -> None:
    raised: list[bool] = []

    def jittered(x: Any) -> Any:
        matrix = np.outer(x, x) - shift * EYE
        try:
            factor, failed = np.linalg.cholesky(matrix + 1.0 * EYE), False
        except LinAlgError:
            factor, failed = np.linalg.cholesky(matrix + 3.0 * EYE), True
        raised.append(failed)
        return (factor**3).sum() + np.sin(matrix).sum()

    for shift in (0.5, 0.5, 2.0, 0.5, 2.0, 2.0, 0.5):
        raised.clear()
        found = mixad.grad(jittered)(X)
        assert raised == [shift == 2.0]
        ends = [(jittered(X + 1e-6 * unit), jittered(X - 1e-6 * unit)) for unit in EYE]
        expected = [(high - low) / 2e-6 for high, low in ends]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_an_error_comes_before_what_follows_it() -> None:
    reached: list[str] = []

    def f(x: Any) -> Any:
        y = np.linalg.inv(np.outer(x, x) * scale + EYE * (scale == 1.0)) @ x
        reached.append("after")
        return y.sum()

    for scale in (1.0, 1.0, 0.0, 1.0, 0.0):
        reached.clear()
        if scale:
            mixad.grad(f)(X)
            assert reached == ["after"]
        else:
            with pytest.raises(LinAlgError, match="Singular"):
                mixad.grad(f)(X)
            assert not reached


def test_what_is_not_symmetric_is_refused_in_every_call() -> None:
    gradient = mixad.grad(lambda x: np.linalg.cholesky(np.outer(x, x) + table).sum())
    for even in (True, True, False, True, False):
        table = EYE if even else EYE + np.triu(np.ones((4, 4)))
        if even:
            gradient(X)
        else:
            with pytest.raises(TracerError, match="is not symmetric"):
                gradient(X)


def test_derivatives_inside_of_other_transforms() -> None:
    outer = mixad.grad(lambda x: (mixad.grad(log_density)(x) * x).sum())
    gradient = lambda x: (mixad.grad(log_density)(x) * x).sum()  # noqa: E731
    for _ in range(3):
        ends = [(gradient(X + 1e-6 * unit), gradient(X - 1e-6 * unit)) for unit in EYE]
        expected = [(high - low) / 2e-6 for high, low in ends]
        np.testing.assert_allclose(outer(X), expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(
            mixad.hvp(log_density, (X,), (X,)), mixad.hessian(log_density)(X) @ X, rtol=1e-9
        )
