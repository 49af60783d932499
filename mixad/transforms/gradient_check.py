"""Derivatives compared with central differences along random directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mixad import pytree
from mixad.backends.arrays import as_array, is_array, library_of
from mixad.call.signature import Function, check_callable, check_sequence
from mixad.errors import TracerError
from mixad.scalar.dtypes import element_type_of, is_complex_dtype
from mixad.tape.constant import unwrapped
from mixad.tracebacks import short_traceback
from mixad.transforms.forward import jvp
from mixad.transforms.gradients import vjp

__all__ = ["check_grads"]

_STEPS = {16: 0.1, 32: 5e-3, 64: 6e-6}
"""About the cube root of the spacing of numbers, by bits: rounding and curvature err alike."""

_TOLERANCES = {16: 0.1, 32: 1e-2, 64: 1e-6}


@short_traceback
def check_grads(
    f: Function,
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = ("fwd", "rev"),
    atol: float | None = None,
    rtol: float | None = None,
    eps: float | None = None,
) -> None:
    """Check the derivatives of ``f`` against central differences along random directions.

    Parameters
    ----------
    f : callable
        Takes and returns arrays or pytrees of them.
    args : sequence
        Where to differentiate, a tuple or a list; every leaf a float or complex array or number.
    order : int
        Up to which order: derivatives of order 2 are those of the derivatives, in every mix of
        the modes.
    modes : sequence of str
        ``"fwd"`` for `jvp`, ``"rev"`` for `vjp`, or both.
    atol, rtol : float, optional
        By how much results may differ: ``atol + rtol * largest``, where ``largest`` is the largest
        of the differences compared with; 1e-6 each, for 32 bits 1e-2, for 16 bits 0.1.
    eps : float, optional
        Step of the differences; 6e-6, for 32 bits 5e-3, for 16 bits 0.1.

    Raises
    ------
    AssertionError
        If a derivative differs; the message has mode, order and numbers.
    TracerError
        If an argument is not made of floats, or there is no such mode or order.

    Examples
    --------
    >>> import mixad, numpy as np
    >>> mixad.check_grads(np.sin, (np.asarray([0.5, 1.0]),), order=3)
    >>> mixad.check_grads(lambda x: mixad.stop_gradient(x) * x, (2.0,), order=1, modes=("rev",))
    Traceback (most recent call last):
    ...
    AssertionError: <lambda>, derivative of order 1 (rev): ...
    """
    check_callable("check_grads", f)
    check_sequence("check_grads", "args", args)
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    _check_options(order, modes)
    bits = _bits(args)
    tolerance = _TOLERANCES[bits]
    check = _Check(
        name=getattr(f, "__name__", type(f).__name__),
        modes=modes,
        atol=tolerance if atol is None else atol,
        rtol=tolerance if rtol is None else rtol,
        step=_STEPS[bits] if eps is None else eps,
        random=np.random.default_rng(0),
    )
    check.run(f, tuple(args), order)


def _check_options(order: int, modes: Sequence[str]) -> None:
    if not isinstance(order, int) or order < 1:
        raise TracerError(f"mixad.check_grads: order is {order!r}: pass a whole number from 1 on")
    if not modes or not set(modes) <= {"fwd", "rev"}:
        raise TracerError(
            f"mixad.check_grads: modes is {modes!r}: each must be one of 'fwd', 'rev'"
        )


def _bits(args: Sequence[Any]) -> int:
    """Return the bits of the narrowest floats among some arguments; of a complex number's part."""
    types = [element_type_of(leaf.dtype) for leaf in pytree.leaves(args) if is_array(leaf)]
    return min((t.bits // (2 if t.is_complex else 1) for t in types), default=64)


@dataclass(frozen=True)
class _Check:
    """Functions to compare and tolerances; ``path`` names the derivatives taken already."""

    name: str
    modes: Sequence[str]
    atol: float
    rtol: float
    step: float
    random: np.random.Generator
    path: tuple[str, ...] = ()

    def run(self, f: Function, args: tuple[Any, ...], order: int) -> None:
        """Check a function, and its derivatives up to one order less."""
        value = f(*args)
        tangents = self._drawn(args)
        slopes = self._differences(f, args, tangents)
        cotangent = self._drawn(slopes)
        for mode in self.modes:
            further = replace(self, path=(*self.path, mode))
            if mode == "fwd":
                found, tangent = jvp(f, args, tangents)
                further.compare_values(found, value)
                further.compare(tangent, slopes)
                derivative = _along(f, tangents)
            else:
                found, pullback = vjp(f, *args)
                pulled = pullback(cotangent)
                further.compare_values(found, value)
                further.compare(_product(pulled, tangents), _product(cotangent, slopes))
                derivative = _against(f, cotangent)
            if order > 1:
                further.run(derivative, args, order - 1)

    def compare(self, found: Any, expected: Any) -> None:
        """Raise where derivatives disagree with finite differences."""
        pairs = zip(pytree.leaves(found), pytree.leaves(expected), strict=True)
        for at, (leaf, slope) in enumerate(pairs):
            error, got, wanted = _worst(leaf, slope)
            allowed = self.atol + self.rtol * _worst(slope, 0.0 * slope)[0]
            if not error <= allowed:
                modes = " of ".join(self.path[::-1])
                raise AssertionError(
                    f"{self.name}, derivative of order {len(self.path)} ({modes}): "
                    f"leaf {at} is {got!r} along a random direction, central differences with a "
                    f"step of {self.step:g} give {wanted!r}; they differ by {error:.3g}, allowed "
                    f"are {allowed:.3g}"
                )

    def compare_values(self, found: Any, expected: Any) -> None:
        """Raise where a function has another value while it is differentiated."""
        pairs = zip(pytree.leaves(found), pytree.leaves(expected), strict=True)
        for at, (leaf, value) in enumerate(pairs):
            error, got, wanted = _worst(unwrapped(leaf), unwrapped(value))
            allowed = self.atol + self.rtol * _worst(unwrapped(value), 0.0 * unwrapped(value))[0]
            if error > allowed:
                raise AssertionError(
                    f"{self.name} ({' of '.join(self.path[::-1])}): leaf {at} of the value is "
                    f"{got!r} where it is differentiated, {wanted!r} elsewhere"
                )

    def _differences(self, f: Function, args: Any, tangents: Any) -> Any:
        """Return the slope of each leaf of the value along tangents."""
        step = self.step
        above, below = (
            f(*pytree.tree_map(lambda x, t, sign=sign: x + sign * step * t, args, tangents))
            for sign in (1.0, -1.0)
        )
        return pytree.tree_map(
            lambda a, b: (unwrapped(a) - unwrapped(b)) / (2 * step), above, below
        )

    def _drawn(self, tree: Any) -> Any:
        """Return random numbers in the form of a tree."""
        return pytree.tree_map(self._drawn_leaf, tree)

    def _drawn_leaf(self, leaf: Any) -> Any:
        if not is_array(leaf):
            drawn = self.random.normal(size=2)
            return complex(*drawn) if isinstance(leaf, complex) else float(drawn[0])
        numbers = self.random.normal(size=tuple(leaf.shape))
        if is_complex_dtype(leaf.dtype):
            numbers = numbers + 1j * self.random.normal(size=numbers.shape)
        return library_of(leaf).asarray(
            numbers, element_type_of(leaf.dtype), getattr(leaf, "device", None)
        )


def _along(f: Function, tangents: Any) -> Function:
    return lambda *args: jvp(f, args, tangents)[1]


def _against(f: Function, cotangent: Any) -> Function:
    return lambda *args: vjp(f, *args)[1](cotangent)


def _product(one: Any, other: Any) -> float:
    """Return the inner product of two trees, for complex numbers that of their parts."""
    pairs = zip(pytree.leaves(one), pytree.leaves(other), strict=True)
    return sum(_sum(_times(x, y)) for x, y in pairs)


def _times(x: Any, y: Any) -> Any:
    if not is_array(x):
        return (x.conjugate() * y).real
    xp = library_of(x).xp
    return xp.real(xp.conj(x) * y) if is_complex_dtype(x.dtype) else x * y


def _sum(leaf: Any) -> float:
    return float(library_of(leaf).xp.sum(as_array(leaf))) if is_array(leaf) else float(leaf)


def _worst(one: Any, other: Any) -> tuple[float, float | complex, float | complex]:
    """Return the largest difference of two leaves, and both elements there."""
    if not is_array(one):
        return abs(one - other), _number(one), _number(other)
    xp = library_of(one).xp
    if 0 in one.shape:
        return 0.0, 0.0, 0.0
    flat = [xp.reshape(as_array(x), (-1,)) for x in (one, other)]
    apart = xp.abs(flat[0] - flat[1])
    at = int(xp.argmax(apart))
    return float(apart[at]), _number(flat[0][at]), _number(flat[1][at])


def _number(x: Any) -> float | complex:
    is_complex = is_complex_dtype(x.dtype) if is_array(x) else isinstance(x, complex)
    return complex(x) if is_complex else float(x)
