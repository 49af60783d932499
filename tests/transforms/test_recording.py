"""What `mixad.tape` shows: every operation that the value depends on, kernels as they fuse."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

import mixad
from mixad.errors import TracerError

X = np.asarray([0.5, -1.5, 2.0])


def program(x: Any, w: Any) -> Any:
    y = np.tanh(x * w) + 1.0
    y[0] = w[1]
    unused = np.exp(w)  # noqa: F841
    return {"loss": (y * y).sum(), "product": x @ w, "constant": 3.0}


def test_operations_come_after_what_they_read_and_kernels_are_fused() -> None:
    tape = mixad.tape(program)(X, X)
    for number, entry in enumerate(tape.entries):
        assert all(at < number for at in entry.reads)
    names = [entry.name for entry in tape.entries]
    assert names.count("input") == 2
    assert names.count("assignment") == 1
    assert names.count("matmul") == 1
    assert names.count("kernel") == 2
    first, second = (entry for entry in tape.entries if entry.name == "kernel")
    assert [len(re.findall(rf"= {op} ", first.program)) for op in ("mul", "tanh", "add")] == [1] * 3
    assert second.value == "f64[]"
    assert "exp" not in str(tape)
    assert len(tape.outputs) == 2


def test_text_names_each_operation_and_what_is_returned() -> None:
    text = str(mixad.tape(program)(X, X))
    assert text.startswith("@0 f64[3] = input()\n")
    assert re.search(r"^@\d+ f64\[3\] = assignment\(@\d+, @\d+\)$", text, re.MULTILINE)
    assert re.search(r"^return @\d+, @\d+$", text, re.MULTILINE)
    assert mixad.tape(program)(X, X)._repr_html_() == f"<pre>{text.replace('<', '&lt;')}</pre>"


def test_graph_has_a_node_for_each_operation_and_an_edge_for_each_read() -> None:
    tape = mixad.tape(program)(X, X)
    dot = tape.to_dot()
    edges = {(int(a), int(b)) for a, b in re.findall(r"n(\d+) -> n(\d+);", dot)}
    assert edges == {(at, k) for k, entry in enumerate(tape.entries) for at in entry.reads}
    assert len(re.findall(r"^  n\d+ \[label=", dot, re.MULTILINE)) == len(tape.entries)
    assert dot.count("{") == dot.count("}") == 1


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_draws_the_graph() -> None:
    dot = mixad.tape(program)(X, X).to_dot()
    drawn = subprocess.run(["dot", "-Tsvg"], input=dot, capture_output=True, text=True, check=True)
    assert "<svg" in drawn.stdout


def test_a_value_that_was_looked_at_is_shown_as_what_would_be_computed() -> None:
    def f(x: Any) -> Any:
        y = np.exp(x)
        return (y * x if y[0] > 0 else y).sum()

    (kernel,) = (e for e in mixad.tape(f)(X).entries if "mul" in e.program)
    assert kernel.value == "f64[]"


@mixad.broadcast(placement="forward")
def stored(a: float, b: float) -> float:
    return a * b


@mixad.custom_vjp
def ruled(x: Any) -> Any:
    return x * 2.0


ruled.defvjp(lambda x: (x * 2.0, None), lambda _, g: (g * 2.0,))


def of_all_kinds(x: Any, w: Any) -> Any:
    y = stored(x, w) + mixad.grad(lambda z: z.sum())(x)
    q, _ = np.linalg.qr(y[:, None] * y)
    y[0] = q[0, 0]
    return ruled(mixad.checkpoint(np.tanh)(y)).sum()


def test_every_kind_of_node_has_a_name_and_a_value() -> None:
    tape = mixad.tape(of_all_kinds)(X, X)
    names = [entry.name for entry in tape.entries]
    special = ["input", "constant", "qr", "assignment", "indexing"]
    assert {*special, "mixad.custom_vjp of ruled", "mixad.checkpoint of tanh"} <= {*names}
    assert any(" mul " in entry.program for entry in tape.entries if entry.value == "f64[3]")
    assert all(re.match(r"f64\[", entry.value) for entry in tape.entries)


def test_inside_of_other_transforms_the_inner_call_is_shown() -> None:
    shown: list[Any] = []

    def outer(x: Any) -> Any:
        shown.append(mixad.tape(lambda y: (x * y).sum())(x))
        return (x * x).sum()

    mixad.grad(outer)(X)
    assert [entry.name for entry in shown[0].entries] == ["input", "kernel"]


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(TracerError, match=r"mixad\.tape: f is a float, not a function"):
        mixad.tape(2.0)  # type: ignore[arg-type]


def test_tracers_show_values_and_transforms() -> None:
    shown: list[str] = []

    def f(x: Any) -> Any:
        shown.extend([repr(2 * x), (2 * x)._repr_html_()])
        return x.sum()

    mixad.grad(f)(X)
    assert shown[0] == "Tracer(array([ 1., -3.,  4.]), inside=grad)"
    assert shown[1] == f"<pre>{shown[0]}</pre>"


def loop_of(steps: int, memory: int | None = None) -> Any:
    def step(w: Any) -> Any:
        return lambda h, x: (np.tanh(w @ h + x), None)

    return lambda w: mixad.scan(step(w), np.zeros(4), np.ones((steps, 4)), memory=memory)[0].sum()


@pytest.mark.parametrize("carries", [2, 3, 10])
def test_loops_say_how_many_steps_run_again(carries: int) -> None:
    """As many as the binomial schedule has: Griewank and Walther (2000), equation 2."""
    steps, room = 30, carries - 1
    reach = [math.comb(room + r, r) for r in range(steps + 1)]
    r = next(r for r, most in enumerate(reach) if most >= steps)
    again = r * steps - math.comb(room + r, r - 1)
    text = str(mixad.tape(loop_of(steps, carries * 32))(np.eye(4)))
    assert f"30 steps of 2 kernels; {carries} carries are kept, {again} steps run again" in text


def test_loops_say_what_is_done_in_a_step() -> None:
    text = str(mixad.tape(loop_of(30))(np.eye(4)))
    assert "30 steps of 2 kernels; all carries are kept, no step runs again" in text
    assert "no room for two carries" in str(mixad.tape(loop_of(30, 32))(np.eye(4)))

    def solved(w: Any) -> Any:
        step = lambda h, x: (np.linalg.solve(w, h + x), None)  # noqa: E731
        return mixad.scan(step, np.zeros(9), np.ones((30, 9)))[0]

    text = str(mixad.tape(solved)(np.eye(9)))
    assert "30 steps of 1 kernel, solve called from Python; all carries are kept" in text


@pytest.mark.parametrize("a", [2.0, np.asarray(2.0)])
def test_loops_that_a_predicate_ends_say_how_many_steps_there_were(a: Any) -> None:
    def root(a: Any) -> Any:
        far = lambda x: abs(x * x - a) > 1e-12  # noqa: E731
        return mixad.while_loop(far, lambda x: 0.5 * (x + a / x), a)

    x, steps = 2.0, 0
    while abs(x * x - 2.0) > 1e-12:
        x, steps = 0.5 * (x + 2.0 / x), steps + 1
    text = str(mixad.tape(root)(a))
    assert f"test of 1 kernel; {steps} steps of 1 kernel; all carries are kept" in text
