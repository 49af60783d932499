"""The commands of ``python -m mixad``: what they print, and when they fail."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from mixad import config
from mixad.__main__ import main
from mixad.backends import registry
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.cpu.host import detect
from mixad.backends.hookspecs import API_VERSION, BackendSpec, Capability, IntegrationSpec, hookimpl
from mixad.backends.object_cache import default
from mixad.backends.registry import PluginSource, Registry, installed_plugins
from mixad.cli import cache, demo, doctor

SMALL = 8
KERNEL = "0123456789abcdef" * 4
"""A file name as the cache gives it."""


@pytest.fixture
def cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("MIXAD_CACHE_DIR", str(tmp_path))
    return config.kernel_cache_folder()


def test_cache_shows_path_count_and_size(cache_folder, capsys):
    cache_folder.mkdir(parents=True)
    (cache_folder / KERNEL).write_bytes(bytes(2048))
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == f"{cache_folder}: 1 files, 2 KiB\n"


def test_cache_clear_removes_kernels_and_nothing_beside_them(cache_folder, capsys):
    cache_folder.mkdir(parents=True)
    (cache_folder / KERNEL).write_bytes(b"x")
    kept = [folder / "notes.txt" for folder in (cache_folder, cache_folder.parent)]
    for path in kept:
        path.write_text("mine")
    assert main(["cache", "clear"]) == 0
    assert not (cache_folder / KERNEL).exists()
    assert [path.read_text() for path in kept] == ["mine", "mine"]
    assert "0 files" in capsys.readouterr().out


def test_an_absent_cache_can_be_shown_and_cleared(cache_folder):
    assert main(["cache"]) == 0
    assert main(["cache", "clear"]) == 0
    assert "0 files" in cache.describe(default())


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_a_cache_that_cannot_be_used_is_shown_with_the_reason(cache_folder):
    backend = registry.backend("cpu")
    assert backend.describe()["kernels kept"] == f"in {cache_folder}"
    cache_folder.chmod(0o777)  # it was made, to know that it can be
    assert "may be written by other users" in backend.describe()["kernels kept"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="no file system without folders")
@pytest.mark.filterwarnings("ignore:compiled kernels are not kept")
def test_doctor_says_that_nothing_is_kept(monkeypatch, capsys):
    monkeypatch.setenv("MIXAD_CACHE_DIR", "/proc/nope")
    main(["doctor"])
    assert re.search("\n  UNUSABLE +nothing is kept: .*cannot be made", capsys.readouterr().out)


@pytest.mark.parametrize("arguments", [[], ["demonstrate"], ["cache", "burn"]])
def test_a_wrong_command_line_is_refused_with_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m mixad" in capsys.readouterr().err


def test_the_version_is_that_of_the_installed_distribution(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"mixad {metadata.version('mixad')}\n"


def complex_step(work, name):
    """Differentiate the cell by complex step, its branches taken from the flags."""
    h = 1e-30
    values = {k: v.astype(complex) for k, v in vars(work).items()}
    values[name] = values[name] + 1j * h
    v = type("Values", (), values)
    sigma_f, sigma_i = 1 / (1 + np.exp(-v.f)), 1 / (1 + np.exp(-v.i))
    flushed = sigma_i * np.tanh(v.g)
    updated = sigma_f * v.c + flushed
    state = np.where(work.z == 1, flushed, np.where(work.zb == 0, v.c, updated))
    return state.imag / h * work.cotangent


@pytest.mark.parametrize("name", demo.ACTIVE)
def test_the_demos_formulas_are_right_by_complex_step(name):
    work = demo.Workload.random(32, seed=3).astype(np.float64)
    _, gradients = demo.value_and_vjp_by_hand(work)
    ours = gradients[demo.ACTIVE.index(name)]
    np.testing.assert_allclose(ours, complex_step(work, name), rtol=1e-14)


def test_the_demos_workload_takes_every_branch():
    work = demo.Workload.random(demo.SIZE)
    flush, copy = work.z == 1, (work.z != 1) & (work.zb == 0)
    for taken in (flush, copy, ~flush & ~copy):
        assert taken.mean() > 0.2


def test_demo_checks_and_times(capsys):
    assert demo.main(size=SMALL, repeats=1) == 0
    printed = capsys.readouterr().out
    assert "WRONG" not in printed
    assert "dg by grad" in printed
    assert "NumPy, formulas by hand" in printed


@pytest.mark.parametrize("index", range(len(demo.ACTIVE)))
def test_demo_fails_when_one_gradient_is_wrong(index, monkeypatch, capsys):
    right = demo.value_and_vjp_by_hand

    def wrong(work):
        value, gradients = right(work)
        gradients[index][0, 0] += 1e-4
        return value, gradients

    monkeypatch.setattr(demo, "value_and_vjp_by_hand", wrong)
    assert demo.main(size=SMALL, repeats=1) == 1
    assert f"d{demo.ACTIVE[index]} by value_and_vjp" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("got", "error"),
    [([1.0, 2.0], 0.0), ([1.0, 2.5], 0.25), ([1.0, np.nan], np.inf), ([1.0], np.inf)],
)
def test_relative_error(got, error):
    assert demo.relative_error(np.array(got), np.array([1.0, 2.0])) == error


def test_doctor_reports_each_part_and_a_gradient_that_is_right(cache_folder, capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for part in ["versions", "machine", "environment", "cache", "backends", "self-test"]:
        assert f"\n{part}\n" in f"\n{printed}"
    assert str(cache_folder) in printed
    assert "  gradient             ok\n" in printed


def test_doctor_tells_of_the_processor_and_where_maths_comes_from(cache_folder, capsys):
    main(["doctor"])
    rows = {
        line[:23].strip(): line[23:].strip()
        for line in capsys.readouterr().out.splitlines()
        if line.startswith("    ")
    }
    has = detect()
    assert rows["processor"].startswith(f"{has.cpu}: ")
    assert rows["vector width"].startswith(f"{has.vector_bits} bits")
    assert {"exp", "sin", "log", "tanh"} <= set(rows["maths inlined"].split(", "))
    assert rows["other maths"]


class Announcing:
    """A plugin of one backend."""

    def __init__(self, name, load, version=API_VERSION):
        capability = Capability(("numpy",), ("cuda",), frozenset({"float32"}), native=True)
        self.specs = [BackendSpec(name, version, capability, load, f"pip install {name}")]

    @hookimpl
    def mixad_backends(self):
        return self.specs


class Fine:
    name = "fine"
    emit = compile = bind = launch = print

    def describe(self):
        raise SystemExit("the device does not answer")


def _no_device():
    raise OSError("libcuda.so.1: cannot open shared object file")


def _not_importable():
    raise ImportError("no module of that name")


def test_doctor_explains_every_backend_and_plugin(monkeypatch, capsys):
    plugins = {
        "fine": lambda: Announcing("fine", Fine),
        "absent": lambda: Announcing("absent", _no_device),
        "unwanted": lambda: Announcing("unwanted", _no_device),
        "shut": lambda: Announcing("shut", _no_device),
        "old": lambda: Announcing("old", _no_device, version=0),
        "new": lambda: Announcing("new", _no_device, version=API_VERSION + 1),
        "torn": _not_importable,
    }
    sources = [PluginSource(name, f"dist-{name} 1.0", load) for name, load in plugins.items()]
    own = Registry(
        [*installed_plugins()[:1], *sources],
        allow=frozenset({"cpu", "fine", "absent", "shut"}),
        block=frozenset({"shut"}),
    )
    monkeypatch.setattr(doctor, "default_registry", lambda: own)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()

    def told(name):
        (line,) = (line for line in lines if line.split(" ")[2:3] == [name])
        return line

    assert "ready (dist-fine 1.0): compiles, numpy on cuda" in told("fine")
    assert any("describe" in line and "FAILED: SystemExit: the device" in line for line in lines)
    assert "MISSING (dist-absent 1.0): " in told("absent")
    assert "OSError: libcuda.so.1" in told("absent")
    assert "pip install absent; leave it out: MIXAD_BACKEND_BLOCK=absent" in told("absent")
    assert "is not allowed: add it to MIXAD_BACKEND_ALLOW" in told("unwanted")
    assert "REFUSED (dist-shut 1.0): not imported: MIXAD_BACKEND_BLOCK names it" in told("shut")
    assert "plugin API 0, this mixad has 1: upgrade the plugin" in told("old")
    assert "plugin API 2, this mixad has 1: upgrade mixad" in told("new")
    assert "FAILED (dist-torn 1.0): ImportError: no module of that name at " in told("torn")


class Integrating:
    """A plugin of three integrations."""

    @hookimpl
    def mixad_integrations(self):
        made = {"json": object, "abacus_beads": object, "csv": _no_device}
        return [IntegrationSpec(name, API_VERSION, name, load) for name, load in made.items()]


def test_doctor_explains_integrations(monkeypatch, capsys):
    own = Registry([*installed_plugins()[:1], PluginSource("own", "dist-own 1.0", Integrating)])
    monkeypatch.setattr(doctor, "default_registry", lambda: own)
    assert main(["doctor"]) == 0
    told = capsys.readouterr().out
    assert (
        "  json                 ready (dist-own 1.0): calls inside of json's transforms\n" in told
    )
    assert "  abacus_beads         waits (dist-own 1.0): there is no abacus_beads\n" in told
    assert "  csv                  MISSING (dist-own 1.0): OSError: libcuda.so.1" in told


@pytest.mark.parametrize(
    ("setting", "shown"), [("", "unset: chosen for this machine"), ("0", "0"), ("3K", "3072")]
)
def test_doctor_shows_no_number_that_would_mean_something_else(setting, shown, monkeypatch, capsys):
    monkeypatch.setenv("MIXAD_STREAM_BYTES", setting)
    main(["doctor"])
    assert f"  MIXAD_STREAM_BYTES   {shown}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (1, "1 B"), (1023, "1023 B"), (3072, "3 KiB"), (5 << 30, "5 GiB")],
)
def test_doctor_shows_bytes_in_units_of_their_size(size, shown, monkeypatch):
    monkeypatch.setenv("MIXAD_STREAM_BYTES", str(size))
    told = CpuBackend().describe()["caches"]
    assert told == f"written past if a launch moves over {shown}"


def test_doctor_fails_on_a_wrong_setting_and_names_it(monkeypatch, capsys):
    monkeypatch.setenv("MIXAD_NUM_THREADS", "many")
    assert main(["doctor"]) == 1
    assert "MIXAD_NUM_THREADS='many'" in capsys.readouterr().out


def test_a_wrong_setting_is_told_without_a_traceback(monkeypatch, capsys):
    monkeypatch.setenv("MIXAD_CHECK", "maybe")
    assert main(["demo"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("environment variable MIXAD_CHECK='maybe': expected one of off")
    assert error.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["ModuleNotFoundError", "OSError", "RuntimeError"])
def test_without_llvmlite_doctor_names_it_and_gradients_are_right(tmp_path, problem):
    (tmp_path / "llvmlite").mkdir()
    (tmp_path / "llvmlite/__init__.py").write_text(f"raise {problem}('no llvmlite here')")
    done = program("doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 0
    assert f"{problem}: no llvmlite here; pip install llvmlite" in done.stdout
    assert "  gradient             ok\n" in done.stdout


def program(command, **environment):
    """Run a command as a program, with some variables set."""
    return subprocess.run(
        [sys.executable, "-m", "mixad", command],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_what_the_output_cannot_show_is_written_in_ascii(tmp_path):
    folder = str(tmp_path / "dé\u2028j\udcff")
    done = program("doctor", MIXAD_CACHE_DIR=folder, PYTHONIOENCODING="ascii", LC_ALL="C")
    assert (done.returncode, done.stderr) == (0, "")
    assert "d\\xe9\\u2028j\\udcff" in done.stdout


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_gets_no_traceback():
    command = [sys.executable, "-u", "-m", "mixad", "doctor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


def test_doctor_points_at_a_misspelt_variable(monkeypatch, capsys):
    monkeypatch.setenv("MIXAD_NUM_THREAD", "1")
    main(["doctor"])
    assert "UNKNOWN" in capsys.readouterr().out


def test_the_self_test_sees_a_wrong_gradient_and_an_exception():
    assert "WRONG by" in doctor.self_test(lambda x, steps: np.zeros_like(x))
    assert "WRONG" in doctor.self_test(lambda x, steps: np.full_like(x, np.nan))
    assert "ZeroDivisionError" in doctor.self_test(lambda x, steps: 1 / 0)
