"""Parts of the tables of spellings: what the standard, NumPy and torch have in common."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from mixad.namespace.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from mixad.namespace.determinants import det, slogdet
from mixad.namespace.elementwise import elementwise, operand, square
from mixad.namespace.fourier import (
    fft,
    fftn,
    fftshift,
    hfft,
    ifft,
    ifftn,
    ifftshift,
    ihfft,
    irfft,
    irfftn,
    rfft,
    rfftn,
)
from mixad.namespace.linear_algebra import (
    cross,
    diagonal,
    matmul,
    outer,
    tensordot,
    trace,
    vecdot,
)
from mixad.namespace.manipulation import matrix_transpose
from mixad.namespace.norms import matrix_norm, vector_norm
from mixad.namespace.powers import power
from mixad.namespace.solving import inv, matrix_power, pinv, solve
from mixad.namespace.spelling import BoundFunction, function_of
from mixad.scalar.names import Library, names_in, our_names
from mixad.tape.tracer import primal_value

__all__ = [
    "ALONG_ONE",
    "ALONG_SEVERAL",
    "COMMON",
    "LINALG",
    "SHIFTS",
    "other_names",
    "unary",
]


def unary(op: str) -> BoundFunction:
    """Return an elementwise function of one argument."""
    return BoundFunction(lambda x: elementwise(op, x), ("x",))


def _binary(op: str) -> BoundFunction:
    return _of_operands(lambda x, y: elementwise(op, x, y))


def _of_operands(evaluate: Callable[[Any, Any], Any]) -> BoundFunction:
    """Take the operands of operators: a list beside a traced NumPy array is an array."""
    return BoundFunction(lambda x, y: evaluate(operand(x, y), operand(y, x)), ("x", "y"))


def _comparison(compare: Callable[[Any, Any], Any]) -> BoundFunction:
    """Return a comparison: its results are plain arrays, which `if` and `while` can test."""
    return BoundFunction(lambda x, y: compare(primal_value(x), primal_value(y)), ("x", "y"))


_ONE = (
    "abs sign sqrt floor ceil trunc exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh isnan isinf isfinite signbit"
).split()
_TWO = "fmod minimum maximum copysign nextafter logaddexp atan2 hypot".split()
_COMPARISONS = {
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip

COMMON: dict[str, BoundFunction] = {
    **{op: unary(op) for op in _ONE},
    **{op: _binary(op) for op in _TWO},
    **{name: _comparison(compare) for name, compare in _COMPARISONS.items()},
    **{
        name: _binary(op)
        for op in ("add", "sub", "mul", "div", "floordiv", "mod")
        for name in names_in("standard", op)
    },
    "pow": _of_operands(power),
    "negative": unary("neg"),
    "positive": BoundFunction(lambda x: x, ("x",)),
    "round": unary("rint"),
    "square": BoundFunction(square, ("x",)),
    "matmul": _of_operands(matmul),
}
"""Functions that NumPy, torch and the standard have under one name."""

LINALG = {
    "linalg.matmul": COMMON["matmul"],
    "linalg.matrix_transpose": function_of(matrix_transpose),
    "linalg.tensordot": function_of(tensordot),
    "linalg.vecdot": function_of(vecdot),
    "linalg.outer": function_of(outer),
    "linalg.cross": function_of(cross),
    "linalg.diagonal": function_of(diagonal),
    "linalg.trace": function_of(trace),
    "linalg.inv": function_of(inv),
    "linalg.solve": function_of(solve),
    "linalg.det": function_of(det),
    "linalg.slogdet": function_of(slogdet),
    "linalg.pinv": function_of(pinv),
    "linalg.matrix_power": function_of(matrix_power),
    "linalg.cholesky": function_of(cholesky),
    "linalg.qr": function_of(qr),
    "linalg.eig": function_of(eig),
    "linalg.eigvals": function_of(eigvals),
    "linalg.eigh": function_of(eigh),
    "linalg.eigvalsh": function_of(eigvalsh),
    "linalg.svd": function_of(svd),
    "linalg.svdvals": function_of(svdvals),
    "linalg.vector_norm": function_of(vector_norm),
    "linalg.matrix_norm": function_of(matrix_norm),
}
"""The extension of the standard; NumPy has it under the same names."""

ALONG_ONE, ALONG_SEVERAL = (fft, ifft, rfft, irfft, hfft, ihfft), (fftn, ifftn, rfftn, irfftn)
TRANSFORMS, SHIFTS = (*ALONG_ONE, *ALONG_SEVERAL), (fftshift, ifftshift)


def other_names(library: Library) -> dict[str, BoundFunction]:
    """Return functions of `COMMON` under the other names that a library has for them."""
    pairs = ((theirs, names_in("standard", ours)) for theirs, ours in our_names(library).items())
    return {
        theirs: COMMON[standard[0]]
        for theirs, standard in pairs
        if standard and theirs not in COMMON and standard[0] in COMMON
    }
