"""Training a PPO policy on the environment (the source's phase 3), through Stable-Baselines3."""

from __future__ import annotations

import json
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.utils import LinearSchedule

from .. import __version__
from ..core.errors import NoDeviceError, UsageError, WarpdeckError
from .base import Control, EventSink, NullControl, Stop
from .env import PROTOCOL, KernelOptimizationEnv
from .policy import ABOUT, TaskFeatures, TaskRolloutBuffer, load_policy, one_torch_thread, quiet_sb3
from .tasks import TaskSet, tasks_of
from .train_config import TrainConfig, TrainResult
from .vec_env import TaskVecEnv


def require_torch_device(name: str) -> None:
    """Refuse what Torch can't use, where Stable-Baselines3 would fall back to the CPU in silence.

    Raises UsageError for no device, NoDeviceError for one that isn't here.
    """
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"torch_device '{name}': use cpu, cuda or cuda:N") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise NoDeviceError(f"torch_device '{name}': Torch finds no such GPU here; leave it at cpu")


def train(
    config: TrainConfig,
    out_dir: Path,
    *,
    sink: EventSink | None = None,
    control: Control | None = None,
    tasks: TaskSet | None = None,
) -> TrainResult:
    """Train a policy and write its artifacts under `out_dir`.

    Files: `models/<tag>.zip`, `models/<tag>_<n>_steps.zip`, `models/<tag>_best/best_model.zip`,
    `logs/<tag>/train_rl_<gpu>.log`, `logs/<tag>/training_summary_<gpu>.json`, `logs/tensorboard/`.

    Args:
        config: What to train.
        out_dir: Created if missing.
        sink: Receives a `steps` event a rollout (columns step, reward, speedup, best_speedup), messages,
            artifacts.
        control: Pauses and stops; a stopped run writes its model and summary all the same.
        tasks: Open tasks to use instead of opening `config`'s.

    Raises:
        UsageError: an unknown name, an impossible value, an unrecorded size, an unusable checkpoint.
        NoDeviceError: the device, or the network's, isn't there.
    """
    require_torch_device(config.torch_device)
    one_torch_thread()
    quiet_sb3()
    owned = tasks is None
    tasks = tasks or tasks_of(config)
    try:
        return _Training(config, out_dir, tasks, sink or _drop, control or NullControl()).run()
    finally:
        if owned:
            tasks.close()


def _drop(kind: str, data: Mapping[str, Any]) -> None:
    return None


class _Training:
    """One run: paths, model, callback, summary."""

    def __init__(
        self, config: TrainConfig, out_dir: Path, tasks: TaskSet, sink: EventSink, control: Control
    ) -> None:
        self.config, self.tasks, self.sink, self.control = config, tasks, sink, control
        info = tasks.tasks[0].bench.device
        gpu = re.sub(r"[^a-z0-9]+", "_", info.name.lower()).strip("_")
        self.tag = config.tag or f"{gpu}_{config.reward}_s{config.seed}"
        self.models, logs = out_dir / "models", out_dir / "logs"
        self.tensorboard = logs / "tensorboard"
        self.summary = logs / self.tag / f"training_summary_{gpu}.json"
        self.log = logs / self.tag / f"train_rl_{gpu}.log"
        for folder in (self.models, self.tensorboard, self.summary.parent):
            folder.mkdir(parents=True, exist_ok=True)
        self.model_path = self.models / f"{self.tag}.zip"
        self.best_path = self.models / f"{self.tag}_best" / "best_model.zip"
        self.checkpoints: list[Path] = []
        self.evaluations: list[dict[str, Any]] = []

    def run(self) -> TrainResult:
        config = self.config
        env = TaskVecEnv(
            [KernelOptimizationEnv(config.episode(), tasks=self.tasks) for _ in range(config.n_envs)]
        )
        model = self._model(env)
        done = model.num_timesteps
        left = config.total_steps - done
        if left <= 0:
            raise UsageError(f"{config.resume_from}: has {done} steps already; ask for more --total-steps")
        env.seed(config.seed + done)  # a resumed run doesn't repeat its first episodes
        self.say("info", f"training {self.tag} for {left} steps: {self.tasks.label}, {PROTOCOL}")
        callback = _Callback(self, model)
        start = time.perf_counter()
        try:
            model.learn(
                left, callback=callback, tb_log_name=self.tag, reset_num_timesteps=config.resume_from is None
            )
        except ValueError as error:  # Torch's, of a distribution over NaN
            if not any(torch.isnan(weights).any() for weights in model.policy.parameters()):
                raise
            raise WarpdeckError(
                "the policy's weights stopped being numbers; use a smaller learning rate"
            ) from error
        seconds = time.perf_counter() - start
        model.save(self.model_path)
        self.artifact("model", self.model_path)
        steps = model.num_timesteps
        fps = (steps - done) / seconds
        self.say(
            "info", f"{'stopped' if callback.stopped else 'finished'} at {steps} steps, {fps:.0f} steps/s"
        )
        result = TrainResult(
            model=self.model_path,
            best_model=self.best_path if self.best_path.is_file() else None,
            checkpoints=tuple(self.checkpoints),
            summary=self.summary,
            log=self.log,
            tensorboard=self.tensorboard,
            total_steps=steps,
            fps=fps,
            seconds=seconds,
            stopped=callback.stopped,
            evaluations=tuple(self.evaluations),
        )
        self._write_summary(result)
        return result

    def _model(self, env: TaskVecEnv) -> PPO:
        config = self.config
        layout = env.envs[0].layout
        n_steps = min(config.n_steps, -(-config.total_steps // config.n_envs))
        if n_steps * config.n_envs < 2:
            n_steps = 2  # an advantage needs company
        settings: dict[str, Any] = {
            "n_steps": n_steps,
            "batch_size": min(config.batch_size, n_steps * config.n_envs),
            "n_epochs": config.n_epochs,
            "learning_rate": (
                LinearSchedule(config.learning_rate, 0.0, 1.0) if config.anneal else config.learning_rate
            ),
            "gamma": config.gamma,
            "gae_lambda": config.gae_lambda,
            "clip_range": config.clip_range,
            "ent_coef": config.ent_coef,
            "vf_coef": config.vf_coef,
            "normalize_advantage": False,  # the buffer did it, task by task
            "rollout_buffer_class": TaskRolloutBuffer,
            "rollout_buffer_kwargs": {"context": layout.context},
            "tensorboard_log": str(self.tensorboard),
            "seed": config.seed,
            "device": config.torch_device,
        }
        if config.resume_from is not None:
            path = Path(config.resume_from)
            found = load_policy(path)
            if found.layout != layout:
                raise UsageError(
                    f"{path}: was trained on an observation with {found.layout.dim} slots and knobs of sizes"
                    f" {list(found.layout.nvec)}, not {layout.dim} and {list(layout.nvec)}"
                )
            model = PPO.load(path, env=env, **settings)
        else:
            slot = layout.names.index("size") if layout.observe_size else None
            network = {
                "net_arch": list(config.net),
                "features_extractor_class": TaskFeatures,
                "features_extractor_kwargs": {"size_slot": slot},
            }
            model = PPO("MlpPolicy", env, policy_kwargs=network, **settings)
        about = {
            "tag": self.tag,
            "workloads": list(dict.fromkeys(t.kernel for t in self.tasks.tasks)),
            "sizes": sorted({t.size for t in self.tasks.tasks}),
            "space": self.config.space,
            "knobs": {k: list(v) for k, v in self.tasks.space.knobs.items()},
            "slots": list(layout.names),
            "device": self.tasks.label,
        }
        setattr(model, ABOUT, about)  # Stable-Baselines3 saves a model's attributes with it
        return model

    def evaluate(self, model: PPO) -> None:
        """Run the deterministic policy; keep the model if it is the best so far."""
        count = self.config.n_eval_episodes or len(self.tasks.tasks)
        first = len(self.evaluations) * count
        tasks = [self.tasks.tasks[(first + i) % len(self.tasks.tasks)] for i in range(count)]
        env = TaskVecEnv([KernelOptimizationEnv(self.config.episode(), tasks=self.tasks) for _ in tasks])
        env.seed(10_000 + self.config.seed)
        env.set_options([{"kernel": t.kernel, "size": t.size} for t in tasks])
        observation: Any = env.reset()
        returns = np.zeros(count)
        best = np.ones(count)
        for _ in range(self.config.max_episode_len):
            action, _ = model.predict(observation, deterministic=True)
            observation, rewards, _, infos = env.step(action)
            returns += rewards
            best = np.maximum(best, [info["best_speedup"] for info in infos])
        record = {
            "step": model.num_timesteps,
            "episodes": count,
            "mean_reward": float(returns.mean()),
            "std_reward": float(returns.std()),
            "best_speedup": float(np.exp(np.log(best).mean())),
        }
        better = all(record["mean_reward"] > e["mean_reward"] for e in self.evaluations)
        self.evaluations.append(record)
        model.logger.record("eval/mean_reward", record["mean_reward"])
        model.logger.record("eval/best_speedup", record["best_speedup"])
        self.say(
            "info",
            f"step {record['step']}: mean episode reward {record['mean_reward']:.3f}, best speedup"
            f" {record['best_speedup']:.3f}x (geometric mean of {count} episodes)",
        )
        if better:
            self.best_path.parent.mkdir(parents=True, exist_ok=True)
            model.save(self.best_path)

    def checkpoint(self, model: PPO) -> None:
        """Write `<tag>_<n>_steps.zip`."""
        path = self.models / f"{self.tag}_{model.num_timesteps}_steps.zip"
        model.save(path)
        self.checkpoints.append(path)
        self.artifact("checkpoint", path)

    def say(self, level: str, text: str) -> None:
        """To the session and the log file."""
        with self.log.open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {level.upper()} {text}\n")
        self.sink("message", {"level": level, "text": text})

    def artifact(self, name: str, path: Path) -> None:
        """Tell the session of a file."""
        self.sink("artifact", {"name": name, "path": str(path)})

    def _write_summary(self, result: TrainResult) -> None:
        document = {
            "schema_version": 1,
            "tag": self.tag,
            "hyperparameters": asdict(self.config),
            "device": self.tasks.tasks[0].bench.device.to_json(),
            "tasks": [{"workload": t.kernel, "size": t.size} for t in self.tasks.tasks],
            "knobs": {k: list(v) for k, v in self.tasks.space.knobs.items()},
            "protocol": PROTOCOL,
            "versions": {
                "warpdeck": __version__,
                "python": platform.python_version(),
                "stable_baselines3": stable_baselines3.__version__,
                "gymnasium": gymnasium.__version__,
                "torch": torch.__version__,
            },
            **result.to_json(),
        }
        self.summary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
        self.artifact("summary", self.summary)


class _Callback(BaseCallback):
    """Pauses, stops, logs steps in batches, evaluates and checkpoints."""

    def __init__(self, training: _Training, model: PPO) -> None:
        super().__init__()
        self._training = training
        self.stopped = False
        self._best = 0.0
        self._columns: dict[str, list[Any]] = {"step": [], "reward": [], "speedup": [], "best_speedup": []}
        config = training.config
        self._next_eval = model.num_timesteps + config.eval_freq if config.eval_freq else None
        self._next_save = model.num_timesteps + config.checkpoint_freq if config.checkpoint_freq else None

    def _on_step(self) -> bool:
        rewards, infos = self.locals["rewards"], self.locals["infos"]
        columns = self._columns
        step = self.num_timesteps - len(infos)
        for reward, info in zip(rewards, infos, strict=True):
            step += 1
            speedup = info["speedup"]
            if speedup is not None and speedup > self._best:
                self._best = speedup
            columns["step"].append(step)
            columns["reward"].append(float(reward))
            columns["speedup"].append(speedup)
            columns["best_speedup"].append(self._best or None)
        assert isinstance(self.model, PPO)
        if self._next_eval is not None and self.num_timesteps >= self._next_eval:
            self._next_eval += self._training.config.eval_freq
            self._training.evaluate(self.model)
        if self._next_save is not None and self.num_timesteps >= self._next_save:
            self._next_save += self._training.config.checkpoint_freq
            self._training.checkpoint(self.model)
        try:
            self._training.control.check()
        except Stop:
            self.stopped = True
            return False
        return True

    def _on_rollout_end(self) -> None:
        self._flush()

    def _on_training_end(self) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._columns["step"]:
            self._training.sink("steps", {k: list(v) for k, v in self._columns.items()})
            for column in self._columns.values():
                column.clear()
