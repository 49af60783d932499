"""What refusals advise works: programs that do what their texts say give the right numbers."""

import functools
import importlib.util
import inspect
import traceback

import followed_advice
import followed_in_kernels
import numpy as np
import pytest
import refused
from test_messages import IN_CALLS

import mixad

KERNELS = {n: f for n, f in vars(followed_in_kernels).items() if n.startswith("follow_")}
FOLLOWED = {n: f for n, f in vars(followed_advice).items() if n.startswith("follow_")}
NEEDED = {
    "torch": "torch",
    "dask": "dask",
    "lazy": "dask",
    "scipy": "scipy",
    "jax": "jax",
    "narrow": "torch",
    "bfloat16": "torch",
}


def is_installed(name):
    needed = [package for part, package in NEEDED.items() if part in name]
    return all(importlib.util.find_spec(package) for package in needed)


def wrong_in(program):
    """Return what is wrong with the numbers of a program."""
    try:
        pairs = program()
    except Exception:
        return traceback.format_exc()
    wrong = []
    for got, expected in pairs:
        got, expected = np.asarray(got), np.asarray(expected)
        if got.shape != expected.shape or not np.allclose(got, expected, rtol=2e-6, atol=1e-7):
            wrong.append((got, expected))
    return wrong or None if pairs else "nothing is compared"


SAMPLES = {
    "x": np.asarray([0.6, 1.4, 2.3]),
    "y": np.asarray([1.7, 0.4, 1.1]),
    "n": np.asarray([1, 2, 3]),
    "m": np.asarray([2, 2, 1]),
    "b": np.asarray([True, False, True]),
    "c": np.asarray([True, True, False]),
}
"""What parameters of kernels are by their names."""


def python_values(function, arguments):
    """Return what Python computes for each element, as arrays: one for each result."""
    rows = [function(*(each.item() for each in row)) for row in zip(*arguments, strict=True)]
    rows = [row if isinstance(row, tuple) else (row,) for row in rows]
    return [np.asarray(column) for column in zip(*rows, strict=True)]


def kernel_pairs(function):
    """Return values and derivatives of a kernel, and those of Python and of its differences."""
    names = list(inspect.signature(function).parameters)
    arguments = [SAMPLES[name] for name in names]
    kernel = mixad.broadcast(function)
    with np.errstate(all="ignore"):
        values = kernel(*arguments)
        pairs = list(zip(values if isinstance(values, tuple) else (values,),
                         python_values(function, arguments), strict=True))  # fmt: skip
        for at, name in enumerate(names):
            if name in "xy" and max(abs(v).max() for v, _ in pairs) < 1e6:  # for the differences
                pairs.append(slope_pair(function, kernel, arguments, at))
    return pairs


def slope_pair(function, kernel, arguments, at):
    """Return the gradient of the sum of all results, and its central differences."""

    def loss(x):
        values = kernel(*arguments[:at], x, *arguments[at + 1 :])
        return sum(v.sum() for v in (values if isinstance(values, tuple) else (values,)))

    gradient = mixad.grad(lambda x: loss(x) + 0.0 * x.sum())(arguments[at])
    return gradient, slopes_of(function, arguments, at)


def slopes_of(function, arguments, at, step=1e-6):
    there, back = (
        [*arguments[:at], arguments[at] + s, *arguments[at + 1 :]] for s in (step, -step)
    )
    ends = zip(python_values(function, there), python_values(function, back), strict=True)
    return sum((a.astype(float) - b.astype(float)) / (2 * step) for a, b in ends)


@pytest.mark.slow
def test_kernels_that_follow_the_advice_agree_with_python():
    wrong = {}
    for name, function in KERNELS.items():
        found = wrong_in(functools.partial(kernel_pairs, function))
        if found is not None:
            wrong[name] = found
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())


@pytest.mark.slow
def test_advice_is_followed_and_gives_the_right_numbers():
    programs = {name: f for name, f in FOLLOWED.items() if is_installed(name)}
    wrong = {name: found for name, f in programs.items() if (found := wrong_in(f)) is not None}
    assert not wrong, "\n".join(f"{name}: {found}" for name, found in wrong.items())


def test_no_refusal_begins_by_giving_the_derivative_up():
    """But those of what has none."""
    texts = {case.name: case.text for case in refused.cases() if not case.is_kernel}
    first = {name: text[IN_CALLS.search(text).start() :][:30] for name, text in texts.items()}
    assert {name for name, advice in first.items() if "mixad.stop_gradient" in advice} == {
        "period_that_is_differentiated",
        "shares_of_a_quantile_that_are_differentiated",
    }


def test_every_program_belongs_to_a_refusal():
    names = {case.name for case in refused.cases()}
    assert {name.removeprefix("follow_") for name in (*FOLLOWED, *KERNELS)} <= names
