"""The foreign function: structs of XLA's header, hashes, caches, Ctrl-C."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import BackendError

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import jaxlib  # noqa: E402
from mixad_jax import handler  # noqa: E402
from mixad_jax.handler import FFI_MAJOR, FFI_STRUCTS  # noqa: E402

pytestmark = pytest.mark.usefixtures("integration")

HEADER = Path(jaxlib.__file__).parent / "include" / "xla" / "ffi" / "api" / "c_api.h"


# -- the header ------------------------------------------------------------------------------------


def _structs(text: str) -> dict[str, Any]:
    """Return the structs of a header, as ctypes lays them out."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    text = re.sub(r"_XLA_FFI_API_STRUCT_FIELD\((\w+)\)", r"void* \1", text)
    types: dict[str, Any] = {
        "size_t": ctypes.c_size_t, "int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32,
        "uint32_t": ctypes.c_uint32, "int": ctypes.c_int, "XLA_FFI_Handler_Traits": ctypes.c_uint32,
    }  # fmt: skip
    types |= dict.fromkeys(re.findall(r"typedef enum \{[^}]*\} (\w+);", text), ctypes.c_int)
    for name, body in re.findall(r"struct (\w+) \{([^}]*)\}", text):
        fields = []
        for line in filter(None, map(str.strip, body.split(";"))):
            kind, pointer, field = re.fullmatch(
                r"(?:const )?(?:struct )?(\w+)(?:\s*(\*+))?\s+(\w+)", line.replace("* ", "* ")
            ).groups() if "(" not in line else ("", "*", "callback")  # fmt: skip
            fields.append((field, ctypes.c_void_p if pointer else types[kind]))
        types[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return types


def test_structs_are_those_of_the_header() -> None:
    theirs = _structs(HEADER.read_text())
    for name, ours in FFI_STRUCTS.items():
        for field, _ in ours._fields_:
            found, expected = getattr(ours, field), getattr(theirs[name], field)
            assert (found.offset, found.size) == (expected.offset, expected.size), (name, field)


def test_the_major_version_is_that_of_the_header() -> None:
    found = re.search(r"#define XLA_FFI_API_MAJOR (\d+)", HEADER.read_text())
    assert found is not None
    assert int(found[1]) == FFI_MAJOR


def test_the_function_says_its_major_version_whatever_xla_has() -> None:
    structs = FFI_STRUCTS
    api = structs["XLA_FFI_Api"]()
    api.api_version.major_version, api.api_version.minor_version = FFI_MAJOR + 1, 7
    metadata = structs["XLA_FFI_Metadata"]()
    extension = structs["XLA_FFI_Metadata_Extension"]()
    extension.extension_base.type = 1
    extension.metadata = ctypes.addressof(metadata)
    frame = structs["XLA_FFI_CallFrame"]()
    frame.extension_start, frame.api = ctypes.addressof(extension), ctypes.addressof(api)
    pointer = ctypes.c_void_p
    answer = handler.compiled().function("mixad_kernel", ctypes.CFUNCTYPE(pointer, pointer))
    assert answer(ctypes.addressof(frame)) is None
    version = metadata.api_version
    assert (version.major_version, version.minor_version) == (FFI_MAJOR, 7)


def test_another_major_version_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("the handler's API version (0.3) is incompatible with (1.0)")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    with pytest.raises(BackendError, match=r"version 0 of its interface.*incompatible"):
        handler._table.__wrapped__()


# -- programs in other processes -------------------------------------------------------------------

PROGRAM = """
import sys
import jax, jax.numpy as jnp, mixad
from mixad.backends import arrays, integrations
from mixad_jax.primitive import JaxIntegration
made = JaxIntegration()
arrays.adopt("jax", made.kinds)
integrations.LOADED[:] = [made]

@mixad.broadcast
def cubed(x, w):
    return x * x * x * w

x = jnp.arange(6.0).reshape(2, 3)
f = jax.jit(jax.grad(lambda w: cubed(x, w).sum()))
"""


def _run(folder: Path, code: str, *arguments: str, **environment: str) -> str:
    """Run a program in a process of its own, from a file: kernels are read from files."""
    path = folder / "program.py"
    path.write_text(PROGRAM + textwrap.dedent(code))
    found = subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.slow
def test_programs_are_found_in_the_persistent_cache_by_another_process(tmp_path: Path) -> None:
    code = """
    from jax._src import monitoring
    hits = []
    monitoring.register_event_listener(lambda event, **_: hits.append("cache_hits" in event))
    jax.config.update("jax_compilation_cache_dir", sys.argv[1])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    print(f(jnp.ones(3)).tolist(), sum(hits))
    print(f.lower(jnp.ones(3)).as_text())
    """
    runs = [_run(tmp_path, code, str(tmp_path / "cache")) for _ in range(2)]
    (first, text), (second, again) = (run.split("\n", 1) for run in runs)
    assert first == "[27.0, 65.0, 133.0] 0"
    assert second.startswith("[27.0, 65.0, 133.0] ")
    assert int(second.split()[-1]) > 0
    assert text == again  # no address is in it
    assert "mixad_kernel" in text


@pytest.mark.slow
def test_a_program_of_another_process_is_an_error_of_xla(tmp_path: Path) -> None:
    path = str(tmp_path / "program")
    write = """
    import pickle
    from jax.experimental.serialize_executable import serialize
    pickle.dump(serialize(f.lower(jnp.ones(3)).compile()), open(sys.argv[1], "wb"))
    """
    run = """
    import pickle
    from jax.experimental.serialize_executable import deserialize_and_load
    from mixad_jax import handler
    handler._table()
    compiled = deserialize_and_load(*pickle.load(open(sys.argv[1], "rb")))
    try:
        compiled(jnp.ones(3)).block_until_ready()
    except jax.errors.JaxRuntimeError as error:
        assert "this process has not traced" in str(error), error
        print("refused")
    f(jnp.ones(3))
    print(compiled(jnp.ones(3)).tolist())
    """
    assert _run(tmp_path, write, path) == ""
    assert _run(tmp_path, run, path) == "refused\n[27.0, 65.0, 133.0]\n"


def test_export() -> None:
    product = jax.jit(mixad.broadcast(lambda x, y: x * y))
    with pytest.raises(ValueError, match="mixad_kernel"):  # JAX promises that programs stay valid
        jax.export.export(product)(jnp.ones(3), 2.0)
    allowed = [jax.export.DisabledSafetyCheck.custom_call("mixad_kernel")]
    exported = jax.export.export(product, disabled_checks=allowed)(jnp.ones(3), 2.0)
    assert exported.call(jnp.ones(3), 2.0).tolist() == [2.0, 2.0, 2.0]


# -- Ctrl-C ----------------------------------------------------------------------------------------

ENDLESS = """
@mixad.broadcast
def endless(x):
    while x > 0.0:
        x = x + 1e-300
    return x

import os, signal, threading, time
handler = signal.getsignal(signal.SIGINT)
for count in (3, 300_000):  # in one tile, and on all threads
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    values = jnp.ones(count)
    run = jax.jit(endless).lower(values).compile()  # so that the signal comes while it runs
    started = time.monotonic()
    timer.start()
    try:
        run(values).block_until_ready()
        print("ended")
    except (KeyboardInterrupt, jax.errors.JaxRuntimeError) as error:
        try:
            time.sleep(0.2)  # what Ctrl-C raises comes when Python's code runs again
        except KeyboardInterrupt:
            pass
        print("stopped", time.monotonic() - started < 20.0)
    assert signal.getsignal(signal.SIGINT) is handler
print(f(jnp.ones(3)).tolist())
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(1.0)
except KeyboardInterrupt:
    print("as before")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
def test_ctrl_c_ends_loops_that_do_not_end(tmp_path: Path) -> None:
    expected = "stopped True\nstopped True\n[27.0, 65.0, 133.0]\nas before\n"
    assert _run(tmp_path, ENDLESS) == expected


def test_a_kernel_with_a_loop_leaves_the_handler_of_signals() -> None:
    @mixad.broadcast
    def halved(x):
        while x > 1.0:
            x = x * 0.5
        return x

    before = signal.getsignal(signal.SIGINT)
    np.testing.assert_array_equal(jax.jit(halved)(jnp.asarray([8.0, 3.0])), [1.0, 0.75])
    assert signal.getsignal(signal.SIGINT) is before


# -- the table -------------------------------------------------------------------------------------


def test_many_kernels_are_found() -> None:
    """The table grows, and programs that were compiled before it did go on."""
    x = jnp.ones(3)
    functions = []
    for n in range(70):
        scale = mixad.broadcast(lambda x, y: x * y + x)
        functions.append(jax.jit(lambda x, n=n, k=scale: k(jnp.ones((n + 1, 3)) * x, 2.0).sum()))
        assert functions[-1](x) == 9.0 * (n + 1)
    assert [f(x) for f in functions] == [9.0 * (n + 1) for n in range(70)]
