"""`train` and `rollout`: reinforcement learning over the environment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..core.errors import ExitCode
from . import names, options
from .output import json_document, line, message, table, warning

KERNELS = ("gemm", "reduction", "softmax")

Workloads = Annotated[
    list[str] | None,
    typer.Option(
        "--workload",
        "-w",
        metavar="W",
        help=f"Repeatable. [default: {', '.join(KERNELS)}]",
        autocompletion=names.workloads,
    ),
]
Sizes = Annotated[
    list[int] | None,
    typer.Option(
        "--size", metavar="N", help="Repeatable. [default: every recorded size; live 256, 512, 1024]"
    ),
]
Space = Annotated[str, typer.Option("--space", metavar="NAME", help="Search space.")]
Reward = Annotated[
    str, typer.Option("--reward", metavar="speedup|log_improvement", help="Speedup - 1, or log improvement.")
]
Nvml = Annotated[bool, typer.Option("--use-nvml/--no-nvml", help="NVML readings in the observation.")]
Cupti = Annotated[
    bool,
    typer.Option("--use-cupti", help="Hardware counters in the observation: recorded, or by ncu (slow)."),
]
CuptiTimeout = Annotated[
    float,
    typer.Option(
        "--cupti-timeout-s",
        metavar="S",
        min=1,
        max=options.MAX_SECONDS,
        help="Time limit of one start of ncu.",
    ),
]


def train(
    workload: Workloads = None,
    size: Sizes = None,
    device: options.Device = "auto",
    space: Space = "classic",
    cache: options.Cache = "cold",
    total_steps: Annotated[int, typer.Option("--total-steps", metavar="N", min=1)] = 50_000,
    max_episode_len: Annotated[int, typer.Option("--max-episode-len", metavar="N", min=1)] = 50,
    n_envs: Annotated[
        int, typer.Option("--n-envs", metavar="N", min=1, help="Environments side by side.")
    ] = 16,
    n_steps: Annotated[
        int, typer.Option("--n-steps", metavar="N", min=1, help="Steps each between updates.")
    ] = 64,
    batch_size: Annotated[int, typer.Option("--batch-size", metavar="N", min=1)] = 512,
    n_epochs: Annotated[int, typer.Option("--n-epochs", metavar="N", min=1)] = 8,
    learning_rate: Annotated[float, typer.Option("--learning-rate", metavar="X")] = 1e-3,
    gamma: Annotated[
        float, typer.Option("--gamma", metavar="X", min=0, max=1, help="Discount per step.")
    ] = 0.0,
    gae_lambda: Annotated[float, typer.Option("--gae-lambda", metavar="X", min=0, max=1)] = 0.95,
    clip_range: Annotated[float, typer.Option("--clip-range", metavar="X")] = 0.2,
    ent_coef: Annotated[float, typer.Option("--ent-coef", metavar="X", min=0)] = 0.01,
    eval_freq: Annotated[int, typer.Option("--eval-freq", metavar="N", min=0, help="0: never.")] = 5_000,
    n_eval_episodes: Annotated[
        int, typer.Option("--n-eval-episodes", metavar="N", min=0, help="0: one of each workload and size.")
    ] = 0,
    checkpoint_freq: Annotated[
        int, typer.Option("--checkpoint-freq", metavar="N", min=0, help="0: never.")
    ] = 10_000,
    observe_size: Annotated[
        bool, typer.Option("--observe-size", help="Append the size to the observation.")
    ] = False,
    reward: Reward = "speedup",
    use_nvml: Nvml = True,
    use_cupti: Cupti = False,
    cupti_timeout_s: CuptiTimeout = 120.0,
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume", metavar="FILE", help="Go on from a checkpoint you trust (loading it runs code)."
        ),
    ] = None,
    torch_device: Annotated[
        str, typer.Option("--torch-device", metavar="DEVICE", help="Of the network.")
    ] = "cpu",
    tag: Annotated[str, typer.Option("--tag", metavar="NAME", help="Names the artifacts.")] = "",
    session: Annotated[
        str | None, typer.Option("--session", metavar="NAME", help="Name of the session.")
    ] = None,
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> int:
    """Train a PPO policy that proposes configurations (the extra: rl).

    Writes model, checkpoints, best model, TensorBoard events and a summary into a session. Ctrl-C stops after
    the present step and keeps the model.
    """
    from ..sessions.training import train_session

    settings = {
        "workloads": tuple(workload or KERNELS),
        "sizes": tuple(size or ()),
        "device": device,
        "space": space,
        "cache": options.choice("--cache", cache, ("cold", "hot")),
        "total_steps": total_steps,
        "max_episode_len": max_episode_len,
        "use_nvml": use_nvml,
        "use_cupti": use_cupti,
        "cupti_timeout_s": cupti_timeout_s,
        "observe_size": observe_size,
        "reward": options.choice("--reward", reward, ("speedup", "log_improvement")),
        "n_envs": n_envs,
        "n_steps": n_steps,
        "batch_size": batch_size,
        "n_epochs": n_epochs,
        "learning_rate": learning_rate,
        "gamma": gamma,
        "gae_lambda": gae_lambda,
        "clip_range": clip_range,
        "ent_coef": ent_coef,
        "eval_freq": eval_freq,
        "n_eval_episodes": n_eval_episodes,
        "checkpoint_freq": checkpoint_freq,
        "seed": seed,
        "torch_device": torch_device,
        "tag": tag,
        "resume_from": resume,
        "allow_shared": allow_shared,
    }
    folder, result = train_session(settings, name=session, listen=_listen, signals=True)
    if as_json:
        json_document({"session": folder.name, **result.to_json()})
    else:
        ended = "stopped after" if result.stopped else "trained"
        line(f"{ended} {result.total_steps:,} steps, {result.fps:,.0f} a second")
        line(f"session   {folder.name}")
        line(f"model     {result.model}")
        if result.best_model:
            line(f"best      {result.best_model}")
        line(f"summary   {result.summary}")
        line(f"curves    tensorboard --logdir {result.tensorboard}")
    return ExitCode.INTERRUPTED if result.stopped else ExitCode.OK


def _listen(kind: str, data: Mapping[str, Any]) -> None:
    if kind == "message":
        (warning if data["level"] == "warning" else message)(str(data["text"]))


def rollout(
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="A trained policy you trust (loading it runs code); none: random actions.",
        ),
    ] = None,
    workload: Workloads = None,
    size: Sizes = None,
    device: options.Device = "auto",
    space: Space = "classic",
    cache: options.Cache = "cold",
    episodes_per_case: Annotated[int, typer.Option("--episodes-per-case", metavar="N", min=1)] = 1,
    max_steps: Annotated[int, typer.Option("--max-steps", metavar="N", min=1, help="Steps an episode.")] = 10,
    stochastic: Annotated[bool, typer.Option("--stochastic", help="Sample the policy's actions.")] = False,
    reward: Reward = "speedup",
    use_nvml: Nvml = True,
    use_cupti: Cupti = False,
    cupti_timeout_s: CuptiTimeout = 120.0,
    csv_dir: Annotated[
        Path, typer.Option("--csv-dir", metavar="DIR", help="Where the step and episode CSVs are written.")
    ] = Path(),
    seed: options.Seed = 0,
    allow_shared: options.AllowShared = False,
    as_json: options.Json = False,
) -> None:
    """Run episodes of a policy, or of random actions, and write step and episode CSVs (the extra: rl)."""
    from ..agents import registry

    registry.require_rl()
    from ..agents.rollout import RolloutConfig
    from ..agents.rollout import rollout as run

    options.writable_folder(csv_dir, "--csv-dir")
    result = run(
        RolloutConfig(
            model=model,
            workloads=tuple(workload or KERNELS),
            sizes=tuple(size or ()),
            device=device,
            space=space,
            cache=options.choice("--cache", cache, ("cold", "hot")),
            episodes_per_case=episodes_per_case,
            max_steps=max_steps,
            deterministic=not stochastic,
            use_nvml=use_nvml,
            use_cupti=use_cupti,
            cupti_timeout_s=cupti_timeout_s,
            reward=options.choice("--reward", reward, ("speedup", "log_improvement")),
            seed=seed,
            allow_shared=allow_shared,
        )
    )
    steps, episodes = result.write_csv(csv_dir)
    if as_json:
        json_document(
            {
                "device": result.device,
                "episodes": [dict(row) for row in result.episodes],
                "steps_csv": str(steps),
                "episodes_csv": str(episodes),
            }
        )
        return
    line(result.device)
    table(
        ["episode", "kernel", "size", "baseline ms", "best speedup", "mean reward"],
        [
            (
                row["episode_id"],
                row["kernel"],
                row["matrix_size"],
                f"{row['baseline_ms']:.5f}",
                "–" if row["best_speedup"] is None else f"{row['best_speedup']:.3f}",
                f"{row['mean_reward']:.3f}",
            )
            for row in result.episodes
        ],
        right=(0, 2, 3, 4, 5),
    )
    line(f"wrote {steps} and {episodes}")


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (train, rollout):
        app.command()(command)
