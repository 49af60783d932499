"""Histograms with any operator: values, derivatives, indices outside, bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from operators import (
    CASES,
    LAYOUTS,
    RNG,
    Case,
    Derivatives,
    bits_by_threads,
    check_transposed,
    close,
    curved,
    element,
    inner,
    leaves_of,
    long,
    numbers,
    permuted,
)

import mixad
from mixad.errors import ConfigurationError, KernelShapeError, KernelTypeError, TracerError

by_index = mixad.reduce_by_index


def add(a, b):
    return a + b


def times(a, b):
    return a * b


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


OPERATORS = {
    "+": CASES["sum"],
    "*": CASES["product"],
    "min": CASES["min"],
    "max": CASES["max"],
    "the last": Case(lambda _: lambda a, b: b, lambda xp, a, b, _: b, numbers(1.0)),
    "a*b+a+b": CASES["a*b+a+b"],
    "affine": CASES["affine"],
    "argmax": CASES["argmax"],
    "a captured number": CASES["a captured number"],
}


def by_steps(case, dest, indices, xs, captured=None):
    """Return what elements make of others, one after another, in longer floats."""
    dest, xs = [long(d).copy() for d in dest], [long(x) for x in xs]
    for place, at in enumerate(indices):
        here, one = tuple(d[at] for d in dest), tuple(x[place] for x in xs)
        for d, y in zip(dest, case.step(np, here, one, captured), strict=True):
            d[at] = y
    return dest


class Histogram(Derivatives):
    """Random elements at random indices."""

    def __init__(self, case, bins, count, rows=(), **options):
        self.case, self.options, rng = case, options, np.random.default_rng(bins)
        self.indices = rng.integers(-bins, bins, count)
        if options.get("indices_are_sorted"):
            self.indices.sort()
        self.dest, self.xs = case.draw(rng, (bins, *rows)), case.draw(rng, (count, *rows))
        self.given = [x for x in (*self.dest, *self.xs) if x.dtype.kind == "f"]
        if case.captured is not None:
            self.given.append(case.captured)
        self.weights = [rng.standard_normal(d.shape) for d in self.dest if d.dtype.kind == "f"]
        self.along, self.other = (
            [rng.standard_normal(np.shape(x)) for x in self.given] for _ in range(2)
        )

    def _taken_apart(self, given):
        given, leaves = list(given), [*self.dest, *self.xs]
        captured = given.pop() if self.case.captured is not None else None
        leaves = [given.pop(0) if x.dtype.kind == "f" else x for x in leaves]
        return leaves[: len(self.dest)], leaves[len(self.dest) :], captured

    def run(self, *given):
        dest, xs, captured = self._taken_apart(given)
        op = self.case.op(captured)
        return leaves_of(by_index(op, element(dest), self.indices, element(xs), **self.options))

    def expected(self, *given):
        dest, xs, captured = self._taken_apart(given)
        return by_steps(self.case, dest, self.indices, xs, captured)

    def loss(self, *given):
        return curved(self.run(*given)[: len(self.weights)], self.weights)

    def by_steps(self, *given):
        return curved(self.expected(*given)[: len(self.weights)], self.weights)


@pytest.mark.rows("name", OPERATORS)
@pytest.mark.rows("rows", [(), (3,), (2, 3)], ids=str)
@pytest.mark.rows("bins", [1, 7, 300, 100_000])
@pytest.mark.rows("is_sorted", [False, True], ids=["in any order", "sorted"])
def test_values_are_those_of_steps(name, rows, bins, is_sorted):
    problem = Histogram(OPERATORS[name], bins, 400, rows, indices_are_sorted=is_sorted)
    before = [x.copy() for x in (*problem.dest, *problem.xs)]
    wanted = problem.expected(*problem.given)
    for one, other in zip(problem.run(*problem.given), wanted, strict=True):
        close(one, other)
    for one, other in zip((*problem.dest, *problem.xs), before, strict=True):
        assert one.tobytes() == other.tobytes()


@pytest.mark.rows("name", OPERATORS, slow=["affine", "a captured number"])
@pytest.mark.rows("bins", [1, 300])
@pytest.mark.rows("count", [100, pytest.param(250, marks=pytest.mark.slow)])
def test_derivatives_are_those_of_steps(name, bins, count):
    Histogram(OPERATORS[name], bins, count, (2,)).check_first()


@pytest.mark.rows("name", OPERATORS, slow=["affine", "a captured number"])
def test_second_derivatives_are_those_of_steps(name):
    Histogram(OPERATORS[name], 7, 60, (2,)).check_second()


@pytest.mark.rows("name", ["+", "*", "min", "the last", "affine"], slow="affine")
@pytest.mark.rows("count", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_pullbacks_are_transposes(name, count):
    problem = Histogram(OPERATORS[name], 9, count, (2,))
    check_transposed(lambda *xs: element(problem.run(*xs)), problem.given, RNG)


@pytest.mark.slow
def test_values_and_derivatives_are_those_of_torch():
    torch = pytest.importorskip("torch")
    dest, k, x, weights = (
        drawn(9),
        RNG.integers(0, 9, 300),
        1.0 + drawn(300) * 0.1,
        drawn(9, seed=2),
    )
    names = {add: "sum", times: "prod", min: "amin", max: "amax"}
    for op, name in names.items():
        into, given = torch.tensor(dest, requires_grad=True), torch.tensor(x, requires_grad=True)
        y = into.scatter_reduce(0, torch.tensor(k), given, name)
        (y * torch.tensor(weights)).sum().backward()
        found, pull = mixad.vjp(lambda d, x, op=op: by_index(op, d, k, x), dest, x)
        close(found, y.detach().numpy())
        for one, other in zip(pull(weights), (into.grad, given.grad), strict=True):
            close(one, other.numpy())


INDEX_TYPES = "i1 i2 i4 i8 u1 u2 u4 u8".split()


@pytest.mark.rows("dtype", INDEX_TYPES)
@pytest.mark.rows("op", [add, min, times], ids="+ min *".split())
def test_dtypes_of_indices(op, dtype):
    k, x = np.array([0, 2, 2, 1, 0, 6] * 3).astype(dtype), 1.0 + drawn(18) * 0.1
    if k.dtype.kind == "i":
        k[::4] -= 7
    found, pull = mixad.vjp(lambda x: by_index(op, np.ones(7), k, x), x)
    case = OPERATORS[{add: "+", min: "min", times: "*"}[op]]
    close(found, by_steps(case, [np.ones(7)], k.astype(int), [x])[0])
    assert pull(np.ones(7))[0].shape == x.shape
    two = by_index(op, np.ones((7, 2)), k.reshape(3, 6), np.stack([x, x], 1).reshape(3, 6, 2))
    close(two, np.stack([found, found], 1))


@pytest.mark.rows("dtype", "f8 f4 f2 i1 i2 i4 i8 u1 u2 u4 u8".split())
@pytest.mark.rows("name", ["+", "min", "max", "a*b+a+b", "the last"])
def test_dtypes_of_elements(name, dtype):
    case, kind = OPERATORS[name], np.dtype(dtype).kind
    k, dest = RNG.integers(0, 5, 60), np.arange(6).astype(dtype)
    x = (drawn(60) * 0.05 if kind == "f" else RNG.integers(0, 100, 60)).astype(dtype)
    found = by_index(case.op(None), dest, k, x)
    assert found.dtype == dest.dtype
    with np.errstate(over="ignore"):
        wanted = by_steps(case, [dest], k, [x])[0]
    if kind == "f":
        close(found.astype("f8"), wanted, {"f8": 1e-13, "f4": 1e-5, "f2": 2e-3}[dtype])
    else:
        assert found.tolist() == wanted.tolist()


def test_bools():
    k, x = RNG.integers(0, 9, 30), RNG.random(30) < 0.5
    for op, ufunc in ((lambda a, b: a | b, np.logical_or), (lambda a, b: a ^ b, np.logical_xor)):
        wanted = np.zeros(10, bool)
        ufunc.at(wanted, k, x)
        assert by_index(op, np.zeros(10, bool), k, x).tolist() == wanted.tolist()


OUTSIDE = [("i8", 5), ("i8", -6), ("i8", 2**62), ("i8", -(2**63)), ("i1", -128), ("u1", 255),
           ("u4", 2**32 - 1), ("u8", 2**63), ("u8", 2**64 - 1)]  # fmt: skip
ALL = {"+": add, "*": times, "min": min, "max": max, "last": lambda a, b: b}


@pytest.mark.rows("op", list(ALL.values()), ids=ALL)
@pytest.mark.rows(("dtype", "at"), OUTSIDE)
@pytest.mark.rows("rows", [(), (2,)], ids=str)
def test_an_index_outside_is_an_error_and_nothing_is_changed(op, dtype, at, rows):
    for place in (0, 18, 36):
        k, dest, x = (np.arange(37) % 5).astype(dtype), 1.0 + drawn(5, *rows), drawn(37, *rows)
        k[place] = at
        before = dest.tobytes(), x.tobytes(), k.tobytes()
        with pytest.raises(IndexError, match=rf"(?<!\d){at}\b.*outside"):
            by_index(op, dest, k, x)
        with pytest.raises(IndexError, match="outside"):
            mixad.vjp(lambda d, x, k=k: by_index(op, d, k, x), dest, x)
        assert (dest.tobytes(), x.tobytes(), k.tobytes()) == before
        found, pull = mixad.vjp(lambda d, x, k=k: by_index(op, d, k, x, mode="drop"), dest, x)
        is_in = np.arange(37) != place
        close(found, by_index(op, dest, k[is_in], x[is_in]), 0.0)
        assert not pull(np.ones_like(dest))[1][place].any()


@pytest.mark.rows("op", list(ALL.values()), ids=ALL)
def test_of_no_elements(op):
    dest, none = drawn(3, 2), np.zeros(0, int)
    found, pull = mixad.vjp(lambda d, x: by_index(op, d, none, x), dest, np.zeros((0, 2)))
    assert found.tolist() == dest.tolist()
    assert not np.shares_memory(by_index(op, dest, none, np.zeros((0, 2))), dest)
    assert [g.tolist() for g in pull(dest)] == [dest.tolist(), []]
    for mode in ("raise", "drop"):
        assert by_index(op, np.zeros(0), none, np.zeros(0), mode=mode).shape == (0,)
        shape = by_index(op, np.zeros((3, 0)), none + 1, np.zeros((0, 0)), mode=mode).shape
        assert shape == (3, 0)
    assert by_index(op, np.zeros(0), np.arange(2), np.zeros(2), mode="drop").shape == (0,)
    with pytest.raises(IndexError, match="outside"):
        by_index(op, np.zeros(0), np.arange(2), np.zeros(2))
    with pytest.raises(IndexError, match="outside"):
        by_index(op, np.zeros((3, 0)), np.array([1, 3]), np.zeros((2, 0)))


@pytest.mark.rows("op", list(ALL.values()), ids=ALL)
@pytest.mark.rows("mode", ["raise", "drop"])
def test_one_argument_may_be_constant(op, mode):
    k, dest, x, g = RNG.integers(-5, 5, 30), 1.0 + drawn(5) * 0.1, 1.0 + drawn(30) * 0.1, drawn(5)
    k[::7] = 9 if mode == "drop" else 0
    of_dest, of_x = mixad.vjp(lambda d, x: by_index(op, d, k, x, mode=mode), dest, x)[1](g)
    close(mixad.vjp(lambda d: by_index(op, d, k, x, mode=mode), dest)[1](g)[0], of_dest)
    close(mixad.vjp(lambda x: by_index(op, dest, k, x, mode=mode), x)[1](g)[0], of_x)
    along = drawn(30, seed=2)
    _, moved = mixad.jvp(lambda x: by_index(op, dest, k, x, mode=mode), (x,), (along,))
    close(inner([moved], [g]), inner([of_x], [along]))


@pytest.mark.rows("op", list(ALL.values()), ids=ALL)
def test_cotangents_that_are_one_repeated_number(op):
    k, dest, x = RNG.integers(0, 5, 30), 1.0 + drawn(5, 2), 1.0 + drawn(30, 2) * 0.1
    found = mixad.grad(lambda d, x: by_index(op, d, k, x).sum(), (0, 1))(dest, x)
    _, pull = mixad.vjp(lambda d, x: by_index(op, d, k, x), dest, x)
    for one, other in zip(found, pull(np.ones((5, 2))), strict=True):
        close(one, other)


@pytest.mark.rows("op", [min, max])
def test_of_ties_the_first_has_the_derivative(op):
    """That of ``dest`` before all."""
    dest, k, x = np.array([2.0, 5.0, 1.0, 3.0]), np.array([0, 0, 1, 1, 2, 2]), np.full(6, 2.0)
    if op is max:
        dest[1], dest[2] = dest[2], dest[1]
    y, pull = mixad.vjp(lambda d, x: by_index(op, d, k, x), dest, x)
    assert y.tolist() == [2.0, 2.0, dest[2], 3.0]
    of_dest, of_xs = pull(np.arange(1.0, 5.0))
    assert of_dest.tolist() == [1.0, 0.0, 3.0, 4.0]
    assert of_xs.tolist() == [0.0, 0.0, 2.0, 0.0, 0.0, 0.0]
    _, moved = mixad.jvp(
        lambda d, x: by_index(op, d, k, x), (dest, x), (np.ones(4), 2 * np.ones(6))
    )
    assert moved.tolist() == [1.0, 2.0, 1.0, 1.0]


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan, 0.0])
def test_special_numbers(special):
    k, x, dest = np.arange(20) % 4, 1.0 + drawn(20) ** 2, np.ones(4)
    x[[5, 7, 11]] = special
    for op, ufunc in ((min, np.minimum), (max, np.maximum), (times, np.multiply), (add, np.add)):
        wanted = dest.copy()
        with np.errstate(invalid="ignore"):
            ufunc.at(wanted, k, x)
        found, pull = mixad.vjp(lambda d, x, op=op: by_index(op, d, k, x), dest, x)
        np.testing.assert_allclose(found, wanted, rtol=1e-13)
        of_dest, of_xs = pull(np.ones(4))
        if op is add or op in (min, max):
            assert of_dest.sum() + of_xs.sum() == (24.0 if op is add else 4.0)
        elif special == 0.0:
            products = [np.prod(np.delete(x, j)[np.delete(k, j) == k[j]]) for j in range(20)]
            close(of_xs, np.array(products))
        if special != special and op in (min, max):
            assert of_xs[[5, 7]].tolist() == [1.0, 1.0]


@pytest.mark.rows("op", list(ALL.values()), ids=ALL)
def test_layouts_and_bits(op):
    """Bits are the same at any place of memory, each time."""
    k, dest, x = RNG.integers(0, 40, 3000), drawn(40, 3), drawn(3000, 3)

    def run(dest, k, x):
        y, pull = mixad.vjp(lambda d, x: by_index(op, d, k, x), dest, x)
        return (y, *pull(np.cos(y)))

    memory, wanted = np.zeros(9100), run(dest, k, x)
    for offset in (0, 1, 3, 8, 0):
        part = memory[offset : offset + 9000].reshape(3000, 3)
        part[...] = x
        for one, other in zip(run(dest, k, part), wanted, strict=True):
            assert one.tobytes() == other.tobytes()
    strided = np.repeat(k, 2)[::2]
    for layout in LAYOUTS.values():
        for one, other in zip(run(layout(dest), strided, layout(x)), wanted, strict=True):
            close(one, other)


@pytest.mark.slow
def test_bits_are_the_same_for_any_number_of_threads(tmp_path):
    one, two, seven = bits_by_threads(
        tmp_path,
        """
rng = np.random.default_rng(0)
k, x, dest = rng.integers(0, 300, 200_000), rng.standard_normal(200_000), np.ones(300)
for op in (lambda a, b: a + b, min, max, lambda a, b: a * b * 0.5, lambda a, b: b):
    y, pull = mixad.vjp(lambda d, x: mixad.reduce_by_index(op, d, k, x), dest, x)
    show(y, *pull(dest))
""",
    )
    assert one == two == seven


@pytest.mark.slow
@pytest.mark.rows("op", list(ALL.values()), ids=ALL)
def test_many_elements(op):
    """More than a digit of the sort, in several slabs."""
    rng = np.random.default_rng(1)
    k, x, dest = (
        rng.integers(-100_000, 100_000, 700_000),
        rng.standard_normal(700_000),
        np.ones(100_000),
    )
    found = by_index(op, dest, k, x)
    ufunc = {add: np.add, times: np.multiply, min: np.minimum, max: np.maximum}.get(op)
    if ufunc is None:
        dest[k] = x
    else:
        ufunc.at(dest, k, x)
    close(found, dest)


@given(st.lists(st.tuples(st.integers(-5, 4), st.permutations(range(4))), max_size=40))
def test_random_permutations(pairs):
    """Nothing rounds, and their order matters."""
    k = np.array([at for at, _ in pairs], int)
    p = np.array([p for _, p in pairs], int).reshape(-1, 4)
    wanted = np.tile(np.arange(4), (5, 1))
    for at, row in zip(k, p, strict=True):
        wanted[at] = wanted[at][row]
    dest = tuple(np.full(5, each) for each in range(4))
    found = by_index(permuted, dest, k, tuple(p.T))
    assert np.stack(found, 1).tolist() == wanted.tolist()


ONES, PLACES = np.ones(3), np.array([0, 1, 1])
REFUSED = {
    "mode": (ConfigurationError, "mode='clip' is none",
             lambda: by_index(add, ONES, PLACES, ONES, mode="clip")),
    "structures": (KernelTypeError, r"xs is tuple\(\*\), dest is \*",
                   lambda: by_index(add, ONES, PLACES, (ONES,))),
    "float indices": (KernelTypeError, "indices have the dtype float64",
                      lambda: by_index(add, ONES, ONES, ONES)),
    "indices that are bools": (KernelTypeError, "indices have the dtype bool",
                               lambda: by_index(add, ONES, PLACES > 0, ONES)),
    "a list": (TracerError, "indices contains a list",
               lambda: by_index(add, ONES, [0, 1, 1], ONES)),
    "a number": (KernelShapeError, r"dest has the shape \(\)",
                 lambda: by_index(add, 3.0, PLACES, ONES)),
    "several shapes": (KernelShapeError, r"shapes \(3,\) and \(2,\) in dest",
                       lambda: by_index(lambda a, b: (a[0] + b[0], a[1] + b[1]),
                                        (ONES, ONES[1:]), PLACES, (ONES, ONES))),
    "shape of xs": (KernelShapeError, r"shape \(2,\), with indices of shape \(3,\) and dest of",
                    lambda: by_index(add, ONES, PLACES, ONES[1:])),
    "axes of xs": (KernelShapeError, r"(?s)shape \(3, 2\)(?s:.*)elements of shape \(3, 4\)",
                   lambda: by_index(add, np.ones((9, 4)), PLACES, np.ones((3, 2)))),
    "dtypes": (KernelTypeError, "xs has the dtype float32, dest has float64",
               lambda: by_index(add, ONES, PLACES, np.ones(3, "f4"))),
    "complex": (KernelTypeError, "complex", lambda: by_index(add, ONES + 0j, PLACES, ONES + 0j)),
    "returns two": (KernelTypeError, "reduce_by_index: the operator returns tuple",
                    lambda: by_index(lambda a, b: (a, b), ONES, PLACES, ONES)),
    "a dict": (KernelTypeError, "dict", lambda: by_index(add, {"a": ONES}, PLACES, {"a": ONES})),
    "nothing": (KernelTypeError, "dest is tuple", lambda: by_index(add, (), PLACES, ())),
    **{f"not sorted, {name}": (KernelShapeError, "indices_are_sorted=True, and they are not",
       lambda op=op: by_index(op, ONES, PLACES[::-1].copy(), ONES, indices_are_sorted=True))
       for name, op in ALL.items()},
}  # fmt: skip


@pytest.mark.rows("name", REFUSED)
def test_what_is_refused(name):
    error, message, run = REFUSED[name]
    with pytest.raises(error, match=message):
        run()
