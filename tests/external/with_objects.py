"""For processes that tests start: what LLVM makes of kernels is kept where their run keeps it.

A plugin of pytest, and a function for other programs.
"""

import importlib.util
import json
import os
from pathlib import Path

HERE = Path(__file__).parent


def describe(folder, level):
    """Return the variable by which such a process is told where, and how much LLVM optimises."""
    return {"OBJECTS_OF_TESTS": json.dumps([str(folder.absolute()), level])}


def pytest_configure():
    """Share objects as the run that started this process does, if it does."""
    described = os.environ.get("OBJECTS_OF_TESTS")
    if described is not None:
        file = HERE.parents[1] / "conftest.py"
        spec = importlib.util.spec_from_file_location("tests_of_mixad", file)
        tests_of_mixad = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(tests_of_mixad)
        folder, level = json.loads(described)
        tests_of_mixad.share_objects(Path(folder), level)
