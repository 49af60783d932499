"""Check every contender of a work, then time those whose values are right."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.gpu.device import Device, call_seconds, host_seconds
from benchmarks.gpu.tried import tried
from benchmarks.gpu.work import Contender, Made, Work, sampled
from benchmarks.peers.harness import Summary, largest_error, summarise, why

ROUNDS = 20
SUBJECT = "mixad"


@dataclass(frozen=True)
class Outcome:
    """What one contender gave.

    Attributes
    ----------
    error : float or None
        Over the tolerance; infinite where it raised; None where nothing is compared.
    reason : str
        Why there are no times; empty where there are.
    times : Summary or None
        Seconds of a call, by the contender's clock.
    host : Summary or None
        Seconds of the host for a call, beside the device's.
    """

    error: float | None
    reason: str = ""
    times: Summary | None = None
    host: Summary | None = None


@dataclass(frozen=True)
class Result:
    """What a work gave, contender by contender."""

    work: Work
    outcomes: Mapping[str, Outcome]

    def ratio(self, name: str) -> float | None:
        """Return the subject's median time over another's; None where one is missing."""
        mine, other = self.outcomes[SUBJECT].times, self.outcomes[name].times
        return None if mine is None or other is None else mine.median / other.median

    @property
    def is_right(self) -> bool:
        """Whether mixad gave the values that were expected, or could not be asked."""
        error = self.outcomes[SUBJECT].error
        return error is None or error <= 1


def measured(
    work: Work, device: Device, rounds: int, is_late: Callable[[], bool] = lambda: False
) -> Result:
    """Check and time a work.

    Parameters
    ----------
    work : Work
        With its contenders.
    device : Device
        Where they run.
    rounds : int
        Of each clock; 0: values alone.
    is_late : callable
        Whether no more is to be begun.
    """
    expected = work.expected()
    outcomes = {}
    for name, contender in work.contenders.items():
        if is_late():
            outcomes[name] = Outcome(None, "the time of the run was used up")
        else:
            outcomes[name] = outcome(work, contender, expected, device, rounds)
    return Result(work, outcomes)


def outcome(
    work: Work, contender: Contender, expected: Sequence[np.ndarray], device: Device, rounds: int
) -> Outcome:
    """Check and time one contender; whatever it raises is told with its reason."""
    found = tried(
        lambda: contender.make(device),
        lambda made: error_of(work, made, expected, device) if contender.is_checked else None,
    )
    if found.made is None:
        return Outcome(found.error, found.reason)
    if not rounds:
        return Outcome(found.error, "checked only")
    try:
        times = summarise(seconds(found.made, contender, device, rounds))
        host = summarise(host_seconds(found.made.call, found.made.wait or device.wait, rounds))
    except Exception as problem:  # values may be right of a call that no graph can hold
        return Outcome(math.inf if found.error is None else found.error, why(problem))
    return Outcome(found.error, times=times, host=host)


def error_of(work: Work, made: Made, expected: Sequence[np.ndarray], device: Device) -> float:
    """Return the largest error of a call, over the tolerance."""
    arrays = made.unpack(made.call())
    (made.wait or device.wait)()
    get = made.get or device.get
    return largest_error([get(sampled(x)) for x in arrays], expected, work.tolerance)


def seconds(made: Made, contender: Contender, device: Device, rounds: int) -> np.ndarray:
    """Return the seconds of each round, by the contender's clock."""
    wait = made.wait or device.wait
    match contender.clock:
        case "graph":
            return device.kernel_seconds(made.call, rounds)
        case "batch":
            return call_seconds(made.call, wait, rounds)
        case "host":
            return host_seconds(made.call, wait, rounds)
