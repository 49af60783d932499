"""When partials are computed: with the primal, and stored, or in the backward pass.

*Forward* evaluates the program once, on dual numbers, and writes and reads the partials; *reverse*
evaluates it twice and moves fewer arrays.  A kernel takes as long as its arithmetic or its memory
traffic, whichever is more (Williams, Waterman, Patterson, *Roofline*, CACM 52, 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LEAST_COST", "Work", "forward_pays"]

_ARRAY = 20
"""Cost of moving one array, in the vector instructions of `mixad.kernel.cost`."""

LEAST_COST = 60
"""A program that costs less is bound by memory either way: evaluating it again is free."""

_GAIN = 0.9
"""Share of the time that must remain for stored partials to be worth their memory."""


@dataclass(frozen=True)
class Work:
    """The work of a value and its gradients, per element.

    Costs of programs are those of `mixad.kernel.cost`; arrays count by their share of the shape.
    """

    primal: int  # cost of the program
    dual: int  # cost of the program on dual numbers
    backward: int  # cost of backward programs without stored partials
    arguments: float  # arrays read
    results: float  # arrays made
    gradients: float  # arrays made in the backward pass
    stored: int  # arrays that store partials
    partials: int  # arrays read as such, arguments and results included


def forward_pays(work: Work) -> bool:
    """Whether partials should come with the primal, where its value is needed before.

    >>> costly, cheap = Work(400, 600, 600, 1, 1, 1, 1, 1), Work(70, 120, 120, 4, 1, 4, 4, 4)
    >>> forward_pays(costly), forward_pays(cheap)
    (True, False)
    """
    made = work.arguments + work.results
    pulled = work.results + work.gradients
    reverse = _time(work.primal, made) + _time(work.backward, work.arguments + pulled)
    forward = _time(work.dual, made + work.stored) + _time(0, work.partials + pulled)
    return forward < _GAIN * reverse


def _time(cost: int, arrays: float) -> float:
    return max(cost, _ARRAY * arrays)
