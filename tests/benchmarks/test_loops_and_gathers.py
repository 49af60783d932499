"""Programs of loops and gathers give what loops by hand give, at small sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.peers import gathers, harness, loops

SMALL = 12


@pytest.mark.slow
@pytest.mark.parametrize("workload", [loops, gathers])
def test_values_of_all_ways_to_write_a_program_are_those_by_hand(workload):
    for case in workload.cases((SMALL,), seed=1):
        ours = {who: each for who, each in case.contenders.items() if who.startswith("mixad")}
        ready = harness.prepare(replace(case, contenders=ours))
        assert not ready.absent, case.title
        assert set(ready.errors) == set(ours)


@pytest.mark.slow
@pytest.mark.parametrize("workload", [loops, gathers])
def test_what_is_compared_is_timed(workload):
    for case in workload.cases((SMALL,), seed=1):
        names = {name for c in case.comparisons for name in (c.subject, c.against)}
        assert names <= set(case.contenders), case.title
