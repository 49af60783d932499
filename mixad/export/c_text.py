"""The text of an export in C: a header, and what binds arrays to the words that kernels read."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Mapping, Sequence

from mixad.export.kernels import Argument, Function, Result, c_names, constant_bits
from mixad.export.variants import Variant, rank_of
from mixad.kernel import folding, plan, tiling
from mixad.kernel.arguments import ArgumentLayout
from mixad.kernel.cost import statement_cost
from mixad.kernel.varying import varying_vars
from mixad.scalar.ir import written_vars
from mixad.scalar.types import ScalarType
from mixad.version import __version__

__all__ = ["ARRAY", "LICENCE", "NOTICE", "TOLD", "argument_lines", "axes", "c_type", "constants",
           "descriptions", "header", "names_of", "params", "part", "plan_words", "source",
           "table"]  # fmt: skip

LICENCE = "BSD-3-Clause"
"""Of the text that comes from mixad; the kernel is its author's."""

NOTICE = f"""/* Made by mixad {__version__}. What is the same in every export is part of mixad:
   SPDX-License-Identifier: {LICENCE}
   Copyright (c) 2026, mixad developers. The kernel itself is its author's. */
"""

ARRAY = """#ifndef MIXAD_ARRAY
#define MIXAD_ARRAY
/* An array: extents of its axes, and bytes between neighbours along them; no strides: packed, the
   last axis innermost. Elements are aligned as C aligns their type. */
typedef struct mixad_array {
  void *data;
  const int64_t *extents;
  const int64_t *strides;
} mixad_array;

enum {
  MIXAD_OK = 0,
  MIXAD_SHAPE = 1,  /* extents or strides are not those that the function takes */
  MIXAD_LAYOUT = 2, /* axes are in an order of memory that the kernel was not exported for */
  MIXAD_MEMORY = 3, /* there is no memory for partial sums */
  MIXAD_INDEX = 4,  /* an array was read outside its extents: results are garbage */
  MIXAD_STOPPED = 5, /* the caller set stop: results are incomplete */
  MIXAD_CUDA = 6    /* a call of the CUDA driver failed */
};
#endif
"""

_C_TYPES = {"bool": "uint8_t", "float32": "float", "float64": "double"}


def c_type(type: ScalarType) -> str:
    """Return the C type of an element."""
    return _C_TYPES.get(type.dtype_name, f"{type.dtype_name}_t")


def names_of(function: Function) -> tuple[list[str], list[str]]:
    """Return the names in C of what a function takes, without constants, and of what it gives."""
    taken = [a.name for a in function.arguments if a.kind != "constant"]
    names = c_names([*taken, *(r.name for r in function.results)])
    return names[: len(taken)], names[len(taken) :]


def params(function: Function, names: Iterable[str], apart: str = ", ") -> str:
    """Return the params of a function in C."""
    types = [
        f"{c_type(a.type)} " if a.kind == "uniform" else "const mixad_array *"
        for a in function.arguments
        if a.kind != "constant"
    ]
    types += ["const mixad_array *"] * len(function.results)
    return apart.join(map("".join, zip(types, names, strict=True)))


def descriptions(function: Function) -> list[str]:
    """Return lines about what a function takes and gives."""
    taken, given = names_of(function)
    arguments = [a for a in function.arguments if a.kind != "constant"]
    lines = [
        _description(name, a.name, a.type, _kind(a))
        for a, name in zip(arguments, taken, strict=True)
    ]
    lines += [
        _description(name, r.name, r.type, f"result, {_axes(r.own, r.rank)}")
        for r, name in zip(function.results, given, strict=True)
    ]
    lines += [f"{name} is zero, whatever the values are: left out" for name in function.zeros]
    lines += [
        f"{a.name} is {a.value}, as it was at the export"
        for a in function.arguments
        if a.kind == "constant"
    ]
    return lines


def _description(name: str, own: str, type: ScalarType, what: str) -> str:
    shown = "" if own == name else f" ({own})"
    return f"{name}{shown}: {type.dtype_name}, {what}"


def _kind(argument: Argument) -> str:
    if argument.kind == "uniform":
        return "a number"
    if argument.kind == "array":
        return f"read by index, {len(argument.shape)} axes"
    return _axes(argument.own, len(argument.shape))


def _axes(own: Sequence[bool], rank: int) -> str:
    return f"extents ({', '.join(map(str, axes(own, rank)))})"


def axes(own: Sequence[bool], rank: int) -> list[int | str]:
    """Return the extents of an array, numbered as those of the broadcast shape, or 1."""
    first = len(own) - rank
    return [f"n{k}" if flag else 1 for k, flag in enumerate(own) if k >= first]


# -- tables of plan.c ------------------------------------------------------------------------------


def table(
    function: Function, variants: Sequence[Variant], symbols: Sequence[str], *, dynamic: bool
) -> str:
    """Return the tables of one function; ``symbols`` are its kernels in C."""
    what, lines = function.what, list[str]()

    def rows(name: str, type: str, entries: Iterable[str], none: str = "0") -> None:
        listed = list(entries) or [none]
        lines.append(f"static const {type} {what}_{name}[] = {{{', '.join(listed)}}};")

    if not dynamic:
        for k, a in enumerate(function.arguments):
            rows(f"extents_{k}", "int64_t", map(str, a.shape))
            rows(f"strides_{k}", "int64_t", map(str, a.strides))
    rows(
        "arguments",
        "argument_t",
        (_argument(what, k, a, dynamic) for k, a in enumerate(function.arguments)),
        "{0}",
    )
    rows("params", "int16_t", map(str, function.params))
    rows("results", "result_t", map(_result, function.results))
    rows("costs", "cost_t", (f"{{{mask}u, {cost}}}" for mask, cost in _costs(function)), "{0, 0}")
    for k, v in enumerate(variants):
        rows(f"combine_{k}", "uint8_t", v.combines)
        rows(f"segments_{k}", "uint64_t", map(str, v.segments))
        rows(f"steps_{k}", "uint8_t", v.steps)
        rows(f"at_{k}", "int16_t", map(str, v.at))
    rows(
        "variants",
        "variant_t",
        (
            f"{{{symbol}, {int(v.spec.folded > 0)}, {int(v.spec.is_split)}, {what}_combine_{k}, "
            f"{what}_segments_{k}, {what}_steps_{k}, {what}_at_{k}}}"
            for k, (v, symbol) in enumerate(zip(variants, symbols, strict=True))
        ),
    )
    sums = any(not all(r.own) for r in function.results)
    counts = (rank_of(function), len(function.arguments), len(function.params),
              len(function.results), len(_costs(function)), len(variants),
              len(function.passes), int(sums))  # fmt: skip
    parts = ", ".join(
        f"{what}_{n}" for n in ("arguments", "params", "results", "costs", "variants")
    )
    lines.append(f"static const function_t {what} = {{{', '.join(map(str, counts))}, {parts}}};")
    return "\n".join(lines)


_KINDS = {"lane": "LANE", "array": "INDEXED", "uniform": "NUMBER", "constant": "CONSTANT"}


def _argument(what: str, k: int, a: Argument, dynamic: bool) -> str:
    bits = constant_bits(a) if a.kind == "constant" else 0
    fixed = ("0", "0") if dynamic else (f"{what}_extents_{k}", f"{what}_strides_{k}")
    # The smallest integer is no literal in C.
    word = f"(int64_t)UINT64_C({bits % (1 << 64)})"
    return (
        f"{{{_KINDS[a.kind]}, {len(a.shape)}, {a.type.itemsize}, {_bits(a.own)}, {word}, "
        f"{fixed[0]}, {fixed[1]}}}"
    )


def _result(r: Result) -> str:
    return f"{{{r.rank}, {r.type.itemsize}, {_bits(r.own)}}}"


def _bits(flags: Sequence[bool]) -> int:
    return sum(1 << k for k, flag in enumerate(flags) if flag)


def _costs(function: Function) -> list[tuple[int, int]]:
    """Return what statements cost, added up by the params that they vary with, a set of bits."""
    found: dict[int, int] = {}
    for program in function.passes:
        lanes = [k for k, p in enumerate(program.params) if p.kind == "lane"]
        varying = {k: varying_vars(program, [k]) for k in lanes}
        for s in program.body.statements:
            own = set(written_vars(s))
            mask = sum(1 << k for k, names in varying.items() if not names.isdisjoint(own))
            found[mask] = found.get(mask, 0) + statement_cost(s)
    return list(found.items())


def constants(
    functions: Sequence[Function],
    variants: Sequence[Sequence[Variant]],
    of_target: Mapping[str, object],
) -> str:
    """Return the sizes of tables, the numbers that planning goes by, and those of a target."""
    blocks = [ArgumentLayout(v.spec).words for own in variants for v in own]
    sizes = {
        "AXES": max(map(rank_of, functions)),
        "ARGUMENTS": max(1, *(len(f.arguments) for f in functions)),
        "PARAMS": max(1, *(len(f.params) for f in functions)),
        "OUTPUTS": max(len(f.results) for f in functions),
        "WORDS": max(blocks) + 1,
    }
    numbers = {
        "W_STOP": ArgumentLayout.STOP,
        "W_OUTSIDE": ArgumentLayout.OUTSIDE,
        "W_EXTENT": ArgumentLayout.EXTENT,
        "W_BLOCKS": ArgumentLayout.BLOCKS,
        "W_ROWS": ArgumentLayout.ROWS,
        "W_RUNS": ArgumentLayout.RUNS,
        "W_OUTER": ArgumentLayout.OUTER_EXTENTS,
        "GANG": tiling.GANG,
        "BLOCK": tiling.BLOCK,
        "MAX_RUN": tiling.MAX_RUN,
        "MAX_TILE": tiling.MAX_TILE,
        "FEW_PARTIALS": tiling.FEW_PARTIALS,
        "CPU_LEAST_RUN": tiling.CPU_TILING.least_run,
        "PARTIALS_EACH": plan.MAX_PARTIALS,
        "FOLDED_EACH": plan.MAX_FOLDED,
        "FOLDED": folding.FOLDED,
        "SHORT": folding.SHORT,
        "MAX_COPIES": folding.MAX_COPIES,
        "END_COST": folding.END_COST,
        "COPY_ROW": folding.COPY_COST["row"],
        "COPY_COLUMN": folding.COPY_COST["column"],
        "COPY_TILE": folding.COPY_COST["tile"],
        "SUM_COST": folding.SUM_COST,
        "GANG_COST": folding.GANG_COST,
        "LINE": 64,
    }
    own = tiling.CPU_TILING
    return "\n".join([
        *(f"#define {name} {value}" for name, value in {**sizes, **numbers, **of_target}.items()),
        f"#define CPU_TILING_IS {{{own.tiles}, {own.least_run}, {own.least}}}",
    ])  # fmt: skip


def plan_words(functions: Sequence[Function], variants: Sequence[Sequence[Variant]]) -> int:
    """Return how many 64-bit words a plan of `plan.c` takes at most, behind those that are told."""
    axes, outputs = max(map(rank_of, functions)), max(len(f.results) for f in functions)
    words = max(ArgumentLayout(v.spec).words for own in variants for v in own)
    return 6 + 2 * axes + outputs * (4 + 7 * axes) + words


def part(name: str) -> str:
    """Return a text that is the same in every export."""
    return importlib.resources.files("mixad.export").joinpath(name).read_text("utf-8")


# -- files -----------------------------------------------------------------------------------------


def header(name: str, functions: Sequence[Function], words: int) -> str:
    """Return the header of an export for the CPU."""
    guard = f"{name.upper()}_H"
    lines = [NOTICE, f"#ifndef {guard}", f"#define {guard}", "", "#include <stdint.h>", ""]
    lines += ["#ifdef __cplusplus", 'extern "C" {', "#endif", "", ARRAY]
    lines += [
        "/* A call in the making, which stays where it is until it is finished. */",
        f"typedef struct {name}_plan {{",
        "  int64_t tiles;   /* pieces of work: any thread may run any range of them */",
        "  int32_t stop;    /* another thread may set it to end a call early */",
        "  int32_t outside; /* not zero if an array was read outside its extents */",
        f"  int64_t own[{words}];",
        f"}} {name}_plan;",
        "",
    ]
    for f in functions:
        taken, given = names_of(f)
        listed = params(f, [*taken, *given], apart=",\n    ")
        lines += [f"/* {TOLD[f.what]}", *(f"     {line}" for line in descriptions(f))]
        lines[-1] += " */"
        lines += [
            f"int32_t {name}_{f.what}(\n    {listed});",
            f"int32_t {name}_{f.what}_bind(\n    {name}_plan *plan,\n    {listed});",
            "",
        ]
    lines += [
        "/* In place of one call: bind; run ranges of tiles, from 0 to plan->tiles, each once, by",
        "   any thread; finish, by one thread, which adds up what tiles have left, also where a",
        "   call is given up. */",
        f"void {name}_run(const {name}_plan *plan, int64_t first, int64_t last);",
        f"int32_t {name}_finish({name}_plan *plan);",
        "",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
        "",
    ]
    return "\n".join(lines)


TOLD = {
    "value": "The value at every element.",
    "pushforward": "The value, and its tangent along tangents of arguments.",
    "pullback": "The value, and the gradients of arguments for cotangents of the value.",
}


_OF_THE_CPU = {
    "PLAN_HEAD": "int64_t tiles; int32_t stop, outside;",
    "PADDED(n)": "(up(n, GANG) * GANG)",
}


def source(
    name: str,
    functions: Sequence[Function],
    variants: Sequence[Sequence[Variant]],
    symbols: Sequence[Sequence[str]],
    *,
    dynamic: bool,
) -> str:
    """Return the C text that binds arrays to kernels of the CPU."""
    lines = [NOTICE, "#include <stdint.h>", "#include <stdlib.h>", "#include <string.h>", ""]
    lines += [f'#include "{name}.h"', "", constants(functions, variants, _OF_THE_CPU), ""]
    lines += ["typedef void (*kernel_t)(const void *, int64_t, int64_t);", ""]
    lines += [part("plan.c"), part("cpu.c")]
    lines += [
        f"void {symbol}(const void *, int64_t, int64_t);" for own in symbols for symbol in own
    ]
    lines += [f"typedef char {name}_plan_fits[sizeof({name}_plan) >= sizeof(plan_t) ? 1 : -1];", ""]
    for f, own, kernels in zip(functions, variants, symbols, strict=True):
        lines += [table(f, own, kernels, dynamic=dynamic), "", _entry(name, f), ""]
    lines += [
        f"void {name}_run(const {name}_plan *plan, int64_t first, int64_t last) {{",
        "  run((const plan_t *)plan, first, last);",
        "}",
        "",
        f"int32_t {name}_finish({name}_plan *plan) {{ return finish((plan_t *)plan); }}",
        "",
    ]
    return "\n".join(lines)


def argument_lines(function: Function) -> tuple[list[str], list[str]]:
    """Return names of what a function in C is given, which no macro has, and the lines that put it
    into arrays."""
    arguments = [a for a in function.arguments if a.kind != "constant"]
    names = [f"a{k}" for k in range(len(arguments))]
    given = [f"r{k}" for k in range(len(function.results))]
    arrays, numbers, lines = [], [], list[str]()
    for k, (a, name) in enumerate(zip(arguments, names, strict=True)):
        is_float = a.kind == "uniform" and a.type.is_float
        arrays.append("0" if a.kind == "uniform" else name)
        word = f"{name} != 0" if a.type.is_bool else f"(int64_t){name}"
        numbers.append(word if a.kind == "uniform" and not is_float else "0")
        if is_float:
            lines.append(f"  memcpy(&numbers[{k}], &{name}, sizeof {name});")
    constants = ["0"] * (len(function.arguments) - len(arguments))
    return [*names, *given], [
        f"  const mixad_array *const arrays[] = {{{', '.join([*arrays, *constants])}}};",
        f"  const mixad_array *const outputs[] = {{{', '.join(given)}}};",
        f"  int64_t numbers[] = {{{', '.join([*numbers, *constants])}}};",
        *lines,
    ]


def _entry(name: str, function: Function) -> str:
    """Return the functions that callers see of one function."""
    what, (names, lines) = function.what, argument_lines(function)
    listed = params(function, names)
    return "\n".join([
        f"int32_t {name}_{what}_bind({name}_plan *plan, {listed}) {{",
        *lines,
        f"  return begin(&{what}, (plan_t *)plan, arrays, numbers, outputs);",
        "}",
        "",
        f"int32_t {name}_{what}({listed}) {{",
        f"  {name}_plan plan;",
        f"  const int32_t status = {name}_{what}_bind(&plan, {', '.join(names)});",
        "  if (status) return status;",
        f"  {name}_run(&plan, 0, plan.tiles);",
        f"  return {name}_finish(&plan);",
        "}",
    ])  # fmt: skip
