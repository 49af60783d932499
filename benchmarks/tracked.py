"""Hold figures that no machine changes against those that were accepted.

``python -m benchmarks.tracked check`` counts what `benchmarks.figures` counts and compares it with
``benchmarks/tracked.json``. A figure that is larger fails, and so does a call without accepted
figures or accepted ones without a call. One that is smaller is told and passes: what was gained is
held from the next ``python -m benchmarks.tracked accept`` on, which stores everything as it is.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.report import version, write_atomically
from benchmarks.progress import progress

BASELINE = Path(__file__).with_name("tracked.json")
COMPILER = "nvidia-cuda-nvrtc-cu12"
OF_COMPILER = ("registers", "local bytes", "instructions an element")
ACCEPT = "python -m benchmarks.tracked accept"

Figures = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Change:
    """A figure that is not as accepted; None where one side has none."""

    case: str
    figure: str
    accepted: int | None
    found: int | None

    @property
    def fails(self) -> bool:
        """Whether it is anything but a gain."""
        return self.accepted is None or self.found is None or self.found > self.accepted

    def __str__(self) -> str:
        if self.accepted is None:
            return f"NEW     {self.case}: {self.figure} {self.found}, nothing was accepted"
        if self.found is None:
            return f"GONE    {self.case}: {self.figure}, {self.accepted} was accepted"
        verdict = "WORSE " if self.fails else "better"
        return f"{verdict}  {self.case}: {self.figure} {self.found}, accepted {self.accepted}"


def changes(accepted: Figures, found: Figures) -> Iterator[Change]:
    """Yield every figure that differs, in the order of the calls."""
    for case in dict.fromkeys((*found, *accepted)):
        old, new = accepted.get(case, {}), found.get(case, {})
        for figure in dict.fromkeys((*new, *old)):
            if old.get(figure) != new.get(figure):
                yield Change(case, figure, old.get(figure), new.get(figure))


def counted(names: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
    """Return the figures of some calls, by default of all."""
    from benchmarks.figures import CASES, figures_of  # what it counts takes seconds to import

    return {name: figures_of(CASES[name]()) for name in progress(names or CASES, "calls")}


def report(found: Sequence[Change], compiler: str, accepted_with: str) -> str:
    """Return what changed and what to do about it; empty where nothing did."""
    lines = [str(change) for change in found]
    if compiler != accepted_with and any(change.figure in OF_COMPILER for change in found):
        lines.append(
            f"{', '.join(OF_COMPILER)} were accepted with {COMPILER} {accepted_with}; here is "
            f"{compiler}: compare with the version that constraints.txt names"
        )
    if any(change.fails for change in found):
        lines.append(
            "Undo what made a figure worse, or, if it is meant, say why in the commit and store "
            f"the new figures with it: {ACCEPT}"
        )
    elif found:
        lines.append(f"What was gained is held once it is accepted: {ACCEPT}")
    return "\n".join(lines)


def check(baseline: Path = BASELINE) -> int:
    """Print what changed; return 1 where a figure is worse, new or gone."""
    stored = json.loads(baseline.read_text(encoding="utf-8"))
    found = list(changes(stored["figures"], counted()))
    print(report(found, version(COMPILER), stored["compiler"]) or "all figures are as accepted")
    return int(any(change.fails for change in found))


def accept(baseline: Path = BASELINE) -> int:
    """Store the figures as they are."""
    stored = {"compiler": version(COMPILER), "figures": counted()}
    write_atomically(baseline, json.dumps(stored, indent=1) + "\n")
    print(f"{len(stored['figures'])} calls are stored in {baseline.name}: commit it")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Check or accept, as the command line says."""
    parser = argparse.ArgumentParser("python -m benchmarks.tracked", description=__doc__)
    parser.add_argument("what", choices=("check", "accept"))
    return {"check": check, "accept": accept}[parser.parse_args(arguments).what]()


if __name__ == "__main__":
    sys.exit(main())
