"""The report of a run: JSON, and the Markdown that is made of it.

All Markdown is made from what the JSON has, so that a page and a report cannot differ.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from benchmarks.gpu.report import DISTRIBUTIONS as OF_DEVICES
from benchmarks.paper.cases import Row
from benchmarks.paper.published import SOURCE, TABLES
from benchmarks.peers.harness import Summary
from benchmarks.peers.report import (
    DISTRIBUTIONS,
    digits,
    environment,
    load_average,
    rounded,
    table,
    version,
)

Record = Mapping[str, Any]

LEGEND = (
    "Medians [95 % interval of the median]. *Kernel*: what the device takes, by replaying a CUDA "
    "graph; on the host the launch of the compiled kernel alone, where that can be had. *Call*: "
    "what the caller waits for; on a device with the copy of all results to the host. Ratios are "
    "taken round by round, of kernels where both are known, else of calls. GB/s are the bytes that "
    "any implementation must move over the kernel's time, or the call's."
)
TITLES = {
    "hm_lstm": "The HM-LSTM cell update",
    "divergence": "Divergence",
    "arity": "Arity",
    "placement": "Placement",
}


def about(device: str, is_host: bool, seed: int, scale: float) -> Record:
    """Return what a run was made with."""
    found = environment(seed)
    versions = {name: version(name) for name in dict.fromkeys((*DISTRIBUTIONS, *OF_DEVICES))}
    found["versions"] = {n: v for n, v in versions.items() if v != "not installed"}
    cuda = "none was found: everything ran on the host" if is_host else device
    return found | {"CUDA device": cuda, "scale of the sides": scale}


LOAD = "load average, 1 minute"


def with_load(about: Record) -> Record:
    """Return what a run was made with, and how busy the machine has been at most."""
    seen = [load for load in (about.get(LOAD), load_average()) if load is not None]
    return {**about, LOAD: max(seen, default=None)}


def caution(report: Record) -> list[str]:
    """Return a warning where more ran on the host than the benchmark's own threads."""
    load, threads = report["environment"].get(LOAD), report["environment"].get("threads")
    if load is None or load <= threads + 1:
        return []
    told = (
        f"**The machine was busy (load average {load} for {threads} threads): times are upper "
        "bounds, those of libraries whose threads wait for each other most of all.**"
    )
    return [told]


def as_record(rows: Iterable[Row], about: Record) -> Record:
    """Return a report as JSON has it, in seconds."""
    return {"environment": about, "rows": [plain(row) for row in rows]}


def plain(row: Row) -> dict[str, Any]:
    """Return a row without what it does not have, its figures rounded."""
    own = {f.name: getattr(row, f.name) for f in fields(row)}
    found = {k: asdict(v) if isinstance(v, Summary) else v for k, v in own.items()}
    if row.error is not None and math.isinf(row.error):
        found["error"] = "infinite"
    return {k: rounded(v) for k, v in found.items() if v not in (None, "", 0, {}) or k == "error"}


def as_json(report: Record) -> str:
    """Return the text: a line for each row, so that changes can be read."""
    rows = ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in report["rows"])
    head = json.dumps(report["environment"], indent=1, ensure_ascii=False)
    return f'{{"environment": {head},\n "rows": [\n  {rows}\n ]}}\n'


def markdown(report: Record) -> str:
    """Return the whole report."""
    lines = ["# The experiments of Revels et al. (2018)", "", LEGEND, "", *machine(report), ""]
    lines += [line for text in caution(report) for line in (text, "")]
    for experiment in dict.fromkeys(row["experiment"] for row in report["rows"]):
        lines += [f"## {TITLES[experiment]}", "", section(report, experiment), ""]
        if experiment in TABLES:
            lines += [f"Published ({SOURCE}):", "", published(experiment), ""]
    return "\n".join(lines)


def machine(report: Record) -> Iterator[str]:
    """Yield a line for each thing that is known of the machine."""
    for key, value in report["environment"].items():
        shown = value
        if isinstance(value, Mapping):
            shown = ", ".join(f"{k} {v}" for k, v in value.items())
        yield f"- {key}: {shown}"


def section(report: Record, experiment: str) -> str:
    """Return the table of one experiment."""
    rows = [row for row in report["rows"] if row["experiment"] == experiment]
    head, cells = TABLE_OF[experiment]
    return "\n".join(table(head, map(cells, rows)))


def published(experiment: str) -> str:
    """Return what the paper has for it."""
    return "\n".join(table(*TABLES[experiment]))


# -- cells -----------------------------------------------------------------------------------------


def time_of(summary: Record | None, scale: float = 1e6) -> str:
    """Return the median and its interval."""
    if summary is None:
        return ""
    median, low, high = (digits(scale * summary[k]) for k in ("median", "low", "high"))
    return f"{median} [{low}, {high}]"


def ratio_of(row: Record) -> str:
    """Return how many times as long as another way it takes; which one, the legend says."""
    return time_of(row.get("ratio"), 1.0)


def speed_of(row: Record) -> str:
    """Return gigabytes a second."""
    times = row.get("kernel") or row.get("call")
    if times is None or "bytes_moved" not in row:
        return ""
    return digits(row["bytes_moved"] / times["median"] / 1e9)


def error_of(row: Record) -> str:
    """Return the error over the tolerance."""
    error = row.get("error")
    return "" if error is None or error == "infinite" else digits(error)


def call_of(row: Record) -> str:
    """Return the time of the call, or why there is none."""
    return f"n/a: {row['reason']}" if "reason" in row else time_of(row.get("call"))


def megabytes(count: int | None) -> str:
    """Return bytes in millions."""
    return "" if count is None else f"{count / 1e6:.1f}"


def numbers(values: Sequence[Any] | str | None, form: str = "{}") -> str:
    """Return a number for each pass, or why there is none."""
    if values is None or isinstance(values, str):
        return f"n/a: {values}" if values else ""
    return " + ".join(form.format(v) for v in values)


def cell_row(row: Record) -> Sequence[str]:
    kernel = time_of(row.get("kernel"))
    own = (row["case"], row["contender"], kernel, call_of(row))
    return (*own, ratio_of(row), speed_of(row), error_of(row))


def divergence_row(row: Record) -> Sequence[str]:
    facts = row.get("facts", {})
    kernel = time_of(row.get("kernel"))
    needed = megabytes(facts.get("bytes needed"))
    at_most = megabytes(row.get("bytes_moved"))
    own = (row["case"], row["contender"], kernel, call_of(row))
    return (*own, ratio_of(row), at_most, needed)


def arity_row(row: Record) -> Sequence[str]:
    facts = row.get("facts", {})
    occupancy = numbers(facts.get("occupancy"), "{:.2f}")
    own = (str(facts.get("N", "")), row["contender"].rpartition(",")[0].removeprefix("mixad, "))
    kernel = f"n/a: {row['reason']}" if "reason" in row else time_of(row.get("kernel"))
    return (*own, kernel, speed_of(row), numbers(facts.get("registers")), occupancy)


def placement_row(row: Record) -> Sequence[str]:
    facts = row.get("facts", {})
    passes = [time_of(facts.get(part)) for part in ("forward pass", "backward pass")]
    own = (row["case"], row["contender"])
    return (*own, *passes, call_of(row), ratio_of(row), megabytes(facts.get("held", None)))


TABLE_OF = {
    "hm_lstm": (
        ("case", "contender", "kernel, µs", "call, µs", "× mixed mode", "GB/s",
         "error / tolerance"), cell_row),
    "divergence": (
        ("case", "kernel and control", "kernel, µs", "call, µs", "× random", "MB at most",
         "MB that the branches need"), divergence_row),
    "arity": (
        ("N", "what", "kernel, µs", "GB/s", "registers by pass, sm_90", "occupancy by pass"),
        arity_row),
    "placement": (
        ("case", "contender", "forward pass, µs", "backward pass, µs", "both, µs",
         "× placement reverse", "MB held between"), placement_row),
}  # fmt: skip
