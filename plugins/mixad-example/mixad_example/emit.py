"""From a kernel to C: a function with one loop over the elements, in which the passes run.

Names in the text are numbers of variables; nothing of the user's gets into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mixad.errors import BackendError
from mixad.kernel.spec import KernelSpec
from mixad.scalar.ir import Atom, Block, Const, Equation, If, Load, Program, Statement, Var, While
from mixad.scalar.math import expand
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import ScalarType

__all__ = ["ENTRY", "emit"]

ENTRY = "kernel"

_HEADER = """\
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
"""

_COMMON = {
    "add": "{0} + {1}", "sub": "{0} - {1}", "mul": "{0} * {1}", "div": "{0} / {1}", "neg": "-{0}",
    "lt": "{0} < {1}", "le": "{0} <= {1}", "gt": "{0} > {1}", "ge": "{0} >= {1}",
    "eq": "{0} == {1}", "ne": "{0} != {1}", "where": "{0} ? {1} : {2}",
    "and": "{0} & {1}", "or": "{0} | {1}", "xor": "{0} ^ {1}", "bounded_reciprocal": "1 / {0}",
}  # fmt: skip
_INTEGER = {"not": "~{0}", "shl": "(uint64_t){1} < {bits} ? (uint64_t){0} << {1} : 0"}
_OF_KIND = {
    "float": {"signbit": "signbit({0}) != 0"},
    "bool": {"not": "!{0}"},
    "int": _INTEGER | {
        "abs": "{0} < 0 ? -{0} : {0}",
        "shr": "{0} >> ((uint64_t){1} < {bits} ? {1} : {bits} - 1)",
        "floordiv": "{1} == 0 ? 0 : {1} == -1 ? -{0} : "
                    "{0} / {1} - ({0} % {1} != 0 && ({0} % {1} < 0) != ({1} < 0))",
        "mod": "{1} == 0 || {1} == -1 ? 0 : "
               "{0} % {1} + ({0} % {1} != 0 && ({0} % {1} < 0) != ({1} < 0) ? {1} : 0)",
    },
    "uint": _INTEGER | {
        "abs": "{0}",
        "shr": "(uint64_t){1} < {bits} ? {0} >> {1} : 0",
        "floordiv": "{1} == 0 ? 0 : {0} / {1}",
        "mod": "{1} == 0 ? 0 : {0} % {1}",
    },
}  # fmt: skip
"""What C has operators for; each is cast to the type of its result, so that integers wrap."""


def emit(spec: KernelSpec) -> str:
    """Return the C text of a kernel.

    The function takes the number of elements; a pointer for each param, to one value for each
    element, to the one value of a uniform, or to an indexed array in C order; for each param its
    extents if it is indexed; and a pointer for each output.  It returns 0 or, as soon as a param is
    indexed outside, one more than its number.
    """
    lines = [f"int64_t {ENTRY}(int64_t count, void **given, int64_t **extents, void **out) {{"]
    lines.append("for (int64_t i = 0; i < count; i++) {")
    for number, program in enumerate(spec.passes):
        stored = [(k, o.source[1]) for k, o in enumerate(spec.outputs) if o.source[0] == number]
        lines += ["{", *_pass(expand(program), stored), "}"]
    return "\n".join([_HEADER, *_indented([*lines, "}", "return 0;", "}"]), ""])


def _indented(lines: Sequence[str]) -> Iterator[str]:
    depth = 0
    for line in lines:
        depth -= line.startswith("}")
        yield "  " * depth + line
        depth += line.endswith("{")


def _pass(program: Program, stored: Sequence[tuple[int, int]]) -> Iterator[str]:
    arrays = {}
    for k, param in enumerate(program.params):
        if param.array is not None:
            arrays[param.var] = k
        else:
            at = "i" if param.kind == "lane" else "0"
            type = _c_type(param.var.type)
            yield f"const {type} {_name(param.var)} = ((const {type} *)given[{k}])[{at}];"
    yield from _statements(program.body, arrays)
    for k, result in stored:
        atom = program.outputs[result]
        yield f"(({_c_type(atom.type)} *)out[{k}])[i] = {_name(atom)};"


def _statements(block: Block, arrays: dict[Var, int]) -> Iterator[str]:
    for statement in block.statements:
        yield from _statement(statement, arrays)


def _statement(s: Statement, arrays: dict[Var, int]) -> Iterator[str]:
    match s:
        case Equation(op="bitcast"):
            (argument,) = s.args
            yield f"{_declared(s.out)};"
            copied = f"&({_c_type(argument.type)}){{{_name(argument)}}}"
            yield f"memcpy(&{_name(s.out)}, {copied}, sizeof {_name(s.out)});"
        case Equation():
            yield f"{_declared(s.out)} = ({_c_type(s.out.type)})({_expression(s)});"
        case Load():
            yield from _element(s, arrays[s.array])
        case If():
            yield from (f"{_declared(out)};" for out in s.outs)
            for head, block in ((f"if ({_name(s.cond)}) {{", s.then), ("} else {", s.orelse)):
                yield from (head, *_statements(block, arrays), *_assigned(s.outs, block.results))
            yield "}"
        case While():
            yield from _assigned(s.carries, s.inits, _declared)
            yield from ("for (;;) {", *_statements(s.cond, arrays))
            yield f"if (!{_name(s.cond.results[0])}) break;"
            yield from _statements(s.body, arrays)
            following = [f"next{c.id}" for c in s.carries]
            pairs = list(zip(s.carries, following, s.body.results, strict=True))
            yield from (f"{_c_type(c.type)} {new} = {_name(a)};" for c, new, a in pairs)
            yield from (f"{_name(c)} = {new};" for c, new, _ in pairs)
            yield "}"
            yield from _assigned(s.outs, s.carries, _declared)
        case _:
            raise BackendError(f"the backend 'example' has no {type(s).__name__}")


def _assigned(
    targets: Sequence[Var], values: Sequence[Atom], target: Callable[[Var], str] | None = None
) -> Iterator[str]:
    """Give variables their values; with ``_declared`` they are declared here."""
    spelled = target or _name
    return (f"{spelled(t)} = {_name(v)};" for t, v in zip(targets, values, strict=True))


def _element(s: Load, param: int) -> Iterator[str]:
    """Read an element, or return if it is outside; negative indices count from the end."""
    out, indices = _name(s.out), []
    for axis, atom in enumerate(s.indices):
        extent, index = f"extents[{param}][{axis}]", f"index{s.out.id}_{axis}"
        from_end = f" + ({_name(atom)} < 0 ? {extent} : 0)" if atom.type.kind == "int" else ""
        yield f"const uint64_t {index} = (uint64_t){_name(atom)}{from_end};"
        indices.append((index, extent))
    inside = " && ".join(f"{index} < (uint64_t){extent}" for index, extent in indices) or "true"
    flat = "0"
    for index, extent in indices:
        flat = f"({flat}) * {extent} + {index}"
    yield f"{_declared(s.out)} = 0;"
    yield f"if ({inside}) {out} = ((const {_c_type(s.out.type)} *)given[{param}])[{flat}];"
    yield f"else return {param + 1};"


def _expression(s: Equation) -> str:
    args, of = [_name(a) for a in s.args], s.args[-1].type
    if s.op == "convert":
        return _conversion(args[0], of, s.out.type)
    format = _OF_KIND[of.kind].get(s.op) or _COMMON.get(s.op)
    if format is not None:
        return format.format(*args, bits=of.bits)
    return f"{BY_NAME[s.op].c}{'f' if of.bits == 32 else ''}({', '.join(args)})"


def _conversion(x: str, old: ScalarType, new: ScalarType) -> str:
    """Convert; floats to integers towards zero, to the nearest end if outside, nan to 0."""
    if new.is_bool:
        return f"{x} != 0"
    if not (old.is_float and new.is_integer):
        return x
    signed = new.kind == "int"
    high = 1 << (new.bits - signed)
    low, most = -high if signed else 0, f"{high - 1}u" + "ll" * (new.bits == 64)
    least = f"(-{high - 1}ll - 1)" if signed else "0"
    within = f"{x} < {float(low).hex()} ? {least} : ({_c_type(new)}){x}"
    return f"{x} != {x} ? 0 : {x} >= {float(high).hex()} ? ({_c_type(new)}){most} : {within}"


def _c_type(type: ScalarType) -> str:
    if type.is_float:
        return {32: "float", 64: "double"}[type.bits]
    return "bool" if type.is_bool else f"{type.dtype_name}_t"


def _declared(var: Var) -> str:
    return f"{_c_type(var.type)} {_name(var)}"


def _name(atom: Atom) -> str:
    if not isinstance(atom, Const):
        return f"v{atom.id}"
    if not atom.type.is_float:
        return f"(({_c_type(atom.type)}){atom.value % 2**64}u" + "ll)"
    if atom.value != atom.value:
        return "NAN"
    if atom.value in (float("inf"), float("-inf")):
        return "INFINITY" if atom.value > 0 else "(-INFINITY)"
    return f"(({_c_type(atom.type)}){float(atom.value).hex()})"
