"""The benchmark of choices times what it says it times."""

from __future__ import annotations

import numpy as np

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
    worse = {**timed.seconds, "auto": 2 * timed.seconds[timed.best]}
    text = choices.report([choices.Outcome("branches", choices.MIXES[0], 2, worse)])
    assert "| branches | all full, all active, cheap | 2.00 |" in text
    assert "1 of 1 beyond" in text
