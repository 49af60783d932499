"""Each function of NumPy's table, called once for each of its optional parameters.

Arguments come by place and by name, as their defaults too; values are compared with NumPy's own
and derivatives with differences.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError
from mixad.namespace.spellings import NUMPY

X = 0.51 + 0.35 * np.cos(1.7 * np.arange(12.0)).reshape(3, 4)
Y = 0.6 + 0.3 * np.sin(2.3 * np.arange(12.0)).reshape(3, 4)
V, W = X[0], Y[1]
SQUARE = np.eye(3) * 2 + X[:, :3] @ X[:, :3].T
MASK = X > 0.4

REQUIRED: dict[str, tuple[Any, ...]] = {
    "add.reduceat": (X, [0, 1]),
    **dict.fromkeys(("arccosh", "acosh"), (X + 1.5,)),
    **dict.fromkeys(("dot", "matmul", "linalg.matmul"), (X, Y.T)),
    "matvec": (X, V), "vecmat": (V, X.T),
    **dict.fromkeys(("convolve", "correlate", "linalg.outer", "append"), (V, W)),
    **dict.fromkeys(("polyval",), (V, W)),
    **dict.fromkeys(("tensordot", "linalg.tensordot"), (SQUARE, SQUARE + 0.3)),
    **dict.fromkeys(("cross", "linalg.cross"), (X[:, :3], Y[:, :3])),
    **dict.fromkeys(("stack", "vstack", "hstack", "dstack", "concatenate", "column_stack"),
                    ([X, Y],)),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod"), (V,)),
    "clip": (X, 0.4, 0.6), "linalg.svd": (SQUARE,),
    "block": ([[X, Y]],),
    "linalg.multi_dot": ([X, Y.T, X],),
    **dict.fromkeys(("linalg.solve", "linalg.lstsq"), (SQUARE, X)),
    **{f"linalg.{n}": (SQUARE,) for n in (
        "inv det slogdet eigh eigvalsh cholesky cond matrix_norm norm trace diagonal"
    ).split()},
    **dict.fromkeys(("linalg.eig", "linalg.eigvals"),
                    (np.triu(SQUARE) + 0.1 * SQUARE + np.diag([0.0, 2.0, 5.0]),)),
    "linalg.matrix_power": (SQUARE, 3),
    **dict.fromkeys(("trace", "diagonal"), (np.stack([SQUARE, SQUARE**2]),)),
    "moveaxis": (X, 0, 1), "swapaxes": (X, 0, 1), "rollaxis": (X, 1),
    "reshape": (X, (4, 3)), "resize": (X, (2, 3)), "broadcast_to": (X, (2, 3, 4)),
    "expand_dims": (X, 1), "roll": (X, 2), "repeat": (X, 2), "tile": (X, (2, 1)),
    "pad": (X, 1), "partition": (X, 1), "lib.stride_tricks.sliding_window_view": (X, (2, 2)),
    "squeeze": (X[None],), "fft.irfft": (X,),
    **dict.fromkeys(("split", "array_split", "vsplit"), (X, 3)),
    "hsplit": (X, 2), "dsplit": (X.reshape(3, 2, 2), 2),
    "take": (X, np.asarray([2, 0])), "take_along_axis": (X, np.asarray([[1], [0], [2]])),
    "where": (MASK,), "extract": (MASK, X), "compress": (MASK[:, 0], X),
    "delete": (X, 1), "insert": (X, 1, 0.5),
    **dict.fromkeys(("full",), ((2, 3), V[0])), "full_like": (X, V[0]),
    "astype": (X, np.float64), "linspace": (V[0], W[0]), "select": ([MASK, ~MASK], [X, Y]),
    **dict.fromkeys(("quantile", "nanquantile"), (X, 0.3)),
    **dict.fromkeys(("percentile", "nanpercentile"), (X, 30.0)),
    "bincount": (np.asarray([0, 2, 1, 2]),),
    "interp": (V, np.sort(W), X[2]),
    "vander": (V,), "diag": (X,), "unwrap": (9 * X,), "rot90": (X,),
    **dict.fromkeys(("heaviside",), (X - 0.5, Y)),
    "fft.irfftn": (X,),
    **{f"{n}.reduce": (X,) for n in ("add", "multiply", "maximum", "minimum", "fmax", "fmin")},
    **{f"{n}.reduce": (X,) for n in ("logaddexp", "logaddexp2")},
}  # fmt: skip
"""What functions are given, others X and Y."""

OPTIONAL: dict[str | tuple[str, str], Any] = {
    "axis": 1, "axes": (0,), "keepdims": True, "dtype": np.float32, "ddof": 1, "correction": 1,
    "initial": 0.7, "where": MASK, "n": 3, "s": (2, 3), "norm": "ortho", "decimals": 1,
    "deg": True, "include_initial": True, "offset": 1, "ord": 1, "k": 1, "UPLO": "U",
    "upper": True, "rtol": 1e-9, "rcond": 1e-9, "method": "lower", "overwrite_input": True,
    "copy": False, "order": "F", "stable": True, "kind": "mergesort", "ndmin": 3, "nan": 0.25,
    "posinf": 2.0, "neginf": -2.0, "subok": False, "prepend": 0.3, "append": Y[:, :1],
    "a_min": 0.4, "a_max": 0.6, "min": 0.4, "max": 0.6, "mode": "same", "weights": Y,
    "returned": True, "rowvar": False, "bias": True, "fweights": np.asarray([1, 2, 1, 3]),
    "aweights": W, "discont": 4.0, "period": 5.0, "dx": 0.5, "left": 0.1, "right": 0.2,
    "num": 7, "endpoint": False, "tol": 10, "default": 0.5, "N": 3, "increasing": True,
    "full_matrices": False, "compute_uv": False, "minlength": 6, "axisa": 0, "axisb": 0,
    "axisc": 0, "p": 1, "shape": (2, 2), "casting": "unsafe", "axis1": 1, "axis2": 2, "start": 0,
    "edge_order": 2, "sparse": True, "indexing": "ij", "hermitian": True, "retstep": True,
    "device": "cpu", "writeable": True, "optimize": True,
    "mean": X.mean(), "ndmax": 2,
    ("cov", "y"): Y, ("corrcoef", "y"): Y, ("trapezoid", "x"): np.cumsum(Y, 1),
    ("where", "x"): None, ("where", "y"): None,
    ("transpose", "axes"): (1, 0), ("rot90", "axes"): (1, 0),
    ("tensordot", "axes"): 1, ("linalg.tensordot", "axes"): 1, ("trace", "axis1"): 2,
    ("diagonal", "axis1"): 2, ("squeeze", "axis"): 0, ("rollaxis", "start"): 0,
    ("fft.fft2", "axes"): (1, 0), ("fft.ifft2", "axes"): (1, 0), ("fft.rfft2", "axes"): (1, 0),
    ("fft.irfft2", "axes"): (1, 0), ("linalg.norm", "axis"): 1, ("average", "weights"): Y,
    ("pad", "mode"): "edge", ("bincount", "weights"): V, ("linalg.qr", "mode"): "r",
    ("lib.stride_tricks.sliding_window_view", "axis"): (1, 0), ("take", "mode"): "wrap",
    ("convolve", "mode"): "valid", ("asarray", "copy"): True, ("asanyarray", "copy"): True,
    ("array", "copy"): None, ("expand_dims", "axis"): 0, ("roll", "axis"): 1,
    ("append", "axis"): 0, ("cross", "axis"): 0, ("linalg.cross", "axis"): 0,
    ("select", "default"): 0.5, ("full", "shape"): (2,), ("split", "axis"): 0,
    ("array_split", "axis"): 0, ("linspace", "axis"): 0, ("cumulative_sum", "axis"): 0,
    ("cumulative_prod", "axis"): 0,
    ("take_along_axis", "axis"): 1, ("matmul", "axes"): None, ("matmul", "axis"): None,
    ("matvec", "axes"): [(0, 1), 0, 0], ("matvec", "axis"): None,
    ("vecmat", "axes"): [0, (0, 1), 0], ("vecmat", "axis"): None,
    ("vecdot", "axes"): None, ("vecdot", "axis"): 0, ("var", "mean"): X.mean(1, keepdims=True),
    ("nan_to_num", "copy"): None, ("unstack", "axis"): 1, ("linalg.cond", "p"): 2,
    ("fft.fftshift", "axes"): (1,), ("fft.ifftshift", "axes"): (1,),
    ("linalg.vecdot", "axis"): 0, ("compress", "axis"): 0, ("interp", "period"): None,
}  # fmt: skip
"""What optional parameters are given; None is what another row needs too."""

REFUSED = {"retstep", "writeable", "hermitian", "overwrite_input"}
"""What is refused wherever it is given, but as its default."""

REFUSED_OF_UFUNCS = {"where", "dtype"}

REFUSED_OF = {
    **dict.fromkeys(("var", "std", "nanvar", "nanstd"), "mean"),
    **dict.fromkeys(("maximum.reduce", "minimum.reduce"), "dtype"),
    **dict.fromkeys(("matvec", "vecmat"), "axes"),
    "take": "mode", "vecdot": "keepdims", "astype": "device",
}  # fmt: skip
"""What single functions refuse."""

NOT_CALLED = {
    "array", "asarray", "asanyarray", "ascontiguousarray",  # ask traced values without like= only
    "empty_like",  # any numbers
    "maximum.at", "minimum.at", "multiply.at",  # change what they are given
}  # fmt: skip


def lower_eigenvalues(function: Any) -> Any:
    """Return what has a derivative of one sign: eigenvalues, of what stays symmetric."""
    return lambda a, *rest, **options: function((a + a.T) / 2, *rest, **options)[0]


ADAPTED = {
    "linalg.eigh": lower_eigenvalues,
    "linalg.eigvalsh": lambda f: lambda a, *rest, **options: f((a + a.T) / 2, *rest, **options),
    "linalg.cholesky": lambda f: lambda a, **options: f((a + a.T) / 2, **options),
}
"""Functions that read half of a matrix, and have derivatives among symmetric ones."""

Call = Callable[..., Any]


def numpys(name: str) -> Any:
    return functools.reduce(getattr, name.split("."), np)


def required(name: str, parameters: list[inspect.Parameter]) -> tuple[Any, ...]:
    given = REQUIRED.get(name)
    if given is not None:
        return given
    count = sum(p.default is p.empty and p.kind is not p.KEYWORD_ONLY for p in parameters)
    return (X, Y)[:count]


def rows() -> Iterator[tuple[str, str, str, Call, tuple[Any, ...]]]:
    """Yield functions, parameters, how they are given, calls of the function, and operands."""
    for name, found in NUMPY.functions.items():
        function = numpys(name)
        parameters = list(inspect.signature(function).parameters.values())
        if (
            name in NOT_CALLED
            or not found.parameters
            or any(p.kind is p.VAR_POSITIONAL for p in parameters)
        ):
            continue
        args = required(name, parameters)
        function = ADAPTED.get(name, lambda f: f)(function)
        yield name, "", "alone", function, args
        for at, p in enumerate(parameters):
            if p.default is p.empty or p.name == "signature":
                continue
            if p.kind is not p.POSITIONAL_ONLY:
                by_default = functools.partial(function, **{p.name: p.default})
                yield name, p.name, "default", by_default, args
            value = OPTIONAL.get((name, p.name), OPTIONAL.get(p.name))
            if value is None:
                continue
            if p.kind is not p.POSITIONAL_ONLY:
                yield name, p.name, "name", functools.partial(function, **{p.name: value}), args
            if p.kind is not p.KEYWORD_ONLY and at >= len(args):
                between = [q.default for q in parameters[len(args) : at]]
                yield name, p.name, "place", _placed(function, (*between, value)), args


def _placed(function: Call, rest: tuple[Any, ...]) -> Call:
    return lambda *args: function(*args, *rest)


def parts(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in parts(each)]
    return [value]


def compared(call: Call, args: tuple[Any, ...]) -> str | None:
    """Return what differs from NumPy's value, or from differences of it."""
    at = [i for i, a in enumerate(args) if isinstance(a, np.ndarray) and a.dtype.kind == "f"]
    moved, seen = [args[i] for i in at], []

    def f(*operands: Any) -> list[Any]:
        given = dict(enumerate(args)) | dict(zip(at, operands, strict=True))
        return parts(call(*given.values()))

    def loss(*operands: Any) -> Any:
        found = f(*operands)
        seen[:] = [np.asarray(mixad.stop_gradient(part)) for part in found]
        return weighted(found) + sum(0.0 * o.sum() for o in operands)

    want = [np.asarray(part) for part in f(*moved)]
    if not moved:
        return None
    gradients = mixad.grad(loss, argnums=tuple(range(len(moved))))(*moved)
    for got, w in zip(seen, want, strict=True):
        if (got.dtype, got.shape) != (w.dtype, w.shape):
            return f"{got.dtype}{got.shape} for {w.dtype}{w.shape}"
        if not np.allclose(got, w, rtol=1e-5 if w.itemsize < 8 else 1e-9, equal_nan=True):
            return f"{got!r} for {w!r}"
    is_narrow = any(w.dtype == np.float32 for w in want)
    step, digits = (1e-3, 2e-2) if is_narrow else (1e-6, 1e-5)
    along = [np.sin(1.0 + np.arange(m.size)).reshape(m.shape) for m in moved]
    ends = ([m + s * v for m, v in zip(moved, along, strict=True)] for s in (step, -step))
    above, below = (float(loss(*end)) for end in ends)
    found = sum(float(np.sum(g * v)) for g, v in zip(gradients, along, strict=True))
    slope = (above - below) / (2 * step)
    is_close = np.isclose(found, slope, rtol=digits, atol=1e-6)
    return None if is_close else f"derivative {found} for {slope}"


def weighted(found: list[Any]) -> Any:
    """Return the sum of all floats, each with a weight of its own, of complex ones the squares."""
    total = 0.0
    for part in found:
        if getattr(part, "dtype", np.dtype(int)).kind in "fc":
            part = abs(part) ** 2 if part.dtype.kind == "c" else part
            total = total + np.sum(part * np.cos(1.0 + np.arange(part.size)).reshape(part.shape))
    return total


def test_no_differences_of_numpy_are_the_elements() -> None:
    assert compared(lambda x: np.diff(x, 0, prepend=1.0, append=2.0), (V,)) is None


@pytest.mark.slow
def test_every_optional_parameter_of_numpys_functions_is_taken_or_refused() -> None:
    different, count, refused = [], 0, 0
    for name, parameter, how, call, args in rows():
        try:
            call(*args)
        except Exception:
            refused += 1  # by NumPy
            continue
        count += 1
        try:
            found = compared(call, args)
        except TracerError as error:
            listed = REFUSED | {*REFUSED_OF.get(name, "").split()}
            if isinstance(numpys(name), np.ufunc):
                listed |= REFUSED_OF_UFUNCS
            found = (
                None if parameter in listed and how != "default" else f"refused: {str(error)[:150]}"
            )
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:150]}"
        if found is not None:
            different.append((name, parameter, how, found[:300]))
    assert not different
    assert count > 1500
    assert refused < 150
