"""Special functions that SciPy computes and that are differentiated here: a table of derivatives.

Functions of `mixad.special` are compiled; SciPy evaluates the others on NumPy arrays. Their
derivatives are formulas in the grammar of the op table's, with functions of both kinds.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from mixad.backends.arrays import NUMPY
from mixad.errors import TracerError
from mixad.namespace.data_types import of_one_type
from mixad.namespace.elementwise import elementwise
from mixad.namespace.joining import broadcast_arrays
from mixad.namespace.special import SPECIAL
from mixad.namespace.spelling import BoundFunction, OfOperands
from mixad.scalar.expression import Call, Name, Number, expression
from mixad.scalar.ops import BY_NAME
from mixad.tape.node import library_of_value
from mixad.tape.tracer import Tracer, primal_value
from mixad.tape.values_rule import ValuesRule, apply_values_rule

__all__ = ["SCIPY"]


@dataclass(frozen=True)
class Derivatives:
    """The derivatives of one of SciPy's functions."""

    parameters: tuple[str, ...]  # as SciPy names them
    partials: tuple[str | None, ...]  # expressions of these and of the value out; None: refused


def _partials(parameters: str, *partials: str | None) -> Derivatives:
    return Derivatives(tuple(parameters.split()), partials)


_DEGREE = math.radians(1)
_ROOT_TWO_PI = math.sqrt(2 * math.pi)

_CHI2 = "0.5 * exp(xlogy(0.5 * v - 1, 0.5 * {x}) - 0.5 * {x} - gammaln(0.5 * v))"
_GAMMA = "exp(xlogy(a - 1, {x}) - {x} - gammaln(a))"
_BETA = "exp(xlogy(a - 1, {x}) + xlog1py(b - 1, -{x}) - betaln(a, b))"
_STUDENT = (
    "exp(-betaln(0.5, 0.5 * df) - 0.5 * log(df) - 0.5 * (df + 1) * log1p({x} * {x} / df))"
)  # fmt: skip
_FISHER = (
    "exp(0.5 * dfn * log(dfn / dfd) + xlogy(0.5 * dfn - 1, {x})"
    " - 0.5 * (dfn + dfd) * log1p(dfn * {x} / dfd) - betaln(0.5 * dfn, 0.5 * dfd))"
)
"""Densities of distributions, at the point {x}."""


def _distribution(parameters: str, density: str, *, sign: str = "") -> Derivatives:
    """Return a distribution function's derivatives, or its complement's, in its last parameter."""
    *others, x = parameters.split()
    return _partials(parameters, *[None] * len(others), sign + density.format(x=x))


def _quantile(parameters: str, density: str, *, sign: str = "") -> Derivatives:
    """Return the derivatives of a distribution function's inverse, in its last parameter."""
    nothing = [None] * (len(parameters.split()) - 1)
    return _partials(parameters, *nothing, f"{sign}1 / ({density.format(x='out')})")


DERIVATIVES: Mapping[str, Derivatives] = {
    "betainc": _distribution("a b x", _BETA),
    "betaincc": _distribution("a b x", _BETA, sign="-"),
    "betaincinv": _quantile("a b y", _BETA),
    "boxcox": _partials("x lmbda", "pow(x, lmbda - 1)", None),
    "boxcox1p": _partials("x lmbda", "pow(1 + x, lmbda - 1)", None),
    "chdtr": _distribution("v x", _CHI2),
    "chdtrc": _distribution("v x", _CHI2, sign="-"),
    "chdtri": _quantile("v p", _CHI2, sign="-"),
    "fdtr": _distribution("dfn dfd x", _FISHER),
    "fdtrc": _distribution("dfn dfd x", _FISHER, sign="-"),
    "fdtri": _quantile("dfn dfd p", _FISHER),
    "gammaincinv": _quantile("a y", _GAMMA),
    "gammainccinv": _quantile("a y", _GAMMA, sign="-"),
    "gammasgn": _partials("x", "0 * x"),
    "hyp0f1": _partials("v z", None, "hyp0f1(v + 1, z) / v"),
    "hyp1f1": _partials("a b x", None, None, "a / b * hyp1f1(a + 1, b + 1, x)"),
    "hyp2f1": _partials("a b c z", None, None, None, "a * b / c * hyp2f1(a + 1, b + 1, c + 1, z)"),
    "inv_boxcox": _partials("y lmbda", "pow(out, 1 - lmbda)", None),
    "inv_boxcox1p": _partials("y lmbda", "pow(1 + out, 1 - lmbda)", None),
    "iv": _partials("v z", None, "0.5 * (iv(v - 1, z) + iv(v + 1, z))"),
    "ive": _partials("v z", None, "0.5 * (ive(v - 1, z) + ive(v + 1, z)) - sign(z) * out"),
    "jv": _partials("v z", None, "0.5 * (jv(v - 1, z) - jv(v + 1, z))"),
    "k0": _partials("x", "-k1(x)"),
    "k1": _partials("x", "-0.5 * (k0(x) + kv(2, x))"),
    "kv": _partials("v z", None, "-0.5 * (kv(v - 1, z) + kv(v + 1, z))"),
    "kve": _partials("v z", None, "out - 0.5 * (kve(v - 1, z) + kve(v + 1, z))"),
    "log_ndtr": _partials("x", f"exp(-0.5 * x * x - out) / {_ROOT_TWO_PI}"),
    "loggamma": _partials("z", "digamma(z)"),
    "radian": _partials("d m s", f"{_DEGREE}", f"{_DEGREE / 60}", f"{_DEGREE / 3600}"),
    "rgamma": _partials("z", "-digamma(z) * out"),
    "stdtr": _distribution("df t", _STUDENT),
    "stdtrit": _quantile("df p", _STUDENT),
    "yv": _partials("v z", None, "0.5 * (yv(v - 1, z) - yv(v + 1, z))"),
    "yn": _partials("n x", None, "0.5 * (yv(n - 1, x) - yv(n + 1, x))"),
}  # fmt: skip
"""By SciPy's names, from https://dlmf.nist.gov: 8.17, 8.8, 10.6, 10.29, 13.3, 15.5."""


def _call_op(name: str, arguments: list[Any]) -> Any:
    """Return an op, or a function of either kind, of arguments with an array among them."""
    if name in SPECIAL:
        return SPECIAL[name].evaluate(*arguments)
    if name in DERIVATIVES:
        return _compute(name, *arguments)
    return elementwise(BY_NAME[name].name, *arguments)


def _value(node: Number | Name | Call, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression of arrays."""
    match node:
        case Number():
            return node.value
        case Name():
            return names[node.name]
    return _call_op(node.function, [_value(a, names) for a in node.args])


@cache
def _rule(name: str) -> ValuesRule:
    """Return the rule of a function that SciPy computes."""
    known = DERIVATIVES[name]

    def evaluate(xp: Any, *arrays: Any) -> tuple[Any]:
        return (np.asarray(getattr(importlib.import_module("scipy.special"), name)(*arrays)),)

    def cotangent(index: int) -> Callable[..., Any]:
        def pull(gs: Any, values: Any, *arguments: Any) -> Any:
            partial = known.partials[index]
            if partial is None:
                raise TracerError(_refusal(name, known.parameters[index]))
            names = dict(zip((*known.parameters, "out"), (*arguments, *values), strict=True))
            return elementwise("mul", gs[0], _value(expression(partial).root, names))

        return pull

    count = len(known.parameters)
    return ValuesRule(
        f"special.{name}", evaluate, tuple(map(cotangent, range(count))), tuple(range(count))
    )


def _refusal(name: str, parameter: str) -> str:
    return (
        f"the derivative of scipy.special.{name}() with respect to {parameter!r} is not available: "
        f"give the function one with mixad.custom_vjp, or say mixad.stop_gradient({parameter}) if "
        "none is meant"
    )


def _compute(name: str, *operands: Any) -> Any:
    """Return SciPy's result, recorded if an operand is traced: then a NumPy array."""
    arrays = [o if isinstance(o, Tracer) else np.asarray(o) for o in operands]
    for array in arrays:
        library = library_of_value(array)
        if library is not NUMPY:
            raise TracerError(
                f"scipy.special.{name}() of a value of {library.name} that is being "
                "differentiated is not available: SciPy computes it of NumPy arrays only; convert "
                "the arguments of the transform"
            )
    floats = [a if a.dtype.kind == "f" else np.float64(primal_value(a)) for a in arrays]
    (value,) = apply_values_rule(_rule(name), *broadcast_arrays(*of_one_type(name, floats)))
    return value


def _function(name: str) -> BoundFunction:
    def evaluate(*operands: Any) -> Any:
        return _compute(name, *operands)

    evaluate.__name__ = evaluate.__qualname__ = name
    evaluate.__doc__ = f"As scipy.special.{name}, with derivatives."
    return OfOperands(evaluate, DERIVATIVES[name].parameters)


SCIPY = {name: _function(name) for name in DERIVATIVES}
"""By SciPy's names."""
