"""Where a value lives: an array, or a pending call that will make it when someone asks.

A pending call of the kernels holds its outputs weakly, so that what nobody holds any more when it
runs is not computed, and further outputs may join it until then.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any

from mixad.backends.arrays import Array, Library, as_array, is_scalar, library_of, scalar_type_of
from mixad.backends.execute import execute
from mixad.config import CheckMode
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program
from mixad.scalar.types import ScalarType
from mixad.tape.held import Held

__all__ = ["Cell", "PendingCall", "kernel_values"]


class Cell:
    """One value: shape and type are known, the array may be pending.

    Attributes
    ----------
    shape : tuple of int
        Its shape.
    type : ScalarType
        Type of its elements.
    library : Library
        Its array library.
    device : object
        Its device, as the library names it.
    weak : bool
        Whether it began as a Python number and adapts to the dtypes beside it.
    pending : PendingCall or None
        What makes the array; None when it is there.
    """

    __slots__ = ("__weakref__", "_held", "device", "library", "pending", "shape", "type", "weak")

    def __init__(
        self,
        shape: tuple[int, ...],
        type: ScalarType,
        library: Library,
        device: Any,
        *,
        weak: bool = False,
    ) -> None:
        self.shape = shape
        self.type = type
        self.library = library
        self.device = device
        self.weak = weak
        self.pending: PendingCall | None = None
        self._held: Held

    @classmethod
    def of(cls, array: Array, check: CheckMode, *, weak: bool = False) -> Cell:
        """Return the cell of an array that exists."""
        library = library_of(array)
        kind = scalar_type_of(array.dtype)
        cell = cls(tuple(array.shape), kind, library, getattr(array, "device", None), weak=weak)
        cell._held = Held(array, check)
        return cell

    @property
    def array(self) -> Array:
        """The array; what makes it is run if it has not been."""
        call = self.pending
        if call is not None:
            _force(call)
        return self._held.array

    def fill(self, array: Array, check: CheckMode) -> None:
        """Store the array that the call made."""
        self._held = Held(array, check)
        self.pending = None  # last: other threads take this as the sign that the array is there


class PendingCall:
    """A call of the kernels that has not been made yet.

    Parameters
    ----------
    passes : tuple of Program
        With the same params.
    arguments : sequence
        One cell, held array or scalar for each param.
    backend : str or None
        Name of the backend, if one was chosen.
    check : "off", "sample" or "full"
        How closely the outputs are watched for changes.

    Attributes
    ----------
    lock : threading.Lock
        Held from the look at what is wanted until it is made: threads may share pending values.
        A call takes the locks of those that it waits for, never the other way round.
    """

    __slots__ = ("_check", "_wanted", "arguments", "backend", "lock", "passes")

    def __init__(
        self,
        passes: tuple[Program, ...],
        arguments: Sequence[Any],
        backend: str | None,
        check: CheckMode,
    ) -> None:
        self.lock = threading.Lock()
        self._check = check
        self.passes = passes
        self.arguments = tuple(arguments)
        self.backend = backend
        self._wanted: list[tuple[weakref.ref[Cell], OutputRequest]] = []

    def add(self, cell: Cell, request: OutputRequest) -> None:
        """Let this call make ``cell``."""
        cell.pending = self
        self._wanted.append((weakref.ref(cell), request))

    def join(self, cell: Cell, source: Cell) -> bool:
        """Let this call make ``cell``, the sum of ``source``, if it has yet to store that."""
        with self.lock:
            request = next((r for held, r in self._wanted if held() is source), None)
            if request is None or request.shape is not None:
                return False
            self.add(cell, OutputRequest(request.pass_index, request.result, cell.shape))
            return True

    def live(self) -> list[tuple[Cell, OutputRequest]]:
        """Return the outputs that someone still holds."""
        found = ((held(), request) for held, request in self._wanted)
        return [(cell, request) for cell, request in found if cell is not None]

    def waits_for(self) -> list[PendingCall]:
        """Return the calls that make arguments of this one."""
        calls = [a.pending for a in self.arguments if isinstance(a, Cell)]
        return [call for call in calls if call is not None]

    def values(self) -> tuple[Any, ...]:
        """Return the arguments as kernels take them: arrays, and scalars for uniforms."""
        arrays = [a.array if isinstance(a, (Cell, Held)) else a for a in self.arguments]
        return kernel_values(self.passes[0], arrays)

    def run(self) -> None:
        """Make the outputs that someone still holds, in one call."""
        with self.lock:
            live = self.live()
            if live:
                requests = tuple(request for _, request in live)
                arrays = execute(self.passes, requests, self.values(), self.backend)
                self.finish(live, arrays)

    def finish(self, live: list[tuple[Cell, OutputRequest]], arrays: Sequence[Array]) -> None:
        """Give the live outputs their arrays, and let go of the inputs; the lock is held."""
        for (cell, _), array in zip(live, arrays, strict=True):
            cell.fill(array, self._check)
        self.arguments = ()
        self._wanted = []


def _force(call: PendingCall) -> None:
    """Run a call after those it waits for, however long the chain is."""
    stack = [call]
    while stack:
        waits_for = stack[-1].waits_for()
        if waits_for:
            stack += waits_for
        else:
            stack.pop().run()


def kernel_values(program: Program, arguments: Sequence[Any]) -> tuple[Any, ...]:
    """Return arguments as kernels take them: numbers for uniform params, arrays for the others."""
    return tuple(
        _number(a) if p.kind == "uniform" else as_array(a)
        for p, a in zip(program.params, arguments, strict=True)
    )


def _number(value: Any) -> Any:
    if is_scalar(value):
        return value
    return float(value) if scalar_type_of(value.dtype).is_float else int(value)
