"""What the tape's tests share: a count of kernel calls, and programs built by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mixad.backends.execute import Kernel
from mixad.scalar.build import Builder
from mixad.scalar.ir import Program
from mixad.scalar.types import F64
from mixad.tape import states
from mixad.tape.strand_plan import _PlanMaker
from mixad.transforms import (
    forward,
    gradients,
    jacobians,
    kept_calls,
    recorded_values,
    strand_calls,
    strand_history,
)


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The kernels launched so far, called or prepared for a plan: (passes, requests) of each."""
    made: list[Any] = []
    call, prepare = Kernel.__call__, _PlanMaker._prepared

    def counted(self: Kernel, arguments: Any, backend: Any = None) -> Any:
        made.append((self.passes, self.requests))
        return call(self, arguments, backend)

    def prepared(self: _PlanMaker, kernel: Kernel, arrays: Any, options: Any) -> Any:
        found = prepare(self, kernel, arrays, options)
        if found is not None:
            made.append((kernel.passes, kernel.requests))
        return found

    monkeypatch.setattr(Kernel, "__call__", counted)
    monkeypatch.setattr(_PlanMaker, "_prepared", prepared)
    return made


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without known recordings, and open strands whatever was left before."""
    states.forget()
    monkeypatch.setattr(strand_history, "_HISTORIES", {})


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give no strands: all is done on nodes, as what strands do not know is."""
    for module in (gradients, forward, jacobians, kept_calls, recorded_values):
        monkeypatch.setattr(module, "open_strand", lambda *given: None)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The kinds of calls that were computed without nodes, by plans or by what is around."""
    found: list[type] = []
    run = strand_calls.StrandCall.run

    def counted(self: Any) -> Any:
        is_first = self._plan is None and type(self) is strand_calls.StrandCall
        if not is_first or self._strand.ends:
            found.append(type(self))
        return run(self)

    monkeypatch.setattr(strand_calls.StrandCall, "run", counted)
    return found


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The strands that were opened."""
    found: list[Any] = []
    original = strand_calls.StrandCall.__init__

    def counted(self: Any, *args: Any) -> None:
        found.append(self)
        original(self, *args)

    monkeypatch.setattr(strand_calls.StrandCall, "__init__", counted)
    return found


def program(
    build: Callable[..., Any], *, count: int, types: Any = None, name: str = "f"
) -> Program:
    """Return the program that ``build(builder, *params)`` adds to a builder."""
    builder = Builder(name)
    types = types or (F64,) * count
    params = [builder.param(f"x{i}", t) for i, t in enumerate(types)]
    results = build(builder, *params)
    return builder.finish(results if isinstance(results, (list, tuple)) else [results])
