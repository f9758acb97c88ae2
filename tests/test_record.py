"""Recording a whole space: what is screened, measured in rounds, marked and kept; on made-up numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import synthetic
from numpy.typing import NDArray

from warpdeck.core import recording
from warpdeck.core.errors import WarpdeckError
from warpdeck.core.model import CacheMode, Candidate, Case, Evaluation, Launch, Resources, Status
from warpdeck.core.record import CACHES, PER_ROUND, ROUNDS, SCREEN, record
from warpdeck.kernels import load_workload

SOFTMAX = load_workload("softmax")
CASE = SOFTMAX.size_case(256)


class Numbers:
    """A device on which a block's size decides: with 64 threads nothing compiles, with 128 all caps are one
    binary, ten times slower; a cap in `fails` traps in the round of that number."""

    info = synthetic.DEVICE

    def __init__(self, *, fails: Mapping[int, int] | None = None, broken: bool = False) -> None:
        self.fails = fails or {}
        self.broken = broken
        self.batches: list[list[Candidate]] = []
        self.passes = 0

    def admit(self, candidates: Sequence[Candidate], case: Case) -> Sequence[Evaluation]:
        return [self._admitted(candidate) for candidate in candidates]

    def _admitted(self, candidate: Candidate) -> Evaluation:
        size, cap = candidate.config["block_size"], candidate.config["reg_cap"]
        if size == 64 or self.broken:
            return Evaluation(candidate, Status.COMPILE_ERROR, "no such block")
        code = f"{size}" if size == 128 else f"{size}, {cap}"
        launches = {CASE.name: (Launch("k", (1, 1, 1), (64, 1, 1)),)}
        return Evaluation(
            candidate, Status.OK, launches=launches, resources=Resources(32, code_hash=code), compile_s=0.25
        )

    def rounds(
        self, candidates: Sequence[Candidate], case: Case, *, samples: int, warmup: int
    ) -> tuple[list[Mapping[CacheMode, NDArray[np.float64]] | Evaluation], str]:
        self.batches.append(list(candidates))
        return [self._measured(candidate, samples) for candidate in candidates], "numbers"

    def _measured(
        self, candidate: Candidate, samples: int
    ) -> Mapping[CacheMode, NDArray[np.float64]] | Evaluation:
        if samples != SCREEN and self.fails.get(int(candidate.config["reg_cap"])) == self.passes:
            return Evaluation(candidate, Status.RUNTIME_ERROR, "it trapped")
        ms = 0.1 if candidate.config["block_size"] == 128 else 0.01
        return {cache: np.full(samples, ms) for cache in CACHES}

    def vendor_round(self, case: Case, *, samples: int) -> Mapping[CacheMode, NDArray[np.float64]]:
        self.passes += 1
        return {CacheMode.COLD: np.full(samples, 0.02)}


def test_every_configuration_is_kept_as_what_became_of_it(tmp_path: Path) -> None:
    device = Numbers(fails={32: 3})
    told: list[str] = []
    made = record(
        device, SOFTMAX, "classic", CASE, name="made", progress=lambda what, done, total: told.append(what)
    )
    recording.save(made, tmp_path / made.file_name)
    found = recording.load(tmp_path / made.file_name)
    assert list(dict.fromkeys(told)) == ["compile and check", "screen", "rounds"]
    assert found.entries.keys() == {f"{b},{r}" for b in (64, 128, 256) for r in (0, 32, 64)}
    for key, entry in found.entries.items():
        size, cap = key.split(",")
        assert entry.early_stop == (size == "128")
        if size == "64":
            assert (entry.status, entry.message) == (Status.COMPILE_ERROR, "no such block")
        elif size == "128":  # one binary, which was hopeless after three samples
            assert entry.same_as == (None if cap == "0" else "128,0")
            assert {c: list(s.ms) for c, s in entry.series.items()} == {c: [0.1] * SCREEN for c in CACHES}
        elif cap == "32":  # what was measured before it trapped counts for nothing
            assert (entry.status, entry.message, entry.series) == (Status.RUNTIME_ERROR, "it trapped", {})
        else:
            assert entry.status is Status.OK and entry.compile_s == 0.25
            times = 2 if cap == "0" else 1  # it is the baseline too
            for series in entry.series.values():
                assert list(series.rounds) == [n for n in range(ROUNDS) for _ in range(times * PER_ROUND)]
    assert len(found.baseline.series[CacheMode.COLD].ms) == 2 * ROUNDS * PER_ROUND
    assert len(found.vendor[CacheMode.COLD].ms) == ROUNDS * PER_ROUND
    assert found.protocol["clock"] == "numbers" and found.date == made.date


def test_each_round_has_an_order_of_its_own_and_the_baseline_first() -> None:
    device = Numbers()
    record(device, SOFTMAX, "classic", CASE, name="made", seed=5)
    screened, *rounds = device.batches
    assert len(screened) == 4 and len(rounds) == ROUNDS  # a binary of 128 threads, three of 256
    assert all(batch[0] == SOFTMAX.baseline("classic") for batch in rounds)
    orders = {tuple(c.config["reg_cap"] for c in batch[1:]) for batch in rounds}
    assert len(orders) > 1 and {frozenset(order) for order in orders} == {frozenset((0, 32, 64))}


@pytest.mark.parametrize(
    ("device", "words"),
    [
        (Numbers(broken=True), "failed on case 256: compile_error: no such block"),
        (Numbers(fails={0: 2}), "the baseline failed while recording: it trapped"),
    ],
)
def test_without_a_baseline_there_is_no_recording(device: Numbers, words: str) -> None:
    with pytest.raises(WarpdeckError, match=words):
        record(device, SOFTMAX, "classic", CASE, name="made")
