"""PPO training on synthetic recordings: artifacts, events, stopping, resuming, and that it learns."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from warpdeck.agents.base import Stop
from warpdeck.agents.env import EpisodeConfig, KernelOptimizationEnv
from warpdeck.agents.policy import load_policy, normal_scores
from warpdeck.agents.ppo import TrainConfig, TrainResult, train
from warpdeck.agents.rollout import RolloutConfig, rollout
from warpdeck.agents.tasks import TaskSet, open_tasks
from warpdeck.agents.vec_env import TaskVecEnv
from warpdeck.core.errors import NoDeviceError, UsageError
from warpdeck.kernels.loader import load_workload

KERNELS = ("gemm", "reduction", "softmax")
Events = list[tuple[str, Mapping[str, Any]]]
SMALL: dict[str, Any] = {"n_envs": 4, "n_steps": 32, "batch_size": 64, "max_episode_len": 8}


@pytest.fixture
def tasks(isolated_home: Path) -> Iterator[TaskSet]:
    """Three kernels at two sizes."""
    folder = isolated_home / "recordings"
    folder.mkdir()
    for kernel in KERNELS:
        synthetic.write(folder, load_workload(kernel), "classic", [256, 1024])
    opened = open_tasks(KERNELS, device="recorded:test")
    yield opened
    opened.close()


def run(tasks: TaskSet, out: Path, events: Events | None = None, **changes: Any) -> TrainResult:
    config = TrainConfig(**{"device": "recorded:test", **SMALL, **changes})
    sink = None if events is None else lambda kind, data: events.append((kind, data))
    return train(config, out, sink=sink, tasks=tasks)


def test_leaves_the_documents_artifacts(tasks: TaskSet, tmp_path: Path) -> None:
    events: Events = []
    result = run(
        tasks, tmp_path, events, total_steps=512, eval_freq=256, checkpoint_freq=256, tag="mine", seed=3
    )
    assert result.total_steps == 512 and result.fps > 0 and not result.stopped
    assert result.model == tmp_path / "models" / "mine.zip" and zipfile.is_zipfile(result.model)
    assert [p.name for p in result.checkpoints] == ["mine_256_steps.zip", "mine_512_steps.zip"]
    assert result.best_model == tmp_path / "models" / "mine_best" / "best_model.zip"
    assert result.best_model is not None and result.best_model.is_file()
    assert result.log == tmp_path / "logs" / "mine" / "train_rl_synthetic_gpu.log"
    assert "finished at 512 steps" in result.log.read_text()
    assert any(f.name.startswith("events.out.tfevents") for f in result.tensorboard.rglob("*"))
    summary = json.loads(result.summary.read_text())
    assert result.summary.name == "training_summary_synthetic_gpu.json"
    assert summary["hyperparameters"]["total_steps"] == 512 and summary["hyperparameters"]["seed"] == 3
    assert summary["model"] == str(result.model) and summary["fps"] == result.fps
    assert summary["tasks"][0] == {"workload": "gemm", "size": 256} and len(summary["tasks"]) == 6
    assert [e["step"] for e in summary["evaluations"]] == [256, 512]
    assert {d["name"] for k, d in events if k == "artifact"} == {"checkpoint", "model", "summary"}


def test_steps_are_logged_once_each_in_batches(tasks: TaskSet, tmp_path: Path) -> None:
    events: Events = []
    run(tasks, tmp_path, events, total_steps=384, eval_freq=0, checkpoint_freq=0)
    batches = [data for kind, data in events if kind == "steps"]
    assert len(batches) == 3  # rollouts of 128 steps
    assert [s for b in batches for s in b["step"]] == list(range(1, 385))
    speedups = [s for b in batches for s in b["speedup"]]
    best = [s for b in batches for s in b["best_speedup"]]
    assert best == np.maximum.accumulate(speedups).tolist()
    for batch in batches:
        assert batch["reward"] == pytest.approx([s - 1 for s in batch["speedup"]], rel=1e-5)
        json.dumps(batch, allow_nan=False)


def test_same_seed_same_policy(tasks: TaskSet, tmp_path: Path) -> None:
    def weights(seed: int, name: str) -> list[float]:
        result = run(tasks, tmp_path / name, total_steps=256, eval_freq=0, seed=seed)
        parameters = load_policy(result.model).model.policy.parameters()
        return [float(p.detach().sum()) for p in parameters]

    assert weights(1, "a") == weights(1, "b") != weights(2, "c")


def test_stop_keeps_the_model(tasks: TaskSet, tmp_path: Path) -> None:
    class StopAt:
        checks = 0

        def check(self) -> None:
            self.checks += 1
            if self.checks > 40:
                raise Stop

    events: Events = []
    result = train(
        TrainConfig(**SMALL, total_steps=100_000),
        tmp_path,
        sink=lambda kind, data: events.append((kind, data)),
        control=StopAt(),
        tasks=tasks,
    )
    assert result.stopped and result.total_steps == 41 * 4
    assert result.model.is_file() and json.loads(result.summary.read_text())["stopped"] is True
    assert sum(len(d["step"]) for k, d in events if k == "steps") == 41 * 4


def test_resumes_from_a_checkpoint(tasks: TaskSet, tmp_path: Path) -> None:
    first = run(tasks, tmp_path, total_steps=256, checkpoint_freq=128, tag="a")
    events: Events = []
    second = run(
        tasks, tmp_path, events, total_steps=512, tag="b", resume_from=str(first.checkpoints[0]), eval_freq=0
    )
    assert second.total_steps == 512
    steps = [s for k, d in events if k == "steps" for s in d["step"]]
    assert steps == list(range(129, 513))
    with pytest.raises(UsageError, match="has 512 steps already"):
        run(tasks, tmp_path, total_steps=512, resume_from=str(second.model))
    with pytest.raises(UsageError, match=r"13 slots .* not 14"):
        run(tasks, tmp_path, total_steps=900, resume_from=str(second.model), observe_size=True)


def test_learns_the_best_configuration_of_every_task(tasks: TaskSet, tmp_path: Path) -> None:
    """In 6,000 steps; a random choice hits one in three (block 64, whatever the cap)."""
    result = run(tasks, tmp_path, total_steps=6000, observe_size=True, eval_freq=0, checkpoint_freq=0)
    rolled = rollout(RolloutConfig(model=result.model, max_steps=10), tasks=tasks)
    for episode in rolled.episodes:
        rows = [r for r in rolled.steps if r["episode_id"] == episode["episode_id"]]
        best = max(rows, key=lambda r: r["speedup"])
        assert best["block_size"] == 64, episode


def test_policy_and_plain_stable_baselines_agree(tasks: TaskSet, tmp_path: Path) -> None:
    from stable_baselines3 import PPO

    result = run(tasks, tmp_path, total_steps=128, eval_freq=0, observe_size=True)
    policy = load_policy(result.model)
    assert policy.layout.dim == 14 and policy.trained["knobs"]["block_size"] == [64, 128, 256]
    env = KernelOptimizationEnv(EpisodeConfig(observe_size=True), tasks=tasks)
    observation, _ = env.reset(seed=0)
    plain = PPO.load(result.model).predict(observation, deterministic=True)[0]
    assert policy.act(observation).tolist() == plain.tolist()


def test_small_budgets_and_single_environments_train_too(tasks: TaskSet, tmp_path: Path) -> None:
    result = run(tasks, tmp_path, total_steps=1, n_envs=1, eval_freq=0, checkpoint_freq=0)
    assert result.total_steps >= 1


def test_failed_configurations_do_not_stop_training(isolated_home: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from warpdeck.core import recording
    from warpdeck.core.model import Status

    (isolated_home / "recordings").mkdir()
    (file,) = synthetic.write(isolated_home / "recordings", load_workload("softmax"), "classic", [256])
    rec = recording.load(file)
    entries = {
        k: e if k == "256,0" else replace(e, status=Status.COMPILE_ERROR, series={})
        for k, e in rec.entries.items()
    }
    recording.save(replace(rec, entries=entries), file)
    events: Events = []
    train(
        TrainConfig(**SMALL, workloads=("softmax",), device="recorded:test", total_steps=256),
        tmp_path,
        sink=lambda kind, data: events.append((kind, data)),
    )
    rows = [(r, s) for k, d in events if k == "steps" for r, s in zip(d["reward"], d["speedup"], strict=True)]
    assert all(r == -1.0 for r, s in rows if s is None) and any(s is None for _, s in rows)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"total_steps": 0}, "total_steps must be at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be positive"),
        ({"eval_freq": -1}, "eval_freq must not be negative"),
        ({"learning_rate": float("nan")}, "learning_rate must be positive"),
        ({"learning_rate": 1e30}, "learning_rate must be positive and at most 1"),
        ({"clip_range": -1.0}, "clip_range must be positive"),
        ({"clip_range": float("nan")}, "clip_range must be positive"),
        ({"ent_coef": float("inf")}, "ent_coef must be between 0 and 1000"),
        ({"n_envs": 10**8}, "n_envs must be at most 4096"),
        ({"torch_device": "abacus"}, "torch_device 'abacus': use cpu, cuda or cuda:N"),
        ({"tag": "../x"}, "tag '../x'"),
        ({"tag": "x" * 300}, "may hold up to 80"),
        ({"resume_from": "/nowhere.zip"}, "/nowhere.zip: No such file"),
    ],
)
def test_bad_requests(tasks: TaskSet, tmp_path: Path, changes: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        run(tasks, tmp_path, **changes)


def test_a_network_on_a_gpu_that_is_not_there_is_refused(
    tasks: TaskSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(NoDeviceError, match="Torch finds no such GPU here"):
        run(tasks, tmp_path, torch_device="cuda")


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04 broken"])
def test_a_corrupt_model_is_one_plain_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.zip"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="not a PPO model") as caught:
        load_policy(path)
    assert "\n" not in str(caught.value)


def test_vector_environment_restarts_finished_episodes(tasks: TaskSet) -> None:
    config = EpisodeConfig(max_steps=2)
    env = TaskVecEnv([KernelOptimizationEnv(config, tasks=tasks) for _ in range(3)])
    env.seed(0)
    assert env.reset().shape == (3, 13)
    env.step(np.zeros((3, 2), dtype=np.int64))
    env.step_async(np.zeros((3, 2), dtype=np.int64))
    observations, rewards, dones, infos = env.step_wait()
    assert dones.all() and rewards.shape == (3,)
    for i in range(3):
        assert infos[i]["TimeLimit.truncated"] and infos[i]["episode"]["l"] == 2
        assert infos[i]["terminal_observation"][3] == 0 and observations[i][3] == 1  # back at the baseline


@given(arrays(np.float32, st.integers(1, 40), elements=st.floats(-1e3, 1e3, width=32)))
def test_normal_scores_keep_order_and_centre(values: np.ndarray) -> None:
    scores = normal_scores(values)
    assert scores.shape == values.shape and np.isfinite(scores).all()
    assert abs(float(scores.mean())) < 0.35
    order = np.argsort(values, kind="stable")
    assert (np.diff(scores[order]) >= 0).all()
    for value in np.unique(values):
        assert len(np.unique(scores[values == value])) == 1
