"""Run the paper's experiments: ``python -m benchmarks.paper [experiment ...]``.

The report, Markdown and JSON, is written after every case, so that a run that is stopped has told
what it found.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.paper import EXPERIMENTS
from benchmarks.peers.__main__ import limit_threads
from benchmarks.progress import say

RESULTS = Path(__file__).parents[1] / "results"


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.paper", description=__doc__)
    offered = ", ".join(EXPERIMENTS)
    parser.add_argument("names", nargs="*", metavar="experiment", help=f"of {offered}")
    parser.add_argument("--scale", type=float, default=1.0, help="of the sides of arrays")
    parser.add_argument("--inputs", type=int, nargs="+", metavar="N", help="of arity: 1 to 24")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, default=RESULTS, metavar="FOLDER")
    options = parser.parse_args(arguments)
    if unknown := set(options.names) - set(EXPERIMENTS):
        parser.error(f"no experiment {', '.join(sorted(unknown))}; there are {offered}")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, time and write the report; 1 where mixad's values are wrong."""
    options = parse(arguments)
    limit_threads(options.threads)  # before NumPy is imported
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # the others need memory too
    experiments = importlib.import_module("benchmarks.paper.experiments")
    device = experiments.device_here(say)
    return experiments.run(device, options, say)


if __name__ == "__main__":
    sys.exit(main())
