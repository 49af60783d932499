"""Functions of other libraries that `mixad.special` has, by the names that they have there.

SciPy's special functions are of numbers, as NumPy's are, so a kernel may call them: ours are
compiled.  Those of torch and JAX are of tensors: they are refused with the name of ours.  What
there is to stand for others, `mixad.special` tells when it is imported: it is made with this.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mixad.scalar.names import OUR_NAMES
from mixad.scalar.parse.library import LIBRARY, NUMPY_LIBRARY

__all__ = ["StandIn", "is_ours", "name_of_ours", "provide", "stand_in"]

_OURS: dict[str, Callable[..., Any]] = {}


class StandIn(NamedTuple):
    """A function of ours, the one that it is compiled for, and the library of that."""

    function: Callable[..., Any]
    theirs: Any
    library: str


_MIXAD = Path(__file__).parents[2]
_FOLDERS = tuple(
    map(str, (_MIXAD / "special", _MIXAD / "scipy" / "programs", Path(__file__).parent))
)


def is_ours(filename: str) -> bool:
    """Whether a file has functions of mixad's own that are compiled with the user's."""
    return filename.startswith(_FOLDERS)


def provide(functions: Mapping[str, Callable[..., Any]]) -> None:
    """Have functions stand for those that other libraries have under their names."""
    _OURS.update(functions)


_ANOTHER = frozenset({"select"})
"""Names of ours that mean something else elsewhere: torch's `select` takes a slice."""

_SCIPY = "scipy.special"
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, np.ufunc, type(np.where))


def stand_in(function: Any) -> StandIn | None:
    """Return what is compiled for a function of a library; None if none of ours stands for it."""
    if type(function) not in _FUNCTIONS:
        return None
    if function in LIBRARY:
        library = "numpy" if function in NUMPY_LIBRARY else "math"
        return StandIn(LIBRARY[function], function, library)
    name = function.__name__
    ours = _find_function(name)
    if ours is None:
        return None
    # The module's own function: others of that name may be anything.
    if getattr(sys.modules.get(_SCIPY), name, None) is function:
        return StandIn(ours, function, _SCIPY)
    if function is np.i0:
        return StandIn(ours, function, "numpy")
    return None


def name_of_ours(function: Any) -> str | None:
    """Return the name of ours for a function that goes by its name or by another library's."""
    name = getattr(function, "__name__", None)
    ours = _find_function(name.removeprefix("special_") if isinstance(name, str) else None)
    return None if ours is None else ours.__name__


def _find_function(name: object) -> Callable[..., Any] | None:
    if not isinstance(name, str) or name in _ANOTHER:
        return None
    return _OURS.get(OUR_NAMES.get(name, name))
