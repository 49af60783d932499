"""Where NumPy gives a view: what is written under one name is not read under the other.

All functions of the table are called; NumPy's own results say which of them are views.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError
from mixad.namespace.spellings import NUMPY

X = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])
SHARES = "shares memory with another one"

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys((
        "append cross dot inner kron outer linspace tensordot linalg.cross linalg.matmul "
        "linalg.lstsq linalg.solve linalg.tensordot linalg.vecdot vdot add.outer divide.outer "
        "maximum.outer minimum.outer multiply.outer power.outer subtract.outer"
    ).split(), (X,)),
    **dict.fromkeys(("percentile", "quantile", "nanpercentile", "nanquantile"), (0.5,)),
    "lib.stride_tricks.sliding_window_view": (2, 0), "delete": (0,), "insert": (0, 1.0),
    "resize": ((3, 3),), "add.reduceat": ([0, 1],),
    **dict.fromkeys(("maximum.at", "minimum.at", "multiply.at"), ([0, 1], 2.0)),
    "interp": (X[0, ::-1], X[1]),
    "array_split": (2,), "astype": (np.float64,), "broadcast_to": ((2, 3, 3),),
    "cumulative_prod": (), "cumulative_sum": (), "expand_dims": (0,),
    "full_like": (1.0,), "hsplit": (3,), "linalg.matrix_power": (1,), "moveaxis": (0, 1),
    "pad": (0,), "partition": (1,), "repeat": (1,), "reshape": (9,), "roll": (0,), "rollaxis": (1,),
    "split": (3,), "swapaxes": (0, 1), "take": ([0, 1],), "take_along_axis": (X.astype(int) * 0, 0),
    "tile": (1,), "vsplit": (3,),
}  # fmt: skip
"""Behind the array, where there must be more."""

OTHERS: dict[str, Callable[[Any], Any]] = {
    "bincount": lambda x: np.bincount([0, 1, 1], x[0]),
    "extract": lambda x: np.extract(X > 0, x),
    "vander": lambda x: np.vander(x[0]),
    "astype(copy)": lambda x: np.astype(x, x.dtype, copy=False),
    "atleast_2d of a vector": lambda x: np.atleast_2d(x[0]),
    "atleast_3d of a vector": lambda x: np.atleast_3d(x[0]),
    "atleast_2d of several": lambda x: np.atleast_2d(x[0], x[1]),
    "broadcast_arrays of several": lambda x: np.broadcast_arrays(x, np.ones((2, 3, 3)))[0],
    "broadcast_to its own shape": lambda x: np.broadcast_to(x, (3, 3)),
    "diag of another": lambda x: np.diag(x, 1),
    "dsplit of a cube": lambda x: np.dsplit(x[:, :, None], 1),
    "einsum of a diagonal": lambda x: np.einsum("ii->i", x),
    "einsum of a transpose": lambda x: np.einsum("ij->ji", x),
    "einsum of itself": lambda x: np.einsum("ij->ij", x),
    "einsum of lists": lambda x: np.einsum(x, [0, 0], [0]),
    "einsum of dots": lambda x: np.einsum("...i->i...", x),
    "einsum of a sum": lambda x: np.einsum("ij->i", x),
    "einsum of a product": lambda x: np.einsum("ij,ij->ij", x, x),
    "full": lambda x: np.full(3, x[0], like=x),
    "rot90 by none": lambda x: np.rot90(x, 0),
    "rot90 by two": lambda x: np.rot90(x, 2),
    "split at places": lambda x: np.split(x, [1, 2], axis=1),
    "split of a split": lambda x: np.split(np.split(x, 3)[1], 3, axis=1),
    "reshape by columns": lambda x: np.reshape(x, 9, order="F"),
    "reshape of a transpose by columns": lambda x: np.reshape(x.T, 9, order="F"),
    "x.T": lambda x: x.T, "x.mT": lambda x: x.mT, "x.real": lambda x: x.real,
    "x[1]": lambda x: x[1], "x[:, None]": lambda x: x[:, None], "list(x)": list,
    "x.diagonal()": lambda x: x.diagonal(), "x.ravel()": lambda x: x.ravel(),
    "x.reshape()": lambda x: x.reshape(9, 1), "x.squeeze()": lambda x: x.squeeze(),
    "x.swapaxes()": lambda x: x.swapaxes(0, 1), "x.transpose()": lambda x: x.transpose(),
}  # fmt: skip


def _called(name: str) -> Callable[[Any], Any]:
    if name in OTHERS:
        return OTHERS[name]
    function = functools.reduce(getattr, name.split("."), np)
    arguments = ARGUMENTS.get(name, (X,) * (getattr(function, "nin", 1) - 1))
    if name in ("cumulative_sum", "cumulative_prod"):
        return functools.partial(function, axis=0)
    if name in ("concat", "concatenate", "stack", "vstack", "hstack", "dstack", "column_stack"):
        return lambda x: function([x])
    if name in ("asarray", "asanyarray", "ascontiguousarray"):
        return lambda x: function(x, like=x)
    if name in ("convolve", "correlate", "polyval"):
        return lambda x: function(x[0], X[0])
    if name == "compress":
        return lambda x: function([True, True, True], x, axis=0)
    if name == "piecewise":
        return lambda x: function(x, [X > 1], [np.sin])
    if name == "linalg.multi_dot":
        return lambda x: function([x, X])
    return lambda x: function(x, *arguments)


def _parts(result: Any) -> list[Any]:
    return list(result) if isinstance(result, (tuple, list)) else [result]


def _shared(name: str, plain: Any) -> list[tuple[int, bool]]:
    """Return which parts of NumPy's result share memory with the array, and are writable."""
    with np.errstate(all="ignore"):
        parts = _parts(_called(name)(plain))
    arrays = [(at, part) for at, part in enumerate(parts) if isinstance(part, np.ndarray)]
    with warnings.catch_warnings(action="ignore"):  # broadcast_arrays gives what will be read-only
        return [(at, part.flags.writeable) for at, part in arrays if np.shares_memory(part, plain)]


def assert_refused_or_same(f: Callable[[Any], Any], message: str) -> None:
    """A program is refused; or what it wrote to is the array itself, as in NumPy."""
    try:
        value = mixad.vjp(f, X)[0]
    except TracerError as error:
        assert re.search(message, str(error))  # noqa: PT017  # either may be
    else:
        np.testing.assert_allclose(value, f(X))


NAMES = sorted({*NUMPY.functions, *OTHERS} - {"dsplit", "einsum", "linalg.outer", "select"})


@pytest.mark.rows("name", NAMES)
def test_a_view_of_numpy_is_not_read_after_a_write_under_the_other_name(name: str) -> None:
    for at, is_writable in _shared(name, X.copy()):

        def old_view(x: Any, at: int = at) -> Any:
            x = x * 1.0
            view = _parts(_called(name)(x))[at]
            x[...] = 2.0
            return view.sum()

        def written_view(x: Any, at: int = at) -> Any:
            x = x * 1.0
            _parts(_called(name)(x))[at][...] = 2.0
            return x.sum()

        assert_refused_or_same(old_view, SHARES)
        assert_refused_or_same(written_view, SHARES if is_writable else "read-only")


def test_functions_of_numpy_that_give_views_are_known() -> None:
    """So that the test above is known to test something: of these, NumPy gives views."""
    found = {name for name in NAMES if _shared(name, X.copy())}
    assert {"array_split", "atleast_2d of a vector", "diag", "diagonal", "einsum of a diagonal",
            "einsum of itself", "hsplit", "rot90", "split", "vsplit", "x.T"} <= found  # fmt: skip
    assert not {"einsum of a product", "einsum of a sum", "hstack", "tile", "exp"} & found


@pytest.mark.parametrize("write", [lambda y: y.__setitem__(0, 1.0), lambda y: y.__imul__(2.0)])
def test_what_is_read_only_in_numpy_is_not_written_to(write: Callable[[Any], Any]) -> None:
    """Nor is a view of it; a copy is."""
    for view in (np.diagonal, np.diag, lambda x: np.diagonal(x)[1:], lambda x: x.diagonal()):
        with pytest.raises(ValueError, match="read-only"):
            write(view(X.copy()))
        with pytest.raises(TracerError, match="read-only"):
            mixad.vjp(lambda x, view=view: write(view(x * 1.0)), X)

    def of_copy(x: Any) -> Any:
        y = np.diagonal(x) * 1.0
        y[0] = 0.0
        return y.sum()

    np.testing.assert_array_equal(mixad.grad(of_copy)(X), np.diag([0.0, 1.0, 1.0]))


def test_a_product_of_einsum_is_no_view() -> None:
    def loss(x: Any) -> Any:
        y = np.einsum("ij,j->i", x, X[0])
        x[0] = 0.0
        return y.sum() + x.sum()

    want = np.broadcast_to(X[0], X.shape) + (np.arange(3) > 0)[:, None]
    np.testing.assert_allclose(mixad.grad(lambda x: loss(x * 1.0))(X), want)


# -- functions that hand their arguments on --------------------------------------------------------

IDENTITY: Any = mixad.custom_vjp(lambda q: q)
IDENTITY.defvjp(lambda q: (q, None), lambda _, g: (g,))
PUSHED: Any = mixad.custom_jvp(lambda q: q)
PUSHED.defjvp(lambda primals, tangents: (primals[0], tangents[0]))
PART: Any = mixad.custom_vjp(lambda q: q[1:].T)
PART.defvjp(lambda q: (q[1:].T, None), lambda _, g: (np.vstack([0 * g.T[:1], g.T]),))

HANDED_ON: dict[str, Callable[[Any], Any]] = {
    "custom_vjp": IDENTITY,
    "custom_jvp": PUSHED,
    "custom_vjp of a part": PART,
    "checkpoint": mixad.checkpoint(lambda q: q),
    "checkpoint of one of two": lambda x: mixad.checkpoint(lambda p, q: [p * q, q[0]])(x * 2, x)[1],
    "vjp": lambda x: mixad.vjp(lambda q: q, x)[0],
    "vjp of a part": lambda x: mixad.vjp(lambda q: np.split(q, 3)[1], x)[0],
    "jvp": lambda x: mixad.jvp(lambda q: q, (x,), (x * 2,))[0],
    "jvp of a part": lambda x: mixad.jvp(lambda q: q[1:], (x,), (x * 2,))[0],
    "aux of jvp": lambda x: mixad.jvp(lambda q: (q * q, q[1:]), (x,), (x * 2,), has_aux=True)[2],
    "aux of jacobian": lambda x: mixad.jacobian(lambda q: (q * q, q[1:]), has_aux=True)(x)[1],
    "aux of a gradient": lambda x: mixad.grad(lambda q: ((q * q).sum(), q.T), has_aux=True)(x)[1],
    "linearize": lambda x: mixad.linearize(lambda q: q.T, x)[0],
    "aux": lambda x: mixad.value_and_grad(lambda q: ((q * q).sum(), q), has_aux=True)(x)[0][1],
    "aux of what was closed over": lambda x: mixad.grad(
        lambda q: (q * q, {"kept": x[1:]}), has_aux=True
    )(2.0)[1]["kept"],
    "two levels": lambda x: mixad.vjp(lambda q: mixad.vjp(lambda p: p, q)[0], x)[0],
}  # fmt: skip


@pytest.mark.rows("name", HANDED_ON)
def test_what_is_handed_on_shares_memory_with_the_argument(name: str) -> None:
    hand_on = HANDED_ON[name]

    def old_result(x: Any) -> Any:
        x = x * 1.0
        found = hand_on(x)
        x[...] = 2.0
        return found.sum()

    def written_result(x: Any) -> Any:
        x = x * 1.0
        hand_on(x)[...] = 2.0
        return x.sum()

    for f in (old_result, written_result):
        for transform in (lambda f: mixad.vjp(f, X), lambda f: mixad.grad(f)(X)):
            for _ in range(3):
                with pytest.raises(TracerError, match=SHARES):
                    transform(f)

    def used(x: Any) -> Any:
        x = x * 1.0
        x[0] = x[0] * 3.0
        return (hand_on(x) * hand_on(x)).sum() + x.sum()

    mixad.check_grads(used, (X,), order=1)


def test_two_results_that_are_one_array_share_memory() -> None:
    def loss(x: Any) -> Any:
        first, second = mixad.checkpoint(lambda q: (q := q * 2.0, q[0]))(x)
        first[0] = 0.0
        return second.sum()

    with pytest.raises(TracerError, match=SHARES):
        mixad.vjp(loss, X)


def test_what_was_written_to_inside_is_an_array_of_its_own() -> None:
    """The caller's array keeps its elements, and may be used."""

    def inner(q: Any) -> Any:
        q[0] = 0.0
        return q

    def loss(x: Any) -> Any:
        y = x * 1.0
        found = mixad.vjp(inner, y)[0]
        return (found * y).sum()

    np.testing.assert_allclose(mixad.grad(loss)(X), 2 * X * (np.arange(3) > 0)[:, None])


def test_results_that_share_nothing_may_be_written_to() -> None:
    def loss(x: Any) -> Any:
        y = x * 1.0
        doubled, part = mixad.checkpoint(lambda p, q: (p * 2.0, q[1:]))(y, x)
        doubled[0] = 0.0
        y[0] = 0.0
        return (doubled * y).sum() + part.sum()

    below = (np.arange(3) > 0)[:, None]
    np.testing.assert_allclose(mixad.grad(loss)(X), below * (4 * X + 1))


def test_stop_gradient_gives_the_elements_of_now() -> None:
    """Of arrays that are not traced as well, so that both give the same."""

    def loss(x: Any) -> Any:
        x = x * 1.0
        kept = mixad.stop_gradient(x)
        x[0] = 0.0
        return (kept * x).sum()

    np.testing.assert_allclose(loss(X), (X[1:] ** 2).sum())
    value, gradient = mixad.value_and_grad(loss)(X)
    np.testing.assert_allclose(value, loss(X))
    np.testing.assert_allclose(gradient, X * (np.arange(3) > 0)[:, None])
    constant = mixad.namespace_of(np).ones(3)
    kept = mixad.stop_gradient(constant)
    constant[0] = 0.0
    assert kept.tolist() == [1.0] * 3


@pytest.mark.parametrize("begin", [lambda x: x * 1.0, np.zeros_like, lambda x: 2.0 * x + x])
@pytest.mark.parametrize("read", ["whole", "part"])
def test_a_part_that_was_written_back_is_a_view_still(begin: Callable[..., Any], read: str) -> None:
    """NumPy's ``y`` would follow a later write to ``part``, and the other way round."""

    def f(x: Any) -> Any:
        y = begin(x)
        part = y[1:]
        part += x[1:]
        y[1:] = part
        if read == "whole":
            part *= 3.0
            return y.sum()
        y *= 3.0
        return part.sum()

    for _ in range(3):
        with pytest.raises(TracerError, match=SHARES):
            mixad.grad(f)(X)


def test_a_part_may_be_changed_and_written_back_again_and_again() -> None:
    def f(x: Any) -> Any:
        y = np.zeros_like(x)
        part = y[1:]
        for _ in range(3):
            part += x[1:]
            y[1:] = part
            part *= x[1:]
            y[1:] = part
        return y.sum() + (part * part).sum()

    for _ in range(3):
        found = mixad.grad(f)(X[0])
        expected = [f(X[0] + 1e-30j * unit).imag * 1e30 for unit in np.eye(3)]
        np.testing.assert_allclose(found, expected, rtol=1e-13)


@pytest.mark.parametrize("read", [np.shape, np.sum, lambda z: z + 1.0, lambda z: z[0]])
def test_a_constant_whose_view_was_written_to_is_refused(read: Callable[..., Any]) -> None:
    def f(x: Any) -> Any:
        zeros = np.zeros_like(x)
        turned = zeros[::-1]
        turned *= x.sum()
        read(zeros)
        return turned.sum()

    with pytest.raises(TracerError, match=SHARES):
        mixad.grad(f)(X)
