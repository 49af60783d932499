"""Methods of torch's tensors that end in an underscore, compared with torch and its autograd."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import mixad
from mixad.errors import KernelShapeError, MixadError, TracerError
from mixad.namespace.torch_in_place import IN_PLACE
from mixad.namespace.torch_spellings import TORCH

HAS_TORCH = importlib.util.find_spec("torch") is not None
pytestmark = [pytest.mark.torch,
              pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")]  # fmt: skip

ARGUMENTS: dict[str, Any] = {}
if HAS_TORCH:
    import torch

    X = torch.tensor([[0.31, 0.55, 0.82], [0.93, 0.37, 0.64], [0.23, 0.71, 0.49]],
                     dtype=torch.float64)  # fmt: skip
    Y = 0.3 + X.T * X
    V = Y[0]
    MASK, PLACES = X > 0.5, torch.tensor([2, 0, 1])
    SQUARE = torch.stack([PLACES, PLACES.roll(1), PLACES.roll(2)])
    TWO = ("add atan2 arctan2 copysign copy div divide float_power floor_divide fmod heaviside "
           "hypot mul multiply pow remainder sub subtract true_divide xlogy").split()  # fmt: skip
    ARGUMENTS = {
        **{f"{name}_": (Y,) for name in TWO},
        **{f"{name}_": (Y, V[:, None]) for name in ("addcmul", "addcdiv")},
        **{f"{name}_": (Y, Y.T) for name in ("addmm",)},
        "addmv_": None, "addr_": (V, V), "baddbmm_": None, "lerp_": (Y, 0.3),
        **dict.fromkeys(("clamp_", "clip_"), (0.4, 0.8)), "clamp_max_": (0.6,),
        "clamp_min_": (0.4,), **dict.fromkeys(("cumprod_", "cumsum_"), (0,)), "fill_": (0.5,),
        "index_add_": (0, PLACES, Y), "index_copy_": (1, PLACES, Y),
        "index_fill_": (0, PLACES[:1], 2.0),
        "masked_fill_": (MASK, 0.5), "masked_scatter_": (MASK, Y), "polygamma_": (1,),
        "scatter_": (0, SQUARE, Y), "scatter_add_": (0, SQUARE, Y),
    }  # fmt: skip


def shifted(name: str, x: Any) -> Any:
    """Return where a function is defined."""
    return x + 1.1 if "cosh" in name else x


LACKING = {f"{name}_" for name in ("acosh", "arccosh", "asinh", "arcsinh", "atanh", "arctanh")}
"""Methods that torch differentiates only where they do not change the tensor."""


def changed(name: str, x: Any, *arguments: Any) -> Any:
    y = x * 1.0
    if name in LACKING and torch.is_tensor(y) and type(y) is torch.Tensor:
        return getattr(y, name[:-1])(*arguments)
    assert getattr(y, name)(*arguments) is y
    return y


@pytest.mark.rows("name", sorted(IN_PLACE))
def test_methods_that_change_a_tensor_are_those_of_torch(name: str) -> None:
    given = ARGUMENTS.get(name, ())
    start = shifted(name, X)
    if name == "addmv_":
        start, given = V, (X, V)
    elif name == "baddbmm_":
        start, given = X[None], (Y[None], Y[None])
    tensors = [start, *(a for a in given if torch.is_tensor(a) and a.is_floating_point())]
    places = [None if not (torch.is_tensor(a) and a.is_floating_point()) else 0 for a in given]

    def result(*tensors: Any) -> Any:
        rest = iter(tensors[1:])
        arguments = [a if p is None else next(rest) for a, p in zip(given, places, strict=True)]
        y = changed(name, tensors[0], *arguments)
        return (y * y).sum() + sum(0.0 * z.sum() for z in tensors)

    own = [z.clone().requires_grad_() for z in tensors]
    if name in ("floor_divide_", "heaviside_"):  # which torch does not differentiate
        value, wanted = result(*tensors), [torch.zeros_like(z) for z in tensors]
    else:
        value = result(*own)
        wanted = torch.autograd.grad(value, own)
    found, gradients = mixad.value_and_grad(result, tuple(range(len(tensors))))(*tensors)
    torch.testing.assert_close(found, value.detach(), rtol=1e-9, atol=1e-12)
    for g, w in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-9, atol=1e-12)


def test_every_name_is_one_of_torch_and_has_its_function() -> None:
    for name in IN_PLACE:
        assert hasattr(torch.Tensor, name)
        assert TORCH.has_method(name[:-1]) or name in ("fill_", "copy_", "zero_")


def test_the_argument_keeps_its_elements() -> None:
    x = X.clone()

    def loss(x: Any) -> Any:
        x.mul_(x).add_(1.0, alpha=3)
        return x.sum()

    torch.testing.assert_close(mixad.grad(loss)(x), 2 * X)
    assert torch.equal(x, X)


def test_functions_that_change_their_argument_do_so() -> None:
    def loss(x: Any) -> Any:
        y = x * x
        assert torch.exp_(y) is y
        torch.nn.functional.relu_(y)
        return y.sum()

    torch.testing.assert_close(mixad.grad(loss)(X), 2 * X * torch.exp(X * X))


def test_views_are_not_used_after_the_tensor_has_changed() -> None:
    def loss(x: Any) -> Any:
        y = x * 1.0
        row = y[0]
        y.exp_()
        return row.sum()

    with pytest.raises(TracerError, match="shares memory"):
        mixad.grad(loss)(X)


def test_a_tensor_is_not_used_after_its_view_has_changed() -> None:
    def loss(x: Any) -> Any:
        y = x * 1.0
        y[0].zero_()
        return y.sum()

    with pytest.raises(TracerError, match="shares memory"):
        mixad.grad(loss)(X)


def test_another_shape_is_refused() -> None:
    with pytest.raises(KernelShapeError, match=r"x\.add_\(\).*\n.*write x = x\.add\(\)"):
        mixad.grad(lambda x: (x[0] * 1.0).add_(x).sum())(X)


def test_elements_are_converted_to_the_dtype_of_the_tensor() -> None:
    def loss(x: Any) -> Any:
        y = x.float().mul_(x).copy_(x * x)
        assert y.dtype == torch.float32
        return y.sum()

    torch.testing.assert_close(mixad.grad(loss)(X), (2 * X).float().double(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", ["add_", "copy_", "fill_", "mul_"])
def test_new_tensors_take_what_is_traced(name: str) -> None:
    def loss(x: Any) -> Any:
        total = x.new_ones(3)
        assert getattr(total, name)(x[0, 0] if name == "fill_" else x[0]) is total
        return (total * x[1]).sum()

    x = X.clone().requires_grad_()
    (wanted,) = torch.autograd.grad(loss(x), x)
    torch.testing.assert_close(mixad.grad(loss)(X), wanted)


def test_new_tensors_of_a_traced_number_are_that_number() -> None:
    gradient = mixad.grad(lambda x: (x.new_full((2,), x[0, 0]) * Y[0, :2]).sum())(X)
    assert gradient[0, 0] == Y[0, :2].sum()
    assert gradient.sum() == gradient[0, 0]


def test_new_tensors_that_are_recorded_keep_what_they_had() -> None:
    def loss(x: Any) -> Any:
        factor = x.new_ones(3)
        y = x * factor
        factor.mul_(2.0)
        return (y * y * factor).sum()

    torch.testing.assert_close(mixad.grad(loss)(X), 4 * X)


def test_what_is_traced_is_not_written_into_a_tensor_from_outside() -> None:
    with pytest.raises(MixadError, match="methods that end in _"):
        mixad.grad(lambda x: X.clone().add_(x).sum())(X)
    with pytest.raises(AttributeError, match=r"transpose_.*x \+= y"):
        mixad.grad(lambda x: (x * 1.0).transpose_(0, 1).sum())(X)
