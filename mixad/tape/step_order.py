"""The order of a step's launches where some change an array in its memory.

One that does so comes after all that read what was there; where there is no such order, or where
the memory is not the step's, it changes a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from mixad.tape.native_steps import Native, NativeAlias, changed_register

__all__ = ["StepOrder", "order_steps"]


class StepOrder(NamedTuple):
    """What a step does, in order."""

    natives: Sequence[Native]
    in_place: frozenset[int]  # results that are an argument changed in its memory
    staying: frozenset[int]  # carries that are at the same place in all steps


def order_steps(
    natives: Sequence[Native], values: Sequence[int], carries: Collection[int]
) -> StepOrder:
    """Return the order of a plan's steps, whose first values are the next carries.

    The memory of ``carries`` may be changed; that of other arrays which come in may not.
    """
    makers = {at: number for number, each in enumerate(natives) for at in _results(each)}
    versions: dict[int, int] = {}  # by view: whose elements it has
    readers: dict[int, set[int]] = {}
    own = set(carries)
    for number, each in enumerate(natives):
        if isinstance(each, NativeAlias):
            versions[each.result] = versions.get(each.source, each.source)
            continue
        own.update(_results(each))
        for at in _sources(each):
            readers.setdefault(versions.get(at, at), set()).add(number)
    end = len(natives)
    for at in values:
        readers.setdefault(versions.get(at, at), set()).add(end)
    before = [{makers[at] for at in _sources(each) if at in makers} for each in natives]
    order: list[int] | None = list(range(end))
    in_place = set[int]()
    for number, each in enumerate(natives):
        changed = changed_register(each)
        version = None if changed is None else versions.get(changed, changed)
        if version not in own or end in readers[version]:
            continue
        kept, before[number] = before[number], before[number] | readers[version] - {number}
        found = _sorted(before)
        if found is None:
            before[number] = kept
        else:
            order = found
            in_place.update(_results(each))
    assert order is not None
    staying = {at for at in carries if _stays(at, values[at], natives, makers, in_place)}
    return StepOrder([natives[at] for at in order], frozenset(in_place), frozenset(staying))


def _results(native: Native) -> Sequence[int]:
    return (native.result,) if isinstance(native, NativeAlias) else native.writes


def _sources(native: Native) -> Sequence[int]:
    return (native.source,) if isinstance(native, NativeAlias) else native.reads


def _sorted(before: Sequence[Collection[int]]) -> list[int] | None:
    """Return numbers in their order where each comes after some others; None if there is none."""
    missing, after = [len(each) for each in before], [list[int]() for _ in before]
    for number, each in enumerate(before):
        for other in each:
            after[other].append(number)
    ready, order = [at for at, count in enumerate(missing) if not count], list[int]()
    while ready:
        order.append(heappop(ready))
        for at in after[order[-1]]:
            missing[at] -= 1
            if not missing[at]:
                heappush(ready, at)
    return order if len(order) == len(before) else None


def _stays(
    carry: int, value: int, natives: Sequence[Native], makers: dict[int, int], in_place: set[int]
) -> bool:
    """Whether the next value of a carry is in its memory."""
    while value != carry:
        if value not in makers:
            return False
        native = natives[makers[value]]
        if isinstance(native, NativeAlias):
            if native.first or native.has_gaps:
                return False
            value = native.source
        else:
            changed = changed_register(native) if value in in_place else None
            if changed is None:
                return False
            value = changed
    return True
