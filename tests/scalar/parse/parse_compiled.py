"""Compiling a Python function and running it by the interpreter, for the tests of the parser."""

import itertools
import linecache

import numpy as np

from mixad.scalar.interpret import interpret
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.promotion_rules import NUMPY_RULES
from mixad.scalar.types import F64, type_of_dtype
from mixad.scalar.verify import verify

_COUNT = itertools.count()


def described(value):
    """What the tests' stand-in for the array world says about arrays."""
    if isinstance(value, np.ndarray):
        return Argument(type_of_dtype(value.dtype), rank=value.ndim)
    return None


def parsed(function, *types, rules=NUMPY_RULES):
    """Parse for types: a ScalarType is a lane, an Argument is itself; F64 throughout if none."""
    source = read_function(function)
    types = types or (F64,) * len(source.parameters)
    arguments = [t if isinstance(t, Argument) else Argument(t) for t in types]
    snapshot = source.snapshot(described)
    result = parse(source, arguments, snapshot, rules)
    verify(result.program)
    return result, snapshot


def run(function, *values, types=(), rules=NUMPY_RULES, max_iterations=10_000):
    """Compile a function for the types of its arguments and run it."""
    result, snapshot = parsed(function, *types, rules=rules)
    params = result.program.params[: len(values)]
    numbers = [p.var.type.dtype.type(v) for p, v in zip(params, values, strict=True)]
    captured = snapshot.values(result)
    outputs = interpret(result.program, (*numbers, *captured), max_iterations=max_iterations)
    return outputs[0] if result.single else outputs


def from_source(text, name="f", **names):
    """Define functions from text, in a file that only `linecache` knows."""
    filename = f"<test {next(_COUNT)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    space = dict(names)
    exec(compile(text, filename, "exec"), space)
    return space[name]


def op_names(program):
    """The ops, If and While of a program, in order."""
    from mixad.scalar.ir import walk_statements

    return [getattr(s, "op", type(s).__name__) for s in walk_statements(program.body)]
