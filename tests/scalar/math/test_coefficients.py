"""The stored polynomials are those that the derivation script derives, and as good as it says."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from mpmath import mp

from mixad.scalar.math import coefficients
from mixad.special import coefficients as special

SCRIPT = Path(__file__).parents[3] / "tools" / "derive_maths.py"
LARGEST_ERROR = {"F32": -26.0, "F64": -54.0}  # binary logarithms: a quarter of the roundoff, a half


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


@pytest.mark.slow
def test_script_derives_the_stored_tables_and_their_errors(script):
    assert Path(coefficients.__file__).read_text(encoding="utf-8") == script.render()
    assert Path(special.__file__).read_text(encoding="utf-8") == script.render_special()


@pytest.mark.parametrize("table", LARGEST_ERROR)
def test_polynomials_are_better_than_their_type(table):
    text = Path(coefficients.__file__).read_text(encoding="utf-8")
    (section,) = re.findall(rf"^{table}: .*?^}}\)", text, re.MULTILINE | re.DOTALL)
    errors = [float(e) for e in re.findall(r"; error 2\^(\S+)", section)]
    assert len(errors) == section.count(" over ")
    assert max(errors) < LARGEST_ERROR[table]


def test_polynomials_of_special_functions_are_better_than_float64():
    text = Path(special.__file__).read_text(encoding="utf-8")
    errors = [float(e) for e in re.findall(r"; error 2\^(\S+)", text)]
    assert len(errors) == text.count(" over ")
    assert max(errors) < -52
