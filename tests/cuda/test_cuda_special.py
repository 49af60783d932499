"""Functions of `mixad.special` that are made of ops, as CUDA C++ that the emulator runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_special import DERIVED, assert_as_on_the_cpu

pytestmark = pytest.mark.slow  # every kernel is compiled by g++


@pytest.mark.parametrize("name", DERIVED)
def test_values_and_partials_are_those_of_the_cpu(name: str) -> None:
    assert_as_on_the_cpu(name, "emulated")
