"""The processes that the start-up benchmark times are those of an installed package."""

import pytest

from benchmarks.peers.startup import in_process

ANSWER = "import json, sys; print(json.dumps({'seconds': float(sys.dont_write_bytecode)}))"


@pytest.mark.parametrize("inherited", [None, "", "1"])
def test_a_timed_process_may_write_byte_code_whatever_it_inherits(monkeypatch, inherited):
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    if inherited is not None:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", inherited)
    assert in_process(("-c", ANSWER)) == 0.0
