"""The mixad backend for CUDA tensors of PyTorch, and mixad's kernels in torch's autograd.

Importing this module imports no torch; asking the registry for the backend does, and reports
whatever that raises together with the hint below. The integration is loaded where torch is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mixad.backends.hookspecs import (
    API_VERSION,
    Backend,
    BackendSpec,
    Capability,
    Integration,
    IntegrationSpec,
    hookimpl,
)
from mixad.errors import BackendError

if TYPE_CHECKING:
    import torch

__all__ = ["functional_call", "mixad_backends", "mixad_integrations"]


def functional_call(
    module: torch.nn.Module, params_and_buffers: Mapping[str, Any], *args: Any, **kwargs: Any
) -> Any:
    """Call a module of torch with other parameters and buffers, as `torch.func.functional_call`.

    In a transform of mixad the whole module is one operation, recorded with torch's own derivative:
    inside of it are tensors and parameters of torch.  What it does at random, and what it writes to
    its buffers, happens once a call.

    Parameters
    ----------
    module : torch.nn.Module
        The module.
    params_and_buffers : mapping
        Tensors by their names in the module.  Those of parameters that require grad have to be
        there; buffers that are not are the module's own.
    *args, **kwargs
        What the module takes: pytrees of tensors.

    Returns
    -------
    tensor or pytree
        What the module returns.

    Raises
    ------
    TracerError
        If a parameter that requires grad is not given, or the module does what torch does not
        differentiate.

    Examples
    --------
    >>> import mixad, torch
    >>> layer = torch.nn.Linear(3, 1)
    >>> parameters = {name: p.detach() for name, p in layer.named_parameters()}
    >>> loss = lambda parameters, x: functional_call(layer, parameters, x).sum()
    >>> mixad.grad(loss)(parameters, torch.ones(2, 3))["bias"]
    tensor([2.])
    """
    from mixad_torch.borrow import functional_call

    return functional_call(module, params_and_buffers, args, kwargs)


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``torch``."""
    integers = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    floats = {"bfloat16", "float16", "float32", "float64"}
    dtypes = frozenset({"bool", *floats, *integers})
    capability = Capability(
        ("torch",),
        ("cuda",),
        dtypes,
        native=True,
        writes_parts=True,
        stores_beside=True,
        accumulates=frozenset({"add", "min", "max", "write"}),
    )
    hint = "it needs a CUDA device and a build of torch for it, with cuda-bindings"
    return [BackendSpec("torch", API_VERSION, capability, _load, hint)]


@hookimpl
def mixad_integrations() -> list[IntegrationSpec]:
    """Announce the integration with torch's autograd."""
    return [IntegrationSpec("torch", API_VERSION, "torch", _integrate)]


def _integrate() -> Integration:
    from mixad_torch.autograd import TorchIntegration

    return TorchIntegration()


def _load() -> Backend:
    import torch

    if not torch.cuda.is_available():
        raise BackendError(f"torch {torch.__version__} finds no CUDA device")
    from mixad.backends.cuda import CudaBackend
    from mixad_torch.driver import TorchDriver

    return CudaBackend("torch", TorchDriver())
