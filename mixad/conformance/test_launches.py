"""Kernels launched again, by several threads, with several passes; sources and refusals."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from mixad.backends.execute import kernel_for
from mixad.backends.hookspecs import API_VERSION, BackendSpec, hookimpl
from mixad.backends.registry import PluginSource, Registry
from mixad.conformance.subject import Subject
from mixad.errors import BackendError, MixadError
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import KernelSpec, OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.ir import Line, Program
from mixad.scalar.types import F32, F64, STORED_TYPES, ScalarType

THREADS = 8
ROUNDS = 10


def mixture(type: ScalarType, name: str = "mixture", line: Line | None = None) -> Program:
    """Return a program of two outputs with inexact ops."""
    b = Builder(name)
    b.line = line
    x, y = b.param("x", type), b.param(f"{name}_y", type)
    return b.finish([b.op("mul", b.op("exp", x), b.op("sin", y)), b.op("div", x, y)])


def difference(type: ScalarType) -> Program:
    """Return another program of the same params."""
    b = Builder("difference")
    x, y = b.param("x", type), b.param("y", type)
    return b.finish([b.op("sub", x, y), b.op("lt", x, y), b.op("neg", y)])


def arguments(type: ScalarType, seed: int, shape: tuple[int, ...] = (130, 67)) -> list[Any]:
    """Return two arrays of random numbers."""
    rng = np.random.default_rng(seed)
    return [rng.uniform(0.5, 2, shape).astype(type.dtype) for _ in range(2)]


def both_and_sums(columns: int = 67) -> tuple[OutputRequest, ...]:
    """Ask for both outputs, and for sums along each axis and both."""
    sums = (OutputRequest(0, 0, (1, columns)), OutputRequest(0, 1, (130, 1)))
    return (OutputRequest(0, 0), OutputRequest(0, 1), *sums, OutputRequest(0, 0, ()))


@pytest.mark.parametrize("columns", [64, 67])  # of 64, rows may begin on 16 bytes
@pytest.mark.parametrize("type", [F32, F64], ids=str)
def test_results_have_the_same_bits_when_run_again(
    subject: Subject, type: ScalarType, columns: int
) -> None:
    """Stored ones and sums, in place or elsewhere in memory."""
    subject.need(type)
    x, y = arguments(type, 0, (130, columns))
    requests = both_and_sums(columns)
    first = subject.run(mixture(type), [x, y], requests)
    for shift in range(4):
        moved = []
        for a in (x, y):
            memory = np.empty(a.size + shift, a.dtype)
            memory[shift:] = a.ravel()
            moved.append(memory[shift:].reshape(a.shape))
        for a, b in zip(subject.run(mixture(type), moved, requests), first, strict=True):
            subject.same(a, b)


def test_an_element_is_the_same_wherever_it_stands(subject: Subject) -> None:
    """Alone, in a short array, or in a long one: what is computed does not depend on neighbours."""
    subject.need(F64)
    x, y = arguments(F64, 1, (67,))
    whole = subject.run(mixture(F64), [x, y])
    for n in (1, 2, 15, 16, 17, 33):
        for a, b in zip(
            subject.run(mixture(F64), [x[:n].copy(), y[:n].copy()]), whole, strict=True
        ):
            subject.same(a, b[:n])


def test_threads_share_a_kernel(subject: Subject) -> None:
    """Each gets the results of its own arguments."""
    subject.need(F64)
    cases = [arguments(F64, seed) for seed in range(THREADS)]
    wanted = [subject.run(mixture(F64), case, both_and_sums()) for case in cases]

    def repeat_runs(case: list[Any]) -> list[list[Any]]:
        return [subject.run(mixture(F64), case, both_and_sums()) for _ in range(ROUNDS)]

    with ThreadPoolExecutor(THREADS) as pool:
        for rounds, want in zip(pool.map(repeat_runs, cases), wanted, strict=True):
            for outputs in rounds:
                for a, b in zip(outputs, want, strict=True):
                    subject.same(a, b)


def test_threads_compile_at_once(subject: Subject) -> None:
    """Kernels that nobody has compiled yet, each by two threads."""
    subject.need(F64)

    def run_scaled(k: int) -> tuple[int, Any]:
        b = Builder("scaled")
        x = b.param("x", F64)
        program = b.finish([b.op("mul", x, b.const(k / 2 + 0.125, F64))])
        return k, subject.run(program, [np.arange(5.0)])[0]

    with ThreadPoolExecutor(THREADS) as pool:
        for k, output in pool.map(run_scaled, [*range(THREADS), *range(THREADS)]):
            subject.same(output, np.arange(5.0) * (k / 2 + 0.125))


def test_passes_give_the_outputs_asked_for(subject: Subject) -> None:
    """In the order of the requests, some twice and some never."""
    subject.need(F64, STORED_TYPES[0])
    x, y = arguments(F64, 2)
    x, y = np.rint(8 * x), np.rint(8 * y[0])
    requests = [
        OutputRequest(1, 2),
        OutputRequest(0, 1),
        OutputRequest(1, 0, (67,)),
        OutputRequest(1, 1),
        OutputRequest(1, 0),
        OutputRequest(0, 1),
    ]
    outputs = subject.run([mixture(F64), difference(F64)], [x, y], requests)
    negative, below = np.broadcast_to(-y, x.shape), x < y
    for got, wanted in zip(
        outputs, [negative, x / y, (x - y).sum(axis=0), below, x - y, x / y], strict=True
    ):
        subject.same(got, wanted)


def spec_of(program: Program, type: ScalarType = F64) -> KernelSpec:
    """Return the kernel of a program of two lanes."""
    layout = Layout(type, (5,), (type.itemsize,))
    return plan((program,), [OutputRequest(0, 0)], [layout, layout], (5,), 1 << 30).spec


def test_equal_kernels_have_equal_sources(subject: Subject) -> None:
    """And names of the user are nowhere in them: they could be anything."""
    subject.need(F64)
    source = subject.backend.emit(spec_of(mixture(F64)))
    assert isinstance(source, str)
    assert source
    assert source == subject.backend.emit(spec_of(mixture(F64)))
    assert source == subject.backend.emit(spec_of(mixture(F64, "zażółć")))


HOSTILE = ["x = 1  \\", "*/ #error */", "a\nb\r#error", '"""', "é → ∂"]


@pytest.mark.parametrize("text", HOSTILE)
def test_lines_of_the_user_stay_in_comments(subject: Subject, text: str) -> None:
    """If a backend shows them at all."""
    subject.need(F64)
    x, y = arguments(F64, 3, (9,))
    commented = mixture(F64, f"mixture_{HOSTILE.index(text)}", Line("kernel.py", 1, text))
    wanted = subject.run(mixture(F64), [x, y])
    # Equal programs share kernels: the backend itself is asked to compile this one.
    launch = kernel_for((mixture(F64),), (OutputRequest(0, 0), OutputRequest(0, 1)))
    given = [subject.arrays.to_library(a) for a in (x, y)]
    prepared = launch.prepare_launch(given, subject.spec.name).launch
    spec = KernelSpec((commented,), prepared.spec.operands, prepared.spec.outputs,
                      prepared.spec.rank)  # fmt: skip
    backend = subject.backend
    outputs = backend.launch(backend.bind(backend.compile(spec), prepared), given)
    for a, b in zip(outputs, wanted, strict=True):
        subject.same(np.asarray(subject.arrays.to_numpy(a)), b)


# -- what is declared ------------------------------------------------------------------------------


class _Plugin:
    """Announces one backend."""

    def __init__(self, spec: BackendSpec) -> None:
        self._spec = spec

    @hookimpl
    def mixad_backends(self) -> list[BackendSpec]:
        return [self._spec]


def test_it_is_announced_for_this_version(subject: Subject) -> None:
    """Under the name that the backend itself has, for dtypes that kernels have."""
    assert subject.spec.api_version == API_VERSION
    assert subject.backend.name == subject.spec.name
    assert subject.spec.capability.array_modules
    assert subject.spec.capability.devices
    known = {type.dtype_name for type in STORED_TYPES}
    assert subject.spec.capability.dtypes <= known, "these are no dtypes of kernels"


def test_dtypes_that_are_not_declared_are_refused(subject: Subject) -> None:
    """By the registry, and by the backend where it is asked by name."""
    undeclared = [t for t in STORED_TYPES if not subject.declares(t)]
    alone = Registry(
        [PluginSource(subject.spec.name, "conformance", lambda: _Plugin(subject.spec))]
    )
    capability = subject.spec.capability
    library, device = capability.array_modules[0], capability.devices[0]
    for name in [*(t.dtype_name for t in undeclared), "complex128", "float128"]:
        with pytest.raises(BackendError):
            alone.resolve(library, device, frozenset({name}))
    for type in filter(subject.has_arrays_of, undeclared):
        b = Builder("same")
        program = b.finish([b.op("convert", b.param("x", type), type=F64)])
        with pytest.raises(MixadError):
            subject.run(program, [np.ones(3, type.dtype)])
