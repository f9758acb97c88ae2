"""Tree-structured Parzen estimator through Optuna, kept to valid configurations that weren't tried yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..core.model import Config, Evaluation, Value
from .base import valid_configs

if TYPE_CHECKING:
    import optuna

    from ..core.bench import Bench


class TPE:
    """Multivariate TPE on the logarithm of the score.

    Optuna models the full product of the knobs. For a proposal that breaks a restriction or was tried
    already, the untried valid configuration nearest to it is taken. (Drawing again first, `max_rejects` above
    1, found nothing better on the recordings and took seven times as long.) So every evaluation is valid and
    new, in spaces of any shape, until none is left. Failed configurations are told as infeasible, so that
    their neighbourhood is avoided without a made-up time.

    Args:
        bench: Gives the space and its valid configurations.
        seed: Of every draw.
        startup: Uniformly drawn configurations before the model starts.
        candidates: Expected-improvement candidates a proposal.
        max_rejects: Proposals drawn before falling back on the nearest to the first.
        lookahead: Configurations asked before the first is told (a live device compiles them side by side).
    """

    name = "tpe"

    def __init__(
        self,
        bench: Bench,
        *,
        seed: int = 0,
        startup: int = 10,
        candidates: int = 24,
        max_rejects: int = 1,
        lookahead: int = 4,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.lookahead = lookahead
        self._space = bench.space
        self._configs = valid_configs(bench)
        spans = np.maximum(np.array(self._space.nvec, dtype=np.float64) - 1, 1)
        self._points = self._configs.rows / spans
        self._spans = spans
        self._free = np.ones(len(self._configs), dtype=bool)  # neither asked nor told
        self._rng = np.random.default_rng([seed, 1])
        self._startup = startup
        self._max_rejects = max_rejects
        self._pending: dict[str, optuna.Trial] = {}
        self._told = 0
        self._worst = 0.0
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            knob: _distribution(values) for knob, values in self._space.knobs.items()
        }
        self._study = optuna.create_study(
            sampler=optuna.samplers.TPESampler(
                multivariate=True,
                constant_liar=lookahead > 1,
                n_startup_trials=startup,
                n_ei_candidates=candidates,
                seed=seed,
            )
        )

    def ask(self) -> Config | None:
        """A valid configuration that was neither asked nor told; None once there is none."""
        free = np.flatnonzero(self._free)
        if not len(free):
            return None
        if self._told + len(self._pending) < self._startup:
            return self._enqueue(int(self._rng.choice(free)))
        first: NDArray[np.float64] | None = None
        for _ in range(self._max_rejects):
            trial = self._study.ask(self._distributions)
            point = tuple(int(trial.params[knob]) for knob in self._space.knobs)
            config = self._space.decode(point)
            index = self._configs.position(config)
            if index is not None and self._free[index]:
                self._free[index] = False
                self._pending[self._space.key(config)] = trial
                return config
            self._reject(trial)
            if first is None:
                first = np.array(point) / self._spans
        if first is None:
            return self._enqueue(int(self._rng.choice(free)))
        distance = np.abs(self._points[free] - first).sum(axis=1)
        nearest = free[distance <= distance.min() + 1e-9]
        return self._enqueue(int(self._rng.choice(nearest)))

    def tell(self, config: Config, evaluation: Evaluation) -> None:
        """Learn an outcome. A configuration outside the space (another file's history) is ignored."""
        index = self._configs.position(config)
        if index is None:
            return
        key = self._space.key(config)
        if key not in self._pending:
            if not self._free[index]:
                return  # told before
            self._enqueue(index)
        trial = self._pending.pop(key)
        self._told += 1
        score = evaluation.score_ms
        if score is None:
            trial.set_constraint("runs", 1.0)
            self._study.tell(trial, self._worst)
        else:
            trial.set_constraint("runs", 0.0)
            value = math.log(score)
            self._worst = max(self._worst, value) if self._told > 1 else value
            self._study.tell(trial, value)

    def _enqueue(self, index: int) -> Config:
        config = self._configs[index]
        params: dict[str, Any] = dict(zip(self._space.knobs, self._space.encode(config), strict=True))
        self._study.enqueue_trial(params)
        self._free[index] = False
        self._pending[self._space.key(config)] = self._study.ask(self._distributions)
        return config

    def _reject(self, trial: optuna.Trial) -> None:
        import optuna

        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)


def _distribution(values: tuple[Value, ...]) -> optuna.distributions.BaseDistribution:
    """Over the indices of a knob's values: ordered where the values are numbers in order."""
    from optuna.distributions import CategoricalDistribution, IntDistribution

    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    ordered = len(numbers) == len(values) > 2 and numbers == sorted(numbers)
    if ordered:
        return IntDistribution(0, len(values) - 1)
    return CategoricalDistribution(tuple(range(len(values))))
