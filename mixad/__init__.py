"""mixad: reverse mode over the program, forward mode inside every broadcast."""

from mixad import pytree, special
from mixad.api import grad, stop_gradient, value_and_grad, value_and_vjp, vjp
from mixad.broadcast import BroadcastFunction, broadcast
from mixad.scalar.dual import DualChunk
from mixad.version import __version__

__all__ = [
    "BroadcastFunction",
    "DualChunk",
    "__version__",
    "broadcast",
    "grad",
    "pytree",
    "special",
    "stop_gradient",
    "value_and_grad",
    "value_and_vjp",
    "vjp",
]
