"""Programs as array-API calls: values, dtypes, shapes, masks, and what is shown."""

import threading
import warnings

import array_api_compat.numpy as xnp
import array_api_strict as strict
import numpy as np
import pytest
from array_runner import run_arrays

from mixad.emit import array_run
from mixad.emit.array_run import sum_by_halves
from mixad.emit.arrays import Assign, Repeat, procedure_of, show
from mixad.errors import BackendError
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType, While, walk_statements, written_vars
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I8, I32, I64, U8, U64
from mixad.testing import random_arguments, random_program

LIBRARIES = {"numpy": (xnp, np.asarray), "strict": (strict, np.from_dlpack)}
NUMBER_OF_PROGRAMS = 100


@pytest.fixture(params=LIBRARIES)
def library(request):
    return LIBRARIES[request.param]


def unary(name, type, to=None):
    b = Builder(name)
    x = b.param("x", type)
    return b.finish([b.op(name, x, type=to)])


def binary(name, type):
    b = Builder(name)
    x, y = b.param("x", type), b.param("y", type)
    return b.finish([b.op(name, x, y)])


def run(program, arguments, library, shape=None, accumulators=()):
    xp, to_numpy = library
    arrays = [xp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    if shape is None:
        shape = np.broadcast_shapes(*(a.shape for a in arguments if isinstance(a, np.ndarray)))
    return [to_numpy(out) for out in run_arrays(program, arrays, shape, xp, accumulators)]


# -- shapes and dtypes -----------------------------------------------------------------------------


@pytest.mark.rows("shapes", [((2, 1), (3,)), ((), (3,)), ((0, 3), (3,)), ((), ())], ids=str)
def test_outputs_have_the_broadcast_shape(shapes, library):
    x, y = (np.ones(shape, "f4") for shape in shapes)
    (out,) = run(binary("add", F32), [x, y], library)
    np.testing.assert_array_equal(out, x + y)
    assert out.shape == (x + y).shape
    assert out.dtype == np.float32


def test_constant_outputs_and_outputs_of_uniforms_are_arrays(library):
    b = Builder("f")
    u = b.param("u", F32, "uniform")
    program = b.finish([b.const(2.5, F32), u, b.op("add", u, u)])
    outputs = run(program, [np.float32(1.5)], library, (2, 2))
    for out, value in zip(outputs, (2.5, 1.5, 3.0), strict=True):
        np.testing.assert_array_equal(out, np.full((2, 2), value, "f4"))
        assert out.dtype == np.float32


def test_outputs_share_no_memory_with_arguments_or_each_other():
    b = Builder("f")
    x = b.param("x", F64)
    argument = np.zeros(3)
    first, second = run_arrays(b.finish([x, x]), [argument], (3,), xnp)
    first[...] = 1
    second[...] = 2
    assert list(argument) == [0, 0, 0]
    assert list(first) == [1, 1, 1]


@pytest.mark.slow
def test_every_intermediate_has_its_programs_dtype(monkeypatch):
    """All names of a procedure are watched while generated programs run."""
    seen = {}

    class Watching(dict):
        def update(self, pairs):
            for name, value in pairs:
                seen.setdefault(name, set()).add(value.dtype)
                self[name] = value

    class Run(array_run._Run):
        def __init__(self, xp, device, shape, values, updates):
            super().__init__(xp, device, shape, Watching(values), updates)

    monkeypatch.setattr(array_run, "_Run", Run)
    for seed in range(NUMBER_OF_PROGRAMS):
        seen.clear()
        program = random_program(seed)
        arguments = random_arguments(program, seed, 3)
        run_arrays(program, arguments, (3,), xnp)
        types = {f"v{v.id}": v.type.dtype for v in variables(program)}
        for name, dtypes in seen.items():
            assert dtypes == {types.get(name, np.dtype(bool))}, (name, show(procedure_of(program)))


def variables(program):
    yield from (p.var for p in program.params)
    for statement in walk_statements(program.body):
        yield from written_vars(statement)
        if isinstance(statement, While):
            yield from statement.carries


# -- masks -----------------------------------------------------------------------------------------


def test_nothing_leaks_from_the_branch_that_is_not_taken(library):
    b = Builder("f")
    x = b.param("x", F64)
    zero = b.const(0.0, F64)
    (y,) = b.if_(b.op("gt", x, zero), lambda: [b.op("log", x)], lambda: [b.op("div", zero, zero)])
    (out,) = run(b.finish([y]), [np.array([1.0, -1.0, np.e])], library)
    np.testing.assert_array_equal(out, [0.0, np.nan, 1.0])


def test_lanes_that_are_done_keep_their_carries(library):
    b = Builder("f")
    n = b.param("n", I32)
    zero, one = b.const(0, I32), b.const(1, I32)
    k, total = b.while_(
        [zero, zero],
        lambda k, total: b.op("lt", k, n),
        lambda k, total: [b.op("add", k, one), b.op("add", total, k)],
    )
    n = np.array([0, 3, -1, 5, 1], "i4")
    turns, total = run(b.finish([k, total]), [n], library)
    np.testing.assert_array_equal(turns, np.maximum(n, 0))
    np.testing.assert_array_equal(total, [0, 3, 0, 10, 0])


def test_a_loop_in_a_branch_runs_for_the_lanes_of_the_branch_only(library):
    """Lanes outside would never finish."""
    b = Builder("f")
    x = b.param("x", I32)
    zero = b.const(0, I32)
    (y,) = b.if_(
        b.op("ge", x, zero),
        lambda: b.while_(
            [x], lambda x: b.op("ne", x, zero), lambda x: [b.op("sub", x, b.const(1, I32))]
        ),
        lambda: [x],
    )
    (out,) = run(b.finish([y]), [np.array([3, -1, 0, 7], "i4")], library)
    np.testing.assert_array_equal(out, [0, -1, 0, 0])


def test_carries_are_replaced_all_at_once(library):
    b = Builder("f")
    x, y, n = b.param("x", F64), b.param("y", F64), b.param("n", I32)
    zero, one = b.const(0, I32), b.const(1, I32)
    _, x2, y2 = b.while_(
        [n, x, y],
        lambda n, x, y: b.op("gt", n, zero),
        lambda n, x, y: [b.op("sub", n, one), y, x],
    )
    arguments = [np.array([1.0, 1.0]), np.array([2.0, 2.0]), np.array([1, 2], "i4")]
    first, second = run(b.finish([x2, y2]), arguments, library)
    np.testing.assert_array_equal(first, [2.0, 1.0])
    np.testing.assert_array_equal(second, [1.0, 2.0])


# -- ops where libraries differ or trap ------------------------------------------------------------


@pytest.mark.rows("name", ["floordiv", "mod"])
@pytest.mark.rows("type", [I8, U8, I64], ids=str)
def test_integer_division_is_defined_for_every_divisor(name, type, library):
    info = np.iinfo(type.dtype)
    x = np.array([7, 7, info.min, info.max, info.min, 0], type.dtype)
    y = np.array([0, 2, info.max, info.max, -1 if info.min else 1, 0], "i8").astype(type.dtype)
    (out,) = run(binary(name, type), [x, y], library)
    python = {"floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0}
    for a, b, got in zip(x.tolist(), y.tolist(), out.tolist(), strict=True):
        assert (got - python[name](a, b)) % 2**type.bits == 0


@pytest.mark.parametrize("name", ["shl", "shr"])
def test_shifts_beyond_the_width_are_defined(name, library):
    x = np.array([-3, -3, -3, 5, 5], "i1")
    count = np.array([1, 8, -1, 7, 100], "i1")
    expected = {"shl": [-6, 0, 0, -128, 0], "shr": [-2, -1, -1, 0, 0]}
    (out,) = run(binary(name, I8), [x, count], library)
    np.testing.assert_array_equal(out, expected[name])


def test_unsigned_shifts_beyond_the_width_leave_nothing(library):
    x, count = np.array([200, 200, 200], "u1"), np.array([7, 8, 255], "u1")
    (out,) = run(binary("shr", U8), [x, count], library)
    np.testing.assert_array_equal(out, [1, 0, 0])


def test_negative_exponents_are_defined(library):
    x = np.array([1, -1, -1, 2, 0, -1], "i4")
    y = np.array([-3, -3, -2, -1, -1, 3], "i4")
    (out,) = run(binary("powi", I32), [x, y], library)
    np.testing.assert_array_equal(out, [1, -1, 1, 0, 0, -1])


@pytest.mark.rows("type", [I8, U8, I32, I64], ids=str)
def test_conversions_stop_at_the_range(type, library):
    info = np.iinfo(type.dtype)
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -0.9])
    (out,) = run(unary("convert", F64, to=type), [x], library)
    np.testing.assert_array_equal(out, [0, info.max, info.min, info.max, info.min, 2, 0])


@pytest.mark.rows("name", ["erf", "gamma", "cbrt", "digamma"])
def test_ops_without_an_array_function_run_by_their_definition(name, library):
    x = np.array([0.5, 1.5, 2.5], "f4")
    (out,) = run(unary(name, F32), [x], library)
    assert out.dtype == np.float32
    expected = {
        "erf": [0.5204999, 0.9661051, 0.999593],
        "gamma": [1.7724539, 0.8862269, 1.3293404],
        "cbrt": [0.7937005, 1.1447142, 1.3572088],
        "digamma": [-1.96351003, 0.03648997398, 0.70315664],
    }
    np.testing.assert_allclose(out, expected[name], rtol=1e-6)


def test_bitcasts_keep_the_bits(library):
    x = np.array([1.0, -0.0, np.inf])
    (out,) = run(unary("bitcast", F64, to=I64), [x], library)
    np.testing.assert_array_equal(out, x.view("i8"))


def test_arrays_outside_the_hosts_memory_are_refused_with_a_way_out(monkeypatch):
    def refuse(array):
        raise BufferError("the array is on a GPU")

    monkeypatch.setattr(np, "from_dlpack", refuse)
    program, elsewhere = unary("erf", F64), strict.asarray([1.0])
    with pytest.raises(BackendError, match="install the plugin for this array library"):
        run_arrays(program, [elsewhere], (1,), strict)


def test_results_are_on_the_device_of_the_arguments():
    device = strict.Device("device1")
    b = Builder("f")
    x = b.param("x", F64)
    (y,) = b.while_(
        [x],
        lambda x: b.op("lt", x, b.const(3.0, F64)),
        lambda x: [b.op("exp", b.op("relu", x))],
    )
    elsewhere = strict.asarray([1.0, 5.0], device=device)
    (out,) = run_arrays(b.finish([y]), [elsewhere], (2,), strict)
    assert out.device == device


# -- arrays that programs index --------------------------------------------------------------------


def indexed():
    b = Builder("f")
    a, i = b.array_param("a", ArrayType(F32, 1)), b.param("i", I32)
    fits = b.op("lt", i, b.const(3, I32))
    (y,) = b.if_(fits, lambda: [b.load(a, i)], lambda: [b.const(-1.0, F32)])
    return b.finish([y])


def test_only_active_lanes_are_gathered(library):
    array, i = np.array([1.0, 2.0, 3.0], "f4"), np.array([2, 99, 0], "i4")
    (out,) = run(indexed(), [array, i], library, (3,))
    np.testing.assert_array_equal(out, [3.0, -1.0, 1.0])


def test_negative_indices_count_from_the_end(library):
    array, i = np.array([1.0, 2.0, 3.0], "f4"), np.array([2, -1, -3], "i4")
    (out,) = run(indexed(), [array, i], library, (3,))
    np.testing.assert_array_equal(out, [3.0, 3.0, 1.0])


@pytest.mark.rows("wrong", [3, 2**63, 2**64 - 1])
def test_unsigned_indices_never_count_from_the_end(library, wrong):
    b = Builder("f")
    a, i = b.array_param("a", ArrayType(F32, 1)), b.param("i", U64)
    program = b.finish([b.load(a, i)])
    with pytest.raises(IndexError, match="outside an axis of 3 elements"):
        run(program, [np.ones(3, "f4"), np.array([0, wrong], "u8")], library, (2,))


def test_an_empty_array_may_be_gathered_from_by_no_lane(library):
    (out,) = run(indexed(), [np.zeros(0, "f4"), np.array([7, 8], "i4")], library, (2,))
    np.testing.assert_array_equal(out, [-1.0, -1.0])


def test_an_index_outside_is_refused(library):
    with pytest.raises(IndexError, match="outside an axis of 3 elements"):
        run(indexed(), [np.ones(3, "f4"), np.array([0, -4], "i4")], library, (2,))


def test_repeated_indices_accumulate(library):
    b = Builder("f")
    i, x, a = b.param("i", I32), b.param("x", F32), b.accumulator("a", ArrayType(F32, 2))
    big = b.op("gt", x, b.const(1.0, F32))
    b.if_(big, lambda: b.update(a, i, b.const(1, I32), value=x) or [], list)
    i, x = np.array([0, 1, 0, 0], "i4"), np.array([2.0, 3.0, 4.0, 1.0], "f4")
    (array,) = run(b.finish([a]), [i, x], library, accumulators=[(2, 2)])
    np.testing.assert_array_equal(array, [[0, 6], [0, 3]])


# -- warnings, text, sums --------------------------------------------------------------------------


def test_warnings_are_silenced_here_and_nowhere_else():
    """Another thread's divisions warn while this one runs a program."""
    program = binary("div", F64)
    start, caught = threading.Event(), []

    def divide():
        start.wait()
        for _ in range(200):
            try:
                np.ones(1) / np.zeros(1)
            except RuntimeWarning:
                caught.append(True)

    thread = threading.Thread(target=divide)
    thread.start()
    start.set()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while thread.is_alive():
            run_arrays(program, [np.ones(9), np.zeros(9)], (9,), xnp)
    thread.join()
    assert len(caught) == 200
    assert np.geterr()["divide"] == "warn"


def test_procedures_are_shown_as_they_run():
    b = Builder("f")
    x, n = b.param("x", F32), b.param("n", I32)
    _, y = b.while_(
        [n, x],
        lambda n, y: b.op("gt", n, b.const(0, I32)),
        lambda n, y: [b.op("floordiv", n, b.const(2, I32)), b.op("erf", y)],
    )
    program = b.finish([b.convert(y, I8)])
    assert show(procedure_of(program)) == SHOWN
    steps = procedure_of(program).steps
    assert [type(s) for s in steps] == [Assign, Assign, Repeat, Assign, Assign]


SHOWN = """\
def procedure(v0, v1):
    m0 = bool(True)
    m1, v2, v3 = m0, v1, v0
    while True:
        v4 = v2 > int32(0)
        m1 = m1 & v4
        if not any(m1):
            break
        v5 = floor_divide(v2, int32(2))
        v6 = by_definition(erf, v3, float32)
        v2, v3 = where(m1, v5, v2), where(m1, v6, v3)
    v7, v8 = v2, v3
    v9 = convert(v8, int8)
    return (v9,)"""


def test_text_is_the_same_for_equal_programs():
    for seed in range(20):
        first, second = (show(procedure_of(random_program(seed))) for _ in range(2))
        assert first == second


@pytest.mark.rows("shape", [(4, 3), (1, 3), (4, 1), (3,), (1,), (), (1, 1)], ids=str)
def test_sums_to_a_shape_are_sums(shape, library):
    xp, to_numpy = library
    array = np.arange(12, dtype="f4").reshape(4, 3)
    lead = 2 - len(shape)
    axes = tuple(k for k in range(2) if k < lead or shape[k - lead] == 1)
    expected = array.sum(axis=axes).reshape(shape)
    summed = sum_by_halves(xp.asarray(array), shape, xp)
    np.testing.assert_array_equal(to_numpy(summed), expected)
    assert to_numpy(summed).dtype == np.float32


def test_sums_over_nothing_are_zero(library):
    xp, to_numpy = library
    np.testing.assert_array_equal(to_numpy(sum_by_halves(xp.zeros((0, 3)), (3,), xp)), np.zeros(3))


def test_long_sums_keep_their_digits_and_do_not_depend_on_the_layout():
    ones = np.full((10_000_019,), 0.1, "f4")
    total = sum_by_halves(ones, (), xnp)
    assert abs(float(total) - 10_000_019 * float(np.float32(0.1))) < 0.5
    rows = np.random.default_rng(0).normal(size=(1000, 7)).astype("f4")
    columns = np.asfortranarray(rows)
    assert sum_by_halves(rows, (7,), xnp).tobytes() == sum_by_halves(columns, (7,), xnp).tobytes()


def test_all_types_run():
    for type in ALL_TYPES:
        program = binary("and" if type == BOOL else "add", type)
        (out,) = run_arrays(program, [np.ones(2, type.dtype)] * 2, (2,), xnp)
        assert out.dtype == type.dtype
