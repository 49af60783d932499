"""Functions of JAX on values that mixad differentiates, recorded with JAX's own derivative.

A call is `jax.vjp` under `jax.jit`: what it returns beside the values is the residual of the call.
Functions of JAX are pure, so the pullback of a pullback is one of the function that JAX's
transforms make of it, and so is a pushforward.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, update_wrapper
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from mixad.errors import TracerError
from mixad.tape.constant import is_traced, unwrapped
from mixad.tape.tracer import Level
from mixad.transforms.call_node import CallNode, record_call

__all__ = ["Borrowed"]

Arrays: TypeAlias = list[Any]


class Borrowed:
    """A function of pytrees of JAX's arrays, callable on what mixad differentiates."""

    def __init__(self, function: Callable[..., Any]) -> None:
        if not callable(function) or not isinstance(function, Hashable):
            raise TracerError(
                f"mixad_jax.borrow takes a function that can be a key, not a "
                f"{type(function).__name__}: write borrow(g)(x), where g is a plain function"
            )
        update_wrapper(self, function)
        self._function = function
        self._name = getattr(function, "__name__", type(function).__name__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Call the function; the call is recorded if a leaf of its arguments is traced."""
        leaves, structure = jax.tree.flatten((args, kwargs), is_leaf=lambda x: x is None)
        leaves = [_own(unwrapped(leaf)) for leaf in leaves]
        traced = [leaf for leaf in leaves if is_traced(leaf)]
        if not traced:
            return self._function(*args, **kwargs)
        self._check(traced)
        places = tuple([
            "traced" if is_traced(leaf) else "static" if isinstance(leaf, _STATIC) else "given"
            for leaf in leaves
        ])  # fmt: skip
        static, given = (
            [leaf for leaf, place in zip(leaves, places, strict=True) if place == kind]
            for kind in ("static", "given")
        )
        types = tuple(map(type, static))  # 1 and True are equal
        pure = _pure(self._function, structure, places, tuple(static), types)
        form, values = _recorded(self._name, pure, given, traced)
        return jax.tree.unflatten(form.structure, values)

    def _check(self, traced: Sequence[Any]) -> None:
        """Refuse values that are not JAX's."""
        for tracer in traced:
            library = tracer.kind.library.name
            if library != "jax":
                raise TracerError(
                    f"{self._name}() is JAX's, and a value that is being differentiated is of "
                    f"{library}: pass arrays of jax.numpy to the transform, those without axes in "
                    "place of numbers"
                )


_STATIC = (bool, int, str, bytes, type(None), type, np.dtype)
"""Types of what is a part of the program, such as axes, and no value in it."""


def _own(leaf: Any) -> Any:
    """Return a leaf that nobody else writes to: JAX may share the memory of NumPy's arrays."""
    return jnp.array(leaf) if isinstance(leaf, np.ndarray) else leaf


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Form:
    """What a function returned: its structure, and which leaves have a derivative."""

    structure: Any
    is_inexact: tuple[bool, ...]


@dataclass(frozen=True, eq=False)
class _Pure:
    """A function of lists of arrays: those that are differentiated, and others."""

    # ``(arrays, given) -> leaves of floats, (other leaves, form)``
    function: Callable[[Arrays, Arrays], tuple[Arrays, tuple[Arrays, _Form]]]

    @cached_property
    def forward(self) -> Callable[[Arrays, Arrays], tuple[Arrays, Any, tuple[Arrays, _Form]]]:
        """Return values, the function that takes cotangents back, and what else is returned."""
        return jax.jit(lambda arrays, given: _vjp(self.function, arrays, given))

    @cached_property
    def pullback(self) -> _Pure:
        """The function of arrays and cotangents that returns gradients."""

        def pulled(both: Arrays, given: Arrays) -> Any:
            count = given[-1].count
            _, back, _ = _vjp(self.function, both[:count], given[:-1])
            return _all_floats(_back(back, both[count:]))

        return _Pure(pulled)

    @cached_property
    def pushforward(self) -> _Pure:
        """The function of arrays and tangents that returns tangents."""

        def pushed(both: Arrays, given: Arrays) -> Any:
            count, wrt = given[-1].count, given[-1].wrt
            left = iter(both[count:])
            tangents = [next(left) if k in wrt else jnp.zeros_like(x)
                        for k, x in enumerate(both[:count])]  # fmt: skip
            _, along, _ = jax.jvp(
                lambda arrays: self.function(arrays, given[:-1]), (both[:count],), (tangents,),
                has_aux=True,
            )  # fmt: skip
            return _all_floats(along)

        return _Pure(pushed)


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Split:
    """How many of the arrays are arguments; the others are cotangents, or tangents of some."""

    count: int
    wrt: tuple[int, ...] = ()


def _all_floats(found: Arrays) -> tuple[Arrays, tuple[Arrays, _Form]]:
    return found, ([], _Form(jax.tree.structure(found), (True,) * len(found)))


def _vjp(function: Any, arrays: Arrays, given: Arrays) -> Any:
    return jax.vjp(lambda own: function(own, given), arrays, has_aux=True)


def _back(back: Any, cotangents: Arrays) -> Arrays:
    """Take cotangents back: of complex numbers, JAX has the conjugates of what they are here."""
    (found,) = back(list(map(jnp.conj, cotangents)))
    return list(map(jnp.conj, found))


_jitted_back = jax.jit(_back)


@lru_cache(maxsize=1024)
def _pure(
    function: Callable[..., Any],
    structure: Any,
    places: tuple[str, ...],
    static: tuple[Any, ...],
    types: tuple[type, ...],
) -> _Pure:
    """Return a function of lists of arrays; the same object for equal arguments."""

    def call(arrays: Arrays, given: Arrays) -> Any:
        left = {"traced": iter(arrays), "given": iter(given), "static": iter(static)}
        args, kwargs = jax.tree.unflatten(structure, [next(left[place]) for place in places])
        leaves, form = jax.tree.flatten(function(*args, **kwargs))
        leaves = list(map(jnp.asarray, leaves))
        inexact = tuple([jnp.issubdtype(x.dtype, jnp.inexact) for x in leaves])
        floats = [x for x, own in zip(leaves, inexact, strict=True) if own]
        others = [x for x, own in zip(leaves, inexact, strict=True) if not own]
        return floats, (others, _Form(form, inexact))

    return _Pure(call)


@dataclass(eq=False)
class _Rule:
    """The rule of a call whose arguments are arrays, and its value a list of them."""

    name: str
    pure: _Pure
    given: Arrays
    form: _Form | None = None

    borrowed_from = "jax"

    def argument(self, index: int) -> str:
        """Return what an array is called in messages: JAX's never change."""
        return f"an argument of {self.name}()"

    def run(self, arguments: Arrays) -> tuple[Arrays, Any]:
        """Return the leaves of the value, and the function that takes cotangents back."""
        floats, back, (others, self.form) = self.pure.forward(arguments, self.given)
        left, rest = iter(floats), iter(others)
        return [next(left if own else rest) for own in self.form.is_inexact], back

    def pulled(self, call: CallNode, level: Level, gs: Sequence[Any]) -> Sequence[Any]:
        """Go back through the call; where something follows that, record it as a call."""
        leaves, wrt = call.arguments(level), call.wrt(level)
        if any(map(is_traced, (*leaves, *gs))):
            given = [*self.given, _Split(len(leaves))]
            _, found = _recorded(
                f"the pullback of {self.name}", self.pure.pullback, given, [*leaves, *gs]
            )
        else:
            found = _jitted_back(call.residuals, list(gs))
        return [found[i] for i in wrt]

    def pushed(
        self, call: CallNode, level: Level, directions: Sequence[Sequence[Any]]
    ) -> Sequence[Sequence[Any]]:
        """Go forward through the call."""
        leaves = call.arguments(level)
        found = []
        for tangents in directions:
            moving = tuple(k for k, tangent in enumerate(tangents) if tangent is not None)
            given = [*self.given, _Split(len(leaves), moving)]
            both = [*leaves, *(tangents[k] for k in moving)]
            name = f"the pushforward of {self.name}"
            found.append(_recorded(name, self.pure.pushforward, given, both)[1])
        return found


def _recorded(name: str, pure: _Pure, given: Arrays, arrays: Arrays) -> tuple[_Form, Arrays]:
    """Call a function of arrays; record the call if one is traced."""
    rule = _Rule(name, pure, given)
    if any(map(is_traced, arrays)):
        values = record_call(rule, arrays)
    else:
        values, _ = rule.run(arrays)
    assert rule.form is not None
    return rule.form, values
