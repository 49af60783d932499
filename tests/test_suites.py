"""asv's suites run on every backend that is built in, and are n/a where one cannot serve."""

import importlib
import itertools
from pathlib import Path

import pytest

from benchmarks.suites.recording import OPERATIONS
from mixad.backends.registry import default_registry

SMALL = 8
SUITES = {
    "hm_lstm": ("ValueAndVjp",),
    "mechanisms": ("HandOver", "Memory", "Stores", "ShortRows", "Plans"),
    "recording": ("Recording", "Chain"),
}
CHOICES = {
    "size": [SMALL], "elements": [SMALL, 1 << 16], "tiles": [1, 2],
    "shape of z": ["(n,)", "(n, 1)"], "memory of": ["the pool", "new pages"],
    "stores": ["past the cache", "into the cache"], "layout": ["known", "new"],
    "operation": [*OPERATIONS], "columns": [3], "beside": ["elements", "row", "column"],
}  # fmt: skip
"""For each parameter beside the backend, values that are tried."""


@pytest.fixture
def suite(request, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent)
    module, name = request.param
    return getattr(importlib.import_module(f"benchmarks.suites.{module}"), name)()


every_suite = pytest.mark.parametrize(
    "suite",
    [(module, name) for module, names in SUITES.items() for name in names],
    indirect=True,
    ids=lambda found: found[1],
)


@every_suite
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_the_suites_run_on_the_built_in_backends(suite, backend):
    timed = [name for name in dir(suite) if name.startswith("time_")]
    assert timed
    ran = 0
    for values in itertools.product(*(CHOICES[name] for name in suite.param_names[1:])):
        try:
            suite.setup(backend, *values)
        except NotImplementedError:
            assert backend != "cpu"
            continue
        for name in timed:
            getattr(suite, name)(backend, *values)
        ran += 1
    assert ran


@every_suite
def test_what_is_tried_is_of_the_kind_that_is_timed(suite):
    for name, values in zip(suite.param_names[1:], suite.params[1:], strict=True):
        kinds = {type(value) for value in values}
        assert {type(value) for value in CHOICES[name]} == kinds
        if kinds == {str}:
            assert set(values) >= set(CHOICES[name])


@every_suite
def test_a_backend_that_cannot_serve_is_not_applicable(suite):
    unusable = [s.spec.name for s in default_registry().statuses() if s.reason is not None]
    values = [CHOICES[name][0] for name in suite.param_names[1:]]
    for backend in ["absent", *unusable]:
        with pytest.raises(NotImplementedError, match=backend):
            suite.setup(backend, *values)
