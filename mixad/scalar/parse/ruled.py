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
from mixad.scalar.parse.frame import Capture, Frame, State, Walk
from mixad.scalar.parse.inlining import inline, last_of
from mixad.scalar.parse.operators import stop_gradient
from mixad.scalar.parse.snapshot import FunctionSource, Identity, scalar_argument
from mixad.scalar.parse.text import Located
from mixad.scalar.parse.values import Bound, Complex, Object, Scalar, Tuple, Value, a_kind_of
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.rules import Rule, add_rule, announce_rule, fresh_name
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
    programs: dict[str, tuple[Rule, list[int | None]] | None] = field(default_factory=dict)


_KNOWN: dict[Hashable, _Known] = {}
"""By all that a rule's program depends on: the names in equal programs are equal."""


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
    source = frame.walk.snapshot.sources[index]
    given = {n: _number(frame, node, source, n, values[n]) for n in source.parameters}
    result = compiled({n: stop_gradient(frame, s) for n, s in given.items()})
    if not isinstance(result, Scalar):
        raise frame.type_error(
            node,
            f"{source.name!r} has a rule, and returns {a_kind_of(result)}: it must be a number",
            "one function with a rule for each number",
        )
    if not result.atom.type.is_float:
        return result
    known = _op_of(frame.walk, index, [*(s.typed for s in given.values()), result.typed])
    outside = [_captured(frame.walk, capture) for capture in known.captures]
    atoms = [result.atom, *(s.atom for s in given.values()), *outside]
    return Scalar(frame.builder.op(known.name, *atoms), result.weak)


def _number(frame: Frame, node: Located, source: FunctionSource, name: str, v: Value) -> Scalar:
    if isinstance(v, Object | Tuple) or (not hasattr(v, "atom") and not hasattr(v, "argument")):
        raise frame.type_error(
            node,
            f"{source.name!r} has a rule: its parameters are numbers, {name!r} is {a_kind_of(v)}",
            "its parts, z.real and z.imag, as parameters of their own"
            if isinstance(v, Complex)
            else "read it from outside, or write a function for each",
        )
    place = node if isinstance(node, ast.expr) else ast.Name(name)
    return frame.as_scalar(v, place)


def _captured(walk: Walk, capture: Capture) -> Atom:
    """Return what a rule reads from outside as a parameter of a program."""
    value = walk.snapshot.value(capture.address)
    argument = scalar_argument(value)
    assert argument is not None
    found = walk.capture(capture.name, capture.address, argument)
    if isinstance(found, Complex):
        found = found.re if capture.part == "real" else found.im
    return found.atom


def _op_of(walk: Walk, index: int, types: Sequence[Typed]) -> _Known:
    """Return the op of a function for arguments, and a result, of some types."""
    root = Identity(walk.snapshot.sources[0].function.__code__)
    key = (root, walk.snapshot.key, index, *types, walk.rules, walk.implicit)
    if key in _KNOWN:
        return _KNOWN[key]
    family = walk.family
    if family is not None:
        return _member(family, walk, key, index, types)
    names: dict[Hashable, str] = {}
    captures: list[Capture] = []
    while True:
        family = _Family(list(captures), names)
        _member(family, walk, key, index, types)
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
    family: _Family, walk: Walk, key: Hashable, index: int, types: Sequence[Typed]
) -> _Known:
    """Return the op of a function whose rule is compiled with others, itself among them."""
    name = family.names.setdefault(key, fresh_name())
    if name not in family.programs:
        announce_rule(name, len(types) + len(family.captures))
        family.programs[name] = None
        family.programs[name] = _compiled(family, walk, index, types)
    return _Known(name, tuple(family.captures))


def _compiled(
    family: _Family, walk: Walk, index: int, types: Sequence[Typed]
) -> tuple[Rule, list[int | None]]:
    """Compile a rule; return it, and for each parameter which output is its partial."""
    snapshot = walk.snapshot
    source, rule = (snapshot.sources[i] for i in (index, snapshot.rules[index]))
    builder = Builder(rule.name)
    inner = Walk(builder, walk.rules, snapshot, walk.expressions, walk.statements, walk.run,
                 implicit=walk.implicit, family=family)  # fmt: skip
    atoms = [
        builder.param(n, t.type) for n, t in zip((*source.parameters, "out"), types, strict=True)
    ]
    for capture in family.captures:
        _captured(inner, capture)
    given = [Scalar(a, t.weak) for a, t in zip(atoms, types, strict=True)][: len(rule.parameters)]
    line = rule.info.node.lineno
    names = {n: Bound(v, line) for n, v in zip(rule.parameters, given, strict=True)}
    frame = Frame(inner, rule.info, snapshot.rules[index], state=State(names))
    partials = _partials(frame, source.parameters, inline(frame))
    places = _places(partials, types)
    kept = [p for p in partials if p is not None]
    results = [builder.convert(p.atom, types[-1].type) for p in kept]
    family.captures += _read_outside(frame, inner, family.captures)
    program = without_dead_code(builder.finish(results))
    return Rule(source.name, source.parameters, program), places


def _places(partials: Sequence[Scalar | None], types: Sequence[Typed]) -> list[int | None]:
    """Return for each parameter which output is its partial, as `add_rule` takes it."""
    numbers = itertools.count()
    found = [None if p is None else next(numbers) for p in partials]
    return [n if t.type.is_float else -1 for n, t in zip(found, types, strict=False)]


def _partials(frame: Frame, parameters: Sequence[str], value: Value) -> list[Scalar | None]:
    """Return the partials that a rule gives: a tuple of them, or one of one parameter."""
    items = value.items if isinstance(value, Tuple) else (value,)
    node = last_of(frame.info)
    if len(items) != len(parameters):
        raise frame.type_error(
            node,
            f"a rule gives a partial derivative for each parameter: {', '.join(parameters)}; "
            f"this one gives {len(items)}",
            f"({', '.join(f'd{name}' for name in parameters)}), None for what is not known",
        )
    return [
        None if isinstance(v, Object) and v.value is None else _partial(frame, node, v)
        for v in items
    ]


def _partial(frame: Frame, node: Any, value: Value) -> Scalar:
    found = frame.as_scalar(value, node)
    if found.atom.type.is_bool:
        raise frame.type_error(
            node, "a partial derivative is a number, this one is a bool", "where(condition, 1, 0)"
        )
    return found


def _read_outside(frame: Frame, walk: Walk, known: Sequence[Capture]) -> list[Capture]:
    """Return what a rule reads from outside that was not known; numbers only."""
    for capture in walk.captures:
        if capture.indexed or capture.address in walk.snapshot.arguments:
            raise frame.type_error(
                last_of(frame.info),
                f"a rule reads numbers from outside, and {capture.name!r} is an array",
                "a parameter of the function and of its rule",
            )
    return [c for c in walk.captures if c not in known]
