"""The first page: backends beside each other at one commit, and the last of devices and peers."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.peers.harness import Measurement
from benchmarks.peers.report import digits

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
table { border-collapse: collapse; margin: .5em 0 1.5em; }
th, td { border-bottom: 1px solid #ddd; padding: .15em .8em; text-align: right; }
th:first-child, td:first-child { text-align: left; }
summary { cursor: pointer; font-weight: 600; }
.na { color: #767676; }
"""

UNITS = {"seconds": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
         "bytes": ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))}  # fmt: skip

Values = tuple[str, str, list, list]
"""Machine, benchmark, parameters, values: see `benchmarks.dashboard.results.values_of`."""


def page(
    commit: str,
    values: Sequence[Values],
    benchmarks: Mapping[str, Any],
    devices: Sequence[Mapping[str, Any]],
    peers: Sequence[tuple[Sequence[Measurement], Mapping[str, Any]]],
    notes: Sequence[str],
) -> str:
    """Return the page.

    Parameters
    ----------
    commit : str
        Whose results the tables of backends have.
    values : sequence
        Those results.
    benchmarks : mapping
        What asv knows of each benchmark.
    devices : sequence of mapping
        The last report of `benchmarks.gpu.report.as_json` of each device.
    peers : sequence of tuple
        What `benchmarks.peers.report.read` returns of each report.
    notes : sequence of str
        What is missing.
    """
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<link rel='icon' href='asv/swallow.ico'>",
        f"<title>mixad: benchmarks</title><style>{STYLE}</style></head><body>",
        "<h1>mixad: benchmarks</h1>",
        "<p><a href='asv/index.html'>Every benchmark over the history</a>, ",
        "<a href='asv/index.html#/regressions'>what became slower</a>.</p>",
        *(f"<p class='na'>{html.escape(note)}</p>" for note in notes),
        f"<h2 id='backends'>Backends, at {html.escape(commit[:8])}</h2>",
        *backends(values, benchmarks),
        "<h2 id='devices'>Devices</h2>" if devices else "",
        *(section for report in devices for section in of_device(report)),
        "<h2 id='peers'>Peers</h2>",
        *(section for report in peers for section in of_peers(*report)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def backends(values: Iterable[Values], benchmarks: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table for each machine and benchmark with backends as a parameter."""
    for machine, name, params, found in values:
        known = benchmarks.get(name)
        if known is None or "backend" not in known["param_names"]:
            continue
        axis = known["param_names"].index("backend")
        names = [n for n in known["param_names"] if n != "backend"]
        head = [", ".join(names) or "call", *map(unquoted, params[axis])]
        rows = by_backend(params, found, axis, known["unit"])
        yield f"<details><summary>{html.escape(f'{name}, on {machine}')}</summary>"
        yield table(head, rows)
        yield "</details>"


def by_backend(
    params: Sequence[Sequence[str]], found: Sequence[Any], axis: int, unit: str
) -> Iterator[list[str]]:
    """Yield a row for each combination of the other parameters."""
    cells = dict(zip(itertools.product(*params), found, strict=True))
    others = [values for at, values in enumerate(params) if at != axis]
    for other in itertools.product(*others):
        row = [cells[(*other[:axis], backend, *other[axis:])] for backend in params[axis]]
        yield [", ".join(map(unquoted, other)), *(shown(value, unit) for value in row)]


def of_device(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table for each work: a row for each case, a column for each contender."""
    about = report["environment"]
    at = f"{about['device']}, at {about['commit']}"
    yield f"<p>{html.escape(at)}</p>"
    works: dict[str, list[Mapping[str, Any]]] = {}
    for record in report["results"]:
        works.setdefault(record["work"], []).append(record)
    for work, records in works.items():
        names = list(dict.fromkeys(name for r in records for name in r["contenders"]))
        rows = ([r["case"], *(median_of(r["contenders"].get(n)) for n in names)] for r in records)
        yield f"<details><summary>{html.escape(work)}</summary>{table(['case', *names], rows)}"
        yield "</details>"


def median_of(found: Mapping[str, Any] | None) -> str:
    """Return the time of a contender in a report of a device."""
    times = None if found is None else found["times"]
    return "n/a" if times is None else shown(times["median"], "seconds")


def of_peers(measurements: Sequence[Measurement], about: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a run was made with, then a table for each case."""
    versions = {k: v for k, v in about["versions"].items() if v != "not installed"}
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    at = f", at {about['commit']}" if "commit" in about else ""
    text = f"{about['cpu']}, {about['threads']} threads{at}; {listed}"
    yield f"<p>{html.escape(text)}</p>"
    for m in measurements:
        kept = f", last {m.keep} results kept" if m.keep else ""
        yield f"<details><summary>{html.escape(f'{m.workload}: {m.title}{kept}')}</summary>"
        yield table(("contender", "median", "95 % interval", "mixad / it"), peer_rows(m))
        yield "</details>"


def peer_rows(m: Measurement) -> Iterator[list[str]]:
    """Yield a row for each contender: its time, and the least ratio of mixad's times over it."""
    ratios: dict[str, float] = {}
    for comparison, ratio in m.ratios:
        if comparison.against is not None and ratio is not None:
            known = ratios.get(comparison.against, math.inf)
            ratios[comparison.against] = min(ratio.median, known)
    for name, time in m.series.items():
        low, median, high = (
            shown(value, "seconds") for value in (time.low, time.median, time.high)
        )
        yield [name, median, f"{low} … {high}", digits(ratios[name]) if name in ratios else ""]
    for name, reason in m.absent.items():
        yield [name, f"n/a: {reason}", "", ""]


def shown(value: float | None, unit: str) -> str:
    """Return a value with its unit; what asv could not apply is n/a, what failed is told.

    >>> shown(0.00123, "seconds"), shown(float("nan"), "seconds"), shown(None, "bytes")
    ('1.23 ms', 'n/a', 'failed')
    """
    if value is None:
        return "failed"
    if math.isnan(value):
        return "n/a"
    for size, name in UNITS.get(unit, ()):
        if value >= size:
            return f"{digits(value / size)} {name}"
    return digits(value)


def unquoted(parameter: str) -> str:
    """Return a parameter without the quotes that asv keeps of a text."""
    return parameter[1:-1] if parameter[:1] in "'\"" else parameter


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    first = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    lines = [f"<tr>{''.join(map(cell_of, row))}</tr>" for row in rows]
    return f"<table><tr>{first}</tr>{''.join(lines)}</table>"


def cell_of(text: str) -> str:
    kind = " class='na'" if text.startswith("n/a") else ""
    return f"<td{kind}>{html.escape(text)}</td>"
