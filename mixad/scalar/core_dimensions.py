"""Signatures of functions of small vectors and matrices: NumPy's, for generalised ufuncs.

``"(3),(n),()->(n)"``: the last axes of an argument are its *core*, the axes before them broadcast.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from mixad.errors import ConfigurationError

__all__ = ["MAX_ELEMENTS", "Core", "Signature", "read_signature"]

Core: TypeAlias = tuple[int | str, ...]
"""Lengths of core axes, or their names."""

MAX_ELEMENTS = 64
"""Elements of all arguments together, and of all results: each is a variable of the kernel."""

_CORE = r"\([^()]*\)"
_FORM = re.compile(rf"^{_CORE}(,{_CORE})*->{_CORE}(,{_CORE})*$")
_EXAMPLE = 'such as "(3),(n),()->(n)": a core in parentheses for each argument and result'


@dataclass(frozen=True)
class Signature:
    """The cores of a function's arguments and results."""

    text: str  # as the user wrote it
    inputs: tuple[Core, ...]  # one for each argument; ``()`` for numbers
    outputs: tuple[Core, ...]  # one for each result


@lru_cache(maxsize=256)
def read_signature(text: str) -> Signature:
    """Parse a signature; ConfigurationError if it is none."""
    packed = re.sub(r"\s", "", text)
    if not _FORM.match(packed):
        raise ConfigurationError(f"signature={text!r} is none: write one {_EXAMPLE}")
    inputs, outputs = (
        tuple(_core(text, core) for core in re.findall(_CORE, side)) for side in packed.split("->")
    )
    unknown = {d for core in outputs for d in core if isinstance(d, str)}
    unknown -= {d for core in inputs for d in core}
    if unknown:
        raise ConfigurationError(
            f"signature={text!r}: no argument has the length {sorted(unknown)[0]!r} of a result: "
            "write a number for it"
        )
    return Signature(text, inputs, outputs)


def _core(text: str, spelled: str) -> Core:
    """Return the lengths between two parentheses."""
    return tuple(_length(text, part) for part in spelled[1:-1].split(",") if part)


def _length(text: str, spelled: str) -> int | str:
    if spelled.isidentifier():
        return spelled
    if spelled.isdecimal() and int(spelled) > 0:
        return int(spelled)
    raise ConfigurationError(
        f"signature={text!r}: {spelled!r} is no length: write a number from 1 or a name, {_EXAMPLE}"
    )
