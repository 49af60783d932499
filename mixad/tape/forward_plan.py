"""Partials with the primal: which programs compute them, and which contract them later.

Of all partials of a program only those are stored that exist nowhere else: a partial that is zero
does not exist, a constant is part of the contraction, and one that equals an argument, an output or
another partial is read there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from mixad.kernel.options import KernelOptions
from mixad.scalar.build import Builder
from mixad.scalar.contraction import contraction
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Atom, Block, Const, Kind, Program
from mixad.scalar.pushforward import pushforward
from mixad.scalar.simplify import without_dead_code
from mixad.tape.pullback_plan import PullbackPlan

if TYPE_CHECKING:
    from mixad.tape.tracer import Origin

__all__ = ["ForwardPlan", "Stored", "plan_contraction", "plan_forward"]


@dataclass(frozen=True, eq=False)
class ForwardPlan:
    """The dual programs of a broadcast.

    Attributes
    ----------
    program : Program
        The broadcast.
    passes : tuple of Program
        With the same params, one for each chunk of active inputs; all their outputs, one pass after
        the other, are the *stored* arrays.  The first are the outputs of the broadcast.
    partials : tuple of mapping
        For each output of the broadcast and each param, where the partial is: a constant, or a
        position among the arguments followed by the stored arrays.
    """

    program: Program
    passes: tuple[Program, ...]
    partials: tuple[Mapping[int, Const | int], ...]

    @property
    def read(self) -> frozenset[int]:
        """Which arguments and stored arrays are partials."""
        return frozenset(
            place for row in self.partials for place in row.values() if isinstance(place, int)
        )


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """Partials that have been made, or will be when a call runs.

    Attributes
    ----------
    plan : ForwardPlan
        Where they are.
    residuals : sequence
        The arguments, then the stored arrays: tracers, cells, held arrays and numbers; None for
        those that are no partials.
    parents : sequence of (Origin or None)
        Where the arguments came from.
    shapes : sequence of tuple
        Shapes of the arguments.
    outputs : sequence of int
        For each output of the node, which one of the broadcast it is, or is a sum of.
    """

    plan: ForwardPlan
    residuals: Sequence[Any]
    parents: Sequence[Origin | None]
    shapes: Sequence[tuple[int, ...]]
    outputs: Sequence[int]


def plan_forward(program: Program, wrt: tuple[int, ...], options: KernelOptions) -> ForwardPlan:
    """Return how a program's outputs are computed together with their partials.

    Parameters
    ----------
    program : Program
        Of the broadcast.
    wrt : tuple of int
        Params to differentiate with respect to.
    options : KernelOptions
        The user's overrides.

    Returns
    -------
    ForwardPlan
        The same object for equal arguments.
    """
    return _forward(program, program.origin, wrt, options.chunk or MAX_PARTIALS)


@lru_cache(maxsize=1024)
def _forward(program: Program, origin: str, wrt: tuple[int, ...], chunk: int) -> ForwardPlan:
    rows: list[dict[int, Const | int]] = [{} for _ in program.outputs]
    passes: list[Program] = []
    first = len(program.params)
    for slots in even_chunks(len(wrt), chunk) or (range(0),):
        indices = [wrt[slot] for slot in slots]
        dual = pushforward(program, indices)
        atoms = dual.program.outputs
        store = _Store(
            dual.program, first, () if passes else [atoms[d.primal] for d in dual.outputs]
        )
        for row, output in zip(rows, dual.outputs, strict=True):
            for slot, n in enumerate(indices):
                if slot in output.partials:
                    row[n] = store.place(atoms[output.partials[slot]])
        if store.kept:
            body = Block(dual.program.body.statements, tuple(store.kept))
            passes.append(without_dead_code(replace(dual.program, body=body)))
            first += len(store.kept)
    return ForwardPlan(program, tuple(passes), tuple(rows))


class _Store:
    """What one dual program stores: ``kept``, as the arrays from position ``first`` on."""

    def __init__(self, program: Program, first: int, primals: Sequence[Atom]) -> None:
        self.first = first
        self.kept = list(primals)
        self._places: dict[Atom, int] = {p.var: k for k, p in enumerate(program.params)}
        self._places |= {atom: first + k for k, atom in enumerate(primals)}

    def place(self, atom: Atom) -> Const | int:
        """Return where a partial is; it is stored if it is nowhere yet."""
        if isinstance(atom, Const):
            return atom
        if atom not in self._places:
            self._places[atom] = self.first + len(self.kept)
            self.kept.append(atom)
        return self._places[atom]


@lru_cache(maxsize=1024)
def plan_contraction(
    plan: ForwardPlan, wrt: tuple[int, ...], cotangents: tuple[int, ...]
) -> PullbackPlan:
    """Return the program that multiplies partials by cotangents.

    Parameters
    ----------
    plan : ForwardPlan
        Where the partials are.
    wrt : tuple of int
        Params whose gradients are wanted.
    cotangents : tuple of int
        Outputs that have a cotangent.

    Returns
    -------
    PullbackPlan
        Of one pass; its params are chosen from the arguments, the stored arrays, and one cotangent
        for each of ``cotangents``.
    """
    params = plan.program.params
    types = [p.var.type for p in params] + [out.type for p in plan.passes for out in p.outputs]
    builder = Builder(plan.program.name)
    chosen = {m: {n: at for n, at in plan.partials[m].items() if n in wrt} for m in cotangents}
    used = [m for m in cotangents if chosen[m]]
    read = sorted({at for m in used for at in chosen[m].values() if isinstance(at, int)})
    partials: dict[int, Atom] = {
        at: builder.param(
            f"partial {at}",
            types[at],
            cast("Kind", params[at].kind) if at < len(params) else "lane",
        )
        for at in read
    }
    seeds = [builder.param(f"cotangent {m}", plan.program.outputs[m].type) for m in used]
    rows = [
        {n: partials[at] if isinstance(at, int) else at for n, at in chosen[m].items()}
        for m in used
    ]
    gradients: list[tuple[int, int] | None] = []
    found: list[Atom] = []
    for n in wrt:
        total = contraction(builder, n, types[n], seeds, rows)
        gradients.append(None if total is None else (0, len(found)))
        found += [] if total is None else [total]
    passes = (builder.finish(found),) if found else ()
    kept = (*read, *(len(types) + cotangents.index(m) for m in used))
    return PullbackPlan("forward", passes, kept, tuple(gradients), ())
