"""The reference interpreter: a program, run on NumPy scalars, one element at a time.

It is the living definition of what programs compute; every emitter is compared with it.  Control
flow is Python's own.  Instruction-level ops are `mixad.scalar.evaluate`'s, the others are in
`FUNCTIONS` below: NumPy's functions, in double precision and rounded once where the result is
narrower.  Nothing raises and nothing warns, whatever the values: domain errors are nan or inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from mixad.scalar.evaluate import evaluate
from mixad.scalar.ir import (
    Accumulate,
    Atom,
    Block,
    Const,
    Equation,
    If,
    Load,
    Param,
    Program,
    Statement,
    Var,
    While,
)
from mixad.scalar.math import program_of
from mixad.scalar.narrow import from_memory, rounded, to_memory
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import F64, ScalarType
from mixad.scalar.widen import widened

__all__ = ["EXACT", "FUNCTIONS", "OutsideError", "TurnLimitError", "Watch", "apply", "interpret",
           "is_exact"]  # fmt: skip

Scalar: TypeAlias = Any
"""A NumPy scalar."""

Watch = Callable[[Equation, Scalar], Scalar]
"""Sees the result of an equation and returns what the program goes on with."""


class OutsideError(IndexError):
    """A program read outside an array.

    Parameters
    ----------
    load : Load or Accumulate
        The statement.
    index : tuple of int
        What it asked for.
    shape : tuple of int
        Of the array.
    """

    def __init__(
        self, load: Load | Accumulate, index: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        super().__init__(f"index {index} is outside an array of shape {shape}")
        self.load = load
        self.index = index
        self.shape = shape


class TurnLimitError(RuntimeError):
    """A loop of a test program took more turns than the test allows."""


def interpret(
    program: Program,
    arguments: Sequence[Any],
    *,
    max_turns: int | None = None,
    watch: Watch | None = None,
) -> tuple[Scalar, ...]:
    """Run a program for one element.

    Parameters
    ----------
    program : Program
        A verified program.
    arguments : sequence
        One per param: a scalar, or for an array param a NumPy array of its dtype, which
        ``Accumulate`` changes in place.
    max_turns : int, optional
        How many turns one loop may take; without it a loop may run for ever.
    watch : callable, optional
        Called with every equation and its result; the program goes on with what it returns.

    Returns
    -------
    tuple of NumPy scalars
        The outputs, each of its program dtype; those of 16 bits as float32, rounded.

    Raises
    ------
    TurnLimitError
        If a loop takes more than ``max_turns`` turns.
    OutsideError
        If an index is outside the array; negative ones count from the end, as Python's do.

    Examples
    --------
    >>> from mixad.scalar.build import Builder
    >>> from mixad.scalar.types import F64
    >>> b = Builder("square")
    >>> x = b.param("x", F64)
    >>> interpret(b.finish([b.op("mul", x, x)]), [3.0])
    (np.float64(9.0),)
    """
    given = [_argument(p, a) for p, a in zip(program.params, arguments, strict=True)]
    wide = widened(program)
    values = {p.var.id: a for p, a in zip(wide.params, given, strict=True)}
    with np.errstate(all="ignore"):
        results = _Run(values, max_turns, watch).block(wide.body)
    return tuple(
        rounded(result, atom.type)[()] if atom.type.is_narrow else result
        for result, atom in zip(results, program.outputs, strict=True)
    )


def apply(name: str, args: tuple[Scalar, ...], type: ScalarType) -> Scalar:
    """Carry out any op of the table on NumPy scalars.

    Parameters
    ----------
    name : str
        An op of the table.
    args : tuple of NumPy scalars
        Its arguments.
    type : ScalarType
        Type of the result.

    Returns
    -------
    NumPy scalar
        Of the dtype of ``type``.
    """
    if BY_NAME[name].lowering == "instruction":
        return evaluate(name, args, type)
    with np.errstate(all="ignore"):
        if name not in EXACT:
            args = tuple(map(np.float64, args))
        return type.arithmetic.dtype.type(FUNCTIONS[name](*args))


def is_exact(name: str) -> bool:
    """Whether an op has one right result, bit for bit, on every machine."""
    return BY_NAME[name].lowering == "instruction" or name in EXACT


class _Run:
    """One execution: ``values`` are NumPy scalars (arrays for array params) by variable."""

    def __init__(self, values: dict[int, Any], max_turns: int | None, watch: Watch | None) -> None:
        self.values = values
        self.max_turns = max_turns
        self.watch = watch

    def value(self, atom: Atom) -> Scalar:
        if isinstance(atom, Const):
            return atom.type.dtype.type(atom.value)
        return self.values[atom.id]

    def all_of(self, atoms: Sequence[Atom]) -> tuple[Scalar, ...]:
        return tuple(map(self.value, atoms))

    def assign(self, variables: Sequence[Var], values: Sequence[Scalar]) -> None:
        self.values.update(zip((v.id for v in variables), values, strict=True))

    def block(self, block: Block) -> tuple[Scalar, ...]:
        for statement in block.statements:
            self.statement(statement)
        return self.all_of(block.results)

    def statement(self, s: Statement) -> None:
        match s:
            case Equation():
                result = _result(s, self.all_of(s.args))
                self.values[s.out.id] = result if self.watch is None else self.watch(s, result)
            case If():
                taken = s.then if self.value(s.cond) else s.orelse
                self.assign(s.outs, self.block(taken))
            case While():
                self.loop(s)
            case Load():
                self.values[s.out.id] = self.values[s.array.id][self.position(s)]
            case Accumulate():
                array, at = self.values[s.array.id], self.position(s)
                array[at] = apply("add", (array[at], self.value(s.value)), s.array.type)

    def loop(self, s: While) -> None:
        self.assign(s.carries, self.all_of(s.inits))
        turns = 0
        while self.block(s.cond)[0]:
            if turns == self.max_turns:
                raise TurnLimitError(f"a loop takes more than {self.max_turns} turns")
            self.assign(s.carries, self.block(s.body))
            turns += 1
        self.assign(s.outs, self.all_of(s.carries))

    def position(self, s: Load | Accumulate) -> tuple[int, ...]:
        indices = tuple(map(int, self.all_of(s.indices)))
        extents = self.values[s.array.id].shape
        if not all(-n <= i < n for i, n in zip(indices, extents, strict=True)):
            raise OutsideError(s, indices, extents)
        return indices


def _result(s: Equation, args: tuple[Scalar, ...]) -> Scalar:
    """Carry out an equation; the bits of 16-bit floats are those that memory holds."""
    old, new = s.args[-1].type, s.out.type
    if s.op == "bitcast" and old.is_narrow:
        return apply(s.op, (to_memory(args[0], old)[()],), new)
    if s.op == "bitcast" and new.is_narrow:
        return from_memory(np.asarray(args[0]).view(new.dtype), new)[()]
    return apply(s.op, args, new)


def _argument(param: Param, argument: Any) -> Any:
    """Return an argument as the NumPy scalar (or array) of its param's type, or float32."""
    type = param.var.type
    if type.is_narrow:
        return argument.astype("f4") if param.array is not None else np.float32(argument)
    dtype = type.dtype
    if param.array is None:
        return dtype.type(argument)
    if argument.dtype != dtype or argument.ndim != param.array.rank:
        got = f"{argument.dtype} of rank {argument.ndim}"
        raise TypeError(f"argument {param.name!r} is an array of {got}, expected {param.array}")
    return argument


# -- ops that are no instructions ------------------------------------------------------------------


def _minimum(x: Scalar, y: Scalar) -> Scalar:
    return y if y < x or y != y else x


def _maximum(x: Scalar, y: Scalar) -> Scalar:
    return y if y > x or y != y else x


def _powi(x: Scalar, y: Scalar) -> Scalar:
    """Integer power, wrapped; a negative exponent rounds the true quotient towards zero."""
    base, exponent = int(x), int(y)
    if exponent < 0:
        return x.dtype.type({1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0))
    bits = 8 * x.dtype.itemsize
    return np.asarray(pow(base, exponent, 1 << bits), f"u{x.dtype.itemsize}").view(x.dtype)[()]


def _ldexp(x: Scalar, n: Scalar) -> Scalar:
    if np.isnan(n):
        return n
    return np.ldexp(x, int(np.rint(np.clip(n, -1e4, 1e4))))


def _sigmoid(x: Scalar) -> Scalar:
    small = np.exp(-abs(x))
    return (small if x < 0 else 1.0) / (1.0 + small)


def _logistic_density(x: Scalar) -> Scalar:
    small = np.exp(-abs(x))
    return small / (1.0 + small) / (1.0 + small)


def _gamma(x: Scalar) -> Scalar:
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except ValueError:  # a pole, or -inf
        return math.nan
    except OverflowError:  # far out, or beside the pole at 0
        return math.copysign(math.inf, x)


def _lgamma(x: Scalar) -> Scalar:
    try:
        return math.lgamma(x)
    except (ValueError, OverflowError):  # a pole, or beyond the range
        return math.inf


def _by_program(name: str, *args: Scalar) -> Scalar:
    """Run the double-precision program of an op that neither NumPy nor `math` has."""
    return interpret(_double_program(name), args)[0]


@cache
def _double_program(name: str) -> Program:
    return program_of(name, F64)


_PROGRAMS_ONLY = ("digamma", "trigamma", "polygamma", "erfcx", "ierfcx", "erfinv", "erfcinv",
                  "mul_pow", "pow_log", "direction_cosine")  # fmt: skip

EXACT = frozenset({"div_zero", "mul_zero", "mul_zeros", "sign", "minimum", "maximum", "nextafter",
                   "isnan", "isinf", "isfinite", "relu", "powi", "fmod", "ldexp"})  # fmt: skip
"""Ops that are no instructions but have one right result; computed in the arguments' dtype."""

FUNCTIONS: Mapping[str, Callable[..., Scalar]] = MappingProxyType({
    "mul_zero": lambda x, y: x * y if x != 0 else x.dtype.type(0),
    "div_zero": lambda x, y: x / y if x != 0 else x.dtype.type(0),
    "mul_zeros": lambda x, y: x * y if x != 0 and y != 0 else x.dtype.type(0),
    "sign": np.sign, "minimum": _minimum, "maximum": _maximum, "nextafter": np.nextafter,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "relu": lambda x: _maximum(x.dtype.type(0), x),
    "powi": _powi, "fmod": np.fmod, "ldexp": _ldexp,
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1,
    "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sigmoid": _sigmoid, "logistic_density": _logistic_density, "logaddexp": np.logaddexp,
    "pow": np.float_power,  # np.power takes a square root for y = 0.5: nan for x = -inf
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "atan2": np.arctan2, "hypot": np.hypot, "cbrt": np.cbrt,
    "erf": math.erf, "erfc": math.erfc, "gamma": _gamma, "lgamma": _lgamma,
    **{name: partial(_by_program, name) for name in _PROGRAMS_ONLY},
})  # fmt: skip
"""Ops beyond instructions; those that are not `EXACT` take and return double precision."""
