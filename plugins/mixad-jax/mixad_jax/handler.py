"""The foreign function that XLA calls, and the kernels that it finds by a hash of their content.

The code is `handler.ll`, compiled as kernels are: no compiler of C is needed. What a program has of
a kernel is the hash alone, so that a program that was compiled by another process, and comes from
JAX's persistent cache, finds the kernel that this process has made of the same content.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import os
import threading
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import jax

from mixad.backends.cpu import workers
from mixad.backends.cpu.compiler import Module, cached_module
from mixad.errors import BackendError
from mixad.kernel.arguments import ArgumentLayout

__all__ = ["FFI_MAJOR", "FFI_STRUCTS", "TARGET", "Record", "register"]

TARGET = "mixad_kernel"
"""The name of the foreign function in programs of XLA."""

FFI_MAJOR = 0
"""The major version of XLA's interface that the structs below are of."""

_METADATA = 1
"""``XLA_FFI_Extension_Metadata``."""

_pointer, _size, _int32, _int64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_int64


def _struct(name: str, *fields: tuple[str, Any]) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": fields})


_HEAD = ("struct_size", _size), ("extension_start", _pointer)
_Extension = _struct("Extension", ("struct_size", _size), ("type", _int32), ("next", _pointer))
_Version = _struct("Version", *_HEAD, ("major_version", _int32), ("minor_version", _int32))
_Metadata = _struct("Metadata", ("struct_size", _size), ("api_version", _Version),
                    ("traits", ctypes.c_uint32))  # fmt: skip
_MetadataExtension = _struct(
    "MetadataExtension", ("extension_base", _Extension), ("metadata", _pointer)
)
_Api = _struct("Api", *_HEAD, ("api_version", _Version), ("internal_api", _pointer),
               ("XLA_FFI_Error_Create", _pointer))  # fmt: skip
_ErrorArgs = _struct("ErrorArgs", *_HEAD, ("message", _pointer), ("errc", _int32))
_Buffer = _struct("Buffer", *_HEAD, ("dtype", _int32), ("data", _pointer), ("rank", _int64),
                  ("dims", _pointer))  # fmt: skip
_Scalar = _struct("Scalar", ("dtype", _int32), ("value", _pointer))
_Args = _struct("Args", *_HEAD, ("size", _int64), ("types", _pointer), ("args", _pointer))
_Rets = _struct("Rets", *_HEAD, ("size", _int64), ("types", _pointer), ("rets", _pointer))
_Attrs = _struct("Attrs", *_HEAD, ("size", _int64), ("types", _pointer), ("names", _pointer),
                 ("attrs", _pointer))  # fmt: skip
_CallFrame = _struct("CallFrame", *_HEAD, ("api", _pointer), ("ctx", _pointer), ("stage", _int32),
                     ("args", _Args), ("rets", _Rets), ("attrs", _Attrs))  # fmt: skip

FFI_STRUCTS = {
    "XLA_FFI_Extension_Base": _Extension,
    "XLA_FFI_Api_Version": _Version,
    "XLA_FFI_Metadata": _Metadata,
    "XLA_FFI_Metadata_Extension": _MetadataExtension,
    "XLA_FFI_Api": _Api,
    "XLA_FFI_Error_Create_Args": _ErrorArgs,
    "XLA_FFI_Buffer": _Buffer,
    "XLA_FFI_Scalar": _Scalar,
    "XLA_FFI_Args": _Args,
    "XLA_FFI_Rets": _Rets,
    "XLA_FFI_Attrs": _Attrs,
    "XLA_FFI_CallFrame": _CallFrame,
}
"""XLA's structs as ``xla/ffi/api/c_api.h`` of jaxlib has them, as far as they are read."""

_MESSAGES = {
    "unknown": "mixad: this program calls a kernel that this process has not traced; trace the "
    "function here, and compile it again",
    "interrupted": "mixad: a kernel was ended by Ctrl-C",
    "unaligned": "mixad: XLA gave a buffer that does not begin a line of the cache",
}


def _source() -> str:
    """Return the LLVM IR of the function, with the offsets of structs filled in."""
    text = importlib.resources.files("mixad_jax").joinpath("handler.ll").read_text("utf-8")
    frame, api = _CallFrame, _Api
    names: dict[str, object] = {
        "frame_extension": frame.extension_start.offset,
        "frame_api": frame.api.offset,
        "frame_arguments": frame.args.offset + _Args.args.offset,
        "frame_results": frame.rets.offset + _Rets.rets.offset,
        "frame_attributes": frame.attrs.offset + _Attrs.attrs.offset,
        "api_error_create": api.XLA_FFI_Error_Create.offset,
        "api_minor": api.api_version.offset + _Version.minor_version.offset,
        "error_words": ctypes.sizeof(_ErrorArgs) // 8,
        "error_size": _ErrorArgs.errc.offset + _ErrorArgs.errc.size,
        "error_extension": _ErrorArgs.extension_start.offset,
        "error_message": _ErrorArgs.message.offset,
        "error_code": _ErrorArgs.errc.offset,
        "extension_type": _Extension.type.offset,
        "extension_metadata": _MetadataExtension.metadata.offset,
        "metadata_type": _METADATA,
        "metadata_major": _Metadata.api_version.offset + _Version.major_version.offset,
        "metadata_minor": _Metadata.api_version.offset + _Version.minor_version.offset,
        "metadata_traits": _Metadata.traits.offset,
        "scalar_value": _Scalar.value.offset,
        "buffer_data": _Buffer.data.offset,
        "block_stop": ArgumentLayout.STOP,
        "block_outside": ArgumentLayout.OUTSIDE,
        "major": FFI_MAJOR,
        "sigaction": (
            "declare i32 @sigaction(i32, ptr, ptr)"
            if os.name == "posix"
            else "define internal i32 @sigaction(i32 %s, ptr %a, ptr %b) { ret i32 -1 }"
        ),
    }
    for name, message in _MESSAGES.items():
        names |= {name: message, f"{name}_length": len(message) + 1}
    return Template(text).substitute(names)


@dataclass(frozen=True, eq=False)
class Record:
    """What the function reads of a kernel: see `handler.ll`."""

    kernel: int  # address of the kernel; ``owner`` keeps it
    tiles: int
    runs_directly: bool  # whether the calling thread runs it alone
    may_not_end: bool  # whether Ctrl-C is to end it
    streams: bool  # whether its results begin lines of the cache
    words: array[int]  # the argument block without addresses
    arguments: Sequence[int]  # by buffer: the position of its address in the block; -1 for none
    results: Sequence[int]  # the same
    messages: Sequence[str]  # the errors of arrays that may be read outside their extents
    owner: object  # what is kept as long as the record, which is for ever


class _Table:
    """The records of this process, in memory that the function searches while this is written."""

    def __init__(self, module: Module) -> None:
        prototype = ctypes.CFUNCTYPE(None, _pointer)
        self._set_table = module.function("set_table", prototype)
        self._set_workers = module.function("set_workers", ctypes.CFUNCTYPE(None, *[_pointer] * 2))
        self._lock = threading.Lock()
        self._records: dict[tuple[int, int], int] = {}
        self._kept: list[object] = []  # a program may call a record as long as the process is there
        self._grow(64)

    def add(self, key: tuple[int, int], record: Record) -> None:
        """Keep a record under a hash, and tell the function which threads there are now."""
        with self._lock:
            self._set_workers(*workers.shared_workers().entry)
            if key in self._records:
                return
            self._records[key] = self._written(record)
            if 2 * len(self._records) > self._slots:
                self._grow(2 * self._slots)
            else:
                self._insert(key)

    def _written(self, record: Record) -> int:
        messages = [ctypes.create_string_buffer(m.encode()) for m in record.messages]
        lists = [record.words, array("q", record.arguments), array("q", record.results),
                 array("q", map(ctypes.addressof, messages))]  # fmt: skip
        words, arguments, results, told = (part.buffer_info() for part in lists)
        flags = record.runs_directly + 2 * record.may_not_end + 4 * record.streams
        counted = words[::-1] + arguments[::-1] + results[::-1]
        whole = array("q", (record.kernel, record.tiles, flags, *counted, told[0]))
        self._kept.append((whole, lists, messages, record.owner))
        return whole.buffer_info()[0]

    def _grow(self, slots: int) -> None:
        self._slots = slots
        self._memory = array("q", bytes(8 * (1 + 3 * slots)))
        self._memory[0] = slots - 1
        self._kept.append(self._memory)  # the function may be searching the one before
        for key in self._records:
            self._insert(key)
        self._set_table(self._memory.buffer_info()[0])

    def _insert(self, key: tuple[int, int]) -> None:
        """Write an entry into an empty slot, which is no longer empty once it is whole."""
        at = key[0] & (self._slots - 1)
        while self._memory[3 + 3 * at]:
            at = (at + 1) & (self._slots - 1)
        self._memory[1 + 3 * at], self._memory[2 + 3 * at] = key
        self._memory[3 + 3 * at] = self._records[key]


@functools.cache
def compiled() -> Module:
    """Return the code of the function, which stays: threads of XLA may be in it at the end."""
    source = _source()
    allowed = frozenset({"memcpy", "sigaction"})
    module = cached_module(source, lambda: source, allowed=allowed)
    module.keep_forever()
    return module


@functools.cache
def _table() -> _Table:
    module = compiled()
    address = ctypes.c_void_p(module.address(TARGET))
    try:
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(address), platform="cpu")
    except Exception as error:
        raise BackendError(
            f"mixad-jax: jaxlib refuses foreign functions of version {FFI_MAJOR} of its interface: "
            f"{error}"
        ) from error
    return _Table(module)


def register(key: tuple[int, int], record: Record) -> None:
    """Make a kernel known to programs that have its hash: two words, other than those of others."""
    _table().add(key, record)
