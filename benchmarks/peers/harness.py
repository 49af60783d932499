"""Timing in turns, ratios pair by pair, and their statistics.

A *round* gives every contender one turn, in an order drawn anew each round. A turn waits until the
worker threads of the one before have stopped spinning, makes `LEAD` untimed calls so that each
contender meets the caches and buffers it would meet in a loop of its own, and times one call.
Ratios are taken within rounds, never between medians of different times of day.

A call allocates its results. They go into a ring of the last ``keep`` results: with ``keep=0`` the
caller lets go of each at once, with more it holds some for a while. The time of a call includes
freeing the result that the ring lets go, which is what a caller's loop would pay.
"""

from __future__ import annotations

import math
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

ROUNDS = 40
KEPT = 3  # results held in the variant where the caller keeps some
LEAD = 3  # untimed calls before each timed one: fewer leave some peers slower than in a loop
SETTLE = 0.004  # seconds of silence before a turn: workers of OpenMP, Eigen and Dr.Jit spin on
SLOW = 0.02  # seconds; a contender slower than this sits rounds out, in proportion
MIN_TURNS = 8  # but has at least so many turns
RESAMPLES = 2000
CONFIDENCE = 0.95


class UnavailableError(Exception):
    """A contender cannot do this work; the message says why."""


Call = Callable[[], object]
Unpack = Callable[[object], Sequence[NDArray]]
Times = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Contender:
    """One implementation of a case's work.

    Parameters
    ----------
    make : callable
        Returns ``(call, unpack)``: one call of the work, with its results allocated by the call,
        and the NumPy arrays in such a result. Raises where the work cannot be done.
    expected : sequence of ndarray
        What those arrays must equal; empty where there is nothing to check.
    self_timed : bool
        The call returns its own seconds, as a subprocess does.
    """

    make: Callable[[], tuple[Call, Unpack]]
    expected: Sequence[NDArray] = ()
    self_timed: bool = False


@dataclass(frozen=True)
class Tolerance:
    """Largest accepted error: ``relative * |expected| + scaled * max |expected|``."""

    relative: float
    scaled: float


@dataclass(frozen=True)
class Target:
    """A ratio, or seconds, to reach.

    With ``by_interval`` it is met as soon as the interval of the median includes or lies below the
    limit; otherwise the median itself must not exceed it.
    """

    limit: float
    by_interval: bool = False

    def met(self, summary: Summary) -> bool:
        return (summary.low if self.by_interval else summary.median) <= self.limit

    def __str__(self) -> str:
        return f"≤ {self.limit:g}" + (" (interval)" if self.by_interval else "")


@dataclass(frozen=True)
class Comparison:
    """``subject / against``, pair by pair; ``subject`` itself where ``against`` is None."""

    subject: str
    against: str | None
    target: Target | None = None


@dataclass(frozen=True)
class Case:
    """What is timed in the same rounds, and what is compared.

    Parameters
    ----------
    workload, title : str
        Where it stands in the report.
    contenders : mapping
        By name, in the order of the report.
    comparisons : sequence of Comparison
        Between contenders or derived series.
    tolerance : Tolerance
        For the check of every contender's values.
    derived : mapping
        Series computed from the times of a round, such as a difference or a time per byte.
    keeps : tuple of int
        Sizes of the ring of results; the case is timed once with each.
    rounds, lead : int, optional
        Where the case needs other than the defaults.
    """

    workload: str
    title: str
    contenders: Mapping[str, Contender]
    comparisons: Sequence[Comparison]
    tolerance: Tolerance = Tolerance(0.0, 0.0)
    derived: Mapping[str, Callable[[Times], NDArray[np.float64]]] = field(default_factory=dict)
    keeps: tuple[int, ...] = (0, KEPT)
    rounds: int | None = None
    lead: int = LEAD


@dataclass(frozen=True)
class Summary:
    """Median, bootstrap interval of the median, and spread of a series."""

    median: float
    low: float
    high: float
    p10: float
    p90: float
    count: int


@dataclass(frozen=True)
class Measurement:
    """Everything one case gave, for one size of the ring."""

    workload: str
    title: str
    keep: int
    series: Mapping[str, Summary]
    absent: Mapping[str, str]
    first_call: Mapping[str, float]
    errors: Mapping[str, float]
    ratios: Sequence[tuple[Comparison, Summary | None]]


def summarise(values: NDArray[np.float64], seed: int = 0) -> Summary:
    """Summarise the finite entries of a series.

    Parameters
    ----------
    values : ndarray
        At least one finite entry; NaN marks a round that a contender sat out.
    seed : int
        Of the resampling, so that the same times give the same interval.

    Returns
    -------
    Summary
        The interval is the percentile bootstrap of the median (Efron and Tibshirani, 1993, §13.3)
        at `CONFIDENCE`.
    """
    values = values[np.isfinite(values)]
    draws = np.random.default_rng(seed).choice(values, (RESAMPLES, values.size))
    tail = 50 * (1 - CONFIDENCE)
    low, high = np.percentile(np.median(draws, axis=1), (tail, 100 - tail))
    p10, p90 = np.percentile(values, (10, 90))
    return Summary(
        float(np.median(values)), float(low), float(high), float(p10), float(p90), values.size
    )


def compare(times: Times, comparison: Comparison, seed: int = 0) -> Summary | None:
    """Summarise one comparison.

    Returns
    -------
    Summary or None
        None where a side was not timed, or no round has both.
    """
    if comparison.subject not in times:
        return None
    values = times[comparison.subject]
    if comparison.against is not None:
        if comparison.against not in times:
            return None
        values = values / times[comparison.against]
    return summarise(values, seed) if np.isfinite(values).any() else None


def largest_error(
    got: Sequence[NDArray], expected: Sequence[NDArray], tolerance: Tolerance
) -> float:
    """Return the largest error as a multiple of the tolerance; every result is finite."""
    if len(got) != len(expected):
        raise ValueError(f"{len(got)} arrays returned, {len(expected)} expected")
    worst = 0.0
    for actual, wanted in zip(got, expected, strict=True):
        if actual.size != wanted.size:
            raise ValueError(f"an array of {actual.size} elements, {wanted.size} expected")
        if not np.isfinite(actual).all():
            return np.inf
        error = np.abs(actual.astype(np.float64).reshape(wanted.shape) - wanted)
        size = np.abs(wanted)
        accepted = tolerance.relative * size + tolerance.scaled * size.max(initial=0.0)
        excess = error / np.maximum(accepted, np.finfo(float).tiny)
        worst = max(worst, float(excess.max(initial=0.0)))
    return worst


def why(error: Exception) -> str:
    """Return the reason of an absence in one line, without paths of this machine."""
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"not installed ({error.name})"
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = re.sub(r"(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"]+[/\\])+", "", lines[0])
    kind = "" if isinstance(error, UnavailableError) else f"{type(error).__name__}: "
    return (kind + text)[:160]


@dataclass(frozen=True)
class Ready:
    """Contenders of a case that ran once and gave the expected values, and the others' reasons."""

    calls: Mapping[str, Call]
    absent: Mapping[str, str]
    first_call: Mapping[str, float]
    errors: Mapping[str, float]


def prepare(case: Case, say: Callable[[str], None] = lambda text: None) -> Ready:
    """Make every contender, call it once and check its values."""
    calls: dict[str, Call] = {}
    absent: dict[str, str] = {}
    first_call: dict[str, float] = {}
    errors: dict[str, float] = {}
    for name, contender in case.contenders.items():
        say(f"  {name}")
        try:
            call, unpack = contender.make()
            start = time.perf_counter()
            result = call()
            first = time.perf_counter() - start
            error = largest_error(unpack(result), contender.expected, case.tolerance)
        except Exception as problem:  # whatever a peer raises, it is listed with its reason
            absent[name] = why(problem)
            if not isinstance(problem, (ModuleNotFoundError, UnavailableError)):
                errors[name] = math.inf  # it is there, and gives nothing
            continue
        if contender.expected:
            errors[name] = error
        if error > 1:
            absent[name] = f"wrong values: {error:.1e} × the tolerance"
            continue
        calls[name] = call
        if not contender.self_timed:
            first_call[name] = first
    return Ready(calls, absent, first_call, errors)


def stopwatch(call: Call, keep: int) -> Callable[[], float]:
    """Return a turn: one call whose result enters a ring of the last ``keep``; its seconds."""
    ring: deque[object] = deque(maxlen=keep)

    def turn() -> float:
        start = time.perf_counter()
        ring.append(call())
        return time.perf_counter() - start

    return turn


def paired_times(
    turns: Mapping[str, Callable[[], float]],
    rounds: int = ROUNDS,
    *,
    lead: int = LEAD,
    settle: float = SETTLE,
    seed: int = 0,
) -> Times:
    """Time all turns round by round.

    Parameters
    ----------
    turns : mapping
        Callables that do the work once and return its seconds.
    rounds : int
        Turns of the fastest contenders. Those slower than `SLOW` take part in every second,
        third, … round, `MIN_TURNS` of them at least.
    lead : int
        Untimed calls before each timed one; one at most for those slower than `SLOW`.
    settle : float
        Seconds of silence before each turn.
    seed : int
        Of the order of turns.

    Returns
    -------
    mapping
        One array of seconds per name, one entry per round, NaN where it sat out.
    """
    rng = np.random.default_rng(seed)
    names = list(turns)
    longest_stride = max(1, rounds // MIN_TURNS)
    costs = {name: min(turn() for _ in range(2)) for name, turn in turns.items()}
    strides = {name: min(1 + int(costs[name] / SLOW), longest_stride) for name in names}
    leads = {name: lead if costs[name] < SLOW else min(lead, 1) for name in names}
    times = {name: np.full(rounds, np.nan) for name in names}
    for round_ in range(rounds):
        for k in rng.permutation(len(names)):
            name = names[k]
            if round_ % strides[name]:
                continue
            time.sleep(settle)
            for _ in range(leads[name]):
                turns[name]()
            times[name][round_] = turns[name]()
    return times


def measure(
    case: Case,
    rounds: int = ROUNDS,
    *,
    seed: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Iterable[Measurement]:
    """Prepare a case once and time it with every size of its ring."""
    ready = prepare(case, say)
    for keep in case.keeps:
        say(f"  timing, {keep} results kept")
        turns = {
            name: call if case.contenders[name].self_timed else stopwatch(call, keep)
            for name, call in ready.calls.items()
        }
        times = dict(paired_times(turns, case.rounds or rounds, lead=case.lead, seed=seed))
        absent = dict(ready.absent)
        for name, compute in case.derived.items():
            try:
                times[name] = compute(times)
            except KeyError as missing:
                absent[name] = f"{missing.args[0]} was not timed"
        yield Measurement(
            case.workload,
            case.title,
            keep,
            {name: summarise(values, seed) for name, values in times.items()},
            absent,
            ready.first_call,
            ready.errors,
            [(comparison, compare(times, comparison, seed)) for comparison in case.comparisons],
        )
