"""Arrays of the namespace that nobody differentiates: they stand beside what is traced."""

from __future__ import annotations

import copy
import importlib.util
import inspect
import operator
import pickle
from collections import namedtuple
from typing import Any

import array_api_strict
import numpy as np
import pytest
from array_api_compat import array_namespace
from hypothesis import given, settings
from hypothesis.extra.array_api import make_strategies_namespace

import mixad
from mixad.errors import TracerError
from mixad.namespace.names import FUNCTIONS
from mixad.tape.constant import is_constant, is_traced

EXAMPLES = 30

HAS_TORCH = importlib.util.find_spec("torch") is not None

LIBRARIES = [
    "numpy",
    "array_api_strict",
    pytest.param("array_api_compat.torch", marks=[
        pytest.mark.torch, pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
    ]),
]  # fmt: skip

XP = mixad.namespace_of(np)
X = np.asarray([1.0, 2.0, 4.0])


@pytest.fixture(params=LIBRARIES)
def base(request: pytest.FixtureRequest) -> Any:
    return importlib.import_module(request.param)


@pytest.fixture
def xp(base: Any) -> Any:
    return mixad.namespace_of(base)


def as_numpy(x: Any) -> Any:
    return np.asarray(x.tolist()) if hasattr(x, "tolist") else np.asarray(x)


# -- what makes them -----------------------------------------------------------------------------

CREATION = [
    lambda xp: xp.zeros(3),
    lambda xp: xp.zeros((2, 0)),
    lambda xp: xp.ones((2, 3), dtype=xp.int32),
    lambda xp: xp.full(3, 2.5),
    lambda xp: xp.asarray([[1, 2], [3, 4]]),
    lambda xp: xp.asarray(True),
    lambda xp: xp.arange(5),
    lambda xp: xp.arange(1.0, 2.0, 0.25),
    lambda xp: xp.linspace(0.0, 1.0, 5),
    lambda xp: xp.eye(3, k=1),
    lambda xp: xp.tril(xp.ones((3, 3))),
    lambda xp: xp.zeros_like(xp.ones(2)),
    lambda xp: xp.asarray([1.0, 2.0], dtype=xp.complex128),
]


@pytest.mark.rows("make", CREATION)
def test_creation_functions_make_constants(make: Any, base: Any, xp: Any) -> None:
    found, want = make(xp), make(base)
    assert is_constant(found)
    assert array_namespace(found) is xp
    assert (found.shape, found.dtype) == (tuple(want.shape), want.dtype)
    np.testing.assert_array_equal(as_numpy(np.asarray(found)), as_numpy(np.asarray(want)))
    assert repr(found) == f"Constant({want!r})"
    assert str(found) == str(want)


def test_whole_programs_stay_in_one_namespace(base: Any, xp: Any) -> None:
    seen = []

    def loss(x: Any) -> Any:
        values, where = xp.sort(x), xp.argsort(x)
        made = [xp.zeros(3), where, x > 1, xp.isnan(x), xp.argmax(x), xp.nonzero(x)[0],
                *xp.meshgrid(xp.arange(2), xp.arange(3)), xp.unique_counts(x).counts,
                xp.astype(x, xp.int32), xp.zeros_like(x),
                xp.asarray([1, 2, 3], dtype=x.dtype) * xp.ones_like(x)]  # fmt: skip
        seen.extend(made)
        assert all(array_namespace(x, values, each) is xp for each in made)
        return xp.sum(values * xp.take(made[-1], where))

    gradient = mixad.grad(loss)(base.asarray([3.0, 1.0, 2.0], dtype=base.float64))
    np.testing.assert_array_equal(np.asarray(gradient), [1.0, 2.0, 3.0])
    assert all(map(is_constant, seen))


def test_constants_convert() -> None:
    assert float(XP.asarray(2.5)) == 2.5
    assert int(XP.asarray(2.5)) == 2
    assert complex(XP.asarray(1j)) == 1j
    assert operator.index(XP.asarray(3)) == 3
    assert [10, 20, 30][XP.asarray(1)] == 20
    assert bool(XP.ones(1))
    assert XP.ones(2).tolist() == [1.0, 1.0]
    assert XP.asarray(3).item() == 3
    assert f"{XP.asarray(1.5):.2f}" == "1.50"
    assert round(XP.asarray(1.26), 1) == 1.3
    assert np.asarray(XP.zeros(2), dtype=np.float32).dtype == np.float32
    np.testing.assert_array_equal(np.from_dlpack(XP.zeros(2)), [0.0, 0.0])
    np.testing.assert_array_equal([float(each) for each in XP.arange(3)], [0, 1, 2])
    with pytest.raises(TypeError, match="unhashable"):
        hash(XP.zeros(1))


def test_functions_and_methods_have_the_signatures_of_the_library() -> None:
    xp, base = mixad.namespace_of(array_api_strict), array_api_strict
    for name in FUNCTIONS:
        if not name.startswith("__"):
            own, other = (operator.attrgetter(name)(found) for found in (xp, base))
            assert inspect.signature(own) == inspect.signature(other)
            assert own.__doc__ == other.__doc__
    x = xp.ones(2)
    assert list(inspect.signature(x.to_device).parameters) == ["device", "stream"]
    assert "max_version" in inspect.signature(x.__dlpack__).parameters
    assert is_constant(x.to_device(x.device))


@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
def test_strategies_of_hypothesis_draw_constants(base: Any, xp: Any) -> None:
    """The standard's own suite draws its arrays from these."""
    strategies = make_strategies_namespace(xp, api_version="2024.12")
    dtypes = strategies.scalar_dtypes()
    if base.__name__ == "array_api_compat.torch":
        # Strategies take int() of what they draw, which torch's tensors refuse from 2**63 on.
        dtypes = dtypes.filter(lambda dtype: dtype != base.uint64)
    drawn = strategies.arrays(dtypes, strategies.array_shapes())

    @settings(max_examples=EXAMPLES, deadline=None, database=None)
    @given(drawn)
    def draws(x: Any) -> None:
        assert is_constant(x)
        assert xp.result_type(x) == x.dtype

    draws()


def test_constants_are_copied_and_pickled() -> None:
    x = XP.asarray([1.0, 2.0])
    for other in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert is_constant(other)
        other[0] = 5.0
        assert x.tolist() == [1.0, 2.0]


# -- beside arrays -------------------------------------------------------------------------------

TWO = "add sub mul truediv floordiv mod pow matmul lt le gt ge eq ne".split()


@pytest.mark.rows("name", TWO)
def test_operators_are_those_of_the_library(name: str, base: Any, xp: Any) -> None:
    compute = getattr(operator, name)
    a, b = base.asarray([5.0, -3.0, 2.0]), base.asarray([2.0, 2.0, 3.0])
    want = compute(a, b)
    pairs = [(xp.asarray(a), xp.asarray(b)), (xp.asarray(a), b)]
    if base is not array_api_strict:  # whose operators do not ask the other operand
        pairs.append((a, xp.asarray(b)))
    for one, other in pairs:
        found = compute(one, other)
        assert is_constant(found)
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(np.asarray(found), np.asarray(want))


@pytest.mark.rows("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_operators_of_whole_numbers(name: str, base: Any, xp: Any) -> None:
    compute, change = getattr(operator, name), getattr(operator, f"i{name.strip('_')}")
    a, b = [12, 7, 1], [1, 2, 3]
    want = [compute(p, q) for p, q in zip(a, b, strict=True)]
    x, y = xp.asarray(a), xp.asarray(b)
    assert np.asarray(compute(x, y)).tolist() == want
    assert np.asarray(compute(x, 2)).tolist() == [compute(p, 2) for p in a]
    assert np.asarray(compute(2, x)).tolist() == [compute(2, p) for p in a]
    assert np.asarray(change(x, y)).tolist() == want
    assert np.asarray(~x).tolist() == [~p for p in want]


@pytest.mark.rows("name", [*TWO, "divmod"])
def test_operators_beside_what_is_traced(name: str, base: Any, xp: Any) -> None:
    compute = divmod if name == "divmod" else getattr(operator, name)
    a, c = base.asarray([5.5, 3.0, 2.5]), base.asarray([2.0, 2.0, 3.0])

    def loss(x: Any, c: Any, is_left: bool) -> Any:
        found = compute(x, c) if is_left else compute(c, x)
        assert array_namespace(x, found[0] if name == "divmod" else found) is xp
        total = found[0] + found[1] if name == "divmod" else found
        return xp.sum(x * xp.astype(total, x.dtype))

    for is_left in (True, False):
        gradients = [mixad.grad(lambda x: loss(x, xp.asarray(c), is_left))(a)]  # noqa: B023
        gradients += [mixad.grad(loss, argnums=0)(xp.asarray(a), xp.asarray(c), is_left)]
        both = mixad.grad(lambda x, c: loss(x, c, is_left), argnums=(0, 1))(a, c)  # noqa: B023
        for gradient in gradients:
            np.testing.assert_allclose(np.asarray(gradient), np.asarray(both[0]), rtol=1e-6)


def test_numpys_functions_take_constants() -> None:
    c = XP.asarray([3.0, 1.0, 2.0])
    for found in (
        np.exp(c),
        np.add(X, c),
        X + c,
        np.sort(c),
        np.where(c > 1, c, 0.0),
        np.median(c),
    ):
        assert is_constant(found)
    assert np.add.reduce(c) == 6.0
    whole = X.copy()
    whole += c
    whole[c > 2.5] = 0.0
    assert whole.tolist() == [0.0, 3.0, 6.0]

    def loss(x: Any) -> Any:
        return np.sum(np.where(c > 1, x * c, np.maximum(x, c)) + np.stack([x, c])[0])

    assert mixad.grad(loss)(X).tolist() == [4.0, 2.0, 3.0]


@pytest.mark.torch
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_torchs_functions_take_constants() -> None:
    torch = importlib.import_module("torch")
    c = mixad.namespace_of(torch).asarray([3.0, 1.0, 2.0])
    assert is_constant(torch.exp(c))
    assert is_constant(torch.add(torch.ones(3), c))
    assert c.numel() == 3
    gradient = mixad.grad(lambda x: torch.sum(torch.where(c > 1, x * c, x)))(torch.ones(3))
    assert gradient.tolist() == [3.0, 1.0, 2.0]


def test_complex_constants() -> None:
    z = XP.asarray([1 + 2j, 3.0])
    assert np.asarray(XP.abs(z * XP.conj(z))).tolist() == [5.0, 9.0]
    assert XP.real(z).tolist() == [1.0, 3.0]
    assert z.imag.tolist() == [2.0, 0.0]
    assert is_constant(XP.fft.fft(XP.ones(4)))


# -- what is written to --------------------------------------------------------------------------


def test_traced_elements_are_written_into_what_was_made(base: Any, xp: Any) -> None:
    def loss(x: Any) -> Any:
        out = xp.zeros(3, dtype=x.dtype)
        for i in range(3):
            out[i] = x[i] * x[i] + (out[i - 1] if i else 0.0)
        assert is_traced(out)
        return xp.sum(out)

    x = base.asarray([1.0, 2.0, 4.0])
    assert np.asarray(mixad.grad(loss)(x)).tolist() == [6.0, 8.0, 8.0]
    assert np.asarray(mixad.hessian(loss)(x)).tolist() == [[6.0, 0, 0], [0, 4.0, 0], [0, 0, 2.0]]
    value, tangent = mixad.jvp(loss, (x,), (base.ones(3),))
    assert (float(value), float(tangent)) == (1.0 + 5.0 + 21.0, 22.0)


@pytest.mark.rows("symbol", ["iadd", "isub", "imul", "itruediv", "ipow", "ifloordiv", "imod"])
def test_in_place_operators_take_what_is_traced(symbol: str, base: Any, xp: Any) -> None:
    change, compute = getattr(operator, symbol), getattr(operator, symbol[1:])
    x = base.asarray([1.5, 2.0, 4.0])

    def changed(x: Any) -> Any:
        made = xp.full(3, 3.0, dtype=x.dtype)
        kept = made
        made = change(made, x)
        assert kept is made
        assert is_traced(made)
        return xp.sum(made * x)

    want = mixad.grad(lambda x: xp.sum(compute(base.full((3,), 3.0), x) * x))
    if base is array_api_strict:
        want = mixad.grad(lambda x: xp.sum(compute(xp.full(3, 3.0), x) * x))
    np.testing.assert_allclose(np.asarray(mixad.grad(changed)(x)), np.asarray(want(x)))


def test_elements_are_changed_in_place_by_what_is_traced(base: Any, xp: Any) -> None:
    def loss(x: Any) -> Any:
        out = xp.ones(3, dtype=x.dtype)
        out[0] += x[0]
        out[1:] *= x[1:]
        return xp.sum(out * out)

    gradient = mixad.grad(loss)(base.asarray([1.0, 2.0, 4.0]))
    assert np.asarray(gradient).tolist() == [4.0, 4.0, 8.0]


def test_views_of_constants_follow_their_writes() -> None:
    whole = XP.zeros((2, 2))
    row, column, flat = whole[0], whole.T[1], XP.reshape(whole, (-1,))
    whole[0, 1] = 3.0
    row += 1.0
    assert (row.tolist(), column.tolist()) == ([1.0, 4.0], [4.0, 0.0])
    assert flat.tolist() == [1.0, 4.0, 0.0, 0.0]


@pytest.mark.rows(
    "view",
    [
        lambda c: c[1:],
        lambda c: c[::-1],
        lambda c: c.T,
        lambda c: c.reshape((3, 1)),
        lambda c: XP.reshape(c, (3, 1)),
        lambda c: XP.asarray(c),
        lambda c: XP.real(c),
        lambda c: XP.broadcast_to(c, (2, 3)),
        lambda c: np.flip(c),
        lambda c: c.ravel(),
    ],
)
def test_a_view_of_what_was_written_to_by_what_is_traced_is_not_used(view: Any) -> None:
    def write_whole(x: Any) -> Any:
        whole = XP.zeros(3)
        part = view(whole)
        whole[0] = x[0]
        return XP.sum(part * x[0])

    def write_part(x: Any) -> Any:
        whole = XP.zeros(3)
        part = view(whole)
        part += x[0]
        return XP.sum(whole * x[0])

    for f in (write_whole, write_part):
        with pytest.raises(TracerError, match=r"shares memory with another one|read-only"):
            mixad.grad(f)(X)


def test_a_copy_of_what_was_written_to_is_used() -> None:
    def loss(x: Any) -> Any:
        whole = XP.zeros(3)
        part = XP.asarray(whole, copy=True)
        whole[0] = x[0]
        return XP.sum(part + whole * x)

    assert mixad.grad(loss)(X).tolist() == [2.0, 0.0, 0.0]


def test_whole_numbers_take_the_values_of_what_is_traced() -> None:
    def loss(x: Any) -> Any:
        counts = XP.zeros(3, dtype=XP.int64)
        counts[:] = x * 1.5
        assert is_constant(counts)
        assert counts.tolist() == [1, 3, 6]
        return XP.sum(x * counts)

    assert mixad.grad(loss)(X).tolist() == [1.0, 3.0, 6.0]
    with pytest.raises(TypeError, match="int64"):
        mixad.grad(lambda x: operator.iadd(XP.zeros(3, dtype=XP.int64), x))(X)


def test_writing_keeps_what_was_recorded() -> None:
    def loss(x: Any) -> Any:
        state = XP.ones(3)
        total = x * state
        for i in range(3):
            state[i] = 10.0
            total = total + x * state
        state *= 0.0
        return XP.sum(total)

    assert mixad.grad(loss)(X).tolist() == [31.0, 31.0 - 9.0, 31.0 - 18.0]


def test_errors_of_writing_are_the_librarys(base: Any, xp: Any) -> None:
    for wrong in (
        lambda c: c.__setitem__(7, 1.0),
        lambda c: c.__setitem__(slice(2), [1.0, 2.0, 3.0]),
    ):
        with pytest.raises(Exception) as own:  # noqa: PT011
            wrong(base.zeros(3))
        with pytest.raises(type(own.value)):
            wrong(xp.zeros(3))
    with pytest.raises(IndexError):
        mixad.grad(lambda x: xp.zeros(3).__setitem__(7, x[0]))(base.ones(3))


# -- in and out of transforms --------------------------------------------------------------------


def test_results_that_are_constants_come_back_as_arrays(base: Any, xp: Any) -> None:
    kind = type(base.ones(1))
    x = base.ones(2)

    def f(x: Any) -> Any:
        return x * x, xp.zeros(2), {"order": xp.argsort(x)}

    def scalar(x: Any) -> Any:
        return xp.sum(x), {"made": xp.arange(3), "mask": x > 0}

    value, pullback = mixad.vjp(f, x)
    jvp_value, tangent = mixad.jvp(f, (x,), (x,))
    (_, aux), gradient = mixad.value_and_grad(scalar, has_aux=True)(x)
    found = [value, pullback(value), jvp_value, tangent, aux, gradient,
             mixad.jacobian(lambda x: f(x)[0])(xp.ones(2)), mixad.stop_gradient(xp.ones(2)),
             mixad.grad(lambda x: xp.sum(x))(xp.ones(2))]  # fmt: skip
    assert all(type(leaf) is kind for leaf in mixad.pytree.leaves(found))


def test_constants_are_primals_tangents_and_cotangents(xp: Any) -> None:
    x = xp.asarray([1.0, 2.0])
    _, pullback = mixad.vjp(lambda x: x * x, x)
    assert np.asarray(pullback(x)[0]).tolist() == [2.0, 8.0]
    assert np.asarray(mixad.jvp(lambda x: x * x, (x,), (x,))[1]).tolist() == [2.0, 8.0]
    assert np.asarray(mixad.hvp(lambda x: xp.sum(x * x), (x,), (x,))).tolist() == [2.0, 4.0]
    with pytest.raises(TracerError, match=r"contains an array of dtype .*int64"):
        mixad.grad(lambda x: xp.sum(x))(xp.arange(3))


def test_a_transform_inside_takes_what_is_captured() -> None:
    def outer(x: Any) -> Any:
        made = XP.asarray([1.0, 2.0, 3.0])
        inner = mixad.grad(lambda y: XP.sum(made * y * y * x))(made)
        return XP.sum(inner)

    assert mixad.grad(outer)(X).tolist() == [2.0, 8.0, 18.0]
    assert mixad.grad(lambda x: mixad.grad(lambda y: XP.sum(x * y))(XP.ones(3)).sum())(X).sum() == 3


@pytest.mark.slow
@pytest.mark.parametrize("is_captured", [False, True])
def test_checkpoint_and_custom_rules_take_constants(is_captured: bool) -> None:
    made = XP.asarray([1.0, 2.0, 3.0])

    def f(x: Any, c: Any) -> Any:
        own = made if is_captured else c
        return XP.sum(XP.sin(x) * own) * XP.ones(())

    def rule(primals: Any, tangents: Any) -> Any:
        return f(*primals), XP.sum(XP.cos(primals[0]) * primals[1] * tangents[0])

    with_vjp, with_jvp = mixad.custom_vjp(f), mixad.custom_jvp(f)
    with_vjp.defvjp(
        lambda x, c: (f(x, c), (XP.cos(x), c)), lambda kept, g: (g * kept[0] * kept[1], None)
    )
    with_jvp.defjvp(rule)
    for function in (mixad.checkpoint(f), with_vjp, with_jvp):
        gradient = mixad.grad(lambda x: function(x, made))  # noqa: B023
        np.testing.assert_allclose(gradient(X), np.cos(X) * [1, 2, 3])
        second = mixad.grad(lambda x: XP.sum(gradient(x)))(X)  # noqa: B023
        np.testing.assert_allclose(second, -np.sin(X) * [1, 2, 3])
        assert is_constant(function(made, made))


def test_checkpoint_runs_again_on_constants_as_they_were() -> None:
    again = mixad.checkpoint(lambda x, c: XP.sum(x * c))

    def loss(x: Any) -> Any:
        c = XP.ones(3)
        value = again(x, c)
        c[...] = 7.0
        return value

    assert mixad.grad(loss)(X).tolist() == [1.0, 1.0, 1.0]


def test_decorated_functions_take_constants(base: Any, xp: Any) -> None:
    captured = 2.0

    @mixad.broadcast
    def f(x: float, y: float) -> float:
        return captured * x * y if y > 1 else x

    made = xp.asarray([0.5, 1.5, 2.5])
    found = f(made, made)
    assert is_constant(found)
    assert np.asarray(found).tolist() == [0.5, 4.5, 12.5]
    gradient = mixad.grad(lambda x: xp.sum(f(x, made)))(base.ones(3))
    assert np.asarray(gradient).tolist() == [1.0, 3.0, 5.0]
    assert np.asarray(f.duals(made, made, wrt="x").partials["x"]).tolist() == [1.0, 3.0, 5.0]


def test_constants_that_functions_capture() -> None:
    made = XP.asarray([2.0, 3.0, 4.0])
    f = mixad.broadcast(lambda x: x * made)
    assert f(X).tolist() == [2.0, 6.0, 16.0]
    assert mixad.grad(lambda x: f(x).sum())(X).tolist() == [2.0, 3.0, 4.0]


def test_keys_are_constants() -> None:
    def loss(x: Any) -> Any:
        first, mask = XP.asarray([2, 0]), XP.asarray([True, False, True])
        out = XP.zeros(3)
        out[first] = x[first] * 2.0
        out[mask] += x[mask]
        return XP.sum(out) + x[XP.asarray(1)] + XP.sum(x[: XP.asarray(2)])

    assert mixad.grad(loss)(X).tolist() == [4.0, 2.0, 3.0]


def test_a_constant_that_was_traced_is_not_used_later() -> None:
    kept = XP.zeros(3)
    mixad.grad(lambda x: (kept.__setitem__(0, x[0]), XP.sum(x))[1])(X)
    with pytest.raises(TracerError, match="used after that call has ended"):
        XP.sum(kept)


def test_methods_of_constants_follow_what_is_traced() -> None:
    def loss(x: Any) -> Any:
        ones = np.ones(3, like=x)
        filled = np.zeros(3, like=x)
        filled.fill(x[1])
        return ones.dot(x) * ones.clip(max=x).sum() + (filled * x).sum()

    x = np.asarray([0.5, 2.0, 3.0])
    np.testing.assert_allclose(mixad.grad(loss)(x), [5.5 + 2.5 + 2.0, 2.5 + 5.5 + 2.0, 2.5 + 2.0])


# -- given to methods of what is traced ------------------------------------------------------------

Limits = namedtuple("Limits", "a b c")
NUMPY_METHODS = {
    "dot": lambda x, c: x.dot(c),
    "clip": lambda x, c: x.clip(c - 2.0, max=c),
    "sum": lambda x, c: x.sum(where=c > 0.3),
    "sum, from one": lambda x, c: x.sum(initial=c[0]),
    "of a named tuple": lambda x, c: x.clip(Limits(c[0], c[1], 0.0), None),
    "searchsorted": lambda x, c: x * x.searchsorted(c),
    "take": lambda x, c: x.take((c > 0.3).astype(int)),
}
TORCH_METHODS = {
    "clamp": lambda x, c: x.clamp(c - 2.0, c),
    "clamp_max": lambda x, c: x.clamp_max(c),
    "maximum": lambda x, c: x.maximum(c),
    "dot": lambda x, c: x.dot(c),
    "lerp": lambda x, c: x.lerp(c, c * 0.5),
    "where": lambda x, c: x.where(c > 0.3, c),
    "masked_fill": lambda x, c: x.masked_fill(c > 0.3, 7.0),
    "addcmul": lambda x, c: x.addcmul(c, c, value=0.5),
    "logaddexp": lambda x, c: x.logaddexp(c),
    "index_select": lambda x, c: x.index_select(0, (c > 0.3).long()),
    "add_": lambda x, c: (x * 1.0).add_(c, alpha=2),
    "copysign": lambda x, c: x.copysign(c),
}


def beside_a_constant(method: Any, zeros_like: Any, c: Any) -> Any:
    """Return a function of x in which what stands beside x is a constant, made of what x is."""
    return lambda x: method(x, zeros_like(x) + c)


@pytest.mark.rows("name", NUMPY_METHODS)
def test_methods_of_arrays_take_constants(name: str) -> None:
    x, c, method = np.asarray([0.25, 1.5, 2.0]), np.asarray([0.5, 0.125, 2.5]), NUMPY_METHODS[name]
    value, pullback = mixad.vjp(beside_a_constant(method, np.zeros_like, c), x)
    np.testing.assert_array_equal(value, method(x, c))
    (gradient,) = pullback(np.ones_like(value))
    along, step = np.asarray([0.3, -0.7, 0.2]), 1e-6
    ends = [np.sum(method(x + s * along, c)) for s in (step, -step)]
    np.testing.assert_allclose(gradient @ along, (ends[0] - ends[1]) / (2 * step), rtol=1e-8)


@pytest.mark.rows("name", TORCH_METHODS)
def test_methods_of_tensors_take_constants(name: str) -> None:
    torch = pytest.importorskip("torch")
    x, c, method = (
        torch.tensor([0.25, 1.5, 2.0]),
        torch.tensor([0.5, 0.125, 2.5]),
        TORCH_METHODS[name],
    )
    value, pullback = mixad.vjp(beside_a_constant(method, torch.zeros_like, c), x)
    own = x.clone().requires_grad_()
    wanted = method(own, c)
    torch.testing.assert_close(value, wanted.detach())
    (gradient,) = torch.autograd.grad(wanted, own, torch.ones_like(wanted))
    torch.testing.assert_close(pullback(torch.ones_like(value))[0], gradient)
