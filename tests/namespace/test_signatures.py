"""Tables of spellings have the parameters of their libraries: names, order, marks and defaults."""

from __future__ import annotations

import functools
import inspect
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mixad.namespace.spelling import Binding, SpelledFunction
from mixad.namespace.spellings import NUMPY, STANDARD, UFUNCS

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


def of_table(found: SpelledFunction) -> Form | None:
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


def test_arguments_of_every_function_are_passed_on_as_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those that a function cannot do without need no look at their names, nor make an error's."""
    from mixad.namespace.torch_spellings import TORCH

    def refuse(*args: Any) -> None:
        raise AssertionError("names are looked at")

    monkeypatch.setattr(Binding, "bound", refuse)
    monkeypatch.setattr("mixad.namespace.spelling._public_name", refuse)
    missed, count = set(), 0
    for spelling in (STANDARD, NUMPY, UFUNCS, TORCH):
        for name, found in (*spelling.functions.items(), *spelling.methods.items()):
            own = inspect.signature(found.evaluate).parameters.values()
            needed = [p for p in own if p.default is p.empty and p.kind in BY_PLACE]

            @functools.wraps(found.evaluate)
            def same(*args: Any, **options: Any) -> Any:
                return args, options

            binding = Binding.of(spelling, replace(found, evaluate=same), numpys)
            given = tuple(1.5 + at for at in range(len(needed) or 1))
            count += 1
            try:
                assert binding(given, {}) == (given, {})
            except AssertionError:
                missed.add((spelling.library, name))
    assert not missed
    assert count > 850
