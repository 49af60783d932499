"""Cosine transforms: counterparts of those of `scipy.fft`.

Each is a Fourier transform of a sequence that is made even, which shifts of half an element turn
(Makhoul, "A fast cosine transform in one and two dimensions", 1980).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mixad.scipy.arguments import as_floats, is_complex, of_arrays

__all__ = ["dct", "idct"]

_INVERSES = {1: 1, 2: 3, 3: 2, 4: 4}


@of_arrays("x")
def dct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, *,
    orthogonalize: bool | None = None,
) -> Any:  # fmt: skip
    """Return the cosine transform along an axis.

    Parameters
    ----------
    x : array
        What is transformed.
    type : int
        Which transform, from 1 to 4.
    n : int, optional
        Length of the result: ``x`` is cut off or filled up with zeros.
    axis : int
        Along which.
    norm : str, optional
        Which of a transform and its inverse divides by the length: ``"backward"``, the inverse, by
        default; ``"forward"``; ``"ortho"``, both by the root.
    orthogonalize : bool, optional
        Whether the first number (of type 1 the last, too) is scaled so that the transform is
        orthogonal; where ``norm`` is ``"ortho"`` by default.

    Returns
    -------
    array
        Of the library of ``x``.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.fft.dct([1.0, 2.0, 3.0], norm="ortho").round(3)
    array([ 3.464, -1.414, -0.   ])
    """
    return _transform("dct", x, type, n, axis, norm or "backward", orthogonalize)


@of_arrays("x")
def idct(
    x: Any, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None, *,
    orthogonalize: bool | None = None,
) -> Any:  # fmt: skip
    """Return what `dct` transforms to ``x``.

    Parameters
    ----------
    x : array
        What is transformed.
    type : int
        Of the transform that is inverted.
    n : int, optional
        As for `dct`.
    axis : int
        Along which.
    norm : str, optional
        As for `dct`.
    orthogonalize : bool, optional
        As for `dct`.

    Returns
    -------
    array
        Of the library of ``x``.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.fft.idct(mixad.scipy.fft.dct([1.0, 2.0, 3.0]))
    array([1., 2., 3.])
    """
    norm = norm or "backward"
    opposite = {"backward": "forward", "forward": "backward"}.get(norm, norm)
    return _transform("idct", x, _INVERSES.get(type, type), n, axis, opposite, orthogonalize)


def _transform(
    name: str, x: Any, type: int, n: int | None, axis: int, norm: str, orthogonalize: bool | None
) -> Any:
    if type not in _TRANSFORMS:
        raise ValueError(f"{name}(type={type!r}): type is 1, 2, 3 or 4")
    if norm not in ("backward", "forward", "ortho"):
        raise ValueError(f"{name}(norm={norm!r}): norm is 'backward', 'forward' or 'ortho'")
    (x,) = as_floats(x)
    xp = x.__array_namespace__()
    if is_complex(x):
        parts = [_transform(name, p, type, n, axis, norm, orthogonalize)
                 for p in (xp.real(x), xp.imag(x))]  # fmt: skip
        return parts[0] + 1j * parts[1]
    x = _resize(xp, xp.moveaxis(x, axis, -1), n)
    length = x.shape[-1]
    if length < 1 + (type == 1):
        raise ValueError(f"{name}(type={type}) of {length} numbers: it takes {1 + (type == 1)}")
    is_orthogonal = norm == "ortho" if orthogonalize is None else orthogonalize
    before, after = _ends(type, length) if is_orthogonal else (None, None)
    y = _TRANSFORMS[type](xp, x if before is None else x * _array_beside(xp, before, x))
    whole = 2 * (length - 1 if type == 1 else length)
    factor = {"backward": 1.0, "forward": 1 / whole, "ortho": 1 / math.sqrt(whole)}[norm]
    scale = factor * (1.0 if after is None else _array_beside(xp, after, x))
    return xp.moveaxis(y * scale, -1, axis)


def _resize(xp: Any, x: Any, n: int | None) -> Any:
    length = x.shape[-1]
    if n is None or n == length:
        return x
    if n < 1:
        raise ValueError(f"a cosine transform of {n} numbers: n is at least 1")
    if n < length:
        return x[..., :n]
    return xp.concat([x, xp.zeros_like(x[..., :1] + xp.zeros(n - length, dtype=x.dtype))], axis=-1)


def _ends(type: int, length: int) -> tuple[Any, Any]:
    """Return the factors of the numbers before and after an orthogonal transform."""
    root, ones = math.sqrt(2), np.ones(length)
    first = ones.copy()
    first[0] = root
    if type == 1:
        first[-1] = root
        return first, 1 / first
    return {2: (None, 1 / first), 3: (first, None), 4: (None, None)}[type]


def _array_beside(xp: Any, numbers: Any, x: Any) -> Any:
    """Return numbers as an array beside another; complex ones of its precision."""
    if np.iscomplexobj(numbers):
        return _array_beside(xp, numbers.real, x) + 1j * _array_beside(xp, numbers.imag, x)
    return xp.asarray(numbers, dtype=x.dtype, device=x.device)


def _first(xp: Any, x: Any) -> Any:
    """Return x₀ + (-1)ᵏ x_{N-1} + 2 Σ xₙ cos(πkn/(N - 1))."""
    return xp.real(xp.fft.rfft(xp.concat([x, xp.flip(x, axis=-1)[..., 1:-1]], axis=-1)))


def _second(xp: Any, x: Any) -> Any:
    """Return 2 Σ xₙ cos(πk(2n + 1)/2N)."""
    n = x.shape[-1]
    half = xp.fft.rfft(xp.concat([x, xp.flip(x, axis=-1)], axis=-1))[..., :n]
    return xp.real(half * _array_beside(xp, _turns(n), x))


def _third(xp: Any, x: Any) -> Any:
    """Return x₀ + 2 Σ xₙ cos(π(2k + 1)n/2N)."""
    n = x.shape[-1]
    half = x * _array_beside(xp, _turns(n).conj(), x)
    return 2 * n * xp.fft.irfft(half, n=2 * n)[..., :n]


def _fourth(xp: Any, x: Any) -> Any:
    """Return 2 Σ xₙ cos(π(2k + 1)(2n + 1)/4N)."""
    n = x.shape[-1]
    turned = xp.fft.fft(x * _array_beside(xp, _turns(n), x), n=2 * n)[..., :n]
    return 2 * xp.real(turned * _array_beside(xp, _turns(n, 0.5), x))


def _turns(n: int, start: float = 0.0) -> Any:
    """Return exp(-iπk/2N) for k = start, start + 1, …"""
    return np.exp(-0.5j * math.pi / n * (start + np.arange(n)))


_TRANSFORMS = {1: _first, 2: _second, 3: _third, 4: _fourth}
