"""The text of an export for CUDA: kernels in CUDA C++, and what launches them, in C."""

from __future__ import annotations

from collections.abc import Sequence

from mixad.backends.cuda.backend import BLOCKS_EACH, LEAST, LEAST_RUN
from mixad.emit.cuda import THREADS, Dialect, emit_axis_sum, emit_kernel, entries, for_threads
from mixad.emit.cuda.sums import FEW, PER_THREAD, WARP
from mixad.export import c_text
from mixad.export.kernels import Function
from mixad.export.variants import Variant
from mixad.scalar.types import F32, F64

__all__ = ["header", "kernel_symbols", "kernels", "source"]

_SUMS = {"SUM_FLOAT": F32, "SUM_DOUBLE": F64}


def kernel_symbols(
    name: str, functions: Sequence[Function], variants: Sequence[Sequence[Variant]]
) -> list[str]:
    """Return what is kernel_symbols: sums along an axis, then the passes of all kernels."""
    sums = [f"{name}_{symbol.lower()}" for symbol in _SUMS]
    return sums + [
        f"{name}_{f.what}_kernel_{k}_pass_{number}"
        for f, own in zip(functions, variants, strict=True)
        for k in range(len(own))
        for number in range(len(f.passes))
    ]


def kernels(
    name: str, functions: Sequence[Function], variants: Sequence[Sequence[Variant]], vector: int
) -> str:
    """Return the CUDA C++ of all kernels, each in a namespace of its own."""
    texts = [c_text.NOTICE]
    for symbol, type in _SUMS.items():
        entry = f"{name}_{symbol.lower()}"
        texts.append(_wrap_in_namespace(entry, emit_axis_sum("add", type, entry)))
    for f, own in zip(functions, variants, strict=True):
        for k, variant in enumerate(own):
            text, symbol = (
                emit_kernel(for_threads(variant.spec), Dialect(vector=vector)),
                f"{name}_{f.what}_kernel_{k}",
            )
            for number, entry in enumerate(entries(variant.spec)):
                text = text.replace(f" {entry}(", f" {symbol}_pass_{number}(")
            texts.append(_wrap_in_namespace(symbol, text))
    return "\n".join(texts)


def _wrap_in_namespace(symbol: str, text: str) -> str:
    return f"namespace of_{symbol} {{\n{text}\n}}  // namespace of_{symbol}\n"


def header(name: str, functions: Sequence[Function], words: int, count: int) -> str:
    """Return the header of an export for CUDA; ``count`` kernels are kernel_symbols."""
    guard = f"{name.upper()}_H"
    lines = [c_text.NOTICE, f"#ifndef {guard}", f"#define {guard}", "", "#include <cuda.h>"]
    lines += ["#include <stdint.h>", "", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""]
    lines += [
        c_text.ARRAY,
        f"/* The kernels of {name}.cu, compiled, loaded into the current context. */",
        f"typedef struct {name}_module {{",
        f"  CUfunction function[{count}];",
        "  int32_t processors;",
        f"}} {name}_module;",
        f"int32_t {name}_load({name}_module *module, CUmodule compiled);",
        "",
        "/* A call in the making. Its arrays are on the device: their data are addresses there. */",
        f"typedef struct {name}_plan {{",
        "  int64_t tiles; /* blocks of threads that have something to do */",
        "  int64_t bytes; /* of memory of the device that the call needs besides */",
        f"  int64_t own[{words}];",
        f"}} {name}_plan;",
        "",
    ]
    head = f"{name}_plan *plan, const {name}_module *module"
    for f in functions:
        taken, given = c_text.names_of(f)
        listed = c_text.params(f, [*taken, *given], apart=",\n    ")
        lines += [f"/* {c_text.TOLD[f.what]}", *(f"     {line}" for line in c_text.descriptions(f))]
        lines[-1] += " */"
        lines += [
            f"int32_t {name}_{f.what}_bind(\n    {head},\n    {listed});",
            "",
        ]
    lines += [
        "/* Launch a call that is bound, on a stream, with plan->bytes at memory, an address that",
        "   is a multiple of 64. In the end its first four bytes are not zero if an array was read",
        "   outside its extents. */",
        f"int32_t {name}_launch(\n    {head},\n    CUstream stream,\n    CUdeviceptr memory);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def source(
    name: str,
    functions: Sequence[Function],
    variants: Sequence[Sequence[Variant]],
    vector: int,
    *,
    dynamic: bool,
) -> str:
    """Return the C text that binds arrays to kernels of a device and launches them."""
    symbols = kernel_symbols(name, functions, variants)
    head = f"{name}_plan *plan, const {name}_module *module"
    of_target = {
        "PLAN_HEAD": "int64_t tiles, bytes;",
        "PADDED(n)": "(n)",
        **{symbol: k for k, symbol in enumerate(_SUMS)},
        "ENTRIES": len(symbols),
        "NEIGHBOURS": vector,
        "THREADS": THREADS,
        "WARP": WARP,
        "VALUES_EACH": FEW,
        "VALUES_PER_THREAD": PER_THREAD,
        "BLOCKS_EACH": BLOCKS_EACH,
        "LEAST_RUN": LEAST_RUN,
        "LEAST": LEAST,
    }
    lines = [c_text.NOTICE, "#include <cuda.h>", "#include <stdint.h>", "#include <stdlib.h>"]
    lines += ["#include <string.h>", "", f'#include "{name}.h"', ""]
    lines += [c_text.constants(functions, variants, of_target), "", "typedef int kernel_t;", ""]
    named = ", ".join(f'"{symbol}"' for symbol in symbols)
    lines += [f"static const char *const ENTRY_NAMES[] = {{{named}}};", ""]
    lines += [c_text.part("plan.c"), c_text.part("cuda.c")]
    lines += [f"typedef char {name}_plan_fits[sizeof({name}_plan) >= sizeof(plan_t) ? 1 : -1];", ""]
    for f, own in zip(functions, variants, strict=True):
        first = [f"{name}_{f.what}_kernel_{k}_pass_0" for k in range(len(own))]
        at = [str(symbols.index(symbol)) for symbol in first]
        names, lines_of_arrays = c_text.argument_lines(f)
        listed = c_text.params(f, names)
        lines += [
            c_text.table(f, own, at, dynamic=dynamic),
            "",
            f"int32_t {name}_{f.what}_bind({head}, {listed}) {{",
            *lines_of_arrays,
            f"  return begin(&{f.what}, (plan_t *)plan, module->processors, arrays, numbers,",
            "               outputs);",
            "}",
            "",
        ]
    lines += [
        f"int32_t {name}_load({name}_module *module, CUmodule compiled) {{",
        "  return load(module->function, compiled, &module->processors);",
        "}",
        "",
        f"int32_t {name}_launch({head}, CUstream stream, CUdeviceptr memory) {{",
        "  return run(module->function, (plan_t *)plan, stream, memory);",
        "}",
        "",
    ]
    return "\n".join(lines)
