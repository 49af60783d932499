"""Errors of the inlined functions against mpmath, in units in the last place."""

import pytest
from ulp_reference import CLAIMS, FLOATS, MAX_ULP, worst

from mixad.scalar.math import PROGRAMS

RANDOM_POINTS = 1000  # of each kind: ordinary, uniform over the range, of any bits; edges are added
SEED = 20180601

EXACT = {"div_zero", "isfinite", "isinf", "isnan", "ldexp", "maximum", "minimum", "mul_zero",
         "mul_zeros", "nextafter", "powi", "relu", "sign"}  # fmt: skip


def test_every_program_is_measured_or_exact():
    assert set(CLAIMS) | EXACT == set(PROGRAMS)


@pytest.mark.rows("type", FLOATS, ids=str)
@pytest.mark.rows(
    "name", CLAIMS, slow="digamma trigamma polygamma erfcinv logistic_density tanh log1p log2 log10"
)
def test_error_is_within_the_stated_ulp(name, type):
    error, point = worst(name, type, RANDOM_POINTS, SEED)
    assert error <= MAX_ULP[type], f"{name}{point} is off by {error:.3f} ulp"
