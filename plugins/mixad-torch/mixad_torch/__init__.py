"""The mixad backend for CUDA tensors of PyTorch, and mixad's kernels in torch's autograd.

Importing this module imports no torch; asking the registry for the backend does, and reports
whatever that raises together with the hint below. The integration is loaded where torch is.
"""

from __future__ import annotations

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

__all__ = ["mixad_backends", "mixad_integrations"]


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``torch``.

    Returns
    -------
    list of BackendSpec
        One spec.
    """
    integers = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    floats = {"bfloat16", "float16", "float32", "float64"}
    dtypes = frozenset({"bool", *floats, *integers})
    capability = Capability(("torch",), ("cuda",), dtypes, native=True)
    hint = "it needs a CUDA device and a build of torch for it, with cuda-bindings"
    return [BackendSpec("torch", API_VERSION, capability, _load, hint)]


@hookimpl
def mixad_integrations() -> list[IntegrationSpec]:
    """Announce the integration with torch's autograd.

    Returns
    -------
    list of IntegrationSpec
        One spec.
    """
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
