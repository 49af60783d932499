"""The loop over the gangs of a row, and its end.

Full gangs are read from and written to the arrays themselves.  The last elements of a row, fewer
than a gang, go through the same code by way of stages on the stack: for that iteration the *base*
of every array is moved such that base plus index is its stage.  So the loop's body is there once,
and a full gang pays nothing for the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from mixad.emit.llvm.combine import Gang, TilePosition, Writer
from mixad.emit.llvm.operands import Reader
from mixad.emit.llvm.text import GANG, Text

__all__ = ["Bases", "gang_loop"]

Bases = Mapping[Reader | Writer, str]
"""For each array that gangs stream through, where element 0 of the row seems to be."""


@contextmanager
def gang_loop(
    text: Text, position: TilePosition, readers: Sequence[Reader], writers: Sequence[Writer]
) -> Iterator[tuple[Gang, Bases]]:
    """Emit the loop over the gangs of a row; the body is what is added inside the ``with``.

    Yield the gang of an iteration, and the bases of the arrays that gangs stream through. The
    tile's block has at least one element.
    """
    loop = _GangLoop(text, position, [*readers, *writers])
    loop.enter()
    loop.begin_last_iteration(readers)
    bases = loop.begin_iteration()
    yield Gang(text, loop.here, position.high), dict(zip(loop.streams, bases, strict=True))
    loop.end_iteration()
    loop.connect()
    text.begin(loop.done)
    _empty_stages(text, position, writers)


class _GangLoop:
    """The blocks of a loop while they are emitted, from ``before`` to ``done``.

    Iterations begin at ``head``; one for less than a gang, the last, passes through ``last`` first.
    ``here`` is the first element of an iteration, ``following`` of the next, ``at`` of the last.
    """

    def __init__(
        self, text: Text, position: TilePosition, streams: Sequence[Reader | Writer]
    ) -> None:
        self.text = text
        self.position = position
        self.streams = streams
        self.last, self.head, self.done = (text.name() for _ in range(3))
        self.at, self.here, self.following = (f"%{text.name()}" for _ in range(3))

    def enter(self) -> None:
        """Go to the first iteration: of a full gang, or the last one."""
        text, position = self.text, self.position
        self.before = text.label
        begins_full = _fits(text, position.low, position.high)
        text.add(f"br i1 {begins_full}, label %{self.head}, label %{self.last}")

    def begin_last_iteration(self, readers: Sequence[Reader]) -> None:
        """Stage the rest of the row, then branch into the ordinary iteration."""
        text = self.text
        text.begin(self.last)
        self.at_phi = text.reserve()
        self.staged = _staged_bases(text, self.at, self.position.high, readers, self.streams)
        self.from_last = text.label
        text.add(f"br label %{self.head}")

    def begin_iteration(self) -> list[str]:
        """Begin an iteration; return the base of every stream in it."""
        text = self.text
        text.begin(self.head)
        self.here_phi = text.reserve()
        self.base_phis = [text.reserve() for _ in self.streams]
        self.bases = [f"%{text.name()}" for _ in self.streams]
        return self.bases

    def end_iteration(self) -> None:
        """Continue with the next full gang, with the last iteration, or at the end."""
        text, following, high = self.text, self.following, self.position.high
        text.add(f"{following} = add i64 {self.here}, {GANG}")
        self.goes_on, self.end = text.name(), text.label
        fits = _fits(text, following, high)
        text.add(f"br i1 {fits}, label %{self.head}, label %{self.goes_on}")
        text.begin(self.goes_on)
        some_left = text.let(f"icmp slt i64 {following}, {high}")
        text.add(f"br i1 {some_left}, label %{self.last}, label %{self.done}")

    def connect(self) -> None:
        """Set index and bases on each branch to an iteration, now that all are known."""
        text, low, following = self.text, self.position.low, self.following
        ways = f"[ {low}, %{self.before} ], [ {following}, %{self.goes_on} ]"
        text.fill(self.at_phi, f"{self.at} = phi i64 {ways}")
        text.fill(self.here_phi, f"{self.here} = {self._phi('i64', low, self.at, following)}")
        streams = zip(self.base_phis, self.bases, self.streams, self.staged, strict=True)
        for phi, base, stream, stage in streams:
            text.fill(phi, f"{base} = {self._phi('ptr', stream.row, stage, stream.row)}")

    def _phi(self, llvm: str, first: str, last: str, next: str) -> str:
        """Return the phi of ``first`` in the first iteration and ``last`` in the last one."""
        ways = ((first, self.before), (last, self.from_last), (next, self.end))
        return f"phi {llvm} " + ", ".join(f"[ {value}, %{label} ]" for value, label in ways)


def _staged_bases(
    text: Text,
    at: str,
    high: str,
    readers: Sequence[Reader],
    streams: Sequence[Reader | Writer],
) -> list[str]:
    """Fill the readers' stages with the rest of a row; return every array's base for it."""
    count = text.let(f"sub i64 {high}, {at}")
    for reader in readers:
        reader.fill_stage(at, count)
    back = text.let(f"sub i64 0, {at}")
    return [stream.element_pointer(stream.stage, back) for stream in streams]


def _fits(text: Text, index: str, high: str) -> str:
    """Return an i1: whether a full gang begins at an index."""
    after = text.let(f"add i64 {index}, {GANG}")
    return text.let(f"icmp sle i64 {after}, {high}")


def _empty_stages(text: Text, position: TilePosition, writers: Sequence[Writer]) -> None:
    """Copy what the last iteration left in the stages, if it was not full."""
    if not writers:
        return
    extent = text.let(f"sub i64 {position.high}, {position.low}")
    count = text.let(f"and i64 {extent}, {GANG - 1}")
    some = text.let(f"icmp ne i64 {count}, 0")
    with text.when(some, True):
        start = text.let(f"sub i64 {position.high}, {count}")
        for writer in writers:
            writer.empty_stage(start, count)
