"""Matching kernel records to launches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warpdeck.core.worker.records import RecordMismatch, match, spans

launches = st.lists(
    st.tuples(st.sampled_from(["a", "b", "wd_sweep"]), st.integers(1, 10**7), st.integers(0, 10**6)),
    max_size=40,
)


def laid_out(plan: list[tuple[str, int, int]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Names, starts and ends of kernels of the given (name, duration, gap after), one after another."""
    names, starts, ends, now = [], [], [], 10**18
    for name, duration, gap in plan:
        names.append(name)
        starts.append(now)
        ends.append(now + duration)
        now += duration + gap
    return names, np.array(starts, np.uint64), np.array(ends, np.uint64)


@given(launches, st.randoms())
def test_order_of_arrival_does_not_matter(plan: list[tuple[str, int, int]], random) -> None:
    names, starts, ends = laid_out(plan)
    order = list(range(len(plan)))
    random.shuffle(order)
    times = match([names[i] for i in order], starts[order], ends[order], names)
    assert times[:, 0].tolist() == starts.tolist()
    assert times[:, 1].tolist() == ends.tolist()


@given(launches.filter(bool), st.data())
def test_a_lost_a_foreign_and_a_renamed_record_are_found(plan: list[tuple[str, int, int]], data) -> None:
    names, starts, ends = laid_out(plan)
    victim = data.draw(st.integers(0, len(plan) - 1))
    keep = [i for i in range(len(plan)) if i != victim]
    with pytest.raises(RecordMismatch, match="records for"):
        match([names[i] for i in keep], starts[keep], ends[keep], names)
    with pytest.raises(RecordMismatch, match="records for"):
        match([*names, "x"], np.append(starts, ends[-1]), np.append(ends, ends[-1] + 1), names)
    renamed = [*names[:victim], "other", *names[victim + 1 :]]
    with pytest.raises(RecordMismatch, match="'other'"):
        match(renamed, starts, ends, names)


def test_a_record_without_times_and_an_overlap_are_found() -> None:
    with pytest.raises(RecordMismatch, match="no times"):
        match(["a"], np.array([0], np.uint64), np.array([0], np.uint64), ["a"])
    with pytest.raises(RecordMismatch, match="overlap"):
        match(["a", "b"], np.array([10, 15], np.uint64), np.array([20, 30], np.uint64), ["a", "b"])


def test_a_sample_of_several_launches_is_first_start_to_last_end() -> None:
    names, starts, ends = laid_out([("a", 1000, 500), ("b", 2000, 0), ("a", 4000, 0)])
    times = match(names, starts, ends, names)
    assert spans(times, [(0, 2), (2, 3)]) == pytest.approx([3.5e-3, 4e-3])
    assert spans(times, []).size == 0
