"""A vectorised environment without Stable-Baselines3's deep copies, which outweigh a recorded step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env import VecEnv

from .env import KernelOptimizationEnv


class TaskVecEnv(VecEnv):
    """Environments stepped one after another in this process (they share one device anyway).

    A finished one restarts at once. Its last info has `terminal_observation`, `TimeLimit.truncated` and
    `episode` (`r` return, `l` length), as Stable-Baselines3's `Monitor` gives it.

    Args:
        envs: At least one, all with equal spaces.
    """

    def __init__(self, envs: Sequence[KernelOptimizationEnv]) -> None:
        self.envs = list(envs)
        self.render_mode = None
        super().__init__(len(self.envs), self.envs[0].observation_space, self.envs[0].action_space)
        self._actions: NDArray[np.int64] | None = None
        self._returns = np.zeros(self.num_envs)
        self._lengths = np.zeros(self.num_envs, dtype=np.int64)

    def reset(self) -> NDArray[np.float32]:
        """Reset all. Returns observations, shape (envs, dim)."""
        observations = []
        for i, env in enumerate(self.envs):
            observation, self.reset_infos[i] = env.reset(seed=self._seeds[i], options=self._options[i])
            observations.append(observation)
        self._reset_seeds()
        self._reset_options()
        self._returns[:] = 0
        self._lengths[:] = 0
        return np.stack(observations)

    def step_async(self, actions: NDArray[np.int64]) -> None:
        """Remember the actions, shape (envs, knobs)."""
        self._actions = actions

    def step_wait(
        self,
    ) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Step all. Returns observations, rewards, dones and infos."""
        assert self._actions is not None
        observations = np.empty((self.num_envs, *(self.observation_space.shape or ())), dtype=np.float32)
        rewards = np.empty(self.num_envs, dtype=np.float32)
        dones = np.zeros(self.num_envs, dtype=np.bool_)
        infos: list[dict[str, Any]] = []
        for i, env in enumerate(self.envs):
            observation, reward, terminated, truncated, info = env.step(self._actions[i])
            self._returns[i] += reward
            self._lengths[i] += 1
            if terminated or truncated:
                info["terminal_observation"] = observation
                info["TimeLimit.truncated"] = truncated and not terminated
                info["episode"] = {"r": float(self._returns[i]), "l": int(self._lengths[i])}
                self._returns[i] = 0
                self._lengths[i] = 0
                dones[i] = True
                observation, self.reset_infos[i] = env.reset()
            observations[i] = observation
            rewards[i] = reward
            infos.append(info)
        return observations, rewards, dones, infos

    def close(self) -> None:
        """Close every environment."""
        for env in self.envs:
            env.close()

    def _chosen(self, indices: Any) -> list[KernelOptimizationEnv]:
        return [self.envs[i] for i in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of each environment."""
        return [getattr(env, attr_name) for env in self._chosen(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of each environment."""
        for env in self._chosen(indices):
            setattr(env, attr_name, value)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of each environment."""
        return [getattr(env, method_name)(*args, **kwargs) for env in self._chosen(indices)]

    def env_is_wrapped(self, wrapper_class: type, indices: Any = None) -> list[bool]:
        """Whether each environment is wrapped; none is."""
        return [False for _ in self._chosen(indices)]
