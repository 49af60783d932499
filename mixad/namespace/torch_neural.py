"""The functions of ``torch.nn.functional``, by the names that torch's table has them under."""

from __future__ import annotations

from collections.abc import Mapping

from mixad.namespace.spelling import BoundFunction
from mixad.namespace.torch_activations import TORCH_ACTIVATIONS
from mixad.namespace.torch_layers import TORCH_LAYERS
from mixad.namespace.torch_losses import TORCH_LOSSES

__all__ = ["TORCH_NEURAL"]

_FUNCTIONS = {**TORCH_ACTIVATIONS, **TORCH_LOSSES, **TORCH_LAYERS}

_BOTH = frozenset(("celu", "selu"))
_ITS_OWN = frozenset(("cosine_similarity", "hardshrink", "pairwise_distance"))
"""Functions that have their names in `torch` itself, not in `torch.nn.functional`."""

TORCH_NEURAL: Mapping[str, BoundFunction] = {
    **{f"nn.functional.{name}": f for name, f in _FUNCTIONS.items() if name not in _ITS_OWN},
    **{name: f for name, f in _FUNCTIONS.items() if name in _BOTH | _ITS_OWN},
}
