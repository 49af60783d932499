"""Reports of `benchmarks.gpu` as results of asv: a device is a machine, a work a benchmark."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.dashboard.results import Machine, Record, add

COLUMNS = ("result", "params", "version", "started_at", "duration",
           "stats_ci_99_a", "stats_ci_99_b", "stats_q_25", "stats_q_75")  # fmt: skip
"""What is told of a benchmark; the interval of the median takes the place of asv's."""

Commit = Callable[[str], tuple[str, int] | None]


def benchmark_name(work: str) -> str:
    """Return the name that asv shows.

    >>> benchmark_name("implied volatility")
    'devices.implied_volatility'
    """
    return "devices." + "_".join(re.findall(r"\w+", work.lower()))


def merged(
    reports: Iterable[Mapping[str, Any]], machines: dict[str, Machine], commit: Commit
) -> tuple[Record, list[str]]:
    """Add the results of some reports to machines.

    Parameters
    ----------
    reports : iterable of mapping
        As `benchmarks.gpu.report.as_json` writes them, the earliest first.
    machines : dict
        By label; devices are added.
    commit : callable
        From what git describes to a hash and the milliseconds of its date; None where the
        repository does not have it.

    Returns
    -------
    benchmarks : dict
        What ``benchmarks.json`` has of each work.
    left_out : list of str
        Why some reports are not among the results.
    """
    kept, left_out = [], []
    for report in reports:
        about = report["environment"]
        found = commit(about["commit"])
        if found is None:
            left_out.append(f"{about['device']}: {about['commit']} is no commit of this repository")
        else:
            kept.append((report, *found))
    benchmarks = described([report for report, *_ in kept])
    for report, hash_, date in kept:
        label = device_label(report["environment"]["device"])
        about = {"machine": label, "os": "", "arch": "", "cpu": "", "num_cpu": "", "ram": ""}
        machine = machines.setdefault(label, Machine(about, {}))
        add(machine, result_of(report, label, hash_, date, benchmarks))
    return benchmarks, left_out


def device_label(device: str) -> str:
    """Return a device as the name of a machine.

    >>> device_label("NVIDIA H200")
    'nvidia-h200'
    """
    return "-".join(re.findall(r"[a-z0-9]+", device.lower()))


def described(reports: Sequence[Mapping[str, Any]]) -> Record:
    """Return the description of each work: its cases and contenders in all reports."""
    cases: dict[str, dict[str, None]] = {}
    contenders: dict[str, dict[str, None]] = {}
    for record in (record for report in reports for record in report["results"]):
        name = benchmark_name(record["work"])
        cases.setdefault(name, {})[repr(record["case"])] = None
        contenders.setdefault(name, {}).update(dict.fromkeys(map(repr, record["contenders"])))
    return {name: description(name, [*cases[name]], [*contenders[name]]) for name in cases}


def description(name: str, cases: list[str], contenders: list[str]) -> Record:
    return {
        "name": name,
        "code": "Medians of benchmarks.gpu: python -m benchmarks.gpu",
        "type": "time",
        "unit": "seconds",
        "params": [cases, contenders],
        "param_names": ["case", "contender"],
        "version": hashlib.sha256(name.encode()).hexdigest(),
        "timeout": 0,
    }


def result_of(
    report: Mapping[str, Any], label: str, hash_: str, date: int, benchmarks: Record
) -> Record:
    """Return a report as a result of asv."""
    python = ".".join(str(report["environment"]["python"]).split(".")[:2])
    rows = {}
    for name, work in benchmarks.items():
        times = times_of(report, name)
        if times:
            rows[name] = row(times, work, date)
    return {
        "commit_hash": hash_,
        "env_name": f"existing-py{python}",
        "date": date,
        "params": {"machine": label, "python": python},
        "python": python,
        "requirements": {},
        "env_vars": {},
        "result_columns": list(COLUMNS),
        "results": rows,
        "durations": {},
    }


def times_of(report: Mapping[str, Any], name: str) -> dict[tuple[str, str], Any]:
    """Return the times of a work by case and contender."""
    return {
        (repr(record["case"]), repr(contender)): found["times"]
        for record in report["results"]
        if benchmark_name(record["work"]) == name
        for contender, found in record["contenders"].items()
    }


def row(times: Mapping[tuple[str, str], Any], work: Record, date: int) -> list[Any]:
    """Return what asv keeps of a benchmark: what was not measured is not applicable."""
    found = [times.get(key) for key in itertools.product(*work["params"])]
    result = [math.nan if one is None else one["median"] for one in found]
    spread = [[one and one[k] for one in found] for k in ("low", "high", "p10", "p90")]
    return [result, work["params"], work["version"], date, None, *spread]
