"""Pullbacks and pushforwards of functions of one argument, and spaces of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import mixad
from mixad import pytree

__all__ = ["VSpace", "make_jvp", "make_vjp", "primitive_vjps", "vspace"]

primitive_vjps: dict[Any, Any] = {}
"""Empty: mixad's rules are not kept by the function that they belong to."""


def make_vjp(fun: Callable[[Any], Any], x: Any) -> tuple[Callable[[Any], Any], Any]:
    """Return the pullback of a function, and its value."""
    value, pullback = mixad.vjp(fun, x)
    return lambda g: pullback(g)[0], value


def make_jvp(fun: Callable[[Any], Any], x: Any) -> Callable[[Any], Any]:
    """Return what gives a function's value and its change in a direction."""
    return lambda v: mixad.jvp(fun, (x,), (v,))


class VSpace:
    """The values of the structure, the shapes and dtypes of an example."""

    def __init__(self, example: Any) -> None:
        self.example = example

    def _leaves(self, value: Any) -> list[Any]:
        return pytree.leaves(value)

    def _map(self, function: Callable[..., Any], *values: Any) -> Any:
        return pytree.tree_map(function, *values)

    @property
    def key(self) -> Any:
        described = [(np.shape(leaf), _is_complex(leaf)) for leaf in self._leaves(self.example)]
        return str(pytree.flatten(self.example)[1]), described

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VSpace) and self.key == other.key

    __hash__ = None

    def __repr__(self) -> str:
        return f"VSpace{self.key}"

    @property
    def shape(self) -> Any:
        return np.shape(self.example)

    @property
    def size(self) -> int:
        leaves = self._leaves(self.example)
        return sum(int(np.prod(np.shape(x))) * (1 + _is_complex(x)) for x in leaves)

    @property
    def iscomplex(self) -> bool:
        return any(map(_is_complex, self._leaves(self.example)))

    def zeros(self) -> Any:
        return self._map(lambda x: _like(x, np.zeros(np.shape(x))), self.example)

    def ones(self) -> Any:
        one = {True: 1.0 + 1.0j, False: 1.0}
        return self._map(
            lambda x: _like(x, np.full(np.shape(x), one[_is_complex(x)])), self.example
        )

    def randn(self) -> Any:
        return self._map(_random, self.example)

    def standard_basis(self) -> Iterator[Any]:
        zeros, structure = pytree.flatten(self.zeros())
        for at, leaf in enumerate(zeros):
            for unit in _units(leaf):
                yield pytree.unflatten(structure, [*zeros[:at], unit, *zeros[at + 1 :]])

    def add(self, x: Any, y: Any) -> Any:
        return self._map(lambda a, b: a + b, x, y)

    def scalar_mul(self, x: Any, a: Any) -> Any:
        return self._map(lambda leaf: leaf * a, x)

    def inner_prod(self, x: Any, y: Any) -> Any:
        pairs = zip(self._leaves(x), self._leaves(y), strict=True)
        return sum(_product(a, b) for a, b in pairs)


vspace = VSpace


def _is_complex(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype.kind == "c" if dtype is not None else isinstance(leaf, complex)


def _one(leaf: Any) -> complex:
    return 1.0 + 1.0j if _is_complex(leaf) else 1.0


def _product(a: Any, b: Any) -> Any:
    """Return the sum of products of real and of imaginary parts."""
    return np.sum(np.real(np.conj(a) * b)) if _is_complex(a) or _is_complex(b) else np.sum(a * b)


def _like(leaf: Any, array: Any) -> Any:
    dtype = getattr(leaf, "dtype", None)
    if dtype is not None:
        return array.astype(dtype)
    return complex(array) if isinstance(leaf, complex) else float(array)


def _random(leaf: Any) -> Any:
    real = np.random.randn(*np.shape(leaf))
    return _like(leaf, np.asarray(
        real + 1j * np.random.randn(*np.shape(leaf)) if _is_complex(leaf) else real
    ))  # fmt: skip


def _units(leaf: Any) -> Iterator[Any]:
    for index in np.ndindex(np.shape(leaf)):
        for unit in (1.0, 1.0j) if _is_complex(leaf) else (1.0,):
            array = np.zeros(np.shape(leaf), complex if _is_complex(leaf) else float)
            array[index] = unit
            yield _like(leaf, array)
