"""Programs that write arrays, and read what they wrote: emitters do what the interpreter does."""

import array_api_strict
import numpy as np
import pytest

from mixad.backends.arrays import layout_of
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.execute import execute
from mixad.backends.reference.backend import ReferenceBackend
from mixad.errors import KernelIndexError
from mixad.kernel.plan import plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.interpret import OutsideError, interpreter
from mixad.scalar.ir import ArrayType, Touch, walk_statements
from mixad.scalar.types import BOOL, F16, F32, F64, I32, I64
from mixad.scalar.verify import verify

TYPES = [F64, F32, F16, I32, BOOL]
SIZES = [1, 5, 16, 17, 200]
ITERATIONS = 6
"""Elements of a row, which a lane writes."""


def cpu(bits):
    if bits > detect().vector_bits:
        pytest.skip(f"this processor has no {bits}-bit vectors")
    return CpuBackend(detect().with_vector_bits(bits)), np.asarray, np.asarray


BACKENDS = {
    **{f"cpu-{bits}": lambda bits=bits: cpu(bits) for bits in (128, 256, 512)},
    "reference-numpy": lambda: (ReferenceBackend(), np.asarray, np.asarray),
    "reference-strict": lambda: (ReferenceBackend(), array_api_strict.asarray, np.from_dlpack),
}


def launched(name, program, arguments, shapes):
    """Return all outputs; ``shapes`` are those of arrays, None of what each lane has."""
    backend, to_library, to_numpy = BACKENDS[name]()
    if name == "reference-strict" and any(p.var.type == F16 for p in program.params):
        pytest.skip("array_api_strict has no float16")
    pairs = list(zip(program.params, arguments, strict=True))
    values = [to_library(a) if p.kind != "uniform" else a for p, a in pairs]
    layouts = [layout_of(v) if p.kind != "uniform" else None
               for (p, _), v in zip(pairs, values, strict=True)]  # fmt: skip
    requests = [OutputRequest(0, at, shape) for at, shape in enumerate(shapes)]
    count = next(len(a) for p, a in pairs if p.kind == "lane")
    launch = plan((program,), requests, layouts, (count,), 1 << 40)
    found = backend.launch(backend.bind(backend.compile(launch.spec), launch), values)
    return [to_numpy(each) for each in found]


def interpreted(program, arguments, shapes, begins=None):
    """Return the same, lane after lane."""
    run, kinds = interpreter(program), [p.kind for p in program.params]
    count = next(len(a) for k, a in zip(kinds, arguments, strict=True) if k == "lane")
    found, rows = [None] * len(shapes), []
    places = [(program.outputs.index(a.var), a.var.type.dtype) for a in program.accumulators]
    begins = [(begins or {}).get(a.kind, 0) for a in program.accumulators]
    accumulators = [np.full(shapes[at], x, t) for (at, t), x in zip(places, begins, strict=True)]
    for lane in range(count):
        given = [a[lane] if k == "lane" else a for k, a in zip(kinds, arguments, strict=True)]
        rows.append(run([*given, *accumulators]))
        # Arrays of 16-bit floats are not changed themselves: what is returned is the new one.
        accumulators = [rows[-1][at].astype(t) for at, t in places]
    for array, (at, _) in zip(accumulators, places, strict=True):
        found[at] = array
    for at, shape in enumerate(shapes):
        if shape is None:
            found[at] = np.array([row[at] for row in rows])
    return found


def check(name, program, arguments, shapes, begins=None):
    """Compare a backend with the interpreter, bit for bit; return the outputs."""
    found = launched(name, program, arguments, shapes)
    for one, other in zip(found, interpreted(program, arguments, shapes, begins), strict=True):
        assert one.shape == other.shape
        np.testing.assert_array_equal(one.astype(other.dtype), other)
    return found


def values(type, count, seed=0):
    """Return numbers of which sums are exact."""
    rng = np.random.default_rng(seed)
    low, high = (0, 2) if type.is_bool else (-9, 10)
    return rng.integers(low, high, count).astype(type.dtype)


def plus(b, x, y):
    return b.op("xor" if x.type.is_bool else "add", x, y)


def scratch(type, *, touches=False, is_inside=True, transposed=False):
    """Return the program of rows of prefixes, x₀, x₀ + x₁, …, but each third element is another.

    A row is written in a loop, which reads the element before; a choice writes its last one;
    then another loop reads all, from the last.
    """
    b = Builder("scratch")
    i, xs = b.param("i", I64), b.array_param("xs", ArrayType(type, 2))
    row, one = b.accumulator("row", ArrayType(type, 2), "write"), b.const(1, I64)
    begin, count = b.const(0, I64), b.const(ITERATIONS, I64)

    def place(j):
        return (j, i) if transposed else (i, j)

    def read(j):
        return b.load(row, *place(j), is_inside=is_inside)

    def write(j, value):
        b.update(row, *place(j), value=value, is_inside=is_inside)

    def x(j):
        return b.load(xs, i, j, is_inside=is_inside)

    if touches:
        b.touch(xs, i, begin)
        b.while_([begin], lambda j: b.op("lt", j, count),
                 lambda j: [b.touch(row, *place(j)), b.op("add", j, one)][1:])  # fmt: skip
    write(begin, x(begin))

    def iteration(j):
        before = read(b.op("sub", j, one))
        third = b.op("eq", b.op("mod", j, b.const(3, I64)), b.const(2, I64))

        def otherwise():
            write(j, x(j))
            return [read(j)]

        def sum_before():
            write(j, plus(b, before, x(j)))
            return [before]

        (again,) = b.if_(third, otherwise, sum_before)
        write(j, plus(b, read(j), again))
        return [b.op("add", j, one)]

    b.while_([one], lambda j: b.op("lt", j, b.const(ITERATIONS - 1, I64)), iteration)
    last = b.const(ITERATIONS - 1, I64)
    is_even = b.op("eq", b.op("mod", i, b.const(2, I64)), begin)
    b.if_(is_even, lambda: write(last, read(begin)) or [], lambda: write(last, x(last)) or [])

    def back(j, total):
        return b.op("sub", j, one), plus(b, total, read(j))

    zero = b.const(0, type)
    _, total = b.while_([last, zero], lambda j, _: b.op("le", begin, j), back)
    write(last, plus(b, read(last), total))
    return verify(b.finish([row, total]))


def by_numpy(xs):
    """Return what that program gives."""

    def plus(a, b):
        return a ^ b if xs.dtype == bool else a + b

    rows, totals = np.zeros_like(xs), []
    for i, x in enumerate(xs):
        y = rows[i]
        y[0] = x[0]
        for j in range(1, ITERATIONS - 1):
            y[j] = plus(x[j], x[j]) if j % 3 == 2 else plus(plus(y[j - 1], x[j]), y[j - 1])
        y[-1] = x[-1] if i % 2 else y[0]
        total = y[-1]
        for j in reversed(range(ITERATIONS - 1)):
            total = plus(total, y[j])
        y[-1] = plus(y[-1], total)
        totals.append(total)
    return rows, np.array(totals)


def arguments_of(type, count):
    return [np.arange(count), values(type, count * ITERATIONS).reshape(count, ITERATIONS)]


@pytest.mark.rows("name", BACKENDS)
@pytest.mark.rows("type", TYPES, ids=str)
@pytest.mark.rows("count", SIZES)
def test_what_is_written_is_read_again(name, type, count):
    given = arguments_of(type, count)
    found = check(name, scratch(type), given, [(count, ITERATIONS), None])
    for one, other in zip(found, by_numpy(given[1]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.rows("name", ["cpu-256", "cpu-512", "reference-numpy"])
@pytest.mark.rows("type", TYPES, ids=str)
@pytest.mark.rows("transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.rows("is_inside", [False, True], ids=["checked", "inside"])
def test_touches_change_nothing(name, type, transposed, is_inside):
    given = arguments_of(type, 37)
    shape = (ITERATIONS, 37) if transposed else (37, ITERATIONS)
    program = scratch(type, touches=True, transposed=transposed, is_inside=is_inside)
    assert sum(isinstance(s, Touch) for s in walk_statements(program.body)) == 2
    rows, totals = check(name, program, given, [shape, None])
    wanted, sums = by_numpy(given[1])
    np.testing.assert_array_equal(rows.T if transposed else rows, wanted)
    np.testing.assert_array_equal(totals, sums)


def permuting(type):
    """Return the program y[k] = x, which reads y[k] again."""
    b = Builder("permuting")
    k, x, y = b.param("k", I64), b.param("x", type), b.accumulator("y", ArrayType(type, 1), "write")
    b.update(y, k, value=x)
    first = b.load(y, k)
    b.update(y, k, value=plus(b, first, x))
    return verify(b.finish([y, first, b.load(y, k)]))


@pytest.mark.rows("name", BACKENDS)
@pytest.mark.rows("type", TYPES, ids=str)
@pytest.mark.rows("count", SIZES)
def test_indices_in_any_order(name, type, count):
    """Negative ones count from the end."""
    k, x = np.random.default_rng(count).permutation(count), values(type, count)
    y, first, second = check(name, permuting(type), [k, x], [(count,), None, None])
    both = x ^ x if type.is_bool else x + x
    for one, other in ((y[k], both), (first, x), (second, both)):
        np.testing.assert_array_equal(one, other)
    negative = k - count
    again = check(name, permuting(type), [np.where(k % 2, k, negative), x], [(count,), None, None])
    np.testing.assert_array_equal(again[0], y)


@pytest.mark.rows("name", ["cpu", "reference"])
@pytest.mark.rows("at", [37, -38, 2**62, -(2**63)])
def test_writing_outside_is_an_error(name, at):
    k, program = np.arange(37), permuting(F64)
    requests = OutputRequest(0, 0, (37,)), OutputRequest(0, 1), OutputRequest(0, 2)
    (y, *_) = execute((program,), requests, [k, k * 1.0], name)
    np.testing.assert_array_equal(y, k * 2.0)
    for place in (0, 17, 36):
        wrong = k.copy()
        wrong[place] = at
        with pytest.raises(KernelIndexError, match=rf"element \({place},\): index {at} is outside"):
            execute((program,), requests, [wrong, k * 1.0], name)
        with pytest.raises(OutsideError):
            interpreted(program, [wrong, k * 1.0], [(37,), None, None])


def extremes(type, update):
    """Return the program that changes an array by x where w holds, and in a loop by x + j."""
    b = Builder("extremes")
    k, x, w = b.param("k", I64), b.param("x", type), b.param("w", BOOL)
    y, one = b.accumulator("y", ArrayType(type, 1), update), b.const(1, I64)
    b.if_(w, lambda: b.update(y, k, value=x) or [], list)

    def iteration(j, moved):
        b.update(y, b.op("sub", j, one), value=moved, is_inside=True)
        return b.op("add", j, one), plus(b, moved, b.const(1, type))

    b.while_([one, x], lambda j, _: b.op("lt", j, k), iteration)
    return verify(b.finish([y, x]))


NUMBERS = [t for t in TYPES if not t.is_bool]


def least(type):
    return -np.inf if type.is_float else np.iinfo(type.dtype).min


def largest(type):
    return np.inf if type.is_float else np.iinfo(type.dtype).max


@pytest.mark.rows("name", BACKENDS)
@pytest.mark.rows("type", NUMBERS, ids=str)
@pytest.mark.rows("update", ["min", "max"])
@pytest.mark.rows("count", SIZES)
def test_extremes(name, type, update, count):
    """What nothing was said of stays what changes nothing: the last element."""
    rng = np.random.default_rng(count)
    k, x, w = rng.integers(0, 5, count), values(type, count), rng.random(count) < 0.5
    begin = largest(type) if update == "min" else least(type)
    y, _ = check(name, extremes(type, update), [k, x, w], [(6,), None], {update: begin})
    ufunc, wanted = getattr(np, f"{update}imum"), np.full(6, begin, type.dtype)
    for at, number, is_said in zip(k, x, w, strict=True):
        if is_said:
            wanted[at] = ufunc(wanted[at], number)
        for j in range(1, at):
            wanted[j - 1] = ufunc(wanted[j - 1], number + type.dtype.type(j - 1))
    np.testing.assert_array_equal(y, wanted)
    assert y[5] == begin


@pytest.mark.rows("name", BACKENDS)
@pytest.mark.rows("update", ["min", "max"])
def test_extremes_of_special_numbers(name, update):
    """A nan wins, wherever it is."""
    for place in (0, 15, 16, 36):
        x, k = np.linspace(-1.0, 1.0, 37), np.arange(37) % 3
        for special in (np.nan, np.inf, -np.inf):
            x[place] = special
            begin = {update: np.inf if update == "min" else -np.inf}
            given = [k, x, np.ones(37, bool)]
            check(name, extremes(F64, update), given, [(4,), None], begin)


@pytest.mark.rows("type", NUMBERS, ids=str)
def test_extremes_of_many_elements_in_slabs(type):
    """Copies for each slab are put together."""
    rng = np.random.default_rng(0)
    k, x = rng.integers(0, 50, 100_000), rng.permutation(100_000) % 2000 - 999
    x, w = x.astype(type.dtype), rng.random(100_000) < 0.9
    for update, begin in (("min", largest(type)), ("max", least(type))):
        b = Builder("extremes")
        params = b.param("k", I64), b.param("x", type), b.param("w", BOOL)
        y = b.accumulator("y", ArrayType(type, 1), update)
        b.if_(params[2], lambda b=b, y=y, p=params: b.update(y, p[0], value=p[1]) or [], list)
        (found,) = launched("cpu-256", verify(b.finish([y])), [k, x, w], [(51,)])
        wanted = np.full(51, begin, type.dtype)
        getattr(np, f"{update}imum").at(wanted, k[w], x[w])
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.rows("name", BACKENDS)
def test_arrays_of_every_kind_beside_each_other(name):
    b = Builder("four")
    k, x = b.param("k", I64), b.param("x", F64)
    arrays = [b.accumulator(u, ArrayType(F64, 1), u) for u in ("add", "min", "max", "write")]
    for y in arrays[:3]:
        b.update(y, b.op("mod", k, b.const(4, I64)), value=x)
    b.update(arrays[3], k, value=x, is_inside=True)
    program = verify(b.finish([*arrays, b.load(arrays[3], k)]))
    x = values(F64, 203)
    shapes = [(4,), (4,), (4,), (203,), None]
    found = check(name, program, [np.arange(203), x], shapes, {"min": np.inf, "max": -np.inf})
    columns = [x[at::4] for at in range(4)]
    wanted = [[f(c) for c in columns] for f in (np.sum, np.min, np.max)]
    for one, other in zip(found, [*wanted, x, x], strict=True):
        np.testing.assert_array_equal(one, other)
