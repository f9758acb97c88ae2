"""Stable-Baselines3 parts shared by training, the `ppo` agent and rollouts. Imports torch."""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor

from ..core.errors import UsageError
from .observation import KERNELS, ObservationLayout

ABOUT = "warpdeck"  # the attribute under which a saved model says what it was trained on


class TaskRolloutBuffer(RolloutBuffer):
    """A rollout buffer that ranks advantages within each task.

    Tasks differ in how much a configuration matters: 3x on one, 1% on another. One normalisation over all of
    them lets the first drown the second, and a single slow configuration drown the fine differences beside
    it. So each advantage is replaced by its normal score (rank, mapped to a standard normal quantile) among
    the rollout's steps of the same task, which is the observation's `context` slots.

    Args:
        context: Slots of the observation that tell tasks apart.
    """

    def __init__(self, *args: Any, context: tuple[int, ...] = (), **kwargs: Any) -> None:
        self._context = list(context)
        super().__init__(*args, **kwargs)

    def compute_returns_and_advantage(self, last_values: torch.Tensor, dones: NDArray[np.bool_]) -> None:
        """As the base class does; then rank within tasks."""
        super().compute_returns_and_advantage(last_values, dones)
        flat = self.observations.reshape(-1, self.observations.shape[-1])[:, self._context]
        _, group = np.unique(flat, axis=0, return_inverse=True)
        advantages = self.advantages.reshape(-1)
        scores = np.empty_like(advantages)
        for number in range(int(group.max()) + 1):
            members = np.flatnonzero(group == number)
            scores[members] = normal_scores(advantages[members])
        self.advantages = scores.reshape(self.advantages.shape)


class TaskFeatures(BaseFeaturesExtractor):
    """The observation and, where it has a size, one soft slot for every (kernel, octave of size).

    Neighbouring sizes differ by an eighth in the size slot but can want different configurations; a small
    network needs long to bend that far. Triangular bumps one octave wide, by kernel, make each (kernel,
    size) its own feature, and a size in between the mean of its neighbours.

    Args:
        observation_space: Box of shape (dim,).
        size_slot: Index of the size; None leaves the observation as it is.
    """

    def __init__(self, observation_space: gymnasium.spaces.Box, size_slot: int | None = None) -> None:
        dim = observation_space.shape[0]
        octaves = 9  # 64 to 16384
        super().__init__(observation_space, dim + (len(KERNELS) * octaves if size_slot is not None else 0))
        self._slot = size_slot
        self._centres = torch.linspace(0.0, 1.0, octaves)
        self._per_octave = float(octaves - 1)

    def forward(self, observations: torch.Tensor) -> torch.Tensor:
        """Features of shape (n, features_dim)."""
        if self._slot is None:
            return observations
        size = observations[:, self._slot : self._slot + 1]
        distance = (size - self._centres.to(size.device)).abs() * self._per_octave
        bumps = (1.0 - distance).clamp(min=0.0)
        kernel = observations[:, : len(KERNELS)]
        outer = kernel.unsqueeze(2) * bumps.unsqueeze(1)
        return torch.cat([observations, outer.flatten(1)], dim=1)


def normal_scores(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Standard normal quantiles of the values' ranks, shape kept. Equal values share their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    rank = (last - (counts - 1) / 2.0)[inverse]  # from 1; ties averaged
    quantile = torch.from_numpy((rank - 0.5) / len(values))
    return torch.special.ndtri(quantile).numpy().astype(np.float32)


@dataclass(frozen=True)
class Policy:
    """A trained policy and what its observations must hold."""

    model: PPO
    path: Path
    layout: ObservationLayout
    tag: str
    trained: Mapping[str, Any]

    def act(self, observation: NDArray[np.float32], *, deterministic: bool = True) -> NDArray[np.int64]:
        """Actions for observations of shape (dim,) or (n, dim)."""
        return self.model.predict(observation, deterministic=deterministic)[0]


def load_policy(path: Path) -> Policy:
    """Load a model that `train` wrote, or a plain Stable-Baselines3 PPO with the same observation.

    A model file is a pickle: loading one runs its maker's code. Load only your own.

    Raises:
        UsageError: the file is missing, corrupt, or its observation isn't one of ours.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
    try:
        model = PPO.load(io.BytesIO(data), device="cpu")
    except (
        zipfile.BadZipFile,
        ValueError,
        KeyError,
        AttributeError,
        EOFError,
        RuntimeError,
        AssertionError,
    ) as error:
        raise UsageError(f"{path}: not a PPO model ({error})") from None
    nvec = tuple(int(n) for n in getattr(model.action_space, "nvec", ()))
    shape = model.observation_space.shape or (0,)
    for use_nvml in (True, False):
        for observe_size in (True, False):
            layout = ObservationLayout(nvec, use_nvml, observe_size)
            if layout.dim == shape[0]:
                meta = getattr(model, ABOUT, {})
                return Policy(model, path, layout, str(meta.get("tag", path.stem)), dict(meta))
    raise UsageError(
        f"{path}: its observation has {shape[0]} slots, which fits no environment of this program"
    )


def one_torch_thread() -> None:
    """These networks are too small to share between threads, and the other cores have work."""
    torch.set_num_threads(1)


def quiet_sb3() -> None:
    """No advice about GPUs that a 64-unit network has no use for."""
    warnings.filterwarnings("ignore", message="You are trying to run PPO on the GPU", category=UserWarning)
