"""What the reference shows is described in full, wherever it is defined.

.ci/run has numpydoc look at whole files of public modules; other files define public names, too.
"""

import dataclasses
import inspect
import pkgutil
import re
import tomllib
from pathlib import Path

import pytest
from numpydoc.validate import validate

import mixad

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference.md"
if not REFERENCE.is_file():
    pytest.skip("the documentation is in the repository only", allow_module_level=True)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
CHECKS = set(PROJECT["tool"]["numpydoc_validation"]["checks"])
DIRECTIVE = re.compile(
    r"^\.\. auto(function|class|module):: ([\w.]+)(?:\n   :members: *(.*))?$", re.M
)


NOT_ITS_PARAMETER = {"mixad.pytree:register"}  # numpydoc takes any first `cls` for a method's


def shown():
    """Return what the reference shows as ``module:name``: functions, classes, listed members."""
    for kind, name, members in DIRECTIVE.findall(REFERENCE.read_text("utf-8")):
        module, _, own = name.rpartition(".") if kind != "module" else (name, "", "")
        start = f"{module or 'mixad'}:{own}"
        if own:
            yield start
        listed = (member.strip() for member in members.split(","))
        yield from (f"{start}.{m}" if own else f"{start}{m}" for m in listed if m)


NAMES = sorted(shown())
CLASSES = [name for name in NAMES if inspect.isclass(pkgutil.resolve_name(name))]
FUNCTIONS = [name for name in NAMES if inspect.isroutine(pkgutil.resolve_name(name))]


def test_the_reference_shows_everything_that_users_import():
    own = [getattr(mixad, name) for name in mixad.__all__ if callable(getattr(mixad, name))]
    described = [pkgutil.resolve_name(name) for name in NAMES]
    assert len(own) > 20
    assert [one.__qualname__ for one in own if one not in described] == []


@pytest.mark.rows(
    "name", [n for n in FUNCTIONS if not n.endswith("__") and n not in NOT_ITS_PARAMETER]
)
def test_a_function_is_described_in_full(name):
    found = pkgutil.resolve_name(name)
    errors = validate(f"{found.__module__}.{found.__qualname__}")["errors"]
    assert [text for code, text in errors if code in CHECKS] == []


@pytest.mark.rows("name", CLASSES)
def test_a_class_describes_its_fields(name):
    found = pkgutil.resolve_name(name)
    fields = [f.name for f in dataclasses.fields(found)] if dataclasses.is_dataclass(found) else []
    described = inspect.getdoc(found)
    missing = [f for f in fields if not re.search(rf"^[\w, ]*\b{f}\b[\w, ]* : ", described, re.M)]
    assert [f for f in missing if not f.startswith("_")] == []


@pytest.mark.rows("name", [n for n in FUNCTIONS if re.fullmatch(r"mixad:\w+", n)])
def test_a_function_that_users_import_has_an_example_that_runs(name):
    """As a doctest: pytest collects those of all modules."""
    assert ">>> " in inspect.getdoc(pkgutil.resolve_name(name)).partition("Examples\n---")[2]
