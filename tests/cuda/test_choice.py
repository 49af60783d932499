"""Shapes of blocks: residency by NVIDIA's rules, the choice by hand and on compiled kernels."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cuda_emulator import CompilingDriver, DryDriver, needs_nvrtc

from benchmarks.offline import H200
from mixad.backends.arrays import layout_of
from mixad.backends.cuda import CudaBackend, Usage
from mixad.backends.cuda.choice import (
    BlockShape,
    candidate_shapes,
    choose_shape,
    enough,
    resident,
    speed_share,
)
from mixad.backends.cuda.device import read_device
from mixad.emit.cuda import Dialect
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.pullback import pullback
from mixad.scalar.types import F32, F64

DEVICE = read_device(H200.__getitem__)

# Registers and bytes of shared memory → blocks of a multiprocessor of compute capability 9.0, by
# NVIDIA's occupancy calculator.
RESIDENT = [
    (256, 32, 0, 8),
    (256, 33, 0, 6),
    (256, 64, 0, 4),
    (256, 96, 0, 2),
    (256, 128, 0, 2),
    (256, 255, 0, 1),
    (128, 144, 0, 3),
    (128, 32, 48 * 1024, 4),
    (32, 16, 0, 32),
]


@pytest.mark.rows(("threads", "registers", "shared", "blocks"), RESIDENT)
def test_resident_threads_are_those_of_the_occupancy_calculator(threads, registers, shared, blocks):
    used = Usage(registers, 0, shared)
    assert DEVICE.resident(used, threads) == blocks * threads
    assert DEVICE.occupancy(used, threads) == blocks * threads / 2048


def test_a_device_is_described_by_its_attributes():
    assert DEVICE.architecture == "sm_90"
    assert DEVICE.bandwidth == pytest.approx(4.917e12, rel=1e-3)  # NVIDIA says 4.8 TB/s
    assert 20_000 < enough(DEVICE) < 40_000


def using(table):
    """Return the function from a shape to what one pass uses, and what it has been asked."""
    asked = []

    def usages(shape):
        asked.append(shape)
        return [Usage(*table(shape), 0)]

    return usages, asked


def test_the_widest_shape_is_taken_where_it_keeps_the_memory_busy():
    usages, asked = using(lambda shape: (40, 0))
    assert choose_shape(DEVICE, 4, [4] * 6, usages) == BlockShape(4, 256)
    assert asked == [BlockShape(4, 256)]  # nothing else is compiled


def test_a_shape_that_spills_is_not_taken():
    usages, _ = using(lambda shape: (255, 64 if shape.vector > 1 else 0))
    assert choose_shape(DEVICE, 4, [4] * 16, usages).vector == 1


def test_local_memory_that_one_neighbour_has_too_is_no_spill():
    usages, _ = using(lambda shape: (40, 32))
    assert choose_shape(DEVICE, 4, [4] * 6, usages) == BlockShape(4, 256)


def test_smaller_blocks_are_taken_where_they_fill_a_multiprocessor_better():
    usages, _ = using(lambda shape: (144, 0))  # one block of 256 threads, three of 128
    assert choose_shape(DEVICE, 1, [4] * 15, usages) == BlockShape(1, 128)


def test_nothing_is_compiled_that_could_not_be_better():
    usages, asked = using(lambda shape: (32, 0))  # all threads are there
    assert choose_shape(DEVICE, 8, [1], usages) == BlockShape(8, 256)
    assert asked == [BlockShape(8, 256)]
    usages, asked = using(lambda shape: (40, 0))  # three quarters: of half as many neighbours less
    assert choose_shape(DEVICE, 8, [1], usages) == BlockShape(8, 256)
    assert asked == [BlockShape(8, 256), BlockShape(8, 128)]


def test_what_loads_nothing_takes_the_first_shape():
    usages, asked = using(lambda shape: (40, 0))
    assert choose_shape(DEVICE, 4, [], usages) == BlockShape(4, 256)
    assert len(asked) == 1


def test_the_weakest_pass_decides():
    light, heavy, shape = Usage(32, 0, 0), Usage(250, 0, 0), BlockShape(1, 256)
    assert resident(DEVICE, shape, [light, heavy]) == resident(DEVICE, shape, [heavy])


# Kernels that were run on an H200 in all shapes (record 0011): the registers of each, and the
# shapes that took at most 4 % longer than the fastest one.
SHAPES = [(4, 256), (4, 128), (2, 256), (2, 128), (1, 256), (1, 128)]
RUN = {
    "N = 4": (5, 4, [57, 54, 31, 31, 40, 32], [(4, 256), (4, 128), (2, 256), (2, 128)]),
    "N = 8": (9, 4, [94, 88, 51, 51, 40, 40], [(2, 256), (2, 128)]),
    "N = 10": (11, 4, [104, 96, 60, 56, 46, 46], [(2, 256), (2, 128)]),
    "N = 13": (14, 4, [124, 128, 101, 104, 69, 70], [(4, 256), (2, 256), (2, 128)]),
    "N = 14": (15, 4, [130, 136, 104, 102, 72, 72], [(2, 256), (2, 128)]),
    "N = 18": (19, 4, [166, 164, 126, 126, 91, 90], [(2, 256), (2, 128)]),
    "N = 24": (25, 4, [244, 246, 159, 162, 114, 114], [(2, 128)]),
    "HM-LSTM": (5, 4, [74, 72, 63, 63, 58, 56], [(4, 256), (4, 128), (2, 256), (2, 128)]),
    "Kepler": (3, 8, [99, 99, 58, 56, 52, 52], [(2, 256), (2, 128), (1, 256)]),
    "implied volatility": (5, 8, [255, 255, 128, 128, 122, 120], [(2, 256), (1, 256)]),
}


@pytest.mark.rows("kernel", RUN)
def test_the_choice_is_among_the_fastest_that_were_measured(kernel):
    count, itemsize, registers, fastest = RUN[kernel]
    used = dict(zip(SHAPES, registers, strict=True))
    usages, _ = using(lambda shape: (used[shape], 0))
    assert choose_shape(DEVICE, 16 // itemsize, [itemsize] * count, usages) in fastest


USED_ON = {"thrifty": Usage(32, 0, 0), "greedy": Usage(144, 0, 0)}


class TwoDevices(DryDriver):
    """On one of them, kernels take so many registers that fewer threads are resident."""

    def __init__(self):
        super().__init__()
        self.where, self.compiled, self.launched = {}, [], []

    def device(self, array):
        return self.where[id(array)]

    def compile(self, text, entries, device):
        self.compiled.append((device, text))
        return dict.fromkeys(entries, device)

    def usage(self, function, device):
        assert function == device
        return USED_ON[device]

    def launch(self, function, blocks, threads, device, words):
        assert function == device
        self.launched.append((device, math.prod(threads)))


def test_the_choice_is_made_once_for_each_device():
    x = Builder("square")
    v = x.param("x", F32)
    program = x.finish([x.op("mul", v, v)])
    driver = TwoDevices()
    backend = CudaBackend("dry", driver)
    arrays = {d: driver.empty((64, 1024), np.float32, d) for d in USED_ON}
    driver.where = {id(array): device for device, array in arrays.items()}
    layouts = [layout_of(arrays["greedy"])]
    launch = plan((program,), [OutputRequest(0, 0)], layouts, (64, 1024), 1 << 40)
    kernel = backend.compile(launch.spec)
    for _ in range(3):
        bound = backend.bind(kernel, launch)
        for array in arrays.values():
            backend.launch(bound, [array])
    assert driver.launched == [("thrifty", 256), ("greedy", 128)] * 3
    assert len(set(driver.compiled)) == len(driver.compiled)  # nothing twice
    assert {device for device, _ in driver.compiled} == set(USED_ON)
    assert [device for device, _ in driver.compiled].count("thrifty") == 1  # the first would do


# -- on what NVRTC compiles ------------------------------------------------------------------------


def product_pullback(count, type):
    """Return the programs of the gradients of Π tanh(xₖ)."""
    b = Builder("product")
    xs = [b.param(f"x{k}", type) for k in range(count)]
    total = b.const(1.0, type)
    for x in xs:
        total = b.op("mul", total, b.op("tanh", x))
    return [one.program for one in pullback(b.finish([total]), range(count), [0])]


def bound(architecture, passes, count, type):
    """Return the backend and a kernel that stores all results of some programs."""
    backend = CudaBackend("compiling", CompilingDriver(architecture))
    arguments = [DryDriver().empty((64, 2048), type.dtype, "dry") for _ in range(count)]
    requests = [
        OutputRequest(p, k) for p, one in enumerate(passes) for k in range(len(one.outputs))
    ]
    layouts = [layout_of(a) for a in arguments]
    launch = plan(tuple(passes), requests, layouts, (64, 2048), 1 << 40)
    return backend, backend.bind(backend.compile(launch.spec), launch)


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("type", [F32, F64], ids=str)
@pytest.mark.parametrize("count", [1, 4, 10, 11, 24])
def test_what_is_chosen_does_not_spill_and_no_alternative_reaches_more(count, type, architecture):
    passes = product_pullback(count, type)
    backend, kernel = bound(architecture, passes, count + 1, type)
    dialect = backend.dialect(kernel, "dry", True)
    device, loaded = backend.describe_device("dry"), [type.itemsize] * (count + 1)
    shares, spilled = {}, {}
    for shape in candidate_shapes(kernel.widest):
        used = kernel.kernel.usages(Dialect(*shape), "dry")
        spilled[shape] = max(u.local for u in used)
        shares[shape] = speed_share(device, shape, resident(device, shape, used), loaded)
    picked = BlockShape(dialect.vector, dialect.threads)
    assert spilled[picked] == min(spilled.values())
    unspilled = [shape for shape in shares if spilled[shape] == min(spilled.values())]
    assert shares[picked] == max(shares[shape] for shape in unspilled)


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize("type", [F32, F64], ids=str)
@pytest.mark.parametrize("count", [10, 20])
def test_passes_of_ten_partials_do_not_spill_so_fewer_need_never_be_taken(count, type):
    """What smaller passes would gain in registers, they would pay by reading everything again."""
    passes = product_pullback(count, type)
    assert len(passes) == math.ceil(count / 10)
    for architecture in ("sm_75", "sm_80", "sm_90", "sm_100"):
        backend, kernel = bound(architecture, passes, count + 1, type)
        dialect = backend.dialect(kernel, "dry", True)
        assert not any(u.local for u in kernel.kernel.usages(dialect, "dry"))
