"""Operations whose cotangents read their own values: parts with and without cotangents, orders."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad.errors import TracerError
from mixad.tape.values_rule import ValuesRule, apply_values_rule

X = np.asarray([0.5, 2.0])


def of_both(gs: Any, values: Any, x: Any) -> Any:
    """Of exp(x) and exp(2x), written with the values."""
    first = 0.0 if gs[0] is None else gs[0] * values[0]
    return first + (0.0 * values[0] if gs[1] is None else 2.0 * gs[1] * values[1])


EXPONENTIALS = ValuesRule("exponentials", lambda xp, x: (xp.exp(x), xp.exp(2 * x)), (of_both,))

RATIO = ValuesRule(
    "ratio",
    lambda xp, x, y: (x / y,),
    (lambda gs, values, x, y: gs[0] / y, lambda gs, values, x, y: -gs[0] * values[0] / y),
    reads=(1,),
)


@pytest.mark.usefixtures("nodes")
@pytest.mark.parametrize(("first", "second"), [(1.0, 3.0), (2.0, 0.0), (0.0, 1.0)])
def test_values_without_a_cotangent_are_none(first: float, second: float) -> None:
    seen: list[Any] = []

    def watched(gs: Any, values: Any, x: Any) -> Any:
        seen.append([g is None for g in gs])
        return of_both(gs, values, x)

    rule = ValuesRule("exponentials", EXPONENTIALS.evaluate, (watched,))

    def loss(x: Any) -> Any:
        a, b = apply_values_rule(rule, x)
        parts = [(c * v).sum() for c, v in ((first, a), (second, b)) if c]
        return sum(parts)

    want = first * np.exp(X) + 2 * second * np.exp(2 * X)
    np.testing.assert_allclose(mixad.grad(loss)(X), want, rtol=1e-14)
    assert seen == [[not first, not second]]


def test_they_differentiate_again_in_both_modes() -> None:
    def loss(x: Any) -> Any:
        a, b = apply_values_rule(EXPONENTIALS, x)
        return (a * b).sum()

    want = 27 * np.exp(3 * X)
    third = mixad.grad(lambda x: mixad.grad(lambda x: mixad.grad(loss)(x).sum())(x).sum())(X)
    np.testing.assert_allclose(third, want, rtol=1e-13)
    second = mixad.jvp(mixad.grad(loss), (X,), (np.ones(2),))[1]
    np.testing.assert_allclose(second, want / 3, rtol=1e-13)


@pytest.mark.usefixtures("nodes")
def test_only_what_is_read_is_watched() -> None:
    y = np.asarray([1.0, 4.0])

    _, pullback = mixad.vjp(lambda x: apply_values_rule(RATIO, x, y)[0].sum(), X)
    y[0] = 2.0
    with pytest.raises(TracerError, match=r"argument 1 of ratio, there .* changed in place"):
        pullback(1.0)
    free = np.asarray([1.0, 4.0])

    def other(z: Any) -> Any:
        (ratio,) = apply_values_rule(RATIO, free, z)
        free[0] = 9.0  # the value is there, and the formula reads that
        return ratio.sum()

    np.testing.assert_allclose(mixad.grad(other)(X), -np.asarray([1.0, 4.0]) / X**2)


def test_plain_arrays_are_not_recorded() -> None:
    (ratio,) = apply_values_rule(RATIO, X, X)
    assert type(ratio) is np.ndarray


def test_libraries_are_not_mixed() -> None:
    with pytest.raises(TracerError, match="ratio mixes arrays"):
        mixad.grad(lambda x: apply_values_rule(RATIO, x, array_api_strict.ones(2))[0].sum())(X)
