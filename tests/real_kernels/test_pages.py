"""What the documentation shows of these kernels is the text that is tested."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from benchmarks.kernels import escape, state

DOCS = Path(__file__).parents[2] / "docs"
SHOWN = {
    "loops.md": (escape.escape,),
    "examples/equation-of-state.md": (state.pressure, state.slope, state.solved, state.density),
}


@pytest.mark.parametrize("page", SHOWN)
def test_pages_show_the_kernels_that_are_tested(page):
    if not DOCS.is_dir():
        pytest.skip("the documentation is in the repository only")
    text = (DOCS / page).read_text("utf-8")
    for function in SHOWN[page]:
        assert inspect.getsource(function) in text, function.__name__
