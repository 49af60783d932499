"""What the reference shows is described in full, wherever it is defined; the rest in a few lines.

.ci/run has numpydoc look at whole files of public modules; other files define public names, too.
"""

import ast
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


CI = (ROOT / ".ci" / "run").read_text("utf-8")
SECTION = re.compile(r"^ *[A-Z]\w+\n *-{4,}$", re.M)
OF_PLUGINS = re.findall(r"^- `(mixad_\w+\.\w+)\(", REFERENCE.read_text("utf-8"), re.M)


def public_modules():
    """Yield the files that .ci/run has numpydoc look at."""
    (listed,) = re.findall(r"^public=\((.*?)\)$", CI, re.M | re.S)
    for word in listed.split():
        start, _, rest = word.partition("{")
        names, _, end = rest.partition("}")
        yield from (ROOT / f"{start}{name}{end}" for name in names.split(","))


def with_sections(path, package):
    """Yield ``module.name`` for what has a docstring with sections in a file of a package."""
    text = path.read_text("utf-8")
    if SECTION.search(text) is not None:
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        for node in ast.walk(ast.parse(text)):
            documented = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if documented and SECTION.search(ast.get_docstring(node) or "") is not None:
                yield f"{module.removesuffix('.__init__')}.{node.name}"


@pytest.mark.skipif(not (ROOT / "mixad").is_dir(), reason="the sources are not here")
def test_docstrings_with_sections_are_those_of_public_names():
    public = set(public_modules())
    assert len(public) > 20
    assert [path for path in public if not path.is_file()] == []
    resolved = [pkgutil.resolve_name(name) for name in (*FUNCTIONS, *CLASSES)]
    shown = {f"{one.__module__}.{one.__name__}" for one in resolved}
    packages = [ROOT / "mixad", *(ROOT / "plugins").glob("*/mixad_*")]
    files = {path: package for package in packages for path in package.rglob("*.py")}
    found = {n for path in files.keys() - public for n in with_sections(path, files[path])}
    assert found & shown
    assert sorted(found - shown - set(OF_PLUGINS)) == []
