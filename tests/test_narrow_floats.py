"""Floats of 16 bits: stored as such, computed in float32, rounded once, summed without loss."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

import mixad
from mixad import special
from mixad.backends.execute import execute, kernel_for
from mixad.errors import KernelTypeError
from mixad.kernel.spec import OutputRequest
from mixad.scalar import dtypes
from mixad.scalar.build import Builder
from mixad.scalar.interpret import interpret
from mixad.scalar.narrow import from_memory, round_to_type, to_memory
from mixad.scalar.ops import TABLE
from mixad.scalar.types import BF16, BOOL, F16, F32, F64, U16

EXAMPLES_OF_LAYOUTS = 150

BACKENDS = pytest.mark.parametrize("backend", ["cpu", "reference"])
DTYPES: list[Any] = ["float16"]
if importlib.util.find_spec("ml_dtypes"):
    import ml_dtypes

    DTYPES.append(ml_dtypes.bfloat16)

RNG = np.random.default_rng(5)
X = RNG.uniform(0.1, 3.0, 133).astype("f2")
Y = RNG.uniform(0.1, 3.0, 133).astype("f2")


@mixad.broadcast
def branching(x, y):
    if x > y:
        return x * x / y
    total = y - y
    for k in range(3):
        total = total + x * (k + 1)
    return total - special.exp(y)


def wide(*arrays: Any) -> list[Any]:
    return [np.asarray(a).astype("f4") for a in arrays]


# -- each op is float32's, rounded -----------------------------------------------------------------

OPS = [op for op in TABLE if op.domain in ("float", "number") and op.result != "stated"]


def program_of(op: Any, type: Any) -> Any:
    b = Builder(op.name)
    return b.finish([b.op(op.name, *(b.param(letter, type) for letter in "xyz"[: op.arity]))])


@BACKENDS
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.rows(
    "op",
    [o for o in OPS if o.name != "nextafter"],
    ids=lambda op: op.name,
    slow="polygamma ierfcx erfinv erfcinv digamma trigamma erfcx",
)
def test_ops_are_those_of_float32_rounded(op: Any, dtype: Any, backend: str) -> None:
    type = F16 if dtype == "float16" else BF16
    patterns = RNG.integers(0, 1 << 16, (op.arity, 300), dtype="u2")
    near_one = RNG.uniform(-4, 4, (op.arity, 300))
    given = [
        np.concatenate([p.view(dtype), n.astype(dtype)])
        for p, n in zip(patterns, near_one, strict=True)
    ]
    stored = (OutputRequest(0, 0),)
    (got,) = execute((program_of(op, type),), stored, given, backend)
    (expected,) = execute((program_of(op, F32),), stored, wide(*given), backend)
    if op.result == "bool":
        np.testing.assert_array_equal(got, expected)
        return
    assert got.dtype == np.dtype(dtype)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got.astype("f4"), expected.astype(dtype).astype("f4"))


@BACKENDS
def test_nextafter_is_the_next_of_its_own_type(backend: str) -> None:
    patterns = np.arange(1 << 16, dtype="u2").view("f2")
    b = Builder("nextafter")
    program = b.finish([b.op("nextafter", b.param("x", F16), b.param("y", F16))])
    for towards in (np.inf, -np.inf, 0.0, 1.0, np.nan):
        y = np.float16(towards)
        (got,) = execute((program,), (OutputRequest(0, 0),), [patterns, np.asarray(y)], backend)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, np.nextafter(patterns, y))


def test_interpreter_agrees_with_the_kernel() -> None:
    b = Builder("held")
    x, y = b.param("x", F16), b.param("y", F16)
    program = b.finish([b.op("mul", b.round_to_storage(b.op("mul", x, y)), y), b.op("lt", x, y)])
    got = execute((program,), (OutputRequest(0, 0), OutputRequest(0, 1)), [X, Y])
    for k in range(len(X)):
        value, less = interpret(program, [X[k], Y[k]])
        assert value == np.float32(got[0][k])
        assert less == got[1][k]


# -- where it is rounded ---------------------------------------------------------------------------


@BACKENDS
def test_kernel_rounds_its_results_and_nothing_inside(backend: str) -> None:
    kernel = branching.with_options(backend=backend)
    np.testing.assert_array_equal(kernel(X, Y), kernel(*wide(X, Y)).astype("f2"))
    # 1 + 2^-12 is not a float16: rounded on the way it would vanish.
    tiny = mixad.broadcast(lambda x, y: (x + y) - x, backend=backend)
    x, y = np.ones(3, "f2"), np.full(3, 2.0**-12, "f2")
    np.testing.assert_array_equal(tiny(x, y), y)


def test_conversion_that_a_kernel_names_rounds() -> None:
    kernel = mixad.broadcast(lambda x, y: np.float32(np.float16(x + y)) - x)
    x, y = np.ones(3, "f4"), np.full(3, 2.0**-12, "f4")
    np.testing.assert_array_equal(kernel(x, y), np.zeros(3, "f4"))
    doubly = mixad.broadcast(lambda x: np.float16(x))
    x = np.asarray([1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11 - 2.0**-40, 65520.0 - 2.0**-30])
    np.testing.assert_array_equal(doubly(x), x.astype("f2"))
    np.testing.assert_array_equal(mixad.grad(lambda x: kernel(x, y).sum())(y), np.zeros(3, "f4"))


@pytest.mark.rows("number", [0.1, 3, True, 1e-7, 70000.0])
@pytest.mark.rows("operator", ["add", "sub", "mul", "truediv"])
def test_an_operation_that_is_recorded_gives_the_bits_of_numpy(operator: str, number: Any) -> None:
    import operator as operators

    apply = getattr(operators, operator)
    with np.errstate(all="ignore"):
        value, _ = mixad.vjp(lambda x: apply(x, number), X)
        np.testing.assert_array_equal(value, apply(X, number))
        value, _ = mixad.vjp(lambda x: apply(apply(x, Y), number) * x, X)
        np.testing.assert_array_equal(value, apply(apply(X, Y), number) * X)


def test_what_is_computed_does_not_depend_on_what_is_fused() -> None:
    held = []

    def chain(x: Any) -> Any:
        y = x * Y
        held.append(y)
        z = y * y + x
        return z / (x + Y)

    held.clear()
    fused, _ = mixad.vjp(lambda x: chain(x), X)

    def in_steps(x: Any) -> Any:
        y = x * Y
        bool((y == 0).any())  # forced, and read from memory from here on
        z = y * y + x
        bool((z == 0).any())
        return z / (x + Y)

    stored, _ = mixad.vjp(in_steps, X)
    np.testing.assert_array_equal(fused, stored)
    np.testing.assert_array_equal(fused, (X * Y * (X * Y) + X) / (X + Y))


def test_value_and_gradient_take_the_same_branch() -> None:
    """x·y is on one side of the threshold as float32, on the other as float16."""
    x, y = np.asarray([1 + 2.0**-10], "f2"), np.asarray([1 + 2.0**-10], "f2")
    threshold, product = float(x[0]) * float(y[0]), x[0] * y[0]
    assert float(product) < threshold == float(np.float32(threshold))
    step = mixad.broadcast(lambda p, t: 3 * p if p < t else 5 * p)
    limit = np.asarray([threshold], "f4")
    for is_held in (False, True):
        held = []

        def f(x: Any, is_held: bool = is_held, held: list[Any] = held) -> Any:
            p = x * y
            if is_held:
                held.append(p)
            return step(p, limit)

        value, pull = mixad.vjp(f, x)
        np.testing.assert_array_equal(value, 3 * product)
        np.testing.assert_array_equal(pull(np.ones(1, "f2"))[0], 3 * y)


def test_stop_gradient_in_a_kernel() -> None:
    kernel = mixad.broadcast(lambda x: x * mixad.stop_gradient(x * x))
    np.testing.assert_array_equal(kernel(X), (wide(X)[0] ** 3).astype("f2"))
    got = mixad.grad(lambda x: kernel(x).sum())(X)
    np.testing.assert_array_equal(got, (wide(X)[0] ** 2).astype("f2"))


# -- gradients -------------------------------------------------------------------------------------


def test_cotangents_and_partials_have_the_dtype_of_their_primal() -> None:
    mixed = mixad.broadcast(lambda x, y: x * y)
    y = Y.astype("f4")
    value, (dx, dy) = mixad.value_and_grad(lambda x, y: mixed(x, y).sum(), argnums=(0, 1))(X, y)
    assert (value.dtype, dx.dtype, dy.dtype) == ("f4", "f2", "f4")
    np.testing.assert_array_equal(dx, Y)
    np.testing.assert_array_equal(dy, X.astype("f4"))
    duals = branching.duals(X, Y)
    assert {p.dtype for p in duals.partials.values()} == {np.dtype("f2")}
    with pytest.raises(mixad.errors.TracerError, match="float16"):
        mixad.vjp(lambda x: x * x, X)[1](np.ones(133, "f4"))


@BACKENDS
@pytest.mark.parametrize("placement", ["forward", "reverse"])
def test_gradients_are_those_of_float32_rounded(placement: str, backend: str) -> None:
    kernel = branching.with_options(backend=backend, placement=placement)
    got = mixad.grad(lambda x, y: kernel(x, y).sum(), argnums=(0, 1))(X, Y)
    expected = mixad.grad(lambda x, y: kernel(x, y).sum(), argnums=(0, 1))(*wide(X, Y))
    for g, e in zip(got, expected, strict=True):
        assert g.dtype == "f2"
        np.testing.assert_array_equal(g, e.astype("f2"))


def test_gradients_through_partials_that_are_stored() -> None:
    """They are rounded like the primal beside them, so that the gradient is rounded twice."""
    kernel = branching.with_options(placement="forward")
    value, pull = mixad.vjp(kernel, X, Y)
    np.testing.assert_array_equal(value, branching(X, Y))
    cotangent = RNG.uniform(0.5, 2.0, X.shape).astype("f2")
    wide_pull = mixad.vjp(branching, *wide(X, Y))[1]
    for got, exact in zip(pull(cotangent), wide_pull(*wide(cotangent)), strict=True):
        assert got.dtype == "f2"
        np.testing.assert_allclose(got.astype("f4"), exact, rtol=2.0**-10)


def test_second_derivatives() -> None:
    cube = mixad.broadcast(lambda x: x * x * x)
    inner = mixad.grad(lambda x: cube(x).sum())
    got = mixad.grad(lambda x: inner(x).sum())(X)
    np.testing.assert_allclose(got.astype("f4"), 6 * wide(X)[0], rtol=2e-3)


# -- sums ------------------------------------------------------------------------------------------


@pytest.mark.rows("dtype", DTYPES, ids=str)
@pytest.mark.rows("value", [1.0, 0.0999755859375, 3.0])
def test_a_long_sum_is_rounded_once(dtype: Any, value: float) -> None:
    """In 16 bits it would stop at 2048, or 256: from there on adding 1 changes nothing."""
    x = np.full(10**6, value, dtype) * np.asarray(1 / 32, dtype)
    exact = x.astype("f8").sum()
    got, gradient = mixad.value_and_grad(lambda x: x.sum())(x)
    with np.errstate(all="ignore"):  # 3/32 · 10⁶ is more than float16 holds
        np.testing.assert_array_equal(np.asarray(got, "f8"), np.float64(exact).astype(dtype))
    assert gradient.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(gradient.astype("f4"), np.ones(10**6, "f4"))


@pytest.mark.parametrize("shape", [(), (1, 1), (300, 1), (1, 500), (500,)])
def test_gradient_of_a_broadcast_argument_is_summed_without_loss(shape: Any) -> None:
    big = RNG.uniform(0.5, 1.5, (300, 500)).astype("f2")
    small = np.asarray(RNG.uniform(0.5, 1.5, shape)).astype("f2")
    product = mixad.broadcast(lambda x, y: x * y * y)
    got = mixad.grad(lambda y: product(big, y).mean())(small)
    slopes = 2 * big.astype("f8") * small.astype("f8") / big.size  # 1 / size is subnormal
    lead = slopes.ndim - len(shape)
    axes = tuple(a for a in range(2) if a < lead or shape[a - lead] == 1)
    expected = slopes.sum(axis=axes).reshape(shape)
    np.testing.assert_allclose(np.asarray(got, "f8"), expected, rtol=2**-11 * 1.001, atol=2**-25)
    assert got.dtype == "f2"


def test_a_mean_does_not_overflow_where_the_sum_does() -> None:
    x = np.full(10**6, 100.0, "f2")
    value, gradient = mixad.value_and_grad(lambda x: x.mean())(x)
    assert value == np.float16(100.0) == x.mean()
    np.testing.assert_array_equal(gradient, np.full(10**6, 1e-6, "f2"))
    x = np.asarray([-200.0, 200.0] * 500, "f2")
    assert mixad.value_and_grad(lambda x: x.var())(x)[0] == np.float16(40000.0)
    spread, gradient = mixad.value_and_grad(lambda x: (4 * x).std())(x)  # of a variance of 640000
    assert spread == np.float16(800.0)
    np.testing.assert_array_equal(gradient, np.copysign(np.float16(4 / len(x)), x))


# -- memory of any layout --------------------------------------------------------------------------

SLICES = st.sampled_from([slice(None), slice(None, None, 2), slice(None, None, -1)])


@pytest.mark.slow
@settings(max_examples=EXAMPLES_OF_LAYOUTS, deadline=None)
@given(shapes=mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=40), data=st.data())
def test_layouts(shapes: Any, data: Any) -> None:
    arrays = []
    for shape in shapes.input_shapes:
        whole = RNG.uniform(0.5, 2.0, tuple(2 * n for n in shape)).astype("f2")
        part = whole[tuple(data.draw(SLICES) for _ in shape)]
        arrays.append(part[tuple(slice(n) for n in shape)].T.copy().T)
    x, y = arrays
    np.testing.assert_array_equal(branching(x, y), branching(*wide(x, y)).astype("f2"))
    got = mixad.grad(lambda x, y: branching(x, y).sum(), argnums=(0, 1))(x, y)
    expected = mixad.grad(lambda x, y: branching(x, y).sum(), argnums=(0, 1))(*wide(x, y))
    for g, e in zip(got, expected, strict=True):
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(g.astype("f8"), e.astype("f2").astype("f8"), rtol=2**-10)


@pytest.mark.rows("n", [1, 15, 16, 17, 2048, 2049, 5_000_000])
def test_every_extent(n: int) -> None:
    """The longest moves more than the last-level cache holds: stored past it."""
    x = RNG.uniform(0.5, 2.0, n).astype("f2")
    kernel = mixad.broadcast(lambda x: x * 3.0 + 0.25)
    np.testing.assert_array_equal(kernel(x), (x.astype("f4") * 3 + np.float32(0.25)).astype("f2"))


@BACKENDS
def test_elements_that_are_indexed(backend: str) -> None:
    table, index = RNG.uniform(0.5, 2.0, 50).astype("f2"), RNG.integers(0, 50, 200)
    kernel = mixad.broadcast(lambda i, x: table[i] * x, backend=backend)
    x = RNG.uniform(0.5, 2.0, 200).astype("f2")
    np.testing.assert_array_equal(kernel(index, x), table[index] * x)
    np.testing.assert_array_equal(mixad.grad(lambda x: kernel(index, x).sum())(x), table[index])
    with pytest.raises(IndexError, match="index 50 is outside"):
        kernel(np.asarray([0, 50]), x[:2])


def test_repeated_elements_are_summed_without_loss() -> None:
    x = np.ones(3, "f2")
    index = np.zeros(5000, "i8")
    got = mixad.grad(lambda x: x[index].sum())(x)
    np.testing.assert_array_equal(got, np.asarray([5000, 0, 0], "f2"))


def test_scalars() -> None:
    kernel = mixad.broadcast(lambda x, y: x * y)
    for number in (np.float16(0.1), 0.1):
        np.testing.assert_array_equal(kernel(X, number), X * np.float16(0.1))
    assert kernel(np.float16(2), np.float16(3)) == np.float16(6)
    captured = np.float16(0.1)
    closed = mixad.broadcast(lambda x: x * captured)
    np.testing.assert_array_equal(closed(X), X * captured)
    assert closed(X.astype("f4")).dtype == "f4"
    got = special.sin(np.float16(1.0))
    assert type(got) is np.float16
    assert got == np.float16(np.sin(np.float32(1.0)))


# -- what is said of it ----------------------------------------------------------------------------


def test_explain_counts_two_bytes_an_element() -> None:
    """Read: both arguments and the cotangent; written: the value and both gradients."""
    kernel = mixad.broadcast(lambda x, y: x * y)
    narrow, wide = np.ones(1000, "f2"), np.ones(1000, "f4")
    assert "6.0 kB read, 6.0 kB written" in str(kernel.explain(narrow, narrow))
    assert "10.0 kB read, 10.0 kB written" in str(kernel.explain(narrow, wide))
    assert "x: f16 lane" in kernel.source(narrow, narrow)


def test_kernels_of_different_storage_are_kept_apart() -> None:
    def token(x: Any, y: Any) -> str:
        b = Builder("same")
        kinds = {"float16": F16, "float32": F32}
        u, v = (b.param(n, kinds[str(a.dtype)]) for n, a in (("x", x), ("y", y)))
        joined = [b.convert(p, F32) for p in (u, v)]
        program = b.finish([b.op("mul", *joined)])
        return (
            kernel_for((program,), (OutputRequest(0, 0),)).prepare_launch([x, y]).launch.spec.token
        )

    tokens = {token(x, y) for x in (X, *wide(X)) for y in (Y, *wide(Y))}
    assert len(tokens) == 4


# -- bfloat16 in memory, without a package that knows it -------------------------------------------


def test_bfloat16_is_rounded_by_numpy_as_by_the_definition() -> None:
    x = RNG.integers(0, 1 << 32, 10**6, dtype="u4").view("f4")
    x = x[np.isfinite(x)]
    near = from_memory(to_memory(x, BF16), BF16).astype("f8")
    low = (x.view("u4") & 0xFFFF0000).view("f4")
    high = (low.view("u4") + 0x10000).view("f4").astype("f8")
    high = np.where(np.isfinite(high), high, np.sign(x).astype("f8") * 2.0**128)
    distance = np.minimum(np.abs(x - low.astype("f8")), np.abs(x - high))
    finite = np.isfinite(near)
    np.testing.assert_array_equal(np.abs(near - x)[finite], distance[finite])
    np.testing.assert_array_equal(round_to_type(near.astype("f4"), BF16), near.astype("f4"))


@pytest.fixture
def bits_for_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of bfloat16 are seen as their bits."""
    monkeypatch.setitem(dtypes._NUMPYS, "bfloat16", np.dtype("u2"))
    from mixad.backends.arrays import NUMPY

    monkeypatch.delitem(NUMPY._dtypes, BF16, raising=False)
    yield
    NUMPY._dtypes.pop(BF16, None)


@pytest.mark.usefixtures("bits_for_bfloat16")
@pytest.mark.rows("folds", [False, True])
@pytest.mark.rows("shape", [None, (), (7, 1), (33,)])
def test_bfloat16_is_loaded_stored_and_summed(shape: Any, folds: bool) -> None:
    from mixad.backends.cpu.backend import CpuBackend
    from mixad.kernel.plan import Layout, plan

    x = to_memory(RNG.uniform(0.5, 2.0, (7, 66)).astype("f4"), BF16)[:, ::2]
    y = to_memory(RNG.uniform(0.5, 2.0, (33,)).astype("f4"), BF16)
    b = Builder("product")
    program = b.finish([b.op("mul", b.param("x", BF16), b.param("y", BF16))])
    layouts = [Layout(BF16, a.shape, a.strides) for a in (x, y)]
    launch = plan((program,), [OutputRequest(0, 0, shape)], layouts, (7, 33), 1 << 40, folds=folds)
    backend = CpuBackend()
    (got,) = backend.launch(backend.bind(backend.compile(launch.spec), launch), [x, y])
    products = from_memory(np.ascontiguousarray(x), BF16) * from_memory(y, BF16)
    if shape is not None:
        axes = {(): (0, 1), (7, 1): 1, (33,): 0}[shape]
        products = products.astype("f8").sum(axis=axes).reshape(shape)
    np.testing.assert_array_equal(got, to_memory(products, BF16))


# -- libraries -------------------------------------------------------------------------------------


def test_bfloat16_of_another_package_beside_numpy() -> None:
    ml = pytest.importorskip("ml_dtypes")
    x, y = X.astype(ml.bfloat16), Y.astype(ml.bfloat16)
    got = branching(x, y)
    assert type(got) is np.ndarray
    assert got.dtype == x.dtype
    expected = branching(*wide(x, y)).astype(x.dtype)
    np.testing.assert_array_equal(got.astype("f4"), expected.astype("f4"))
    gradient = mixad.grad(lambda x: (branching(x, y) * x).sum())(x)
    assert gradient.dtype == x.dtype
    assert branching(x, Y.astype("f4")).dtype == "f4"
    number = x[0]  # a scalar of that package
    for kernel in (mixad.broadcast(lambda x: x * number), lambda x: branching(x, number)):
        assert kernel(x).dtype == x.dtype
    for other in (Y, Y.astype("i4")):
        with pytest.raises(KernelTypeError, match="do not mix"):
            branching(x, other)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_torch_tensors(name: str) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    x, y = torch.from_numpy(X).to(dtype), torch.from_numpy(Y).to(dtype)
    for backend in ("cpu", "reference"):
        kernel = branching.with_options(backend=backend)
        got = kernel(x, y)
        assert got.dtype == dtype
        assert torch.equal(got, kernel(x.float(), y.float()).to(dtype))
        gradient = mixad.grad(lambda x, kernel=kernel: kernel(x, y).sum())(x)
        assert gradient.dtype == dtype
        exact = mixad.grad(lambda x, kernel=kernel: kernel(x, y.float()).sum())(x.float())
        assert torch.equal(gradient, exact.to(dtype))
    assert torch.equal(branching(x[::2], y[::2]), branching(x, y)[::2])
    total = mixad.value_and_grad(lambda x: x.sum())(torch.full((10**5,), 0.25, dtype=dtype))[0]
    assert total == torch.tensor(25000.0, dtype=dtype)
    picked = mixad.grad(lambda x: x[torch.zeros(5000, dtype=torch.int64)].sum())(x)
    assert picked[0] == torch.tensor(5000.0, dtype=dtype)


@pytest.mark.torch
@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize("looks", [False, True])
def test_tensors_are_converted_inside_of_a_transform(name: str, looks: bool) -> None:
    torch = pytest.importorskip("torch")
    dtype, x = getattr(torch, name), torch.tensor([0.5, -1.25, 3.0])

    def loss(x: Any) -> Any:
        y = x.to(dtype)
        if looks and y.sum() > 0:
            y = y * 2
        return (y * y).sum().float()

    for _ in range(3):  # the later ones know what the first has recorded
        gradient = mixad.grad(loss)(x)
        assert torch.equal(gradient, x * (8 if looks else 2))


@pytest.mark.slow
@pytest.mark.torch
def test_torch_promotes_as_torch_does() -> None:
    torch = pytest.importorskip("torch")
    names = "float16 bfloat16 float32 float64 int8 int16 int64 uint8 bool".split()
    kernel = mixad.broadcast(lambda x, y: x * y)
    for a in names:
        for b in ("float16", "bfloat16"):
            for shape in ((3,), ()):
                x = torch.ones(shape, dtype=getattr(torch, a))
                y = torch.ones(3, dtype=getattr(torch, b))
                assert kernel(x, y).dtype == (x * y).dtype, (a, b, shape)


def test_types_of_comparisons_and_conversions() -> None:
    assert mixad.broadcast(lambda x, y: x < y)(X, Y).dtype == bool
    assert mixad.broadcast(lambda x: np.float64(x))(X).dtype == "f8"
    np.testing.assert_array_equal(mixad.broadcast(lambda x: int(x))(X), X.astype("i8"))
    b = Builder("bits")
    program = b.finish([b.op("bitcast", b.param("x", F16), type=U16)])
    (got,) = execute((program,), (OutputRequest(0, 0),), [X])
    np.testing.assert_array_equal(got, X.view("u2"))
    b = Builder("truth")
    x = b.param("x", F16)
    program = b.finish([b.convert(x, BOOL), b.convert(x, F64)])
    truth, double = execute((program,), (OutputRequest(0, 0), OutputRequest(0, 1)), [X])
    np.testing.assert_array_equal(truth, X != 0)
    np.testing.assert_array_equal(double, X.astype("f8"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="JAX is not installed")
@BACKENDS
def test_bfloat16_of_jax_has_the_bits_of_numpys(backend: str) -> None:
    """DLPack hands no bfloat16 to NumPy; NumPy's are compared with PyTorch's elsewhere."""
    import jax.numpy as jnp

    kernel = branching.with_options(backend=backend)

    def loss(x: Any, y: Any) -> Any:
        return kernel(x, y[::-1]).sum()

    x, y = (a[:24].reshape(4, 6).astype(ml_dtypes.bfloat16) for a in (X, Y))
    theirs = mixad.grad(loss, argnums=(0, 1))(jnp.asarray(x), jnp.asarray(y))
    assert {str(g.dtype) for g in theirs} == {"bfloat16"}
    assert all(isinstance(g, type(jnp.ones(1))) for g in theirs)
    for found, ours in zip(theirs, mixad.grad(loss, argnums=(0, 1))(x, y), strict=True):
        np.testing.assert_array_equal(np.asarray(found).view("u2"), ours.view("u2"))
    np.testing.assert_array_equal(
        np.asarray(kernel(jnp.asarray(x), jnp.asarray(y))).view("u2"), kernel(x, y).view("u2")
    )
