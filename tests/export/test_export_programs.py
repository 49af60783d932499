"""Programs in C and C++ that call exported kernels, linked with nothing of mixad or Python."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from exported_kernels import model, three

import mixad

HERE = Path(__file__).parent
WARNINGS = ("-Wall", "-Wextra", "-pedantic", "-Werror")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("gcc") and shutil.which("g++")), reason="no gcc and g++"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with two exports."""
    folder = tmp_path_factory.mktemp("programs")
    model.export(folder / "model", *[np.ones(s, "f4") for s in ((30, 20), 20, 20)])
    example = [np.ones(s, "f4") for s in ((30, 20), 20, (30, 1), ())]
    three.export(folder / "three", *example, what="pullback")
    return folder


def run(*command, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, (command, done.returncode, done.stdout, done.stderr)
    return done.stdout


def objects(folder, *names):
    """Compile the C files beside the objects of exports, and return both."""
    found = []
    for name in names:
        own = folder / name
        glue = own / f"{name}_glue.o"
        run("gcc", "-std=c99", "-O2", "-fPIC", *WARNINGS, "-c", own / f"{name}.c", "-o", glue)
        found += [glue, own / f"{name}.o"]
    return found


def test_a_program_in_c_calls_two_kernels(folder, tmp_path):
    program = tmp_path / "program"
    include = [f"-I{folder / name}" for name in ("model", "three")]
    run("gcc", "-std=c99", *WARNINGS, *include, HERE / "program.c",
        *objects(folder, "model", "three"), "-lm", "-o", program)  # fmt: skip
    printed = np.array([line.split() for line in run(program).splitlines()], "f4").T

    rows, columns = np.mgrid[:37, :21].astype("f4")
    x, cotangent = (rows - columns) / np.float32(37), rows % 3
    a = np.float32(0.5) + np.arange(21, dtype="f4") / np.float32(21)
    b = np.full(21, 0.25, "f4")
    _, (_, da, db) = mixad.value_and_vjp(model, (x, a, b), cotangent)
    np.testing.assert_array_equal(printed, [da, db])


def test_threads_of_a_program_in_cplusplus_share_out_tiles(folder, tmp_path):
    program = tmp_path / "program"
    run("g++", "-std=c++17", *WARNINGS, f"-I{folder / 'model'}", HERE / "program.cpp",
        *objects(folder, "model"), "-pthread", "-lm", "-o", program)  # fmt: skip
    for _ in range(3):
        run(program)


def test_objects_are_independent_of_their_position(folder, tmp_path):
    # A text relocation would be an error; so would a position-dependent object in a PIE.
    library = tmp_path / "both.so"
    both = objects(folder, "model", "three")
    run("gcc", "-shared", "-Wl,-z,text", "-Wl,-z,defs", *both, "-lm", "-o", library)
    needed = run("readelf", "-d", library)
    assert set(re.findall(r"NEEDED.*\[(.*)\]", needed)) <= {
        "libc.so.6",
        "libm.so.6",
        "libmvec.so.1",
    }


def test_a_library_shows_its_functions_and_no_kernels(folder):
    shown = run("nm", "-D", "--defined-only", folder / "model" / "model.so").split()[2::3]
    wanted = {f"model_{what}" for what in ("value", "pushforward", "pullback", "run", "finish")}
    assert set(shown) == wanted | {
        f"model_{what}_bind" for what in ("value", "pushforward", "pullback")
    }
