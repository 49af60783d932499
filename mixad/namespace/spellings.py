"""The namespace as NumPy and torch spell it: their functions, called on traced values, come here.

A spelling is a table: under a library's name of a function, the function of the namespace that it
is and the library's parameters.  `__array_ufunc__`, `__array_function__`, `__torch_function__` and
the methods of tracers look names up in it; what is not there is refused by name, never computed
without its derivative.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mixad.backends.arrays import Library
from mixad.namespace.array_methods import METHODS, NUMPY_METHODS
from mixad.namespace.complex_numbers import conj, imag, real
from mixad.namespace.creation import asarray, full, full_like, linspace, tril, triu
from mixad.namespace.data_types import astype
from mixad.namespace.decompositions import (
    cholesky,
    complex_eig,
    complex_eigvals,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    qr,
    svd,
    svdvals,
)
from mixad.namespace.determinants import det, slogdet
from mixad.namespace.elementwise import (
    angle,
    clip,
    elementwise,
    operand,
    power,
    rounded,
    square,
    where,
)
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
from mixad.namespace.indexing import take, take_along_axis
from mixad.namespace.joining import (
    broadcast_arrays,
    broadcast_to,
    concat,
    meshgrid,
    repeat,
    stack,
    tile,
    unstack,
)
from mixad.namespace.linear_algebra import (
    cross,
    diagonal,
    dot,
    matmul,
    outer,
    tensordot,
    trace,
    vecdot,
)
from mixad.namespace.manipulation import (
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    reshape,
    roll,
    squeeze,
)
from mixad.namespace.names import FUNCTIONS
from mixad.namespace.norms import matrix_norm, norm, vector_norm
from mixad.namespace.numpy_functions import NUMPY_FUNCTIONS
from mixad.namespace.scipy_functions import SCIPY
from mixad.namespace.sets import unique_all, unique_counts, unique_inverse, unique_values
from mixad.namespace.solving import inv, matrix_power, pinv, solve
from mixad.namespace.sorting import sort
from mixad.namespace.special import SPECIAL
from mixad.namespace.spelling import Function, Spelling, function_of
from mixad.namespace.statistical import (
    amax,
    amin,
    cumprod,
    cumsum,
    cumulative_prod,
    cumulative_sum,
    mean,
    prod,
    std,
    total,
    var,
)
from mixad.namespace.torch_elementwise import TORCH_ELEMENTWISE
from mixad.namespace.torch_methods import TORCH_METHODS
from mixad.namespace.torch_moves import TORCH_MOVES
from mixad.namespace.torch_neural import TORCH_NEURAL
from mixad.namespace.torch_products import TORCH_PRODUCTS
from mixad.namespace.torch_reductions import TORCH_REDUCTIONS, over_all_for_none
from mixad.namespace.utility import diff
from mixad.tape.tracer import plain

__all__ = ["NUMPY", "STANDARD", "TORCH", "spelling_of", "spelling_of_ufunc"]


def _unary(op: str) -> Function:
    return Function(lambda x: elementwise(op, x), ("x",))


def _binary(op: str) -> Function:
    return _of_operands(lambda x, y: elementwise(op, x, y))


def _of_operands(evaluate: Callable[[Any, Any], Any]) -> Function:
    """Take what operators take: a list beside a traced NumPy array is an array."""
    return Function(lambda x, y: evaluate(operand(x, y), operand(y, x)), ("x", "y"))


def _compared(compare: Callable[[Any, Any], Any]) -> Function:
    """Comparisons have no derivative: they give plain arrays, which `if` and `while` can test."""
    return Function(lambda x, y: compare(plain(x), plain(y)), ("x", "y"))


_ONE = (
    "abs sign sqrt floor ceil trunc exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan "
    "sinh cosh tanh asinh acosh atanh isnan isinf isfinite signbit"
).split()
_TWO = "fmod minimum maximum copysign nextafter logaddexp atan2 hypot".split()
_COMPARISONS = {
    "less": operator.lt, "less_equal": operator.le, "greater": operator.gt,
    "greater_equal": operator.ge, "equal": operator.eq, "not_equal": operator.ne,
}  # fmt: skip

_COMMON: dict[str, Function] = {
    **{op: _unary(op) for op in _ONE},
    **{op: _binary(op) for op in _TWO},
    **{name: _compared(compare) for name, compare in _COMPARISONS.items()},
    "add": _binary("add"),
    "subtract": _binary("sub"),
    "multiply": _binary("mul"),
    "divide": _binary("div"),
    "floor_divide": _binary("floordiv"),
    "remainder": _binary("mod"),
    "pow": _of_operands(power),
    "negative": _unary("neg"),
    "positive": Function(lambda x: x, ("x",)),
    "round": _unary("rint"),
    "square": Function(square, ("x",)),
    "matmul": _of_operands(matmul),
}
"""What NumPy, torch and the standard have under one name."""

_LINALG = {
    "linalg.matmul": _COMMON["matmul"],
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

_ALONG_ONE, _ALONG_SEVERAL = (fft, ifft, rfft, irfft, hfft, ihfft), (fftn, ifftn, rfftn, irfftn)
_TRANSFORMS, _SHIFTS = (*_ALONG_ONE, *_ALONG_SEVERAL), (fftshift, ifftshift)

_RECIPROCAL = Function(lambda x: 1 / x, ("x",))

_ARRAY_API = {
    **_COMMON,
    "sum": function_of(total),
    "mean": function_of(mean),
    "reshape": function_of(reshape, "x shape copy"),
    "astype": function_of(astype),
    "reciprocal": _RECIPROCAL,
    "clip": function_of(clip),
    "real": function_of(real),
    "conj": function_of(conj),
    "imag": function_of(imag),
    "permute_dims": function_of(permute_dims),
    "matrix_transpose": function_of(matrix_transpose),
    "where": function_of(where),
    "asarray": function_of(asarray),
    "full": function_of(full),
    "full_like": function_of(full_like),
    "meshgrid": function_of(meshgrid),
    "tril": function_of(tril),
    "triu": function_of(triu),
    "take": function_of(take),
    "take_along_axis": function_of(take_along_axis),
    "broadcast_arrays": function_of(broadcast_arrays),
    "broadcast_to": function_of(broadcast_to),
    "concat": function_of(concat),
    "expand_dims": function_of(expand_dims),
    "flip": function_of(flip),
    "moveaxis": function_of(moveaxis),
    "repeat": function_of(repeat),
    "roll": function_of(roll),
    "squeeze": function_of(squeeze),
    "stack": function_of(stack),
    "tile": function_of(tile),
    "unstack": function_of(unstack),
    "sort": function_of(sort),
    "max": function_of(amax),
    "min": function_of(amin),
    "prod": function_of(prod),
    "std": function_of(std),
    "var": function_of(var),
    "cumulative_sum": function_of(cumulative_sum),
    "cumulative_prod": function_of(cumulative_prod),
    "diff": function_of(diff),
    "tensordot": function_of(tensordot),
    "vecdot": function_of(vecdot),
    "linspace": function_of(linspace),
    "unique_all": function_of(unique_all),
    "unique_counts": function_of(unique_counts),
    "unique_inverse": function_of(unique_inverse),
    "unique_values": function_of(unique_values),
    **{f"fft.{f.__name__}": function_of(f) for f in (*_TRANSFORMS, *_SHIFTS)},
    **_LINALG,
    "linalg.eig": function_of(complex_eig),
    "linalg.eigvals": function_of(complex_eigvals),
}

_IN_PLACE = frozenset(("partition", "sort"))

STANDARD = Spelling(
    "xp",
    lambda function: function.__name__,
    {name: function for name, function in _ARRAY_API.items() if name in FUNCTIONS},
    constant=frozenset(
        "empty_like ones_like zeros_like can_cast finfo isdtype result_type bitwise_and "
        "bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor logical_and "
        "logical_not logical_or logical_xor argmax argmin count_nonzero nonzero searchsorted isin "
        "argsort all any linalg.matrix_rank".split()
    ),
    no_methods=_IN_PLACE,
    methods=METHODS,
)
"""The array API standard, and the methods of tracers over arrays of libraries without a table."""


def _named(names: str) -> dict[str, Function]:
    """Return functions under other names: ``"theirs=ours ..."``."""
    pairs = (pair.split("=") for pair in names.split())
    return {theirs: _COMMON[ours] for theirs, ours in pairs}


_INVERSES = (
    "arcsin=asin arccos=acos arctan=atan arcsinh=asinh arccosh=acosh arctanh=atanh arctan2=atan2"
)


def _numpy_name(function: Any) -> str | None:
    name: str = function.__name__
    for module, prefix in ((np, ""), (np.linalg, "linalg."), (np.fft, "fft.")):
        if getattr(module, name, None) is function:
            return prefix + name
    return None


NUMPY = Spelling(
    "numpy",
    _numpy_name,
    {
        **_COMMON,
        **_named(f"{_INVERSES} absolute=abs fabs=abs rint=round power=pow"),
        "cbrt": _unary("cbrt"),
        **dict.fromkeys(("round", "around"), function_of(rounded, "a decimals out")),
        "real": function_of(real, "val=x"),
        "imag": function_of(imag, "val=x"),
        "angle": function_of(angle, "z=x deg"),
        **dict.fromkeys(("conj", "conjugate"), function_of(conj)),
        "reciprocal": _RECIPROCAL,
        "sum": function_of(total, "a axis dtype out keepdims initial where"),
        "mean": function_of(mean, "a axis dtype out keepdims where"),
        "prod": function_of(prod, "a axis dtype out keepdims initial where"),
        **dict.fromkeys(("max", "amax"), function_of(amax, "a axis out keepdims initial where")),
        **dict.fromkeys(("min", "amin"), function_of(amin, "a axis out keepdims initial where")),
        "std": function_of(std, "a axis dtype out ddof=correction keepdims where mean"),
        "var": function_of(var, "a axis dtype out ddof=correction keepdims where mean"),
        "cumsum": function_of(cumsum, "a axis dtype out"),
        "cumprod": function_of(cumprod, "a axis dtype out"),
        "cumulative_sum": function_of(cumulative_sum, "x axis dtype out include_initial"),
        "cumulative_prod": function_of(cumulative_prod, "x axis dtype out include_initial"),
        "diff": function_of(diff, "a n axis prepend append"),
        "clip": function_of(clip, "a a_min=min a_max=max out min max"),
        "reshape": function_of(reshape, "a shape order copy"),
        "transpose": function_of(permute_dims, "a axes"),
        "matrix_transpose": function_of(matrix_transpose),
        "moveaxis": function_of(moveaxis, "a source destination"),
        "expand_dims": function_of(expand_dims, "a axis"),
        "squeeze": function_of(squeeze, "a axis"),
        "flip": function_of(flip, "m=x axis"),
        "roll": function_of(roll, "a shift axis"),
        "repeat": function_of(repeat, "a repeats axis"),
        "tile": function_of(tile, "A=x reps=repetitions"),
        "broadcast_to": function_of(broadcast_to, "array=x shape subok"),
        "concatenate": function_of(concat, "arrays axis out dtype casting"),
        "stack": function_of(stack, "arrays axis out dtype casting"),
        "unstack": function_of(unstack, "x axis"),
        "where": function_of(where),
        "take": function_of(take, "a indices axis out mode"),
        "take_along_axis": function_of(take_along_axis, "arr=x indices axis"),
        "sort": function_of(sort, "a axis kind order stable"),
        "tril": function_of(tril, "m=x k"),
        "triu": function_of(triu, "m=x k"),
        **_LINALG,
        "linalg.norm": function_of(norm),
        **{f"fft.{f.__name__}": function_of(f, "a n axis norm out") for f in _ALONG_ONE},
        **{f"fft.{f.__name__}": function_of(f, "a s axes norm out") for f in _ALONG_SEVERAL},
        **{f"fft.{f.__name__}": function_of(f) for f in _SHIFTS},
        "dot": function_of(dot),
        "tensordot": function_of(tensordot),
        "vecdot": function_of(vecdot),
        "array": function_of(asarray, "object=x dtype copy order subok ndmin"),
        "full": function_of(full, "shape fill_value dtype order device"),
        "full_like": function_of(full_like, "a fill_value dtype order subok shape device"),
        "astype": function_of(astype, "x dtype order casting subok copy"),
        **NUMPY_FUNCTIONS,
    },
    {"a": "x"},
    frozenset(
        "shape ndim size zeros_like ones_like empty_like isclose allclose array_equal "
        "array_equiv any all argmax argmin argsort count_nonzero nonzero flatnonzero argwhere "
        "searchsorted iscomplex iscomplexobj isreal isrealobj logical_and logical_or logical_xor "
        "logical_not linalg.matrix_rank argpartition itemsize nbytes".split()
    ),
    no_methods=_IN_PLACE,
    takes_lists=True,
    methods=NUMPY_METHODS,
)


def _torch_name(function: Any) -> str | None:
    """Return the table's name of a function; of methods of tensors no module is known."""
    prefix = _TORCH_MODULES.get(getattr(function, "__module__", None))
    return None if prefix is None else prefix + function.__name__


def _is_torch_method(function: Any) -> bool:
    return getattr(function, "__module__", None) in (None, "torch._tensor")


_TORCH_MODULES: dict[str | None, str] = {
    **dict.fromkeys((None, "torch", "torch._tensor", "torch.functional"), ""),
    **dict.fromkeys(("torch._C._linalg", "torch._C._fft", "torch._C._special"), ""),
    **dict.fromkeys(("torch.nn.functional", "torch._C._nn"), "nn.functional."),
}
"""Where functions are from, and what is before their names in the table."""

TORCH = Spelling(
    "torch",
    _torch_name,
    {
        **{name: function for name, function in _COMMON.items() if name != "equal"},
        **_named(
            f"{_INVERSES} absolute=abs sub=subtract mul=multiply div=divide true_divide=divide "
            "__floordiv__=floor_divide neg=negative lt=less le=less_equal gt=greater "
            "ge=greater_equal eq=equal ne=not_equal"
        ),
        **{op: _unary(op) for op in ("sigmoid", "relu", "erf", "erfc", "lgamma", "digamma")},
        **{f.__name__: function_of(f, "input") for f in (real, imag, conj, angle)},
        "sum": function_of(over_all_for_none(total), "input dim keepdim dtype"),
        "mean": function_of(over_all_for_none(mean), "input dim keepdim dtype"),
        "prod": function_of(prod, "input dim keepdim dtype"),
        "amax": function_of(over_all_for_none(amax), "input dim keepdim"),
        "amin": function_of(over_all_for_none(amin), "input dim keepdim"),
        "cumsum": function_of(cumulative_sum, "input dim dtype"),
        "cumprod": function_of(cumulative_prod, "input dim dtype"),
        "diff": function_of(diff, "input n dim prepend append"),
        **dict.fromkeys(("clip", "clamp"), function_of(clip, "input min max")),
        "reshape": function_of(reshape, "input shape"),
        "permute": function_of(permute_dims, "input dims=axes"),
        "movedim": function_of(moveaxis, "input source destination"),
        "unsqueeze": function_of(expand_dims, "input dim"),
        "flip": function_of(flip, "input dims=axis"),
        "roll": function_of(roll, "input shifts=shift dims=axis"),
        "repeat_interleave": function_of(repeat, "input repeats dim"),
        "tile": function_of(tile, "input dims=repetitions"),
        "broadcast_to": function_of(broadcast_to, "input size=shape"),
        **dict.fromkeys(("cat", "concat"), function_of(concat, "tensors=arrays dim")),
        "stack": function_of(stack, "tensors=arrays dim"),
        "unbind": function_of(unstack, "input dim"),
        "where": function_of(where, "condition input other"),
        "index_select": function_of(take, "input dim index=indices"),
        "take_along_dim": function_of(take_along_axis, "input indices dim"),
        "dot": function_of(dot, "input=a tensor=b"),
        **{f"fft_{f.__name__}": function_of(f, "input n dim norm") for f in _ALONG_ONE},
        **{
            f"fft_{f.__name__}": function_of(f, "input s dim=axes norm") for f in _ALONG_SEVERAL
        },
        **{f"fft_{f.__name__}": function_of(f, "input dim=axes") for f in _SHIFTS},
        "linalg_inv": function_of(inv, "A=x"),
        "linalg_solve": function_of(solve, "A=a B=b"),
        "linalg_det": function_of(det, "A=x"),
        "linalg_slogdet": function_of(slogdet, "A=x"),
        "linalg_cholesky": function_of(cholesky, "input upper"),
        "linalg_qr": function_of(qr, "A=x mode"),
        "linalg_eig": function_of(eig, "A=x"),
        "linalg_eigvals": function_of(eigvals, "A=x"),
        "linalg_eigvalsh": function_of(eigvalsh, "A=x"),
        "linalg_eigh": function_of(eigh, "A=x"),
        "linalg_svd": function_of(svd, "A=x full_matrices"),
        "linalg_svdvals": function_of(svdvals, "A=x"),
        "tril": function_of(tril, "input diagonal=k"),
        "triu": function_of(triu, "input diagonal=k"),
        "astype": STANDARD.functions["astype"],
        **TORCH_ELEMENTWISE,
        **TORCH_REDUCTIONS,
        **TORCH_PRODUCTS,
        **TORCH_MOVES,
        **TORCH_NEURAL,
        **{name: TORCH_METHODS[name] for name in ("clone", "detach")},
    },
    {"input": "x", "other": "y", "exponent": "y", "dim": "axis", "keepdim": "keepdims"},
    frozenset(
        "numel zeros_like ones_like empty_like rand_like randn_like isclose allclose "
        "equal any all argmax argmin argsort count_nonzero nonzero is_floating_point is_complex "
        "logical_and logical_or logical_xor logical_not itemsize element_size nbytes is_contiguous "
        "new_zeros new_ones new_full new_empty new_tensor".split()
    ),
    methods={**METHODS, **TORCH_METHODS},
    is_method=_is_torch_method,
)  # fmt: skip


UFUNCS = Spelling("scipy.special", lambda ufunc: ufunc.__name__, SPECIAL | SCIPY, takes_lists=True)
"""Special functions as SciPy's ufuncs."""


def spelling_of_ufunc(ufunc: Any) -> Spelling:
    """Return the table of a function that NumPy calls elementwise."""
    special = sys.modules.get("scipy.special")
    return UFUNCS if getattr(special, ufunc.__name__, None) is ufunc else NUMPY


def spelling_of(library: Library) -> Spelling:
    """Return how methods of a library's arrays are called."""
    return {"numpy": NUMPY, "torch": TORCH}.get(library.name, STANDARD)
