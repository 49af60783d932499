"""Functions under SciPy's names and arguments, of arrays of any library and of traced values.

SciPy makes NumPy arrays of what it is given.  These are written with the functions of the standard,
with kernels and loops of steps, so that they are differentiated, and fuse, as these do.  What tells
SciPy how to use memory or whether to look for nan (``overwrite_a``, ``check_finite``) is left out.
"""

from mixad.scipy import fft, linalg, signal, special, stats

__all__ = ["fft", "linalg", "signal", "special", "stats"]
