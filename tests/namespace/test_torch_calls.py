"""Which calls torch takes and which it refuses: over traced tensors they are the same ones."""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import pytest

import mixad
from mixad import pytree

HAS_TORCH = importlib.util.find_spec("torch") is not None
pytestmark = [pytest.mark.torch,
              pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")]  # fmt: skip

if HAS_TORCH:
    import torch as t
    import torch.nn.functional as F  # noqa: N812

    generator = t.Generator().manual_seed(5)

    def normal(*shape: int) -> Any:
        return t.randn(shape, dtype=t.float64, generator=generator)

    X, Z, B, EMPTY = normal(3, 3), normal(), normal(2, 3, 4), normal(3, 0)
    C = normal(3, 3) + 1j * normal(3, 3)
    I, MASK = t.tensor([0, 2]), t.tensor([True, False])  # noqa: E741
    NONE = normal(0)  # beside any tensor, `cat` takes it
    ONES = t.ones(3, 2, dtype=t.float64)
    MASKS = X > 0
    ROWS = t.contiguous_format
    CLASSES = t.tensor([2, 0, 1])
    ZEROS = t._efficientzerotensor((3, 3), dtype=t.float64)


# -- what torch refuses ----------------------------------------------------------------------------

REFUSED: dict[str, Any] = {
    "cross_entropy of one target": lambda x: F.cross_entropy(x[:2], t.tensor([1])),
    "nll_loss of two axes of targets": lambda x: F.nll_loss(x, t.tensor([[0, 1, 2]])),
    "masked_fill by a short mask": lambda x: x.masked_fill(MASK, 0.0),
    "masked_fill with a vector": lambda x: x.masked_fill(x > 0, x[0]),
    "masked_fill with a complex number": lambda x: t.masked_fill(x, x > 0, 1j),
    "mm with a vector": lambda x: t.mm(x, x[0]),
    "mm of stacks": lambda x: x[None].mm(x[None]),
    "bmm of matrices": lambda x: t.bmm(x, x),
    "mv with a matrix": lambda x: x.mv(x),
    "dot of matrices": lambda x: t.dot(x, x),
    "vdot of matrices": lambda x: t.vdot(x, x),
    "matmul that does not fit": lambda x: t.matmul(x, x[:2]),
    "t of three axes": lambda x: x[None].t(),
    "trace of three axes": lambda x: x[None].trace(),
    "index_select of -1": lambda x: t.index_select(x, 0, t.tensor([-1])),
    "index_select by a matrix": lambda x: x.index_select(0, t.tensor([[0, 1]])),
    "index_select by floats": lambda x: x.index_select(0, t.tensor([0.0, 1.0])),
    "gather with fewer axes": lambda x: t.gather(x, 0, I),
    "scatter of another dtype": lambda x: x.scatter(0, t.tensor([[0, 1]]), X.float()),
    "index_add that does not fit": lambda x: x.index_add(0, I, x),
    "take_along_dim with fewer axes": lambda x: t.take_along_dim(x, I, 0),
    "view of a transpose": lambda x: x.t().view(-1),
    "view of a computed transpose": lambda x: (x * 2).t().view(-1),
    "view of a part of a transpose": lambda x: x.t()[:2].view(6),
    "view_as of a transpose": lambda x: x.t().view_as(X.reshape(9)),
    "view of every other column": lambda x: x[:, ::2].view(-1),
    "view of every other row": lambda x: x[::2].view(-1),
    "view of some columns": lambda x: x[:, 1:3].view(-1),
    "view of an expanded column": lambda x: x[:, :1].expand(3, 2).view(6),
    "view of windows": lambda x: x.unfold(1, 2, 1).view(-1),
    "view of diagonals": lambda x: x.expand(2, 3, 3).diagonal(0, 1, 2).view(-1),
    "view of a clone of a transpose": lambda x: x.T.clone().view(9),
    "view of an elementwise part": lambda x: (x * 2)[:, 1:].view(-1),
    "view in another size": lambda x: x.view(4, 2),
    **{
        f"{name} of two dtypes": function
        for name, function in {
            "mm": lambda x: t.mm(x, X.float()),
            "@": lambda x: x @ X.float(),
            "reflected @": lambda x: X.float() @ x,
            "@ of float32 and half": lambda x: x.float() @ X.half(),
            "@ of integers": lambda x: x @ X.long(),
            "matmul": lambda x: t.matmul(x, X.float()),
            "mv": lambda x: t.mv(x, X[0].float()),
            "linear": lambda x: F.linear(x, X.float()),
            "index_add": lambda x: x.index_add(0, I, X[:2].float()),
            "index_copy": lambda x: x.index_copy(0, I, X[:2].float()),
            "layer_norm": lambda x: F.layer_norm(x, (3,), X[0].float()),
            "binary_cross_entropy": lambda x: F.binary_cross_entropy(x.sigmoid(), X.float() * 0),
            "cdist": lambda x: t.cdist(x, X.float()),
            "linalg.cross": lambda x: t.linalg.cross(x, X.float()),
            "heaviside": lambda x: t.heaviside(x, X.float()),
        }.items()
    },
    "nll_loss of int32 targets": lambda x: F.nll_loss(x, CLASSES.int()),
    "cross_entropy of int32 targets": lambda x: F.cross_entropy(x, CLASSES.int()),
    "reshape in another size": lambda x: x.reshape(4, 2),
    "expand of a longer axis": lambda x: x.expand(2, 4),
    "dropout of twice as much": lambda x: F.dropout(x, p=2),
    "hardtanh between crossed ends": lambda x: F.hardtanh(x, 1.0, -1.0),
    "softshrink by less than nothing": lambda x: F.softshrink(x, -0.5),
    "huber_loss of delta 0": lambda x: F.huber_loss(x, x * 2, delta=0.0),
    "binary_cross_entropy of other targets": lambda x: F.binary_cross_entropy(x**2, x[0]),
    "layer_norm over other lengths": lambda x: F.layer_norm(x, (2,)),
    "glu of three": lambda x: F.glu(x, 1),
    "softmax along axis 2": lambda x: t.softmax(x, 2),
    "sum over an axis twice": lambda x: x.sum((0, 0)),
    "amax of nothing": lambda x: x[:0].amax(0),
    "logsumexp along axis 3": lambda x: t.logsumexp(x, 3),
    "narrow of a number": lambda x: x[0, 0].narrow(0, 0, 1),
    "narrow beyond the end": lambda x: x.narrow(0, 2, 2),
    "cat of numbers": lambda x: t.cat([x[0, 0], x[0, 0]]),
    "cat of other lengths": lambda x: t.cat([x, x[:2]], 1),
    "stack of other lengths": lambda x: t.stack([x, x[:2]]),
    "split in other lengths": lambda x: x.split([1, 1])[0],
    "unbind of a number": lambda x: x[0, 0].unbind()[0],
    "flip of an axis twice": lambda x: x.flip((0, 0)),
    "fliplr of a vector": lambda x: x[0].fliplr(),
    "fft of a number": lambda x: t.fft.fft(x[0, 0]).real,
    "cross of length 2": lambda x: t.linalg.cross(x[:, :2], x[:, :2]),
    "cross of other lengths": lambda x: t.linalg.cross(x, x[:, :1]),
    "inv of a tall matrix": lambda x: t.linalg.inv(x[:, :2]),
    "solve that does not fit": lambda x: t.linalg.solve(x, x[:2]),
    "diagonal of one axis twice": lambda x: x.diagonal(0, 1, 1),
    "addmm that does not fit": lambda x: t.addmm(x, x, x[:2]),
    "einsum of another number of axes": lambda x: t.einsum("ijk->i", x),
    "topk of four": lambda x: x.topk(4)[0],
    "kthvalue of 0": lambda x: x.kthvalue(0)[0],
    "quantile of another dtype": lambda x: t.quantile(x, t.tensor([0.5])),
    "unflatten in other lengths": lambda x: x.unflatten(0, (2, 2)),
    "permute of fewer axes": lambda x: x.permute(0),
    "unsqueeze at 4": lambda x: x.unsqueeze(4),
    "index_copy_ in place that does not fit": lambda x: (x * 1).index_copy_(0, I, x),
}  # fmt: skip


def test_what_torch_refuses_is_refused_in_its_words() -> None:
    failures = []
    for name, function in REFUSED.items():
        expected, found = error_of(function, X), error_of(mixad.grad(summed(function)), X.clone())
        if expected is None or type(found) is not type(expected) or str(found) != str(expected):
            failures.append(f"{name}: torch {expected!r}, here {found!r}")
    assert not failures, "\n".join(failures)


def error_of(function: Any, x: Any) -> Exception | None:
    try:
        function(x)
    except Exception as error:
        return error
    return None


def summed(function: Any) -> Any:
    return lambda x: function(x).sum()


def test_what_torch_takes_once_is_asked_for_each_kind_of_call() -> None:
    def product(y: Any) -> Any:
        return mixad.grad(lambda x: t.mm(x, y).sum())(X)

    product(X)
    with pytest.raises(RuntimeError, match="must be a matrix"):
        product(X[0])
    product(X)


# -- what torch takes ------------------------------------------------------------------------------

TAKEN: dict[str, tuple[Any, str]] = {
    "nn.Softmax": (lambda x: t.nn.Softmax(1)(x), "X"),
    "nn.LogSoftmax": (lambda x: t.nn.LogSoftmax(0)(x), "X"),
    "nn.Softmax2d": (lambda x: t.nn.Softmax2d()(x[None]), "B"),
    "nn.Softmin": (lambda x: t.nn.Softmin(1)(x), "X"),
    "softmax(_stacklevel=)": (lambda x: F.softmax(x, 1, 5) + F.softmin(x, 0, _stacklevel=4), "X"),
    "softmax of nothing": (lambda x: [t.softmax(x, 1), F.log_softmax(x, -1), x[:0].softmax(0)],
                           "EMPTY"),
    "logsumexp of nothing": (lambda x: t.logsumexp(x, 1), "EMPTY"),
    "fftn along one axis": (lambda x: t.fft.fftn(x, dim=-1), "X"),
    "ifftn along one axis": (lambda x: t.fft.ifftn(x, dim=0, s=4), "X"),
    "rfftn along one axis": (lambda x: t.fft.rfftn(x, dim=0), "X"),
    "irfftn along one axis": (lambda x: t.fft.irfftn(x, dim=(-1,), s=(3,)), "X"),
    "complex of a constant real part": (lambda x: t.complex(t.ones_like(X), x), "X"),
    "complex of a constant imaginary part": (lambda x: t.complex(x, X), "X"),
    "logsumexp of complex numbers": (lambda c: [t.logsumexp(c, 0), c.logsumexp((0, 1))], "C"),
    "logdet of complex numbers": (lambda c: [t.logdet(c), t.logdet(c[:0, :0])], "C"),
    "svdvals of nothing": (lambda c: t.linalg.svdvals(c[:, :0]), "C"),
    "eigvals of nothing": (lambda x: t.linalg.eigvals(x[:0, :0]), "X"),
    "tensordot of length 1 beside n": (
        lambda x: [t.tensordot(x[:, :1], ONES, 1), t.tensordot(ONES, x[1:2], ([0], [0])),
                   t.tensordot(x[:1], x[:, :1], ([1, 0], [0, 1]))], "X"),
    "cat with an empty vector": (
        lambda x: [t.cat([NONE, x], 1), t.cat([x, x[0, :0], x]), t.cat([x[0, :0], NONE])], "X"),
    "cat with an empty vector of complex numbers": (lambda x: t.cat([NONE + 0j, x], 1), "X"),
    "zeros in no memory": (lambda x: [x * ZEROS + x, x @ ZEROS, t.where(x > 0, x, ZEROS)], "X"),
    "view of a contiguous transpose": (
        lambda x: [x.transpose(0, 1).contiguous().view(9), x.T.contiguous().exp().view(9) * 2,
                   x.expand(2, 3, 3).permute(2, 0, 1).contiguous().view(-1) ** 2,
                   x.T.exp().contiguous().view(9), x[:, ::2].contiguous().view(6) ** 2], "X"),
    "view of a contiguous clone": (
        lambda x: [x.T.clone(memory_format=ROWS).view(9) ** 2,
                   x[:, 1:].clone(memory_format=ROWS).view(6)], "X"),
    "view of what is contiguous": (
        lambda x: [(x.T @ x).view(9), x.T.softmax(0).view(9), x.T.sum(0).view(3),
                   t.cat([x.T, x]).view(-1), (2**x.T).view(9), x.T.mean(1).view(3, 1),
                   x[:1].expand(3, 3).exp().view(9), x[1:].view(6), x[:, 1:].neg().view(6),
                   x.T.T.exp().view(9), x.chunk(3)[1].view(-1), x.T.contiguous().T.T.view(9)],
        "X"),
    "a number in windows": (lambda x: [x.unfold(1, 2, 1) ** 2, x.T.unfold(0, 3, 2)], "X"),
    "diagonals": (lambda x: [x.diagonal(1) ** 2, t.linalg.diagonal(x.expand(2, 3, 3)) ** 3], "X"),
    "strides that decide": (
        lambda x: x.view(-1) if x.is_contiguous() else x.reshape(-1) * 2, "X"),
    "nll_loss of uint8 targets": (
        lambda x: [F.nll_loss(x, CLASSES.byte(), ignore_index=1),
                   F.cross_entropy(x, CLASSES.byte())], "X"),
    "irfftn of a last length of -1": (
        lambda c: [t.fft.irfftn(c, s=(4, -1)), t.fft.irfftn(c, s=(-1,)),
                   t.fft.irfftn(c, s=(-1,), dim=0), t.fft.irfftn(c, s=(-1, 5)),
                   t.fft.fftn(c, s=(-1, 5)), t.fft.rfftn(c.real, s=(4, -1))], "C"),
    "mse_loss and l1_loss with weights": (
        lambda x: [F.mse_loss(x, X * 0, weight=X**2), F.l1_loss(x, X * 0)], "X"),
    "view after elementwise": (lambda x: [(x * 2).view(-1), x.t().t().view(9)], "X"),
    "index_select of a number": (lambda z: z.index_select(0, t.tensor([0])), "Z"),
    **{
        f"{name} along the one axis of a number": (lambda z, f=f: [f(z, 0), f(z, -1)], "Z")
        for name, f in {
            "sum": lambda z, a: z.sum(a) * z.sum((a,), keepdim=True),
            "mean": lambda z, a: t.mean(z, a),
            "prod": lambda z, a: z.prod(a, keepdim=True),
            "amax": lambda z, a: [z.amax(a), t.amin(z, (a,), keepdim=True)],
            "max": lambda z, a: [z.max(a)[0], z.min(dim=a, keepdim=True).values],
            "cumsum": lambda z, a: z.cumsum(a) + t.cumsum(z, dim=a),
            "cumprod": lambda z, a: t.cumprod(z, a),
            "var": lambda z, a: [z.var(a, correction=0), t.std(z + 1, a, correction=-1)],
            "softmax": lambda z, a: [t.softmax(z, a), F.log_softmax(z, a)],
            "logsumexp": lambda z, a: [t.logsumexp(z, a), z.logsumexp((a,), True)],
            "norm": lambda z, a: [t.norm(z, 2, a, True), t.linalg.vector_norm(z, dim=a)],
            "normalize": lambda z, a: F.normalize(z, dim=a),
            "cosine_similarity": lambda z, a: F.cosine_similarity(z, z * z, a),
            "sort": lambda z, a: [z.sort(a)[0], z.topk(1, a)[0], t.kthvalue(z, 1, a)[0]],
            "median": lambda z, a: [z.median(a)[0], z.nanmedian(a, True)[0]],
            "quantile": lambda z, a: t.quantile(z, t.tensor([0.2, 0.5], dtype=t.float64), a),
            "nansum": lambda z, a: [z.nansum(a), t.nanmean(z, a, True)],
            "flip": lambda z, a: t.flip(z, (a,)),
            "squeeze": lambda z, a: z.squeeze(a),
            "transpose": lambda z, a: [z.transpose(a, 0), z.movedim(a, 0), z.swapaxes(a, -1)],
            "unsqueeze": lambda z, a: z.unsqueeze(a),
            "gather": lambda z, a: t.gather(z, a, t.tensor(0)),
            "flatten": lambda z, a: z.flatten(a, a),
            "index_fill": lambda z, a: z.index_fill(a, t.tensor([0]), 2.0) + z,
            "index_add": lambda z, a: z.index_add(a, t.tensor([0]), z * z),
        }.items()
    },
}  # fmt: skip


def test_what_torch_takes_has_its_values_and_derivatives_in_both_modes() -> None:
    failures = []
    for name, (function, given) in TAKEN.items():
        x = globals()[given]
        try:
            problem = difference(function, x)
        except Exception as error:
            problem = repr(error)
        if problem:
            failures.append(f"{name}: {problem}")
    assert not failures, "\n".join(failures)


def difference(function: Any, x: Any) -> str:
    """Return what differs from torch's values, gradients and slopes: nothing where all agree."""
    own = x.clone().requires_grad_()
    values = pytree.leaves(function(own))
    (want,) = t.autograd.grad(weighted(values) + (0 * own).abs().sum(), own)
    seen: list[Any] = []

    def loss(x: Any) -> Any:
        seen[:] = pytree.leaves(function(x))
        found = weighted(seen) + (0 * x).abs().sum()
        seen[:] = map(mixad.stop_gradient, seen)
        return found

    gradient = mixad.grad(loss)(x.clone())
    for part, value in zip(seen, values, strict=True):
        if (part.shape, part.dtype) != (value.shape, value.dtype):
            return f"{part.dtype} {part.shape}, not {value.dtype} {value.shape}"
        if not t.allclose(part, value.detach(), equal_nan=True):
            return f"{part}, not {value}"
    if not t.allclose(gradient, want):
        return f"gradient {gradient}, not {want}"
    along = t.cos(t.arange(x.numel(), dtype=t.float64)).reshape(x.shape).to(x.dtype)
    slope, expected = mixad.jvp(loss, (x.clone(),), (along,))[1], (want.conj() * along).sum().real
    return "" if abs(slope - expected) < 1e-9 * (1 + abs(expected)) else f"{slope}, not {expected}"


def weighted(parts: Any) -> Any:
    """Return a real sum of all elements, each with a weight of its own."""
    found = t.zeros((), dtype=t.float64)
    for number, part in enumerate(parts):
        weights = t.cos(number + 0.7 * t.arange(math.prod(part.shape), dtype=t.float64))
        weights = weights.reshape(part.shape)
        found = found + (part.real * weights).sum()
        if part.dtype.is_complex:
            found = found + (part.imag * weights**2).sum()
    return found


def test_writes_through_a_view_of_a_number_are_not_lost() -> None:
    def written(x: Any) -> Any:
        own = x * 1
        own.transpose(0, 0).mul_(3)
        return own * 2

    with pytest.raises(mixad.errors.TracerError, match="shares memory"):
        mixad.grad(written)(Z.clone())


def test_contiguous_is_the_tensor_itself_or_a_copy() -> None:
    def written(x: Any, layout: Any) -> Any:
        own = layout(x * 1)
        copied = own.contiguous()
        copied[0, 0] = 7.0
        return (own * own).sum()

    with pytest.raises(mixad.errors.TracerError, match="shares memory"):
        mixad.grad(lambda x: written(x, lambda x: x))(X)
    t.testing.assert_close(mixad.grad(lambda x: written(x, lambda x: x.T))(X), 2 * X)


def test_diagonals_and_adjoints_are_views() -> None:
    for view in (lambda x: x.diagonal(), lambda x: t.linalg.diagonal(x), lambda x: x.adjoint()):

        def loss(x: Any, view: Any = view) -> Any:
            x = x * 1.0
            part = view(x)
            x[0, 0] = 2.0
            return part.sum()

        with pytest.raises(mixad.errors.TracerError, match="shares memory"):
            mixad.grad(loss)(X)


@pytest.mark.rows("name", ["logit", "softplus"])
def test_derivatives_where_values_are_no_numbers_are_those_of_torch(name: str) -> None:
    x = t.tensor([-2.0, -0.5, 0.25, 0.75, 1.5, 3.0], dtype=t.float64)
    functions = {"logit": t.special.logit, "softplus": lambda x: F.softplus(x, beta=0)}
    function, own = functions[name], x.clone().requires_grad_()
    value = function(own)
    (want,) = t.autograd.grad(value.sum(), own)
    found, pullback = mixad.vjp(function, x)
    ones = t.ones_like(x)
    for have, number in ((found, value.detach()), (pullback(ones)[0], want),
                         (mixad.jvp(function, (x,), (ones,))[1], want)):  # fmt: skip
        t.testing.assert_close(have, number, equal_nan=True)


def test_a_tensor_of_traced_numbers_is_refused_with_a_hint() -> None:
    with pytest.raises(TypeError, match=r"torch\.stack"):
        mixad.grad(lambda a: t.tensor([a[0], a[1]]).sum())(t.ones(2))
