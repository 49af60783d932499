"""Filters and convolutions: counterparts of those of `scipy.signal`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mixad.broadcast.function import broadcast
from mixad.constructs.loops import scan
from mixad.namespace.manipulation import normalized_axes
from mixad.scipy.arguments import as_floats, is_complex, of_arrays
from mixad.scipy.programs.convolution import sum_of_products

__all__ = ["convolve", "correlate", "fftconvolve", "lfilter"]


# -- filters ---------------------------------------------------------------------------------------


@of_arrays("b a x zi")
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """Filter along an axis by a rational transfer function.

    Parameters
    ----------
    b, a : array
        Coefficients of numerator and denominator, by rising powers of the delay; at least one each.
    x : array
        What is filtered.
    axis : int
        Along which.
    zi : array, optional
        The state of the delays at the beginning, along ``axis`` one number fewer than the longer
        of ``b`` and ``a`` has; 0 by default.

    Returns
    -------
    array, or pair of array
        What comes out, of the shape of ``x``; with ``zi``, and the state of the delays at the end.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.signal.lfilter([1.0], [1.0, -0.5], [1.0, 0.0, 0.0])
    array([1.  , 0.5 , 0.25])
    """
    b, a, x, *state = as_floats(b, a, x, *([] if zi is None else [zi]))
    for name, each in (("b", b), ("a", a)):
        if each.ndim != 1 or not each.shape[0]:
            raise ValueError(f"lfilter: {name} has shape {tuple(each.shape)}: pass a vector")
    if not x.ndim:
        raise ValueError("lfilter: x has no axis to filter along")
    xp = x.__array_namespace__()
    ahead = [b[i] / a[0] for i in range(b.shape[0])]
    back = [a[i] / a[0] for i in range(1, a.shape[0])]
    rows = xp.astype(xp.moveaxis(x, axis, 0), xp.result_type(b, a, x, *state))
    shape = (max(len(ahead) - 1, len(back)), *rows.shape[1:])
    zeros = xp.zeros(shape, dtype=rows.dtype, device=rows.device)
    before = zeros + xp.astype(_state(state[0], axis, shape), rows.dtype) if state else zeros
    y, after = _filter(ahead, back, rows, before)
    y = xp.moveaxis(y, 0, axis)
    return (y, xp.moveaxis(after, 0, axis)) if state else y


def _state(zi: Any, axis: int, shape: tuple[int, ...]) -> Any:
    """Return the state of the delays along the first axis; it may broadcast."""
    xp = zi.__array_namespace__()
    if zi.ndim == len(shape):
        moved = xp.moveaxis(zi, axis, 0)
        pairs = zip(moved.shape, shape, strict=True)
        if moved.shape[0] == shape[0] and all(own in (1, wanted) for own, wanted in pairs):
            return moved
    wanted = [*shape[1:]]
    wanted.insert(axis % len(shape), shape[0])
    raise ValueError(f"lfilter: zi has shape {tuple(zi.shape)}: pass one of {tuple(wanted)}")


def _filter(
    ahead: Sequence[Any], back: Sequence[Any], rows: Any, before: Any
) -> tuple[Any, Any]:  # fmt: skip
    """Return the output of SciPy's transposed direct form II, and its last state."""
    order = int(before.shape[0])
    if not order:
        return ahead[0] * rows, before

    def step(delays: Sequence[Any], x: Any) -> tuple[tuple[Any, ...], Any]:
        y = ahead[0] * x + delays[0]
        following = [*delays[1:], 0.0]
        for i, coefficient in enumerate(ahead[1:]):
            following[i] = following[i] + coefficient * x
        for i, coefficient in enumerate(back):
            following[i] = following[i] - coefficient * y
        return tuple(following), y

    after, y = scan(step, tuple(before[i] for i in range(order)), rows)
    return y, before.__array_namespace__().stack(list(after))


# -- convolutions ----------------------------------------------------------------------------------


@of_arrays("in1 in2")
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """Convolve two arrays along all their axes.

    Parameters
    ----------
    in1, in2 : array
        Of as many axes.
    mode : str
        ``"full"``; ``"same"``, the middle of it, of the shape of ``in1``; ``"valid"``, where one
        lies within the other.
    method : str
        ``"direct"``, by sums; ``"fft"``, by Fourier transforms; ``"auto"``, sums if one has few
        elements, or of whole numbers.

    Returns
    -------
    array
        The convolution.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.signal.convolve([1.0, 2.0, 3.0], [1.0, 1.0], mode="same")
    array([1., 3., 5.])
    """
    return _convolve("convolve", in1, in2, mode, method)


@of_arrays("in1 in2")
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """Correlate two arrays along all their axes: convolve one with the other, turned round.

    Parameters
    ----------
    in1, in2 : array
        Of as many axes; of complex numbers the conjugates of ``in2`` are taken.
    mode : str
        As for `convolve`.
    method : str
        As for `convolve`.

    Returns
    -------
    array
        The correlation.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.signal.correlate([1.0, 2.0, 3.0], [0.0, 1.0], mode="valid")
    array([2., 3.])
    """
    xp = in2.__array_namespace__()
    turned = xp.flip(in2)
    turned = xp.conj(turned) if is_complex(turned) else turned
    return _convolve("correlate", in1, turned, mode, method)


@of_arrays("in1 in2")
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """Convolve two arrays by Fourier transforms.

    Parameters
    ----------
    in1, in2 : array
        Of as many axes; those that are not convolved along broadcast.
    mode : str
        As for `convolve`.
    axes : int or sequence of int, optional
        Along which; all by default.

    Returns
    -------
    array
        The convolution.

    Examples
    --------
    >>> import mixad.scipy
    >>> mixad.scipy.signal.fftconvolve([1.0, 2.0, 3.0], [1.0, 1.0]).round(12)
    array([1., 3., 5., 3.])
    """
    in1, in2 = as_floats(in1, in2)
    _check("fftconvolve", in1, in2, mode)
    along = normalized_axes(axes, in1.ndim)
    others = [axis for axis in range(in1.ndim) if axis not in along]
    if mode == "same" and any(in1.shape[axis] < in2.shape[axis] for axis in others):
        raise ValueError(
            f"fftconvolve(mode='same') of in1 of shape {tuple(in1.shape)}, which broadcasts to "
            f"in2 of shape {tuple(in2.shape)}: repeat in1, or exchange the two"
        )
    return _by_fft("fftconvolve", in1, in2, mode, list(along)) if along else in1 * in2


MAX_SUMMANDS = 256
"""Elements of the smaller array up to which sums take about as long as transforms, or less."""


def _convolve(name: str, in1: Any, in2: Any, mode: str, method: str) -> Any:
    _check(name, in1, in2, mode)
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"{name}(method={method!r}): method is 'auto', 'direct' or 'fft'")
    xp = in1.__array_namespace__()
    if not in1.ndim:
        return in1 * in2
    first, second = as_floats(in1, in2)
    is_whole = first is not in1 and second is not in2
    if method == "auto":
        few = min(math.prod(in1.shape), math.prod(in2.shape)) <= MAX_SUMMANDS
        method = "direct" if few or is_whole else "fft"
    if method == "fft":
        found = _by_fft(name, first, second, mode, list(range(in1.ndim)))
        return xp.astype(xp.round(found), xp.result_type(in1, in2)) if is_whole else found
    return _by_sums(name, in1, in2, mode)


def _check(name: str, in1: Any, in2: Any, mode: str) -> None:
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"{name}(mode={mode!r}): mode is 'full', 'same' or 'valid'")
    if in1.ndim != in2.ndim:
        raise ValueError(
            f"{name}: in1 has {in1.ndim} axes, in2 {in2.ndim}: reshape one to as many as the other"
        )
    if not math.prod(in1.shape) or not math.prod(in2.shape):
        raise ValueError(f"{name}: in1 or in2 has no elements")


def _window(
    name: str, shapes: Sequence[tuple[int, ...]], mode: str, axes: Sequence[int]
) -> list[tuple[int, int]]:
    """Return where the result begins in the full convolution along axes, and its lengths."""
    pairs = [(shapes[0][axis], shapes[1][axis]) for axis in axes]
    if mode == "full":
        return [(0, m + n - 1) for m, n in pairs]
    if mode == "same":
        return [((n - 1) // 2, m) for m, n in pairs]
    if not (all(m >= n for m, n in pairs) or all(m <= n for m, n in pairs)):
        raise ValueError(
            f"{name}(mode='valid') of shapes {shapes[0]} and {shapes[1]}: one is at least as long "
            "as the other along every axis"
        )
    return [(min(m, n) - 1, abs(m - n) + 1) for m, n in pairs]


def _by_fft(name: str, in1: Any, in2: Any, mode: str, axes: list[int]) -> Any:
    xp = in1.__array_namespace__()
    window = _window(name, (tuple(in1.shape), tuple(in2.shape)), mode, axes)
    lengths = [_good_length(in1.shape[axis] + in2.shape[axis] - 1) for axis in axes]
    if is_complex(in1) or is_complex(in2):
        spectra = [xp.fft.fftn(x, s=lengths, axes=axes) for x in _complex(xp, in1, in2)]
        whole = xp.fft.ifftn(spectra[0] * spectra[1], s=lengths, axes=axes)
    else:
        spectra = [xp.fft.rfftn(x, s=lengths, axes=axes) for x in (in1, in2)]
        whole = xp.fft.irfftn(spectra[0] * spectra[1], s=lengths, axes=axes)
    part = [slice(None)] * in1.ndim
    for axis, (start, length) in zip(axes, window, strict=True):
        part[axis] = slice(start, start + length)
    return whole[tuple(part)]


def _complex(xp: Any, *arrays: Any) -> list[Any]:
    return [x if is_complex(x) else x + 0j for x in arrays]


def _good_length(n: int) -> int:
    """Return the first number from n on that has no prime factors but 2, 3 and 5."""
    while True:
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return n
        n += 1


def _by_sums(name: str, in1: Any, in2: Any, mode: str) -> Any:
    """Return sums over the elements of the smaller array: one kernel, whatever the axes are."""
    xp = in1.__array_namespace__()
    window = _window(name, (tuple(in1.shape), tuple(in2.shape)), mode, range(in1.ndim))
    dtype = xp.result_type(in1, in2)
    x, h = xp.astype(in1, dtype), xp.astype(in2, dtype)
    if math.prod(x.shape) < math.prod(h.shape):
        x, h = h, x
    padded = _pad(xp, x, h.shape)
    strides = np.cumprod([1, *padded.shape[:0:-1]])[::-1]
    starts = [start + np.arange(length) for start, length in window]
    places = _flat(starts, strides)
    back = _flat([n - 1 - np.arange(n) for n in h.shape], strides)
    return _sum_of_products(
        _whole(xp, places, x), xp.reshape(padded, (-1,)), xp.reshape(h, (-1,)),
        _whole(xp, back.ravel(), x), math.prod(h.shape),
    )  # fmt: skip


def _pad(xp: Any, x: Any, shape: Sequence[int]) -> Any:
    """Return ``x`` between zeros, at either end one fewer than another array is long."""
    for axis, n in enumerate(shape):
        if n > 1:
            rest = tuple(n - 1 if a == axis else m for a, m in enumerate(x.shape))
            zeros = xp.zeros(rest, dtype=x.dtype, device=x.device)
            x = xp.concat([zeros, x, zeros], axis=axis)
    return x


def _flat(places: Sequence[Any], strides: Any) -> Any:
    """Return the sums of products of places along axes and strides, in all combinations."""
    products = [p * s for p, s in zip(places, strides, strict=True)]
    return sum(np.meshgrid(*products, indexing="ij"))


def _whole(xp: Any, numbers: Any, like: Any) -> Any:
    return xp.asarray(numbers.astype(np.int64), device=like.device)


_sum_of_products = broadcast(sum_of_products)
