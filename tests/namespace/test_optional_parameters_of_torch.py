"""Each function of torch's table, in every way it is overloaded, for each optional parameter.

Arguments come by place and by name, as their defaults too; values and derivatives are torch's.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_torch_parameters import public

import mixad
from mixad.errors import TracerError

HAS_TORCH = importlib.util.find_spec("torch") is not None
pytestmark = [pytest.mark.torch, pytest.mark.slow,
              pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")]  # fmt: skip

Parameter = tuple[str, Any, bool]
"""A name, the default or `EMPTY`, whether it comes by name only."""

EMPTY = inspect.Parameter.empty

if HAS_TORCH:
    import torch

    from mixad.namespace.torch_spellings import TORCH

    torch.manual_seed(0)
    X = 0.51 + 0.35 * torch.cos(1.7 * torch.arange(12.0, dtype=torch.float64)).reshape(3, 4)
    Y = 0.6 + 0.3 * torch.sin(2.3 * torch.arange(12.0, dtype=torch.float64)).reshape(3, 4)
    V, W, SQUARE = X[0], Y[1], 2 * torch.eye(3, dtype=torch.float64) + X[:, :3]
    BATCH = torch.stack([X, Y])
    CLASSES, MASK = torch.tensor([3, 0, 2]), X > 0.5
    INDEX = torch.tensor([[0, 2, 1, 0], [1, 0, 2, 2]])

    SQUARES = (
        "linalg_inv linalg_det linalg_slogdet linalg_eigvals linalg_eigvalsh linalg_cholesky "
        "inverse det slogdet logdet matrix_power linalg_matrix_power trace linalg_svd linalg_cond"
    ).split()

    VALUES: dict[Any, Any] = {
        "input": X, "other": Y, "A": SQUARE, "exponent": Y, "dim": 1, "dims": (1,), "n": 2,
        "keepdim": True, "dtype": torch.float64, "correction": 0, "unbiased": False, "alpha": 2.0,
        "beta": 0.5, "rounding_mode": "floor", "decimals": 1, "min": 0.4, "max": 0.6, "eps": 0.2,
        "nan": 0.1, "posinf": 0.2, "neginf": 0.3, "prepend": X[:, :1], "append": Y[:, :2],
        "shape": (4, 3), "source": 0, "destination": 1, "shifts": 1, "repeats": 2,
        "size": (2, 3, 4), "tensors": [X, Y], "condition": MASK, "index": CLASSES[:2],
        "indices": INDEX[:, :1],
        "s": (2, 3), "norm": "ortho", "UPLO": "U", "upper": True, "mode": "reduced",
        "full_matrices": False, "diagonal": 1, "fill_value": 2.5, "values": Y, "real": X, "imag": Y,
        "k": 2, "descending": True, "stable": True, "largest": False, "sorted": True, "q": 0.3,
        "interpolation": "lower", "p": 3.0, "ord": 1, "x1": X, "x2": Y, "mat2": Y.T, "vec": W,
        "vec2": W, "mat1": X, "mat": X, "vec1": X[:, 0], "batch1": BATCH, "batch2": BATCH.mT,
        "tensor1": Y, "tensor2": X, "value": 0.7, "end": Y, "weight": 0.3, "a": X, "b": Y.T,
        "offset": 1, "dim1": 0, "dim2": 1, "B": X, "left": False, "unitriangular": True,
        "rtol": 1e-9, "rcond": 1e-9, "src": Y, "mask": MASK, "start": 1, "length": 2,
        "start_dim": 1, "end_dim": 0, "sizes": (2, 2), "dim0": 0, "axis0": 0, "axis1": 1,
        "chunks": 2, "split_size_or_sections": 2, "sections": 2, "target": Y, "tensor": Y,
        "negative_slope": 0.3, "min_val": 0.4, "max_val": 0.7, "threshold": 0.5, "lambd": 0.3,
        "approximate": "tanh", "reduction": "sum", "delta": 0.1, "log_target": True,
        "ignore_index": 2, "label_smoothing": 0.1, "bias": V[:3], "normalized_shape": (4,),
        "training": False, "pad": (1, 2), "pos_weight": W, "x": X, "y": Y,
        "output_size": 8, "driver": None, "layout": torch.strided, "device": "cpu",
    }  # fmt: skip
    VALUES |= {(name, parameter): SQUARE for name in SQUARES for parameter in ("input", "A")}
    OF: dict[str, dict[str, Any]] = {
        "acosh arccosh": {"input": X + 1.5},
        "matmul linalg_matmul mm": {"other": Y.T},
        "bmm": {"input": BATCH, "mat2": BATCH.mT},
        "dot vdot": {"input": V, "other": W, "tensor": W},
        "outer ger": {"input": V}, "addmm": {"input": SQUARE, "mat2": Y.T, "mat1": X},
        "baddbmm": {"input": SQUARE}, "addmv": {"input": X[:, 0]}, "addr": {"input": X},
        "cross linalg_cross": {"input": X[:, :3], "other": Y[:, :3], "dim": 0},
        "linalg_solve": {"A": SQUARE, "B": X[:, :3]},
        "linalg_solve_triangular": {"input": SQUARE, "B": X[:, :3]},
        "linalg_matrix_norm": {"ord": "fro", "dim": (0, 1)}, "linalg_svdvals linalg_pinv": {},
        "diff": {"n": 2}, "unsqueeze": {"dim": 1}, "permute": {"dims": (1, 0)},
        "rot90": {"dims": (1, 0), "k": 1}, "roll": {"dims": 1}, "tile": {"dims": (2, 1)},
        "take": {"index": torch.tensor([[0, 5], [7, 2]])},
        "gather scatter scatter_add": {"index": INDEX, "dim": 0, "src": Y[:2], "value": 0.7},
        "index_add index_copy": {"index": torch.tensor([2, 0]), "source": Y[:2], "dim": 0},
        "masked_scatter": {"source": Y},
        "kthvalue": {"k": 2}, "quantile": {"q": 0.3}, "unflatten": {"dim": 1},
        "narrow select": {"dim": 1, "index": 2}, "squeeze": {"input": X[None], "dim": 0},
        "diagonal linalg_diagonal": {"input": BATCH, "A": BATCH, "dim1": 0, "dim2": 2},
        "diag_embed": {"dim1": 0, "dim2": 2}, "tensordot": {"b": Y, "a": X.T, "dims": 1},
        "complex": {}, "polygamma special_polygamma": {"n": 2}, "t": {}, "expand": {},
        "special_zeta": {"input": X + 2}, "cdist": {}, "linalg_vecdot": {"dim": 0},
        "logit special_logit": {"input": X}, "prod": {"dim": 0}, "fft_hfft fft_irfft": {"n": 5},
        "fft_fftn fft_ifftn fft_rfftn fft_irfftn": {"dim": (0, 1)}, "unbind": {"dim": 1},
        "tensor_split": {"indices": (1, 2), "dim": 1}, "chunk split": {"dim": 1},
        "fft_fftshift fft_ifftshift": {"dim": 1}, "cosine_similarity": {"dim": 0, "eps": 1e-3},
        "pairwise_distance": {"eps": 0.1}, "nn.functional.normalize": {"eps": 1e-3},
        "nn.functional.linear": {"weight": Y[:3]},
        "nn.functional.layer_norm nn.functional.rms_norm": {"weight": W, "bias": V, "eps": 0.1},
        "nn.functional.embedding": {"input": CLASSES % 3, "weight": X},
        "nn.functional.mse_loss nn.functional.l1_loss nn.functional.huber_loss": {"weight": Y},
        "nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits":
            {"weight": Y},
        "nn.functional.nll_loss nn.functional.cross_entropy": {"target": CLASSES, "weight": W},
        "nn.functional.softplus": {"beta": 2, "threshold": 1},
        "nn.functional.pad": {"mode": "reflect", "value": 0.5},
        "nn.functional.smooth_l1_loss": {"beta": 0.5},
        "linalg_cholesky linalg_eigvalsh": {"input": SQUARE @ SQUARE.T},
        "take_along_dim": {"indices": CLASSES[:, None]},
        "repeat_interleave": {"repeats": 2, "dim": 1},
    }  # fmt: skip
    VALUES |= {
        (name, parameter): value
        for names, given in OF.items()
        for name in names.split()
        for parameter, value in given.items()
    }

NOT_CALLED = {
    "empty_like",  # any numbers
    *("special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 heaviside "
      "special_modified_bessel_i0 special_modified_bessel_i1 special_gammainc special_gammaincc "
      "special_zeta floor_divide").split(),  # torch has no derivative
    "nn.functional.dropout",  # refused where it drops something
    "linalg_eig", "linalg_eigh", "linalg_svd", "linalg_qr",  # vectors up to a sign
    "celu", "selu", "hardshrink",  # under their other names
    "nn.functional._threshold", "nn.functional.log_sigmoid", "clone", "detach", "astype",
}  # fmt: skip

REFUSED = {
    "nn.functional.pad": "mode",
    "nn.functional.cross_entropy": "label_smoothing",  # of classes
}
"""What is refused, and by which functions."""

LOST = {("nn.functional.l1_loss", "weight")}
"""What torch does not hand over to tensors that are not its own."""

Call = Callable[..., Any]


def ways(name: str) -> Iterator[list[Parameter]]:
    """Yield the parameters of each way to call a function that returns its result."""
    function = public(name)
    if inspect.isfunction(function):
        own = inspect.signature(function).parameters.values()
        if not any(p.kind is p.VAR_POSITIONAL for p in own):
            yield [(p.name, p.default, p.kind is p.KEYWORD_ONLY) for p in own]
        return
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name.rpartition('.')[2]}"):
        arguments = [a for a in schema.arguments if not a.is_out]
        is_of_tensors = any(str(a.type) in ("Tensor", "List[Tensor]") for a in arguments)
        if len(arguments) == len(schema.arguments) and is_of_tensors:
            yield [
                ("input" if a.name == "self" else a.name,
                 a.default_value if a.has_default_value() else EMPTY, a.kwarg_only)
                for a in arguments
            ]  # fmt: skip


def value_of(name: str, parameter: str) -> Any:
    return VALUES.get((name, parameter), VALUES.get(parameter))


def rows() -> Iterator[tuple[str, str, str, Call, tuple[Any, ...]]]:
    """Yield functions, parameters, how they are given, calls, and the arguments by place."""
    for name, found in TORCH.functions.items():
        function = public(name)
        if name in NOT_CALLED or not found.parameters or function is None:
            continue
        for parameters in ways(name):
            needed = [n for n, default, last in parameters if default is EMPTY and not last]
            by_name = [n for n, default, last in parameters if default is EMPTY and last]
            fixed = {n: value_of(name, n) for n in by_name}
            call = functools.partial(function, **fixed)
            args = tuple(value_of(name, n) for n in needed)
            yield name, "", "alone", call, args
            yield from optional_rows(name, parameters, call, args)


def optional_rows(
    name: str, parameters: list[Parameter], call: Call, args: tuple[Any, ...]
) -> Iterator[tuple[str, str, str, Call, tuple[Any, ...]]]:
    for at, (parameter, default, last) in enumerate(parameters):
        if default is EMPTY:
            continue
        yield name, parameter, "default", functools.partial(call, **{parameter: default}), args
        value = value_of(name, parameter)
        if value is None:
            continue
        yield name, parameter, "name", functools.partial(call, **{parameter: value}), args
        if not last:
            between = (*(d for _, d, _ in parameters[len(args) : at]), value)
            yield name, parameter, "place", _placed(call, between), args


def _placed(call: Call, rest: tuple[Any, ...]) -> Call:
    return lambda *args: call(*args, *rest)


def parts(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [part for each in value for part in parts(each)]
    return [value]


def weighted(found: list[Any]) -> Any:
    """Return the sum of all floats, each with a weight of its own, of complex ones the squares."""
    total = 0.0
    for part in found:
        if not (part.dtype.is_floating_point or part.dtype.is_complex):
            continue
        part = abs(part) ** 2 if part.dtype.is_complex else part
        weights = torch.cos(1.0 + torch.arange(float(part.numel()), dtype=torch.float64))
        total = total + (part * weights.reshape(tuple(part.shape))).sum()
    return total


def compared(call: Call, args: tuple[Any, ...]) -> str | None:
    """Return what differs from torch's value, or from its derivative."""
    at = [
        i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and a.dtype.is_floating_point
    ]
    seen: list[Any] = []

    def loss(*operands: Any) -> Any:
        given = dict(enumerate(args)) | dict(zip(at, operands, strict=True))
        found = parts(call(*given.values()))
        seen[:] = [part.detach() for part in found]
        return weighted(found) + sum(0.0 * o.sum() for o in operands)

    if not at:
        return None
    moved = [args[i].detach().clone().requires_grad_() for i in at]
    value = loss(*moved)
    want = list(seen)
    slopes = torch.autograd.grad(value, moved)
    gradients = mixad.grad(loss, argnums=tuple(range(len(at))))(*(args[i] for i in at))
    for got, w in zip(seen, want, strict=True):
        if (got.dtype, tuple(got.shape)) != (w.dtype, tuple(w.shape)):
            return f"{got.dtype}{tuple(got.shape)} for {w.dtype}{tuple(w.shape)}"
        if not torch.allclose(got, w, rtol=1e-9, atol=1e-12, equal_nan=True):
            return f"{got} for {w}"
    for got, w in zip(gradients, slopes, strict=True):
        if not torch.allclose(got, w, rtol=1e-7, atol=1e-11, equal_nan=True):
            return f"derivative {got} for {w}"
    return None


def test_every_optional_parameter_of_torchs_functions_is_taken_or_refused() -> None:
    different, count, refused = [], 0, 0
    for name, parameter, how, call, args in rows():
        try:
            call(*args)
        except Exception:
            refused += 1  # by torch
            continue
        count += 1
        try:
            found = compared(call, args)
        except TracerError as error:
            is_listed = parameter in REFUSED.get(name, "").split() and how != "default"
            found = None if is_listed else f"refused: {str(error)[:150]}"
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[:150]}"
        if found is not None and (name, parameter) not in LOST:
            different.append((name, parameter, how, found[:300]))
    assert not different
    assert count > 1000
    assert refused < 80
