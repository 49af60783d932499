"""The host's part of calls is measured over a stand-in for CUDA's driver, and all of them run."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("mixad_torch")
pytest.importorskip("cuda.bindings.driver")

SHORT = "from benchmarks import host_time as h; h.ROUNDS = 1; h.main()"


@pytest.mark.slow
@pytest.mark.torch
def test_every_call_is_measured():
    done = subprocess.run([sys.executable, "-c", SHORT], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "torch's x * y",
        "call",
        "value_and_vjp",
        "gradient of a sum",
        "torch's autograd",
        "torch's autograd, torch's x * y",
    ]
