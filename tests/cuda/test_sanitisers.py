"""Kernels under the sanitisers of addresses and undefined behaviour, which they must not meet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_emulator import compiler

HERE = Path(__file__).parent


def runtime() -> str:
    """Return the library that a process must begin with; without one, skip."""
    command = [compiler(), "-print-file-name=libasan.so"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip("the C++ compiler has no libasan.so")
    return found


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "LD_PRELOAD": runtime(),
        # Python keeps memory to the end; fibers have stacks of their own.
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE)]),
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_kernels_stay_inside_their_arrays_and_the_language():
    done = run(str(HERE / "sanitised.py"))
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.strip() == "46 results are right"


OVERRUN = """
from array import array
import numpy as np
from sanitised import BACKEND
TEXT = '''struct Arguments {{ long long word[2]; }};
extern "C" __global__ void k(const Arguments a) {{
  if (threadIdx.x == 0) {{ {body} }}
}}'''
driver = BACKEND.driver
(kernel,) = driver.compile(TEXT, ["k"], None).values()
memory = np.zeros(1 << 20, np.int32)
driver.launch(kernel, 1, (32, 1), None, array("q", [memory.ctypes.data, 1 << 20]))
"""
BROKEN = {
    "heap-buffer-overflow": "((int *)a.word[0])[a.word[1]] = 1;",
    "signed integer overflow": "*(int *)a.word[0] = 2147483647 + (int)(a.word[1] >> 20);",
}


@pytest.mark.slow
@pytest.mark.parametrize("report", list(BROKEN))
def test_the_sanitisers_see_what_is_broken(report, tmp_path):
    program = tmp_path / "broken.py"
    program.write_text(OVERRUN.format(body=BROKEN[report]))
    done = run(str(program))
    assert done.returncode != 0
    assert report in done.stderr
