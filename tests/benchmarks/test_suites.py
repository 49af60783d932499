"""asv's suites run: asv itself is asked in .ci/run whether it can import them, and no more."""

from __future__ import annotations

import importlib
import inspect
import itertools
import numbers
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import suites
from benchmarks.suites import figures as figures_suite
from benchmarks.suites.arrays import require

BENCHMARK = re.compile(r"(time|timeraw|peakmem|track)_\w+")
FEW = ("Kepler", "sum of a broadcast")  # of the calls whose figures are counted


def found():
    """Yield what asv takes for a suite: public classes that have benchmarks."""
    for module in pkgutil.iter_modules(suites.__path__, f"{suites.__name__}."):
        for name, suite in inspect.getmembers(
            importlib.import_module(module.name), inspect.isclass
        ):
            own = suite.__module__ == module.name and not name.startswith("_")
            if own and benchmarks_of(suite):
                yield suite


def benchmarks_of(suite):
    return [name for name in dir(suite) if BENCHMARK.fullmatch(name)]


SUITES = {f"{suite.__module__.rpartition('.')[2]}.{suite.__name__}": suite for suite in found()}
BY_BACKEND = [name for name, suite in SUITES.items() if suite.param_names[0] == "backend"]


def combinations(suite, backend):
    """Return the first and the last combination of parameters with a backend."""
    every = list(itertools.product(*suite.params))
    if suite.param_names[0] == "backend":
        every = [values for values in every if values[0] == backend]
    return dict.fromkeys((every[0], every[-1]))


def run(suite, values):
    """Do what asv does with one combination; fail where a benchmark gives what asv cannot take."""
    made = suite()
    given = (*([made.setup_cache()] if hasattr(made, "setup_cache") else []), *values)
    try:
        if hasattr(made, "setup"):
            made.setup(*given)
        for name in benchmarks_of(suite):
            result = getattr(made, name)(*given)
            if name.startswith("timeraw_"):
                code, before = (result, "") if isinstance(result, str) else result
                subprocess.run([sys.executable, "-c", f"{before}\n{code}"], check=True)
            elif name.startswith("track_"):
                assert isinstance(result, numbers.Real), name
    finally:
        if hasattr(made, "teardown"):
            made.teardown(*given)


def test_the_readme_lists_every_file_of_suites():
    readme = Path(suites.__file__).parents[1].joinpath("README.md").read_text("utf-8")
    section = readme.partition("## suites")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)\.py`", section, re.MULTILINE)
    assert sorted(listed) == sorted({name.partition(".")[0] for name in SUITES})


@pytest.mark.slow
@pytest.mark.parametrize("name", SUITES)
def test_a_suite_runs_on_the_cpu(name, monkeypatch):
    few = {call: figures_suite.CASES[call] for call in FEW}
    monkeypatch.setattr(figures_suite, "CASES", few)
    for suite in (figures_suite.Figures, figures_suite.DeviceFigures):
        monkeypatch.setattr(suite, "params", (FEW,))
    for values in combinations(SUITES[name], "cpu"):
        try:
            run(SUITES[name], values)
        except NotImplementedError as absent:
            pytest.skip(str(absent))


@pytest.mark.parametrize("name", BY_BACKEND)
def test_a_backend_that_is_not_here_is_not_applicable(name):
    absent = [backend for backend in ("cupy", "torch") if not serves(backend)]
    if not absent:
        pytest.skip("both are here")
    values, *_ = combinations(SUITES[name], absent[0])
    with pytest.raises(NotImplementedError):
        run(SUITES[name], values)


def serves(backend):
    try:
        require(backend)
    except NotImplementedError:
        return False
    return True
