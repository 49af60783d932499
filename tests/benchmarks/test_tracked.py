"""Figures are counted right, and what is worse than accepted fails with what to do about it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mixad
from benchmarks import figures, tracked
from benchmarks.figures import CASES, Case
from mixad.backends.execute import Kernel

STORED = json.loads(tracked.BASELINE.read_text("utf-8"))


def case_of(function, *primals):
    """Return the case of a gradient of a sum, whose parts are counted by hand."""
    gradient = mixad.grad(function)
    return Case(lambda: gradient(*primals), function, primals)


def test_a_chain_is_one_launch_that_moves_the_input_and_the_gradient():
    case = case_of(lambda x: (x * x + x).sum(), np.ones(1000))
    launches = figures.launches_of(case)
    assert len(launches) == 1
    assert figures.bytes_moved(launches) == 2 * 8000  # the cotangent of the sum is 1
    assert figures.tape_nodes(case) == 2  # the input, one kernel


def test_each_side_of_a_product_of_matrices_is_launched_on_its_own():
    matrix = np.eye(3)
    case = case_of(lambda x: (2.0 * ((x * x) @ matrix) ** 2).sum(), np.ones((4, 3)))
    # Squares before the product; after it the cotangent of its result; before it that of x.
    assert len(figures.launches_of(case)) == 3
    assert figures.tape_nodes(case) == 4  # the input, squares, the product, the sum


def test_what_is_broadcast_is_moved_once():
    row = np.broadcast_to(np.ones(5, np.float32), (1000, 5))
    case = case_of(lambda x: (x * row).sum(), np.ones((1000, 5), np.float32))
    read, written = 4 * 5, 4 * 5000
    assert figures.bytes_moved(figures.launches_of(case)) == read + written


def test_statements_inside_conditions_count():
    def straight(x):
        return x * x

    def branched(x):
        if x > 0.5:
            return x * x
        return x

    def equations(kernel):
        decorated = mixad.broadcast(kernel)
        return figures.program_equations(
            figures.launches_of(Case(lambda: decorated(np.ones(9)), kernel, ()))
        )

    assert equations(straight) == 1
    assert equations(branched) == 3  # the comparison, the condition, the product inside it


def test_counting_ends_where_it_began():
    call = Kernel.__call__
    with figures.recorded_launches():
        assert Kernel.__call__ is not call
    assert Kernel.__call__ is call
    raises = case_of(lambda x: x.no_such_method(), np.ones(3))
    with pytest.raises(AttributeError, match="no_such_method"):
        figures.launches_of(raises)
    assert Kernel.__call__ is call


def test_a_call_that_a_change_makes_worse_is_found():
    """The gate itself: an operation more is another launch, other bytes and equations."""
    product = np.eye(8)
    before = case_of(lambda x: (x * x).sum(), np.ones((8, 8)))
    after = case_of(lambda x: ((x @ product) * (x @ product)).sum(), np.ones((8, 8)))

    def counts(case):
        launches = figures.launches_of(case)
        return {
            "bytes moved": figures.bytes_moved(launches),
            "tape nodes": figures.tape_nodes(case),
        }

    found = list(tracked.changes({"squares": counts(before)}, {"squares": counts(after)}))
    assert [change.figure for change in found] == ["bytes moved", "tape nodes"]
    assert all(change.fails for change in found)


@pytest.fixture
def baseline(tmp_path, monkeypatch):
    """Return a stored baseline of made-up figures, and the dictionary that is counted."""
    now = {"a call": {"kernels launched": 2, "registers": 40}, "another": {"tape nodes": 3}}
    monkeypatch.setattr(tracked, "counted", lambda: now)
    monkeypatch.setattr(tracked, "version", lambda name: "1.0")
    path = tmp_path / "tracked.json"
    assert tracked.accept(path) == 0
    return path, now


def test_what_was_accepted_passes(baseline, capsys):
    path, _ = baseline
    capsys.readouterr()
    assert tracked.check(path) == 0
    assert capsys.readouterr().out == "all figures are as accepted\n"


def test_a_worse_figure_fails_and_says_which_and_how_to_accept_it(baseline, capsys):
    path, now = baseline
    now["a call"] = {"kernels launched": 3, "registers": 40}
    assert tracked.check(path) == 1
    told = capsys.readouterr().out
    assert "WORSE   a call: kernels launched 3, accepted 2" in told
    assert "python -m benchmarks.tracked accept" in told
    assert "another" not in told
    assert tracked.accept(path) == 0
    assert tracked.check(path) == 0


def test_a_better_figure_is_told_and_passes(baseline, capsys):
    path, now = baseline
    now["a call"] = {"kernels launched": 1, "registers": 40}
    assert tracked.check(path) == 0
    told = capsys.readouterr().out
    assert "better  a call: kernels launched 1, accepted 2" in told
    assert "held once it is accepted: python -m benchmarks.tracked accept" in told


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda now: now.pop("another"), "GONE    another: tape nodes, 3 was accepted"),
        (lambda now: now["another"].update(more=1), "NEW     another: more 1, nothing"),
        (lambda now: now["a call"].pop("registers"), "GONE    a call: registers, 40"),
    ],
)
def test_what_one_side_lacks_fails(baseline, capsys, change, told):
    path, now = baseline
    change(now)
    assert tracked.check(path) == 1
    assert told in capsys.readouterr().out


def test_registers_of_another_compiler_are_told_to_be_so(baseline, capsys, monkeypatch):
    path, now = baseline
    monkeypatch.setattr(tracked, "version", lambda name: "2.0")
    assert tracked.check(path) == 0
    now["a call"] = {"kernels launched": 2, "registers": 48}
    assert tracked.check(path) == 1
    assert "accepted with nvidia-cuda-nvrtc-cu12 1.0; here is 2.0" in capsys.readouterr().out


def test_every_call_has_an_accepted_figure_of_every_name():
    assert list(STORED["figures"]) == list(CASES)
    assert {tuple(found) for found in STORED["figures"].values()} == {figures.NAMES}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_stored_figures_are_those_of_this_tree(name):
    """Where no compiler is, too; .ci/run compares all of them."""
    found, stored = figures.call_figures(CASES[name]()), STORED["figures"][name]
    assert len(found) == 4
    for figure, value in found.items():
        assert 0 < value <= stored[figure]


def test_the_cell_moves_what_it_must_and_no_more():
    """Ten arrays of elements (four states, cotangent, value, four gradients) and two of flags."""
    stored = STORED["figures"]["HM-LSTM, control (n,)"]
    assert stored["kernels launched"] == 1
    assert stored["bytes moved"] == 4 * (10 * figures.SIDE**2 + 2 * figures.SIDE)


def test_blocks_move_the_inputs_the_residuals_and_the_partials_once():
    """In one launch: 15 inputs, 2 residuals, 30 partials of each observation, in float64."""
    stored = STORED["figures"]["bundle adjustment"]
    assert stored["kernels launched"] == 1
    assert stored["bytes moved"] == 8 * (15 + 2 + 30) * figures.SIDE**2
