"""``python -m mixad demo``: the HM-LSTM cell update, its gradient checked, then timed.

The cell is that of Chung, Ahn and Bengio, "Hierarchical Multiscale Recurrent Neural Networks"
(2017), the running example of Revels et al., "Dynamic Automatic Differentiation of GPU Broadcast
Kernels" (2018). Two flags choose, per row, between three formulas; a kernel evaluates one.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mixad
from mixad.special import sigmoid, tanh

__all__ = ["Workload", "cell_update", "main", "relative_error", "value_and_vjp_by_hand"]

SIZE = 1024
REPEATS = 15
ACTIVE = ("c", "f", "i", "g")

TOLERANCE = 16 * float(np.finfo(np.float32).eps)
"""Of the largest entry: a few roundings of each of the cell's ten or so operations."""

Array = NDArray[Any]


@mixad.broadcast
def cell_update(z, zb, c, f, i, g):  # type: ignore[no-untyped-def]
    """Return the new cell state: flushed, copied or updated, by the flags of the boundaries."""
    if z == 1.0:  # FLUSH
        return sigmoid(i) * tanh(g)
    elif zb == 0.0:  # COPY
        return c
    return sigmoid(f) * c + sigmoid(i) * tanh(g)  # UPDATE


@dataclass(frozen=True)
class Workload:
    """Inputs of one cell update.

    Flags `z` and `zb`, 0 or 1, have shape (n,) and broadcast along rows, so that neighbours take
    other branches; cell state `c` and gates before activation have shape (n, n), uniform in [0, 1).
    """

    z: Array
    zb: Array
    c: Array
    f: Array
    i: Array
    g: Array
    cotangent: Array  # of the new state

    @classmethod
    def random(cls, n: int, seed: int = 0) -> Workload:
        """Return a workload of f32 arrays with n rows and columns, the same for the same seed."""
        rng = np.random.default_rng(seed)
        z, zb = rng.integers(0, 2, (2, n)).astype(np.float32)
        return cls(z, zb, *rng.random((5, n, n), dtype=np.float32))

    def astype(self, dtype: type[np.floating[Any]]) -> Workload:
        """Return copies of the arrays in another dtype."""
        return Workload(*(array.astype(dtype) for array in vars(self).values()))


def value_and_vjp_by_hand(work: Workload) -> tuple[Array, tuple[Array, ...]]:
    """Return the new state and its gradients with respect to c, f, i, g, in the workload's dtype.

    NumPy evaluates formulas derived on paper.
    """
    flush = work.z == 1
    copy = ~flush & (work.zb == 0)
    sigma_f = 1 / (1 + np.exp(-work.f))
    sigma_i = 1 / (1 + np.exp(-work.i))
    tanh_g = np.tanh(work.g)
    gated = sigma_i * tanh_g
    value = np.where(flush, gated, np.where(copy, work.c, sigma_f * work.c + gated))

    zero = work.c.dtype.type(0)
    kept = np.where(flush, zero, np.where(copy, work.c.dtype.type(1), sigma_f))
    forgotten = np.where(flush | copy, zero, work.c * sigma_f * (1 - sigma_f))
    chosen = np.where(copy, zero, tanh_g * sigma_i * (1 - sigma_i))
    written = np.where(copy, zero, sigma_i * (1 - tanh_g * tanh_g))
    partials = (kept, forgotten, chosen, written)
    return value, tuple(work.cotangent * partial for partial in partials)


def relative_error(got: Array, expected: Array) -> float:
    """Return the largest difference, as a share of the largest expected entry.

    It is infinite if an entry is not finite or the shapes differ.
    """
    if got.shape != expected.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - expected).max() / np.abs(expected).max())


def main(size: int = SIZE, repeats: int = REPEATS) -> int:
    """Check the gradient against one derived by hand in f64, then print a table of times.

    Times are medians of ``repeats`` calls. The exit status is 1 if the gradient is wrong.
    """
    work = Workload.random(size)
    print(f"HM-LSTM cell update, {size} x {size}, float32, gradient with respect to c, f, i, g\n")
    started = time.perf_counter()
    _value_and_vjp(work)
    first = time.perf_counter() - started
    correct = _check(work)
    if correct:
        _print_times(work, first, repeats)
    return 0 if correct else 1


def _value_and_vjp(work: Workload) -> tuple[Array, tuple[Array, ...]]:
    def update(c: Array, f: Array, i: Array, g: Array) -> Any:
        return cell_update(work.z, work.zb, c, f, i, g)

    primals = (work.c, work.f, work.i, work.g)
    value, cotangents = mixad.value_and_vjp(update, primals, work.cotangent)
    return value, tuple(cotangents)


def _gradient_of_weighted_sum(work: Workload) -> tuple[Array, ...]:
    def loss(c: Array, f: Array, i: Array, g: Array) -> Any:
        return (cell_update(work.z, work.zb, c, f, i, g) * work.cotangent).sum()

    gradient = mixad.grad(loss, argnums=(0, 1, 2, 3))
    return tuple(gradient(work.c, work.f, work.i, work.g))


def _check(work: Workload) -> bool:
    """Print the errors of the value and of the gradients; return whether all are small."""
    value, gradients = value_and_vjp_by_hand(work.astype(np.float64))
    got_value, got_gradients = _value_and_vjp(work)
    errors = {"value": relative_error(got_value, value)}
    for way, got in [
        ("value_and_vjp", got_gradients),
        ("grad", _gradient_of_weighted_sum(work)),
    ]:
        for name, ours, theirs in zip(ACTIVE, got, gradients, strict=True):
            errors[f"d{name} by {way}"] = relative_error(ours, theirs)
    print(f"largest difference from formulas in float64 (allowed {TOLERANCE:.1e})")
    for name, error in errors.items():
        print(f"  {name:22} {error:8.1e}  {'ok' if error <= TOLERANCE else 'WRONG'}")
    return all(error <= TOLERANCE for error in errors.values())


def _print_times(work: Workload, first: float, repeats: int) -> None:
    calls: dict[str, Callable[[], object]] = {
        "NumPy, formulas by hand": lambda: value_and_vjp_by_hand(work),
        "mixad.value_and_vjp": lambda: _value_and_vjp(work),
        "mixad.grad of a sum": lambda: _gradient_of_weighted_sum(work),
        "copying as many bytes": _copier(work),
    }
    medians = {name: _median_seconds(call, repeats) for name, call in calls.items()}
    yardstick = next(iter(medians.values()))
    print(f"\n{'value and four gradients':26} {'ms':>8} {'NumPy takes':>14}")
    for name, seconds in medians.items():
        print(f"{name:26} {seconds * 1e3:8.2f} {yardstick / seconds:12.1f} x")
    print(f"\nfirst call, compiling included: {first * 1e3:.0f} ms; medians of {repeats} calls")


def _copier(work: Workload) -> Callable[[], object]:
    """Return a call that reads and writes five full arrays each, as value and gradients do."""
    source = np.stack([work.c, work.f, work.i, work.g, work.cotangent])
    target = np.empty_like(source)
    return lambda: np.copyto(target, source)


def _median_seconds(call: Callable[[], object], repeats: int) -> float:
    call()  # a first one, so that no row pays for pages or caches that later rows find warm
    return statistics.median(_seconds(call) for _ in range(repeats))


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
