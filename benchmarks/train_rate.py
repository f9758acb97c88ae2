"""PPO on recordings: training steps a second, and how often the learnt policy finds an optimum.

    python benchmarks/train_rate.py [--device recorded:h200] [--total-steps 50000] [--seeds 3]

Prints Markdown. The rate is of the whole command `warpdeck train`, its start and its files included, by the
clock (other work on the machine counts) and by its processor time, and of the training alone. A hit: the
step of one deterministic 10-step episode whose time, as the episode measured it, is the fastest has a
configuration tied with the optimum. Tied: by `core.stats.tied` over the rounds of the whole recording, of
which the episode saw five samples a step. Beside it, the same of random choices, and of the policy's first
step alone.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from warpdeck.agents.ppo import TrainConfig, train
from warpdeck.agents.rollout import RolloutConfig, RolloutResult, rollout
from warpdeck.agents.tasks import TaskSet, open_tasks
from warpdeck.core.devices.recorded import RecordedDevice
from warpdeck.core.model import CacheMode, Status
from warpdeck.core.stats import round_logs, tied
from warpdeck.kernels.recordings import open_device

Ties = Mapping[tuple[str, int], set[str]]
STEPS = 10
RANDOM_EPISODES = 100  # of each case
VARIANTS = ((True, True), (True, False), (False, True), (False, False))  # observe_size, use_nvml


def ties(device: str) -> Ties:
    """Keys of the configurations tied with the best, by workload and size."""
    source = open_device(device)
    assert isinstance(source, RecordedDevice)
    found: dict[tuple[str, int], set[str]] = {}
    for recording in source.recordings(space="classic"):
        series = {
            key: entry.series[CacheMode.COLD]
            for key, entry in recording.entries.items()
            if entry.status is Status.OK
        }
        logs = {key: round_logs(s.ms, s.rounds) for key, s in series.items()}
        best = min(series, key=lambda key: series[key].median_ms)
        level = tied(logs[best], np.stack(list(logs.values())))
        found[recording.workload, int(recording.case)] = {
            key for key, is_tied in zip(logs, level, strict=True) if is_tied
        }
    source.close()
    return found


def hits(result: RolloutResult, tasks: TaskSet, tied: Ties) -> tuple[list[bool], list[bool], list[str]]:
    """For each episode: whether its fastest step is tied with the optimum, whether its first one is; and a
    line for each whose fastest isn't."""
    fastest, first, misses = [], [], []
    episodes: dict[int, list[Mapping[str, Any]]] = {}
    for row in result.steps:
        episodes.setdefault(row["episode_id"], []).append(row)
    for rows in episodes.values():
        keys = [tasks.space.key({k: row[k] for k in tasks.space.knobs}) for row in rows]
        best = min(range(len(rows)), key=lambda i: rows[i]["time_ms"])
        case = (rows[0]["kernel"], rows[0]["matrix_size"])
        fastest.append(keys[best] in tied[case])
        first.append(keys[0] in tied[case])
        if not fastest[-1]:
            misses.append(f"{case[0]} {case[1]}: {keys[best]}, tied {'; '.join(sorted(tied[case]))}")
    return fastest, first, misses


def command(device: str, steps: int, seed: int, *options: str) -> tuple[float, float, float]:
    """Steps a second of the whole command, of its processor time, and of the training as it reports it."""
    words = [sys.executable, "-m", "warpdeck", "train", "--device", device, "--total-steps", str(steps)]
    words += ["--seed", str(seed), "--json", *options]
    with tempfile.TemporaryDirectory() as home:
        start, used = time.perf_counter(), _processor_s()
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env={**os.environ, "WARPDECK_HOME": home}
        )
        took, used = time.perf_counter() - start, _processor_s() - used
    document = json.loads(done.stdout)
    return document["total_steps"] / took, document["total_steps"] / used, document["fps"]


def _processor_s() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return children.ru_utime + children.ru_stime


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="recorded:h200")
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=3, help="0 to N-1; other observations get 3 at most")
    options = parser.parse_args(arguments)

    best = ties(options.device)
    base = TrainConfig(device=options.device, total_steps=options.total_steps)
    tasks = open_tasks(base.workloads, device=options.device)
    print(f"{tasks.label}; {len(best)} cases of `classic`, {options.total_steps:,} steps.\n")

    print("| seed | observation | `warpdeck train`, steps/s | a processor second | training alone, steps/s |")
    print("|--:|---|--:|--:|--:|")
    for seed in range(min(options.seeds, 3)):
        for text, extra in (("13 slots", ()), ("and the size", ("--observe-size",))):
            whole, used, alone = command(options.device, options.total_steps, seed, *extra)
            print(f"| {seed} | {text} | {whole:,.0f} | {used:,.0f} | {alone:,.0f} |", flush=True)

    single = sum(len(t) for t in best.values()) / (tasks.space.cardinality * len(best))
    plan = RolloutConfig(max_steps=STEPS, episodes_per_case=RANDOM_EPISODES)
    ten = float(np.mean(hits(rollout(plan, tasks=tasks), tasks, best)[0]))
    print("\n| what chooses | seed | fastest of 10 steps | first step | missed |\n|---|--:|--:|--:|---|")
    print(
        f"| random | many | {ten * len(best):.1f} of {len(best)} | {single * len(best):.1f} | |", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        for observe_size, use_nvml in VARIANTS:
            name = f"policy, {'with' if observe_size else 'no'} size, {'with' if use_nvml else 'no'} NVML"
            for seed in range(options.seeds if observe_size and use_nvml else min(options.seeds, 3)):
                config = replace(base, observe_size=observe_size, use_nvml=use_nvml, seed=seed)
                trained = train(config, Path(folder), tasks=tasks)
                played = rollout(RolloutConfig(model=trained.model, max_steps=STEPS, seed=seed), tasks=tasks)
                fastest, first, misses = hits(played, tasks, best)
                print(
                    f"| {name} | {seed} | {sum(fastest)} | {sum(first)} | {', '.join(misses)} |", flush=True
                )
    tasks.close()


if __name__ == "__main__":
    main()
