"""The standard's own suite, array-api-tests: no failure that the base library does not have.

The suite is on no package registry.  `ARRAY_API_TESTS_DIR` names a checkout of it, with its
submodules, and its requirements.txt is installed; without one these tests are skipped.
`ARRAY_API_TESTS_EXAMPLES` is how many examples each of its tests tries.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from pathlib import Path

import pytest

MODULES = {
    "numpy": "import array_api_compat.numpy as base",
    "array-api-strict": "import array_api_strict as base",
}
"""What imports the libraries that the namespace is put over."""

_ROOT = Path(__file__).parents[2]

_MODULE = "array_library_of_this_run"


def outcomes(folder: Path, module: str, report: Path) -> Mapping[str, bool]:
    """Run the suite on a module; return whether each of its tests passed.

    Parameters
    ----------
    folder : Path
        The checkout.
    module : str
        Python that binds the module to ``xp``.
    report : Path
        Where pytest writes what happened; a module with that Python is put beside it.
    """
    examples = os.environ.get("ARRAY_API_TESTS_EXAMPLES", "20")
    command = [
        *(sys.executable, "-m", "pytest", "array_api_tests", "-q", "-p", "no:cacheprovider"),
        *("--max-examples", examples, "--disable-deadline", "--hypothesis-seed=0"),
        *("-W", "ignore", f"--junitxml={report}"),
    ]
    (report.parent / f"{_MODULE}.py").write_text(module)
    environment = {**os.environ, **_settings(report.parent)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if run.returncode not in (0, 1) or not report.exists():  # 1: some of the tests failed
        raise RuntimeError(f"the suite did not run\n{run.stdout[-4000:]}\n{run.stderr[-4000:]}")
    return _read(report)


def _settings(beside: Path) -> dict[str, str]:
    """Return what tells the suite to take ``xp`` of the module in a folder.

    A module, not ``exec('...')``: the suite takes the quotes for a part of the Python.
    """
    paths = (str(beside), str(_ROOT), os.environ.get("PYTHONPATH"))
    return {
        "ARRAY_API_TESTS_VERSION": "2025.12",
        "ARRAY_API_TESTS_MODULE": f"{_MODULE}.xp",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }


def _read(report: Path) -> dict[str, bool]:
    """Return whether each test that was not skipped passed, by its name."""
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        parts = {child.tag for child in case}
        if "skipped" not in parts:
            found[f"{case.get('classname')}::{case.get('name')}"] = not parts & {"failure", "error"}
    return found


def extra_failures(own: Mapping[str, bool], base: Mapping[str, bool]) -> list[str]:
    """Return what fails with the namespace and passes with the base library, or is missing."""
    lost = [f"{name} (not run)" for name, passed in base.items() if passed and name not in own]
    return sorted([n for n, passed in own.items() if not passed and base.get(n, True)] + lost)


def compared(folder: Path, imports: str, tmp_path: Path) -> list[str]:
    """Run the suite on a library and on the namespace over it."""
    base = outcomes(folder, f"{imports}; xp = base", tmp_path / "base.xml")
    over = f"import mixad; {imports}; xp = mixad.namespace_of(base)"
    return extra_failures(outcomes(folder, over, tmp_path / "own.xml"), base)


@pytest.mark.slow
@pytest.mark.parametrize("library", sorted(MODULES))
def test_the_namespace_fails_where_its_base_library_does(library: str, tmp_path: Path) -> None:
    folder = os.environ.get("ARRAY_API_TESTS_DIR")
    if folder is None:
        pytest.skip("array-api-tests was not run: ARRAY_API_TESTS_DIR names no checkout of it")
    extra = compared(Path(folder), MODULES[library], tmp_path)
    assert not extra, "\n".join([f"{len(extra)} more failures than {library} has:", *extra])


# -- the runner itself, on a suite of three tests --------------------------------------------------

_SUITE = {
    "conftest.py": """
def pytest_addoption(parser):
    parser.addoption("--max-examples")
    parser.addoption("--disable-deadline", action="store_true")
""",
    "array_api_tests/__init__.py": """
import os
from importlib import import_module

module, name = os.environ["ARRAY_API_TESTS_MODULE"].split(".", 1)
xp = getattr(import_module(module), name)
""",
    "array_api_tests/test_small.py": """
import pytest

from . import xp


def test_passes():
    assert float(xp.sum(xp.ones(3))) == 3.0


@pytest.mark.parametrize("name", ["einsum", "sum"])
def test_has(name):
    assert hasattr(xp, name)


def test_is_numpy():
    assert xp.__name__ == "array_api_compat.numpy"


def test_fails_for_all():
    raise AssertionError


@pytest.mark.skip
def test_is_skipped():
    pass
""",
}


def _suite(folder: Path) -> Path:
    for name, text in _SUITE.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.slow
def test_the_runner_lists_what_fails_with_the_namespace_only(tmp_path: Path) -> None:
    folder = tmp_path / "suite"
    folder.mkdir()
    extra = compared(_suite(folder), MODULES["numpy"], tmp_path)
    assert [name.rpartition("::")[2] for name in extra] == ["test_has[einsum]", "test_is_numpy"]


def test_the_runner_tells_that_a_suite_did_not_run(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="did not run"):
        outcomes(tmp_path, "xp = None", tmp_path / "report.xml")


def test_tests_that_were_lost_are_failures() -> None:
    assert extra_failures({"a": True}, {"a": True, "b": True, "c": False}) == ["b (not run)"]
    assert extra_failures({"a": False, "b": False}, {"a": False, "b": True}) == ["b"]
