"""A call that is prepared once sees every change of what its function reads from outside."""

import builtins
import gc
import math
import sys
import types
import weakref

import numpy as np
import pytest

import mixad

X = np.linspace(0.5, 2.0, 5)

scale = 2.0
table = np.array([1.0, 2.0, 3.0])
module = types.ModuleType("module")


class Spring:
    """Something with attributes and a method."""

    def __init__(self, k):
        self.k = k

    def force(self, x):
        return self.k * x


class Doubling:
    def __call__(self, x):
        return 2.0 * x


class Tripling:
    def __call__(self, x):
        return 3.0 * x


def helper(x, by=2.0):
    return by * x


def triple(x, by=3.0):
    return by * x


spring = Spring(2.0)
called = Doubling()


@mixad.broadcast
def of_global(x):
    return scale * x


@mixad.broadcast
def of_helper(x):
    return helper(x)


@mixad.broadcast
def of_attribute(x):
    return spring.k * x


@mixad.broadcast
def of_method(x):
    return spring.force(x)


@mixad.broadcast
def of_module(x):
    return module.function(x)


@mixad.broadcast
def of_constant(x):
    return math.pi * x


@mixad.broadcast
def of_builtin(x):
    return abs(x)


@mixad.broadcast
def of_table(x):
    return table[1] * x


@mixad.broadcast
def of_object(x):
    return called(x)


@mixad.broadcast
def of_tuple(x):
    return numbers[0] * x + numbers[1]


numbers = (2.0, 1.0)


def set_global(name, value):
    return lambda patch: patch.setitem(globals(), name, value)


CHANGES = {
    "another number": (of_global, set_global("scale", 3.0), 3 * X),
    "a number of another type": (of_global, set_global("scale", 3), 3 * X),
    "a NumPy scalar": (of_global, set_global("scale", np.float64(3.0)), 3 * X),
    "an array in place of a number": (of_global, set_global("scale", X), X * X),
    "another helper": (of_helper, set_global("helper", triple), 3 * X),
    "a helper's defaults": (
        of_helper,
        lambda patch: patch.setattr(helper, "__defaults__", (3.0,)),
        3 * X,
    ),
    "an attribute": (of_attribute, lambda patch: patch.setattr(spring, "k", 3.0), 3 * X),
    "another object": (of_attribute, set_global("spring", Spring(3.0)), 3 * X),
    "a method's attribute": (of_method, lambda patch: patch.setattr(spring, "k", 3.0), 3 * X),
    "a method's object": (of_method, set_global("spring", Spring(3.0)), 3 * X),
    "a method": (
        of_method,
        lambda patch: patch.setattr(Spring, "force", lambda self, x: 3.0 * x),
        3 * X,
    ),
    "a function of a module": (
        of_module,
        lambda patch: patch.setattr(module, "function", triple),
        3 * X,
    ),
    "a constant": (of_constant, lambda patch: patch.setattr(math, "pi", 3.0), 3 * X),
    "a name that hides a builtin": (of_builtin, set_global("abs", triple), 3 * X),
    "another table": (of_table, set_global("table", np.array([0.0, 3.0])), 3 * X),
    "a table's type": (of_table, set_global("table", np.array([1, 3])), 3 * X),
    "an object that is called": (
        of_object,
        lambda patch: patch.setattr(Doubling, "__call__", Tripling.__call__),
        3 * X,
    ),
    "numbers of a tuple": (of_tuple, set_global("numbers", (3.0, 0.0)), 3 * X),
}


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setattr(module, "function", helper, raising=False)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_by_the_next_call_and_by_its_gradient(change, monkeypatch):
    kernel, make, expected = CHANGES[change]
    before = kernel(X)
    np.testing.assert_array_equal(kernel(X), before)
    assert not np.array_equal(before, expected)
    gradient = mixad.grad(lambda x: kernel(x).sum())
    gradient(X)
    with monkeypatch.context() as patch:
        make(patch)
        np.testing.assert_allclose(kernel(X), expected, rtol=1e-15)
        np.testing.assert_allclose(kernel(X), expected, rtol=1e-15)
        np.testing.assert_allclose(gradient(X), expected / X, rtol=1e-15)
    np.testing.assert_array_equal(kernel(X), before)


@pytest.mark.parametrize("is_kernel", [False, True])
def test_new_numbers_in_a_list_that_is_a_default_of_a_helper_are_seen(is_kernel):
    factors = [2.0]

    def scaled(x, by=factors):
        return by[0] * x

    inner = mixad.broadcast(scaled) if is_kernel else scaled
    kernel = mixad.broadcast(lambda x: inner(x))
    for value in (2.0, 2.0, 3.0, 2.0):
        factors[0] = value
        np.testing.assert_array_equal(kernel(X), value * X)


def test_transforms_that_are_read_and_not_called_do_no_harm():
    def unused(x):
        return mixad.grad(lambda u: u * u)(x)

    def chosen(x):
        return helper(x) if True else unused(x)

    kernel = mixad.broadcast(chosen)
    for _ in range(3):
        np.testing.assert_array_equal(kernel(X), 2 * X)


def test_new_values_in_a_captured_array_are_seen():
    for value in (2.0, 2.0, 3.0, 2.0):
        table[1] = value
        np.testing.assert_array_equal(of_table(X), value * X)


def test_a_helpers_code_is_seen():
    kernel = of_helper
    np.testing.assert_array_equal(kernel(X), 2 * X)
    np.testing.assert_array_equal(kernel(X), 2 * X)
    code = helper.__code__
    try:
        helper.__code__ = (lambda x, by=0.0: by * x * x).__code__
        np.testing.assert_array_equal(kernel(X), 2 * X * X)
    finally:
        helper.__code__ = code
    np.testing.assert_array_equal(kernel(X), 2 * X)


def test_a_cell_is_seen_filled_and_emptied():
    factor = 2.0

    def rebind(value):
        nonlocal factor
        factor = value

    def empty():
        nonlocal factor
        del factor

    kernel = mixad.broadcast(lambda x: factor * x)
    for value in (2.0, 2.0, 3.0, np.float64(4.0), X):
        rebind(value)
        np.testing.assert_array_equal(kernel(X), value * X)
    empty()
    with pytest.raises(mixad.errors.KernelSyntaxError, match="factor"):
        kernel(X)
    rebind(5.0)
    np.testing.assert_array_equal(kernel(X), 5.0 * X)


def test_a_captured_array_of_another_shape_in_the_same_memory_is_not_read_as_before():
    values = np.arange(6.0)
    kernel = mixad.broadcast(lambda x: values * x)
    for _ in range(2):
        np.testing.assert_array_equal(kernel(np.ones(6)), values)
    values.resize((2, 3), refcheck=False)
    np.testing.assert_array_equal(kernel(np.ones(3)), np.arange(6.0).reshape(2, 3))
    with pytest.raises(mixad.errors.KernelShapeError):
        kernel(np.ones(6))


def test_a_builtin_of_another_meaning_is_seen(monkeypatch):
    np.testing.assert_array_equal(of_builtin(-X), X)
    np.testing.assert_array_equal(of_builtin(-X), X)
    monkeypatch.setattr(builtins, "abs", triple)
    np.testing.assert_array_equal(of_builtin(-X), -3 * X)


@pytest.mark.slow
def test_layouts_and_types_are_told_apart():
    kernel = mixad.broadcast(lambda x, y: x * y)
    a = np.arange(12.0).reshape(3, 4)
    for x in (a, a.T, a[::-1], a[:, ::2], a[1], a.astype("f4"), a.astype(int), a > 2, a[:0]):
        for y in (2, 2.0, True, np.float32(2.0), np.ones(x.shape[-1:])):
            if x.dtype == np.asarray(y).dtype == bool:
                continue
            for _ in range(2):
                found = kernel(x, y)
                assert found.dtype == (x * y).dtype
                np.testing.assert_array_equal(found, x * y)


class Large:
    """Something that is not to stay in memory."""

    def __init__(self):
        self.k = 2.0

    def force(self, x):
        return self.k * x


@pytest.mark.parametrize("make", [Large, lambda: Large().force, lambda: made_helper()])
def test_what_was_captured_before_is_not_kept(make):
    captured = make()
    is_function = callable(captured)
    kernel = mixad.broadcast((lambda x: captured(x)) if is_function else (lambda x: captured.k * x))
    for _ in range(3):
        np.testing.assert_array_equal(kernel(X), 2.0 * X)
    gone = weakref.ref(getattr(captured, "__self__", captured))
    captured = None
    gc.collect()
    assert gone() is None


def made_helper():
    by = 2.0
    return lambda x: by * x


def test_an_array_that_was_captured_before_is_not_kept():
    values = np.arange(5.0)
    kernel = mixad.broadcast(lambda x: values * x)
    for _ in range(3):
        np.testing.assert_array_equal(kernel(X), values * X)
    gone = weakref.ref(values)
    values = np.arange(5)
    gc.collect()
    assert gone() is None


def test_what_fails_in_a_prepared_launch_names_the_line():
    kernel = mixad.broadcast(lambda i: table[i])
    for _ in range(3):
        np.testing.assert_array_equal(kernel(np.array([0, 2])), [1.0, 3.0])
    with pytest.raises(mixad.errors.KernelIndexError, match=r"table\[i\]"):
        kernel(np.array([0, 3]))
    np.testing.assert_array_equal(kernel(np.array([0, 2])), [1.0, 3.0])


def test_a_prepared_call_makes_few_python_calls():
    kernel = mixad.broadcast(lambda x: math.sin(x) * x + math.exp(-x))
    kernel(X), kernel(X)
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame) if event == "call" else None)
    try:
        kernel(X)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 12, [frame.f_code.co_qualname for frame in calls]


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # torch's own
def test_tensors_that_torch_follows_are_not_taken_for_plain_ones():
    torch = pytest.importorskip("torch")
    kernel = mixad.broadcast(lambda x: 2.0 * x)
    x = torch.arange(4, dtype=torch.float64)
    for _ in range(2):
        assert torch.equal(kernel(x), 2.0 * x)
    assert torch.equal(kernel(torch.imag(torch.conj(1j * x))), -2.0 * x)
    assert torch.equal(kernel(x[::2]), 2.0 * x[::2])
    with pytest.raises(mixad.errors.TracerError, match="requires grad"):
        kernel(x.clone().requires_grad_())
    leaf = x.clone()
    kernel(leaf), kernel(leaf)
    leaf.requires_grad_()
    with pytest.raises(mixad.errors.TracerError, match="requires grad"):
        kernel(leaf)
    with pytest.raises(mixad.errors.TracerError, match=r"torch\.func"):
        torch.func.grad(lambda t: kernel(t).sum())(x)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        with pytest.raises(mixad.errors.TracerError, match="dual tensor"):
            kernel(dual)
    with torch.inference_mode():
        assert torch.equal(kernel(x), 2.0 * x)


@pytest.mark.torch
def test_torchs_default_dtype_is_seen():
    torch = pytest.importorskip("torch")
    kernel = mixad.broadcast(lambda x: x / 2)
    x = torch.arange(4)
    for _ in range(2):
        assert kernel(x).dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert kernel(x).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert kernel(x).dtype == torch.float32
