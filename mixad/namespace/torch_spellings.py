"""The namespace as torch spells it: imported when there is a traced tensor of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mixad.namespace.array_methods import METHODS
from mixad.namespace.common_spellings import (
    ALONG_ONE,
    ALONG_SEVERAL,
    COMMON,
    SHIFTS,
    other_names,
    unary,
)
from mixad.namespace.complex_numbers import conj, imag, real
from mixad.namespace.creation import empty_like, full_like, ones_like, tril, triu, zeros_like
from mixad.namespace.decompositions import cholesky, eig, eigh, eigvals, eigvalsh, qr, svd, svdvals
from mixad.namespace.determinants import det, slogdet
from mixad.namespace.fourier import torch_irfftn
from mixad.namespace.joining import broadcast_to, repeat, stack, tile, unstack
from mixad.namespace.linear_algebra import dot
from mixad.namespace.manipulation import expand_dims, flip, moveaxis, permute_dims, reshape, roll
from mixad.namespace.numpy_functions import of_half
from mixad.namespace.solving import inv
from mixad.namespace.spelling import BoundFunction, function_of, rename_parameters
from mixad.namespace.spellings import STANDARD
from mixad.namespace.statistical import (
    amax,
    amin,
    cumulative_prod,
    cumulative_sum,
    mean,
    prod,
    total,
)
from mixad.namespace.torch_checks import CheckedSpelling
from mixad.namespace.torch_elementwise import TORCH_ELEMENTWISE
from mixad.namespace.torch_methods import TORCH_METHODS
from mixad.namespace.torch_neural import TORCH_NEURAL
from mixad.namespace.torch_products import TORCH_PRODUCTS
from mixad.namespace.torch_reductions import TORCH_REDUCTIONS, over_all_for_none
from mixad.namespace.torch_reshape import TORCH_MOVES
from mixad.namespace.utility import diff

__all__ = ["TORCH"]


def _torch_name(function: Any) -> str | None:
    """Return the table's name of a function; methods of tensors have no module."""
    prefix = _TORCH_MODULES.get(getattr(function, "__module__", None))
    return None if prefix is None else prefix + function.__name__


def _is_torch_method(function: Any) -> bool:
    return getattr(function, "__module__", None) in (None, "torch._tensor")


_TORCH_MODULES: dict[str | None, str] = {
    **dict.fromkeys((None, "torch", "torch._tensor", "torch.functional"), ""),
    **dict.fromkeys(("torch._C._linalg", "torch._C._fft", "torch._C._special"), ""),
    **dict.fromkeys(("torch.nn.functional", "torch._C._nn"), "nn.functional."),
}
"""Modules of functions, and the prefix of their names in the table."""


_LIKE = "* dtype layout device pin_memory memory_format requires_grad"


def _bind_named(functions: Mapping[str, BoundFunction]) -> dict[str, BoundFunction]:
    """Return functions of one and of two operands with torch's names of them."""
    names = ("", "input", "input other")
    return {name: rename_parameters(f, names[len(f.parameters)]) for name, f in functions.items()}


TORCH = CheckedSpelling(
    "torch",
    _torch_name,
    {
        **_bind_named({
            **{name: function for name, function in COMMON.items() if name != "equal"},
            **other_names("torch"),
            **{op: unary(op) for op in ("sigmoid", "relu", "erf", "erfc", "lgamma", "digamma")},
        }),
        "pow": rename_parameters(COMMON["pow"], "input exponent"),
        **{f.__name__: function_of(f, "input") for f in (real, imag, conj)},
        "sum": function_of(over_all_for_none(total), "input dim keepdim * dtype"),
        "mean": function_of(over_all_for_none(mean), "input dim keepdim * dtype"),
        "prod": function_of(prod, "input dim keepdim * dtype"),
        "amax": function_of(over_all_for_none(amax), "input dim keepdim"),
        "amin": function_of(over_all_for_none(amin), "input dim keepdim"),
        "cumsum": function_of(cumulative_sum, "input dim * dtype"),
        "cumprod": function_of(cumulative_prod, "input dim * dtype"),
        "diff": function_of(diff, "input n dim prepend append"),
        "reshape": function_of(reshape, "input shape"),
        "permute": function_of(permute_dims, "input dims=axes"),
        "movedim": function_of(moveaxis, "input source destination"),
        "unsqueeze": function_of(expand_dims, "input dim"),
        "flip": function_of(flip, "input dims=axis"),
        "roll": function_of(roll, "input shifts=shift dims=axis"),
        "repeat_interleave": function_of(repeat, "input repeats dim * output_size"),
        "tile": function_of(tile, "input dims=repetitions"),
        "broadcast_to": function_of(broadcast_to, "input size=shape"),
        "stack": function_of(stack, "tensors=arrays dim"),
        "unbind": function_of(unstack, "input dim"),
        "dot": function_of(dot, "input=a tensor=b"),
        **{f"fft_{f.__name__}": function_of(f, "input n dim norm") for f in ALONG_ONE},
        **{
            f"fft_{f.__name__}": function_of(f, "input s dim=axes norm") for f in ALONG_SEVERAL
        },
        "fft_irfftn": function_of(torch_irfftn, "input s dim=axes norm"),
        **{f"fft_{f.__name__}": function_of(f, "input dim=axes") for f in SHIFTS},
        "linalg_inv": function_of(inv, "A=x"),
        "linalg_det": function_of(det, "A=x"),
        "linalg_slogdet": function_of(slogdet, "A=x"),
        "linalg_cholesky": function_of(cholesky, "input * upper"),
        "linalg_qr": function_of(qr, "A=x mode"),
        "linalg_eig": function_of(eig, "input"),
        "linalg_eigvals": function_of(eigvals, "input"),
        "linalg_eigvalsh": function_of(of_half(eigvalsh), "input UPLO=uplo"),
        "linalg_eigh": function_of(of_half(eigh), "input UPLO=uplo"),
        "linalg_svd": function_of(svd, "A=x full_matrices * driver"),
        "linalg_svdvals": function_of(svdvals, "A=x * driver"),
        "tril": function_of(tril, "input diagonal=k"),
        "triu": function_of(triu, "input diagonal=k"),
        "full_like": function_of(full_like, f"input fill_value {_LIKE}"),
        **{
            f.__name__: function_of(f, f"input {_LIKE}")
            for f in (empty_like, ones_like, zeros_like)
        },
        "astype": STANDARD.functions["astype"],
        **TORCH_ELEMENTWISE,
        **TORCH_REDUCTIONS,
        **TORCH_PRODUCTS,
        **TORCH_MOVES,
        **TORCH_NEURAL,
        **{name: TORCH_METHODS[name] for name in ("clone", "detach")},
    },
    {
        "input": "x", "other": "y", "exponent": "y", "dim": "axis", "keepdim": "keepdims",
        "a": "x", "x1": "x", "x2": "y",  # torch takes NumPy's names too
    },
    frozenset(
        "numel rand_like randn_like randint_like isclose allclose "
        "equal any all argmax argmin argsort count_nonzero nonzero is_floating_point is_complex "
        "isin searchsorted result_type linalg_matrix_rank "
        "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift "
        "logical_and logical_or logical_xor logical_not itemsize element_size nbytes "
        "is_contiguous is_nested is_sparse is_quantized is_cuda layout".split()
    ),
    methods={**METHODS, **TORCH_METHODS},
    is_method=_is_torch_method,
)  # fmt: skip
