"""Calls of exported functions by ctypes, with NumPy's arrays."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np

_FLOATS = {"float32": ctypes.c_float, "float64": ctypes.c_double, "bool": ctypes.c_uint8}


class Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("extents", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
    )


class Plan(ctypes.Structure):
    """The begin of a plan, and room for what follows."""

    _fields_ = (
        ("tiles", ctypes.c_int64),
        ("stop", ctypes.c_int32),
        ("outside", ctypes.c_int32),
        ("own", ctypes.c_int64 * 4096),
    )


def described(array: np.ndarray, *, strides: bool = True) -> Array:
    """Return an array as C has it; it must live as long as that."""
    numbers = ctypes.c_int64 * max(1, array.ndim)
    extents = numbers(*array.shape)
    return Array(array.ctypes.data, extents, numbers(*array.strides) if strides else None)


class Exported:
    """An export in a folder, loaded."""

    def __init__(self, folder: Path) -> None:
        self.record = json.loads((folder / "export.json").read_text("utf-8"))
        self.library = ctypes.CDLL(str(folder / self.record["library"]))
        self.functions = {f["what"]: f for f in self.record["functions"]}

    def given(self, what, arguments, results, *, strides=True):
        """Return what a function of C is given."""
        function = self.functions[what]
        given = []
        for value, about in zip(arguments, function["arguments"], strict=True):
            if about["kind"] == "number":
                number = _FLOATS.get(about["dtype"]) or getattr(ctypes, f"c_{about['dtype']}")
                given.append(number(value))
            else:
                assert value.dtype == about["dtype"]
                given.append(ctypes.byref(described(value, strides=strides)))
        for array, about in zip(results, function["results"], strict=True):
            assert array is None or array.dtype == about["dtype"]
            given.append(None if array is None else ctypes.byref(described(array)))
        return given

    def status(self, what, arguments, results, **options):
        """Call a function; return its status."""
        call = self.library[self.functions[what]["symbol"]]
        return call(*self.given(what, arguments, results, **options))

    def results(self, what, arguments, shape, order="C"):
        """Return new arrays for the results of a call over a broadcast shape."""
        function, names = self.functions[what], {}
        for value, about in zip(arguments, self.functions[what]["arguments"], strict=True):
            names[about["name"]] = np.shape(value)
        shapes = [
            names[r["name"].removeprefix("gradient ")] if "gradient" in r["name"] else shape
            for r in function["results"]
        ]
        pairs = zip(shapes, function["results"], strict=True)
        return [np.full(own, 7, r["dtype"], order) for own, r in pairs]

    def __call__(self, what, *arguments, shape=None, **options):
        """Return what a function gives, over a broadcast shape."""
        if shape is None:
            shape = np.broadcast_shapes(*map(np.shape, arguments))
        results = self.results(what, arguments, shape)
        assert self.status(what, arguments, results, **options) == 0
        return results
