"""What tests of constructs share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mixad.constructs import blocks

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let axes of few elements be cut into blocks, so that these test all kernels."""
    monkeypatch.setattr(blocks, "_SHORT", 60)
