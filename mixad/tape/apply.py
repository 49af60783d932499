"""Programs over arrays: run, or recorded with the placement that was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from mixad.errors import KernelGradientError, SourceLocation
from mixad.kernel.options import DEFAULT_OPTIONS, KernelOptions
from mixad.scalar.ir import Load, Program, Var, walk_statements
from mixad.tape.kernel_call import KernelCall, kernel_values
from mixad.tape.kernel_node import record
from mixad.tape.operations import Operation
from mixad.tape.tracer import Tracer, strand_of
from mixad.tape.values_rule import followed

__all__ = ["apply_call", "apply_program"]


def apply_program(
    program: Program, arguments: Sequence[Any], options: KernelOptions = DEFAULT_OPTIONS
) -> tuple[Any, ...]:
    """Apply a program of scalars at every element of its broadcast arguments, or record it.

    A uniform param takes a Python number or a 0-d tracer. Traced arguments make pending tracers;
    outputs that are no floats are plain arrays then, except in the body of a loop.
    """
    return apply_call(KernelCall.storing(program), arguments, options)


def apply_call(
    call: KernelCall, arguments: Sequence[Any], options: KernelOptions = DEFAULT_OPTIONS
) -> tuple[Any, ...]:
    """Run a call of one pass, or record it: see `apply_program`."""
    for argument in arguments:
        if isinstance(argument, Tracer):
            break
    else:
        return call.kernel(kernel_values(call.passes[0], arguments), options.backend)
    strand = strand_of(arguments)
    if strand is not None:
        found: tuple[Any, ...] = strand.applied(_operation(call, options), arguments)
        if call.gives_floats or strand.level.unknown is None:
            return found
        return tuple([o if o.kind.type.is_float else strand.level.unknown(o) for o in found])
    if options.placement == "forward":
        _check_not_indexed(call.passes[0], arguments)
    node = record(call, arguments, options)[0]
    outputs = tuple([node.traced(k) for k in range(len(call.outputs))])
    return outputs if call.gives_floats else tuple(map(followed, outputs))


@lru_cache(maxsize=4096)
def _operation(call: KernelCall, options: KernelOptions) -> Operation:
    """Return the operation that strands record for a call."""
    return Operation(lambda *operands: apply_call(call, operands, options), is_primitive=True)


def _check_not_indexed(program: Program, arguments: Sequence[Any]) -> None:
    """Refuse to store partials by an array that a program reads by index."""
    for param, argument in zip(program.params, arguments, strict=True):
        if param.kind == "array" and isinstance(argument, Tracer):
            raise KernelGradientError(
                f"{program.name}: the gradient of the array {param.name!r}, which is read by "
                "index, is not available with stored partials",
                location=_first_read(program, param.var),
                hint='leave out placement="forward"',
            )


def _first_read(program: Program, array: Var) -> SourceLocation | None:
    """Return where a program first reads an element of one of its arrays."""
    statements = walk_statements(program.body)
    lines = (s.line for s in statements if isinstance(s, Load) and s.array == array and s.line)
    return next((line.place for line in lines), None)
