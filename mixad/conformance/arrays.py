"""How a backend under test is given arrays, and how its results are read."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

from mixad.backends.arrays import device_name
from mixad.backends.hookspecs import ANY, Capability

__all__ = ["Conversion", "ConversionError", "conversion_for", "conversion_from"]


class ConversionError(Exception):
    """There is no way to make arrays for the backend; the message says what to do."""


@dataclass(frozen=True)
class Conversion:
    """Both ways between NumPy arrays and those that a backend is given.

    Attributes
    ----------
    to_library : callable
        From a NumPy array to an array that the backend serves.
    to_numpy : callable
        From an array that the backend returned to a NumPy array.
    name : str
        What the arrays are, for reports.
    """

    to_library: Callable[[Any], Any]
    to_numpy: Callable[[Any], Any]
    name: str


def conversion_from(module_name: str) -> Conversion:
    """Return the conversion that a module defines.

    Parameters
    ----------
    module_name : str
        Of a module with functions ``to_library`` and ``to_numpy``.

    Returns
    -------
    Conversion
        Of these functions.

    Raises
    ------
    ConversionError
        If the module cannot be imported or lacks one of them.
    """
    try:
        module = importlib.import_module(module_name)
        return Conversion(module.to_library, module.to_numpy, module_name)
    except (ImportError, AttributeError) as error:
        raise ConversionError(
            f"--mixad-arrays={module_name}: {error}; name a module with functions "
            "to_library(array) and to_numpy(array)"
        ) from error


def conversion_for(capability: Capability) -> Conversion:
    """Return the conversion for the arrays that a capability names.

    Parameters
    ----------
    capability : Capability
        Of the backend.

    Returns
    -------
    Conversion
        NumPy's own where NumPy arrays on the CPU are served, else that of the first library named
        there that can be imported and has the device.

    Raises
    ------
    ConversionError
        If there is none; the message has the reason for each library.
    """
    libraries = ("numpy",) if ANY in capability.array_modules else capability.array_modules
    if "numpy" in libraries and capability.serves("numpy", "cpu", frozenset()):
        return Conversion(np.asarray, np.asarray, "NumPy arrays")
    reasons = []
    for library in libraries:
        try:
            return _through_namespace(library, capability.devices)
        except Exception as error:  # whatever a library raises that has no such device
            reasons.append(f"{library}: {type(error).__name__}: {error}")
    raise ConversionError(
        f"no arrays for the backend can be made ({'; '.join(reasons)}): install one of these "
        "libraries, or pass --mixad-arrays=MODULE, a module with functions to_library(array) and "
        "to_numpy(array)"
    )


def _through_namespace(library: str, devices: tuple[str, ...]) -> Conversion:
    """Return the conversion by a library's array-API functions, tried once."""
    xp = array_api_compat.array_namespace(importlib.import_module(library).asarray([0.0]))

    def to_library(array: Any) -> Any:
        made = xp.asarray(np.array(array))  # a copy: the library's arrays may be written to
        if ANY in devices or device_name(made).partition(":")[0] in devices:
            return made
        return array_api_compat.to_device(made, devices[0])

    def to_numpy(array: Any) -> Any:
        on_host = array if device_name(array) == "cpu" else array_api_compat.to_device(array, "cpu")
        return np.asarray(on_host)

    to_numpy(to_library(np.zeros(1, np.float32)))
    return Conversion(to_library, to_numpy, f"arrays of {library}")
