"""Calls whose values are computed at once, and which are pulled back later, any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad.inner_calls import Inside, came_into
from mixad.lifting import Outputs, in_structures
from mixad.strand_calls import Asked, StrandCall
from mixad.tape.backward import backward
from mixad.tape.over_numpy import as_numpy
from mixad.tape.segments import Run
from mixad.tape.tracer import Level, Tracer

__all__ = ["KeptCall"]


class KeptCall(StrandCall):
    """A call of `mixad.vjp`."""

    _run: Run | None = None

    def _find(self, outputs: Outputs, asked: Asked) -> None:
        """Compute the values; ``asked`` is that there are some."""
        strand, leaves = self._strand, outputs.leaves
        own = [leaf for leaf in leaves if strand.has(leaf)]
        if not own or any(leaf.kind.type.is_complex for leaf in own):
            return
        wanted = [self._returned.leaves[at].slot for at in self._traced]
        self._run = strand.keep(wanted)
        if self._run is not None:
            self._outputs = outputs
            self._found = [self._own(slot) for slot in wanted], ()
            self._run.let_go(wanted)

    def run(self) -> tuple[Any, list[Any], Any]:
        """Return the value, no gradients, and aux, which are held no more."""
        found = super().run()
        self._found, self._returned = ([], ()), self._returned._replace(leaves=[])
        return found

    def _own(self, slot: int) -> Any:
        """Return a value such that the caller may change it."""
        assert self._run is not None
        values, sources = self._run.values, set(self._strand.sources.values())
        value, stored = values[slot], [values[at] for at in sources]
        is_stored = any(type(a) is np.ndarray and np.may_share_memory(value, a) for a in stored)
        return value.copy() if is_stored else value

    def pull(self, cotangent: Any) -> list[Any]:
        """Return the cotangents of the arguments."""
        assert self._run is not None
        seeds = self._outputs.seeds(cotangent, self._level)
        if self._are_alike([g for _, g in seeds]):
            found = self._run.pull([(leaf.slot, as_numpy(g)) for leaf, g in seeds])
            if found is not None:
                return self._gradients(found)
        return self._pulled_by_nodes(seeds)

    def _pulled_by_nodes(self, seeds: Sequence[tuple[Tracer, Any]]) -> list[Any]:
        """Return the cotangents of the arguments, which may be traced by transforms around."""
        call = Inside.of(self._strand, [leaf.slot for leaf, _ in seeds], [])
        with Level(self._level.name) as level:
            came, _ = came_into(self._strand)
            inputs, outputs, _ = call.replay(level, list(came.values()), is_alone=True)
        origins = [leaf.origin for leaf in outputs.leaves]
        given = zip(origins, [g for _, g in seeds], strict=True)
        cotangents = backward(level, list(given), inputs.nodes)
        return in_structures(inputs.gradients(cotangents, frozenset()), self._structures)
