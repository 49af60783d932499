"""asv's suites run on every backend that is built in, and are n/a where one cannot serve."""

import importlib
from pathlib import Path

import pytest

from mixad.backends.registry import default_registry

SMALL = 8


@pytest.fixture
def suites(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent)
    return importlib.import_module("benchmarks.suites.hm_lstm")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("layout", ["(n,)", "(n, 1)"])
def test_the_suite_runs_on_the_built_in_backends(suites, backend, layout):
    suite = suites.ValueAndVjp()
    suite.setup(backend, SMALL, layout)
    suite.time_value_and_vjp(backend, SMALL, layout)


def test_a_backend_that_cannot_serve_is_not_applicable(suites):
    unusable = [s.spec.name for s in default_registry().statuses() if s.reason is not None]
    for backend in ["absent", *unusable]:
        with pytest.raises(NotImplementedError, match=backend):
            suites.ValueAndVjp().setup(backend, SMALL, "(n,)")
