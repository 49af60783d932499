"""Measure the derivatives of every op against mpmath, and state them in the docs.

Run from the repository root::

    python -m tools.measure_derivatives           # rewrite docs/reference/derivative_accuracy.md
    python -m tools.measure_derivatives --print   # print it instead

An error is a distance from the exact result in units of its last place; below the normal range the
unit is the smallest number.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
from mpmath import mp, mpf

from mixad import special
from mixad.backends.execute import execute
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.dual import DualChunk
from mixad.scalar.ir import Program
from mixad.scalar.ops import BY_NAME
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.pushforward import pushforward
from mixad.scalar.types import BOOL, F32, F64, type_of_dtype
from tools.derivative_cases import CASES, DIGITS, Case, points

TARGET = Path(__file__).parents[1] / "docs" / "reference" / "derivative_accuracy.md"
POINTS = 1500
SEED = 1
DTYPES = (np.dtype("f4"), np.dtype("f8"))
ORDERS = ("value", "first", "second")

Results = tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]


@dataclass(frozen=True)
class Worst:
    """The largest error of one order, and where it is."""

    ulp: float
    at: tuple[float, ...] = ()
    got: float = math.nan
    exact: float = math.nan


# -- running -------------------------------------------------------------------------------------


def program_of(name: str, dtype: np.dtype[Any]) -> Program:
    """Return the program of an op, or of a function of `mixad.special` that is made of ops."""
    if name in BY_NAME:
        return program_of_op(name, dtype)
    source = read_function(getattr(special, name))
    arguments = [Argument(type_of_dtype(dtype))] * len(source.parameters)
    return parse(source, arguments, source.snapshot()).program


def program_of_op(name: str, dtype: np.dtype[Any]) -> Program:
    """Return the program that is one op; ``where`` takes a boolean, ``convert`` changes width."""
    type = type_of_dtype(dtype)
    builder = Builder(name)
    letters = "xyz"[: BY_NAME[name].arity]
    params = [builder.param(x, BOOL if (name, x) == ("where", "x") else type) for x in letters]
    other = F64 if type == F32 else F32
    return builder.finish([builder.op(name, *params, type=other if name == "convert" else None)])


def differentiable(name: str, count: int) -> list[int]:
    """Return which of a function's arguments have derivatives."""
    partials = BY_NAME[name].partials if name in BY_NAME else ()
    without = {0} if name in ("where", "expn") else {i for i, p in enumerate(partials) if p is None}
    return [i for i in range(count) if i not in without]


def derivatives(name: str, arrays: Sequence[np.ndarray]) -> Results:
    """Run an op with its derivatives through two pushforwards.

    Parameters
    ----------
    name : str
        A differentiable op, or a function of `mixad.special`.
    arrays : sequence of numpy.ndarray
        Its arguments, float32 or float64.

    Returns
    -------
    tuple of lists of numpy.ndarray
        The value; ∂/∂xᵢ; and ∂²/∂xᵢ∂xⱼ for all i and j, rows first.  What is
        statically zero is an array of zeros.
    """
    wrt = differentiable(name, len(arrays))
    once = pushforward(program_of(name, arrays[-1].dtype), wrt)
    twice = pushforward(once.program, wrt)
    if name == "where":
        arrays = [arrays[0] != 0, *arrays[1:]]
    columns = _run(twice.program, arrays)
    zero = np.zeros_like(columns[0])
    (op,) = once.outputs
    slots = range(len(wrt))

    def partial(chunk: DualChunk[int] | None, slot: int) -> np.ndarray:
        static_zero = chunk is None or slot not in chunk.partials
        return zero if static_zero else columns[chunk.partials[slot]]

    firsts = [twice.outputs[op.partials[s]] if s in op.partials else None for s in slots]
    first = [zero if f is None else columns[f.primal] for f in firsts]
    second = [partial(f, s) for f in firsts for s in slots]
    return [columns[0]], first, second


def _run(program: Program, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    requests = tuple(OutputRequest(0, k) for k in range(len(program.outputs)))
    return execute((program,), requests, arrays, "cpu")


# -- errors --------------------------------------------------------------------------------------


def expected(case: Case, row: Sequence[float]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the exact results in the order of `derivatives`."""
    value, first, second = case.jet(*map(mpf, row))
    count = len(first)
    place = {pair: k for k, pair in enumerate(combinations_with_replacement(range(count), 2))}
    pairs = product(range(count), repeat=2)
    return [value], [*first], [second[place[min(p), max(p)]] for p in pairs]


def measure(
    name: str, dtype: np.dtype[Any], count: int = POINTS, seed: int = SEED
) -> tuple[Worst, ...]:
    """Return the largest errors of an op's value, first and second derivatives.

    Parameters
    ----------
    name : str
        An op that `tools.derivative_cases.CASES` has.
    dtype : numpy.dtype
        float32 or float64.
    count : int
        Random points of each kind.
    seed : int
        Seed of the random numbers.

    Returns
    -------
    tuple of Worst
        For each of `ORDERS`.
    """
    case = CASES[name]
    arrays = points(case, dtype, count, seed)
    results = derivatives(name, arrays)
    worst = [Worst(0.0)] * 3
    with mp.workdps(DIGITS):
        for k, row in enumerate(zip(*(a.tolist() for a in arrays), strict=True)):
            exact = expected(case, row)
            scales = expected(replace(case, jet=case.scale), row) if case.scale else exact
            for order in range(3):
                for got, e, s in zip(results[order], exact[order], scales[order], strict=False):
                    ulp = ulps(float(got[k]), e, got.dtype, s)
                    if ulp > worst[order].ulp:
                        worst[order] = Worst(ulp, row, float(got[k]), float(e))
    return tuple(worst)


def ulps(got: float, exact: Any, dtype: np.dtype[Any], scale: Any = 0) -> float:
    """Return the distance of a result from the exact one in units of the last place.

    Parameters
    ----------
    got : float
        The result.
    exact : mpf
        What it should be; beyond the dtype's range that is infinity.
    dtype : numpy.dtype
        float32 or float64.
    scale : mpf
        Take the last place of this magnitude where it is larger than the exact result.

    Returns
    -------
    float
        inf where one is finite or nan and the other is not.

    Examples
    --------
    >>> ulps(1.0 + 2.0**-23, mpf(1), np.dtype("f4"))
    1.0
    """
    limits = np.finfo(dtype)
    if mp.isnan(exact) or math.isnan(got):
        return 0.0 if mp.isnan(exact) and math.isnan(got) else math.inf
    if abs(exact) > float(limits.max):
        return 0.0 if got == math.copysign(math.inf, exact) else math.inf
    if math.isinf(got):
        return math.inf
    magnitude = max(abs(mpf(exact)), abs(mpf(scale)), mpf(float(limits.tiny)))
    _, exponent = mp.frexp(magnitude)
    unit = mpf(2) ** (exponent - 1 - limits.nmant)
    return float(abs(mpf(got) - exact) / unit)


# -- stating -------------------------------------------------------------------------------------

_HEAD = """# Accuracy of derivatives

Errors of the value, first and second derivatives of each op, and at the end of some functions that
are made of ops, against mpmath, in units in the last place of the exact result: promised, and in
parentheses the largest of {points} random points of each kind and of edge points, measured on the
CPU backend.  Where a result is a difference of larger terms, errors count in the last place of a
magnitude that is named.  `0` is exact.  Written by `tools/measure_derivatives.py`; the promise is
tested by `tests/scalar/test_derivatives.py`.

| op | f32 value | f32 first | f32 second | f64 value | f64 first | f64 second | last place of |
|---|---|---|---|---|---|---|---|
"""


def table(count: int) -> str:
    """Return the docs page, measured at ``count`` points of each kind."""
    rows = []
    for name, case in CASES.items():
        cells = [cell for dtype in DTYPES for cell in _cells(name, dtype, count)]
        rows.append(f"| {' | '.join([name, *cells, case.why.replace('|', chr(92) + '|')])} |\n")
    return _HEAD.format(points=count) + "".join(rows)


def _cells(name: str, dtype: np.dtype[Any], count: int) -> list[str]:
    bound = CASES[name].bound(dtype)
    cells = []
    for order, worst in zip(ORDERS, measure(name, dtype, count), strict=True):
        promised = getattr(bound, order)
        if worst.ulp > promised:
            print(f"{name} {dtype} {order}: {worst.ulp:.3g} > {promised} ulp at {worst.at}: "
                  f"{worst.got} instead of {worst.exact}")  # fmt: skip
        cells.append(f"{promised:g} ({worst.ulp:.2g})" if promised else "0")
    return cells


def main() -> None:
    """Write the docs page; what exceeds its promise is printed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=POINTS, help="random points of each kind")
    parser.add_argument("--print", action="store_true", help="print the page, do not write it")
    options = parser.parse_args()
    page = table(options.points)
    if options.print:
        print(page)
        return
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    TARGET.write_text(page)


if __name__ == "__main__":
    main()
