"""Names of mixad and Python as names of C, and what the command line exports."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from c_calls import Exported

import mixad
from mixad.__main__ import main
from mixad.export.kernels import c_names, identifier

X = np.ones(3)
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x", "x"), ("w[0]", "w_0"), ("state.x", "state_x"), ("<lambda>", "lambda"), ("λ", "u03bb"),
     ("restrict", "restrict_"), ("new", "new_"), ("_", "kernel"), ("3x", "_3x"), ("a b", "a_b"),
     ("plan", "plan_"), ("for", "for_")],
)  # fmt: skip
def test_names_become_identifiers_of_c_and_cplusplus(name, expected):
    assert identifier(name) == expected
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", identifier(name))
    assert identifier(expected) == expected


def test_names_that_fall_together_are_numbered():
    assert c_names(["x.y", "x_y", "x[y]", "z"]) == ["x_y", "x_y_2", "x_y_3", "z"]


@mixad.broadcast
def awkward(new, BLOCK, λ, a0, memcpy):
    return new * BLOCK + λ * a0 - memcpy


@pytest.mark.slow
@needs_cc
def test_arguments_may_be_called_what_c_calls_something_else(tmp_path):
    rng = np.random.default_rng(0)
    awkward.export(tmp_path / "out", *[X] * 5, dynamic=False)
    c, values = Exported(tmp_path / "out"), rng.random((5, 3))
    assert [a["c"] for a in c.functions["value"]["arguments"]] == [
        "new_", "BLOCK", "u03bb", "a0", "memcpy",
    ]  # fmt: skip
    (found,) = c("value", *values)
    np.testing.assert_array_equal(found, awkward(*values))
    for language in ("c", "c++"):
        header = tmp_path / "out" / "awkward.h"
        subprocess.run(["cc", "-fsyntax-only", "-x", language, header], check=True)


@pytest.mark.slow
@needs_cc
def test_lambdas_of_one_program_have_names_that_are_given(tmp_path):
    for name, kernel in (("twice", lambda x: x + x), ("thrice", lambda x: x + x + x)):
        mixad.broadcast(kernel).export(tmp_path / name, X, what="value", dynamic=False, name=name)
    assert Exported(tmp_path / "twice")("value", X)[0].tolist() == [2.0] * 3
    assert Exported(tmp_path / "thrice")("value", X)[0].tolist() == [3.0] * 3


@pytest.mark.slow
def test_the_command_line_exports(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status = main([
        "export", "exported_kernels:scaled", "float32[20,30]", "0.5", "3", "--what", "value",
        "--fixed", "--name", "scaled_f4",
    ])  # fmt: skip
    assert status == 0
    record = json.loads((tmp_path / "scaled" / "export.json").read_text("utf-8"))
    assert record["symbols"][0] == "scaled_f4_value"
    kinds = [(a["dtype"], a["kind"], a["shape"]) for a in record["functions"][0]["arguments"]]
    assert kinds == [
        ("float32", "array", [20, 30]), ("float64", "number", []), ("int64", "number", []),
    ]  # fmt: skip
    assert record["command"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["exported_kernels:nothing"], "is no kernel that can be imported"),
     (["no_such_module:kernel"], "is no kernel that can be imported"),
     (["exported_kernels"], "is no kernel that can be imported"),
     (["exported_kernels:np"], "is no decorated function"),
     (["exported_kernels:scaled", "float33[3]"], "is no example of an argument"),
     (["exported_kernels:scaled", "float32(3)"], "is no example of an argument"),
     (["exported_kernels:squared", "float32[3]", "2"], "computes with Python integers")],
)  # fmt: skip
def test_the_command_line_says_what_is_wrong(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *arguments]) == 1
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
