"""What tests of constructs share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mixad.constructs import blocks, loop, loops

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let axes of few elements be cut into blocks, so that these test all kernels."""
    monkeypatch.setattr(blocks, "_SHORT", 60)


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Python take no step of a loop."""

    def refuse(*_: object) -> None:
        raise AssertionError("Python takes the steps")

    monkeypatch.setattr(loop, "_run_by_python", refuse)
    monkeypatch.setattr(loops, "_run_in_python", refuse)
