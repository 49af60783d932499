"""SciPy's functions; the counterpart of `convolve`, which is along all axes."""

from typing import Any

from scipy.signal import *  # noqa: F403

from mixad.scipy import signal


def convolve(A: Any, B: Any, axes: Any = None, dot_axes: Any = None, mode: str = "full") -> Any:
    """Return SciPy's convolution: `axes` and `dot_axes` are autograd's."""
    if axes is not None:
        raise NotImplementedError("SciPy's convolve has no axes")
    return signal.convolve(A, B, mode)
