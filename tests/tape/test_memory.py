"""Memory: nothing grows over many gradients, nothing waits for the collector."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixad

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

_SETUP = """
import gc, itertools, math, sys, tracemalloc, warnings
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

    def looking(k):
        mixad.grad(lambda x: (x * x).sum() if (x * 2.0).sum() > 0 else x.sum())(x)

    def along(k):
        mixad.jvp(lambda x: kernel(x, x) * x, (x,), (x,))
        mixad.hvp(lambda x: kernel(x, x).sum(), (x,), (x,))

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


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    ["same", "decorated", "other_shapes", "other_ranks", "raising", "never_pulled_back",
     "pulled_back_twice", "second", "forward", "with_a_product", "looking", "along"],
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
    blocks = [sys.getallocatedblocks()]
    for _ in range(3):
        run(600)
        collected = gc.collect()
        blocks.append(sys.getallocatedblocks())
    print(min(after - before for before, after in itertools.pairwise(blocks)), collected)
    """,
    )
    assert blocks < 300  # of 600 calls; what is there is names in Python's cache of attributes
    assert collected < 10


# -- values that nobody needs any more -------------------------------------------------------------


@pytest.mark.rows("transform", [mixad.vjp, mixad.linearize])
@pytest.mark.rows("f", [lambda x: x * 2.0, np.exp, lambda x: np.sin(x).reshape((2, -1)),
                               lambda x: (x[:5], x @ x)])  # fmt: skip
def test_a_pullback_does_not_hold_the_value(transform: Any, f: Any) -> None:
    x = np.linspace(0.0, 1.0, 10)
    value, carried = transform(f, x)
    leaves = mixad.pytree.leaves(value)
    again = mixad.pytree.tree_map(np.ones_like, value) if transform is mixad.vjp else x
    seen = [weakref.ref(leaf) for leaf in leaves if isinstance(leaf, np.ndarray)]
    del value, leaves
    assert [held() for held in seen] == [None] * len(seen)
    found = carried(again)
    expected = transform(f, x)[1](again)
    for one, other in zip(*map(mixad.pytree.leaves, (found, expected)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_a_view_was_made_of_is_let_go() -> None:
    left: list[Any] = []

    def f(x: Any) -> Any:
        whole = np.exp(x)
        view = whole.reshape((10, 100))
        left.append(weakref.ref(whole.cell))
        total = (view @ np.ones(100)).sum()  # makes them
        del whole, view
        assert left[0]() is None
        return total

    x = np.linspace(0.0, 1.0, 1000)
    np.testing.assert_allclose(mixad.grad(f)(x), np.exp(x), rtol=1e-14)


# -- peaks -----------------------------------------------------------------------------------------

_PEAK = """
    def peak_of(work):
        \"\"\"Return by how much the most memory at one time is above what there was before.

        Pages of files, as those of LLVM if it compiles here for the first time, do not count.
        \"\"\"
        before, files = status("VmRSS"), status("RssFile")
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        result = work()
        return status("VmHWM") - before - (status("RssFile") - files)
"""

SUMS = {
    "column and row": ("(x * y * y).sum()", [(4096, 1), (4096,)]),
    "column and row, three operations": ("(np.sin(x) * y + x * y * y).sum()", [(4096, 1), (4096,)]),
    "column, row and scalar": ("(x * (y * np.exp(-z * y))).sum()", [(4096, 1), (4096,), ()]),
    "mean of a kernel": ("weighed(x, y, z).mean()", [(4096, 1), (1, 4096), (1, 1)]),
    "three of three axes": ("weighed(x, y, z).sum()", [(256, 1, 1), (256, 1), (256,)]),
    "two terms": ("(x * y).sum() + (x * y * y).sum() * 2.0", [(4096, 1), (4096,)]),
    "squares of sums along an axis": ("((x * y).sum(axis=0) ** 2).sum()", [(4096, 1), (4096,)]),
}
"""Expressions of x, y, z over sixteen million elements, and their shapes."""

UNMERGED = {
    "middle and leading": ("(x * y * y).sum()", [(64, 1, 512), (512, 512)]),
    "leading, beside a column": ("weighed(x, y, z).sum()", [(64, 512, 512), (512, 512), (512, 1)]),
}


def peak_of_a_sum(folder: Path, expression: str, shapes: list[tuple[int, ...]], how: str) -> int:
    """Return the peak of a gradient of a sum in bytes, less what the same of less takes."""
    names = ", ".join("xyz"[: len(shapes)])
    (peak,) = in_a_process(
        folder,
        _PEAK
        + f"""
    @mixad.broadcast
    def weighed(x, y, z):
        return x * y * z + math.sin(x) * y

    loss = lambda {names}: {expression}
    shapes = {shapes}
    arrays = [np.random.default_rng(0).random(shape) for shape in shapes]
    few = [array[tuple(slice(16) for _ in array.shape)] for array in arrays]
    gradient = {how}
    gradient(*few)
    gradient(*few)
    print(peak_of(lambda: gradient(*arrays)))
    """,
    )
    return peak


@pytest.mark.slow
@linux
@pytest.mark.parametrize("how", ["value and all", "the first", "the last"])
@pytest.mark.parametrize("what", SUMS)
def test_a_sum_of_a_broadcast_is_differentiated_without_an_array_of_its_size(
    what: str, how: str, tmp_path: Path
) -> None:
    """The broadcast array alone would take 128 MB, and the arguments take next to nothing."""
    expression, shapes = SUMS[what]
    every = tuple(range(len(shapes)))
    transform = {
        "value and all": f"mixad.value_and_grad(loss, {every})",
        "the first": "mixad.grad(loss, 0)",
        "the last": f"mixad.grad(loss, {every[-1]})",
    }[how]
    assert peak_of_a_sum(tmp_path, expression, shapes, transform) < 8 << 20


@pytest.mark.slow
@linux
@pytest.mark.parametrize("what", UNMERGED)
def test_sums_over_outer_axes_only_need_no_array_of_the_whole(what: str, tmp_path: Path) -> None:
    expression, shapes = UNMERGED[what]
    transform = "mixad.grad(loss, 1)"
    assert peak_of_a_sum(tmp_path, expression, shapes, transform) < 16 << 20


_CELL = """
    @mixad.broadcast
    def cell(c, f, i, g):
        gate = 1.0 / (1.0 + math.exp(-f))
        return gate * c + math.tanh(i) * g if c > 0.25 else i * g

    ALL = 0, 1, 2, 3
    later = lambda value, pullback, cotangent: (value, pullback(cotangent))
    few = np.random.default_rng(0).random((4, 100), dtype="f4")
    many = np.random.default_rng(0).random((4, 1 << 22), dtype="f4")
    inputs = [x.copy() for x in many]
    del many
"""

REVERSE = {
    "value and gradients of a sum": ("mixad.value_and_grad(lambda *xs: cell(*xs).sum(), ALL)", 4),
    "value and pullback": ("lambda *xs: mixad.value_and_vjp(cell, xs, xs[0])", 5),
    "pullback later": ("lambda *xs: later(*mixad.vjp(cell, *xs), xs[0])", 5),
    "a chain of kernels and operators": (
        "mixad.grad(lambda c, *xs: (cell(cell(c, *xs) * 0.5, *xs) ** 2).sum(), ALL)",
        4,
    ),
}
"""Calls, and how many arrays of full size they return."""


REVERSED = ({}, {"placement": "reverse"}, {"strategy": "reverse"})
"""Options with which nothing is stored: what costs as much as this kernel is evaluated again."""


@pytest.mark.slow
@linux
@pytest.mark.parametrize("options", REVERSED, ids=str)
@pytest.mark.parametrize("what", REVERSE)
def test_reverse_placement_holds_inputs_and_outputs_and_a_tenth(
    what: str, options: dict[str, str], tmp_path: Path
) -> None:
    call, outputs = REVERSE[what]
    (peak,) = in_a_process(
        tmp_path,
        _PEAK
        + _CELL
        + f"""
    cell = cell.with_options(**{options})
    call = {call}
    call(*few)
    print(peak_of(lambda: call(*inputs)))
    """,
    )
    array = 4 << 22
    assert peak >= 0.9 * outputs * array  # it was measured
    assert peak <= outputs * array + (4 + outputs) * array // 10


@pytest.mark.slow
@linux
def test_forward_placement_holds_values_and_partials_and_a_tenth(tmp_path: Path) -> None:
    """Value, then four partials, then the gradients while the partials are still there."""
    (peak,) = in_a_process(
        tmp_path,
        _PEAK
        + _CELL
        + """
    placed = cell.with_options(placement="forward")
    call = lambda *xs: later(*mixad.vjp(placed, *xs), xs[0])
    call(*few)
    print(peak_of(lambda: call(*inputs)))
    """,
    )
    array = 4 << 22
    assert peak <= (1 + 4 + 4) * array + (4 + 9) * array // 10


SHIFTED = {
    "gradient": ("mixad.grad(loss)(x)", 1),
    "value and gradient": ("mixad.value_and_grad(loss)(x)", 1),
    "product with the Hessian": (
        "mixad.grad(lambda x: (mixad.grad(loss)(x) * v[:len(x)]).sum())(x)",
        2,
    ),
}
"""Calls, and how many arrays of full size they may hold at once, the result among them."""


@pytest.mark.slow
@linux
@pytest.mark.parametrize("what", SHIFTED)
def test_cotangents_of_shifted_views_are_not_held_beside_their_sum(
    what: str, tmp_path: Path
) -> None:
    call, most = SHIFTED[what]
    (peak,) = in_a_process(
        tmp_path,
        _PEAK
        + f"""
    def loss(x):
        a, b = x[:-1], x[1:]
        return (100.0 * (b - a * a) * (b - a * a) + (1.0 - a) * (1.0 - a)).sum()

    call = lambda x: {call}
    x, v = np.ones((2, 1 << 22), dtype="f4")
    call(x[: 1 << 19])
    print(peak_of(lambda: call(x)))
    """,
    )
    array = 4 << 22
    assert 0.9 * array <= peak  # it was measured
    assert peak < most * array + array // 2  # one array more would be a whole one
