"""What cannot be compiled, and what to write instead."""

from __future__ import annotations

import ast

from mixad.errors import KernelSyntaxError
from mixad.scalar.parse.code import FunctionNode
from mixad.scalar.parse.names import body_of, walk_scope
from mixad.scalar.parse.text import SourceText

__all__ = ["REFUSALS", "check_constructs", "refusal"]

REFUSALS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Assert: ("`assert` cannot stop a kernel", "check the arrays before the call"),
    ast.Raise: (
        "a kernel cannot raise exceptions",
        "return math.nan, or check the arrays before the call",
    ),
    ast.Try: (
        "`try` has no meaning in a kernel: arithmetic never raises, x / 0 is inf",
        "test with `if`",
    ),
    ast.With: ("`with` is not supported in a kernel", "put it around the call"),
    ast.Global: ("a kernel cannot assign global names", "return the value"),
    ast.Nonlocal: ("a kernel cannot assign names of an outer function", "return the value"),
    ast.Import: ("`import` is not supported in a kernel", "import at the top of the file"),
    ast.ImportFrom: ("`import` is not supported in a kernel", "import at the top of the file"),
    ast.ClassDef: ("classes cannot be defined in a kernel", "define it outside"),
    ast.Delete: ("`del` is not supported in a kernel", "leave the name: it costs nothing"),
    ast.Match: ("`match` is not supported in a kernel", "use `if` and `elif`"),
    ast.AsyncFunctionDef: ("coroutines are not supported in a kernel", "write `def`"),
    ast.AsyncFor: ("coroutines are not supported in a kernel", "write `for`"),
    ast.AsyncWith: ("coroutines are not supported in a kernel", "put it around the call"),
    ast.Await: ("coroutines are not supported in a kernel", "wait before the call"),
    ast.Yield: ("generators are not supported in a kernel", "return a tuple"),
    ast.YieldFrom: ("generators are not supported in a kernel", "return a tuple"),
    ast.Dict: ("dictionaries are not supported in a kernel", "use names, or a tuple"),
    ast.Set: ("sets are not supported in a kernel", "use a tuple"),
    ast.ListComp: ("comprehensions are not supported in a kernel", "use a `for` loop"),
    ast.SetComp: ("comprehensions are not supported in a kernel", "use a `for` loop"),
    ast.DictComp: ("comprehensions are not supported in a kernel", "use a `for` loop"),
    ast.GeneratorExp: ("generators are not supported here", "use a `for` loop"),
    ast.JoinedStr: ("strings are not made in a kernel", "leave it out, or return the number"),
    ast.NamedExpr: ("`:=` is not supported in a kernel", "assign on a line of its own"),
    ast.Starred: ("`*` is not supported here", "write the items out"),
    ast.Slice: ("slices work on tuples with constant bounds only", "index one item after another"),
    ast.Attribute: (
        "a kernel works on numbers: they have no attributes and methods",
        "use functions and operators",
    ),
    ast.MatMult: ("`@` works on arrays, a kernel on their elements", "write a * b"),
}


_ATTRIBUTE_OF_RESULT = "a function of numbers; what classes share, in a function outside them"

# These are refused only where they are met: elsewhere they are fine.
_SOMETIMES = (ast.Starred, ast.Slice, ast.Attribute, ast.MatMult)


def check_constructs(node: FunctionNode, text: SourceText) -> None:
    """Refuse the first construct in a function's own scope that can never be compiled."""
    for part in walk_scope(body_of(node)):
        if type(part) in REFUSALS and not isinstance(part, _SOMETIMES):
            assert isinstance(part, ast.stmt | ast.expr)
            raise KernelSyntaxError.at(text.locate(part), *refusal(part))


def refusal(node: ast.AST) -> tuple[str, str]:
    """Return the message and the hint for a construct that cannot be compiled."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call):
        return f"`{ast.unparse(node.value)}` has no attributes in a kernel", _ATTRIBUTE_OF_RESULT
    known = REFUSALS.get(type(node))
    return known or (f"{type(node).__name__} is not supported in a kernel", "write it otherwise")
