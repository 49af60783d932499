"""The HM-LSTM cell update in several modes, and what divergence costs it (§4 of the paper)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mixad
from benchmarks.gpu import hm_lstm
from benchmarks.gpu.device import Device
from benchmarks.gpu.elementwise import (
    Elementwise,
    by_jax,
    by_mixad,
    by_torch,
    copied,
    value_and_gradients,
)
from benchmarks.gpu.work import Made
from benchmarks.paper import operations
from benchmarks.paper.cases import Case, Expected, Way
from benchmarks.paper.host import for_torch
from benchmarks.paper.kernels import gradient_kernel, launch_of, partials_kernel, program_of
from benchmarks.peers import libraries

SIDES = (512, 1024, 2048)
DIVERGENCE_SIDE = 2048
MIXED = "mixad, mixed mode"
PARTIALS = "mixad, the paper's kernel: four partials only"
PURE = "mixad, pure reverse mode: selections, a kernel for each operation"
FUSED = "mixad, selections, fused"
RUNS = (1, 16, 32)  # neighbours with the same control: a vector of the CPU, a warp
LANES = {"cpu": 16, "gpu": 32}  # that are loaded for together


def hm_lstm_cases(scale: float, seed: int, device: Device) -> Iterator[Case]:
    """Yield the cell at each size, control values in the paper's layout: neighbours differ."""
    for side in (max(8, int(side * scale)) for side in SIDES):
        e = hm_lstm.problem(hm_lstm.drawn((side,), seed), side, seed + 1)
        yield Case("hm_lstm", f"{side}², z of shape (n,)", ways(e))


def ways(e: Elementwise) -> Mapping[str, Way]:
    """Return the modes of mixad, then the peers, then copying as many bytes."""
    expected = partial(hm_lstm.expected, e)
    whole = {"expected": expected, "over": MIXED, "bytes_moved": e.bytes_moved}
    return {
        MIXED: Way(partial(by_mixad, e), expected, alone=partial(mixed_alone, e),
                   bytes_moved=e.bytes_moved),
        PARTIALS: Way(partial(by_partials, e), expected_partials(e), is_kernel=True,
                      over=MIXED, bytes_moved=bytes_of_partials(e)),
        FUSED: Way(partial(by_selections, e), **whole),
        PURE: Way(partial(by_operations, e), **whole),
        "torch.compile": Way(partial(torch_here, e, compiled=True), **whole),
        "JAX jit": Way(partial(by_jax, e), clock="batch", **whole),
        "PyTorch eager": Way(partial(torch_here, e, compiled=False), **whole),
        "copy of the bytes": Way(partial(copy_here, e.bytes_moved), is_kernel=True, over=MIXED,
                                 bytes_moved=e.bytes_moved),
    }  # fmt: skip


# -- the ways --------------------------------------------------------------------------------------


def mixed_alone(e: Elementwise, device: Device) -> Callable[[], Any]:
    """Return the launch of the kernel of mixed mode."""
    constants, active, cotangent = e.on(device)
    arguments = [*constants, *active]
    program = program_of(mixad.broadcast(e.kernel), arguments)
    kernel = gradient_kernel(program, arguments, range(len(constants), len(arguments)))
    return launch_of(kernel, program, arguments, cotangent)


def by_partials(e: Elementwise, device: Device) -> Made:
    """Write the partials of all active inputs and nothing else."""
    constants, active, _ = e.on(device)
    arguments = [*constants, *active]
    program = program_of(mixad.broadcast(e.kernel), arguments)
    kernel = partials_kernel(program, range(len(constants), len(arguments)))
    return Made(lambda: kernel(arguments), list)


def by_selections(e: Elementwise, device: Device) -> Made:
    """Differentiate functions of arrays, as the peers are given them; mixad fuses them."""
    assert e.by_arrays is not None
    xp = importlib.import_module("numpy" if device.platform == "cpu" else "torch")
    constants, active, cotangent = e.on(device)
    function = partial(e.by_arrays, xp, *constants)

    def call():
        return mixad.value_and_vjp(lambda *arrays: function(*arrays), active, cotangent)

    return Made(call, value_and_gradients)


def by_operations(e: Elementwise, device: Device) -> Made:
    """Do the cell in pure reverse mode, unfused."""
    constants, active, cotangent = e.on(device)

    def call():
        value, pullback = mixad.vjp(lambda *arrays: operations.cell(*constants, *arrays), *active)
        return value, pullback(cotangent)

    return Made(call, value_and_gradients)


def torch_here(e: Elementwise, device: Device, compiled: bool) -> Made:
    """Do it by torch; on the host its tensors lie on NumPy's memory."""
    own = for_torch(device)
    made = by_torch(e, own, compiled)
    return Made(made.call, made.unpack, own.wait, own.get)


def copy_here(moved: int, device: Device) -> Made:
    """Move so many bytes, on all threads of the host or on the device."""
    if device.platform == "cpu":
        return Made(*libraries.copy_bytes(moved))
    return copied(moved, device)


# -- what is expected, and what must move ----------------------------------------------------------


def expected_partials(e: Elementwise) -> Expected:
    """Return what gives the partials: the gradients for a cotangent of ones."""
    ones = Elementwise(
        e.kernel, e.by_arrays, e.constants, e.active, np.broadcast_to(np.float32(1), e.shape)
    )
    return lambda: hm_lstm.expected(ones)[1:]


def bytes_of_partials(e: Elementwise) -> int:
    """Return the bytes of the inputs, and of as many partials as are active."""
    return sum(x.nbytes for x in (*e.constants, *e.active, *e.active))


def bytes_needed(control: Sequence[NDArray], shape: tuple[int, ...], lanes: int) -> int:
    """Return the bytes of value and gradients if so many neighbours load what one of them needs.

    FLUSH reads i and g, COPY reads c, UPDATE all four; cotangent and results move always.
    """
    z, zb = (np.broadcast_to(v, shape).reshape(-1, lanes) for v in control)
    flush = z == 1
    copy = ~flush & (zb == 0)
    update = ~flush & ~copy
    groups = [(copy | update), update, (flush | update), (flush | update)]  # of c, f, i, g
    loaded = sum(int(g.any(axis=1).sum()) for g in groups) * lanes
    itemsize = 4
    always = sum(v.nbytes for v in control) + itemsize * z.size * (1 + 5)
    return always + itemsize * loaded


# -- divergence ------------------------------------------------------------------------------------


def divergence_cases(scale: float, seed: int, device: Device) -> Iterator[Case]:
    """Yield one case: mixed mode and the paper's kernel, with controls that neighbours share."""
    side = max(32, int(DIVERGENCE_SIDE * scale) // 32 * 32)
    found: dict[str, Way] = {}
    for kind, make in (("mixed mode", by_mixad), ("four partials only", by_partials)):
        for name, control in controls(side, seed).items():
            e = hm_lstm.problem(control, side, seed + 1)
            over = "" if name == WORST else f"mixad, {kind}, {WORST}"
            found[f"mixad, {kind}, {name}"] = way(e, make, over, device)
    yield Case("divergence", f"{side}²", found)


WORST = "random"


def controls(side: int, seed: int) -> dict[str, list[NDArray]]:
    """Return control values by name: in runs along the rows, and alike in each row."""
    runs = {
        WORST if k == 1 else f"{k} neighbours alike": hm_lstm.drawn((side,), seed, k) for k in RUNS
    }
    return runs | {"each row alike": hm_lstm.drawn((side, 1), seed)}


def way(e: Elementwise, make: Callable[..., Made], over: str, device: Device) -> Way:
    """Return one kind of kernel with one control."""
    is_mixed = make is by_mixad
    needed = bytes_needed(e.constants, e.shape, LANES[device.platform])
    if not is_mixed:  # no cotangent, no value
        needed -= 2 * e.cotangent.nbytes
    return Way(
        partial(make, e),
        partial(hm_lstm.expected, e) if is_mixed else expected_partials(e),
        alone=partial(mixed_alone, e) if is_mixed else None,
        is_kernel=not is_mixed,
        over=over,
        bytes_moved=e.bytes_moved if is_mixed else bytes_of_partials(e),
        facts=lambda: {"bytes needed": needed},
    )
