"""Kernels in torch's autograd and compiler, against torch's own formulas and its checks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))

from mixad_torch.autograd import KERNEL, TorchIntegration  # noqa: E402

import mixad  # noqa: E402
from mixad.backends import arrays, integrations  # noqa: E402
from mixad.errors import (  # noqa: E402
    KernelTypeError,
    MixadError,
    TracerError,
    ZeroDerivativeWarning,
)
from mixad.kernel.options import KernelOptions  # noqa: E402
from mixad.special import exp, tanh  # noqa: E402
from mixad.tape.named_call import name_call, named_call  # noqa: E402
from mixad.tape.pullback_plan import plan_pullback  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own
    pytest.mark.filterwarnings("ignore:.*torch.jit.script"),  # make_dual does it
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

OFFSET = 0.25


@pytest.fixture(autouse=True)
def integration(monkeypatch):
    """Let the integration be loaded, as where the distribution is installed, for each test only."""
    made = TorchIntegration()
    monkeypatch.setattr(arrays, "_LIBRARIES", dict(arrays._LIBRARIES))
    monkeypatch.setattr(arrays, "_ADOPTED", list(arrays._ADOPTED))
    arrays.adopt("torch", made.kinds)
    before = list(integrations.LOADED)
    integrations.LOADED[:] = [made]
    yield
    integrations.LOADED[:] = before
    torch.compiler.reset()


@mixad.broadcast
def cell(w, x, scale):
    if x > 0.0:
        return w * x * x * scale
    return tanh(w) * x


def cell_in_torch(w, x, scale):
    return torch.where(x > 0.0, w * x * x * scale, torch.tanh(w) * x)


@mixad.broadcast
def polar(r, t, k):
    return r * exp(t), k + 1, r > t, r * t


@mixad.broadcast
def power(x, n):
    result = 1.0
    while n > 0:
        result = result * x
        n = n - 1
    return result


@mixad.broadcast
def total(a, b, c, d, e, f, g, h, i, j, k, m):
    return a * b + c * d + e * f + g * h + i * j * k * m


def leaf(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, dtype=dtype, generator=generator).requires_grad_()


def gradients(f, *arguments):
    """Return first and second derivatives of a function of tensors, contracted at random."""
    leaves = [a.detach().clone().requires_grad_() for a in arguments]
    generator = torch.Generator().manual_seed(7)
    out = f(*leaves)
    seed = torch.randn(out.shape, dtype=out.dtype, generator=generator)
    first = torch.autograd.grad(out, leaves, seed, create_graph=True)
    mixed = sum((g * torch.randn(g.shape, dtype=g.dtype, generator=generator)).sum() for g in first)
    return [*first, *torch.autograd.grad(mixed, leaves)]


SHAPES = [((6, 4), (4,)), ((4,), (6, 4)), ((3, 1), (1, 4)), ((), (5,)), ((), ()), ((2, 0), (1, 1))]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_first_and_second_derivatives_are_torchs(left, right, dtype):
    w, x = leaf(*left, dtype=dtype), leaf(*right, dtype=dtype, seed=1)
    got = gradients(lambda w, x: cell(w, x, 1.5), w, x)
    expected = gradients(lambda w, x: cell_in_torch(w, x, 1.5), w, x)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_loss_backward_adds_to_grad():
    w, x = leaf(3, 4), leaf(4, seed=1)
    for _ in range(2):
        cell(w, x, 1.5).sum().backward()
    w_, x_ = w.detach().clone().requires_grad_(), x.detach().clone().requires_grad_()
    cell_in_torch(w_, x_, 1.5).sum().backward()
    torch.testing.assert_close(w.grad, 2 * w_.grad)
    torch.testing.assert_close(x.grad, 2 * x_.grad)


@pytest.mark.parametrize(("left", "right"), SHAPES[:4])
def test_gradcheck_and_gradgradcheck(left, right):
    w, x = leaf(*left), leaf(*right, seed=1)
    assert torch.autograd.gradcheck(lambda w, x: cell(w, x, 1.5), (w, x))
    assert torch.autograd.gradgradcheck(lambda w, x: cell(w, x, 1.5), (w, x))


def test_third_derivatives():
    x = torch.tensor([0.3, -1.2, 2.0], dtype=torch.float64, requires_grad=True)
    out = mixad.broadcast(lambda x: tanh(x) * x)(x).sum()
    expected = (torch.tanh(x) * x).sum()
    for _ in range(3):
        out = torch.autograd.grad(out, x, create_graph=True)[0].sum()
        expected = torch.autograd.grad(expected, x, create_graph=True)[0].sum()
    torch.testing.assert_close(out, expected)


def test_a_derivative_in_which_no_full_size_array_is_left():
    x, w = leaf(1), leaf(5, seed=1)
    add = mixad.broadcast(lambda x, w: x + w)
    got = gradients_of_cotangents(add, x, w)
    expected = gradients_of_cotangents(torch.add, x, w)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def gradients_of_cotangents(f, x, w):
    """Return the derivative of gradients by the cotangent, which is an expanded cotangent."""
    cotangent = leaf(5, seed=2)
    first = torch.autograd.grad(f(x, w), (x, w), cotangent, create_graph=True)
    return torch.autograd.grad((first[0] * 3.0).sum(), cotangent)


def test_several_outputs_of_several_kinds():
    r, t = leaf(4), leaf(4, seed=1)
    k = torch.arange(4)
    product, next_k, is_larger, area = polar(r, t, k)
    assert [o.requires_grad for o in (product, next_k, is_larger, area)] == [1, 0, 0, 1]
    torch.testing.assert_close(next_k, k + 1)
    torch.testing.assert_close(is_larger, r > t)
    torch.autograd.gradcheck(lambda r, t: polar(r, t, k)[::3], (r, t))
    torch.autograd.gradgradcheck(lambda r, t: polar(r, t, k)[::3], (r, t))
    (got,) = torch.autograd.grad(area.sum(), t)  # the other output has no cotangent
    torch.testing.assert_close(got, r.detach())


def test_integers_and_booleans_get_no_gradient():
    x, n = leaf(5), torch.arange(5)
    power(x, n).sum().backward()
    torch.testing.assert_close(x.grad, n * x.detach() ** (n - 1))
    assert n.grad is None


def test_loops_with_a_length_of_their_own_for_each_element():
    x, n = leaf(5), torch.arange(5)
    assert torch.autograd.gradcheck(lambda x: power(x, n), (x,))
    assert torch.autograd.gradgradcheck(lambda x: power(x, n), (x,))


def test_only_what_needs_a_gradient_is_computed(monkeypatch):
    asked = []
    call_type = type(name_call(_program(cell, leaf(2), leaf(2), 1.5), cell._options))
    pullback = call_type.pullback
    monkeypatch.setattr(
        call_type, "pullback", lambda self, *args: asked.append(args[0]) or pullback(self, *args)
    )
    w, x = leaf(4), leaf(4, seed=1).detach()
    cell(w, x, 1.5).sum().backward()
    assert set(asked) == {(0,)}
    assert x.grad is None


def _program(kernel, *args):
    return kernel._parse(args, {})[0].program


def test_many_active_inputs_take_one_pass_in_reverse(monkeypatch):
    asked = []
    call_type = type(name_call(_program(cell, leaf(2), leaf(2), 1.5), cell._options))
    pullback = call_type.pullback
    monkeypatch.setattr(
        call_type, "pullback", lambda self, *args: asked.append(args[0]) or pullback(self, *args)
    )
    leaves = [leaf(3, seed=k) for k in range(12)]
    total(*leaves).sum().backward()
    assert set(asked) == {tuple(range(12))}
    asked.clear()
    total.with_options(strategy="forward")(*leaves).sum().backward()
    assert set(asked) == {tuple(range(6)), tuple(range(6, 12))}


@mixad.broadcast
def squares_and_product(a, b, c, d, e, f, g, h, i, j, k, m):
    squares = a * a + b * b + c * c + d * d + e * e + f * f
    product = tanh(a) * tanh(b) * tanh(c) * tanh(d) * tanh(e) * tanh(f)
    product = product * tanh(g) * tanh(h) * tanh(i) * tanh(j) * tanh(k) * tanh(m)
    return squares + g * g + h * h + i * i + j * j + k * k + m * m, product


def squares_and_product_in_torch(*xs):
    return sum(x * x for x in xs), torch.stack([torch.tanh(x) for x in xs]).prod(dim=0)


@pytest.mark.parametrize("strategy", ["auto", "forward", "reverse"])
@pytest.mark.parametrize("seen", [(0,), (1,), (0, 1)])
def test_many_active_inputs_and_an_output_without_cotangent(seen, strategy):
    """What pays for all outputs together need not pay for one of them."""
    kernel = squares_and_product.with_options(strategy=strategy)
    leaves = [leaf(3, seed=k) for k in range(12)]

    def found(function):
        outputs = function(*leaves)
        return torch.autograd.grad(sum(outputs[k].sum() * (k + 2) for k in seen), leaves)

    for one, other in zip(found(kernel), found(squares_and_product_in_torch), strict=True):
        torch.testing.assert_close(one, other)


def test_outputs_without_cotangent_keep_the_strategy_of_all():
    """Else the strategies of some outputs would differ from the one that tensors were kept for."""
    leaves = [leaf(3, seed=k) for k in range(12)]
    call, every = name_call(_program(squares_and_product, *leaves), KernelOptions()), range(12)
    by_outputs = {
        given: plan_pullback(call.program, tuple(every), given, call.options.mode).strategy
        for given in [(0,), (0, 1)]
    }
    assert by_outputs == {(0,): "forward", (0, 1): "reverse"}  # or this shows nothing
    assert call.chunks(tuple(every)) == (tuple(every),)
    for given in [(0,), (1,), (0, 1)]:
        assert None not in call.pullback(tuple(every), given).gradients


def test_more_active_inputs_than_one_pass_takes():
    leaves = [leaf(3, seed=k) for k in range(12)]
    got = gradients(lambda *a: total(*a), *leaves)
    expected = gradients(lambda *a: total.__wrapped__(*a), *leaves)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_gradient_that_is_zero_whatever_the_values_are_is_zeros():
    x = leaf(3)
    sign = mixad.broadcast(lambda x: 1.0 if x > 0.0 else -1.0)
    out = sign(x)
    (got,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(got, torch.zeros(3, dtype=torch.float64))


def test_numbers_and_tensors_from_outside():
    x, weight, k = leaf(3), leaf(3, seed=1), 2
    kernel = mixad.broadcast(lambda x: weight * x * k + OFFSET)
    assert torch.autograd.gradcheck(kernel, (x,))
    (got,) = torch.autograd.grad(kernel(x.detach()).sum(), weight)
    torch.testing.assert_close(got, 2 * x.detach())
    k = 3
    (got,) = torch.autograd.grad(kernel(x).sum(), x)
    torch.testing.assert_close(got, 3 * weight.detach())


def test_constants_of_a_tuple_are_read_by_position():
    x = leaf(4)
    table = (0.5, 2.0, 4.0)
    kernel = mixad.broadcast(lambda x, k: table[k] * x * x)
    k = torch.tensor([0, 1, 2, 1])
    kernel(x, k).sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.tensor(table).double()[k] * x.detach())


@mixad.broadcast
def spring(position: mixad.Array, i, j, stiffness):
    stretch = position[i] - position[j]
    return stiffness * stretch * stretch * stretch


def spring_in_torch(position, i, j, stiffness):
    return stiffness * (position[i] - position[j]) ** 3


@mixad.broadcast
def product_of_row(matrix: mixad.Array, row, x):
    total = 0.0
    for k in range(3):
        total += matrix[row, k] * x
    return total


@pytest.mark.parametrize("count", [1, 5, 7])  # the last: as many pairs as positions
def test_arrays_that_are_read_by_index_have_gradients(count):
    position, stiffness = leaf(7), leaf(count, seed=1)
    i, j = torch.arange(count) % 7, torch.arange(count) * 3 % 5
    f = lambda p, s: spring(p, i, j, s)  # noqa: E731
    assert torch.autograd.gradcheck(f, (position, stiffness))
    assert torch.autograd.gradgradcheck(f, (position, stiffness))
    for wrt in ((position,), (position, stiffness)):
        own = torch.autograd.grad(f(position, stiffness).square().sum(), wrt)
        other = spring_in_torch(position, i, j, stiffness).square().sum()
        torch.testing.assert_close(own, torch.autograd.grad(other, wrt))


def test_rows_that_are_added_up_have_gradients():
    matrix, x, row = leaf(4, 3), leaf(5, seed=1), torch.tensor([0, 3, 3, 1, 0])
    f = lambda m, x: product_of_row(m, row, x)  # noqa: E731
    assert torch.autograd.gradcheck(f, (matrix, x))
    assert torch.autograd.gradgradcheck(f, (matrix, x))
    (own,) = torch.autograd.grad(f(matrix, x).sum(), matrix)
    (other,) = torch.autograd.grad((matrix[row].sum(1) * x).sum(), matrix)
    torch.testing.assert_close(own, other)


def test_a_tensor_from_outside_that_is_indexed_has_a_gradient():
    x, table = leaf(3), leaf(3, seed=1)
    k = torch.tensor([2, 0, 1])
    kernel = mixad.broadcast(lambda x, k: table[k] * x)
    kernel(x, k).sum().backward()
    torch.testing.assert_close(x.grad, table.detach()[k])
    torch.testing.assert_close(table.grad, x.detach()[torch.argsort(k)])


def test_an_index_outside_of_a_tensor_raises():
    position = leaf(3)
    with pytest.raises(IndexError, match="position"):
        spring(position, torch.tensor([3]), torch.tensor([0]), 1.0)
    assert position.grad is None


@pytest.mark.slow
def test_pairs_of_positions_are_compiled():
    i, j = torch.tensor([0, 1, 2, 2]), torch.tensor([3, 3, 0, 1])
    f = lambda p, s: spring(p, i, j, s).sum()  # noqa: E731
    compiled = torch.compile(f, backend="aot_eager", fullgraph=True)
    for rows in (4, 6):
        position, stiffness = leaf(rows), leaf(4, seed=1)
        found = zip(
            *[
                torch.autograd.grad(g(position, stiffness), (position, stiffness))
                for g in (f, compiled)
            ],
            strict=True,
        )
        for own, other in found:
            torch.testing.assert_close(own, other)


def test_strided_and_expanded_tensors_and_cotangents():
    w, x = leaf(4, 6), leaf(8, 4, seed=1)
    got = gradients(lambda w, x: cell(w.T, x[1:7:1], 1.5), w, x)
    expected = gradients(lambda w, x: cell_in_torch(w.T, x[1:7:1], 1.5), w, x)
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_a_leaf_changed_in_place_between_the_passes_is_refused_by_torch():
    x = leaf(3)
    y = x * 1.0
    out = cell(y, y, 1.5)
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_what_the_pullback_does_not_read_may_be_changed():
    x = leaf(3)
    y = x * 1.0
    out = mixad.broadcast(lambda y, k: y + k)(y, 2.0)
    y.add_(1.0)
    out.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3, dtype=torch.float64))


def test_without_grad_nothing_is_recorded():
    w, x = leaf(3), leaf(3, seed=1)
    with torch.no_grad():
        out = cell(w, x, 1.5)
    assert not out.requires_grad
    torch.testing.assert_close(out, cell_in_torch(w, x, 1.5).detach())
    assert not cell(w.detach(), x.detach(), 1.5).requires_grad


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_sixteen_bit_floats(dtype):
    w, x = leaf(8, dtype=dtype), leaf(8, dtype=dtype, seed=1)
    out = cell(w, x, 1.5)
    assert out.dtype == dtype
    out.sum().backward()
    w_, x_ = (a.detach().float().requires_grad_() for a in (w, x))
    cell_in_torch(w_, x_, 1.5).sum().backward()
    assert w.grad.dtype == x.grad.dtype == dtype
    torch.testing.assert_close(w.grad.float(), w_.grad, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(x.grad.float(), x_.grad, rtol=2e-2, atol=2e-2)


def test_autocast_leaves_dtypes_as_given():
    w, x = leaf(3, dtype=torch.float32), leaf(3, dtype=torch.float32, seed=1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = cell(w, x, 1.5)
        assert torch.mm(w[None], x[:, None]).dtype == torch.bfloat16
    assert out.dtype == torch.float32
    out.sum().backward()
    assert w.grad.dtype == torch.float32


def test_meta_tensors_give_shapes_and_dtypes():
    w = torch.empty(6, 1, device="meta", requires_grad=True)
    x = torch.empty(4, device="meta")
    out = cell(w, x, 1.5)
    assert (out.shape, out.dtype, out.device.type) == ((6, 4), torch.float32, "meta")
    out.sum().backward()
    assert w.grad.shape == (6, 1)


def test_fake_tensors_give_shapes_and_dtypes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        w, x = mode.from_tensor(leaf(6, 1)), mode.from_tensor(leaf(4))
        out = cell(w, x, 1.5)
    assert type(out) is type(w)
    assert (out.shape, out.dtype) == ((6, 4), torch.float64)


def test_a_loop_result_that_is_decided_by_comparisons_warns():
    @mixad.broadcast
    def root(a):
        low, high = 0.0, 2.0
        while high - low > 1e-6:
            middle = (low + high) / 2.0
            if middle * middle < a:
                low = middle
            else:
                high = middle
        return low

    x = leaf(2).detach().abs().requires_grad_()
    with pytest.warns(ZeroDerivativeWarning, match="low"):
        root(x).sum().backward()


# -- the operator ----------------------------------------------------------------------------------


def op_arguments(kernel, tensors, numbers=()):
    """Return what the operator is called with, for the kernel itself."""
    call = name_call(_program(kernel, *tensors, *numbers), kernel._options)
    return call.name, list(tensors), list(numbers), []


def pullback_arguments(kernel, tensors, numbers=()):
    """Return what the operator is called with, for the kernel's pullback."""
    name, tensors, numbers, _ = op_arguments(kernel, tensors, numbers)
    call = named_call(name)
    wrt = tuple(k for k, t in enumerate(tensors) if t.requires_grad)
    pulled = call.pullback(wrt, call.floats)
    shape = torch.broadcast_shapes(*[t.shape for t in tensors])
    seeds = [leaf(*shape, seed=9 + k) for k in call.floats]
    values = [[*tensors, *numbers, *seeds][k] for k in pulled.kept]
    sizes = [len(shape), *shape]
    for k in wrt:
        sizes += [tensors[k].ndim, *tensors[k].shape]
    kept = [v for v in values if isinstance(v, torch.Tensor)]
    return pulled.call.name, kept, [v for v in values if not isinstance(v, torch.Tensor)], sizes


@pytest.mark.parametrize("arguments", [op_arguments, pullback_arguments])
@pytest.mark.parametrize(("left", "right"), [((6, 4), (4,)), ((3, 1), (1, 4)), ((), (5,))])
def test_opcheck(arguments, left, right):
    result = torch.library.opcheck(KERNEL, arguments(cell, (leaf(*left), leaf(*right)), (1.5,)))
    assert set(result.values()) == {"SUCCESS"}
    assert len(result) >= 4


@pytest.mark.slow
def test_opcheck_of_several_outputs_and_of_transposed_tensors():
    samples = [
        op_arguments(polar, (leaf(4), leaf(4, seed=1), torch.arange(4))),
        op_arguments(cell, (leaf(4, 6).detach().T.requires_grad_(), leaf(4)), (1.5,)),
        op_arguments(spring, (leaf(5), torch.tensor([0, 1]), torch.tensor([4, 4])), (1.5,)),
    ]
    for sample in samples:
        assert set(torch.library.opcheck(KERNEL, sample).values()) == {"SUCCESS"}


def test_names_of_pullbacks_are_resolved_from_the_name_of_the_call(monkeypatch):
    name, tensors, numbers, sizes = pullback_arguments(cell, (leaf(3), leaf(3, seed=1)), (1.5,))
    expected = KERNEL(name, tensors, numbers, sizes)
    from mixad.tape import named_call as module

    root = name.partition("/")[0]
    fresh = type(named_call(root))(root, named_call(root).program, named_call(root).options)
    monkeypatch.setattr(module, "_CALLS", {root: fresh})
    for one, other in zip(KERNEL(name, tensors, numbers, sizes), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_a_name_of_another_process_is_refused():
    with pytest.raises(MixadError, match="recorded in another process"):
        KERNEL("cell 0123", [leaf(2)], [], [])


# -- the compiler ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_a_break(backend, dynamic):
    if backend == "inductor":
        pytest.importorskip("torch._inductor")
        _needs_compiler()
    f = lambda w, x: (cell(w, x, 1.5).sin() * polar(w, x, 2)[0]).sum()  # noqa: E731
    compiled = torch.compile(f, backend=backend, fullgraph=True, dynamic=dynamic)
    for rows in (3, 5, 7):
        w, x = leaf(rows, 4), leaf(4, seed=1)
        out, own = compiled(w, x), f(w, x)
        torch.testing.assert_close(out, own)
        found = zip(*(torch.autograd.grad(y, (w, x)) for y in (out, own)), strict=True)
        for one, other in found:
            torch.testing.assert_close(one, other)


def _needs_compiler():
    import shutil

    if shutil.which("c++") is None and shutil.which("g++") is None:
        pytest.skip("no C++ compiler for inductor")


@pytest.mark.slow
def test_dynamic_shapes_compile_once():
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    compiled = torch.compile(lambda w, x: cell(w, x, 1.5), backend=backend, fullgraph=True,
                             dynamic=True)  # fmt: skip
    for rows in (3, 5, 7):
        w, x = leaf(rows, 4), leaf(4)
        torch.testing.assert_close(compiled(w, x), cell_in_torch(w, x, 1.5))
    assert len(seen) == 1


@pytest.mark.slow
def test_compiled_without_gradients_and_with_changing_numbers():
    compiled = torch.compile(lambda x, s: cell(x, x, s), backend="aot_eager", fullgraph=True)
    x = leaf(4).detach()
    for scale in (1.5, 2.5, 3):
        torch.testing.assert_close(compiled(x, scale), cell_in_torch(x, x, scale))


class Scaled(torch.nn.Module):
    """A layer whose activation is a method: Python binds it anew at each call."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 4, dtype=torch.float64))

    @mixad.broadcast
    def activation(self, w, x):
        return w * x * x

    def forward(self, x):
        return self.activation(self.weight, x).sum()


@pytest.mark.slow
def test_kernels_that_are_methods_are_compiled_once():
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    torch.compiler.reset()
    layer, x = Scaled(), leaf(4).detach()
    compiled = torch.compile(layer, backend=backend)
    for k in range(1, 13):  # more than torch compiles one function anew
        layer.weight.grad = None
        compiled(k * x).backward()
        torch.testing.assert_close(layer.weight.grad, k * k * x * x)
    assert len(seen) == 1


@pytest.mark.slow
def test_kernels_made_anew_are_compiled():
    compiled = torch.compile(lambda x: cell.with_options(chunk=1)(x, x, 1.5), backend="eager")
    x = leaf(4).detach()
    for _ in range(3):
        torch.testing.assert_close(compiled(x), cell_in_torch(x, x, 1.5))


@pytest.mark.slow
def test_values_from_outside_are_refused_by_the_compiler():
    kernel = mixad.broadcast(lambda x: x * OFFSET)
    compiled = torch.compile(lambda x: kernel(x), backend="aot_eager", fullgraph=True)
    with pytest.raises(Exception, match=r"reads 'OFFSET' from outside.*pass 'OFFSET'"):
        compiled(leaf(3))


def test_make_fx_records_the_operator():
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda w, x: cell(w, x, 1.5).sum())(leaf(3).detach(), leaf(3).detach())
    assert any(node.target is KERNEL for node in graph.graph.nodes)
    w, x = leaf(3, seed=3), leaf(3, seed=4)
    torch.testing.assert_close(graph(w, x), cell_in_torch(w, x, 1.5).sum())


# -- a model ---------------------------------------------------------------------------------------


class Gated(torch.nn.Module):
    """A layer whose activation is a kernel, or torch's own formula."""

    def __init__(self, activation):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)
        self.gate = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 4))
        self.head = torch.nn.Linear(4, 1)
        self.activation = activation

    def forward(self, x):
        return self.head(self.activation(self.gate, self.linear(x), 1.5))


def trained(activation, compiled=False):
    torch.manual_seed(0)
    model = Gated(activation)
    run = torch.compile(model, backend="aot_eager", fullgraph=True) if compiled else model
    x = torch.randn(32, 3)
    y = x[:, :1] - x[:, 1:2]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = ((run(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_a_model_is_trained_as_with_torchs_formula():
    got, expected = trained(cell), trained(cell_in_torch)
    assert got[-1] < 0.8 * got[0]
    np.testing.assert_allclose(got, expected, rtol=1e-4)


@pytest.mark.slow
def test_a_compiled_model_is_trained_as_with_torchs_formula():
    np.testing.assert_allclose(trained(cell, compiled=True), trained(cell_in_torch), rtol=1e-4)


def test_kernels_in_hooks_and_checkpoints_of_torch():
    from torch.utils.checkpoint import checkpoint

    w, x = leaf(4), leaf(4, seed=1)
    got = torch.autograd.grad(
        checkpoint(lambda w, x: cell(w, x, 1.5).sum(), w, x, use_reentrant=False), (w, x)
    )
    expected = torch.autograd.grad(cell_in_torch(w, x, 1.5).sum(), (w, x))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other)


# -- torch.func, and what is refused ---------------------------------------------------------------


def test_grad_and_vjp_of_torch_func():
    w, x = leaf(4).detach(), leaf(4, seed=1).detach()
    f, g = lambda w: cell(w, x, 1.5).sum(), lambda w: cell_in_torch(w, x, 1.5).sum()
    torch.testing.assert_close(torch.func.grad(f)(w), torch.func.grad(g)(w))
    second, expected = ((torch.func.grad(lambda w, h=h: torch.func.grad(h)(w).sum())(w))
                        for h in (f, g))  # fmt: skip
    torch.testing.assert_close(second, expected)
    one = torch.ones((), dtype=torch.float64)
    torch.testing.assert_close(torch.func.vjp(f, w)[1](one), torch.func.vjp(g, w)[1](one))


@pytest.mark.parametrize("transform", ["vmap", "jvp", "jacfwd", "jacrev", "hessian"])
def test_other_transforms_of_torch_func_are_refused(transform):
    x = leaf(4).detach()
    f = lambda x: cell(x, x, 1.5)  # noqa: E731
    apply = getattr(torch.func, transform)
    with pytest.raises(TracerError, match=r"^cell: torch.*does not see what happens here"):
        apply(f, (x,), (x,)) if transform == "jvp" else apply(f)(x)


def test_forward_mode_is_refused():
    from torch.autograd import forward_ad

    x = leaf(4).detach()
    with forward_ad.dual_level(), pytest.raises(TracerError, match=r"forward mode.*mixad\.jvp"):
        cell(forward_ad.make_dual(x, x), x, 1.5)


def test_tensors_that_require_grad_stay_refused_inside_transforms():
    w, x = leaf(3), leaf(3, seed=1).detach()
    with pytest.raises(TracerError, match=r"detach\(\).*functional_call"):
        mixad.grad(lambda x: cell(w, x, 1.5).sum())(x)
    with pytest.raises(TracerError, match=r"detach\(\)"):
        mixad.grad(lambda w: w.sum())(w)
    with pytest.raises(TracerError, match=r"detach\(\)"):
        cell.duals(w, x, 1.5)


def test_arrays_of_other_libraries_are_refused():
    with pytest.raises(KernelTypeError, match="'x' is an array of numpy beside tensors of torch"):
        cell(leaf(3), np.ones(3), 1.5)


def test_shapes_that_do_not_broadcast_are_refused_by_name():
    with pytest.raises(MixadError, match=r"cell: the shapes of the arguments do not broadcast"):
        cell(leaf(3), leaf(4), 1.5)


def test_complex_tensors_of_16_bit_parts_are_refused():
    with pytest.warns(UserWarning, match="ComplexHalf"):
        z = torch.zeros(3, dtype=torch.complex32)
    with pytest.raises(KernelTypeError, match="complex32"):
        cell(z, 1.0, 1.5)


def test_without_the_integration_the_refusal_names_the_plugin():
    integrations.LOADED[:] = []
    with pytest.raises(TracerError, match=r"argument 'w'.*detach\(\).*mixad-torch"):
        cell(leaf(3), 1.0, 1.5)


@pytest.mark.parametrize("order", ["import torch, mixad", "import mixad"])
def test_the_entry_point_loads_the_integration_when_torch_is_there(tmp_path, order):
    folder = tmp_path / "mixad_torch-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mixad-torch\nVersion: 0\n")
    (folder / "entry_points.txt").write_text("[mixad]\ntorch = mixad_torch\n")
    source = tmp_path / "user.py"
    source.write_text(
        f"{order}\n@mixad.broadcast\ndef f(x):\n    return x * x\n"
        "import torch\nx = torch.ones(3, requires_grad=True)\nf(x).sum().backward()\n"
        "assert x.grad.tolist() == [2.0, 2.0, 2.0]\n"
    )
    places = [tmp_path, Path(__file__).parent.parent, Path(mixad.__file__).parent.parent]
    path = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))}
    subprocess.run([sys.executable, str(source)], check=True, env=path)


@pytest.fixture
def prepared():
    """Return tensors that calls of ``cell`` are prepared for."""
    w, x = torch.linspace(0.5, 2.0, 4), torch.linspace(-1.0, 1.0, 4)
    for _ in range(3):
        cell(w, x, 1.5)
    return w, x


def test_what_follows_or_watches_a_prepared_call_sees_it(prepared):
    w, x = prepared
    want, seen = cell(w, x, 1.5), []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch():
        torch.testing.assert_close(cell(w, x, 1.5), want, rtol=0, atol=0)
    assert torch.ops.mixad.kernel.default in seen
    torch.testing.assert_close(
        torch.func.grad(lambda w: cell(w, x, 1.5).sum())(w), grad_of(w, x), rtol=0, atol=0
    )
    with torch.autograd.forward_ad.dual_level(), pytest.raises(TracerError, match="forward mode"):
        cell(torch.autograd.forward_ad.make_dual(w, x), x, 1.5)
    w.requires_grad_()
    with torch.no_grad():
        assert not cell(w, x, 1.5).requires_grad
    assert cell(w, x, 1.5).requires_grad
    assert cell(w.detach(), torch.nn.Parameter(x), 1.5).requires_grad


def grad_of(w, x):
    w = w.detach().clone().requires_grad_()
    cell(w, x, 1.5).sum().backward()
    return w.grad


def test_what_a_tensor_of_a_transform_leaves_behind_is_refused(prepared):
    w, x = prepared
    left = []
    torch.func.grad(lambda w: (left.append(w), w.sum())[1])(w)
    with pytest.raises(TracerError, match=r"torch\.func"):
        mixad.grad(lambda x: cell(left[0], x, 1.5).sum())(x)


def test_views_of_negated_memory_are_read_as_they_are(prepared):
    w, x = prepared
    negated = torch.complex(w, -w).conj().imag  # a view, of which memory holds the negative
    assert negated.is_neg()
    torch.testing.assert_close(cell(negated, x, 1.5), cell(w, x, 1.5), rtol=0, atol=0)


def test_meta_tensors_are_served_time_and_again():
    w = torch.empty(6, 1, device="meta")
    for _ in range(3):
        assert cell(w, w, 1.5).is_meta


def test_numpy_arrays_are_not_asked_about(monkeypatch):
    monkeypatch.setattr(TorchIntegration, "follows", None)
    np.testing.assert_array_equal(cell(np.ones(3), np.ones(3), 2.0), 2 * np.ones(3))


class Motion(NamedTuple):
    x: Any
    v: Any


@mixad.broadcast(signature="(2,2),(n)->(n)")
def turned(matrix, vector):
    out = [0.0] * len(vector)
    for i in range(2):
        for j in range(2):
            out[i] += matrix[i, j] * vector[j]
    return out


def test_vectors_are_followed_as_torch_follows_their_elements():
    matrix = torch.randn(5, 2, 2, requires_grad=True, dtype=torch.float64)
    vector = torch.randn(2, requires_grad=True, dtype=torch.float64)
    weights = torch.randn(5, 2, dtype=torch.float64)
    (turned(matrix, vector) * weights).sum().backward()
    want = weights[:, :, None] * vector.detach()
    torch.testing.assert_close(matrix.grad, want)
    torch.testing.assert_close(vector.grad, (weights[:, :, None] * matrix.detach()).sum((0, 1)))
    compiled = torch.compile(lambda m, v: turned(m, v).sum(), fullgraph=True)
    torch.testing.assert_close(compiled(matrix, vector), turned(matrix, vector).sum())


def test_structures_are_followed_leaf_by_leaf():
    moved = mixad.broadcast(lambda s, h: Motion(s.x + h * s.v, s.v))
    x, v = torch.randn(2, 3, dtype=torch.float64).unbind()
    x.requires_grad_()
    v.requires_grad_()
    (moved(Motion(x, v), 2.0).x ** 2).sum().backward()
    torch.testing.assert_close(v.grad, 4.0 * (x + 2.0 * v).detach())
    compiled = torch.compile(lambda x: moved(Motion(x, x), 2.0).x.sum(), fullgraph=True)
    torch.testing.assert_close(compiled(x), 3.0 * x.sum())


def test_complex_tensors_go_through_kernels_with_torchs_gradients():
    @mixad.broadcast
    def kernel(z, w):
        y = np.exp(z) / w if z.real > w.real else abs(w)
        return y * z.conjugate()

    torch.manual_seed(0)
    z = torch.randn(20, dtype=torch.complex128, requires_grad=True)
    w = torch.randn(20, dtype=torch.complex128)
    (got,) = torch.autograd.grad(kernel(z, w).abs().square().sum(), z)
    y = torch.where(z.real > w.real, torch.exp(z) / w, w.abs().to(z.dtype)) * z.conj()
    (want,) = torch.autograd.grad(y.abs().square().sum(), z)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)
    by_func = torch.func.grad(lambda z: kernel(z, w).abs().square().sum())(z.detach())
    torch.testing.assert_close(by_func, want, rtol=1e-12, atol=1e-12)
