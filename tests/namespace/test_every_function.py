"""Every function of the standard has derivatives that are checked: by a table of its names."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import test_complex
import test_complex_linalg
import test_fourier
import test_linalg
import test_whole_arrays
from derivatives import HAS_JAX, against_jax, check

import mixad
from mixad import pytree
from mixad.namespace.names import SECTIONS
from mixad.namespace.spellings import STANDARD
from mixad.tape.constant import is_traced

NO_FLOATS = set(
    "equal not_equal less less_equal greater greater_equal isfinite isinf isnan signbit".split()
)
"""Their results are plain arrays: values are compared in test_conformance."""

FOURIER = {f"fft.{name}" for name in (*test_fourier.ALONG_ONE, *test_fourier.ALONG_SEVERAL)}
"""Drawn there by their names."""

RNG = np.random.default_rng(7)
X, Y = RNG.uniform(0.1, 0.9, (3, 4)), RNG.uniform(0.1, 0.9, 4)
SIGNED, BESIDE = X - 0.5, Y - 0.45
IN_WHOLE_ARRAYS = {"unique_all"}
"""torch has it not, so its test there is one of its own."""

NOT_IN_JAX = {"nextafter", "unique_counts", "unique_inverse", "unique_values"}
"""It has no derivative of these, or not of their results."""


def _of_one(name: str) -> Any:
    return lambda xp, x: getattr(xp, name)(x) * x


def _of_two(name: str) -> Any:
    return lambda xp, x, y: getattr(xp, name)(x, y) * x + getattr(xp, name)(y, x) * y


ONE = (
    "abs acos asin asinh atan atanh ceil conj cos cosh exp expm1 floor imag negative positive real "
    "reciprocal round sign sin sinh square tan tanh trunc"
).split()
POSITIVE = "log log10 log1p log2 sqrt".split()
TWO = (
    "add atan2 copysign divide floor_divide hypot logaddexp maximum minimum multiply nextafter "
    "remainder subtract"
).split()
ELEMENTWISE: dict[str, tuple[Any, ...]] = {
    **{name: (_of_one(name), SIGNED) for name in ONE},
    **{name: (_of_one(name), X) for name in POSITIVE},
    "acosh": (_of_one("acosh"), X + 1.1),
    **{name: (_of_two(name), SIGNED, BESIDE) for name in TWO},
    "pow": (_of_two("pow"), X, Y),
    "clip": (lambda xp, x, y: xp.clip(x, -0.2, y) * x, SIGNED, Y),
}

MATRIX, OTHER = RNG.normal(size=(3, 4)), RNG.normal(size=(4, 2))
OTHERS: dict[str, tuple[Any, ...]] = {
    "linalg.matmul": (lambda xp, x, y: xp.linalg.matmul(x, y) ** 2, MATRIX, OTHER),
    "linalg.matrix_transpose": (lambda xp, x: xp.linalg.matrix_transpose(x) ** 3, MATRIX),
    "linalg.tensordot": (lambda xp, x, y: xp.linalg.tensordot(x, y, axes=1) ** 2, MATRIX, OTHER),
    "unique_counts": (lambda xp, x: xp.unique_counts(x).values ** 3, X),
    "unique_inverse": (lambda xp, x: xp.unique_inverse(x).values ** 3, X),
    "unique_values": (lambda xp, x: xp.sort(xp.unique_values(x)) ** 3, X),
}
"""Functions that no case of the other files is about."""

CASES = ELEMENTWISE | OTHERS


def test_every_elementwise_function_has_a_case() -> None:
    assert (
        ELEMENTWISE.keys() | NO_FLOATS == set(SECTIONS["elementwise"]) & STANDARD.functions.keys()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_derivatives_agree_with_differences(name: str) -> None:
    check(*CASES[name], tolerance=1e-5)


@pytest.mark.skipif(not HAS_JAX, reason="JAX is not installed")
@pytest.mark.rows("name", sorted(CASES.keys() - NOT_IN_JAX))
def test_derivatives_agree_with_those_of_jax(name: str) -> None:
    against_jax(*CASES[name])


class _Noting:
    """A namespace that notes which of its functions took what is being differentiated."""

    def __init__(self, xp: Any, noted: set[str], prefix: str = "") -> None:
        self._of, self._noted, self._prefix = xp, noted, prefix

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name in ("linalg", "fft"):
            return _Noting(found, self._noted, f"{name}.")
        return functools.partial(self._called, name) if name in self._functions else found

    def _called(self, name: str, /, *args: Any, **kwargs: Any) -> Any:
        if any(map(is_traced, pytree.leaves((args, kwargs)))):
            self._noted.add(self._prefix + name)
        return getattr(self._of, name)(*args, **kwargs)

    @property
    def _functions(self) -> set[str]:
        return {n.rpartition(".")[2] for n in STANDARD.functions if n.startswith(self._prefix)}


@pytest.mark.slow
def test_every_function_is_differentiated_in_some_case() -> None:
    noted: set[str] = set()
    xp = _Noting(mixad.namespace_of(np), noted)
    modules = (test_whole_arrays, test_linalg, test_complex, test_complex_linalg)
    tables = [*(module.CASES for module in modules), test_complex_linalg.OF_EIG, OTHERS]
    for f, *arrays in (case for table in tables for case in table.values()):
        mixad.vjp(functools.partial(f, xp), *map(np.asarray, arrays))
    assert (
        noted | ELEMENTWISE.keys() | NO_FLOATS | FOURIER | IN_WHOLE_ARRAYS
        == STANDARD.functions.keys()
    )
