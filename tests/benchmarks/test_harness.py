"""The statistics and the pairing of `benchmarks.peers`, on times that are known."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers import harness, plot, publish, report
from benchmarks.peers.harness import Case, Comparison, Contender, Summary, Target, Tolerance

ONES = np.ones(3)


def contender(value: float = 1.0) -> Contender:
    return Contender(lambda: (lambda: value, lambda result: [result * ONES]), (ONES,))


def missing_library():
    raise ModuleNotFoundError("No module named 'nowhere'", name="nowhere")


def case(**contenders: Contender) -> Case:
    comparisons = [Comparison("mine", "theirs", Target(2.0))]
    return Case("work", "case", contenders, comparisons, Tolerance(1e-3, 0.0), keeps=(0,), rounds=9)


def test_median_lies_in_its_interval_and_the_interval_in_the_spread():
    values = np.random.default_rng(1).normal(5.0, 1.0, 101)
    found = harness.summarise(values)
    assert found.median == np.median(values)
    assert found.p10 < found.low < found.median < found.high < found.p90
    assert found.count == 101


def test_same_times_give_the_same_interval():
    values = np.random.default_rng(2).random(30)
    assert harness.summarise(values, seed=3) == harness.summarise(values, seed=3)


@pytest.mark.slow
def test_bootstrap_interval_covers_the_true_median_about_as_often_as_it_says():
    rng = np.random.default_rng(4)
    samples = [harness.summarise(rng.exponential(1.0, 41), seed) for seed in range(300)]
    covered = np.mean([s.low <= np.log(2) <= s.high for s in samples])
    assert 0.90 < covered < 0.99


def test_ratios_are_taken_pair_by_pair():
    drift = np.array([1.0, 10.0, 100.0])
    found = harness.compare({"mine": 2 * drift, "theirs": drift}, Comparison("mine", "theirs"))
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)


def test_rounds_that_one_side_sat_out_are_no_pairs():
    times = {"mine": np.array([1.0, 2.0, 3.0]), "theirs": np.array([1.0, np.nan, 1.0])}
    assert harness.compare(times, Comparison("mine", "theirs")).count == 2


def test_comparison_with_an_absent_peer_is_none():
    assert harness.compare({"mine": ONES}, Comparison("mine", "theirs")) is None


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target(1.0), False),
        (Target(1.1), True),
        (Target(1.0, by_interval=True), True),
        (Target(0.8, by_interval=True), False),
    ],
)
def test_target_is_met_by_the_median_or_by_the_interval(target, met):
    assert target.met(Summary(1.05, 0.9, 1.2, 0.8, 1.3, 10)) is met


def test_ring_holds_the_last_results_only():
    class Result:
        alive = 0

        def __init__(self):
            Result.alive += 1

        def __del__(self):
            Result.alive -= 1

    for keep in (0, 3):
        turn = harness.stopwatch(Result, keep)
        for _ in range(10):
            turn()
        assert Result.alive == keep
        del turn


def test_slow_contender_sits_rounds_out_and_the_fast_one_has_them_all():
    turns = {"fast": lambda: 1e-6, "slow": lambda: 1.0}
    times = harness.paired_times(turns, rounds=40, settle=0)
    assert np.isfinite(times["fast"]).sum() == 40
    assert np.isfinite(times["slow"]).sum() == harness.MIN_TURNS


def test_absent_peer_is_listed_with_its_reason_and_its_comparison_is_not_hidden():
    (found,) = harness.measure(case(mine=contender(), theirs=Contender(missing_library)))
    assert found.absent == {"theirs": "not installed (nowhere)"}
    assert [summary for _, summary in found.ratios] == [None]
    assert "n/a: not installed (nowhere)" in report.markdown([found], {})


def broken():
    raise RuntimeError("no values")


@pytest.mark.parametrize(
    ("made", "is_wrong"),
    [
        (contender(), False),
        (contender(1.01), True),
        (Contender(broken), True),
        (Contender(lambda: (broken, lambda result: []), (ONES,)), True),
        (Contender(missing_library), False),
    ],
)
def test_mixad_is_wrong_where_its_values_are_or_it_raises(made, is_wrong):
    (found,) = harness.measure(case(**{"mixad fused": made, "mine": contender()}))
    assert peers.wrong(found) == is_wrong
    (found,) = harness.measure(case(theirs=made, mine=contender()))
    assert not peers.wrong(found)


def test_wrong_values_are_not_timed():
    (found,) = harness.measure(case(mine=contender(), theirs=contender(1.01)))
    assert list(found.series) == ["mine"]
    assert "wrong values" in found.absent["theirs"]
    assert found.errors["theirs"] == pytest.approx(10.0)


def test_derived_series_are_compared_round_by_round():
    derived = {"mine": lambda times: 2 * times["theirs"], "lost": lambda times: times["nothing"]}
    (found,) = harness.measure(replace(case(theirs=contender()), derived=derived))
    ((_, ratio),) = found.ratios
    assert ratio.median == 2.0
    assert found.absent == {"lost": "nothing was not timed"}


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_error_sees_every_bad_element(bad):
    got = np.array([1.0, bad, 1.0])
    assert harness.largest_error([got], [ONES], Tolerance(1e-6, 1e-6)) > 1


def test_error_is_a_multiple_of_the_tolerance():
    wanted = np.array([0.0, 10.0])
    got = np.array([0.02, 10.0])
    assert harness.largest_error([got], [wanted], Tolerance(0.0, 1e-3)) == pytest.approx(2.0)


def test_reasons_name_no_path():
    assert harness.why(OSError("cannot open /some/where/libX.so here")) == (
        "OSError: cannot open libX.so here"
    )


def test_reports_say_met_or_missed_and_are_replaced_in_one_step(tmp_path):
    (found,) = harness.measure(case(mine=contender(), theirs=contender()))
    target = tmp_path / "report.json"
    target.write_text("old")
    report.write_atomically(target, report.as_json([found], {"seed": 0}))
    (measurement,) = json.loads(target.read_text())["measurements"]
    assert measurement["comparisons"][0]["verdict"] in ("met", "missed")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


# -- reports that are read back --------------------------------------------------------------------


def measurements():
    targets = [Comparison("mine", "theirs", Target(1.0)), Comparison("mine", None, Target(2.0))]
    work = replace(case(mine=contender(), theirs=contender()), comparisons=targets)
    return list(harness.measure(replace(work, contenders={**work.contenders, "no": ABSENT})))


ABSENT = Contender(missing_library)


@pytest.mark.parametrize("form", [report.as_json, report.as_compact_json])
def test_a_report_that_is_read_back_says_the_same(form, tmp_path):
    path = tmp_path / "report.json"
    about = {"versions": {"mixad": "1.0"}, "threads": 2}
    path.write_text(form(measurements(), about), encoding="utf-8")
    found, environment = report.read(path)
    assert environment == about
    assert report.markdown(found, environment) == report.markdown(found, about)
    (again,) = found
    assert again.absent == {"no": "not installed (nowhere)"}
    assert [c.target for c, _ in again.ratios] == [Target(1.0), Target(2.0)]


def test_a_report_tells_the_commit_that_ran(monkeypatch):
    monkeypatch.setenv("MIXAD_NUM_THREADS", "1")
    told = report.environment(seed=0)["commit"].removesuffix("-dirty")
    asked = ["git", "rev-parse", "HEAD", f"{told}^{{commit}}"]
    done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True)
    if done.returncode and told == "unknown":
        pytest.skip("not a git checkout")
    head, found = done.stdout.split()
    assert head == found


def test_rounding_changes_no_verdict(tmp_path):
    (found,) = measurements()
    just_over = Summary(1.00001, 0.9, 1.1, 0.9, 1.1, 5)
    found = replace(found, ratios=[(Comparison("mine", "theirs", Target(1.0)), just_over)])
    path = tmp_path / "report.json"
    path.write_text(report.as_compact_json([found], {}), encoding="utf-8")
    ((again,), _) = report.read(path)
    assert report.verdict(*again.ratios[0]) == report.verdict(*found.ratios[0]) == "missed"


def test_a_report_is_published_in_few_bytes(tmp_path, capsys):
    whole, published = tmp_path / "report.json", tmp_path / "folder" / "peers.json"
    whole.write_text(report.as_json(measurements(), {"threads": 2}), encoding="utf-8")
    assert publish.main([str(whole), "--out", str(published)]) == 0
    assert "1 measurements are in peers.json" in capsys.readouterr().out
    assert published.stat().st_size < whole.stat().st_size
    assert report.heading(report.read(published)[0][0]) == "work: case"


def test_reports_of_one_machine_are_published_together(tmp_path):
    (found,) = measurements()
    here = {"cpu": "this", "commit": "a1", "load average, 1 minute": 0.5}
    first, second, elsewhere = (tmp_path / name for name in ("first", "second", "elsewhere"))
    first.write_text(report.as_json([found], here), encoding="utf-8")
    other = replace(found, workload="other work")
    later = {**here, "commit": "b2", "load average, 1 minute": 2.0}
    second.write_text(report.as_json([other], later), "utf-8")
    elsewhere.write_text(report.as_json([other], {**here, "cpu": "that"}), encoding="utf-8")
    out = tmp_path / "peers.json"
    publish.main([str(first), str(second), "--out", str(out)])
    assert [m.workload for m in report.read(out)[0]] == ["work", "other work"]
    told = {"cpu": "this", "commit": "a1, b2", "load average, 1 minute": 2.0}
    assert report.read(out)[1] == told
    third = tmp_path / "third"
    third.write_text(report.as_json([replace(found, workload="third")], later), encoding="utf-8")
    publish.main([str(out), str(third), "--out", str(out)])  # what was published, and more
    assert report.read(out)[1] == told
    for reports, complaint in (
        ((first, elsewhere), "different machines"),
        ((first, first), "twice"),
    ):
        with pytest.raises(ValueError, match=complaint):
            publish.main([*map(str, reports), "--out", str(out)])


def test_the_published_figures_can_be_read():
    found, about = report.read(publish.PUBLISHED)
    assert about["cpu"]
    assert {"hm_lstm", "kepler", "startup"} <= {m.workload for m in found}
    assert all(m.series for m in found)


# -- bars ------------------------------------------------------------------------------------------


def timed(**medians: float) -> dict[str, Summary]:
    names = {name.replace("_", " "): m for name, m in medians.items()}
    return {name: Summary(m, m, m, 0.9 * m, 1.1 * m, 5) for name, m in names.items()}


def test_bars_are_of_what_does_the_whole_work_the_fastest_last():
    series = timed(copy_of_the_bytes=0.5, mixad=1.0, mixad_part=0.1, peer=3.0, peer_per_GB=9.0)
    ratios = [(Comparison("mixad", "peer"), None), (Comparison("mixad", "copy of the bytes"), None)]
    called = dict.fromkeys(("copy of the bytes", "mixad", "mixad part", "peer"), 1.0)
    m = harness.Measurement("work", "case", 0, series, {}, called, {}, ratios)
    assert list(plot.contenders(m)) == ["peer", "mixad"]


@pytest.mark.slow
def test_a_figure_has_a_panel_for_each_measurement_and_a_line_for_the_copy(tmp_path):
    pytest.importorskip("matplotlib")
    near, far = timed(copy_of_the_bytes=0.5, peer=3.0), timed(copy_of_the_bytes=0.01, peer=3.0)
    found = [harness.Measurement("work", t, 0, s, {}, {}, {}, [])
             for t, s in {"near": near, "far": far, "third": near}.items()]  # fmt: skip
    drawn = plot.figure(found)
    shown = [axis for axis in drawn.axes if axis.get_visible()]
    assert [axis.get_title() for axis in shown] == ["work: near", "work: far", "work: third"]
    assert [[text.get_text() for text in axis.texts] for axis in shown] == [
        [" 3000", "copy"], [" 3000"], [" 3000", "copy"],
    ]  # fmt: skip
    path = tmp_path / "report.json"
    path.write_text(report.as_compact_json(found, {}), encoding="utf-8")
    assert plot.main([str(path), str(tmp_path / "bars.svg"), "work"]) == 0
    assert "</svg>" in (tmp_path / "bars.svg").read_text()
