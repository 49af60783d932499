"""From a function's source and the types of its arguments to a program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from mixad.scalar.build import Builder
from mixad.scalar.ir import Atom, Program
from mixad.scalar.parse.argument import Described
from mixad.scalar.parse.branch import run_block
from mixad.scalar.parse.compound import (
    Leaf,
    Returned,
    argument_value,
    complex_places,
    leaves_of,
    take_apart_result,
)
from mixad.scalar.parse.expressions import EXPRESSIONS
from mixad.scalar.parse.frame import Capture, Frame, ParseContext, State
from mixad.scalar.parse.inlining import inline, last_of
from mixad.scalar.parse.integers import IndexStep, Limit, fits, index_steps, overflow
from mixad.scalar.parse.loop import run_while
from mixad.scalar.parse.ranges import run_for
from mixad.scalar.parse.scalar_rule_calls import with_rule
from mixad.scalar.parse.snapshot import Address, FunctionSource, Snapshot
from mixad.scalar.parse.statements import SIMPLE_STATEMENTS
from mixad.scalar.parse.values.value import BoundName, Number, Scalar, Value
from mixad.scalar.promotion_rules import NUMPY_RULES, Rules
from mixad.scalar.simplify import read_params, without_dead_code

__all__ = ["Parsed", "check_limits", "parse"]

_STATEMENTS: Mapping[type, Callable[[Frame, Any], None]] = MappingProxyType(
    {**SIMPLE_STATEMENTS, ast.While: run_while, ast.For: run_for}
)


@dataclass(frozen=True, eq=False)
class Parsed:
    """A function as a program.

    Its params are the numbers of the function's parameters, in order, then one for each capture; a
    complex number has two.  Python integers have places: first the params, then ``elements`` of
    arrays of them, by param and index, then the ``steps`` in which the program computes others.
    """

    program: Program
    captures: tuple[Capture, ...]  # what it takes from outside: `Snapshot.values`
    single: bool  # False if the function returns a tuple
    limits: tuple[Limit, ...] = ()  # which Python integers must fit which types: `check_limits`
    elements: tuple[tuple[int, int], ...] = ()
    steps: tuple[IndexStep, ...] = ()
    scalars: tuple[int, ...] = ()  # of Python numbers only, outputs that are NumPy's scalars
    leaves: tuple[Leaf, ...] = ()  # arrays and numbers that the parameters are made of
    returned: Returned | None = None  # None for a number and for a flat tuple of them
    complex_values: tuple[int, ...] = ()  # which numbers of the parameters are complex
    complex_outputs: tuple[int, ...] = ()  # which outputs are followed by their imaginary part
    needed: Mapping[Address, float] = field(default_factory=dict)  # integers compiled in, up to

    @cached_property
    def made_arrays(self) -> frozenset[int]:
        """Which params of the program are arrays made for it, always of NumPy."""
        first = len(self.program.params) - len(self.captures)
        made = (i for i, c in enumerate(self.captures) if c.positions or c.elements)
        return frozenset(first + i for i in made)


def parse(
    source: FunctionSource,
    arguments: Sequence[Described],
    snapshot: Snapshot,
    rules: Rules = NUMPY_RULES,
    *,
    implicit: bool = False,
    cores: Sequence[tuple[int, ...]] | None = None,
) -> Parsed:
    """Compile a function for given argument types, one for each of its parameters.

    ``rules`` are those of the base library.  ``implicit`` has convergence loops differentiated by
    the implicit function theorem; ``cores`` are the lengths of the last axes of each result, where
    the function has a signature.  Results are equal for equal arguments, ``snapshot.key``, rules,
    and values of what is ``needed``.
    """
    builder = Builder(source.name)
    context = ParseContext(
        builder, rules, snapshot, EXPRESSIONS, _STATEMENTS, run_block, implicit=implicit
    )
    frame = Frame(context, source.info, 0)
    source.info.refuse_variadic()
    pairs = zip(source.parameters, arguments, strict=True)
    result = _run(
        frame, {name: argument_value(builder, name, argument) for name, argument in pairs}
    )
    form, results = take_apart_result(frame, result, last_of(frame.info), cores)
    numbers = [part for number in results for part in _parts(number)]
    program = without_dead_code(builder.finish([_output(frame, number) for number in numbers]))
    program, captures = _without_unread_items(context, program)
    limits, elements, steps = _limits(context, program)
    return Parsed(
        program,
        captures,
        single=result.elements() is None,
        limits=limits,
        elements=elements,
        steps=steps,
        scalars=_scalars(rules, arguments, numbers),
        leaves=leaves_of(source.parameters, arguments),
        returned=form,
        complex_values=complex_places(arguments),
        complex_outputs=_complex_outputs(results),
        needed=context.needed,
    )


def _run(frame: Frame, values: Mapping[str, Value]) -> Value:
    """Return the result of a frame's function, whose derivatives may be those of a rule."""

    def compile_body(values: Mapping[str, Value]) -> Value:
        line = frame.info.node.lineno
        frame.state = State({name: BoundName(value, line) for name, value in values.items()})
        return inline(frame)

    if 0 in frame.context.snapshot.rules:
        return with_rule(frame, last_of(frame.info), 0, values, compile_body)
    return compile_body(values)


def _without_unread_items(
    context: ParseContext, program: Program
) -> tuple[Program, tuple[Capture, ...]]:
    """Return a program, and its captures, without numbers in tuples that it does not read."""
    read = {program.params[k].var for k in read_params(program)}
    items = {v for c, v in context.captures.items() if len(c.address) > 2 or c.elements}
    unread = items - read
    params = tuple([p for p in program.params if p.var not in unread])
    captures = tuple([c for c, var in context.captures.items() if var not in unread])
    return replace(program, params=params), captures


def _parts(number: Number) -> tuple[Scalar, ...]:
    return (number.re,) if number.im is None else (number.re, number.im)


def _complex_outputs(results: Sequence[Number]) -> tuple[int, ...]:
    """Return the places of the real parts of complex results."""
    places = accumulate((len(_parts(r)) for r in results), initial=0)
    return tuple(at for at, r in zip(places, results, strict=False) if r.is_complex)


def _scalars(
    rules: Rules, arguments: Sequence[Described], outputs: Sequence[Scalar]
) -> tuple[int, ...]:
    if not rules.numpy_scalars or not all(a.weak for d in arguments for a in d.leaves):
        return ()
    return tuple(i for i, output in enumerate(outputs) if not output.weak)


def _limits(
    context: ParseContext, program: Program
) -> tuple[tuple[Limit, ...], tuple[tuple[int, int], ...], tuple[IndexStep, ...]]:
    """Return where Python integers must fit, those that are known at a call; lanes' wrap."""
    params = {p.var: i for i, p in enumerate(program.params)}
    at = {p.var: params[p.var] for p in program.params if p.kind == "uniform"}
    used = {var for var, _ in context.adopted}.union(
        *(f.operands for f in context.formulas.values())
    )
    loaded = [v for v, (array, _) in context.elements.items() if v in used and array in params]
    elements = [(params[context.elements[v][0]], context.elements[v][1]) for v in loaded]
    at |= {v: len(params) + i for i, v in enumerate(loaded)}
    steps = index_steps(context.formulas, at, len(params) + len(elements))
    limits = (
        Limit(at[var], type_, location)
        for (var, type_), location in context.adopted.items()
        if var in at
    )
    return tuple(limits), tuple(elements), tuple(steps)


def check_limits(parsed: Parsed, values: Sequence[Any]) -> None:
    """Refuse a Python integer that does not fit the array beside it, as NumPy does, or int64."""
    numbers = [*values, *(int(values[place][k]) for place, k in parsed.elements)]
    for step in parsed.steps:
        numbers.append(step.value(numbers))
    for limit in parsed.limits:
        value = numbers[limit.place]
        if value is not None and not fits(value, limit.type):
            raise overflow(limit.location, value, limit.type, _name(parsed, limit.place))


def _name(parsed: Parsed, place: int) -> str:
    """Return what the user calls an integer."""
    params, elements = parsed.program.params, parsed.elements
    if place < len(params):
        return params[place].name
    if place < len(params) + len(elements):
        array, at = elements[place - len(params)]
        return f"{params[array].name}[{at}]"
    return parsed.steps[place - len(params) - len(elements)].text


def _output(frame: Frame, scalar: Scalar) -> Atom:
    """Return an output's value; a weak one takes the library's default type."""
    return frame.builder.convert(scalar.atom, frame.context.rules.default(scalar.typed))
