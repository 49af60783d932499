"""The processes that the start-up benchmark times are those of an installed package."""

import pytest

from benchmarks.peers.harness import UnavailableError
from benchmarks.peers.startup import IMPORT_SCRIPT, in_process

ANSWER = "import json, sys; print(json.dumps({'seconds': float(sys.dont_write_bytecode)}))"


@pytest.mark.parametrize("inherited", [None, "", "1"])
def test_a_timed_process_may_write_byte_code_whatever_it_inherits(monkeypatch, inherited):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if inherited is not None:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", inherited)
    assert in_process(("-c", ANSWER)) == 0.0


@pytest.mark.slow
def test_an_import_without_the_compiler_is_not_timed():
    assert in_process(("-c", IMPORT_SCRIPT, "mixad")) > 0
    broken = "import sys; sys.modules['llvmlite'] = None\n"
    with pytest.raises(UnavailableError, match=r"does not import \['llvmlite.binding'\]"):
        in_process(("-c", broken + IMPORT_SCRIPT, "mixad"))
