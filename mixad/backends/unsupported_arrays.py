"""Which arrays kernels do not take, and what to pass instead."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from mixad.backends.array_memory import Array
from mixad.errors import KernelTypeError, TracerError

__all__ = ["arrays_of", "check_dense", "check_no_tracer", "check_single", "check_untracked",
           "has_tangent", "is_plain", "more_than_an_array", "name_of", "other_blocks",
           "plain_block", "without_memory"]  # fmt: skip


def is_plain(value: object) -> bool:
    """Whether a value is a number or a NumPy array without any further meaning."""
    return type(value) in _PLAIN or isinstance(value, (np.generic, bool, int, float, complex))


_PLAIN = {np.ndarray, np.memmap}


def plain_block(block: object, what: str) -> object:
    """Return a block of a lazy array; refuse one that means more than an array."""
    if not is_plain(block):
        name = name_of(type(block))
        raise other_blocks(f"{what}: a block of a lazy array is a {name}", block)
    return block


def other_blocks(problem: str, block: object) -> KernelTypeError:
    """Return the error for blocks of a lazy array that are more than arrays."""
    return KernelTypeError(
        f"{problem}: kernels compute on blocks that are NumPy arrays, and results would be such",
        hint=_way_to_plain(type(block), "x.map_blocks(lambda x: {})"),
    )


def name_of(kind: type) -> str:
    """Return what users call a type."""
    return f"{kind.__module__}.{kind.__qualname__}"


def _way_to_plain(kind: type, through: str = "{}") -> str:
    """Return how users convert values of such a type to plain arrays."""
    if issubclass(kind, np.ma.MaskedArray):
        filled, mask = (through.format(f"numpy.ma.{f}(x)") for f in ("filled", "getmaskarray"))
        return f"pass values and mask as two arrays: {filled} and {mask}"
    way = next((way for name, way in _WAYS.items() if hasattr(kind, name)), "numpy.asarray(x)")
    return f"convert it: {through.format(way)}"


_WAYS = {
    "todense": "x.todense()",  # of sparse arrays
    "magnitude": "x.magnitude",  # of pint
    "get": "x.get()",  # of CuPy
    "numpy": "x.numpy()",  # of tensors
}
"""How to make a plain array of one that is more, by an attribute that such arrays have."""


def check_dense(tensor: Array) -> None:
    """Refuse a tensor that is no block of memory with a stride for each axis."""
    if tensor.is_nested or tensor.layout is not sys.modules["torch"].strided:
        kind = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise KernelTypeError(
            f"a torch tensor of the kind {kind} is not supported: kernels take dense tensors",
            hint="convert it: x.to_padded_tensor(0.0)" if tensor.is_nested else "pass x.to_dense()",
        )


def check_single(array: Array) -> None:
    """Refuse an array of JAX whose elements lie on several devices."""
    if array.sharding.num_devices > 1:
        raise KernelTypeError(
            f"a JAX array that lies on {array.sharding.num_devices} devices is not supported",
            hint="pass it on one: jax.device_put(x, jax.devices()[0])",
        )


def check_untracked(tensor: Array) -> None:
    """Refuse a tensor without elements, and one that torch tracks beyond what is looked at."""
    if tensor.is_meta:
        raise KernelTypeError(
            "a torch tensor on the device 'meta' has a shape but no elements",
            hint="pass a tensor with elements: torch.empty_like(x, device='cpu')",
        )
    torch = sys.modules["torch"]
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):  # of an integration: see `adopt`
        raise TracerError(
            f"a {type(tensor).__name__} of torch stands for a tensor that is not there yet: only "
            "calls of kernels outside of mixad's transforms are traced by torch"
        )
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):  # no public name tells it
        raise TracerError(
            "transforms of torch.func (grad, jvp, vmap, ...) do not see what happens here: "
            "differentiate with mixad.grad; outside of it, the plugin mixad-torch lets grad and "
            "vjp of torch.func see calls of kernels"
        )
    if tensor.requires_grad:
        raise TracerError(
            "a torch tensor that requires grad would be silently detached here: pass "
            "tensor.detach(); outside of mixad's transforms, the plugin mixad-torch records calls "
            "of kernels for torch, and inside of them its functional_call(module, parameters, x) "
            "differentiates a module"
        )
    if has_tangent(torch.autograd.forward_ad, tensor):
        raise TracerError(
            "a torch dual tensor would silently lose its tangent here: pass "
            "torch.autograd.forward_ad.unpack_dual(tensor).primal, or differentiate with mixad.jvp"
        )


def check_no_tracer(kind: type) -> None:
    """Refuse a value that another differentiation or compilation system follows."""
    for name, owner, tracer in _TRACERS:
        module = sys.modules.get(owner)
        if module is not None and issubclass(kind, getattr(module, tracer)):
            raise TracerError(
                f"transforms of {name} do not see what happens here, so the {kind.__name__} of "
                f"{name} would be silently detached: pass plain arrays and differentiate with "
                f"mixad.grad, or write this part of the function with {name}{_SEEN.get(name, '')}"
            )


_TRACERS = (("jax", "jax.core", "Tracer"), ("autograd", "autograd.tracer", "Box"))
"""Library, module and class of the values inside other libraries' transforms."""

_SEEN = {
    "jax": "; outside of mixad's transforms, the plugin mixad-jax lets JAX see calls of kernels"
}
"""What lets a library see what happens here."""


def more_than_an_array(kind: type, hint: str | None = None) -> KernelTypeError:
    """Return the error for a type of arrays whose operations mean something else."""
    return KernelTypeError(
        f"{name_of(kind)} is not supported: it is more than an array, and "
        "results would be plain arrays",
        hint=hint or _way_to_plain(kind),
    )


def arrays_of(value: object) -> str | None:
    """Return how users pass the arrays in an object with labels; None if it is no such object."""
    root = type(value).__module__.partition(".")[0]
    if root == "xarray":
        if hasattr(value, "data_vars"):
            return 'pass its variables: x["name"].data'
        return 'pass x.data, or call xarray.apply_ufunc(f, x, dask="allowed")'
    if root in ("pandas", "polars"):
        has_columns = hasattr(value, "columns")
        return 'pass its columns: x["name"].to_numpy()' if has_columns else "pass x.to_numpy()"
    return None


def without_memory(kind: type) -> KernelTypeError:
    """Return the error for a type of arrays whose memory NumPy cannot view."""
    if hasattr(kind, "compute"):
        root = kind.__module__.partition(".")[0]
        return KernelTypeError(
            f"{name_of(kind)} is not supported: its elements are not there yet, and of lazy "
            "arrays kernels take Dask's and Cubed's",
            hint=f"let {root} call the kernel on blocks: {root}.map_blocks(f, x, dtype=x.dtype)",
        )
    return KernelTypeError(
        f"{name_of(kind)} is not supported: it has no memory with an element for each index",
        hint=_way_to_plain(kind),
    )


def has_tangent(forward_ad: Any, tensor: Array) -> bool:
    """Whether torch's forward mode follows a tensor; each is asked only while that is on."""
    is_off = getattr(forward_ad, "_current_level", 0) < 0
    return not is_off and forward_ad.unpack_dual(tensor).tangent is not None
