"""The benchmarks of a CUDA device, run on the host in its place: values, report, refusals."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu import arity, bundle, hm_lstm, kepler, overhead, sums, volatility
from benchmarks.gpu.__main__ import WORKS, main
from benchmarks.gpu.device import CudaDevice
from benchmarks.gpu.run import measured
from benchmarks.gpu.work import Contender, Made, Work
from benchmarks.peers.harness import UnavailableError

SCALE = 1 / 128
MODULES = {module.__name__.rpartition(".")[2]: module
           for module in (arity, bundle, hm_lstm, kepler, overhead, sums, volatility)}  # fmt: skip


class Host:
    """NumPy arrays in the place of a device's."""

    name, platform = "Stand-in 100", "cpu"

    def put(self, array):
        return np.array(array)

    def zeros(self, count):
        return np.zeros(count, np.float32)

    def copy(self, source, target):
        target[...] = source

    def get(self, array):
        return np.asarray(array)

    def wait(self):
        pass

    def kernel_seconds(self, call, rounds):
        start = time.perf_counter()
        call()
        return np.full(rounds, time.perf_counter() - start)


def drawn_works():
    for name in WORKS:
        for work in MODULES[name].works(SCALE, 0):
            if name != "arity" or work.title.split(",")[0] in ("N = 1", "N = 10", "N = 11"):
                yield pytest.param(work, id=f"{work.name}-{work.title}")


@pytest.mark.slow
@pytest.mark.parametrize("work", list(drawn_works()))
def test_mixad_gives_the_values_that_are_expected(work):
    if work.title == "call, CuPy":
        pytest.skip("CuPy has no arrays on the host")
    own = {name: c for name, c in work.contenders.items() if name.startswith("mixad")}
    for name, outcome in measured(replace(work, contenders=own), Host(), rounds=0).outcomes.items():
        assert outcome.error is not None, (name, outcome.reason)
        assert outcome.error <= 1, (name, outcome.reason)


def test_every_arity_is_measured():
    titles = [work.title.split(",")[0] for work in arity.works(SCALE, 0)]
    assert titles == 2 * [f"N = {n}" for n in range(1, 25)]


def test_bytes_are_counted_by_hand():
    cell = next(iter(hm_lstm.works(SCALE, 0)))  # 16², z and zb of shape (16, 1)
    assert cell.title == "16², z of shape (n, 1)"
    assert cell.bytes_moved == 4 * (2 * 16 + (4 + 1) * 256 + 5 * 256)


def test_controls_that_are_alike_are_so_in_runs_of_a_warp():
    z, zb = hm_lstm.drawn((4, 128), 0, 32)
    for control in (z, zb):
        runs = control.reshape(4, 4, 32)
        np.testing.assert_array_equal(runs, np.broadcast_to(runs[..., :1], runs.shape))
        assert 0 < control.mean() < 1


@pytest.mark.slow
def test_a_report_is_written_with_the_devices_name(tmp_path, capsys):
    arguments = ["overhead", "hm_lstm", "--scale", "0.01", "--rounds", "2", "--out", str(tmp_path)]
    assert main(arguments, on=Host) == 0
    (markdown,), (text,) = tmp_path.glob("*.md"), tmp_path.glob("*.json")
    assert markdown.name.startswith("stand-in-100-20")
    shown = markdown.read_text()
    assert shown in capsys.readouterr().out
    assert "# mixad on Stand-in 100" in shown
    assert "## HM-LSTM" in shown
    assert "≤ 8 µs: " in shown
    found = json.loads(text.read_text())
    assert found["environment"]["device"] == "Stand-in 100"
    by_case = {r["case"]: r["contenders"]["mixad"] for r in found["results"]}
    assert by_case["20², z of shape (n,)"]["times"]["median"] > 0
    assert by_case["20², z of shape (n,)"]["error over tolerance"] <= 1


def test_what_gives_wrong_values_is_told_and_not_timed_and_the_rest_is(
    tmp_path, monkeypatch, capsys
):
    def one_is_wrong(scale, seed):
        (first, *_) = overhead.works(scale, seed)
        yield replace(first, title="wrong", expected=lambda: [np.zeros(64)])
        yield replace(first, title="right")

    monkeypatch.setattr(MODULES["hm_lstm"], "works", one_is_wrong)
    assert main(["hm_lstm", "--rounds", "2", "--out", str(tmp_path)], on=Host) == 1
    assert "WRONG: wrong values" in capsys.readouterr().err
    found = json.loads(next(tmp_path.glob("*.json")).read_text())
    wrong, right = (result["contenders"]["mixad"] for result in found["results"])
    assert wrong["times"] is None
    assert "wrong values" in wrong["reason"]
    assert right["times"]["median"] > 0


def test_without_a_device_it_says_so(capsys):
    pytest.importorskip("torch")
    try:
        CudaDevice()
    except UnavailableError:
        pass
    else:
        pytest.skip("there is a device")
    assert main(["overhead"]) == 2
    assert "benchmarks.gpu needs a CUDA device: torch" in capsys.readouterr().err


def test_a_contender_that_raises_is_told_with_its_reason_and_the_others_are_timed():
    def broken(device):
        raise RuntimeError("out of memory")

    fine = Contender(lambda device: Made(lambda: [np.ones(3)], list))
    work = Work("work", "case", {"mixad": fine, "peer": Contender(broken)}, lambda: [np.ones(3)])
    result = measured(work, Host(), rounds=3)
    assert result.outcomes["peer"].reason == "RuntimeError: out of memory"
    assert result.outcomes["mixad"].times is not None
    assert result.ratio("peer") is None
    late = measured(work, Host(), rounds=3, is_late=lambda: True)
    assert late.outcomes["mixad"].reason == "the time of the run was used up"


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")  # of torch by torch
@pytest.mark.parametrize("name", ["hm_lstm", "kepler", "volatility", "bundle"])
def test_peers_give_the_same_values(name):
    torch = pytest.importorskip("torch")

    class Torch(Host):
        def put(self, array):
            return torch.from_numpy(np.array(array))

        def zeros(self, count):
            return torch.zeros(count)

        def copy(self, source, target):
            target.copy_(source)

        def get(self, array):
            return array.detach().numpy()

    work = next(iter(MODULES[name].works(SCALE, 0)))
    if name != "hm_lstm":  # one is enough to compile, which takes minutes of these
        named = {k: c for k, c in work.contenders.items() if k != "torch.compile"}
        work = replace(work, contenders=named)
    outcomes = measured(work, Torch(), rounds=1).outcomes
    for peer, outcome in outcomes.items():
        if "not installed" not in outcome.reason:
            assert outcome.reason == "", (peer, outcome)
