"""Forward-mode transforms: tangents of the inputs become tangents of the value.

The function is recorded as for the reverse mode, and its trace is carried forward on dual numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from mixad import pytree
from mixad.errors import TracerError
from mixad.lifting import Inputs, Outputs, called, entered, lifted, matching, warn_if_constant
from mixad.returning import handed, returned, returned_aux, tangent_of
from mixad.signature import Function, check_callable, check_sequence
from mixad.tape.memory import share
from mixad.tape.tangents import Dual, carry_forward
from mixad.tape.tracer import Level, Tracer
from mixad.tracebacks import short_traceback

__all__ = ["Recorded", "jvp", "linearize", "recorded"]


@short_traceback
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
        Its arguments, a tuple or a list; every leaf a float or complex array or number.
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
    warn_if_constant(f, function.outputs, function.level)
    value, (tangent,) = function.pushed([tuple(tangents)])
    return (value, tangent, aux) if has_aux else (value, tangent)


@short_traceback
def linearize(f: Function, *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Return the value of ``f`` and the linear function that carries tangents through it.

    Parameters
    ----------
    f : callable
        Takes arrays or pytrees of them, returns one.
    *primals : array or pytree
        Where to differentiate; every leaf a float or complex array or number.
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
    warn_if_constant(f, function.outputs, function.level)
    value = function.outputs.values(function.level)
    function = function._replace(outputs=function.outputs.without_values())

    @short_traceback
    def pushforward(*tangents: Any) -> Any:
        return function.tangent(tangents)

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
        carried = self.carried([self._leaves(tangents) for tangents in directions])
        structure = self.outputs.structure
        return (
            pytree.unflatten(structure, carried.values()),
            [pytree.unflatten(structure, carried.along(k)) for k in range(len(directions))],
        )

    def tangent(self, tangents: Sequence[Any]) -> Any:
        """Return the tangent of the value along one direction; the value is not made.

        Parameters
        ----------
        tangents : sequence
            One of each primal.
        """
        carried = self.carried([self._leaves(tangents)])
        alone = carried._replace(duals=[dual._replace(value=None) for dual in carried.duals])
        del carried  # what nobody holds is not computed
        return pytree.unflatten(self.outputs.structure, alone.along(0))

    def carried(self, directions: Sequence[Sequence[Any]]) -> Carried:
        """Carry tangents through the call, along at most ten directions.

        Parameters
        ----------
        directions : sequence of sequence
            For each direction the tangent of each leaf of the primals, None where it is zero.
        """
        with Level(self.level.name, is_reverse=False) as own:
            return Carried(self, own, self._duals(own, directions))

    def _duals(self, own: Level, directions: Sequence[Sequence[Any]]) -> list[Dual]:
        """Return each output with its tangents, as tracers of a level."""
        cells = self.inputs.cells
        seeds = [
            tuple([None if t is None else entered(t, own, weak=cell.kind.weak) for t in tangents])
            for cell, tangents in zip(cells, zip(*directions, strict=True), strict=True)
        ]
        level = self.level
        moving = [
            leaf.origin if isinstance(leaf, Tracer) and level in leaf.levels else None
            for leaf in self.outputs.leaves
        ]
        origins = [origin for origin in moving if origin is not None]
        found = iter(carry_forward(level, own, origins, self.inputs.nodes, seeds))
        constant = Dual(None, (None,) * len(directions))
        return [constant if origin is None else next(found) for origin in moving]

    def _leaves(self, tangents: Sequence[Any]) -> list[Any]:
        """Return the tangents of the leaves of the primals along one direction."""
        name, structures = self.level.name, self.inputs.structures
        if len(tangents) != len(structures):
            raise TracerError(
                f"mixad.{name}: {len(tangents)} tangents for {len(structures)} primals: pass one "
                "for each"
            )
        given: list[Any] = []
        for at, (tangent, structure) in enumerate(zip(tangents, structures, strict=True)):
            found, own_structure = pytree.flatten_as(structure, tangent)
            if own_structure != structure:
                raise TracerError(
                    f"mixad.{name}: tangent {at} has the structure {own_structure}, the argument "
                    f"has {structure}: pass one array for each of its arrays, in the same structure"
                )
            given += [(leaf, f"mixad.{name}: tangent {at}", f"argument {at}") for leaf in found]
        return [
            matching(cell, leaf, what, of)
            for cell, (leaf, what, of) in zip(self.inputs.cells, given, strict=True)
        ]


class Carried(NamedTuple):
    """The outputs of a call that was recorded, on dual numbers of a level of their own."""

    function: Recorded
    own: Level
    duals: list[Dual]

    def values(self) -> list[Any]:
        """Return the outputs as the caller of the transform gets them."""
        function = self.function
        return [
            handed(leaf, function.level)
            if dual.value is None
            else share(returned(dual.value, self.own), leaf)
            for leaf, dual in zip(function.outputs.leaves, self.duals, strict=True)
        ]

    def along(self, direction: int) -> list[Any]:
        """Return their tangents along one of the directions."""
        outputs = self.function.outputs
        around = outputs.around(self.function.level)
        return [
            tangent_of(leaf, dual.tangents[direction], self.own, around)
            for leaf, dual in zip(outputs.leaves, self.duals, strict=True)
        ]


def recorded(
    name: str,
    f: Function,
    arguments: Sequence[Any],
    has_aux: bool,
    *,
    positions: Sequence[int] | None = None,
    kwargs: dict[str, Any] | None = None,
    is_reverse: bool = False,
) -> tuple[Recorded, Any]:
    """Call a function on tracers; return what was recorded, and its aux.

    Parameters
    ----------
    name : str
        The transform.
    f : callable
        The function.
    arguments : sequence
        Its positional arguments.
    has_aux : bool
        Whether it returns ``(value, aux)``.
    positions : sequence of int, optional
        Which of them are primals; all without it.
    kwargs : dict, optional
        Its keyword arguments.
    is_reverse : bool
        Whether cotangents may be carried back through it, too.
    """
    positions = range(len(arguments)) if positions is None else positions
    with Level(name, is_reverse=is_reverse) as level:
        inputs = lifted(level, list(arguments), positions)
        outputs, aux = called(f, inputs, kwargs or {}, has_aux, level)
    return Recorded(level, inputs, outputs), returned_aux(aux, level)
