"""The functions that kernels call: the ops of the table by name, and some made of them.

Inside a kernel they become ops; called with plain numbers they compute what the reference
interpreter computes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mixad.errors import KernelTypeError
from mixad.scalar.interpret import apply
from mixad.scalar.ops import BY_NAME, Op
from mixad.scalar.types import BOOL, type_of_dtype

__all__ = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "digamma",
    "elu",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "fma",
    "fmod",
    "gamma",
    "gelu",
    "hypot",
    "isfinite",
    "isinf",
    "isnan",
    "leaky_relu",
    "lgamma",
    "log",
    "log1p",
    "log2",
    "log10",
    "logaddexp",
    "logit",
    "maximum",
    "minimum",
    "nextafter",
    "pow",
    "relu",
    "rint",
    "rsqrt",
    "sigmoid",
    "sign",
    "signbit",
    "silu",
    "sin",
    "sinc",
    "sinh",
    "softplus",
    "softsign",
    "sqrt",
    "tan",
    "tanh",
    "trigamma",
    "trunc",
    "where",
    "xlog1py",
    "xlogy",
]


def _named(name: str) -> Callable[..., Any]:
    """Return the function that users call for an op."""
    op = BY_NAME[name]
    names = ("condition", "x", "y") if name == "where" else ("x", "y", "z")[: op.arity]

    def function(*args: Any) -> Any:
        return _evaluated(op, args)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _documented(op, names)
    parameters = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_ONLY) for n in names]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__mixad_op__ = name  # type: ignore[attr-defined]  # what the parser looks for
    return function


def _documented(op: Op, names: tuple[str, ...]) -> str:
    """Return a docstring made of the table's entry."""
    doc = op.doc.replace(
        "y where the boolean x holds, else z", "x where the condition holds, else y"
    )
    parameters = "\n".join(f"{name} : number\n    Argument." for name in names)
    return (
        f"{doc[0].upper()}{doc[1:]}\n\nParameters\n----------\n{parameters}\n\n"
        "Returns\n-------\nnumber\n    A Python number of Python numbers, else a NumPy scalar.\n"
    )


def _evaluated(op: Op, args: tuple[Any, ...]) -> Any:
    """Compute an op on plain numbers, as the interpreter does."""
    if len(args) != op.arity:
        raise KernelTypeError(f"{op.name} takes {op.arity} arguments, got {len(args)}")
    for value in args:
        if not isinstance(value, bool | int | float | np.generic):
            raise KernelTypeError(
                f"mixad.special.{op.name} takes numbers, got {type(value).__name__}",
                hint="call it in a function decorated with @mixad.broadcast",
            )
    first = 1 if op.name == "where" else 0
    dtype = np.result_type(*args[first:])
    found = type_of_dtype(np.float64 if op.domain == "float" and dtype.kind in "biu" else dtype)
    if found is None:
        raise KernelTypeError(f"mixad.special.{op.name} does not take {dtype}")
    numbers = tuple(found.dtype.type(v) for v in args[first:])
    result = apply(
        op.name,
        (*(np.bool_(c) for c in args[:first]), *numbers),
        found if op.result == "same" else BOOL,
    )
    return result if any(isinstance(v, np.generic) for v in args) else result.item()


sin = _named("sin")
cos = _named("cos")
tan = _named("tan")
asin = _named("asin")
acos = _named("acos")
atan = _named("atan")
atan2 = _named("atan2")
sinh = _named("sinh")
cosh = _named("cosh")
tanh = _named("tanh")
asinh = _named("asinh")
acosh = _named("acosh")
atanh = _named("atanh")
exp = _named("exp")
exp2 = _named("exp2")
expm1 = _named("expm1")
log = _named("log")
log2 = _named("log2")
log10 = _named("log10")
log1p = _named("log1p")
logaddexp = _named("logaddexp")
sqrt = _named("sqrt")
cbrt = _named("cbrt")
hypot = _named("hypot")
pow = _named("pow")
fma = _named("fma")
fmod = _named("fmod")
sigmoid = _named("sigmoid")
relu = _named("relu")
erf = _named("erf")
erfc = _named("erfc")
gamma = _named("gamma")
lgamma = _named("lgamma")
digamma = _named("digamma")
trigamma = _named("trigamma")
sign = _named("sign")
copysign = _named("copysign")
minimum = _named("minimum")
maximum = _named("maximum")
floor = _named("floor")
ceil = _named("ceil")
trunc = _named("trunc")
rint = _named("rint")
isnan = _named("isnan")
isinf = _named("isinf")
isfinite = _named("isfinite")
signbit = _named("signbit")
nextafter = _named("nextafter")
where = _named("where")


# -- made of ops: plain Python, compiled into a kernel like a function of the user ----------------


def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) without overflow.

    Parameters
    ----------
    x : number
        Argument.

    Returns
    -------
    number
        The value.

    Examples
    --------
    >>> round(softplus(0.0), 12) == round(math.log(2), 12)
    True
    """
    return logaddexp(x, 0.0)


def silu(x: Any) -> Any:
    """Return x · sigmoid(x).

    Parameters
    ----------
    x : number
        Argument.

    Returns
    -------
    number
        The value.
    """
    return x * sigmoid(x)


def gelu(x: Any) -> Any:
    """Return x · Φ(x), with the normal distribution function Φ (not its tanh approximation).

    Parameters
    ----------
    x : number
        Argument.

    Returns
    -------
    number
        The value.
    """
    return 0.5 * x * erfc(x * (-1 / math.sqrt(2)))


def elu(x: Any, alpha: Any = 1.0) -> Any:
    """Return x where it is positive, else alpha · (exp(x) - 1).

    Parameters
    ----------
    x : number
        Argument.
    alpha : number
        What it tends to far left, negated.

    Returns
    -------
    number
        The value.
    """
    return x if x > 0 else alpha * expm1(x)


def leaky_relu(x: Any, slope: Any = 0.01) -> Any:
    """Return x where it is positive, else slope · x.

    Parameters
    ----------
    x : number
        Argument.
    slope : number
        Derivative for negative arguments.

    Returns
    -------
    number
        The value.
    """
    return x if x > 0 else slope * x


def softsign(x: Any) -> Any:
    """Return x / (1 + |x|).

    Parameters
    ----------
    x : number
        Argument.

    Returns
    -------
    number
        The value.
    """
    return x / (1 + abs(x))


def logit(x: Any) -> Any:
    """Return log(x / (1 - x)), the inverse of sigmoid.

    Parameters
    ----------
    x : number
        Argument, between 0 and 1.

    Returns
    -------
    number
        The value.
    """
    return log(x) - log1p(-x)


def rsqrt(x: Any) -> Any:
    """Return 1 / √x.

    Parameters
    ----------
    x : number
        Argument.

    Returns
    -------
    number
        The value.
    """
    return 1 / sqrt(x)


def sinc(x: Any) -> Any:
    """Return sin(πx) / (πx), 1 at 0: the convention of NumPy.

    Parameters
    ----------
    x : number
        Argument.

    Returns
    -------
    number
        The value.
    """
    t = math.pi * x
    return 1.0 if t == 0 else sin(t) / t


def xlogy(x: Any, y: Any) -> Any:
    """Return x · log(y), 0 where x is 0 unless y is nan.

    Parameters
    ----------
    x, y : number
        Arguments.

    Returns
    -------
    number
        The value.
    """
    return 0.0 if x == 0 and not isnan(y) else x * log(y)


def xlog1py(x: Any, y: Any) -> Any:
    """Return x · log(1 + y), 0 where x is 0 unless y is nan.

    Parameters
    ----------
    x, y : number
        Arguments.

    Returns
    -------
    number
        The value.
    """
    return 0.0 if x == 0 and not isnan(y) else x * log1p(y)
