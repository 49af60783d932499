"""What ``auto`` chooses, against every choice that can be forced.

``python -m benchmarks.choices`` times a value and its gradients, the value first (`mixad.vjp`, then
the pullback), for 1 … 24 inputs, three kernels and eight mixes of how many inputs have full size,
how many are active, and what a factor costs.  Each placement is forced with the fewest passes that
a chunk of ten partials allows, and with one and two passes more; without loops, reverse
accumulation is too.  The table has the time of
``auto`` over that of the best; a time is the lower quartile of runs that take turns.  Below it are
the cases beyond the tolerance with a bootstrap interval of the ratio, of 95 %; where that lies
beyond the tolerance altogether, the exit status is 1.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mixad
from benchmarks.progress import progress

ARITIES = range(1, 25)
SIDE = 1 << 10  # of the broadcast shape (SIDE, SIDE): a float32 array of it has 4 MiB
ROUNDS = 12
MORE_PASSES = 2
TOLERANCE = 1.1
DRAWS = 2000

FACTORS = {"cheap": "({0} + 0.5 * {0} * {0})", "dear": "math.tanh({0})"}

# How the factors of a kernel are put together; `x` is the first argument.
KERNELS = {
    "product": "    return {product}\n",
    "branches": "    if x > 0.5:\n        return {product}\n    return {sum}\n",
    "loop": ("    y = x\n    while y < 4.0:\n        y = y * y + 0.75\n    return y * ({sum})\n"),
}


@dataclass(frozen=True)
class Mix:
    """What the inputs of a case are like.

    Attributes
    ----------
    full : "all" or "half"
        How many have the broadcast shape; the others are rows.
    active : "all" or "half"
        How many are differentiated, the first ones.
    cost : "cheap" or "dear"
        Of a factor.
    """

    full: str
    active: str
    cost: str

    def __str__(self) -> str:
        return f"{self.full} full, {self.active} active, {self.cost}"


MIXES = [Mix(*m) for m in itertools.product(("all", "half"), ("all", "half"), FACTORS)]


@dataclass(frozen=True)
class Outcome:
    """Seconds of each run by choice; the first one is ``auto``."""

    kernel: str
    mix: Mix
    arity: int
    runs: dict[str, NDArray]

    @property
    def seconds(self) -> dict[str, float]:
        """The lower quartiles."""
        return {name: float(quartile(runs)) for name, runs in self.runs.items()}

    @property
    def best(self) -> str:
        """The fastest of the forced choices."""
        return min(list(self.seconds)[1:], key=self.seconds.__getitem__)

    @property
    def ratio(self) -> float:
        """Of ``auto`` over the best."""
        return self.seconds["auto"] / self.seconds[self.best]

    @property
    def interval(self) -> tuple[float, float]:
        """Where the ratio to the one that was best lies, by drawing among the runs again."""
        rng = np.random.default_rng(0)
        auto, best = (
            quartile(rng.choice(self.runs[name], (DRAWS, len(self.runs[name]))))
            for name in ("auto", self.best)
        )
        low, high = np.quantile(auto / best, (0.025, 0.975))
        return float(low), float(high)

    @property
    def is_beyond(self) -> bool:
        """Whether ``auto`` is slower than the tolerance allows, whatever the runs' noise is."""
        return self.interval[0] > TOLERANCE


def quartile(runs: NDArray) -> NDArray:
    """Return the lower quartile along the last axis."""
    return np.quantile(runs, 0.25, axis=-1)


def text_of(kernel: str, cost: str, arity: int) -> str:
    """Return the source of a kernel of so many arguments."""
    names = ["x", *(f"x{k}" for k in range(1, arity))]
    factors = [FACTORS[cost].format(name) for name in names]
    body = KERNELS[kernel].format(product=" * ".join(factors), sum=" + ".join(factors))
    return f"def {kernel}_{cost}_{arity}({', '.join(names)}):\n{body}\n\n"


def written(folder: Path, arities: Sequence[int]) -> ModuleType:
    """Return a module of all kernels; parsing them takes a file."""
    texts = (text_of(k, c, n) for k in KERNELS for c in FACTORS for n in arities)
    path = folder / "choices_kernels.py"
    path.write_text("import math\n\n\n" + "".join(texts), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def choices(kernel: str, active: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return options by name, ``auto`` first."""
    yield "auto", {}
    fewest = -(-active // 10)
    passes = range(fewest, min(fewest + MORE_PASSES, active) + 1)
    chunks = dict.fromkeys(-(-active // p) for p in passes)
    for placement, chunk in itertools.product(("forward", "reverse"), chunks):
        yield f"{placement}, chunk {chunk}", {"placement": placement, "chunk": chunk}
    if kernel != "loop":
        yield "in reverse", {"placement": "reverse", "strategy": "reverse"}


def value_then_gradients(
    kernel: Callable, xs: Sequence[NDArray], active: int, cotangent: NDArray
) -> Callable[[], object]:
    """Return what is timed: partials could be kept between the two."""
    rest = xs[active:]

    def function(*inputs):
        return kernel(*inputs, *rest)

    def run() -> object:
        value, pullback = mixad.vjp(function, *xs[:active])
        return value, pullback(cotangent)

    return run


def runs_of(turns: dict[str, Callable[[], object]], rounds: int) -> dict[str, NDArray]:
    """Return the seconds of each, after a first call that is not counted."""
    rng = np.random.default_rng(0)
    names = list(turns)
    times: dict[str, list[float]] = {name: [] for name in names}
    for turn in turns.values():
        turn()
    for _ in range(rounds):
        for k in rng.permutation(len(names)):
            turns[names[k]]()  # the caches and buffers of its own
            started = time.perf_counter()
            turns[names[k]]()
            times[names[k]].append(time.perf_counter() - started)
    return {name: np.asarray(values) for name, values in times.items()}


def outcome(
    kernels: ModuleType, kernel: str, mix: Mix, arity: int, side: int, rounds: int
) -> Outcome:
    """Time one case."""
    rng = np.random.default_rng(arity)
    full = arity if mix.full == "all" else -(-arity // 2)
    active = arity if mix.active == "all" else -(-arity // 2)
    shapes = [(side, side)] * full + [(side,)] * (arity - full)
    xs = [rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes]
    cotangent = rng.standard_normal((side, side), dtype=np.float32)
    function = mixad.broadcast(getattr(kernels, f"{kernel}_{mix.cost}_{arity}"))
    turns = {
        name: value_then_gradients(function.with_options(**options), xs, active, cotangent)
        for name, options in choices(kernel, active)
    }
    return Outcome(kernel, mix, arity, runs_of(turns, rounds))


def report(outcomes: Sequence[Outcome]) -> str:
    """Return a table of the ratios and a list of those beyond the tolerance."""
    arities = sorted({o.arity for o in outcomes})
    rows = ["| kernel | inputs | " + " | ".join(map(str, arities)) + " |"]
    rows.append("|---" * (len(arities) + 2) + "|")
    for (kernel, mix), group in itertools.groupby(outcomes, key=lambda o: (o.kernel, o.mix)):
        ratios = " | ".join(f"{o.ratio:.2f}" for o in group)
        rows.append(f"| {kernel} | {mix} | {ratios} |")
    beyond = [o for o in outcomes if o.ratio > TOLERANCE]
    rows.append(f"\n{len(beyond)} of {len(outcomes)} beyond {TOLERANCE}:\n")
    for o in sorted(beyond, key=lambda o: -o.ratio):
        times = ", ".join(f"{name} {seconds * 1e3:.2f}" for name, seconds in o.seconds.items())
        low, high = o.interval
        case = f"{o.kernel}, {o.mix}, {o.arity} inputs"
        rows.append(f"- {case}: {o.ratio:.2f} [{low:.2f}, {high:.2f}] (ms: {times})")
    certain = sum(o.is_beyond for o in beyond)
    rows.append(f"\n{certain} of {len(outcomes)} beyond it with their whole interval")
    return "\n".join(rows)


def main() -> int:
    """Print the report; 1 where a choice of ``auto`` is beyond the tolerance."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--arities", type=int, nargs="+", default=list(ARITIES))
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=list(KERNELS))
    parser.add_argument("--side", type=int, default=SIDE)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    cases = list(itertools.product(asked.kernels, MIXES, asked.arities))
    with tempfile.TemporaryDirectory() as folder:
        kernels = written(Path(folder), asked.arities)
        outcomes = [
            outcome(kernels, *case, asked.side, asked.rounds) for case in progress(cases, "cases")
        ]
    print(report(outcomes))
    return int(any(o.is_beyond for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
