"""What functions of numbers are called: by us, the standard, Python, NumPy, torch and SciPy.

Our name is that of the op, or of the function of `mixad.special`.  The table has the functions that
are called otherwise somewhere; all others have our name wherever they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

__all__ = ["LIBRARIES", "OUR_NAMES", "Library", "names_in", "our_names"]

Library = Literal["standard", "python", "numpy", "torch", "scipy"]
LIBRARIES: tuple[Library, ...] = ("standard", "python", "numpy", "torch", "scipy")
"""The standard of array libraries; `math` and `cmath`; NumPy and JAX; torch; `scipy.special`."""

_TABLE = {
    # ours: names in the standard, Python, NumPy, torch, SciPy
    "abs": ("abs", "", "abs absolute", "abs absolute", ""),
    "acos": ("acos", "acos", "acos arccos", "acos arccos", ""),
    "acosh": ("acosh", "acosh", "acosh arccosh", "acosh arccosh", ""),
    "and": ("bitwise_and", "", "bitwise_and", "bitwise_and", ""),
    "asin": ("asin", "asin", "asin arcsin", "asin arcsin", ""),
    "asinh": ("asinh", "asinh", "asinh arcsinh", "asinh arcsinh", ""),
    "atan": ("atan", "atan", "atan arctan", "atan arctan", ""),
    "atan2": ("atan2", "atan2", "atan2 arctan2", "atan2 arctan2", ""),
    "atanh": ("atanh", "atanh", "atanh arctanh", "atanh arctanh", ""),
    "cosd": ("", "", "", "", "cosdg"),
    "cotd": ("", "", "", "", "cotdg"),
    "digamma": ("", "", "", "digamma psi", "digamma psi"),
    "div": ("divide", "", "divide", "divide", ""),
    "eq": ("equal", "", "equal", "equal eq", ""),
    "floordiv": ("floor_divide", "", "floor_divide", "floor_divide __floordiv__", ""),
    "ge": ("greater_equal", "", "greater_equal", "greater_equal ge", ""),
    "gt": ("greater", "", "greater", "greater gt", ""),
    "i0": ("", "", "i0", "i0 modified_bessel_i0", "i0"),
    "i1": ("", "", "", "i1 modified_bessel_i1", "i1"),
    "j0": ("", "", "", "bessel_j0", "j0"),
    "j1": ("", "", "", "bessel_j1", "j1"),
    "le": ("less_equal", "", "less_equal", "less_equal le", ""),
    "lgamma": ("", "lgamma", "", "lgamma gammaln", "gammaln"),
    "log_sigmoid": ("", "", "", "logsigmoid", "log_expit"),
    "lt": ("less", "", "less", "less lt", ""),
    "mod": ("remainder", "", "remainder", "remainder", ""),
    "mul": ("multiply", "", "multiply", "multiply mul", ""),
    "ne": ("not_equal", "", "not_equal", "not_equal ne", ""),
    "neg": ("negative", "", "negative", "negative neg", ""),
    "not": ("bitwise_invert", "", "bitwise_not", "bitwise_not", ""),
    "or": ("bitwise_or", "", "bitwise_or", "bitwise_or", ""),
    "pow": ("pow", "pow", "pow power", "pow", ""),
    "shl": ("bitwise_left_shift", "", "left_shift", "bitwise_left_shift", ""),
    "shr": ("bitwise_right_shift", "", "right_shift", "bitwise_right_shift", ""),
    "sigmoid": ("", "", "", "sigmoid expit", "expit"),
    "sign": ("sign", "", "sign", "sign sgn", ""),
    "sind": ("", "", "", "", "sindg"),
    "sub": ("subtract", "", "subtract", "subtract sub", ""),
    "tand": ("", "", "", "", "tandg"),
    "trunc": ("trunc", "trunc", "trunc", "trunc fix", ""),
    "xor": ("bitwise_xor", "", "bitwise_xor", "bitwise_xor", ""),
    "y0": ("", "", "", "bessel_y0", "y0"),
    "y1": ("", "", "", "bessel_y1", "y1"),
}


def names_in(library: Library, ours: str) -> tuple[str, ...]:
    """Return what a library calls a function, our name first if it has that; if it has it at all.

    Of a function that is not in the table that is our name.
    """
    row = _TABLE.get(ours)
    return (ours,) if row is None else tuple(row[LIBRARIES.index(library)].split())


def our_names(library: Library) -> dict[str, str]:
    """Return our name for each name in a library that the table has."""
    return {name: ours for ours in _TABLE for name in names_in(library, ours)}


OUR_NAMES: Mapping[str, str] = MappingProxyType({
    name: ours
    for library in LIBRARIES
    for name, ours in our_names(library).items()
    if name != ours
})  # fmt: skip
"""Ours for each name that is another one in some library."""
