"""For tests and doctests: a cache of their own, no deadline for examples, texts that are stored."""

import importlib
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

# The first compilation of a kernel is slow and the second is not: no deadline can suit both.
settings.register_profile("mixad", deadline=None)
settings.load_profile("mixad")


def pytest_configure(config):
    """Keep the user's cache of kernels out of the tests, and the tests' kernels out of it."""
    config.mixad_cache = tempfile.mkdtemp(prefix="mixad-tests-")
    os.environ["MIXAD_CACHE_DIR"] = config.mixad_cache
    importlib.import_module("mixad")  # first, so that mixad.broadcast is the function, not the file
    # Tests are of what they load themselves, whichever plugins are installed beside.
    integrations = importlib.import_module("mixad.backends.integrations")
    integrations.are_any_installed = lambda: False


def pytest_ignore_collect(collection_path, config):
    """Run the conformance suite where a backend is named: tests/conformance names some."""
    is_suite = collection_path == Path(__file__).parent / "mixad" / "conformance"
    return True if is_suite and config.getoption("--mixad-backend", None) is None else None


def pytest_unconfigure(config):
    """Remove the cache of this run."""
    shutil.rmtree(config.mixad_cache, ignore_errors=True)


@pytest.fixture
def check_stored():
    """Return the function that compares a text with the one in a file.

    It writes the file where ``MIXAD_UPDATE_EXPECTED=1`` is set.
    """

    def check(path, text):
        if os.environ.get("MIXAD_UPDATE_EXPECTED") == "1":
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"no text is stored for this: {text}"
        assert text == path.read_text()

    return check
