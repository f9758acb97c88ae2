"""PPO as a `tune` agent: a policy trained on the run's own evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.logger import configure

from ..core.model import Config, Evaluation
from .base import FAILURE_REWARD, reward_of, valid_configs
from .observation import ObservationLayout
from .policy import TaskRolloutBuffer, one_torch_thread, quiet_sb3

if TYPE_CHECKING:
    from ..core.bench import Bench

MAX_REPLAYS = 64  # policy steps between two evaluations


class _Spaces(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """The observation and action space that Stable-Baselines3 asks an environment for; never stepped."""

    def __init__(self, layout: ObservationLayout) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (layout.dim,), np.float32)
        self.action_space = gymnasium.spaces.MultiDiscrete(list(layout.nvec))


class PPOSearch:
    """Asks what the policy samples, and trains it on what comes back.

    The policy often wants a configuration again. Its reward is known then, so the step is replayed from
    memory and trains the policy without costing an evaluation; a configuration that breaks a restriction
    gets the failure penalty the same way. After 64 such steps in a row an untried valid configuration is
    drawn instead. So every evaluation is new and valid until none is left.

    Args:
        bench: Gives the space and its valid configurations.
        seed: Of the network, its samples and the drawn configurations.
        n_steps: Policy steps, replayed ones included, between updates; at least 2.
        n_epochs: Passes over them an update.
        learning_rate: Constant.
        ent_coef: Weight of the policy's entropy.
    """

    name = "ppo"
    lookahead = 1

    def __init__(
        self,
        bench: Bench,
        *,
        seed: int = 0,
        n_steps: int = 16,
        n_epochs: int = 10,
        learning_rate: float = 1e-2,
        ent_coef: float = 0.02,
    ) -> None:
        one_torch_thread()
        quiet_sb3()
        self._bench = bench
        self._space = bench.space
        self._configs = valid_configs(bench)
        self._index = {self._space.key(c): i for i, c in enumerate(self._configs)}
        self._free = np.ones(len(self._configs), dtype=bool)
        self._rewards: dict[str, float] = {}
        self._rng = np.random.default_rng([seed, 2])
        self._layout = ObservationLayout(self._space.nvec, use_nvml=False)
        self._model = PPO(
            "MlpPolicy",
            _Spaces(self._layout),
            n_steps=n_steps,
            batch_size=n_steps,
            n_epochs=n_epochs,
            learning_rate=learning_rate,
            gamma=0.0,
            ent_coef=ent_coef,
            normalize_advantage=False,
            rollout_buffer_class=TaskRolloutBuffer,
            seed=seed,
            device="cpu",
        )
        self._model.set_logger(configure(None, []))
        self._previous: tuple[int, ...] = (0,) * len(self._space.nvec)
        self._generator = torch.get_rng_state()  # the policy's own stream, whatever else uses torch

    def ask(self) -> Config | None:
        """An untried valid configuration; None once there is none."""
        free = np.flatnonzero(self._free)
        if not len(free):
            return None
        for _ in range(MAX_REPLAYS):
            action = self._sample()
            config = self._space.decode(action)
            key = self._space.key(config)
            index = self._index.get(key)
            if index is not None and self._free[index]:
                self._free[index] = False
                return config
            self._learn(action, self._rewards.get(key, FAILURE_REWARD))
        drawn = int(self._rng.choice(free))
        self._free[drawn] = False
        return self._configs[drawn]

    def tell(self, config: Config, evaluation: Evaluation) -> None:
        """Learn an outcome."""
        key = self._space.key(config)
        if key not in self._index:
            return
        self._free[self._index[key]] = False
        self._rewards[key] = reward_of(self._bench.speedup(evaluation))
        self._learn(self._space.encode(config), self._rewards[key])

    def _observation(self) -> torch.Tensor:
        return torch.from_numpy(self._layout.build(self._bench.workload.name, None, self._previous)[None])

    def _sample(self) -> tuple[int, ...]:
        outer = torch.get_rng_state()
        torch.set_rng_state(self._generator)
        with torch.no_grad():
            action, _, _ = self._model.policy(self._observation())
        self._generator = torch.get_rng_state()
        torch.set_rng_state(outer)
        return tuple(int(i) for i in action[0])

    def _learn(self, action: tuple[int, ...], reward: float) -> None:
        """One step of the policy: put it in the buffer, update when the buffer is full."""
        observation = self._observation()
        actions = torch.tensor([action])
        with torch.no_grad():
            values, log_prob, _ = self._model.policy.evaluate_actions(observation, actions)
        buffer = self._model.rollout_buffer
        buffer.add(
            observation.numpy(),
            actions.numpy(),
            np.array([reward], dtype=np.float32),
            np.zeros(1, dtype=np.float32),
            values.flatten(),
            log_prob,
        )
        self._previous = action
        if buffer.full:
            # Nothing follows: with gamma 0 the value after the last step has no weight.
            buffer.compute_returns_and_advantage(last_values=values.flatten(), dones=np.zeros(1))
            self._model.train()
            buffer.reset()
