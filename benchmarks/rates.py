"""How fast measuring is: environment steps, phase 0's 81 configurations, an isolated evaluation.

    python benchmarks/rates.py [--steps 1000] [--only environment|phase0|isolated]

Goals on an H200: environment steps on fresh measurements, median over kernels at sizes up to 512, 850 a
second or more (1024 is reported); phase 0, checked, 100 samples each, 20 s or less with an empty compile
cache and 8 s with a warm one; an isolated evaluation (fresh process and context, load, check, 110 launches)
at the median at most 200 ms above a bare fresh context of the same run.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from warpdeck.core.bench import performance_cases
from warpdeck.core.model import Protocol, Status
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device

NAMES = ("gemm", "reduction", "softmax")
WARM_RUNS = 3


def environment(steps: int) -> None:
    from warpdeck.agents.env import EpisodeConfig, KernelOptimizationEnv

    rates: dict[int, list[float]] = {}
    for cache in ("cold", "hot"):
        for size in (256, 512, 1024):
            rates[size] = []
            for name in NAMES:
                config = EpisodeConfig(name, size, max_steps=10**9, device="cuda:0", cache=cache)
                env = KernelOptimizationEnv(config)
                env.reset(seed=1)
                # Drawn actions can leave a configuration out for long, and its compiling costs 100 steps.
                for action in np.ndindex(*env.layout.nvec):
                    env.step(np.array(action))
                actions = [env.action_space.sample() for _ in range(steps)]
                start = time.perf_counter()
                for action in actions:
                    env.step(action)
                rates[size].append(steps / (time.perf_counter() - start))
                env.close()
            print(f"environment {cache} {size:5}: " + " ".join(f"{r:7.0f}" for r in rates[size]) + " steps/s")
        middle = statistics.median([*rates[256], *rates[512]])
        print(f"environment {cache}: median up to 512 {middle:.0f} steps/s (goal 850)")


def phase0() -> None:
    command = [sys.executable, "-m", "warpdeck", "sweep", *NAMES, "--device", "cuda:0"]
    command += ["--size", "256", "--size", "512", "--size", "1024"]
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "WARPDECK_HOME": home, "XDG_CACHE_HOME": home}
        # Modules that Python compiles anew at every start are no part of what an installation does.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for state in ("empty compile cache", *["warm compile cache"] * WARM_RUNS):
            start = time.perf_counter()
            csv = ["--csv", f"{home}/{state.split()[0]}.csv"]
            done = subprocess.run(
                [*command, *csv], capture_output=True, text=True, env=environment, check=False
            )
            took = time.perf_counter() - start
            rows = len(Path(csv[1]).read_text().splitlines()) - 1 if done.returncode == 0 else 0
            print(f"phase 0, {state}: {took:.1f} s, {rows} rows, exit {done.returncode} {done.stderr[-300:]}")
            _stages(Path(home), time.time() - took)


def _stages(home: Path, start: float) -> None:
    """Seconds after `start` at which each session came to its stages; of repeated ones the last."""
    from warpdeck.sessions.store import SessionStore

    for folder in sorted((home / "sessions").iterdir(), key=lambda path: path.stat().st_mtime):
        with SessionStore.open(folder) as store:
            seen = {str(e.data.get("state") or e.kind): e.t - start for e in store.events() if e.t >= start}
        if seen:
            shown = ("running", "start", "vendor", "baseline", "evaluation", "result", "artifact", "finished")
            print(f"  {folder.name:38}", *(f"{name} {seen[name]:.2f}" for name in shown if name in seen))


def isolated() -> None:
    device: Any = open_device("cuda:0")
    workload = load_workload("softmax")
    cases = performance_cases(workload, [512])
    backend = device.prepare(workload, space="classic", cases=cases, seed=1)
    candidate = workload.candidate("classic", {"block_size": 128, "reg_cap": 0})
    protocol = Protocol(samples=100, min_samples=100, adaptive=False)
    bare, whole = [], []
    backend.evaluate(candidate, cases, protocol)
    for number in range(25):
        start = time.perf_counter()
        device.spawn().close()
        bare.append(time.perf_counter() - start)
        config = {"block_size": (64, 128, 256)[number % 3], "reg_cap": (0, 32, 64)[number // 3 % 3]}
        candidate = workload.candidate("classic", config)
        backend.end_workers()  # the next evaluation needs a fresh process and context
        start = time.perf_counter()
        evaluation = backend.evaluate(candidate, cases, protocol)
        whole.append(time.perf_counter() - start)
        assert evaluation.status is Status.OK, evaluation.message
    low, high = statistics.median(bare), statistics.median(whole)
    print(
        f"isolated: bare context {low * 1e3:.0f} ms, evaluation {high * 1e3:.0f} ms,"
        f" {(high - low) * 1e3:.0f} ms above (goal 200); p90 {sorted(whole)[22] * 1e3:.0f} ms"
    )
    backend.close()
    device.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="environment, phase 0 and isolated rates")
    parser.add_argument("--steps", type=int, default=1000, help="of the environment, timed; 500 or more")
    runs = {"environment": lambda: environment(options.steps), "phase0": phase0, "isolated": isolated}
    parser.add_argument("--only", choices=runs, help="one of the three")
    options = parser.parse_args()
    for name, run in runs.items():
        if options.only in (None, name):
            run()


if __name__ == "__main__":
    main()
