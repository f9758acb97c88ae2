"""Whether a dashboard that looks on makes a kernel slower: the same kernel's time with it and without.

    python benchmarks/console_on_off.py [--workload softmax] [--size N …] [--pairs 12] [--seconds 3]

A run measures one configuration (the recording's best) again and again through the `Bench`, cache cold,
and logs evaluations, steps and NVML samples as every run does. A block is `--seconds` of that; in one of
each pair a real `warpdeck attach` is open on a pseudo-terminal (4 Hz, live gauges), in the other none is;
which is first alternates. The first second after each change isn't counted. The ratio is of the blocks'
medians, the interval the exact signed-rank one over pairs. The target is 1%.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from console_terminal import Terminal

from warpdeck.core.bench import Bench, performance_cases
from warpdeck.core.model import CacheMode, Candidate, Protocol, Status
from warpdeck.core.stats import Speedup, paired_speedup
from warpdeck.kernels import load_workload
from warpdeck.kernels.recordings import open_device
from warpdeck.sessions.alive import RunLock
from warpdeck.sessions.log import LogWriter
from warpdeck.sessions.store import SessionStore
from warpdeck.telemetry.sampler import Sampler

TARGET = 0.01
SETTLE_S = 1.0


def tuned(name: str, size: int) -> Candidate:
    """The fastest candidate of the recording."""
    device = open_device("recorded:h200")
    workload = load_workload(name)
    cases = performance_cases(workload, [size])
    backend = device.prepare(workload, space="full", cases=cases, seed=1)
    candidates = [workload.candidate("full", c) for c in workload.space("full").configs(cases[0].params)]
    found = backend.evaluate_many(candidates, cases, Protocol())
    best = min((e for e in found if e.status is Status.OK), key=lambda e: e.score_ms or 1e9)
    backend.close()
    return best.candidate


class Run:
    """Measures one configuration for as long as it is asked to, and logs it."""

    def __init__(self, bench: Bench, log: LogWriter, candidate: Candidate) -> None:
        self.bench, self._log, self._candidate = bench, log, candidate
        self.step = 0

    def begin(self, name: str) -> None:
        """What a run says first."""
        device, space = self.bench.device, self.bench.space
        start = {
            "workload": name,
            "agent": "the same configuration",
            "seed": 1,
            "space": "full",
            "cases": [{"name": case.name, "params": dict(case.params)} for case in self.bench.cases],
            "device": device.to_json(),
            "protocol": self.bench.protocol.to_json(),
            "knobs": {knob: list(values) for knob, values in space.knobs.items()},
            "floors": self.bench.floors(),
        }
        self._log.sink("state", {"state": "running", "reason": ""})
        self._log.sink("start", start)
        self.bench.baseline()

    def measure(self, seconds: float) -> list[dict[str, float]]:
        """Each evaluation's median of each case, in ms."""
        found, end = [], time.perf_counter() + seconds
        while time.perf_counter() < end:
            evaluation = self.bench.evaluate(self._candidate)
            assert evaluation.status is Status.OK, evaluation.message
            speedup = self.bench.speedup(evaluation) or 1.0
            self._log.sink(
                "step",
                {
                    "step": self.step,
                    "reward": speedup - 1,
                    "speedup": speedup,
                    "best_speedup": speedup,
                    "config": dict(evaluation.candidate.config),
                    "status": "ok",
                },
            )
            self.step += 1
            found.append({m.case: m.median_ms for m in evaluation.measurements})
        return found


@contextmanager
def console(folder: Path) -> Iterator[Terminal]:
    """A dashboard on the run, with its first screen there."""
    terminal = Terminal([sys.executable, "-m", "warpdeck", "attach", str(folder)], home=folder.parents[1])
    try:
        terminal.until(b"Leaderboard, best")
        terminal.keep()
        yield terminal
    finally:
        terminal.close()


def block(run: Run, folder: Path, seconds: float, *, on: bool) -> tuple[list[dict[str, float]], float, float]:
    """(what was measured, share of a core that the dashboard took, kilobytes a second that it wrote)."""
    if not on:
        run.measure(SETTLE_S)
        return run.measure(seconds), 0.0, 0.0
    with console(folder) as terminal:
        run.measure(SETTLE_S)
        cpu, written, began = terminal.cpu_s(), terminal.written, time.perf_counter()
        found = run.measure(seconds)
        took = time.perf_counter() - began
        return found, (terminal.cpu_s() - cpu) / took, (terminal.written - written) / took / 1024


def report(pairs: list[dict[bool, tuple[list[dict[str, float]], float, float]]]) -> dict[str, Any]:
    """The ratio of times with and without, for each case."""
    cases: dict[str, Any] = {}
    for case in pairs[0][True][0][0]:
        on, off = (
            [statistics.median(one[case] for one in pair[side][0]) for pair in pairs]
            for side in (True, False)
        )
        # What `b` gains over `a` is a / b: the time with the dashboard by the time without.
        ratio: Speedup = paired_speedup(on, off)
        cases[case] = {
            "ratio_on_off": round(ratio.ratio, 5),
            "interval": [round(ratio.lo, 5), round(ratio.hi, 5)],
            "on_ms": statistics.median(on),
            "off_ms": statistics.median(off),
            "ok": ratio.hi <= 1 + TARGET and ratio.lo >= 1 / (1 + TARGET),
        }
    counts = {side: sum(len(pair[side][0]) for pair in pairs) for side in (True, False)}
    return {
        "cases": cases,
        "pairs": len(pairs),
        "evaluations": {"on": counts[True], "off": counts[False]},
        "console_cpu_percent": round(100 * statistics.mean(pair[True][1] for pair in pairs), 2),
        "console_kb_s": round(statistics.mean(pair[True][2] for pair in pairs), 1),
        "target": TARGET,
    }


def main() -> None:
    """Measure and print one JSON document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workload", default="softmax")
    parser.add_argument("--size", type=int, action="append")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--limit", type=float, default=600, help="seconds after which no new pair is begun")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the dashboard and the workers end with this
    began, sizes = time.perf_counter(), options.size or [1024, 8192]
    candidate = tuned(options.workload, sizes[-1])
    workload = load_workload(options.workload)
    with tempfile.TemporaryDirectory() as home:
        device = open_device(options.device)
        with SessionStore.create(Path(home) / "sessions", "on-off", {"workload": workload.name}) as store:
            lock, log = RunLock.acquire(store.folder), LogWriter(store)
            sampler = Sampler(device.info.uuid or "", lambda seen: log.sink("sample", seen.to_json()))
            bench = Bench(
                workload,
                device,
                cases=performance_cases(workload, sizes),
                protocol=Protocol(CacheMode.COLD, samples=100, min_samples=100, adaptive=False),
                seed=1,
                sink=log.sink,
                quiet=sampler.paused,
            )
            run, pairs = Run(bench, log, candidate), []
            run.begin(workload.name)
            with sampler:
                run.measure(SETTLE_S)
                with console(store.folder):  # its files are in the cache after that
                    run.measure(SETTLE_S)
                for number in range(options.pairs):
                    if pairs and time.perf_counter() - began > options.limit:
                        break
                    order = (True, False) if number % 2 else (False, True)
                    pairs.append({on: block(run, store.folder, options.seconds, on=on) for on in order})
            samples = len(store.state().samples)
            bench.close()
            log.close()
            lock.release()
        device.close()
    found = {
        "device": device.info.label,
        "workload": workload.name,
        "config": dict(candidate.config),
        "nvml_samples": samples,
        **report(pairs),
    }
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
