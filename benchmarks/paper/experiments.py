"""All experiments on one device, and their report."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.gpu.device import CudaDevice, Device
from benchmarks.paper import EXPERIMENTS, arity, cell, placement, report
from benchmarks.paper.cases import Row
from benchmarks.paper.host import Host
from benchmarks.paper.run import is_right, measured
from benchmarks.peers.harness import UnavailableError
from benchmarks.peers.report import write_atomically
from benchmarks.progress import progress

Say = Callable[[str], None]

CASES = {
    "hm_lstm": cell.hm_lstm_cases,
    "divergence": cell.divergence_cases,
    "arity": arity.cases,
}


def device_here(say: Say) -> Device:
    """Return the CUDA device; the host where there is none, which is said."""
    try:
        return CudaDevice()
    except UnavailableError as absent:
        say(f"on the host: {absent}")
        return Host()


def run(device: Device, options: argparse.Namespace, say: Say) -> int:
    """Run experiments and write their report after every case; 1 where mixad is wrong."""
    host = device.platform == "cpu"
    about = report.about(device.name, host, options.seed, options.scale)
    rows: list[Row] = []
    for found in outcomes(device, options, say):
        rows += found
        about = report.with_load(about)
        write(report.as_record(rows, about), device, options.out)
    print(report.markdown(report.as_record(rows, about)))
    return int(not is_right(rows))


def outcomes(device: Device, options: argparse.Namespace, say: Say) -> Iterator[list[Row]]:
    """Yield the rows of each case."""
    for name in progress(options.names or EXPERIMENTS, "experiments"):
        if name == "placement":
            for problem in placement.problems(options.scale, options.seed):
                say(f"{name}: {problem.title}")
                yield placement.measured(problem, device, options.rounds, options.seed)
            continue
        chosen = {"counts": options.inputs} if name == "arity" and options.inputs else {}
        for case in CASES[name](options.scale, options.seed, device, **chosen):
            say(f"{name}: {case.title}")
            yield measured(case, device, options.rounds, options.seed)


def write(record: report.Record, device: Device, folder: Path) -> None:
    """Replace the report of this device by what there is so far."""
    folder.mkdir(parents=True, exist_ok=True)
    slug = re.sub(r"\W+", "-", device.name).strip("-").lower()
    stem = folder / f"paper-{slug}"
    write_atomically(stem.with_suffix(".md"), report.markdown(record))
    write_atomically(stem.with_suffix(".json"), report.as_json(record))
