"""Tables of spellings have the parameters of their libraries: names, order, marks and defaults."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.namespace.spelling import Binding, BoundFunction, LibraryBinding
from mixad.namespace.spellings import NUMPY, STANDARD, UFUNCS
from mixad.namespace.torch_spellings import TORCH

BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Form = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


def of_library(function: Any) -> Form | None:
    """Return what comes by place only, by place or by name, and by name only; None for any."""
    own = inspect.signature(function).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in own):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD,
             inspect.Parameter.KEYWORD_ONLY)  # fmt: skip
    first, second, third = (tuple(p.name for p in own if p.kind is kind) for kind in kinds)
    return first, second, third


def of_table(found: BoundFunction) -> Form | None:
    names, until = found.parameters, found.by_place
    if not names:
        return None
    places = names[: len(names) if until is None else until]
    return places[: found.nameless], places[found.nameless :], names[len(places) :]


def numpys(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), np)


OPTIONS_OF_METHODS = ("keepdims", "initial", "where")
"""What `np.add.reduce` takes as ``**kwargs``."""

REMOVED = {"interpolation"}
"""What NumPy had."""


def test_numpys_parameters_are_those_of_its_signatures() -> None:
    different = {}
    for name, found in NUMPY.functions.items():
        want, ours = of_library(numpys(name)), of_table(found)
        if ours is not None:
            first, second, third = ours
            if name.endswith(".reduce"):
                second = tuple(n for n in second if n not in OPTIONS_OF_METHODS)
            ours = first, second, tuple(n for n in third if n not in REMOVED)
        if want != ours and (want is None or ours is None or _ordered(want) != _ordered(ours)):
            different[name] = (want, ours)
    assert not different
    assert len(NUMPY.functions) > 260


def _ordered(form: Form) -> Form:
    """Return a form with what comes by name in alphabetical order."""
    return *form[:2], tuple(sorted(form[2]))


def test_scipys_parameters_are_those_of_its_ufuncs() -> None:
    special = pytest.importorskip("scipy.special")
    functions = {name: getattr(special, name, None) for name in UFUNCS.functions}
    ufuncs = {name: f for name, f in functions.items() if isinstance(f, np.ufunc)}
    different = {
        name: (of_library(ufunc), of_table(UFUNCS.functions[name]))
        for name, ufunc in ufuncs.items()
        if of_library(ufunc) != of_table(UFUNCS.functions[name])
    }
    assert not different
    assert len(ufuncs) > 80


def test_numpys_methods_take_what_its_arrays_methods_take() -> None:
    different, count = {}, 0
    for name in dir(np.ndarray):
        method = getattr(np.ndarray, name)
        if name.startswith("_") or not NUMPY.has_method(name) or not callable(method):
            continue
        want = of_library(method)
        found = NUMPY.methods.get(name) or NUMPY.functions[name]
        ours = tuple(n for n, _ in Binding.of(NUMPY, found, name).places[1:])
        if want is None:  # several numbers
            continue
        count += 1
        by_place = (*want[0], *want[1])[1:]
        if name == "dot":
            by_place = ("b", *by_place[1:])  # which NumPy calls other
        further = {*ours[len(by_place) :]}
        if ours[: len(by_place)] != by_place or further > {*OPTIONS_OF_METHODS, "out"}:
            different[name] = (by_place, ours)
    assert not different
    assert count > 20


HAS_TORCH = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")

TABLES = {
    "standard": pytest.param(STANDARD, "", 130),
    "numpy": pytest.param(NUMPY, "expand_dims", 270),
    "scipy": pytest.param(UFUNCS, "", 80),
    "torch": pytest.param(
        TORCH, "cumprod cumsum flip unsqueeze", 360, marks=[pytest.mark.torch, needs_torch]
    ),
}
"""Tables, the functions of each whose plain call is not passed on, and how many it has at least.

Those exceptions need an axis, which comes by place in the library and by name only in the standard.
"""


def needed_by(function: Any) -> list[str]:
    """Return what a function cannot do without, by place; torch's compiled ones say it in words."""
    try:
        own = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        found = re.match(r"\s*\w+\(([^)*[\\]*)", getattr(function, "__doc__", None) or "")
        names = found[1].split(",") if found else []
        return [name for name in names if name.strip() and "=" not in name]
    return [p.name for p in own if p.default is p.empty and p.kind in BY_PLACE]


def function_of_table(spelling: LibraryBinding, name: str) -> Any:
    """Return the library's function; None for what is only a method of its arrays."""
    name = re.sub("^(fft|linalg|special)_", r"\1.", name) if spelling is TORCH else name
    library = None if spelling is STANDARD else importlib.import_module(spelling.library)
    return functools.reduce(lambda f, n: getattr(f, n, None), name.split("."), library)


@pytest.mark.parametrize(("spelling", "exceptions", "least"), TABLES.values(), ids=TABLES.keys())
def test_arguments_of_every_function_are_passed_on_as_they_come(
    spelling: LibraryBinding, exceptions: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that a function cannot do without need no look at their names, nor make an error's."""

    def refuse(*args: Any) -> None:
        raise AssertionError("names are looked at")

    monkeypatch.setattr(Binding, "bind_arguments", refuse)
    monkeypatch.setattr("mixad.namespace.spelling.public_name", refuse)
    missed, count = [], 0
    for name, found in (*spelling.functions.items(), *spelling.methods.items()):

        @functools.wraps(found.evaluate)
        def same(*args: Any, **options: Any) -> Any:
            return args, options

        binding = Binding.of(spelling, replace(found, evaluate=same), numpys)
        theirs = needed_by(function_of_table(spelling, name))
        needed = max(1, len(theirs), len(needed_by(found.evaluate)))
        given = tuple(1.5 + at for at in range(needed))
        count += 1
        try:
            assert binding(given, {}) == (given, {})
        except AssertionError:
            missed.append(name)
    assert sorted(missed) == exceptions.split()
    assert count >= least


PLAIN_CALLS = {
    "np.sum": lambda x: np.sum(x),
    "np.mean": lambda x: np.mean(x),
    "np.reshape": lambda x: np.reshape(x, (3, 2)),
    "np.exp": lambda x: np.exp(x),
    "x.mean": lambda x: x.mean(),
    "x.reshape": lambda x: x.reshape((3, 2)),
}


@pytest.mark.rows("call", PLAIN_CALLS.values(), ids=PLAIN_CALLS.keys())
def test_plain_calls_of_users_are_passed_on_as_they_come(call: Any) -> None:
    came: list[Any] = []
    bound: list[Any] = []

    def count(self: BoundFunction, *args: Any, **options: Any) -> Any:
        came.append((len(args), options))
        return called(self, *args, **options)

    called = BoundFunction.__call__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BoundFunction, "__call__", count)
        patch.setattr(Binding, "bind_arguments", lambda *given: bound.append(given))
        mixad.grad(lambda x: (call(x), (x * x)[0, 0])[1])(np.ones((2, 3)))
    assert not bound
    assert came
    assert all(options == {} for _, options in came)
