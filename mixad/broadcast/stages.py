"""The text of a function at each stage of its way to the kernel for values and gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mixad.backends import registry
from mixad.backends.disassembler import disassemble
from mixad.backends.faults import PluginCall, describe, fault
from mixad.backends.nvrtc import compile_text
from mixad.backends.protocols import Assembling, Backend, OnDevice
from mixad.broadcast.planned import PlannedKernel, planned_call
from mixad.emit.cuda import Dialect, emit_kernel, for_threads
from mixad.kernel.options import KernelOptions
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Program, source_lines
from mixad.scalar.pushforward import DualProgram, pushforward

__all__ = ["STAGES", "stage_text"]

STAGES = ("program", "pushforward", "pullback", "llvm", "asm", "cuda", "ptx", "sass")

_DEVICE_STAGES = STAGES[5:]

_ARCHITECTURE = "sm_90"
"""The architecture for arrays that are on no CUDA device."""


def stage_text(
    program: Program,
    values: Sequence[Any],
    wrt: Sequence[int],
    options: KernelOptions,
    stage: str,
) -> str:
    """Return one stage of the way from a program to its kernel for values and gradients.

    ValueError if there is no such stage, or the backend lacks it; BackendError if what makes it is
    not installed.
    """
    if stage not in STAGES:
        raise ValueError(f"stage must be one of {', '.join(map(repr, STAGES))}, not {stage!r}")
    if stage == "program":
        return str(program)
    if stage == "pushforward":
        slots = even_chunks(len(wrt), options.chunk or MAX_PARTIALS) or (range(0),)
        return "\n\n".join(_push(program, [wrt[slot] for slot in chunk]) for chunk in slots)
    kernels = planned_call(program, values, wrt, options).kernels
    if stage == "pullback":
        return "\n\n".join(_passes(kernels[-1]))
    return "\n\n".join(_emit_text(kernel, stage).rstrip("\n") for kernel in kernels)


def _push(program: Program, wrt: Sequence[int]) -> str:
    dual = pushforward(program, wrt)
    names = [program.params[index].name for index in wrt]
    return _returning(_places(dual, dict(enumerate(names))), dual.program)


def _places(dual: DualProgram, names: Mapping[Any, str]) -> list[str]:
    """Return what each output of a dual program is, output by output."""
    places = {chunk.primal: f"output {m}" for m, chunk in enumerate(dual.outputs)}
    for m, chunk in enumerate(dual.outputs):
        places |= {at: f"d(output {m})/d({names[slot]})" for slot, at in chunk.partials.items()}
    return [places[at] for at in sorted(places)]


def _passes(kernel: PlannedKernel) -> Iterator[str]:
    outputs = kernel.launch.spec.outputs
    for at, program in enumerate(kernel.passes):
        yield _returning(
            [
                result
                for result, output in zip(kernel.results, outputs, strict=True)
                if output.source[0] == at
            ],
            program,
        )


def _returning(results: Sequence[str], program: Program) -> str:
    return f"# returns {', '.join(results)}\n{program}"


def _emit_text(kernel: PlannedKernel, stage: str) -> str:
    """Return a backend's text of a kernel, in the language of the stage."""
    if stage in _DEVICE_STAGES:
        return _on_device(kernel, stage)
    spec, backend = replace(kernel.launch.spec, passes=kernel.passes), kernel.backend
    if stage == "llvm":
        return _text(backend, "emit", spec)
    if not isinstance(backend, Assembling):
        raise ValueError(
            f"the backend {backend.name!r} has no stage {stage!r}: use "
            "stage='llvm', or another backend"
        )
    return f"{_comment_lines(kernel.passes, '#')}{_text(backend, 'assembly', spec)}"


def _text(backend: Backend, method: str, *arguments: Any) -> str:
    """Return the text that a method of a backend returns."""
    plugin = registry.plugin_of(backend.name)
    with PluginCall(plugin, backend.name, f"in {method}"):
        text: str = getattr(backend, method)(*arguments)
    if plugin is not None and not isinstance(text, str):
        raise fault(
            plugin, backend.name, f"returned {describe(text)} from {method}, expected a str"
        )
    return text


def _on_device(kernel: PlannedKernel, stage: str) -> str:
    """Return the text for a CUDA device, also where there is none.

    The arrays may be on the CPU, whose kernels fold short rows; a device's do not.
    """
    spec, backend = replace(kernel.unfolded.spec, passes=kernel.passes), kernel.backend
    if isinstance(backend, OnDevice):
        text = _text(backend, "device_text", spec, kernel.bound, kernel.like)
        architecture = _text(backend, "architecture", kernel.like)
    else:
        text, architecture = emit_kernel(for_threads(spec), Dialect()), _ARCHITECTURE
    if stage == "cuda":
        return text
    code = compile_text(text, architecture)
    shown = code.ptx if stage == "ptx" else disassemble(code.cubin)
    return f"{_comment_lines(kernel.passes, '//')}{shown}"


def _comment_lines(passes: Sequence[Program], mark: str) -> str:
    """Return the user's lines as an assembler's comments, all at once: instructions mix them."""
    lines = dict.fromkeys(line.shown for p in passes for line in source_lines(p))
    shown = (line.encode("ascii", "backslashreplace").decode("ascii") for line in lines)
    return "".join(f"{mark} {line}\n" for line in shown)
