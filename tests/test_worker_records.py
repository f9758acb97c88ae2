"""Matching kernel records to launches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.worker.measure import split_blocks
from warpdeck.core.worker.records import Record, RecordMismatch, by_start, latest, match, spans

launches = st.lists(
    st.tuples(st.sampled_from(["a", "b", "wd_sweep"]), st.integers(1, 10**7), st.integers(0, 10**6)),
    max_size=40,
)


def laid_out(plan: list[tuple[str, int, int]]) -> list[Record]:
    """Records of kernels of the given (name, duration, gap after), one after another."""
    rows, now = [], 10**18
    for name, duration, gap in plan:
        rows.append((name, now, now + duration))
        now += duration + gap
    return rows


@given(launches, st.randoms())
def test_order_of_arrival_does_not_matter(plan: list[tuple[str, int, int]], random) -> None:
    rows = laid_out(plan)
    shuffled = random.sample(rows, len(rows))
    match(shuffled, [name for name, _, _ in plan])
    assert by_start(shuffled) == rows


@given(launches.filter(bool), st.data())
def test_a_lost_a_foreign_and_a_renamed_record_are_found(plan: list[tuple[str, int, int]], data) -> None:
    rows, names = laid_out(plan), [name for name, _, _ in plan]
    victim = data.draw(st.integers(0, len(plan) - 1))
    with pytest.raises(RecordMismatch, match="records for"):
        match(rows[:victim] + rows[victim + 1 :], names)
    with pytest.raises(RecordMismatch, match="records for"):
        match([*rows, ("x", rows[-1][2], rows[-1][2] + 1)], names)
    renamed = [*rows[:victim], ("other", *rows[victim][1:]), *rows[victim + 1 :]]
    with pytest.raises(RecordMismatch, match="'other'"):
        match(renamed, names)


def test_a_record_without_times_and_an_overlap_are_found() -> None:
    with pytest.raises(RecordMismatch, match="no times"):
        match([("a", 0, 0)], ["a"])
    with pytest.raises(RecordMismatch, match="overlap"):
        match([("a", 10, 20), ("b", 15, 30)], ["a", "b"])


def test_only_the_latest_batch_counts() -> None:
    rows = laid_out([("hold", 5, 1), ("a", 5, 1), ("hold", 5, 1), ("b", 5, 1)])
    assert latest(rows, "hold") == rows[2:]
    assert latest(rows, "never") == []


def test_a_sample_of_several_launches_is_first_start_to_last_end() -> None:
    rows = laid_out([("a", 1000, 500), ("b", 2000, 0), ("a", 4000, 0)])
    assert spans(rows, [(0, 2), (2, 3)]) == pytest.approx([3.5e-3, 4e-3])
    assert spans(rows, []).size == 0


def test_blocks_alternate_who_comes_first() -> None:
    # block 0: A B B A, block 1: B A A B, block 2: A B B A; A takes 1, B takes 2, being first costs 10 more
    samples = np.array([11, 2, 2, 1, 12, 1, 1, 2, 11, 2, 2, 1], dtype=np.float64)
    a, b = split_blocks(samples)
    assert a.tolist() == [[11, 1], [1, 1], [11, 1]]
    assert b.tolist() == [[2, 2], [12, 2], [2, 2]]
