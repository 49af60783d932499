"""The functions that kernels call: the ops of the table by name, and some made of them.

Inside a kernel they become ops; called with plain numbers they compute what the reference
interpreter computes.  Docstrings are made: of the op table's sentence, or of the one that is
written here, and of the signature.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

import numpy as np

from mixad.errors import KernelTypeError
from mixad.scalar.interpret import apply
from mixad.scalar.narrow import to_memory
from mixad.scalar.ops import BY_NAME, Op
from mixad.scalar.parse.library import sinc_by
from mixad.scalar.types import BOOL, ScalarType, type_of_dtype

Number: TypeAlias = Any
"""A Python or NumPy number; inside a kernel, a value of it."""

_F = TypeVar("_F", bound=Callable[..., Any])


def _op(name: str) -> Callable[..., Number]:
    """Return the function that users call for an op."""
    op = BY_NAME[name]
    names = _parameters(op)

    def function(*args: Number) -> Number:
        return _evaluated(op, args)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = op.doc
    function.__annotations__ = dict.fromkeys((*names, "return"), "Number")
    function.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY, annotation="Number")
            for n in names
        ],
        return_annotation="Number",
    )
    function.__mixad_op__ = name  # type: ignore[attr-defined]  # what the parser looks for
    return _documented(function)


def _parameters(op: Op) -> tuple[str, ...]:
    """Return what an op's arguments are called."""
    named = {"where": ("condition", "x", "y"), "polygamma": ("n", "x")}
    return named.get(op.name, ("x", "y", "z")[: op.arity])


def _documented(function: _F) -> _F:
    """Complete a docstring of one sentence by the parameters and what is returned."""
    parameters = inspect.signature(function).parameters.values()
    result = "number\n    A Python number of Python numbers, else a NumPy scalar."
    function.__doc__ = "\n".join([
        f"{function.__doc__}\n",
        *_section("Parameters", map(_parameter, parameters)),
        *_section("Returns", [result]),
    ])  # fmt: skip
    return function


def _section(title: str, entries: Iterable[str]) -> list[str]:
    return [title, "-" * len(title), *entries, ""]


def _parameter(parameter: inspect.Parameter) -> str:
    if parameter.default is parameter.empty:
        return f"{parameter.name} : number\n    Argument."
    return f"{parameter.name} : number, optional\n    Argument, {parameter.default} by default."


def _evaluated(op: Op, args: tuple[Any, ...]) -> Any:
    """Compute an op on plain numbers, as the interpreter does."""
    _check_numbers(op, args)
    count = 1 if op.name == "where" else 0
    conditions, numbers = map(np.bool_, args[:count]), args[count:]
    type = _type_for(op, numbers)
    values = (*conditions, *map(type.arithmetic.dtype.type, numbers))
    result = apply(op.name, values, type if op.result == "same" else BOOL)
    if type.is_narrow and op.result == "same":
        result = to_memory(result, type)[()]
    return result if any(isinstance(v, np.generic) for v in args) else result.item()


def _check_numbers(op: Op, args: tuple[Any, ...]) -> None:
    if len(args) != op.arity:
        raise KernelTypeError(
            f"mixad.special.{op.name} takes {op.arity} arguments, got {len(args)}",
            hint=f"write {op.name}({', '.join(_parameters(op))})",
        )
    for value in args:
        if not isinstance(value, bool | int | float | np.generic):
            raise KernelTypeError(
                f"mixad.special.{op.name} takes numbers, got {type(value).__name__}",
                hint="call it in a function decorated with @mixad.broadcast",
            )


def _type_for(op: Op, numbers: tuple[Any, ...]) -> ScalarType:
    """Return the type in which an op of numbers is carried out."""
    dtype = np.result_type(*numbers)
    is_whole = op.domain == "float" and dtype.kind in "biu"
    found = type_of_dtype(np.float64 if is_whole else dtype)
    if found is None:
        raise KernelTypeError(
            f"mixad.special.{op.name} does not take {dtype}", hint="convert it, such as by float(x)"
        )
    return found


sin = _op("sin")
cos = _op("cos")
tan = _op("tan")
asin = _op("asin")
acos = _op("acos")
atan = _op("atan")
atan2 = _op("atan2")
sinh = _op("sinh")
cosh = _op("cosh")
tanh = _op("tanh")
asinh = _op("asinh")
acosh = _op("acosh")
atanh = _op("atanh")
exp = _op("exp")
exp2 = _op("exp2")
expm1 = _op("expm1")
log = _op("log")
log2 = _op("log2")
log10 = _op("log10")
log1p = _op("log1p")
logaddexp = _op("logaddexp")
sqrt = _op("sqrt")
cbrt = _op("cbrt")
hypot = _op("hypot")
pow = _op("pow")
fma = _op("fma")
fmod = _op("fmod")
sigmoid = _op("sigmoid")
relu = _op("relu")
erf = _op("erf")
erfc = _op("erfc")
gamma = _op("gamma")
lgamma = _op("lgamma")
digamma = _op("digamma")
trigamma = _op("trigamma")
polygamma = _op("polygamma")
sign = _op("sign")
copysign = _op("copysign")
minimum = _op("minimum")
maximum = _op("maximum")
floor = _op("floor")
ceil = _op("ceil")
trunc = _op("trunc")
rint = _op("rint")
isnan = _op("isnan")
isinf = _op("isinf")
isfinite = _op("isfinite")
signbit = _op("signbit")
nextafter = _op("nextafter")
where = _op("where")

# -- made of ops: plain Python, compiled into a kernel like a function of the user ----------------


@_documented
def softplus(x: Number) -> Number:
    """Return log(1 + exp(x)) without overflow."""
    return logaddexp(x, 0.0)


@_documented
def silu(x: Number) -> Number:
    """Return x · sigmoid(x)."""
    return x * sigmoid(x)


@_documented
def gelu(x: Number) -> Number:
    """Return x · Φ(x), with the normal distribution function Φ (not its tanh approximation)."""
    return 0.5 * x * erfc(x * (-1 / math.sqrt(2)))


@_documented
def elu(x: Number, alpha: Number = 1.0) -> Number:
    """Return x where it is positive, else alpha · (exp(x) - 1)."""
    return x if x > 0 else alpha * expm1(x)


@_documented
def leaky_relu(x: Number, slope: Number = 0.01) -> Number:
    """Return x where it is positive, else slope · x."""
    return x if x > 0 else slope * x


@_documented
def softsign(x: Number) -> Number:
    """Return x / (1 + |x|)."""
    return x / (1 + abs(x))


@_documented
def logit(x: Number) -> Number:
    """Return log(x / (1 - x)), the inverse of sigmoid."""
    return log(x) - log1p(-x)


@_documented
def rsqrt(x: Number) -> Number:
    """Return 1 / √x."""
    return 1 / sqrt(x)


@_documented
def sinc(x: Number) -> Number:
    """Return sin(πx) / (πx), 1 at 0: the convention of NumPy."""
    return sinc_by(x, sin, rint)


_mul_zero = _op("mul_zero")


@_documented
def xlogy(x: Number, y: Number) -> Number:
    """Return x · log(y), 0 where x is 0 unless y is nan; the derivative log(y) stays."""
    return x * y if isnan(y) else _mul_zero(x, log(y))


@_documented
def xlog1py(x: Number, y: Number) -> Number:
    """Return x · log(1 + y), 0 where x is 0 unless y is nan; the derivative log(1 + y) stays."""
    return x * y if isnan(y) else _mul_zero(x, log1p(y))


@_documented
def log_sigmoid(x: Number) -> Number:
    """Return log(sigmoid(x)), without overflow."""
    return -logaddexp(-x, 0.0)


@_documented
def ndtr(x: Number) -> Number:
    """Return the distribution function of the standard normal distribution."""
    return 0.5 * erfc(x * (-1 / math.sqrt(2)))


@_documented
def cosm1(x: Number) -> Number:
    """Return cos(x) - 1, without cancellation."""
    half = sin(0.5 * x)
    return -2 * half * half


@_documented
def exp10(x: Number) -> Number:
    """Return 10 to the x."""
    return pow(10.0, x)


@_documented
def entr(x: Number) -> Number:
    """Return -x · log(x), a term of an entropy: 0 where x is 0, -inf where it is negative."""
    return -math.inf if x < 0 else -_mul_zero(x, log(x))


@_documented
def rel_entr(x: Number, y: Number) -> Number:
    """Return x · log(x / y), 0 where x is 0, inf where x or y is negative or y alone is 0."""
    if isnan(x) or isnan(y):
        return x + y
    if _is_apart(x, y):
        return math.inf
    near = abs(x - y) < 0.5 * y  # then logarithms would cancel
    return _mul_zero(x, log1p((x - y) / y) if near else log(x) - log(y))


@_documented
def kl_div(x: Number, y: Number) -> Number:
    """Return x · log(x / y) - x + y, with the conventions of `rel_entr`."""
    return math.inf if _is_apart(x, y) else rel_entr(x, y) - x + y


def _is_apart(x: Number, y: Number) -> bool:
    """Return whether x and y are no probabilities, or x is one where y is 0."""
    return not (isnan(x) or isnan(y)) and (x < 0 or y < 0 or (y == 0 and x > 0))


@_documented
def huber(delta: Number, r: Number) -> Number:
    """Return r² / 2 where r is at most delta away from 0, else the tangent there."""
    if delta < 0:
        return math.inf
    return 0.5 * r * r if abs(r) <= delta else delta * (abs(r) - 0.5 * delta)


@_documented
def pseudo_huber(delta: Number, r: Number) -> Number:
    """Return delta² (√(1 + (r/delta)²) - 1), a smooth `huber`, without cancellation."""
    if delta < 0:
        return math.inf
    if isinf(r):
        return delta * abs(r)
    sides = delta + hypot(delta, r)
    return r * r if sides == 0 else delta * (r * (r / sides))


__all__ = sorted(
    name
    for name, value in vars().copy().items()
    if inspect.isfunction(value) and value.__module__ == __name__ and not name.startswith("_")
)
