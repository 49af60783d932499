"""The namespace as NumPy spells it: its functions, called on traced values, come here.

A spelling is a table: under a library's name of a function, the function of the namespace that it
is and the library's parameters.  `__array_ufunc__`, `__array_function__`, `__torch_function__` and
the methods of tracers look names up in it; what is not there is refused by name, never computed
without its derivative.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np

from mixad.backends.arrays import Library
from mixad.namespace.array_methods import METHODS, NUMPY_METHODS, copy_array
from mixad.namespace.axis_of_numbers import NumbersHaveAnAxis
from mixad.namespace.common_spellings import (
    ALONG_ONE,
    ALONG_SEVERAL,
    COMMON,
    LINALG,
    SHIFTS,
    TRANSFORMS,
    other_names,
    unary,
)
from mixad.namespace.complex_numbers import conj, imag, real
from mixad.namespace.creation import (
    asarray,
    empty_like,
    full,
    full_like,
    linspace,
    ones_like,
    tril,
    triu,
    zeros_like,
)
from mixad.namespace.data_types import astype
from mixad.namespace.decompositions import complex_eig, complex_eigvals
from mixad.namespace.elementwise import angle, clip, round_to_decimals, where
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
from mixad.namespace.linear_algebra import tensordot, vecdot
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
from mixad.namespace.masked_reductions import (
    masked_max,
    masked_mean,
    masked_min,
    masked_prod,
    masked_std,
    masked_total,
    masked_var,
)
from mixad.namespace.names import FUNCTIONS
from mixad.namespace.norms import norm
from mixad.namespace.numpy_functions import NUMPY_FUNCTIONS
from mixad.namespace.scipy_functions import SCIPY
from mixad.namespace.sets import unique_all, unique_counts, unique_inverse, unique_values
from mixad.namespace.sorting import sort
from mixad.namespace.special import SPECIAL
from mixad.namespace.spelling import BoundFunction, LibraryBinding, function_of, rename_parameters
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
from mixad.namespace.utility import diff

__all__ = ["NUMPY", "STANDARD", "UFUNCS", "spelling_of", "spelling_of_ufunc", "torch_spelling"]


UNIQUE = (unique_all, unique_counts, unique_inverse, unique_values)

_RECIPROCAL = BoundFunction(lambda x: 1 / x, ("x",))

_ARRAY_API = {
    **COMMON,
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
    "meshgrid": BoundFunction(meshgrid, ()),
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
    **{f.__name__: function_of(f) for f in UNIQUE},
    **{f"fft.{f.__name__}": function_of(f) for f in (*TRANSFORMS, *SHIFTS)},
    **LINALG,
    "linalg.eig": function_of(complex_eig),
    "linalg.eigvals": function_of(complex_eigvals),
}

_IN_PLACE = frozenset(("partition", "resize", "sort"))
_EXTREME = "a axis out keepdims initial where"
_REDUCTION = "a axis dtype out keepdims initial where"
_SPREAD = "a axis dtype out ddof=correction keepdims * where mean correction"
_LIKE = "dtype order subok shape * device"

STANDARD = LibraryBinding(
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


_NUMPYS_MODULES = (
    (np, ""), (np.linalg, "linalg."), (np.fft, "fft."), (np.lib.stride_tricks, "lib.stride_tricks.")
)  # fmt: skip


def _numpy_name(function: Any) -> str | None:
    name: str = function.__name__
    for module, prefix in _NUMPYS_MODULES:
        if getattr(module, name, None) is function:
            return prefix + name
    return None


_OF_MATRICES = {
    **dict.fromkeys(("linalg.matmul", "linalg.outer"), "x1 x2 /"),
    **dict.fromkeys(("linalg.vecdot", "linalg.cross"), "x1 x2 / * axis"),
    **dict.fromkeys(("linalg.matrix_transpose", "linalg.svdvals"), "x /"),
    **{f"linalg.{name}": "a" for name in ("inv", "det", "slogdet", "eig", "eigvals")},
    "linalg.solve": "a b",
    "linalg.matrix_power": "a n",
    "linalg.diagonal": "x / * offset",
    "linalg.trace": "x / * offset dtype",
    "linalg.pinv": "a rcond=rtol hermitian * rtol",
    "linalg.cholesky": "a / * upper",
    "linalg.vector_norm": "x / * axis keepdims ord",
    "linalg.matrix_norm": "x / * keepdims ord",
}

_OF_UFUNCS = "out * where casting order dtype subok signature"
_OF_GUFUNCS = "x1 x2 / out * axes axis keepdims casting order dtype subok signature"


def _operand_names(count: int) -> str:
    """Return NumPy's names of the operands of ufuncs."""
    return "x" if count == 1 else " ".join(f"x{at}" for at in range(1, count + 1))


def _with_options_of_ufuncs(functions: dict[str, BoundFunction]) -> dict[str, BoundFunction]:
    """Return functions; NumPy's elementwise ones get the parameters that all of these have."""
    return {name: _as_ufunc(getattr(np, name, None), f) for name, f in functions.items()}


def _as_ufunc(function: Any, found: BoundFunction) -> BoundFunction:
    if not isinstance(function, np.ufunc):
        return found
    if function.signature is not None:
        return rename_parameters(found, _OF_GUFUNCS)
    return rename_parameters(found, f"{_operand_names(function.nin)} / {_OF_UFUNCS}")


NUMPY = NumbersHaveAnAxis(
    "numpy",
    _numpy_name,
    _with_options_of_ufuncs(
        {
            **COMMON,
            **other_names("numpy"),
            "fabs": COMMON["abs"],
            "rint": COMMON["round"],
            "cbrt": unary("cbrt"),
            **dict.fromkeys(("round", "around"), function_of(round_to_decimals, "a decimals out")),
            "real": function_of(real, "val=x"),
            "imag": function_of(imag, "val=x"),
            "angle": function_of(angle, "z=x deg"),
            **dict.fromkeys(("conj", "conjugate"), function_of(conj)),
            "reciprocal": _RECIPROCAL,
            "sum": function_of(masked_total, _REDUCTION),
            "mean": function_of(masked_mean, "a axis dtype out keepdims * where"),
            "prod": function_of(masked_prod, _REDUCTION),
            **dict.fromkeys(("max", "amax"), function_of(masked_max, _EXTREME)),
            **dict.fromkeys(("min", "amin"), function_of(masked_min, _EXTREME)),
            "std": function_of(masked_std, _SPREAD),
            "var": function_of(masked_var, _SPREAD),
            "cumsum": function_of(cumsum, "a axis dtype out"),
            "cumprod": function_of(cumprod, "a axis dtype out"),
            "cumulative_sum": function_of(cumulative_sum, "x / * axis dtype out include_initial"),
            "cumulative_prod": function_of(cumulative_prod, "x / * axis dtype out include_initial"),
            "diff": function_of(diff, "a n axis prepend append"),
            "clip": function_of(clip, "a a_min=min a_max=max out * min max"),
            "reshape": function_of(reshape, "a / shape order * copy"),
            "transpose": function_of(permute_dims, "a axes"),
            "matrix_transpose": function_of(matrix_transpose, "x /"),
            "moveaxis": function_of(moveaxis, "a source destination"),
            "expand_dims": function_of(expand_dims, "a axis"),
            "squeeze": function_of(squeeze, "a axis"),
            "flip": function_of(flip, "m=x axis"),
            "roll": function_of(roll, "a shift axis"),
            "repeat": function_of(repeat, "a repeats axis"),
            "tile": function_of(tile, "A=x reps=repetitions"),
            "broadcast_to": function_of(broadcast_to, "array=x shape subok"),
            "concatenate": function_of(concat, "arrays / axis out * dtype casting"),
            "stack": function_of(stack, "arrays axis out * dtype casting"),
            "unstack": function_of(unstack, "x / * axis"),
            "take": function_of(take, "a indices axis out mode"),
            "take_along_axis": function_of(take_along_axis, "arr=x indices axis"),
            **{
                name: rename_parameters(LINALG[name], given) for name, given in _OF_MATRICES.items()
            },
            "linalg.norm": function_of(norm),
            **{f"fft.{f.__name__}": function_of(f, "a n axis norm out") for f in ALONG_ONE},
            **{f"fft.{f.__name__}": function_of(f, "a s axes norm out") for f in ALONG_SEVERAL},
            **{f"fft.{f.__name__}": function_of(f, "x axes") for f in SHIFTS},
            "vecdot": function_of(vecdot),
            "array": function_of(asarray, "object=x dtype * copy order subok ndmin ndmax like"),
            "asarray": function_of(asarray, "a dtype order * device copy like"),
            "asanyarray": function_of(asarray, "a dtype order * device copy like"),
            "ascontiguousarray": function_of(asarray, "a dtype * like"),
            "full": function_of(full, "shape fill_value dtype order * device like"),
            "full_like": function_of(full_like, f"a fill_value {_LIKE}"),
            "ones_like": function_of(ones_like, f"a {_LIKE}"),
            "zeros_like": function_of(zeros_like, f"a {_LIKE}"),
            "empty_like": function_of(empty_like, f"prototype=x / {_LIKE}"),
            "copy": function_of(copy_array, "a order subok"),
            "astype": function_of(astype, "x dtype / * copy device"),
            **{f.__name__: function_of(f, "x") for f in UNIQUE},
            **NUMPY_FUNCTIONS,
        }
    ),
    {"a": "x"},
    frozenset(
        "shape ndim size isclose allclose array_equal "
        "array_equiv any all argmax argmin argsort count_nonzero nonzero flatnonzero argwhere "
        "searchsorted isin iscomplex iscomplexobj isreal isrealobj logical_and logical_or "
        "logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert left_shift right_shift "
        "linalg.matrix_rank argpartition itemsize nbytes can_cast result_type digitize lexsort "
        "nanargmax nanargmin isneginf isposinf".split()
    ),
    no_methods=_IN_PLACE,
    takes_lists=True,
    methods=NUMPY_METHODS,
)


UFUNCS = LibraryBinding(
    "scipy.special",
    lambda ufunc: ufunc.__name__,
    {
        name: rename_parameters(f, f"{_operand_names(len(f.parameters))} / {_OF_UFUNCS}")
        for name, f in (SPECIAL | SCIPY).items()
    },
    takes_lists=True,
)
"""Special functions as SciPy's ufuncs."""


def spelling_of_ufunc(ufunc: Any) -> LibraryBinding:
    """Return the spelling of a function that NumPy calls elementwise."""
    special = sys.modules.get("scipy.special")
    return UFUNCS if getattr(special, ufunc.__name__, None) is ufunc else NUMPY


def spelling_of(library: Library) -> LibraryBinding:
    """Return the spelling of a library for methods of its arrays."""
    if library.name == "torch":
        return torch_spelling()
    return NUMPY if library.name == "numpy" else STANDARD


@cache
def torch_spelling() -> LibraryBinding:
    """Return torch's spelling; its import is for those who use torch."""
    from mixad.namespace.torch_spellings import TORCH

    return TORCH
