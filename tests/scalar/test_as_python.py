"""A program printed as Python source computes, run as Python, what the interpreter computes."""

import numpy as np
import pytest

from mixad.scalar.as_python import as_python_source
from mixad.scalar.build import Builder
from mixad.scalar.generate import Recipe, random_program
from mixad.scalar.interpret import interpret
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import F32, F64, I32
from mixad.testing import random_arguments, same_bits

NUMBER_OF_PROGRAMS = 300


def run(source):
    namespace = {}
    exec(source, namespace)
    return namespace


@pytest.mark.slow
def test_printed_programs_compute_the_same_bits():
    for seed in range(NUMBER_OF_PROGRAMS):
        program = random_program(seed, Recipe(arrays=seed % 3 == 0))
        function = run(as_python_source(program))["program"]
        columns = random_arguments(program, seed, count=2)
        for k in range(2):
            pairs = zip(program.params, columns, strict=True)
            args = [c[k] if p.kind == "lane" else c for p, c in pairs]
            results = zip(function(*args), interpret(program, args), strict=True)
            assert all(same_bits(np.asarray(x), np.asarray(y)) for x, y in results)


def test_source_with_arguments_prints_the_result(capsys):
    b = Builder("f")
    x, n, a = b.param("x", F64), b.param("n", I32), b.array_param("a", ArrayType(F32, 1))
    program = b.finish([b.op("div", x, b.const(0.0, F64)), b.load(a, n)])
    source = as_python_source(program, [-np.inf, 1, np.array([0.5, 2.5], "f4")])
    run(source)
    assert capsys.readouterr().out == "(np.float64(-inf), np.float32(2.5))\n"


def test_accumulation_is_printed():
    b = Builder("f")
    i, a = b.param("i", I32), b.accumulator("a", ArrayType(F32, 1))
    b.update(a, i, value=b.const(2.0, F32))
    array = np.ones(3, "f4")
    run(as_python_source(b.finish([i])))["program"](1, array)
    np.testing.assert_array_equal(array, [1, 3, 1])


def test_source_never_holds_the_users_names():
    b = Builder("__import__('os')")
    x = b.param("x; raise SystemExit", F64)
    source = as_python_source(b.finish([b.op("neg", x)]))
    assert "SystemExit" not in source
    assert "__import__" not in source
