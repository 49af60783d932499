"""What the tape's tests share: a count of kernel calls, and programs built by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mixad.scalar.build import Builder
from mixad.scalar.ir import Program
from mixad.scalar.types import F64
from mixad.tape import broadcast_node, cell


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernel calls made so far: (passes, requests) of each."""
    made: list[Any] = []
    execute = cell.execute

    def counted(passes: Any, requests: Any, arguments: Any, backend: Any = None) -> Any:
        made.append((passes, requests))
        return execute(passes, requests, arguments, backend)

    monkeypatch.setattr(cell, "execute", counted)
    monkeypatch.setattr(broadcast_node, "execute", counted)
    return made


def program(
    build: Callable[..., Any], *, count: int, types: Any = None, name: str = "f"
) -> Program:
    """Return the program that ``build(builder, *params)`` adds to a builder."""
    builder = Builder(name)
    types = types or (F64,) * count
    params = [builder.param(f"x{i}", t) for i, t in enumerate(types)]
    results = build(builder, *params)
    return builder.finish(results if isinstance(results, (list, tuple)) else [results])
