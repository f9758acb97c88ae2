"""Rollouts (the source's phases 3 and 4): episodes of a policy or of random actions, as CSVs."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import UsageError, WarpdeckError
from ..telemetry.whole import whole
from .base import Control, EventSink, NullControl, Stop
from .env import EpisodeConfig, KernelOptimizationEnv
from .observation import COUNTERS, KERNELS, NVML
from .tasks import Task, TaskSet, tasks_of

STEP_FILE = "phase3_rollout.csv"
EPISODE_FILE = "phase3_episode_summary.csv"
EPISODE_COLUMNS = (
    "episode_id",
    "episode_seed",
    "kernel",
    "matrix_size",
    "max_steps",
    "use_cupti",
    "use_nvml",
    "baseline_ms",
    "mean_time_ms",
    "mean_reward",
    "best_speedup",
    "best_reward",
    "steps",
)
_SOURCE_KNOBS = ("block_size", "reg_cap")


@dataclass(frozen=True)
class RolloutConfig:
    """What to roll out.

    Attributes:
        model: A trained policy's file; None draws random actions.
        workloads: Workloads; each with every size gets `episodes_per_case` episodes, in order.
        sizes: Sizes; empty means every recorded one.
        max_steps: Steps an episode.
        deterministic: Take the policy's likeliest action (else sample it).
        use_nvml: Without a model, whether the environment reads NVML; with one, the model decides.
        use_cupti: Whether the environment reads hardware counters (see `EpisodeConfig`).
        cupti_timeout_s: Seconds that one start of Nsight Compute may take.
    """

    model: Path | None = None
    workloads: tuple[str, ...] = KERNELS
    sizes: tuple[int, ...] = ()
    device: str = "auto"
    space: str = "classic"
    cache: str = "cold"
    episodes_per_case: int = 1
    max_steps: int = 10
    deterministic: bool = True
    use_nvml: bool = True
    use_cupti: bool = False
    cupti_timeout_s: float = 120
    reward: str = "speedup"
    seed: int = 0
    allow_shared: bool = False

    def __post_init__(self) -> None:
        for name in ("episodes_per_case", "max_steps"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class RolloutResult:
    """Rows as the CSVs hold them, in order. A failed step has None for time and speedup (an empty cell)."""

    steps: tuple[Mapping[str, Any], ...]
    episodes: tuple[Mapping[str, Any], ...]
    knobs: tuple[str, ...]
    use_cupti: bool
    use_nvml: bool
    device: str
    stopped: bool = False

    @property
    def step_columns(self) -> tuple[str, ...]:
        """The source's columns. Knobs of other spaces stand where `block_size` and `reg_cap` do."""
        knobs = _SOURCE_KNOBS if set(self.knobs) <= set(_SOURCE_KNOBS) else self.knobs
        return (
            *("episode_id", "episode_seed", "step", "kernel", "matrix_size", *knobs),
            *("time_ms", "baseline_ms", "speedup", "reward", "cupti_ok", "cupti_reason"),
            *(f"cupti_{c}_norm" for c in COUNTERS if self.use_cupti),
            *(f"nvml_{n}_norm" for n in NVML if self.use_nvml),
        )

    def write_csv(self, folder: Path) -> tuple[Path, Path]:
        """Write `phase3_rollout.csv` and `phase3_episode_summary.csv`; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        steps, episodes = folder / STEP_FILE, folder / EPISODE_FILE
        _write(steps, self.step_columns, self.steps)
        _write(episodes, EPISODE_COLUMNS, self.episodes)
        return steps, episodes


def rollout(
    config: RolloutConfig,
    *,
    sink: EventSink | None = None,
    control: Control | None = None,
    tasks: TaskSet | None = None,
) -> RolloutResult:
    """Run episodes and collect their rows.

    Episode i is seeded with `seed + i`, which on a recorded device fixes everything in it.

    Args:
        config: What to roll out.
        sink: Receives one `steps` event an episode.
        control: Pauses and stops; what was done until then is returned.
        tasks: Open tasks to use instead of opening `config`'s.

    Raises:
        UsageError: unknown names, an unrecorded size, a file that is no model, a model for other knobs.
    """
    policy = None
    if config.model is not None:
        from .policy import load_policy, one_torch_thread

        one_torch_thread()
        policy = load_policy(config.model)
    owned = tasks is None
    tasks = tasks or tasks_of(config)
    try:
        use_nvml = config.use_nvml if policy is None else policy.layout.use_nvml
        episode = EpisodeConfig(
            kernel_name=config.workloads,
            matrix_size=config.sizes or None,
            max_steps=config.max_steps,
            use_cupti=config.use_cupti,
            cupti_timeout_s=config.cupti_timeout_s,
            use_nvml=use_nvml,
            device=config.device,
            space=config.space,
            cache=config.cache,
            observe_size=policy is not None and policy.layout.observe_size,
            reward="log_improvement" if config.reward == "log_improvement" else "speedup",
        )
        env = KernelOptimizationEnv(episode, tasks=tasks)
        if policy is not None and policy.layout != env.layout:
            raise UsageError(
                f"{config.model}: was trained on knobs of sizes {list(policy.layout.nvec)};"
                f" space '{config.space}' has {list(env.layout.nvec)}"
            )

        def act(observation: NDArray[np.float32]) -> NDArray[np.int64]:
            if policy is None:
                return env.action_space.sample()
            return policy.act(observation, deterministic=config.deterministic)

        if policy is not None and not config.deterministic:
            policy.model.set_random_seed(config.seed)
        steps: list[dict[str, Any]] = []
        episodes: list[dict[str, Any]] = []
        stopped = False
        try:
            for task in tasks.tasks:
                for _ in range(config.episodes_per_case):
                    (control or NullControl()).check()
                    number = len(episodes)
                    head = {"episode_id": number, "episode_seed": config.seed + number}
                    rows = _episode(env, task, head, act)
                    steps += rows
                    episodes.append(_episode_row(head, rows, config, use_nvml))
                    if sink is not None:
                        sink("steps", _columns(rows, len(steps) - len(rows)))
        except Stop:
            stopped = True
        return RolloutResult(
            tuple(steps),
            tuple(episodes),
            tuple(tasks.space.knobs),
            config.use_cupti,
            use_nvml,
            tasks.label,
            stopped,
        )
    finally:
        if owned:
            tasks.close()


def _episode(
    env: KernelOptimizationEnv,
    task: Task,
    head: Mapping[str, Any],
    act: Callable[[NDArray[np.float32]], NDArray[np.int64]],
) -> list[dict[str, Any]]:
    """The rows of an episode's steps."""
    options = {"kernel": task.kernel, "size": task.size}
    observation, _ = env.reset(seed=head["episode_seed"], options=options)
    rows: list[dict[str, Any]] = []
    done = False
    while not done:
        observation, reward, terminated, truncated, info = env.step(act(observation))
        rows.append(_step_row(head, len(rows), info, reward))
        done = terminated or truncated
    return rows


def _step_row(head: Mapping[str, Any], step: int, info: Mapping[str, Any], reward: float) -> dict[str, Any]:
    row = {
        **head,
        "step": step,
        "kernel": info["kernel"],
        "matrix_size": info["matrix_size"],
        "reg_cap": 0,  # where the space has no such knob, the compiler's default
        **info["config"],
        "time_ms": info["time_ms"],
        "baseline_ms": info["baseline_ms"],
        "speedup": info["speedup"],
        "reward": reward,
        "cupti_ok": info["cupti_ok"],
        "cupti_reason": info["cupti_reason"],
        "status": info["status"],
    }
    row |= {k: v for k, v in info.items() if k.startswith(("cupti_", "nvml_")) and k.endswith("_norm")}
    return row


def _episode_row(
    head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], config: RolloutConfig, use_nvml: bool
) -> dict[str, Any]:
    times = [r["time_ms"] for r in rows if r["time_ms"] is not None]
    speedups = [r["speedup"] for r in rows if r["speedup"] is not None]
    rewards = [r["reward"] for r in rows]
    return {
        **head,
        "kernel": rows[0]["kernel"],
        "matrix_size": rows[0]["matrix_size"],
        "max_steps": config.max_steps,
        "use_cupti": config.use_cupti,
        "use_nvml": use_nvml,
        "baseline_ms": rows[0]["baseline_ms"],
        "mean_time_ms": sum(times) / len(times) if times else None,
        "mean_reward": sum(rewards) / len(rewards),
        "best_speedup": max(speedups, default=None),
        "best_reward": max(rewards),
        "steps": len(rows),
    }


def _columns(rows: Sequence[Mapping[str, Any]], before: int) -> dict[str, list[Any]]:
    """A `steps` event; the best speedup is the episode's so far."""
    best: float | None = None
    columns: dict[str, list[Any]] = {"step": [], "reward": [], "speedup": [], "best_speedup": []}
    for i, row in enumerate(rows):
        speedup = row["speedup"]
        if speedup is not None and (best is None or speedup > best):
            best = speedup
        columns["step"].append(before + i + 1)
        columns["reward"].append(row["reward"])
        columns["speedup"].append(speedup)
        columns["best_speedup"].append(best)
    return columns


def _write(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    try:
        with whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns, extrasaction="ignore", restval="")
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise WarpdeckError(f"can't write {path}: {error.strerror}") from None
