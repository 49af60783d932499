"""The modules beside the tests, and the emulator of CUDA, importable under any import mode."""

import sys
from pathlib import Path

import pytest

from mixad.backends.cpu import compiler

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "cuda")]


@pytest.fixture(scope="session", autouse=True)
def _level(request):
    """Optimise objects as much as kernels are where ``--level`` is given: bits are the same."""
    level = request.config.getoption("--level")
    with pytest.MonkeyPatch.context() as patch:
        if level is not None:
            patch.setattr(compiler, "DEFAULT_LEVEL", level)
        yield
