"""Figures of calls that no machine changes: launches, bytes, equations, nodes, instructions.

`CASES` are small calls of what the suites time. Their figures are counted where kernels are called,
by what goes in and comes out, not asked of the planner that chose them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mixad
from benchmarks import offline
from benchmarks.gpu import arity, bundle, kepler, volatility
from benchmarks.gpu.elementwise import Elementwise
from benchmarks.peers import (
    adbench,
    chain12,
    gmm,
    hm_lstm,
    hm_lstm_grad,
    rosenbrock_hvp,
    sum_broadcast,
)
from mixad.backends.cuda import CudaBound
from mixad.backends.execute import Kernel
from mixad.call.specialise import Specialiser
from mixad.scalar.ir import walk_statements
from mixad.transforms import forward, gradients, jacobians, kept_calls, recorded_values

SIDE = 128  # of the arrays of a case: large enough for every choice that arrays make
SUMMED = ((0,), (1,), (2,), (0, 2))
NAMES = (
    "kernels launched",
    "bytes moved",
    "program equations",
    "tape nodes",
    "registers",
    "local bytes",
    "instructions an element",
)
"""Of all of them, less is better."""


@dataclass(frozen=True)
class Case:
    """A call.

    Attributes
    ----------
    run : callable
        Makes it.
    function, arguments
        What is recorded of it.
    """

    run: Callable[[], object]
    function: Callable[..., Any]
    arguments: Sequence[NDArray]


@dataclass(frozen=True)
class Launch:
    """A call of a kernel."""

    kernel: Kernel
    arguments: Sequence[Any]
    results: Sequence[NDArray]


def pulled_back(
    function: Callable[..., Any], primals: Sequence[NDArray], cotangent: NDArray
) -> Case:
    """Return the case of a value and its gradients, given a cotangent."""
    return Case(partial(mixad.value_and_vjp, function, primals, cotangent), function, primals)


def of_elements(e: Elementwise) -> Case:
    """Return the case of one of the works of `benchmarks.gpu`."""
    kernel = mixad.broadcast(e.kernel)
    return pulled_back(lambda *xs: kernel(*e.constants, *xs), e.active, e.cotangent)


def of_loss(p: Any) -> Case:
    """Return the case of a `benchmarks.peers.losses.Problem`."""
    loss = p.of(np)
    value_and_grad = mixad.value_and_grad(loss, argnums=p.argnums)
    return Case(lambda: value_and_grad(*p.arrays), loss, p.arrays)


def cell(control_shape: tuple[int, ...]) -> Case:
    p, update = hm_lstm.problem(SIDE, control_shape, seed=0), hm_lstm.mixad_cell("auto")
    return pulled_back(lambda *states: update(p.z, p.zb, *states), p.states, p.cotangent)


def cell_between_products() -> Case:
    p, update = hm_lstm_grad.problem(SIDE, (SIDE,), seed=0), hm_lstm.mixad_cell("auto")

    def loss(*states):
        return ((update(p.cell.z, p.cell.zb, *states) @ p.weights) ** 2).sum()

    gradient = mixad.grad(loss, argnums=(0, 1, 2, 3))
    return Case(lambda: gradient(*p.cell.states), loss, p.cell.states)


def kept_between_passes() -> Case:
    """Return Kepler's equation under a pullback that is called later: what is kept is written."""
    e = kepler.problem(SIDE**2, np.float64, seed=0)
    kernel = mixad.broadcast(e.kernel)

    def run():
        _, pullback = mixad.vjp(kernel, *e.active)
        return pullback(e.cotangent)

    return Case(run, kernel, e.active)


def blocks_of_residuals() -> Case:
    inputs, kernel = bundle.drawn(SIDE**2, seed=0), mixad.broadcast(bundle.residual_kernel)
    run = partial(kernel.value_and_jacobian, *inputs)
    return Case(run, lambda *xs: list(kernel(*xs)), inputs)


def product_of(inputs: int) -> Case:
    xs, cotangent = arity.drawn(SIDE, seed=0)
    return of_elements(
        Elementwise(arity.product_of(inputs), None, (), xs[:inputs], cotangent),
    )


def second_derivative() -> Case:
    p = rosenbrock_hvp.problem(SIDE**2, seed=0)
    function = rosenbrock_hvp.rosenbrock
    return Case(partial(mixad.hvp, function, (p.x,), (p.v,)), function, (p.x,))


def mixture() -> Case:
    drawn = adbench.draw_mixture(4, 5, 200, np.random.default_rng(0))
    return of_loss(gmm.problem(drawn))


def summed(axes: tuple[int, ...]) -> Case:
    """Return a product whose second factor has extents of 1: its gradient is a sum."""
    rng = np.random.default_rng(0)
    full = (16, 32, 32)
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(full))
    x, y, cotangent = (rng.random(s, dtype=np.float32) for s in (full, shape, full))
    return pulled_back(lambda x, y: x * y + x, (x, y), cotangent)


CASES: Mapping[str, Callable[[], Case]] = {
    "HM-LSTM, control (n, 1)": lambda: cell((SIDE, 1)),
    "HM-LSTM, control (n,)": lambda: cell((SIDE,)),
    "HM-LSTM, then a product": cell_between_products,
    "Kepler": lambda: of_elements(kepler.problem(SIDE**2, np.float64, seed=0)),
    "Kepler, pulled back later": kept_between_passes,
    "implied volatility": lambda: of_elements(volatility.problem(SIDE**2, seed=0)[0]),
    "bundle adjustment": blocks_of_residuals,
    **{f"product of {n}": partial(product_of, n) for n in (1, 3, 10, 11, 24)},
    "twelve operations": lambda: of_loss(chain12.problem(SIDE**2, seed=0)),
    "sum of a broadcast": lambda: of_loss(sum_broadcast.problem(SIDE, seed=0)),
    "mixture of Gaussians": mixture,
    "Hessian times vector": second_derivative,
    **{f"gradient summed over {axes}": partial(summed, axes) for axes in SUMMED},
}


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """Give a list that every call of a kernel joins.

    What is known of earlier calls would launch kernels without calling them: it is left aside.
    """
    made: list[Launch] = []
    call, bound, open_strand = Kernel.__call__, Specialiser.bind_call, gradients.open_strand
    openers: tuple[Any, ...] = (gradients, forward, jacobians, kept_calls, recorded_values)

    def counted(self: Kernel, arguments: Sequence[Any], backend: str | None = None) -> Any:
        results = call(self, arguments, backend)
        made.append(Launch(self, tuple(arguments), results))
        return results

    def unprepared(self: Specialiser, args: Any, kwargs: Any) -> Any:
        prepared, values = bound(self, args, kwargs)
        return replace(prepared, run=None), values

    Kernel.__call__ = counted  # type: ignore[method-assign]
    Specialiser.bind_call = unprepared  # type: ignore[method-assign]
    for module in openers:
        module.open_strand = lambda *given: None
    try:
        yield made
    finally:
        Kernel.__call__, Specialiser.bind_call = call, bound  # type: ignore[method-assign]
        for module in openers:
            module.open_strand = open_strand


def launches_of(case: Case) -> list[Launch]:
    """Return what a call launches once everything is compiled."""
    case.run()
    with recorded_launches() as made:
        case.run()
    return made


def bytes_moved(launches: Sequence[Launch]) -> int:
    """Return bytes of all arguments and results; what is broadcast counts once."""
    arrays = [a for launch in launches for a in (*launch.arguments, *launch.results)]
    return sum(_distinct_bytes(a) for a in arrays if isinstance(a, np.ndarray))


def _distinct_bytes(array: NDArray) -> int:
    walked = zip(array.shape, array.strides, strict=True)
    return array.itemsize * math.prod(extent for extent, stride in walked if stride)


def program_equations(launches: Sequence[Launch]) -> int:
    """Return how many statements the programs have, those inside conditions and loops too."""
    programs = (program for launch in launches for program in launch.kernel.passes)
    return sum(1 for program in programs for _ in walk_statements(program.body))


def tape_nodes(case: Case) -> int:
    """Return how many operations are recorded, those that fuse as one."""
    return len(mixad.tape(case.function)(*case.arguments).entries)


def device_kernels(launches: Sequence[Launch]) -> list[CudaBound]:
    """Return each kernel as a CUDA device would have it, which need not be there."""
    return [
        offline.bound_to(launch.kernel.passes, launch.kernel.plan_unfolded(launch.arguments))
        for launch in launches
    ]


def call_figures(case: Case) -> dict[str, int]:
    """Return the figures of a call that need no compiler: the first of `NAMES`."""
    launches = launches_of(case)
    values = (
        len(launches),
        bytes_moved(launches),
        program_equations(launches),
        tape_nodes(case),
    )
    return dict(zip(NAMES, values, strict=False))


def device_figures(case: Case) -> dict[str, int]:
    """Return those of its kernels' machine code, the last of `NAMES`.

    Raises
    ------
    BackendError
        If the compiler or the disassembler is not installed.
    """
    kernels = device_kernels(launches_of(case))
    used = [function for kernel in kernels for function in offline.device_functions(kernel)]
    values = (
        max(f.registers for f in used),
        max(f.local for f in used),
        sum(map(offline.instructions, kernels)),
    )
    return dict(zip(NAMES[-3:], values, strict=True))


def figures_of(case: Case) -> dict[str, int]:
    """Return all figures of a call, by `NAMES`."""
    return call_figures(case) | device_figures(case)
