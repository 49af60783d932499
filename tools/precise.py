"""Programs in many digits: an evaluator on mpmath numbers, and derivatives by differences of it.

For tests of the transforms.  A derivative program is run in the same arithmetic as the differences
of its primal, so what is compared is the transform, with no rounding to allow for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from types import MappingProxyType
from typing import Any, TypeAlias

from mpmath import mp, mpf

from mixad.scalar.ir import Atom, Block, Equation, If, Program, Statement, Var, While
from mixad.testing import ALL_OPS

__all__ = ["DIGITS", "OPS", "UndecidedError", "evaluate", "gradient", "hessian"]

DIGITS = 100
STEP = mpf(10) ** -25
LARGEST = 10**12
"""Beyond this, values count as undefined: differences of them would lose digits."""

Value: TypeAlias = Any
"""An mpf, an int or a bool."""


class UndecidedError(ArithmeticError):
    """A neighbouring point takes another branch: there is no derivative to compare with."""


def _real(f: Callable[..., Value]) -> Callable[..., Value]:
    """What is undefined, complex or too large becomes nan."""

    def total(*args: Value) -> Value:
        try:
            value = f(*args)
        except (ZeroDivisionError, ValueError, OverflowError):
            return mp.nan
        usable = isinstance(value, mpf | int) and abs(value) <= LARGEST
        return mpf(value) if usable else mp.nan

    return total


def _small(f: Callable[..., Value]) -> Callable[..., Value]:
    """For functions that grow: arguments are limited before values become astronomical."""
    return lambda x: f(x) if abs(x) < 40 else mp.nan


def _pow(x: mpf, y: mpf) -> Value:
    if x < 0 and y == mp.floor(y) and abs(y) < 40:
        return x ** int(y)
    limited = x == 0 or abs(y * mp.log(x)) < 40
    return mp.power(x, y) if limited else mp.nan


_SMOOTH: Mapping[str, Callable[..., Value]] = MappingProxyType({
    "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y, "neg": lambda x: -x, "fma": lambda x, y, z: x * y + z,
    "sqrt": mp.sqrt, "exp": _small(mp.exp), "expm1": _small(mp.expm1), "log": mp.log,
    "log1p": mp.log1p, "sin": mp.sin, "cos": mp.cos, "tan": mp.tan, "tanh": mp.tanh,
    "sinh": _small(mp.sinh), "cosh": _small(mp.cosh), "asin": mp.asin, "acos": mp.acos,
    "atan": mp.atan, "asinh": mp.asinh, "acosh": mp.acosh, "atanh": mp.atanh,
    "sigmoid": _small(lambda x: 1 / (1 + mp.exp(-x))),
    "logistic_density": _small(lambda x: 1 / (2 * mp.cosh(x / 2)) ** 2),
    "pow": _pow, "mul_pow": lambda x, y, z: x * _pow(y, z),
    "pow_log": lambda x, y: _pow(x, y) * mp.log(x),
    "circle_inversion": lambda x, y: x / (x * x + y * y) if x or y else mpf(0),
    "direction_cosine": lambda x, y: x / mp.hypot(x, y) if x or y else mpf(0),
    "hypot": mp.hypot, "atan2": mp.atan2,
})  # fmt: skip

_DECIDING: Mapping[str, Callable[..., Value]] = MappingProxyType({
    "lt": lambda x, y: x < y, "le": lambda x, y: x <= y, "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y, "eq": lambda x, y: x == y, "ne": lambda x, y: x != y,
    "signbit": lambda x: x < 0, "isinf": lambda x: False, "isnan": mp.isnan,
    "isfinite": mp.isfinite,
})  # fmt: skip

_LOGIC: Mapping[str, Callable[..., Value]] = MappingProxyType({
    "and": lambda x, y: x & y, "or": lambda x, y: x | y, "xor": lambda x, y: x ^ y,
    "not": lambda x: not x,
})  # fmt: skip

_WHOLE: Mapping[str, Callable[..., Value]] = MappingProxyType({
    "abs": abs, "minimum": min, "maximum": max, "sign": lambda n: (n > 0) - (n < 0),
    "mod": lambda n, m: n % m if m else 0,
})  # fmt: skip

_PIECEWISE = ("abs", "sign", "minimum", "maximum", "relu", "floor", "where", "mul_zero",
              "mul_zeros", "div_zero", "copysign", "convert")  # fmt: skip
OPS = tuple(n for n in (*_SMOOTH, *_DECIDING, *_LOGIC, *_PIECEWISE) if n in ALL_OPS)
"""What can be evaluated, and random programs are made of."""


class _Run:
    """One evaluation; ``decisions`` are the outcomes that select a piece of the function."""

    def __init__(self, values: dict[Var, Value]) -> None:
        self.values = values
        self.decisions: list[Value] = []

    def value(self, atom: Atom) -> Value:
        if isinstance(atom, Var):
            return self.values[atom]
        if not atom.type.is_float:
            return atom.value
        return mpf(atom.value) if abs(atom.value) <= LARGEST else mp.nan

    def decided(self, outcome: Value) -> Value:
        self.decisions.append(None if mp.isnan(outcome) else outcome)  # nan is not nan
        return outcome

    def block(self, block: Block) -> list[Value]:
        for statement in block.statements:
            self.statement(statement)
        return [self.value(a) for a in block.results]

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                args = [self.value(a) for a in s.args]
                self.values[s.out] = self.equation(s, args)
            case If():
                taken = s.then if self.value(s.cond) else s.orelse
                self.values.update(zip(s.outs, self.block(taken), strict=True))
            case While():
                self.loop(s)
            case _:
                raise NotImplementedError(type(s).__name__)

    def loop(self, s: While) -> None:
        self.values.update(zip(s.carries, map(self.value, s.inits), strict=True))
        while self.block(s.cond)[0]:
            self.values.update(zip(s.carries, self.block(s.body), strict=True))
        self.values.update(zip(s.outs, [self.values[c] for c in s.carries], strict=True))

    def equation(self, s: Equation, args: list[Value]) -> Value:
        if not s.args[-1].type.is_float:
            return self.discrete(s, args)
        if s.op in _SMOOTH:
            return _real(_SMOOTH[s.op])(*args)
        if s.op in _DECIDING:
            return self.decided(_DECIDING[s.op](*args))
        return self.piecewise(s, *args)

    def piecewise(self, s: Equation, *args: Value) -> Value:
        x = args[0]
        match s.op:
            case "where":
                return args[1] if x else args[2]
            case "mul_zero" | "mul_zeros" | "div_zero":
                is_zero = x == 0 or (s.op == "mul_zeros" and args[1] == 0)
                return mpf(0) if is_zero else _real(_SMOOTH[s.op[:3]])(*args)
            case "minimum" | "maximum":
                below = self.decided(x < args[1]), self.decided(x > args[1])
                return self.larger(s.op == "minimum", below, *args)
            case "abs":
                return x * self.decided(mp.sign(x))
            case "copysign":
                return x * self.decided(mp.sign(x)) * (-1 if self.decided(args[1] < 0) else 1)
            case "sign":
                return self.decided(mp.sign(x))
            case "relu":
                return x if self.decided(x > 0) else mpf(0)
            case "floor":
                return self.decided(mp.floor(x))
            case "convert":
                return x if s.out.type.is_float else self.decided(_whole(x, s))
        raise NotImplementedError(s.op)

    def larger(self, smallest: bool, order: tuple[bool, bool], x: mpf, y: mpf) -> mpf:
        if mp.isnan(x) or mp.isnan(y):
            return mp.nan
        return y if order[smallest] else x

    def discrete(self, s: Equation, args: list[Value]) -> Value:
        """Booleans, and integers that stay small enough not to wrap."""
        match s.op:
            case "convert":
                return mpf(int(args[0])) if s.out.type.is_float else _whole(args[0], s)
            case "where":
                return args[1] if args[0] else args[2]
        function = {**_SMOOTH, **_DECIDING, **_LOGIC, **_WHOLE}[s.op]
        result = function(*args)
        return result if s.out.type.is_bool else _wrapped(int(result), s)


def _whole(x: Value, s: Equation) -> Value:
    if s.out.type.is_bool:
        return bool(x != 0)
    return 0 if mp.isnan(x) else _wrapped(int(x), s)


def _wrapped(value: int, s: Equation) -> int:
    half = 1 << (s.out.type.bits - 1)
    return (value + half) % (2 * half) - half


# -- programs --------------------------------------------------------------------------------------


def evaluate(program: Program, arguments: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Run a program.

    Parameters
    ----------
    program : Program
        Of ops in `OPS`, without array params.
    arguments : sequence
        One mpf, int or bool per param.

    Returns
    -------
    list
        The outputs; undefined ones are nan.
    list
        The decisions on the way: equal lists, same piece of the function.
    """
    params = (p.var for p in program.params)
    run = _Run(dict(zip(params, arguments, strict=True)))
    with mp.workdps(DIGITS):
        return run.block(program.body), run.decisions


def gradient(program: Program, arguments: Sequence[Value], wrt: Sequence[int]) -> list[list[Value]]:
    """Return ∂(output)/∂(param) by central differences: a row per output.

    Raises
    ------
    UndecidedError
        If a neighbouring point takes other branches.
    """
    columns = [_difference(program, arguments, (i,)) for i in wrt]
    return [list(row) for row in zip(*columns, strict=True)]


def hessian(
    program: Program, arguments: Sequence[Value], wrt: Sequence[int]
) -> list[list[list[Value]]]:
    """Return ∂²(output)/∂∂ by central differences: a matrix per output; raises as `gradient`."""
    rows = [[_difference(program, arguments, (i, j)) for j in wrt] for i in wrt]
    return [[[cell[m] for cell in row] for row in rows] for m in range(len(program.outputs))]


def _difference(program: Program, arguments: Sequence[Value], along: Sequence[int]) -> list[Value]:
    """Σ ± f(x ± h ± …)/(2h)ⁿ for each output."""
    _, decisions = evaluate(program, arguments)
    with mp.workdps(DIGITS):
        totals = [mpf(0)] * len(program.outputs)
        for signs in product((1, -1), repeat=len(along)):
            moved = list(arguments)
            for i, sign in zip(along, signs, strict=True):
                moved[i] += sign * STEP
            outputs, there = evaluate(program, moved)
            if there != decisions:
                raise UndecidedError
            weight = mp.fprod(signs) / (2 * STEP) ** len(along)
            totals = [t + weight * out for t, out in zip(totals, outputs, strict=True)]
        return totals
