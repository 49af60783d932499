"""Kernels on JAX arrays on the CPU run over their memory, whatever JAX does with it meanwhile."""

import gc
import importlib.util
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelTypeError

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed"
)
LARGE = (512, 512)  # of more bytes than memory that NumPy gives


@mixad.broadcast
def folded(x: Any, y: Any) -> Any:
    return x * y if x < 0.5 else y / x


def numbers(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(4).uniform(0.1, 1.0, shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(64, 100), LARGE, (7,), (), (0, 3)], ids=str)
def test_values_and_gradients_are_numpys_on_the_same_backend(shape: tuple[int, ...]) -> None:
    import jax.numpy as jnp

    def loss(x: Any) -> Any:
        return (folded(x, x + 1) ** 2).sum()

    x = numbers(*shape)
    assert folded.explain(jnp.asarray(x), 2.0).backend == "cpu"
    np.testing.assert_array_equal(folded(jnp.asarray(x), 2.0), folded(x, np.float32(2)))
    np.testing.assert_array_equal(mixad.grad(loss)(jnp.asarray(x)), mixad.grad(loss)(x))


PARTS = {
    "neighbours": lambda x: (x[1:] * x[:-1]).sum(),
    "ends": lambda x: (x[:2] * x[3:5]).sum(),
    "three": lambda x: (x[2:] * x[1:-1] * x[:-2]).sum(),
    "kernel": lambda x: folded(x[1:], x[:-1]).sum(),
    "rosenbrock": lambda x: (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum(),
    "rows": lambda x: (x.reshape(4, 5)[1:] * x.reshape(4, 5)[:-1]).sum(),
    "columns": lambda x: (x.reshape(4, 5)[:, 1:] * x.reshape(4, 5)[:, :-1]).sum(),
    "diff": lambda x: (np.diff(x, 2) ** 2).sum(),
    "gradient": lambda x: (np.gradient(x) ** 2).sum(),
    "trapezoid": lambda x: np.trapezoid(x * x, x),
    "pieces": lambda x: (np.concatenate([x[:3] * 2, x[3:] * x[2]]) ** 2).sum(),
}


@pytest.mark.rows("name", PARTS)
def test_cotangents_of_parts_are_added_up(name: str) -> None:
    """JAX's arrays cannot be written to, and ``part += value`` leaves them as they are."""
    import jax.numpy as jnp

    x, f = numbers(20), PARTS[name]
    expected = mixad.grad(f)(x)
    np.testing.assert_allclose(mixad.grad(f)(jnp.asarray(x)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_double", [False, True])
def test_dtypes_are_those_of_jax_with_types_of_64_bits_and_without(has_double: bool) -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(has_double):
        x = jnp.asarray(numbers(5).astype(np.float64))
        assert x.dtype == (np.float64 if has_double else np.float32)
        assert folded(x, 2.0).dtype == mixad.grad(lambda x: folded(x, x).sum())(x).dtype == x.dtype
        half = x.astype(jnp.bfloat16)
        assert folded(half, 2.0).dtype == half.dtype


def test_arrays_of_64_bits_keep_them_where_jax_makes_none() -> None:
    import jax
    import jax.numpy as jnp

    product = mixad.broadcast(lambda x, y: x * y)
    with jax.enable_x64(True):
        whole, large = jnp.asarray([3_000_000_000]), jnp.asarray([1e200, 1.0])
    with jax.enable_x64(False):
        assert product(whole, 2).dtype == (whole + whole).dtype == np.int64
        assert product(whole, 2).tolist() == [6_000_000_000]
        assert product(large, large * large).dtype == np.float64
        assert product(large, 2.0).tolist() == [2e200, 2.0]


def test_what_is_not_computed_yet_is_waited_for() -> None:
    import jax
    import jax.numpy as jnp

    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda i, y: jnp.sin(y) + x, x))
    x = jnp.asarray(numbers(*LARGE))
    expected = folded(np.asarray(slow(x)), np.float32(3))
    y = slow(x + 0.0)
    np.testing.assert_array_equal(folded(y, 3.0), expected)


def test_results_that_jax_still_reads_are_not_written_again() -> None:
    """Their memory goes back to the pool when JAX lets go of it, not when the array does."""
    import jax
    import jax.numpy as jnp

    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 60, lambda i, y: jnp.sin(y) + 0.1 * x, x))
    more = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = jnp.asarray(numbers(*LARGE))
    expected = np.asarray(slow(folded(x, 3.0)))
    one_more = np.asarray(folded(x, 3.0)) + 1
    for _ in range(20):
        result = folded(x, 3.0)
        read, donated = slow(result), more(result)
        del result
        gc.collect()
        others = [folded(x, 5.0) for _ in range(2)]
        np.testing.assert_array_equal(read, expected)
        np.testing.assert_array_equal(donated, one_more)
        del others


def test_arguments_that_were_donated_or_deleted_are_told_by_jax() -> None:
    import jax
    import jax.numpy as jnp

    donated, deleted = jnp.asarray(numbers(100)), jnp.asarray(numbers(3))
    folded(donated, 2.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(donated)
    deleted.delete()
    for x in (donated, deleted):
        assert x.is_deleted()
        with pytest.raises(RuntimeError, match="deleted"):
            folded(x, 2.0)
    x = jnp.asarray(numbers(3))
    _, pullback = mixad.vjp(lambda x: folded(x, x), x)
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        pullback(jnp.ones(3))


DEVICES = """
import jax, jax.numpy as jnp, mixad, numpy as np
from mixad.errors import KernelTypeError
from jax.sharding import Mesh, NamedSharding, PartitionSpec

k = mixad.broadcast(lambda x: x * x)
x = jnp.arange(8.0)
first, second = jax.devices()
for device in (first, second):
    y = k(jax.device_put(x, device))
    assert y.devices() == {device} and y.committed, device
    np.testing.assert_array_equal(y, x * x)
assert not k(x).committed
with jax.default_device(second):
    assert k(x).devices() == {first}
mesh = Mesh(np.array([first, second]), ("cpu",))
for spec in ("cpu", None):
    z = jax.device_put(x, NamedSharding(mesh, PartitionSpec(spec)))
    for call in (k, k.with_options(backend="cpu"), mixad.grad(lambda x: k(x).sum())):
        try:
            call(z)
        except KernelTypeError as error:
            assert "lies on 2 devices" in str(error) and "device_put" in str(error), error
        else:
            raise AssertionError(call)
"""


@pytest.mark.slow
def test_results_are_on_the_device_of_arguments_and_several_are_refused(tmp_path: Any) -> None:
    path = tmp_path / "devices.py"  # kernels are read from files
    path.write_text(DEVICES, encoding="utf-8")
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "MIXAD_BACKEND_BLOCK": "jax"}
    subprocess.run([sys.executable, str(path)], check=True, env=os.environ | flags)


def test_gradients_inside_of_jit_leave_nothing_behind() -> None:
    import jax
    import jax.numpy as jnp

    x, total = jnp.asarray(numbers(3)), lambda x: x.sum()
    for _ in range(3):
        found = jax.jit(lambda factor: mixad.grad(total)(x) * factor)(2.0)
        np.testing.assert_array_equal(found, [2.0, 2.0, 2.0])
    np.testing.assert_array_equal(mixad.grad(total)(x), np.ones(3))


def test_gradients_of_doubles_stay_doubles_in_whichever_mode_the_first_was_made() -> None:
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        x = jnp.asarray([0.3, 0.5])
    for is_double in (False, True, False):
        with jax.enable_x64(is_double):
            for _ in range(2):
                gradient = mixad.grad(lambda x: x.sum())(x)
                assert gradient.dtype == np.float64
                np.testing.assert_array_equal(gradient, [1.0, 1.0])


def test_types_that_numpy_does_not_know_are_refused_by_name() -> None:
    import jax.numpy as jnp

    for _ in range(2):
        with pytest.raises(KernelTypeError, match=r"mixad\.grad: argument 0: .*float8"):
            mixad.grad(lambda x: x.sum())(jnp.ones(3, dtype=jnp.float8_e4m3fn))
