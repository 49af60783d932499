"""Dtypes of array libraries and the scalar types that stand for them."""

from __future__ import annotations

import numpy as np
import pytest

from mixad.errors import KernelTypeError
from mixad.scalar.dtypes import scalar_type_of
from mixad.scalar.types import F64


@pytest.mark.parametrize(
    ("dtype", "hint"),
    [
        ("M8[s]", "float32"),
        ("complex64", "x.imag"),
        (">f8", "byte order"),
        (">c16", "complex128"),
        ("U3", "float32"),
    ],
)
def test_other_dtypes_are_refused_with_a_way_out(dtype: str, hint: str) -> None:
    with pytest.raises(KernelTypeError, match=hint):
        scalar_type_of(np.dtype(dtype))


def test_equal_numpy_dtypes_of_other_names_are_known() -> None:
    assert scalar_type_of(np.dtype(np.longlong)) == scalar_type_of(np.dtype("int64"))
    assert scalar_type_of(np.dtype("double")) == F64
