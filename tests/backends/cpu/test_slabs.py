"""Sums into arrays on the CPU: the same bits for any number of threads, nothing written outside."""

import os
import subprocess
import sys

import numpy as np
import pytest

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.kernel.tiling import slab_limit
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import F64, I64


def histogram():
    """Return the program that adds weights to an array."""
    b = Builder("histogram")
    k, w, sums = b.param("k", I64), b.param("w", F64), b.accumulator("sums", ArrayType(F64, 1))
    b.update(sums, k, value=w)
    return b.finish([sums, b.op("mul", w, w)])


def launch_of(count, elements, shape=None):
    k, w = np.zeros(shape or count, "i8"), np.zeros(shape or count)
    requests = [OutputRequest(0, 0, (elements,)), OutputRequest(0, 1, ())]
    layouts = [layout_of(k), layout_of(w)]
    return plan((histogram(),), requests, layouts, k.shape, 1 << 40, folds=True)


def run(k, w, elements, backend):
    launch = launch_of(k.size, elements, k.shape)
    return backend.launch(backend.bind(backend.compile(launch.spec), launch), [k, w])


@pytest.mark.parametrize("shape", [(1,), (100_000,), (100, 1000), (7, 3, 5), (40_000, 3)], ids=str)
@pytest.mark.parametrize("elements", [1, 10, 5000])
def test_sums_are_those_of_numpy(shape, elements):
    rng = np.random.default_rng(0)
    k, w = rng.integers(-elements, elements, shape), rng.random(shape)
    sums, total = run(k, w, elements, CpuBackend())
    expected = np.zeros(elements)
    np.add.at(expected, k, w)
    np.testing.assert_allclose(sums, expected, rtol=1e-12)
    np.testing.assert_allclose(total, (w * w).sum(), rtol=1e-12)


def test_bits_do_not_depend_on_the_width():
    rng = np.random.default_rng(0)
    k, w = rng.integers(0, 100, 100_000), rng.standard_normal(100_000)
    widths = [bits for bits in (128, 256, 512) if bits <= detect().vector_bits]
    found = [run(k, w, 100, CpuBackend(detect().with_vector_bits(bits)))[0] for bits in widths]
    assert launch_of(100_000, 100).slabs == 64
    assert len({sums.tobytes() for sums in found}) == 1


_PRINT_SUMS = """
import numpy as np, mixad
rng = np.random.default_rng(0)
table, k, w = rng.random(300), rng.integers(0, 300, 200_000), rng.standard_normal(200_000)
f = lambda table: (mixad.broadcast(lambda k, w: np.sin(table[k]) * w)(k, w)).sum()
print(mixad.grad(f)(table).tobytes().hex())
"""


@pytest.mark.slow
def test_bits_do_not_depend_on_the_number_of_threads(tmp_path):
    script = tmp_path / "sums.py"
    script.write_text(_PRINT_SUMS)
    found = set()
    for threads in ("1", "2", "7"):
        environment = {**os.environ, "MIXAD_NUM_THREADS": threads}
        code = [sys.executable, str(script)]
        found.add(subprocess.check_output(code, text=True, env=environment))
    assert len(found) == 1


_ADD_TO_THE_LAST_PAGE = """
import ctypes, mmap
import numpy as np, mixad
import mixad.backends.cpu.results as results

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 3 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
assert libc.mprotect(address, page, 0) == 0
assert libc.mprotect(address + 2 * page, page, 0) == 0

def guarded(size, dtype, at_end=True):
    size *= np.dtype(dtype).itemsize
    whole = np.frombuffer(memory, "u1", page, page)
    return (whole[page - size:] if at_end else whole[:size]).view(dtype)

given = results._initial_memory
def sums(result):  # the first copy ends where the page does
    made = guarded(int(np.prod(result.memory)), result.held.dtype).reshape(result.memory)
    made[...] = 0
    return made
results._initial_memory = sums

table = np.arange(1.0, 6.0)
def f(table, k):
    return mixad.broadcast(lambda k: table[k] * table[k])(k).sum()
for k in (np.arange(-5, 5), np.zeros(33, "i8"), np.full(33, 4), np.full(7, -5)):
    expected = np.zeros(5)
    np.add.at(expected, k, 2 * table[k])
    np.testing.assert_array_equal(mixad.grad(f)(table, k), expected)
for wrong in (5, -6, 100, -100, 2**61, -2**61):
    for at in (0, 7, 16, 32):
        k = np.arange(33) % 5
        k[at] = wrong
        before = table.copy()
        try:
            mixad.grad(f)(table, k)
        except IndexError:
            np.testing.assert_array_equal(table, before)
        else:
            raise AssertionError(wrong)
print("nothing beyond")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="guards a page with mprotect")
def test_nothing_is_written_outside_of_the_sums(tmp_path):
    """In a process of its own, which a write there would end."""
    script = tmp_path / "guarded.py"
    script.write_text(_ADD_TO_THE_LAST_PAGE)
    assert subprocess.check_output([sys.executable, str(script)], text=True) == "nothing beyond\n"


@pytest.mark.parametrize(
    ("adds", "elements", "slabs"),
    [
        (100, 1000, 1),
        (10**9, 1 << 12, 64),
        (10**9, 1 << 13, 32),
        (10**9, 1 << 20, 8),
        (10**9, 1 << 24, 2),
        (8 * (1 << 12), 1 << 12, 2),
        (10**9, 0, 64),
    ],
)
def test_the_number_of_slabs_follows_from_shapes(adds, elements, slabs):
    assert slab_limit(adds, elements) == slabs
