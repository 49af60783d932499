"""Execution: programs over arrays of any layout give what NumPy gives, planned once per layout."""

import gc
import itertools
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import array_api_strict
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import mutually_broadcastable_shapes

from mixad.backends import execute as execution
from mixad.backends import registry
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.execute import Kernel, execute, kernel_for
from mixad.backends.fifo_cache import FifoCache
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, hookimpl
from mixad.backends.reference.backend import ReferenceBackend
from mixad.backends.registry import PluginSource, Registry
from mixad.errors import BackendError, KernelIndexError, KernelTypeError, TracerError
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.kernel.tiling import BLOCK
from mixad.scalar.build import Builder
from mixad.scalar.ir import ArrayType
from mixad.scalar.types import ALL_TYPES, BOOL, F32, F64, I32, I64, U8

EXAMPLES = 200
BACKENDS = ["cpu", "reference"]
GANG = 16


def weighted_sum(type=F64, names="xyz"):
    """Return x + 2y + 3z: different for every exchange of arguments, exact for small integers."""
    b = Builder("weighted_sum")
    total = b.const(0, type)
    for weight, name in enumerate(names, 1):
        total = b.op("add", total, b.op("mul", b.const(weight, type), b.param(name, type)))
    return b.finish([total])


WEIGHTED_SUM = weighted_sum()
STORED = (OutputRequest(0, 0),)


def numbers(shape, start=0):
    """Return an array of different whole numbers."""
    return np.arange(start, start + np.prod(shape, dtype=int), dtype="f8").reshape(shape)


@pytest.fixture(params=BACKENDS)
def backend(request):
    return request.param


# -- layouts ---------------------------------------------------------------------------------------

LAYOUTS = {
    "contiguous": lambda a: a,
    "Fortran order": np.asfortranarray,
    "every other": lambda a: np.repeat(np.repeat(a, 2, axis=0), 2, axis=1)[::2, ::2],
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "one axis reversed": lambda a: a[:, ::-1].copy()[:, ::-1],
    "one field of records": lambda a: np.rec.fromarrays([a > 0, a])["f1"],
    "unaligned": lambda a: np.frombuffer(b"." + a.tobytes(), a.dtype, offset=1).reshape(a.shape),
    "read-only": lambda a: np.frombuffer(a.tobytes(), a.dtype).reshape(a.shape),
    "one row": lambda a: a[:1],
    "one column": lambda a: a[:, :1],
    "one element": lambda a: a[:1, :1],
    "one row repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    "0-d": lambda a: a[0, 0][...],
}


@pytest.mark.rows("names", [*itertools.combinations_with_replacement(LAYOUTS, 2)], ids=", ".join)
def test_arrays_of_every_layout(names):
    shape = (5, 2 * GANG + 3)
    x, y = (LAYOUTS[name](numbers(shape, 100 * k)) for k, name in enumerate(names))
    z = numbers(shape, 500)
    (got,) = execute((WEIGHTED_SUM,), STORED, [x, y, z], "cpu")
    np.testing.assert_array_equal(got, x + 2 * y + 3 * z)
    assert got.flags.writeable
    assert got.flags.owndata or got.base is not None


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(mutually_broadcastable_shapes(num_shapes=3, min_dims=0, max_dims=5, max_side=3, min_side=0))
def test_shapes_broadcast_as_numpys_do(shapes):
    x, y, z = (numbers(s, 10 * k) for k, s in enumerate(shapes.input_shapes))
    (got,) = execute((WEIGHTED_SUM,), STORED, [x, y, z], "cpu")
    expected = x + 2 * y + 3 * z
    assert got.shape == expected.shape
    np.testing.assert_array_equal(got, expected)


@pytest.mark.slow
@settings(max_examples=EXAMPLES)
@given(
    mutually_broadcastable_shapes(num_shapes=3, min_dims=0, max_dims=4, max_side=3, min_side=0),
    st.sampled_from(BACKENDS),
)
def test_results_are_summed_to_the_shapes_of_arguments(shapes, name):
    x, y, z = (numbers(s, 10 * k) for k, s in enumerate(shapes.input_shapes))
    requests = tuple(OutputRequest(0, 0, a.shape) for a in (x, y, z))
    whole = x + 2 * y + 3 * z
    for array, got in zip(
        (x, y, z), execute((WEIGHTED_SUM,), requests, [x, y, z], name), strict=True
    ):
        lead = whole.ndim - array.ndim
        repeated = [
            a >= lead and array.shape[a - lead] != whole.shape[a] for a in range(whole.ndim)
        ]
        axes = tuple(a for a in range(whole.ndim) if a < lead or repeated[a])
        np.testing.assert_array_equal(got, whole.sum(axis=axes).reshape(array.shape))


LARGE = [(3 * BLOCK + 7,), (1100, 33), (5, 2 * BLOCK + 5), (3, 600, 40), (2, 3, 5, 7, 11)]
"""Shapes of many tiles along one axis, along the other, and of small ones."""


@pytest.mark.rows("order", ["C", "F"])
@pytest.mark.rows("shape", LARGE, ids=str)
def test_sums_of_many_tiles(shape, order):
    """Whole numbers: whatever the order of summation, there is one right result."""
    x, y, z = numbers(shape), numbers(shape[-1:]), numbers((*shape[:-1], 1))
    x = np.asarray(x, order=order)
    kept = list(itertools.product([False, True], repeat=len(shape)))
    shapes = [tuple(n if k else 1 for n, k in zip(shape, keep, strict=True)) for keep in kept]
    requests = tuple(OutputRequest(0, 0, s) for s in shapes)
    whole = x + 2 * y + 3 * z
    for keep, got in zip(kept, execute((WEIGHTED_SUM,), requests, [x, y, z], "cpu"), strict=True):
        axes = tuple(a for a, k in enumerate(keep) if not k)
        np.testing.assert_array_equal(got, whole.sum(axis=axes, keepdims=True))


@pytest.mark.rows("type", [t for t in ALL_TYPES if t.is_integer], ids=str)
def test_sums_of_integers_wrap(type, backend):
    b = Builder("same")
    x = b.param("x", type)
    values = np.resize(np.array([100, 27, 3, 120], type.dtype), 300)
    (got,) = execute((b.finish([x]),), (OutputRequest(0, 0, ()),), [values], backend)
    assert got.dtype == type.dtype
    assert got == values.sum(dtype=type.dtype)


@pytest.mark.rows("size", [0, 1, GANG - 1, GANG, GANG + 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_rows_of_every_size(size, backend):
    x, y, z = numbers((3, size)), numbers((size,)), numbers((3, 1))
    (got,) = execute((WEIGHTED_SUM,), STORED, [x, y, z], backend)
    np.testing.assert_array_equal(got, x + 2 * y + 3 * z)


@pytest.mark.rows("shape", [(0,), (3, 0), (0, 4), (2, 0, 3)])
def test_empty_arrays_give_empty_results_and_sums_of_nothing(shape, backend):
    arrays = [numbers(shape)] * 3
    requests = (OutputRequest(0, 0), OutputRequest(0, 0, ()))
    stored, total = execute((WEIGHTED_SUM,), requests, arrays, backend)
    assert stored.shape == shape
    assert total.shape == ()
    assert total == 0


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_arrays_of_every_dtype(type, backend):
    b = Builder("twice")
    x = b.param("x", type)
    program = b.finish([b.op("xor" if type.is_bool else "add", x, x), x])
    x = np.arange(2 * GANG + 1).astype(type.dtype)
    requests = (OutputRequest(0, 0), OutputRequest(0, 1))
    twice, same = execute((program,), requests, [x], backend)
    assert twice.dtype == same.dtype == type.dtype
    np.testing.assert_array_equal(twice, x ^ x if type.is_bool else x + x)
    np.testing.assert_array_equal(same, x)


_READ_TO_THE_LAST_PAGE = """
import ctypes, mmap
import numpy as np
from mixad.backends.execute import execute
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.types import F32, U8

page = mmap.PAGESIZE
memory = mmap.mmap(-1, 2 * page)
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
libc = ctypes.CDLL(None)
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
assert libc.mprotect(address + page, page, 0) == 0
everything = np.frombuffer(memory, "u1", page)
for type in (F32, U8):
    b = Builder("read")
    x, y = b.param("x", type), b.param("y", type)
    program = b.finish([b.op("add", x, y)])
    for size in range(1, 34):
        for step in (1, 2):
            x = everything[-size * step * type.itemsize :].view(type.dtype)[step - 1 :: step]
            assert len(x) == size
            execute((program,), (OutputRequest(0, 0),), [x, x], "cpu")
            execute((program,), (OutputRequest(0, 0),), [x[::-1], x], "cpu")
print("nothing beyond")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="guards a page with mprotect")
def test_nothing_is_read_beyond_an_array():
    """In a process of its own, which a read beyond would end."""
    code = [sys.executable, "-c", _READ_TO_THE_LAST_PAGE]
    assert subprocess.check_output(code, text=True) == "nothing beyond\n"


# -- libraries -------------------------------------------------------------------------------------


def test_results_are_of_the_library_of_the_arguments(backend):
    x = array_api_strict.asarray([1.0, 2.0])
    (got,) = execute((WEIGHTED_SUM,), STORED, [x, x, x], backend)
    assert type(got) is type(x)
    assert got.dtype == x.dtype
    np.testing.assert_array_equal(np.from_dlpack(got), [6.0, 12.0])


def test_numpy_scalars_are_0d_arrays(backend):
    (got,) = execute((WEIGHTED_SUM,), STORED, [np.float64(1), numbers(3), np.float64(2)], backend)
    np.testing.assert_array_equal(got, 1 + 2 * numbers(3) + 6)


def test_arrays_of_two_libraries_are_refused():
    strict = array_api_strict.asarray([1.0])
    with pytest.raises(KernelTypeError, match="numpy on cpu and array_api_strict on cpu"):
        execute((WEIGHTED_SUM,), STORED, [numbers(1), strict, strict])


def test_shapes_that_do_not_broadcast_are_refused_by_name():
    message = r"weighted_sum: .* do not broadcast: x \(3,\), y \(4,\), z \(1,\)"
    with pytest.raises(KernelTypeError, match=message):
        execute((WEIGHTED_SUM,), STORED, [numbers(3), numbers(4), numbers(1)])


@pytest.mark.rows("dtype", ["f4", "i8", ">f8", "c16", "O", "U3", "M8[s]"])
def test_arrays_of_another_dtype_are_refused(dtype):
    wrong = np.zeros(3, dtype)
    with pytest.raises(KernelTypeError, match=str(wrong.dtype).replace("[", r"\[")):
        execute((WEIGHTED_SUM,), STORED, [wrong, numbers(3), numbers(3)])


def test_unknown_backend_is_refused():
    with pytest.raises(BackendError, match="nowhere"):
        execute((WEIGHTED_SUM,), STORED, [numbers(3)] * 3, "nowhere")


# -- uniforms --------------------------------------------------------------------------------------


def scaled(type):
    b = Builder("scaled")
    x, factor = b.param("x", type), b.param("factor", type, "uniform")
    return b.finish([b.op("and" if type.is_bool else "mul", x, factor)])


@pytest.mark.rows("type", ALL_TYPES, ids=str)
def test_uniforms_of_every_type(type, backend):
    x = np.arange(5).astype(type.dtype)
    for factor in (type.dtype.type(1), type.dtype.type(1).item()):
        (got,) = execute((scaled(type),), STORED, [x, factor], backend)
        np.testing.assert_array_equal(got, x)


def test_new_value_of_a_uniform_needs_no_new_plan():
    kernel = Kernel((scaled(F64),), STORED)
    x = numbers(5)
    plans = {id(kernel.prepare_launch([x, factor])) for factor in (1.0, 2.0)}
    assert len(plans) == 1
    np.testing.assert_array_equal(kernel([x, 2.0])[0], 2 * x)


def test_uniform_beyond_float32_is_infinite(backend):
    (got,) = execute((scaled(F32),), STORED, [np.ones(3, "f4"), 1e300], backend)
    np.testing.assert_array_equal(got, np.full(3, np.inf, "f4"))


def test_program_of_uniforms_only_gives_a_scalar_array(backend):
    b = Builder("constant")
    a = b.param("a", F64, "uniform")
    (got,) = execute((b.finish([b.op("add", a, a)]),), STORED, [1.5], backend)
    assert got.shape == ()
    assert got == 3.0


# -- passes ----------------------------------------------------------------------------------------


def test_several_passes_share_the_arguments(backend):
    b = Builder("other")
    x, y, z = (b.param(name, F64) for name in "xyz")
    other = b.finish([b.op("mul", x, y), b.op("lt", x, z)])
    requests = (OutputRequest(1, 1), OutputRequest(0, 0), OutputRequest(1, 0), OutputRequest(0, 0))
    arrays = x, y, z = numbers((3, 1)), numbers(7), numbers((3, 7), 4)
    less, first, product, second = execute((WEIGHTED_SUM, other), requests, arrays, backend)
    np.testing.assert_array_equal(less, np.broadcast_to(x, (3, 7)) < z)
    np.testing.assert_array_equal(first, x + 2 * y + 3 * z)
    np.testing.assert_array_equal(second, first)
    np.testing.assert_array_equal(product, x * y)
    assert less.dtype == bool


def test_outputs_of_every_width_side_by_side(backend):
    b = Builder("widths")
    x = b.param("x", I32)
    types = (BOOL, U8, F32, F64)
    program = b.finish([b.convert(x, t) for t in types])
    x = np.arange(2 * GANG + 5, dtype="i4")
    requests = tuple(OutputRequest(0, k) for k in range(len(types)))
    for type, got in zip(types, execute((program,), requests, [x], backend), strict=True):
        np.testing.assert_array_equal(got, x.astype(type.dtype))


@pytest.fixture
def small_cache(monkeypatch):
    """Let launches of the CPU backend store past the cache from 1 KiB on."""
    small = replace(registry.capability("cpu"), cache_bytes=1 << 10)
    monkeypatch.setattr(registry, "capability", {"cpu": small}.__getitem__)


@pytest.mark.usefixtures("small_cache")
def test_results_larger_than_the_cache_are_the_same():
    """They are written past it; the pool of results is behind this, too."""
    x = np.ones(1 << 21)
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    assert kernel.prepare_launch([x, x, x], "cpu").launch.spec.streaming
    np.testing.assert_array_equal(kernel([x, x, x], "cpu")[0], np.full(x.shape, 6.0))


@pytest.mark.usefixtures("small_cache")
def test_small_results_of_a_launch_that_streams_are_aligned():
    """Stores past the cache need 64 bytes; with malloc's 16 the process ended."""
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    for size in range(200, 240):
        x = np.ones(size)
        assert kernel.prepare_launch([x, x, x], "cpu").launch.spec.streaming
        np.testing.assert_array_equal(kernel([x, x, x], "cpu")[0], 6 * x)


# -- what is kept ----------------------------------------------------------------------------------


def test_layouts_that_differ_in_extents_share_an_executable():
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    a, b = (kernel.prepare_launch([numbers(size)] * 3) for size in (4, 6))
    assert a is not b
    assert a.bound.kernel is b.bound.kernel


def test_a_plan_is_for_one_device():
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    kernel([array_api_strict.asarray(numbers(3))] * 3)
    device = array_api_strict.Device("device1")
    there = array_api_strict.asarray(numbers(3), device=device)
    assert kernel([there] * 3)[0].device == device
    with pytest.raises(KernelTypeError, match="device1"):
        kernel([there, array_api_strict.asarray(numbers(3)), there])


def test_equal_layouts_share_a_plan_and_others_do_not():
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    a = numbers((4, 6))
    plan = kernel.prepare_launch([a, a, a])
    assert kernel.prepare_launch([a + 1, a, a]) is plan
    assert kernel.prepare_launch([a.T.copy().T, a, a]) is not plan
    assert kernel.prepare_launch([a[:1], a, a]) is not plan
    assert kernel.prepare_launch([a, a, a], "reference") is not plan
    strict = array_api_strict.asarray(a)
    assert kernel.prepare_launch([strict] * 3) is not plan


def test_kernel_says_whether_a_call_is_cold(monkeypatch):
    forget(monkeypatch)
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    a, b = numbers(3), numbers(4)
    assert not kernel.is_compiled([a, a, a])
    kernel([a, a, a])
    assert kernel.is_compiled([a, a, a])
    assert kernel.is_compiled([b, b, b])  # one executable serves all extents
    assert not kernel.is_compiled([a, a, a[:1]])
    assert not kernel.is_compiled([a, a, a], "reference")


def forget(monkeypatch, most=1000):
    """Begin as a new process does, where nothing is compiled; remember so many launches."""
    monkeypatch.setattr(execution, "_LAUNCHES", FifoCache(most))
    monkeypatch.setattr(execution, "_COMPILED", weakref.WeakValueDictionary())


def compiled(monkeypatch):
    """Return the list that the specs come into which the CPU backend compiles."""
    found = []
    plain = CpuBackend.compile
    monkeypatch.setattr(
        CpuBackend, "compile", lambda self, spec: (found.append(spec), plain(self, spec))[1]
    )
    return found


def test_many_layouts_do_not_fill_the_memory(monkeypatch):
    forget(monkeypatch, 20)
    for factor in range(3):  # of several kernels together
        kernel = Kernel((WEIGHTED_SUM,), STORED[: 1 + factor % 2])
        for size in range(1, 60):
            kernel.prepare_launch([numbers(size)] * 3)
    assert len(execution._LAUNCHES) == 20
    assert len(execution._COMPILED) <= 2


def test_what_is_compiled_is_shared_by_kernels_and_gone_with_the_last_launch(monkeypatch):
    forget(monkeypatch)
    specs = compiled(monkeypatch)
    for extent in range(2, 30):  # a sum to another shape is another kernel, but the same code
        x, y = numbers(extent * 5).reshape(extent, 5), numbers(extent).reshape(extent, 1)
        (total,) = Kernel((WEIGHTED_SUM,), (OutputRequest(0, 0, (extent, 1)),))([x, x, y])
        np.testing.assert_array_equal(total, (3 * x + 3 * y).sum(1, keepdims=True))
    assert len(specs) <= 2
    assert 1 <= len(execution._COMPILED) <= 2
    execution._LAUNCHES.clear()
    gc.collect()
    assert not execution._COMPILED


def test_parts_that_begin_elsewhere_are_one_launch(monkeypatch):
    forget(monkeypatch)
    specs = compiled(monkeypatch)
    x = numbers(5, start=1)
    kernels = []
    for start in range(40):
        request = OutputRequest(0, 0, part=SubBox((50,), (start,)))
        kernels.append(kernel_for((WEIGHTED_SUM,), (request,)))
        for backend in (None, "cpu"):
            (placed,) = kernels[-1]([x, x, x], backend)
            np.testing.assert_array_equal(placed[start : start + 5], 6 * x)
            assert np.count_nonzero(placed) == 5
    assert len(specs) == 1
    assert len(execution._LAUNCHES) == 2  # one for each way to ask for the backend


@pytest.mark.slow
def test_threads_launch_what_is_forgotten_meanwhile(monkeypatch):
    forget(monkeypatch, 1)
    wrong = []

    def work(seed):
        for turn in range(60):
            x = numbers(3 + (seed + turn) % 5)
            program = (WEIGHTED_SUM, weighted_sum(F32))[(seed + turn) % 2]
            x = x.astype(program.params[0].var.type.dtype)
            (got,) = Kernel((program,), STORED[:1])([x, x, x])
            if not np.array_equal(got, 6 * x):
                wrong.append((seed, turn))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    gc.collect()
    assert len(execution._COMPILED) == 1


def test_equal_programs_share_a_kernel():
    assert kernel_for((weighted_sum(),), STORED) is kernel_for((weighted_sum(),), STORED)
    assert kernel_for((weighted_sum(F32),), STORED) is not kernel_for((WEIGHTED_SUM,), STORED)
    summed = (OutputRequest(0, 0, ()),)
    assert kernel_for((WEIGHTED_SUM,), summed) is not kernel_for((WEIGHTED_SUM,), STORED)


def test_many_kernels_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(execution, "_KERNELS", type(execution._KERNELS)())
    monkeypatch.setattr(execution, "_MAX_KERNELS", 3)
    programs = [weighted_sum(names=name) for name in ("x", "y", "z", "w")]
    first, second, *_ = kernels = [kernel_for((p,), STORED) for p in programs[:3]]
    assert kernel_for((programs[0],), STORED) is first  # now the second is the oldest
    kernels.append(kernel_for((programs[3],), STORED))
    assert len(execution._KERNELS) == 3
    assert kernel_for((programs[0],), STORED) is first
    assert kernel_for((programs[1],), STORED) is not second
    np.testing.assert_array_equal(second([numbers(3)])[0], numbers(3))


# -- the choice of a backend -----------------------------------------------------------------------


class Own(ReferenceBackend):
    """A plugin's backend that is preferred to all others where it can serve."""

    name = "a"  # before "cpu"

    def launch(self, bound, arguments):
        return tuple([np.asarray(result) for result in super().launch(bound, arguments)])


@pytest.fixture
def offering(monkeypatch):
    """Return what puts a backend of float64 before all others."""

    def offer(backend, **more):
        dtypes = frozenset({"float64", "int64", "bool"})
        capability = Capability(("numpy",), ("cpu",), dtypes, native=True, **more)
        spec = BackendSpec("a", API_VERSION, capability, lambda: backend, "")
        plugin = SimpleNamespace(mixad_backends=hookimpl(lambda: [spec]))
        chosen_from = Registry(
            [*registry.installed_plugins(), PluginSource("beads", "dist-beads 1.0", lambda: plugin)]
        )
        monkeypatch.setattr(registry, "default_registry", lambda: chosen_from)

    return offer


def test_a_backend_serves_the_types_of_all_arguments_and_results(offering):
    offering(Own())
    x = numbers(3)
    assert Kernel((WEIGHTED_SUM,), STORED).prepare_launch([x, x, x]).backend.name == "a"
    b = Builder("mixed")
    n = b.param("n", F64), b.param("k", I32)
    mixed = b.finish([b.op("add", n[0], b.convert(n[1], F64))])
    assert Kernel((mixed,), STORED).prepare_launch([x, x.astype("i4")]).backend.name == "cpu"
    b = Builder("uniform")
    n = b.param("n", F64), b.param("k", I32, "uniform")
    uniform = b.finish([b.op("add", n[0], b.convert(n[1], F64))])
    assert Kernel((uniform,), STORED).prepare_launch([x, 2]).backend.name == "cpu"
    b = Builder("rounding")
    rounding = b.finish([b.convert(b.param("x", F64), F32)])
    assert Kernel((rounding,), STORED).prepare_launch([x]).backend.name == "cpu"


# -- what a plugin's backend does wrong ------------------------------------------------------------


def raising(error):
    def method(self, *arguments):
        raise error

    return method


def returning(change):
    """Return a launch that changes the results of a good one."""
    return lambda self, *arguments: change(Own.launch(self, *arguments))


METHODS = ("compile", "bind", "launch")
KINDS = (RuntimeError, BackendError, AttributeError, IndexError, OSError, StopIteration,
         SystemExit)  # fmt: skip
ERRORS = [*(kind("boom") for kind in KINDS), AssertionError("boom"), TypeError("boom")]
FAULTS = {
    **{
        f"{type(e).__name__} in {method}": ({method: raising(e)}, f"{type(e).__name__}[^$]*boom")
        for method in METHODS
        for e in ERRORS
    },
    "None": ({"launch": returning(lambda r: None)}, "returned None [^$]*expected a tuple"),
    "an array": ({"launch": returning(lambda r: r[0])}, "a ndarray [^$]*expected a tuple"),
    "a generator": ({"launch": returning(iter)}, "a tuple_iterator [^$]*expected a tuple"),
    "too few": ({"launch": returning(lambda r: ())}, "0 results [^$]*expected 1;"),
    "too many": ({"launch": returning(lambda r: r * 2)}, "2 results [^$]*expected 1;"),
    "nothing in it": ({"launch": returning(lambda r: (None,))}, "None from[^$]*result 0"),
    "a list in it": ({"launch": returning(lambda r: (r[0].tolist(),))},
                     "a list from[^$]*result 0"),
    "a number in it": ({"launch": returning(lambda r: (1.0,))}, "a float from[^$]*result 0"),
    "another's array": (
        {"launch": returning(lambda r: (array_api_strict.asarray(r[0]),))},
        "float64 array [^$]*of array_api_strict on [^$]*expected a float64 [^$]* of numpy on cpu",
    ),
    "masked": ({"launch": returning(lambda r: (np.ma.array(r[0]),))},
               "a MaskedArray from[^$]*result 0"),
    "objects": ({"launch": returning(lambda r: (r[0].astype(object),))},
                "a ndarray from[^$]*result 0"),
    "another shape": ({"launch": returning(lambda r: (r[0][:2],))}, r"shape \(2,\)[^$]*\(3,\)"),
    "more axes": ({"launch": returning(lambda r: (r[0][None],))}, r"shape \(1, 3\)[^$]*\(3,\)"),
    "broadcast": ({"launch": returning(lambda r: (r[0][:1],))}, r"shape \(1,\)[^$]*\(3,\)"),
    "another dtype": ({"launch": returning(lambda r: (r[0].astype("f4"),))}, "float32[^$]*float64"),
    "integers": ({"launch": returning(lambda r: (r[0].astype("i8"),))}, "int64[^$]*float64"),
    "big-endian": ({"launch": returning(lambda r: (r[0].astype(">f8"),))},
                   "a ndarray from[^$]*result 0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FAULTS)
def test_where_a_plugin_fails_the_next_backend_serves_and_says_why(kind, offering):
    methods, why = FAULTS[kind]
    offering(type("Failing", (Own,), methods)())
    kernel, x = Kernel((WEIGHTED_SUM,), STORED), numbers(3)
    told = r"kernel of weighted_sum is served by the backend 'cpu', because 'a' of the plugin "
    told += rf"'beads' \(dist-beads 1\.0\)[^$]*{why}[^$]*leave it out: MIXAD_BACKEND_BLOCK=beads"
    with pytest.warns(RuntimeWarning, match=told) as warned:
        (got,) = kernel([x, x, x])
    assert len(warned) == 1
    np.testing.assert_array_equal(got, 6 * x)
    (other,) = kernel([numbers(4)] * 3)  # another layout: no new try, and no new warning
    np.testing.assert_array_equal(other, 6 * numbers(4))
    with pytest.raises(BackendError, match=rf"^'a' of the plugin 'beads'[^$]*{why}[^$]*=beads$"):
        Kernel((WEIGHTED_SUM,), STORED)([x, x, x], "a")


@pytest.mark.parametrize("kind", FAULTS)
def test_where_nothing_else_serves_the_fault_is_told(kind, offering, monkeypatch):
    methods, why = FAULTS[kind]
    offering(type("Failing", (Own,), methods)())
    alone = registry.default_registry()
    monkeypatch.setattr(alone, "_allow", frozenset({"a"}))
    x = numbers(3)
    with pytest.raises(BackendError, match=rf"no backend serves[^$]*'beads'[^$]*{why}[^$]*=beads"):
        Kernel((WEIGHTED_SUM,), STORED)([x, x, x])


PASSING = (KeyboardInterrupt(), MemoryError("all gone"), KernelTypeError("of f"),
           TracerError("too late"), KernelIndexError("outside"), UserWarning("an error by choice"),
           type("OutOfMemoryError", (RuntimeError,), {})("of a device"))  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("error", PASSING, ids=lambda e: type(e).__name__)
def test_what_is_not_the_plugins_fault_passes(method, error, offering):
    offering(type("Failing", (Own,), {method: raising(error)})())
    x = numbers(3)
    for name in (None, "a"):
        with pytest.raises(type(error)) as caught:
            Kernel((WEIGHTED_SUM,), STORED)([x, x, x], name)
        assert caught.value is error


@pytest.mark.parametrize("method", METHODS)
def test_a_signal_that_ends_the_process_does_so_inside_a_plugin(method, offering, monkeypatch):
    def end(number, frame):
        sys.exit(number)

    previous = signal.signal(signal.SIGTERM, end)
    interrupted = {method: lambda self, *arguments: signal.raise_signal(signal.SIGTERM)}
    offering(type("Interrupted", (Own,), interrupted)())
    try:
        with pytest.raises(SystemExit) as caught:
            Kernel((WEIGHTED_SUM,), STORED)([numbers(3)] * 3)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert caught.value.code == signal.SIGTERM


def test_an_index_outside_is_the_users_where_the_kernel_indexes(offering):
    offering(Own())
    b = Builder("gathered")
    k, table = b.param("k", I64), b.array_param("table", ArrayType(F64, 1))
    program = b.finish([b.load(table, k)])
    kernel = Kernel((program,), STORED)
    with pytest.raises(KernelIndexError, match=r"element \(1,\): index 7 is outside 'table'"):
        kernel([np.asarray([0, 7]), numbers(3)])
    assert kernel.prepare_launch([np.asarray([0, 7]), numbers(3)]).backend.name == "a"


def test_a_plugin_that_fails_later_is_left_then(offering):
    backend = Own()
    offering(backend)
    kernel, x = Kernel((WEIGHTED_SUM,), STORED), numbers(3)
    assert kernel.prepare_launch([x, x, x]).backend is backend
    np.testing.assert_array_equal(kernel([x, x, x])[0], 6 * x)
    backend.launch = partial(raising(OSError("the device is gone")), backend)
    with pytest.warns(RuntimeWarning, match="OSError from a launch[^$]*the device is gone"):
        np.testing.assert_array_equal(kernel([x, x, x])[0], 6 * x)
    assert kernel.prepare_launch([x, x, x]).backend.name == "cpu"


def test_a_fallback_that_writes_no_parts_is_not_asked_to(offering, monkeypatch):
    methods = {"moved": len, "bind": raising(OSError("boom"))}
    offering(type("Failing", (Own,), methods)(), writes_parts=True)
    part = (OutputRequest(0, 0, part=SubBox((5,), (1,))),)
    x = numbers(3)
    with pytest.warns(RuntimeWarning, match="boom"):
        (got,) = Kernel((WEIGHTED_SUM,), part)([x, x, x])
    np.testing.assert_array_equal(got, [0, *(6 * x), 0])
    monkeypatch.setattr(registry.default_registry(), "_allow", frozenset({"a", "reference"}))
    with (
        pytest.warns(RuntimeWarning, match="served by the backend 'reference', because [^$]*boom"),
        pytest.raises(BackendError, match=r"'reference' does not write parts[^$]*'beads'[^$]*boom"),
    ):
        Kernel((WEIGHTED_SUM,), part)([x, x, x])


def test_a_backend_that_cannot_move_a_launch_is_left_and_all_parts_know_of_it(offering):
    methods = {"moved": raising(OSError("boom"))}
    offering(type("Failing", (Own,), methods)(), writes_parts=True)
    kernels = [
        Kernel((WEIGHTED_SUM,), (OutputRequest(0, 0, part=SubBox((5,), (start,))),))
        for start in (1, 2)
    ]
    x = numbers(3)
    with pytest.warns(RuntimeWarning, match="'cpu', because 'a' of the plugin[^$]*boom") as warned:
        found = [kernel([x, x, x])[0] for kernel in kernels]
    assert len(warned) == 1
    np.testing.assert_array_equal(found[0], [0, *(6 * x), 0])
    np.testing.assert_array_equal(found[1], [0, 0, *(6 * x)])
    assert (
        kernels[1].plan_unfolded([x, x, x]).spec == kernels[1].prepare_launch([x, x, x]).launch.spec
    )
    assert kernels[1]._choose_backend("numpy", "cpu").name == "cpu"


# -- errors, threads -------------------------------------------------------------------------------


def test_errors_name_the_program_of_the_call_not_an_equal_one():
    execute((weighted_sum(names="xyz"),), STORED, [numbers(3)] * 3)
    with pytest.raises(KernelTypeError, match=r"broadcast: a \(3,\), b \(4,\), c \(1,\)"):
        execute((weighted_sum(names="abc"),), STORED, [numbers(3), numbers(4), numbers(1)])


def test_threads_that_compile_the_same_at_once_share_one_executable():
    together, found = threading.Barrier(4), []

    def compiled(spec):
        together.wait(10)
        return object()

    slow = SimpleNamespace(name="slow", compile=compiled)
    threads = [
        threading.Thread(target=lambda: found.append(execution._compile_spec(slow, "spec")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert len(set(found)) == 1


def test_threads_call_one_kernel():
    kernel = Kernel((WEIGHTED_SUM,), STORED)
    wrong = []

    def work(offset):
        for size in range(1, 60):
            x, y, z = (numbers(size, offset + k) for k in range(3))
            (got,) = kernel([x, y, z])
            if not np.array_equal(got, x + 2 * y + 3 * z):
                wrong.append((offset, size))

    threads = [threading.Thread(target=work, args=(1000 * k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arguments_are_not_changed(backend):
    arrays = [numbers((3, 1)), numbers(5), numbers((3, 5))]
    before = [a.copy() for a in arrays]
    results = execute((WEIGHTED_SUM,), STORED, arrays, backend)
    for array, copy in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copy)
        assert not np.shares_memory(array, results[0])


WIDTHS = [(700, 33), (3, 50, 1), (1, 17), (40, 2048), (33, 2049), (5, 7, 40)]


@pytest.mark.rows("shape", WIDTHS, ids=str)
def test_sums_over_rows_of_any_width(shape):
    x = np.random.default_rng(1).standard_normal((*shape[:-1], shape[-1] + 3))[..., :-3]
    rows, outer = len(shape) - 2, tuple(range(len(shape) - 1))
    for axes, kept in ((outer, shape[-1:]), ((rows,), (*shape[:-2], 1, shape[-1]))):
        program = weighted_sum(names="x")
        (got,) = execute((program,), (OutputRequest(0, 0, kept),), (x,), "cpu")
        np.testing.assert_allclose(got, x.sum(axes).reshape(kept), rtol=1e-12, atol=1e-12)
        assert got.flags.c_contiguous


SMALL_STACK = """
import threading
import numpy as np
from mixad.backends.execute import Kernel
from mixad.kernel.spec import OutputRequest, SubBox
from mixad.scalar.build import Builder
from mixad.scalar.types import F64

b = Builder("f")
x = b.param("x", F64)
program = b.finish([b.op("mul", x, b.const(float(k), F64)) for k in range(16)])
kernel = Kernel((program,), tuple(OutputRequest(0, k, (1, 2048)) for k in range(16)))
x = np.ones((64, 2051))[:, :2048]
kernel((x,))  # compiled here
found = []
threading.stack_size(1 << 17)
thread = threading.Thread(target=lambda: found.extend(kernel((x,))))
thread.start()
thread.join()
assert [set(sums.ravel()) for sums in found] == [{64.0 * k} for k in range(16)]
"""


@pytest.mark.slow
def test_sums_over_rows_take_no_stack():
    """As threads have little of where the C library is musl."""
    done = subprocess.run([sys.executable, "-c", SMALL_STACK], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
