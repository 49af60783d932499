"""The report of a run: what ran, and on what; Markdown tables, JSON, both written atomically."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks.peers.harness import Comparison, Measurement, Summary, Target
from benchmarks.peers.libraries import thread_count

DISTRIBUTIONS = (
    "mixad",
    "numpy",
    "llvmlite",
    "torch",
    "jax",
    "jaxlib",
    "drjit",
    "warp-lang",
    "numba",
    "autograd",
)
LEGEND = (
    "Times in milliseconds. Median [95 % bootstrap interval of the median] (10 % … 90 % of the "
    "turns). Ratios are taken round by round, mixad over the peer: below 1 mixad is faster. A "
    "target is met by the median, one marked *(interval)* by the lower end of its interval."
)


def environment(seed: int) -> dict[str, object]:
    """Return the commit, versions, processor, threads, seed and how busy the machine was."""
    return {
        "commit": commit(),
        "versions": {name: version(name) for name in DISTRIBUTIONS},
        "llvm of Dr.Jit": Path(os.environ.get("DRJIT_LIBLLVM_PATH", "not asked for")).name,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": thread_count(),
        "seed": seed,
        "load average, 1 minute": load_average(),
    }


def commit() -> str:
    """Return the commit that is checked out, where git tells it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    folder = Path(__file__).parent
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()


def version(distribution: str) -> str:
    """Return the installed version of a distribution, or that there is none."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def cpu_model() -> str:
    """Return the processor's name as the system gives it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def load_average() -> float | None:
    """Return the load of the last minute where the system tells it."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def text(summary: Summary, scale: float = 1.0) -> str:
    """Return a summary as median [interval] (spread), each number with three digits."""
    median, low, high, p10, p90 = (
        digits(scale * x)
        for x in (summary.median, summary.low, summary.high, summary.p10, summary.p90)
    )
    return f"{median} [{low}, {high}] ({p10} … {p90})"


def digits(x: float) -> str:
    """Return a number with three significant digits and no exponent.

    >>> [digits(x) for x in (0.01234, 1.0, 98.76, 1234.5)]
    ['0.0123', '1.00', '98.8', '1234']
    """
    if x == 0 or not abs(x) < 1000:
        return f"{x:.0f}"
    exponent = int(f"{x:.2e}".partition("e")[2])
    return f"{x:.{max(0, 2 - exponent)}f}"


def verdict(comparison: Comparison, summary: Summary | None) -> str:
    """Return met or missed, n/a where nothing was measured, and nothing without a target."""
    if comparison.target is None:
        return ""
    if summary is None:
        return "n/a"
    return "met" if comparison.target.met(summary) else "missed"


def as_record(m: Measurement) -> dict[str, object]:
    """Return a measurement as JSON has it, in seconds."""
    return {
        "workload": m.workload,
        "case": m.title,
        "kept": m.keep,
        "times": {name: asdict(summary) for name, summary in m.series.items()},
        "first call": m.first_call,
        "error over tolerance": m.errors,
        "absent": m.absent,
        "comparisons": [
            {
                "subject": c.subject,
                "against": c.against,
                "limit": c.target and c.target.limit,
                "by interval": c.target and c.target.by_interval,
                "verdict": verdict(c, summary),
                **({} if summary is None else asdict(summary)),
            }
            for c, summary in m.ratios
        ],
    }


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines]


def time_rows(m: Measurement) -> Iterable[Sequence[str]]:
    """Yield one row per series, then one per absent contender with its reason."""
    for name, summary in m.series.items():
        first = m.first_call.get(name)
        error = m.errors.get(name)
        yield (
            name,
            text(summary, 1e3),
            str(summary.count),
            "" if first is None else digits(first * 1e3),
            "" if error is None else digits(error),
        )
    for name, reason in m.absent.items():
        yield name, f"n/a: {reason}", "", "", ""


def ratio_rows(m: Measurement) -> Iterable[Sequence[str]]:
    """Yield one row per comparison."""
    for c, summary in m.ratios:
        scale, subject = (1e3, c.subject) if c.against is None else (1.0, c.subject)
        target = "" if c.target is None else str(c.target)
        if c.target is not None and c.against is None:
            target = f"≤ {c.target.limit * 1e3:g} ms"
        found = "n/a" if summary is None else text(summary, scale)
        yield subject, c.against or "", found, target, verdict(c, summary)


def markdown(measurements: Sequence[Measurement], about: Mapping[str, object]) -> str:
    """Return the whole report."""
    lines = ["# mixad and its peers", "", LEGEND, "", *machine(about)]
    for m in measurements:
        lines += ["", f"## {heading(m)}", "", *times_table(m)]
        if m.ratios:
            lines += ["", *ratios_table(m)]
    return "\n".join(lines) + "\n"


def machine(about: Mapping[str, Any]) -> list[str]:
    """Return a line for each thing that is known of what a run was made with."""
    lines = []
    for key, value in about.items():
        shown = ", ".join(f"{k} {v}" for k, v in value.items()) if key == "versions" else value
        lines.append(f"- {key}: {shown}")
    return lines


def heading(m: Measurement) -> str:
    """Return what a measurement is called."""
    kept = f", last {m.keep} results kept" if m.keep else ""
    return f"{m.workload}: {m.title}{kept}"


def times_table(m: Measurement) -> list[str]:
    """Return the lines of the table of times."""
    head = ("contender", "time, ms", "turns", "first call, ms", "error / tolerance")
    return table(head, time_rows(m))


def ratios_table(m: Measurement) -> list[str]:
    """Return the lines of the table of ratios."""
    return table(("subject", "over", "ratio", "target", ""), ratio_rows(m))


def as_json(measurements: Sequence[Measurement], about: Mapping[str, object]) -> str:
    """Return the whole report for machines."""
    report = {"environment": about, "measurements": [as_record(m) for m in measurements]}
    return json.dumps(report, indent=1, ensure_ascii=False) + "\n"


def rounded(value: Any, places: int = 4) -> Any:
    """Return data with so many significant digits of every float, as committed results have it."""
    if isinstance(value, float):
        return float(f"{value:.{places}g}")
    if isinstance(value, Mapping):
        return {key: rounded(own, places) for key, own in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(own, places) for own in value]
    return value


def as_compact_json(measurements: Sequence[Measurement], about: Mapping[str, object]) -> str:
    """Return the whole report in few bytes: rounded, summaries as lists, a line for each one."""
    head = json.dumps(about, indent=1, ensure_ascii=False)
    cases = ",\n".join(_compact(m) for m in measurements)
    return f'{{"environment": {head},\n"measurements": [\n{cases}\n]}}\n'


def _compact(m: Measurement) -> str:
    record = rounded(as_record(m))
    times = {name: rounded(list(astuple(s))) for name, s in m.series.items()}
    ratios = [_listed(c, s) for c, s in m.ratios]
    record |= {"times": times, "comparisons": ratios}
    lines = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}"
        for key, value in record.items()
    )
    return "{" + ",\n ".join(lines) + "}"


def _listed(c: Comparison, ratio: Summary | None) -> list[Any]:
    """Return a comparison as a list; near a target, rounding must not change the verdict."""
    target = None if c.target is None else list(astuple(c.target))
    places = 4 if c.target is None else 7
    return [c.subject, c.against, target, ratio and rounded(list(astuple(ratio)), places)]


def read(path: Path) -> tuple[list[Measurement], dict[str, object]]:
    """Return the measurements and the environment in a report, compact or not.

    Parameters
    ----------
    path : Path
        What `as_json` or `as_compact_json` gave.
    """
    report = json.loads(path.read_text(encoding="utf-8"))
    return [from_record(record) for record in report["measurements"]], report["environment"]


def from_record(record: Mapping[str, Any]) -> Measurement:
    """Return a measurement from what JSON has of it."""
    return Measurement(
        record["workload"],
        record["case"],
        record["kept"],
        {name: _summary(found) for name, found in record["times"].items()},
        record["absent"],
        record["first call"],
        record["error over tolerance"],
        [_comparison(found) for found in record["comparisons"]],
    )


def _summary(found: Mapping[str, Any] | Sequence[float]) -> Summary:
    return Summary(**found) if isinstance(found, Mapping) else Summary(*found)


def _comparison(found: Mapping[str, Any] | Sequence[Any]) -> tuple[Comparison, Summary | None]:
    """Return a comparison and its ratio: a list in the compact form, named in the other one."""
    if not isinstance(found, Mapping):
        subject, against, target, ratio = found
        wanted = None if target is None else Target(*target)
        return Comparison(subject, against, wanted), None if ratio is None else _summary(ratio)
    limit = found["limit"]
    wanted = None if limit is None else Target(limit, found["by interval"])
    names = Summary.__dataclass_fields__
    ratio = {name: found[name] for name in names} if "median" in found else None
    own = Comparison(found["subject"], found["against"], wanted)
    return own, None if ratio is None else _summary(ratio)


def write_atomically(path: Path, content: str) -> None:
    """Replace a file in one step: a reader sees the old one or the new one."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
