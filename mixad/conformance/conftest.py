"""The backend that is asked for, and what the run ends with."""

from __future__ import annotations

from typing import Any

import pytest

from mixad.backends import registry
from mixad.conformance.arrays import ConversionError, conversion_for, conversion_from
from mixad.conformance.subject import Subject
from mixad.errors import BackendError

_SUBJECT = pytest.StashKey[Subject]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    """Refuse to run without a backend, before a test fails for want of one."""
    if any(_is_ours(item) for item in items):
        config.stash[_SUBJECT] = _subject(config)


def _is_ours(item: Any) -> bool:
    return "subject" in getattr(item, "fixturenames", ())


def _subject(config: pytest.Config) -> Subject:
    found = registry.default_registry()
    known = ", ".join(spec.name for spec in found.specs)
    name = config.getoption("--mixad-backend")
    if name is None:
        raise pytest.UsageError(f"name the backend to test: --mixad-backend=NAME, one of {known}")
    examples = config.getoption("--mixad-examples")
    if examples < 1:
        raise pytest.UsageError(f"--mixad-examples={examples}: a factor is 1 or more")
    try:
        backend = found.backend(name)
        (spec,) = (spec for spec in found.specs if spec.name == name)
        module = config.getoption("--mixad-arrays")
        arrays = conversion_from(module) if module else conversion_for(spec.capability)
    except (BackendError, ConversionError) as error:
        raise pytest.UsageError(f"--mixad-backend={name}: {error}") from error
    return Subject(backend, spec, arrays, examples)


@pytest.fixture
def subject(pytestconfig: pytest.Config) -> Subject:
    """Return the backend under test."""
    return pytestconfig.stash[_SUBJECT]


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report what was executed."""
    subject = config.stash.get(_SUBJECT, None)
    if subject is None:
        return
    counts = subject.counts
    terminalreporter.section("mixad conformance")
    terminalreporter.line(
        f"backend {subject.spec.name!r} with {subject.arrays.name}: {counts['launches']} launches, "
        f"{counts['results']} results compared, {counts['undetermined']} undetermined"
    )
