"""What type checkers know of mixad: arrays in, arrays out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("typed_program.py")
ROOT = PROGRAM.parent.parent


def run(*command: str) -> str:
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    found = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, text=True, capture_output=True
    )
    assert found.returncode == 1, found.stdout + found.stderr  # there are errors that are meant
    return found.stdout


def reported_by_mypy(tmp_path: Path) -> dict[int, str]:
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    output = run("mypy", "--config-file", str(config), str(PROGRAM))
    found = re.findall(rf"{PROGRAM.name}:(\d+): error: (.*)", output)
    return {int(line): message for line, message in found}


def reported_by_pyright(tmp_path: Path) -> dict[int, str]:
    pytest.importorskip("basedpyright")
    config = tmp_path / "pyrightconfig.json"
    found_here = {"include": [str(PROGRAM)], "extraPaths": [str(ROOT)]}
    config.write_text(json.dumps({**found_here, "typeCheckingMode": "standard"}))
    options = ["--pythonpath", sys.executable, "--outputjson"]
    output = json.loads(run("basedpyright", "-p", str(config), *options))
    found = [d for d in output["generalDiagnostics"] if d["severity"] == "error"]
    return {d["range"]["start"]["line"] + 1: d["message"] for d in found}


@pytest.mark.slow
@pytest.mark.parametrize("reported", [reported_by_mypy, reported_by_pyright])
def test_a_checker_agrees_with_the_program_and_reports_what_is_wrong(reported, tmp_path):
    lines = enumerate(PROGRAM.read_text("utf-8").splitlines(), 1)
    wrong = {number for number, line in lines if line.endswith("# wrong")}
    found = reported(tmp_path)
    assert found.keys() == wrong, found
