"""Threads that share the tiles of a kernel, handed over within microseconds.

The threads are native: they hold no Python state and never want the GIL, so an interpreter that
ends, forks or traces does not notice them. They look for work for some microseconds after the
last, then sleep on one of CPython's own locks, which are portable. The caller works too; tiles go
in small portions to whoever is free, so results must not depend on who runs which, and do not.
The code is `workers.ll`, compiled as kernels are.

A kernel with a loop that may not end needs the main thread to stay where Ctrl-C reaches it, in
Python: there a stand-in, one more native thread, takes its place.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.resources
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from mixad import config
from mixad.backends.cpu.compiler import Module, cached_module
from mixad.backends.cpu.host import usable_cpus
from mixad.fork_locks import lock_of

__all__ = ["Workers", "run", "shared_workers", "shutdown"]

SPIN_SECONDS = 50e-6
"""How long a thread looks for work before it sleeps: about twice the cost of waking it."""

_STAND_IN_SPIN_SECONDS = 10e-6  # shorter, since the main thread and its stand-in are one too many

_WAIT_MICROSECONDS = 50_000  # where a signal does not end the wait, as on Windows

_PAUSE = {
    "x86": "declare void @llvm.x86.sse2.pause()\n"
    "define internal void @pause() alwaysinline { call void @llvm.x86.sse2.pause() ret void }\n",
    "arm": "declare void @llvm.aarch64.hint(i32)\n"
    "define internal void @pause() alwaysinline { call void @llvm.aarch64.hint(i32 1) ret void }\n",
    "other": "define internal void @pause() alwaysinline { ret void }\n",
}


class _Waiter(ctypes.Structure):
    """`%waiter` of workers.ll."""

    _fields_ = (
        ("state", ctypes.c_int32),
        ("unused", ctypes.c_int32),
        ("lock", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("rest_of_line", ctypes.c_int64 * 5),
    )


class _Pool(ctypes.Structure):
    """`%pool` of workers.ll, up to its workers."""

    _fields_ = (
        ("job", ctypes.c_int64 * 32),
        ("poster", _Waiter),
        ("quit", ctypes.c_int64),
        ("alive", ctypes.c_int64),
        ("workers", ctypes.c_int64),
        ("spins", ctypes.c_int64),
        ("acquire", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("unused", ctypes.c_int64 * 2),
        ("request", ctypes.c_int64 * 8),
    )


class _Native:
    """The functions of workers.ll; calls release the GIL."""

    def __init__(self, module: Module) -> None:
        module.keep_forever()  # threads are in it to the very end of the process
        pointer, number = ctypes.c_void_p, ctypes.c_int64

        def function(name: str, *types: Any, result: Any = None) -> Callable[..., Any]:
            prototype = ctypes.CFUNCTYPE(result, *types)
            found: Callable[..., Any] = module.function(name, prototype)
            return found

        self.work, self.run_address = module.address("work"), module.address("run")
        self.run = function("run", pointer, pointer, pointer, number)
        self.delegate = function("delegate", *[pointer] * 4, number)
        self.poll = function("poll", pointer, number, result=ctypes.c_int32)
        self.drain = function("drain", pointer)
        self.dismiss = function("dismiss", pointer)
        self.spin_in_vain = function("spin_in_vain", pointer, number)


class _Team:
    """Native threads, and the memory through which they are given jobs, which is never freed.

    Fewer threads than ``size`` start where the system refuses more. A thread looks for work for
    ``spin_seconds`` before it sleeps.
    """

    def __init__(self, size: int, spin_seconds: float) -> None:
        self.address = _memory_for_ever(ctypes.sizeof(_Pool) + size * ctypes.sizeof(_Waiter))
        self.pool = _Pool.from_address(self.address)
        self.pool.acquire = _c_address("PyThread_acquire_lock")
        self.pool.release = _c_address("PyThread_release_lock")
        self.pool.poster.lock = _locked_lock()
        self.looks = self._looks_within(spin_seconds)
        self.pool.spins = self.looks
        self.pool.workers = self._start(size)

    def _looks_within(self, seconds: float) -> int:
        """Return the number of looks at a word that take so long."""
        if seconds == 0:
            return 0
        looks = 1000
        started = time.perf_counter()
        _native().spin_in_vain(self.address, looks)
        return max(1, int(looks * seconds / (time.perf_counter() - started)))

    def _start(self, size: int) -> int:
        first = self.address + ctypes.sizeof(_Pool)
        with _SignalsBlocked():
            for k in range(size):
                address = first + k * ctypes.sizeof(_Waiter)
                worker = _Waiter.from_address(address)
                worker.lock, worker.pool = _locked_lock(), self.address
                self.pool.alive += 1
                if not _start_thread(_native().work, address):
                    self.pool.alive -= 1
                    return k
        return size

    def dismiss(self) -> None:
        """Let the threads end; the caller of a job still ends it alone."""
        _native().dismiss(self.address)


class Workers:
    """The threads of this process that run kernels; ``threads`` counts the caller's own.

    A thread looks for work for ``spin_seconds`` before it sleeps.
    """

    def __init__(self, threads: int, spin_seconds: float = SPIN_SECONDS) -> None:
        self.threads = threads
        # Looking for work takes a core from those who have it, if there are not cores enough.
        self._can_spin = threads <= config.available_cores()
        self._team = _Team(threads - 1, spin_seconds if self._can_spin else 0.0)
        self._run = _native().run
        self._stand_in: _Team | None = None
        self._is_delegating = False

    def run(self, kernel: int, arguments: int, tiles: int, stop_flag: int | None = None) -> None:
        """Run ``void kernel(ptr arguments, i64 begin, i64 end)`` on parts of ``range(tiles)``.

        The caller runs it alone while another thread has the workers. A signal's exception sets the
        ``i32`` at ``stop_flag``, which makes the kernel return early, and is raised then.
        """
        if stop_flag is None or not self._may_delegate():
            self._run(self._team.address, kernel, arguments, tiles)
        else:
            self._run_by_stand_in(kernel, arguments, tiles, stop_flag)

    @property
    def entry(self) -> tuple[int, int]:
        """The addresses of `run` in workers.ll and of the pool it takes, for native callers."""
        return _native().run_address, self._team.address

    def dismiss(self) -> None:
        """End the threads; callers run later jobs alone."""
        for team in (self._team, self._stand_in):
            if team is not None:
                team.dismiss()

    @property
    def alive(self) -> int:
        """How many native threads there are."""
        teams = (self._team, self._stand_in)
        return sum(team.pool.alive for team in teams if team is not None)

    def _may_delegate(self) -> bool:
        """Whether Ctrl-C reaches this thread, and its stand-in is free and exists or can start."""
        if threading.get_ident() != threading.main_thread().ident or self._is_delegating:
            return False
        if self._stand_in is None:
            self._stand_in = _Team(1, _STAND_IN_SPIN_SECONDS if self._can_spin else 0.0)
        return bool(self._stand_in.pool.workers)

    def _run_by_stand_in(self, kernel: int, arguments: int, tiles: int, stop_flag: int) -> None:
        # Python looks for signals after calls and at the ends of loops, so nothing can come
        # between an assignment and the `try` after it.
        stand_in = self._stand_in
        assert stand_in is not None
        self._is_delegating = True
        try:
            _native().delegate(stand_in.address, self._team.address, kernel, arguments, tiles)
            _wait(stand_in)
        except BaseException:
            ctypes.c_int32.from_address(stop_flag).value = 1
            _wait_whatever_comes(stand_in)
            ctypes.c_int32.from_address(stop_flag).value = 0
            raise
        finally:
            self._is_delegating = False


def _wait(team: _Team) -> None:
    """Return when the posted job is done; signals are handled meanwhile.

    Another thread may have dismissed the team since it was chosen: this thread runs what no worker
    is left to run.
    """
    while not _native().poll(team.address, team.looks):
        if not team.pool.alive:
            _native().drain(team.address)
        _acquire_timed(team.pool.poster.lock, _WAIT_MICROSECONDS, 1)


def _wait_whatever_comes(team: _Team) -> None:
    """Return when the posted job is done, even if Ctrl-C comes again: the job uses our memory."""
    while True:
        try:
            _wait(team)
        except BaseException:
            continue
        return


class _SignalsBlocked:
    """Threads that start within leave signals to Python's threads, except crashes."""

    def __enter__(self) -> None:
        if hasattr(signal, "pthread_sigmask"):
            crashes = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}
            ordinary = signal.valid_signals() - crashes
            self._before = signal.pthread_sigmask(signal.SIG_BLOCK, ordinary)

    def __exit__(self, *exception: object) -> None:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_SETMASK, self._before)


def _c_function(name: str, result: Any, *types: Any) -> Callable[..., Any]:
    function = getattr(ctypes.pythonapi, name)
    function.restype, function.argtypes = result, types
    found: Callable[..., Any] = function
    return found


def _c_address(name: str) -> int:
    address = ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
    assert address is not None
    return address


# CPython's portable threads and locks: none of them needs the GIL or a Python thread.
_new_thread = _c_function(
    "PyThread_start_new_thread", ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p
)
_new_lock = _c_function("PyThread_allocate_lock", ctypes.c_void_p)
_acquire_lock = _c_function("PyThread_acquire_lock", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_raw_memory = _c_function("PyMem_RawCalloc", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
_acquire_timed = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int)(
    _c_address("PyThread_acquire_lock_timed")
)


def _start_thread(function: int, argument: int) -> bool:
    failed = ctypes.c_ulong(-1).value
    return bool(_new_thread(function, argument) != failed)


def _locked_lock() -> int:
    lock: int | None = _new_lock()
    if lock is None:
        raise MemoryError("no lock for a worker thread")
    _acquire_lock(lock, 1)
    return lock


def _memory_for_ever(size: int) -> int:
    """Return the address of cleared memory, on cache lines of its own, that is never freed."""
    line = 128  # two lines of 64 bytes are fetched together
    address: int | None = _raw_memory(size + line, 1)
    if address is None:
        raise MemoryError("no memory for worker threads")
    return -(-address // line) * line


@functools.cache
def _native() -> _Native:
    source = _source()
    return _Native(cached_module(source, lambda: source, level=1, allowed=frozenset()))


def _source() -> str:
    text = importlib.resources.files("mixad.backends.cpu").joinpath("workers.ll").read_text("utf-8")
    machine = platform.machine().lower()
    kind = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}.get(machine, "other")
    return text + _PAUSE[kind]


# Reentrant, because a signal's handler may run a kernel wherever it interrupts.
_lock = lock_of(sys.modules[__name__], "_lock", threading.RLock)
_shared: Workers | None = None


def shared_workers() -> Workers:
    """Return the workers of this process, started at the first call."""
    global _shared
    if _shared is None:
        with _lock:
            if _shared is None:
                _shared = Workers(usable_cpus())
    return _shared


def run(kernel: int, arguments: int, tiles: int, stop_flag: int | None = None) -> None:
    """Run all tiles of a kernel on the workers of this process: see `Workers.run`."""
    (_shared or shared_workers()).run(kernel, arguments, tiles, stop_flag)


def shutdown() -> None:
    """End the workers of this process, which start again when needed; wait 0.1 s at most."""
    global _shared
    with _lock:
        workers, _shared = _shared, None
    if workers is None:
        return
    workers.dismiss()
    deadline = time.monotonic() + 0.1
    while workers.alive and time.monotonic() < deadline:
        time.sleep(0.0002)


def _forget() -> None:
    """Start anew in a forked child, which has none of its parent's threads."""
    global _shared
    _shared = None


atexit.register(shutdown)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
