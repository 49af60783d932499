import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from mixad.backends.cpu import compiler, workers
from mixad.backends.cpu.workers import Workers

COUNT = """
define void @kernel(ptr %counts, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %counts, i64 %i
  %old = atomicrmw add ptr %p, i64 1 seq_cst
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

# Tile k takes work[k] turns and then counts itself.
UNEVEN = """
define void @kernel(ptr %work, i64 %begin, i64 %end) {
entry:
  br label %tile
tile:
  %i = phi i64 [ %begin, %entry ], [ %next, %tile_done ]
  %p = getelementptr i64, ptr %work, i64 %i
  br label %turn
turn:
  %left = load volatile i64, ptr %p
  %less = sub i64 %left, 1
  store volatile i64 %less, ptr %p
  %again = icmp sgt i64 %less, 0
  br i1 %again, label %turn, label %tile_done
tile_done:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %tile, label %done
done:
  ret void
}
"""

# Returns when the stop flag that the argument starts with is set.
ENDLESS = """
define void @kernel(ptr %flag, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %stop = load atomic i32, ptr %flag monotonic, align 4
  %go = icmp eq i32 %stop, 0
  br i1 %go, label %loop, label %done
done:
  ret void
}
"""

posix = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
can_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
allow_fork = pytest.mark.filterwarnings(
    "ignore:This process.*multi-threaded:DeprecationWarning",
    "ignore:os.fork.. was called:RuntimeWarning",  # JAX's, once another test has loaded it
)


class Kernel:
    def __init__(self, ir):
        self.module = compiler.compile_module(ir)
        self.address = self.module.address("kernel")


@pytest.fixture(scope="module")
def count():
    return Kernel(COUNT)


@pytest.fixture(scope="module")
def endless():
    return Kernel(ENDLESS)


@pytest.fixture
def team(request):
    team = Workers(getattr(request, "param", 3))
    yield team
    team.dismiss()
    deadline = time.monotonic() + 5
    while team.alive and time.monotonic() < deadline:
        time.sleep(0.001)
    assert team.alive == 0


def counted(team, count, tiles, stop_flag=None):
    counts = np.zeros(tiles, "i8")
    team.run(count.address, counts.ctypes.data, tiles, stop_flag)
    return counts


@pytest.mark.parametrize("team", [1, 2, 3, 8], indirect=True)
@pytest.mark.parametrize("tiles", [1, 2, 3, 7, 23, 24, 25, 1000, 100_003])
def test_every_tile_runs_once(team, count, tiles):
    for _ in range(5):
        assert (counted(team, count, tiles) == 1).all()


@pytest.mark.parametrize("team", [1, 2, 3], indirect=True)
@pytest.mark.parametrize("tiles", [1, 2, 1000])
def test_every_tile_runs_once_where_a_stand_in_has_to_call(team, count, tiles):
    flag = ctypes.c_int32(0)
    for _ in range(5):
        assert (counted(team, count, tiles, ctypes.addressof(flag)) == 1).all()


def test_every_tile_runs_once_by_threads_that_sleep(team, count):
    flag = ctypes.c_int32(0)
    for stop_flag in (None, ctypes.addressof(flag)):
        for _ in range(20):
            time.sleep(0.002)
            assert (counted(team, count, 1000, stop_flag) == 1).all()


def test_jobs_in_rapid_succession_do_not_mix(team, count):
    sizes = [2, 1000, 3, 50, 7]
    counts = [np.zeros(size, "i8") for size in sizes]
    for _ in range(2000):
        for size, array in zip(sizes, counts, strict=True):
            team.run(count.address, array.ctypes.data, size)
    assert all((array == 2000).all() for array in counts)


def test_uneven_tiles_are_all_done(team):
    uneven = Kernel(UNEVEN)
    work = np.ones(500, "i8")
    work[::97] = 200_000
    team.run(uneven.address, work.ctypes.data, 500)
    assert (work == 0).all()


def test_several_threads_run_one_kernel(team, count):
    wrong = []

    def call():
        for k in range(300):
            if not (counted(team, count, 5 + k % 400) == 1).all():
                wrong.append(k)

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    flag = ctypes.c_int32(0)
    for _ in range(300):
        assert (counted(team, count, 200, ctypes.addressof(flag)) == 1).all()
    for caller in callers:
        caller.join()
    assert not wrong


def run_and_ring(team, kernel, tasks, flag, *times):
    signal.setitimer(signal.ITIMER_REAL, *times)
    team.run(kernel.address, ctypes.addressof(flag), tasks, ctypes.addressof(flag))


@posix
def test_exception_of_a_signal_stops_an_endless_kernel(team, count, endless):
    def ring(number, frame):
        raise TimeoutError("rung")

    before = signal.signal(signal.SIGALRM, ring)
    try:
        for delay in (0.001, 0.02, 0.11):
            flag = ctypes.c_int32(0)
            with pytest.raises(TimeoutError, match="rung"):  # pytest compiles the pattern first
                run_and_ring(team, endless, 100, flag, delay)
            assert flag.value == 0
            assert (counted(team, count, 100) == 1).all()
    finally:
        signal.signal(signal.SIGALRM, before)


@posix
def test_signals_at_any_moment_lose_nothing(team, count):
    class RungError(Exception):
        pass

    def ring(number, frame):
        raise RungError

    before = signal.signal(signal.SIGALRM, ring)
    rung, flag = 0, ctypes.c_int32(0)
    try:
        for k in range(400):
            try:
                signal.setitimer(signal.ITIMER_REAL, 1e-5 + 1e-6 * (k % 50))
                for _ in range(200):
                    counted(team, count, 64, ctypes.addressof(flag))
                time.sleep(0.01)
            except RungError:
                rung += 1
            assert flag.value == 0
            assert (counted(team, count, 64, ctypes.addressof(flag)) == 1).all()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert rung == 400


@posix
def test_signal_handler_may_run_kernels_itself(team, count, endless):
    found = []

    def handle(number, frame):
        inner = ctypes.c_int32(0)
        found.append(counted(team, count, 50, ctypes.addressof(inner)))
        if len(found) == 3:
            raise TimeoutError

    before = signal.signal(signal.SIGALRM, handle)
    flag = ctypes.c_int32(0)
    try:
        with pytest.raises(TimeoutError):
            run_and_ring(team, endless, 10, flag, 0.005, 0.005)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert all((counts == 1).all() for counts in found)


def test_memory_layout_is_that_of_the_native_code():
    assert ctypes.sizeof(workers._Waiter) == 64
    assert ctypes.sizeof(workers._Pool) == 448
    assert workers._Pool.poster.offset == 256
    assert workers._Pool.quit.offset == 320


def test_native_code_calls_nothing_by_name():
    module = compiler.compile_module(workers._source(), level=1)
    assert module.symbols.undefined == frozenset()


def test_where_no_thread_can_be_started_the_caller_works_alone(count, monkeypatch):
    monkeypatch.setattr(workers, "_start_thread", lambda function, argument: False)
    team = Workers(4)
    flag = ctypes.c_int32(0)
    assert (counted(team, count, 100) == 1).all()
    assert (counted(team, count, 100, ctypes.addressof(flag)) == 1).all()
    assert team.alive == 0


def test_dismissed_team_leaves_the_work_to_the_caller(count):
    team = Workers(3)
    flag = ctypes.c_int32(0)
    assert (counted(team, count, 100, ctypes.addressof(flag)) == 1).all()
    team.dismiss()
    assert (counted(team, count, 100) == 1).all()
    assert (counted(team, count, 100, ctypes.addressof(flag)) == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("dismissed", ["before its worker wakes", "before it is posted"])
def test_a_job_of_a_team_that_is_dismissed_meanwhile_is_run(dismissed):
    body = f"""
team, counts = workers.Workers(2), np.zeros(100, "i8")
count = compiler.compile_module({COUNT!r})
team._may_delegate()
if {dismissed == "before its worker wakes"}:
    team._stand_in.pool.quit = 1
else:
    team._stand_in.dismiss()
    while team._stand_in.pool.alive:
        time.sleep(0.001)
team._may_delegate = lambda: True
flag = ctypes.c_int32(0)
team.run(count.address("kernel"), counts.ctypes.data, 100, ctypes.addressof(flag))
assert (counts == 1).all()
"""
    done = subprocess.run(script(body), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
def test_a_lock_is_free_for_the_thread_that_holds_it():
    """As for a signal's handler that runs a kernel amid the bookkeeping of one."""
    body = """
with execute._lock, workers._lock:
    assert (mixad.grad(lambda x: (x * x).sum())(np.ones(100_000)) == 2).all()
"""
    done = subprocess.run(script(body), capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_number_of_threads_is_the_users(monkeypatch, count):
    workers.shutdown()
    monkeypatch.setenv("MIXAD_NUM_THREADS", "4")
    counts = np.zeros(100, "i8")
    workers.run(count.address, counts.ctypes.data, 100)
    assert (counts == 1).all()
    assert workers.shared_workers().threads == 4
    assert workers.shared_workers().alive == 3
    workers.shutdown()


@linux
def test_workers_leave_signals_to_python(team):
    def blocks_interrupts(task):
        (line,) = [x for x in (task / "status").read_text().splitlines() if x.startswith("SigBlk")]
        return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)

    assert sum(map(blocks_interrupts, Path("/proc/self/task").iterdir())) >= 2


@pytest.mark.slow
@linux
def test_nothing_grows_over_many_calls(team, count):
    def state():
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * 4
        return resident, len(os.listdir("/proc/self/task"))

    flag = ctypes.c_int32(0)
    counts = np.zeros(100, "i8")

    def many():
        for _ in range(10_000):
            team.run(count.address, counts.ctypes.data, 100)
            team.run(count.address, counts.ctypes.data, 100, ctypes.addressof(flag))

    many()
    memory, threads = state()
    many()
    assert state()[0] - memory < 500
    assert state()[1] == threads


@can_fork
@allow_fork
def test_forked_child_starts_workers_of_its_own(count):
    flag = ctypes.c_int32(0)
    team = workers.shared_workers()
    counted(team, count, 100, ctypes.addressof(flag))
    child = os.fork()
    if child == 0:
        assert workers.shared_workers() is not team
        fine = (counted(workers.shared_workers(), count, 1000) == 1).all()
        fine &= (counted(workers.shared_workers(), count, 1000, ctypes.addressof(flag)) == 1).all()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (counted(team, count, 100) == 1).all()


@can_fork
@allow_fork
def test_child_forked_amid_a_job_works(endless, count):
    team = workers.shared_workers()
    flag = ctypes.c_int32(0)
    caller = threading.Thread(
        target=team.run, args=(endless.address, ctypes.addressof(flag), 10, ctypes.addressof(flag))
    )
    caller.start()
    time.sleep(0.02)
    child = os.fork()
    if child == 0:
        os._exit(0 if (counted(workers.shared_workers(), count, 1000) == 1).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    flag.value = 1
    caller.join()


def script(body):
    head = f"""
import ctypes, os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
import mixad
import numpy as np
from mixad.backends import execute
from mixad.backends.cpu import compiler, workers
ENDLESS = '''{ENDLESS}'''
module = compiler.compile_module(ENDLESS)
flag = ctypes.c_int32(0)
at = ctypes.addressof(flag)
def endless(tiles=100):
    workers.run(module.address("kernel"), at, tiles, at)
"""
    return [sys.executable, "-c", head + textwrap.dedent(body)]


@pytest.mark.slow
@posix
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_interrupt_ends_an_endless_kernel(threads):
    body = """
    for _ in range(3):
        try:
            print("running", flush=True)
            endless()
        except KeyboardInterrupt:
            print("interrupted", flag.value, flush=True)
    """
    environment = {**os.environ, "MIXAD_NUM_THREADS": threads}
    with subprocess.Popen(
        script(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            for _ in range(3):
                assert process.stdout.readline() == "running\n"
                time.sleep(0.15)
                sent = time.monotonic()
                process.send_signal(signal.SIGINT)
                assert process.stdout.readline() == "interrupted 0\n"
                assert time.monotonic() - sent < 1
            assert process.wait(timeout=10) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


@pytest.mark.slow
@posix
def test_interrupt_not_caught_ends_the_program():
    with subprocess.Popen(
        script("print('running', flush=True); endless()"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout.readline() == "running\n"
            time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=10)
            assert process.returncode == -signal.SIGINT
            assert "KeyboardInterrupt" in errors
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "workers.shared_workers()",
        "flag.value = 1; endless()",
        "flag.value = 1; endless(); time.sleep(0.01)",
        "threading.Thread(target=endless, daemon=True).start(); time.sleep(0.05)",
        "import atexit; flag.value = 1; workers.shared_workers(); atexit.register(endless)",
    ],
    ids=["idle", "looking", "asleep", "amid a job", "job at exit"],
)
def test_interpreter_ends_promptly(body):
    started = time.monotonic()
    environment = {**os.environ, "MIXAD_NUM_THREADS": "3"}
    done = subprocess.run(script(body), capture_output=True, text=True, timeout=30, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert time.monotonic() - started < 10
