"""What is compared: works, each with contenders, the values they must give, and targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from benchmarks.gpu.device import Device
from benchmarks.peers.harness import Tolerance

Clock = Literal["graph", "batch", "host"]
"""The device's time by replaying a graph; that of a loop; or the host's for a call."""

FLOAT32 = Tolerance(1e-5, 2e-6)

CHECKED = 997  # of long results, every so many elements are checked


@dataclass(frozen=True)
class Made:
    """A contender on the device.

    Attributes
    ----------
    call : callable
        Does the work once, and does not wait for it.
    unpack : callable
        From what the call returns to the arrays of the device in it.
    wait, get : callable, optional
        Wait for calls and bring arrays to the host, of a library other than the device's.
    """

    call: Callable[[], Any]
    unpack: Callable[[Any], Sequence[Any]]
    wait: Callable[[], Any] | None = None
    get: Callable[[Any], NDArray] | None = None


@dataclass(frozen=True)
class Contender:
    """One implementation of a work.

    Attributes
    ----------
    make : callable
        Puts the inputs on a device; raises where the work cannot be done.
    clock : Clock
        What is measured.
    is_checked : bool
        Whether its values are compared.
    """

    make: Callable[[Device], Made]
    clock: Clock = "graph"
    is_checked: bool = True


@dataclass(frozen=True)
class Work:
    """One line of the report's first table.

    Attributes
    ----------
    name, title : str
        Of the family, and of this member.
    contenders : mapping
        By name; ratios are of the first one's time over the others'.
    expected : callable
        Returns the checked elements in float64: every `CHECKED`-th of what `Made.unpack` returns.
    bytes_moved : int
        Bytes that any implementation must move; 0: not told.
    tolerance : Tolerance
        Of the values.
    targets : mapping
        From a contender's name to the largest ratio that is wanted; from ``"seconds"`` to a time.
    """

    name: str
    title: str
    contenders: Mapping[str, Contender]
    expected: Callable[[], Sequence[NDArray]]
    bytes_moved: int = 0
    tolerance: Tolerance = FLOAT32
    targets: Mapping[str, float] = field(default_factory=dict)


def sampled(array: Any) -> Any:
    """Return the elements that are checked, of an array of any library, where it is."""
    flat = array.reshape(-1)
    return flat if len(flat) <= CHECKED else flat[::CHECKED]
