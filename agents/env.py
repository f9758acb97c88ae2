"""The Gymnasium environment: one step is one configuration, measured by the bench's quick protocol.

`import warpdeck.agents` registers it, so that `gymnasium.make("warpdeck/KernelTuning-v0",
kernel_name="gemm")` works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from numpy.typing import NDArray

from ..core.errors import UsageError, WarpdeckError
from ..core.model import CacheMode, Candidate, Config, Status
from .base import FAILURE_REWARD
from .observation import COUNTERS, KERNELS, NVML, ObservationLayout
from .readings import CounterReading, NvmlReader
from .tasks import Task, TaskSet, open_tasks

PROTOCOL = "1 warm-up + 5 samples, median"
_COUNTER_KEYS = tuple(f"cupti_{c}_norm" for c in COUNTERS)
_NVML_KEYS = tuple(f"nvml_{n}_norm" for n in NVML)


@dataclass(frozen=True)
class EpisodeConfig:
    """What an episode is about and how it is scored.

    Attributes:
        kernel_name: A workload, several to draw from, or "random" for the three bundled ones.
        matrix_size: A size, several to draw from, or None for every recorded size.
        max_steps: Steps until the episode is truncated.
        use_cupti: Fill the four counter slots: from the recording, or on a live device by Nsight Compute,
            which runs (seconds) once a case for all of a space of up to 16 configurations, else once for
            each. Where that fails they are zero, `cupti_ok` in the info is False, and `cupti_reason` says
            why.
        use_nvml: Whether the observation has the four NVML slots.
        cupti_timeout_s: Seconds that one start of Nsight Compute may take.
        device: As `--device`: "auto", "cuda:0", "recorded:h200".
        space: Search space that the actions index.
        cache: "cold" or "hot".
        observe_size: Append the size to the observation.
        reward: "speedup" (speedup - 1), or "log_improvement" (logarithm of the improvement of the episode's
            best time so far, which starts at the baseline; 0 without one).
        failure_penalty: The reward of a configuration that has no time.
        allow_shared: Measure although other processes use the GPU.
    """

    kernel_name: str | Sequence[str] = "gemm"
    matrix_size: int | Sequence[int] | None = 512
    max_steps: int = 50
    use_cupti: bool = False
    use_nvml: bool = True
    cupti_timeout_s: float = 120
    device: str = "auto"
    space: str = "classic"
    cache: str = "cold"
    observe_size: bool = False
    reward: Literal["speedup", "log_improvement"] = "speedup"
    failure_penalty: float = FAILURE_REWARD
    allow_shared: bool = False

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise UsageError(f"max_steps must be at least 1, not {self.max_steps}")
        if self.cupti_timeout_s <= 0:
            raise UsageError(f"cupti_timeout_s must be above 0, not {self.cupti_timeout_s}")
        if self.reward not in ("speedup", "log_improvement"):
            raise UsageError(f"reward must be 'speedup' or 'log_improvement', not '{self.reward}'")
        if self.cache not in tuple(CacheMode):
            raise UsageError(f"cache must be 'cold' or 'hot', not '{self.cache}'")

    @property
    def kernels(self) -> tuple[str, ...]:
        """The workloads to draw from."""
        if isinstance(self.kernel_name, str):
            return KERNELS if self.kernel_name == "random" else (self.kernel_name,)
        return tuple(self.kernel_name)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes to draw from; empty: every recorded one."""
        if self.matrix_size is None:
            return ()
        return (self.matrix_size,) if isinstance(self.matrix_size, int) else tuple(self.matrix_size)


class KernelOptimizationEnv(gymnasium.Env[NDArray[np.float32], NDArray[np.int64]]):
    """Choose configurations; be rewarded for speed.

    Actions are `MultiDiscrete` over the space's knobs (indices of their values). The observation is
    described by `layout` (its slots' names are in `reset`'s info). At a reset a task (workload and size) is
    drawn and its baseline measured. A configuration that breaks a restriction or fails gets
    `failure_penalty` and no time. On a recorded device everything follows from the seed.

    Args:
        config: The episode; or give its fields as keyword arguments.
        tasks: Tasks that are already open, to share benches between environments; else they are opened here.

    Raises:
        UsageError: unknown names, sizes that aren't recorded, workloads whose knobs differ.
    """

    def __init__(
        self, config: EpisodeConfig | None = None, *, tasks: TaskSet | None = None, **fields: Any
    ) -> None:
        if config is not None and fields:
            raise UsageError(f"give either an EpisodeConfig or its fields, not both ({', '.join(fields)})")
        self.config = config or EpisodeConfig(**fields)
        self._owned = tasks is None
        self.tasks = tasks or open_tasks(
            self.config.kernels,
            self.config.sizes,
            device=self.config.device,
            space=self.config.space,
            cache=CacheMode(self.config.cache),
            allow_shared=self.config.allow_shared,
        )
        self._space = self.tasks.space
        self.layout = ObservationLayout(self._space.nvec, self.config.use_nvml, self.config.observe_size)
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (self.layout.dim,), np.float32)
        self.action_space = gymnasium.spaces.MultiDiscrete(list(self._space.nvec))
        self._baseline_action = self.tasks.baseline
        self._task = self.tasks.tasks[0]
        self._reader: NvmlReader | None = None
        self._readings: tuple[float, ...] = ()
        self._counters = CounterReading()
        self._baseline_ms = math.nan
        self._best_ms = math.nan
        self._steps = 0

    @property
    def task(self) -> Task:
        """The current episode's workload and size."""
        return self._task

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start an episode: draw a task and measure its baseline.

        Args:
            seed: Reseeds the environment's generator, the recorded samples' draws and the action space.
            options: `kernel` and `size` choose the task instead of drawing it.

        Raises:
            UsageError: there is no such task.
            WarpdeckError: the baseline itself fails.
        """
        super().reset(seed=seed)
        if seed is not None:
            self.action_space.seed(seed)
        wanted = options or {}
        choice = self.tasks.find(wanted.get("kernel"), wanted.get("size"))
        self._task = choice[int(self.np_random.integers(len(choice)))]
        status, samples = self._task.bench.quick_baseline(self._task.case, self.np_random)
        if status is not Status.OK:
            raise WarpdeckError(
                f"the baseline of {self._task.kernel}, size {self._task.size}, failed on {self.tasks.label}:"
                f" {status}"
            )
        self._baseline_ms = self._best_ms = median(samples)
        self._steps = 0
        self._reader = self.tasks.reader(self._task) if self.config.use_nvml else None
        self._read(lambda: self._task.bench.baseline_candidate)
        info = self._info()
        info["observation_slots"] = self.layout.names
        info["baseline_config"] = dict(self._task.bench.baseline_candidate.config)
        return self._observe(self._baseline_action), info

    def step(
        self, action: NDArray[np.int64]
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Measure one configuration.

        Returns:
            Observation, reward, terminated (never), truncated (after `max_steps`), and info: `config`,
            `status`, `time_ms` and `speedup` (None without a time), `best_speedup`, and what `reset` says of
            the episode.
        """
        if math.isnan(self._baseline_ms):
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        index = tuple(int(i) for i in action)
        config = self._space.decode(index)
        status, samples = self._task.bench.quick(config, self._task.case, self.np_random)
        time_ms = median(samples) if status is Status.OK else None
        reward = self._reward(time_ms)
        self._steps += 1
        if time_ms is not None:
            self._best_ms = min(self._best_ms, time_ms)
        self._read((lambda: self._task.bench.candidate(config)) if status is Status.OK else None, status)
        info = self._info(config)
        info["status"] = str(status)
        info["time_ms"] = time_ms
        info["speedup"] = None if time_ms is None else self._baseline_ms / time_ms
        info["best_speedup"] = self._baseline_ms / self._best_ms
        return self._observe(index), reward, False, self._steps >= self.config.max_steps, info

    def close(self) -> None:
        """Release the device, if it was opened here."""
        if self._owned:
            self.tasks.close()

    def _reward(self, time_ms: float | None) -> float:
        if time_ms is None:
            return self.config.failure_penalty
        if self.config.reward == "speedup":
            return self._baseline_ms / time_ms - 1.0
        return max(0.0, math.log(self._best_ms / time_ms))

    def _observe(self, previous: Sequence[int]) -> NDArray[np.float32]:
        task, counters = self._task, self._counters.values if self.config.use_cupti else ()
        return self.layout.build(task.kernel, task.size, previous, self._readings, counters)

    def _read(self, candidate: Callable[[], Candidate] | None, status: Status = Status.OK) -> None:
        """Take this step's readings, for observation and info alike; nothing is being measured now."""
        if self._reader is not None:
            self._readings = self._reader.read()
        if not self.config.use_cupti:
            return
        if candidate is None:
            self._counters = CounterReading(reason=f"the configuration failed: {status}")
        else:
            reader = self.tasks.counters(self.config.cupti_timeout_s)
            self._counters = reader.read(self._task, candidate())

    def _info(self, config: Config | None = None) -> dict[str, Any]:
        info: dict[str, Any] = {
            "kernel": self._task.kernel,
            "matrix_size": self._task.size,
            "baseline_ms": self._baseline_ms,
            "device": self.tasks.label,
            "protocol": PROTOCOL,
            "cupti_ok": self._counters.ok,
            "cupti_reason": self._counters.reason,
            "nvml_source": self._reader.source if self._reader is not None else "off",
        }
        if config is not None:
            info["config"] = dict(config)
            info |= {k: config[k] for k in ("block_size", "reg_cap") if k in config}
        if self.config.use_cupti:
            info |= zip(_COUNTER_KEYS, self._counters.values, strict=True)
        if self._reader is not None:
            info |= zip(_NVML_KEYS, self._readings, strict=True)
        return info


def median(samples: NDArray[np.float64]) -> float:
    """Median of a handful of samples (NumPy's own takes longer than the measurement's bookkeeping)."""
    ordered = sorted(samples.tolist())
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
