import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from mixad.backends.cpu import buffers
from mixad.backends.cpu.buffers import BufferPool

F4 = np.dtype("f4")
MEGABYTE = 1 << 20

allow_fork = pytest.mark.filterwarnings("ignore:os.fork.. was called:RuntimeWarning")
"""JAX warns of threads of its own, once another test has loaded it."""


@pytest.fixture
def pool():
    return BufferPool(limit=lambda: 16 * MEGABYTE)


def address(array):
    return array.__array_interface__["data"][0]


def floats(megabytes):
    return (megabytes * MEGABYTE // 4,)


@pytest.mark.rows("dtype", ["?", "i1", "i8", "u4", "f2", "f4", "f8", "c16"])
@pytest.mark.rows("shape", [(1 << 20,), (64, 33, 129), (3, 0, 5), (), (7,)])
def test_empty_has_the_shape_and_dtype_asked_for(pool, shape, dtype):
    array = pool.empty(shape, np.dtype(dtype))
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 1
    assert (array == 1).all()


@pytest.mark.parametrize(
    ("megabytes", "alignment"), [(1, 4096), (2, 2 * MEGABYTE), (5, 2 * MEGABYTE)]
)
def test_blocks_are_aligned(pool, megabytes, alignment):
    assert address(pool.empty(floats(megabytes), F4)) % alignment == 0


def test_memory_is_used_again_once_the_array_is_gone(pool):
    array = pool.empty(floats(4), F4)
    where = address(array)
    del array
    assert address(pool.empty(floats(4), F4)) == where


def test_memory_of_nearly_the_same_size_is_used_again(pool):
    array = pool.empty(floats(4), F4)
    where = address(array)
    del array
    assert address(pool.empty((floats(4)[0] - 1000,), F4)) == where


@pytest.mark.slow
@pytest.mark.rows(
    "derive",
    [
        lambda a: a[1000:],
        lambda a: a.reshape(4, -1)[1:].T.view("i4"),
        lambda a: np.asarray(a)[::3],
        memoryview,
        lambda a: np.from_dlpack(a),
        lambda a: np.frombuffer(a, "u1"),
    ],
    ids=["slice", "view", "asarray", "memoryview", "dlpack", "frombuffer"],
)
def test_memory_is_not_used_again_while_something_derived_lives(pool, derive):
    array = pool.empty(floats(4), F4)
    array[...] = 5
    where = address(array)
    derived = derive(array)
    del array
    gc.collect()
    other = pool.empty(floats(4), F4)
    other[...] = 7
    assert address(other) != where
    assert (np.asarray(derived).view("f4") == 5).all()
    del derived
    gc.collect()
    assert address(pool.empty(floats(4), F4)) == where


@pytest.mark.torch
def test_tensors_keep_the_memory():
    torch = pytest.importorskip("torch")
    pool = BufferPool(limit=lambda: 16 * MEGABYTE)
    array = pool.empty(floats(4), F4)
    where = address(array)
    tensor = torch.from_numpy(array)[3:]
    del array
    gc.collect()
    assert address(pool.empty(floats(4), F4)) != where
    del tensor
    assert where in {address(a) for a in [pool.empty(floats(4), F4) for _ in range(2)]}


def test_pool_keeps_no_more_than_its_limit(pool):
    arrays = [pool.empty(floats(3), F4) for _ in range(10)]
    assert pool.retained_bytes == 0
    arrays.clear()
    assert 0 < pool.retained_bytes <= 16 * MEGABYTE


def test_the_pool_of_the_process_keeps_as_much_as_the_environment_says(monkeypatch):
    for text, kept in [("4M", 4), ("0", 0), ("64M", 8)]:
        monkeypatch.setenv("MIXAD_POOL_BYTES", text)
        buffers.clear()
        arrays = [buffers.empty(floats(4), F4) for _ in range(2)]
        arrays.clear()
        assert buffers.retained_bytes() == kept * MEGABYTE, text
    buffers.clear()


def test_the_pool_keeps_an_eighth_of_what_control_groups_allow_unless_told_otherwise(monkeypatch):
    monkeypatch.delenv("MIXAD_POOL_BYTES", raising=False)
    for allowed, most in [(256, 32), (1 << 20, 1 << 10), (0, 0)]:
        monkeypatch.setattr(buffers, "_share_of_memory", lambda n=allowed: n * MEGABYTE // 8)
        assert buffers.limit() == most * MEGABYTE
    monkeypatch.setenv("MIXAD_POOL_BYTES", "2G")
    assert buffers.limit() == 2 << 30


def test_least_recently_used_size_is_freed_first(pool):
    old = pool.empty(floats(8), F4)
    del old
    new = [pool.empty(floats(6), F4) for _ in range(2)]
    places = {address(a) for a in new}
    new.clear()
    assert pool.retained_bytes == 12 * MEGABYTE
    assert {address(a) for a in [pool.empty(floats(6), F4) for _ in range(2)]} <= places


def test_block_beyond_the_limit_is_freed_at_once(pool):
    array = pool.empty(floats(32), F4)
    del array
    assert pool.retained_bytes == 0


def test_clear_frees_everything(pool):
    array = pool.empty(floats(4), F4)
    kept = pool.empty(floats(4), F4)
    del array
    pool.clear()
    assert pool.retained_bytes == 0
    kept[...] = 1


def test_small_arrays_come_from_numpy(pool):
    array = pool.empty((10,), F4)
    assert array.base is None


def test_collector_may_return_memory_while_the_pool_is_locked(pool):
    array = pool.empty(floats(4), F4)
    with pool._lock:
        del array
        gc.collect()
    assert pool.retained_bytes == 4 * MEGABYTE


def test_array_in_a_cycle_is_returned_by_the_collector(pool):
    cycle = [pool.empty(floats(4), F4)]
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert pool.retained_bytes == 4 * MEGABYTE


def test_threads_never_share_a_block(pool):
    failures = []

    def work(mark):
        for _ in range(300):
            a, b = pool.empty(floats(1), F4), pool.empty(floats(1), F4)
            a[::4096], b[::4096] = mark, -mark
            if not ((a[::4096] == mark).all() and (b[::4096] == -mark).all()):
                failures.append(mark)
            del a, b  # before the next ones are asked for: a thread has two at a time

    threads = [threading.Thread(target=work, args=(float(k + 1),)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert pool.retained_bytes <= 12 * MEGABYTE


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_over_many_results(pool):
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4

    def many():
        for k in range(10_000):
            pool.empty((60_000 + k % 100,), F4)[::1024] = 1

    many()
    before = resident()
    many()
    assert resident() - before < 2000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@allow_fork
def test_forked_child_does_not_write_into_its_parents_results():
    array = buffers.empty(floats(4), F4)
    array[...] = 1
    child = os.fork()
    if child == 0:
        array[...] = 2
        again = buffers.empty(floats(4), F4)
        again[...] = 3
        os._exit(0 if (array == 2).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (array == 1).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@allow_fork
def test_forked_child_allocates_though_the_lock_was_held():
    with buffers._POOL._lock:
        child = os.fork()
        if child == 0:
            buffers.empty(floats(1), F4)[...] = 1
            os._exit(0 if buffers.retained_bytes() else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_arrays_outlive_the_interpreters_shutdown_silently():
    code = """
import numpy as np, sys
from mixad.backends.cpu import buffers
kept = buffers.empty((1 << 20,), np.dtype("f4"))
sys.kept_to_the_end = [buffers.empty((1 << 20,), np.dtype("f4"))[5:]]
sys.kept_to_the_end.append(sys.kept_to_the_end)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_rounded_sizes_waste_at_most_an_eighth():
    for size in (131_072, 131_073, 200_001, 5_000_000, 16_777_216, 16_777_217, 123_456_789):
        rounded = buffers._round_size(size)
        assert size <= rounded <= size * 9 / 8 + 4096
        assert rounded % 4096 == 0
    assert buffers._round_size(16 * MEGABYTE) == 16 * MEGABYTE


def test_who_cannot_have_the_lock_gets_new_memory(pool):
    """As a signal's handler that interrupted the thread that has it."""
    with pool._lock:
        array = pool.empty(floats(1), F4)
    assert array.nbytes == MEGABYTE
