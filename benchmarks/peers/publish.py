"""Put reports where the docs read them: ``python -m benchmarks.peers.publish REPORT.json ...``.

A report is what ``python -m benchmarks.peers --json REPORT.json`` wrote.  Several are of one
machine and different workloads.  They are kept, rounded, as ``benchmarks/results/peers.json``,
which is committed: tables and plots of *Performance* are made of it when the page is built.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from benchmarks.peers import report
from benchmarks.peers.harness import Measurement

Report: TypeAlias = tuple[list[Measurement], dict[str, object]]

COMMIT, LOAD = "commit", "load average, 1 minute"
OF_A_RUN = (COMMIT, LOAD, "llvm of Dr.Jit")
"""What differs between runs on one machine: the last is known where Dr.Jit was asked for."""

PUBLISHED = Path(__file__).parents[1] / "results" / "peers.json"


def joined(reports: Sequence[Report]) -> Report:
    """Return the measurements of all reports, with the environment that they share.

    All peers of a case are of one run; cases of different runs may be of different commits, and
    then all of these are named.

    Raises
    ------
    ValueError
        If they are of different machines or versions, or measure one case twice.
    """
    measurements = [m for found, _ in reports for m in found]
    abouts = [{k: v for k, v in about.items() if k not in OF_A_RUN} for _, about in reports]
    if any(about != abouts[0] for about in abouts):
        raise ValueError("the reports are of different machines or versions: publish one of them")
    cases = [(m.workload, m.title, m.keep) for m in measurements]
    if len(set(cases)) < len(cases):
        raise ValueError("the reports measure one case twice: leave one of them out")
    return measurements, shared([about for _, about in reports])


def shared(abouts: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Return what one report was made with, the commits of all, and how busy the machine was."""
    commits = (c for about in abouts for c in str(about.get(COMMIT, "unknown")).split(", "))
    loads = [about[LOAD] for about in abouts if about.get(LOAD) is not None]
    return {**abouts[0], COMMIT: ", ".join(dict.fromkeys(commits)), LOAD: max(loads, default=None)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the compact form of reports.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the command line by default.
    """
    parser = argparse.ArgumentParser("python -m benchmarks.peers.publish", description=__doc__)
    parser.add_argument("reports", type=Path, nargs="+", metavar="report")
    parser.add_argument("--out", type=Path, default=PUBLISHED)
    options = parser.parse_args(arguments)
    measurements, about = joined([report.read(path) for path in options.reports])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    report.write_atomically(options.out, report.as_compact_json(measurements, about))
    print(f"{len(measurements)} measurements are in {options.out.name}: build the docs, commit it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
