"""Every function of the standard beside the base library's own: values, dtypes, shapes, errors.

The functions of a namespace are called with plain arrays, constants and traced arrays; what they
give is compared with what the library gives.  (The standard's own suite is run by
`tests/external`, where there is a copy of it.)
"""

from __future__ import annotations

import importlib
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.exceptions import AxisError

import mixad
from mixad.errors import KernelTypeError
from mixad.namespace.names import ATTRIBUTES, FUNCTIONS, SECTIONS
from mixad.namespace.spellings import STANDARD
from mixad.tape.constant import is_constant
from mixad.tape.tracer import Tracer, primal_value

LIBRARIES = ["array_api_compat.numpy", "array_api_strict"]
FLOATS = ["float32", "float64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = [*FLOATS, "bool", "int8", "int64", "uint8", *COMPLEX]
SHAPES = [(), (3,), (2, 3), (3, 3), (0, 2)]

# How functions are called that take more than one array, or two of one type: `a` and `b` are
# arrays of one dtype and shape, `xp` is the namespace.
_Call = Callable[[Any, Any, Any], Any]

CALLS: dict[str, list[_Call]] = {
    "arange": [lambda xp, a, b: xp.arange(4, dtype=a.dtype), lambda xp, a, b: xp.arange(5, 1, -2)],
    "asarray": [
        lambda xp, a, b: xp.asarray(a),
        lambda xp, a, b: xp.asarray(a, copy=True),
        lambda xp, a, b: xp.asarray(a, dtype=xp.float64),
        lambda xp, a, b: xp.asarray([[1, 2], [3, 4]], dtype=a.dtype),
    ],
    "empty": [lambda xp, a, b: xp.zeros_like(xp.empty(a.shape, dtype=a.dtype))],
    "empty_like": [lambda xp, a, b: xp.zeros_like(xp.empty_like(a))],
    "eye": [lambda xp, a, b: xp.eye(3, 4, k=1, dtype=a.dtype)],
    "from_dlpack": [lambda xp, a, b: xp.from_dlpack(xp.asarray([1.0, 2.0]))],
    "full": [lambda xp, a, b: xp.full((2,), 2, dtype=a.dtype), lambda xp, a, b: xp.full((), 1.5)],
    "full_like": [lambda xp, a, b: xp.full_like(a, 3), lambda xp, a, b: xp.full_like(a, True)],
    "linspace": [lambda xp, a, b: xp.linspace(0.0, 1.0, 5, dtype=a.dtype, endpoint=False)],
    "meshgrid": [
        lambda xp, a, b: xp.meshgrid(a, b, indexing="ij"),
        lambda xp, a, b: xp.meshgrid(xp.reshape(a, (-1,)), xp.reshape(b, (-1,))),
    ],
    "ones": [lambda xp, a, b: xp.ones(a.shape, dtype=a.dtype)],
    "zeros": [lambda xp, a, b: xp.zeros(a.shape, dtype=a.dtype)],
    "tril": [lambda xp, a, b: xp.tril(a, k=-1)],
    "triu": [lambda xp, a, b: xp.triu(a, k=1)],
    "astype": [
        lambda xp, a, b: xp.astype(a, xp.float64),
        lambda xp, a, b: xp.astype(a, xp.int32),
        lambda xp, a, b: xp.astype(a, a.dtype, copy=False),
    ],
    "broadcast_shapes": [lambda xp, a, b: xp.broadcast_shapes(a.shape, (1,))],
    "can_cast": [lambda xp, a, b: xp.can_cast(a, xp.float64)],
    "finfo": [lambda xp, a, b: xp.finfo(a.dtype).bits],
    "iinfo": [lambda xp, a, b: xp.iinfo(a.dtype).max],
    "isdtype": [lambda xp, a, b: xp.isdtype(a.dtype, ("integral", "real floating"))],
    "result_type": [lambda xp, a, b: xp.result_type(a, b), lambda xp, a, b: xp.result_type(a, 1)],
    "__array_namespace_info__": [
        lambda xp, a, b: sorted(xp.__array_namespace_info__().capabilities())
    ],
    "clip": [
        lambda xp, a, b: xp.clip(a, 0, 2),
        lambda xp, a, b: xp.clip(a, min=b),
        lambda xp, a, b: xp.clip(a, max=1),
    ],
    "where": [
        lambda xp, a, b: xp.where(a > b, a, b),
        lambda xp, a, b: xp.where(xp.asarray(True), a, 1),
    ],
    "bitwise_left_shift": [lambda xp, a, b: xp.bitwise_left_shift(a, xp.abs(b))],
    "bitwise_right_shift": [lambda xp, a, b: xp.bitwise_right_shift(a, xp.abs(b))],
    "pow": [lambda xp, a, b: xp.pow(a, xp.abs(b)), lambda xp, a, b: xp.pow(a, 2)],
    "take": [
        lambda xp, a, b: xp.take(a, xp.asarray([1, 0, 1]), axis=-1),
        lambda xp, a, b: xp.take(a, xp.asarray([7]), axis=0),
    ],
    "take_along_axis": [lambda xp, a, b: xp.take_along_axis(a, xp.argsort(a, axis=0), axis=0)],
    "concat": [
        lambda xp, a, b: xp.concat([a, b], axis=0),
        lambda xp, a, b: xp.concat((a, b), axis=None),
    ],
    "stack": [lambda xp, a, b: xp.stack([a, b], axis=-1)],
    "unstack": [lambda xp, a, b: xp.unstack(a, axis=-1)],
    "expand_dims": [
        lambda xp, a, b: xp.expand_dims(a, axis=0),
        lambda xp, a, b: xp.expand_dims(a, axis=5),
    ],
    "squeeze": [
        lambda xp, a, b: xp.squeeze(a[None, ...], axis=0),
        lambda xp, a, b: xp.squeeze(a, axis=0),
    ],
    "flip": [lambda xp, a, b: xp.flip(a), lambda xp, a, b: xp.flip(a, axis=0)],
    "moveaxis": [lambda xp, a, b: xp.moveaxis(a, 0, -1)],
    "permute_dims": [lambda xp, a, b: xp.permute_dims(a, tuple(range(a.ndim))[::-1])],
    "repeat": [lambda xp, a, b: xp.repeat(a, 2), lambda xp, a, b: xp.repeat(a, 3, axis=0)],
    "reshape": [
        lambda xp, a, b: xp.reshape(a, (-1,)),
        lambda xp, a, b: xp.reshape(a, (3, -1)),
        lambda xp, a, b: xp.reshape(a, (17,)),
    ],
    "roll": [lambda xp, a, b: xp.roll(a, 1), lambda xp, a, b: xp.roll(a, (1,), axis=(0,))],
    "tile": [lambda xp, a, b: xp.tile(a, (2, 1, 2))],
    "broadcast_to": [
        lambda xp, a, b: xp.broadcast_to(a, (2, *a.shape)),
        lambda xp, a, b: xp.broadcast_to(a, (5, 5)),
    ],
    "broadcast_arrays": [lambda xp, a, b: xp.broadcast_arrays(a, b[None, ...])],
    "searchsorted": [lambda xp, a, b: xp.searchsorted(xp.sort(a), b, side="right")],
    "sort": [
        lambda xp, a, b: xp.sort(a),
        lambda xp, a, b: xp.sort(a, axis=0, descending=True, stable=True),
    ],
    "argsort": [
        lambda xp, a, b: xp.argsort(a, stable=True),
        lambda xp, a, b: xp.argsort(a, axis=0, descending=True, stable=True),
    ],
    "isin": [lambda xp, a, b: xp.isin(a, b), lambda xp, a, b: xp.isin(a, b, invert=True)],
    "diff": [lambda xp, a, b: xp.diff(a), lambda xp, a, b: xp.diff(a, axis=0, n=2, prepend=b)],
    "tensordot": [
        lambda xp, a, b: xp.tensordot(a, b, axes=1),
        lambda xp, a, b: xp.tensordot(a, b, axes=0),
    ],
    "matmul": [
        lambda xp, a, b: xp.matmul(a, xp.matrix_transpose(b)),
        lambda xp, a, b: xp.matmul(a, b),
    ],
    "vecdot": [lambda xp, a, b: xp.vecdot(a, b), lambda xp, a, b: xp.vecdot(a, b, axis=-2)],
    "linalg.cross": [  # NumPy has crossed vectors of length 2
        lambda xp, a, b: xp.linalg.cross(a, b) if a.shape[-1:] != (2,) else 0
    ],
    "linalg.cholesky": [lambda xp, a, b: xp.linalg.cholesky(_definite(xp, a), upper=True)],
    "linalg.eigh": [lambda xp, a, b: xp.linalg.eigh(_definite(xp, a)).eigenvalues],
    "linalg.eigvalsh": [lambda xp, a, b: xp.linalg.eigvalsh(_definite(xp, a))],
    "linalg.eig": [lambda xp, a, b: xp.linalg.eig(_definite(xp, a)).eigenvalues],
    "linalg.eigvals": [lambda xp, a, b: xp.linalg.eigvals(_definite(xp, a))],
    "linalg.inv": [lambda xp, a, b: xp.linalg.inv(_definite(xp, a))],
    "linalg.pinv": [lambda xp, a, b: xp.linalg.pinv(_definite(xp, a))],
    "linalg.solve": [lambda xp, a, b: xp.linalg.solve(_definite(xp, a), b)],
    "linalg.matrix_power": [lambda xp, a, b: xp.linalg.matrix_power(_definite(xp, a), -2)],
    "linalg.matrix_norm": [
        lambda xp, a, b: xp.linalg.matrix_norm(a),
        lambda xp, a, b: xp.linalg.matrix_norm(a, ord=math.inf, keepdims=True),
    ],
    "linalg.vector_norm": [
        lambda xp, a, b: xp.linalg.vector_norm(a),
        lambda xp, a, b: xp.linalg.vector_norm(a, axis=-1, ord=3),
    ],
    "linalg.outer": [lambda xp, a, b: xp.linalg.outer(xp.reshape(a, (-1,)), xp.reshape(b, (-1,)))],
    "linalg.svd": [lambda xp, a, b: xp.linalg.svd(a, full_matrices=False).S],
    "linalg.qr": [lambda xp, a, b: xp.abs(xp.linalg.qr(a).R)],
    "linalg.matmul": [lambda xp, a, b: xp.linalg.matmul(a, b)],
    "linalg.tensordot": [lambda xp, a, b: xp.linalg.tensordot(a, b, axes=1)],
    "linalg.vecdot": [lambda xp, a, b: xp.linalg.vecdot(a, b)],
    "fft.fftfreq": [lambda xp, a, b: xp.fft.fftfreq(4, d=0.5)],
    "fft.rfftfreq": [lambda xp, a, b: xp.fft.rfftfreq(4, d=0.5)],
}  # fmt: skip

_REDUCTIONS = [*SECTIONS["statistical"], "all", "any", "argmax", "argmin", "count_nonzero"]


def _definite(xp: Any, a: Any) -> Any:
    """Return a matrix that has every decomposition, made of one that may have none."""
    product = xp.matmul(a, xp.matrix_transpose(xp.conj(a)))
    return xp.add(product, xp.multiply(9, xp.eye(a.shape[0], dtype=a.dtype)))


def _function(xp: Any, name: str) -> Any:
    return operator.attrgetter(name)(xp)


def _reduction(name: str) -> list[_Call]:
    def along(**options: Any) -> _Call:
        return lambda xp, a, b: _function(xp, name)(a, **options)

    if name.startswith("cumulative"):
        return [along(axis=0), along(axis=-1, include_initial=True)]
    return [along(), along(axis=-1), along(axis=0, keepdims=True)]


_TWO = set(
    "add atan2 bitwise_and bitwise_or bitwise_xor copysign divide equal floor_divide greater "
    "greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum "
    "minimum multiply nextafter not_equal remainder subtract".split()
)


def _calls(name: str) -> list[_Call]:
    if name in CALLS:
        return CALLS[name]
    if name in _REDUCTIONS:
        return _reduction(name)
    if name in _TWO:
        beside = [
            lambda xp, a, b: _function(xp, name)(a, b),
            lambda xp, a, b: _function(xp, name)(a, 2),
        ]
        return [*beside, lambda xp, a, b: _function(xp, name)(2, a)]
    return [lambda xp, a, b: _function(xp, name)(a)]


def _made(xp: Any, dtype: str, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return two arrays of small numbers, some equal."""
    rng = np.random.default_rng(len(shape) + len(dtype))
    count = math.prod(shape)
    low = 0 if dtype in ("bool", "uint8") else -2
    found = []
    for _ in range(2):
        numbers = rng.integers(low, 4, count) + (0.25 if "float" in dtype else 0.0)
        if "complex" in dtype:
            numbers = numbers + 1j * rng.integers(-2, 3, count)
        found.append(
            xp.asarray(numbers.astype(dtype).reshape(shape).tolist(), dtype=getattr(xp, dtype))
        )
    return tuple(xp.reshape(x, shape) for x in found)


def _outcome(call: _Call, xp: Any, a: Any, b: Any) -> Any:
    """Return what a call gives, or what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call(xp, a, b)
        except Exception as error:
            return error


def _leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for each in result:
            yield from _leaves(each)
    else:
        yield result


def _compare(found: Any, want: Any, tolerance: float) -> None:
    assert getattr(found, "_fields", None) == getattr(want, "_fields", None)
    found, want = list(_leaves(found)), list(_leaves(want))
    assert len(found) == len(want)
    for own, other in zip(found, want, strict=True):
        if not hasattr(other, "dtype"):
            assert own == other
            continue
        assert isinstance(own, Tracer)
        assert own.dtype == other.dtype
        assert own.shape == tuple(other.shape)
        array = np.asarray(primal_value(own))
        scale = np.abs(np.asarray(other)).max(initial=1.0, where=np.isfinite(np.asarray(other)))
        np.testing.assert_allclose(
            array, np.asarray(other), rtol=tolerance, atol=tolerance * float(scale)
        )


@pytest.fixture(params=LIBRARIES)
def base(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


@pytest.mark.rows("name", sorted(FUNCTIONS))
def test_plain_arrays_and_constants_give_what_the_library_gives(name: str, base: Any) -> None:
    xp = mixad.namespace_of(base)
    succeeded = 0
    for dtype in DTYPES:
        for shape in SHAPES:
            a, b = _made(base, dtype, shape)
            for call in _calls(name):
                want = _outcome(call, base, a, b)
                for own in ((a, b), (xp.asarray(a), xp.asarray(b)), (xp.asarray(a), b)):
                    found = _outcome(call, xp, *own)
                    if isinstance(want, Exception):
                        assert type(found) is type(want), (dtype, shape, found, want)
                        continue
                    assert not isinstance(found, Exception), (dtype, shape, found)
                    _compare(found, want, 0.0)
                    arrays = (x for x in _leaves(found) if hasattr(x, "dtype"))
                    assert all(map(is_constant, arrays))
                    succeeded += 1
    assert succeeded


DIFFERENT = {"imag"}
"""The imaginary part of real numbers is zero here, array-api-strict refuses it."""

TAKE_TRACED = sorted((set(STANDARD.functions) | set(STANDARD.constant)) - DIFFERENT)


WITHOUT_COMPLEX = set("asarray astype clip max maximum min minimum".split())
"""What would lose imaginary parts, or take an order for one, is refused where a library does it."""


@pytest.mark.rows("name", TAKE_TRACED, slow="linalg.vector_norm std var")
def test_traced_arrays_give_what_the_library_gives(name: str, base: Any) -> None:
    """Within rounding; what the library refuses is refused, by an error of the same base class."""
    xp = mixad.namespace_of(base)
    for dtype in (*FLOATS, *COMPLEX):
        tolerance = 64 * float(np.finfo(dtype).eps)
        refuses = dtype in COMPLEX and name in WITHOUT_COMPLEX
        for shape in SHAPES:
            if name.startswith("fft.") and not shape:  # there are no axes to transform along
                continue
            a, b = _made(base, dtype, shape)
            for call in _calls(name):
                want = _outcome(call, base, a, b)

                def run(x: Any, y: Any) -> Any:
                    for beside in (y, b):  # noqa: B023
                        found = _outcome(call, xp, x, beside)  # noqa: B023
                        if not (refuses and isinstance(found, KernelTypeError)):  # noqa: B023
                            _compare_outcomes(found, want, tolerance)  # noqa: B023
                    return xp.sum(x) + xp.sum(y)

                try:
                    mixad.vjp(run, a, b)
                except AssertionError as error:
                    error.add_note(f"of arrays of dtype {dtype} and shape {shape}")
                    raise


def _compare_outcomes(found: Any, want: Any, tolerance: float) -> None:
    if isinstance(want, Exception):
        assert isinstance(found, (AxisError, _builtin_kind(want))), (found, want)
    elif not isinstance(found, AxisError):  # NumPy has axes 0 and -1 where there are none
        assert not isinstance(found, Exception), found
        _compare(found, want, tolerance)


def _builtin_kind(error: Exception) -> type[BaseException]:
    """Return the class that users catch."""
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def test_constants_and_dtypes_are_the_librarys(base: Any) -> None:
    xp = mixad.namespace_of(base)
    for name in ATTRIBUTES:
        own, other = getattr(xp, name), getattr(base, name)
        assert own is other or own == other or (own != own and other != other)
