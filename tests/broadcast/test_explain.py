"""What `explain` says of a call, beside counts made by hand and beside what runs."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import array_api_strict
import numpy as np
import pytest

import mixad
from mixad import special
from mixad.backends import execute, registry
from mixad.backends.hookspecs import BackendSpec
from mixad.backends.registry import Registry, default_registry
from mixad.broadcast.explain import Explanation
from mixad.tape.kernel_node import KernelNode
from mixad.transforms import gradients, strand_history

X = np.asarray([1.0, 2.0, 3.0])
TABLE = np.linspace(0.0, 1.0, 1000)


@mixad.broadcast
def cell(z, c, f):
    if z > 0:
        return special.sigmoid(f) * c
    return c


@mixad.broadcast
def hm_lstm(z, zb, c, f, i, g):
    if z == 1.0:
        return special.sigmoid(i) * special.tanh(g)
    elif zb == 0.0:
        return c
    return special.sigmoid(f) * c + special.sigmoid(i) * special.tanh(g)


product = mixad.broadcast(lambda x, y: x * y)
first = mixad.broadcast(lambda x, y: x)
looked_up = mixad.broadcast(lambda i, x: TABLE[i] * x)
wave = mixad.broadcast(lambda x, y: special.sin(x) * special.exp(y))
quiet = mixad.broadcast(lambda x, y: special.floor(x) * y)
flags = mixad.broadcast(lambda x: x > 2)


# -- bytes: each argument that is read and each result once, counted by hand -------------------


def lone(*shape: int, dtype: str = "f8") -> Any:
    return np.ones(shape, dtype)


BYTES = {
    "one shape": (product, (lone(50, 30), lone(50, 30)), 8 * 3 * 1500, 8 * 3 * 1500),
    "a row": (product, (lone(50, 30), lone(30)), 8 * (2 * 1500 + 30), 8 * (2 * 1500 + 30)),
    "a column": (product, (lone(50, 30), lone(50, 1)), 8 * (2 * 1500 + 50), 8 * (2 * 1500 + 50)),
    "a row and a column": (product, (lone(50, 1), lone(30)), 8 * (1500 + 80), 8 * (1500 + 80)),
    "float32": (product, (lone(50, dtype="f4"), lone(50, dtype="f4")), 4 * 150, 4 * 150),
    "both precisions": (product, (lone(50, dtype="f4"), lone(50)), 4 * 50 + 8 * 100, 8 * 100 + 200),
    "a number": (product, (lone(50), 3.0), 8 * 100, 8 * 100),  # x, the cotangent; the value, dx
    "turned": (product, (lone(30, 50).T, lone(50, 30)), 8 * 3 * 1500, 8 * 3 * 1500),
    "every other element": (product, (lone(60)[::2], lone(30)), 8 * 90, 8 * 90),
    "repeated without memory": (
        product,
        (np.broadcast_to(lone(30), (50, 30)), lone(50, 30)),
        8 * (30 + 2 * 1500),
        8 * 3 * 1500,
    ),
    "not read": (first, (lone(50), lone(50)), 8 * 100, 8 * 100),  # y has no gradient at all
    "integers": (product, (lone(50, dtype="i4"), lone(50)), 4 * 50 + 8 * 100, 8 * 100),
    "no float": (flags, (lone(50),), 8 * 50, 50),
    "a small table": (
        looked_up,
        (np.arange(5000) % 1000, lone(5000)),
        8 * (3 * 5000 + 1000),  # indices, x, the cotangent; the table
        8 * 2 * 5000,
    ),
    "a large table": (looked_up, (np.arange(7), lone(7)), 8 * (3 * 7 + 7), 8 * 2 * 7),
    "nothing": (product, (lone(0, 3), lone(3)), 0, 8 * 3),  # the gradient of y: zeros
}


@pytest.mark.rows("case", BYTES)
def test_bytes_are_those_counted_by_hand(case: str) -> None:
    kernel, arguments, read, written = BYTES[case]
    explained = kernel.explain(*arguments)
    assert (explained.bytes_read, explained.bytes_written) == (read, written)
    assert explained.floor_bytes == read + written


def test_bytes_of_the_cell_are_those_of_the_paper() -> None:
    n = 64
    z, zb = np.zeros((2, n), "f4")
    explained = hm_lstm.explain(z, zb, *np.ones((4, n, n), "f4"), wrt=("c", "f", "i", "g"))
    assert explained.bytes_read == 4 * (2 * n + 5 * n * n)  # flags; c, f, i, g, the cotangent
    assert explained.bytes_written == 4 * 5 * n * n  # the value and four gradients


def test_partials_that_are_stored_are_written_and_read() -> None:
    explained = wave.with_options(placement="forward").explain(lone(50, 30), lone(50, 30))
    size = 8 * 1500
    # A + 3 D + 2 arrays: d/dy is the value itself, and not stored again.
    assert explained.bytes_read == 2 * size + (1 + 1 + 1) * size
    assert explained.bytes_written == (1 + 1) * size + 2 * size


def test_chunks_read_their_inputs_once() -> None:
    one, many = (cell.with_options(chunk=chunk).explain(X, X, X) for chunk in (None, 1))
    assert many.chunks == (1, 1)
    assert one.floor_bytes == many.floor_bytes


# -- flops -------------------------------------------------------------------------------------


def flops(function: Any, count: int, size: int = 7) -> int:
    """Return the flops per element."""
    explained = mixad.broadcast(function).explain(*[lone(size)] * count)
    assert explained.flops % size == 0
    return explained.flops // size


def test_flops_are_those_counted_by_hand() -> None:
    # The value, the partials, and their products with the cotangent; none with a partial of one.
    assert flops(lambda x, y: x * y, 2) == 1 + 0 + 2
    assert flops(lambda x, y: x + y, 2) == 1
    assert flops(lambda x, y: x / y, 2) == 1 + 2 + 2  # 1 / y and -(out / y)
    assert flops(lambda x, y, z: special.fma(x, y, z), 3) == 2 + 0 + 2
    assert flops(lambda x: special.sqrt(x), 1) == 1 + 1 + 1  # 0.5 / √x
    assert flops(lambda x: x * x * x, 1) == 2 + 3 + 1  # (x + x) * x + (x * x), the last known
    assert flops(lambda x: x if x > 0 else -x, 1) == 1
    assert flops(lambda x: special.floor(x), 1) == 0
    assert flops(lambda x: x > 1, 1) == 0


def test_flops_grow_with_the_elements_and_with_loops() -> None:
    few, many = product.explain(X, X), product.explain(lone(300), lone(300))
    assert many.flops == 100 * few.flops

    def powers(x, n):
        y = x
        while n > 0:
            y = y * x
            n = n - 1
        return y

    explained = mixad.broadcast(powers).explain(lone(3), np.ones(3, "i8"))
    assert explained.flops > 3 * 8  # a product in each of the iterations that are assumed


@pytest.mark.parametrize(("name", "least", "most"), [("exp", 10, 60), ("tan", 20, 120)])
def test_flops_of_functions_are_plausible(name: str, least: int, most: int) -> None:
    function = getattr(special, name)
    assert least <= flops(lambda x: function(x), 1) <= most


def test_flops_of_both_kernels_count_with_forward_placement() -> None:
    forward = wave.with_options(placement="forward").explain(X, X)
    reverse = wave.explain(X, X)
    assert forward.flops == reverse.flops  # the same products, elsewhere


# -- what runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "kernels"),
    [
        (wave, 1),
        (wave.with_options(chunk=1), 1),
        (wave.with_options(placement="forward"), 2),
        (wave.with_options(placement="reverse"), 1),
        (quiet, 1),
        (quiet.with_options(placement="forward"), 2),
    ],
)
def test_explained_is_what_value_and_vjp_launches(
    kernel: Any, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = lone(40, 30), lone(30)
    explained = kernel.explain(x, y)
    cpu = registry.backend("cpu")
    launched: list[Any] = []
    original = type(cpu).launch

    def recorded(self: Any, bound: Any, arguments: Any) -> Any:
        results = original(self, bound, arguments)
        launched.append((bound.launch, arguments, results))
        return results

    monkeypatch.setattr(type(cpu), "launch", recorded)
    monkeypatch.setattr(gradients, "open_strand", lambda *args: None)  # plans are not counted
    execute._LAUNCHES.clear()  # those that were prepared before launch as before
    mixad.value_and_vjp(kernel, (x, y), lone(40, 30))
    assert len(launched) == kernels
    first_launch = launched[0][0]
    assert explained.cache_key == first_launch.spec.token
    assert (explained.shape, explained.loops) == (first_launch.shape, first_launch.extents)
    written = sum(result.nbytes for _, _, results in launched for result in results)
    assert explained.bytes_written == written
    read = sum(a.nbytes for _, arguments, _ in launched for a in arguments)
    assert explained.bytes_read == read


def test_cached_after_the_gradient_ran_and_for_other_extents() -> None:
    kernel = mixad.broadcast(lambda x, y: x * special.tanh(y) + 0.125)
    assert not kernel.explain(X, X).cached
    assert kernel.explain(X, X).cached
    assert kernel.explain(lone(500), lone(500)).cached
    assert not kernel.explain(X.astype("f4"), X.astype("f4")).cached
    assert not kernel.explain(X, X[:1]).cached
    other = mixad.broadcast(lambda x, y: x * special.tanh(y) + 0.25)
    mixad.value_and_vjp(other, (X, X), np.ones(3))
    assert other.explain(X, X).cached


def test_kernels_that_differ_have_other_keys() -> None:
    keys = {
        kernel.explain(*arguments).cache_key
        for kernel, arguments in (
            (cell, (X, X, X)),
            (cell, (1.0, X, X)),
            (cell, tuple(np.ones((3, 4), np.float32))),
            (cell.with_options(chunk=1), (X, X, X)),
            (cell.with_options(placement="forward"), (X, X, X)),
        )
    }
    assert len(keys) == 5
    assert cell.explain(X, X, X).cache_key == cell.explain(X + 1, X, X).cache_key


# -- the other fields --------------------------------------------------------------------------


def test_backend_and_why() -> None:
    explained = cell.explain(X, X, X)
    assert (explained.backend, explained.reason) == ("cpu", "made for numpy, compiles")
    asked = cell.with_options(backend="reference").explain(X, X, X)
    assert (asked.backend, asked.reason) == ("reference", "asked for")
    strict = array_api_strict.asarray(X)
    assert cell.explain(strict, strict, strict).reason == "made for array_api_strict, compiles"


def test_backend_of_any_library_is_told_from_one_made_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs: dict[str, BackendSpec] = {spec.name: spec for spec in default_registry().specs}
    assert "reference" in specs
    alone = Registry([p for p in registry.installed_plugins() if p.name == "reference"])
    monkeypatch.setattr(registry, "default_registry", lambda: alone)
    explained = mixad.broadcast(lambda x: x * 0.815).explain(X)
    assert (explained.backend, explained.reason) == ("reference", "takes any arrays, interprets")


def test_strategy_chunks_placement_and_static_zeros() -> None:
    explained = cell.explain(X, X, X)
    assert explained.strategy == "forward"
    assert explained.chunks == (2,)  # z is compared only
    assert explained.placement == "reverse"
    assert explained.static_zeros == ("z",)
    assert cell.explain(X, X, X, wrt="c").static_zeros == ()
    assert cell.explain(X, X, X, wrt="z").static_zeros == ("z",)
    assert cell.with_options(placement="forward").explain(X, X, X).placement == "forward"
    assert cell.with_options(placement="reverse").explain(X, X, X).placement == "reverse"


def newton(x, y):
    z = x
    for _ in range(12):
        z = z - (z - 0.1 * y * special.sin(z) - x) / (1.0 - 0.1 * y * special.cos(z))
    return z


steps = mixad.broadcast(newton)
PLACED = {
    "dear": (steps, (lone(20_000), lone(20_000)), None),
    "dear, of few elements": (steps, (lone(50), lone(50)), None),
    "dear, a column and a row": (steps, (lone(200, 1), lone(100)), None),
    "dear, of one": (steps, (lone(20_000), lone(20_000)), "x"),
    "dear, beside a number": (steps, (lone(20_000), 0.5), "x"),
    "dear, two results": (
        mixad.broadcast(lambda x, y: (special.sin(x) * special.exp(y) ** x, special.tan(x * y))),
        (lone(20_000), lone(20_000)),
        None,
    ),
    "many partials": (hm_lstm, tuple(np.ones((6, 5))), ("c", "f", "i", "g")),
    "cheap": (product, (lone(50), lone(50)), None),
    "an index": (looked_up, (np.arange(50), lone(50)), "x"),
}


OPTIONS = [{}, {"placement": "reverse"}, {"strategy": "reverse"}]


@pytest.mark.parametrize(
    ("case", "options"),
    [
        (case, options)
        for case in PLACED
        for options in OPTIONS
        if PLACED[case][0] is not steps or "strategy" not in options  # there is a loop
    ],
)
def test_explained_placement_of_vjp_is_what_vjp_does(
    case: str, options: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel, arguments, wrt = PLACED[case]
    kernel = kernel.with_options(**options)
    stored: list[Any] = []
    original = KernelNode.store

    def recorded(self: Any, *given: Any) -> None:
        stored.append(self)
        original(self, *given)

    monkeypatch.setattr(KernelNode, "store", recorded)
    monkeypatch.setattr(strand_history, "_HISTORIES", {})
    names = list(inspect.signature(kernel).parameters)
    among = names if wrt is None else [wrt] if isinstance(wrt, str) else list(wrt)
    places = [names.index(name) for name in among]

    def call(*chosen: Any) -> Any:
        given = list(arguments)
        for place, value in zip(places, chosen, strict=True):
            given[place] = value
        return kernel(*given)

    mixad.vjp(call, *(arguments[place] for place in places))
    explained = kernel.explain(*arguments, wrt=wrt)
    assert explained.vjp_placement == ("forward" if stored else "reverse")
    assert explained.placement == "reverse"


def test_both_placements_are_met() -> None:
    """Otherwise the test above would compare nothing."""
    placements = {k.explain(*a, wrt=w).vjp_placement for k, a, w in PLACED.values()}
    assert placements == {"forward", "reverse"}
    stored = product.with_options(placement="forward").explain(X, X)
    assert (stored.placement, stored.vjp_placement) == ("forward", "forward")
    assert "reverse; forward where the value" in str(steps.explain(lone(20_000), lone(20_000)))


def test_static_zeros_are_zeros() -> None:
    _, gradients = mixad.value_and_vjp(quiet, (X, X), np.ones(3))
    explained = quiet.explain(X, X)
    for name, gradient in zip(("x", "y"), gradients, strict=True):
        assert (name in explained.static_zeros) == (not gradient.any())


def test_merged_loops_are_shown() -> None:
    assert cell.explain(*np.ones((3, 4, 5, 6))).loops == (120,)
    turned = np.ones((3, 4, 5, 6)).swapaxes(1, 3)
    assert cell.explain(*turned, wrt=()).loops == (120,)
    assert math.prod(cell.explain(*turned).loops) == 120  # the cotangent is in C order
    assert cell.explain(np.ones((4, 1)), *np.ones((2, 4, 6))).loops == (4, 6)


def test_explanation_reads_well() -> None:
    text = str(cell.explain(X, X, X))
    key = cell.explain(X, X, X).cache_key[:16]
    per_element = flops(lambda z, c, f: special.sigmoid(f) * c if z > 0 else c, 3)
    assert text.splitlines() == [
        "backend:      cpu (made for numpy, compiles)",
        "strategy:     forward, partials per pass: 2",
        "placement:    reverse; reverse where the value is needed first",
        "static zeros: z",
        "shape:        (3,), loops over 3",
        "moves:        96 B read, 72 B written",
        "floor:        168 B at the bandwidth of a copy",
        f"arithmetic:   {3 * per_element} flop, {3 * per_element / 168:.2g} per byte",
        f"kernel:       {key}, cached",
    ]


def test_large_figures_have_prefixes() -> None:
    large = np.broadcast_to(np.float64(1), (3000, 1000))
    text = str(product.explain(large, np.float64(1)))
    assert "48.0 MB written" in text
    assert "Mflop" in text


def test_explanation_is_frozen_and_has_no_other_fields_than_are_documented() -> None:
    explained = cell.explain(X, X, X)
    with pytest.raises(dataclasses.FrozenInstanceError):
        explained.backend = "other"
    names = {field.name for field in dataclasses.fields(Explanation)}
    documented = {
        name.strip()
        for line in (Explanation.__doc__ or "").splitlines()
        if " : " in line
        for name in line.partition(" : ")[0].split(",")
    }
    assert names == documented


def test_explaining_inside_a_gradient() -> None:
    seen = []

    def loss(c: Any) -> Any:
        seen.append(cell.explain(X, c, X).chunks)
        seen.append(cell.source(X, c, X))
        return cell(X, c, X).sum()

    mixad.grad(loss)(X)
    assert seen[0] == (2,)


@pytest.mark.rows(
    "call",
    [
        lambda: cell.explain(1.0, 2.0, 3.0),
        lambda: cell.explain(np.float32(1.0), array_api_strict.asarray(X), 3.0),
        lambda: flags.explain(X),
        lambda: mixad.broadcast(lambda x: special.floor(x)).explain(X),
        lambda: mixad.broadcast(lambda x: 1.0).explain(X),
        lambda: mixad.broadcast(lambda n, x: n * x).explain(np.arange(3), X),
        lambda: cell.explain(np.ones((0, 3)), 1.0, np.ones(3)),
        lambda: cell.explain(X, X, X, wrt=()),
        lambda: cell.with_options(placement="forward").explain(X, X, X, wrt=()),
    ],
)
def test_every_call_can_be_explained(call: Any) -> None:
    explained = call()
    assert str(explained)
    assert explained.bytes_written >= 0
