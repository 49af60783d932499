"""The functions of Python, `cmath`, NumPy and `mixad.special` that take or make complex numbers."""

from __future__ import annotations

import ast
import builtins
import cmath
import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad.scalar.parse import complex_arithmetic as arithmetic
from mixad.scalar.parse import complex_library as library
from mixad.scalar.parse import operators
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.handlers import Arguments, Handler, numbers, of_numpy
from mixad.scalar.parse.info import op_name
from mixad.scalar.parse.inlining import call_own_function
from mixad.scalar.parse.values.complex import Complex
from mixad.scalar.parse.values.sequence import Tuple
from mixad.scalar.parse.values.value import Number, Scalar, Value
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import F32, F64

__all__ = ["complex_function"]


def complex_function(function: Any, arguments: Arguments) -> Handler | None:
    """Return what compiles a call that takes or makes complex numbers, None for other calls."""
    try:
        if function in _ALWAYS:
            return _ALWAYS[function]
        if not any(v.is_complex for v in (*arguments.positional, *arguments.keywords.values())):
            return None
        name = op_name(function)
        return _OF_OPS.get(name) if name is not None else _OF_COMPLEX.get(function)
    except TypeError:  # not hashable
        return None


def _one(frame: Frame, node: ast.Call, arguments: Arguments) -> Complex:
    """Return the argument of a call as a complex number."""
    (z,) = numbers(frame, node, arguments, (1,))
    return arithmetic.as_complex(frame, node, z)


# -- functions that are written in Python ----------------------------------------------------------


def _call_own(
    function: Callable[..., Any], frame: Frame, node: ast.Call, arguments: Arguments
) -> Number:
    return call_own_function(frame, node, function, (_one(frame, node, arguments),))


def _logarithm(base: float, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """The logarithm to a base that is known."""
    natural = _call_own(library.logarithm, frame, node, arguments)
    scale = frame.constant(1 / math.log(base))
    return arithmetic.arithmetic(frame, node, ast.Mult(), natural, scale)


def _logarithm_to_base(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """`cmath.log(z)`, or to a base."""
    z, *base = [
        call_own_function(frame, node, library.logarithm, (arithmetic.as_complex(frame, node, z),))
        for z in numbers(frame, node, arguments, (1, 2))
    ]
    return arithmetic.arithmetic(frame, node, ast.Div(), z, *base) if base else z


# -- parts -----------------------------------------------------------------------------------------


def _part(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    (z,) = numbers(frame, node, arguments, (1,))
    found = z.attribute(frame, name)
    assert found is not None
    return found


def _conjugate(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    (z,) = numbers(frame, node, arguments, (1,))
    return arithmetic.conjugate(frame, node, z)


def _size(frame: Frame, node: ast.Call, arguments: Arguments) -> Scalar:
    z = _one(frame, node, arguments)
    return operators.apply(frame, node, "hypot", (z.re, z.im))


def _angle(frame: Frame, node: ast.Call, arguments: Arguments) -> Scalar:
    z = _one(frame, node, arguments)
    return operators.apply(frame, node, "atan2", (z.im, z.re))


def _polar(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    return Tuple((_size(frame, node, arguments), _angle(frame, node, arguments)))


def _rectangular(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    r, angle = (v.scalar(frame, node) for v in numbers(frame, node, arguments, (2,)))
    parts = [
        operators.apply(frame, node, "mul", (r, operators.apply(frame, node, name, (angle,))))
        for name in ("cos", "sin")
    ]
    return arithmetic.complex_of_parts(frame, node, *parts)


def _make_complex(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """`complex(x)` and `complex(x, y)`, whose parts keep their type as in functions of `math`."""
    if not set(arguments.keywords) <= {"real", "imag"}:
        raise frame.type_error(node, "`complex` has the options `real` and `imag`", "complex(x, y)")
    given = dict(zip(("real", "imag"), arguments.positional, strict=False)) | arguments.keywords
    if len(given) != len(arguments.positional) + len(arguments.keywords):
        raise frame.type_error(node, "`complex` takes a number, or two real ones", "complex(x, y)")
    zero = frame.constant(0.0)
    re = given.get("real", zero).number(frame, node)
    im = given.get("imag", zero).number(frame, node)
    if "imag" not in given:
        return arithmetic.as_complex(frame, node, re)
    return arithmetic.complex_of_parts(frame, node, re.scalar(frame, node), im.scalar(frame, node))


def _convert(part: Typed, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """`np.complex64(z)`, which is strong."""
    z = _one(frame, node, arguments)
    return Complex(frame.convert(z.re, part), frame.convert(z.im, part))


# -- operators and tests ---------------------------------------------------------------------------


def _power(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    x, y = numbers(frame, node, arguments, (2,))
    return arithmetic.arithmetic(frame, node, ast.Pow(), x, y)


def _negative(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    z = _one(frame, node, arguments)
    zeros = frame.complex_constant(-0.0 - 0.0j)
    return arithmetic.arithmetic(frame, node, ast.Sub(), zeros, z)


def _reciprocal(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    z = _one(frame, node, arguments)
    return arithmetic.arithmetic(frame, node, ast.Div(), frame.constant(1.0), z)


def _classify(name: str, both: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """isnan, isinf, isfinite: of one part or both."""
    z = _one(frame, node, arguments)
    tests = [operators.apply(frame, node, name, (part,)) for part in (z.re, z.im)]
    return operators.apply(frame, node, both, tests)


def _of_reals(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """Refuse a function of `math`, as Python does."""
    name = ast.unparse(node.func)
    what = next(v.describe() for v in arguments.positional if v.is_complex)
    last = name.rpartition(".")[2]
    hint = f"cmath.{last}(z)" if last in _NAMES else "abs(z), z.real or z.imag"
    raise frame.type_error(node, f"`{name}` takes real numbers, not {what}", hint)


# -- tables ----------------------------------------------------------------------------------------

_NAMES: Mapping[str, Handler] = MappingProxyType({
    "exp": partial(_call_own, library.exponential),
    "log": partial(_call_own, library.logarithm),
    "log10": partial(_logarithm, 10.0), "log2": partial(_logarithm, 2.0),
    "sqrt": partial(_call_own, library.square_root),
    "sin": partial(_call_own, library.sine), "cos": partial(_call_own, library.cosine),
    "tan": partial(_call_own, library.tangent),
    "sinh": partial(_call_own, library.hyperbolic_sine),
    "cosh": partial(_call_own, library.hyperbolic_cosine),
    "tanh": partial(_call_own, library.hyperbolic_tangent),
    "isnan": partial(_classify, "isnan", "or"), "isinf": partial(_classify, "isinf", "or"),
    "isfinite": partial(_classify, "isfinite", "and"),
})  # fmt: skip
"""Functions that `cmath`, NumPy and the table of ops have under one name."""

_MORE_NAMES: Mapping[str, Handler] = MappingProxyType({
    **_NAMES,
    "exp2": partial(_call_own, library.exponential_of_two),
    "expm1": partial(_call_own, library.exponential_less_one),
    "log1p": partial(_call_own, library.logarithm_of_one_more),
})  # fmt: skip

_OF_OPS: Mapping[str, Handler] = MappingProxyType({
    **_MORE_NAMES, "abs": _size, "pow": _power, "neg": _negative,
})  # fmt: skip
"""What stands for functions of `mixad.special`, by their names."""


def _of_complex() -> dict[Any, Handler]:
    """Return what stands for functions where an argument is complex."""
    numpys: dict[Any, Handler] = {getattr(np, name): h for name, h in _MORE_NAMES.items()}
    numpys |= {
        np.power: _power, np.negative: _negative, np.reciprocal: _reciprocal, np.abs: _size,
    }  # fmt: skip
    known: dict[Any, Handler] = {f: partial(of_numpy, handler) for f, handler in numpys.items()}
    known |= {
        f: _of_reals for name, f in vars(math).items() if callable(f) and not name.startswith("_")
    }
    return known | {builtins.abs: _size}


def _always() -> dict[Any, Handler]:
    """Return what stands for functions of complex numbers, where arguments are real, too."""
    known: dict[Any, Handler] = {getattr(cmath, n): h for n, h in _NAMES.items() if n != "log2"}
    known |= {
        cmath.log: _logarithm_to_base, cmath.phase: _angle, cmath.polar: _polar,
        cmath.rect: _rectangular, builtins.complex: _make_complex,
        np.complex64: partial(_convert, Typed(F32, False)),
        np.complex128: partial(_convert, Typed(F64, False)),
        np.real: partial(_part, "real"), np.imag: partial(_part, "imag"),
        np.conj: partial(of_numpy, _conjugate), np.angle: partial(of_numpy, _angle),
    }  # fmt: skip
    return known


_OF_COMPLEX: Mapping[Any, Handler] = MappingProxyType(_of_complex())
_ALWAYS: Mapping[Any, Handler] = MappingProxyType(_always())
