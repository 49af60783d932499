"""The device that everything runs on, through torch: memory, clocks, and what it is called."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.harness import UnavailableError
from mixad.backends import registry
from mixad.errors import BackendError

WARM = 3  # calls before any that is timed
BATCH = 10  # calls between two readings of a clock: what reading takes is shared among them

Call = Callable[[], Any]


class Device(Protocol):
    """What the measurements ask of a device."""

    name: str
    platform: str  # as JAX calls it

    def put(self, array: NDArray) -> Any:
        """Return a copy on the device."""
        ...

    def zeros(self, count: int) -> Any:
        """Return so many float32 on the device."""
        ...

    def copy(self, source: Any, target: Any) -> None:
        """Read all of one array and write all of another."""
        ...

    def get(self, array: Any) -> NDArray:
        """Return a copy on the host."""
        ...

    def wait(self) -> None:
        """Wait until everything that was asked for is done."""
        ...

    def kernel_seconds(self, call: Call, rounds: int) -> NDArray[np.float64]:
        """Return what the device takes for a call, without the host's part."""
        ...


class CudaDevice:
    """The first CUDA device of torch.

    Raises
    ------
    UnavailableError
        If there is none, or no torch, or nothing that compiles mixad's kernels for it.
    """

    platform = "gpu"

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise UnavailableError(
                "torch is not installed, through which devices are reached"
            ) from error
        if not torch.cuda.is_available():
            raise UnavailableError(f"torch {torch.__version__} finds no CUDA device")
        try:
            registry.backend("torch")
        except BackendError as error:
            raise UnavailableError(f"mixad-torch is not there: {error}") from error
        self._torch = torch
        self.name = torch.cuda.get_device_name(0)

    def put(self, array: NDArray) -> Any:
        return self._torch.from_numpy(array).cuda()

    def zeros(self, count: int) -> Any:
        return self._torch.zeros(count, dtype=self._torch.float32, device="cuda")

    def copy(self, source: Any, target: Any) -> None:
        """Copy by a kernel: graphs leave large copies to an engine, which is slower."""
        self._torch.neg(source, out=target)

    def get(self, array: Any) -> NDArray:
        return array.detach().cpu().numpy()

    def wait(self) -> None:
        self._torch.cuda.synchronize()

    def kernel_seconds(self, call: Call, rounds: int) -> NDArray[np.float64]:
        """Replay a graph of the call: it has the kernels and none of the host's work."""
        cuda = self._torch.cuda
        graph = self._captured(call)
        ends = [cuda.Event(enable_timing=True) for _ in range(rounds + 1)]
        for _ in range(WARM):
            graph.replay()
        ends[0].record()
        for end in ends[1:]:
            for _ in range(BATCH):
                graph.replay()
            end.record()
        cuda.synchronize()
        milliseconds = [start.elapsed_time(end) for start, end in pairwise(ends)]
        return np.asarray(milliseconds) / 1e3 / BATCH

    def _captured(self, call: Call) -> Any:
        cuda = self._torch.cuda
        side = cuda.Stream()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):  # as torch asks: what is made at first calls is not captured
            for _ in range(WARM):
                call()
        cuda.current_stream().wait_stream(side)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            call()
        return graph


def call_seconds(call: Call, wait: Call, rounds: int) -> NDArray[np.float64]:
    """Return what a call takes in a loop that waits for the device after every batch.

    That is the device's time, or the host's where that is longer.
    """
    for _ in range(WARM):
        call()
    wait()
    seconds = np.empty(rounds)
    for k in range(rounds):
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        wait()
        seconds[k] = (time.perf_counter() - start) / BATCH
    return seconds


def host_seconds(call: Call, wait: Call, rounds: int) -> NDArray[np.float64]:
    """Return what the host takes for a call that it does not wait for."""
    for _ in range(WARM):
        call()
    seconds = np.empty(rounds)
    for k in range(rounds):
        wait()  # so that no call waits for room in the device's queue
        start = time.perf_counter()
        for _ in range(BATCH):
            call()
        seconds[k] = (time.perf_counter() - start) / BATCH
    return seconds
