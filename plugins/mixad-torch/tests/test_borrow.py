"""Functions of torch without a rule of ours: against differences, and against torch's own graph."""

from __future__ import annotations

import operator
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402, N812
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent.parent))

from mixad_torch import functional_call  # noqa: E402
from mixad_torch.autograd import TorchIntegration  # noqa: E402

import mixad  # noqa: E402
from mixad.backends import arrays, integrations  # noqa: E402
from mixad.errors import MixadError, TracerError  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch's own
]


@pytest.fixture(autouse=True)
def integration(monkeypatch):
    """Let the integration be loaded, as where the distribution is installed, for each test only."""
    made = TorchIntegration()
    monkeypatch.setattr(arrays, "_LIBRARIES", dict(arrays._LIBRARIES))
    monkeypatch.setattr(arrays, "_ADOPTED", list(arrays._ADOPTED))
    arrays.adopt("torch", made.kinds)
    monkeypatch.setattr(integrations, "LOADED", [made])


def numbers(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed + 31 * sum(shape))
    return torch.randn(shape, dtype=dtype, generator=generator)


def difference(f, arrays, tangents, h=1e-6):
    """Return the derivative along a direction by differences of plain calls."""
    ahead = f(*[x + h * t for x, t in zip(arrays, tangents, strict=True)])
    behind = f(*[x - h * t for x, t in zip(arrays, tangents, strict=True)])
    return (ahead - behind) / (2 * h)


def gradient(f, *arrays):
    return mixad.grad(f, argnums=tuple(range(len(arrays))))(*arrays)


def inner(some, others):
    return sum((a * b).sum() for a, b in zip(some, others, strict=True))


def attention(q, k, v):
    """Return it by functions that torch differentiates twice, which fused kernels are not."""
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v)


FUNCTIONS = {
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), [(1, 2, 5, 4), (3, 2, 3, 3)]),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w), [(1, 2, 4), (2, 3, 3)]),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), [(1, 2, 4, 4)]),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), [(1, 2, 6)]),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), [(2, 4, 3), (4,)]),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), [(5, 3)]),
    "interpolate": (lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), [(1, 1, 3, 4)]),
    "grid_sample": (
        lambda x, g: F.grid_sample(x, torch.tanh(g), align_corners=False),
        [(1, 2, 4, 4), (1, 3, 3, 2)],
    ),
    "attention": (attention, [(2, 3, 4), (2, 5, 4), (2, 5, 4)]),
    "circular padding": (lambda x: F.pad(x, (1, 2), "circular"), [(2, 3, 4)]),
    "cdist": (torch.cdist, [(3, 2), (4, 2)]),
    "scatter_reduce": (
        lambda x, s: x.scatter_reduce(0, torch.tensor([0, 0, 1]), s, "mean"),
        [(4,), (3,)],
    ),
    "methods": (lambda x: x.cummax(0).values * x.logcumsumexp(0), [(5,)]),
    "lists": (lambda x, y: torch.block_diag(x, y), [(2, 2), (3, 1)]),
    "a named tuple": (lambda x: torch.linalg.lu_factor(x).LU, [(3, 3)]),
    "several results": (lambda x: x.aminmax().max - x.aminmax()[0], [(6,)]),
    "between kernels": (
        lambda x, w: torch.exp(-(F.conv1d(torch.sin(x), w) ** 2)),
        [(1, 1, 8), (1, 1, 3)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_differences(name):
    f, shapes = FUNCTIONS[name]
    given = [numbers(*shape, seed=at) for at, shape in enumerate(shapes)]
    along = [numbers(*shape, seed=10 + at) for at, shape in enumerate(shapes)]
    value = f(*given)
    weight = numbers(*value.shape, seed=20)
    slope = difference(f, given, along)

    def loss(*arrays):
        return (f(*arrays) * weight).sum()

    for _ in range(3):  # the first call, and calls by a plan
        torch.testing.assert_close(inner(gradient(loss, *given), along), (slope * weight).sum())
    found, tangent = mixad.jvp(f, tuple(given), tuple(along))
    torch.testing.assert_close(found, value)
    torch.testing.assert_close(tangent, slope)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_differences_of_the_first(name):
    f, shapes = FUNCTIONS[name]
    given = [numbers(*shape, seed=at) for at, shape in enumerate(shapes)]
    along = [numbers(*shape, seed=10 + at) for at, shape in enumerate(shapes)]
    weight = numbers(*f(*given).shape, seed=20)

    def loss(*arrays):
        return (f(*arrays).sin() * weight).sum()

    def slope(*arrays):
        return inner(gradient(loss, *arrays), along)

    want = difference(lambda *arrays: torch.cat([g.flatten() for g in gradient(loss, *arrays)]),
                      given, along)  # fmt: skip
    reverse = torch.cat([g.flatten() for g in gradient(slope, *given)])
    torch.testing.assert_close(reverse, want, atol=1e-6, rtol=1e-5)
    forward = mixad.hvp(loss, tuple(given), tuple(along))
    torch.testing.assert_close(
        torch.cat([g.flatten() for g in forward]), want, atol=1e-6, rtol=1e-5
    )


def test_third_derivatives_continue_the_graph():
    w = numbers(1, 1, 3, seed=1)

    def f(x):
        return (F.conv1d(x, w) ** 4).sum()

    def third(x):
        slope = mixad.grad(lambda x: mixad.grad(f)(x).sum())
        return mixad.grad(lambda x: slope(x).sum())(x)

    x = numbers(1, 1, 6)
    own = x.clone().requires_grad_()
    want = f(own)
    for _ in range(3):
        (want,) = torch.autograd.grad(want.sum(), own, create_graph=True)
    torch.testing.assert_close(third(x), want.detach())


def test_attention_by_a_fused_kernel_has_a_gradient_and_names_what_has_more():
    given = [numbers(1, 2, count, 4, seed=count) for count in (3, 5, 7)]
    given[2] = given[2][:, :, :5]

    def loss(f):
        return lambda *arrays: f(*arrays).sin().sum()

    fused, plain = loss(F.scaled_dot_product_attention), loss(attention)
    torch.testing.assert_close(gradient(fused, *given), gradient(plain, *given))
    along = tuple(map(torch.ones_like, given))
    for derivative in (mixad.jvp, mixad.hvp):
        with pytest.raises(TracerError, match=r"sdpa_kernel\(.*MATH"):
            derivative(fused, tuple(given), along)


@pytest.mark.parametrize("norm", ["batch_norm", "instance_norm", "a module"])
def test_third_derivatives_of_batch_norm_are_refused_as_torch_has_none(norm):
    f = {
        "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
        "instance_norm": lambda x: F.instance_norm(x[None])[0],
        "a module": lambda x: functional_call(
            torch.nn.BatchNorm1d(3, affine=False).double(), {}, x
        ),
    }[norm]
    x, t = numbers(5, 3), numbers(5, 3, seed=1)

    def along(x):
        return mixad.jvp(f, (x,), (t,))[1]

    with pytest.raises(TracerError, match=r"3rd|third"):
        mixad.jvp(along, (x,), (t,))
    with pytest.raises(TracerError, match=r"3rd|third"):
        mixad.grad(lambda x: along(x).sin().sum())(x)


def test_modes_go_inside_of_each_other():
    w = numbers(1, 1, 3, seed=1)

    def f(x):
        return (F.conv1d(x, w).tanh() ** 3).sum()

    x, s, t = (numbers(1, 1, 6, seed=k) for k in range(3))
    ahead, behind = (mixad.grad(f)(x + h * t) for h in (1e-6, -1e-6))
    want = ((ahead - behind) / 2e-6 * s).sum()

    def tangent(x):
        return mixad.jvp(f, (x,), (s,))[1]

    found = [
        mixad.jvp(tangent, (x,), (t,))[1],
        (mixad.grad(tangent)(x) * t).sum(),
        mixad.jvp(lambda x: (mixad.grad(f)(x) * s).sum(), (x,), (t,))[1],
        (mixad.grad(lambda x: (mixad.grad(f)(x) * s).sum())(x) * t).sum(),
    ]
    for each in found:
        torch.testing.assert_close(each, want, atol=1e-6, rtol=1e-6)


def test_a_gradient_is_differentiated_where_only_its_cotangent_moves():
    x, p, t = (numbers(3, 3, seed=k) for k in range(3))

    def slope(p):
        return mixad.grad(lambda x: (torch.matrix_exp(x) * p).sum())(x)

    want = slope(t)  # it is linear in p
    torch.testing.assert_close(mixad.jvp(slope, (p,), (t,))[1], want)
    jacobian = mixad.jacfwd(slope)(p)
    torch.testing.assert_close((jacobian * t).sum((2, 3)), want)


def test_a_random_function_runs_once_at_every_order():
    x = numbers(40)

    def f(x):
        return (F.dropout(x, 0.5) ** 3).sum()

    torch.manual_seed(3)
    mask = F.dropout(torch.ones_like(x), 0.5)
    after = torch.get_rng_state()
    for derivative, want in [
        (mixad.grad(f), 3 * x**2 * mask**3),
        (mixad.grad(lambda x: mixad.grad(f)(x).sum()), 6 * x * mask**3),
        (lambda x: mixad.jvp(f, (x,), (torch.ones_like(x),))[1], (3 * x**2 * mask**3).sum()),
        (lambda x: mixad.hvp(f, (x,), (torch.ones_like(x),)), 6 * x * mask**3),
    ]:
        torch.manual_seed(3)
        torch.testing.assert_close(derivative(x), want)
        assert torch.equal(torch.get_rng_state(), after)


def test_a_checkpoint_draws_the_same_numbers_again():
    x = numbers(40)
    layer = mixad.checkpoint(lambda x: F.dropout(x, 0.5) ** 3)
    torch.manual_seed(3)
    mask = F.dropout(torch.ones_like(x), 0.5)
    after = torch.get_rng_state()
    for derivative, want in [
        (mixad.grad(lambda x: layer(x).sum()), 3 * x**2 * mask**3),
        (lambda x: mixad.jvp(layer, (x,), (x,))[1], 3 * x**3 * mask**3),
        (lambda x: mixad.hvp(lambda x: layer(x).sum(), (x,), (x,)), 6 * x**2 * mask**3),
    ]:
        torch.manual_seed(3)
        torch.testing.assert_close(derivative(x), want)
        assert torch.equal(torch.get_rng_state(), after)


def test_second_derivatives_that_torch_takes_for_zero_are_refused():
    x, w = numbers(8, 3), numbers(4, 3)
    if not hasattr(F, "linear_cross_entropy"):
        pytest.skip("a function of torch 2.13")

    def slope(x):
        y = torch.arange(8) % 4
        return mixad.grad(lambda x: F.linear_cross_entropy(x, w, y))(x).sum()

    with pytest.raises(TracerError, match="first derivative only"):
        mixad.grad(slope)(x)


def test_batch_statistics_move_once_a_call():
    x = numbers(6, 3)
    own, want = (torch.zeros(3, dtype=torch.float64) for _ in range(2))
    spread, want_spread = (torch.ones(3, dtype=torch.float64) for _ in range(2))
    for _ in range(3):
        mixad.grad(lambda x: F.batch_norm(x, own, spread, training=True).sin().sum())(x)
        F.batch_norm(x, want, want_spread, training=True)
    torch.testing.assert_close(own, want)
    torch.testing.assert_close(spread, want_spread)


def test_integers_and_none_pass_through():
    x = numbers(1, 2, 6)

    def f(x):
        values, places = F.max_pool1d(x, 2, return_indices=True)
        assert places.dtype == torch.int64
        assert type(places) is torch.Tensor
        seen, none = F.multi_head_attention_forward(
            x[0, :, None, :], x[0, :, None, :], x[0, :, None, :], 6, 2,
            numbers(18, 6), None, None, None, False, 0.0, numbers(6, 6, seed=1), None,
            need_weights=False,
        )  # fmt: skip
        assert none is None
        return (values**2).sum() + seen.sum()

    t = numbers(1, 2, 6, seed=5)
    torch.testing.assert_close((mixad.grad(f)(x) * t).sum(), difference(f, [x], [t]))


IN_PLACE = {
    "relu": (lambda y: F.relu(y, inplace=True), lambda x: (x > 0) * 2 * x),
    "by place": (lambda y: F.dropout(y, 0.0, True, True), lambda x: 2 * x),
    "method": (lambda y: y.arctan2_(torch.ones_like(y)), lambda x: 2 * x.atan() / (1 + x * x)),
    "function": (F.elu_, lambda x: torch.where(x > 0, 2 * x, 2 * x.expm1() * x.exp())),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_writes_in_place_are_seen_under_all_names(name):
    write, slope = IN_PLACE[name]
    x = numbers(7)

    def f(x):
        y = x * 1
        z = y
        result = write(y)
        assert result is y
        return (z**2).sum()

    torch.testing.assert_close(mixad.grad(f)(x), slope(x))
    assert torch.equal(x, numbers(7))


@pytest.mark.parametrize(
    "name", ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"]
)
def test_operators_in_place_do_not_write_to_plain_tensors(name):
    total = torch.ones(3, dtype=torch.float64)

    def f(x):
        return getattr(operator, f"i{name}")(total, x).sum()

    try:
        result = mixad.grad(f)(numbers(3))
    except (MixadError, TypeError):
        result = None
    assert torch.equal(total, torch.ones(3, dtype=torch.float64))
    assert not total.requires_grad
    if result is not None:
        want = mixad.grad(lambda x: getattr(operator, name)(total, x).sum())(numbers(3))
        torch.testing.assert_close(result, want)


def test_gradients_have_the_type_of_inputs_under_autocast():
    x, w = numbers(1, 1, 8, dtype=torch.float32), numbers(1, 1, 3, dtype=torch.float32)

    def f(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = F.conv1d(x, w)
        assert y.dtype == torch.bfloat16
        return y.to(torch.float32).sum()

    g = mixad.grad(f)(x)
    assert g.dtype == torch.float32
    torch.testing.assert_close(
        g, mixad.grad(lambda x: F.conv1d(x, w).sum())(x), atol=0.05, rtol=0.05
    )


def test_a_result_of_bfloat16_is_known_in_no_recording():
    x, w = numbers(3), numbers(3, seed=1).bfloat16()

    def f(x):
        return (x.to(torch.bfloat16) * w).sum()

    for _ in range(3):
        torch.testing.assert_close(mixad.grad(f)(x), w.double())
        assert mixad.jvp(f, (x,), (x,))[1].dtype == torch.bfloat16


def test_types_that_kernels_do_not_compute_in_are_borrowed():
    x = torch.complex(numbers(4), numbers(4, seed=1))
    t = torch.complex(numbers(4, seed=2), numbers(4, seed=3))

    def f(x):
        return torch.sigmoid(x).abs().sum()

    torch.testing.assert_close((mixad.grad(f)(x).conj() * t).real.sum(), difference(f, [x], [t]))
    real = numbers(4)
    torch.testing.assert_close(mixad.grad(f)(real), torch.sigmoid(real) * torch.sigmoid(-real))


def test_modes_of_torch_do_not_matter():
    x, w = numbers(1, 1, 8), numbers(1, 1, 3)
    want = mixad.grad(lambda x: (F.conv1d(x, w) ** 2).sum())(x)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            got = mixad.grad(lambda x: (F.conv1d(x, w) ** 2).sum())(x * 1)
        torch.testing.assert_close(got.clone(), want)


def test_complex_derivatives_follow_torchs_convention():
    x = torch.complex(numbers(1, 1, 6), numbers(1, 1, 6, seed=1))
    w = torch.complex(numbers(1, 1, 3), numbers(1, 1, 3, seed=1))

    def f(x):
        return (F.conv1d(x, w).abs() ** 2).sum()

    t = torch.complex(numbers(1, 1, 6, seed=2), numbers(1, 1, 6, seed=3))
    slope = difference(f, [x], [t])
    torch.testing.assert_close((mixad.grad(f)(x).conj() * t).real.sum(), slope)
    torch.testing.assert_close(mixad.jvp(f, (x,), (t,))[1], slope)


def test_jacobians_checkpoints_and_loops_take_borrowed_functions():
    w = numbers(1, 1, 3, seed=1)

    def f(x):
        return F.conv1d(x.reshape(1, 1, -1), w).reshape(-1) ** 2

    x = numbers(5)
    want = torch.autograd.functional.jacobian(f, x)
    torch.testing.assert_close(mixad.jacobian(f)(x), want)
    again = mixad.checkpoint(f)
    torch.testing.assert_close(mixad.grad(lambda x: again(x).sum())(x), want.sum(0))

    def step(carry, _):
        return F.conv1d(carry, w, padding=1).tanh(), None

    def loop(x):
        return mixad.scan(step, x.reshape(1, 1, -1), None, length=3)[0].sum()

    t = numbers(5, seed=4)
    torch.testing.assert_close((mixad.grad(loop)(x) * t).sum(), difference(loop, [x], [t]))


def test_a_tensor_that_is_changed_before_the_pullback_is_found():
    x, w = numbers(1, 1, 6), numbers(1, 1, 3)
    _, pull = mixad.vjp(lambda x: F.conv1d(x, w) ** 2, x)
    w += 1.0
    with pytest.raises((TracerError, RuntimeError), match=r"in ?place"):
        pull(torch.ones(1, 1, 4, dtype=torch.float64))


def write_by_numpy(x):
    array = x.numpy()
    array *= 5


def write_to_data(x):
    x.data.mul_(5)


@pytest.mark.parametrize("write", [write_by_numpy, write_to_data])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("size", [2, 301])
def test_a_change_that_torch_does_not_count_is_found(write, which, size):
    given = numbers(1, 1, size), numbers(1, 1, size, seed=1)
    cotangent = torch.ones(1, 1, 1, dtype=torch.float64)
    _, pull = mixad.vjp(lambda x: F.conv1d(x, given[1]), given[0])
    _, push = mixad.linearize(lambda x: F.conv1d(x, given[1]), given[0])
    torch.testing.assert_close(pull(cotangent)[0], given[1])
    write(given[which])
    for derivative, direction in ((pull, cotangent), (push, given[0])):
        with pytest.raises(TracerError, match="changed in place"):
            derivative(direction)


def test_a_change_between_a_gradient_and_its_derivative_is_found():
    w = numbers(1, 1, 2)

    def slope(x):
        found = mixad.grad(lambda x: (F.conv1d(x, w) ** 2).sum())(x)
        return found * 1

    _, pull = mixad.vjp(slope, numbers(1, 1, 4))
    write_by_numpy(w)
    with pytest.raises(TracerError, match="changed in place"):
        pull(numbers(1, 1, 4))


def test_a_change_of_a_frozen_module_is_found():
    module, x = torch.nn.Linear(3, 2).double().requires_grad_(False), numbers(4, 3)
    _, pull = mixad.vjp(lambda x: functional_call(module, {}, x), x)
    module.weight.data.zero_()
    with pytest.raises(TracerError, match="changed in place"):
        pull(numbers(4, 2))


REFUSED = {
    "as_strided": (lambda x: x.as_strided((2,), (1,)), "strides and memory"),
    "set_": (lambda x: x.set_(torch.ones(3)), "strides and memory"),
    "out=": (lambda x: torch.logcumsumexp(x, 0, out=torch.empty(2, 2)), "lose its derivative"),
    "max_unpool": (lambda x: F.max_unpool1d(x[None], torch.zeros(1, 2, 2).long(), 2), "is wrong"),
    "autograd": (lambda x: torch.autograd.grad(x.sum(), x), "mixad's transforms inside"),
    "torch.func": (
        lambda x: torch.func.grad(lambda w: F.conv1d(w, x[None]).sum())(torch.ones(1, 2, 4)),
        "mixad's transforms inside",
    ),
    "init": (lambda x: torch.nn.init.kaiming_uniform_(x), "would lose"),
    "sparse": (lambda x: x.to_sparse(), "are dense"),
    "lists of numbers": (lambda x: x.tolist(), "lose its derivative"),
    "NumPy": (lambda x: x.numpy(), "NumPy would not see"),
    "detach_": (lambda x: (x * x).detach_() * x, r"write x = x\.detach"),
    "torch.detach_": (lambda x: torch.detach_(x * x) * x, r"write x = x\.detach"),
    "normal": (lambda x: torch.normal(x, 1.0), "randn_like"),
    "residuals": (lambda x: torch.linalg.lstsq(torch.ones(2, 1).double(), x, driver="gelsd")[1],
                  "no derivative"),
    "no derivative": (lambda x: torch.histc(x), "no derivative"),
    "a plain tensor is written": (lambda x: torch.ones(2, 2).index_add_(0, torch.tensor([0, 1]), x),
                                  "index_add"),
    "parameters": (lambda x: torch.nn.Conv1d(2, 3, 1).double()(x), "functional_call"),
    "numbers": (lambda x: mixad.grad(lambda p: torch.renorm(x, 2, 0, p))(2.0), "0-dimensional"),
}  # fmt: skip


def test_what_is_refused_as_wrong_is_so_in_torch():
    x = numbers(1, 1, 2).requires_grad_()
    both_at_one = torch.ones(1, 1, 2, dtype=torch.int64)
    (found,) = torch.autograd.grad(F.max_unpool1d(x, both_at_one, 2).sum(), x)
    want = [difference(lambda x: F.max_unpool1d(x, both_at_one, 2).sum(), [x.detach()], [unit])
            for unit in torch.eye(2, dtype=torch.float64).reshape(2, 1, 1, 2)]  # fmt: skip
    assert not torch.allclose(found.flatten(), torch.stack(want))


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_lose_a_derivative_is_refused(name):
    f, message = REFUSED[name]
    with pytest.raises(MixadError, match=message):
        mixad.grad(lambda x: f(x).sum())(numbers(2, 2))


def test_without_the_plugin_the_refusal_names_it(monkeypatch):
    monkeypatch.setattr(integrations, "LOADED", [])
    with pytest.raises(TracerError, match="mixad-torch takes torch's own derivative"):
        mixad.grad(lambda x: torch.linalg.lu_factor(x).LU.sum())(numbers(2, 2))


class Net(torch.nn.Module):
    """What modules do: layers with batch statistics, dropout, checks of types, writes in place."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(1, 4, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(4)
        self.drop = torch.nn.Dropout(0.25)
        self.lstm = torch.nn.LSTM(4, 3, batch_first=True)

    def forward(self, x, *, scale=1.0):
        assert isinstance(x, torch.Tensor)
        assert isinstance(self.conv.weight, torch.nn.Parameter)
        y = self.drop(F.relu_(self.norm(self.conv(x))))
        out, (hidden, _) = self.lstm(y.transpose(1, 2))
        return {
            "out": out * scale,
            "hidden": hidden,
            "steps": x.shape[-1],
            "mean": x.detach().mean(),
        }


def net():
    torch.manual_seed(0)
    return Net().double()


def own_parameters(module):
    return {name: p.detach() for name, p in module.named_parameters()}


def loss_of(found):
    return (found["out"] ** 2).sum() + found["hidden"].sin().sum()


def test_a_module_is_one_call_with_torchs_values_gradients_and_statistics():
    ours, theirs, x = net(), net(), numbers(5, 1, 6)

    def loss(parameters, x):
        found = functional_call(ours, parameters, x, scale=2.0)
        assert found["steps"] == 6
        assert type(found["mean"]) is torch.Tensor
        return loss_of(found)

    for seed in range(3):
        torch.manual_seed(seed)
        value, (slopes, slope) = mixad.value_and_grad(loss, argnums=(0, 1))(own_parameters(ours), x)
        torch.manual_seed(seed)
        x_own = x.clone().requires_grad_()
        want = loss_of(theirs(x_own, scale=2.0))
        torch.testing.assert_close(value, want.detach())
        names, parameters = zip(*theirs.named_parameters(), strict=True)
        wanted = torch.autograd.grad(want, [x_own, *parameters])
        torch.testing.assert_close([slope, *map(slopes.get, names)], list(wanted))
    for one, other in zip(ours.buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_module_has_second_derivatives():
    module, x = net().eval(), numbers(5, 1, 6)
    given = own_parameters(module)
    along = {name: numbers(*p.shape, seed=7) for name, p in given.items()}

    def loss(parameters):
        return loss_of(functional_call(module, parameters, x))

    def slope(parameters):
        return torch.cat([g.flatten() for g in mixad.grad(loss)(parameters).values()])

    ahead, behind = ({k: p + s * along[k] for k, p in given.items()} for s in (1e-6, -1e-6))
    want = (slope(ahead) - slope(behind)) / 2e-6
    got = torch.cat([g.flatten() for g in mixad.hvp(loss, (given,), (along,)).values()])
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


def test_a_module_may_write_to_its_arguments():
    module = torch.nn.Sequential(torch.nn.ReLU(inplace=True), torch.nn.Linear(3, 2)).double()
    x = numbers(4, 3)

    def f(x):
        y = x * 1
        return functional_call(module, own_parameters(module), y).sum() + (y**2).sum()

    want = (x > 0) * (module[1].weight.detach().sum(0) + 2 * x)
    torch.testing.assert_close(mixad.grad(f)(x), want)


def test_buffers_that_are_given_are_those_that_move():
    module, x = torch.nn.BatchNorm1d(3).double(), numbers(6, 3)
    buffers = {name: b.clone() for name, b in module.named_buffers()}
    mixad.grad(lambda p: functional_call(module, p | buffers, x).sin().sum())(
        own_parameters(module)
    )
    assert module.num_batches_tracked == 0
    assert buffers["num_batches_tracked"] == 1
    torch.testing.assert_close(buffers["running_mean"], 0.1 * x.mean(0))


def test_outside_of_transforms_a_module_is_torchs():
    module, x = net().eval(), numbers(2, 1, 6)
    torch.testing.assert_close(functional_call(module, {}, x)["out"], module(x)["out"])


class Clipped(torch.nn.Linear):
    """Writes to its own parameter where torch does not see it."""

    def forward(self, x):
        with torch.no_grad():
            self.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


class Listed(torch.nn.Linear):
    """Returns what is no pytree for torch."""

    def forward(self, x):
        return {super().forward(x)}


def norm(parameters):
    return parameters | {"running_mean": parameters["bias"] * 1.0}


@pytest.mark.parametrize(
    ("module", "change", "message"),
    [
        (torch.nn.Linear(2, 2), lambda p: {"bias": p["bias"]}, "gradients of weight would be lost"),
        (torch.nn.BatchNorm1d(2), norm, "no derivative here: .*argument 'running_mean'"),
        (Clipped(2, 2), lambda p: p, "writes to an argument"),
        (Listed(2, 2), lambda p: p, "returned a set"),
    ],
)
def test_modules_that_would_lose_a_derivative_are_refused(module, change, message):
    def loss(parameters):
        return functional_call(module, change(parameters), torch.ones(3, 2)).sum()

    with pytest.raises(TracerError, match=message):
        mixad.grad(loss)(own_parameters(module))


class Rounded(torch.autograd.Function):
    """Rounds to multiples of a step, with a backward that is the gradient of no function."""

    @staticmethod
    def forward(ctx, x, step):
        assert type(x) is torch.Tensor
        ctx.save_for_backward(x, step)
        return (x / step).round() * step

    @staticmethod
    def backward(ctx, g):
        x, step = ctx.saved_tensors
        return g, (g * ((x / step).round() - x / step)).sum()


class Quantiser(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x):
        return Rounded.apply(x, self.step)


class Bounded(torch.nn.Module):
    """Bounds a gradient by a hook, which torch's graph does not show."""

    def __init__(self):
        super().__init__()
        self.step = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))

    def forward(self, x):
        y = x * 1
        y.register_hook(lambda g: g.clamp(-0.1, 0.1))
        return (y * self.step) ** 2


def called(module):
    return lambda x, step: functional_call(module, {"step": step}, x)


@pytest.mark.parametrize("f", [Rounded.apply, called(Quantiser())])
def test_second_derivatives_of_a_written_backward_need_not_be_symmetric(f):
    x, step = (torch.tensor(v, dtype=torch.float64) for v in ([0.3, 0.9], 0.5))

    def slope(x):  # round(x / step) - x / step
        return mixad.grad(lambda step: f(x, step).sum())(step)

    for derivative in (mixad.jacfwd, mixad.jacrev):
        torch.testing.assert_close(derivative(slope)(x), -torch.ones_like(x) / step)


def test_second_derivatives_of_a_bounded_gradient_are_zero():
    x, step = (torch.tensor(v, dtype=torch.float64) for v in ([0.3, 0.9], 0.5))

    def slope(step):
        return mixad.grad(lambda x: called(Bounded())(x, step).sum())(x)

    torch.testing.assert_close(slope(step), torch.full_like(x, 0.1))
    for derivative in (mixad.jacfwd, mixad.jacrev):
        torch.testing.assert_close(derivative(slope)(step), torch.zeros_like(x))


def test_a_function_of_the_users_keeps_its_backward():
    step, x, t = torch.tensor(0.5, dtype=torch.float64), numbers(4), numbers(4, seed=1)

    def f(x):
        return Rounded.apply(x * 3, step)

    for _ in range(3):
        torch.testing.assert_close(mixad.grad(lambda x: (f(x) * t).sum())(x), 3 * t)
        torch.testing.assert_close(mixad.jvp(f, (x,), (t,))[1], 3 * t)
    with pytest.raises(TracerError, match="requires grad beside"):
        mixad.grad(lambda x: Rounded.apply(x, step.clone().requires_grad_()).sum())(x)


class Unrecorded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return (2 * g * ctx.saved_tensors[0]).detach()


class Once(Unrecorded):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return 2 * g * ctx.saved_tensors[0]


@pytest.mark.parametrize("function", [Unrecorded, Once])
def test_a_backward_that_torch_does_not_record_is_differentiated_once(function):
    class Squares(torch.nn.Module):
        def forward(self, x):
            return function.apply(x * 3)

    x = numbers(4)
    for f in (lambda x: function.apply(x * 3), lambda x: functional_call(Squares(), {}, x)):
        torch.testing.assert_close(mixad.grad(lambda x, f=f: f(x).sum())(x), 18 * x)
        for derivative in (mixad.jacfwd, mixad.hessian):
            with pytest.raises(TracerError, match="would be lost"):
                derivative(lambda x, f=f: f(x).sum())(x)


def test_a_module_called_plainly_is_refused_by_the_name_of_the_way():
    with pytest.raises(TracerError, match="functional_call"):
        mixad.grad(lambda x: torch.nn.Linear(2, 2).double()(x).sum())(numbers(2, 2))


def test_the_tape_says_where_a_derivative_is_from():
    x, w = numbers(1, 1, 5), numbers(1, 1, 3)
    text = str(mixad.tape(lambda x: F.conv1d(x, w))(x))
    assert text.splitlines()[1:3] == [
        "@1 f64[1, 1, 3] = torch.conv1d(@0)",
        "    borrowed from torch",
    ]
