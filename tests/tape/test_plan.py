"""Memory of plans: results that are over give theirs to others."""

from __future__ import annotations

import numpy as np

from mixad.tape.plan import Result, share_memory

A = np.zeros(100)


def test_what_is_read_no_more_gives_its_memory_to_the_next_result() -> None:
    results = [Result(5, A, 0, 1), Result(6, A, 1, 2), Result(7, A, 2, 3), Result(8, A[:50], 3, 3)]
    assert [fixed.memory for fixed in share_memory(results)] == [0, 1, 0, 2]


def test_what_a_step_reads_is_not_written_by_it() -> None:
    results = [Result(5, A, 0, 2), Result(6, A, 1, 2), Result(7, A, 2, 4)]
    assert [fixed.memory for fixed in share_memory(results)] == [0, 1, 2]


def test_results_of_one_step_have_memory_of_their_own() -> None:
    results = [Result(5, A, 0, 0), Result(6, A, 0, 0), Result(7, A, 1, 1)]
    assert [fixed.memory for fixed in share_memory(results)] == [0, 1, 0]


def test_a_plan_keeps_a_mebibyte() -> None:
    half = np.zeros(1 << 16)
    results = [Result(k, half, k, 9) for k in range(5)]
    assert [fixed.register for fixed in share_memory(results)] == [0, 1]
