"""What hardware counters cost: the seed set over a whole space in one start, against a start for each, and
every metric set's passes and time.

    python benchmarks/ncu_cost.py [--device cuda:0] [--size 1024] [--workload softmax]… [--seed-only]
        [--csv FILE]

`s_per_config` is the wall time of `Backend.profile` over the number of configurations: the start of Nsight
Compute, its program, the passes, and reading the report; in the rows “checked meanwhile” also compiling and
checking every configuration, in a backend that is new. `ncu_s`: from the moment when the program had its work
until Nsight Compute had ended.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warpdeck.core.devices.base import Backend
from warpdeck.core.model import CacheMode, Candidate, Case
from warpdeck.core.profiling import NcuFailure, ProfileOptions
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device
from warpdeck.telemetry.ncu import run
from warpdeck.telemetry.ncu.counters import Counters
from warpdeck.telemetry.ncu.metrics import SEED, SETS

WORKLOADS = ("gemm", "reduction", "softmax")
SINGLES = 3  # starts of their own that are timed


def timed(
    backend: Backend, candidates: Sequence[Candidate], case: Case, options: ProfileOptions
) -> tuple[float, list[Counters]]:
    """Seconds, and the counters. Exits with the reason if a candidate has none."""
    started = time.perf_counter()
    found = backend.profile(candidates, case, options)
    seconds = time.perf_counter() - started
    counters = [c for c in found if isinstance(c, Counters)]
    failures = [f for f in found if isinstance(f, NcuFailure)]
    if failures:
        raise SystemExit(f"{len(failures)} of {len(found)} have no counters: {failures[0].text}")
    return seconds, counters


def row(what: str, case: str, seconds: float, found: Sequence[Counters], starts: int) -> dict[str, Any]:
    """A line of the table."""
    tool = sum(float(c.meta["start_s"]) for c in found[:: max(1, len(found) // starts)])
    return {
        "workload": found[0].meta["workload"],
        "size": case,
        "what": what,
        "configs": len(found),
        "starts": starts,
        "passes": found[0].meta.get("passes"),
        "wall_s": round(seconds, 2),
        "ncu_s": round(tool, 2),
        "s_per_config": round(seconds / len(found), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="what hardware counters cost")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--workload", action="append", choices=WORKLOADS)
    parser.add_argument("--seed-only", action="store_true", help="leave the other metric sets out")
    parser.add_argument("--csv", type=Path)
    options = parser.parse_args()
    device = open_device(options.device)
    rows: list[dict[str, Any]] = []
    try:
        print(f"{device.info.label}, Nsight Compute {run.version(run.find())}, size {options.size}, cold\n")
        columns = [
            "workload",
            "size",
            "what",
            "configs",
            "starts",
            "passes",
            "wall_s",
            "ncu_s",
            "s_per_config",
        ]
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)

        def tell(made: dict[str, Any]) -> None:
            rows.append(made)
            print(f"| {' | '.join(str(made[c]) for c in columns)} |", flush=True)

        for name in options.workload or WORKLOADS:
            workload = load_workload(name)
            case = workload.size_case(options.size)
            configs = workload.space("classic").configs(case.params)
            candidates = [workload.candidate("classic", config) for config in configs]
            backend = device.prepare(workload, space="classic", cases=[case], seed=0)
            try:
                seed = ProfileOptions(cache=CacheMode.COLD)
                seconds, found = timed(backend, candidates, case, seed)
                tell(row("seed, checked meanwhile", case.name, seconds, found, 1))
                seconds, found = timed(backend, candidates, case, seed)
                tell(row("seed, one start", case.name, seconds, found, 1))
                for counters in found:
                    values = ", ".join(f"{n} {counters.metrics[n].norm:.3f}" for n in SEED)
                    config = " ".join(f"{k}={v}" for k, v in dict(counters.meta["config"]).items())
                    print(f"<!-- {config}: {values} -->")
                singles = [timed(backend, [c], case, seed) for c in candidates[:SINGLES]]
                total = sum(s for s, _ in singles)
                tell(row("seed, a start each", case.name, total, [f[0] for _, f in singles], SINGLES))
                for chosen in SETS:
                    if chosen != "seed" and not options.seed_only:
                        seconds, found = timed(backend, candidates[:1], case, ProfileOptions(set=chosen))
                        tell(row(f"{chosen}, one start", case.name, seconds, found, 1))
            finally:
                backend.close()
    finally:
        device.close()
    if options.csv:
        with options.csv.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
