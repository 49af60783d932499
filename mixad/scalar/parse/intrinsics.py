"""The functions of Python, `math` and NumPy that a kernel can call, and what they become.

Most are one op of the table.  Some are small programs, written as plain Python in
`mixad.scalar.parse.library` and compiled like any function of the user.
"""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mixad.scalar.core_dimensions import MAX_ELEMENTS
from mixad.scalar.names import names_in
from mixad.scalar.ops import BY_NAME, TABLE
from mixad.scalar.parse import operators
from mixad.scalar.parse.complex_arithmetic import arithmetic, compare, where
from mixad.scalar.parse.frame import Frame
from mixad.scalar.parse.handlers import (
    Arguments,
    Handler,
    as_numpy_takes,
    check_count,
    numbers,
    of_numpy,
    real_numbers,
    strong,
)
from mixad.scalar.parse.info import op_name
from mixad.scalar.parse.numpy_functions import NUMPY_FUNCTIONS, classify
from mixad.scalar.parse.values.array import Array
from mixad.scalar.parse.values.object import Object
from mixad.scalar.parse.values.sequence import Items, List, OwnItems, Tuple
from mixad.scalar.parse.values.value import Scalar, Value
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import BF16, BOOL, F64, I64, STORED_TYPES, U64

__all__ = ["intrinsic"]


def intrinsic(function: Any) -> Handler | None:
    """Return what compiles a call of a function, or None if it is not known."""
    name = op_name(function)
    if name is not None:
        return _MARKED.get(name) or partial(_op, name)
    try:
        return _KNOWN.get(function)
    except TypeError:  # not hashable
        return None


def _op(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    scalars = real_numbers(frame, node, arguments, (BY_NAME[name].arity,))
    return operators.apply(frame, node, name, scalars)


def _binary(op: ast.operator, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    x, y = numbers(frame, node, arguments, (2,))
    return arithmetic(frame, node, op, x, y)


def _compare(op: ast.cmpop, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    x, y = numbers(frame, node, arguments, (2,))
    return compare(frame, node, op, x, y)


def _logical(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    given = numbers(frame, node, arguments, (BY_NAME[name].arity,))
    truths = [number.truth(frame) for number in given]
    return Scalar(frame.builder.op(name, *truths), all(number.typed.weak for number in given))


def _numpy_where(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.where, whose result has the type of the choices: that of the condition says nothing."""
    condition, choices = arguments.positional[:1], arguments.positional[1:]
    taken = as_numpy_takes(frame, node, Arguments(choices, arguments.keywords))
    return _where(frame, node, Arguments([*condition, *taken.positional], taken.keywords))


def _where(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    condition, x, y = numbers(frame, node, arguments, (3,))
    return where(frame, node, condition, x, y)


def _round(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """floor, ceil, trunc, round: whole numbers stay as they are, floats stay floats."""
    if name == "rint" and len(arguments.positional) + len(arguments.keywords) > 1:
        spelled = ast.unparse(node.func)
        raise frame.error(
            node,
            f"`{spelled}` to a number of digits is not supported in a kernel",
            f"{spelled}(100 * x) / 100",
        )
    (x,) = real_numbers(frame, node, arguments, (1,))
    return (
        operators.apply(frame, node, name, (x,))
        if x.atom.type.is_float
        else operators.plus(frame, node, x)
    )


def _fabs(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    (x,) = real_numbers(frame, node, arguments, (1,))
    return operators.apply(frame, node, "abs", operators.floating(frame, node, "fabs", (x,)))


def _fold(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """Min and max of two or more numbers, or of a tuple."""
    items = _items(arguments)
    spelled = ast.unparse(node.func)
    if not items or arguments.keywords:
        raise frame.error(
            node,
            f"`{spelled}` takes numbers, or a tuple of them, and nothing else",
            "compare with `if` in a loop over the numbers",
        )
    nodes = node.args if len(node.args) == len(items) else [node] * len(items)
    result, *others = (v.scalar(frame, n) for v, n in zip(items, nodes, strict=True))
    for other in others:
        result = operators.apply(frame, node, name, (result, other))
    return result


def _items(arguments: Arguments) -> Sequence[Value]:
    given = arguments.positional
    items = given[0].elements() if len(given) == 1 else None
    return given if items is None else items


def _elements(
    frame: Frame, node: ast.Call, given: Sequence[Value], takes: str = "takes a tuple here"
) -> tuple[Value, ...]:
    """Return the items of the first of some values."""
    items = given[0].elements() if given else None
    if items is not None:
        return items
    what = given[0].describe() if given else "nothing"
    is_length = isinstance(node.func, ast.Name) and node.func.id == "len"
    hint = (*given, Tuple(()))[0].instead_of_sequence(is_length=is_length)
    raise frame.type_error(node, f"`{ast.unparse(node.func)}` {takes}, got {what}", hint)


def _len(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    return frame.constant(len(_elements(frame, node, arguments.positional)))


def _sum(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    given = arguments.positional
    start = arguments.keywords.get("start", given[1] if len(given) > 1 else frame.constant(0))
    total = start.number(frame, node)
    for item in _elements(frame, node, arguments.positional):
        total = arithmetic(frame, node, ast.Add(), total, item.number(frame, node))
    return total


def _quantify(name: str, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """`any` and `all` of a tuple."""
    found = Scalar(frame.builder.const(name == "and", BOOL), True)
    for item in _elements(frame, node, arguments.positional):
        truth = item.number(frame, node).truth(frame)
        found = Scalar(frame.builder.op(name, found.atom, truth), True)
    return found


def _tuples(
    function: Callable[..., Any], frame: Frame, node: ast.Call, arguments: Arguments
) -> Value:
    """zip, enumerate, reversed and tuple, of constant tuples."""
    given, options = list(arguments.positional), dict(arguments.keywords)
    if function is enumerate and len(given) == 2:
        options["start"] = given.pop()
    fixed = {name: _literal_option(frame, node, function, name, v) for name, v in options.items()}
    rows_of = [_elements(frame, node, [value], "takes constant tuples") for value in given]
    try:
        rows = tuple(function(*rows_of, **fixed))
    except (TypeError, ValueError) as error:  # what Python says of lengths and of numbers of them
        raise frame.type_error(node, f"{error}", "tuples of one length") from None
    return Tuple(
        tuple(
            Tuple(tuple(frame.constant(v) if isinstance(v, int) else v for v in row))
            if isinstance(row, tuple)
            else row
            for row in rows
        )
    )


def _list(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """The list of a tuple's items."""
    return List(_elements(frame, node, arguments.positional) if arguments.positional else ())


def _zeros(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.zeros of a constant shape: a small array of float64."""
    number = strong(frame, node, frame.constant(0.0))
    given = _items(Arguments(arguments.positional[:1], {}))
    shape = [_length(frame, node, value) for value in given]
    if not shape or arguments.keywords or len(arguments.positional) > 1:
        raise frame.error(
            node,
            f"`{ast.unparse(node.func)}` takes a constant shape here, and nothing else",
            f"{ast.unparse(node.func)}(3), or [0.0] * 3, which takes the type of what is added",
        )
    return _of_shape(frame, node, number, shape)


def _length(frame: Frame, node: ast.Call, value: Value) -> int:
    length = value.known_integer(frame)
    if type(length) is not int or length < 0:
        raise frame.error(
            node, "the shape of an array is known when it is compiled", "a literal, or len(...)"
        )
    return length


def _of_shape(frame: Frame, node: ast.Call, number: Value, shape: Sequence[int]) -> Value:
    if math.prod(shape) > MAX_ELEMENTS:
        raise frame.error(
            node,
            f"an array of {math.prod(shape)} elements: in a kernel each is a variable, and "
            f"{MAX_ELEMENTS} are as many as it takes",
            "a smaller one, or an array from outside",
        )
    item = number if len(shape) == 1 else _of_shape(frame, node, number, shape[1:])
    return Array((item,) * shape[0], is_shared=False)


def _array(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """np.array of numbers: a small array of their common type."""
    if arguments.keywords or len(arguments.positional) != 1:
        raise frame.error(
            node, f"`{ast.unparse(node.func)}` takes one sequence here", "np.array([x, y])"
        )
    (value,) = arguments.positional
    items = value.elements()
    if not items or any(item.elements() is not None for item in items):
        raise frame.type_error(
            node,
            f"`{ast.unparse(node.func)}` takes a sequence of numbers here, got {value.describe()}",
            "np.array([x, y])",
        )
    scalars = [item.scalar(frame, node) for item in items]
    typed = operators.join(frame, node, scalars)
    converted = (Scalar(a, typed.weak) for a in operators.in_type(frame, node, scalars, typed))
    return Array(tuple(strong(frame, node, s) for s in converted), is_shared=False)


_OPTIONS = {enumerate: "start", zip: "strict"}


def _literal_option(
    frame: Frame, node: ast.Call, function: Any, name: str, value: Value
) -> int | bool:
    """Return the literal that an option of zip or enumerate is."""
    number = value.known_integer(frame)
    if _OPTIONS.get(function) == name and number is not None:
        return number
    spelled = ast.unparse(node.func)
    if _OPTIONS.get(function) == name:
        raise frame.error(
            node, f"`{name}` of `{spelled}` must be a literal in a kernel", "a variable of your own"
        )
    raise frame.error(node, f"`{spelled}` has no option `{name}`", f"{spelled}(...)")


def _range(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """A constant range outside a `for` is a tuple."""
    scalars = real_numbers(frame, node, arguments, (1, 2, 3))
    bounds = [n for n in (s.known_integer(frame) for s in scalars) if type(n) is int]
    if len(bounds) < len(scalars):
        raise frame.error(
            node, "a range with bounds known only at run time works in `for` only", "a `for` loop"
        )
    return Tuple(tuple(map(frame.constant, range(*bounds))))


def _divmod(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    scalars = real_numbers(frame, node, arguments, (2,))
    return Tuple(tuple(operators.apply(frame, node, n, scalars) for n in ("floordiv", "mod")))


def _convert(to: Typed, frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """Conversions: Python's give weak numbers, NumPy's strong ones."""
    if to.type.is_float and len(arguments.positional) == 1:
        given = arguments.positional[0]
        if isinstance(given, Object) and isinstance(given.value, str) and given.value in _SPELLED:
            return Scalar(frame.builder.const(float(given.value), to.type), to.weak)
    if to.type.is_bool:
        (number,) = numbers(frame, node, arguments, (1,))
        return Scalar(number.truth(frame), number.typed.weak and to.weak)
    (x,) = real_numbers(frame, node, arguments, (1,))
    (atom,) = operators.in_type(frame, node, (x,), to)
    if to == Typed(I64, True) and x.typed == Typed(F64, True):
        return operators.python_integer(frame, node, "convert", (x,), atom)
    return Scalar(atom, to.weak)


def _stop_gradient(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    check_count(frame, node, arguments, (1,))
    return _stop_value(frame, node.args[0], arguments.positional[0])


def _stop_value(frame: Frame, node: ast.expr, value: Value) -> Value:
    """Return a number as a constant of derivatives; of several a copy, whose lists are its own."""
    if value.is_object(None):
        return value
    whole = value if isinstance(value, Items) else value.number(frame, node)
    if isinstance(whole, Scalar):
        return operators.stop_gradient(frame, whole)
    copy = whole.of_parts([_stop_value(frame, node, part) for part in whole.parts()])
    return replace(copy, is_shared=False) if isinstance(copy, OwnItems) else copy


def _log(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """`math.log(x)`, or to a base."""
    x, *base = real_numbers(frame, node, arguments, (1, 2))
    value = operators.apply(frame, node, "log", (x,))
    if not base:
        return value
    return operators.divide(frame, node, value, operators.apply(frame, node, "log", base))


def _ldexp(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    """x · 2ⁿ, of the type of x: that of n, a whole number, says nothing."""
    x, n = real_numbers(frame, node, arguments, (2,))
    if n.atom.type.is_float or n.atom.type == U64:  # as NumPy
        raise frame.type_error(
            node,
            f"the second argument of `{ast.unparse(node.func)}` is a whole number, got {n.typed}",
            "convert with int(...), or x * 2.0**n",
        )
    (x,) = operators.floating(frame, node, "ldexp", (x,))
    exponent = frame.builder.convert(n.atom, x.atom.type)
    return operators.apply(frame, node, "ldexp", (x, Scalar(exponent, x.weak)))


def _hypot(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    first, *rest = real_numbers(frame, node, arguments, tuple(range(1, 33)))
    if not rest:
        floats = operators.floating(frame, node, "hypot", (first,))
        return operators.apply(frame, node, "abs", floats)
    result = first
    for x in rest:
        result = operators.apply(frame, node, "hypot", (result, x))
    return result


def _as_floats(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    scalars = real_numbers(frame, node, arguments, (1, 2))
    return Tuple(operators.floating(frame, node, "as_floats", scalars))


def _largest(frame: Frame, node: ast.Call, arguments: Arguments) -> Value:
    (x,) = real_numbers(frame, node, arguments, (1,))
    most = np.finfo(x.atom.type.arithmetic.dtype).max
    return Scalar(frame.builder.const(float(most), x.atom.type), x.weak)


_MARKED: dict[str, Handler] = {
    "stop_gradient": _stop_gradient, "as_floats": _as_floats, "largest": _largest,
    "ldexp": _ldexp, "where": _where,
}  # fmt: skip
"""Functions of mixad that are no ops, by their mark."""

_SPELLED = ("inf", "-inf", "nan", "infinity", "-infinity")


def _table() -> dict[Any, Handler]:
    known: dict[Any, Handler] = {}
    for op in TABLE:
        for name in names_in("python", op.name):
            known[getattr(math, name, None)] = partial(_op, op.name)
        for name in names_in("numpy", op.name):
            known[getattr(np, name, None)] = partial(_op, op.name)
    known |= {
        getattr(np, t.dtype_name if t != BOOL else "bool_"): partial(_convert, Typed(t, False))
        for t in STORED_TYPES
        if t != BF16
    }
    known |= {**_functions_of_numbers(), **_functions_of_tuples(), **NUMPY_FUNCTIONS}
    known.pop(None, None)
    return {f: partial(of_numpy, h) if _is_numpy(f) else h for f, h in known.items()}


def _is_numpy(function: Any) -> bool:
    """Whether a function is one of NumPy's; types, which convert, are none."""
    return isinstance(function, np.ufunc) or function in (np.round, np.around)


def _functions_of_numbers() -> dict[Any, Handler]:
    whole = {"floor": "floor", "ceil": "ceil", "trunc": "trunc"}
    known: dict[Any, Handler] = {
        getattr(m, n): partial(_round, op) for m in (math, np) for n, op in whole.items()
    }
    known |= {f: partial(_round, "rint") for f in (np.round, np.around, builtins.round)}
    known[np.where] = _numpy_where
    known |= {getattr(math, n): partial(classify, n) for n in ("isnan", "isinf", "isfinite")}
    known |= {
        np.add: partial(_binary, ast.Add()), np.subtract: partial(_binary, ast.Sub()),
        np.multiply: partial(_binary, ast.Mult()), np.divide: partial(_binary, ast.Div()),
        np.less: partial(_compare, ast.Lt()), np.less_equal: partial(_compare, ast.LtE()),
        np.greater: partial(_compare, ast.Gt()), np.greater_equal: partial(_compare, ast.GtE()),
        np.equal: partial(_compare, ast.Eq()), np.not_equal: partial(_compare, ast.NotEq()),
        np.logical_and: partial(_logical, "and"), np.logical_or: partial(_logical, "or"),
        np.logical_not: partial(_logical, "not"), np.logical_xor: partial(_logical, "xor"),
        math.ldexp: _ldexp, np.ldexp: _ldexp,
        math.fabs: _fabs, np.fabs: _fabs, math.log: _log, math.hypot: _hypot,
        builtins.abs: partial(_op, "abs"), builtins.divmod: _divmod,
        builtins.pow: partial(_binary, ast.Pow()),
        builtins.int: partial(_convert, Typed(I64, True)),
        builtins.float: partial(_convert, Typed(F64, True)),
        builtins.bool: partial(_convert, Typed(BOOL, True)),
    }  # fmt: skip
    return known


def _functions_of_tuples() -> dict[Any, Handler]:
    return {
        builtins.min: partial(_fold, "minimum"), builtins.max: partial(_fold, "maximum"),
        builtins.len: _len, builtins.sum: _sum, builtins.range: _range,
        builtins.any: partial(_quantify, "or"), builtins.all: partial(_quantify, "and"),
        builtins.zip: partial(_tuples, zip), builtins.enumerate: partial(_tuples, enumerate),
        builtins.reversed: partial(_tuples, reversed), builtins.tuple: partial(_tuples, tuple),
        builtins.list: _list, np.zeros: _zeros, np.array: _array,
    }  # fmt: skip


_KNOWN = _table()
