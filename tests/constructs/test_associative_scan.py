"""Prefixes by any associative operator: values, derivatives of both modes and orders, bits."""

import operator
from functools import partial

import numpy as np
import pytest
from operators import (
    CASES,
    LAYOUTS,
    RNG,
    Problem,
    close,
    curved,
    prefixes,
)

import mixad
from mixad.errors import KernelError, KernelShapeError, KernelTypeError

scan = mixad.associative_scan
AFFINE = CASES["affine"].op(None)
SHAPES = [(3, 4, 5), (2, 125, 3), (125, 17, 2)]


def times(a, b):
    return a * b


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.rows("name", ["product", "affine"], slow="affine")
def test_derivatives_are_those_of_a_loop(name):
    """Of `mixad.scan`, which goes from step to step."""
    problem = Problem(CASES[name], (125, 2), scan, lambda ys: ys)

    def loss(*leaves):
        def step(a, b):
            found = problem.case.step(np, a, b, None)
            return found, found

        first, rest = tuple(x[0] for x in leaves), tuple(x[1:] for x in leaves)
        _, ys = mixad.scan(step, first, rest)
        whole = [np.concatenate([x[None], y]) for x, y in zip(first, ys, strict=True)]
        return curved(whole, problem.weights)

    which, given, along = (0, 1)[: len(problem.given)], tuple(problem.given), tuple(problem.along)
    found, wanted = (mixad.grad(f, which)(*given) for f in (problem.loss, loss))
    close(np.stack(found), np.stack(wanted), 1e-11)
    found, wanted = (mixad.hvp(f, given, along) for f in (problem.loss, loss))
    close(np.stack(found), np.stack(wanted), 1e-10)


@pytest.mark.slow
def test_derivatives_are_those_of_torch():
    torch = pytest.importorskip("torch")
    x, weights = 1.0 + drawn(241, 3) * 0.1, drawn(241, 3, seed=1)
    given = torch.tensor(x, requires_grad=True)
    (torch.cumprod(given, 0) * torch.tensor(weights)).sum().backward()
    close(mixad.grad(lambda x: (scan(times, x) * weights).sum())(x), given.grad.numpy())


LENGTHS = [0, 1, 2, 15, 16, 17, 119, 120, 121, 240, 241, 14401]


@pytest.mark.rows("n", [*LENGTHS, pytest.param(1_000_003, marks=pytest.mark.slow)])
def test_lengths(n):
    x, weights = np.exp(drawn(n) / np.sqrt(n + 1)), drawn(n, seed=1)
    found, pull = mixad.vjp(lambda x: scan(times, x), x)
    expected = np.multiply.accumulate(x.astype(np.longdouble))
    close(found, expected, 1e-11)
    (g,) = pull(weights)
    close(g, (weights * expected)[::-1].cumsum()[::-1] / x, 1e-10)
    offsets, slopes = drawn(n), np.where(np.arange(n) % 3, 0.9, -1.1)
    (found, _), b, a = scan(AFFINE, (offsets, slopes)), 0.0, 1.0
    for at, (offset, by) in enumerate(zip(offsets.astype(np.longdouble), slopes, strict=True)):
        b, a = offset + by * b, a * by
        assert abs(found[at] - b) < 1e-10


@pytest.mark.rows("shape", [(0, 3), (3, 0), (2, 3, 0)], ids=str)
def test_of_no_elements(shape):
    for options in ({}, {"initial": 1.0}, {"initial": 1.0, "exclusive": True, "reverse": True}):
        found, pull = mixad.vjp(lambda x, o=options: scan(times, x, **o), np.zeros(shape))
        assert found.shape == shape
        assert pull(np.zeros(shape))[0].shape == shape


@pytest.mark.rows("dtype", "f8 f4 f2 i1 i2 i4 i8 u1 u2 u4 u8".split())
@pytest.mark.rows("op", [times, max], ids="* max".split())
def test_dtypes(op, dtype):
    """Whole numbers wrap; floats of 16 bits are combined as longer ones."""
    kind = np.dtype(dtype).kind
    x = 1.0 + drawn(130, 2) * 0.01 if kind == "f" else RNG.integers(0, 100, (130, 2))
    x = x.astype(dtype)
    found = scan(op, x)
    assert found.dtype == np.dtype(dtype)
    ufunc = {times: np.multiply, max: np.maximum}[op]
    if kind == "f":
        wanted = ufunc.accumulate(x.astype("f8"))
        close(found.astype("f8"), wanted, {"f8": 1e-13, "f4": 1e-5, "f2": 1e-3}[dtype])
    else:
        assert found.tolist() == ufunc.accumulate(x, dtype=x.dtype).tolist()


def test_bools():
    x = RNG.random(241) < 0.1
    for op, ufunc in (
        (operator.and_, np.logical_and),
        (operator.or_, np.logical_or),
        (operator.xor, np.logical_xor),
    ):
        for y in (x, ~x):
            found = scan(op, y)
            assert found.dtype == bool
            assert found.tolist() == ufunc.accumulate(y).tolist()


@pytest.mark.rows("axis", [0, 1, 2, -1, -2, None])
@pytest.mark.rows("layout", LAYOUTS)
@pytest.mark.rows("shape", SHAPES, ids=str, slow=[str(s) for s in SHAPES[1:]])
def test_axes_and_layouts(shape, layout, axis):
    """Of maps, whose order matters; with 16 places beside an element its axis is not cut."""
    leaves = tuple(LAYOUTS[layout](x) for x in CASES["affine"].draw(RNG, shape))
    before = [x.copy() for x in leaves]

    def along(x):
        return x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0)

    rows = [along(x) for x in leaves]
    weights = drawn(*shape) if axis is not None else drawn(leaves[0].size)
    for options in ({}, {"reverse": True}, {"initial": (0.5, 2.0), "exclusive": True}):
        found = scan(AFFINE, leaves, axis, **options)
        by_hand = [r[::-1] for r in rows] if "reverse" in options else rows
        if "initial" in options:
            firsts = [np.full(rows[0].shape, x) for x in options["initial"]]
            by_hand = [np.concatenate([f[:1], r[:-1]]) for f, r in zip(firsts, rows, strict=True)]
        for one, other in zip(found, prefixes(CASES["affine"], by_hand), strict=True):
            close(along(one), other[::-1] if "reverse" in options else other)

        def loss(b, a, axis=axis, weights=weights, options=options):
            return (scan(AFFINE, (b, a), axis, **options)[0] * weights).sum()

        found = mixad.grad(loss, (0, 1))(*leaves)
        own = [np.ascontiguousarray(r) for r in rows]
        wanted = mixad.grad(partial(loss, axis=0, weights=along(weights)), (0, 1))(*own)
        for one, other in zip(found, wanted, strict=True):
            close(along(one), other)
    for one, other in zip(leaves, before, strict=True):
        assert one.tobytes() == other.tobytes()


def test_an_array_of_one_repeated_element():
    x, powers = np.broadcast_to(np.array([1.01, 0.99]), (241, 2)), np.arange(1, 242)[:, None]
    y, pull = mixad.vjp(lambda x: scan(times, x), x)
    close(y, x**powers)
    close(pull(np.ones_like(y))[0].sum(0), (powers * x ** (powers - 1)).sum(0), 1e-11)


@pytest.mark.rows("exclusive", [False, True])
@pytest.mark.rows("reverse", [False, True])
def test_what_comes_before_the_first_element(exclusive, reverse):
    x, y = 1.0 + drawn(125, 3) * 0.1, 0.5 + drawn(3, seed=1)

    def loss(x, y):
        found = scan(times, x, initial=y, exclusive=exclusive, reverse=reverse)
        return (found * found * weights).sum()

    def by_numpy(x, y):
        x = x[::-1] if reverse else x
        found = np.cumprod(np.concatenate([y[None], x]), 0)
        found = found[:-1] if exclusive else found[1:]
        return ((found[::-1] if reverse else found) ** 2 * weights).sum()

    weights = drawn(125, 3, seed=2)
    close(loss(x, y), by_numpy(x, y))
    found, wanted = (mixad.grad(f, (0, 1))(x, y) for f in (loss, by_numpy))
    for one, other in zip(found, wanted, strict=True):
        close(one, other, 1e-11)
    number = scan(times, x, initial=0.7, exclusive=exclusive, reverse=reverse)
    close(number, scan(times, x, initial=np.full(3, 0.7), exclusive=exclusive, reverse=reverse))


@pytest.mark.parametrize("zeros", [(), (7,), (7, 130)], ids=["none", "one", "two"])
def test_products_with_zeros(zeros):
    x, weights = np.exp(drawn(241) * 0.1), drawn(241, seed=1)
    x[list(zeros)] = 0.0
    y, pull = mixad.vjp(lambda x: scan(times, x), x)
    close(y, np.cumprod(x))
    (g,) = pull(weights)
    wanted = np.zeros(241)
    for k in range(241):
        others = np.where(np.arange(241) == k, 1.0, x)
        wanted[k] = (weights * np.cumprod(others))[k:].sum()
    close(g, wanted, 1e-11)


@pytest.mark.rows("op", [min, max, np.minimum])
@pytest.mark.rows("is_forward", [False, True], ids=["backward", "forward"])
def test_of_ties_the_first_has_the_derivative(op, is_forward):
    x = RNG.integers(0, 4, 241).astype(float)
    x[200] = 9.0 if op is max else -9.0
    accumulated = (np.maximum if op is max else np.minimum).accumulate(x)
    firsts, weights, wanted = (
        np.argmax(x == accumulated[:, None], axis=1),
        drawn(241),
        np.zeros(241),
    )
    assert scan(op, x).tolist() == accumulated.tolist()
    if is_forward:
        close(mixad.jvp(lambda x: scan(op, x), (x,), (weights,))[1], weights[firsts])
    else:
        np.add.at(wanted, firsts, weights)
        close(mixad.vjp(lambda x: scan(op, x), x)[1](weights)[0], wanted)


@pytest.mark.rows("at", [0, 7, 130, 240])
def test_infinities_and_nan(at):
    for special in (np.inf, -np.inf, np.nan):
        x = 1.0 + drawn(241) ** 2
        x[at] = special
        for op, ufunc in ((min, np.minimum), (max, np.maximum), (times, np.multiply)):
            with np.errstate(invalid="ignore"):
                wanted = ufunc.accumulate(x)
            found, pull = mixad.vjp(lambda x, op=op: scan(op, x), x)
            np.testing.assert_allclose(found, wanted, rtol=1e-12)
            (g,) = pull(np.ones(241))
            if op is not times:
                assert g.sum() == 241.0
                assert set(np.flatnonzero(g)) == {int(np.flatnonzero(
                    (x == y) | (np.isnan(x) & np.isnan(y)))[0]) for y in wanted}  # fmt: skip


def test_operators_that_are_not_associative(monkeypatch):
    monkeypatch.setenv("MIXAD_CHECK", "full")
    with pytest.raises(KernelError, match=r"mixad.associative_scan: <lambda> is not associative"):
        scan(lambda a, b: a / b, np.array([[1.0, 2.0, 4.0]]), axis=1)
    scan(times, drawn(300))


def test_what_is_refused():
    with pytest.raises(KernelShapeError, match="exclusive=True needs initial"):
        scan(times, np.ones(3), exclusive=True)
    with pytest.raises(KernelTypeError, match=r"mixad.associative_scan: xs is dict"):
        scan(times, {"a": np.ones(3)})
    with pytest.raises(KernelTypeError, match="initial has the dtype int64, elements have float64"):
        scan(times, np.ones(3), initial=np.arange(1)[0])
