"""Every emitter adds to arrays what the interpreter adds, and derivatives of random programs with
reads of arrays are each other's transposes."""

import math

import array_api_strict
import numpy as np
import pytest
from cuda_emulator import emulated

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.reference.backend import ReferenceBackend
from mixad.errors import KernelGradientError
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.interpret import interpreter
from mixad.scalar.pullback import pullback, reverse_pullback
from mixad.scalar.pushforward import pushforward_along
from mixad.scalar.types import F32, F64, I32
from mixad.scalar.verify import verify
from mixad.testing import ARRAY_EXTENT, EXACT_OPS, Recipe, random_arguments, random_program

COUNT = 37
"""Elements of an argument: two gangs of 16 and a remainder."""

SUMS = Recipe(ops=EXACT_OPS, types=(F32, F64, I32, F64), arrays=True, sums=True)
READS = Recipe(ops=("add", "sub", "mul", "div", "sqrt", "maximum", "lt", "gt", "where", "neg"),
               types=(F64,), arrays=True, uniforms=False, depth=2)  # fmt: skip


def cpu(bits):
    if bits > detect().vector_bits:
        pytest.skip(f"this processor has no {bits}-bit vectors")
    return CpuBackend(detect().with_vector_bits(bits)), np.asarray, np.asarray


BACKENDS = {
    **{f"cpu-{bits}": lambda bits=bits: cpu(bits) for bits in (128, 256, 512)},
    "reference-numpy": lambda: (ReferenceBackend(), np.asarray, np.asarray),
    "reference-strict": lambda: (ReferenceBackend(), array_api_strict.asarray, np.from_dlpack),
    "cuda-emulated": lambda: (emulated(), np.asarray, np.asarray),
}


def programs(seeds):
    """Yield random programs that add to an array, with arguments."""
    for seed in seeds:
        program = verify(random_program(seed, SUMS))
        if any(p.kind == "lane" for p in program.params):
            yield program, random_arguments(program, seed, COUNT)


def element(program, arguments, k):
    pairs = zip(program.params, arguments, strict=True)
    return [a[k] if p.kind == "lane" else a for p, a in pairs]


def added_by_elements(program, arguments):
    """Return what each element adds, from the interpreter."""
    run, (sums,) = interpreter(program), program.accumulators
    rows = []
    for k in range(COUNT):
        zeros = np.zeros(ARRAY_EXTENT, sums.var.type.dtype)
        run([*element(program, arguments, k), zeros])
        rows.append(zeros.astype(float))
    return np.array(rows)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [
        ("cpu-256", range(6)),
        ("reference-numpy", range(6)),
        *(pytest.param(name, range(60), marks=pytest.mark.slow) for name in BACKENDS),
    ],
)
def test_backends_add_what_the_interpreter_adds(name, seeds):
    backend, to_library, to_numpy = BACKENDS[name]()
    compared = 0
    for program, arguments in programs(seeds):
        last = len(program.outputs) - 1
        values = [
            to_library(a) if p.kind != "uniform" else a
            for p, a in zip(program.params, arguments, strict=True)
        ]
        layouts = [
            layout_of(v) if p.kind != "uniform" else None
            for p, v in zip(program.params, values, strict=True)
        ]
        request = OutputRequest(0, last, (ARRAY_EXTENT,))
        launch = plan((program,), [request], layouts, (COUNT,), 1 << 40)
        bound = backend.bind(backend.compile(launch.spec), launch)
        with np.errstate(all="ignore"):  # where NumPy stands for a library on devices
            (got,) = backend.launch(bound, values)
        rows = added_by_elements(program, arguments)
        type = program.outputs[last].type.dtype
        with np.errstate(all="ignore"):
            scale, expected = np.abs(rows).sum(0), rows.sum(0).astype(type)
        is_finite = scale < np.finfo(type).max / 4
        # Orders of additions differ; an infinite or a nan summand shows whatever the order is.
        tolerance = 64 * np.finfo(type).eps * scale[is_finite]
        error = np.abs(to_numpy(got)[is_finite] - expected[is_finite])
        assert np.all(error <= tolerance), str(program)
        has_nan = np.isnan(rows).any(0)
        assert np.isnan(to_numpy(got))[has_nan].all(), str(program)
        compared += is_finite.sum()
    assert compared > 2 * len(seeds)


def differentiable():
    """Yield random programs that read an array, with ordinary arguments and their pullbacks."""
    for seed in range(150):
        program = verify(random_program(seed, READS))
        wrt = tuple(range(len(program.params)))
        floats = [m for m, out in enumerate(program.outputs) if out.type.is_float]
        try:
            (found,) = pullback(program, wrt, floats)
        except KernelGradientError:
            continue  # a loop reads the array
        if found.gradients[-1] is not None:
            rng = np.random.default_rng(seed)
            arguments = [
                rng.uniform(0.5, 2.0, (ARRAY_EXTENT,) * p.array.rank if p.array else ())
                for p in program.params
            ]
            yield program, floats, found, arguments, rng


@pytest.mark.slow
def test_pullbacks_are_transposes_of_pushforwards():
    """⟨ȳ, J ẋ⟩ = ⟨Jᵀ ȳ, ẋ⟩, for the array and the numbers together."""
    compared = 0
    for program, floats, found, arguments, rng in differentiable():
        tangents = [rng.standard_normal(np.shape(a)) for a in arguments]
        seeds = rng.standard_normal(len(floats))
        forward = pushforward_along(program, [range(len(arguments))])
        pushed = interpreter(verify(forward.program))([*arguments, *tangents])
        partials = [forward.outputs[m].partials.get(0) for m in floats]
        dot = math.fsum(s * pushed[p] for s, p in zip(seeds, partials, strict=True) if p)
        zeros = [np.zeros(np.shape(arguments[-1]))] * len(found.program.accumulators)
        pulled = interpreter(verify(found.program))([*arguments, *seeds, *zeros])
        terms = [
            np.ravel(pulled[at] * tangent)
            for at, tangent in zip(found.gradients, tangents, strict=True)
            if at is not None
        ]
        transposed = np.concatenate(terms)
        scale = np.abs(transposed).sum()
        if np.isfinite(dot) and np.isfinite(scale):
            assert abs(transposed.sum() - dot) <= 1e-10 * (scale + abs(dot)), str(program)
            compared += 1
    assert compared > 20


def test_partials_in_reverse_give_what_dual_numbers_give():
    compared = 0
    for program, floats, found, arguments, rng in differentiable():
        wrt = tuple(range(len(program.params)))
        try:
            other = reverse_pullback(program, wrt, floats)
        except KernelGradientError:
            continue  # a loop has partials
        seeds, shape = rng.standard_normal(len(floats)), np.shape(arguments[-1])

        def gradients(chunk, given, shape):
            zeros = [np.zeros(shape) for _ in chunk.program.accumulators]
            outputs = interpreter(verify(chunk.program))([*given, *zeros])
            parts = [np.ravel(outputs[at]) for at in chunk.gradients if at is not None]
            return np.concatenate(parts)

        given = [*arguments, *seeds]
        first, second = (gradients(chunk, given, shape) for chunk in (found, other))
        if np.isfinite(first).all():
            np.testing.assert_allclose(second, first, rtol=1e-10, atol=1e-12 * np.abs(first).max())
            compared += 1
    assert compared > 20


@pytest.mark.slow
def test_second_pullbacks_are_transposes_of_pushforwards_of_the_first():
    """The same for the program of a gradient, whose output is an array."""
    compared = 0
    for program, floats, found, arguments, rng in differentiable():
        first, given = found.program, [*arguments, *rng.standard_normal(len(floats))]
        (at,) = (m for m in range(len(first.outputs)) if first.accumulator(m) is not None)
        wrt = range(len(first.params))
        (second,) = pullback(first, wrt, [at])
        tangents = [rng.standard_normal(np.shape(a)) for a in given]
        shape = np.shape(arguments[-1])
        cotangent = rng.standard_normal(shape)
        forward = pushforward_along(first, [wrt])
        zeros = [np.zeros(shape) for _ in forward.program.accumulators]
        pushed = interpreter(verify(forward.program))([*given, *tangents, *zeros])
        partial = forward.outputs[at].partials.get(0)
        dot = 0.0 if partial is None else float((pushed[partial] * cotangent).sum())
        zeros = [np.zeros(shape) for _ in second.program.accumulators]
        pulled = interpreter(verify(second.program))([*given, cotangent, *zeros])
        terms = [
            np.ravel(pulled[position] * tangent)
            for position, tangent in zip(second.gradients, tangents, strict=True)
            if position is not None
        ]
        transposed = np.concatenate(terms) if terms else np.zeros(1)
        scale = np.abs(transposed).sum()
        if np.isfinite(dot) and np.isfinite(scale):
            assert abs(transposed.sum() - dot) <= 1e-10 * (scale + abs(dot)), str(program)
            compared += 1
    assert compared > 20
