"""Functions of NumPy whose types or arguments are not those of an op."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from mixad.scalar.parse import operators
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.handlers import Arguments, Handler, real_numbers, strong
from mixad.scalar.parse.values.value import Scalar, Value
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import BOOL, F64

__all__ = ["NUMPY_FUNCTIONS", "classify"]


def _numpy_power(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.power: of integers an integer, as `**`; of floats `pow`, whatever the exponent is."""
    x, y = real_numbers(frame, node, arguments, (2,))
    if operators.join(frame, node, (x, y)).type.is_float:
        return operators.apply(frame, node, "pow", (x, y))
    return operators.power(frame, node, x, y)


def _float_power(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.float_power computes in double precision, whatever the arguments are."""
    scalars = real_numbers(frame, node, arguments, (2,))
    doubles = [frame.convert(s, Typed(F64, False)) for s in scalars]
    return operators.apply(frame, node, "pow", doubles)


def _numpy_fmod(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.fmod of integers is an integer, with the dividend's sign."""
    x, y = real_numbers(frame, node, arguments, (2,))
    if operators.join(frame, node, (x, y)).type.is_float:
        return operators.apply(frame, node, "fmod", (x, y))
    zero = frame.constant(0)
    remainder = operators.apply(frame, node, "mod", (x, y))
    signs = [operators.compare(frame, node, ast.Lt(), s, zero) for s in (x, y)]
    differ = operators.compare(frame, node, ast.NotEq(), *signs)
    remains = operators.compare(frame, node, ast.NotEq(), remainder, zero)
    moved = operators.apply(frame, node, "sub", (remainder, y))
    other = operators.apply(frame, node, "and", (differ, remains))
    return operators.apply(frame, node, "where", (other, moved, remainder))


def _clip(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.clip, whose bounds may be None, and have two pairs of names."""
    keywords = {_OTHER_BOUNDS.get(k, k): v for k, v in arguments.keywords.items()}
    given = dict(zip(("a", "a_min", "a_max"), arguments.positional, strict=False)) | keywords
    if len(given) != len(arguments.positional) + len(arguments.keywords) or "a" not in given:
        raise frame.type_error(
            node,
            f"`{ast.unparse(node.func)}` takes a number and its bounds",
            "np.clip(x, low, high)",
        )
    # NumPy calls a method of it, so that a Python number becomes an array.
    result = strong(frame, node, given["a"]).scalar(frame, node)
    for bound, op in (("a_min", "maximum"), ("a_max", "minimum")):
        value = given.get(bound)
        if value is not None and not value.is_object(None):
            result = operators.apply(frame, node, op, (result, value.scalar(frame, node)))
    return result


_OTHER_BOUNDS = {"min": "a_min", "max": "a_max"}


def _reciprocal(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    (x,) = real_numbers(frame, node, arguments, (1,))
    if not x.atom.type.is_float:
        raise frame.type_error(
            node, f"`reciprocal` of {x.typed} is 0 nearly everywhere in NumPy", "write 1 / x"
        )
    return operators.divide(frame, node, frame.constant(1), x)


def classify(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """isnan, isinf, isfinite, signbit: known of whole numbers."""
    (x,) = real_numbers(frame, node, arguments, (1,))
    if x.atom.type.is_float:
        return operators.apply(frame, node, name, (x,))
    if name == "signbit" and x.atom.type.is_integer:
        return operators.compare(frame, node, ast.Lt(), x, frame.constant(0))
    return Scalar(frame.builder.const(name == "isfinite", BOOL), x.weak)


NUMPY_FUNCTIONS: Mapping[Any, Handler] = MappingProxyType({
    np.power: _numpy_power, np.float_power: _float_power, np.fmod: _numpy_fmod,
    np.reciprocal: _reciprocal, np.clip: _clip, np.isnan: partial(classify, "isnan"),
    np.isinf: partial(classify, "isinf"), np.isfinite: partial(classify, "isfinite"),
    np.signbit: partial(classify, "signbit"),
})  # fmt: skip
