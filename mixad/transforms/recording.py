"""The tape of a function's call, for people: as text, and as a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from mixad.call.signature import Function, TransformedFunction, check_callable
from mixad.tape.kernel_node import KernelNode
from mixad.tape.materialize import kernel_of
from mixad.tape.node import InputNode, Node, Result
from mixad.tape.operations import Static
from mixad.tape.tracer import Level, Origin, Tracer
from mixad.tape.values_rule import ValuesNode
from mixad.transforms.call_node import CallNode
from mixad.transforms.recorded_calls import recorded

__all__ = ["Entry", "Tape", "tape"]


@dataclass(frozen=True)
class Entry:
    """One operation.

    Attributes
    ----------
    name : str
        What was done: ``"input"``, ``"kernel"``, or the name of a function.
    reads : tuple of int
        Positions in the tape of what it reads that is differentiated.
    value : str
        dtype and shape of what came of it.
    program : str
        Of a kernel, what is computed at every element; of a loop, how many steps there are, what is
        done in each, and how many carries are kept for the derivative; of a call whose derivative
        is that of another library, which; otherwise empty.
    """

    name: str
    reads: tuple[int, ...]
    value: str
    program: str = ""


@dataclass(frozen=True)
class Tape:
    """What was recorded, each operation after those that it reads.

    Attributes
    ----------
    entries : tuple of Entry
        The operations that depend on the arguments and that the value depends on.
    outputs : tuple of int
        Those that made the leaves of the value; none for leaves that do not depend on arguments.
    """

    entries: tuple[Entry, ...]
    outputs: tuple[int, ...]

    def __str__(self) -> str:
        lines = []
        for number, entry in enumerate(self.entries):
            reads = ", ".join(f"@{at}" for at in entry.reads)
            lines.append(f"@{number} {entry.value} = {entry.name}({reads})")
            lines += [f"    {line}" for line in entry.program.splitlines()]
        returned = ", ".join(f"@{at}" for at in self.outputs)
        return "\n".join([*lines, f"return {returned}"])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        import html  # in notebooks only

        return f"<pre>{html.escape(str(self))}</pre>"

    def to_dot(self) -> str:
        """Return the graph in the language of Graphviz: ``dot -Tsvg`` draws it.

        Returns
        -------
        str
            A directed graph: a node for each operation, an edge for each that it reads.
        """
        lines = ["digraph tape {", "  node [shape=box, fontname=monospace];"]
        for number, entry in enumerate(self.entries):
            text = f"{entry.name}\n{entry.value}\n{entry.program}".rstrip("\n")
            lines.append(f'  n{number} [label="{_dot_text(text)}"];')
            lines += [f"  n{at} -> n{number};" for at in entry.reads]
        for index, at in enumerate(self.outputs):
            lines += [f'  r{index} [label="return", shape=plaintext];', f"  n{at} -> r{index};"]
        return "\n".join([*lines, "}"])


def tape(f: Function) -> Callable[..., Tape]:
    """Return the function that records a call of ``f``, as transforms do, and returns the tape.

    Kernels are those that would be launched if the value was asked for, and nothing had been
    before: operations that fuse are one, and what several kernels compute is in each. For those of
    a gradient, record that: ``mixad.tape(mixad.grad(f))``.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.

    Returns
    -------
    callable
        Takes what ``f`` takes, every leaf a float or complex array or number; returns a `Tape`.

    Raises
    ------
    TracerError
        If ``f`` is no function, or a leaf of an argument is no float.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> print(mixad.tape(lambda x: (x[1:] * x[:-1]).sum())(np.ones(3)))
    @0 f64[3] = input()
    @1 f64[2] = indexing(@0)
    @2 f64[2] = indexing(@0)
    @3 f64[] = kernel(@1, @2)
        program mul(%0 x: f64 lane, %1 y: f64 lane)
          %2:f64 = mul %0, %1
          return %2
    return @3
    """
    check_callable("tape", f)

    def recording(*args: Any, **kwargs: Any) -> Tape:
        call, _ = recorded("tape", f, args, False, kwargs=kwargs)
        cells = zip(map(id, call.inputs.nodes), call.inputs.cells, strict=True)
        inputs = {node: [Result(c.shape, c.kind, c.device)] for node, c in cells}
        return _taped(call.level, call.outputs.leaves, inputs)

    return TransformedFunction(recording, f, tape)


def _taped(level: Level, leaves: list[Any], inputs: Mapping[int, Sequence[Result]]) -> Tape:
    """Return the tape of some values; ``inputs`` has the results of inputs by the ids of nodes."""
    tracers = [leaf for leaf in leaves if isinstance(leaf, Tracer)]
    origins = [t.origin for t in tracers if level in t.origin.levels]
    reads = _reads(level, origins)
    order = _inputs_first(reads, origins)
    numbers = {id(node): number for number, node in enumerate(order)}
    read = {(id(p.node), p.output) for p in chain(origins, *reads.values())}
    entries = []
    for node in order:
        results = inputs.get(id(node)) or node.results
        value = [_shown(r) for at, r in enumerate(results) if (id(node), at) in read]
        sources = tuple(dict.fromkeys(numbers[id(p.node)] for p in reads[id(node)]))
        entries.append(Entry(node.name, sources, ", ".join(value), _program(node)))
    return Tape(tuple(entries), tuple([numbers[id(origin.node)] for origin in origins]))


def _reads(level: Level, origins: list[Origin]) -> dict[int, list[Origin]]:
    """Return the nodes that each node reads, by ids; a kernel node stands for its kernel."""
    found: dict[int, list[Origin]] = {}
    left = [origin.node for origin in origins]
    while left:
        node = left.pop()
        if id(node) not in found:
            read = [p for p in _sources(node, level) if p is not None and level in p.levels]
            found[id(node)] = list({(id(p.node), p.output): p for p in read}.values())
            left += [p.node for p in read]
    return found


def _sources(node: Node, level: Level) -> Any:
    if isinstance(node, InputNode) and node.level is level:
        return ()
    return kernel_of(node)[1] if isinstance(node, KernelNode) else node.parents


def _inputs_first(reads: dict[int, list[Origin]], origins: list[Origin]) -> list[Any]:
    """Return the nodes, each after those that it reads."""
    order: dict[int, Any] = {}
    stack: list[tuple[Any, bool]] = [(origin.node, False) for origin in reversed(origins)]
    while stack:
        node, is_ready = stack.pop()
        if id(node) in order:
            continue
        if is_ready:
            order[id(node)] = node
        else:
            stack.append((node, True))
            stack += [(p.node, False) for p in reversed(reads[id(node)])]
    return list(order.values())


def _shown(result: Result) -> str:
    return f"{result.kind.type}{list(result.shape)}"


def _program(node: Node) -> str:
    if isinstance(node, CallNode):
        return f"borrowed from {node.rule.borrowed_from}" if node.rule.borrowed_from else ""
    if isinstance(node, ValuesNode):
        values = [cell.value for cell in node.cells]
        parts = [each for each in node.static.values() if isinstance(each, Static)]
        return "\n".join(filter(None, [part.describe(values) for part in parts]))
    return str(kernel_of(node)[0].fused.program) if isinstance(node, KernelNode) else ""


def _dot_text(text: str) -> str:
    """Return text as the label of a node, its lines to the left."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return escaped.replace("\n", "\\l") + "\\l"
