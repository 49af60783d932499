"""What tests of constructs share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mixad.constructs import runs

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let axes of few elements be cut into runs, so that these test all kernels."""
    monkeypatch.setattr(runs, "_SHORT", 60)
