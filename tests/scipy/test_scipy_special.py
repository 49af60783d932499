"""Special functions take whole numbers as SciPy's do, and as many arguments."""

import numpy as np
import pytest

from mixad.scipy import special

pytest.importorskip("scipy")

import scipy.special

WHOLE = [
    ("erf", (1,)),
    ("erf", (True,)),
    ("expit", (np.array([0, 1]),)),
    ("erf", (np.uint8(3),)),
    ("xlogy", (2, np.array([1, 2]))),
    ("betaln", (1, 2)),
    ("polygamma", (1, np.array([1, 2]))),
    ("erfc", ([1, 2],)),
    ("zeta", (2, 3)),
]


@pytest.mark.parametrize(("name", "operands"), WHOLE)
def test_whole_numbers_become_floats(name: str, operands: tuple) -> None:
    found, wanted = getattr(special, name)(*operands), getattr(scipy.special, name)(*operands)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


def test_whole_numbers_take_the_type_of_floats_beside_them() -> None:
    assert special.beta(np.int8([2]), np.float32([1.0, 2.0])).dtype == np.float32


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [
        ("erf", 2, r"erf takes 1 argument, got 2: write erf\(x\)"),
        ("betaln", 1, r"betaln takes 2 arguments, got 1: write betaln\(a, b\)"),
        ("zeta", 3, r"zeta takes at most 2 arguments, got 3: write zeta\(x, q\)"),
    ],
)
def test_too_few_or_many_arguments_are_told(name: str, count: int, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        getattr(special, name)(*[1.0] * count)
