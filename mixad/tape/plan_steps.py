"""The steps of plans: functions of registers, which they read and fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import numpy as np

from mixad.backends import registry
from mixad.backends.arrays import Library, as_array
from mixad.backends.execute import Kernel, Prepared, kernel_for
from mixad.errors import BackendError
from mixad.kernel.options import KernelOptions
from mixad.kernel.rolls import Shifts
from mixad.tape.entries import Pulled, PulledValues, Stores
from mixad.tape.gradient_plan import in_shape
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.node import added
from mixad.tape.registers import StridedView, as_register, of_register
from mixad.tape.rolls import rolled

__all__ = ["Arguments", "Arithmetic", "Fixed", "Maker", "Pull", "Registers", "Run", "Step",
           "add_into", "add_new", "evaluate", "evaluate_several", "for_all_threads",
           "free", "is_of_plugin", "launch", "place", "pull", "pull_call", "pull_into",
           "pull_values", "roll", "run_call", "run_prepared", "run_storing", "shift", "take",
           "view"]  # fmt: skip

Registers: TypeAlias = list[Any]
Step: TypeAlias = Callable[[Registers], None]
Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
Fixed: TypeAlias = Mapping[int, Any]
Arguments: TypeAlias = Callable[[Registers], Sequence[Any]]
"""Returns the arguments of a rule."""
Pull: TypeAlias = Callable[[Registers], Sequence[Any]]
"""Returns the gradients of a rule."""
Maker: TypeAlias = Callable[[Fixed], Step]
"""Makes a step for one thread, from its memory for some registers."""

_OFTEN = 1 << 10
"""Calls after which a kernel computes numbers: in some thousand it saves what compiling it
takes."""


def for_all_threads(step: Step) -> Maker:
    """Return a maker of a step that all threads share."""
    return lambda fixed: step


def free(freed: Sequence[int], registers: Registers) -> None:
    """Let go of registers that have been read."""
    for register in freed:
        registers[register] = None


def launch(run: Run, reads: Sequence[int], writes: Sequence[int], registers: Registers) -> None:
    """Launch a kernel."""
    arrays = run([registers[at] for at in reads])
    for register, array in zip(writes, arrays, strict=True):
        registers[register] = array


def run_prepared(kernel: Kernel, run: Run, arguments: Sequence[Any]) -> Sequence[Any]:
    """Launch a plugin's kernel; if that fails, let the kernel ask another backend."""
    try:
        return run(arguments)
    except BackendError:
        return kernel(arguments, None)


def run_storing(entry: Stores, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return results and partials."""
    return kernel_for(entry.passes, entry.asked)(kernel_values(entry.passes[0], arguments), None)


def roll(source: int, shifts: Shifts, result: int, registers: Registers) -> None:
    """Roll the elements of an array."""
    registers[result] = rolled(registers[source], shifts)


def add_into(own: int, other: int, registers: Registers) -> None:
    """Add to an array of NumPy that nothing else holds (see `takes`)."""
    array = registers[own]
    np.add(array, registers[other], array)


def add_new(first: int, second: int, found: int, registers: Registers) -> None:
    """Add two arrays."""
    registers[found] = added(registers[first], registers[second])


def view(strided: StridedView, whole: int, result: int, registers: Registers) -> None:
    """Take a view of an array that came in."""
    registers[result] = strided.of(registers[whole])


def evaluate(
    evaluate: Callable[..., Any],
    static: Mapping[str, Any],
    arguments: Arguments,
    result: int,
    registers: Registers,
) -> None:
    """Apply a rule with one value."""
    value = evaluate(*arguments(registers), **static)
    registers[result] = value if type(value) is np.ndarray else as_array(as_register(value))


def evaluate_several(
    evaluate: Callable[..., Any],
    static: Mapping[str, Any],
    arguments: Arguments,
    results: Sequence[int],
    registers: Registers,
) -> None:
    """Apply a rule with several values."""
    values = evaluate(*arguments(registers), **static)
    for register, value in zip(results, values, strict=True):
        registers[register] = as_array(as_register(value))


def place(
    placed: Any,
    made: Sequence[int],
    given: Sequence[int],
    shape: tuple[int, ...],
    whole: int,
    registers: Registers,
) -> None:
    """Add up parts of one array, whose first a kernel has made in its place."""
    arrays = [registers[at] for at in made]
    registers[whole] = placed.added_up(arrays, [registers[at] for at in given], shape)


def shift(
    shifted: Any,
    read: Sequence[tuple[int, int]],
    shape: tuple[int, ...],
    options: KernelOptions,
    whole: int,
    registers: Registers,
) -> None:
    """Add up parts of one array while they are computed."""
    values = {index: registers[at] for index, at in read}
    registers[whole] = shifted.added_up(values, shape, options)


def pull(entry: Pulled, wanted: Sequence[bool], g: Any, arguments: Sequence[Any]) -> Sequence[Any]:
    """Return the gradients of a rule."""
    cotangents, static = entry.rule.cotangents, entry.static
    if callable(cotangents):
        return cotangents(g, wanted, *arguments, **static)
    pairs = zip(cotangents, wanted, strict=True)
    return [of(g, *arguments, **static) if is_wanted else None for of, is_wanted in pairs]


def pull_into(
    entry: Pulled,
    library: Library,
    g: Callable[[Registers], Any],
    into: int,
    registers: Registers,
) -> None:
    """Let a rule add its gradient to a cotangent, as it did when the plan was made."""
    assert entry.rule.add_into is not None
    whole = of_register(library, registers[into])
    is_added = entry.rule.add_into(whole, g(registers), **entry.static)
    assert is_added, "whether a rule adds in place depends on shapes alone"


def take(
    pull: Pull,
    writes: Sequence[tuple[int, int]],
    registers: Registers,
) -> None:
    """Put gradients that a rule gives into registers."""
    gradients = pull(registers)
    for at, register in writes:
        registers[register] = as_register(gradients[at])


def pull_values(
    entry: PulledValues,
    given: Sequence[Callable[[Registers], Any] | None],
    values: Arguments,
    arguments: Arguments,
    registers: Registers,
) -> Sequence[Any]:
    """Return the gradients of a rule with values."""
    gs = tuple([None if g is None else g(registers) for g in given])
    wanted = [target is not None for target in entry.targets]
    made = tuple(values(registers))
    return entry.rule.pull(gs, wanted, made, arguments(registers), entry.static)


def pull_call(
    call: int, given: Sequence[Callable[[Registers], Any] | None], registers: Registers
) -> Sequence[Any]:
    """Return the gradients of a call of the user's function."""
    found: Sequence[Any] = registers[call].pull([g and g(registers) for g in given])
    return found


def is_of_plugin(prepared: Prepared) -> bool:
    """Whether a kernel is a plugin's, which may count its launches."""
    return registry.plugin_of(prepared.backend.name) is not None


class Arithmetic:
    """Computes numbers by NumPy's scalars, and after many runs by a kernel.

    Both give the same bits: see `mixad.backends.numbers`.
    """

    __slots__ = ("_kernel", "_left", "_run")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._run = cast("Run", kernel.numbers)  # of arguments of these types it is not None
        self._left = _OFTEN

    def __call__(self, arguments: Sequence[Any]) -> Sequence[Any]:
        """Return the results for some numbers."""
        self._left -= 1
        if not self._left:
            prepared = self._kernel.prepare_launch(list(arguments), None)
            if prepared.audit is None and not is_of_plugin(prepared):
                self._run = prepared.run
        return self._run(arguments)


def run_call(
    call: KernelCall, shape: tuple[int, ...] | None, options: KernelOptions, arrays: Sequence[Any]
) -> Sequence[Any]:
    """Return the results of a kernel that is not prepared, on arguments that it broadcasts."""
    values = list(arrays)
    return call.arrays(values if shape is None else in_shape(call, values, shape), options)
