"""Machine code of CUDA devices as text, by a tool of NVIDIA's."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from mixad.errors import BackendError

__all__ = ["disassemble"]

_TOOL = "nvdisasm"


def disassemble(cubin: bytes) -> str:
    """Return the instructions of a module; BackendError if the tool is nowhere, or it fails."""
    tool = shutil.which(_TOOL) or _of_a_wheel()
    if tool is None:
        raise BackendError(
            f"{_TOOL}, which shows machine code, is not installed: python -m pip install "
            "cuda-pathfinder nvidia-cuda-nvdisasm (the first finds the second, or that of a CUDA "
            "toolkit)"
        )
    with tempfile.TemporaryDirectory(prefix="mixad-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        command = [tool, "--print-code", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{_TOOL} fails with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _of_a_wheel() -> str | None:
    """Return where NVIDIA's own search finds the tool: in a wheel or in a CUDA toolkit."""
    try:
        from cuda.pathfinder import find_nvidia_binary_utility
    except ImportError:  # not there, or too old to look for tools
        return None
    found: str | None = find_nvidia_binary_utility(_TOOL)
    return found
