"""Sums to smaller shapes and views in larger ones, each the other's adjoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from mixad.backends.arrays import library_of
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.dtypes import is_complex_dtype, scalar_type_of
from mixad.scalar.ir import Program
from mixad.scalar.types import ScalarType
from mixad.tape.kernel_call import KernelCall, Shape
from mixad.tape.kernel_node import KernelNode, record
from mixad.tape.node import Rule, apply_rule, shape_of_view
from mixad.tape.tracer import Origin, Tracer, check_alive, strand_of

__all__ = ["broadcast_to", "sum_to"]


def sum_to(x: Any, shape: Shape) -> Any:
    """Sum floats or complex numbers over the axes that a shape lacks or has with extent 1.

    The kernel of a pending array sums it and need not store it.
    """
    if tuple(x.shape) == shape:
        return x
    strand = strand_of((x,))
    if strand is not None:
        return strand.call(_applied, "sum_to", (x, shape), {}, is_primitive=True)
    is_traced = isinstance(x, Tracer)
    if x.cell.type.is_complex if is_traced else is_complex_dtype(x.dtype):
        return apply_rule(_COMPLEX_SUM, x, shape=shape)
    if not is_traced:
        return _summing(scalar_type_of(x.dtype), shape).kernel((x,))[0]
    check_alive(x)
    node = x.origin.node
    # What comes through another node or transform has an origin of its own, and so must its sum:
    # one origin is one value.
    if isinstance(node, KernelNode) and x.cell.pending is node:
        total = node.total(x.cell, shape)
        if total is not None:
            return type(x)(total, Origin(node, total.output, x.origin.levels))
    return record(_summing(x.cell.type, shape), (x,))[0].traced(0)


def _applied(_: str, args: Sequence[Any], __: Mapping[str, Any]) -> Any:
    return sum_to(*args)


def broadcast_to(x: Any, shape: Shape) -> Any:
    """Return a view of an array in a larger shape; its cotangent is summed back."""
    return x if tuple(x.shape) == shape else apply_rule(_BROADCAST_TO, x, shape=shape)


def _broadcast(xp: Any, x: Any, shape: Shape) -> Any:
    return library_of(x).broadcast_to(x, shape)


_BROADCAST_TO = Rule(
    "broadcast_to",
    _broadcast,
    (lambda g, x, shape: sum_to(g, x.shape),),
    linear="each",
    shape=shape_of_view(_broadcast),
    is_view=True,
    moves=True,
)


def _summed(xp: Any, x: Any, shape: Shape) -> Any:
    """Sum complex numbers, which kernels do not, as the library does."""
    added = x.ndim - len(shape)
    kept = (i for i, n in enumerate(shape, added) if n == 1 and x.shape[i] != 1)
    return xp.reshape(xp.sum(x, axis=(*range(added), *kept), dtype=x.dtype), shape)


_COMPLEX_SUM = Rule(
    "sum",
    _summed,
    (lambda g, x, shape: broadcast_to(g, tuple(x.shape)),),
    linear="each",
)


@lru_cache(maxsize=1024)
def _summing(type: ScalarType, shape: Shape) -> KernelCall:
    return KernelCall((_identity(type),), (OutputRequest(0, 0, shape),))


@cache
def _identity(type: ScalarType) -> Program:
    builder = Builder("sum")
    return builder.finish([builder.param("x", type)])
