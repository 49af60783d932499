"""Partials with the primal: which programs compute them, and which contract them later.

Only partials that exist nowhere else are stored: a partial that is zero does not exist, a constant
is part of the contraction, and one that equals an argument, an output or another partial is read
there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

from mixad.kernel.options import KernelOptions
from mixad.scalar.build import Builder
from mixad.scalar.contraction import contraction
from mixad.scalar.dual import MAX_PARTIALS, even_chunks
from mixad.scalar.ir import Atom, Block, Const, Kind, Program
from mixad.scalar.pushforward import pushforward
from mixad.scalar.simplify import without_dead_code
from mixad.tape.pullback_plan import PullbackPlan

__all__ = ["PartialsPlan", "plan_contraction", "plan_forward"]


@dataclass(frozen=True, eq=False)
class PartialsPlan:
    """The dual programs of a broadcast.

    All outputs of the passes, one pass after the other, are the *stored* arrays; the outputs of the
    broadcast come first. `partials` says for each output and param where the partial is: a
    constant, or a position among the arguments followed by the stored arrays.
    """

    program: Program  # the broadcast
    passes: tuple[Program, ...]  # same params; one per chunk of active inputs
    partials: tuple[Mapping[int, Const | int], ...]

    @property
    def read(self) -> frozenset[int]:
        """Which arguments and stored arrays are partials."""
        return frozenset(
            place for row in self.partials for place in row.values() if isinstance(place, int)
        )


def plan_forward(program: Program, wrt: tuple[int, ...], options: KernelOptions) -> PartialsPlan:
    """Return how outputs are computed together with their partials by the params `wrt`.

    Equal arguments give the same object.
    """
    return _forward(program, program.origin, wrt, options.chunk or MAX_PARTIALS)


@lru_cache(maxsize=1024)
def _forward(program: Program, origin: str, wrt: tuple[int, ...], chunk: int) -> PartialsPlan:
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
    return PartialsPlan(program, tuple(passes), tuple(rows))


class _Store:
    """What one dual program stores: `kept`, the arrays from position `first` on."""

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
    plan: PartialsPlan, wrt: tuple[int, ...], cotangents: tuple[int, ...]
) -> PullbackPlan:
    """Return the program, of one pass, that multiplies partials by cotangents.

    `wrt` are params, `cotangents` the outputs that have one. Params of the result are chosen from
    the arguments, the stored arrays and one cotangent for each of `cotangents`.
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
