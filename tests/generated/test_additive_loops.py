"""Random loops that add up what they read: pullbacks on every backend, and as transposes."""

import math

import numpy as np
import pytest
from cuda_emulator import emulated

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.reference.backend import ReferenceBackend
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.generate import SeededChoices
from mixad.scalar.interpret import interpreter
from mixad.scalar.ir import ArrayType
from mixad.scalar.pullback import pullback
from mixad.scalar.pushforward import pushforward_along
from mixad.scalar.simplify import without_dead_code
from mixad.scalar.types import F64, I64
from mixad.scalar.verify import verify

EXTENT, COUNT = 5, 37


class Writer:
    """Writes loops of sums of products of elements, numbers and counters, with conditions."""

    def __init__(self, seed):
        self.choices, self.b = SeededChoices(seed), Builder("sums")
        self.table = self.b.array_param("table", ArrayType(F64, 1))
        self.x, self.n = self.b.param("x", F64), self.b.param("n", I64)

    def program(self):
        b, x = self.b, self.x
        first = self.loop(b.op("mul", x, x), [self.n], 2)
        (second,) = b.if_(
            b.op("gt", x, b.const(self.choices.integer(0, 2) * 0.5, F64)),
            lambda: [self.loop(first, [self.n], 1)],
            lambda: [self.value([self.n])],
        )
        return verify(b.finish([b.op("mul", second, first), second]))

    def loop(self, start, counters, depth):
        """Write a loop of so many loops inside; return its sum."""
        b, integer = self.b, self.choices.integer
        bound = b.op("mod", self.n, b.const(integer(1, 4), I64))

        def iteration(k, total):
            for _ in range(integer(1, 2)):
                total = self.added(total, [*counters, k], depth - 1)
            return [b.op("add", k, b.const(1, I64)), total]

        def test(k, total):
            more = b.op("lt", k, bound)
            limit = b.op("lt", total, b.const(6.0, F64))
            return b.op("and", more, limit) if stops else more

        stops = self.choices.chance(0.3)
        return b.while_([b.const(0, I64), start], test, iteration)[1]

    def added(self, total, counters, depth):
        b = self.b
        if depth and self.choices.chance(0.5):
            return self.loop(total, counters, depth)
        if self.choices.chance(0.4):
            cond = b.op("gt", self.value(counters), self.value(counters))
            plus = lambda: [b.op("add", total, self.value(counters))]  # noqa: E731
            return b.if_(cond, plus, lambda: [total])[0]
        return b.op(("add", "sub")[self.choices.integer(0, 1)], total, self.value(counters))

    def value(self, counters):
        """Return a product of what can be read, or a function of it."""
        b = self.b
        factors = [self.x, b.const(0.5, F64)]
        for _ in range(self.choices.integer(1, 3)):
            at = b.op("add", counters[-1], counters[self.choices.integer(0, len(counters) - 1)])
            at = b.op("mod", at, b.const(EXTENT, I64))
            if self.choices.chance(0.3):
                at = b.op("sub", at, b.const(EXTENT, I64))
            factors.append(b.load(self.table, at))
        product = factors[self.choices.integer(0, 1)]
        for factor in factors[2:]:
            product = b.op("mul", product, factor)
        return b.op("sqrt", b.op("mul", product, product)) if self.choices.chance(0.2) else product


def cases(count):
    for seed in range(count):
        rng = np.random.default_rng(seed)
        program = Writer(seed).program()
        table, x = rng.uniform(0.2, 1.2, EXTENT), rng.uniform(0.2, 1.2, COUNT)
        yield program, table, x, rng.integers(0, 9, COUNT), rng


@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_pullbacks_are_transposes_of_pushforwards(count):
    for program, table, x, n, rng in cases(count):
        (found,) = pullback(program, (0, 1), (0, 1))
        pull = interpreter(verify(found.program))
        forward = pushforward_along(program, [(0, 1)])
        push = interpreter(verify(forward.program))
        along, along_x = rng.standard_normal(EXTENT), rng.standard_normal()
        for k in range(5):
            seeds = rng.standard_normal(2)
            pushed = push([table, x[k], n[k], along, along_x])
            partials = [out.partials.get(0) for out in forward.outputs]
            dot = math.fsum(s * pushed[p] for s, p in zip(seeds, partials, strict=True) if p)
            zeros = [np.zeros(EXTENT) for _ in found.program.accumulators]
            pulled = pull([table, x[k], n[k], *seeds, *zeros])
            at_table, at_x = found.gradients
            terms = [0.0 if at_x is None else pulled[at_x] * along_x]
            if at_table is not None:
                terms += list(pulled[at_table] * along)
            scale = math.fsum(map(abs, terms)) + abs(dot)
            assert abs(math.fsum(terms) - dot) <= 1e-11 * scale, str(program)


@pytest.mark.parametrize("count", [5, pytest.param(60, marks=pytest.mark.slow)])
def test_second_pullbacks_are_transposes_too(count):
    compared = 0
    for program, table, x, n, rng in cases(count):
        (first,) = pullback(program, (0,), (0, 1))
        inner = without_dead_code(first.program)
        if first.gradients[0] is None:
            continue
        (second,) = pullback(inner, (0, 1, 3), (first.gradients[0],))
        pull, along = interpreter(verify(second.program)), rng.standard_normal(EXTENT)
        forward = pushforward_along(inner, [(0, 1, 3)])
        push = interpreter(verify(forward.program))
        for k in range(3):
            seeds, (along_x, along_y) = rng.standard_normal(2), rng.standard_normal(2)
            cotangent = rng.standard_normal(EXTENT)
            zeros = [np.zeros(EXTENT) for _ in forward.program.accumulators]
            pushed = push([table, x[k], n[k], *seeds, along, along_x, along_y, *zeros])
            partial = forward.outputs[first.gradients[0]].partials.get(0)
            dot = 0.0 if partial is None else float(pushed[partial] @ cotangent)
            zeros = [np.zeros(EXTENT) for _ in second.program.accumulators]
            pulled = pull([table, x[k], n[k], *seeds, cotangent, *zeros])
            tangents = (along, along_x, along_y)
            terms = [0.0]
            for at, tangent in zip(second.gradients, tangents, strict=True):
                terms += [] if at is None else list(np.ravel(pulled[at] * tangent))
            scale = math.fsum(map(abs, terms)) + abs(dot)
            assert abs(math.fsum(terms) - dot) <= 1e-10 * scale, str(program)
            compared += 1
    assert compared > count


def cpu(bits):
    if bits > detect().vector_bits:
        pytest.skip(f"this processor has no {bits}-bit vectors")
    return CpuBackend(detect().with_vector_bits(bits))


BACKENDS = {
    **{f"cpu-{bits}": lambda bits=bits: cpu(bits) for bits in (128, 256, 512)},
    "reference": ReferenceBackend,
    "cuda-emulated": emulated,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKENDS)
def test_backends_add_what_the_interpreter_adds(name):
    backend = BACKENDS[name]()
    for program, table, x, n, rng in cases(20):
        (found,) = pullback(program, (0, 1), (0, 1))
        pulled = without_dead_code(found.program)
        at, at_x = found.gradients
        if at is None or at_x is None:
            continue
        arguments = [table, x, n, *rng.standard_normal((2, COUNT))]
        requests = [OutputRequest(0, at, (EXTENT,)), OutputRequest(0, at_x)]
        launch = plan((pulled,), requests, list(map(layout_of, arguments)), (COUNT,), 1 << 40)
        got = backend.launch(backend.bind(backend.compile(launch.spec), launch), arguments)
        run, rows, by_x = interpreter(pulled), [], []
        for k in range(COUNT):
            zeros = [np.zeros(EXTENT) for _ in pulled.accumulators]
            one = [a if i == 0 else a[k] for i, a in enumerate(arguments)]
            outputs = run([*one, *zeros])
            rows.append(outputs[at])
            by_x.append(outputs[at_x])
        np.testing.assert_array_equal(got[1], by_x)
        scale = np.abs(rows).sum(0)
        assert np.all(np.abs(got[0] - np.sum(rows, 0)) <= 1e-13 * scale), str(program)
