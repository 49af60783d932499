"""Build the dashboard: ``python -m benchmarks.dashboard build``."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.dashboard import assets, devices, landing, results
from benchmarks.peers import report as peers_report
from benchmarks.peers.report import write_atomically

CONFIGURATION = "asv.conf.json"
REPORTS = Path("benchmarks", "results")
HTML = Path(".asv", "dashboard")


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser("python -m benchmarks.dashboard", description=__doc__)
    commands = parser.add_subparsers(required=True)
    build = commands.add_parser("build", help="run or reuse results, and publish them")
    build.add_argument("--run", action="store_true", help="run asv though there are results")
    build.add_argument("--bench", metavar="REGEX", help="of the benchmarks that are run")
    build.add_argument("--quick", action="store_true", help="run each benchmark once")
    build.add_argument("--reports", type=Path, metavar="FOLDER",
                       help=f"of benchmarks.gpu and .peers; by default {REPORTS}")  # fmt: skip
    build.add_argument("--html", type=Path, metavar="FOLDER", help=f"by default {HTML}")
    build.add_argument("--project", type=Path, default=Path.cwd(), metavar="FOLDER",
                       help=f"with {CONFIGURATION}; by default the current one")  # fmt: skip
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Build; what goes wrong is told with status 1."""
    options = parse(arguments)
    try:
        build(options)
    except (OSError, RuntimeError, ValueError, subprocess.CalledProcessError) as error:
        print(f"the dashboard was not built: {error}", file=sys.stderr)
        return 1
    return 0


def build(options: argparse.Namespace) -> None:
    """Replace the folder of the dashboard by a new one, once that is complete."""
    project = options.project.resolve()
    html = (options.html or project / HTML).resolve()
    asv = json.loads((project / CONFIGURATION).read_text(encoding="utf-8"))
    commit = git(project, "rev-parse", "HEAD")
    folder = project / asv["results_dir"]
    if options.run or not has_results(folder, commit):
        run(project, commit, options)
    html.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=html.parent, prefix=".dashboard-") as made:
        new = Path(made, "new")
        fill(new, project, asv, folder, commit, options.reports or project / REPORTS)
        if html.exists():
            shutil.move(html, Path(made, "old"))
        shutil.move(new, html)
    print(f"{html} is complete: python -m http.server --directory {html}")


def has_results(folder: Path, commit: str) -> bool:
    """Whether any machine has results of a commit."""
    return any(folder.glob(f"*/{commit[:8]}-*.json"))


def run(project: Path, commit: str, options: argparse.Namespace) -> None:
    """Have asv measure what is checked out, in this environment.

    Raises
    ------
    ValueError
        If files were changed: the results would be told of a commit that does not have them.
    """
    if git(project, "status", "--porcelain", "--untracked-files=no"):
        raise ValueError("files are changed: commit them, so that results are of a commit")
    asv(project, "machine", "--yes")
    more = ["--quick"] * options.quick + (["--bench", options.bench] if options.bench else [])
    asv(project, "run", "--python=same", "--set-commit-hash", commit, *more)


def fill(
    new: Path, project: Path, conf: dict[str, Any], folder: Path, commit: str, reports: Path
) -> None:
    """Write everything into a new folder."""
    machines = results.read(folder)
    known = results.read_json(folder / "benchmarks.json", results.BENCHMARKS_VERSION)
    gpu, peers = sorted_reports(reports)
    works, notes = devices.merged(gpu, machines, lambda text: resolved(project, text))
    known |= works
    with tempfile.TemporaryDirectory() as labelled:
        results.write(machines, known, Path(labelled, "results"))
        own = {"repo": str(project / conf["repo"]), "results_dir": str(Path(labelled, "results")),
               "html_dir": str(new / "asv"), "benchmark_dir": str(project / conf["benchmark_dir"]),
               "env_dir": str(project / conf["env_dir"])}  # fmt: skip
        config = Path(labelled, CONFIGURATION)
        write_atomically(config, json.dumps(conf | own))
        asv(project, "publish", "--no-pull", "--config", str(config))
    assets.vendor(new / "asv")
    assets.complete(new / "asv")
    if not is_published(project, commit, conf["branches"]):
        branches = ", ".join(conf["branches"])
        notes.append(f"{commit[:8]} is not on {branches}: it has no points in the graphs")
    if not peers:
        notes.append("No report of peers: see benchmarks.peers.publish")
    values = list(results.values_of(machines, commit))
    last = {report["environment"]["device"]: report for report in gpu}
    text = landing.page(commit, values, known, list(last.values()), peers, notes)
    write_atomically(new / "index.html", text)
    (new / "index.html").chmod(0o644)


def is_published(project: Path, commit: str, branches: Iterable[str]) -> bool:
    """Whether a commit is on one of the branches whose history asv draws."""
    asked = ["git", "-C", str(project), "merge-base", "--is-ancestor", commit]
    return any(subprocess.run([*asked, name], check=False).returncode == 0 for name in branches)


def sorted_reports(folder: Path) -> tuple[list[Any], list[Any]]:
    """Return the reports of devices and of peers, the earliest first: their names end in a day."""
    on_devices, of_peers = [], []
    for path in by_day(folder.glob("*.json")):
        report = json.loads(path.read_text(encoding="utf-8"))
        if "results" in report and "device" in report["environment"]:
            on_devices.append(report)
        elif "measurements" in report:
            of_peers.append(peers_report.read(path))
    return on_devices, of_peers


def by_day(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path.stem[-10:], path.stem))


def resolved(project: Path, described: str) -> tuple[str, int] | None:
    """Return hash and milliseconds of what `git describe` told; None where there is no commit."""
    if described.endswith("-dirty"):
        return None
    command = ["git", "-C", str(project), "log", "-1", "--format=%H %ct", described, "--"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return None
    hash_, seconds = done.stdout.split()
    return hash_, 1000 * int(seconds)


def asv(project: Path, *arguments: str) -> None:
    """Run a command of asv's, as its documentation has it."""
    subprocess.run([sys.executable, "-m", "asv", *arguments], cwd=project, check=True)


def git(project: Path, *arguments: str) -> str:
    command = ["git", "-C", str(project), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
