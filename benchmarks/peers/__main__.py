"""Run the comparison: ``python -m benchmarks.peers [workload ...]``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks.peers import THREAD_VARIABLES
from benchmarks.progress import progress, say

WORKLOADS = (
    "hm_lstm",
    "hm_lstm_grad",
    "kepler",
    "bundle",
    "volatility",
    "real_kernels",
    "arity",
    "chain12",
    "sum_broadcast",
    "rosenbrock_hvp",
    "gmm",
    "dlstm",
    "programs",
    "constructs",
    "loops",
    "gathers",
    "larger_than_memory",
    "tiny",
    "startup",
)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.peers", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="workload", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--sizes", nargs="+", type=int, help="instead of each workload's own")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--markdown", type=Path, metavar="OUT")
    parser.add_argument("--json", type=Path, metavar="OUT")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(WORKLOADS):
        parser.error(f"no workload {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}")
    return options


def limit_threads(count: int) -> None:
    """Give every library so many threads: by its variable, and by the processors it may use.

    NumPy's matrix product reads its variable when it is imported: hence what imports NumPy is
    imported after this.
    """
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])


def main() -> int:
    """Run, print and write the report; 1 where mixad's values were wrong."""
    options = parse()
    limit_threads(options.threads)
    harness = importlib.import_module("benchmarks.peers.harness")
    report = importlib.import_module("benchmarks.peers.report")
    measurements = []
    for name in progress(options.names or WORKLOADS, "workloads"):
        workload = importlib.import_module(f"benchmarks.peers.{name}")
        cases = workload.cases(options.sizes or workload.SIZES, options.seed)
        for case in offered(name, cases, harness.UnavailableError):
            say(f"{name}: {case.title}")
            for measurement in harness.measure(case, options.rounds, seed=options.seed, say=say):
                measurements.append(measurement)
                write(report, measurements, options)
    print(report.markdown(measurements, report.environment(options.seed)))
    return int(any(wrong(measurement) for measurement in measurements))


def offered(name: str, cases, unavailable: type[Exception]):
    """Yield a workload's cases; where its inputs are not there, say so and end."""
    try:
        yield from cases
    except unavailable as absent:
        say(f"{name} is left out: {absent}")


def write(report, measurements, options: argparse.Namespace) -> None:
    """Write what there is so far, so that a run that is stopped has told what it found."""
    about = report.environment(options.seed)
    for path, form in ((options.markdown, report.markdown), (options.json, report.as_json)):
        if path is not None:
            report.write_atomically(path, form(measurements, about))


def wrong(measurement) -> bool:
    """Tell whether mixad gave other values than the reference."""
    return any(name.startswith("mixad") and error > 1 for name, error in measurement.errors.items())


if __name__ == "__main__":
    sys.exit(main())
