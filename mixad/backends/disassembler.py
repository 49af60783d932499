"""Machine code of CUDA devices as text, by a tool of the CUDA toolkit."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from mixad.errors import BackendError

__all__ = ["disassembled"]

_TOOLS = {"nvdisasm": ("--print-code",), "cuobjdump": ("--dump-sass",)}
"""Tools that show machine code, and their options for that."""


def disassembled(cubin: bytes) -> str:
    """Return the instructions of a module; BackendError if no tool is on the path, or it fails."""
    tool = next(filter(shutil.which, _TOOLS), None)
    if tool is None:
        raise BackendError(
            f"neither {' nor '.join(_TOOLS)} is on the path, which show machine code: install them "
            "from the CUDA toolkit (conda install -c nvidia cuda-nvdisasm)"
        )
    with tempfile.TemporaryDirectory(prefix="mixad-") as folder:
        file = Path(folder, "kernel.cubin")
        file.write_bytes(cubin)
        command = [tool, *_TOOLS[tool], str(file)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BackendError(f"{tool} fails with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout
