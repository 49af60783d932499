"""The benchmark of choices times what it says it times."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import choices


def test_every_kernel_computes_what_its_text_says(tmp_path):
    kernels = choices.written(tmp_path, [3])
    x = (0.3, 0.6, 0.9)
    factors = [v + 0.5 * v * v for v in x]
    assert kernels.product_cheap_3(*x) == np.prod(factors)
    assert kernels.branches_cheap_3(*x) == sum(factors)
    assert kernels.loop_cheap_3(4.5, *x[1:]) == 4.5 * sum([4.5 + 0.5 * 4.5**2, *factors[1:]])


def test_choices_force_each_placement_with_the_fewest_passes_and_more():
    forced = dict(choices.choices("loop", 12))
    assert forced.pop("auto") == {}
    assert sorted({o["chunk"] for o in forced.values()}) == [3, 4, 6]
    assert {o["placement"] for o in forced.values()} == {"forward", "reverse"}
    assert len(dict(choices.choices("loop", 1))) == 3
    assert {o.get("strategy") for _, o in choices.choices("product", 1)} == {None, "reverse"}


def test_the_report_lists_what_is_beyond_the_tolerance(tmp_path):
    kernels = choices.written(tmp_path, [2])
    timed = choices.outcome(kernels, "branches", choices.MIXES[0], 2, side=8, rounds=2)
    assert timed.seconds.keys() == dict(choices.choices("branches", 2)).keys()
    worse = {**timed.runs, "auto": np.full(2, 2 * timed.seconds[timed.best])}
    beyond = choices.Outcome("branches", choices.MIXES[0], 2, worse)
    text = choices.report([beyond])
    assert "| branches | all full, all active, cheap | 2.00 |" in text
    assert "1 of 1 beyond" in text


def outcome_of(auto, best):
    runs = {"auto": np.asarray(auto), "forward, chunk 1": np.asarray(best)}
    return choices.Outcome("product", choices.MIXES[0], 1, runs)


def test_the_interval_holds_the_ratio_and_grows_with_the_noise():
    rng = np.random.default_rng(0)
    quiet, noisy = (outcome_of(*(1.0 + noise * rng.random((2, 40)))) for noise in (0.01, 1.0))
    for found in (quiet, noisy):
        assert found.interval[0] <= found.ratio <= found.interval[1]
    assert np.ptp(noisy.interval) > 10 * np.ptp(quiet.interval)


def test_a_choice_is_beyond_where_its_whole_interval_is():
    assert outcome_of([1.2, 1.21, 1.22], [1.0, 1.0, 1.0]).is_beyond
    assert not outcome_of([1.0, 1.21, 1.9], [1.0, 1.05, 1.0]).is_beyond
    assert not outcome_of([1.05] * 3, [1.0] * 3).is_beyond


@pytest.mark.parametrize("slower", [False, True])
def test_the_status_tells_whether_a_choice_is_beyond(slower, monkeypatch, capsys):
    auto = [2.0] * 3 if slower else [1.0] * 3
    monkeypatch.setattr(choices, "outcome", lambda *case: outcome_of(auto, [1.0] * 3))
    monkeypatch.setattr("sys.argv", ["choices", "--arities", "1", "--kernels", "product"])
    assert choices.main() == int(slower)
    assert "beyond it with their whole interval" in capsys.readouterr().out
