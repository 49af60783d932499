"""Array libraries, layouts and types: what goes in decides what comes out."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, mutually_broadcastable_shapes

import mixad
from mixad.errors import KernelTypeError, TracerError

EXAMPLES = 80
HAS_TORCH = importlib.util.find_spec("torch") is not None
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")


@mixad.broadcast
def blend(x, y):
    return x * y + x


@mixad.broadcast
def gate(x, y):
    if x > y:
        return x * x * y
    return x - y


def gate_in_numpy(x: Any, y: Any) -> Any:
    return np.where(x > y, x * x * y, x - y)


def gate_partials(x: Any, y: Any) -> tuple[Any, Any]:
    one = np.ones(np.broadcast_shapes(x.shape, y.shape))
    return np.where(x > y, 2 * x * y, one), np.where(x > y, x * x, -one)


def unbroadcast(array: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes that were broadcast."""
    array = array.sum(axis=tuple(range(array.ndim - len(shape))))
    axes = tuple(i for i, n in enumerate(shape) if n == 1)
    return array.sum(axis=axes, keepdims=True)


# -- libraries ---------------------------------------------------------------------------------


class Numpy:
    """NumPy itself."""

    name = "numpy"

    def array(self, values: Any, dtype: str = "float64") -> Any:
        return np.asarray(values, dtype)

    def is_native(self, x: Any) -> bool:
        return type(x) is np.ndarray or isinstance(x, np.generic)

    def to_numpy(self, x: Any) -> Any:
        return x


class Strict(Numpy):
    """The array API standard and nothing else."""

    name = "array_api_strict"

    def __init__(self) -> None:
        self.xp = pytest.importorskip("array_api_strict")

    def array(self, values: Any, dtype: str = "float64") -> Any:
        return self.xp.asarray(np.asarray(values, dtype))

    def is_native(self, x: Any) -> bool:
        return type(x).__module__.startswith("array_api_strict")

    def to_numpy(self, x: Any) -> Any:
        return np.from_dlpack(x)


class Torch(Numpy):
    """torch on the CPU."""

    name = "torch"

    def __init__(self) -> None:
        self.xp = pytest.importorskip("torch")

    def array(self, values: Any, dtype: str = "float64") -> Any:
        return self.xp.from_numpy(np.array(values, dtype))

    def is_native(self, x: Any) -> bool:
        return type(x) is self.xp.Tensor and not x.requires_grad

    def to_numpy(self, x: Any) -> Any:
        return x.numpy()


@pytest.fixture(params=[Numpy, Strict, Torch], ids=lambda kind: kind.name)
def library(request: pytest.FixtureRequest) -> Any:
    return request.param()


def dtype_name(x: Any) -> str:
    return str(x.dtype).rpartition(".")[2]


@pytest.mark.rows("dtype", FLOATS)
def test_library_dtype_and_device_are_those_of_the_inputs(library: Any, dtype: str) -> None:
    x, y = library.array([1.0, 2.0, 3.0], dtype), library.array([2.0, 2.0, 2.0], dtype)
    value = gate(x, y)
    with_value, gradients = mixad.value_and_vjp(gate, (x, y), library.array(np.ones(3), dtype))
    duals = gate.duals(x, y)
    total, (by_grad,) = mixad.value_and_grad(lambda x: gate(x, y).sum(), argnums=(0,))(x)
    everything = [value, with_value, *gradients, duals.primal, *duals.partials.values(), by_grad]
    for got in everything:
        assert library.is_native(got)
        assert dtype_name(got) == dtype
        assert got.device == x.device
        assert got.shape == x.shape
    a, b = library.to_numpy(x), library.to_numpy(y)
    np.testing.assert_array_equal(library.to_numpy(value), gate_in_numpy(a, b))
    for got in (gradients, duals.partials.values()):
        for partial, want in zip(got, gate_partials(a, b), strict=True):
            np.testing.assert_array_equal(library.to_numpy(partial), want)
    assert float(total) == gate_in_numpy(a, b).sum()


@pytest.mark.rows("dtype", INTEGERS)
def test_integer_arrays_keep_their_dtype(library: Any, dtype: str) -> None:
    if library.name == "torch" and not hasattr(library.xp, dtype):
        pytest.skip(f"this torch has no {dtype}")
    x, y = library.array([3, 5, 7], dtype), library.array([2, 0, 7], dtype)
    got = mixad.broadcast(lambda x, y: x * y + 1 if x > y else x - y)(x, y)
    assert library.is_native(got)
    assert dtype_name(got) == dtype
    np.testing.assert_array_equal(library.to_numpy(got), [7, 1, 0])


def test_boolean_inputs_and_outputs(library: Any) -> None:
    a = library.array([True, True, False, False], "bool")
    b = library.array([True, False, True, False], "bool")
    got = mixad.broadcast(lambda a, b: (a and not b, a or b, a == b))(a, b)
    for array, want in zip(got, ([0, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 1]), strict=True):
        assert library.is_native(array)
        assert dtype_name(array) == "bool"
        np.testing.assert_array_equal(library.to_numpy(array), np.asarray(want, bool))


def test_booleans_choose_branches_of_floats(library: Any) -> None:
    mask = library.array([True, False], "bool")
    x = library.array([2.0, 3.0])
    kernel = mixad.broadcast(lambda m, x: x * x if m else -x)
    dx = mixad.grad(lambda x: kernel(mask, x).sum())(x)
    np.testing.assert_array_equal(library.to_numpy(dx), [4, -1])


def test_python_numbers_adopt_the_arrays_dtype(library: Any) -> None:
    x = library.array([1.0, 2.0], "float32")
    for number in (2.0, 2):
        assert dtype_name(blend(x, number)) == "float32"
    np.testing.assert_array_equal(library.to_numpy(blend(x, 2.0)), [3, 6])


@pytest.mark.rows("shape", [(0,), (0, 3), (3, 0), (2, 0, 4)])
def test_zero_size_arrays(library: Any, shape: tuple[int, ...]) -> None:
    x = library.array(np.ones(shape))
    value, (dx, dy) = mixad.value_and_vjp(blend, (x, library.array(2.0)), x)
    assert tuple(value.shape) == tuple(dx.shape) == shape
    assert library.is_native(value)
    assert float(dy) == 0
    assert float(mixad.value_and_grad(lambda x: blend(x, 2.0).sum())(x)[0]) == 0
    assert tuple(blend.duals(x, library.array(2.0)).partials["x"].shape) == shape


WEIGHTS = (0.5, 1.5, 2.5)


def test_tuples_are_indexed_beside_arrays_of_any_library(library: Any) -> None:
    kernel = mixad.broadcast(lambda i, x: WEIGHTS[i] * x)
    i, x = library.array([0, 2, -2], "int64"), library.array([1.0, 2.0, 4.0])
    got = kernel(i, x)
    assert library.is_native(got)
    np.testing.assert_array_equal(library.to_numpy(got), [0.5, 5, 6])
    dx = mixad.grad(lambda x: kernel(i, x).sum())(x)
    np.testing.assert_array_equal(library.to_numpy(dx), [0.5, 2.5, 1.5])
    with pytest.raises(IndexError, match=r"element \(1,\): index 3 is outside 'WEIGHTS' of shape"):
        kernel(library.array([0, 3], "int64"), library.array([1.0, 2.0]))


def test_zero_size_axis_beside_an_axis_of_one(library: Any) -> None:
    x, y = library.array(np.ones((1, 3))), library.array(np.ones((0, 1)))
    value, (dx, dy) = mixad.value_and_vjp(blend, (x, y), library.array(np.ones((0, 3))))
    assert tuple(value.shape) == (0, 3)
    assert tuple(dy.shape) == (0, 1)
    np.testing.assert_array_equal(library.to_numpy(dx), np.zeros((1, 3)))


def test_arrays_of_rank_zero(library: Any) -> None:
    x, y = library.array(3.0), library.array(2.0)
    value, (dx, dy) = mixad.value_and_vjp(gate, (x, y), library.array(1.0))
    for got, want in ((value, 18.0), (dx, 12.0), (dy, 9.0)):
        assert library.is_native(got)
        assert tuple(got.shape) == ()
        assert float(got) == want


def test_arrays_of_two_libraries_are_refused() -> None:
    x, y = np.ones(3), Strict().array(np.ones(3))
    with pytest.raises(TypeError, match=r"numpy.*array_api_strict.*convert"):
        blend(x, y)
    with pytest.raises(TypeError, match=r"mixes.*array_api_strict.*convert"):
        mixad.grad(lambda x: blend(x, y).sum())(x)


@pytest.mark.parametrize("number", [np.float64(2.0), np.float32(2.0), np.int64(2), np.bool_(True)])
def test_numpy_scalars_beside_numpy_arrays_promote_as_numpy_does(number: Any) -> None:
    x = np.ones(3, np.float32)
    kernel = mixad.broadcast(lambda x, y: x + y)
    got = kernel(x, number)
    assert got.dtype == (x + number).dtype
    np.testing.assert_array_equal(got, x + number)


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
class TestTorch:
    def test_tensor_that_requires_grad_is_refused(self) -> None:
        import torch

        x = torch.ones(3, requires_grad=True)
        for use in (
            lambda: blend(x, 2.0),
            lambda: blend(2.0, x),
            lambda: blend.duals(x, 2.0),
            lambda: mixad.grad(lambda y: blend(x, y).sum())(torch.ones(3)),
            lambda: mixad.broadcast(lambda y: x * y)(torch.ones(3)),
        ):
            with pytest.raises(TracerError, match=r"detach\(\).*mixad-torch"):
                use()

    @pytest.mark.slow
    @pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own
    def test_dual_tensors_are_refused_once_kernels_are_there_too(self) -> None:
        import torch
        from torch.autograd import forward_ad

        x = torch.ones(3)
        blend(x, x)  # planned and compiled
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x)
            for use in (
                lambda: blend(dual, x),
                lambda: blend(x, dual),
                lambda: mixad.grad(lambda y: blend(y, dual).sum())(x),
                lambda: mixad.grad(lambda y: blend(y, x).sum())(dual),
            ):
                with pytest.raises(TracerError, match=r"tangent.*mixad\.jvp"):
                    use()

    def test_lazily_negated_tensors(self) -> None:
        import torch

        z = torch.arange(6.0).reshape(2, 3).to(torch.complex128) * (1 + 2j)
        view = z.conj().imag[:, ::2]
        got = gate(view, 3.0)
        np.testing.assert_array_equal(
            got.numpy(), gate_in_numpy(view.resolve_neg().numpy(), np.asarray(3.0))
        )

    def test_results_do_not_require_grad(self) -> None:
        import torch

        assert not blend(torch.ones(3), 2.0).requires_grad
        with torch.no_grad():
            assert blend(torch.ones(3), 2.0).sum() == 9

    def test_default_float_is_torchs(self) -> None:
        import torch

        got = mixad.broadcast(lambda n: n / 2)(torch.arange(3))
        assert got.dtype == torch.float32

    def test_strided_and_expanded_tensors(self) -> None:
        import torch

        x = torch.arange(12.0, dtype=torch.float64).reshape(3, 4)
        for view in (x.T, x[:, ::2], x[1], x[None].expand(5, 3, 4), x[::2, 1:3]):
            got = gate(view, 3.0)
            np.testing.assert_array_equal(got.numpy(), gate_in_numpy(view.numpy(), np.asarray(3.0)))

    @pytest.mark.parametrize("dtype", ["float8_e5m2"])
    def test_types_that_are_not_computed_in_are_refused_by_name(self, dtype: str) -> None:
        import torch

        with pytest.raises(KernelTypeError, match=rf"blend: argument 'x'.*{dtype}"):
            blend(torch.ones(3, dtype=getattr(torch, dtype)), 2.0)

    def test_result_is_a_tensor_of_its_own(self) -> None:
        import torch

        x = torch.ones(3)
        first = blend(x, 2.0)
        second = blend(x, 3.0)
        first += 100
        np.testing.assert_array_equal(second.numpy(), [4, 4, 4])
        np.testing.assert_array_equal(x.numpy(), [1, 1, 1])


needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)


@needs_jax
@pytest.mark.filterwarnings("error")  # JAX warns of types of 64 bits that it does not have
class TestJax:
    def test_arrays_are_computed_with(self) -> None:
        import jax
        import jax.numpy as jnp

        x = jnp.asarray([1.0, 2.0, 3.0])
        for got, expected in ((blend(x, x), [2, 6, 12]), (blend(x, 2.0), [3, 6, 9])):
            assert isinstance(got, jax.Array)
            assert got.dtype == x.dtype
            np.testing.assert_array_equal(np.asarray(got), expected)

    @pytest.mark.slow
    @pytest.mark.parametrize("x64", [False, True])
    @pytest.mark.parametrize(
        "f",
        [
            lambda a, b, product: product(a, b).sum(),
            lambda a, b, product: (product(a, 2.0) * b).mean(),
            lambda a, b, product: (a[1:3, ::-2] ** 3).sum() * b,
            lambda a, b, product: (a[..., None, 1] / a[0, 1:4]).sum() - b * a[2, -1],
            lambda a, b, product: (a @ a.T * b).sum() + a.reshape(-1)[5],
            lambda a, b, product: (a[1:1] * a[0]).sum() + product(a[0, 0], b),
        ],
    )
    def test_gradients_are_those_of_jax(self, f: Any, x64: bool) -> None:
        import jax
        import jax.numpy as jnp

        with jax.enable_x64(x64):
            a = jnp.asarray(np.random.default_rng(3).uniform(0.5, 2, (3, 4)))
            value, (da, db) = mixad.value_and_grad(lambda a, b: f(a, b, blend), argnums=(0, 1))(
                a, 1.25
            )
            expected, (ea, eb) = jax.value_and_grad(
                lambda a, b: f(a, b, lambda x, y: x * y + x), argnums=(0, 1)
            )(a, 1.25)
            assert isinstance(da, jax.Array)
            assert da.dtype == ea.dtype == ("float64" if x64 else "float32")
            tolerance = 1e-12 if x64 else 2e-6
            for got, wanted in ((value, expected), (da, ea), (db, eb)):
                np.testing.assert_allclose(got, wanted, tolerance, tolerance)

    @pytest.mark.parametrize("transform", ["grad", "jit", "vmap"])
    def test_tracers_are_refused(self, transform: str) -> None:
        import jax
        import jax.numpy as jnp

        x = jnp.asarray([1.0, 2.0, 3.0])
        within = getattr(jax, transform)
        message = "transforms of jax do not see .* silently detached: pass plain arrays"
        with pytest.raises(TracerError, match=rf"blend: argument 'x': {message}"):
            within(lambda x: blend(x, 2.0).sum())(x)
        with pytest.raises(TracerError, match=message):
            within(lambda x: mixad.grad(lambda y: (y * y).sum())(x).sum())(x)
        with pytest.raises(TracerError, match=message):
            mixad.grad(lambda y: within(lambda x: (x * y).sum())(x).sum())(x)


@pytest.mark.skipif(
    importlib.util.find_spec("autograd") is None, reason="autograd is not installed"
)
def test_boxes_of_autograd_are_refused() -> None:
    import autograd

    message = "transforms of autograd do not see .* silently detached: pass plain arrays"
    for x in (np.ones(3), 1.0):
        with pytest.raises(TracerError, match=rf"blend: argument 'x': {message}"):
            autograd.grad(lambda x: np.sum(blend(x, 2.0)))(x)
    with pytest.raises(TracerError, match=message):
        autograd.grad(lambda x: mixad.grad(lambda y: (y * y).sum())(x).sum())(np.ones(3))


# -- layouts -----------------------------------------------------------------------------------


def numbers(shape: tuple[int, ...], seed: int) -> Any:
    return np.random.default_rng(seed).uniform(-2, 2, shape)


LAYOUTS = {
    "C order": lambda a: a,
    "Fortran order": np.asfortranarray,
    "transposed": lambda a: np.ascontiguousarray(a.T).T,
    "reversed": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "reversed rows": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "every second": lambda a: np.repeat(np.repeat(a, 2, 0), 2, 1)[::2, ::2],
    "inside a record": lambda a: _in_a_record(a),
    "not aligned": lambda a: _not_aligned(a),
    "read-only": lambda a: _read_only(a),
    "broadcast rows": lambda a: np.broadcast_to(a[:1], a.shape),
    "broadcast columns": lambda a: np.broadcast_to(a[:, :1], a.shape),
    "memory map": lambda a: a.view(np.memmap),
}


def _in_a_record(a: Any) -> Any:
    record = np.zeros(a.shape, [("flag", "i1"), ("value", a.dtype)])
    record["value"] = a
    return record["value"]


def _not_aligned(a: Any) -> Any:
    memory = np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:]
    return memory.view(a.dtype).reshape(a.shape)


def _read_only(a: Any) -> Any:
    a = a.copy()
    a.flags.writeable = False
    return a


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.rows("second", LAYOUTS)
@pytest.mark.rows("first", LAYOUTS)
def test_strides_do_not_matter(first: str, second: str, dtype: str) -> None:
    x = LAYOUTS[first](numbers((7, 35), 0).astype(dtype))
    y = LAYOUTS[second](numbers((7, 35), 1).astype(dtype))
    g = numbers((7, 35), 2).astype(dtype)
    before = x.copy(), y.copy()
    value, (dx, dy) = mixad.value_and_vjp(gate, (x, y), g)
    np.testing.assert_array_equal(gate(x, y), gate_in_numpy(x, y))
    np.testing.assert_array_equal(value, gate_in_numpy(x, y))
    partial_x, partial_y = gate_partials(x, y)
    np.testing.assert_allclose(dx, g * partial_x, rtol=4 * np.finfo(dtype).eps)
    np.testing.assert_allclose(dy, g * partial_y, rtol=4 * np.finfo(dtype).eps)
    for array, kept in zip((x, y), before, strict=True):
        np.testing.assert_array_equal(array, kept)


def test_cotangent_of_any_strides() -> None:
    x, y = numbers((7, 35), 0), numbers((7, 35), 1)
    g = numbers((7, 35), 2)
    want = mixad.value_and_vjp(gate, (x, y), g)[1]
    for name, layout in LAYOUTS.items():
        if not name.startswith("broadcast"):
            got = mixad.value_and_vjp(gate, (x, y), layout(g))[1]
            for a, b in zip(got, want, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=5, max_side=5, min_side=0), st.data())
def test_any_broadcast_of_any_strides(shapes: Any, data: Any) -> None:
    x, y = (strided(data, numbers(shape, seed)) for seed, shape in enumerate(shapes.input_shapes))
    g = numbers(shapes.result_shape, 3)
    value, (dx, dy) = mixad.value_and_vjp(gate, (x, y), g)
    assert value.shape == shapes.result_shape
    np.testing.assert_array_equal(value, gate_in_numpy(x, y))
    for got, array, partial in zip((dx, dy), (x, y), gate_partials(x, y), strict=True):
        assert got.shape == array.shape
        want = unbroadcast(g * partial, array.shape)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def strided(data: Any, array: Any) -> Any:
    """Return equal elements in some other order of memory, with steps of any sign."""
    order = data.draw(st.permutations(range(array.ndim)))
    steps = data.draw(
        st.lists(st.sampled_from([1, -1, 2, -3]), min_size=array.ndim, max_size=array.ndim)
    )
    if array.ndim == 0:
        return array
    moved = array.transpose(order)
    wide = np.empty([abs(s) * n for s, n in zip(steps, moved.shape, strict=True)])
    view = wide[tuple(slice(None, None, s) for s in steps)]
    view[...] = moved
    return view.transpose(np.argsort(order, kind="stable").tolist())


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    st.data(),
    st.sampled_from([*INTEGERS, *FLOATS, "bool"]),
    array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=40),
)
def test_copying_any_bits_of_any_type(data: Any, dtype: str, shape: tuple[int, ...]) -> None:
    x = data.draw(arrays(dtype, shape))
    got = mixad.broadcast(lambda x: x)(x)
    assert got.dtype == x.dtype
    assert got.shape == x.shape
    assert not np.shares_memory(got, x)
    np.testing.assert_array_equal(got, x)


MANY_AXES = (1, 2, 1, 2, 1, 2, 1, 2, 1, 2)


def test_many_axes() -> None:
    x = numbers(MANY_AXES, 0)
    y = numbers(tuple(3 - n for n in MANY_AXES), 1)
    np.testing.assert_array_equal(gate(x, y), gate_in_numpy(x, y))
    assert gate(np.ones((1,) * 40), 2.0).shape == (1,) * 40


@pytest.mark.rows("count", [1, 15, 16, 17, 4095, 4096, 4097, 70_001])
@pytest.mark.rows("dtype", FLOATS)
def test_every_element_up_to_the_last(count: int, dtype: str) -> None:
    x, y = (numbers((count,), seed).astype(dtype) for seed in (0, 1))
    np.testing.assert_array_equal(gate(x, y), gate_in_numpy(x, y))
    value, (dx, dy) = mixad.value_and_vjp(lambda x, y: gate(x, y), (x, y), np.ones(count, dtype))
    np.testing.assert_array_equal(value, gate_in_numpy(x, y))
    for got, want in zip((dx, dy), gate_partials(x, y), strict=True):
        np.testing.assert_allclose(got, want, rtol=4 * np.finfo(dtype).eps)


@pytest.mark.parametrize("count", [1, 16, 17, 4097, 70_001])
def test_sums_over_every_element_up_to_the_last(count: int) -> None:
    x = numbers((count,), 0)
    y = np.asarray(0.5)
    value, (dx, dy) = mixad.value_and_grad(lambda x, y: gate(x, y).sum(), argnums=(0, 1))(x, y)
    partial_x, partial_y = gate_partials(x, y)
    assert value == pytest.approx(math.fsum(gate_in_numpy(x, y)), rel=1e-13)
    assert dy == pytest.approx(math.fsum(partial_y), rel=1e-13)
    np.testing.assert_allclose(dx, partial_x, rtol=1e-15)


def test_memory_beside_the_results_is_not_touched() -> None:
    x = np.arange(7.0)
    results = [blend(x, float(k)) for k in range(50)]
    for k, got in enumerate(results):
        np.testing.assert_array_equal(got, x * k + x)


def test_view_keeps_the_memory_of_its_result(library: Any) -> None:
    x = library.array(np.arange(5000.0))
    view = blend(x, 2.0)[::7]
    copies = [blend(x, float(k)) for k in range(20)]
    del copies
    blend(x, 5.0)
    np.testing.assert_array_equal(library.to_numpy(view), 3 * np.arange(5000.0)[::7])


LARGEST = {
    np.uint64: 2**64 - 1,
    np.int64: -(2**63),
    np.uint8: 255,
    np.int8: -128,
    np.float32: 3.4e38,
    np.float64: -1.7e308,
    np.bool_: True,
}


@pytest.mark.rows("kind", LARGEST)
def test_extreme_scalars_reach_the_kernel(kind: Any) -> None:
    number = kind(LARGEST[kind])
    kernel = mixad.broadcast(lambda x, y: y)
    got = kernel(np.ones(3), number)
    assert got.dtype == number.dtype
    np.testing.assert_array_equal(got, np.full(3, number))
    captured = mixad.broadcast(lambda x: number)
    np.testing.assert_array_equal(captured(np.ones(3)), np.full(3, number))


# -- refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i4", ">u2"])
def test_other_byte_order_is_refused_with_the_conversion(dtype: str) -> None:
    x = np.ones(3, dtype)
    with pytest.raises(KernelTypeError, match=rf"blend: argument 'y'.*{dtype}.*\n.*astype\('"):
        blend(np.ones(3), x)
    with pytest.raises(TypeError, match=dtype):
        mixad.grad(lambda y: blend(1.0, y).sum())(x)


@pytest.mark.parametrize("dtype", ["longdouble", "object", "U3", "M8[s]", "i4,i4"])
def test_types_that_are_not_computed_in_are_refused_by_name(dtype: str) -> None:
    x = np.zeros(3, dtype)
    with pytest.raises(KernelTypeError, match=r"blend: argument 'x'.*dtype .*\n.*Instead.*float64"):
        blend(x, 2.0)
    with pytest.raises(TypeError, match="dtype"):
        mixad.grad(lambda x: blend(x, 2.0).sum())(x)


@pytest.mark.parametrize("value", ["text", {}, {1.0}, object()])
def test_what_is_no_number_is_refused_by_name(value: Any) -> None:
    instead = "read it from outside" if isinstance(value, str) else "pass an array"
    with pytest.raises(KernelTypeError, match=rf"blend: argument 'y' is a \w+\n.*{instead}"):
        blend(np.ones(3), value)


@pytest.mark.parametrize("kind", [np.longdouble, np.clongdouble])
def test_numpy_scalars_that_are_not_computed_in_are_refused_by_name(kind: Any) -> None:
    with pytest.raises(KernelTypeError, match=r"blend: argument 'y'"):
        blend(np.ones(3), kind(1))


def test_masked_arrays_and_matrices_are_refused() -> None:
    with pytest.raises(KernelTypeError, match="MaskedArray"):
        blend(np.ma.array([1.0, 2.0], mask=[False, True]), 2.0)
    with pytest.warns(PendingDeprecationWarning), pytest.raises(KernelTypeError, match="matrix"):
        blend(np.matrix([[1.0, 2.0]]), 2.0)


class Metres(np.ndarray):
    """A subclass that means something else than its numbers."""


def test_subclass_that_would_be_dropped_is_refused() -> None:
    with pytest.raises(KernelTypeError, match="Metres"):
        blend(np.ones(3).view(Metres), 2.0)


def test_shapes_that_do_not_broadcast_are_named() -> None:
    x, y = np.ones((2, 3)), np.ones(4)
    with pytest.raises(KernelTypeError, match=r"blend: .* x \(2, 3\), y \(4,\)\n.*Instead"):
        blend(x, y)


def test_shapes_that_do_not_broadcast_are_named_inside_a_gradient() -> None:
    x, y = np.ones((2, 3)), np.ones(4)
    with pytest.raises(KernelTypeError, match=r"blend: .* x \(2, 3\), y \(4,\)\n.*Instead"):
        mixad.grad(lambda x: blend(x, y).sum())(x)


@pytest.mark.rows("number", [2**63, -(2**63) - 1, 2**100])
@pytest.mark.rows("dtype", [np.float64, np.int64])
def test_whole_number_that_fits_no_type_is_refused(number: int, dtype: Any) -> None:
    suggestion = "pass np.uint64 of it, or a float" if number == 2**63 else "pass a float"
    with pytest.raises(KernelTypeError, match=rf"argument 'y'[^$]*Instead: {suggestion}$"):
        blend(np.ones(2, dtype), number)


# -- mutation ----------------------------------------------------------------------------------


def test_array_changed_before_a_pending_call_runs_is_noticed() -> None:
    a = np.asarray([1.0, 2.0, 3.0])

    def loss(t: Any) -> Any:
        y = gate(t, a)
        a[...] += 1
        return y.sum()

    with pytest.raises((TracerError, ValueError)):
        mixad.grad(loss)(np.asarray([5.0, 5.0, 5.0]))


def test_array_changed_before_the_pullback_is_noticed() -> None:
    a = np.linspace(1.0, 3.0, 1 << 15)  # pullbacks of small arrays hold copies
    _, pullback = mixad.vjp(lambda t: gate(t, a), np.full(a.size, 5.0))

    def changed_and_pulled_back() -> Any:
        a[...] += 1
        return pullback(np.ones(a.size))

    with pytest.raises((TracerError, ValueError)):
        changed_and_pulled_back()
