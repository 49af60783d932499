"""What is refused, in kernels and of transforms, arrays and backends, is refused with its text.

`MIXAD_UPDATE_EXPECTED=1 pytest tests/refusals` writes the texts anew, above the cases.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import refused
from parse_compiled import parsed

from mixad import special
from mixad.errors import (
    KernelError,
    KernelOverflowError,
    KernelSyntaxError,
    KernelTypeError,
    MixadError,
)
from mixad.scalar.ops import TABLE, Op
from mixad.scalar.parse.unsupported_calls import instead
from mixad.scalar.promotion_rules import NUMPY_RULES, STRICT_RULES
from mixad.scalar.types import F64

UPDATE = os.environ.get("MIXAD_UPDATE_EXPECTED") == "1"
NEEDED = {"torch": "torch", "dask": "dask", "jax": "jax"}
"""What cases need that have a word in their names."""
IN_KERNELS = re.compile(r"\n  Instead: ")
IN_CALLS = re.compile(
    r"\n  Instead: |must be (one of|None or)|is a return statement missing\?|"
    r"(?:[:;,] (?:or )?|\n  )(?:add|build|call|change|close over|convert|differentiate|give|"
    r"install|keep|leave|make|move|multiply|name|pass|record|reshape|return|run|say|scale|set|take|"
    r"unset|use|wrap|write)"
    r"\b"
)
"""An imperative after what is wrong; where one of a few values is allowed, their list."""


def refusal_of_kernel(case: refused.Case) -> BaseException:
    function = case.function
    parameters = inspect.signature(function).parameters.values()
    types = [
        F64 if p.annotation is p.empty else p.annotation
        for p in parameters
        if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    rules = STRICT_RULES if "strict" in function.__name__ else NUMPY_RULES
    with pytest.raises(KernelError) as caught:
        parsed(function, *types, rules=rules)
    assert isinstance(caught.value, KernelSyntaxError | KernelTypeError | KernelOverflowError)
    return caught.value


def refusal_of_call(case: refused.Case) -> BaseException:
    with pytest.raises((MixadError, AttributeError, ValueError, TypeError)) as caught:
        case.function()
    return caught.value


def missing(name: str) -> bool:
    """Whether a case needs what is not installed."""
    words = [module for word, module in NEEDED.items() if word in name]
    return any(importlib.util.find_spec(module) is None for module in words)


@pytest.fixture(scope="module")
def found() -> Iterator[dict[Path, dict[str, str]]]:
    """The texts that were met, by file and function; they are stored if that is asked for."""
    texts: dict[Path, dict[str, str]] = {}
    yield texts
    if UPDATE:
        for path in texts:
            refused.store(path, texts[path])


def cases_of(file: str) -> list[Any]:
    """Return the cases of a file, as rows."""
    return [
        pytest.param(
            case,
            id=case.name,
            marks=pytest.mark.skipif(missing(case.name), reason="it is not installed"),
        )
        for case in refused.cases()
        if case.path.stem == file
    ]


@pytest.mark.rows("case", lambda file: cases_of(file))
@pytest.mark.parametrize("file", refused.FILES)
def test_refusal_says_what_is_wrong_where_and_what_to_do(
    case: refused.Case, file: str, found: dict[Path, dict[str, str]]
) -> None:
    error = refusal_of_kernel(case) if case.is_kernel else refusal_of_call(case)
    text = refused.message(case, error)
    found.setdefault(case.path, {})[case.function.__name__] = text
    assert UPDATE or text == case.text


def test_every_refusal_has_a_way_out() -> None:
    without = [
        case.name
        for case in refused.cases()
        if not (IN_KERNELS if case.is_kernel else IN_CALLS).search(case.text)
    ]
    assert without == []


DEFINED = re.compile(r"^(?:async )?def (refuse_\w+)", re.MULTILINE)


def test_every_case_has_a_name_of_its_own() -> None:
    files = [(file, Path(refused.HERE, f"{file}.py").read_text("utf-8")) for file in refused.FILES]
    names = Counter((f, n) for f, text in files for n in DEFINED.findall(text))
    assert [name for name, count in names.items() if count > 1] == []
    assert len(names) == len(refused.cases())


TEXT = f'TypeError: """{" spaced" * 40}\n    return \\x\n  Instead: \'y\''
FILE = b'''def helper(x):\r\n    return "\xc3\xb6" + x


@refused("")
def refuse_first(x):
    return x


@refused("""
A: second
""")
def refuse_second(x): return x
'''


def test_a_text_is_stored_above_its_case_and_nothing_else_changes(tmp_path: Path) -> None:
    file = tmp_path / "calls_file.py"
    file.write_bytes(FILE)
    refused.store(file, {"refuse_first": TEXT})
    written = file.read_bytes()
    before, _, after = written.partition(refused.literal(TEXT).encode())
    assert before + b'""' + after == FILE
    assert ast.literal_eval(refused.literal(TEXT)).strip("\n") == TEXT
    refused.store(file, {"refuse_first": TEXT, "refuse_second": "A: second"})
    assert file.read_bytes() == written


def test_lines_are_counted_from_the_definition_they_are_in() -> None:
    (case,) = (c for c in refused.cases() if c.name == "helper_that_falls_off_the_end")
    first = case.function.__code__.co_firstlineno
    helper = case.function.__globals__["without_return"].__code__.co_firstlineno
    error = TypeError(f'File "{case.path}", line {first}, column 1, or line {helper + 1}')
    assert refused.message(case, error) == (
        'TypeError: File "...", line 1, column 1, or line 2 of without_return'
    )


def test_c_functions_have_no_source() -> None:
    with pytest.raises(KernelSyntaxError, match="not a Python function"):
        parsed(np.sin, F64)


@pytest.mark.rows("op", TABLE, ids=lambda op: op.name)
def test_a_function_named_like_an_op_is_pointed_to_one_that_exists(op: Op) -> None:
    hint = instead(type("Function", (), {"__name__": op.name})())
    if hint.startswith("mixad.special."):
        assert hint == f"mixad.special.{op.name}"
        assert op.name in special.__all__
    else:
        assert op.domain != "float" or not hasattr(special, op.name)
