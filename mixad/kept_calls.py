"""Calls whose values are computed at once, and which are pulled back later, any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad.inner_calls import Inside
from mixad.lifting import Outputs, in_structures
from mixad.strand_calls import Asked, StrandCall
from mixad.tape.backward import backward
from mixad.tape.over_numpy import as_numpy, of_numpy
from mixad.tape.segments import Run
from mixad.tape.tracer import Level, Tracer

__all__ = ["KeptCall"]


class KeptCall(StrandCall):
    """A call of `mixad.vjp`."""

    _run: Run | None = None

    def finish(self, outputs: Outputs, aux: Any, asked: Asked) -> None:
        """End the recording; what nodes do later is not noted."""
        super().finish(outputs, aux, asked)
        self._level.journal = None

    def _find(self, outputs: Outputs, asked: Asked) -> None:
        """Compute the values; ``asked`` is that there are some."""
        strand, leaves = self._strand, outputs.leaves
        own = [leaf for leaf in leaves if strand.has(leaf)]
        if not own or any(leaf.kind.type.is_complex for leaf in own):
            return
        wanted = [self._returned.leaves[at].slot for at in self._traced]
        run = strand.keep(wanted)
        if run is None:
            return
        values = [self._own(run, slot) for slot in wanted]
        strand.is_left = not run.keep(wanted)
        if not strand.is_left:
            self._run, self._outputs, self._found = run, outputs, (values, ())

    def run(self) -> tuple[Any, list[Any], Any]:
        """Return the value, no gradients, and aux, which are held no more."""
        found = super().run()
        self._found, self._returned = ([], ()), self._returned._replace(leaves=[])
        return found

    def _own(self, run: Run, slot: int) -> Any:
        """Return a value such that the caller may change it."""
        values, sources = run.values, set(self._strand.sources.values())
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
        assert self._run is not None
        call = Inside.of(self._strand, [leaf.slot for leaf, _ in seeds], [])
        came = [of_numpy(self._strand.library, self._run.values[slot]) for slot in call.slots]
        with Level(self._level.name) as level:
            inputs, outputs, _ = call.replay(level, came, is_alone=True)
        origins = [leaf.origin for leaf in outputs.leaves]
        given = zip(origins, [g for _, g in seeds], strict=True)
        cotangents = backward(level, list(given), inputs.nodes)
        return in_structures(inputs.gradients(cotangents, frozenset()), self._structures)
