"""Bars of times on a logarithmic scale, against the line of copying the bytes.

``python -m benchmarks.peers.plot REPORT.json OUT.svg [workload ...]`` draws what a report has; the
page *Performance* draws with the same functions.
"""

from __future__ import annotations

import argparse
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers import report
from benchmarks.peers.harness import Measurement

COPIES = ("copy of the bytes", "copy of the bytes, PyTorch")
OURS, OTHERS = "#c4403a", "#8894a8"
ROW = 0.28  # inches that a bar takes
FAR = 20  # times the fastest bar: a copy that takes so much less is not what anything waits for


def figure(measurements: Sequence[Measurement], columns: int = 2) -> Any:
    """Return a figure with a panel of bars for each measurement.

    Parameters
    ----------
    measurements : sequence of Measurement
        Those without a time are left out.
    columns : int
        Panels beside each other.

    Returns
    -------
    matplotlib.figure.Figure
    """
    from matplotlib.figure import Figure

    shown = [m for m in measurements if contenders(m)]
    rows = math.ceil(len(shown) / columns)
    most = max((len(contenders(m)) for m in shown), default=1)
    drawn = Figure(figsize=(5.4 * columns, rows * (ROW * most + 0.9)), layout="constrained")
    axes = list(drawn.subplots(max(rows, 1), columns, squeeze=False).flat)
    for axis, m in zip(axes, shown, strict=False):
        bars(axis, m)
    for axis in axes[len(shown) :]:
        axis.set_visible(False)
    return drawn


def contenders(m: Measurement) -> dict[str, Any]:
    """Return what has a bar, the fastest last: what does the whole work, and not parts of it.

    What was derived of contenders has no first call; parts of mixad's are compared with nothing.
    """
    whole = {c.subject for c, _ in m.ratios}
    named = {n: s for n, s in m.series.items() if n not in COPIES}
    if m.first_call:
        named = {n: s for n, s in named.items() if n in m.first_call}
    own = {n: s for n, s in named.items() if n in whole or not n.startswith("mixad")}
    return dict(sorted(own.items(), key=lambda item: -item[1].median))


def bars(axis: Any, m: Measurement) -> None:
    """Draw the medians of a measurement in milliseconds, with the spread of the turns."""
    found = contenders(m)
    medians = [1e3 * s.median for s in found.values()]
    below = [1e3 * (s.median - s.p10) for s in found.values()]
    above = [1e3 * (s.p90 - s.median) for s in found.values()]
    colours = [OURS if name.startswith(("mixad", "import mixad")) else OTHERS for name in found]
    axis.barh(list(found), medians, color=colours, log=True)
    axis.errorbar(medians, range(len(found)), xerr=[below, above], fmt="none", ecolor="#333333",
                  elinewidth=0.8)  # fmt: skip
    for place, median in enumerate(medians):
        axis.annotate(f" {report.digits(median)}", (above[place] + median, place), va="center",
                      fontsize=7, xytext=(2, 0), textcoords="offset points")  # fmt: skip
    copies = [1e3 * m.series[name].median for name in COPIES if name in m.series]
    if copies and min(copies) > min(medians) / FAR:
        axis.axvline(min(copies), color="#222222", linestyle="--", linewidth=1)
        axis.annotate("copy", (min(copies), 1), xycoords=("data", "axes fraction"), fontsize=7,
                      xytext=(2, 2), textcoords="offset points")  # fmt: skip
    smallest = min([*medians, *(c for c in copies if c > min(medians) / FAR)])
    axis.set_xlim(smallest / 2, 3 * max(m + a for m, a in zip(medians, above, strict=True)))
    axis.set_title("\n".join(textwrap.wrap(report.heading(m), 44)), fontsize=9, pad=14)
    axis.set_xlabel("milliseconds", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw a report.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the command line by default.
    """
    parser = argparse.ArgumentParser("python -m benchmarks.peers.plot", description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("names", nargs="*", metavar="workload")
    options = parser.parse_args(arguments)
    measurements, _ = report.read(options.report)
    chosen = [m for m in measurements if not options.names or m.workload in options.names]
    figure(chosen).savefig(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
