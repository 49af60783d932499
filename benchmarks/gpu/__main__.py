"""Run mixad and its peers on a CUDA device: ``python -m benchmarks.gpu [work ...]``.

First mixad's values are checked at small sizes; then all is timed but where they are wrong, which
the report and the exit status tell.  The report is written to ``benchmarks/results/`` after every
case, so that a run that is stopped has told what it found.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.gpu import report
from benchmarks.gpu.device import CudaDevice, Device
from benchmarks.gpu.run import ROUNDS, SUBJECT, Result, measured
from benchmarks.gpu.work import Work
from benchmarks.peers.harness import UnavailableError
from benchmarks.peers.report import commit, write_atomically
from benchmarks.progress import progress, say

WORKS = ("overhead", "sums", "hm_lstm", "kepler", "volatility", "bundle", "arity")
RESULTS = Path(__file__).parents[1] / "results"
SMALL = 1 / 64  # of the sides of arrays, where values alone are compared
MINUTES = 8.0


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="work", help=f"of {', '.join(WORKS)}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sides of arrays")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which none is begun")
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(WORKS):
        parser.error(f"no work {', '.join(sorted(unknown))}; there are {', '.join(WORKS)}")
    return options


def works(names: Sequence[str], scale: float, seed: int) -> Iterator[Work]:
    """Yield the works of some modules."""
    for name in names:
        yield from importlib.import_module(f"benchmarks.gpu.{name}").works(scale, seed)


def main(arguments: Sequence[str] | None = None, on: Callable[[], Device] = CudaDevice) -> int:
    """Check, time and write the report.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the command line by default.
    on : callable
        Gives the device.

    Returns
    -------
    int
        1 where mixad's values are wrong, 2 where there is no device.
    """
    options = parse(arguments)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory too
    try:
        device = on()
    except UnavailableError as absent:
        say(f"benchmarks.gpu needs a CUDA device: {absent}")
        return 2
    end = time.monotonic() + 60 * options.minutes
    names = options.names or WORKS
    about = report.environment(device.name, options.seed, commit())
    small = list(checked(names, device, options))
    results: list[Result] = []
    pairs = zip(works(names, options.scale, options.seed), small, strict=True)
    for work, check in progress(pairs, "works", len(small)):
        say(f"{work.name}: {work.title}")
        if check.is_right:
            check = measured(work, device, options.rounds, lambda: time.monotonic() > end)
        results.append(check)
        write(results, about, options.out)
    print(report.markdown(results, about))
    return int(not all(result.is_right for result in results))


def checked(names: Sequence[str], device: Device, options: argparse.Namespace) -> Iterator[Result]:
    """Yield what each work gives at small sizes."""
    for work in works(names, options.scale * SMALL, options.seed):
        say(f"values of {work.name}: {work.title}")
        result = measured(mixad_alone(work), device, rounds=0)
        if not result.is_right:
            say(f"WRONG: {result.outcomes[SUBJECT].reason}")
        yield result


def mixad_alone(work: Work) -> Work:
    """Return a work without the peers: theirs are checked when they are timed."""
    return replace(work, contenders={SUBJECT: work.contenders[SUBJECT]})


def write(results: Sequence[Result], about: dict[str, object], folder: Path) -> None:
    """Replace the report of this device and day by what there is so far."""
    folder.mkdir(parents=True, exist_ok=True)
    device = re.sub(r"\W+", "-", str(about["device"])).strip("-").lower()
    stem = folder / f"{device}-{time.strftime('%Y-%m-%d')}"
    write_atomically(stem.with_suffix(".md"), report.markdown(results, about))
    write_atomically(stem.with_suffix(".json"), report.as_json(results, about))


if __name__ == "__main__":
    sys.exit(main())
