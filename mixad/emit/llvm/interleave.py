"""Several results of an element side by side in memory: the blocks of a Jacobian.

A gang has a vector of every result; memory wants the results of one element together.  Vectors are
zipped in pairs, then the pairs, until a vector has all the results of each element in turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from mixad.emit.llvm.combine import LINE, Gang, TilePosition, Writer, copy_memory
from mixad.emit.llvm.text import GANG, Text, Value, memory_type
from mixad.kernel.spec import Output

__all__ = ["InterleavedWriter"]


class InterleavedWriter(Writer):
    """Stores several results, those of an element side by side.

    Where stores bypass the cache and one pass has all results, it assembles a gang on the stack and
    stores it in whole lines.
    """

    def __init__(self, text: Text, output: Output, start: str, streaming: bool) -> None:
        self.count = len(output.sources)
        is_whole = len({at for at, _ in output.sources}) == 1
        super().__init__(text, output, start, streaming and is_whole)

    def prepare(self) -> None:
        """Allocate a gang of elements for the end of a row, and one where lines are made."""
        self.stage = self.allocate(self.type, GANG * self.count)
        self.lines = self.allocate(self.type, GANG * self.count) if self.streaming else ""

    def element_pointer(self, pointer: str, index: str) -> str:
        """Return the pointer to the results of an element."""
        element = f"[{self.count} x {memory_type(self.type, False)}]"
        return self.text.let(f"getelementptr {element}, ptr {pointer}, i64 {index}")

    def take(
        self, values: Mapping[int, Value], position: TilePosition, gang: Gang, base: str | None
    ) -> None:
        """Take the values of one gang, by their places in an element."""
        assert base is not None
        target = self.element_pointer(base, gang.here)
        self.store_places(values, self.lines if self.streaming else target)
        if self.streaming:
            self.stream_lines(target)

    def store_places(self, values: Mapping[int, Value], target: str) -> None:
        """Store a gang of some places of each element."""
        text, element = self.text, memory_type(self.type, False)
        for places in _runs(sorted(values), LINE // self.type.itemsize):
            vectors = [text.splat(values[place]).text for place in places]
            zipped, count = _zip_gangs(text, vectors, element), len(places)
            for lane in range(GANG):
                own = _slice(text, zipped, element, GANG * count, lane * count, count)
                first = lane * self.count + places[0]
                at = text.let(f"getelementptr {element}, ptr {target}, i64 {first}")
                text.add(f"store {own}, ptr {at}, align {self.type.itemsize}")

    def stream_lines(self, target: str) -> None:
        """Copy a gang from the stack, line by line, past the cache."""
        text, line = self.text, f"<{LINE} x i8>"
        size = GANG * self.count * self.type.itemsize
        with text.counting("0", str(size), LINE) as offset:
            source = text.let(f"getelementptr i8, ptr {self.lines}, i64 {offset}")
            loaded = text.let(f"load {line}, ptr {source}, align {LINE}")
            at = text.let(f"getelementptr i8, ptr {target}, i64 {offset}")
            text.add(f"store {line} {loaded}, ptr {at}, align {LINE}, !nontemporal !0")

    def empty_stage(self, here: str, count: str) -> None:
        """Copy the last elements of a row, and again what other passes left in the stage."""
        values = self.text.let(f"mul i64 {count}, {self.count}")
        copy_memory(self.text, self.element_pointer(self.row, here), self.stage, values, self.type)


def _runs(places: Sequence[int], longest: int) -> Iterator[Sequence[int]]:
    """Yield runs of neighbours whose lengths are powers of two."""
    begin = 0
    while begin < len(places):
        length = longest
        while places[begin : begin + length] != [*range(places[begin], places[begin] + length)]:
            length //= 2
        yield places[begin : begin + length]
        begin += length


def _zip_gangs(text: Text, vectors: Sequence[str], element: str) -> str:
    """Return a vector with the elements of 2ⁿ gangs in turn."""
    group = 1
    while len(vectors) > 1:
        type, size = f"<{GANG * group} x {element}>", GANG * group
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        order = [at + k for k in range(0, size, group) for at in (0, size)]
        mask = _mask(first + k for first in order for k in range(group))
        vectors = [
            text.let(f"shufflevector {type} {a}, {type} {b}, <{2 * size} x i32> {mask}")
            for a, b in pairs
        ]
        group *= 2
    return vectors[0]


def _slice(text: Text, vector: str, element: str, size: int, first: int, count: int) -> str:
    """Return some neighbours of a vector, with their type."""
    type = f"<{size} x {element}>"
    if count == 1:
        return f"{element} " + text.let(f"extractelement {type} {vector}, i64 {first}")
    mask = _mask(range(first, first + count))
    own = text.let(f"shufflevector {type} {vector}, {type} poison, <{count} x i32> {mask}")
    return f"<{count} x {element}> {own}"


def _mask(lanes: Iterable[int]) -> str:
    return f"<{', '.join(f'i32 {k}' for k in lanes)}>"
