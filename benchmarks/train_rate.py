"""PPO on recordings: training steps a second, and how often the learnt policy finds an optimum.

    python benchmarks/train_rate.py [--device recorded:h200] [--total-steps 50000] [--seeds 3] [--json]

A hit: the fastest step of one deterministic 10-step episode is a configuration that a full sweep of the same
case reports as tied with its best. Beside it, how often one uniformly drawn configuration is a hit, and how
often the fastest of ten is.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from warpdeck.agents.ppo import TrainConfig, train
from warpdeck.agents.rollout import RolloutConfig, RolloutResult, rollout
from warpdeck.agents.tasks import TaskSet, open_tasks
from warpdeck.core.bench import Bench
from warpdeck.core.devices.base import Device
from warpdeck.kernels.recordings import open_device

Ties = Mapping[tuple[str, int], set[str]]
STEPS = 10


def ties(tasks: TaskSet, device: Device) -> Ties:
    """Keys of the configurations tied with the best, by workload and size."""
    found: dict[tuple[str, int], set[str]] = {}
    for task in tasks.tasks:
        bench = Bench(task.bench.workload, device, space=tasks.space.name, cases=[task.case])
        configs = bench.configs()
        for _ in bench.evaluate_many(configs):
            pass
        result = bench.finish(finalists=len(configs))
        found[task.kernel, task.size] = {bench.space.key(e.candidate.config) for e in result.tied}
        bench.close()
    return found


def hits(result: RolloutResult, tasks: TaskSet, tied: Ties) -> tuple[int, list[str]]:
    """Episodes whose fastest step is tied with the optimum, and a line for each that isn't."""
    count, misses = 0, []
    for episode in result.episodes:
        rows = [r for r in result.steps if r["episode_id"] == episode["episode_id"]]
        best = max(rows, key=lambda r: r["speedup"] or 0.0)
        key = tasks.space.key({k: best[k] for k in tasks.space.knobs})
        case = (best["kernel"], best["matrix_size"])
        if key in tied[case]:
            count += 1
        else:
            misses.append(f"{case[0]} {case[1]}: chose {key}, tied: {'; '.join(sorted(tied[case]))}")
    return count, misses


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--device", default="recorded:h200")
    parser.add_argument("--total-steps", type=int, default=50_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)

    tasks = open_tasks(TrainConfig().workloads, device=options.device)
    device = open_device(options.device)
    tied = ties(tasks, device)
    cardinality = tasks.space.cardinality
    random_one = sum(len(t) for t in tied.values()) / (cardinality * len(tied))
    drawn = [rollout(RolloutConfig(max_steps=STEPS, seed=1000 * s), tasks=tasks) for s in range(20)]
    random_ten = sum(hits(r, tasks, tied)[0] for r in drawn) / (len(tied) * len(drawn))
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for observe_size in (False, True):
            for seed in range(options.seeds):
                config = TrainConfig(
                    device=options.device,
                    total_steps=options.total_steps,
                    observe_size=observe_size,
                    seed=seed,
                    tag=f"s{seed}{'_size' if observe_size else ''}",
                )
                start = time.perf_counter()
                trained = train(config, Path(folder), tasks=tasks)
                wall = time.perf_counter() - start
                played = rollout(RolloutConfig(model=trained.model, max_steps=STEPS, seed=seed), tasks=tasks)
                count, misses = hits(played, tasks, tied)
                runs.append(
                    {
                        "seed": seed,
                        "observe_size": observe_size,
                        "fps": trained.fps,
                        "fps_with_saving": trained.total_steps / wall,
                        "hits": count,
                        "misses": misses,
                    }
                )
    document = {
        "device": tasks.label,
        "cases": len(tied),
        "total_steps": options.total_steps,
        "random_choice_hit_rate": random_one,
        "random_best_of_10_hit_rate": random_ten,
        "runs": runs,
    }
    tasks.close()
    device.close()
    if options.json:
        print(json.dumps(document, indent=2))
        return
    print(f"{document['device']}; {len(tied)} cases, {options.total_steps} steps")
    print(
        f"one random configuration is a hit in {random_one:.0%} of cases, the best of ten in {random_ten:.0%}"
    )
    for run in runs:
        size = "with size" if run["observe_size"] else "without size"
        print(f"seed {run['seed']} {size}: {run['fps']:.0f} steps/s, {run['hits']} of {len(tied)} hits")
        for miss in run["misses"]:
            print(f"    {miss}")


if __name__ == "__main__":
    main()
