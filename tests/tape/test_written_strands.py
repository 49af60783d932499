"""Writes to traced arrays by strands: as NumPy has them, or refused."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mixad
from mixad import strand_history
from mixad.errors import TracerError

from .test_inner_strands import by_nodes
from .test_strands import EXAMPLES

pytestmark = pytest.mark.usefixtures("fresh")

X = np.linspace(0.3, 1.7, 6)
KEYS = [
    *(0, -1, slice(1, 4), slice(None, None, 2), slice(None), slice(0, 0), (Ellipsis,), [0, 3]),
    *([2, 2, 1], np.array([1, 4]), np.array([True, False, True, True, False, False])),
    (None, slice(2, 5)),
]
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "+=": operator.iadd,
    "-=": operator.isub,
    "*=": operator.imul,
}


@st.composite
def programs(draw: st.DrawFn) -> Callable[[Any], Any]:
    """Programs that write to arrays, parts of them and views, and read some of what they have."""
    index, key = st.integers(0, 40), st.integers(0, len(KEYS) - 1)
    changes = st.sampled_from(sorted(CHANGES))
    step = st.one_of(
        st.tuples(st.just("new"), index, st.sampled_from([1.5, -0.5])),
        st.tuples(st.just("zeros"), index),
        st.tuples(st.just("part"), index, key),
        st.tuples(st.just("reversed"), index),
        st.tuples(st.just("set"), index, key, index, st.booleans()),
        st.tuples(st.just("number"), index, key, st.sampled_from([0.0, 2.5, 3])),
        st.tuples(st.just("change"), index, changes, index),
        st.tuples(st.just("change part"), index, key, changes, index),
        st.tuples(st.just("copy"), index),
    )
    steps = draw(st.lists(step, min_size=2, max_size=9))
    read = draw(st.lists(index, min_size=1, max_size=3))

    def program(x: Any) -> Any:
        known = [x * 1.0, x * 2.0]
        for name, at, *rest in steps:
            a = known[at % len(known)]
            if name == "new":
                known.append(a * a + rest[0] * a)
            elif name == "zeros":
                known.append(np.zeros_like(x))
            elif name == "part":
                known.append(a[KEYS[rest[0]]] if np.shape(a) == (6,) else a)
            elif name == "reversed":
                known.append(a[::-1] if np.ndim(a) else a)
            elif name == "copy":
                known.append(a.copy())
            elif np.shape(a) != (6,):
                continue
            elif name == "set":
                value = known[rest[1] % len(known)]
                a[KEYS[rest[0]]] = (value * value).sum() if rest[2] else np.sum(value)
            elif name == "number":
                a[KEYS[rest[0]]] = rest[1]
            elif name == "change":
                known[at % len(known)] = CHANGES[rest[0]](a, known[rest[1] % len(known)].sum())
            else:
                b = known[rest[2] % len(known)].sum()
                part = a[KEYS[rest[0]]]
                a[KEYS[rest[0]]] = CHANGES[rest[1]](part, b)
        return sum(((known[at % len(known)] ** 2).sum() for at in read), x[0] * 1.0)

    program.__name__ = repr((steps, read))  # what failed is shown so
    return program


def expected(f: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Return value and gradient by NumPy, with complex steps."""
    units = 1e-30j * np.eye(len(X))
    return f(X.copy()), np.array([f(X + unit).imag * 1e30 for unit in units])


def outcome(f: Callable[[Any], Any]) -> Any:
    try:
        return mixad.value_and_grad(f)(X)
    except TracerError as error:
        assert "shares memory" in str(error)
        return None


@settings(max_examples=EXAMPLES, deadline=None)
@given(programs())
def test_written_arrays_have_numpys_values_or_are_refused(f: Callable[[Any], Any]) -> None:
    with np.errstate(all="ignore"):
        value, gradient = expected(f)
    if not (np.all(np.isfinite(gradient)) and math.isfinite(value)):
        return
    strand_history._HISTORIES.clear()
    plain = by_nodes(outcome, f)
    for _ in range(3):
        found = outcome(f)
        assert (found is None) == (plain is None)
        if found is not None:
            np.testing.assert_allclose(found[0], value, rtol=1e-12)
            scale = 1e-11 * max(1.0, float(np.max(np.abs(gradient))))
            np.testing.assert_allclose(found[1], gradient, rtol=1e-11, atol=scale)
