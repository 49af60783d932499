"""The digest of our own code changes with what decides what a kernel is, and with nothing else."""

import os
import shutil
from pathlib import Path

import pytest

import mixad
from mixad.backends.cpu.code_version import CODE_VERSION, _version


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    root = tmp_path_factory.mktemp("copy") / "mixad"
    shutil.copytree(Path(mixad.__file__).parent, root)
    return root


@pytest.fixture
def copy(original, tmp_path):
    shutil.copytree(original, tmp_path / "mixad")
    return tmp_path / "mixad"


def later(path):
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))


def test_a_copy_elsewhere_is_the_same_code(original, copy):
    assert _version(copy) == _version(original) == CODE_VERSION


@pytest.mark.parametrize(
    "name", ["scalar/ops.py", "scalar/math/power.py", "kernel/plan.py", "backends/cpu/compiler.py"]
)
def test_an_edited_file_is_other_code(copy, name):
    later(copy / name)
    assert _version(copy) != CODE_VERSION


def test_a_new_and_a_lost_file_are_other_code(copy):
    (copy / "emit/llvm/new.py").touch()
    assert _version(copy) != CODE_VERSION
    (copy / "emit/llvm/new.py").rename(copy / "emit/llvm/newer.py")
    assert len({_version(copy), CODE_VERSION}) == 2


def test_what_decides_no_kernel_does_not_count(copy):
    later(copy / "tape/node.py")
    shutil.rmtree(copy / "scalar/__pycache__", ignore_errors=True)
    (copy / "scalar/__pycache__").mkdir()
    (copy / "scalar/__pycache__/ops.py").touch()
    assert _version(copy) == CODE_VERSION
