"""Gradients in processes that share a cache, fork, are interrupted, or end while they compute."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

import mixad

ROOT = Path(mixad.__file__).parents[1]
posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX processes")

KERNELS = """
import os, signal, sys, threading, time
import numpy as np
import mixad
from mixad.backends.cpu import compiler

signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it

@mixad.broadcast
def folded(x, y):
    if x > 0.5:
        return x * y
    return x - y * y

@mixad.broadcast
def cubed(x):
    return x * x * x

@mixad.broadcast
def endless(x):
    while x == x:
        x = x + 0.0
    return x

def check_gradient():
    x = np.linspace(0.0, 1.0, 50_000)
    y = x[::-1].copy()
    got = mixad.grad(lambda x, y: folded(x, y).sum(), argnums=(0, 1))(x, y)
    np.testing.assert_array_equal(got[0], np.where(x > 0.5, y, 1.0))
    np.testing.assert_array_equal(got[1], np.where(x > 0.5, x, -2 * y))

def check_another():
    got = mixad.grad(lambda x: cubed(x).sum())(np.arange(50_000.0))
    np.testing.assert_allclose(got, 3 * np.arange(50_000.0) ** 2, rtol=1e-15)

def run_endless():
    endless(np.ones(1000))

def no_compiler():
    compiler.compile_object = None
"""


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a process of these kernels with a cache of this test."""
    processes = []

    def started(body, cache=tmp_path / "cache"):
        path = tmp_path / f"program{len(processes)}.py"
        path.write_text(KERNELS + body)
        process = subprocess.Popen(
            [sys.executable, "-W", "always", path],
            env={**os.environ, "MIXAD_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def finish(process):
    """Return a process's exit status, output and errors."""
    output, errors = process.communicate(timeout=60)
    return process.returncode, output, errors


@pytest.mark.slow
def test_processes_that_compile_the_same_at_once_all_keep_it(start):
    first = [start("check_gradient()") for _ in range(4)]
    assert [finish(process) for process in first] == [(0, "", "")] * 4
    assert finish(start("no_compiler(); check_gradient()")) == (0, "", "")


KILLED = {
    "amid writing": """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
""",
    "before naming what is written": """
def kill(event, arguments):
    if event == "os.rename":
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(kill)
""",
}


@pytest.mark.slow
@posix
@pytest.mark.parametrize("moment", KILLED)
def test_a_process_killed_while_it_writes_leaves_a_cache_that_serves(start, tmp_path, moment):
    status, _, _ = finish(start(KILLED[moment] + "check_gradient()"))
    assert status in (-signal.SIGXFSZ, -signal.SIGKILL)
    (left,) = (tmp_path / "cache/kernels").iterdir()
    assert left.suffix == ".tmp"
    assert (left.stat().st_size == 1000) == (moment == "amid writing")
    assert finish(start("check_gradient(); check_another()")) == (0, "", "")
    assert finish(start("no_compiler(); check_gradient(); check_another()")) == (0, "", "")


@pytest.mark.slow
def test_a_cache_in_the_place_of_a_file_costs_one_warning(start, tmp_path):
    (tmp_path / "file").write_text("in the way")
    status, _, errors = finish(start("check_gradient(); check_another()", tmp_path / "file"))
    assert status == 0
    assert errors.count("RuntimeWarning: compiled kernels are not kept on disk") == 1


@pytest.mark.slow
@posix
def test_a_disk_without_room_costs_one_warning_and_keeps_nothing(start, tmp_path):
    body = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
check_gradient()
check_another()
"""
    status, _, errors = finish(start(body))
    assert status == 0
    assert errors.count("RuntimeWarning: compiled kernels are not kept on disk") == 1
    assert list((tmp_path / "cache/kernels").iterdir()) == []


@pytest.mark.slow
@posix
def test_children_forked_after_a_gradient_compute_known_and_new_ones(start):
    body = """
check_gradient()
for generation in range(3):
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    check_gradient()
    check_another()
    cubed(np.arange(generation + 5.0, dtype="f4"))  # compiled in every generation
print("three generations", flush=True)
"""
    status, output, errors = finish(start(body))
    assert (status, output) == (0, "three generations\n")
    assert "Error" not in errors


@pytest.mark.slow
@posix
def test_children_forked_while_another_thread_holds_all_locks_compute(start):
    body = """
from contextlib import ExitStack
from mixad import fork_locks

inside = threading.Event()
locks = [getattr(owner, name) for owner, names in fork_locks._LOCKS.items() for name in names]
assert len(locks) > 5, locks

def hold():
    with ExitStack() as stack:
        for lock in locks:
            stack.enter_context(lock)
        inside.set()
        time.sleep(60)

threading.Thread(target=hold, daemon=True).start()
assert inside.wait(30)
child = os.fork()
if child:
    os._exit(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
signal.alarm(30)  # ends it where it waits
check_gradient()
print("computed", flush=True)
os._exit(0)
"""
    status, output, _ = finish(start(body))
    assert (status, output) == (0, "computed\n")


@pytest.mark.slow
@posix
def test_an_interrupt_ends_a_loop_without_an_end_and_nothing_else(start):
    body = """
for run in (run_endless, lambda: mixad.grad(lambda x: endless(x).sum())(np.ones(1000))):
    try:
        print("running", flush=True)
        run()
    except KeyboardInterrupt:
        check_gradient()
        print("interrupted", flush=True)
"""
    process = start(body)
    for _ in range(2):
        assert process.stdout.readline() == "running\n"
        time.sleep(0.5)  # it may be compiling, which is not interrupted
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted\n"
    assert finish(process) == (0, "", "")


@pytest.mark.slow
@posix
def test_an_interrupt_reaches_the_main_thread_while_another_is_in_a_loop_without_an_end(start):
    body = """
threading.Thread(target=run_endless, daemon=True).start()
try:
    print("running", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    check_gradient()
    print("interrupted", flush=True)
"""
    process = start(body)
    assert process.stdout.readline() == "running\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == "interrupted\n"
    assert finish(process) == (0, "", "")  # also though the thread is still in its loop


@pytest.mark.slow
def test_an_interpreter_ends_while_threads_compute(start):
    body = """
def compute():
    while True:
        check_gradient()

for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
check_gradient()
time.sleep(0.05)
"""
    started = time.monotonic()
    status, _, errors = finish(start(body))
    assert status == 0, errors
    assert time.monotonic() - started < 30


KEEP = """
import builtins
from mixad.backends.cpu.compiler import compile_module
kept = builtins.kept = compile_module("define i32 @mixad_kernel() { ret i32 1 }")
"""
"""A module of machine code that outlives the packages that know how to free it."""


@pytest.mark.slow
def test_code_that_outlives_the_interpreter_calls_nothing_of_llvm(start):
    body = """
def told(write=os.write, is_ending=sys.is_finalizing):
    if is_ending():
        write(2, b"called")

import llvmlite.binding
llvmlite.binding.ffi.register_lock_callback(told, told)
"""
    assert finish(start(body + KEEP)) == (0, "", "")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("numba") is None, reason="no Numba here")
def test_an_interpreter_that_imported_numba_ends_without_a_word(start):
    body = """
import warnings
warnings.simplefilter("ignore")  # what Numba's own imports say
import numba

@numba.njit
def more(x):
    return x + 1.0

more(2.0)
check_gradient()
"""
    assert finish(start(body + KEEP)) == (0, "", "")
