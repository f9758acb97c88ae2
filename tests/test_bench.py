"""The bench on a recorded device: what every agent may rely on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic

from warpdeck.core import recording
from warpdeck.core.bench import BASELINE_EVERY, Bench, performance_cases
from warpdeck.core.devices import open_device
from warpdeck.core.devices.recorded import RecordedBackend
from warpdeck.core.errors import UsageError, WarpdeckError
from warpdeck.core.model import Evaluation, Status
from warpdeck.kernels import load_workload

Events = list[tuple[str, Mapping[str, Any]]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recordings")
    return synthetic.write(folder, load_workload("softmax"), "classic", [256, 1024])


def bench(
    files: list[Path], events: Events | None = None, *, sizes: tuple[int, ...] = (256,), seed: int = 1
) -> Bench:
    workload = load_workload("softmax")
    sink = None if events is None else lambda kind, data: events.append((kind, data))
    return Bench(
        workload,
        open_device("recorded:test", files),
        space="classic",
        cases=performance_cases(workload, sizes),
        seed=seed,
        sink=sink,
    )


def test_finds_the_optimum_with_its_ties_and_interval(files: list[Path]) -> None:
    events: Events = []
    run = bench(files, events, sizes=(256, 1024))
    list(run.evaluate_many(run.configs()))
    result = run.finish()
    assert result.best is not None and result.best.speedup is not None
    assert result.best.evaluation.candidate.config["block_size"] == 64
    # the true speedup of the formula lies in the interval, and the three caps (one binary) tie
    truth = synthetic.true_ms({"block_size": 256}, 256) / synthetic.true_ms({"block_size": 64}, 256)
    assert result.best.speedup.lo < truth < result.best.speedup.hi
    assert [dict(e.candidate.config) for e in result.tied] == [
        {"block_size": 64, "reg_cap": c} for c in (0, 32, 64)
    ]
    assert [c.name for c in result.cases] == ["256", "1024"]
    kinds = [kind for kind, _ in events]
    assert kinds.count("evaluation") == 9 and kinds[0] == "baseline" and kinds[-1] == "result"
    assert events[-1][1]["counts"] == {"ok": 9}


def test_every_event_can_be_read_back(files: list[Path]) -> None:
    events: Events = []
    run = bench(files, events)
    evaluation = run.evaluate(run.configs()[0])
    again = Evaluation.from_json(events[-1][1])
    assert again.candidate.id == evaluation.candidate.id
    assert again.score_ms == pytest.approx(evaluation.score_ms, rel=1e-6)


def test_baseline_is_repeated_while_screening(files: list[Path]) -> None:
    events: Events = []
    run = bench(files, events)
    list(run.evaluate_many(list(run.configs()) * 5))
    judged = [kind for kind, _ in events if kind in ("baseline", "evaluation")]
    baselines = [i for i, kind in enumerate(judged) if kind == "baseline"]
    assert len(baselines) == 1 + 44 // BASELINE_EVERY
    assert baselines[1] - baselines[0] == BASELINE_EVERY + 1


def test_restrictions_that_take_long_are_told_of_and_can_be_ended(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("warpdeck.core.bench.TELL_EVERY_S", 0.0)
    workload = load_workload("softmax")
    space = replace(workload.space("classic"), restrictions=("block_size > 0", "block_size + reg_cap > 0"))
    workload = replace(workload, spaces={"classic": space})
    device = open_device("recorded:test", files)
    cases = performance_cases(workload, (256,))
    texts: list[str] = []

    class Ended(Exception):
        pass

    def end() -> None:
        raise Ended

    with pytest.raises(Ended):
        Bench(workload, device, space="classic", cases=cases, alive=end)
    Bench(workload, device, space="classic", cases=cases, sink=lambda kind, data: texts.append(data["text"]))
    assert texts == [
        f"applying the restrictions to 9 products of knobs: {percent}% done" for percent in (50, 100)
    ]


def test_what_is_outside_the_space_is_restricted_and_never_timed(files: list[Path]) -> None:
    run = bench(files)
    evaluation = run.evaluate({"block_size": 96, "reg_cap": 0})
    assert (
        evaluation.status is Status.RESTRICTED and evaluation.score_ms is None and "96" in evaluation.message
    )
    assert run.quick({"block_size": 96, "reg_cap": 0}, run.cases[0])[0] is Status.RESTRICTED


def test_faster_than_physics_is_implausible(files: list[Path], tmp_path: Path) -> None:
    slow = recording.load(files[0])
    device = replace(slow.device, dram_gbs=0.001)
    path = tmp_path / f"test-softmax-classic-256{recording.SUFFIX}"
    recording.save(replace(slow, device=device), path)
    with pytest.raises(WarpdeckError, match="below the physical floor"):
        bench([path]).baseline()


def test_resume_measures_nothing_again(files: list[Path]) -> None:
    first = bench(files)
    done = [first.evaluate(c) for c in first.configs()[:4]]
    events: Events = []
    second = bench(files, events)
    second.restore([first.baseline()], done)
    assert second.steps == 4
    result = second.finish()
    assert result.best is not None and [kind for kind, _ in events] == ["vendor", "result"]


class SlowToImport(RecordedBackend):
    """Its vendor's library is imported when it was asked for three times."""

    asked = 0

    @property
    def vendor_ready(self) -> bool:
        self.asked += 1
        return self.asked > 2


def test_the_vendor_is_timed_once_as_soon_as_it_can_be(files: list[Path]) -> None:
    events: Events = []
    run = bench(files, events)
    run.backend.__class__ = SlowToImport  # pyright: ignore[reportAttributeAccessIssue]
    for config in run.configs()[:5]:
        run.evaluate(config)
    assert run.vendor() and run.finish().to_json()["vendor_ratio"] > 0
    kinds = [kind for kind, _ in events]
    assert kinds == ["baseline", *["evaluation"] * 2, "vendor", *["evaluation"] * 3, "result"]
    vendor = dict(events)["vendor"]["cases"]
    assert {case: v["median_ms"] for case, v in vendor.items()} == {
        case: measured.median_ms for case, measured in run.vendor().items()
    }


def test_nothing_ok_gives_a_result_without_a_best(files: list[Path]) -> None:
    run = bench(files)
    run.evaluate({"block_size": 96, "reg_cap": 0})
    assert run.finish().best is None


def test_a_finalist_that_fails_when_it_is_measured_again_is_dropped(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    events: Events = []
    run = bench(files, events)
    list(run.evaluate_many(run.configs()))
    measure = run.backend.compare
    failing = {64}

    def compare(a: Any, b: Any, *rest: Any, **more: Any) -> Any:
        if b.config["block_size"] in failing:
            raise WarpdeckError("comparing: runtime_error: illegal address")
        return measure(a, b, *rest, **more)

    monkeypatch.setattr(run.backend, "compare", compare)
    result = run.finish()
    assert result.best is not None and result.best.evaluation.candidate.config["block_size"] == 128
    said = [data["text"] for kind, data in events if kind == "message"]
    assert len(said) == 1 and "block_size=64" in said[0] and "illegal address" in said[0]
    failing.update((128, 256))
    with pytest.raises(WarpdeckError, match="illegal address"):  # nothing is left to decide on
        run.finish()


def test_a_finalist_below_its_floor_is_dropped(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    events: Events = []
    run = bench(files, events)
    list(run.evaluate_many(run.configs()))
    between = [synthetic.true_ms({"block_size": b}, 256) for b in (64, 128)]
    monkeypatch.setattr(run.backend, "floor_ms", lambda case, cache: sum(between) / 2)
    result = run.finish()
    assert result.best is not None and result.best.evaluation.candidate.config["block_size"] == 128
    assert any(kind == "message" and "implausible" in data["text"] for kind, data in events)


def test_what_was_given_up_after_three_samples_is_never_tied(files: list[Path], tmp_path: Path) -> None:
    """Three samples of one round can't be told from anything, though they are far from the best."""
    whole = recording.load(files[0])
    rng = np.random.default_rng(0)
    slow = synthetic.series(10.0, rng, rounds=1, each=3)
    entries = {
        key: entry
        if entry.config["block_size"] == 64
        else replace(entry, series=dict.fromkeys(entry.series, slow), early_stop=True)
        for key, entry in whole.entries.items()
    }
    path = tmp_path / f"test-softmax-classic-256{recording.SUFFIX}"
    recording.save(replace(whole, entries=entries), path)
    run = bench([path])
    list(run.evaluate_many(run.configs()))
    result = run.finish()
    assert {e.candidate.config["block_size"] for e in result.tied} == {64}


@pytest.mark.parametrize("config", [{}, {"block_size": 64}, {"block_size": "64", "reg_cap": 0}, {"x": 1}])
def test_what_is_no_configuration_is_restricted_too(files: list[Path], config: dict[str, Any]) -> None:
    assert bench(files).evaluate(config).status is Status.RESTRICTED


def test_bad_requests(files: list[Path]) -> None:
    workload = load_workload("softmax")
    device = open_device("recorded:test", files)
    with pytest.raises(UsageError, match="no space 'fulll'"):
        Bench(workload, device, space="fulll", cases=[workload.size_case(256)])
    with pytest.raises(UsageError, match="nothing to measure"):
        Bench(workload, device, space="classic", cases=[])
