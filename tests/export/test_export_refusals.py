"""What export refuses, by name, and that nothing is written then."""

from __future__ import annotations

import os
import shutil
import stat

import numpy as np
import pytest
from exported_kernels import constant, endless, model, squared, whole

import mixad
from mixad.errors import (
    BackendError,
    ConfigurationError,
    KernelGradientError,
    KernelSyntaxError,
    KernelTypeError,
    MixadError,
)

TABLE, GAINS, HALF = np.arange(5.0), np.ones(3), np.ones(3, "f2")
X = np.ones(3)


@mixad.broadcast
def reads_outside(i):
    return TABLE[i]


@mixad.broadcast
def adds_outside(x):
    return x + GAINS


@mixad.broadcast
def prints(x):
    print(x)
    return x


@mixad.broadcast
def flat(x):
    return np.floor(x)


@mixad.broadcast
def plain(x, y):
    return x * y


@mixad.broadcast(signature="(n)->()")
def long_core(a):
    total = 0.0
    for k in range(100):
        total += a[k]
    return total


@mixad.broadcast(signature="(40)->()")
def wide_core(a):
    return sum(a)


stores_partials = plain.with_options(placement="forward")
on_reference = plain.with_options(backend="reference")

REFUSED = [
    (reads_outside, [np.arange(3)], {}, KernelTypeError, "captures the array 'TABLE'"),
    (adds_outside, [X], {}, KernelTypeError, "captures the array 'GAINS'"),
    (long_core, [np.ones((4, 100))], {}, KernelTypeError, "reads a long core of 'a' by index"),
    (wide_core, [np.ones(40)], {}, KernelTypeError, "the pushforward has 80 arguments or results"),
    (prints, [X], {}, KernelSyntaxError, "print"),
    (plain, [HALF, HALF], {}, KernelTypeError, "C has no type for float16"),
    (squared, [X, 3], {}, KernelTypeError, "computes with Python integers at line"),
    (whole, [np.ones(3, "i4"), 2], {"what": "pullback"}, KernelTypeError, "whether they fit int"),
    (whole, [np.ones(3, "i4")] * 2, {}, KernelGradientError, "no argument of floats"),
    (flat, [X], {}, KernelGradientError, "all gradients are zero whatever the values are"),
    (constant, [X, X], {"wrt": "z"}, KernelGradientError, "wrt names 'z'"),
    (plain, [X, X], {"what": "gradient"}, ConfigurationError, "what must name some of 'value'"),
    (plain, [X, X], {"what": ()}, ConfigurationError, "not none"),
    (plain, [X, X], {"target": "rust"}, ConfigurationError, "target must be one of 'c', 'cuda'"),
    (plain, [X, X], {"cpu": "z80"}, BackendError, "cpu='z80' is not known"),
    (plain, [X, X], {"target": "cuda", "cpu": "x86-64-v3"}, ConfigurationError, "says nothing of"),
    (plain, [X, X], {"name": "my kernel"}, ConfigurationError, "write 'my_kernel'"),
    (plain, [X, X], {"name": "class"}, ConfigurationError, "write 'class_'"),
    (stores_partials, [X, X], {}, ConfigurationError, "placement='forward'"),
    (on_reference, [X, X], {}, ConfigurationError, "the backend 'reference' is not what is"),
    (plain, [X, np.ones(4)], {}, MixadError, "do not broadcast"),
]  # fmt: skip


@pytest.mark.parametrize(("kernel", "example", "options", "error", "message"), REFUSED)
def test_what_stays_in_python_is_refused(tmp_path, kernel, example, options, error, message):
    with pytest.raises(error) as caught:
        kernel.export(tmp_path / "out", *example, **options)
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def exported(tmp_path):
    """Return what exports a small kernel into a folder."""

    def export(folder, **options):
        return plain.export(folder, X, X, what="value", dynamic=False, **options)

    return export


def names(folder):
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
def test_a_folder_is_made_with_those_around_it(tmp_path, exported):
    made = exported(tmp_path / "a" / "b")
    assert names(tmp_path / "a") == {"b"}
    assert names(tmp_path / "a" / "b") == set(made.files)


@pytest.mark.slow
def test_an_empty_folder_is_filled_and_an_export_replaced(tmp_path, exported):
    folder = tmp_path / "out"
    folder.mkdir()
    first = exported(folder)
    second = exported(folder, name="other")
    assert names(folder) == set(second.files) != set(first.files)
    assert names(tmp_path) == {"out"}
    assert stat.S_IMODE(folder.stat().st_mode) & 0o700 == 0o700


@pytest.mark.slow
def test_a_folder_with_other_files_is_left_as_it_is(tmp_path, exported):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"has 'notes.txt', which is of no export"):
        exported(tmp_path)
    with pytest.raises(ConfigurationError, match="is no folder"):
        exported(tmp_path / "notes.txt")
    with pytest.raises(ConfigurationError, match="no folder can be made in"):
        exported(tmp_path / "notes.txt" / "out")
    assert names(tmp_path) == {"notes.txt"}


@pytest.mark.slow
def test_what_was_added_to_an_export_is_not_lost(tmp_path, exported):
    folder = tmp_path / "out"
    exported(folder)
    (folder / "main.c").write_text("mine")
    with pytest.raises(ConfigurationError, match=r"has 'main\.c'"):
        exported(folder)
    assert (folder / "main.c").read_text() == "mine"
    (folder / "main.c").unlink()
    (folder / "export.json").write_text("[]")
    with pytest.raises(ConfigurationError, match=r"which is of no export"):
        exported(folder)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path, exported):
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigurationError, match="no folder can be made in"):
        exported(tmp_path / "out")
    tmp_path.chmod(0o700)
    assert names(tmp_path) == set()


@pytest.mark.slow
def test_what_was_there_stays_where_the_linker_fails(tmp_path, exported, monkeypatch):
    exported(tmp_path / "out")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    broken = tmp_path / "bin" / "cc"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no such thing >&2\nexit 1\n")
    broken.chmod(0o700)
    monkeypatch.setenv("PATH", str(broken.parent))
    with pytest.raises(BackendError, match="no such thing"):
        exported(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert names(tmp_path) == {"out", "bin"}


def test_without_a_linker_the_command_is_printed(tmp_path, exported, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    made = exported(tmp_path / "out")
    assert made.library is None
    assert made.command.split()[:4] == ["cc", "-O2", "-shared", "-fPIC"]
    assert made.command in capsys.readouterr().out
    assert names(tmp_path / "out") == {"plain.o", "plain.h", "plain.c", "export.json"}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [model, endless])
def test_the_record_says_what_there_is(tmp_path, kernel):
    count = len(kernel._source.parameters)
    made = kernel.export(tmp_path / "out", *[X] * count, what="value", dynamic=False)
    assert set(made.files) >= {f"{kernel.__name__}.o", "export.json"}
    assert made.symbols[0] == f"{kernel.__name__}_value"
