"""A plugin of pytest: what LLVM makes of kernels is kept where this repository's tests keep it."""

import importlib.util
import json
import os
from pathlib import Path


def pytest_configure():
    """Share objects as the run that started this one does."""
    spec = importlib.util.spec_from_file_location("tests_of_mixad", os.environ["TESTS_OF_MIXAD"])
    tests_of_mixad = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tests_of_mixad)
    folder, level = json.loads(os.environ["OBJECTS_OF_TESTS"])
    tests_of_mixad.share_objects(Path(folder), level)
