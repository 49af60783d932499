"""What README and documentation say of devices, beside the reports that are committed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = ("README.md", "docs/backends.md", "plugins/mixad-torch/README.md",
          "plugins/mixad-cupy/README.md")  # fmt: skip


def devices():
    """Return the day of each report of `benchmarks.gpu`, by device."""
    reports = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
    found = {json.loads(r.read_text())["environment"].get("device"): r.stem[-10:] for r in reports}
    return {device: day for device, day in found.items() if device is not None}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_said_of_cuda_is_what_was_run(place):
    """Emulated only, until a report is there; then the device and the day."""
    text = (ROOT / place).read_text().lower()
    found = devices()
    if not found:
        assert "emulated only" in text
        assert "ran on nvidia" not in text
    else:
        ran = any(f"ran on {name.lower()}, {day}" in text for name, day in found.items())
        assert ran or "emulated only" in text
