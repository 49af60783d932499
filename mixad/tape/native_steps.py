"""Plans that a backend runs by itself, step after step of a loop: no Python between launches.

The place of each register in memory is decided before: at one address, or moving from step to step,
as the rows of an array do, or to and fro between two arrays, as a carry does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.array_memory import address_of, packed_strides
from mixad.backends.hookspecs import LaunchBlock, Stepping, Written

if TYPE_CHECKING:
    from mixad.tape.plan import Plan
    from mixad.tape.step_order import StepOrder

__all__ = ["Native", "NativeAlias", "NativeLaunch", "NativeSteps", "Track", "alias_of",
           "changed_register"]  # fmt: skip

_SECONDS = 0.05
"""Time after which Python looks whether there is a signal, such as Ctrl-C."""

_BEGIN = 64
"""Steps taken before it is known how long they take."""

_MAX_STEPS = 1 << 20
"""Steps taken at once, an even number."""


class NativeLaunch(NamedTuple):
    """A launch on registers, over all elements or box by box: which of those that it reads are
    numbers in its words, and how many bytes each result has.

    One that may fail keeps what does in one place: its words, and how many bytes it has.  The last
    is what keeps the code in memory, where no step of the plan does.
    """

    backend: Stepping
    blocks: tuple[LaunchBlock, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    numbers: tuple[int, ...]
    sizes: tuple[int, ...]
    fails: tuple[int, ...] = ()
    room: int = 0
    compiled: object = None


class NativeAlias(NamedTuple):
    """A view of what is in a register."""

    source: int
    result: int
    first: int  # how many bytes after the register's it begins
    has_gaps: bool


Native: TypeAlias = NativeLaunch | NativeAlias


def changed_register(native: Native) -> int | None:
    """Return the register that a step changes, or a copy of it; None if it does not."""
    if not isinstance(native, NativeLaunch):
        return None
    changes = native.blocks[0].writes[0].changes
    return None if changes is None else native.reads[changes]


def alias_of(
    array: np.ndarray[Any, Any], view: np.ndarray[Any, Any], source: int, result: int
) -> NativeAlias | None:
    """Return where in an array a view of it begins; None if it is no view of it."""
    if not np.may_share_memory(array, view):
        return None
    first = address_of(view) - address_of(array)
    return NativeAlias(source, result, first, view.strides != packed_strides(view))


class Track(NamedTuple):
    """Where something is in memory."""

    address: int  # in the first step
    even: int = 0  # how far it moves after each even step
    odd: int = 0  # how far it moves after each odd step

    @staticmethod
    def of(array: np.ndarray[Any, Any]) -> Track:
        """Return the track of an array that all steps read."""
        return Track(address_of(array))

    @staticmethod
    def along(array: np.ndarray[Any, Any], first: int, by: int) -> Track:
        """Return the track of parts of an array that steps take one by one."""
        stride = array.strides[0]
        return Track(address_of(array) + first * stride, by * stride, by * stride)

    @staticmethod
    def between(array: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> Track:
        """Return the track of something in one array in even steps, in another in odd ones."""
        far = address_of(other) - address_of(array)
        return Track(address_of(array), far, -far)


@dataclass
class NativeSteps:
    """What a step of a loop does, as launches whose words are filled in."""

    blocks: list[LaunchBlock] = field(default_factory=list)
    # Words that move on from step to step.
    moves: list[tuple[int, int, int, int]] = field(default_factory=list)
    # What launches write that no later step reads.
    memory: list[np.ndarray[Any, Any]] = field(default_factory=list)
    # Where launches that may fail note that they have.
    fails: list[np.ndarray[Any, Any]] = field(default_factory=list)
    _backend: Stepping | None = None

    def add(
        self,
        plan: Plan,
        order: StepOrder,
        inputs: Sequence[Track],
        outputs: Sequence[Track],
        captured: Sequence[np.ndarray[Any, Any]],
    ) -> bool:
        """Add the launches of a plan whose steps a backend runs; tell whether that could be done.

        `inputs` and `outputs` say where these are in memory. `captured` are the last inputs, which
        are the same in all steps.
        """
        natives = order.natives
        launches = [each for each in natives if isinstance(each, NativeLaunch)]
        numbers = dict(enumerate(plan.registers))
        numbers.update(enumerate(captured, len(inputs) - len(captured)))
        if not launches or any(numbers[at] is None for each in launches for at in each.numbers):
            return False
        tracks = {at: Track.of(a) for at, a in enumerate(plan.registers) if type(a) is np.ndarray}
        tracks.update(enumerate(inputs))
        targets = list(zip(plan.values, outputs, strict=True))
        last = {at: each for each in launches for at in each.writes}
        direct = {at: track for at, track in targets if at in last}
        for each in natives:
            if isinstance(each, NativeLaunch):
                results = {at: track for at, track in direct.items() if last[at] is each}
                changed = changed_register(each)
                if changed is not None:
                    (at,) = each.writes
                    if at in order.in_place:
                        results = {at: tracks[changed]}
                    else:
                        results = {at: self._copied(each, tracks[changed], results.get(at))}
                tracks.update(self._launch(each, tracks, results, numbers))
            else:
                address, even, odd = tracks[each.source]
                tracks[each.result] = Track(address + each.first, even, odd)
        with_gaps = {each.result for each in natives if type(each) is NativeAlias and each.has_gaps}
        left = [(at, track) for at, track in targets if tracks[at] != track]
        for at, track in left:
            self._copy(plan.sizes[plan.values.index(at)], tracks[at], track)
        return with_gaps.isdisjoint(at for at, _ in left)

    def _copied(self, launch: NativeLaunch, source: Track, target: Track | None) -> Track:
        """Add a copy of an array that a launch changes; return where it is."""
        self._backend = launch.backend
        target = target or self._somewhere(launch.sizes[0])
        self._copy(launch.sizes[0], source, target)
        return target

    def _launch(
        self,
        launch: NativeLaunch,
        tracks: Mapping[int, Track],
        direct: Mapping[int, Track],
        numbers: Mapping[int, Any],
    ) -> dict[int, Track]:
        """Add a launch; results with a place in `direct` go there. Return where the results are."""
        self._backend = launch.backend
        results = launch.blocks[0].writes
        written = {}
        for at, result, size in zip(launch.writes, results, launch.sizes, strict=True):
            is_direct = not result.finish and result.room in (0, size)
            track = direct.get(at) if is_direct else None
            written[at] = track or self._somewhere(result.room or size)
        for each in launch.blocks:
            block = _own(each)
            for param, word, first in block.reads:
                self._place(block, word, tracks[launch.reads[param]], first)
            for param, word, pack in block.numbers:
                block.words[word] = pack(numbers[launch.reads[param]])
            if launch.fails:
                self.fails.append(np.zeros(launch.room, np.uint8))
                for word in launch.fails:
                    block.words[word] = address_of(self.fails[-1])
            for at, result in zip(launch.writes, block.writes, strict=True):
                self._place(block, result.word, written[at], result.first)
            self.blocks.append(block)
        for at, result in zip(launch.writes, results, strict=True):
            written[at] = self._finish(result, written[at])
        return written

    def _finish(self, result: Written, track: Track) -> Track:
        """Add what makes a result from what a launch has written; return where that is."""
        for is_in_place, last in result.finish:
            then, source = _own(last), track.address
            track = track if is_in_place else self._somewhere(then.writes[0].room)
            then.words[0] = track.address
            if not is_in_place:
                then.words[1] = source
            self.blocks.append(then)
        return track

    def _somewhere(self, room: int) -> Track:
        """Return a place of so many bytes."""
        self.memory.append(np.empty(room, np.uint8))
        return Track.of(self.memory[-1])

    def _copy(self, size: int, source: Track, target: Track) -> None:
        """Add a copy of so many bytes that are elsewhere."""
        assert self._backend is not None
        block = self._backend.move_block(1, ((0, 0, 0, size),), size)
        self._place(block, block.reads[0][1], source)
        self._place(block, block.writes[0].word, target)
        self.blocks.append(block)

    def _place(self, block: LaunchBlock, word: int, track: Track, first: int = 0) -> None:
        """Fill in a word of the next launch, which begins so many bytes after a place."""
        block.words[word] = track.address + first
        if track.even or track.odd:
            self.moves.append((len(self.blocks), word, track.even, track.odd))

    @property
    def has_failed(self) -> bool:
        """Whether a launch has failed, in whatever step: Python raises what it does."""
        return any(each.any() for each in self.fails)

    def take(self, count: int | None, flag: int = 0, tested: int = 0) -> int:
        """Take so many steps, or as many as a flag says; return how many: fewer if one fails.

        The ``flag`` is the address of a byte that is 0 once there are no more; it is looked at
        after ``tested`` launches.
        """
        backend = self._backend
        assert backend is not None
        at, many = 0, _BEGIN
        while count is None or at < count:
            begun = perf_counter()
            end = at + many if count is None else min(at + many, count)
            reached = backend.take_steps(self.blocks, self.moves, at, end, flag, tested)
            if reached < end or self.has_failed:
                return reached
            at, taken = end, perf_counter() - begun
            many = min(2 * many if taken < _SECONDS else max(many // 2, 2), _MAX_STEPS)
        return at


def _own(block: LaunchBlock) -> LaunchBlock:
    """Return a launch with words of its own."""
    return block._replace(words=block.words[:])
