"""What functions use, read from machine code: no device is needed, and no tool.

Machine code ("cubin") is an ELF file.  Its section ``.nv.info`` is a list of attributes, of which
two matter: registers and local memory of each function.  Shared memory is the size of the
function's section ``.nv.shared``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mixad.backends.cuda.device import Usage
from mixad.errors import BackendError

__all__ = ["usage_in"]

_REGISTERS, _FRAME = 0x2F, 0x11
"""Attributes of a function: each is its symbol and a number."""

_SIZED = 0x04
"""The form of an attribute that says how long it is; others take four bytes."""

_NO_BITS = 8
"""The type of a section that takes no room in the file."""

_RESERVED = 1024
"""Bytes of shared memory that the system has of each block, from compute capability 9.0 on in the
section too."""


class _Header(NamedTuple):
    """How ELF describes a section."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


_HEADER = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class _Section:
    header: _Header
    content: bytes


def usage_in(cubin: bytes) -> dict[str, Usage]:
    """Return what each function of a module uses, by symbol.

    BackendError if it is no machine code of the form that NVRTC and ptxas make.
    """
    if cubin[:5] != b"\x7fELF\x02":
        raise BackendError(f"this is no machine code of CUDA: it begins with {cubin[:5]!r}")
    sections = dict(_sections(cubin))
    symbols = _symbols(sections)
    found = _attributes(sections[".nv.info"].content)
    reserved = _RESERVED if ".nv.shared.reserved.0" in sections else 0
    usage = {}
    for symbol, registers in found[_REGISTERS].items():
        name = symbols[symbol]
        shared = sections.get(f".nv.shared.{name}")
        size = shared.header.size - reserved if shared else 0
        usage[name] = Usage(registers, found[_FRAME].get(symbol, 0), size)
    return usage


def _sections(cubin: bytes) -> Iterator[tuple[str, _Section]]:
    (table,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, of_names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [_Header(*_HEADER.unpack_from(cubin, table + k * size)) for k in range(count)]
    names = headers[of_names].offset
    for h in headers:
        content = b"" if h.type == _NO_BITS else cubin[h.offset : h.offset + h.size]
        yield _text(cubin, names + h.name), _Section(h, content)


def _symbols(sections: dict[str, _Section]) -> list[str]:
    names = sections[".strtab"].content
    return [_text(names, s[0]) for s in _SYMBOL.iter_unpack(sections[".symtab"].content)]


def _text(content: bytes, at: int) -> str:
    return content[at : content.index(b"\0", at)].decode()


def _attributes(content: bytes) -> dict[int, dict[int, int]]:
    """Return the numbers of the two attributes, symbol by symbol."""
    found: dict[int, dict[int, int]] = {_REGISTERS: {}, _FRAME: {}}
    at = 0
    while at < len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form != _SIZED:
            continue
        if attribute in found:
            symbol, value = struct.unpack_from("<II", content, at)
            found[attribute][symbol] = value
        at += size
    return found
