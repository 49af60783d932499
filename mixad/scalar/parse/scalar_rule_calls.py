"""Functions with rules for their derivatives: the call of one is its value and an op of its own.

The rule is compiled for the types of the call into a program apart, which may call the function
again: derivatives of any order are there, and each is written out when it is asked for.  What rules
read from outside, their op takes as arguments; what that is, is known only when all rules that call
each other are compiled, so they are compiled again until nothing is new.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom
from mixad.scalar.ops import ScalarRule
from mixad.scalar.parse.frame import Capture, Frame, ParseContext, State
from mixad.scalar.parse.inlining import inline, last_of
from mixad.scalar.parse.operators import stop_gradient
from mixad.scalar.parse.snapshot import FunctionSource, Identity, scalar_argument
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values.value import BoundName, Scalar, Value, describe_kind
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.rules import add_rule, announce_rule, fresh_name
from mixad.scalar.simplify import without_dead_code

__all__ = ["with_rule"]


@dataclass(frozen=True)
class _Known:
    """An op, and what it takes after the parameters."""

    name: str
    captures: tuple[Capture, ...]


@dataclass(eq=False)
class _Family:
    """Rules that are compiled together.

    ``captures`` is what was found to be read from outside, ``names`` the ops, ``programs`` what
    has been compiled for them, None while it is.
    """

    captures: list[Capture]
    names: dict[Hashable, str] = field(default_factory=dict)
    programs: dict[str, tuple[ScalarRule, list[int | None]] | None] = field(default_factory=dict)


_KNOWN: dict[Hashable, _Known] = {}
"""Ops by all that a rule's program depends on: equal programs name equal ops."""


def with_rule(
    frame: Frame,
    node: Located,
    index: int,
    values: Mapping[str, Value],
    compiled: Callable[[Mapping[str, Value]], Value],
) -> Value:
    """Return the result of a call, whose derivatives are those of the function's rule.

    ``index`` is the function's place in the snapshot; ``compiled`` compiles its body for such
    values.  An argument or result that is no number, and a rule that does not fit, is a
    KernelTypeError.
    """
    source = frame.context.snapshot.sources[index]
    given = {n: _number(frame, node, source, n, values[n]) for n in source.parameters}
    result = compiled({n: stop_gradient(frame, s) for n, s in given.items()})
    if not isinstance(result, Scalar):
        raise frame.type_error(
            node,
            f"{source.name!r} has a rule, and returns {describe_kind(result)}: it must be a number",
            "one function with a rule for each number",
        )
    if not result.atom.type.is_float:
        return result
    known = _op_of(frame.context, index, [*(s.typed for s in given.values()), result.typed])
    outside = [_capture_atom(frame.context, capture) for capture in known.captures]
    atoms = [result.atom, *(s.atom for s in given.values()), *outside]
    return Scalar(frame.builder.op(known.name, *atoms), result.weak)


def _number(frame: Frame, node: Located, source: FunctionSource, name: str, v: Value) -> Scalar:
    if v.is_complex or v.is_python_number is None:
        raise frame.type_error(
            node,
            f"{source.name!r} has a rule: its parameters are numbers, {name!r} is "
            f"{describe_kind(v)}",
            "its parts, z.real and z.imag, as parameters of their own"
            if v.is_complex
            else "read it from outside, or write a function for each",
        )
    place = node if isinstance(node, ast.expr) else ast.Name(name)
    return v.scalar(frame, place)


def _capture_atom(context: ParseContext, capture: Capture) -> Atom:
    """Return what a rule reads from outside as a parameter of a program."""
    value = context.snapshot.value(capture.address)
    argument = scalar_argument(value)
    assert argument is not None
    found = context.capture(capture.name, capture.address, argument)
    part = found.im if capture.part == "imag" else found.re
    assert part is not None
    return part.atom


def _op_of(context: ParseContext, index: int, types: Sequence[Typed]) -> _Known:
    """Return the op of a function for arguments, and a result, of some types."""
    root = Identity(context.snapshot.sources[0].function.__code__)
    key = (root, context.snapshot.key, index, *types, context.rules, context.implicit)
    if key in _KNOWN:
        return _KNOWN[key]
    family = context.family
    if family is not None:
        return _member(family, context, key, index, types)
    names: dict[Hashable, str] = {}
    captures: list[Capture] = []
    while True:
        family = _Family(list(captures), names)
        _member(family, context, key, index, types)
        if family.captures == captures:
            break
        captures = family.captures
    for name, compiled in family.programs.items():
        assert compiled is not None
        rule, places = compiled
        add_rule(name, rule, [*places, *[-1] * len(captures)])
    _KNOWN.update((k, _Known(n, tuple(captures))) for k, n in names.items())
    return _KNOWN[key]


def _member(
    family: _Family, context: ParseContext, key: Hashable, index: int, types: Sequence[Typed]
) -> _Known:
    """Return the op of a function whose rule is compiled with others, itself among them."""
    name = family.names.setdefault(key, fresh_name())
    if name not in family.programs:
        announce_rule(name, len(types) + len(family.captures))
        family.programs[name] = None
        family.programs[name] = _compile_rule(family, context, index, types)
    return _Known(name, tuple(family.captures))


def _compile_rule(
    family: _Family, context: ParseContext, index: int, types: Sequence[Typed]
) -> tuple[ScalarRule, list[int | None]]:
    """Compile a rule; return it, and for each parameter which output is its partial."""
    snapshot = context.snapshot
    source, rule = (snapshot.sources[i] for i in (index, snapshot.rules[index]))
    builder = Builder(rule.name)
    inner = context.for_program(builder, family)
    atoms = [
        builder.param(n, t.type) for n, t in zip((*source.parameters, "out"), types, strict=True)
    ]
    for capture in family.captures:
        _capture_atom(inner, capture)
    given = [Scalar(a, t.weak) for a, t in zip(atoms, types, strict=True)][: len(rule.parameters)]
    line = rule.info.node.lineno
    names = {n: BoundName(v, line) for n, v in zip(rule.parameters, given, strict=True)}
    frame = Frame(inner, rule.info, snapshot.rules[index], state=State(names))
    partials = _partials(frame, source.parameters, inline(frame))
    places = _places(partials, types)
    kept = [p for p in partials if p is not None]
    results = [builder.convert(p.atom, types[-1].type) for p in kept]
    family.captures += _read_outside(frame, inner, family.captures)
    program = without_dead_code(builder.finish(results))
    return ScalarRule(source.name, source.parameters, program), places


def _places(partials: Sequence[Scalar | None], types: Sequence[Typed]) -> list[int | None]:
    """Return for each parameter which output is its partial, as `add_rule` takes it."""
    numbers = itertools.count()
    found = [None if p is None else next(numbers) for p in partials]
    return [n if t.type.is_float else -1 for n, t in zip(found, types, strict=False)]


def _partials(frame: Frame, parameters: Sequence[str], value: Value) -> list[Scalar | None]:
    """Return the partials that a rule gives: a tuple of them, or one of one parameter."""
    items = value.elements()
    items = (value,) if items is None else items
    node = last_of(frame.info)
    if len(items) != len(parameters):
        raise frame.type_error(
            node,
            f"a rule gives a partial derivative for each parameter: {', '.join(parameters)}; "
            f"this one gives {len(items)}",
            f"({', '.join(f'd{name}' for name in parameters)}), None for what is not known",
        )
    return [None if v.is_object(None) else _partial(frame, node, v) for v in items]


def _partial(frame: Frame, node: Any, value: Value) -> Scalar:
    found = value.scalar(frame, node)
    if found.atom.type.is_bool:
        raise frame.type_error(
            node, "a partial derivative is a number, this one is a bool", "where(condition, 1, 0)"
        )
    return found


def _read_outside(frame: Frame, context: ParseContext, known: Sequence[Capture]) -> list[Capture]:
    """Return what a rule reads from outside that was not known; numbers only."""
    for capture in context.captures:
        if capture.indexed or capture.address in context.snapshot.arguments:
            raise frame.type_error(
                last_of(frame.info),
                f"a rule reads numbers from outside, and {capture.name!r} is an array",
                "a parameter of the function and of its rule",
            )
    return [c for c in context.captures if c not in known]
