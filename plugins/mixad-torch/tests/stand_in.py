"""A stand-in for a device: cuda-bindings and NVRTC are real, launches reach the emulator.

NVRTC compiles each text to machine code, which is remembered by its bytes and loaded by
cuda-bindings into `benchmarks.stand_in`'s library; the emulator runs the text.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from itertools import count
from typing import Any, ClassVar

from cuda_emulator import EmulatedDriver

from benchmarks import stand_in
from mixad.backends import nvrtc
from mixad.backends.cuda import Code, Usage, usage_in

REGISTERS, LOCAL, SHARED = 4, 3, 1
"""What of a function is asked for, as ``CUfunction_attribute`` has it."""

_COMPILED = nvrtc.compile_text


class StandIn:
    """CUDA as one process sees it: what an earlier one loaded stays.

    Attributes
    ----------
    compiled : list of (str, str)
        The texts that went through the compiler, and for which architecture.
    stream : int
        The current one.
    streams : list of int
        The stream of each launch.
    entered : list
        The devices that were made current.
    captures : bool
        Whether the current stream is recorded for a graph.
    """

    _emulator = EmulatedDriver()
    _numbers = count(1)
    _texts: ClassVar[dict[bytes, str]] = {}  # by machine code
    _modules: ClassVar[dict[int, bytes]] = {}
    _functions: ClassVar[dict[int, tuple[Any, Usage | None]]] = {}

    def __init__(self) -> None:
        self.compiled: list[tuple[str, str]] = []
        self.stream = 77
        self.streams: list[int] = []
        self.captures = False
        self.entered: list[Any] = []
        stand_in.use(
            stand_in.hooks(
                load=self._load,
                find=self._find,
                function_attribute=self._attribute,
                launch=self._launch,
            )
        )

    def compile(self, text: str, architecture: str, options: Sequence[str] = ()) -> Code:
        """Compile by NVRTC, and remember what was compiled."""
        code = _COMPILED(text, architecture, options)
        self._texts[code.cubin or code.ptx.encode()] = text
        self.compiled.append((text, architecture))
        return code

    def _load(self, image: int) -> int:
        number = next(self._numbers)
        self._modules[number] = _image_at(image)
        return number

    def _find(self, module: int, name: bytes) -> int:
        code, entry, number = self._modules[module], name.decode(), next(self._numbers)
        used = usage_in(code)[entry] if code.startswith(b"\x7fELF") else None
        emulated = self._emulator.compile(self._texts[code], [entry], None)[entry]
        self._functions[number] = emulated, used
        return number

    def _attribute(self, attribute: int, function: int) -> int:
        _, used = self._functions[function]
        return {REGISTERS: used.registers, LOCAL: used.local, SHARED: used.shared}[attribute]

    def _launch(
        self, function: int, blocks: int, x: int, y: int, stream: int | None, argument: int
    ) -> int:
        self.streams.append(stream or 0)
        self._emulator.launch(self._functions[function][0], blocks, (x, y), None, _Words(argument))
        return 0


def _image_at(address: int) -> bytes:
    """Return what is at an address: an ELF file, which ends with its last table, or a text."""
    if ctypes.string_at(address, 4) != b"\x7fELF":
        return ctypes.string_at(address)
    header = ctypes.string_at(address, 64)
    segments, sections = struct.unpack_from("<QQ", header, 32)
    of_segment, count_of_segments, of_section, count_of_sections = struct.unpack_from(
        "<4H", header, 54
    )
    ends = segments + of_segment * count_of_segments, sections + of_section * count_of_sections
    return ctypes.string_at(address, max(ends))


class _Words(array):
    """Words at an address, as far as the emulator asks."""

    def __new__(cls, address: int) -> _Words:
        self = super().__new__(cls, "q")
        self.address = address
        return self

    def buffer_info(self) -> tuple[int, int]:
        return self.address, 0
