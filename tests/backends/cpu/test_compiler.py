import gc
import math
import os
import re
import sys
import threading
import types
from dataclasses import replace
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import pytest

from mixad.backends.cpu import compiler, symbols
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import LLVM_LOCK, Host, detect
from mixad.backends.object_cache import ObjectCache
from mixad.errors import BackendError
from mixad.kernel.plan import Layout, plan
from mixad.kernel.spec import OutputRequest
from mixad.scalar.build import Builder
from mixad.scalar.types import F32

AXPY = """
define void @kernel(ptr %a, i64 %begin, i64 %end) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %offset = mul i64 %i, 16
  %p = getelementptr float, ptr %a, i64 %offset
  %v = load <16 x float>, ptr %p, align 4
  %w = fmul <16 x float> %v, splat (float 3.0)
  %x = fadd <16 x float> %w, splat (float 1.0)
  store <16 x float> %x, ptr %p, align 4
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""

WIDTHS = [bits for bits in (128, 256, 512) if bits <= detect().vector_bits]


def unary(call, declaration, type="double"):
    return f"""
{declaration}
define void @kernel(ptr %a, i64 %begin, i64 %end) {{
  %x = load {type}, ptr %a
  %y = {call}
  store {type} %y, ptr %a
  ret void
}}
"""


COSH = unary("call double @cosh(double %x)", "declare double @cosh(double)")


def kernel(module):
    return module.function("kernel", compiler.KERNEL_PROTOTYPE)


def address(array):
    return array.ctypes.data


def resident_kilobytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


@pytest.mark.rows("bits", WIDTHS)
@pytest.mark.rows("level", [0, 1, 2, 3])
def test_compiled_kernel_runs_at_every_width_and_level(bits, level):
    run = kernel(compiler.compile_module(AXPY, detect().with_vector_bits(bits), level))
    values = np.arange(64, dtype="f4")
    run(address(values), 1, 3)
    expected = np.arange(64, dtype="f4")
    expected[16:48] = expected[16:48] * 3 + 1
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("level", [0, 2, 3])
def test_product_and_sum_are_not_contracted(level):
    assert "fma" not in compiler.assembly(AXPY, level=level)


def test_product_and_sum_round_twice():
    run = kernel(compiler.compile_module(AXPY))
    values = np.full(16, 1 + 2.0**-23, "f4")
    run(address(values), 0, 1)
    np.testing.assert_array_equal(
        values, np.full(16, np.float32(3 * (1 + 2.0**-23)) + np.float32(1))
    )


def test_assembly_is_that_of_the_host_asked_for():
    if WIDTHS[-1] != 512:
        pytest.skip("needs AVX-512")
    assert "zmm" not in compiler.assembly(AXPY, detect().with_vector_bits(256))
    assert "ymm" not in compiler.assembly(AXPY, detect().with_vector_bits(128))


@pytest.mark.parametrize("bits", WIDTHS)
def test_vector_maths_is_called(bits):
    host = detect().with_vector_bits(bits)
    found = host.vector_function("exp", 64)
    if found is None:
        pytest.skip("no vector maths here")
    vector = f"<{found.lanes} x double>"
    attributes = f'"min-legal-vector-width"="{bits}" "prefer-vector-width"="{bits}"'
    ir = f"""
declare {vector} @{found.symbol}({vector})
define void @kernel(ptr %a, i64 %begin, i64 %end) {attributes} {{
  %x = load {vector}, ptr %a, align 8
  %y = call {vector} @{found.symbol}({vector} %x)
  store {vector} %y, ptr %a, align 8
  ret void
}}
"""
    module = compiler.compile_module(ir, host)
    values = np.linspace(-1, 1, found.lanes)
    expected = np.exp(values)
    kernel(module)(address(values), 0, 1)
    np.testing.assert_allclose(values, expected, rtol=1e-15)
    assert module.symbols.undefined == {found.symbol}


def test_object_code_loads_again():
    first = compiler.compile_module(COSH)
    values = np.ones(1)
    kernel(compiler.load_object(first.object_code))(address(values), 0, 1)
    assert values[0] == math.cosh(1.0)
    assert first.symbols.undefined == {"cosh"}


def test_always_inline_functions_are_inlined():
    ir = """
define internal double @twice(double %x) alwaysinline {
  %y = fadd double %x, %x
  ret double %y
}
""" + unary("call double @twice(double %x)", "")
    assert compiler.compile_module(ir).symbols.defined == {"kernel"}
    assert "twice" not in compiler.assembly(ir)


@pytest.mark.parametrize("name", ["system", "_ZGVbN4v_system", "dlopen", "PyErr_SetString"])
def test_calls_out_of_the_list_are_refused(name):
    ir = unary(f"call double @{name}(double %x)", f"declare double @{name}(double)")
    with pytest.raises(BackendError, match=f"calls {name}: not functions kernels may use"):
        compiler.compile_object(ir)


def test_calls_out_of_the_list_are_refused_when_loaded():
    ir = unary("call double @strtod(double %x)", "declare double @strtod(double)")
    object_code = compiler.compile_object(ir, allowed=frozenset(["strtod"]))
    with pytest.raises(BackendError, match="calls strtod"):
        compiler.load_object(object_code)


def test_function_the_machine_lacks_is_refused_before_it_ends_the_process():
    ir = unary("call double @exp99(double %x)", "declare double @exp99(double)")
    with pytest.raises(BackendError, match="exp99: not found on this machine"):
        compiler.compile_object(ir, allowed=frozenset(["exp99"]))


NOT_DOMINATED = """
define void @kernel(ptr %a, i64 %begin, i64 %end) {
  store i64 %later, ptr %a
  %later = add i64 %begin, 1
  ret void
}
"""


@pytest.mark.parametrize("ir", ["define", AXPY.replace("fmul", "add"), "%", NOT_DOMINATED])
def test_invalid_ir_is_a_bug_of_ours(ir):
    with pytest.raises(BackendError, match="not valid, a bug"):
        compiler.compile_module(ir)


def test_unknown_function_is_refused_by_name():
    with pytest.raises(BackendError, match="no function 'other': it defines kernel"):
        compiler.compile_module(AXPY).address("other")


@pytest.mark.rows("cut", [0, 3, 20, 64, 200, -1, -30])
def test_damaged_object_code_is_refused(cut):
    with pytest.raises(BackendError, match="object code is"):
        compiler.load_object(compiler.compile_object(COSH)[:cut])


def objects_for(triple):
    """Compile a kernel for another machine, with libm calls and some pages on its stack."""
    b = Builder("f")
    x, y = b.param("x", F32), b.param("y", F32)
    out = b.op("atan2", b.op("tan", x), b.op("fma", y, y, b.op("rint", x)))
    layouts = [Layout(F32, (999, 333), (2000, 4))] * 2
    requests = [OutputRequest(0, 0), OutputRequest(0, 0, (1, 333)), OutputRequest(0, 0, ())]
    launch = plan((b.finish([out]),), requests, layouts, (999, 333), 1 << 30)
    host = Host("generic", "", 128, None, triple)
    with LLVM_LOCK:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
    text = CpuBackend(host).emit(launch.spec)
    with compiler._optimise(text, host, compiler.DEFAULT_LEVEL) as (module, machine):
        return machine.emit_object(module)


FORMATS = {
    "x86_64-pc-windows-msvc-elf": b"\x7fELF",
    "aarch64-pc-windows-msvc-elf": b"\x7fELF",
    "aarch64-unknown-linux-gnu": b"\x7fELF",
    "x86_64-apple-darwin": b"\xcf\xfa\xed\xfe",
    "arm64-apple-macosx": b"\xcf\xfa\xed\xfe",
}


@pytest.mark.parametrize("triple", FORMATS)
def test_kernels_for_other_systems_call_what_kernels_may(triple):
    try:
        code = objects_for(triple)
    except RuntimeError as error:
        pytest.skip(f"this LLVM has no target {triple}: {error}")
    assert code.startswith(FORMATS[triple])
    read = symbols.read_symbols(code)
    assert read.defined == {"mixad_kernel"}
    assert {"tanf", "atan2f"} <= read.undefined <= symbols.KERNEL_SYMBOLS


def test_objects_for_windows_are_elf(monkeypatch):
    """LLVM's JIT loads no others there, so llvmlite asks for them where it runs on Windows."""
    monkeypatch.setattr("llvmlite.binding.targets.os", types.SimpleNamespace(name="nt"))
    host = replace(detect(), triple="x86_64-pc-windows-msvc", cpu="x86-64", features="")
    with LLVM_LOCK:
        llvm.initialize_all_targets()
        assert compiler._machine(host, 2).triple == "x86_64-pc-windows-msvc-elf"


@pytest.mark.skipif(sys.platform == "win32", reason="what it calls that way is native there")
@pytest.mark.skipif(not detect().triple.startswith("x86_64"), reason="runs code for x86-64")
def test_object_for_windows_is_loaded_and_computes():
    """Called by its own convention, from code for this system."""
    host = replace(detect(), triple="x86_64-pc-windows-msvc-elf", vector_library=None)
    module = compiler.compile_module(AXPY, host)
    caller = compiler.compile_module(
        f"""
        define void @kernel(ptr %a, i64 %begin, i64 %end) {{
          %f = inttoptr i64 {module.address("kernel")} to ptr
          call win64cc void %f(ptr %a, i64 %begin, i64 %end)
          ret void
        }}
        """
    )
    values = np.arange(64, dtype="f4")
    kernel(caller)(address(values), 1, 3)
    expected = np.arange(64, dtype="f4")
    expected[16:48] = expected[16:48] * 3 + 1
    np.testing.assert_array_equal(values, expected)


def test_macho_symbols_are_read_without_their_underscore():
    strings = b"\0_kernel\0_exp\0ltmp0\0"
    names = [(1, 0x0F, 1), (9, 0x01, 0), (14, 0x0E, 1)]
    table = b"".join(symbols._MACHO_SYMBOL.pack(at, kind, home, 0, 0) for at, kind, home in names)
    start = 32 + 24
    header = b"\xcf\xfa\xed\xfe" + bytes(12) + (1).to_bytes(4, "little") + bytes(12)
    fields = (2, 24, start, len(names), start + len(table), len(strings))
    command = b"".join(value.to_bytes(4, "little") for value in fields)
    read = symbols.read_symbols(header + command + table + strings)
    assert read == symbols.Symbols(frozenset({"kernel"}), frozenset({"exp"}))


@pytest.mark.slow
def test_function_keeps_its_code_alive():
    run = kernel(compiler.compile_module(AXPY))
    gc.collect()
    for _ in range(20):
        compiler.compile_module(COSH)
    values = np.zeros(16, "f4")
    run(address(values), 0, 1)
    assert (values == 1).all()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_code_is_freed_with_its_module():
    object_code = compiler.compile_object(COSH)

    def mappings():
        return Path("/proc/self/maps").read_text().count("\n")

    compiler.load_object(object_code)
    before = mappings()
    modules = [compiler.load_object(object_code) for _ in range(50)]
    assert mappings() >= before + 50
    modules.clear()
    assert mappings() <= before + 5


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_over_thousands_of_compilations():
    count = 250
    for _ in range(50):
        module = compiler.compile_module(AXPY)
    before = resident_kilobytes()
    for _ in range(count):
        module = compiler.compile_module(AXPY)
        for _ in range(3):
            module = compiler.load_object(module.object_code)
            module.address("kernel")
    grown = resident_kilobytes() - before
    # llvmlite itself leaks under 2 kB with every pass builder; a lost engine would be 20 or more.
    assert grown < 4 * count


def test_code_discarded_while_llvm_is_busy_is_freed_later():
    object_code = compiler.compile_object(COSH)
    modules = [compiler.load_object(object_code) for _ in range(3)]
    busy, done = threading.Event(), threading.Event()

    def hold():
        with LLVM_LOCK:
            busy.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    busy.wait()
    modules.clear()
    assert len(compiler._discarded) == 3
    done.set()
    holder.join()
    compiler.load_object(object_code)
    assert len(compiler._discarded) == 0


def test_threads_compile_at_once():
    failures = []

    def work(seed):
        try:
            for k in range(5):
                ir = AXPY.replace("float 3.0", f"float {float(seed + k)}")
                values = np.ones(16, "f4")
                kernel(compiler.compile_module(ir))(address(values), 0, 1)
                assert (values == seed + k + 1).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(10 * seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_child_compiles_though_a_thread_was_compiling():
    stop = threading.Event()

    def compile_on():
        while not stop.is_set():
            compiler.compile_module(AXPY)

    thread = threading.Thread(target=compile_on)
    thread.start()
    try:
        for _ in range(30):
            child = os.fork()
            if child == 0:
                compiler.compile_module(COSH)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()


def test_allowed_names_are_c_identifiers():
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name) for name in symbols.KERNEL_SYMBOLS)


def test_cached_module_is_compiled_once(tmp_path, monkeypatch):
    cache = ObjectCache(tmp_path)
    first = compiler.cached_module(COSH, lambda: COSH, cache=cache)
    monkeypatch.setattr(compiler, "compile_module", None)
    again = compiler.cached_module(COSH, lambda: COSH, cache=cache)
    assert again.object_code == first.object_code
    values = np.ones(1)
    kernel(again)(address(values), 0, 1)
    assert values[0] == math.cosh(1.0)


def test_cached_object_that_may_not_be_loaded_is_compiled_anew(tmp_path):
    cache = ObjectCache(tmp_path)
    good = compiler.cached_module(COSH, lambda: COSH, cache=cache)
    (path,) = tmp_path.iterdir()
    forged = compiler.compile_object(COSH.replace("@cosh", "@system"), allowed={"system"})
    cache.store(path.name, forged)
    assert compiler.cached_module(COSH, lambda: COSH, cache=cache).object_code == good.object_code
    assert cache.load(path.name) == good.object_code
