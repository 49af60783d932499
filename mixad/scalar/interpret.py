"""The reference interpreter: a program, run on NumPy scalars, one element at a time.

It is the living definition of what programs compute; every emitter is compared with it.  Control
flow is Python's own.  Instruction-level ops are `mixad.scalar.evaluate`'s, the others are in
`FUNCTIONS` below: NumPy's functions, in double precision and rounded once where the result is
narrower.  Nothing raises and nothing warns, whatever the values: domain errors are nan or inf.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from mixad.scalar.evaluate import instruction
from mixad.scalar.ir import (
    Atom,
    Block,
    Equation,
    If,
    Load,
    Param,
    Program,
    Statement,
    Touch,
    Update,
    Var,
    While,
)
from mixad.scalar.math import program_of
from mixad.scalar.narrow import from_memory, round_to_type, to_memory
from mixad.scalar.ops import BY_NAME
from mixad.scalar.types import F64, ScalarType
from mixad.scalar.updates import OPS
from mixad.scalar.widen import widen_program

__all__ = ["EXACT", "FUNCTIONS", "IterationLimitError", "OutsideError", "Watch", "apply",
           "as_argument", "definition", "interpret", "interpreter", "is_exact"]  # fmt: skip

Scalar: TypeAlias = Any
"""A NumPy scalar."""

Watch = Callable[[Equation, Scalar], Scalar]
"""Takes an equation and its result; returns the value that the program goes on with."""


class OutsideError(IndexError):
    """A Load or Update read or added outside an array."""

    def __init__(self, load: Load | Update, index: tuple[int, ...], shape: tuple[int, ...]) -> None:
        super().__init__(f"index {index} is outside an array of shape {shape}")
        self.load = load
        self.index = index
        self.shape = shape


class IterationLimitError(RuntimeError):
    """A loop of a test program took more iterations than the test allows."""


def interpret(
    program: Program,
    arguments: Sequence[Any],
    *,
    max_iterations: int | None = None,
    watch: Watch | None = None,
) -> tuple[Scalar, ...]:
    """Run a program for one element; return NumPy scalars, those of 16 bits as rounded float32.

    Arguments are scalars or NumPy arrays, then an array for each accumulator, which changes in
    place and is the output. The program goes on with what ``watch`` returns for each equation and
    result. IterationLimitError beyond ``max_iterations`` of a loop, OutsideError for an index
    outside, negative from the end.

    >>> from mixad.scalar.build import Builder
    >>> from mixad.scalar.types import F64
    >>> b = Builder("square")
    >>> x = b.param("x", F64)
    >>> interpret(b.finish([b.op("mul", x, x)]), [3.0])
    (np.float64(9.0),)
    """
    return interpreter(program, max_iterations=max_iterations, watch=watch)(arguments)


def interpreter(
    program: Program, *, max_iterations: int | None = None, watch: Watch | None = None
) -> Callable[[Sequence[Any]], tuple[Scalar, ...]]:
    """Return `interpret` for one program: a function of the arguments, for many elements."""
    wide = widen_program(program)
    updates = {a.var: update_of(a) for a in wide.accumulators}
    translation = _Translation(max_iterations, watch, updates)
    run = translation.block(wide.body)
    olds = (*program.params, *program.accumulators)
    news = (*wide.params, *wide.accumulators)

    def interpret_values(arguments: Sequence[Any]) -> tuple[Scalar, ...]:
        values = translation.constants.copy()
        for old, new, argument in zip(olds, news, arguments, strict=True):
            values[new.var.id] = as_argument(old, argument)
        with np.errstate(all="ignore"):
            results = run(values)
        return tuple(
            round_to_type(result, atom.type)[()] if atom.type.is_narrow else result
            for result, atom in zip(results, program.outputs, strict=True)
        )

    return interpret_values


def apply(name: str, args: tuple[Scalar, ...], type: ScalarType) -> Scalar:
    """Evaluate any op of the table on NumPy scalars; return one of the dtype of ``type``."""
    with np.errstate(all="ignore"):
        return definition(name, type)(*args)


@cache
def definition(name: str, type: ScalarType) -> Callable[..., Scalar]:
    """Return the function of NumPy scalars for an op of the table; it may warn."""
    if BY_NAME[name].lowering == "instruction":
        return instruction(name, type)
    function, result = FUNCTIONS[name], type.arithmetic.dtype.type
    if name in EXACT:
        return lambda *args: result(function(*args))
    return lambda *args: result(function(*map(np.float64, args)))


def update_of(accumulator: Param) -> Callable[[Scalar, Scalar], Scalar]:
    """Return a function from an accumulator's element and a value to the new element."""
    if accumulator.kind == "write":
        return lambda _, value: value
    return definition(OPS[accumulator.kind], accumulator.var.type)


def is_exact(name: str) -> bool:
    """Whether an op has one right result, bit for bit, on every machine."""
    return BY_NAME[name].lowering == "instruction" or name in EXACT


_Values: TypeAlias = dict[int, Any]
"""NumPy scalars (arrays for array params) by variable; those of constants have negative keys."""

_Step: TypeAlias = Callable[[_Values], Any]
"""The effect of a statement on the values, or a block, which returns its results."""


class _Translation:
    """Translates a program into steps, once for all elements."""

    def __init__(
        self,
        max_iterations: int | None,
        watch: Watch | None,
        updates: Mapping[Var, Callable[[Scalar, Scalar], Scalar]],
    ) -> None:
        self.max_iterations = max_iterations
        self.watch = watch
        self.updates = updates
        self.constants: _Values = {}

    def key(self, atom: Atom) -> int:
        if isinstance(atom, Var):
            return atom.id
        key = -1 - len(self.constants)
        self.constants[key] = atom.type.dtype.type(atom.value)
        return key

    def read(self, atoms: Sequence[Atom]) -> Callable[[_Values], tuple[Scalar, ...]]:
        """Return a function that reads some atoms."""
        keys = list(map(self.key, atoms))
        if len(keys) > 1:
            return itemgetter(*keys)
        return lambda values: tuple(values[key] for key in keys)

    def block(self, block: Block) -> _Step:
        steps, results = list(map(self.statement, block.statements)), self.read(block.results)

        def run(values: _Values) -> tuple[Scalar, ...]:
            for step in steps:
                step(values)
            return results(values)

        return run

    def statement(self, s: Statement) -> _Step:
        match s:
            case Equation():
                return self.equation(s)
            case If():
                return self.choice(s)
            case While():
                return self.loop(s)
            case Load():
                return self.load(s)
            case Update():
                return self.update(s)
            case Touch():
                return lambda values: None

    def equation(self, s: Equation) -> _Step:
        if self.watch is not None:
            return self.watch_equation(s, self.watch)
        compute, args, out = _computing(s), self.read(s.args), s.out.id

        def run(values: _Values) -> None:
            values[out] = compute(*args(values))

        return run

    def watch_equation(self, s: Equation, watch: Watch) -> _Step:
        compute, args = _computing(s), self.read(s.args)

        def run(values: _Values) -> None:
            values[s.out.id] = watch(s, compute(*args(values)))

        return run

    def choice(self, s: If) -> _Step:
        cond, then, orelse = self.key(s.cond), self.block(s.then), self.block(s.orelse)

        def run(values: _Values) -> None:
            taken = then if values[cond] else orelse
            _assign(values, s.outs, taken(values))

        return run

    def loop(self, s: While) -> _Step:
        inits, carries, limit = self.read(s.inits), self.read(s.carries), self.max_iterations
        cond, body = self.block(s.cond), self.block(s.body)

        def run(values: _Values) -> None:
            _assign(values, s.carries, inits(values))
            iterations = 0
            while cond(values)[0]:
                if iterations == limit:
                    raise IterationLimitError(f"a loop takes more than {limit} iterations")
                _assign(values, s.carries, body(values))
                iterations += 1
            _assign(values, s.outs, carries(values))

        return run

    def load(self, s: Load) -> _Step:
        position = self.position(s)

        def run(values: _Values) -> None:
            values[s.out.id] = values[s.array.id][position(values)]

        return run

    def update(self, s: Update) -> _Step:
        position, value, update = self.position(s), self.key(s.value), self.updates[s.array]

        def run(values: _Values) -> None:
            array, at = values[s.array.id], position(values)
            array[at] = update(array[at], values[value])

        return run

    def position(self, s: Load | Update) -> Callable[[_Values], tuple[int, ...]]:
        read = self.read(s.indices)

        def position(values: _Values) -> tuple[int, ...]:
            indices, extents = tuple(map(int, read(values))), values[s.array.id].shape
            if not all(-n <= i < n for i, n in zip(indices, extents, strict=True)):
                raise OutsideError(s, indices, extents)
            return indices

        return position


def _assign(values: _Values, variables: Sequence[Var], results: Sequence[Scalar]) -> None:
    for variable, result in zip(variables, results, strict=True):
        values[variable.id] = result


def _computing(s: Equation) -> Callable[..., Scalar]:
    """Return a function that evaluates an equation; 16-bit floats as bits of memory."""
    old, new = s.args[-1].type, s.out.type
    compute = definition(s.op, new)
    if s.op == "bitcast" and old.is_narrow:
        return lambda x: compute(to_memory(x, old)[()])
    if s.op == "bitcast" and new.is_narrow:
        return lambda x: from_memory(np.asarray(x).view(new.dtype), new)[()]
    return compute


def as_argument(param: Param, argument: Any) -> Any:
    """Return an argument as the NumPy scalar (or array) of its param's type, or float32."""
    type = param.var.type
    if type.is_narrow:
        return argument.astype("f4", copy=False) if param.array else np.float32(argument)
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
    return _by_program_of_bits(name, np.array(args, np.float64).tobytes())


@lru_cache(maxsize=1 << 12)  # displaced runs of `mixad.scalar.expected` ask for the same again
def _by_program_of_bits(name: str, args: bytes) -> Scalar:
    return _double_program(name)(list(np.frombuffer(args)))[0]


@cache
def _double_program(name: str) -> Callable[[Sequence[Any]], tuple[Scalar, ...]]:
    return interpreter(program_of(name, F64))


_PROGRAMS_ONLY = ("digamma", "trigamma", "polygamma", "erfcx", "ierfcx", "erfinv", "erfcinv",
                  "mul_pow", "pow_log", "direction_cosine", "circle_inversion")  # fmt: skip

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
