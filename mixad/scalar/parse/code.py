"""Finding the syntax tree of a function, and proving that it is the function's.

The file's text may not be what the running function was compiled from: it may have been edited
since.  So the text found is compiled again, and only a function whose code object is equal to the
running one's is accepted.
"""

from __future__ import annotations
import __future__

import ast
import dis
import inspect
import linecache
import sys
import threading
import warnings
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from types import CodeType
from typing import NamedTuple

from mixad.errors import KernelSyntaxError
from mixad.fork_locks import lock_of
from mixad.scalar.parse.text import SourceText

__all__ = ["FoundFunction", "FunctionNode", "SentCode", "compile_sent", "find_function",
           "globals_read", "same_code", "text_around"]  # fmt: skip

FunctionNode = ast.FunctionDef | ast.Lambda

_FUTURE_FLAGS = 0
for _name in __future__.all_feature_names:
    _FUTURE_FLAGS |= int(getattr(__future__, _name).compiler_flag)

_COMPARED = ("co_code", "co_name", "co_qualname", "co_names", "co_varnames", "co_freevars",
             "co_cellvars", "co_argcount", "co_posonlyargcount", "co_kwonlyargcount", "co_flags",
             "co_exceptiontable")  # fmt: skip

_warnings_lock = lock_of(sys.modules[__name__], "_warnings_lock", threading.RLock)
"""Held while warnings are off, which they are for the whole process.

Reentrant, because a signal's handler may run a kernel wherever it interrupts.
"""


@dataclass(frozen=True, eq=False)
class FoundFunction:
    """A function's syntax tree, and the name of the class around it (for private names)."""

    node: FunctionNode
    text: SourceText
    inside: str | None


def find_function(code: CodeType) -> FoundFunction:
    """Return the syntax tree that a code object was compiled from.

    KernelSyntaxError if there is no source text, or it is not what the code was compiled from.
    """
    _refuse_coroutine(code)
    received = _find_in_received(code)
    if received is not None:
        return received
    linecache.checkcache(code.co_filename)
    text = "".join(linecache.getlines(code.co_filename))
    if not text:
        raise _without_source(code)
    source = SourceText(code.co_filename, tuple(text.split("\n")))
    with _warnings_lock:
        # Python warned of the text when it compiled it first (of `"\\d"`, `~True`); that is enough.
        # Where the warning was an error then, `~True` was not folded to a number.
        for action in ("ignore", "error"):
            with warnings.catch_warnings(action=action):
                found = _found_nearby(source, code)
            if found is not None:
                return found
        with warnings.catch_warnings(action="ignore"):
            return _found_in_file(text, source, code)


class SentCode(NamedTuple):
    """Where a code object is found in source text that goes to another process."""

    filename: str  # the user's
    skipped: int  # lines before the text
    text: str  # statements of a module
    flags: int  # what ``from __future__`` changed
    name: str  # the code's qualified name
    number: int  # which it is of those with that name, such as lambdas


def text_around(code: CodeType, source: SourceText) -> SentCode:
    """Return the least text that has some code, of the file in which it was found."""
    padded = next(text for text in _texts_around(source.lines, code) if _has(text, source, code))
    text = padded.lstrip("\n")
    flags = code.co_flags & _FUTURE_FLAGS
    sent = SentCode(code.co_filename, len(padded) - len(text), text, flags, code.co_qualname, 0)
    positions, codes = list(code.co_positions()), _codes_of(sent)
    equal = [i for i, c in enumerate(codes) if same_code(c, code)]
    equal.sort(key=lambda i: list(codes[i].co_positions()) != positions)
    return sent._replace(number=equal[0])


def _texts_around(lines: Sequence[str], code: CodeType) -> Iterator[str]:
    """Yield texts of a file with ever more of it, each line at its place."""
    yield _statement_text(lines, code)
    with suppress(SyntaxError):
        body = _parse_text("\n".join(lines)).body
        # CPython calls functions of modules that are imported in the text otherwise than methods.
        imports = [s for s in body if isinstance(s, ast.Import | ast.ImportFrom)]
        kept = [""] * len(lines)
        for statement in (*imports, *_statement_around(body, code.co_firstlineno)):
            at = slice(_first_line(statement) - 1, statement.end_lineno)
            kept[at] = lines[at]
        yield "\n".join(kept).rstrip("\n")
    yield "\n".join(lines)


def _has(text: str, source: SourceText, code: CodeType) -> bool:
    try:
        return _find_in(ast.parse(text).body, source, code) is not None
    except SyntaxError:
        return False


@lru_cache(maxsize=1024)
def compile_sent(sent: SentCode) -> CodeType:
    """Return code from another process; the parser finds its text as long as the code lives."""
    code = _codes_of(sent)[sent.number]
    lines = tuple(_pad_text(sent).split("\n"))
    source = _RECEIVED.get(_mark(code))
    if source is None or source.lines != lines:
        source = SourceText(sent.filename, lines)
    for each in _all_codes(sent):  # others may have made one: cloudpickle the methods of a class
        _RECEIVED[_mark(each)] = _RECEIVED[_OF_CLOUDPICKLE, hash(each)] = source
    weakref.finalize(code, id, source).atexit = False  # holds the text
    return code


_RECEIVED: weakref.WeakValueDictionary[tuple[str, int], SourceText] = weakref.WeakValueDictionary()
"""Texts from other processes, by the marks of the code objects in them."""


_OF_CLOUDPICKLE = "<dynamic-code>"
"""What it says is the file of code that it makes, from 3.1.3 on."""


def _mark(code: CodeType) -> tuple[str, int]:
    """Return what equal code objects of one file share; it holds none of them."""
    return code.co_filename, hash(code)


def _pad_text(sent: SentCode) -> str:
    return "\n" * sent.skipped + sent.text


def _all_codes(sent: SentCode) -> Iterator[CodeType]:
    flags = sent.flags
    return _nested_codes(
        compile(_pad_text(sent), sent.filename, "exec", flags=flags, dont_inherit=True)
    )


def _codes_of(sent: SentCode) -> list[CodeType]:
    """Return the code objects with a qualified name."""
    return [c for c in _all_codes(sent) if c.co_qualname == sent.name]


def _find_in_received(code: CodeType) -> FoundFunction | None:
    """Find a function in the text that came with it from another process."""
    source = _RECEIVED.get(_mark(code))
    if source is None:
        return None
    return _find_in(ast.parse("\n".join(source.lines)).body, source, code)


def _found_nearby(source: SourceText, code: CodeType) -> FoundFunction | None:
    """Find a function where it should be: parsing a whole file takes 10 µs a line."""
    try:
        module = ast.parse(_statement_text(source.lines, code))
        return _find_in(module.body, source, code)
    except SyntaxError:
        return None


def _statement_text(lines: Sequence[str], code: CodeType) -> str:
    """Return what seems to be the module's statement around some code, at its place in the file.

    Lines of a string may look like statements; what is made of them does not parse, or has no such
    function.
    """
    first = min(code.co_firstlineno, len(lines)) - 1
    end = max((line for *_, line in code.co_lines() if line), default=first + 1)
    while first > 0 and not _begins_statement(lines[first]):
        first -= 1
    while end < len(lines) and not _begins_statement(lines[end]):
        end += 1
    return "\n" * first + "\n".join(lines[first:end])


def _begins_statement(line: str) -> bool:
    return line[:1] not in _NOT_FIRST


_NOT_FIRST = ("", *" \t\f#)]}")


def _found_in_file(text: str, source: SourceText, code: CodeType) -> FoundFunction:
    try:
        module = _parse_text(text)
    except SyntaxError:
        raise _edited_error(code) from None
    found = _find_in(_statement_around(module.body, code.co_firstlineno), source, code)
    found = found or _find_in(module.body, source, code)
    if found is None:
        raise _with_assert(module, source, code) or _edited_error(code)
    return found


def _refuse_coroutine(code: CodeType) -> None:
    if code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise KernelSyntaxError(
            f"{_describe_code(code)} is a coroutine (`async def`), defined in {code.co_filename}, "
            f"line {code.co_firstlineno}: a kernel computes numbers and waits for nothing",
            hint="write `def`",
        )


def _with_assert(
    module: ast.Module, source: SourceText, code: CodeType
) -> KernelSyntaxError | None:
    """Return the refusal of an `assert`: pytest rewrites them, so the codes differ."""
    for node, _ in _functions(module, None):
        if _may_be(node, code):
            for part in ast.walk(node):
                if isinstance(part, ast.Assert):
                    return KernelSyntaxError.at(
                        source.locate(part),
                        "`assert` cannot stop a kernel",
                        "check the arrays before the call",
                    )
    return None


@lru_cache(maxsize=8)
def _parse_text(text: str) -> ast.Module:
    return ast.parse(text)


def _describe_code(code: CodeType) -> str:
    return "this lambda" if code.co_name == "<lambda>" else f"function {code.co_name!r}"


def _without_source(code: CodeType) -> KernelSyntaxError:
    return KernelSyntaxError(
        f"the source of {_describe_code(code)} is not available "
        f"(it was defined in {code.co_filename})",
        hint="define it in a file or a notebook cell",
    )


def _edited_error(code: CodeType) -> KernelSyntaxError:
    if code.co_filename == "<string>":  # what `exec` is given, for which 3.13 has the text of `-c`
        return _without_source(code)
    return KernelSyntaxError(
        f"the source of {_describe_code(code)} in {code.co_filename}, line {code.co_firstlineno}, "
        "is not what it was compiled from: the file was edited since it was imported",
        hint="reload the module, or restart Python",
    )


def _statement_around(body: Sequence[ast.stmt], line: int) -> list[ast.stmt]:
    """Return the module's statement that covers a line (a list of one, or none)."""
    return [s for s in body if _first_line(s) <= line <= (s.end_lineno or s.lineno)]


def _first_line(statement: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(d.lineno for d in decorators)])


def _find_in(
    statements: list[ast.stmt], source: SourceText, code: CodeType
) -> FoundFunction | None:
    """Compile statements of a module and return the function whose code is ``code``."""
    part = ast.Module(statements, [])
    flags = code.co_flags & _FUTURE_FLAGS
    compiled = compile(part, code.co_filename, "exec", flags=flags, dont_inherit=True)
    equal = [c for c in _nested_codes(compiled) if same_code(c, code)]
    equal.sort(key=lambda c: list(c.co_positions()) != list(code.co_positions()))
    for candidate in equal:
        found = _node_of(candidate, part, source)
        if found is not None:
            return found
    return None


def _nested_codes(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested_codes(constant)


@lru_cache(maxsize=1024)
def globals_read(code: CodeType) -> tuple[str, ...]:
    """Return the global names that code reads, with the functions and classes inside it."""
    loads = ("LOAD_GLOBAL", "LOAD_NAME")
    found = [i.argval for i in dis.get_instructions(code) if i.opname in loads]
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return tuple(dict.fromkeys([*found, *chain.from_iterable(map(globals_read, inner))]))


def same_code(a: CodeType, b: CodeType) -> bool:
    """Whether two code objects do the same; where in a file they stand does not matter."""
    if any(getattr(a, name) != getattr(b, name) for name in _COMPARED):
        return False
    return len(a.co_consts) == len(b.co_consts) and all(
        map(_same_constant, a.co_consts, b.co_consts)
    )


def _same_constant(a: object, b: object) -> bool:
    """Equal in type and value; ``repr`` tells 0.0 from -0.0, and nan from other numbers."""
    if isinstance(a, CodeType) and isinstance(b, CodeType):
        return same_code(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, frozenset):
        return a == b
    return repr(a) == repr(b)


def _node_of(code: CodeType, part: ast.Module, source: SourceText) -> FoundFunction | None:
    """Return the node of a code object that was compiled from ``part``."""
    candidates = [(node, inside) for node, inside in _functions(part, None) if _may_be(node, code)]
    if not any(_spans(code)):
        candidates = [c for c in candidates if _has_the_parts_of(code, c[0])]
    if not candidates:
        return None
    node, inside = min(candidates, key=lambda c: _extent(c[0]))
    return FoundFunction(node, source, inside)


def _functions(node: ast.AST, inside: str | None) -> Iterator[tuple[FunctionNode, str | None]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, FunctionNode):
            yield child, inside
        name = child.name if isinstance(child, ast.ClassDef) else inside
        yield from _functions(child, name)


def _may_be(node: FunctionNode, code: CodeType) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name == code.co_name and _first_line(node) == code.co_firstlineno
    if code.co_name != "<lambda>" or node.lineno != code.co_firstlineno:
        return False
    end = (node.end_lineno or node.lineno, node.end_col_offset or 0)
    return all(
        (node.lineno, node.col_offset) <= first and last <= end for first, last in _spans(code)
    )


def _has_the_parts_of(code: CodeType, node: FunctionNode) -> bool:
    """Whether a function alone compiles to some code; Python 3.12 places no constant results."""
    if isinstance(node, ast.FunctionDef):
        return True
    alone = compile(ast.Expression(node), code.co_filename, "eval", dont_inherit=True)
    parts = ("co_code", "co_varnames", "co_argcount", "co_posonlyargcount", "co_consts")
    return any(
        all(repr(getattr(found, part)) == repr(getattr(code, part)) for part in parts)
        for found in _nested_codes(alone)
    )


def _spans(code: CodeType) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield the (line, column) spans of a code object's instructions, where they are known."""
    for line, end_line, column, end_column in code.co_positions():
        if line and end_line and column is not None and end_column:
            yield (line, column), (end_line, end_column)


def _extent(node: FunctionNode) -> tuple[int, int]:
    lines = (node.end_lineno or 0) - node.lineno
    return lines, (node.end_col_offset or 0) - (0 if lines else node.col_offset)
