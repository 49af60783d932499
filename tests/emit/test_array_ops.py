"""Each op's array-API expression against its definition, for all pairs of special values."""

import functools
import itertools

import array_api_compat.numpy as xnp
import array_api_strict as strict
import numpy as np
import pytest
from array_runner import run_arrays

from mixad.scalar.build import Builder
from mixad.scalar.generate import special_values
from mixad.scalar.interpret import apply, is_exact
from mixad.scalar.ops import TABLE
from mixad.scalar.types import ALL_TYPES, BOOL
from mixad.scalar.verify import VerificationError, result_type
from mixad.testing import same_bits

LIBRARIES = {"numpy": (xnp, np.asarray), "strict": (strict, np.from_dlpack)}
MAX_UNARY_AND_BINARY, MAX_TERNARY = 40, 12
RELATIVE = 1e-5
"""Difference that inexact ops may have, generously: how accurate they are is tested elsewhere."""


def argument_types(op, type):
    return (BOOL, type, type) if op.name == "where" else (type,) * op.arity


def result_of(op, type, stated):
    try:
        return result_type(op.name, argument_types(op, type), stated)
    except VerificationError:
        return None


LONG_LOOPS = ("ierfcx", "polygamma")
"""Ops whose programs loop for so long that arrays take seconds."""


def cases():
    for op, type in itertools.product(TABLE, ALL_TYPES):
        for stated in ALL_TYPES if op.result == "stated" else (None,):
            result = result_of(op, type, stated)
            if result is not None:
                marks = [pytest.mark.slow] if op.name in LONG_LOOPS else []
                yield pytest.param(op, type, result, id=f"{op.name}-{type}-{result}", marks=marks)


def grid(op, type):
    """Return all combinations of special values, one column per argument."""
    most = MAX_TERNARY if op.arity == 3 else MAX_UNARY_AND_BINARY
    values = [special_values(t) for t in argument_types(op, type)]
    thinned = [v[:: -(-len(v) // most)] for v in values]
    rows = list(itertools.product(*thinned))
    columns = zip(*rows, strict=True)
    return [np.array(c, t.dtype) for c, t in zip(columns, argument_types(op, type), strict=True)]


@functools.cache
def defined(op, type, result):
    rows = zip(*grid(op, type), strict=True)
    return np.array([apply(op.name, row, result) for row in rows], result.dtype)


def program_of_op(op, type, result):
    b = Builder(op.name)
    atoms = [b.param("xyz"[k], t) for k, t in enumerate(argument_types(op, type))]
    return b.finish([b.op(op.name, *atoms, type=result if op.result == "stated" else None)])


@pytest.mark.rows("library", LIBRARIES)
@pytest.mark.rows(("op", "type", "result"), list(cases()))
def test_every_op_computes_what_its_definition_does(op, type, result, library):
    xp, to_numpy = LIBRARIES[library]
    columns = grid(op, type)
    arrays = [xp.asarray(c) for c in columns]
    (out,) = run_arrays(program_of_op(op, type, result), arrays, columns[0].shape, xp)
    got = to_numpy(out)
    expected = defined(op, type, result)
    agrees = same_bits(got, expected)
    if not is_exact(op.name):
        with np.errstate(all="ignore"):
            agrees |= np.isclose(got, expected, rtol=RELATIVE, atol=0)
    wrong = np.flatnonzero(~agrees)
    assert not wrong.size, [
        ([c[k] for c in columns], got[k], "expected", expected[k]) for k in wrong[:5]
    ]
