"""How fast a long session is written, reduced and sought in.

    python benchmarks/session_seek.py [STEPS]

Measured on two cores of a cloud Xeon, ext4 on a virtual disk, Python 3.11 (goals: reduce under 2 s, any seek
under 100 ms, for 100,000 steps):

| 100,000 steps, 5,000 evaluations, 2,000 samples | |
|---|---|
| write, 100 steps a transaction, fsync | 4.14 s |
| size on disk | 43.9 MB |
| read and decode all events | 1.00 s |
| reduce all events | 0.35 s |
| open at the end | median 5.1 ms, maximum 7.0 ms |
| seek to an event | median 6.3 ms, maximum 61.2 ms |
| seek to a step | median 6.8 ms, maximum 59.0 ms |
| seek to a time | median 5.0 ms, maximum 59.5 ms |
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from warpdeck.core.model import CacheMode, Candidate, Evaluation, Measurement, Status
from warpdeck.sessions.state import reduce_all
from warpdeck.sessions.store import SessionStore
from warpdeck.telemetry.readings import Snapshot


def main() -> None:
    """Build a session and print the table."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        rows: list[tuple[str, str]] = []
        with SessionStore.create(Path(folder), "long", {}) as store:
            begin = time.perf_counter()
            for first in range(0, steps, 100):
                store.append_many(log(rng, range(first, min(first + 100, steps))))
            rows.append(("write, 100 steps a transaction, fsync", f"{time.perf_counter() - begin:.2f} s"))
        size = sum(path.stat().st_size for path in (Path(folder) / "long").iterdir())
        rows.append(("size on disk", f"{size / 1e6:.1f} MB"))
        with SessionStore.open(Path(folder) / "long") as store:
            begin = time.perf_counter()
            events = list(store.events())
            rows.append(("read and decode all events", f"{time.perf_counter() - begin:.2f} s"))
            begin = time.perf_counter()
            whole = reduce_all(events)
            rows.append(("reduce all events", f"{time.perf_counter() - begin:.2f} s"))
            assert store.state() == whole
            first_t, last_t = events[0].t, events[-1].t
            rows.append(seeks("open at the end", [lambda: store.state()] * 20))
            places = [rng.randrange(len(events)) for _ in range(200)]
            rows.append(seeks("seek to an event", [lambda n=n: store.state(n) for n in places]))
            rows.append(seeks("seek to a step", [lambda n=n: store.state_at_step(n) for n in places]))
            times = [rng.uniform(first_t, last_t) for _ in range(200)]
            rows.append(seeks("seek to a time", [lambda t=t: store.state(store.seq_at(t)) for t in times]))
    print(f"| {steps:,} steps, {-(-steps // 20):,} evaluations, {-(-steps // 50):,} samples | |\n|---|---|")
    for name, value in rows:
        print(f"| {name} | {value} |")


def log(rng: random.Random, numbers: range) -> Iterator[tuple[str, dict[str, object]]]:
    """Steps, and among them evaluations and NVML samples that fill the leaderboard and the history."""
    for n in numbers:
        yield step(rng, n)
        if n % 20 == 0:
            ms = rng.uniform(0.1, 1.0)
            config = {"block_size": 256, "tile": n, "unroll": 4, "reg_cap": 0}
            samples = np.full(100, ms) * np.linspace(0.98, 1.02, 100)
            timed = Measurement("1024", CacheMode.COLD, "cupti", samples, ci95_ms=(ms * 0.999, ms * 1.001))
            done = Evaluation(Candidate("tiled", config, "0"), Status.OK, measurements=(timed,))
            yield "evaluation", {**done.to_json(), "step": n + 1}
        if n % 50 == 0:
            yield "sample", Snapshot(t=n, gpu_util=99, power_w=rng.uniform(100, 700), sm_mhz=1980).to_json()


def step(rng: random.Random, number: int) -> tuple[str, dict[str, object]]:
    """A step event as agents write it."""
    speedup = rng.uniform(0.5, 2.0)
    config = {"block_size": 256, "tile": rng.choice([8, 16, 32]), "unroll": 4, "reg_cap": 0}
    return "step", {
        "step": number,
        "reward": speedup - 1,
        "speedup": speedup,
        "best_speedup": 2.0,
        "config": config,
        "status": "ok",
    }


def seeks(name: str, calls: list) -> tuple[str, str]:
    """Median and maximum of the calls' times."""
    taken = []
    for call in calls:
        begin = time.perf_counter()
        call()
        taken.append((time.perf_counter() - begin) * 1e3)
    return name, f"median {statistics.median(taken):.1f} ms, maximum {max(taken):.1f} ms"


if __name__ == "__main__":
    main()
