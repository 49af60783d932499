"""Memory: nothing grows over many gradients, nothing waits for the collector."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_SETUP = """
import gc, math, sys, tracemalloc, warnings
from pathlib import Path
import numpy as np
import mixad

def status(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(name + ":")]
    return int(line.split()[1]) * 1024
"""


def in_a_process(folder: Path, code: str) -> list[int]:
    """Return the numbers that a process of its own prints."""
    script = folder / "script.py"  # a file: kernels need their source
    script.write_text(_SETUP + textwrap.dedent(code))
    run = [sys.executable, str(script)]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    found = subprocess.run(run, capture_output=True, text=True, check=False, env=around)
    assert found.returncode == 0, found.stderr
    return [int(word) for word in found.stdout.split()]


# -- many calls ------------------------------------------------------------------------------------

_CALLS = """
    x = np.linspace(0.1, 1.0, 8)
    kernel = mixad.broadcast(lambda x, y: math.sin(x) * y + x * y * y)

    class Wrong(Exception):
        pass

    def same(k):
        mixad.grad(lambda x: (np.sin(x) * x + np.exp(-x)).sum())(x)

    def decorated(k):
        scale = 1.0 + k  # captured: an argument, never a constant of the code
        mixad.value_and_grad(lambda x: kernel(x, scale).sum())(x)

    def other_shapes(k, most=199):
        mixad.grad(lambda x: (kernel(x, x) * x).sum())(np.ones(1 + k * 7919 % most))

    def many_shapes(k):  # more than a kernel remembers
        other_shapes(k, 1009)

    def other_ranks(k):
        shape = [(4,), (2, 2), (1, 4, 1), (), (2, 1, 2)][k % 5]
        mixad.grad(lambda x: kernel(x, x).sum())(np.ones(shape))

    def raising(k):
        def f(x):
            y = kernel(x, x)
            if k % 3 == 0:
                mixad.stop_gradient(y)
            if k % 3 == 1:
                y.sum() @ 1.0  # refused by mixad
            raise Wrong

        try:
            mixad.grad(f)(x)
        except (Wrong, TypeError, ValueError):
            pass

    def never_pulled_back(k):
        mixad.vjp(lambda x: kernel(x, x) * x, x)

    def pulled_back_twice(k):
        value, pullback = mixad.vjp(lambda x: kernel(x, x) * x, x)
        pullback(value)
        pullback(x)

    def second(k):
        mixad.grad(lambda x: (mixad.grad(lambda x: kernel(x, x).sum())(x) * x).sum())(x)

    def forward(k):
        placed = kernel.with_options(placement="forward")
        mixad.grad(lambda x: placed(x, x).sum())(x)

    def with_a_product(k):
        mixad.grad(lambda x: (kernel(x, x) @ np.ones(8)) ** 2)(x)

    WORKS = [same, decorated, other_shapes, many_shapes, other_ranks, raising,
             never_pulled_back, pulled_back_twice, second, forward, with_a_product]
"""


@linux
@pytest.mark.slow
def test_memory_is_flat_over_a_hundred_thousand_calls(tmp_path: Path) -> None:
    """Resident memory, and objects alive while the collector is off, after the caches are full."""
    grown, objects = in_a_process(
        tmp_path,
        _CALLS
        + """
    gc.disable()

    def run(calls):
        for k in range(calls):
            WORKS[k % len(WORKS)](k)
        return status("VmRSS"), len(gc.get_objects())

    run(20_000)
    memory, objects = run(10)
    more_memory, more_objects = run(100_000)
    print(more_memory - memory, more_objects - objects)
    """,
    )
    assert grown < 2 << 20
    assert objects < 5000  # one for each call of one of the eleven would be 9000


@pytest.mark.parametrize(
    "work",
    ["same", "decorated", "other_shapes", "other_ranks", "raising", "never_pulled_back",
     "pulled_back_twice", "second", "forward", "with_a_product"],
)  # fmt: skip
def test_no_call_leaves_a_block_or_a_cycle(work: str, tmp_path: Path) -> None:
    """Blocks that Python allocated, and what the collector found when it was turned on again."""
    blocks, collected = in_a_process(
        tmp_path,
        _CALLS
        + f"""
    gc.disable()

    def run(calls):
        for k in range(calls):
            {work}(k)

    run(2000)
    gc.collect()  # empties Python's lists of free tuples, too
    before = sys.getallocatedblocks()
    run(600)
    collected = gc.collect()
    print(sys.getallocatedblocks() - before, collected)
    """,
    )
    assert blocks < 300  # of 600 calls; what is there is names in Python's cache of attributes
    assert collected < 10
