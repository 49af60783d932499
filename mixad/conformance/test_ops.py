"""Every op of the table, on every type it takes, at special values: what the interpreter says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from mixad.conformance.subject import Subject
from mixad.scalar.build import Builder
from mixad.scalar.generate import special_values
from mixad.scalar.ir import Atom, Program
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.types import ALL_TYPES, BOOL, STORED_TYPES, ScalarType
from mixad.scalar.verify import VerificationError, result_type
from mixad.testing import expected_outputs

NARROW = tuple(t for t in STORED_TYPES if t.is_narrow and not t.brain)
MAX_SPECIAL = 12
"""Special values that meet each other as arguments of one op."""
RANDOM = 40


def signatures() -> Iterator[tuple[str, ScalarType, ScalarType]]:
    """Yield op, type of its arguments (of the last, for ``where``), and type of its result."""
    for op in TABLE:
        for type in (*ALL_TYPES, *NARROW):
            types = (BOOL, type, type) if op.name == "where" else (type,) * op.arity
            for stated in (*ALL_TYPES, *NARROW) if op.result == "stated" else (None,):
                try:
                    out = result_type(op.name, types, stated)
                except VerificationError:
                    continue
                if not _is_left_out(op.name, type, out):
                    yield op.name, type, out


def _is_left_out(name: str, type: ScalarType, out: ScalarType) -> bool:
    """Whether results are not defined: bits of nans, and what the interpreter does not run."""
    if name == "nextafter":
        return type.is_narrow
    return name == "bitcast" and (type.is_float or out.is_narrow)


def program_of(type: ScalarType, ops: Sequence[tuple[str, ScalarType]]) -> Program:
    """Return the program of some ops on a type, each with the type of its result."""
    b = Builder("ops")
    args = [b.param("c", BOOL), *(b.param(x, type) for x in "xyz")]

    def output(name: str, out: ScalarType) -> Atom:
        chosen = args[:3] if name == "where" else args[1 : 1 + BY_NAME[name].arity]
        return b.op(name, *chosen, type=out)

    return b.finish([output(name, out) for name, out in ops])


def arguments_for(type: ScalarType, factor: int) -> tuple[Any, ...]:
    """Return pairs of special values and random ones, as four arrays."""
    source = random.Random(f"arguments of type {type}")
    special = list(special_values(type))
    few = source.sample(special, min(MAX_SPECIAL, len(special)))
    xs = [*special, *(a for a in few for _ in few)]
    ys = [*reversed(special), *(b for _ in few for b in few)]
    zs = [source.choice(special) for _ in xs]
    for column in (xs, ys, zs):
        column += [_ordinary(type, source) for _ in range(RANDOM * factor)]
    conditions = np.array([source.random() < 0.5 for _ in xs])
    if not type.is_float:
        return (conditions, *(np.array(column, type.dtype) for column in (xs, ys, zs)))
    with np.errstate(over="ignore"):  # a special value of float64 is infinite in 16 bits
        return (conditions, *(np.array(column).astype(type.dtype) for column in (xs, ys, zs)))


def _ordinary(type: ScalarType, source: random.Random) -> bool | int | float:
    if type.is_bool:
        return source.random() < 0.5
    if type.is_integer:
        return source.randint(-20 if type.kind == "int" else 0, 40)
    return source.choice((-1, 1)) * source.choice((1.0, 30.0)) * source.random()


@cache
def run_ops(subject: Subject, type: ScalarType) -> tuple[tuple[Any, ...], dict[Any, Any]]:
    """Run all ops on a type once; return the arguments, and the outputs by op and result type."""
    ops = [(n, out) for n, of, out in signatures() if of == type and out in subject.types]
    arguments = arguments_for(type, subject.examples)
    outputs = subject.run(program_of(type, ops), arguments)
    return arguments, dict(zip(ops, outputs, strict=True))


@pytest.mark.parametrize(("name", "type", "out"), list(signatures()), ids=str)
def test_op_is_what_the_interpreter_computes(
    subject: Subject, name: str, type: ScalarType, out: ScalarType
) -> None:
    """Exact ops to the bit, the others to a few units in the last place."""
    subject.need(BOOL, type, out)
    arguments, outputs = run_ops(subject, type)
    expected = expected_outputs(program_of(type, [(name, out)]), arguments)
    subject.check(expected, [outputs[name, out]])
