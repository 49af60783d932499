"""Recordings of values alone, around a transform that is one operation of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mixad.call.signature import Function
from mixad.tape.tracer import Level
from mixad.transforms.returning import unwrap_aux
from mixad.transforms.strand_calls import VALUES_ALONE
from mixad.transforms.strands import open_strand

__all__ = ["record_values"]


def record_values(
    name: str,
    f: Function,
    args: Sequence[Any],
    positions: Sequence[int],
    call: Callable[[Sequence[Any], Sequence[Any]], Any],
    has_aux: bool,
) -> tuple[Any, Any] | None:
    """Return value and aux of a call, by a plan where one is known; None where none can serve.

    ``call`` takes the arguments, and the leaves of those at ``positions`` as the recording has
    them.
    """
    with Level(name, is_reverse=False, differentiates=False) as level:
        strand = open_strand(level, f, args, positions)
        if strand is None:
            return None
        arguments, inputs = strand.arguments, strand.inputs
        outputs, aux = strand.record(lambda *_: call(arguments, inputs), {}, has_aux, VALUES_ALONE)
    if strand.is_known:
        value, _, aux = strand.run()
        return value, aux
    return outputs.values(level), unwrap_aux(aux, level)
