"""What factories of plugins return: backends, with what they may do besides, and integrations.

A backend that has the methods of another protocol is one of those, too: it inherits from nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from mixad.kernel.options import KernelOptions
    from mixad.kernel.spec import KernelSpec, Launch
    from mixad.kernel.tiling import Tiling
    from mixad.scalar.ir import Program

__all__ = [
    "Assembling",
    "Backend",
    "Borrowing",
    "Bound",
    "Boxed",
    "Described",
    "DeviceFunction",
    "Executable",
    "Integration",
    "LaunchBlock",
    "OnDevice",
    "Repeating",
    "Stepping",
    "SubBoxWrite",
    "Tiled",
    "Written",
]

Executable = Any
"""What `Backend.compile` returns: opaque to mixad, handed back to `Backend.bind`."""

Bound = Any
"""What `Backend.bind` returns: opaque to mixad, handed back to `Backend.launch`."""


class Backend(Protocol):
    """What a factory returns: source, executables and launches for planned kernels.

    Attributes
    ----------
    name : str
        The name in its `BackendSpec`.
    """

    name: str

    def emit(self, spec: KernelSpec) -> str:
        """Return the source of the kernel: the same for equal specs, comments aside.

        Parameters
        ----------
        spec : KernelSpec
            The planned kernel.

        Returns
        -------
        str
            Source in the backend's language.
        """
        ...

    def compile(self, spec: KernelSpec) -> Executable:
        """Return the kernel, ready to be launched any number of times from any thread.

        Parameters
        ----------
        spec : KernelSpec
            The planned kernel.

        Returns
        -------
        Executable
            Whatever `bind` takes.
        """
        ...

    def bind(self, executable: Executable, launch: Launch) -> Bound:
        """Return a kernel with everything done that does not depend on the data.

        Parameters
        ----------
        executable : Executable
            What `compile` returned; several launches share it.
        launch : Launch
            Shapes, strides and extents of the calls.

        Returns
        -------
        Bound
            Whatever `launch` takes; mixad keeps it for as long as it keeps the launch.
        """
        ...

    def launch(self, bound: Bound, arguments: Sequence[Any]) -> tuple[Any, ...]:
        """Run the kernel and return its outputs, arrays of the arguments' library and device.

        Parameters
        ----------
        bound : Bound
            What `bind` returned; calls from several threads share it.
        arguments : sequence
            Arrays and scalars, in the order of the spec.

        Returns
        -------
        tuple
            The outputs, in the order of the spec.
        """
        ...


@runtime_checkable
class Described(Protocol):
    """A backend that has more to tell ``mixad doctor``."""

    def describe(self) -> Mapping[str, str]:
        """Return facts about this machine: vector width, source of the maths, device.

        Returns
        -------
        mapping of str to str
            Shown in this order.
        """
        ...


@runtime_checkable
class Assembling(Protocol):
    """A backend whose kernels have an assembler's text: the stage ``"asm"`` of ``source``."""

    def assembly(self, spec: KernelSpec) -> str:
        """Return the assembler text that a kernel compiles to.

        Parameters
        ----------
        spec : KernelSpec
            The planned kernel.

        Returns
        -------
        str
            In the target's syntax, for people.
        """
        ...


@runtime_checkable
class SubBoxWrite(Protocol):
    """A backend whose kernels write results into parts of larger arrays.

    Every backend whose `Capability` says `writes_parts` is one.
    """

    def moved(self, bound: Bound, launch: Launch) -> Bound:
        """Return what `Backend.bind` returned, for a launch that writes parts elsewhere.

        Nothing is planned or compiled for it: where parts begin is told to each launch.

        Parameters
        ----------
        bound : Bound
            What `Backend.bind` returned for a launch.
        launch : Launch
            The same launch, but for where parts begin.

        Returns
        -------
        Bound
            Whatever `Backend.launch` takes.
        """
        ...


@runtime_checkable
class Repeating(Protocol):
    """A backend whose launches may be prepared for arrays that stay where they are."""

    def repeated(
        self,
        bound: Bound,
        reads: Sequence[int],
        writes: Sequence[int],
        fixed: Mapping[int, Any],
    ) -> Callable[[list[Any]], None] | None:
        """Return what runs a launch on a list of arrays and numbers; None if that saves nothing.

        One thread at a time calls it.

        Parameters
        ----------
        bound : Bound
            What `Backend.bind` returned for the launch.
        reads, writes : sequence of int
            Where in the list its arguments are, and where its results go.
        fixed : mapping of int to array
            What is there in each call: the caller keeps them. Others of ``writes`` are put there
            anew.

        Returns
        -------
        callable or None
            Takes the list.
        """
        ...


class Written(NamedTuple):
    """A result of a launch whose words are filled in once.

    Attributes
    ----------
    word : int
        The word of its address.
    room : int
        How many bytes are written there: those of the result first, then others that nobody reads.
    finish : tuple of (bool, LaunchBlock)
        What makes the result of these, one after another: in place, with the address in the first
        word, or somewhere else, with that in the first word and this in the second.
    first : int
        How many bytes of the result come before those that are written.
    changes : int, optional
        The argument that the result is, changed: its memory, or a copy that is made before.
    """

    word: int
    room: int
    finish: tuple[tuple[bool, LaunchBlock], ...] = ()
    first: int = 0
    changes: int | None = None


class LaunchBlock(NamedTuple):
    """A launch whose words are filled in once.

    Attributes
    ----------
    kernel : int
        The address of ``void kernel(ptr words, i64 begin, i64 end)``.
    words : array of int64
        The argument block.
    tiles : int
        How many tiles there are.
    reads : tuple of (int, int, int)
        Which argument's address goes into which word, and how many bytes of it come before.
    numbers : tuple of (int, int, callable)
        Which argument is a number, into which word it goes, and what makes its bits.
    writes : tuple of Written
        What becomes of each result.
    """

    kernel: int
    words: array[int]
    tiles: int
    reads: tuple[tuple[int, int, int], ...]
    numbers: tuple[tuple[int, int, Callable[[Any], int]], ...]
    writes: tuple[Written, ...]


@runtime_checkable
class Stepping(Protocol):
    """A backend that runs launches one after another, again and again, by itself."""

    def block(self, bound: Bound, firsts: Sequence[int] | None = None) -> LaunchBlock | None:
        """Return a launch that is run in the thread that asks.

        None if it takes so long that others would help, or cannot be told to begin elsewhere.

        Parameters
        ----------
        bound : Bound
            What `Backend.bind` returned for the launch.
        firsts : sequence of int, optional
            Of a launch over a box of arrays, for each argument how many bytes come before it: then
            results are parts of arrays, else arrays of their own.

        Returns
        -------
        LaunchBlock or None
            With words of its own.
        """
        ...

    def run_block(self, kernel: int, words: array[int], tiles: int) -> None:
        """Run a launch once.

        Parameters
        ----------
        kernel : int
            Its address, as of a `LaunchBlock`.
        words : array of int64
            All filled in.
        tiles : int
            How many tiles there are.
        """
        ...

    def move_block(
        self, sources: int, runs: Sequence[tuple[int, int, int, int]], size: int
    ) -> LaunchBlock:
        """Return what makes an array of parts of others and of zeros.

        Parameters
        ----------
        sources : int
            How many others there are.
        runs : sequence of (int, int, int, int)
            Which of them, -1 for zeros; how many bytes of it come before; how many of the result
            do; how many are copied.
        size : int
            How many bytes the result has.

        Returns
        -------
        LaunchBlock
            With one result.
        """
        ...

    def take_block(self, count: int, size: int, gaps: Sequence[int] = ()) -> LaunchBlock:
        """Return what takes elements of an array at positions, which are inside.

        Parameters
        ----------
        count : int
            How many.
        size : int
            Bytes of an element.
        gaps : sequence of int
            How many bytes come before each element of the array; empty if it has no gaps.

        Returns
        -------
        LaunchBlock
            Of an array and of positions in 64 bits.
        """
        ...

    def add_at_block(
        self, count: int, length: int, size: int, gaps: Sequence[int] = ()
    ) -> LaunchBlock:
        """Return what adds floats to zeros at positions, which are inside, one after another.

        Parameters
        ----------
        count : int
            How many floats.
        length : int
            How many zeros.
        size : int
            Bytes of a float: 8, or 4 where sums are rounded once.
        gaps : sequence of int
            How many bytes come before each float; empty if there are no gaps.

        Returns
        -------
        LaunchBlock
            Of floats and of positions in 64 bits.
        """
        ...

    def write_at_block(
        self, how: str, count: int, room: int, size: int, gaps: Sequence[int] = ()
    ) -> LaunchBlock:
        """Return what changes elements of an array at positions, which are inside, in order.

        Parameters
        ----------
        how : {"write", "add", "clear"}
            Whether others are written there, or added, or zeros written. Those to add are floats of
            8 or 4 bytes.
        count : int
            How many positions there are.
        room : int
            How many bytes the array has, which has no gaps.
        size : int
            Bytes of an element.
        gaps : sequence of int
            How many bytes come before each of the others; empty if there are no gaps.

        Returns
        -------
        LaunchBlock
            Of an array, which it changes, of the others, if any, and of positions in 64 bits.
        """
        ...

    def take_steps(
        self,
        blocks: Sequence[LaunchBlock],
        moves: Sequence[tuple[int, int, int, int]],
        first: int,
        last: int,
        flag: int = 0,
        tested: int = 0,
    ) -> int:
        """Run all launches in order, step after step.

        Parameters
        ----------
        blocks : sequence of LaunchBlock
            What a step runs.
        moves : sequence of (int, int, int, int)
            What is added to words after a step: the block, the word, how much after an even step,
            and after an odd one.
        first, last : int
            The steps to take, the last of them not.
        flag : int
            The address of a byte, or 0: once it is 0, there are no more steps.
        tested : int
            How many launches come before it is looked at.

        Returns
        -------
        int
            The step that comes next.
        """
        ...


@runtime_checkable
class Boxed(Protocol):
    """A backend whose launches over boxes of the same arrays may be prepared as one."""

    def in_boxes(
        self,
        boxes: Sequence[tuple[Bound, Sequence[int]]],
        shape: tuple[int, ...],
        reads: Sequence[int],
        writes: Sequence[int],
        fixed: Mapping[int, Any],
    ) -> Callable[[list[Any]], None] | None:
        """Return what runs launches of one kernel, whose results are parts of the same arrays.

        None if they must be watched while they run.  One thread at a time calls it.

        Parameters
        ----------
        boxes : sequence of (Bound, sequence of int)
            What `Backend.bind` returned for each launch, and for each argument how many bytes come
            before the first that it reads.
        shape : tuple of int
            Of the arrays that results are parts of.
        reads, writes : sequence of int
            Where in the list its arguments are, and where its results go.
        fixed : mapping of int to array
            What is there in each call: the caller keeps them.

        Returns
        -------
        callable or None
            Takes the list.
        """
        ...


@runtime_checkable
class Tiled(Protocol):
    """A backend that has sums over rows cut otherwise than for the cores of a CPU."""

    def tiling(self, array: Any) -> Tiling:
        """Return how finely they are cut; only their last bits depend on it.

        Parameters
        ----------
        array : array
            On the device.
        """
        ...


@dataclass(frozen=True)
class DeviceFunction:
    """One function of a kernel, compiled for a device with multiprocessors.

    Attributes
    ----------
    registers : int
        Of a thread.
    local : int
        Bytes of local memory of a thread: what is spilled, and arrays that functions of the
        device's own maths library keep there.
    shared : int
        Bytes of shared memory of a block.
    neighbours : int
        Elements of a row that a thread has at a time.
    threads : int
        Of a block.
    occupancy : float
        Share of a multiprocessor's threads that are there at once.
    """

    registers: int
    local: int
    shared: int
    neighbours: int
    threads: int
    occupancy: float


@runtime_checkable
class OnDevice(Protocol):
    """A backend that compiles CUDA C++ for the device of the arguments."""

    def device_text(self, spec: KernelSpec, bound: Bound, array: Any) -> str:
        """Return the CUDA C++ that a device is given.

        Parameters
        ----------
        spec : KernelSpec
            The planned kernel, with the user's lines.
        bound : Bound
            What `Backend.bind` returned for it.
        array : array
            One on the device.

        Returns
        -------
        str
            A module that includes nothing.
        """
        ...

    def device_functions(self, bound: Bound, array: Any) -> tuple[DeviceFunction, ...]:
        """Return what the functions of a kernel use, one for each pass.

        Parameters
        ----------
        bound : Bound
            What `Backend.bind` returned.
        array : array
            One on the device.

        Returns
        -------
        tuple of DeviceFunction
            Compiled, if they were not.
        """
        ...

    def architecture(self, array: Any) -> str:
        """Return what compilers call a device.

        Parameters
        ----------
        array : array
            One on the device.

        Returns
        -------
        str
            Such as ``"sm_90"``.
        """
        ...

    def bandwidth(self, array: Any) -> float:
        """Return how many bytes a second a device moves at most.

        Parameters
        ----------
        array : array
            One on the device.

        Returns
        -------
        float
            By the clock and the width of its memory: what a copy reaches is less. 0 where that is
            not told.
        """
        ...


class Integration(Protocol):
    """What records calls of kernels where an array library keeps derivatives of its own.

    It is asked about calls outside of mixad's transforms only, not about NumPy's arrays, and once
    about tensors of one layout that nothing follows or watches (`describe_array`).

    Attributes
    ----------
    kinds : tuple of type
        Of arrays that stand for others of the library while something traces them; those that are
        derived from these do, too.
    """

    kinds: tuple[type, ...]

    def is_tracing(self) -> bool:
        """Whether a compiler follows this very call in Python, so that `trace` has to make it.

        Returns
        -------
        bool
            As a rule False.
        """
        ...

    def trace(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make a call that a compiler follows, so that it sees one operation.

        Parameters
        ----------
        number : int
            Of the function, for `mixad.broadcast.graph_calls.call_in_graph`.
        args : tuple
            Arguments of the call.
        kwargs : dict
            Arguments by name.

        Returns
        -------
        array or tuple of arrays
            What the call returns.
        """
        ...

    def follows(self, values: Sequence[Any]) -> bool:
        """Whether the library follows one of these values, so that `call` has to make the call.

        Parameters
        ----------
        values : sequence
            Arrays of any library and numbers; no tracers.

        Returns
        -------
        bool
            Where it is False, the kernel is launched as for any array.
        """
        ...

    def call(
        self, program: Program, values: Sequence[Any], options: KernelOptions
    ) -> tuple[Any, ...]:
        """Apply a program at every element, and record that.

        Parameters
        ----------
        program : Program
            Of scalars.
        values : sequence
            One for each param.
        options : KernelOptions
            The user's overrides.

        Returns
        -------
        tuple of arrays
            One for each output.
        """
        ...


class Borrowing(Integration, Protocol):
    """An integration whose library differentiates functions for which mixad has no rule.

    Attributes
    ----------
    borrows_of : str
        Top-level module of the library.
    """

    borrows_of: str

    def borrow(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Call a function of the library; record the call with the library's own derivative.

        Parameters
        ----------
        function : callable
            Of the library.
        args : tuple
            Arguments of the call, traced values among them.
        kwargs : mapping
            Arguments by name.

        Returns
        -------
        object
            What the function returns, with traced values in place of arrays of floats.
        """
        ...

    def generators(self, arrays: Sequence[Any]) -> Callable[[], AbstractContextManager[None]]:
        """Note what state the library's generators of random numbers are in.

        Parameters
        ----------
        arrays : sequence
            Of any library: generators of their devices count.

        Returns
        -------
        callable
            Returns a context in which they begin in that state again; afterwards they are as they
            were before it.
        """
        ...
