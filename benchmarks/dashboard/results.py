"""asv's result files under labels that stay the same, and say nothing of whose machine it was.

asv makes a graph for each combination of machine, system, memory and interpreter. As it writes
them, a kernel update or another folder for the environment starts a new graph, and the host's name
and the interpreter's path are published. Here a machine is its processor and their number, the
interpreter its version.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.report import write_atomically

Record = dict[str, Any]

RESULTS_VERSION, MACHINE_VERSION, BENCHMARKS_VERSION = 2, 1, 2
"""Of the files' forms: asv 0.6 reads these."""


@dataclass(frozen=True)
class Machine:
    """What a machine's file says, under the label, and its results by the names of files."""

    about: Record
    results: dict[str, Record]


def read(folder: Path) -> dict[str, Machine]:
    """Return the machines of a folder of results by label; two of the same label are one.

    Parameters
    ----------
    folder : Path
        asv's ``results_dir``.

    Raises
    ------
    ValueError
        If a file is of a form that is not known here.
    """
    found: dict[str, Machine] = {}
    for about_file in sorted(folder.glob("*/machine.json")):
        about = labelled_machine(read_json(about_file, MACHINE_VERSION))
        machine = found.setdefault(about["machine"], Machine(about, {}))
        for path in sorted(about_file.parent.glob("*.json")):
            if path != about_file:
                add(machine, labelled_result(read_json(path, RESULTS_VERSION), about))
    return found


def read_json(path: Path, version: int) -> Record:
    """Return what is in a file of asv's."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("version") != version:
        raise ValueError(
            f"{path.name} in {path.parent.name} is of version {content.get('version')} of asv's "
            f"files, not {version}: write it anew with the asv that the extra bench installs"
        )
    return content


def labelled_machine(about: Mapping[str, Any]) -> Record:
    """Return what is told of a machine, without its name and what changes with every update."""
    count = str(about.get("num_cpu", ""))
    processor = re.sub(r"\((R|TM)\)|CPU|@.*", " ", str(about.get("cpu", "")), flags=re.IGNORECASE)
    words = re.findall(r"[a-z0-9]+", f"{processor or about.get('arch', '')} {count}".lower())
    return {
        **about,
        "machine": "-".join(words) or "unknown",
        "os": str(about.get("os", "")).partition(" ")[0],
        "ram": memory(str(about.get("ram", ""))),
    }


def memory(size: str) -> str:
    """Return memory in GiB; asv tells bytes, or what the user has written.

    >>> memory("25276502016"), memory("4GB"), memory("")
    ('24 GiB', '4GB', '')
    """
    return f"{round(int(size) / 2**30)} GiB" if size.isdigit() else size


def labelled_result(result: Mapping[str, Any], about: Mapping[str, Any]) -> Record:
    """Return a result with the machine's label and the interpreter's version."""
    python = python_label(str(result.get("python", "")))
    told = {name: about.get(name, value) for name, value in result["params"].items()}
    told |= {"machine": about["machine"], "python": python}
    name = str(result["env_name"])
    if name.startswith("existing-"):
        name = f"existing-py{python}"
    return {**result, "params": told, "python": python, "env_name": name}


def python_label(python: str) -> str:
    """Return the version of an interpreter that asv tells by its version or its path."""
    if re.fullmatch(r"[\w.]+", python):
        return python
    if not Path(python).is_file():
        return "of another machine"
    command = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def add(machine: Machine, result: Record) -> None:
    """Add a result; of each benchmark that is there twice, the one that began later stays."""
    name = f"{result['commit_hash'][:8]}-{result['env_name']}.json"
    there = machine.results.get(name)
    if there is None:
        machine.results[name] = result
        return
    rows = dict(there["results"])
    for benchmark, row in result["results"].items():
        if benchmark not in rows or began(result, row) >= began(there, rows[benchmark]):
            rows[benchmark] = row
    machine.results[name] = {**there, "results": rows}


def began(result: Record, row: list[Any]) -> float:
    """Return when a benchmark began, in milliseconds."""
    return float(dict(zip(result["result_columns"], row, strict=False)).get("started_at") or 0)


def write(machines: Mapping[str, Machine], benchmarks: Record, folder: Path) -> None:
    """Write what `read` returns as asv does, and the description of all benchmarks."""
    for label, machine in machines.items():
        (folder / label).mkdir(parents=True, exist_ok=True)
        put(folder / label / "machine.json", machine.about, MACHINE_VERSION)
        for name, result in machine.results.items():
            put(folder / label / name, result, RESULTS_VERSION)
    put(folder / "benchmarks.json", benchmarks, BENCHMARKS_VERSION)


def put(path: Path, content: Mapping[str, Any], version: int) -> None:
    write_atomically(path, json.dumps({**content, "version": version}) + "\n")


def values_of(
    machines: Mapping[str, Machine], commit: str
) -> Iterator[tuple[str, str, list, list]]:
    """Yield machine, benchmark, parameters and values of one commit's results."""
    for label, machine in machines.items():
        for result in machine.results.values():
            if result["commit_hash"] != commit:
                continue
            for name, row in sorted(result["results"].items()):
                columns = dict(zip(result["result_columns"], row, strict=False))
                if columns.get("result") is not None:
                    yield label, name, columns["params"], columns["result"]
