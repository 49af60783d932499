"""The reference backend: kernels as array-API calls, for arrays of any library.

It compiles nothing.  It serves what no other backend serves, and every backend can be compared with
it; it is slow, because each op of a program is a pass over memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from mixad.backends.hookspecs import ANY, API_VERSION, Backend, BackendSpec, Capability, hookimpl
from mixad.scalar.ir import UpdateKind
from mixad.scalar.types import STORED_TYPES

__all__ = ["mixad_backends"]


def _load() -> Backend:
    from mixad.backends.reference.backend import ReferenceBackend

    return ReferenceBackend()


@hookimpl
def mixad_backends() -> Sequence[BackendSpec]:
    """Return the spec of the reference backend."""
    dtypes = frozenset(type.dtype_name for type in STORED_TYPES)
    updates = frozenset(get_args(UpdateKind))
    capability = Capability((ANY,), (ANY,), dtypes, native=False, accumulates=updates)
    hint = "it needs nothing beyond mixad"
    return [BackendSpec("reference", API_VERSION, capability, _load, hint)]
