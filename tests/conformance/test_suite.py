"""The conformance suite, run as a third party runs it: what is right passes, nothing else does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from more_backends import WRONG

pytestmark = pytest.mark.slow  # every run is a process that imports all

ROOT = Path(__file__).parents[2]
QUICKLY = "not test_op_is and not test_generated"
"""Without what takes longest."""

LEAST_LAUNCHES = {"all": 200, "quick": 100}


@pytest.fixture
def suite(tmp_path):
    """Return the function that runs the suite in a process of its own, outside the repository."""

    def run(*options):
        command = [sys.executable, "-m", "pytest", "-p", "_mixad_pytest", "-p", "more_backends",
                   "-p", "no:cacheprovider", "--pyargs", "mixad.conformance", *options]  # fmt: skip
        paths = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
        return subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths, "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def launches(done):
    """Return how many launches a run reports, which passed."""
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    return int(re.search(r"(\d+) launches", done.stdout)[1])


@pytest.mark.parametrize("name", ["cpu", "reference", "emulated"])
def test_our_backends_pass(suite, name):
    assert launches(suite(f"--mixad-backend={name}")) > LEAST_LAUNCHES["all"]


@pytest.mark.slow
def test_another_of_our_backends_passes_what_is_quick(suite):
    assert launches(suite("--mixad-backend=strict", "-k", QUICKLY)) > LEAST_LAUNCHES["quick"]


@pytest.mark.slow
def test_what_is_not_declared_is_skipped_and_said(suite):
    done = suite("--mixad-backend=few", "-k", QUICKLY, "-rs")
    assert launches(done) > LEAST_LAUNCHES["quick"]
    assert "the backend does not declare float32" in done.stdout
    assert "does not declare float64" not in done.stdout


FOUND_BY = {
    "reads-anything": ["test_an_index_outside_is_an_error"],
    "off-by-a-bit": [
        "test_results_are_broadcast_and_summed",
        "test_an_element_is_the_same_wherever_it_stands",
    ],
    "forgetful": [
        "test_results_have_the_same_bits_when_run_again",
        "test_threads_share_a_kernel",
    ],
    "passes-through": ["test_results_are_new_arrays"],
}


def test_every_wrong_backend_has_tests_that_find_it():
    assert set(FOUND_BY) == set(WRONG)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backend_is_found(suite, name):
    done = suite(f"--mixad-backend={name}", "-k", " or ".join(FOUND_BY[name]))
    assert done.returncode == 1
    for test in FOUND_BY[name]:
        assert re.search(rf"FAILED .*{test}", done.stdout), done.stdout[-3000:]


@pytest.mark.rows(
    ("options", "message"),
    [
        ([], "name the backend to test: --mixad-backend=NAME, one of .*cpu"),
        (["--mixad-backend=nothing"], "no backend is named 'nothing'"),
        (["--mixad-backend=missing"], "cannot serve: there is no such device"),
        (["--mixad-backend=elsewhere"], r"no_library: Module.*pass --mixad-arrays=MODULE"),
        (["--mixad-backend=cpu", "--mixad-arrays=math"], "math: .*'to_library'; name a module"),
        (["--mixad-backend=cpu", "--mixad-examples=0"], "a factor is 1 or more"),
    ],
)
def test_a_call_that_cannot_work_is_a_usage_error(suite, options, message):
    done = suite(*options)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.slow
def test_arrays_are_made_by_the_module_that_is_named(suite, tmp_path):
    (tmp_path / "my_arrays.py").write_text(
        "import array_api_strict, numpy\n"
        "to_library, to_numpy = array_api_strict.asarray, numpy.from_dlpack\n"
    )
    done = suite(
        "--mixad-backend=strict", "--mixad-arrays=my_arrays", "-k", "broadcast_and_summed", "-v"
    )
    assert launches(done) > 0
    assert "with my_arrays" in done.stdout
