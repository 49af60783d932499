"""Plans: steps over registers, in memory that is used again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from mixad.backends.autocast import in_given_types
from mixad.scalar.loop_results import ComparisonOnlyResult
from mixad.tape.guard import GuardedArray
from mixad.tape.native_steps import Native
from mixad.tape.plan_steps import Maker, Step
from mixad.tape.registers import came_in

__all__ = ["MAX_BYTES", "Fixed", "Plan", "share_memory"]

MAX_BYTES = 1 << 20
"""Bytes of memory that one thread retains for a plan."""


class Fixed(NamedTuple):
    """A register with the same array in all runs of a thread."""

    register: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: int  # which piece it has; registers may share one


class Result(NamedTuple):
    """What a step puts into a register."""

    register: int
    array: np.ndarray[Any, Any]
    step: int
    last: int  # the last step that reads it


def share_memory(results: Iterable[Result]) -> list[Fixed]:
    """Return which results keep memory of their own, as much as a thread retains.

    Results share memory if nothing reads the one before any more.
    """
    found: list[Fixed] = []
    over: dict[int, list[tuple[int, int]]] = {}  # by bytes: when memory is read last, and which
    count = bytes_ = 0
    for register, array, step, last in results:
        known = over.setdefault(array.nbytes, [])
        free = next((each for each in known if each[0] < step), None)
        if free is not None:
            known.remove(free)
            memory = free[1]
        elif bytes_ + array.nbytes <= MAX_BYTES:
            memory, count, bytes_ = count, count + 1, bytes_ + array.nbytes
        else:
            continue
        known.append((max(step, last), memory))
        found.append(Fixed(register, array.shape, array.dtype, memory))
    return found


_Layout: TypeAlias = tuple[list[Any], list[Step]]
"""What one thread runs: the contents of registers before something comes in, and steps."""


@dataclass(eq=False, slots=True)
class Plan:
    """What computes values and carries cotangents back: steps over registers.

    `ends` has for each input the register of its cotangent, -1 if that is zero, and whether nothing
    else holds the array.
    """

    registers: list[Any]  # what they hold at first; the slots come first
    makers: tuple[Maker, ...]  # of the steps, in order
    fixed: tuple[Fixed, ...]  # registers that keep their memory
    seeds: tuple[int, ...]  # registers where cotangents begin
    values: tuple[int, ...]  # registers of the wanted values
    ends: tuple[tuple[int, bool], ...]
    slots: tuple[int, ...]  # those of what came in that are read
    decided: tuple[ComparisonOnlyResult, ...]  # what to warn of
    natives: tuple[Native, ...] | None = None  # its steps, if a backend can run all of them
    sizes: tuple[int, ...] = ()  # how many bytes the values have
    work: tuple[str, ...] = ()  # what steps compute, for people: "kernel", or a rule's name
    idle: list[_Layout] = field(default_factory=list)  # layouts that no thread runs now

    @in_given_types
    def run(
        self, slots: Sequence[Any], cotangents: Sequence[Any], *, warns: bool = True
    ) -> tuple[list[Any], list[tuple[Any, bool] | None]]:
        """Return the values, and the cotangents of the inputs: None where they are zero.

        With each cotangent goes whether nothing else holds its array. `slots` that are not read may
        hold anything. `warns` is False if warnings of results that comparisons decide were given
        before.
        """
        if warns and self.decided:
            for each in self.decided:
                each.warn()
        try:
            layout = self.idle.pop()
        except IndexError:
            layout = self._laid_out()
        registers, steps = layout
        registers = registers[:]
        for slot in self.slots:
            value = slots[slot]
            if type(value) is GuardedArray:
                value = value.array
            kind = type(value)
            registers[slot] = value if kind is _ndarray or kind is float else came_in(value)
        for register, cotangent in zip(self.seeds, cotangents, strict=True):
            registers[register] = cotangent
        for step in steps:
            step(registers)
        self.idle.append(layout)
        found: list[tuple[Any, bool] | None] = []
        for at, is_own in self.ends:
            found.append(None if at < 0 else (registers[at], is_own))
        return list(map(registers.__getitem__, self.values)), found

    def _laid_out(self) -> _Layout:
        """Return registers and steps for one thread."""
        memory: dict[int, np.ndarray[Any, Any]] = {}
        fixed = {}
        for register, shape, dtype, at in self.fixed:
            own = memory.setdefault(at, np.empty(shape, dtype))
            fixed[register] = np.ndarray(shape, dtype, own)
        registers = self.registers[:]
        for register, array in fixed.items():
            registers[register] = array
        return registers, [make(fixed) for make in self.makers]


_ndarray = np.ndarray
