"""Forward-mode transforms: tangents of the inputs become tangents of the value.

The function is recorded as for the reverse mode, and its trace is carried forward on dual numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mixad import pytree
from mixad.errors import TracerError
from mixad.lifting import (
    Function,
    Inputs,
    Outputs,
    called,
    check_callable,
    check_sequence,
    entered,
    lifted,
    matching,
    returned,
    returned_aux,
    tangent_of,
)
from mixad.tape.tangents import Dual, carry_forward
from mixad.tape.tracer import Level, Tracer

__all__ = ["Recorded", "jvp", "linearize", "recorded"]


def jvp(
    f: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False
) -> tuple[Any, ...]:
    """Return the value of ``f`` and how fast it changes as the arguments move along tangents.

    Value and tangents come out of the same kernels.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    primals : sequence
        Its arguments, a tuple or a list; every leaf a float array or a float.
    tangents : sequence
        For each argument its tangent: of its structure, every leaf of the shape and dtype of the
        argument's, or a Python number that stands for a constant array.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    tangent : array or pytree
        Of the structure and shapes of the value.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TracerError
        If a leaf of a primal is no float, or a tangent has another structure or shape.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> x, dx = np.asarray([1.0, 2.0]), np.asarray([1.0, 0.5])
    >>> mixad.jvp(lambda x: x * x, (x,), (dx,))
    (array([1., 4.]), array([2., 2.]))
    """
    check_callable("jvp", f)
    check_sequence("jvp", "primals", primals)
    check_sequence("jvp", "tangents", tangents)
    function, aux = recorded("jvp", f, primals, has_aux)
    value, (tangent,) = function.pushed([tuple(tangents)])
    return (value, tangent, aux) if has_aux else (value, tangent)


def linearize(f: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of ``f`` and the linear function that carries tangents through it.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    *primals : array or pytree
        Where to differentiate; every leaf a float array or a float.
    has_aux : bool
        Whether ``f`` returns ``(value, aux)``.

    Returns
    -------
    value : array or pytree
        The value of ``f``.
    pushforward : callable
        Takes tangents as `jvp` does, returns the tangent of the value; may be called any number of
        times.  What is cheap is computed again, nothing but the trace is stored.
    aux : object
        Only with ``has_aux``.

    Raises
    ------
    TracerError
        As from `jvp`.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> value, pushforward = mixad.linearize(lambda x: x * x, np.asarray([1.0, 2.0]))
    >>> pushforward(np.asarray([1.0, 0.5]))
    array([2., 2.])
    """
    check_callable("linearize", f)
    function, aux = recorded("linearize", f, primals, has_aux)
    value = function.outputs.values(function.level)

    def pushforward(*tangents: Any) -> Any:
        return function.pushed([tangents])[1][0]

    return (value, pushforward, aux) if has_aux else (value, pushforward)


class Recorded(NamedTuple):
    """A call that has been recorded, to be carried forward."""

    level: Level
    inputs: Inputs
    outputs: Outputs

    def pushed(self, directions: Sequence[Sequence[Any]]) -> tuple[Any, list[Any]]:
        """Return the value, and its tangent along each of at most ten directions.

        Parameters
        ----------
        directions : sequence of sequence
            For each direction a tangent of each primal.
        """
        leaves, structure = self.outputs
        around = self.outputs.around(self.level)
        with Level(self.level.name, is_reverse=False) as own:
            duals = self._duals(own, directions)
        tangents = [
            [
                tangent_of(leaf, dual.tangents[k], own, around)
                for leaf, dual in zip(leaves, duals, strict=True)
            ]
            for k in range(len(directions))
        ]
        values = [
            returned(leaf, self.level) if dual.value is None else returned(dual.value, own)
            for leaf, dual in zip(leaves, duals, strict=True)
        ]
        return (
            pytree.unflatten(structure, values),
            [pytree.unflatten(structure, found) for found in tangents],
        )

    def _duals(self, own: Level, directions: Sequence[Sequence[Any]]) -> list[Dual]:
        """Return each output with its tangents, as tracers of a level."""
        seeds = zip(*[self._seeds(own, tangents) for tangents in directions], strict=True)
        level = self.level
        moving = [
            leaf.origin if isinstance(leaf, Tracer) and level in leaf.origin.levels else None
            for leaf in self.outputs.leaves
        ]
        origins = [origin for origin in moving if origin is not None]
        found = iter(carry_forward(level, own, origins, self.inputs.nodes, list(seeds)))
        constant = Dual(None, (None,) * len(directions))
        return [constant if origin is None else next(found) for origin in moving]

    def _seeds(self, own: Level, tangents: Sequence[Any]) -> list[Tracer]:
        """Return the tangents of the leaves of the primals along one direction."""
        name, structures = self.level.name, self.inputs.structures
        if len(tangents) != len(structures):
            raise TracerError(
                f"mixad.{name}: there are {len(structures)} primals and {len(tangents)} tangents: "
                "pass one for each"
            )
        given: list[Any] = []
        for at, (tangent, structure) in enumerate(zip(tangents, structures, strict=True)):
            found, own_structure = pytree.flatten(tangent)
            if own_structure != structure:
                raise TracerError(
                    f"mixad.{name}: tangent {at} has the structure {own_structure}, the argument "
                    f"has {structure}: pass one array for each of its arrays, in the same structure"
                )
            given += [(leaf, f"mixad.{name}: tangent {at}") for leaf in found]
        return [
            entered(matching(cell, leaf, what), own, weak=cell.kind.weak)
            for cell, (leaf, what) in zip(self.inputs.cells, given, strict=True)
        ]


def recorded(name: str, f: Function, primals: Sequence[Any], has_aux: bool) -> tuple[Recorded, Any]:
    """Call a function on tracers; return what was recorded, and its aux."""
    with Level(name, is_reverse=False) as level:
        inputs = lifted(level, list(primals), range(len(primals)))
        outputs, aux = called(f, inputs.arguments, {}, has_aux, level)
    return Recorded(level, inputs, outputs), returned_aux(aux, level)
