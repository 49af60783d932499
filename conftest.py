"""For tests and doctests: a cache, no deadline for examples, how long they take, stored texts."""

import importlib
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings

# The first compilation of a kernel is slow and the second is not: no deadline can suit both.
settings.register_profile("mixad", deadline=None)
settings.load_profile("mixad")

SLOW = 0.5
"""Seconds of processor time from which on a test is to be marked slow."""


def pytest_addoption(parser):
    """Add the option by which .ci/run names tests that lack the mark."""
    parser.addoption(
        "--unmarked-limit",
        type=float,
        metavar="SECONDS",
        help=f"name tests (rows of tables) that take over {SLOW} s of processor time and are not "
        "marked slow; fail where one takes over SECONDS",
    )
    parser.addoption(
        "--share-objects",
        type=Path,
        metavar="FOLDER",
        help="where runs keep what LLVM made of their texts, for the next one",
    )
    parser.addoption(
        "--level",
        type=int,
        metavar="LEVEL",
        help="how much LLVM optimises, from 0 to 3; with --share-objects",
    )


def pytest_configure(config):
    """Keep the user's cache of kernels out of the tests, and the tests' kernels out of it."""
    config.processor_seconds = processor_seconds
    if config.getoption("--unmarked-limit") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(UnmarkedTests(config.getoption("--unmarked-limit")))
    if not hasattr(config, "workerinput"):  # processes of a run share one
        config.mixad_cache = tempfile.mkdtemp(prefix="mixad-tests-")
        os.environ["MIXAD_CACHE_DIR"] = config.mixad_cache
    importlib.import_module("mixad")  # first, so that mixad.broadcast is the function, not the file
    # Tests are of what they load themselves, whichever plugins are installed beside.
    integrations = importlib.import_module("mixad.backends.integrations")
    integrations.are_any_installed = lambda: False
    if config.getoption("--share-objects"):
        share_objects(config.getoption("--share-objects"), config.getoption("--level"))


def share_objects(folder, level):
    """Emit a kernel once on each Python, and compile a text once, for runs that share a folder.

    Texts are the keys of what LLVM makes, whichever Python emits them.  What a text is called is
    kept for the spec of the kernel and the code that emits it, by contents: clones differ in times.
    """
    compiler = importlib.import_module("mixad.backends.cpu.compiler")
    code_version = importlib.import_module("mixad.backends.cpu.code_version").CODE_VERSION
    object_cache = importlib.import_module("mixad.backends.object_cache")
    shared = object_cache.ObjectCache(folder.absolute())
    shared._trim = lambda: None  # looking at tens of thousands of files took a tenth of all tests
    cached_module, digest = compiler.cached_module, object_cache.digest
    level = compiler.DEFAULT_LEVEL if level is None else level
    files = sorted((Path(__file__).parent / "mixad").rglob("*.py"))
    emitter = digest(sys.version, *(file.read_bytes() for file in files))

    def module_by_text(key, make_ir, host=None, cache=shared, allowed=compiler.KERNEL_SYMBOLS):
        host = host or compiler.detect()
        spec = digest(emitter, key.removeprefix(code_version), host.fingerprint())
        known = shared.load(spec)
        if known is not None:
            return cached_module(known.decode(), make_ir, host, level, allowed, cache)
        text = make_ir()
        name = digest(text)
        shared.store(spec, name.encode())
        return cached_module(name, lambda: text, host, level, allowed, cache)

    compiler.cached_module = module_by_text


def pytest_ignore_collect(collection_path, config):
    """Run the conformance suite where a backend is named: tests/conformance names some."""
    is_suite = collection_path == Path(__file__).parent / "mixad" / "conformance"
    return True if is_suite and config.getoption("--mixad-backend", None) is None else None


def pytest_unconfigure(config):
    """Remove the cache of this run."""
    if hasattr(config, "mixad_cache"):
        shutil.rmtree(config.mixad_cache, ignore_errors=True)


# -- how long tests take ---------------------------------------------------------------------------


def processor_seconds():
    """Return the processor time of this process, its threads and its children that have ended.

    Other programs on the machine lengthen a test, but hardly its processor time.
    """
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


STARTED = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Begin to count what a test takes, with its fixtures."""
    item.stash[STARTED] = processor_seconds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Tell what a test takes that is not marked slow; a table tells it of its rows."""
    try:
        return (yield)
    finally:
        if next(item.iter_markers("slow"), None) is None:
            taken = [("", processor_seconds() - item.stash[STARTED])]
            taken = [(row, t) for row, t in getattr(item, "taken_by_row", taken) if t > SLOW]
            item.user_properties.append(("taken", taken))


class UnmarkedTests:
    """Names tests that take long and are not marked slow."""

    def __init__(self, limit):
        self.limit = limit
        self.found = []

    def pytest_runtest_logreport(self, report):
        if report.when == "call":
            for row, taken in dict(report.user_properties).get("taken", ()):
                self.found.append((taken, f"{report.nodeid} {row}"))

    def pytest_terminal_summary(self, terminalreporter):
        if self.found:
            terminalreporter.section(f"not marked slow, over {SLOW} s of processor time")
        for taken, name in sorted(self.found, reverse=True):
            terminalreporter.line(f"{'FAILED ' if taken > self.limit else ''}{taken:.2f} s {name}")

    def pytest_sessionfinish(self, session):
        if session.exitstatus == 0 and any(taken > self.limit for taken, _ in self.found):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


# -- stored texts ----------------------------------------------------------------------------------


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
