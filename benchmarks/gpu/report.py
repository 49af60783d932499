"""The report of a run on a device: what it ran on, a Markdown table, JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from benchmarks.gpu.run import SUBJECT, Outcome, Result
from benchmarks.peers.report import digits, table, version

DISTRIBUTIONS = ("mixad", "mixad-torch", "mixad-cupy", "numpy", "torch", "cuda-bindings",
                 "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12", "cupy-cuda12x", "cupy-cuda13x",
                 "jax", "jaxlib", "triton")  # fmt: skip
LEGEND = (
    "Times are medians [95 % interval of the median]: of the device for a replayed CUDA graph of a "
    "call; of a loop of calls for what runs outside torch; of the host for the overhead. Beside "
    "them stands the host's time until a call returns. Bytes are those that any "
    "implementation must move. Ratios are mixad over the other: below 1 mixad is faster."
)
CLOCKS = {"graph": "device", "batch": "loop", "host": "host"}


def environment(device: str, seed: int, commit: str) -> dict[str, object]:
    """Return what the run was made with."""
    return {
        "device": device,
        "versions": {name: version(name) for name in DISTRIBUTIONS},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "commit": commit,
        "seed": seed,
    }


def verdict(result: Result, name: str) -> str:
    """Return met or missed where there is a target, n/a where it was not measured."""
    limit = result.work.targets.get(name)
    if limit is None:
        return ""
    found = result.ratio(name)
    if found is None:
        return f"≤ {limit:.3g}: n/a"
    return f"≤ {limit:.3g}: {'met' if found <= limit else 'missed'}"


def verdict_of_seconds(result: Result) -> str:
    """Return whether the subject takes no longer than was wanted."""
    limit = result.work.targets.get("seconds")
    times = result.outcomes[SUBJECT].times
    if limit is None or times is None:
        return "" if limit is None else f"≤ {limit * 1e6:g} µs: n/a"
    return f"≤ {limit * 1e6:g} µs: {'met' if times.median <= limit else 'missed'}"


def row(result: Result, name: str, outcome: Outcome) -> Sequence[str]:
    """Return one contender's cells."""
    work, clock = result.work, CLOCKS[result.work.contenders[name].clock]
    error = "" if outcome.error is None or math.isinf(outcome.error) else digits(outcome.error)
    if outcome.times is None:
        return work.title, name, f"n/a: {outcome.reason}", clock, "", "", "", error, ""
    low, median, high = (1e6 * getattr(outcome.times, k) for k in ("low", "median", "high"))
    speed = work.bytes_moved / outcome.times.median / 1e9 if work.bytes_moved else 0.0
    ratio, wanted = result.ratio(name), verdict(result, name)
    if name == SUBJECT:
        ratio, wanted = None, verdict_of_seconds(result)
    return (
        work.title,
        name,
        f"{digits(median)} [{digits(low)}, {digits(high)}]",
        clock,
        "" if outcome.host is None else digits(1e6 * outcome.host.median),
        digits(speed) if speed else "",
        "" if ratio is None else digits(ratio),
        error,
        wanted,
    )


HEAD = (
    "case",
    "contender",
    "time, µs",
    "clock",
    "host, µs",
    "GB/s",
    "mixad / it",
    "error / tolerance",
    "target",
)


def markdown(results: Sequence[Result], about: Mapping[str, object]) -> str:
    """Return the whole report."""
    lines = [f"# mixad on {about['device']}", "", LEGEND, ""]
    for key, value in about.items():
        shown = value
        if isinstance(value, Mapping):
            there = {k: v for k, v in value.items() if v != "not installed"}
            shown = ", ".join(f"{k} {v}" for k, v in there.items())
        lines.append(f"- {key}: {shown}")
    for name in dict.fromkeys(r.work.name for r in results):
        own = [r for r in results if r.work.name == name]
        lines += ["", f"## {name}", "", *table(HEAD, rows(own))]
    return "\n".join(lines) + "\n"


def rows(results: Sequence[Result]) -> Iterator[Sequence[str]]:
    """Yield a row for each contender of each case."""
    for result in results:
        for name, outcome in result.outcomes.items():
            yield row(result, name, outcome)


def as_json(results: Sequence[Result], about: Mapping[str, object]) -> str:
    """Return the whole report for machines, in seconds."""
    records = [
        {
            "work": r.work.name,
            "case": r.work.title,
            "bytes": r.work.bytes_moved,
            "targets": r.work.targets,
            "contenders": {
                name: {
                    "clock": r.work.contenders[name].clock,
                    "error over tolerance": finite(o.error),
                    "reason": o.reason,
                    "times": None if o.times is None else asdict(o.times),
                    "host": None if o.host is None else asdict(o.host),
                    "ratio": r.ratio(name),
                    "verdict": verdict_of_seconds(r) if name == SUBJECT else verdict(r, name),
                }
                for name, o in r.outcomes.items()
            },
        }
        for r in results
    ]
    return (
        json.dumps({"environment": about, "results": records}, indent=1, ensure_ascii=False) + "\n"
    )


def finite(error: float | None) -> float | str | None:
    """Return an error as JSON has it."""
    return "infinite" if error is not None and math.isinf(error) else error
