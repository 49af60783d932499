"""What is remembered has a bound: nothing grows with offsets, lengths, shapes, numbers, lambdas."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mixad
from mixad import grad
from mixad.backends import execute
from mixad.backends.cpu import compiler
from mixad.backends.cpu.backend import CpuBackend

LONG = np.random.default_rng(0).random(20000)
A = LONG[:10000].copy()
FIVE = A[:5].copy()
NUMBERS = A.tolist()
AT = np.zeros(5, int)
PAGE = 4096


@mixad.broadcast
def quadratic(x: Any, a: Any) -> Any:
    return x * x * a + x


def with_number(i: int) -> Any:
    c = 1.0 + i

    @mixad.broadcast
    def scaled(x: Any) -> Any:
        return x * c

    return grad(lambda x: scaled(x).sum())(FIVE)


def with_array(i: int) -> Any:
    c = A[:i].copy()

    @mixad.broadcast
    def scaled(x: Any, j: Any) -> Any:
        return x * c[j]

    return grad(lambda x: scaled(x, AT).sum())(FIVE)


def with_length(i: int) -> Any:
    c = A[:i].copy()

    @mixad.broadcast
    def scaled(x: Any, j: Any) -> Any:
        return x * c[j] + c.shape[0]

    return grad(lambda x: scaled(x, AT).sum())(FIVE)


def with_list(i: int) -> Any:
    c = NUMBERS[: 65 + 2 * i]

    @mixad.broadcast
    def scaled(x: Any, j: Any) -> Any:
        return x * c[j] + c[3]

    return grad(lambda x: scaled(x, AT).sum())(FIVE)


def with_tuple(i: int) -> Any:
    c = (1.0 + i, 2.0)

    @mixad.broadcast
    def scaled(x: Any) -> Any:
        return x * c[0] + c[1]

    return grad(lambda x: scaled(x).sum())(FIVE)


def rows(i: int) -> Any:
    return LONG[: 2 * i].reshape(2, i)


PATTERNS: dict[str, Callable[[int], Any]] = {
    "offsets": lambda i: grad(lambda A: (A[i : i + 5] * A[:5]).sum())(A),
    "squares of slices": lambda i: grad(lambda A: (A[i : i + 5] ** 2).sum())(A),
    "two parts": lambda i: grad(lambda A: np.concatenate([A[:i], A[i:] * 2]).sum())(A),
    "reshaped slices": lambda i: grad(lambda A: (rows_of(A, i) * rows_of(A, i)[:, :1]).sum())(LONG),
    "lengths": lambda i: grad(lambda A: (np.sin(A) * A).sum())(A[:i]),
    "shapes": lambda i: grad(lambda x: (np.sin(x) * x[:, :1]).sum())(rows(i)),
    "lambdas": lambda i: grad(lambda x: (np.sin(x) * x * i).sum())(FIVE),
    "numbers": with_number,
    "numbers in tuples": with_tuple,
    "arrays": with_array,
    "lengths of arrays": with_length,
    "lengths of lists": with_list,
    "both ends": lambda i: grad(lambda A: (A[-i:] * A[:i]).sum())(A),
    "steps": lambda i: grad(lambda A: (A[::i] ** 2).sum())(A),
    "columns": lambda i: grad(lambda x: (x[:, i - 1 : i + 1] * x[:, :1]).sum())(A.reshape(1, -1)),
    "padding": lambda i: grad(lambda x: (np.pad(x, (0, i)) ** 2).sum())(FIVE),
    "forward": lambda i: mixad.jvp(lambda A: np.sin(A[i : i + 7]), (A,), (A,)),
    "kernels": lambda i: grad(lambda A: quadratic(A[i : i + 3], float(i)).sum())(A),
    "kernels of lengths": lambda i: quadratic(A[:i], 2.0),
    "second derivatives": lambda i: grad(
        lambda A: (grad(lambda A: (A[i : i + 4] ** 3).sum())(A) ** 2).sum()
    )(A),
}  # fmt: skip


TURNS = dict.fromkeys(PATTERNS, (1000, 9990)) | {"lengths of lists": (300, 700)}
"""Between which turns memory is flat; lists, which are read number by number, take long."""


def rows_of(x: Any, i: int) -> Any:
    return x[: 2 * i].reshape(2, i)


@pytest.mark.slow
def test_a_new_offset_length_or_number_loads_no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    compiled, loaded = CpuBackend.compile, compiler.load_object

    def compile(self: Any, spec: Any) -> Any:
        made.append("compile")
        return compiled(self, spec)

    def load(*args: Any) -> Any:
        made.append("load")
        return loaded(*args)

    monkeypatch.setattr(CpuBackend, "compile", compile)
    monkeypatch.setattr(compiler, "load_object", load)
    wrong = []
    for name, run in PATTERNS.items():
        for i in (*range(2, 7), 600):
            run(i)
        before, launches = len(made), len(execute._LAUNCHES)
        for i in range(610, 640):
            run(i)
        if len(made) > before:
            wrong.append((name, made[before:]))
        if len(execute._LAUNCHES) > launches + 30 * 5:
            wrong.append((name, "launches", len(execute._LAUNCHES) - launches))
    assert not wrong


@pytest.mark.slow
def test_modules_are_as_many_as_kernels_that_differ() -> None:
    def modules() -> int:
        gc.collect()
        return sum(type(o) is compiler.Module for o in gc.get_objects())

    PATTERNS["offsets"](1)
    before = modules()
    for i in range(2, 60):
        PATTERNS["offsets"](i)
        PATTERNS["squares of slices"](i)
    assert modules() <= before + 4  # of either pattern two


def grown(name: str, first: int, last: int) -> float:
    """Return by how many MB the process is larger after the last turn of a pattern than before."""
    run = PATTERNS[name]
    for i in range(1, last + 1):
        run(i)
        if i == first:
            before = resident()
    return (resident() - before) / 1e6


def resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * PAGE


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize("name", PATTERNS)
def test_memory_is_flat_from_the_thousandth_to_the_ten_thousandth(name: str) -> None:
    command = [sys.executable, __file__, name, *map(str, TURNS[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert abs(float(done.stdout)) < 5.0


if __name__ == "__main__":
    print(grown(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))


@pytest.mark.slow
def test_classes_made_in_a_loop_are_let_go_of() -> None:
    product = mixad.broadcast(lambda p: p.a * p.b)
    made = []
    for _ in range(600):
        pair = namedtuple("pair", "a b")
        product(pair(FIVE, 2.0))
        made.append(weakref.ref(pair))
        del pair
    gc.collect()
    assert sum(kind() is not None for kind in made) < 300
