"""Data type functions: the same elements in another type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mixad.backends.arrays import is_array, scalar_type_of
from mixad.errors import TracerError
from mixad.namespace.elementwise import convert
from mixad.namespace.promotion import promoted
from mixad.scalar.promotion_rules import Typed
from mixad.scalar.types import ScalarType
from mixad.tape.memory import unshared
from mixad.tape.node import common_library, library_beside
from mixad.tape.tracer import Tracer, plain

__all__ = ["astype", "of_one_type"]


def astype(x: Any, dtype: Any, *, copy: bool = True) -> Any:
    """Return the elements as another dtype.

    Parameters
    ----------
    x : array or Tracer
        Of floats.
    dtype : dtype
        Of the array's library, or what that takes for one.
    copy : bool
        Whether an array of that dtype is copied; otherwise it is returned as it is.

    Returns
    -------
    array or Tracer
        A plain array if the dtype is no float: then there is no derivative.
    """
    xp = library_beside(x).xp
    dtype = xp.empty(0, dtype=dtype).dtype
    target = scalar_type_of(dtype)
    if not target.is_float:
        return xp.astype(plain(x), dtype)
    if target == scalar_type_of(x.dtype):
        return unshared(x) if copy else x
    return convert(x, target)


def of_one_type(what: str, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Return arrays of one library converted to the type that it promotes theirs to.

    Raises
    ------
    TracerError
        If one of them is no array.
    """
    for x in arrays:
        if not isinstance(x, Tracer) and not is_array(x):
            raise TracerError(f"{what} takes arrays, not a {type(x).__name__}: convert it first")
    library = common_library(what, arrays)
    types = [scalar_type_of(x.dtype) for x in arrays]
    if types.count(types[0]) == len(types):
        return tuple(arrays)
    common = promoted(library, what, [Typed(t, False) for t in types])
    return tuple(_converted(x, common) for x in arrays)


def _converted(x: Any, common: ScalarType) -> Any:
    return x if scalar_type_of(x.dtype) == common else convert(x, common)
