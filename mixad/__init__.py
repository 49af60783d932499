"""mixad: reverse mode over the program, forward mode inside every broadcast."""

__version__ = "0.1.0.dev0"

from mixad.api import grad, stop_gradient, value_and_grad, value_and_vjp, vjp
from mixad.broadcast import BroadcastFunction, broadcast
from mixad.scalar.dual import DualChunk

__all__ = [
    "BroadcastFunction",
    "DualChunk",
    "__version__",
    "broadcast",
    "grad",
    "stop_gradient",
    "value_and_grad",
    "value_and_vjp",
    "vjp",
]
