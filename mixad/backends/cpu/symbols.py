"""Which functions object code calls, and which it may call.

A kernel computes: it may call libm and libmvec, and copy or clear memory. Code that asks for
anything else is a bug of the emitter or a forged cache file, and is not loaded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mixad.backends.cpu.host import VECTOR_FUNCTIONS, address_of
from mixad.emit.llvm.instructions import INTRINSICS
from mixad.errors import BackendError
from mixad.scalar.ops import TABLE

__all__ = [
    "KERNEL_SYMBOLS",
    "Symbols",
    "check_symbols",
    "is_vector_function",
    "read_symbols",
]

_LIBM = [
    *(op.c for op in TABLE if op.lowering == "libm" and op.c is not None),
    *INTRINSICS.values(),  # which are calls where the CPU has no instruction
]

KERNEL_SYMBOLS = frozenset(
    [
        *_LIBM,
        *(f"{name}f" for name in _LIBM),
        *("memcpy", "memmove", "memset"),
        *("bzero", "__bzero"),  # what LLVM calls on macOS in place of memset
        "__chkstk",  # on Windows, to grow the stack by more than a page
    ]
)
"""The scalar functions that a kernel may call; libmvec's go by `is_vector_function`."""

_VECTOR = re.compile(r"_ZGV[bcde]N(?:2|4|8|16)v{1,2}_(\w+)")


@dataclass(frozen=True)
class Symbols:
    """The names of symbols that an object file defines, and of those it needs from elsewhere."""

    defined: frozenset[str]
    undefined: frozenset[str]


def is_vector_function(name: str) -> bool:
    """Whether a symbol is one of libmvec's functions, by its name alone: the host may not have it.

    >>> is_vector_function("_ZGVeN16v_expf"), is_vector_function("_ZGVeN16v_system")
    (True, False)
    """
    match = _VECTOR.fullmatch(name)
    return match is not None and match[1].removesuffix("f") in _VECTOR_STEMS


_VECTOR_STEMS = frozenset(name.removesuffix("f") for name in VECTOR_FUNCTIONS)


def check_symbols(symbols: Symbols, allowed: frozenset[str]) -> None:
    """Raise a BackendError that names symbols which code may not call, or which are missing here.

    Loading such code would end the process.
    """
    foreign = sorted(s for s in symbols.undefined if s not in allowed and not is_vector_function(s))
    if foreign:
        raise BackendError(f"object code calls {', '.join(foreign)}: not functions kernels may use")
    missing = sorted(s for s in symbols.undefined if not address_of(s))
    if missing:
        raise BackendError(f"object code calls {', '.join(missing)}: not found on this machine")


def read_symbols(object_code: bytes) -> Symbols:
    """Return the global symbols of an ELF or Mach-O file of 64 bits.

    BackendError if it is no such file, or damaged.
    """
    try:
        if object_code[:6] == b"\x7fELF\x02\x01":
            return _collect(_elf_symbols(object_code))
        if object_code[:4] == b"\xcf\xfa\xed\xfe":
            return _collect(_macho_symbols(object_code))
    except (struct.error, ValueError, IndexError) as error:
        raise BackendError(f"object code is damaged: {error}") from error
    raise BackendError("object code is neither a 64-bit ELF nor a Mach-O file")


def _collect(symbols: Iterable[tuple[str, bool]]) -> Symbols:
    found = set(symbols)
    return Symbols(
        defined=frozenset(name for name, is_defined in found if is_defined),
        undefined=frozenset(name for name, is_defined in found if not is_defined),
    )


def _name(strings: bytes, offset: int) -> str:
    return strings[offset : strings.index(b"\0", offset)].decode("ascii")


_ELF_SYMBOL = struct.Struct("<IBBHQQ")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")


def _elf_symbols(code: bytes) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether defined) of the global symbols; see the System V ABI, chapter 4."""
    (table,) = struct.unpack_from("<Q", code, 0x28)
    entry_size, count = struct.unpack_from("<HH", code, 0x3A)
    sections = [_ELF_SECTION.unpack_from(code, table + entry_size * i) for i in range(count)]
    symbol_table = 2
    for section in sections:
        _, kind, _, _, offset, size, link, *_ = section
        if kind != symbol_table:
            continue
        strings = code[sections[link][4] : sections[link][4] + sections[link][5]]
        for name, info, _, home, _, _ in _ELF_SYMBOL.iter_unpack(code[offset : offset + size]):
            is_local = info >> 4 == 0
            if name and not is_local:
                yield _name(strings, name), home != 0


_MACHO_SYMBOL = struct.Struct("<IBBHQ")


def _macho_symbols(code: bytes) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether defined) of the external symbols; see Apple's mach-o/nlist.h."""
    (commands,) = struct.unpack_from("<I", code, 16)
    offset = 32
    symbol_table = 2
    for _ in range(commands):
        kind, size = struct.unpack_from("<II", code, offset)
        if kind == symbol_table:
            start, count, text, text_size = struct.unpack_from("<IIII", code, offset + 8)
            table = code[start : start + count * _MACHO_SYMBOL.size]
            for name, flags, _, _, _ in _MACHO_SYMBOL.iter_unpack(table):
                is_external, is_debug = flags & 0x01, flags & 0xE0
                if is_external and not is_debug:
                    symbol = _name(code[text : text + text_size], name)
                    yield symbol.removeprefix("_"), flags & 0x0E != 0
        offset += size
