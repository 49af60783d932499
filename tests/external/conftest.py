"""The modules beside the tests, importable under any import mode; what their processes share."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import with_objects

collect_ignore = ["autograd_shim"]  # it is named autograd, for the processes that run its tests


def pytest_configure(config):
    """Tell the processes of these tests what the run was told."""
    if objects := config.getoption("--share-objects"):
        os.environ.update(with_objects.describe(objects, config.getoption("--level")))
