"""Every message that refuses what users do is met by a stored case."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import refused

import mixad

ROOT = Path(mixad.__file__).parent
REFUSING = {"error", "type_error", "at"}
ERRORS = ("Kernel", "TracerError", "NoRuleError", "BackendError", "ConfigurationError")
PLAIN = ("ValueError", "TypeError", "IndexError")
OF_PLAIN = {"broadcast.py", "with_respect_to.py", "stages.py", "module.py"}
"""Modules whose plain errors are of mixad's own interface, and are stored as well.

Elsewhere plain errors are those of the library whose function is called (what NumPy or torch would
raise of an axis, a shape or an option; `tests/namespace` compares their classes), or guards of
programs and kernels that users do not make.
"""


def messages(tree: ast.AST, errors: tuple[str, ...]) -> Iterator[ast.expr]:
    """Yield the texts of a module that say why something is refused."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) in REFUSING:
            yield from [a for a in node.args if is_text(a)][:1]
        elif isinstance(node, ast.Call) and name_of(node.func).startswith(errors):
            yield from [a for a in node.args[:1] if is_text(a)]
        elif isinstance(node, ast.Return | ast.Dict | ast.BoolOp | ast.Assign):
            yield from of_pairs(node)


def of_pairs(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the messages of pairs of message and hint, in tables and results."""
    if isinstance(node, ast.Assign):
        names = [name_of(t) for t in node.targets]
        found = [node.value] if names == ["message"] or names == ["what"] else []
    else:
        values = getattr(node, "values", None) or [getattr(node, "value", None)]
        pairs = [v for v in values if isinstance(v, ast.Tuple) and len(v.elts) == 2]
        found = [p.elts[0] for p in pairs if is_text(p.elts[1]) or isinstance(p.elts[1], ast.Name)]
    yield from (f for f in found if is_text(f))


def name_of(node: ast.AST) -> str:
    return getattr(node, "attr", None) or getattr(node, "id", "")


def is_text(node: ast.AST) -> bool:
    """Whether an expression is a text of several words."""
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value
    )


def words(node: ast.expr) -> int:
    """Count the words of a message that are the same in all cases."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return sum(len(re.findall(r"[a-z]+", p.value)) for p in parts if isinstance(p, ast.Constant))


def pattern(node: ast.expr) -> str:
    """Return what finds a message, whatever its values are."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    return "".join(re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in parts)


FOLDERS = (
    ".",
    "scalar",
    "scalar/parse",
    "scalar/parse/values",
    "tape",
    "namespace",
    "backends",
    "backends/chunked",
    "constructs",
)

ELSEWHERE = {
    "does not compute the gradient of the array": "tests/broadcast/test_gathers.py: of plugins",
    "does not combine elements by an operator": "tests/cuda/test_cuda_constructs.py, the same",
    "is compiled for": "a guard of kernels that plugins call",
    "does not write parts of larger arrays": "a guard of requests: no such backend is asked",
    "does not store results side by side": "the same",
    "an index is outside an array": "what is said where the interpreter finds another element",
    "stands for a tensor that is not there yet": "needs the plugin mixad-torch",
    "would be silently detached: pass plain arrays": "tests/test_libraries.py, with JAX, autograd",
    "a JAX array that lies on": "tests/backends/test_jax_arrays.py, with two devices",
    "is given no array: pass scalars": "needs a device",
    "holds an integer that does not fit": "tests/broadcast/test_captured_numbers.py, at a call",
    "arrays of other shapes in another step": "what the trial of a function's shapes cannot tell",
    "was recorded to give": "a guard of steps whose shapes or types were foreseen wrongly",
    "a Cubed array whose specification is not the default": "tests/test_cubed.py",
    "as indices would be computed": "tests/test_cubed.py",
    "of an integration": "tests/test_registry.py: it is told as a warning",
}
"""Messages that need what is not installed here, or that guard what users do not reach."""


OF_TOOLS = {"nvrtc.py", "disassembler.py"}
"""Modules that say which tool of the CUDA toolkit is missing or fails, and show what it says."""


def sites() -> Iterator[tuple[str, ast.expr]]:
    paths = {path for folder in FOLDERS for path in (ROOT / folder).glob("*.py")}
    for path in sorted(path for path in paths if path.name not in OF_TOOLS):
        errors = (*ERRORS, *PLAIN) if path.name in OF_PLAIN else ERRORS
        for message in messages(ast.parse(path.read_text()), errors):
            is_here = not any(part in ast.unparse(message) for part in ELSEWHERE)
            if words(message) > 1 and is_here:  # others are Python's own messages, or made of one
                yield f"{path.name}:{message.lineno}", message


@pytest.mark.rows(("where", "message"), lambda: list(sites()))
def test_every_refusal_is_met_by_a_stored_case(where: str, message: ast.expr) -> None:
    texts = (case.text for case in refused.cases())
    assert any(re.search(f": {pattern(message)}", text) for text in texts), ast.unparse(message)
