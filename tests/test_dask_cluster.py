"""Two processes of Dask with less memory than the data, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import mixad

da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="processes are killed by signals"),
    # A worker that is killed leaves sockets and logs behind, as it would.
    pytest.mark.filterwarnings("ignore"),
]

LIMIT = 500 << 20
"""Bytes that a process may have, of which its imports take some 200 MiB."""

CHUNKS = 144
ROWS, COLUMNS = 1 << 13, 1 << 7  # 8 MiB a chunk, 1.1 GiB in all
SECONDS = 120


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    options = {
        "n_workers": 2,
        "threads_per_worker": 1,
        "memory_limit": LIMIT,
        "dashboard_address": None,
    }
    with distributed.LocalCluster(processes=True, **options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=SECONDS)
        yield client


@mixad.broadcast
def model(x, a, b, s):
    r = (x - a) / s
    if r > 2.0:
        return b * (2.0 * r - 2.0)
    return 0.5 * b * r * r + np.exp(-r * r)


def _data(chunks: int) -> Any:
    """Return numbers that each task makes of its place."""

    def block(block_info: Any = None) -> Any:
        first = block_info[None]["array-location"][0][0]
        return np.random.default_rng(first).random((ROWS, COLUMNS)) * 3

    chunked = ((ROWS,) * chunks, (COLUMNS,))
    return da.map_blocks(block, chunks=chunked, dtype=float, meta=np.empty((0, 0)))


PARAMETERS = (np.full(COLUMNS, 0.1), 1.0, np.full(COLUMNS, 0.9))


def _asked(x: Any) -> list[Any]:
    loss = mixad.value_and_grad(lambda a, b, s: np.sum(model(x, a, b, s)), argnums=(0, 1, 2))
    value, gradients = loss(*PARAMETERS)
    return [value, *gradients]


def _bits(results: Any) -> list[bytes]:
    return [np.asarray(result).tobytes() for result in results]


def _done(client: Any) -> int:
    """Return how many tasks of kernels have been computed so far."""
    seen = client.run_on_scheduler(
        lambda dask_scheduler: {
            prefix.name: prefix.state_counts["released"]
            + prefix.state_counts["memory"]
            + prefix.state_counts["forgotten"]
            for prefix in dask_scheduler.task_prefixes.values()
        }
    )
    return sum(count for name, count in seen.items() if name.startswith("mixad"))


def test_processes_give_the_bits_of_one_process(client: Any) -> None:
    import dask

    asked = _asked(_data(8))
    found = client.gather(client.compute(asked))
    assert _bits(found) == _bits(dask.compute(*asked, scheduler="synchronous"))
    data = _data(8).compute(scheduler="synchronous")
    want = mixad.value_and_grad(lambda a, b, s: np.sum(model(data, a, b, s)), argnums=(0, 1, 2))(
        *PARAMETERS
    )
    for result, expected in zip(found, mixad.pytree.leaves(want), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12)


def test_a_process_that_is_killed_in_the_middle_changes_no_bit(cluster: Any, client: Any) -> None:
    x = _data(CHUNKS)
    assert x.nbytes > 2 * LIMIT
    asked = _asked(x)
    want = _bits(client.gather(client.compute(asked)))
    futures = client.compute(asked)
    pids = [worker.pid for worker in cluster.workers.values()]
    deadline = time.monotonic() + SECONDS
    while _done(client) < 20 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(future.done() for future in futures)
    os.kill(pids[0], signal.SIGKILL)
    assert _bits(client.gather(futures)) == want
    assert [worker.pid for worker in cluster.workers.values()] != pids


def _limits() -> tuple[str | None, str | None, int]:
    """Return what a process's kernels may use."""
    from mixad.backends.cpu import workers

    threads, pool = os.environ.get("MIXAD_NUM_THREADS"), os.environ.get("MIXAD_POOL_BYTES")
    return threads, pool, workers.shared_workers().threads


def test_kernels_have_the_threads_and_the_memory_of_their_worker(client: Any) -> None:
    client.gather(client.compute(_asked(_data(8))))
    for found in client.run(_limits).values():
        assert found == ("1", str(LIMIT // 8), 1)
    assert "MIXAD_NUM_THREADS" not in os.environ
