"""Runs for the console's benchmarks: a made-up one (evaluations, steps, NVML samples, messages), and a real
one on the recording that ships."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from warpdeck.sessions.launch import Launched, launch_run
from warpdeck.sessions.spec import RunSpec
from warpdeck.sessions.store import SessionStore

DEVICE = {"name": "NVIDIA H200", "spec": "cuda:0", "sm_count": 132, "sm_clock_max_mhz": 1980.0}
BASELINE_MS = 0.020
STEPS_PER_S = 20  # faster than a live GPU run's


def start(steps: int) -> dict[str, Any]:
    """The `start` event's data."""
    return {
        "workload": "softmax",
        "agent": "random",
        "seed": 1,
        "space": "full",
        "cases": [{"name": "4096", "params": {"n": 4096}}],
        "device": DEVICE,
        "protocol": {"cache": "cold", "samples": 100},
        "knobs": {
            "block_size": [64, 128, 256, 512],
            "items": [1, 2, 4, 8, 16],
            "vector": [1, 2, 4],
            "unroll": [1, 2, 4, 8],
            "reg_cap": [0, 32, 64],
        },
        "steps": steps,
        "vendor": {"4096": {"name": "PyTorch", "median_ms": 0.018}},
        "floors": {"4096": 0.008},
    }


def evaluation(config: dict[str, int], ms: float) -> dict[str, Any]:
    """One evaluation's data."""
    return {
        "candidate": "-".join(str(v) for v in config.values()),
        "variant": "tiled",
        "source_hash": "0" * 12,
        "config": config,
        "status": "ok",
        "score_ms": ms,
        "measurements": [
            {
                "case": "4096",
                "cache": "cold",
                "clock": "cupti",
                "median_ms": ms,
                "ci95_ms": [ms * 0.995, ms * 1.005],
            }
        ],
        "resources": {"registers": 40, "occupancy": 0.75},
    }


def step_events(step: int, rng: random.Random, best: float) -> tuple[list[tuple[str, dict[str, Any]]], float]:
    """What one step logs, and the best speedup after it."""
    config = {
        "block_size": rng.choice([64, 128, 256, 512]),
        "items": rng.choice([1, 2, 4, 8, 16]),
        "vector": rng.choice([1, 2, 4]),
        "unroll": rng.choice([1, 2, 4, 8]),
        "reg_cap": rng.choice([0, 32, 64]),
    }
    ms = BASELINE_MS * rng.lognormvariate(0, 0.2)
    speedup = BASELINE_MS / ms
    best = max(best, speedup)
    sample = {
        "gpu_util": rng.randint(60, 99),
        "mem_used": 30e9,
        "mem_total": 150e9,
        "temp_c": rng.randint(50, 60),
        "power_w": rng.uniform(300, 500),
        "power_limit_w": 700.0,
        "sm_mhz": rng.randint(1700, 1980),
        "sm_max_mhz": 1980,
        "mem_mhz": 3201,
        "mem_max_mhz": 3201,
        "throttle": [],
    }
    row = {"step": step, "reward": speedup - 1, "speedup": speedup, "best_speedup": best, "config": config}
    events: list[tuple[str, dict[str, Any]]] = [
        ("evaluation", {**evaluation(config, ms), "step": step}),
        ("step", {**row, "status": "ok"}),
    ]
    if step % STEPS_PER_S == 0:  # NVML is sampled once a second
        events.append(("sample", sample))
    if step % 10 == 0:
        events.append(("message", {"level": "info", "text": f"step {step}: {speedup:.2f}x"}))
    return events, best


def stream(seed: int = 1, first: int = 0) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """What each step logs, without end."""
    rng, best, step = random.Random(seed), 0.0, first
    while True:
        events, best = step_events(step, rng, best)
        yield events
        step += 1


def write(sessions: Path, steps: int, name: str = "benchmark", *, ended: bool = False) -> Path:
    """A session of `steps` steps that is still said to run, unless it `ended`; returns its folder."""
    base = evaluation({"block_size": 256, "items": 1, "vector": 1, "unroll": 1, "reg_cap": 0}, BASELINE_MS)
    began = time.time() - steps
    with SessionStore.create(sessions, name, {"workload": "softmax"}) as store:
        store.append("state", {"state": "running", "reason": ""}, began)
        store.append_many([("start", start(10 * steps), began), ("baseline", base, began)])
        events = stream()
        for first in range(0, steps, 500):
            many = [next(events) for _ in range(first, min(first + 500, steps))]
            store.append_many(
                [(kind, data, began + first + i) for i, step in enumerate(many) for kind, data in step]
            )
        if ended:
            store.append("state", {"state": "finished", "reason": ""}, began + steps)
        return store.folder


def recorded(sessions: Path, steps: int) -> Launched:
    """A real run of `steps` steps on the recording, in a process of its own."""
    spec = RunSpec(
        "softmax", agent="random", device="recorded:h200", sizes=(1024, 4096, 8192), steps=steps, seed=1
    )
    return launch_run(spec, name="recorded", sessions=sessions)
