"""The host in a device's place, for machines without one."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from benchmarks.gpu.device import Call, Device
from benchmarks.peers import libraries
from benchmarks.peers.report import cpu_model


class Host:
    """NumPy arrays where they are."""

    platform = "cpu"

    def __init__(self) -> None:
        self.name = cpu_model()

    def put(self, array: NDArray) -> Any:
        return array

    def get(self, array: Any) -> NDArray:
        return np.asarray(array)

    def wait(self) -> None:
        """Return: what was asked for is done when the call returns."""

    def kernel_seconds(self, call: Call, rounds: int) -> NoReturn:
        raise NotImplementedError("calls on the host are timed in turns: see benchmarks.paper.run")


class TorchHost(Host):
    """The same memory as tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._torch = libraries.torch()

    def put(self, array: NDArray) -> Any:
        return self._torch.from_numpy(array)

    def get(self, array: Any) -> NDArray:
        return array.detach().numpy()


def for_torch(device: Device) -> Device:
    """Return a device whose arrays are torch's: a CUDA device's are anyway."""
    return TorchHost() if device.platform == "cpu" else device
