"""Gradients through SciPy's functions agree with central differences.

SciPy reads ``SCIPY_ARRAY_API`` when it is imported, so the calls of `scipy_calls` run in a process
of their own, one for each library.  ``MIXAD_UPDATE_EXPECTED=1`` writes the page that lists them.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy_calls
import scipy_solvers

import mixad
import mixad.scipy
from mixad.errors import TracerError
from mixad.namespace.scipy_calls import SIMILAR, WITH_ARRAY_API, instead_of
from mixad.namespace.spellings import NUMPY

pytest.importorskip("scipy", "1.17", reason="the table's calls are those of SciPy 1.17")

from scipy import special

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scipy.md"
HAS_TORCH = importlib.util.find_spec("torch") is not None

INTRODUCTION = """\
# SciPy

<!-- Written by tests/external/test_scipy.py. -->

Functions of SciPy that take arrays of any library of the standard differentiate unchanged. SciPy
looks for this in the environment when it is imported: `SCIPY_ARRAY_API=1`.

```python
import os

os.environ["SCIPY_ARRAY_API"] = "1"

import mixad
import numpy as np
from scipy import stats

x = np.random.default_rng(0).normal(size=100)
mixad.grad(lambda x: stats.skewtest(x).pvalue)(x)
```

SciPy takes arrays of one namespace in a call: a NumPy array beside one that is being differentiated
is refused ("Multiple namespaces for array inputs"). The traced one makes it one of its own:

```python
{recipe}
```

Gradients through these {count} functions of SciPy 1.17 are compared with central differences of its
own results, with respect to every array that a call names: `x`, `y` and `v`, `w`, `s` are matrices
and vectors of either sign, `p`, `q` and `k` of positive numbers, `u` of probabilities; `z` grows,
`a` and `b` are numbers, and `n3`, `n4`, `n6` have rows of so many elements. What converts its
arguments to NumPy arrays, as compiled functions of SciPy do, refuses them by name; the message says
what to write instead.

Special functions that `mixad.special` has are compiled, for arrays of any library, and fuse with
what is around them. The others SciPy computes, of NumPy arrays; what has no derivative here, as
with respect to most parameters of distributions, is refused when it is asked for. All of them are
also found by calls of SciPy's functions on traced arrays without `SCIPY_ARRAY_API`.
"""


TABLE = """
## What works, by module

Functions of the first column take traced arrays, those of the second with `SCIPY_ARRAY_API=1`.
Those of the third are in `mixad.scipy` under the same names, and take the same arguments; without
traced arrays they give what SciPy does. What the fourth names, and functions that no column does,
are refused where they are given traced arrays: the message says what is written there, or to give
the function a derivative with `mixad.custom_vjp`. Functions that call others and solve for
something are below, under "Solvers that take derivatives".

| module | as it is | with `SCIPY_ARRAY_API=1` | by `mixad.scipy` | refused: write instead |
|---|---|---|---|---|
"""

COUNTERPARTS = """
## Counterparts

`mixad.scipy` takes and returns arrays of any library, traced ones among them, and is imported when
it is first asked for. A function of a distribution is one kernel with its derivatives, by
parameters of shape as well, and what is done with it fuses with it; `lfilter` is a loop of steps.

```python
{example}
```

Floats keep their dtype, where SciPy makes float64 of some. What tells SciPy how to use memory
(`overwrite_a`) or whether to look for nan (`check_finite`) is left out. `eigh` and `cholesky` of
matrices that are differentiated take symmetric ones, and `lstsq` those of full rank.
"""

EXAMPLE = """\
import mixad
import numpy as np
from mixad.scipy import signal, stats

x = np.random.default_rng(0).normal(size=100)


def surprise(b, df, scale):  # of what a filter leaves of x
    return -stats.t.logpdf(signal.lfilter(b, [1.0], x), df, 0.0, scale).sum()


b = np.asarray([1.0, -0.4])
mixad.grad(surprise, argnums=(0, 1, 2))(b, 5.0, 0.9)"""

MADE_OF_UFUNCS = {"special.sinc", "special.softplus"}


SOLVERS = """
## Solvers that take derivatives

Solvers call the functions that transforms return: gradients, Jacobians, Hessians and their products
with vectors. The results of these {count} calls are compared with solutions in closed form.

```python
{problems}```
"""


RECIPE = """\
y = np.cos(np.arange(100.0))


def statistic(x):
    xp = x.__array_namespace__()
    return stats.ttest_ind(x, xp.asarray(y)).statistic


mixad.grad(statistic)(x)"""


@cache
def outcomes(library: str) -> dict[str, float | str]:
    """Return the error of every call's gradient, or what went wrong."""
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, scipy_calls.__file__, library]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, float | str] = json.loads(done.stdout)
    return found


def is_numpy_only(call: str) -> bool:
    return call in map(str.strip, scipy_calls.NUMPY_ONLY.splitlines())


def functions() -> set[str]:
    return {call.lstrip("(").partition("(")[0] for call in scipy_calls.calls()}


@pytest.mark.slow
@pytest.mark.rows("call", scipy_calls.calls())
def test_gradient_through_scipy_agrees_with_differences(call: str) -> None:
    error = outcomes("numpy")[call]
    assert isinstance(error, float), error
    assert error < scipy_calls.TOLERANCE


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.rows("call", scipy_calls.calls())
def test_gradient_of_tensors_through_scipy_agrees_or_is_refused(call: str) -> None:
    error = outcomes("torch")[call]
    if is_numpy_only(call):
        kind = "TypeError" if call in scipy_calls.NOT_OF_TENSORS else "TracerError"
        assert str(error).startswith(kind)
    else:
        assert isinstance(error, float), error
        assert error < scipy_calls.TOLERANCE


def test_at_least_eighty_functions_are_listed() -> None:
    assert len(functions()) >= 80


def test_the_page_lists_the_calls(check_stored) -> None:
    families = [
        f"\n## {family}\n\n```python\n{lines(calls)}\n```\n"
        for family, calls in scipy_calls.CALLS.items()
    ]
    introduction = INTRODUCTION.format(count=len(functions()), recipe=RECIPE)
    check_stored(PAGE, introduction + table() + "".join(families) + solvers())


def table() -> str:
    """Return the section of modules and their functions."""
    as_they_are = {f"special.{name}" for name in vars(special) if is_ufunc(vars(special)[name])}
    as_they_are = functions() & (as_they_are | MADE_OF_UFUNCS)
    switched = (functions() | WITH_ARRAY_API) - as_they_are
    own = {f"{module}.{name}" for module, names in counterparts().items() for name in names}
    modules = {module_of(name) for name in as_they_are | switched | own}
    rows = []
    for module in sorted(modules):
        columns = [named(found, module) for found in (as_they_are, switched, own)]
        rows.append(" | ".join((f"`{module}`", *columns, refused_of(module))))
    counterparts_in_use = COUNTERPARTS.format(example=EXAMPLE)
    return TABLE + "".join(f"| {row} |\n" for row in rows) + counterparts_in_use


def test_the_example_of_counterparts_has_the_gradient_of_scipys_functions() -> None:
    from scipy import signal, stats

    names: dict[str, Any] = {}
    exec(EXAMPLE, names)
    point = np.asarray([1.0, -0.4, 5.0, 0.9])

    def value(p: Any) -> Any:
        rest = signal.lfilter(p[:2], [1.0], names["x"])
        return -stats.t.logpdf(rest, p[2], 0.0, p[3]).sum()

    found = mixad.grad(lambda p: names["surprise"](p[:2], p[2], p[3]))(point)
    wanted = [(value(point + e) - value(point - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)


def counterparts() -> dict[str, list[str]]:
    """Return what `mixad.scipy` has, by modules."""
    return {name: getattr(mixad.scipy, name).__all__ for name in mixad.scipy.__all__}


def named(functions: set[str], module: str) -> str:
    """Return functions of a module, and classes whose methods are among them."""
    own = {f.removeprefix(f"{module}.") for f in functions if module_of(f) == module}
    return ", ".join(f"`{name}`" for name in sorted({name.partition(".")[0] for name in own}))


def module_of(name: str) -> str:
    """Return the module of a function, or of the class whose method it is."""
    home, _, last = name.rpartition(".")[0].rpartition(".")
    return home if last.istitle() or last == "RigidTransform" else name.rpartition(".")[0]


def refused_of(module: str) -> str:
    """Return what else there is for functions of a module, beside those of the same names."""
    scipys = importlib.import_module(f"scipy.{module}")
    hints = {
        name: instead_of(f"scipy.{module}.{name}()", "numpy", NUMPY) for name in scipys.__all__
    }
    said = {
        name: hint.removeprefix("use ")
        for name, hint in hints.items()
        if hint.startswith("use ") and hint != f"use mixad.scipy.{module}.{name}"
    }
    return "; ".join(f"`{name}`: {shown(hint)}" for name, hint in sorted(said.items()))


def shown(hint: str) -> str:
    function = re.match(r"[\w.]+", hint)
    assert function
    return f"`{function[0]}`{hint[function.end() :]}"


@pytest.mark.parametrize(
    "name", ["cho_factor", "norm", "pinv", "qr", "eigvalsh", "sqrtm", "inv", "det", "cholesky"]
)
def test_refusals_say_what_the_table_does(name: str) -> None:
    from scipy import linalg

    hint = instead_of(f"scipy.linalg.{name}()", "numpy", NUMPY)
    message = rf"^scipy\.linalg\.{name}\(\) of a value .*: {re.escape(hint)}, or say"
    with pytest.raises(TracerError, match=message):
        mixad.grad(lambda x: getattr(linalg, name)(x))(np.eye(2))


def test_what_is_said_to_do_the_same_is_there() -> None:
    names = {re.match(r"[\w.]+", said)[0] for said in SIMILAR.values()}
    there = {f"{module}.{n}" for module, own in counterparts().items() for n in own}
    assert names <= there
    for name in SIMILAR:
        module, _, own = name.rpartition(".")
        assert hasattr(importlib.import_module(f"scipy.{module}"), own)


def solvers() -> str:
    """Return the section of solvers."""
    groups = {group: lines(calls) for group, (_, calls) in scipy_solvers.CALLS.items()}
    count = sum(len(calls.splitlines()) for calls in groups.values())
    return SOLVERS.format(count=count, problems=scipy_solvers.PROBLEMS) + "".join(
        f"\n### {group.capitalize()}\n\n```python\n{calls}\n```\n"
        for group, calls in groups.items()
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`scipy.odr` is deprecated")
@pytest.mark.filterwarnings("ignore:delta_grad == 0.0")
def test_solvers_that_take_derivatives_find_the_solutions() -> None:
    errors = scipy_solvers.errors()
    wrong = {c: e for c, e in errors.items() if isinstance(e, str) or not e < 1e-5}
    assert not wrong


X = np.asarray([0.3, 0.6])

NAMED = {
    "multivariate_normal.logpdf": lambda s: lambda x: s.logpdf(x, np.zeros(2)),
    "multivariate_normal.cdf": lambda s: lambda x: s(np.zeros(2)).cdf(x),
    "multivariate_normal": lambda s: s,
    "dirichlet.logpdf": lambda s: lambda x: s.logpdf(np.asarray([0.5, 0.5]), x),
    "wishart.logpdf": lambda s: lambda x: s.logpdf(np.diag(x), 3, np.eye(2)),
    "matrix_normal.logpdf": lambda s: lambda x: s.logpdf(np.diag(x)),
    "multivariate_t.logpdf": lambda s: s.logpdf,
    "vonmises_fisher.logpdf": lambda s: lambda x: s.logpdf(x, np.asarray([1.0, 0.0]), 1.0),
    "norm.fit": lambda s: lambda x: s.fit(x)[0],
    "gamma.fit": lambda s: lambda x: s.fit(x)[0],
    "norm.pdf": lambda s: lambda x: s(0.0, 2.0).pdf(x).sum(),
    "poisson.logpmf": lambda s: lambda x: s.logpmf(2, x).sum(),
    "gaussian_kde": lambda s: s,
    "gaussian_kde.evaluate": lambda s: s(np.arange(3.0)),
    "rankdata": lambda s: s,
}
"""What is refused, and how it is called: the first name is that of `scipy.stats`."""


@pytest.mark.parametrize("name", NAMED)
def test_what_is_refused_is_named_as_users_call_it(name: str) -> None:
    from scipy import stats

    call = NAMED[name](getattr(stats, name.partition(".")[0]))
    with pytest.raises(TracerError, match=rf"^scipy\.stats\.{re.escape(name)}\(\) of a value"):
        mixad.grad(call)(X)


def test_solvers_that_pass_on_whole_numbers_are_named_where_they_are_refused() -> None:
    from scipy import optimize

    def f(x):
        return np.stack([x[0] ** 2 + x[1] - 3.0, x[0] - x[1] ** 2 + 1.0])

    jacobian = mixad.jacobian(f)
    calls = {
        "fsolve": lambda x0: optimize.fsolve(f, x0, fprime=jacobian),
        "leastsq": lambda x0: optimize.leastsq(f, x0, Dfun=jacobian)[0],
        "root": lambda x0: optimize.root(f, x0, jac=jacobian).x,
        "least_squares": lambda x0: optimize.least_squares(f, x0, jac=jacobian).x,
    }
    for name, call in calls.items():
        np.testing.assert_allclose(f(call(np.asarray([1, 1], float))), 0.0, atol=1e-8)
        if name == "least_squares":  # it converts them
            np.testing.assert_allclose(f(call([1, 1])), 0.0, atol=1e-8)
        else:
            with pytest.raises(TracerError, match=rf"scipy\.optimize\.{name}\(\) passes on"):
                call([1, 1])
    with pytest.raises(TracerError, match="convert it to a float dtype, or leave"):
        jacobian(np.asarray([1, 1]))


@pytest.mark.slow
def test_the_recipe_for_arrays_beside_traced_ones_works() -> None:
    """And is needed: without it SciPy refuses the call.  The gradient is that of differences."""
    code = f"""
import mixad, numpy as np
from scipy import stats
x = np.random.default_rng(0).normal(size=100)
try:
    mixad.grad(lambda x: stats.ttest_ind(x, np.cos(np.arange(100.0))).statistic)(x)
except TypeError as error:
    assert "Multiple namespaces" in str(error), error
else:
    raise AssertionError("the recipe is not needed any more")
{RECIPE}
found, step = mixad.grad(statistic)(x), 1e-6 * np.eye(100)
plain = lambda x: stats.ttest_ind(x, y).statistic
wanted = [(plain(x + e) - plain(x - e)) / 2e-6 for e in step]
np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)
"""
    environment = os.environ | {"SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def lines(calls: str) -> str:
    return "\n".join(line.strip() for line in calls.strip().splitlines())


def test_refusals_name_the_functions_that_the_array_api_serves() -> None:
    """Array libraries have those of fft, and ufuncs need nothing."""
    classes = {name.rpartition(".")[0] if "transform" in name else name for name in functions()}
    ufuncs = {f"special.{name}" for name in vars(special) if is_ufunc(vars(special)[name])}
    elsewhere = {f"fft.{name}" for name in dir(np.fft)}
    assert classes - ufuncs - elsewhere - MADE_OF_UFUNCS == WITH_ARRAY_API


def is_ufunc(value: object) -> bool:
    return isinstance(value, np.ufunc) or hasattr(value, "nin")
