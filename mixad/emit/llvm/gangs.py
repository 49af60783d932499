"""The loop over the gangs of a row, and its end.

Full gangs are read from and written to the arrays themselves.  The last elements of a row, fewer
than a gang, go through the same code by way of stages on the stack: for that one turn the *base*
of every array is moved such that base plus index is its stage.  So the loop's body is there once,
and a full gang pays nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mixad.emit.llvm.combine import Gang, Place, Writer, element_at
from mixad.emit.llvm.operands import Reader
from mixad.emit.llvm.text import GANG, Text

__all__ = ["Bases", "gang_loop"]

Bases = Mapping[Reader | Writer, str]
"""For each array that gangs stream through, where element 0 of the row seems to be."""


@contextmanager
def gang_loop(
    text: Text, place: Place, readers: Sequence[Reader], writers: Sequence[Writer]
) -> Iterator[tuple[Gang, Bases]]:
    """Emit the loop over the gangs of a row; the body is what is added inside the ``with``.

    Parameters
    ----------
    text : Text
        The function that grows.
    place : Place
        The tile; its block has at least one element.
    readers, writers : sequence
        The arrays that gangs stream through.

    Yields
    ------
    gang : Gang
        The gang of this turn.
    bases : Mapping
        For each of the arrays, its base in this turn.
    """
    streams: list[Reader | Writer] = [*readers, *writers]
    last, head, done = text.name(), text.name(), text.name()
    at, here, following = (f"%{text.name()}" for _ in range(3))
    before = text.label
    begins_full = _fits(text, place.low, place.high)
    text.add(f"br i1 {begins_full}, label %{head}, label %{last}")

    text.begin(last)
    at_phi = text.reserve()
    staged = _staged_bases(text, at, place.high, readers, streams)
    from_last = text.label
    text.add(f"br label %{head}")

    text.begin(head)
    here_phi = text.reserve()
    base_phis = [text.reserve() for _ in streams]
    bases = [f"%{text.name()}" for _ in streams]
    yield Gang(text, here, place.high), dict(zip(streams, bases, strict=True))

    text.add(f"{following} = add i64 {here}, {GANG}")
    goes_on, end = text.name(), text.label
    text.add(f"br i1 {_fits(text, following, place.high)}, label %{head}, label %{goes_on}")
    text.begin(goes_on)
    some_left = text.let(f"icmp slt i64 {following}, {place.high}")
    text.add(f"br i1 {some_left}, label %{last}, label %{done}")

    text.fill(at_phi, f"{at} = phi i64 [ {place.low}, %{before} ], [ {following}, %{goes_on} ]")
    arrives = f"phi i64 [ {place.low}, %{before} ], [ {at}, %{from_last} ], [ {following}, %{end} ]"
    text.fill(here_phi, f"{here} = {arrives}")
    for phi, base, stream, stage in zip(base_phis, bases, streams, staged, strict=True):
        row = stream.row
        arrives = f"phi ptr [ {row}, %{before} ], [ {stage}, %{from_last} ], [ {row}, %{end} ]"
        text.fill(phi, f"{base} = {arrives}")
    text.begin(done)
    _empty_stages(text, place, writers)


def _staged_bases(
    text: Text,
    at: str,
    high: str,
    readers: Sequence[Reader],
    streams: Sequence[Reader | Writer],
) -> list[str]:
    """Fill the readers' stages with what is left of a row; return every array's base for it."""
    count = text.let(f"sub i64 {high}, {at}")
    for reader in readers:
        reader.fill_stage(at, count)
    back = text.let(f"sub i64 0, {at}")
    return [element_at(text, stream.stage, back, stream.type) for stream in streams]


def _fits(text: Text, index: str, high: str) -> str:
    """Return an i1: whether a full gang begins at an index."""
    after = text.let(f"add i64 {index}, {GANG}")
    return text.let(f"icmp sle i64 {after}, {high}")


def _empty_stages(text: Text, place: Place, writers: Sequence[Writer]) -> None:
    """Copy what the last turn left in the stages, if it was not full."""
    if not writers:
        return
    extent = text.let(f"sub i64 {place.high}, {place.low}")
    count = text.let(f"and i64 {extent}, {GANG - 1}")
    some = text.let(f"icmp ne i64 {count}, 0")
    with text.when(some, True):
        start = text.let(f"sub i64 {place.high}, {count}")
        for writer in writers:
            writer.empty_stage(start, count)
