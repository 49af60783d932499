"""The text of every stage: what it says, and that the user's lines can do no harm in it."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
from pathlib import Path
from types import ModuleType
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

import mixad
from mixad import special
from mixad.broadcast.stages import STAGES

EVERYWHERE = [stage for stage in STAGES if stage not in ("ptx", "sass")]
"""Those that need nothing installed; tests/cuda has the others."""

X = np.asarray([1.0, 2.0, 3.0])


@mixad.broadcast
def cell(z, c, f):
    if z > 0:
        return special.sigmoid(f) * c
    return c


@mixad.broadcast
def polar(r, t):
    return r * math.cos(t), r * math.sin(t)


def test_program_shows_the_users_lines() -> None:
    text = cell.source(X, X, X, stage="program")
    assert "program cell(%0 z: f64 lane, %1 c: f64 lane, %2 f: f64 lane)" in text
    assert "# " in text
    assert "special.sigmoid(f) * c" in text


def test_every_stage_has_a_text() -> None:
    texts = {stage: cell.source(X, X, X, stage=stage) for stage in EVERYWHERE}
    assert len(set(texts.values())) == len(EVERYWHERE)
    assert "define void @" in texts["llvm"]
    assert ".globl" in texts["asm"]
    assert "cotangent" in texts["pullback"]


def test_results_are_named() -> None:
    assert polar.source(X, X, stage="pushforward").splitlines()[0] == (
        "# returns output 0, output 1, d(output 0)/d(r), d(output 0)/d(t), "
        "d(output 1)/d(r), d(output 1)/d(t)"
    )
    assert polar.source(X, X, stage="pullback").splitlines()[0] == (
        "# returns output 0, output 1, gradient of r, gradient of t"
    )


def test_what_is_zero_is_not_returned() -> None:
    first = cell.source(X, X, X, stage="pullback").splitlines()[0]
    assert first == "# returns output 0, gradient of c, gradient of f"


def test_passes_are_shown_one_by_one() -> None:
    chunked = polar.with_options(chunk=1)
    for stage, of_t in (("pushforward", "d(output 0)/d(t)"), ("pullback", "gradient of t")):
        one, two = chunked.source(X, X, stage=stage).split("\n\n")
        assert of_t not in one
        assert of_t in two.splitlines()[0]


@pytest.mark.rows("stage", EVERYWHERE)
def test_there_is_a_text_where_nothing_is_differentiated(stage: str) -> None:
    for kernel in (cell, cell.with_options(placement="forward")):
        assert "special.sigmoid(f) * c" in kernel.source(X, X, X, stage=stage, wrt=())


def test_source_is_that_of_the_types_given() -> None:
    assert "f32" in cell.source(*np.ones((3, 2), np.float32))
    assert "f32" not in cell.source(*np.ones((3, 2)))


@pytest.mark.parametrize("stage", ["spirv", "", None, 3, ["llvm"]])
def test_unknown_stage_names_those_that_exist(stage: Any) -> None:
    message = rf"stage must be one of 'program', .*'sass', not {re.escape(repr(stage))}"
    with pytest.raises(ValueError, match=message):
        cell.source(X, X, X, stage=stage)


def test_stage_that_a_backend_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="'reference' has no stage 'asm'"):
        cell.with_options(backend="reference").source(X, X, X, stage="asm")


# -- the user's lines --------------------------------------------------------------------------

PLAIN = """\
def kernel(x, y):
    a = x * y
    b = a + x
    c = b - y
    if c > 0:
        c = c * x
    return c * 2.0
"""

HOSTILE = (
    r"ends in a backslash \ ".rstrip(),
    r"*/ ends a comment, /* begins one, // and ; and # too",
    r"'''  \"\"\"  \n \x00 \u2028 %d {x} $x `x`",
    "naïve ∂σ/∂x 数 🙂",
    "form feed \x0c, tab \t, escape \x1b[31m, bell \x07",
    "next line \x85, line separator \u2028, paragraph separator \u2029",
    "right to left \u202e, zero width \u200b, private \ue000",
    "define void @mixad_kernel() { ret void }",
    '.globl mixad_kernel # 1 "file"',
)


def module_of(text: str, folder: Path) -> ModuleType:
    path = folder / f"module_{len(list(folder.iterdir()))}.py"
    path.write_text(f"import mixad\n\n\n@mixad.broadcast\n{text}", encoding="utf-8", newline="")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_comments(comments: tuple[str, ...]) -> str:
    first, *lines = PLAIN.splitlines()
    commented = (f"{a}  # {c}" for a, c in zip(lines, itertools.cycle(comments), strict=False))
    return "\n".join([first, *commented, ""])


def without_comments(text: str) -> list[str]:
    return [s for s in text.split("\n") if not s.lstrip().startswith(("#", ";", "//"))]


@pytest.mark.parametrize("comments", [(c,) for c in HOSTILE] + [HOSTILE, HOSTILE[::-1]])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("placement", ["reverse", "forward"])
def test_hostile_lines_stay_in_comments_of_one_line(
    comments: tuple[str, ...], backend: str, placement: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"backend": backend, "placement": placement}
    hostile, plain = (
        module_of(text, tmp_path).kernel.with_options(**options)
        for text in (with_comments(comments), PLAIN)
    )
    for stage in EVERYWHERE if backend == "cpu" else [s for s in EVERYWHERE if s != "asm"]:
        text = hostile.source(X, X, stage=stage)
        assert text.splitlines() == text.split("\n")
        assert text.replace("\n", "").replace("\t", "").isprintable()
        assert without_comments(text) == without_comments(plain.source(X, X, stage=stage))
        if (stage, placement) != ("pullback", "forward"):  # a contraction only
            for number in (6, 7, 8, 9, 10, 11):
                assert re.search(rf"^\s*(?:[#;]|//) {number}: ", text, re.M), (stage, number)
        if stage == "cuda" or (stage in ("llvm", "asm") and backend == "cpu"):
            assert text.isascii()
    np.testing.assert_array_equal(hostile(X, X + 1), plain(X, X + 1))


@pytest.mark.parametrize("placement", ["reverse", "forward"])
def test_llvm_reads_what_the_users_lines_stand_in(placement: Any, tmp_path: Path) -> None:
    kernel = module_of(with_comments(HOSTILE), tmp_path).kernel.with_options(placement=placement)
    for text in kernel.source(X, X, stage="llvm").split("\n\n"):
        llvm.parse_assembly(text).verify()


def test_lines_of_continued_statements_and_docstrings(tmp_path: Path) -> None:
    text = '''\
def kernel(x, y):
    """A docstring of
    two lines, with */ and \\\\ in it."""
    a = x * \\
        y
    return (a
            + 1.0)  # "
'''
    kernel = module_of(text, tmp_path).kernel
    np.testing.assert_array_equal(kernel(X, X), X * X + 1)
    for stage in EVERYWHERE:
        shown = kernel.source(X, X, stage=stage)
        assert shown.splitlines() == shown.split("\n")
        assert re.search(r"^\s*(?:[#;]|//) 8: a = x \* \\", shown, re.M)
        assert "docstring" not in shown


@pytest.mark.rows("stage", EVERYWHERE)
def test_equal_functions_have_texts_of_their_own(stage: str) -> None:
    @mixad.broadcast
    def one(x, y):
        first = x * y
        return first + x

    @mixad.broadcast
    def other(u, v):
        second = u * v
        return second + u

    shown = [f.source(X, X, stage=stage) for f in (one, other)]
    for text, name, foreign in zip(shown, ("first", "second"), ("second", "first"), strict=True):
        assert f"{name} = " in text
        assert foreign not in text
