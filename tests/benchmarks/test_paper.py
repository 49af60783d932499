"""The paper's experiments, small and on the host: values, kernels, bytes, report."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mixad
from benchmarks.gpu import hm_lstm
from benchmarks.gpu.work import Made
from benchmarks.paper import EXPERIMENTS, arity, cell, experiments, placement, report
from benchmarks.paper.__main__ import parse
from benchmarks.paper.cases import Case, Row, Way
from benchmarks.paper.host import Host
from benchmarks.paper.kernels import partials_kernel, program_of
from benchmarks.paper.run import is_right, measured
from benchmarks.peers import THREAD_VARIABLES
from benchmarks.peers.harness import Summary
from mixad.backends.cpu.backend import CpuBackend
from mixad.backends.nvrtc import compile_text
from mixad.errors import BackendError
from mixad.transforms import gradients

SCALE = 1 / 128
SIDE = 256  # of which an array is one whole block of the pool
HOST = Host()
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


@pytest.fixture(autouse=True)
def two_threads(monkeypatch):
    for name in THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")


def mixad_alone(case: Case) -> Case:
    ways = {name: way for name, way in case.ways.items() if name.startswith("mixad")}
    return replace(case, ways=ways)


def drawn_cases():
    few = {"arity": {"counts": (1, 10, 11)}}  # one pass of duals, the last of these, reverse
    for name, cases in experiments.CASES.items():
        for case in cases(SCALE, 0, HOST, **few.get(name, {})):
            yield pytest.param(mixad_alone(case), id=f"{name}-{case.title}")


def cell_problem(side: int = 32):
    return hm_lstm.problem(hm_lstm.drawn((side,), 0), side, 1)


@pytest.fixture
def launches(monkeypatch):
    """Return the list of kernels that the CPU is given."""
    seen = []
    launch = CpuBackend.launch

    def noted(self, bound, arguments):
        seen.append(bound)
        return launch(self, bound, arguments)

    monkeypatch.setattr(CpuBackend, "launch", noted)
    monkeypatch.setattr(gradients, "open_strand", lambda *args: None)  # plans are not counted
    return seen


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("case", list(drawn_cases()))
def test_mixad_gives_the_values_that_are_expected(case):
    for row in measured(case, HOST, rounds=0):
        assert row.error is not None, row
        assert row.error <= 1, row


@pytest.mark.slow
@pytest.mark.parametrize("problem", list(placement.problems(SCALE, 0)), ids=lambda p: p.title)
def test_every_placement_gives_the_values_that_are_expected(problem):
    own = {name: make for name, make in problem.ways.items() if name.startswith("mixad")}
    assert len(own) >= len(placement.PLACEMENTS)
    for row in placement.measured(replace(problem, ways=own), HOST, rounds=0):
        assert row.error is not None, row
        assert row.error <= 1, row


def test_wrong_values_are_told_and_not_timed():
    good = Way(lambda device: Made(lambda: [np.ones(3)], list), lambda: [np.ones(3)])
    wrong = replace(good, expected=lambda: [np.zeros(3) + 0.5])
    rows = measured(Case("hm_lstm", "case", {"mixad, mine": wrong, "peer": good}), HOST, rounds=2)
    assert rows[0].reason.startswith("wrong values: ")
    assert rows[0].call is None
    assert rows[1].call is not None
    assert not is_right(rows)
    assert is_right(rows[1:])


def test_what_raises_is_listed_with_its_reason():
    def broken(device):
        raise RuntimeError("out of memory")

    (row,) = measured(Case("hm_lstm", "case", {"mixad, mine": Way(broken)}), HOST, rounds=2)
    assert row.reason == "RuntimeError: out of memory"
    assert not is_right([row])
    assert row.call is None


class StandIn(Host):
    """A device whose kernels take a second, and whose arrays are copied to be looked at."""

    platform = "gpu"

    def __init__(self):
        super().__init__()
        self.copied = 0

    def get(self, array):
        self.copied += 1
        return np.array(array)

    def kernel_seconds(self, call, rounds):
        call()
        return np.ones(rounds)


def test_a_device_is_asked_for_its_kernels_and_calls_end_with_results_on_the_host():
    device = StandIn()
    first = Way(lambda device: Made(lambda: [np.ones(3)] * 2, list), lambda: [np.ones(3)] * 2)
    second = replace(first, over="mixad, mine")
    case = Case("hm_lstm", "case", {"mixad, mine": first, "peer": second})
    own, peer = measured(case, device, rounds=2)
    assert own.kernel.median == peer.kernel.median == peer.ratio.median == 1.0
    assert 0 < own.call.median < 1.0
    assert device.copied >= 2 * 2 * 3  # two results, two ways: checked, then timed twice


# -- what the modes are ----------------------------------------------------------------------------


def test_mixed_mode_is_one_kernel_and_pure_reverse_one_for_each_operation(launches):
    e = cell_problem(SIDE)  # small arrays are planned
    cell.by_mixad(e, HOST).call()
    assert len(launches) == 1
    launches.clear()
    cell.by_operations(e, HOST).call()
    forward = 2 + 8  # comparisons and operations; the sum of two hands its cotangent on as it is
    backward = 7
    assert len(launches) == forward + backward
    assert len({id(bound) for bound in launches}) > 8


def test_selections_are_fused_where_nothing_is_in_the_way(launches):
    cell.by_selections(cell_problem(), HOST).call()
    assert len(launches) <= 3


def test_the_papers_kernel_reads_no_cotangent_and_writes_partials_alone():
    e = cell_problem()
    arguments = [*e.constants, *e.active]
    kernel = partials_kernel(program_of(mixad.broadcast(e.kernel), arguments), range(2, 6))
    assert [p.name for p in kernel.passes[0].params] == ["z", "zb", "c", "f", "i", "g"]
    assert len(kernel(arguments)) == 4
    assert cell.bytes_of_partials(e) == 4 * (2 * 32 + 8 * 32 * 32)


def test_more_than_ten_partials_take_two_passes():
    arguments = [np.full((4, 8), 0.25, np.float32) for _ in range(11)]
    kernel = mixad.broadcast(arity.arity.product_of(11))
    own = partials_kernel(program_of(kernel, arguments), range(11))
    assert len(own.passes) == 2
    assert len(own(arguments)) == 11


def test_launching_alone_computes_what_the_call_does():
    e = cell_problem()
    value, gradients = cell.by_mixad(e, HOST).call()
    for one, other in zip(cell.mixed_alone(e, HOST)(), (value, *gradients), strict=True):
        np.testing.assert_array_equal(one, other)


def test_bytes_that_branches_need_are_counted_by_hand():
    z = np.array([1, 1, 0, 0, 0, 0, 0, 1], np.float32)  # flush, copy, update, update | flush
    zb = np.array([0, 0, 0, 0, 1, 1, 1, 0], np.float32)
    always = 2 * 8 * 4 + 4 * 8 * (1 + 5)
    # Pairs: flush reads i and g; copy reads c; update reads all four, and so does the last pair.
    loaded = 4 * 2 * (2 + 1 + 4 + 4)
    assert cell.bytes_needed((z, zb), (1, 8), 2) == always + loaded
    whole = 4 * 8 * 4
    assert cell.bytes_needed((z, zb), (1, 8), 8) == always + whole


# -- registers, bytes held -------------------------------------------------------------------------


def has_nvrtc() -> bool:
    try:
        compile_text("", "sm_90")
    except BackendError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 11])
def test_registers_are_read_from_machine_code_or_said_to_be_missing(count):
    xs = [np.full((8, 8), 0.25, np.float32)] * count
    e = arity.Elementwise(arity.arity.product_of(count), None, (), xs, xs[0])
    told = {kind: way.facts() for kind, way in arity.of_count(e).items() if way.facts is not None}
    duals = told["mixad, partials only"]
    assert duals["N"] == count
    if not has_nvrtc():
        assert duals["registers"] == "NVRTC is not installed"
        return
    assert len(duals["registers"]) == (1 if count <= 10 else 2)
    assert all(16 <= registers <= 255 for registers in duals["registers"])
    assert all(0 < occupancy <= 1 for occupancy in duals["occupancy"])
    assert duals["local"] == [0] * len(duals["registers"])
    gradients = told["mixad, value and gradients"]
    assert gradients["registers"][0] > duals["registers"][0]


@pytest.mark.slow
def test_held_bytes_are_those_of_the_stored_partials():
    e = cell_problem(SIDE)
    array = 4 * SIDE * SIDE
    held = {p: placement.mixed(e, p, HOST).held() for p in placement.PLACEMENTS}
    assert held == {"reverse": 0, "forward": 4 * array, "auto": 0}
    assert placement.pure(e, HOST).held() >= 8 * array


@pytest.mark.slow
def test_a_dear_loop_is_held_by_its_partials():
    e = placement.kepler.problem(SIDE * SIDE, np.float64, 0)
    array = 8 * SIDE * SIDE
    assert placement.mixed(e, "auto", HOST).held() == 2 * array


# -- the report ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_writes_what_it_prints(tmp_path, capsys):
    arguments = ["divergence", "arity", "placement", "--scale", "0.01", "--rounds", "1"]
    options = parse([*arguments, "--inputs", "2", "3", "--out", str(tmp_path)])
    assert experiments.run(HOST, options, lambda text: None) == 0
    (markdown,), (text,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    assert markdown.read_text() == capsys.readouterr().out.removesuffix("\n")
    found = json.loads(text.read_text())
    assert found["environment"]["CUDA device"] == "none was found: everything ran on the host"
    shown = report.section(found, "divergence")
    assert "| 32² | mixad, mixed mode, 16 neighbours alike | " in shown
    assert shown in markdown.read_text()
    counted = {row["facts"]["N"] for row in found["rows"] if row["experiment"] == "arity"}
    assert counted == {2, 3}
    passes = {row["contender"]: row for row in found["rows"] if row["experiment"] == "placement"}
    forward = passes["mixad, placement forward"]
    assert forward["facts"]["backward pass"]["median"] > 0
    assert forward["ratio"]["median"] > 0
    assert "ratio" not in passes["mixad, placement reverse"]


def test_unknown_experiments_are_refused(capsys):
    with pytest.raises(SystemExit):
        parse(["speed"])
    assert "no experiment speed; there are hm_lstm, " in capsys.readouterr().err


def test_rows_keep_what_was_measured_to_four_digits():
    summary = Summary(1.23456e-3, 1e-3, 2e-3, 1e-3, 2e-3, 7)
    row = Row("hm_lstm", "64²", "peer", call=summary, bytes_moved=1234567, error=0.123456)
    found = json.loads(report.as_json(report.as_record([row], {})))["rows"]
    assert found == [{
        "experiment": "hm_lstm", "case": "64²", "contender": "peer", "bytes_moved": 1234567,
        "call": {"median": 1.235e-3, "low": 1e-3, "high": 2e-3, "p10": 1e-3, "p90": 2e-3,
                 "count": 7},
        "error": 0.1235,
    }]  # fmt: skip
    shown = report.section({"rows": found}, "hm_lstm")
    assert shown.endswith("| 64² | peer |  | 1235 [1000, 2000] |  | 1.00 | 0.123 |")


def test_a_busy_machine_is_told():
    quiet, busy = ({"environment": {report.LOAD: load, "threads": 2}} for load in (2.5, 6.0))
    assert report.caution(quiet) == []
    assert "load average 6.0 for 2 threads" in report.caution(busy)[0]
    assert "The machine was busy" in report.markdown({**busy, "rows": []})
    assert report.with_load({report.LOAD: 1e6})[report.LOAD] == 1e6


def test_what_was_published_stands_beside():
    assert "| V100 | reverse mode, Julia | 826 | 4.28 |" in report.published("hm_lstm")
    assert "| random | 192.8 | 1.32 |" in report.published("divergence")
    assert "| 10 | 56 | 0.53 |" in report.published("arity")


def test_results_that_are_committed_are_whole():
    for path in RESULTS.glob("paper-*.json"):
        found = json.loads(path.read_text())
        assert {row["experiment"] for row in found["rows"]} == set(EXPERIMENTS)
        assert "dirty" not in found["environment"]["commit"]
        for experiment in EXPERIMENTS:
            assert "n/a: wrong values" not in report.section(found, experiment)
