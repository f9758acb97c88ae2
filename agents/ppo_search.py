"""PPO as a `tune` agent: a policy trained on the run's own evaluations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3 import PPO
from stable_baselines3.common.logger import Logger

from ..core.model import Config, Evaluation
from .base import reward_of, valid_configs
from .observation import ObservationLayout
from .policy import normal_scores, one_torch_thread, quiet_sb3

if TYPE_CHECKING:
    from ..core.bench import Bench


class _Spaces(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """The observation and action space that Stable-Baselines3 asks an environment for; never stepped."""

    def __init__(self, layout: ObservationLayout) -> None:
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (layout.dim,), np.float32)
        self.action_space = gymnasium.spaces.MultiDiscrete(list(layout.nvec))


class PPOSearch:
    """Asks what the policy samples among the untried valid configurations, and trains it on what comes back.

    A run has one task, so the observation never changes and the policy is a distribution over actions, one
    factor a knob. It is conditioned on what is left to try: every evaluation is new and valid until none is
    left, and a policy that has settled goes on in the neighbourhood. A reward counts by its rank among all of
    the run's (as a normal score), so that a few slow configurations don't hide the differences among the good
    ones.

    Args:
        bench: Gives the space and its valid configurations.
        seed: Of the network and its samples.
        n_steps: Evaluations between updates; at least 2. As many are asked ahead, since the policy stays the
            same between updates.
        n_epochs: Passes over them an update.
        learning_rate: Constant.
        ent_coef: Weight of the policy's entropy.
    """

    name = "ppo"

    def __init__(
        self,
        bench: Bench,
        *,
        seed: int = 0,
        n_steps: int = 8,
        n_epochs: int = 10,
        learning_rate: float = 1e-2,
        ent_coef: float = 0.02,
    ) -> None:
        one_torch_thread()
        quiet_sb3()
        self.lookahead = n_steps
        self._bench = bench
        self._space = bench.space
        self._configs = valid_configs(bench)
        self._points = self._configs.rows.astype(np.int64)
        self._free = np.ones(len(self._configs), dtype=bool)
        self._rewards: list[float] = []
        self._batch: list[int] = []  # told since the last update
        self._rng = np.random.default_rng([seed, 2])
        layout = ObservationLayout(self._space.nvec, use_nvml=False)
        start = (0,) * len(self._space.nvec)
        self._observation = torch.from_numpy(layout.build(bench.workload.name, None, start)[None])
        self._model = PPO(
            "MlpPolicy",
            _Spaces(layout),
            n_steps=n_steps,
            batch_size=n_steps,
            n_epochs=n_epochs,
            learning_rate=learning_rate,
            gamma=0.0,
            ent_coef=ent_coef,
            normalize_advantage=False,  # the rewards are normal scores already
            seed=seed,
            device="cpu",
        )
        self._model.set_logger(Logger(None, []))  # `configure` would leave a folder in /tmp
        self._logits = self._log_probabilities()

    def ask(self) -> Config | None:
        """An untried valid configuration; None once there is none."""
        free = np.flatnonzero(self._free)
        if not len(free):
            return None
        noise = self._rng.gumbel(size=len(free))  # the largest sum is a sample of the conditioned policy
        drawn = int(free[np.argmax(self._logits[free] + noise)])
        self._free[drawn] = False
        return self._configs[drawn]

    def tell(self, config: Config, evaluation: Evaluation) -> None:
        """Learn an outcome; the policy is updated after every `n_steps`."""
        index = self._configs.position(config)
        if index is None:
            return
        self._free[index] = False
        self._rewards.append(reward_of(self._bench.speedup(evaluation)))
        self._batch.append(index)
        if len(self._batch) == self._model.n_steps:
            self._update()
            self._batch.clear()

    def _log_probabilities(self) -> NDArray[np.float64]:
        """Of every valid configuration, unconditioned."""
        with torch.no_grad():
            distribution = self._model.policy.get_distribution(self._observation).distribution
        factors: Any = distribution  # MultiDiscrete: one categorical a knob
        return np.sum(
            [f.logits[0].double().numpy()[self._points[:, k]] for k, f in enumerate(factors)], axis=0
        )

    def _update(self) -> None:
        scores = normal_scores(np.array(self._rewards, dtype=np.float32))[-len(self._batch) :]
        actions = torch.from_numpy(self._points[self._batch])
        with torch.no_grad():
            observations = self._observation.expand(len(actions), -1)
            values, log_prob, _ = self._model.policy.evaluate_actions(observations, actions)
        buffer = self._model.rollout_buffer
        buffer.reset()
        for i, score in enumerate(scores):
            row = slice(i, i + 1)
            buffer.add(
                self._observation.numpy(),
                actions[row].numpy(),
                np.array([score], dtype=np.float32),
                np.zeros(1, dtype=np.float32),
                values[row].flatten(),
                log_prob[row],
            )
        # Nothing follows: with gamma 0 the value after the last step has no weight.
        buffer.compute_returns_and_advantage(last_values=values[-1:].flatten(), dones=np.zeros(1))
        self._model.train()
        self._logits = self._log_probabilities()
