"""Kernels of mixad in JAX's transforms, and JAX's functions in mixad's.

Importing this module imports no JAX: the integration is loaded where that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mixad.backends.hookspecs import API_VERSION, Integration, IntegrationSpec, hookimpl
from mixad.errors import BackendError

__all__ = ["borrow", "mixad_integrations"]


def borrow(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of JAX as one that takes what mixad differentiates.

    JAX asks nobody about values that are not its own, so ``jnp.sin(x)`` and ``jax.jit(g)(x)`` of a
    value that is being differentiated are TypeErrors of JAX's; ``borrow(jnp.sin)(x)`` is recorded
    with JAX's own derivative, of any order and in both modes.

    Parameters
    ----------
    function : callable
        Takes and returns pytrees of JAX's arrays.  It is compiled as by `jax.jit`, once for each
        structure, shapes and dtypes of its arguments: whole numbers, booleans and texts among them
        are parts of the program.  Give the same function each time, not a new lambda.

    Returns
    -------
    callable
        The function; where nothing is differentiated it is called as it is.

    Raises
    ------
    TracerError
        If it is no function, or one without a hash.  In a call: if a value that is being
        differentiated is not of JAX.

    Examples
    --------
    >>> import mixad, jax.numpy as jnp
    >>> norm = borrow(jnp.linalg.norm)
    >>> mixad.grad(lambda x: norm(x) ** 2)(jnp.array([3.0, 4.0]))
    Array([6., 8.], dtype=float32)
    """
    from mixad_jax.borrowed import Borrowed

    return Borrowed(function)


@hookimpl
def mixad_integrations() -> list[IntegrationSpec]:
    """Announce the integration with JAX's transforms."""
    return [IntegrationSpec("jax", API_VERSION, "jax", _integrate)]


def _integrate() -> Integration:
    import jax

    if jax.__version_info__ < (0, 10):
        raise BackendError(f"it needs JAX 0.10, this is {jax.__version__}")
    from mixad_jax.primitive import JaxIntegration

    return JaxIntegration()
