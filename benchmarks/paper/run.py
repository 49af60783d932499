"""Check every way of a case, then time those whose values are right, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.gpu.device import Device, call_seconds
from benchmarks.gpu.tried import Tried, tried
from benchmarks.gpu.work import Made, sampled
from benchmarks.paper.cases import Case, Row, Way
from benchmarks.peers.harness import (
    Comparison,
    Summary,
    Times,
    compare,
    largest_error,
    paired_times,
    summarise,
)

Turn = Callable[[], float]


@dataclass(frozen=True)
class Ready:
    """A way, and what came of trying it."""

    way: Way
    tried: Tried[Made]


def measured(case: Case, device: Device, rounds: int, seed: int = 0) -> list[Row]:
    """Check and time a case.

    Parameters
    ----------
    case : Case
        With its ways.
    device : Device
        A CUDA device, or the host.
    rounds : int
        Turns of the fast ways; 0: values alone.
    seed : int
        Of the order of turns.

    Returns
    -------
    list of Row
        One for each way; those that could not run have the reason.
    """
    ready = {name: prepared(way, case, device) for name, way in case.ways.items()}
    running = {name: r for name, r in ready.items() if r.tried.made is not None and rounds}
    kernels = kernel_times(running, device, rounds, seed)
    turns = {
        name: turn_of(fetched(r.tried.made, device))
        for name, r in running.items()
        if not (r.way.is_kernel and device.platform == "cpu")
    }
    calls = paired_times(turns, rounds, seed=seed) if turns else {}
    return [row(case, name, r, kernels, calls) for name, r in ready.items()]


def prepared(way: Way, case: Case, device: Device) -> Ready:
    """Make a way and compare its values."""
    return Ready(way, tried(partial(way.make, device), partial(error_of, way, case, device)))


def error_of(way: Way, case: Case, device: Device, made: Made) -> float | None:
    """Return the largest error of a call, over the tolerance; None where nothing is compared."""
    found = fetched(made, device)()
    if way.expected is None:
        return None
    return largest_error(list(map(sampled, found)), list(way.expected()), case.tolerance)


def fetched(made: Made, device: Device) -> Callable[[], list[np.ndarray]]:
    """Return a call that ends when all its results are on the host."""
    wait, get = made.wait or device.wait, made.get or device.get

    def call() -> list[np.ndarray]:
        result = made.call()
        wait()
        return [get(array) for array in made.unpack(result)]

    return call


def turn_of(call: Callable[[], Any]) -> Turn:
    """Return a turn of `paired_times`: one call, whose result is let go of after the clock."""

    def turn() -> float:
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
        del result
        return seconds

    return turn


def kernel_times(
    running: Mapping[str, Ready], device: Device, rounds: int, seed: int
) -> Mapping[str, np.ndarray]:
    """Return what runs on the device, round by round; on the host, launches in turns."""
    if device.platform == "cpu":
        launches = {name: launch_of(r, device) for name, r in running.items()}
        turns = {name: turn_of(launch) for name, launch in launches.items() if launch is not None}
        return paired_times(turns, rounds, seed=seed) if turns else {}
    return {name: device_seconds(r, device, rounds) for name, r in running.items()}


def launch_of(ready: Ready, device: Device) -> Callable[[], Any] | None:
    """Return what launches a kernel and nothing else; None where that is not to be had."""
    if ready.way.alone is not None:
        return ready.way.alone(device)
    made = ready.tried.made
    return made.call if ready.way.is_kernel and made is not None else None


def device_seconds(ready: Ready, device: Device, rounds: int) -> np.ndarray:
    """Return what the device takes: by replaying a graph, or in a loop for other libraries."""
    made = ready.tried.made
    assert made is not None
    if ready.way.clock == "graph":
        return device.kernel_seconds(made.call, rounds)
    return call_seconds(made.call, made.wait or device.wait, rounds)


def row(case: Case, name: str, ready: Ready, kernels: Times, calls: Times) -> Row:
    """Return what a way gave; its ratio is of kernels, or of calls where these alone are known."""
    way = ready.way
    told = {} if ready.tried.made is None or way.facts is None else way.facts()
    series = kernels if name in kernels and way.over in kernels else calls
    ratio = compare(series, Comparison(name, way.over)) if way.over and name in series else None
    return Row(
        experiment=case.experiment,
        case=case.title,
        contender=name,
        kernel=summary(kernels, name),
        call=summary(calls, name),
        ratio=ratio,
        over=way.over,
        bytes_moved=way.bytes_moved,
        error=ready.tried.error,
        reason=ready.tried.reason,
        facts=told,
    )


def summary(times: Times, name: str) -> Summary | None:
    """Return a series' summary; None where there is none."""
    return summarise(times[name]) if name in times else None


def is_right(rows: Sequence[Row]) -> bool:
    """Whether mixad gave the values that were expected, wherever it was asked."""
    own = (r.error for r in rows if r.contender.startswith("mixad") and r.error is not None)
    return all(error <= 1 for error in own)
