"""What is exported of a kernel: programs, and what they take and give, under names that C has."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from mixad.backends.arrays import layout_of
from mixad.backends.execute import broadcast_shape
from mixad.errors import ConfigurationError, KernelGradientError, KernelTypeError
from mixad.kernel.binding import packing_of
from mixad.kernel.options import KernelOptions
from mixad.kernel.plan import DEFAULT_CACHE_BYTES, Layout, plan
from mixad.kernel.spec import Launch, OutputRequest
from mixad.scalar.ir import Program
from mixad.scalar.parse import Parsed
from mixad.scalar.pushforward import pushforward_along
from mixad.scalar.types import I64, ScalarType
from mixad.tape.kernel_call import kernel_values
from mixad.tape.pullback_plan import plan_pullback

__all__ = [
    "MAX_ARRAYS",
    "Argument",
    "Call",
    "Function",
    "Result",
    "c_names",
    "constant_bits",
    "functions_of",
    "identifier",
]

MAX_ARRAYS = 64
"""Arguments of a function, and results of it: C has them as bits of a word."""

Kind = Literal["lane", "array", "uniform", "constant"]


@dataclass(frozen=True)
class Argument:
    """What a function takes; a constant is a number from outside, as it was at the export."""

    name: str  # as mixad has it, such as "w[0]"
    kind: Kind
    type: ScalarType
    shape: tuple[int, ...] = ()  # of the example, as are strides
    strides: tuple[int, ...] = ()
    own: tuple[bool, ...] = ()  # for each axis of the broadcast shape, whether it moves along it
    value: Any = 0  # of a constant


@dataclass(frozen=True)
class Result:
    """What a function gives: the source is a pass and a result of it; the rest as of arguments."""

    name: str
    type: ScalarType
    source: tuple[int, int]
    rank: int
    own: tuple[bool, ...]


@dataclass(frozen=True)
class Function:
    """One function of an export."""

    what: str  # "value", "pushforward" or "pullback"
    passes: tuple[Program, ...]  # with the same params
    arguments: tuple[Argument, ...]  # in the order of the call; constants come last
    params: tuple[int, ...]  # which argument each param of the passes is
    results: tuple[Result, ...]  # in the order of the call
    zeros: tuple[str, ...] = ()  # names of results left out: they are zero for all values

    def launch(self, *, folds: bool) -> Launch:
        """Return what would be launched for the example."""
        taken = [self.arguments[i] for i in self.params]
        layouts = [
            Layout(a.type, a.shape, a.strides) if a.kind in ("lane", "array") else None
            for a in taken
        ]
        shape = _shape(self.arguments)
        requests = [
            OutputRequest(*r.source, None if all(r.own) else _sum_shape(r, shape))
            for r in self.results
        ]
        return plan(self.passes, requests, layouts, shape, DEFAULT_CACHE_BYTES, folds=folds)


def _shape(arguments: Sequence[Argument]) -> tuple[int, ...]:
    """Return the broadcast shape of the example."""
    return np.broadcast_shapes(*(a.shape for a in arguments if a.kind == "lane"))


def _sum_shape(result: Result, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a sum, whose axes are the last ones of the broadcast shape."""
    own = zip(shape, result.own, strict=True)
    return tuple(n if is_own else 1 for n, is_own in own)[len(shape) - result.rank :]


@dataclass(frozen=True)
class Call:
    """A call of a kernel with arguments that stand for all that are alike."""

    name: str  # of the kernel
    parsed: Parsed
    values: tuple[Any, ...]  # of the program's params
    wrt: tuple[int, ...]  # params that are differentiated with respect to
    options: KernelOptions

    @property
    def program(self) -> Program:
        """What is computed at every element."""
        return self.parsed.program


def functions_of(call: Call, what: Sequence[str]) -> tuple[Function, ...]:
    """Return the functions that are asked for; refuse what does not leave Python."""
    unknown = [name for name in what if name not in _MADE]
    if unknown or not what:
        known, asked = (", ".join(map(repr, names)) for names in (_MADE, what))
        raise ConfigurationError(f"what must name some of {known}, not {asked or 'none'}")
    _refuse(call)
    if not call.wrt and set(what) != {"value"}:
        raise KernelGradientError(
            f"{call.name}: there is no argument of floats to differentiate with respect to",
            hint="export what=('value',), or pass floats",
        )
    arguments, shape = _arguments(call)
    found = tuple(_MADE[name](call, arguments, shape) for name in dict.fromkeys(what))
    for function in found:
        count = max(len(function.params), len(function.results))
        if count > MAX_ARRAYS:
            raise KernelTypeError(
                f"{call.name}: the {function.what} has {count} arguments or results, and an export "
                f"takes {MAX_ARRAYS}",
                hint="leave it out of what=, or name fewer in wrt=",
            )
    return found


def _refuse(call: Call) -> None:
    """Raise where a call needs what only Python has, or what an export does not do."""
    _refuse_arrays(call)
    _refuse_types(call)
    name, options = call.name, call.options
    if options.placement == "forward":
        raise ConfigurationError(
            f"{name}: placement='forward' stores partials between two kernels, and an export has "
            "one; use with_options(placement='auto')"
        )
    if options.backend not in (None, "cpu"):
        raise ConfigurationError(
            f"{name}: the backend {options.backend!r} is not what is exported; use "
            "with_options(backend=None)"
        )


def _refuse_arrays(call: Call) -> None:
    name, program, parsed = call.name, call.program, call.parsed
    for param in program.params[len(program.params) - len(parsed.captures) :]:
        if param.kind != "uniform":
            raise KernelTypeError(
                f"{name} captures the array {param.name!r}, which stays in Python: "
                "an exported kernel has its arguments only",
                hint=f"make {param.name!r} an argument",
            )
    for leaf in parsed.leaves:
        if len(leaf.params) > 1 and any(program.params[i].kind == "array" for i in leaf.params):
            raise KernelTypeError(
                f"{name} reads a long core of {leaf.name!r} by index, at places of elements that "
                "are made in Python",
                hint=f"take {leaf.name!r} as mixad.Array, and the element's place as an argument",
            )


def _refuse_types(call: Call) -> None:
    name, program = call.name, call.program
    for type in (*(p.var.type for p in program.params), *(o.type for o in program.outputs)):
        if type.is_narrow:
            raise KernelTypeError(
                f"{name}: C has no type for {type.dtype_name}",
                hint="export it for arguments of float32",
            )
    for limit in call.parsed.limits:
        if limit.place >= len(program.params) or limit.type != I64:
            raise KernelTypeError(
                f"{name} computes with Python integers at line {limit.location.line}, and nothing "
                f"outside of Python says whether they fit {limit.type.dtype_name}",
                hint="pass NumPy's integers, such as np.int64(3), or floats",
            )


def _arguments(call: Call) -> tuple[tuple[Argument, ...], tuple[int, ...]]:
    """Return an argument for each param, and the broadcast shape."""
    params = call.program.params
    values = kernel_values(call.program, call.values)
    layouts = [
        None if p.kind == "uniform" else layout_of(v) for p, v in zip(params, values, strict=True)
    ]
    shape = broadcast_shape(call.program, [() if a is None else a.shape for a in layouts])
    first = len(params) - len(call.parsed.captures)
    found = []
    for k, (param, value, layout) in enumerate(zip(params, values, layouts, strict=True)):
        if layout is None:
            kind: Kind = "uniform" if k < first else "constant"
            found.append(Argument(param.name, kind, param.var.type, value=value))
            continue
        own = _own(layout.shape, shape) if param.kind == "lane" else ()
        kind = "lane" if param.kind == "lane" else "array"
        found.append(Argument(param.name, kind, layout.type, layout.shape, layout.strides, own))
    return tuple(found), shape


def _own(shape: tuple[int, ...], whole: tuple[int, ...]) -> tuple[bool, ...]:
    """Return along which axes of a broadcast shape an array moves, for whatever extents: not those
    that it lacks, or has with extent 1 where others have more."""
    missing = (False,) * (len(whole) - len(shape))
    axes = zip(shape, whole[len(missing) :], strict=True)
    return (*missing, *(n != 1 or all_ == 1 for n, all_ in axes))


def _value(call: Call, arguments: tuple[Argument, ...], shape: tuple[int, ...]) -> Function:
    results = [
        Result(name, out.type, (0, m), len(shape), (True,) * len(shape))
        for m, (name, out) in enumerate(_outputs(call, "value"))
    ]
    return _function("value", (call.program,), arguments, range(len(arguments)), results)


def _pushforward(call: Call, arguments: tuple[Argument, ...], shape: tuple[int, ...]) -> Function:
    dual = pushforward_along(call.program, (call.wrt,))
    moving = [replace(arguments[i], name=f"tangent {arguments[i].name}") for i in call.wrt]
    taken = (*arguments, *moving)
    params = [
        replace(p, kind="uniform") if a.kind in ("uniform", "constant") else p
        for p, a in zip(dual.program.params, taken, strict=True)
    ]
    program = replace(dual.program, params=tuple(params))
    results, zeros = [], []
    for m, (name, out) in enumerate(_outputs(call, "value")):
        results.append(
            Result(name, out.type, (0, dual.outputs[m].primal), len(shape), (True,) * len(shape))
        )
    for m, (name, out) in enumerate(_outputs(call, "tangent")):
        at = dual.outputs[m].partials.get(0)
        if at is not None:
            results.append(Result(name, out.type, (0, at), len(shape), (True,) * len(shape)))
        elif out.type.is_float:
            zeros.append(name)
    return _function("pushforward", (program,), taken, range(len(taken)), results, zeros)


def _pullback(call: Call, arguments: tuple[Argument, ...], shape: tuple[int, ...]) -> Function:
    floats = tuple(m for m, out in enumerate(call.program.outputs) if out.type.is_float)
    plan = plan_pullback(call.program, call.wrt, floats, call.options.mode, with_primals=True)
    whole = (True,) * len(shape)
    names = [name for name, out in _outputs(call, "cotangent") if out.type.is_float]
    types = [call.program.outputs[m].type for m in floats]
    cotangents = [
        Argument(name, "lane", type, shape, _contiguous_strides(shape, type), whole)
        for name, type in zip(names, types, strict=True)
    ]
    results = [
        Result(name, out.type, source, len(shape), whole)
        for (name, out), source in zip(_outputs(call, "value"), plan.primals, strict=True)
    ]
    zeros = []
    for i, source in zip(call.wrt, plan.gradients, strict=True):
        own, name = arguments[i], f"gradient {arguments[i].name}"
        if source is None:
            zeros.append(name)
        else:
            along = own.own or (False,) * len(shape)
            results.append(Result(name, own.type, source, len(own.shape), along))
    passes = plan.passes
    if len(zeros) == len(call.wrt):
        raise KernelGradientError(
            f"{call.name}: all gradients are zero whatever the values are",
            hint="export what=('value',)",
        )
    return _function("pullback", passes, (*arguments, *cotangents), plan.kept, results, zeros)


_MADE: Mapping[str, Callable[[Call, tuple[Argument, ...], tuple[int, ...]], Function]] = (
    MappingProxyType({"value": _value, "pushforward": _pushforward, "pullback": _pullback})
)


def _outputs(call: Call, role: str) -> Iterator[tuple[str, Any]]:
    """Yield the outputs of a program, and what is called so of them: several are numbered, complex
    ones have parts."""
    outputs, complex_, number = call.program.outputs, call.parsed.complex_outputs, 0
    is_single = len(outputs) - len(complex_) == 1
    for m, out in enumerate(outputs):
        name = role if is_single else f"{role} {number}"
        part = ".real" if m in complex_ else ".imag" if m - 1 in complex_ else ""
        number += m not in complex_
        yield f"{name}{part}", out


def _contiguous_strides(shape: tuple[int, ...], type: ScalarType) -> tuple[int, ...]:
    strides, step = list[int](), type.itemsize
    for extent in reversed(shape):
        strides.insert(0, step)
        step *= extent
    return tuple(strides)


def _function(
    what: str,
    passes: tuple[Program, ...],
    arguments: Sequence[Argument],
    params: Iterable[int],
    results: Sequence[Result],
    zeros: Sequence[str] = (),
) -> Function:
    """Return a function whose constants come last."""
    order = sorted(range(len(arguments)), key=lambda i: arguments[i].kind == "constant")
    places = {i: at for at, i in enumerate(order)}
    return Function(
        what,
        passes,
        tuple(arguments[i] for i in order),
        tuple(places[i] for i in params),
        tuple(results),
        tuple(zeros),
    )


def constant_bits(argument: Argument) -> int:
    """Return the word that kernels read a number from."""
    return packing_of(argument.type, argument.name)(argument.value)


_RESERVED = frozenset(
    "alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor "
    "bool break case catch char char16_t char32_t char8_t class co_await co_return co_yield compl "
    "concept const const_cast consteval constexpr constinit continue decltype default delete do "
    "double dynamic_cast else enum explicit export extern false float for friend goto if inline "
    "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private "
    "protected public reflexpr register reinterpret_cast requires restrict return short signed "
    "sizeof static static_assert static_cast struct switch synchronized template this thread_local "
    "throw true try typedef typeid typename union unsigned using virtual void volatile wchar_t "
    "while xor xor_eq plan".split()
)
"""Words that are no names in C or C++, or are taken by the functions themselves."""


def identifier(name: str) -> str:
    """Return a name of C for one of mixad.

    >>> identifier("w[0]"), identifier("class"), identifier("λ"), identifier("<lambda>")
    ('w_0', 'class_', 'u03bb', 'lambda')
    """
    ascii_ = "".join(c if c.isascii() else f"u{ord(c):04x}" for c in name)
    found = re.sub(r"\W+", "_", ascii_).strip("_") or "kernel"
    if found[0].isdigit():
        found = f"_{found}"
    return f"{found}_" if found in _RESERVED else found


def c_names(names: Iterable[str]) -> list[str]:
    """Return names of C that differ from each other: the later of two alike is numbered.

    >>> c_names(["w[0]", "w_0"])
    ['w_0', 'w_0_2']
    """
    found: list[str] = []
    for name in map(identifier, names):
        number, own = 1, name
        while own in found:
            number += 1
            own = f"{name}_{number}"
        found.append(own)
    return found
