"""LLVM IR to machine code, and machine code to functions.

Two steps, so that the first can be skipped when its result is cached: `compile_object` makes
relocatable object code, `load_object` makes it callable. The IR has its vectors already, so LLVM's
own vectorisers are off. Nothing here lets LLVM change a floating-point result: no fast-math, and a
product and a sum stay two instructions.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import llvmlite.binding as llvm

from mixad.backends.cpu.host import LLVM_LOCK, Host, detect
from mixad.backends.cpu.symbols import KERNEL_SYMBOLS, Symbols, check_symbols, read_symbols
from mixad.backends.object_cache import ObjectCache, default, digest
from mixad.errors import BackendError

__all__ = [
    "DEFAULT_LEVEL",
    "KERNEL_PROTOTYPE",
    "Module",
    "assembly",
    "cached_module",
    "compile_module",
    "compile_object",
    "load_object",
    "relocatable_object",
]

DEFAULT_LEVEL = 2
"""Pipeline for kernels. HM-LSTM with inlined maths takes 6, 8, 8, 9 ms at levels 0 to 3, of which
5 are code generation, and runs within 5 % of the same time; 2 serves less tidy IR too."""

KERNEL_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
"""``void kernel(ptr arguments, i64 begin, i64 end)``; calls release the GIL."""

# Engines whose modules are gone. The garbage collector finds them at any moment, also while another
# thread is inside LLVM, so they are freed by whoever has the lock. The thread that has it may free
# them amid other use: it is then between two calls of LLVM, since Python runs, never inside one.
_discarded: deque[Any] = deque()


class Module:
    """Object code in executable memory, which is freed with the last reference to this object."""

    def __init__(self, object_code: bytes, symbols: Symbols, engine: Any) -> None:
        self.object_code = object_code
        self.symbols = symbols
        self._engine = engine
        # When the interpreter ends, the engine is the process's: other packages put Python
        # functions around every call of LLVM (Numba does), which may be torn down before a module
        # dies.  From the exit handlers on, a finalizer does nothing.
        weakref.finalize(self, _discard, engine).atexit = False

    def address(self, name: str) -> int:
        """Return where a function starts: valid while this module lives.

        BackendError if there is none.
        """
        if name not in self.symbols.defined:
            known = ", ".join(sorted(self.symbols.defined)) or "nothing"
            raise BackendError(f"object code has no function {name!r}: it defines {known}")
        with LLVM_LOCK:
            address: int = self._engine.get_function_address(name)
        return address

    def function(self, name: str, prototype: Any) -> Any:
        """Return a function as a ctypes callable that keeps this module alive.

        The prototype is from `ctypes.CFUNCTYPE`, which releases the GIL, or `ctypes.PYFUNCTYPE`.
        """
        function = prototype(self.address(name))
        function.module = self
        return function

    def keep_forever(self) -> None:
        """Never free the code: for functions that threads may be in when the process ends."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))


def _discard(engine: Any) -> None:
    _discarded.append(engine)
    _free_discarded()


def _free_discarded() -> None:
    while _discarded and LLVM_LOCK.acquire(blocking=False):
        try:
            with contextlib.suppress(IndexError):  # another thread was faster
                _discarded.popleft().close()
        finally:
            LLVM_LOCK.release()


def compile_module(
    ir_text: str,
    host: Host | None = None,
    level: int = DEFAULT_LEVEL,
    allowed: frozenset[str] = KERNEL_SYMBOLS,
) -> Module:
    """Compile LLVM IR and load the result: `compile_object`, then `load_object`."""
    return load_object(compile_object(ir_text, host, level, allowed), allowed)


def cached_module(
    key: str,
    make_ir: Callable[[], str],
    host: Host | None = None,
    level: int = DEFAULT_LEVEL,
    allowed: frozenset[str] = KERNEL_SYMBOLS,
    cache: ObjectCache | None = None,
) -> Module:
    """Return LLVM IR as callable code, made and compiled only if the disk does not have it.

    The key says all that the IR depends on, on any machine: equal keys, equal IR.
    """
    host, cache = host or detect(), cache or default()
    key = digest("llvm", key, str(level), host.fingerprint())
    object_code = cache.load(key)
    if object_code is not None:
        # Refused: made where a library had more functions, or forged. Compiling is the answer.
        with contextlib.suppress(BackendError):
            return load_object(object_code, allowed)
    module = compile_module(make_ir(), host, level, allowed)
    cache.store(key, module.object_code)
    return module


def compile_object(
    ir_text: str,
    host: Host | None = None,
    level: int = DEFAULT_LEVEL,
    allowed: frozenset[str] = KERNEL_SYMBOLS,
) -> bytes:
    """Compile LLVM IR to relocatable object code, for this host by default.

    The code may call libmvec's functions and the allowed ones. Another call, or IR that is not
    valid, is a BackendError.
    """
    with _optimise([ir_text], host or detect(), level) as (module, machine):
        object_code: bytes = machine.emit_object(module)
    _free_discarded()
    check_symbols(read_symbols(object_code), allowed)
    return object_code


def relocatable_object(ir_texts: Sequence[str], host: Host) -> bytes:
    """Compile texts of LLVM IR to one object file that linkers place anywhere.

    As `compile_object` otherwise.
    """
    machine = partial(_linkers_machine, host, DEFAULT_LEVEL)
    with _optimise(ir_texts, host, DEFAULT_LEVEL, machine) as (module, own):
        object_code: bytes = own.emit_object(module)
    _free_discarded()
    check_symbols(read_symbols(object_code), KERNEL_SYMBOLS)
    return object_code


def assembly(ir_text: str, host: Host | None = None, level: int = DEFAULT_LEVEL) -> str:
    """Return the assembler text that LLVM IR compiles to."""
    with _optimise([ir_text], host or detect(), level) as (module, machine):
        text: str = machine.emit_assembly(module)
    return text


def load_object(object_code: bytes, allowed: frozenset[str] = KERNEL_SYMBOLS) -> Module:
    """Make object code of this machine callable.

    BackendError if it is damaged, or calls what it may not or what is not there.
    """
    host = detect()
    symbols = read_symbols(object_code)
    check_symbols(symbols, allowed)
    with LLVM_LOCK, contextlib.closing(llvm.parse_assembly("")) as empty:
        # The engine takes the machine, which serves one engine only, and wants a module, which
        # finalising would compile: that took longer than all the rest.
        engine = llvm.create_mcjit_compiler(empty, _machine(host, 0))
        engine.remove_module(empty)
        engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
        engine.finalize_object()
    _free_discarded()
    return Module(object_code, symbols, engine)


@contextlib.contextmanager
def _optimise(
    ir_texts: Sequence[str], host: Host, level: int, make: Callable[[], Any] | None = None
) -> Iterator[tuple[Any, Any]]:
    """Yield a verified, optimised module and the machine to emit it with, both freed after.

    The module is that of all texts; ``make`` makes another machine than kernels here are for.
    """
    detect()  # initialises LLVM and loads libm, also for a host made by hand
    with LLVM_LOCK, contextlib.ExitStack() as stack:
        # A context of its own: constants and types of the global one would stay for ever.
        context = stack.enter_context(contextlib.closing(llvm.create_context()))
        try:
            module, *others = [
                stack.enter_context(contextlib.closing(llvm.parse_assembly(text, context)))
                for text in ir_texts
            ]
            for other in others:
                module.link_in(other)
            module.verify()
        except RuntimeError as error:
            raise BackendError(
                f"mixad emitted LLVM IR that is not valid, a bug: {error}"
            ) from error
        machine = make() if make is not None else _machine(host, level)
        stack.enter_context(contextlib.closing(machine))
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        if level > 0:
            _pipeline(host, level).run(module)
        yield module, machine


class _Pipeline:
    """LLVM's function simplification passes, after the inlining of `alwaysinline`.

    llvmlite leaks the passes of a manager that it disposes of, so these two managers serve all
    runs. The builder is made anew: every run adds callbacks to it and slows the next.
    """

    def __init__(self, host: Host, level: int) -> None:
        self._machine = _machine(host, level)
        self._options = llvm.create_pipeline_tuning_options(level)
        self._options.loop_vectorization = False
        self._options.slp_vectorization = False
        self._options.loop_interleaving = False
        self._options.loop_unrolling = False
        self._inliner = llvm.create_new_module_pass_manager()
        self._inliner.add_always_inliner_pass()
        self._inliner.add_global_dead_code_eliminate_pass()
        self._first_builder = self._builder()
        self._simplifier = self._first_builder.getFunctionPassManager()

    def run(self, module: Any) -> None:
        with contextlib.closing(self._builder()) as builder:
            self._inliner.run(module, builder)
            for function in module.functions:
                if not function.is_declaration:
                    self._simplifier.run(function, builder)

    def _builder(self) -> Any:
        return llvm.create_pass_builder(self._machine, self._options)


@functools.lru_cache(maxsize=16)
def _pipeline(host: Host, level: int) -> _Pipeline:
    return _Pipeline(host, level)


@functools.cache
def _target(triple: str) -> Any:
    return llvm.Target.from_triple(triple)


def _machine(host: Host, level: int) -> Any:
    """Return a fresh target machine, in the large code model of llvmlite's JIT.

    The distance from code to constants and libraries does not matter there. On Windows llvmlite
    adds "-elf" to the triple: LLVM's JIT loads no other object files.
    """
    return _target(host.triple).create_target_machine(
        cpu=host.cpu, features=host.features, opt=level, jit=True
    )


def _linkers_machine(host: Host, level: int) -> Any:
    """Return a fresh target machine whose code is independent of its position."""
    return _target(host.triple).create_target_machine(
        cpu=host.cpu, features=host.features, opt=level, reloc="pic", codemodel="small"
    )
