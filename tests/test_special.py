"""Special functions: on plain numbers, and inside kernels, against mpmath."""

import inspect
import math

import mpmath
import numpy as np
import pytest

from mixad import special
from mixad.errors import KernelTypeError
from mixad.scalar.interpret import interpret
from mixad.scalar.ops import BY_NAME
from mixad.scalar.parse import Argument, parse, read_function
from mixad.scalar.types import F64

OPS = [name for name in special.__all__ if hasattr(getattr(special, name), "__mixad_op__")]
DERIVED = {
    "softplus": lambda x: mpmath.log(1 + mpmath.exp(x)),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu": lambda x: x * mpmath.ncdf(x),
    "elu": lambda x: x if x > 0 else mpmath.expm1(x),
    "leaky_relu": lambda x: x if x > 0 else x / 100,
    "softsign": lambda x: x / (1 + abs(x)),
    "logit": lambda x: mpmath.log(x / (1 - x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sinc": lambda x: mpmath.sincpi(x),
    "xlogy": lambda x, y: x * mpmath.log(y) if x else 0,
    "xlog1py": lambda x, y: x * mpmath.log(1 + y) if x else 0,
}
POINTS = (-30.0, -2.5, -0.5, 0.0, 0.25, 0.75, 1.0, 3.0, 30.0)
DOMAINS = {
    "logit": (0.25, 0.75, 1e-9),
    "rsqrt": (0.25, 3.0),
    "xlogy": (0.0, 0.25),
    "xlog1py": (0.0, 3.0),
}


def in_kernel(function, *values):
    source = read_function(function)
    snapshot = source.snapshot()
    parsed = parse(source, [Argument(F64)] * len(values), snapshot)
    numbers = [np.float64(v) for v in values]
    return interpret(parsed.program, (*numbers, *snapshot.values(parsed)))[0]


def test_every_function_is_an_op_or_derived():
    assert set(OPS) | set(DERIVED) == set(special.__all__)
    assert set(OPS) <= set(BY_NAME)


@pytest.mark.parametrize("name", OPS)
def test_ops_have_help_and_a_signature(name):
    function = getattr(special, name)
    assert function.__name__ == name
    assert "Parameters\n----------\n" in function.__doc__
    assert len(inspect.signature(function).parameters) == BY_NAME[name].arity


@pytest.mark.parametrize("name", DERIVED)
def test_derived_functions_agree_with_mpmath_outside_and_inside_kernels(name):
    function = getattr(special, name)
    required = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    for x in DOMAINS.get(name, POINTS):
        values = (x, 0.75)[: len(required)]
        with mpmath.workdps(40):
            expected = float(DERIVED[name](*map(mpmath.mpf, values)))
        assert function(*values) == pytest.approx(expected, rel=1e-14, abs=2e-16)
        if len(required) == len(inspect.signature(function).parameters):
            assert in_kernel(function, *values) == function(*values)


def test_python_numbers_give_python_numbers():
    assert type(special.sigmoid(0.5)) is float
    assert type(special.tanh(1)) is float
    assert type(special.isnan(1.0)) is bool
    assert special.where(True, 1, 2.5) == 1.0


def test_numpy_scalars_keep_their_type():
    assert special.exp(np.float32(1)).dtype == np.float32
    assert special.pow(np.float32(2), 3) == np.float32(8)


def test_nothing_raises_for_numbers():
    assert special.log(0.0) == -math.inf
    assert math.isnan(special.sqrt(-1.0))


def test_arrays_and_text_are_refused():
    with pytest.raises(KernelTypeError, match="takes numbers, got ndarray"):
        special.tanh(np.ones(3))
    with pytest.raises(KernelTypeError, match="takes 1 arguments"):
        special.tanh(1.0, 2.0)
