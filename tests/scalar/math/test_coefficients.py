"""The stored polynomials are those that the derivation script derives, and as good as it says."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from mpmath import mp

from mixad.scalar.math import coefficients

SCRIPT = Path(__file__).parents[3] / "tools" / "derive_maths.py"
LARGEST_ERROR = {"f32": 2.0**-26, "f64": 2.0**-54}  # a quarter of the unit roundoff, a half


@pytest.fixture(scope="module")
def script():
    if not SCRIPT.exists():
        pytest.skip("the derivation script is in the repository only")
    spec = importlib.util.spec_from_file_location("derive_maths", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    before = mp.dps
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    mp.dps = before


def test_script_derives_the_stored_tables(script):
    assert Path(coefficients.__file__).read_text(encoding="utf-8") == script.render()


def test_polynomials_are_better_than_their_type(script):
    stored = {"f32": coefficients.F32, "f64": coefficients.F64}
    for fit in script.fits():
        for type in fit.terms:
            assert script.weighted_error(fit, stored[type][fit.name]) < LARGEST_ERROR[type], (
                fit.name
            )


def test_tables_name_their_errors():
    text = Path(coefficients.__file__).read_text(encoding="utf-8")
    assert len(re.findall(r"error 2\^-\d", text)) == text.count("over ")
