"""Reductions, and what scans share with them: values, derivatives of all orders, bits."""

import operator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from operators import (
    CASES,
    LAYOUTS,
    RNG,
    ROWS,
    Problem,
    argmax,
    bits_by_threads,
    check_transposed,
    check_with_jax,
    close,
    curved,
    element,
    permuted,
    prefixes,
)

import mixad
from mixad.errors import ConfigurationError, KernelError, KernelShapeError, KernelTypeError

BOTH = pytest.mark.rows(
    "construct",
    [(mixad.reduce, lambda ys: ys[-1]), (mixad.associative_scan, lambda ys: ys)],
    ids=["reduce", "associative_scan"],
)


def circ(a, b):
    return a * b + a + b


def times(a, b):
    return a * b


EXAMPLES = 30
SHAPES = [(3, 4, 5), (2, 125, 3), (125, 17, 2)]
LENGTHS = [1, 2, 15, 16, 17, 119, 120, 121, 240, 241, 14401]


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@BOTH
@pytest.mark.rows(("case", "shape"), ROWS)
def test_values_are_those_of_steps(construct, case, shape):
    problem = Problem(case, shape, *construct)
    for one, other in zip(problem.found(), problem.expected(), strict=True):
        close(one, other)


@BOTH
@pytest.mark.rows(("case", "shape"), ROWS)
def test_derivatives_are_those_of_steps(construct, case, shape):
    Problem(case, shape, *construct).check_first()


@BOTH
@pytest.mark.rows(("case", "shape"), ROWS)
def test_second_derivatives_are_those_of_steps(construct, case, shape):
    Problem(case, shape, *construct).check_second()


@pytest.mark.slow
@BOTH
@pytest.mark.rows("name", ["product", "affine", "log sum", "2x2"])
def test_derivatives_are_those_of_jax(construct, name):
    jax = pytest.importorskip("jax")
    problem = Problem(CASES[name], (130, 2), *construct)

    def reference(*leaves):
        def step(a, b):
            return problem.case.step(jax.numpy, a, b, None)

        ys = jax.lax.associative_scan(step, leaves)
        return curved(map(problem.after, ys), problem.weights)

    check_with_jax(jax, problem.loss, reference, problem.given, problem.along)


@BOTH
@pytest.mark.rows("name", ["product", "affine", "min-plus", "3x3"], slow="affine min-plus 3x3")
def test_pullbacks_are_transposes(construct, name):
    problem = Problem(CASES[name], (130, 2), *construct)
    check_transposed(lambda *x: element(problem.run_on(x, None)), problem.given, RNG)


@pytest.mark.slow
@BOTH
@given(st.sampled_from(["affine", "2x2", "min-plus", "log sum"]), st.integers(1, 260),
       st.integers(0, 2**32), st.integers(1, 18))  # fmt: skip
@settings(max_examples=EXAMPLES)
def test_random_elements(construct, name, n, seed, rows):
    problem = Problem(CASES[name], (n, rows), *construct, seed)
    for one, other in zip(problem.found(), problem.expected(), strict=True):
        close(one, other, 1e-11)
    rng = np.random.default_rng(seed)
    check_transposed(lambda *x: element(problem.run_on(x, None)), problem.given, rng)


@BOTH
def test_bits_are_the_same_at_any_place_and_each_time(construct):
    memory, x, bits = np.zeros(1300), 1.0 + drawn(1200) * 0.05, set()
    for offset in (0, 1, 2, 3, 5, 8, 13, 0):
        part = memory[offset : offset + 1200]
        part[...] = x
        y, pull = mixad.vjp(lambda x: construct[0](times, x), part)
        bits.add((y.tobytes(), pull(np.cos(y))[0].tobytes()))
    assert len(bits) == 1


@pytest.mark.slow
def test_bits_are_the_same_for_any_number_of_threads(tmp_path):
    one, two, seven = bits_by_threads(
        tmp_path,
        """
times = lambda a, b: a * b
x = 1.0 + np.random.default_rng(0).standard_normal((150_001, 2)) * 1e-3
for construct in (mixad.reduce, mixad.associative_scan):
    y, pull = mixad.vjp(lambda x: construct(times, x), x)
    show(y, pull(y)[0], mixad.hvp(lambda x: construct(times, x).sum(), (x[:3000],), (x[:3000],)))
show(mixad.reduce(lambda a, b: a + b, x), mixad.associative_scan(times, x[:9000].reshape(90, 200)))
""",
    )
    assert one == two == seven
    assert len(one) > 3 * 16 * 300_002


@pytest.mark.rows("n", [*LENGTHS, pytest.param(1_000_003, marks=pytest.mark.slow)])
def test_lengths(n):
    x = np.exp(drawn(n) / np.sqrt(n))
    value, g = mixad.value_and_grad(lambda x: mixad.reduce(times, x))(x)
    expected = np.multiply.reduce(x.astype(np.longdouble))
    close(value, expected, 1e-11)
    close(g, expected / x, 1e-11)
    offsets, slopes = drawn(n), np.where(np.arange(n) % 3, 0.9, -1.1)
    (found, slope), (b, a) = mixad.reduce(CASES["affine"].op(None), (offsets, slopes)), (0.0, 1.0)
    for offset, by in zip(offsets.astype(np.longdouble), slopes, strict=True):
        b, a = offset + by * b, a * by
    close(found, b, 1e-11)
    close(slope, a, 1e-11)


def test_of_no_elements():
    assert mixad.reduce(lambda a, b: a + b, np.zeros((0, 2))).tolist() == [0.0, 0.0]
    assert mixad.reduce(times, np.zeros((0, 2))).tolist() == [1.0, 1.0]
    assert mixad.reduce(circ, np.zeros((0, 2)), initial=0.5, keepdims=True).tolist() == [[0.5] * 2]
    for op in (times, min, circ):
        for xs in (np.zeros((3, 0)), np.zeros((0, 3)), np.zeros((0, 3, 0))):
            found = mixad.reduce(op, xs, initial=0.5)
            assert found.tolist() == np.full(xs.shape[1:], 0.5).tolist()
        _, pull = mixad.vjp(lambda x, op=op: mixad.reduce(op, x, initial=0.5), np.zeros((3, 0)))
        assert pull(np.zeros(0))[0].shape == (3, 0)
    for op in (min, max, circ):
        with pytest.raises(KernelShapeError, match=r"axis 1 of shape \(2, 0\) has no element"):
            mixad.reduce(op, np.zeros((2, 0)), 1)


@pytest.mark.rows("dtype", "f8 f4 f2 i1 i2 i4 i8 u1 u2 u4 u8".split())
@pytest.mark.rows("op", [circ, min, max, times, lambda a, b: a + b], ids="circ min max * +".split())
def test_dtypes(op, dtype):
    """Whole numbers wrap; floats of 16 bits are combined as longer ones."""
    kind = np.dtype(dtype).kind
    x = drawn(130, 2) * 0.01 + (op is not circ) if kind == "f" else RNG.integers(0, 100, (130, 2))
    x = x.astype(dtype)
    found = mixad.reduce(op, x)
    assert found.dtype == np.dtype(dtype)
    wide = x.astype(np.longdouble) if kind == "f" else x
    with np.errstate(over="ignore"):
        expected = np.array([fold(op, column) for column in wide.T])
    if kind == "f":
        close(found.astype("f8"), expected, {"f8": 1e-13, "f4": 1e-5, "f2": 1e-3}[dtype])
    else:
        assert found.tolist() == expected.tolist()


def fold(op, xs):
    total = xs[0]
    for x in xs[1:]:
        total = op(total, x)
    return total


@pytest.mark.rows("op", [operator.and_, operator.or_, operator.xor])
def test_bools(op):
    for x in (np.arange(125) < 125, np.arange(125) == 124, np.zeros(125, bool)):
        found = mixad.reduce(op, x)
        assert found.dtype == bool
        assert found == fold(op, x)


@pytest.mark.rows("dtype", ["f4", "f2"])
def test_gradients_have_the_dtype_of_elements(dtype):
    x = (1.0 + drawn(241) * 0.05).astype(dtype)
    g = mixad.grad(lambda x: mixad.reduce(times, x))(x)
    assert g.dtype == x.dtype
    close(g.astype("f8"), x.astype("f8").prod() / x.astype("f8"), {"f4": 1e-5, "f2": 2e-3}[dtype])


@pytest.mark.rows("axis", [0, 1, 2, -1, -2, None])
@pytest.mark.rows("layout", LAYOUTS)
@pytest.mark.rows("shape", SHAPES, ids=str, slow=[str(s) for s in SHAPES[1:]])
def test_axes_and_layouts(shape, layout, axis):
    """Of maps, whose order matters."""
    leaves = [LAYOUTS[layout](x) for x in CASES["affine"].draw(RNG, shape)]
    before, weights = [x.copy() for x in leaves], None
    rows = [x.reshape(-1) if axis is None else np.moveaxis(x, axis, 0) for x in leaves]
    expected = [y[-1] for y in prefixes(CASES["affine"], rows)]
    for keepdims in (False, True):
        found = mixad.reduce(CASES["affine"].op(None), tuple(leaves), axis, keepdims=keepdims)
        around = leaves[0].sum(axis, keepdims=keepdims).shape
        for one, other in zip(found, expected, strict=True):
            close(one, other.reshape(around))
    weights = drawn(*np.shape(expected[0]))

    def loss(b, a, axis=axis):
        return (mixad.reduce(CASES["affine"].op(None), (b, a), axis)[0] * weights).sum()

    found = mixad.grad(loss, (0, 1))(*leaves)
    rows = mixad.grad(lambda b, a: loss(b, a, 0), (0, 1))(*[np.ascontiguousarray(r) for r in rows])
    for one, other, x in zip(found, rows, leaves, strict=True):
        close(one, other.reshape(x.shape) if axis is None else np.moveaxis(other, 0, axis))
    for one, other in zip(leaves, before, strict=True):
        assert one.tobytes() == other.tobytes()


def test_an_array_of_one_repeated_element():
    x = np.broadcast_to(np.array([1.01, 0.99]), (241, 2))
    value, pull = mixad.vjp(lambda x: mixad.reduce(times, x), x)
    close(value, x[0] ** 241)
    (g,) = pull(np.ones(2))
    close(g, np.broadcast_to(x[0] ** 240, x.shape))


@pytest.mark.rows("op", [times, circ, min, lambda a, b: a + b], ids="* circ min +".split())
def test_what_comes_before_the_first_element(op):
    x, y = 1.0 + drawn(125, 3) * 0.1, 0.5 + drawn(3, seed=1)
    close(mixad.reduce(op, x, initial=y), mixad.reduce(op, np.concatenate([y[None], x])))
    close(mixad.reduce(op, x, initial=0.7), mixad.reduce(op, x, initial=np.full(3, 0.7)))
    close(mixad.reduce(op, x, initial=y, keepdims=True), mixad.reduce(op, x, initial=y)[None])
    found = mixad.grad(lambda x, y: mixad.reduce(op, x, initial=y).sum(), (0, 1))(x, y)
    whole = np.concatenate([y[None], x])
    wanted = mixad.grad(lambda x: mixad.reduce(op, x).sum())(whole)
    close(found[0], wanted[1:])
    close(found[1], wanted[0])


class Map(NamedTuple):
    offset: np.ndarray
    slope: np.ndarray


def test_elements_may_be_records():
    leaves = CASES["affine"].draw(RNG, (125, 2))

    def after(f, g):
        return Map(g.offset + g.slope * f.offset, g.slope * f.slope)

    found = mixad.reduce(after, Map(*leaves), initial=Map(0.5, 1.0))
    assert type(found) is Map
    (b, a) = mixad.reduce(CASES["affine"].op(None), leaves)
    close(found.offset, b + a * 0.5)
    (one,) = mixad.reduce(lambda a, b: (a[0] * b[0],), (leaves[1],))
    close(one, a)


def test_an_element_may_be_returned_as_it_is():
    xs = np.arange(3.0), np.arange(3)
    assert mixad.reduce(lambda a, b: b, xs) == (2.0, 2)
    assert mixad.reduce(lambda a, b: a if a[0] >= b[0] else b, xs) == (2.0, 2)


@pytest.mark.slow
def test_whole_numbers_beside_floats_have_no_derivative():
    """But go where they are combined, and tell where a float is."""
    x, k, weights = drawn(241), np.arange(241), drawn(241, seed=1)
    at = int(np.argmax(x))
    wanted = np.where(k == at, 1.0, 0.0)
    for options in ({}, {"initial": (-9.0, 7)}, {"keepdims": True}):

        def largest(x, options=options):
            return mixad.reduce(argmax, (x, k), **options)[0].sum()

        close(mixad.grad(largest)(x), wanted)
        close(mixad.jvp(largest, (x,), (weights,))[1], weights[at])
        close(mixad.hvp(lambda x: largest(x) ** 3, (x,), (weights,)), 6 * x * weights * wanted)
    found = mixad.grad(lambda x: (x[mixad.reduce(argmax, (x, k))[1]] ** 2).sum())(x)
    close(found, 2 * x * wanted)


@pytest.mark.rows("op", [operator.mul, np.multiply, mixad.broadcast(times)])
def test_operators_of_others(op):
    close(mixad.reduce(op, np.array([2.0, 3.0, 4.0])), 24.0)


def test_a_traced_value_that_is_captured_has_a_gradient_beside_the_elements():
    x = drawn(241) * 0.05

    def loss(c, x):
        return mixad.reduce(lambda a, b: a + b + c * c * a * b, x)

    c = np.float64(0.8)
    found = mixad.grad(loss, (0, 1))(c, x)
    whole = np.prod(1.0 + c * c * x)
    close(loss(c, x), (whole - 1.0) / c**2)
    close(found[1], whole / (1.0 + c * c * x))
    close(found[0], 2 / c * (whole * (x / (1.0 + c * c * x)).sum() - (whole - 1.0) / c**2), 1e-11)


@pytest.mark.parametrize("zeros", [(), (7,), (7, 130)], ids=["none", "one", "two"])
def test_products_with_zeros(zeros):
    x = np.exp(drawn(241) * 0.1)
    x[list(zeros)] = 0.0
    value, g = mixad.value_and_grad(lambda x: mixad.reduce(times, x))(x)
    expected = np.array([np.prod(np.delete(x, k)) for k in range(241)])
    assert value == pytest.approx(np.prod(x))
    close(g, expected)
    assert np.count_nonzero(g) == {0: 241, 1: 1, 2: 0}[len(zeros)]


@pytest.mark.rows("op", [min, max])
def test_ties_share_a_derivative(op):
    x = drawn(241)
    x[[3, 130, 240]] = op(x) + (1.0 if op is max else -1.0)
    g = mixad.grad(lambda x: mixad.reduce(op, x))(x)
    close(g[[3, 130, 240]], np.full(3, 1 / 3))
    assert np.count_nonzero(g) == 3


@pytest.mark.rows("at", [0, 7, 130, 240])
def test_infinities_and_nan(at):
    for special in (np.inf, -np.inf, np.nan):
        x = 1.0 + drawn(241) ** 2
        x[at] = special
        for op in (min, max, times, np.logaddexp):
            found, g = mixad.value_and_grad(lambda x, op=op: mixad.reduce(op, x))(x)
            numpys = {min: np.min, max: np.max, times: np.prod, np.logaddexp: np.logaddexp.reduce}
            with np.errstate(invalid="ignore"):
                np.testing.assert_allclose(found, numpys[op](x), rtol=1e-12)
            if (op is min and special == -np.inf) or (op is max and special == np.inf):
                assert np.flatnonzero(g).tolist() == [at]
                assert g[at] == 1.0
            if op is times:
                others = np.array([np.prod(np.delete(x, k)) for k in range(241)])
                np.testing.assert_allclose(g, others, rtol=1e-11)


@given(st.integers(0, 600), st.integers(0, 2**32))
@settings(max_examples=EXAMPLES)
def test_random_permutations(n, seed):
    """Of four things: nothing rounds, and their order matters."""
    p = np.random.default_rng(seed).permuted(np.tile(np.arange(4), (n, 1)), axis=1)
    total = np.arange(4)
    for row in p:
        total = total[row]
    found = mixad.reduce(permuted, tuple(p.T), initial=(0, 1, 2, 3))
    assert [int(each) for each in found] == total.tolist()


# -- what is refused ------------------------------------------------------------------------------


def test_operators_that_are_not_associative(monkeypatch):
    x = drawn(100)
    mixad.check_associative(circ, x)
    mixad.check_associative(CASES["3x3"].op(None), *CASES["3x3"].draw(RNG, (9,)), signature="(3,3)")
    mixad.check_associative(times, np.full(9, np.inf))
    mixad.check_associative(lambda a, b: a - b, np.zeros((2, 2)))
    message = r"is not associative: with a = 1.0, b = 2.0, c = 3.0, .* is -4.0 and .* is 2.0"
    with pytest.raises(KernelError, match=message):
        mixad.check_associative(lambda a, b: a - b, np.array([1.0, 2.0, 3.0]))
    xs = np.ones((3, 4), int), np.zeros((3, 4))
    with pytest.raises(KernelError, match=r"a = \(1, 0.0\), b"):
        mixad.check_associative(lambda a, b: (a[0] - b[0], a[1] + b[1]), xs, axis=1)
    monkeypatch.setenv("MIXAD_CHECK", "full")
    with pytest.raises(KernelError, match=r"mixad\.reduce: .*is not associative"):
        mixad.reduce(lambda a, b: a - b, np.arange(3.0))
    monkeypatch.setenv("MIXAD_CHECK", "off")
    assert mixad.reduce(lambda a, b: a - b, np.arange(3.0)) == -3.0


ONES = np.ones(3)
REFUSED = {
    "a list": (KernelTypeError, "xs is list", lambda: mixad.reduce(times, [1.0, 2.0])),
    "nested": (KernelTypeError, "xs is tuple.tuple", lambda: mixad.reduce(times, ((ONES,),))),
    "nothing": (KernelTypeError, "xs is tuple", lambda: mixad.reduce(times, ())),
    "shapes": (KernelShapeError, r"shapes .3,. and .2,. in xs",
               lambda: mixad.reduce(min_both, (ONES, ONES[:2]))),
    "complex": (KernelTypeError, "complex numbers", lambda: mixad.reduce(times, ONES + 1j)),
    "a number": (KernelShapeError, r"xs has the shape \(\)", lambda: mixad.reduce(times, 2.0)),
    "no axis beside": (KernelShapeError, r"xs has the shape \(3,\)",
                       lambda: mixad.reduce(times, ONES, signature="(3)")),
    "other last axes": (KernelShapeError, r"shape \(3, 2, 2\)(?s:.*)last axes \(3, 3\)",
                        lambda: mixad.reduce(times, np.ones((3, 2, 2)), signature="(3,3)")),
    "a signature": (ConfigurationError, "signature='.n,2.' is none",
                    lambda: mixad.reduce(times, np.ones((3, 2, 2)), signature="(n,2)")),
    "no brackets": (ConfigurationError, "signature='2,2' is none",
                    lambda: mixad.reduce(times, np.ones((3, 2, 2)), signature="2,2")),
    "an axis": (KernelTypeError, "axis is 1.0", lambda: mixad.reduce(times, ONES, 1.0)),
    "no such axis": (np.exceptions.AxisError, "axis 1 is out of bounds",
                     lambda: mixad.reduce(times, ONES, 1)),
    "structure of initial": (KernelTypeError, "initial is tuple",
                             lambda: mixad.reduce(times, ONES, initial=(1.0,))),
    "dtype of initial": (KernelTypeError, "initial has the dtype float32, elements have float64",
                         lambda: mixad.reduce(times, ONES, initial=np.float32(1.0))),
    "shape of initial": (ValueError, "2,",
                         lambda: mixad.reduce(times, np.ones((2, 3)), initial=np.ones(2))),
    "returns two": (KernelTypeError, r"returns tuple\(\*, \*\) of numbers, .* number\n",
                    lambda: mixad.reduce(lambda a, b: (a, b), ONES)),
    "returns one": (KernelTypeError, "returns a number, .* tuple",
                    lambda: mixad.reduce(lambda a, b: a[0] + b[0], (ONES, ONES))),
    "returns an array": (KernelTypeError, "no signature",
                         lambda: mixad.reduce(lambda a, b: np.array([a, b]), ONES)),
    "returns a number": (KernelTypeError, "signature",
                         lambda: mixad.reduce(lambda a, b: a[0], np.ones((3, 2)), signature="(2)")),
    "returns floats": (KernelTypeError, "number of dtype float64, of elements of dtype int64",
                       lambda: mixad.reduce(lambda a, b: a / b, np.ones(3, int))),
    "captures an array": (KernelTypeError, r"captures 'ONES', an array of shape \(3,\), as a",
                          lambda: mixad.reduce(lambda a, b: a + b * ONES, ONES)),
    "is no function": (KernelTypeError, "not a function", lambda: mixad.reduce(3, ONES)),
}  # fmt: skip


def min_both(a, b):
    return min(a[0], b[0]), min(a[1], b[1])


@pytest.mark.rows("name", REFUSED)
def test_what_is_refused(name):
    error, message, run = REFUSED[name]
    with pytest.raises(error, match=message):
        run()
