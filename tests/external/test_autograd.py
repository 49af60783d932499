"""autograd's own tests, run with its modules made of mixad's transforms: what fails is listed.

Processes share them out by their files.  The folder of the tests is ``AUTOGRAD_TESTS_DIR``, or that
of autograd's source distribution, which pip fetches.  ``MIXAD_UPDATE_EXPECTED=1`` writes names that
are not listed to the end of the list, for reasons to be given.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

pytestmark = pytest.mark.slow

VERSION = "1.9.1"
PARTS = ["test_scipy", "test_systematic", "test_jacobian test_dict", "test_graphs test_numpy", ""]
"""Files whose tests one process runs; the last one runs those of all others."""

FUNCTIONS = dict(zip(PARTS, (89, 139, 11, 127, 251), strict=True))
"""How many functions there are at least in the files of a process."""

HERE = Path(__file__).parent
LISTED = HERE / "autograd_failures.txt"


@pytest.fixture(scope="module")
def folder_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of autograd's tests, fetched once for all processes, or skip the test."""
    given = os.environ.get("AUTOGRAD_TESTS_DIR")
    if given:
        return Path(given)
    own = tmp_path_factory.getbasetemp()
    shared = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / f"autograd-{VERSION}"
    if not shared.exists():
        scratch = tmp_path_factory.mktemp("autograd")
        fetch(scratch)
        with contextlib.suppress(OSError):  # another process was faster
            (scratch / shared.name).rename(shared)
    return shared / "tests"


def fetch(scratch: Path) -> None:
    """Unpack autograd's source distribution; skip the test where pip has none."""
    command = [sys.executable, "-m", "pip", "download", f"autograd=={VERSION}", "--no-deps",
               "--no-binary", ":all:", "--dest", str(scratch)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"AUTOGRAD_TESTS_DIR is not set, and pip cannot fetch autograd {VERSION}")
    with tarfile.open(next(scratch.glob("*.tar.gz"))) as archive:
        archive.extractall(scratch, filter="data")


def files_of(part: str, tests: Path) -> list[Path]:
    """Return the files whose tests are a part."""
    named = " ".join(PARTS).split()
    return [file for file in sorted(tests.glob("test_*.py"))
            if (file.stem in part.split() if part else file.stem not in named)]  # fmt: skip


def outcomes(files: list[Path], scratch: Path) -> dict[str, bool]:
    """Return whether each test of files of a folder passed, by its file and name."""
    if importlib.util.find_spec("scipy") is None:
        pytest.skip("SciPy is not installed")
    tests = files[0].parent
    (scratch / "pytest.ini").write_text("[pytest]\n")
    report = scratch / "report.xml"
    command = [sys.executable, "-m", "pytest", *map(str, files), "-q", "-W", "ignore",
               "-c", str(scratch / "pytest.ini"), "--rootdir", str(tests), "-p", "no:cacheprovider",
               "-p", "with_objects", f"--junitxml={report}"]  # fmt: skip
    path = os.pathsep.join(map(str, [HERE / "autograd_shim", HERE.parents[1], HERE]))
    environment = {k: v for k, v in os.environ.items() if k != "SCIPY_ARRAY_API"}
    environment["PYTHONPATH"] = path
    done = subprocess.run(command, cwd=scratch, env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return dict(map(outcome, ElementTree.parse(report).iter("testcase")))


def outcome(case: Any) -> tuple[str, bool]:
    name = f"{case.get('classname').rpartition('.')[2]}::{case.get('name')}"
    return name, case.find("failure") is None and case.find("error") is None


def listed() -> dict[str, str]:
    """Return the reason why a test fails, by its name: the comment above it."""
    reasons, reason = {}, ""
    for line in LISTED.read_text().splitlines():
        if line.startswith("#"):
            reason = line.removeprefix("#").strip()
        elif line:
            reasons[line] = reason
    return reasons


@pytest.mark.parametrize("part", PARTS)
def test_all_of_its_functions_run_and_failures_are_those_that_are_listed(
    part: str, folder_of_tests: Path, tmp_path: Path
) -> None:
    files = files_of(part, folder_of_tests)
    found = outcomes(files, tmp_path)
    assert len({name.partition("[")[0] for name in found}) >= FUNCTIONS[part]
    failed = {name for name, passed in found.items() if not passed}
    known = {n for n in listed() if n.partition("::")[0] in {file.stem for file in files}}
    new, gone = failed - known, known - failed
    if os.environ.get("MIXAD_UPDATE_EXPECTED") == "1":
        kept = [line for line in LISTED.read_text().splitlines() if line not in gone]
        added = ["", "# ?", *sorted(new)] if new else []
        LISTED.write_text("\n".join([*kept, *added, ""]))
    assert (sorted(new), sorted(gone)) == ([], [])


def test_every_failure_has_a_reason() -> None:
    assert "?" not in listed().values()
    assert "" not in listed().values()
