"""Programs of docs/shards.md: the same bits for any number of workers.

Ray and mpi4py are not among the packages for tests. Where they are installed, their programs run.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent / "shards"

pytestmark = pytest.mark.slow


def _model() -> Any:
    spec = importlib.util.spec_from_file_location("model", FOLDER / "model.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _by_hand() -> str:
    """Return what the programs print, from shards one after another."""
    model = _model()
    return str(model.fitted(lambda p: [model.of_shard(p, k) for k in range(model.SHARDS)]))


def _run(*command: Any, **variables: str) -> list[str]:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=os.environ | variables
    )
    return done.stdout.splitlines()


def _with_workers(name: str, workers: int, folder: Path) -> Path:
    """Return a program for another number of workers, beside the model."""
    program = (FOLDER / name).read_text()
    assert program.count("WORKERS = 2") == 1
    shutil.copy(FOLDER / "model.py", folder)
    (folder / name).write_text(program.replace("WORKERS = 2", f"WORKERS = {workers}"))
    return folder / name


def test_the_gradient_of_a_shard_is_that_of_differences() -> None:
    model = _model()
    at = {"slope": 1.5, "offset": -0.5}
    _, gradients = model.of_shard(at, 3)
    for name, step in (("slope", 1e-5), ("offset", 1e-5)):
        above, below = (model.of_shard(at | {name: at[name] + s}, 3)[0] for s in (step, -step))
        assert gradients[name] == pytest.approx((above - below) / (2 * step), rel=1e-6)


def test_the_fit_finds_the_line() -> None:
    model = _model()
    _, found = model.fitted(lambda p: [model.of_shard(p, k) for k in range(model.SHARDS)])
    np.testing.assert_allclose([found["slope"], found["offset"]], [2.0, -1.0], atol=0.05)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_joblib_gives_the_bits_of_one_process(workers: int, tmp_path: Path) -> None:
    pytest.importorskip("joblib")
    assert _run(sys.executable, _with_workers("by_joblib.py", workers, tmp_path)) == [_by_hand()]


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_ray_gives_the_bits_of_one_process(workers: int, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    found = _run(sys.executable, _with_workers("by_ray.py", workers, tmp_path))
    assert found[-1] == _by_hand()


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_mpi_gives_the_bits_of_one_process(workers: int) -> None:
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if mpiexec is None:
        pytest.skip("there is no mpiexec")
    found = _run(mpiexec, "-n", str(workers), sys.executable, FOLDER / "by_mpi.py")
    assert "".join(found) == _by_hand() * workers  # lines of processes may be one


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_torch_gives_the_bits_of_one_process(workers: int) -> None:
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available():
        pytest.skip("torch has no torch.distributed here")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "localhost", "MASTER_PORT": port, "WORLD_SIZE": str(workers)}
    processes = [
        subprocess.Popen(
            [sys.executable, FOLDER / "by_torch.py"],
            env=os.environ | place | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(workers)
    ]
    found = [process.communicate()[0].splitlines() for process in processes]
    assert [process.returncode for process in processes] == [0] * workers
    assert found == [[_by_hand()]] * workers
