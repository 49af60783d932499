"""Fourier transform functions.

Each is linear, so its tangent is itself.  The adjoint of a transform of complex numbers is the
opposite one with the opposite scaling; transforms between real numbers and half of a spectrum
count each number of that half as often as it occurs in the whole.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from numpy.exceptions import AxisError

from mixad.namespace.complex_numbers import conj, real
from mixad.namespace.indexing import part_along
from mixad.namespace.joining import concat
from mixad.namespace.manipulation import normalized_axes, roll, whole_numbers
from mixad.scalar.dtypes import is_complex_dtype
from mixad.tape.node import Rule, apply_rule, library_of_value

__all__ = ["fft", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
           "irfftn", "rfft", "rfftn", "torch_irfftn"]  # fmt: skip

Norm = str | None
Lengths = int | Sequence[int] | None
Axes = int | Sequence[int] | None


# -- complex numbers -------------------------------------------------------------------------------


def fft(x: Any, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Any:
    """Return the Fourier transform along an axis, of ``x`` cut or zero-padded to length ``n``.

    ``norm`` says which of a transform and its inverse divides by the length; both by its root for
    "ortho". Floats are taken where the library takes them.
    """
    return _transform_axis(_FFTN, x, n, axis, norm)


def ifft(x: Any, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Any:
    """Return the inverse of `fft`."""
    return _transform_axis(_IFFTN, x, n, axis, norm)


def fftn(x: Any, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward") -> Any:
    """Return the Fourier transform along several axes, of lengths ``s``: see `fft`."""
    return _transform_axes(_FFTN, x, s, axes, norm)


def ifftn(x: Any, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward") -> Any:
    """Return the inverse of `fftn`."""
    return _transform_axes(_IFFTN, x, s, axes, norm)


def _transform_axis(rule: Rule, x: Any, n: int | None, axis: int, norm: Norm) -> Any:
    return _transform_axes(rule, x, None if n is None else (n,), (axis,), norm)


def _transform_axes(rule: Rule, x: Any, s: Lengths, axes: Axes, norm: Norm) -> Any:
    places, lengths = _extent(x, s, axes)
    for axis, length in zip(places, lengths, strict=True):
        x = _resize_axis(x, axis, length)
    return apply_rule(rule, x, axes=places, norm=_check_norm(norm))


def _cotangent_transform(name: str) -> Any:
    """Return the cotangent of a transform, which is another one."""

    def cotangent(g: Any, x: Any, axes: Sequence[int], norm: str) -> Any:
        rule = _IFFTN if name == "ifftn" else _FFTN
        found = apply_rule(rule, g, axes=axes, norm=_OPPOSITE[norm])
        return found if is_complex_dtype(x.dtype) else real(found)

    return cotangent


def _transform(name: str, back: str) -> Rule:
    return Rule(
        name,
        lambda xp, x, axes, norm: getattr(xp.fft, name)(x, axes=axes, norm=norm),
        (_cotangent_transform(back),),
        linear="each",
    )


_FFTN, _IFFTN = _transform("fftn", "ifftn"), _transform("ifftn", "fftn")


# -- real numbers ----------------------------------------------------------------------------------


def rfft(x: Any, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Any:
    """Return the first half of the Fourier transform of real numbers: see `fft`."""
    (axis,) = normalized_axes(axis, x.ndim)
    length = x.shape[axis] if n is None else operator.index(n)
    return apply_rule(_RFFT, _resize_axis(x, axis, length), axis=axis, norm=_check_norm(norm))


def irfft(x: Any, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Any:
    """Return the inverse of `rfft`: ``n`` real numbers, by default an even number."""
    (axis,) = normalized_axes(axis, x.ndim)
    length = 2 * (x.shape[axis] - 1) if n is None else operator.index(n)
    half = _resize_axis(x, axis, length // 2 + 1)
    return apply_rule(_IRFFT, half, n=length, axis=axis, norm=_check_norm(norm))


def hfft(x: Any, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Any:
    """Return the real Fourier transform of numbers of which the first half is given."""
    return irfft(conj(x), n=n, axis=axis, norm=_OPPOSITE[_check_norm(norm)])


def ihfft(x: Any, *, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Any:
    """Return the inverse of `hfft`."""
    return conj(rfft(x, n=n, axis=axis, norm=_OPPOSITE[_check_norm(norm)]))


def rfftn(x: Any, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward") -> Any:
    """Return `rfft` along the last of several axes and `fft` along the others."""
    places, lengths = _extent(x, s, axes, least=1)
    half = rfft(x, n=lengths[-1], axis=places[-1], norm=norm)
    return fftn(half, s=lengths[:-1], axes=places[:-1], norm=norm) if places[1:] else half


def irfftn(x: Any, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward") -> Any:
    """Return `ifft` along all but the last of several axes and `irfft` along that."""
    places, lengths = _extent(x, s, axes, least=1)
    last = None if s is None else lengths[-1]
    half = ifftn(x, s=lengths[:-1], axes=places[:-1], norm=norm) if places[1:] else x
    return irfft(half, n=last, axis=places[-1], norm=norm)


def torch_irfftn(x: Any, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward") -> Any:
    """Return torch's `irfftn`: a last length of -1 means None, not the axis's own."""
    lengths = whole_numbers(() if s is None else s)
    if lengths[-1:] == (-1,):
        places, _ = _extent(x, s, axes, least=1)
        s = (*lengths[:-1], 2 * (x.shape[places[-1]] - 1))
    return irfftn(x, s=s, axes=axes, norm=norm)


def _of_rfft(g: Any, x: Any, axis: int, norm: str) -> Any:
    length = x.shape[axis]
    halved = g / _occurrences(g, length, axis)
    return apply_rule(_IRFFT, halved, n=length, axis=axis, norm=_OPPOSITE[norm])


def _of_irfft(g: Any, x: Any, n: int, axis: int, norm: str) -> Any:
    found = apply_rule(_RFFT, g, axis=axis, norm=_OPPOSITE[norm])
    found = found * _occurrences(found, n, axis)
    return found if is_complex_dtype(x.dtype) else real(found)


def _occurrences(half: Any, length: int, axis: int) -> Any:
    """Return how often each number of half a spectrum is in the whole: once or twice."""
    xp = library_of_value(half).xp
    counts = [1.0 if k in (0, length / 2) else 2.0 for k in range(length // 2 + 1)]
    shape = tuple(-1 if i == axis else 1 for i in range(half.ndim))
    return xp.reshape(
        xp.asarray(counts, dtype=half.dtype, device=getattr(half, "device", None)), shape
    )


_RFFT = Rule(
    "rfft",
    lambda xp, x, axis, norm: xp.fft.rfft(x, axis=axis, norm=norm),
    (_of_rfft,),
    linear="each",
)
_IRFFT = Rule(
    "irfft",
    lambda xp, x, n, axis, norm: xp.fft.irfft(x, n=n, axis=axis, norm=norm),
    (_of_irfft,),
    linear="each",
)


# -- lengths, scaling, order -----------------------------------------------------------------------


_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _check_norm(norm: Norm) -> str:
    if norm is None:
        return "backward"
    if norm not in _OPPOSITE:
        raise ValueError(f"norm={norm!r} of a Fourier transform: 'backward', 'ortho' or 'forward'")
    return norm


def _extent(
    x: Any, s: Lengths, axes: Axes, least: int = 0
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of a transform, and its lengths; -1 leaves one unchanged."""
    given = None if s is None else whole_numbers(s)
    if axes is None and given is not None:
        axes = range(x.ndim - len(given), x.ndim)
    places = normalized_axes(axes, x.ndim)
    if len(places) < least:
        raise AxisError(-1, x.ndim)
    if given is None:
        return places, tuple(x.shape[a] for a in places)
    if len(given) != len(places):
        raise ValueError(f"a Fourier transform along {len(places)} axes of {len(given)} lengths")
    pairs = zip(places, given, strict=True)
    return places, tuple(x.shape[a] if n == -1 else n for a, n in pairs)


def _resize_axis(x: Any, axis: int, length: int) -> Any:
    """Return ``x`` cut or padded with zeros along an axis."""
    own = x.shape[axis]
    if length <= own:
        return x if length == own else part_along(x, axis, None, length)
    rest = tuple(length - own if i == axis else n for i, n in enumerate(x.shape))
    zeros = library_of_value(x).xp.zeros(rest, dtype=x.dtype, device=x.device)
    return concat([x, zeros], axis=axis)


def fftshift(x: Any, *, axes: int | Sequence[int] | None = None) -> Any:
    """Return ``x`` with the middle of axes at their begin; all axes for None."""
    along = normalized_axes(axes, x.ndim)
    return roll(x, tuple(x.shape[a] // 2 for a in along), axis=along)


def ifftshift(x: Any, *, axes: int | Sequence[int] | None = None) -> Any:
    """Undo `fftshift`."""
    along = normalized_axes(axes, x.ndim)
    return roll(x, tuple(-(x.shape[a] // 2) for a in along), axis=along)
