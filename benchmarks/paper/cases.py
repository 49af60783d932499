"""What is measured: cases, each with ways to do its work, and what came of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from benchmarks.gpu.device import Device
from benchmarks.gpu.work import FLOAT32, Clock, Made
from benchmarks.peers.harness import Summary, Tolerance

Expected = Callable[[], Sequence[NDArray]]


@dataclass(frozen=True)
class Way:
    """One way to do a case's work.

    Attributes
    ----------
    make : callable
        Puts the inputs on a device; raises where the work cannot be done.
    expected : callable or None
        Returns the elements that are checked, in float64; None: nothing is compared.
    clock : Clock
        How a device's time of the call is taken; on the host it is the call's.
    alone : callable or None
        On the host, what launches the kernel without what leads to it.
    is_kernel : bool
        Whether the call is no more than that on the host too.
    over : str
        Name of the way whose time this one's is compared with; empty: none.
    bytes_moved : int
        Bytes that the work must move; 0: not told.
    facts : callable or None
        Returns figures that are no times.
    """

    make: Callable[[Device], Made]
    expected: Expected | None = None
    clock: Clock = "graph"
    alone: Callable[[Device], Callable[[], Any]] | None = None
    is_kernel: bool = False
    over: str = ""
    bytes_moved: int = 0
    facts: Callable[[], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Case:
    """What is timed in the same rounds."""

    experiment: str
    title: str
    ways: Mapping[str, Way]
    tolerance: Tolerance = FLOAT32


@dataclass(frozen=True)
class Row:
    """What one way of a case gave.

    Attributes
    ----------
    experiment, case, contender : str
        Which.
    kernel : Summary or None
        Seconds of what runs on the device; on the host of the launch alone, where that is known.
    call : Summary or None
        Seconds of the call, with the copy of all results to the host where they are on a device.
    ratio : Summary or None
        Time over that of ``over``, in the same rounds.
    over : str
        Name of another way.
    bytes_moved : int
        0: not told.
    error : float or None
        Over the tolerance; None where nothing is compared.
    reason : str
        Why there are no times; empty where there are.
    facts : mapping
        Figures that are no times.
    """

    experiment: str
    case: str
    contender: str
    kernel: Summary | None = None
    call: Summary | None = None
    ratio: Summary | None = None
    over: str = ""
    bytes_moved: int = 0
    error: float | None = None
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
