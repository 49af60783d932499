"""``python -m mixad export module:kernel …``: what `BroadcastFunction.export` does."""

from __future__ import annotations

import argparse
import importlib
import re
from functools import reduce
from typing import Any

import numpy as np

from mixad.broadcast.function import BroadcastFunction
from mixad.errors import ConfigurationError

__all__ = ["add_options", "main"]

_ARRAY = re.compile(r"(\w+)\[([\d, ]*)\]")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Say what the command takes."""
    parser.add_argument("kernel", metavar="module:kernel", help="what is decorated, where it is")
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="argument",
        help="an example of each: float32[1000,300] for an array, 0.5 or 3 for a number",
    )
    parser.add_argument("--folder", help="where the files go; by default the kernel's name")
    parser.add_argument("--wrt", help="names of parameters, with commas")
    parser.add_argument("--what", default="value,pushforward,pullback", help="with commas")
    parser.add_argument("--target", default="c", help="c or cuda")
    parser.add_argument("--cpu", default="native", help="such as x86-64-v3")
    parser.add_argument("--fixed", action="store_true", help="extents are those of the example")
    parser.add_argument("--name", help="what functions and files are called")


def main(options: argparse.Namespace) -> int:
    """Export a kernel and say what was written."""
    kernel = _kernel(options.kernel)
    made = kernel.export(
        options.folder or options.kernel.rpartition(":")[2],
        *map(_example, options.arguments),
        wrt=None if options.wrt is None else options.wrt.split(","),
        what=options.what.split(","),
        target=options.target,
        cpu=options.cpu,
        dynamic=not options.fixed,
        name=options.name,
    )
    print(made)
    return 0


def _kernel(text: str) -> BroadcastFunction[Any]:
    module, _, name = text.partition(":")
    try:
        found = reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"export: {text!r} is no kernel that can be imported ({error}); write module:kernel"
        ) from error
    if not isinstance(found, BroadcastFunction):
        raise ConfigurationError(f"export: {text} is no decorated function; decorate it")
    return found


def _example(text: str) -> Any:
    """Return an array or a number that an argument of the command stands for."""
    match = _ARRAY.fullmatch(text)
    try:
        if match is None:
            return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)
        extents = [int(n) for n in match[2].split(",") if n.strip()]
        return np.empty(extents, np.dtype(match[1]))
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"export: {text!r} is no example of an argument ({error}); write float32[1000,300] for "
            "an array, 0.5 or 3 for a number"
        ) from error
