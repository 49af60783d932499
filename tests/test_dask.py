"""Dask arrays: values and gradients of what Dask implements, and nothing is computed on the way."""

from __future__ import annotations

import importlib.util
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import KernelTypeError, MixadError, TracerError
from mixad.namespace.spellings import STANDARD
from mixad.tape.constant import is_constant
from mixad.tape.tracer import primal_value

sys.path.insert(0, str(Path(__file__).parent / "namespace"))
from test_conformance import _calls, _leaves

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("dask") is None, reason="dask is not installed"
)

LACKING = set(
    "linalg.det linalg.eigh linalg.eigvalsh linalg.pinv linalg.slogdet linalg.svdvals "
    "linalg.matrix_rank linalg.eig linalg.eigvals".split()
)
"""What Dask has not, or not as the standard has it: AttributeError, or Dask's own error."""

OF_UNKNOWN_SHAPE = set("unique_all unique_counts unique_inverse unique_values".split())
"""How many values there are is known when they are computed."""

FOURIER = {name for name in STANDARD.functions if name.startswith("fft.") and "shift" not in name}

OF_SOME_CHUNKS = set("linalg.qr linalg.svd".split()) | FOURIER
"""Dask has them of matrices that are cut along one axis only, and along axes of one chunk."""

OF_SCIPY = set("linalg.cholesky linalg.inv linalg.matrix_power linalg.solve".split())
"""Dask computes them with SciPy."""

OF_WHOLE_NUMBERS = {name for name in STANDARD.constant if name.startswith("bitwise")}

WORKING = sorted(
    (set(STANDARD.functions) | set(STANDARD.constant))
    - LACKING - OF_UNKNOWN_SHAPE - OF_SOME_CHUNKS - OF_WHOLE_NUMBERS
)  # fmt: skip

X = np.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])


@pytest.fixture
def da() -> Any:
    return pytest.importorskip("dask.array")


@pytest.fixture
def xp(da: Any) -> Any:
    return mixad.namespace_of(da)


@pytest.fixture
def computed() -> Iterator[list[Any]]:
    """What Dask was asked to compute."""
    callbacks = pytest.importorskip("dask.callbacks")
    found: list[Any] = []
    with callbacks.Callback(start=found.append):
        yield found


def _lazy(da: Any, x: Any) -> Any:
    return da.from_array(x, chunks=tuple(max(1, n // 2) for n in x.shape))


def _loss(xp: Any, name: str, number: int, a: Any, b: Any) -> Any:
    """Return a sum of squares of what a call gives, with the values."""
    leaves = [x for x in _leaves(_calls(name)[number](xp, a, b)) if hasattr(x, "dtype")]
    traced = [x for x in leaves if not is_constant(x)]
    total = sum((xp.sum(x * x * 0.5 + x) for x in traced), xp.sum(a) * 0.0)
    return total, [mixad.stop_gradient(x) for x in leaves]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows("name", WORKING, slow="atan2 logaddexp pow prod std var")
def test_functions_and_gradients_are_numpys_and_lazy(
    name: str, da: Any, xp: Any, computed: list[Any]
) -> None:
    if name in OF_SCIPY:
        pytest.importorskip("scipy")
    computed.clear()
    rng = np.random.default_rng(0)
    compared = 0
    for number in range(len(_calls(name))):
        for shape in ((4, 6), (4, 4), (6,), (4, 3)):
            a, b = rng.normal(size=(2, *shape)) + 0.3
            own = mixad.namespace_of(np)
            try:
                want = _gradient(own, name, number)(a, b)
            except (ValueError, TypeError, IndexError):  # of this shape there is none
                continue
            try:
                found = _gradient(xp, name, number)(_lazy(da, a), _lazy(da, b))
            except NotImplementedError:  # Dask's: a reshape across chunks
                continue
            assert not computed
            found, want = mixad.pytree.leaves(found), mixad.pytree.leaves(want)
            assert len(found) == len(want)
            for lazy, array in zip(found, want, strict=True):
                assert isinstance(lazy, da.Array)
                assert lazy.dtype == array.dtype
                np.testing.assert_allclose(lazy.compute(), array, rtol=1e-10, atol=1e-10)
            computed.clear()
            compared += 1
            break
    assert compared


def _gradient(xp: Any, name: str, number: int) -> Any:
    f = lambda a, b: _loss(xp, name, number, a, b)  # noqa: E731
    return mixad.grad(f, argnums=(0, 1), has_aux=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows("name", sorted(LACKING | OF_UNKNOWN_SHAPE))
def test_what_dask_lacks_raises_and_computes_nothing(
    name: str, da: Any, xp: Any, computed: list[Any]
) -> None:
    computed.clear()
    a, b = (_lazy(da, x) for x in np.ones((2, 4, 4)))
    kinds = (AttributeError, MixadError, NotImplementedError, TypeError)
    with pytest.raises(kinds):
        _gradient(xp, name, 0)(a, b)
    assert not computed


def _transformed(xp: Any, name: str, x: Any) -> Any:
    """Return what does not depend on signs and phases of a transform or decomposition."""
    if name == "linalg.qr":
        q, r = xp.linalg.qr(x)
        return xp.sum(xp.abs(r) ** 3) + xp.sum(xp.abs(q) ** 3)
    if name == "linalg.svd":
        u, s, vh = xp.linalg.svd(x, full_matrices=False)
        return xp.sum(s**3) + xp.sum(xp.abs(u @ vh) ** 3)
    transform = getattr(xp.fft, name.partition(".")[2])
    several = {"axes": (1,)} if name.endswith("n") else {"axis": 1}
    return xp.sum(xp.abs(transform(x, **several)) ** 3)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows("name", sorted(OF_SOME_CHUNKS))
def test_what_dask_has_of_some_chunks_has_the_gradients_of_numpy(
    name: str, da: Any, xp: Any, computed: list[Any]
) -> None:
    """Matrices are cut along the first axis, and transforms are along the other one."""
    computed.clear()
    x = np.random.default_rng(1).normal(size=(6, 3))
    own = mixad.namespace_of(np)
    want = mixad.value_and_grad(lambda x: _transformed(own, name, x))(x)
    lazy = da.from_array(x, chunks=(3, 3))
    found = mixad.value_and_grad(lambda x: _transformed(xp, name, x))(lazy)
    assert bool(computed) == (name == "linalg.svd")  # which looks for singular values that repeat
    for result, array in zip(found, want, strict=True):
        assert isinstance(result, da.Array)
        np.testing.assert_allclose(result.compute(), array, rtol=1e-10, atol=1e-10)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.rows("name", sorted(OF_SOME_CHUNKS))
def test_what_dask_lacks_of_other_chunks_is_its_own_error(
    name: str, da: Any, xp: Any, computed: list[Any]
) -> None:
    computed.clear()
    cut = da.from_array(np.ones((6, 4)), chunks=(3, 2))
    with pytest.raises((ValueError, NotImplementedError)):
        mixad.grad(lambda x: _transformed(xp, name, x))(cut)
    assert not computed


@mixad.broadcast
def kepler(m, e):
    position = m
    while True:
        step = (position - e * np.sin(position) - m) / (1.0 - e * np.cos(position))
        position = position - step
        if abs(step) < 1e-12:
            return position


@mixad.broadcast
def folded(x, y):
    return x * y if x > y else x - y


def _written(x: Any, xp: Any) -> Any:
    out = xp.zeros(6)
    for i in range(3):
        out[i] = x[i] * x[i + 1]
    out[3:] += x[:3]
    out[xp.asarray([0, 5])] = 2.0 * x[np.asarray([1, 1])]
    return xp.sum(out * out)


def _masked(x: Any, xp: Any) -> Any:
    y = x * 1.0
    y[y > 3] = 0.0
    return xp.sum(y * x)


PROGRAMS = [
    lambda x, xp: mixad.value_and_grad(lambda x: xp.sum(xp.sin(x) * x) / 3)(x),
    lambda x, xp: mixad.grad(lambda x: _written(x, xp))(x),
    lambda x, xp: mixad.grad(lambda x: _masked(x, xp))(x),
    lambda x, xp: mixad.grad(
        lambda x: xp.sum(x[np.asarray([0, 0, 3])] ** 2) + x[1] * x[4] + xp.sum(x[2:5] * x[:3])
    )(x),
    lambda x, xp: mixad.grad(lambda x: xp.sum(xp.where(x > 2, x * x, xp.flip(x))))(x),
    lambda x, xp: mixad.grad(lambda x: xp.sum((x[:, None] * x[None, :]) ** 2))(x),
    lambda x, xp: mixad.grad(lambda x: xp.sum(kepler(x, x / 9)))(x),
    lambda x, xp: mixad.grad(lambda x: xp.sum(folded(x, 3.0) + folded(xp.flip(x), x)))(x),
    lambda x, xp: kepler(x, 0.3),
    lambda x, xp: folded.duals(x, 3.0, wrt="x").partials["x"],
    lambda x, xp: mixad.jvp(lambda x: xp.sum(x**3), (x,), (x,)),
    lambda x, xp: mixad.hvp(lambda x: xp.sum(xp.exp(x)), (x,), (x,)),
    lambda x, xp: mixad.hessian(lambda x: xp.sum(x**3) + x[0] * x[1])(x),
    lambda x, xp: mixad.jacobian(lambda x: xp.sin(x) * x[0])(x),
    lambda x, xp: mixad.grad(lambda x: mixad.checkpoint(lambda x: xp.sum(xp.sin(x)))(x))(x),
    lambda x, xp: mixad.grad(lambda x: np.sum(np.exp(x) * np.sort(x)))(x),
]


@pytest.mark.rows("program", PROGRAMS, slow="<lambda>12 <lambda>13")
def test_programs_are_numpys_and_lazy(program: Any, da: Any, xp: Any, computed: list[Any]) -> None:
    computed.clear()
    found = mixad.pytree.leaves(program(da.from_array(X, chunks=4), xp))
    assert not computed
    want = mixad.pytree.leaves(program(X, mixad.namespace_of(np)))
    for lazy, array in zip(found, want, strict=True):
        np.testing.assert_allclose(lazy.compute(), array, rtol=1e-12, atol=1e-12)


def test_fourier_transforms_along_one_chunk(da: Any, xp: Any, computed: list[Any]) -> None:
    def loss(x: Any) -> Any:
        xp = x.__array_namespace__()
        spectrum = xp.fft.rfft(x)
        return xp.sum(xp.real(spectrum * xp.conj(spectrum)) * xp.sum(x))

    found = mixad.grad(loss)(da.from_array(X))
    assert not computed
    np.testing.assert_allclose(found.compute(), mixad.grad(loss)(X), rtol=1e-12)


@pytest.mark.rows(
    "look",
    [
        bool,
        int,
        float,
        lambda x: f"{x:.3f}",
        round,
        lambda x: x if x > 0 else -x,
        lambda x: float(mixad.namespace_of(__import__("dask.array").array).zeros(())),
        lambda x: [1, 2][x > 0],
        lambda x: np.asarray(x > 0),
        lambda x: x in [0.0],
    ],
)
def test_looking_at_a_lazy_value_is_refused(look: Any, da: Any, computed: list[Any]) -> None:
    with pytest.raises(TracerError):
        mixad.grad(lambda x: (look(x[0]), x.sum())[1])(da.from_array(X, chunks=4))
    assert not computed


@pytest.mark.parametrize(
    "look",
    [
        lambda x: np.unwrap(x),
        lambda x: np.linalg.lstsq(np.stack([x, x]).T, x),
        lambda x: np.compress(x > 0, x),
        lambda x: np.delete(x, np.argmax(x)),
        lambda x: np.insert(x, np.argmax(x), 1.0),
    ],
)
def test_functions_that_look_at_lazy_values_are_refused(
    look: Any, da: Any, computed: list[Any]
) -> None:
    with pytest.raises(TracerError, match="lazy"):
        mixad.grad(lambda x: (look(x), x.sum())[1])(da.from_array(X, chunks=4))
    assert not computed


def test_interpolation_between_lazy_points(da: Any, computed: list[Any]) -> None:
    points = np.linspace(0.0, 3.0, 5)

    def loss(x: Any, points: Any) -> Any:
        return np.sum(np.interp(x, points, np.sin(points)) ** 2)

    found = mixad.grad(loss)(da.from_array(X, chunks=4), da.asarray(points))
    assert not computed
    np.testing.assert_allclose(found.compute(), mixad.grad(loss)(X, points), rtol=1e-12)


def test_what_would_have_to_be_computed_is_refused(da: Any, computed: list[Any]) -> None:
    x = da.from_array(X, chunks=4)
    with pytest.raises(KernelTypeError, match=r"shape is not known.*\n.*where\(\)"):
        mixad.grad(lambda x: (x[x > 2] ** 2).sum())(x)
    with pytest.raises(KernelTypeError, match="shape is not known"):
        folded(x[x > 2], 1.0)
    assert not computed
    assert not mixad.grad(lambda e: kepler(x, e).sum())(da.asarray(0.3)).shape


@pytest.mark.rows(
    "use",
    [
        lambda da, x: da.sum(x),
        lambda da, x: da.dot(x, x),
        lambda da, x: da.ones(6) + da.asarray(x),
        lambda da, x: da.concatenate([x, x]),
        lambda da, x: da.from_array(x, chunks=2),
        lambda da, x: da.map_blocks(np.sin, x, dtype=float),
        lambda da, x: da.where(x > 1, x, 0.0),
    ],
)
def test_functions_of_dask_keep_the_derivative_or_are_refused(use: Any, da: Any) -> None:
    for x in (da.from_array(X, chunks=4), X):
        with pytest.raises(TracerError, match="lose its derivative"):
            mixad.grad(lambda x: use(da, x).sum())(x)


def test_functions_of_dask_take_constants(da: Any, xp: Any) -> None:
    found = da.sum(xp.ones(3)) + da.sum(mixad.namespace_of(np).ones(3))
    assert found.compute() == 6.0
    assert mixad.grad(lambda x: np.sum(da.ones(6) * x))(da.from_array(X)).compute().sum() == 6.0


def test_an_array_that_is_written_to_before_the_backward_pass_is_as_it_was_or_found(
    da: Any,
) -> None:
    """What is differentiated is another lazy array; of what a function captures, that is read."""
    x = da.from_array(X.copy(), chunks=4)
    value, pullback = mixad.vjp(lambda x: x * x, x)
    x[0] = 5.0
    np.testing.assert_array_equal(pullback(value)[0].compute(), 2 * X**3)
    value, pullback = mixad.vjp(lambda v: v * x, da.ones(6, chunks=4))
    x[0] = 7.0
    with pytest.raises(TracerError, match="changed in place"):
        pullback(value)


def test_kernels_are_the_same_in_every_graph_and_pickle(da: Any) -> None:
    """Workers get the program, and tasks of equal names are computed once."""
    x = da.from_array(X, chunks=4)
    one, other = kepler(x, 0.3), kepler(x, 0.3)
    assert one.name == other.name
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.compute(scheduler="synchronous"), one.compute())


@mixad.scalar_rule(lambda x: 3.0 * cubed(x) / x)
def cubed(x: Any) -> Any:
    return x * x * x


@pytest.mark.slow
def test_kernels_with_rules_are_computed_by_processes_that_know_no_rules(
    da: Any, tmp_path: Path
) -> None:
    found = mixad.grad(lambda x: cubed(x).sum())(da.from_array(X, chunks=4))
    path = tmp_path / "graph"
    path.write_bytes(pickle.dumps(found))
    program = (
        "import pickle, sys; found = pickle.load(open(sys.argv[1], 'rb'));"
        "print(*found.compute(scheduler='synchronous').tolist())"
    )
    command = [sys.executable, "-c", program, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    np.testing.assert_allclose([*map(float, done.stdout.split())], 3.0 * X**2, rtol=1e-14)


def test_the_factor_of_cholesky_is_the_lower_one(da: Any, xp: Any) -> None:
    pytest.importorskip("scipy")
    x = da.from_array(np.asarray([[4.0, 2.0], [2.0, 5.0]]), chunks=1)
    found = xp.linalg.cholesky(x)
    assert is_constant(found)
    assert primal_value(found).compute().tolist() == [[2.0, 0.0], [1.0, 2.0]]


@pytest.mark.parametrize("upper", [False, True])
def test_matrices_are_looked_at_for_symmetry_when_they_are_computed(da: Any, upper: bool) -> None:
    pytest.importorskip("scipy")

    def gradient(x: Any) -> Any:
        def loss(x: Any) -> Any:
            return (x.__array_namespace__().linalg.cholesky(x, upper=upper) ** 3).sum()

        return mixad.grad(loss)(x)

    x = np.cos(np.add.outer(range(4), range(4))) + 4 * np.eye(4)
    found = gradient(da.from_array(x, chunks=2)).compute()
    np.testing.assert_allclose(found, gradient(x), rtol=1e-12)
    later = gradient(da.from_array(np.tril(x), chunks=2))
    with pytest.raises(TracerError, match=r"cholesky\(\) .* is not symmetric"):
        later.compute()


def test_blocks_are_computed_apart(da: Any) -> None:
    x = da.from_array(np.ones((40, 30)), chunks=(10, 30))
    gradient = mixad.grad(lambda x, y: (folded(x, y) ** 2).sum(), argnums=(0, 1))
    dx, dy = gradient(x, da.zeros(30))
    assert dx.chunks == ((10, 10, 10, 10), (30,))
    assert dy.shape == (30,)
    np.testing.assert_array_equal(dy.compute(), np.zeros(30))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_floats_of_every_width(da: Any, dtype: str) -> None:
    x = X.astype(dtype)
    kernel = mixad.broadcast(lambda x: x * x + 1.0 if x > 2.0 else x)
    lazy = da.from_array(x, chunks=4)
    np.testing.assert_array_equal(kernel(lazy).compute(), kernel(x), strict=True)
    for f in (kernel, lambda x: x * x):
        found = mixad.grad(lambda x, f=f: f(x).sum())(lazy).compute()
        np.testing.assert_array_equal(found, mixad.grad(lambda x, f=f: f(x).sum())(x), strict=True)


# -- blocks that are more than arrays --------------------------------------------------------------


class Metres(np.ndarray):
    """A subclass that means something else than its numbers."""


def _sparse(block: Any) -> Any:
    return pytest.importorskip("sparse").COO(block)


def _scipy_sparse(block: Any) -> Any:
    return pytest.importorskip("scipy.sparse").coo_array(block)


def _with_units(block: Any) -> Any:
    return block * pytest.importorskip("pint").UnitRegistry().metre


def _tensor(block: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(block)


MORE_THAN_ARRAYS: dict[str, tuple[Any, str]] = {
    "masked": (
        lambda b: np.ma.masked_greater(b, 3.0),
        r"MaskedArray[^$]*two arrays: x\.map_blocks",
    ),
    "nothing masked": (np.ma.asarray, r"MaskedArray[^$]*numpy\.ma\.getmaskarray\(x\)"),
    "matrix": (np.matrix, r"numpy\.matrix[^$]*x\.map_blocks\(lambda x: numpy\.asarray\(x\)\)"),
    "subclass": (lambda b: b.view(Metres), r"Metres[^$]*numpy\.asarray\(x\)"),
    "records": (lambda b: b.view(np.recarray), r"recarray[^$]*numpy\.asarray\(x\)"),
    "sparse": (_sparse, r"COO[^$]*x\.map_blocks\(lambda x: x\.todense\(\)\)"),
    "SciPy's sparse": (_scipy_sparse, r"coo_array[^$]*x\.map_blocks\(lambda x: x\.todense\(\)\)"),
    "with units": (_with_units, r"Quantity[^$]*x\.map_blocks\(lambda x: x\.magnitude\)"),
    "tensors": (_tensor, r"torch\.Tensor[^$]*x\.map_blocks\(lambda x: x\.numpy\(\)\)"),
    "lists": (lambda b: b.tolist(), r"list[^$]*numpy\.asarray\(x\)"),
}
"""What makes such a block of an array, and what is said of it."""

SAID_IN_META = ("masked", "nothing masked", "subclass", "sparse")
"""Those that Dask has as its `_meta`, if it is asked what becomes of an empty array."""


@mixad.broadcast
def bent(x: float, y: float) -> float:
    return x * x * x + y if x > 2.0 else y


def _uses(x: Any, one: Any) -> dict[str, Any]:
    """Ways for an array to come to a kernel."""
    return {
        "first argument": lambda: bent(x, 2.0),
        "second argument": lambda: bent(one, x),
        "captured": lambda: mixad.broadcast(lambda v: v * x[0, 1])(one),
        "grad": lambda: mixad.grad(lambda v: (v * v).sum())(x),
        "beside": lambda: mixad.grad(lambda v: (v * x).sum())(one),
        "kernel": lambda: mixad.grad(lambda v: bent(v, 1.0).sum())(x),
        "of NumPy": lambda: mixad.grad(lambda v: np.sin(v).sum())(x),
        "jvp": lambda: mixad.jvp(lambda v: v * v, (x,), (one,))[1],
        "seed": lambda: mixad.jvp(lambda v: v * v, (one,), (x,))[1],
        "cotangent": lambda: mixad.vjp(lambda v: v * v, one)[1](x)[0],
        "duals": lambda: bent.duals(x, one).primal,
    }


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", MORE_THAN_ARRAYS)
def test_blocks_that_are_more_than_arrays_are_refused_where_they_are_met(
    kind: str, da: Any, computed: list[Any]
) -> None:
    """At the call if `_meta` tells them; if that says that they are arrays, by the worker."""
    make, why = MORE_THAN_ARRAYS[kind]
    make(np.ones((1, 1)))  # skips where its library is not there
    plain, one = da.from_array(X.reshape(2, 3), chunks=2), da.ones((2, 3), chunks=2)
    hidden = plain.map_blocks(make, dtype="f8", meta=np.empty((0, 0)))
    for use, call in _uses(hidden, one).items():
        later = call()
        with pytest.raises(KernelTypeError, match=f"block of a lazy array is a [^$]*{why}"):
            later.compute(scheduler="sync")
        assert use
    if kind in SAID_IN_META:
        computed.clear()
        for call in _uses(plain.map_blocks(make, dtype="f8"), one).values():
            with pytest.raises(KernelTypeError, match=f"blocks that are [^$]*{why}"):
                call()
        assert not computed


def _written_with(x: Any, part: Any) -> Any:
    y = x * 1.0
    y[:2] = part
    return y


@pytest.mark.rows(
    "call",
    [
        lambda d, one: mixad.grad(lambda x: x.mean())(d),
        lambda d, one: mixad.grad(lambda x: x.sum() + x[0, 0] ** 2)(d),
        lambda d, one: mixad.grad(lambda x: x["a"].mean())({"a": d})["a"],
        lambda d, one: mixad.value_and_grad(lambda x: x.max())(d)[0],
        lambda d, one: mixad.value_and_grad(lambda x: x.max())(d)[1],
        lambda d, one: mixad.value_and_grad(np.linalg.norm)(d)[0],
        lambda d, one: mixad.value_and_grad(lambda x: x.prod())(d)[0],
        lambda d, one: mixad.value_and_grad(lambda x: x[0, 0])(d)[0],
        lambda d, one: mixad.grad(lambda x: x[0, 0])(d),
        lambda d, one: mixad.vjp(lambda x: x, d)[0],
        lambda d, one: mixad.vjp(np.flip, d)[0],
        lambda d, one: mixad.vjp(lambda x: np.roll(x, 1), d)[0],
        lambda d, one: mixad.vjp(lambda x: np.tile(x, 2), d)[0],
        lambda d, one: mixad.vjp(lambda x: x @ one, d)[1](one)[0],
        lambda d, one: mixad.vjp(lambda x: x @ one, one)[1](d)[0],
        lambda d, one: mixad.vjp(lambda x: x @ d, one)[0],
        lambda d, one: mixad.vjp(lambda x: d @ x, one)[1](one)[0],
        lambda d, one: mixad.vjp(lambda x: np.concatenate([x, d]), one)[0],
        lambda d, one: mixad.vjp(lambda x: _written_with(x, d[:2]), one)[0],
        lambda d, one: mixad.vjp(lambda x: np.convolve(x, d[0]), one[0])[0],
        lambda d, one: mixad.value_and_grad(lambda x, k: (x @ k).max())(one, k=d)[0],
        lambda d, one: mixad.jvp(np.flip, (one,), (d,))[1],
        lambda d, one: mixad.jvp(np.flip, (d,), (one,))[0],
        lambda d, one: mixad.grad(lambda x: (x.mean(), x[0]), has_aux=True)(d)[1],
        lambda d, one: mixad.jacobian(np.flip)(d),
        lambda d, one: mixad.jacobian(lambda x: x[0])(d),
        lambda d, one: mixad.hessian(lambda x: x.mean())(d),
    ],
)
def test_blocks_that_no_kernel_reads_are_looked_at_too(
    call: Any, da: Any, computed: list[Any]
) -> None:
    def masked(block: Any) -> Any:
        return np.ma.masked_array(block * 3, mask=[[1, 0], [0, 1]])

    one = da.ones((4, 4), chunks=2)
    hidden = one.map_blocks(masked, meta=np.empty((0, 0)), dtype=float)
    computed.clear()
    later = call(hidden, one)
    assert not computed
    with pytest.raises(KernelTypeError, match=r"MaskedArray[^$]*two arrays: x\.map_blocks"):
        later.compute(scheduler="sync")
    assert call(one * 3, one).compute(scheduler="sync").shape == later.shape


def test_blocks_are_looked_at_once_and_by_equal_tasks(da: Any) -> None:
    x = da.from_array(X, chunks=4)
    one, other = (mixad.vjp(np.flip, x)[0] for _ in range(2))
    assert one.name == other.name
    looks = [name for name in mixad.vjp(lambda x: x, one)[0].dask.layers if "mixad-plain" in name]
    assert len(looks) == 2  # at what each transform was given
    assert mixad.vjp(lambda x: x, mixad.vjp(lambda x: x, x)[0])[0].name.startswith("mixad-plain")


def test_what_is_said_of_blocks_that_are_more_than_arrays_works(da: Any) -> None:
    """The ways out, written as they are told."""
    masked = da.from_array(np.ma.masked_array(X, X > 4.0), chunks=2)
    values = masked.map_blocks(lambda x: np.ma.filled(x))
    mask = masked.map_blocks(lambda x: np.ma.getmaskarray(x))
    kept = mixad.broadcast(lambda x, hidden: 0.0 if hidden else x * x)
    found = mixad.grad(lambda x: kept(x, mask).sum())(values)
    np.testing.assert_array_equal(found.compute(), np.where(X > 4.0, 0.0, 2 * X))
    sparse = pytest.importorskip("sparse")
    dense = da.from_array(X, chunks=2).map_blocks(sparse.COO).map_blocks(lambda x: x.todense())
    np.testing.assert_array_equal(mixad.grad(lambda x: (x * x).sum())(dense).compute(), 2 * X)


def test_blocks_that_are_numbers_and_mapped_files_are_arrays(da: Any, tmp_path: Path) -> None:
    memory = np.memmap(tmp_path / "map", "f8", "w+", shape=6)
    memory[:] = X
    for make in (lambda b: b, lambda b: memory[: len(b)]):
        x = da.from_array(X, chunks=6).map_blocks(make, dtype="f8", meta=np.empty(0))
        np.testing.assert_array_equal(mixad.grad(lambda x: (x * x).sum())(x).compute(), 2 * X)
    for make in (np.float64, float):
        x = da.from_array(np.asarray(3.0)).map_blocks(make, dtype="f8", meta=np.empty(()))
        assert mixad.grad(lambda x: x * x)(x).compute() == 6.0
