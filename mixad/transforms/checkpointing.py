"""Checkpoints: a function that is run again in the backward pass instead of being recorded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import as_array, device_name, is_array, library_of
from mixad.backends.integrations import generators_of
from mixad.call.closures import captured_values, freeze, substitute
from mixad.call.signature import Function, TransformedFunction, check_callable
from mixad.config import CHECK, CheckMode
from mixad.errors import TracerError
from mixad.scalar.dtypes import is_complex_dtype
from mixad.scalar.types import COMPLEX_TYPES, F64
from mixad.tape.cell import Cell
from mixad.tape.constant import is_traced, unwrapped
from mixad.tape.guard import GuardedArray, sampling_step
from mixad.tape.tracer import Level, Tracer, is_in_body, primal_value
from mixad.transforms.call_node import CallNode, Value, record_call
from mixad.transforms.linear_rule import RecordedRule

__all__ = ["checkpoint"]

_CAPTURED = -1
"""Stands for the index of an argument where a captured array is meant."""

_NEAR = {16: 0.05, 32: 1e-3, 64: 1e-7}
"""Tolerance by the bits of the type: other kernels round otherwise."""


def checkpoint(f: Function) -> Function:
    """Return a function that computes what ``f`` does and keeps nothing but its arguments.

    What ``f`` computes on the way is not recorded: when a transform needs its derivative, it is run
    again.  That takes the time of one more call and saves the memory of what is inside.

    Parameters
    ----------
    f : callable
        Takes and returns arrays or pytrees of them; must return the same when it is run again,
        of which some elements of the value are compared, all of them with ``MIXAD_CHECK=full``.
        Traced values that its closure holds are differentiated as well; arrays that its closure
        holds, or that it finds under a global name, are watched for changes.

    Returns
    -------
    callable
        Takes what ``f`` takes, keyword arguments as well, and returns what it returns.

    Raises
    ------
    TracerError
        If ``f`` is no function; if it reads a traced value that is neither an argument nor in
        its closure; if an array that it reads was changed before it is run again; if it returns
        something else then.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> layer = mixad.checkpoint(lambda w, x: np.tanh(w * x))
    >>> mixad.grad(lambda w: layer(w, layer(w, 1.0)))(0.0)
    0.0
    """
    check_callable("checkpoint", f)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        tracers, arrays = captured_values(f)
        if is_in_body([*tracers, *pytree.leaves((args, kwargs))]):  # whose steps run again anyhow
            return f(*args, **kwargs)
        if not any(map(is_traced, [*tracers, *pytree.leaves((args, kwargs))])):
            return f(*args, **kwargs)
        name = f"mixad.checkpoint of {getattr(f, '__name__', type(f).__name__)}"
        rule = _Checkpoint(name, f, freeze(f), tuple(tracers), CHECK.read())
        rule.watched.extend(GuardedArray(array, rule.check, rule, _CAPTURED) for array in arrays)
        return record_call(rule, (args, kwargs, tracers))

    return TransformedFunction(checkpointed, f, checkpoint)


@dataclass(frozen=True, eq=False)
class _Checkpoint:
    """A function to run again, by a copy of it that captures what the first run captured."""

    name: str  # for messages
    first: Function
    again: Function
    captured: tuple[Tracer, ...]  # traced values among these: further arguments
    check: CheckMode  # how closely arrays are watched and values compared
    watched: list[GuardedArray] = field(default_factory=list)  # arrays that it captured

    borrowed_from = ""  # the functions are the user's

    def argument(self, index: int) -> str:
        """Return the name, for messages, of an array that was changed in the meantime."""
        what = "an array captured by" if index == _CAPTURED else "an argument of"
        return f"{what} {self.name}"

    def run(self, arguments: Any) -> tuple[Any, Any]:
        """Return the value, samples of it, and a context that repeats its random numbers."""
        arrays = [leaf for leaf in pytree.leaves(arguments) if is_array(leaf)]
        is_of_torch = any(library_of(array).name == "torch" for array in arrays)
        again = generators_of("torch", arrays) if is_of_torch else nullcontext
        value = self._call(self.first, arguments)
        return value, ([_sample(leaf, self.check) for leaf in pytree.leaves(value)], again)

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Run the function again, recorded, and pull the cotangents back through that."""
        return self._recorded(call, level).transposed(gs)

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> list[list[Any]]:
        """Run the function again, recorded, and push tangents forward through that."""
        places = call.wrt(level)
        recorded = self._recorded(call, level, is_reverse=False)
        return recorded.pushed([[along[i] for i in places] for along in directions])

    def _recorded(self, call: CallNode, level: Level, *, is_reverse: bool = True) -> RecordedRule:
        for held in self.watched:
            held.array  # noqa: B018  # raises if it was changed
        with Level("checkpoint", is_reverse=is_reverse) as own:
            leaves, nodes = call.entered(level, own)
            samples, again = call.residuals
            with again():
                result = self._call(self.again, pytree.unflatten(call.tree, leaves))
            found, structure = pytree.flatten(result)
            self._check(call.value, found, structure, samples)
        moving = [leaf for leaf, cell in zip(found, call.value.cells, strict=True) if cell]
        return RecordedRule(own, nodes, moving)

    def _call(self, f: Function, arguments: Any) -> Any:
        args, kwargs, captured = arguments
        if captured:
            ids = map(id, self.captured)
            f = substitute(f, dict(zip(ids, captured, strict=True)))
        return pytree.tree_map(unwrapped, f(*args, **kwargs))

    def _check(
        self, value: Value, found: list[Any], structure: pytree.Structure, samples: Sequence[Any]
    ) -> None:
        """Raise unless a run gave the value of the first one."""
        same = structure == value.structure and all(
            self._is_same(leaf, cell, sample)
            for leaf, cell, sample in zip(found, value.cells, samples, strict=True)
        )
        if not same:
            raise TracerError(
                f"{self.name} returned something else when it was run again for its derivative: "
                "pass what it depends on, random numbers too, as arguments"
            )

    def _is_same(self, leaf: Any, cell: Cell | None, sample: Any) -> bool:
        """Whether a leaf of the second run agrees with the first one's sample."""
        if cell is None:
            return not isinstance(leaf, Tracer)
        if tuple(getattr(leaf, "shape", ())) != cell.shape:
            return False
        again = _sample(primal_value(leaf), self.check)
        if sample is None or again is None:
            return sample is again
        near = _NEAR[cell.type.bits // (2 if cell.type.is_complex else 1)] * np.abs(sample).max(
            initial=0.0, where=np.isfinite(sample)
        )
        return bool(np.isclose(again, sample, rtol=0.0, atol=near, equal_nan=True).all())


def _sample(leaf: Any, check: CheckMode) -> Any:
    """Return elements of a number, or of an array in the host's memory, to compare in 64 bits."""
    if isinstance(leaf, (float, complex)):
        return np.asarray([leaf])
    array = as_array(leaf)
    if not is_array(array) or device_name(array) != "cpu" or library_of(array).is_lazy:
        return None
    library = library_of(array)
    flat = library.xp.reshape(array, (-1,))
    some = flat if check == "full" else flat[:: sampling_step(flat.shape[0])]
    wide = COMPLEX_TYPES[-1] if is_complex_dtype(array.dtype) else F64
    return library.numpy_view(library.xp.astype(some, library.dtype_of(wide))).copy()
