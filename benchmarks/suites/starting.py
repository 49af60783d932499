"""What a process takes before its first result: the import, and a kernel that is compiled or read.

Each time is of a process of its own, as those of `benchmarks.peers.startup` are.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from . import ROOT
from .arrays import BACKENDS, require

BEFORE = """
import os, sys, tempfile
sys.path.append({root!r})
folder = tempfile.TemporaryDirectory()
os.environ["MIXAD_CACHE_DIR"] = {folder!r} or folder.name
import mixad, mixad.special
from benchmarks.peers import hm_lstm
from benchmarks.suites.arrays import on_device, synchronize
p = hm_lstm.problem(64, (64,), 0)
z, zb, cotangent, *states = [on_device({backend!r}, x) for x in (p.z, p.zb, p.cotangent, *p.states)]
"""

GRADIENT = """
update = hm_lstm.mixad_cell("auto").with_options(backend={backend!r})
mixad.value_and_vjp(lambda c, f, i, g: update(z, zb, c, f, i, g), states, cotangent)
synchronize({backend!r})
"""


class Import:
    """Importing mixad, beside what it imports."""

    params = (("mixad", "numpy", "llvmlite.binding"),)
    param_names = ("module",)

    def timeraw_import(self, module):
        return f"import {module}"


class FirstGradient:
    """The first HM-LSTM gradient after the imports: with nothing compiled, or all on the disk."""

    params = (BACKENDS, ("empty", "filled"))
    param_names = ("backend", "cache")

    def setup(self, backend, cache):
        self.folder = tempfile.TemporaryDirectory()  # first: what is n/a is torn down too
        require(backend)
        if cache == "filled":
            code, setup = self.timeraw_first_gradient(backend, cache)
            environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}  # as an installed package
            subprocess.run([sys.executable, "-c", setup + code], env=environment, check=True)

    def teardown(self, backend, cache):
        self.folder.cleanup()

    def timeraw_first_gradient(self, backend, cache):
        folder = self.folder.name if cache == "filled" else ""
        given = {"root": ROOT, "folder": folder, "backend": backend}
        return GRADIENT.format(**given), BEFORE.format(**given)
