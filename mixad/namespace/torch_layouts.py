"""Strides of traced tensors as torch would have them: what ``view`` and ``contiguous`` ask for.

Kernels write row by row, while torch's functions of elements keep the order of their operands'
axes.  So what is in memory tells of arrays that came in, of what torch computes, and of views of
these; of other values torch is asked, on ``meta`` tensors that are laid out as the operands.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, TypeAlias

from mixad.scalar.ops import BY_NAME
from mixad.tape.cell import Cell
from mixad.tape.held import Held
from mixad.tape.kernel_node import KernelNode
from mixad.tape.node import InputNode, Node, Rule, RuleNode, apply_rule, waiting_view
from mixad.tape.tracer import Origin, Tracer
from mixad.tape.values_rule import ValuesNode

__all__ = ["as_contiguous", "copied_in", "layout_of"]

_MAX_NODES = 64
"""Nodes that are looked through; what is before them counts as contiguous."""

_OF_ELEMENTS = frozenset((*BY_NAME, "astype", "square"))
"""Kernels whose results are laid out as their operands are."""

_CONTIGUOUS: weakref.WeakSet[KernelNode] = weakref.WeakSet()
"""The last kernels of functions that are made of several."""

_Layout: TypeAlias = Any
"""A tensor on the device ``meta``."""

_Seen: TypeAlias = dict[tuple[int, int], _Layout | None]
"""What is known of outputs of nodes."""


def layout_of(x: Any) -> _Layout:
    """Return a tensor without elements that has the shape, dtype and strides of another."""
    if not isinstance(x, Tracer):
        return _in_memory(x)
    found = _of_origin(x.origin, {})
    return waiting_view(x.cell, _of_cell) if found is None else found


def as_contiguous(x: Any) -> Any:
    """Return a function's result, no view, as torch has it: contiguous, however it was made."""
    if not isinstance(x, Tracer) or x.state is not None or x.sharing is not None:
        return x
    node = x.origin.node
    if isinstance(node, KernelNode):
        _CONTIGUOUS.add(node)
    is_view = isinstance(node, RuleNode) and node.rule.is_view
    if not is_view or layout_of(x).is_contiguous():
        return x
    return copied_in(sys.modules["torch"].contiguous_format, x)


def copied_in(memory_format: Any, x: Any) -> Any:
    """Return a copy with its elements in such an order in memory."""
    return apply_rule(_COPY, x, memory_format=memory_format)


_COPY = Rule(
    "clone",
    lambda xp, x, memory_format: x.clone(memory_format=memory_format),
    (lambda g, x, memory_format: g,),
    linear="each",
    shape=lambda xp, own, memory_format: own,
    is_view=True,  # it waits as one does, and tells of its strides
)


def _of_origin(origin: Origin | None, seen: _Seen) -> _Layout | None:
    """Return the layout of what came from somewhere; None where memory tells."""
    if origin is None:
        return None
    key = id(origin.node), origin.output
    if key not in seen:
        is_far = len(seen) >= _MAX_NODES
        seen[key] = None
        seen[key] = _of_node(origin.node, origin.output, seen, is_far)
    return seen[key]


def _of_node(node: Node, output: int, seen: _Seen, is_far: bool) -> _Layout | None:
    """Return the layout of what a node makes; contiguous ones after several steps, or too many."""
    if isinstance(node, InputNode):
        return None if is_far else _of_origin(node.parents[0], seen)
    if isinstance(node, (RuleNode, ValuesNode)):
        result = node.results[output]
        parents = () if is_far else node.parents
        known = [x for x in [_of_origin(parent, seen) for parent in parents] if x is not None]
        if known and isinstance(node, RuleNode) and node.rule.is_view:
            return node.rule.evaluate(result.kind.library.xp, *known, **node.static)
        return _empty(result.shape) if known or is_far else None
    if not isinstance(node, KernelNode):
        return None
    result, name = node.results[output], node.call.name
    is_power_of_number = name == "pow" and node.call.kinds[0] == "uniform"
    is_sum = node.outputs[output].shape is not None
    if is_far or is_sum or is_power_of_number or node in _CONTIGUOUS or name not in _OF_ELEMENTS:
        return _empty(result.shape)
    return _of_elements(node, seen)


def _of_elements(node: KernelNode, seen: _Seen) -> _Layout:
    """Return the layout of what a function of elements gives: torch's for these operands."""
    operands: list[_Layout] = []
    for index, kind in enumerate(node.call.kinds):
        if kind == "lane":
            found = _of_origin(node.parents[index], seen)
            found = _of_source(node.source(index)) if found is None else found
            operands += [] if found is None else [found]
    if node.call.name == "astype" and operands:
        return operands[0].to(sys.modules["torch"].int8)  # any dtype that is no float
    start = _empty(())
    if node.call.name == "where":  # its condition may have been computed of what is in memory
        chosen: _Layout = sum(operands[1:], start)
        return chosen if chosen.is_contiguous() else sum(operands, start)
    return sum(operands, start)


def _of_source(source: Any) -> _Layout | None:
    """Return the layout of an operand that memory tells of; None of numbers."""
    if isinstance(source, Cell):
        return waiting_view(source, _of_cell) if source.library.name == "torch" else None
    array = source.array if isinstance(source, Held) else None
    return _in_memory(array) if isinstance(array, sys.modules["torch"].Tensor) else None


def _of_cell(cell: Cell) -> _Layout:
    if cell.pending is None:
        return _in_memory(cell.value)
    dtype = cell.library.dtype_of(cell.type)
    return cell.library.xp.empty(cell.shape, dtype=dtype, device="meta")


def _empty(shape: tuple[int, ...]) -> _Layout:
    return sys.modules["torch"].empty(shape, device="meta")


def _in_memory(x: Any) -> _Layout:
    torch = sys.modules["torch"]
    if x.layout != torch.strided or x.is_nested:
        return x.detach().to("meta")
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
