"""What a training run is asked for, and what it leaves. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from .base import FAILURE_REWARD
from .env import EpisodeConfig
from .observation import KERNELS

_TAG = re.compile(r"\w[\w.-]{0,79}")  # of files' names
MAX_ENVS = 4096
MAX_ENT_COEF = 1e3


@dataclass(frozen=True)
class TrainConfig:
    """Everything a training run depends on; the summary stores it.

    The defaults train three kernels on five recorded sizes in 50,000 steps. The problem is a contextual
    bandit (what a configuration is worth doesn't depend on the one before), so rewards aren't discounted
    over steps.

    Attributes:
        workloads: Workloads to draw episodes from.
        sizes: Their sizes; empty means every recorded one.
        total_steps: Environment steps, rounded up to whole rollouts (`n_envs` x `n_steps`).
        max_episode_len: Steps an episode.
        n_steps: Steps of each environment between updates; shortened where `total_steps` is small.
        eval_freq: Steps between evaluations of the deterministic policy; 0 for none.
        n_eval_episodes: Episodes an evaluation, over the tasks in turn; 0 means one of each task.
        checkpoint_freq: Steps between checkpoints; 0 for none.
        learning_rate: At the start; falls linearly to zero if `anneal`.
        torch_device: Where the network runs.
        resume_from: A checkpoint to go on from; `total_steps` counts its steps too.
        tag: Names the artifacts; made from device, reward and seed if empty.
    """

    workloads: tuple[str, ...] = KERNELS
    sizes: tuple[int, ...] = ()
    device: str = "auto"
    space: str = "classic"
    cache: str = "cold"
    total_steps: int = 50_000
    max_episode_len: int = 50
    use_nvml: bool = True
    use_cupti: bool = False
    cupti_timeout_s: float = 120
    observe_size: bool = False
    reward: str = "speedup"
    failure_penalty: float = FAILURE_REWARD
    n_envs: int = 16
    n_steps: int = 64
    batch_size: int = 512
    n_epochs: int = 8
    learning_rate: float = 1e-3
    anneal: bool = True
    gamma: float = 0.0
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    ent_coef: float = 0.01
    vf_coef: float = 0.5
    net: tuple[int, ...] = (64, 64)
    eval_freq: int = 5_000
    n_eval_episodes: int = 0
    checkpoint_freq: int = 10_000
    seed: int = 0
    torch_device: str = "cpu"
    tag: str = ""
    resume_from: str | None = None
    allow_shared: bool = False

    def __post_init__(self) -> None:
        for name in ("total_steps", "max_episode_len", "n_envs", "n_steps", "batch_size", "n_epochs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("eval_freq", "n_eval_episodes", "checkpoint_freq"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} must not be negative, not {getattr(self, name)}")
        for name, most in (("learning_rate", 1.0), ("clip_range", 1.0)):
            value = getattr(self, name)
            if not 0 < value <= most:  # also not a number
                raise UsageError(f"{name} must be positive and at most {most:g}, not {value}")
        if not 0 <= self.ent_coef <= MAX_ENT_COEF:
            raise UsageError(f"ent_coef must be between 0 and {MAX_ENT_COEF:g}, not {self.ent_coef}")
        if self.tag and not _TAG.fullmatch(self.tag):
            raise UsageError(f"tag '{self.tag[:90]}' may hold up to 80 letters, digits, '_', '-', '.'")
        if self.n_envs > MAX_ENVS:
            raise UsageError(f"n_envs must be at most {MAX_ENVS}, not {self.n_envs}")

    def episode(self) -> EpisodeConfig:
        """The environments' configuration."""
        return EpisodeConfig(
            kernel_name=self.workloads,
            matrix_size=self.sizes or None,
            max_steps=self.max_episode_len,
            use_cupti=self.use_cupti,
            use_nvml=self.use_nvml,
            cupti_timeout_s=self.cupti_timeout_s,
            device=self.device,
            space=self.space,
            cache=self.cache,
            observe_size=self.observe_size,
            reward="log_improvement" if self.reward == "log_improvement" else "speedup",
            failure_penalty=self.failure_penalty,
            allow_shared=self.allow_shared,
        )


@dataclass(frozen=True)
class TrainResult:
    """Where a training run left its files, and how it went.

    `fps` is steps over the seconds from the first step to the last update, evaluations and checkpoints
    included.
    """

    model: Path
    best_model: Path | None
    checkpoints: tuple[Path, ...]
    summary: Path
    log: Path
    tensorboard: Path
    total_steps: int
    fps: float
    seconds: float
    stopped: bool
    evaluations: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        """`train --json`'s document without its schema version."""
        return {
            "fps": self.fps,
            "total_steps": self.total_steps,
            "model": str(self.model),
            "best_model": None if self.best_model is None else str(self.best_model),
            "summary": str(self.summary),
            "checkpoints": [str(p) for p in self.checkpoints],
            "tensorboard": str(self.tensorboard),
            "log": str(self.log),
            "seconds": self.seconds,
            "stopped": self.stopped,
            "evaluations": [dict(e) for e in self.evaluations],
        }
