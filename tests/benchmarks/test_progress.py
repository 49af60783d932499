"""Bars of long work: where there are some, and that nothing depends on them."""

from __future__ import annotations

import importlib.util
import io
import sys

import pytest

from benchmarks.progress import progress, say


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(monkeypatch, stream, total=None):
    """Return what is written while three items are counted."""
    monkeypatch.setattr(sys, "stderr", stream)
    items = (n for n in range(3)) if total else range(3)
    assert [n for n in progress(items, "cases", total) if say(f"case {n}") is None] == [0, 1, 2]
    return stream.getvalue()


@pytest.mark.parametrize("total", [None, 3])
def test_a_terminal_shows_a_bar(monkeypatch, total):
    pytest.importorskip("tqdm")
    text = shown(monkeypatch, Terminal(), total)
    assert "cases: 100%" in text
    assert "3/3" in text
    lines = [line.rpartition("\r")[2] for line in text.split("\n")]
    assert {"case 0", "case 1", "case 2"} <= set(lines)


def test_nothing_but_lines_is_written_where_there_is_no_terminal(monkeypatch):
    assert shown(monkeypatch, io.StringIO()) == "case 0\ncase 1\ncase 2\n"


def test_nothing_but_lines_is_written_without_tqdm(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert shown(monkeypatch, Terminal(), 3) == "case 0\ncase 1\ncase 2\n"
