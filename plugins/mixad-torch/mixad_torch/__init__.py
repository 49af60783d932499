"""The mixad backend for CUDA tensors of PyTorch.

Importing this module imports no torch; asking the registry for the backend does, and reports
whatever that raises together with the hint below.
"""

from __future__ import annotations

from mixad.backends.hookspecs import API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.errors import BackendError

__all__ = ["mixad_backends"]


@hookimpl
def mixad_backends() -> list[BackendSpec]:
    """Announce the backend ``torch``.

    Returns
    -------
    list of BackendSpec
        One spec.
    """
    integers = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
    dtypes = frozenset({"bool", "float32", "float64", *integers})
    capability = Capability(("torch",), ("cuda",), dtypes, native=True)
    hint = "it needs a CUDA device and a build of torch for it, with cuda-bindings"
    return [BackendSpec("torch", API_VERSION, capability, _load, hint)]


def _load() -> Backend:
    import torch

    if not torch.cuda.is_available():
        raise BackendError(f"torch {torch.__version__} finds no CUDA device")
    from mixad.backends.cuda import CudaBackend
    from mixad_torch.driver import TorchDriver

    return CudaBackend("torch", TorchDriver())
