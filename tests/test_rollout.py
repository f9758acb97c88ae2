"""Rollouts and their CSVs, on synthetic recordings."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import synthetic

from warpdeck.agents.base import Stop
from warpdeck.agents.rollout import RolloutConfig, RolloutResult, rollout
from warpdeck.agents.tasks import TaskSet, open_tasks
from warpdeck.core import recording
from warpdeck.core.errors import UsageError
from warpdeck.core.model import Status
from warpdeck.kernels.loader import load_workload

STEP_COLUMNS = [
    *["episode_id", "episode_seed", "step", "kernel", "matrix_size", "block_size", "reg_cap"],
    *["time_ms", "baseline_ms", "speedup", "reward", "cupti_ok", "cupti_reason"],
]
NVML_COLUMNS = ["nvml_gpu_util_norm", "nvml_mem_util_norm", "nvml_mem_used_norm", "nvml_temp_norm"]
CUPTI_COLUMNS = [
    "cupti_achieved_occupancy_norm",
    "cupti_l2_hit_rate_norm",
    "cupti_dram_bw_pct_norm",
    "cupti_sm_active_pct_norm",
]
EPISODE_COLUMNS = [
    *["episode_id", "episode_seed", "kernel", "matrix_size", "max_steps", "use_cupti", "use_nvml"],
    *["baseline_ms", "mean_time_ms", "mean_reward", "best_speedup", "best_reward", "steps"],
]


@pytest.fixture
def files(isolated_home: Path) -> list[Path]:
    (isolated_home / "recordings").mkdir()
    found: list[Path] = []
    for kernel in ("gemm", "softmax"):
        found += synthetic.write(isolated_home / "recordings", load_workload(kernel), "classic", [256, 1024])
    return found


@pytest.fixture
def tasks(files: list[Path]) -> Iterator[TaskSet]:
    opened = open_tasks(("gemm", "softmax"), device="recorded:test")
    yield opened
    opened.close()


def read(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        rows = list(reader)
        return list(reader.fieldnames or ()), rows


def test_csvs_have_the_documents_columns_and_add_up(tasks: TaskSet, tmp_path: Path) -> None:
    result = rollout(RolloutConfig(max_steps=7, episodes_per_case=2, seed=40), tasks=tasks)
    step_file, episode_file = result.write_csv(tmp_path / "tables")
    assert (step_file.name, episode_file.name) == ("phase3_rollout.csv", "phase3_episode_summary.csv")
    columns, steps = read(step_file)
    assert columns == STEP_COLUMNS + NVML_COLUMNS
    episode_columns, episodes = read(episode_file)
    assert episode_columns == EPISODE_COLUMNS
    assert len(episodes) == 8 and len(steps) == 56
    assert [(e["kernel"], e["matrix_size"]) for e in episodes[::2]] == [
        ("gemm", "256"),
        ("gemm", "1024"),
        ("softmax", "256"),
        ("softmax", "1024"),
    ]
    for i, episode in enumerate(episodes):
        rows = [r for r in steps if int(r["episode_id"]) == i]
        assert episode["episode_seed"] == rows[0]["episode_seed"] == str(40 + i)
        assert [int(r["step"]) for r in rows] == list(range(7)) and episode["steps"] == "7"
        assert len({r["baseline_ms"] for r in rows}) == 1
        for row in rows:  # full precision: nothing is rounded away
            assert float(row["speedup"]) == float(row["baseline_ms"]) / float(row["time_ms"])
            assert float(row["reward"]) == float(row["speedup"]) - 1
            assert row["cupti_ok"] == "False" and row["reg_cap"] in {"0", "32", "64"}
        mean = sum(float(r["time_ms"]) for r in rows) / 7
        assert float(episode["mean_time_ms"]) == pytest.approx(mean, rel=1e-12)
        assert float(episode["best_speedup"]) == max(float(r["speedup"]) for r in rows)
        assert float(episode["best_reward"]) == max(float(r["reward"]) for r in rows)


def test_columns_follow_what_was_collected(tasks: TaskSet, tmp_path: Path) -> None:
    config = RolloutConfig(use_nvml=False, use_cupti=True, max_steps=1)
    columns, steps = read(rollout(config, tasks=tasks).write_csv(tmp_path)[0])
    assert columns == STEP_COLUMNS + CUPTI_COLUMNS
    assert steps[0]["cupti_ok"] == "False" and "no hardware counters" in steps[0]["cupti_reason"]
    assert all(steps[0][column] == "0.0" for column in CUPTI_COLUMNS)


def test_recorded_counters_are_in_the_csv(files: list[Path], tmp_path: Path) -> None:
    values = {}
    for file in files:
        rec = recording.load(file)
        values[rec.workload, rec.case] = synthetic.add_counters(file)
    config = RolloutConfig(
        workloads=("gemm", "softmax"), device="recorded:test", use_cupti=True, max_steps=12
    )
    _, steps = read(rollout(config).write_csv(tmp_path)[0])
    assert len(steps) == 48
    for row in steps:
        wanted = values[row["kernel"], row["matrix_size"]][f"{row['block_size']},{row['reg_cap']}"]
        assert row["cupti_ok"] == "True" and row["cupti_reason"] == ""
        assert [float(row[column]) for column in CUPTI_COLUMNS] == list(wanted.values())


def test_random_actions_repeat_with_the_seed_and_vary(tasks: TaskSet) -> None:
    def actions(seed: int) -> list[Any]:
        result = rollout(RolloutConfig(seed=seed), tasks=tasks)
        return [(r["block_size"], r["reg_cap"], r["time_ms"]) for r in result.steps]

    assert actions(1) == actions(1) != actions(2)
    assert len({a[:2] for a in actions(1)}) == 9


def test_a_failed_step_has_no_time_and_the_penalty(files: list[Path], tmp_path: Path) -> None:
    for file in files:
        rec = recording.load(file)
        entries = {
            k: replace(e, status=Status.LAUNCH_ERROR, series={}) if k.startswith("64,") else e
            for k, e in rec.entries.items()
        }
        recording.save(replace(rec, entries=entries), file)
    result = rollout(RolloutConfig(workloads=("gemm", "softmax"), device="recorded:test", max_steps=30))
    _, steps = read(result.write_csv(tmp_path)[0])
    failed = [r for r in steps if r["block_size"] == "64"]
    assert failed
    assert all(r["time_ms"] == r["speedup"] == "" and float(r["reward"]) == -1 for r in failed)
    worked = [r for r in result.steps if r["time_ms"] is not None and r["episode_id"] == 0]
    assert result.episodes[0]["mean_time_ms"] == pytest.approx(
        sum(r["time_ms"] for r in worked) / len(worked)
    )


def test_events_are_one_batch_an_episode(tasks: TaskSet) -> None:
    events: list[tuple[str, Mapping[str, Any]]] = []
    rollout(RolloutConfig(max_steps=3), tasks=tasks, sink=lambda kind, data: events.append((kind, data)))
    assert [kind for kind, _ in events] == ["steps"] * 4
    assert [s for _, d in events for s in d["step"]] == list(range(1, 13))
    for _, data in events:
        assert data["best_speedup"][-1] == max(data["speedup"])


def test_stop_returns_whole_episodes(tasks: TaskSet) -> None:
    class StopAt:
        left = 2

        def check(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise Stop

    result = rollout(RolloutConfig(max_steps=5), tasks=tasks, control=StopAt())
    assert result.stopped and len(result.episodes) == 2 and len(result.steps) == 10


def test_other_spaces_have_their_own_knobs_for_columns() -> None:
    result = RolloutResult((), (), ("tile", "vector", "reg_cap"), False, False, "")
    assert result.step_columns[5:8] == ("tile", "vector", "reg_cap")


def test_bad_requests(tasks: TaskSet, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="max_steps"):
        RolloutConfig(max_steps=0)
    with pytest.raises(UsageError, match=r"missing\.zip: No such file"):
        rollout(RolloutConfig(model=tmp_path / "missing.zip"), tasks=tasks)
    with pytest.raises(UsageError, match="2048 is not recorded"):
        rollout(RolloutConfig(workloads=("gemm",), sizes=(2048,), device="recorded:test"))
