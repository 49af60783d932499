"""asv's suites run on every backend that is built in, and are n/a where one cannot serve."""

import importlib
import itertools
import json
import os
import pkgutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import numpy as np
import pytest

import mixad
from benchmarks import suites
from benchmarks.suites import chains, figures, kernels, memory, reductions, starting
from benchmarks.suites.recording import OPERATIONS
from benchmarks.tracked import BASELINE
from mixad.backends.registry import default_registry
from mixad.config import BACKEND_ALLOW
from mixad.errors import BackendError

SMALL = 8
SUITES = {
    "chains": ("ValueAndGrad",),
    "gathers": ("Interpolation", "LennardJones", "SparseProduct"),
    "hm_lstm": ("ValueAndVjp",),
    "kernels": ("Kepler", "ImpliedVolatility", "BundleAdjustment", "Arity"),
    "mechanisms": ("HandOver", "Memory", "Stores", "ShortRows", "Plans"),
    "memory": ("Peak",),
    "recording": ("Recording", "Chain"),
    "reductions": ("Gradient", "Value"),
}
SLOW = pytest.mark.slow
MEASURED = ("time_", "peakmem_")
CHOICES = {
    "observations": [SMALL], "options": [SMALL], "inputs": [1, 11],
    "points": [SMALL], "side": [3], "rows": [SMALL],
    "work": [*memory.WORKS], "loss": [*chains.LOSSES],
    "shape": ["small"], "axes": [*reductions.AXES],
    "size": [SMALL], "elements": [SMALL, 1 << 16], "tiles": [1, 2],
    "shape of z": ["(n,)", "(n, 1)"], "memory of": ["the pool", "new pages"],
    "stores": ["past the cache", "into the cache"], "layout": ["known", "new"],
    "operation": [*OPERATIONS], "columns": [3], "beside": ["elements", "row", "column"],
}  # fmt: skip
"""For each parameter beside the backend, values that are tried."""


@pytest.fixture(autouse=True)
def _small_and_restored(monkeypatch):
    default_registry()  # it reads the variable once, and serves the tests that follow
    monkeypatch.setenv(BACKEND_ALLOW.name, "")  # suites set it for the process that asv gives them
    monkeypatch.setattr(kernels, "SIDE", SMALL)
    monkeypatch.setattr(memory, "ELEMENTS", SMALL**2)
    monkeypatch.setitem(reductions.SHAPES, "small", (4, 3, 5))


@pytest.fixture
def suite(request):
    module, name = request.param
    return getattr(importlib.import_module(f"benchmarks.suites.{module}"), name)()


def chosen(suite, name):
    """Return what is tried of a parameter; where it is a name, of those that the suite has."""
    own = dict(zip(suite.param_names, suite.params, strict=True))[name]
    is_named = isinstance(own[0], str) and name != "shape"
    return [value for value in CHOICES[name] if value in own] if is_named else CHOICES[name]


every_suite = pytest.mark.parametrize(
    "suite",
    [
        pytest.param((module, name), id=name, marks=[SLOW] if name == "ValueAndGrad" else [])
        for module, names in SUITES.items()
        for name in names
    ],
    indirect=True,
)


@every_suite
@pytest.mark.rows("backend", ["cpu", "reference"], slow="cpu")
def test_the_suites_run_on_the_built_in_backends(suite, backend):
    timed = [name for name in dir(suite) if name.startswith(MEASURED)]
    assert timed
    ran = 0
    for values in itertools.product(*(chosen(suite, name) for name in suite.param_names[1:])):
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
        if kinds == {str} and name != "shape":
            assert set(CHOICES[name]) >= set(values)


@every_suite
def test_a_backend_that_cannot_serve_is_not_applicable(suite):
    unusable = [s.spec.name for s in default_registry().statuses() if s.reason is not None]
    values = [chosen(suite, name)[0] for name in suite.param_names[1:]]
    for backend in ["absent", *unusable]:
        with pytest.raises(NotImplementedError, match=backend):
            suite.setup(backend, *values)


def test_every_module_of_the_suites_is_tried():
    found = {module.name for module in pkgutil.iter_modules(suites.__path__)}
    assert found - {"arrays"} == {*SUITES, "figures", "starting"}


def test_asv_finds_every_class_that_is_tried():
    for module, names in SUITES.items():
        found = vars(importlib.import_module(f"benchmarks.suites.{module}"))
        own = [n for n, c in found.items() if isinstance(c, type) and hasattr(c, "param_names")]
        assert [n for n in own if found[n].__module__.endswith(module)] == list(names)


def in_process(code):
    """Run code as asv runs a suite: with the suites' own folder first and nothing else of ours."""
    folder = str(Path(suites.__file__).parents[1])
    start = f"import sys; sys.path.insert(0, {folder!r})\n"
    command = [sys.executable, "-W", "error", "-c", start + code]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(command, env=own, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_the_mixad_that_is_measured_is_the_installed_one():
    """The suites' checkout has one, too: it is found last."""
    installed = sysconfig.get_path("purelib")
    given = f"""
import suites
print(sys.path.index({installed!r}) < sys.path.index(suites.ROOT))
"""
    assert in_process(given) == "True"


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_operators_use_the_backend_that_is_asked_for(backend):
    code = f"""
from suites.recording import Chain
from mixad.backends import registry
used, load = set(), registry._load_backend
registry._load_backend = lambda found: used.add(found.spec.name) or load(found)
Chain().setup({backend!r}, 8)
print(*used)
"""
    assert in_process(code) == backend


@pytest.mark.parametrize("shape", [(4, 3, 5), (1, 3, 5)])
@pytest.mark.parametrize("name", [name for name in reductions.AXES if reductions.AXES[name]])
def test_the_sums_are_over_the_axes_that_are_named(shape, name, monkeypatch):
    monkeypatch.setitem(reductions.SHAPES, "small", shape)
    axes, value, gradient = reductions.AXES[name], reductions.Value(), reductions.Gradient()
    value.setup("cpu", "small", name)
    x, y = value.primals
    np.testing.assert_allclose(value.sum(x, y), (x * y + x).sum(axes), rtol=1e-6)
    gradient.setup("cpu", "small", name)
    x, _ = gradient.primals
    _, (_, found) = mixad.value_and_vjp(gradient.kernel, gradient.primals, gradient.cotangent)
    expected = (gradient.cotangent * x).astype(np.float64).sum(axes, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_axes_are_every_combination():
    assert len(set(reductions.AXES.values())) == 8


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["empty", "filled"])
def test_a_first_gradient_is_compiled_only_where_the_cache_is_empty(cache):
    suite = starting.FirstGradient()
    suite.setup("cpu", cache)
    code, setup = suite.timeraw_first_gradient("cpu", cache)
    counting = """
import os
from pathlib import Path
folder = Path(os.environ["MIXAD_CACHE_DIR"])
before = len(list(folder.rglob("*")))
"""
    after = "print(before, len(list(folder.rglob('*'))))"
    before, now = map(int, in_process(setup + counting + code + after).split())
    suite.teardown("cpu", cache)
    assert (before == 0) == (cache == "empty")
    assert (now > before) == (cache == "empty")


def test_what_is_not_applicable_can_be_torn_down():
    """As asv does; what fails there is shown as failed, not as n/a."""
    suite = starting.FirstGradient()
    with pytest.raises(NotImplementedError, match="absent"):
        suite.setup("absent", "empty")
    suite.teardown("absent", "empty")


def test_a_module_that_is_imported_is_named():
    assert starting.Import().timeraw_import("mixad") == "import mixad"


@pytest.mark.slow
def test_the_figures_are_those_that_are_tracked():
    stored = json.loads(BASELINE.read_text("utf-8"))["figures"]
    suite = figures.Figures()
    counted = suite.setup_cache()
    for call in suite.params[0]:
        for name in (n for n in dir(suite) if n.startswith("track_")):
            found = getattr(suite, name)(counted, call)
            assert found <= stored[call][name.removeprefix("track_").replace("_", " ")]


def test_registers_are_not_applicable_without_a_compiler(monkeypatch):
    def absent(case):
        raise BackendError("NVRTC is not installed")

    monkeypatch.setattr(figures, "device_figures", absent)
    suite = figures.DeviceFigures()
    with pytest.raises(NotImplementedError, match="NVRTC is not installed"):
        suite.setup(suite.setup_cache(), "Kepler")


def test_registers_are_those_of_the_call_that_is_named():
    suite = figures.DeviceFigures()
    found = {"Kepler": {"registers": 5, "local bytes": 7}}
    suite.setup(found, "Kepler")
    assert suite.track_registers(found, "Kepler") == 5
    assert suite.track_local_bytes(found, "Kepler") == 7
