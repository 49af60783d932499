"""When partials are computed: what the passes take, and how much is held between them.

A value is made first (`mixad.vjp`), its cotangent comes later.  With ``placement="forward"``
partials are stored with the value, with ``"reverse"`` they are computed when the cotangent comes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mixad
from benchmarks.gpu import hm_lstm, kepler
from benchmarks.gpu.device import Device
from benchmarks.gpu.elementwise import Elementwise
from benchmarks.gpu.tried import Tried, tried
from benchmarks.gpu.work import FLOAT32, sampled
from benchmarks.paper import operations
from benchmarks.paper.cases import Expected, Row
from benchmarks.paper.cell import PURE
from benchmarks.paper.host import for_torch
from benchmarks.peers.harness import (
    Comparison,
    Tolerance,
    compare,
    largest_error,
    paired_times,
    summarise,
)
from mixad.backends.cpu import buffers

SIDE = 2048
COUNT = 1_000_000
PLACEMENTS = ("reverse", "forward", "auto")
BASE = "mixad, placement reverse"
EAGER = "PyTorch eager"

Passes = Callable[[], tuple[Any, Callable[[], Sequence[Any]]]]
"""Makes a value; returns it and what makes the gradients for the cotangent."""


@dataclass(frozen=True)
class Split:
    """A gradient in two passes.

    Attributes
    ----------
    passes : Passes
        The forward pass, which returns the backward pass.
    held : callable
        Returns the bytes that are alive between them beside the inputs and the value.
    get : callable
        From an array of the library to NumPy.
    wait : callable
        Returns when all that was asked for is done.
    """

    passes: Passes
    held: Callable[[], int]
    get: Callable[[Any], NDArray]
    wait: Callable[[], Any]


Make = Callable[[Device], Split]


@dataclass(frozen=True)
class Problem:
    """A function whose placement matters."""

    title: str
    e: Elementwise
    expected: Expected
    tolerance: Tolerance
    ways: Mapping[str, Make]


def problems(scale: float, seed: int) -> Iterator[Problem]:
    """Yield the cell, whose arithmetic is hidden by memory, and a loop that is dear."""
    side = max(8, int(SIDE * scale))
    cell = hm_lstm.problem(hm_lstm.drawn((side,), seed), side, seed + 1)
    ways = by_placements(cell) | {PURE: partial(pure, cell), EAGER: partial(eager, cell)}
    yield Problem(f"HM-LSTM, {side}²", cell, partial(hm_lstm.expected, cell), FLOAT32, ways)
    count = max(1000, int(COUNT * scale * scale))
    loop = kepler.problem(count, np.float64, seed)
    tolerance = kepler.TOLERANCES[np.float64]
    ways = by_placements(loop) | {f"{EAGER}, fixed steps": partial(eager, loop)}
    title = f"Kepler's equation, {count:,}"
    yield Problem(title, loop, partial(kepler.expected, loop), tolerance, ways)


def by_placements(e: Elementwise) -> dict[str, Make]:
    """Return mixed mode with each placement."""
    return {f"mixad, placement {p}": partial(mixed, e, p) for p in PLACEMENTS}


# -- the ways --------------------------------------------------------------------------------------


def mixed(e: Elementwise, placement: str, device: Device) -> Split:
    """Return mixed mode."""
    kernel = mixad.broadcast(placement=placement)(e.kernel)
    return by_vjp(e, device, kernel)


def pure(e: Elementwise, device: Device) -> Split:
    """Return pure reverse mode, unfused: see `benchmarks.paper.operations`."""
    return by_vjp(e, device, operations.cell)


def by_vjp(e: Elementwise, device: Device, function: Callable[..., Any]) -> Split:
    """Return a function of mixad in two passes."""
    constants, active, cotangent = e.on(device)

    def passes() -> tuple[Any, Callable[[], Sequence[Any]]]:
        value, pullback = mixad.vjp(lambda *arrays: function(*constants, *arrays), *active)
        return value, lambda: pullback(cotangent)

    held = held_on_host if device.platform == "cpu" else held_by_allocator
    return Split(passes, partial(held, passes), device.get, device.wait)


def eager(e: Elementwise, device: Device) -> Split:
    """Return torch's own tape."""
    import torch

    own = for_torch(device)
    constants, active, cotangent = e.on(own)
    assert e.by_arrays is not None
    function = partial(e.by_arrays, torch, *constants)

    def passes() -> tuple[Any, Callable[[], Sequence[Any]]]:
        tracked = [x.detach().requires_grad_() for x in active]
        value = function(*tracked)
        return value, lambda: torch.autograd.grad(value, tracked, cotangent)

    return Split(passes, partial(held_by_torch, passes, active), own.get, own.wait)


# -- what is held ----------------------------------------------------------------------------------


def held_on_host(passes: Passes) -> int:
    """Return what mixad's pool of memory gets back when the backward pass is let go of.

    The pool is emptied first; inputs and value stay alive.
    """
    value, backward = passes()
    gc.collect()
    buffers.clear()
    del backward
    gc.collect()
    held = buffers.retained_bytes()
    del value
    return held


def held_by_allocator(passes: Passes) -> int:
    """Return what torch's allocator gets back."""
    import torch

    value, backward = passes()
    gc.collect()
    before = torch.cuda.memory_allocated()
    del backward
    gc.collect()
    held = before - torch.cuda.memory_allocated()
    del value
    return held


def held_by_torch(passes: Passes, inputs: Sequence[Any]) -> int:
    """Return the bytes of the tensors that torch saves, each memory once."""
    import torch

    saved: dict[int, int] = {}

    def note(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        value, _ = passes()
    for other in (*inputs, value):
        saved.pop(other.untyped_storage().data_ptr(), None)
    return sum(saved.values())


# -- measuring -------------------------------------------------------------------------------------


def measured(problem: Problem, device: Device, rounds: int, seed: int = 0) -> list[Row]:
    """Check and time the ways of a problem; each pass alone, and both together.

    Parameters
    ----------
    problem : Problem
        With its ways.
    device : Device
        A CUDA device, or the host.
    rounds : int
        Turns of the fast ways; 0: values and bytes alone.
    seed : int
        Of the order of turns.
    """
    splits, rows = {}, {}
    for name, make in problem.ways.items():
        found = tried(partial(make, device), partial(error_of, problem))
        rows[name] = untimed(problem, name, found)
        if found.made is not None and rounds:
            splits[name] = found.made
    turns = {(n, part): turn_of(s, part) for n, s in splits.items() for part in PARTS}
    keyed = {" / ".join(key): turn for key, turn in turns.items()}
    times = paired_times(keyed, rounds, seed=seed) if keyed else {}
    return [timed(row, times) for row in rows.values()]


PARTS = ("forward pass", "backward pass", "both")


def untimed(problem: Problem, name: str, found: Tried[Split]) -> Row:
    """Return a row with what a way holds between its passes, or why it cannot be timed."""
    held = {} if found.made is None else {"held": found.made.held()}
    error, reason = found.error, found.reason
    return Row("placement", problem.title, name, error=error, reason=reason, facts=held)


def error_of(problem: Problem, split: Split) -> float:
    """Return the largest error of value and gradients, over the tolerance."""
    value, backward = split.passes()
    found = [value, *backward()]
    split.wait()
    got = [sampled(split.get(array)) for array in found]
    return largest_error(got, list(problem.expected()), problem.tolerance)


def turn_of(split: Split, part: str) -> Callable[[], float]:
    """Return a turn that times one pass, or both."""

    def turn() -> float:
        split.wait()
        begun = time.perf_counter()
        value, backward = split.passes()
        if part == "forward pass":
            split.wait()
            return time.perf_counter() - begun
        if part == "backward pass":
            split.wait()
            begun = time.perf_counter()
        gradients = backward()
        split.wait()
        seconds = time.perf_counter() - begun
        del value, gradients
        return seconds

    return turn


def timed(row: Row, times: Mapping[str, NDArray[np.float64]]) -> Row:
    """Return a row with its times: of both passes, and each pass among its facts."""
    both = f"{row.contender} / both"
    if both not in times:
        return row
    passes = {p: asdict(summarise(times[f"{row.contender} / {p}"])) for p in PARTS[:2]}
    ratio = None if row.contender == BASE else compare(times, Comparison(both, f"{BASE} / both"))
    return Row(
        row.experiment,
        row.case,
        row.contender,
        call=summarise(times[both]),
        ratio=ratio,
        over="" if ratio is None else BASE,
        error=row.error,
        facts={**row.facts, **passes},
    )
