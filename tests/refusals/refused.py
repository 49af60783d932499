'''Cases that are refused, each below the text of its refusal.

    @refused("""
    TracerError: what is wrong: what to do
      File "...", line 2, column 12
    """)
    def refuse_something():
        mixad.grad(...)

A case's lines are counted from its `def`, a helper's from the helper's, which is named; ``...``
stands for the file.  So a text depends on its case and nothing else in the file.
'''

from __future__ import annotations

import ast
import importlib
import os
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["FILES", "Case", "cases", "message", "refused", "store"]


class Case(NamedTuple):
    """A function that is refused, or that calls what is."""

    function: Any
    text: str

    @property
    def name(self) -> str:
        return self.function.__name__.removeprefix("refuse_")

    @property
    def is_kernel(self) -> bool:
        return self.path.stem.startswith("kernels_")

    @property
    def path(self) -> Path:
        return Path(self.function.__code__.co_filename)


HERE = Path(__file__).parent
FILES = sorted(p.stem for kind in ("calls", "kernels") for p in HERE.glob(f"{kind}_*.py"))
WIDTH = 100


@cache
def cases() -> list[Case]:
    """Return all cases, in the order of the files."""
    modules = [importlib.import_module(file) for file in FILES]
    values = [value for module in modules for value in vars(module).values()]
    return [Case(v, v.refusal) for v in values if hasattr(v, "refusal")]


def refused(text: str) -> Callable[[Any], Any]:
    """Say with which text a function is refused."""

    def mark(function: Any) -> Any:
        function.refusal = text.strip("\n")
        return function

    return mark


# -- texts -----------------------------------------------------------------------------------------


def message(case: Case, error: BaseException) -> str:
    """Return what an error says, with lines counted from the definitions they are in."""
    folder = re.escape(str(HERE) + os.sep)

    def count(found: re.Match[str]) -> str:
        path, between, lines = found.groups()
        in_file = partial(_count, case, case.path if path is None else HERE / path)
        return f"{'' if path is None else '...' + between}line {re.sub(r'[0-9]+', in_file, lines)}"

    text = f"{type(error).__name__}: {error}"
    text = re.sub(rf'(?:{folder}(\w+\.py)("?, )|\b)line (\d+(?: or \d+)*)', count, text)
    return text.replace(f"{case.function.__module__}.", "")


def _count(case: Case, path: Path, number: re.Match[str]) -> str:
    """Return a line of a file, counted from the definition it is in; decorators are its line 1."""
    line = int(number[0])
    for node in _definitions(path):
        decorators = getattr(node, "decorator_list", ())
        if min([d.lineno for d in decorators], default=node.lineno) <= line <= node.end_lineno:
            of = "" if _name(node) == case.function.__name__ else f" of {_name(node)}"
            return f"{max(line - node.lineno, 0) + 1}{of}"
    return str(line)


@cache
def _definitions(path: Path) -> list[Any]:
    """Return the statements of a file that define a name."""
    return [node for node in ast.parse(path.read_text("utf-8")).body if _name(node)]


def _name(node: Any) -> str | None:
    names = [n.id for n in getattr(node, "targets", ()) if isinstance(n, ast.Name)]
    return getattr(node, "name", None) or next(iter(names), None)


# -- files -----------------------------------------------------------------------------------------


def store(path: Path, texts: dict[str, str]) -> None:
    """Write texts above the cases of a file, and change nothing else."""
    lines = path.read_bytes().splitlines(keepends=True)
    for node in reversed(ast.parse(b"".join(lines)).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in texts:
            text = _literal_of(node)
            first, last = text.lineno - 1, (text.end_lineno or 0) - 1
            before, after = lines[first][: text.col_offset], lines[last][text.end_col_offset :]
            lines[first : last + 1] = [before + literal(texts[node.name]).encode() + after]
    path.write_bytes(b"".join(lines))


def _literal_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr:
    (call,) = (d for d in node.decorator_list if isinstance(d, ast.Call) and d.args)
    return call.args[0]


def literal(text: str) -> str:
    """Return the source of a text: long lines go on after a backslash."""
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "\n".join(['"""', *map(_wrapped, escaped.split("\n")), '"""'])


def _wrapped(line: str) -> str:
    parts = []
    while len(line) > WIDTH:
        cut = line.rfind(" ", 1, WIDTH - 1) + 1 or WIDTH - 1
        parts.append(line[:cut])
        line = line[cut:]
    return "\\\n".join([*parts, line])
