"""Every emitter computes what the reference interpreter computes, on thousands of programs.

Programs of exact ops agree bit for bit; the others within a tolerance, where it is determined which
way their comparisons go (`mixad.testing`).  A program that fails is printed as Python source.
"""

from collections.abc import Callable
from functools import cache, lru_cache

import array_api_strict
import numpy as np
import pytest
from cuda_emulator import EmulatedDriver
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.cuda import CudaBackend
from mixad.backends.reference.backend import ReferenceBackend
from mixad.emit.cuda import Dialect
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.ir import Equation, walk_statements, written_vars
from mixad.testing import (
    ALL_OPS,
    EXACT_OPS,
    Recipe,
    assert_agrees,
    expected_outputs,
    programs,
    random_arguments,
    random_program,
)

BATCHES = [range(5), range(5, 50), *(range(k, k + 50) for k in range(50, 1250, 50))]
"""Seeds of programs of all ops, and of as many of exact ones: 2500 for each emitter in all, those
that are the same run once.

The first batch of each runs always, the others are slow."""

EXAMPLES = 40
"""Of Hypothesis for each emitter: it makes failing programs smaller."""

EMULATED_EXAMPLES = 10
"""Of Hypothesis for the emulator of CUDA, where each is a run of a C++ compiler."""

COUNT = 37
"""Elements of an argument: two gangs of 16 and a remainder."""

MAX_DISCARDED = 0.1
"""Share of the results of one batch that may be undetermined; of all batches it is 2 %."""

NO_CACHE_LIMIT = 1 << 40
WIDTHS = (128, 256, 512)


# -- emitters --------------------------------------------------------------------------------------


def through_backend(backend, to_library, to_numpy, prepare=lambda bound: None):
    """Return an emitter: from programs with arguments to functions that return the outputs."""

    def emitted(program, arguments):
        is_array = [p.kind != "uniform" for p in program.params]
        pairs = list(zip(arguments, is_array, strict=True))
        values = [to_library(a) if array else a for a, array in pairs]
        pairs = zip(values, is_array, strict=True)
        layouts = [layout_of(v) if array else None for v, array in pairs]
        requests = [OutputRequest(0, k) for k in range(len(program.outputs))]
        shape = (COUNT,) if "lane" in {p.kind for p in program.params} else (1,)
        launch = plan((program,), requests, layouts, shape, NO_CACHE_LIMIT)
        bound = backend.bind(backend.compile(launch.spec), launch)
        prepare(bound)
        return lambda: [to_numpy(output) for output in backend.launch(bound, values)]

    return lambda cases: [emitted(program, arguments) for program, arguments in cases]


def cpu(bits):
    if bits > detect().vector_bits:
        pytest.skip(f"this processor has no {bits}-bit vectors")
    return through_backend(CpuBackend(detect().with_vector_bits(bits)), np.asarray, np.asarray)


def torch_reference():
    torch = pytest.importorskip("torch")
    return through_backend(ReferenceBackend(), torch.from_numpy, np.asarray)


def cuda():
    """Return the emitter of CUDA C++, run by the emulator: all programs compiled at once."""
    driver = EmulatedDriver()
    device = driver.device(np.empty(0))
    return through_backend(
        CudaBackend("emulated", driver),
        np.asarray,
        np.asarray,
        lambda bound: bound.kernel.functions(Dialect(vector=1), device),
    )


EMITTERS: dict[str, Callable] = {
    **{f"cpu-{bits}": lambda bits=bits: cpu(bits) for bits in WIDTHS},
    "reference-numpy": lambda: through_backend(ReferenceBackend(), np.asarray, np.asarray),
    "reference-strict": lambda: through_backend(
        ReferenceBackend(), array_api_strict.asarray, np.from_dlpack
    ),
    "reference-torch": torch_reference,
    "cuda-emulated": cuda,
}
"""Name → what makes the emitter.  A new backend adds a line."""

UNCOMPARED = {
    "reference-torch": {
        "u16", "u32", "u64",  # torch has few functions for these
        "sqrt",  # not rounded correctly where torch uses MKL
        "mod", "log1p",  # nan, and 0, for the smallest numbers
    }
}  # fmt: skip
"""Types and ops in which a library differs; programs that have them are not run."""


@cache
def emitter(name):
    return EMITTERS[name]()


# -- programs --------------------------------------------------------------------------------------

RECIPES = {
    "exact": (Recipe(ops=EXACT_OPS), Recipe(ops=EXACT_OPS, arrays=True)),
    "all": (Recipe(ops=ALL_OPS), Recipe(ops=ALL_OPS, arrays=True)),
}


@lru_cache(maxsize=1)
def expectations(kind, seeds):
    """Interpret one batch of programs; all emitters are compared with the same results.

    Of all ops are three quarters of what exact ones make: whole numbers take no others.
    """
    made = []
    for seed in seeds:
        program, exact = (random_program(seed, RECIPES[k][seed % 4 == 3]) for k in (kind, "exact"))
        if kind != "exact" and program == exact:
            continue
        arguments = random_arguments(program, seed, COUNT)
        made.append(expected_outputs(program, laid_out(program, arguments, seed)))
    return made


def laid_out(program, arguments, seed):
    """Spread every third program's arguments out in memory, so that they are read by strides."""
    if seed % 3:
        return arguments
    pairs = zip(program.params, arguments, strict=True)
    return tuple(np.repeat(a, 2)[::2] if p.kind == "lane" else a for p, a in pairs)


def compares(name, program):
    if name == "cuda-emulated" and all(p.kind == "uniform" for p in program.params):
        return False  # no array says which device
    statements = list(walk_statements(program.body))
    variables = [p.var for p in program.params]
    variables += [v for s in statements for v in written_vars(s)]
    types = {v.type.name for v in variables}
    ops = {s.op for s in statements if isinstance(s, Equation)}
    return not (types | ops) & UNCOMPARED.get(name, set())


def batches():
    for seeds in BATCHES:
        slow = [] if seeds is BATCHES[0] else [pytest.mark.slow]
        yield pytest.param(seeds, marks=slow, id=f"{seeds.start}-{seeds.stop - 1}")


@pytest.mark.rows("name", EMITTERS, slow="cuda-emulated")
@pytest.mark.parametrize("seeds", list(batches()))
@pytest.mark.parametrize("kind", RECIPES)
def test_emitters_agree_with_the_interpreter(kind, seeds, name):
    every = expectations(kind, seeds)
    discarded = sum(e.discarded for e in every) / len(seeds)
    assert discarded <= (0 if kind == "exact" else MAX_DISCARDED)
    cases = [e for e in every if compares(name, e.program)]
    functions = emitter(name)([(e.program, e.arguments) for e in cases])
    for expected, function in zip(cases, functions, strict=True):
        assert_agrees(expected, function())


def examples():
    for name in EMITTERS:
        slow = name == "cuda-emulated"
        count = EMULATED_EXAMPLES if slow else EXAMPLES
        yield pytest.param(name, count, id=name, marks=pytest.mark.slow)


@pytest.mark.parametrize(("name", "count"), list(examples()))
def test_an_emitter_agrees_on_programs_that_shrink(name, count):
    run = emitter(name)  # or a skip, for a width or a library that is not here
    discarded = []

    @given(programs(), integers(0, 2**32))
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    def check(program, seed):
        if compares(name, program):
            expected = expected_outputs(program, random_arguments(program, seed, COUNT))
            (outputs,) = run([(program, expected.arguments)])
            assert_agrees(expected, outputs())
            discarded.append(expected.discarded)

    check()
    assert np.mean(discarded) <= MAX_DISCARDED
