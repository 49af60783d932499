"""Refusals before a launch is planned: of arguments, and of results that backends cannot write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mixad.backends.arrays import NUMPY, Library, device_name, library_of
from mixad.backends.hookspecs import Capability
from mixad.errors import BackendError, KernelTypeError, TracerError
from mixad.kernel.plan import Layout
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Program

__all__ = ["check_arguments", "check_types", "check_writes", "one_place"]


def check_arguments(program: Program, arguments: Sequence[Any]) -> None:
    """Raise an error that names the first argument which kernels do not take."""
    for param, argument in zip(program.params, arguments, strict=True):
        try:
            if param.kind != "uniform":
                library_of(argument)
        except (KernelTypeError, TracerError) as error:
            raise error.about(f"{program.name}: argument {param.name!r}") from None


def check_types(program: Program, layouts: Sequence[Layout | None]) -> None:
    """Refuse an array of another type than its param: its memory would be misread."""
    for param, layout in zip(program.params, layouts, strict=True):
        if layout is not None and layout.type != param.var.type:
            raise KernelTypeError(
                f"{program.name}: {param.name!r} is compiled for {param.var.type.dtype_name}, "
                f"the array is {layout.type.dtype_name}"
            )


def check_writes(
    backend: str,
    can: Capability,
    passes: Sequence[Program],
    requests: Sequence[OutputRequest],
    faults: Mapping[str, str],
) -> None:
    """Refuse outputs that a backend's kernels do not support and would write wrongly."""
    because = "".join(f"; it serves because {reason}" for reason in faults.values())
    if any(r.part is not None for r in requests) and not can.writes_parts:
        raise BackendError(
            f"the backend {backend!r} does not write parts of larger arrays{because}"
        )
    for r in requests:
        added = passes[r.pass_index].accumulator(r.result)
        if added is None or added.kind in can.accumulates:
            continue
        name, whose = added.name, f"{passes[0].name}: the backend {backend!r}"
        if added.kind == "add":
            raise BackendError(
                f"{whose} does not compute the gradient of the array {name!r}, which is read by "
                f"index{because}: index before the call, {name}[i] with an array i, or use the "
                "backend 'cpu'"
            )
        raise BackendError(
            f"{whose} does not combine elements by an operator{because}: use arrays that the "
            "backend 'cpu' serves"
        )
    if any(r.beside for r in requests) and not can.stores_beside:
        raise BackendError(f"the backend {backend!r} does not store results side by side{because}")


def one_place(arrays: Sequence[Any]) -> tuple[Library, str]:
    """Return the library and the device that all arrays share; NumPy's may be beside lazy ones."""
    found = dict.fromkeys((library_of(a), device_name(a)) for a in arrays)
    if len(found) == 2:
        (one, device), (other, second) = found
        both = one.mix_with(other)
        if both is not None and device == second:
            return both, device
    if len(found) > 1:
        kinds = " and ".join(f"{library.name} on {device}" for library, device in found)
        raise KernelTypeError(
            f"arguments of one call are arrays of {kinds}: convert them to one library and device"
        )
    return next(iter(found), (NUMPY, "cpu"))
